"""JSON: an object per line, an array of objects, or one object that holds a table, in the layouts of pandas.

Lines and arrays are read a block at a time. Arrow parses a block of lines; what it cannot hold, such as a column of
numbers and texts, is parsed by Python.
"""

from __future__ import annotations

import json
import re
from codecs import getincrementaldecoder
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import suppress
from typing import Any

import pyarrow as pa

from fairfix.data.canonical import canonical
from fairfix.data.confined import TOO_LARGE
from fairfix.data.files import readable
from fairfix.data.sources.typed_file import TypedFile
from fairfix.data.storage import FileLocation
from fairfix.data.typed import column_of, told_apart
from fairfix.errors import DataError

BLOCK = 4 << 20
"""Characters parsed at a time."""

LONGEST = 64 << 20
"""Characters of a record, or bytes of an object that holds a whole table."""

WIDEST = 100_000
"""Columns, at most."""

LINES = (".jsonl", ".ndjson")

ROWS = 10_000
"""Records of an object that are made into columns at a time."""

EXACT = 2.0**53
"""Whole numbers below it are exact as floats."""

BLANK = " \t\r\n"
FILLED = re.compile(f"[^{BLANK}]")

NESTED = 1000
"""Brackets of a line, beyond which Arrow does not parse it: it ends the process where they nest too deeply."""

Block = tuple[list[Any], bytes]
"""Records, or the text of lines with a record each."""


class JsonSource(TypedFile):
    """One or more JSON files with the same columns."""

    kind = "JSON"
    endings = (".json", *LINES)

    def chunks(self, place: FileLocation, wanted: pa.Schema | None = None) -> Iterator[pa.RecordBatch]:
        """Yield a block of records at a time; a record that lacks a column has nothing there."""
        rows, names = 0, set[str]()
        for block in _blocks(place):
            batch = _batch(block, place, rows, wanted)
            rows, names = rows + batch.num_rows, names.union(batch.schema.names)
            _check_width(names, place)
            yield batch


def _batch(block: Block, place: FileLocation, before: int, schema: pa.Schema | None = None) -> pa.RecordBatch:
    """Return the columns of a block: all, or those of a schema, which Arrow is told the types of."""
    records, text = block
    lines = text.split(b"\n")
    if text:
        # mixed types, or an error that Python names better
        with suppress(pa.ArrowException, UnicodeDecodeError):
            if not any(map(_may_nest, lines)):
                return _by_arrow(text, schema)
        filled = filter(bytes.strip, lines)
        records = [_parsed(line, place, before + i) for i, line in enumerate(filled)]
    for i, record in enumerate(records):
        if not isinstance(record, dict):
            raise DataError(
                f"{place.name} has {json.dumps(record)[:40]} as record {before + i + 1:,}; a record is an object, "
                'such as {"group": "a", "score": 0.5}'
            )
    names = dict.fromkeys(schema.names if schema else (name for record in records for name in record))
    _check_width(names, place)
    if not names:
        return pa.RecordBatch.from_struct_array(pa.array(records, pa.struct([])))
    return pa.RecordBatch.from_pydict({name: column_of([one.get(name) for one in records]) for name in names})


def _check_width(names: Collection[str], place: FileLocation) -> None:
    if len(names) > WIDEST:
        raise DataError(f"{place.name} has more than {WIDEST:,} columns; give each row the same names")


def _by_arrow(text: bytes, schema: pa.Schema | None) -> pa.RecordBatch:
    from pyarrow import json as arrow_json

    text.decode("utf-8")  # which Arrow does not look at
    options = arrow_json.ParseOptions(
        explicit_schema=schema, unexpected_field_behavior="ignore" if schema else "infer"
    )
    read = arrow_json.ReadOptions(use_threads=False, block_size=len(text) + 1)
    table = arrow_json.read_json(pa.BufferReader(text), read, options)
    if schema:
        table = table.select(schema.names)
    else:  # a text that looks like a time is a text
        kinds = [pa.string() if pa.types.is_timestamp(one.type) else one.type for one in table.schema]
        table = table.cast(pa.schema(list(zip(table.column_names, kinds, strict=True))))
        if any(pa.types.is_floating(one.type) and _rounded(one) for one in table.columns):
            raise pa.ArrowInvalid("whole numbers that floats round")
    return table.combine_chunks().to_batches()[0]


def _rounded(column: pa.ChunkedArray) -> bool:
    """Tell whether a column may hold whole numbers that Arrow has rounded."""
    import pyarrow.compute as pc

    largest = pc.max(pc.abs(column)).as_py()
    return largest is not None and largest >= EXACT


def _parsed(line: bytes, place: FileLocation, row: int) -> Any:
    try:
        return json.loads(line.decode("utf-8"), object_pairs_hook=_unrepeated)
    except (ValueError, RecursionError) as error:
        raise _broken(place, row, error) from None


def _may_nest(line: bytes) -> bool:
    return len(line) > NESTED < line.count(b"[") + line.count(b"{")


