"""Plain columns: types that few functions of Arrow take, read as the ones that all of them take; and their entries.

Views become texts, an extension type what it is stored as, a run-end encoded column its values. A UUID, an interval and
a period of pandas are read as their texts, which are what a CSV file has of them; where nobody has imported pandas,
their types are in the metadata of the field alone. A dictionary has each entry once. Half floats stay what they are,
since thresholds and the edges of bands are rounded as the column is; :func:`widened` is for where nothing is cut.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

import pyarrow as pa

from fairfix.data.canonical import canonical
from fairfix.errors import DataError

PLAIN = {
    pa.string_view(): pa.large_string(),
    pa.binary_view(): pa.large_binary(),
}
"""Type -> the plain one with the same entries."""

STORED = {"arrow.uuid": pa.string(), "arrow.bool8": pa.bool_()}
"""Name of an extension type -> the plain type, where that is not what the type is stored as."""


Extension = tuple[str, Mapping[str, Any]]
"""Name of an extension type whose entries are printed, and its settings."""

PRINTED = ("pandas.interval", "pandas.period")
"""Extension types whose entries are read as what pandas prints."""

NO_OBJECT = (ValueError, OverflowError, KeyError, pa.ArrowException)
"""Errors for an entry that Python has no object for; KeyError is that of an unknown time zone."""


def extension_of(field: pa.Field) -> Extension | None:
    """Return the extension type of a column, or of its dictionary, where its entries are printed; else None."""
    kind = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
    if isinstance(kind, pa.ExtensionType):
        name, settings = kind.extension_name, kind.__arrow_ext_serialize__()
    else:
        kept = field.metadata or {}
        name, settings = (kept.get(b"ARROW:extension:" + part, b"") for part in (b"name", b"metadata"))
        name = name.decode("utf-8", "replace")
    if name not in PRINTED:
        return None
    try:
        return name, dict(json.loads(settings))
    except (ValueError, TypeError):  # whoever wrote the file
        return None


def printed(array: pa.Array, extension: Extension) -> pa.Array:
    """Return the texts that pandas prints for the entries of a column of intervals or periods."""
    import pandas as pd

    name, settings = extension
    storage = array.storage if isinstance(array, pa.ExtensionArray) else array
    texts: dict[Any, str | None] = {None: None}

    def text(entry: Any) -> str | None:
        if name == "pandas.period":
            return str(pd.Period(ordinal=entry, freq=settings["freq"]))
        if None in entry:
            return None
        left, right = (pd.Timestamp(one) if isinstance(one, datetime) else one for one in entry)
        return str(pd.Interval(left, right, settings["closed"]))

    out = []
    try:
        for one in storage.to_pylist():
            entry = (one["left"], one["right"]) if isinstance(one, dict) else one
            if entry not in texts:
                texts[entry] = text(entry)
            out.append(texts[entry])
    except (ValueError, TypeError, KeyError) as error:  # whoever wrote the file
        raise DataError(
            f"a column of type {name} contains an invalid value: {error}; save it as text"
        ) from error
    return pa.array(out, pa.string())


def plain_field(field: pa.Field) -> pa.Field:
    """Return the field of the plain column."""
    if extension_of(field) is None:
        return field.with_type(plain_type(field.type))
    kind = field.type
    texts = (
        pa.dictionary(kind.index_type, pa.string(), kind.ordered)
        if pa.types.is_dictionary(kind)
        else pa.string()
    )
    return field.with_type(texts).remove_metadata()


def plain_type(kind: pa.DataType) -> pa.DataType:
    """Return the plain type of a column's type."""
    if isinstance(kind, pa.BaseExtensionType):
        return STORED.get(kind.extension_name) or plain_type(kind.storage_type)
    if pa.types.is_run_end_encoded(kind):
        return plain_type(kind.value_type)
    if pa.types.is_dictionary(kind):
        return pa.dictionary(kind.index_type, plain_type(kind.value_type), kind.ordered)
    if pa.types.is_decimal(kind) and kind.bit_width < 128:
        return pa.decimal128(kind.precision, kind.scale)
    return PLAIN.get(kind, kind)


def plain_schema(schema: pa.Schema) -> pa.Schema:
    """Return a schema with plain types."""
    return pa.schema(list(map(plain_field, schema)), schema.metadata)


def is_plain(schema: pa.Schema) -> bool:
    """Tell whether columns of a schema are plain whatever they hold; a dictionary may have an entry twice."""
    return not any(pa.types.is_dictionary(one.type) or plain_field(one).type != one.type for one in schema)


