"""Files to fuzz with: a table in Parquet, CSV or Arrow, written as oddly as readers of files have to bear."""

from __future__ import annotations

import gzip
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.ipc
import pyarrow.parquet


def as_text(scalar: pa.Scalar) -> str:
    """Return an entry as a text; of a time that Python has not, its number."""
    try:
        entry = scalar.as_py()
    except (ValueError, OverflowError, ImportError, KeyError, pa.ArrowException):
        entry = getattr(scalar, "value", "?")
    return "" if entry is None else entry.decode("latin-1") if isinstance(entry, bytes) else str(entry)


def _stringified(column: pa.ChunkedArray) -> list[str]:
    return [as_text(one) for one in column]


def _writable(table: pa.Table, write: Callable[[pa.Table], None]) -> None:
    """Write a table; columns that the format has no type for are written as texts instead."""
    try:
        write(table)
    except (pa.ArrowException, OverflowError, ValueError, KeyError):
        arrays = [
            column if _plain(column.type) else pa.array(_stringified(column), pa.string())
            for column in table.columns
        ]
        write(pa.Table.from_arrays(arrays, names=table.column_names))


def _plain(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_integer(kind)
        or pa.types.is_float32(kind)
        or pa.types.is_float64(kind)
        or pa.types.is_boolean(kind)
        or pa.types.is_string(kind)
    )


def parquet(table: pa.Table, path: Path, draw: random.Random) -> str:
    """Write Parquet, with row groups, encodings and compression as they come; some row groups are empty."""
    target = path.with_suffix(".parquet")
    settings: dict[str, Any] = {
        "compression": draw.choice(("none", "snappy", "gzip", "zstd", "lz4")),
        "use_dictionary": draw.random() < 0.5,
        "version": draw.choice(("1.0", "2.4", "2.6")),
        "data_page_version": draw.choice(("1.0", "2.0")),
        "write_statistics": draw.random() < 0.7,
        "store_schema": draw.random() < 0.8,
    }
    # groups of one row take a millisecond each to write
    size, gaps = draw.choice((1 if table.num_rows <= 60 else 7, 7, 1000)), draw.random() < 0.3

    def write(rows: pa.Table) -> None:
        with pyarrow.parquet.ParquetWriter(target, rows.schema, **settings) as writer:
            for start in range(0, max(rows.num_rows, 1), size):
                if gaps:
                    writer.write_table(rows.slice(0, 0))
                writer.write_table(rows.slice(start, size), row_group_size=max(size, 1))

    _writable(table, write)
    return target.name


def arrow(table: pa.Table, path: Path, draw: random.Random) -> str:
    """Write Arrow, as a file or a stream, in batches, some of them empty."""
    target = path.with_suffix(draw.choice((".arrow", ".feather", ".arrow")))
    make = pa.ipc.new_stream if draw.random() < 0.05 else pa.ipc.new_file
    compression = draw.choice((None, "lz4", "zstd"))
    size = draw.choice((1, 7, 1000))

    def write(rows: pa.Table) -> None:
        with make(
            str(target),
            rows.schema,
            options=pa.ipc.IpcWriteOptions(compression=compression, unify_dictionaries=True),
        ) as writer:
            for start in range(0, max(rows.num_rows, 1), size):
                writer.write_table(rows.slice(start, size))
                if size == 7:
                    writer.write_table(rows.slice(0, 0))

    _writable(table, write)
    return target.name


def quoted_csv(text: str, sign: str = ",", always: bool = False) -> str:
    if always or any(one in text for one in (sign, '"', "\n", "\r")):
        return '"' + text.replace('"', '""') + '"'
    return text


def csv(table: pa.Table, path: Path, draw: random.Random) -> str:
    """Write CSV by hand: with a byte order mark, other ends and separators, NUL, ragged lines, other encodings, gz."""
    sign = draw.choice((",", ",", ",", ";", "\t", "|"))
    always, decimal = draw.random() < 0.2, sign == ";" and draw.random() < 0.5
    columns = [_stringified(column) for column in table.columns]
    if decimal:
        columns = [
            [one.replace(".", ",") for one in column]
            if pa.types.is_floating(kind.type) or pa.types.is_decimal(kind.type)
            else column
            for kind, column in zip(table.schema, columns, strict=True)
        ]
    lines = [[*table.column_names], *map(list, zip(*columns, strict=True))]
    texts = [sign.join(quoted_csv(one, sign, always) for one in line) for line in lines]
    oddity = draw.choice(("", "", "", "", "", "", "", "", "ragged", "nul", "empty", "quote", "cut"))
    at = draw.randrange(len(texts))
    if oddity == "ragged":
        texts[at] += sign + "more"
    elif oddity == "nul":
        texts[at] += "\x00"
    elif oddity == "empty":
        texts.insert(at, "")
    elif oddity == "quote":
        texts[at] += '"'
    ends = draw.choice(("\n", "\n", "\r\n", "\r"))
    content = ends.join(texts) + (ends if draw.random() < 0.9 else "")
    encoding = draw.choice(("utf-8", "utf-8", "utf-8", "utf-8-sig", "utf-16", "latin-1", "cp1252"))
    try:
        data = content.encode(encoding, "strict" if not encoding.startswith("utf") else "surrogatepass")
    except UnicodeEncodeError:  # a "?" for each lost letter would make other groups than those of the table
        data = content.encode("utf-8", "surrogatepass")
    name = path.with_suffix(".csv" if sign != "\t" or draw.random() < 0.5 else ".tsv")
    if draw.random() < 0.2:
        name, data = name.with_name(name.name + ".gz"), gzip.compress(data, mtime=0)
        if oddity == "cut":
            data = data[: len(data) * 2 // 3]
    name.write_bytes(data)
    return name.name


def folder(table: pa.Table, path: Path, draw: random.Random) -> str:
    """Write a folder of two or three files, which may differ in columns, in their order or in types."""
    path.mkdir()
    write = draw.choice((parquet, parquet, csv, arrow))
    many = draw.choice((1, 2, 3))
    size = -(-table.num_rows // many) or 1
    alike = draw.random() if draw.random() < 0.8 else None
    for at in range(many):
        rows = table.slice(at * size, size)
        change = draw.random()
        names = rows.column_names
        if at and change < 0.15 and len(names) > 1:
            rows = rows.select([i for i in range(len(names)) if i != draw.randrange(len(names))])
        elif at and change < 0.25:
            rows = rows.append_column(draw.choice(("more", "a]b")), pa.array([1] * rows.num_rows, pa.int64()))
        elif at and change < 0.4:
            rows = rows.select(draw.sample(range(len(names)), len(names)))
        elif at and change < 0.5:
            i = draw.randrange(len(names))
            rows = rows.set_column(i, names[i], pa.array(_stringified(rows.column(i)), pa.string()))
        write(rows, path / f"part{at}", draw if alike is None else random.Random(alike))
    return path.name if draw.random() < 0.7 else f"{path.name}/*"


def write(table: pa.Table, folder_: Path, name: str, draw: random.Random) -> str:
    """Write a table somehow, and return what the command line calls it."""
    how = draw.choice((parquet, parquet, parquet, parquet, csv, csv, arrow, folder))
    return how(table, folder_ / name, draw)