def _unrepeated(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object; a ValueError where a key is there twice."""
    out = dict(pairs)
    if len(out) < len(pairs):
        twice, _ = Counter(key for key, _ in pairs).most_common(1)[0]
        raise ValueError(f"the key {twice!r} occurs twice in one object; remove one")
    return out


# ---------------------------------------------------------------------- blocks


def _blocks(place: FileLocation) -> Iterator[Block]:
    """Yield the records of a file, or lines of them, a block at a time."""
    with readable(place, JsonSource.kind), place.opened() as file:
        text = file.read(BLOCK)
        if text.startswith((b"\xff\xfe", b"\xfe\xff")):
            raise DataError(f"{place.name} is JSON in UTF-16; save it as UTF-8")
        text = text.removeprefix(b"\xef\xbb\xbf")
        start = text.lstrip()[:1]
        if not start:
            raise DataError(f"{place.name} is empty")
        if start == b"[":
            yield from _of_array(file, text, place)
        elif place.name.lower().endswith(LINES) or _is_lines(text):
            yield from _of_lines(file, text, place)
        else:
            yield from _of_object(file, text, place)


def _is_lines(text: bytes) -> bool:
    """Tell whether the first line is an object on its own and another one follows."""
    line, _, rest = text.lstrip().partition(b"\n")
    try:
        return isinstance(json.loads(line), dict) and rest.lstrip()[:1] == b"{"
    except (ValueError, RecursionError):
        return False


def _of_lines(file: pa.NativeFile, text: bytes, place: FileLocation) -> Iterator[Block]:
    while text:
        end = text.rfind(b"\n") + 1
        more = file.read(BLOCK)
        if end or not more:
            whole = text[:end] if end and more else text
            text = text[len(whole) :]
            if whole.strip():
                yield [], whole
        elif len(text) > LONGEST:
            raise DataError(f"{place.name} has a line of more than {LONGEST >> 20} MB, which is not a record")
        text += more


def _of_array(file: pa.NativeFile, head: bytes, place: FileLocation) -> Iterator[Block]:
    """Yield the records of an array, parsed one at a time."""
    decode = getincrementaldecoder("utf-8")().decode
    parse = json.JSONDecoder(object_pairs_hook=_unrepeated).raw_decode
    text, at, row, ended = decode(head), 0, 0, False
    at = text.index("[") + 1
    records: list[Any] = []
    taken = 0
    while True:
        begin = at
        try:
            at = _blank(text, at)
            if text[at] == "]":
                if rest := text[at + 1 :].strip(BLANK):
                    raise ValueError(f"{rest[:20]!r} follows the end of the array")  # noqa: TRY301  caught by the caller
                break
            if row:
                at = _blank(text, _after_comma(text, at))
            record, at = parse(text, at)
            text[at]
        except (json.JSONDecodeError, IndexError) as error:
            more = b"" if ended else file.read(BLOCK)
            ended = not more
            if ended or len(text) - begin > LONGEST:
                early = ended or isinstance(error, IndexError)
                why = "the file ends too early" if early else error
                raise _broken(place, row, why) from None
            text, at = text[begin:] + decode(more), 0
            continue
        except (ValueError, RecursionError) as error:
            raise _broken(place, row, error) from None
        records.append(record)
        row += 1
        taken += at - begin
        if taken >= BLOCK:
            yield records, b""
            records, taken = [], 0
    yield records, b""


def _blank(text: str, at: int) -> int:
    """Return where the first sign after blanks is; an IndexError where the text ends before."""
    if (match := FILLED.search(text, at)) is None:
        raise IndexError
    return match.start()


def _after_comma(text: str, at: int) -> int:
    if text[at] != ",":
        raise ValueError(f"{text[at : at + 20]!r} follows the record before, where a comma belongs")
    return at + 1


def _broken(place: FileLocation, row: int, why: object) -> DataError:
    return DataError(f"{place.name} cannot be read as JSON: record {row + 1:,}: {_reason(why)}")


def _reason(error: object) -> str:
    return "it is nested too deeply" if isinstance(error, RecursionError) else str(error)


def _of_object(file: pa.NativeFile, text: bytes, place: FileLocation) -> Iterator[Block]:
    """Yield the records of one object that holds a table."""
    text += file.read(LONGEST)
    if len(text) > LONGEST:
        raise DataError(f"{place.name} {TOO_LARGE}")
    try:
        content = json.loads(text.decode("utf-8"), object_pairs_hook=_unrepeated)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{place.name} cannot be read as JSON: {_reason(error)}") from None
    records = _records(content)
    if records is None:
        raise DataError(
            f"{place.name} contains no table in a supported form; save an array of objects, such as "
            '[{"group": "a", "score": 0.5}], or an object per line'
        )
    for start in range(0, max(len(records), 1), ROWS):
        yield records[start : start + ROWS], b""


def _records(content: Any) -> list[Any] | None:
    """Return the records of an object in a layout of pandas, or of one with an array of objects; None of others."""
    if not isinstance(content, dict):
        return None
    rows, names = content.get("data"), content.get("columns")
    if isinstance(rows, list) and isinstance(names, list) and set(map(type, rows)) <= {list}:
        heads = told_apart(map(canonical, names))
        if all(len(row) == len(heads) for row in rows):
            return [dict(zip(heads, row, strict=True)) for row in rows]
        return None
    lists = [one for one in content.values() if isinstance(one, list)]
    tables = [one for one in lists if set(map(type, one)) == {dict}]
    if len(tables) == 1:
        return tables[0]
    kinds = set(map(type, content.values()))
    if kinds == {list} and len(set(map(len, content.values()))) == 1:
        return [dict(zip(content, row, strict=True)) for row in zip(*content.values(), strict=True)]
    if kinds == {dict}:
        inner = dict.fromkeys(key for column in content.values() for key in column)
        if all(map(str.isdigit, content)) and not all(map(str.isdigit, inner)):
            return list(content.values())  # a record per row number
        return [{name: column.get(key) for name, column in content.items()} for key in inner]
    return [content] if not kinds & {list, dict} and content else None