def plain_batch(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return a batch with plain columns."""
    columns = list(map(plain, batch.columns, map(extension_of, batch.schema)))
    return pa.RecordBatch.from_arrays(columns, schema=plain_schema(batch.schema))


def plain(array: pa.Array, extension: Extension | None = None) -> pa.Array:
    """Return a column in its plain type; an extension whose entries are printed is that of its field."""
    if pa.types.is_dictionary(array.type):
        return _distinct(of_entries(array, lambda entries: plain(entries, extension)))
    if extension is not None:
        return printed(array, extension)
    kind, wanted = array.type, plain_type(array.type)
    if kind == wanted:
        return array
    if isinstance(kind, pa.BaseExtensionType):
        if kind.extension_name == "arrow.uuid":
            texts = [None if one is None else str(uuid.UUID(bytes=one)) for one in array.storage.to_pylist()]
            return pa.array(texts, wanted)
        return plain(array.storage).cast(wanted)
    if pa.types.is_run_end_encoded(kind):
        import pyarrow.compute as pc

        return plain(pc.run_end_decode(array))
    return array.cast(wanted)


def of_entries(array: pa.DictionaryArray, change: Callable[[pa.Array], pa.Array]) -> pa.DictionaryArray:
    """Return a dictionary column with its entries changed."""
    inner = change(array.dictionary)
    if inner is array.dictionary:
        return array
    return pa.DictionaryArray.from_arrays(array.indices, inner, ordered=array.type.ordered)


def _distinct(array: pa.DictionaryArray) -> pa.DictionaryArray:
    """Return a column whose dictionary has each entry once and none missing, as pandas wants it, but not Arrow."""
    kind = array.type
    try:
        if not array.dictionary.null_count and len(array.dictionary.unique()) == len(array.dictionary):
            return array
    except pa.ArrowNotImplementedError:  # entries that Arrow cannot compare, such as lists
        return array
    once = array.dictionary_decode().dictionary_encode()
    indices = once.indices.cast(kind.index_type)
    return pa.DictionaryArray.from_arrays(indices, once.dictionary, ordered=kind.ordered)


def widened(array: pa.Array) -> pa.Array:
    """Return a column of half floats as floats, since Arrow cannot order or sum them; any other as it is."""
    if pa.types.is_dictionary(array.type):
        return of_entries(array, widened)
    return array.cast(pa.float32()) if pa.types.is_float16(array.type) else array


def widened_batch(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return a batch without half floats."""
    columns = [widened(column) for column in batch.columns]
    return pa.RecordBatch.from_arrays(columns, batch.schema.names) if columns else batch


def as_first(batch: pa.RecordBatch, schema: pa.Schema, where: str) -> pa.RecordBatch:
    """Return a batch of the file ``where`` with the types of a schema, that of the first file.

    A DataError where an entry cannot be one of that type.
    """
    columns = []
    for column, wanted in zip(batch.columns, schema, strict=True):
        try:
            columns.append(column if column.type == wanted.type else column.cast(wanted.type))
        except pa.ArrowException as error:
            raise DataError(
                f"column {wanted.name!r} of {where} is of type {column.type}, where the first file has {wanted.type}; "
                "save them with the same type, or predict file by file"
            ) from error
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def entries_of(array: pa.Array) -> list[Any]:
    """Return the entries of a column as Python has them; those that it has not, such as dates after 9999, as texts.

    Narrow floats are the numbers that they are written as: 0.1, not 0.10000000149011612.
    """
    kind = array.type.value_type if pa.types.is_dictionary(array.type) else array.type
    if pa.types.is_float32(kind) or pa.types.is_float16(kind):
        narrow = kind.to_pandas_dtype()
        return [None if one is None else float(str(narrow(one))) for one in array.to_pylist()]
    try:
        return list(array.to_pylist())
    except NO_OBJECT:
        return [_entry(scalar) for scalar in array]


def texts_of(array: pa.Array) -> pa.Array:
    """Return the names that a column has, the same in any kind of file; missing ones are null."""
    if pa.types.is_integer(array.type):
        return array.cast(pa.string())
    texts = [None if one is None or one != one else canonical(one) for one in entries_of(array)]
    return pa.array(texts, pa.string())


def _entry(scalar: pa.Scalar) -> Any:
    try:
        return scalar.as_py()
    except UnicodeDecodeError:
        return scalar.as_buffer().to_pybytes().decode("utf-8", "replace")
    except NO_OBJECT:
        ticks = scalar.cast(pa.int32() if scalar.type.bit_width == 32 else pa.int64()).as_py()
        return f"{ticks} of {scalar.type}"
