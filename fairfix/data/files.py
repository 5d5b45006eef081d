"""Files in, batches out; results in, files out.

A :class:`Source` is data that can be read more than once in independent parts: one or many Parquet or CSV files, or a
table in memory. It yields Arrow record batches of the columns asked for and knows nothing of their meaning. Writing is
atomic: a file appears whole or not at all.

Parquet is read with ``pre_buffer=False`` and a small buffer: the default caches the column chunks of the whole file,
about 1 GB at 100 million rows.
"""

from __future__ import annotations

import errno
import glob
import gzip
import json
import os
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any

import pyarrow as pa

from fairfix.errors import ColumnError, DataError

BATCH_ROWS = 65_536
"""Rows per batch: a batch of a few columns stays in the processor's cache."""

PART_ROWS = 1_000_000
"""Row groups are joined up to about this many rows, so that a part is worth a thread."""

CSV_BLOCK = 1 << 20
"""Bytes of CSV text parsed at a time."""

PARQUET = (".parquet", ".pq")
CSV = (".csv", ".tsv", ".csv.gz", ".tsv.gz")


@dataclass(frozen=True)
class Part:
    """A piece of a source that can be read on its own, again and again."""

    where: str
    batches: Callable[[], Iterator[pa.RecordBatch]]
    first_row: int = 0
    """Rows of ``where`` that come before."""


class Source(ABC):
    """Data that can be scanned; ``schema`` holds the columns' names and types."""

    name: str
    schema: pa.Schema
    rows: int | None = None
    """Number of rows where it is known without reading."""
    about_rows: int = 0
    """Roughly how many rows there are; decides how finely to count."""
    text = False
    """Whether the format leaves the types of columns open, so that ``types`` decides them."""

    @property
    def columns(self) -> tuple[str, ...]:
        """Column names, in the order of the data."""
        return tuple(self.schema.names)

    @abstractmethod
    def parts(self, columns: Sequence[str], types: Mapping[str, pa.DataType] | None = None) -> list[Part]:
        """Return parts that yield these columns.

        ``types`` asks for types where the format leaves a choice (CSV text, Parquet dictionaries).
        """

    def require(self, columns: Sequence[str]) -> None:
        """Raise a ColumnError where a column is not there, or there twice."""
        require(columns, self.columns, self.name)


def require(names: Sequence[str], columns: Sequence[str], where: str) -> None:
    """Raise a ColumnError where one of the names is not among the columns, or there twice."""
    for name in names:
        if columns.count(name) > 1:
            raise ColumnError(f"{where} has the column {name!r} more than once; rename one")
        if name in columns:
            continue
        from difflib import get_close_matches

        near = get_close_matches(name, columns, 1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        shown = ", ".join(columns[:40]) + (", ..." if len(columns) > 40 else "")
        whole = next((one for one in columns if "," in one and name in map(str.strip, one.split(","))), None)
        quotes = f"; in a list, a name with a comma goes into double quotes: '\"{whole}\"'" if whole else ""
        raise ColumnError(f"{where} has no column {name!r}; {hint}it has: {shown}{quotes}")


class ParquetSource(Source):
    """One or more Parquet files with the same columns."""

    def __init__(self, paths: Sequence[Path], name: str) -> None:
        import pyarrow.parquet as pq

        self.name = name
        self._files = []
        for path in paths:
            with _readable(path, "Parquet"):
                self._files.append((path, pq.read_metadata(path)))
        self.schema = self._files[0][1].schema.to_arrow_schema()
        self.rows = self.about_rows = sum(meta.num_rows for _, meta in self._files)

    def parts(self, columns: Sequence[str], types: Mapping[str, pa.DataType] | None = None) -> list[Part]:
        """Return runs of row groups of about a million rows."""
        out = []
        for path, meta in self._files:
            require(columns, meta.schema.to_arrow_schema().names, f"{path.name} (of {self.name})")
            coded = [name for name, kind in (types or {}).items() if pa.types.is_dictionary(kind)]
            rows = [meta.row_group(i).num_rows for i in range(meta.num_row_groups)]
            for run in _runs(rows):
                batches = partial(_parquet_batches, path, run, list(columns), coded)
                out.append(Part(path.name, batches, sum(rows[: run[0]])))
        return out


def _runs(rows: Sequence[int]) -> Iterator[list[int]]:
    """Yield consecutive indices whose rows add up to about ``PART_ROWS``."""
    run: list[int] = []
    for i in range(len(rows)):
        run.append(i)
        if sum(rows[run[0] : i + 1]) >= PART_ROWS or i == len(rows) - 1:
            yield run
            run = []


def _parquet_batches(
    path: Path, groups: list[int], columns: list[str], coded: list[str]
) -> Iterator[pa.RecordBatch]:
    import pyarrow.parquet as pq

    with (
        _readable(path, "Parquet"),
        pq.ParquetFile(path, read_dictionary=coded, pre_buffer=False, buffer_size=1 << 20) as file,
    ):
        yield from file.iter_batches(BATCH_ROWS, groups, columns, use_threads=False)


class CsvSource(Source):
    """One or more CSV files (comma or, by the name ``.tsv``, tab) with the same header."""

    text = True

    def __init__(self, paths: Sequence[Path], name: str) -> None:
        self.name = name
        self._paths = list(paths)
        self.about_rows = sum(path.stat().st_size for path in paths) // 100  # bytes of a row, roughly
        for path in paths:
            if not path.stat().st_size:
                raise DataError(f"{path.name} is empty")
        with _readable(paths[0], "CSV"), _open_csv(paths[0], None, None) as reader:
            self.schema = reader.schema
        self.require(self.schema.names)  # a CSV reader finds columns by their names

    def parts(self, columns: Sequence[str], types: Mapping[str, pa.DataType] | None = None) -> list[Part]:
        """Return one part per file: CSV text has no places to start from."""
        # every file gets the types of the first, so that "01" does not turn into 1 from file to file
        wanted = {name: self.schema.field(name).type for name in columns} | dict(types or {})
        wanted = {name: kind for name, kind in wanted.items() if not pa.types.is_null(kind)}
        # truth values are spelled in many ways; as booleans they have one name each
        wanted |= {n: pa.bool_() for n in columns if pa.types.is_boolean(self.schema.field(n).type)}
        return [Part(path.name, partial(_csv_batches, path, list(columns), wanted)) for path in self._paths]


def _csv_batches(
    path: Path, columns: list[str], types: Mapping[str, pa.DataType]
) -> Iterator[pa.RecordBatch]:
    with _readable(path, "CSV"), _open_csv(path, columns, types) as reader:
        yield from reader


def _open_csv(path: Path, columns: list[str] | None, types: Mapping[str, pa.DataType] | None) -> Any:
    from pyarrow import csv

    return csv.open_csv(
        pa.input_stream(str(path), compression="gzip" if _zipped(path) else None),
        read_options=csv.ReadOptions(use_threads=False, block_size=CSV_BLOCK),
        parse_options=csv.ParseOptions(delimiter=_separator(path), newlines_in_values=True),
        convert_options=csv.ConvertOptions(
            include_columns=columns,
            column_types=types,
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,  # "NA" in quotes is a name, NA without is a missing value
        ),
    )


class FrameSource(Source):
    """A table already in memory."""

    def __init__(self, table: pa.Table, name: str = "data") -> None:
        self.name = name
        self._table = table
        self.schema = table.schema
        self.rows = self.about_rows = int(table.num_rows)

    def parts(self, columns: Sequence[str], types: Mapping[str, pa.DataType] | None = None) -> list[Part]:
        """Return the table as one part."""
        chosen = self._table.select(list(columns))
        return [Part(self.name, lambda: iter(chosen.to_batches(max_chunksize=BATCH_ROWS)))]


def open_source(data: Any) -> Source:
    """Return a source for a path, a glob, a folder, an Arrow table, a pandas frame or a dict of columns."""
    if isinstance(data, Source):
        return data
    if isinstance(data, (str, os.PathLike)):
        return _open_files(os.fspath(data))
    if isinstance(data, (pa.Table, pa.RecordBatch)):
        return FrameSource(pa.table(data) if isinstance(data, pa.Table) else pa.Table.from_batches([data]))
    if isinstance(data, Mapping):
        with _convertible("dict"):
            return FrameSource(pa.table({str(name): pa.array(column) for name, column in data.items()}))
    if hasattr(data, "columns") and hasattr(data, "iloc"):
        with _convertible("data frame"):
            return FrameSource(pa.Table.from_pandas(data, preserve_index=False))
    raise DataError(
        f"cannot read data from a {type(data).__name__}; give a path, a data frame or an Arrow table"
    )


def _open_files(text: str) -> Source:
    if "://" in text:
        raise DataError(f"{text} is a URL; fairfix reads local files: copy it here first")
    paths = _find(text)
    kinds = {_kind(path) for path in paths}
    if len(kinds) > 1:
        raise DataError(
            f"{text} holds Parquet and CSV files; name one kind by a pattern that ends in .parquet or .csv"
        )
    name = paths[0].name if len(paths) == 1 else f"{Path(text).name or text} ({len(paths)} files)"
    return ParquetSource(paths, name) if kinds == {"parquet"} else CsvSource(paths, name)


def _find(text: str) -> list[Path]:
    path = Path(text)
    if path.is_file():
        return [path]
    if path.is_dir():
        files = [
            file for file in path.rglob("*") if file.name.lower().endswith(PARQUET + CSV) and file.is_file()
        ]
        hidden = [any(part.startswith((".", "_")) for part in file.relative_to(path).parts) for file in files]
        if all(hidden):
            raise DataError(f"the folder {text} holds no Parquet or CSV file")
        return sorted(file for file, hide in zip(files, hidden, strict=True) if not hide)
    matches = sorted(Path(p) for p in glob.glob(text, recursive=True) if Path(p).is_file())  # noqa: PTH207  absolute patterns too
    if not matches:
        what = "matches no file" if any(c in text for c in "*?[") else "does not exist"
        raise DataError(f"{text} {what}")
    return matches


def _kind(path: Path) -> str:
    name = path.name.lower()
    if name.endswith(PARQUET):
        return "parquet"
    if name.endswith(CSV):
        return "csv"
    raise DataError(f"{path.name}: unknown kind of file; known are {', '.join(PARQUET + CSV)}")


def _separator(path: Path) -> str:
    return "\t" if path.name.lower().endswith((".tsv", ".tsv.gz")) else ","


def _zipped(path: Path) -> bool:
    return path.name.lower().endswith(".gz")


@contextmanager
def _readable(path: Path, kind: str) -> Iterator[None]:
    """Turn what Arrow says of a damaged file into one line that names the file."""
    try:
        yield
    except FileNotFoundError as error:
        raise DataError(f"{path} does not exist") from error
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        first = [*str(error).strip().splitlines(), type(error).__name__][0]
        # CSV has no types: those of columns without a role are what the beginning of the file looks like
        remedy = "; mend the value, or save the data as Parquet, which keeps types"
        hint = remedy if "conversion error" in first else ""
        raise DataError(f"{path.name} cannot be read as {kind}: {first}{hint}") from error


@contextmanager
def _convertible(kind: str) -> Iterator[None]:
    """Turn what Arrow says of values it cannot hold into an error of the data."""
    try:
        yield
    except (pa.ArrowException, ValueError, TypeError) as error:
        reason = "; ".join(map(str, error.args)) or type(error).__name__
        raise DataError(f"the {kind} cannot be turned into columns of one type each: {reason}") from error


def read_json(path: str | os.PathLike[str], opening: str = "") -> Any:
    """Return what a JSON file holds; ``opening`` begins the message of an error."""
    try:
        return json.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise DataError(f"{opening}{path} does not exist") from error
    except (OSError, ValueError) as error:
        raise DataError(f"{opening}{path} is not a JSON result: {error}") from error


@contextmanager
def atomic_output(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """Yield a binary file that takes the place of ``path`` when the block ends well, and vanishes when not.

    What is no file, such as ``/dev/null``, ``/dev/stdout`` or a named pipe, is written to and never replaced. A link
    stays one; the file behind it is replaced. A DataError where the folder cannot be written to, or the disk is full.
    """
    target = Path(path)
    if target.is_dir():
        raise DataError(f"{target} is a folder; name a file")
    named = target.is_absolute() and target.parts[1] in ("dev", "proc")
    special = named or (target.exists() and not target.is_file())
    temporary = None
    try:
        if special:
            file: IO[bytes] = target.open("wb")
        else:
            place = target.resolve()
            handle, temporary = tempfile.mkstemp(prefix=f".{place.name}.", dir=place.parent)
            file = os.fdopen(handle, "wb")
    except OSError as error:
        raise DataError(f"cannot write {target}: {error.strerror}") from error
    try:
        with file:
            yield file
            if temporary is not None:
                file.flush()
                os.fsync(file.fileno())
        if temporary is not None:
            os.umask(mask := os.umask(0))  # the mask can only be read by setting it
            Path(temporary).chmod(0o666 & ~mask)
            Path(temporary).replace(place)
    except BaseException as error:
        if temporary is not None:
            with suppress(OSError):
                Path(temporary).unlink()
        if isinstance(error, OSError) and error.errno in FULL:
            raise DataError(f"cannot write {target}: {error.strerror}") from error
        raise


FULL = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EFBIG))
"""Errors of a place that has no room for more."""


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write text as UTF-8, whole or not at all."""
    with atomic_output(path) as file:
        file.write(text.encode("utf-8"))


@contextmanager
def table_writer(
    file: IO[bytes], path: str | os.PathLike[str], schema: pa.Schema
) -> Iterator[Callable[[pa.RecordBatch], None]]:
    """Yield what appends record batches of one schema to a file, as Parquet or CSV by its name."""
    if _kind(Path(path)) == "parquet":
        import pyarrow.parquet as pq

        with pq.ParquetWriter(file, schema) as writer:
            yield writer.write_batch
        return
    from pyarrow import csv

    zipped: Any = nullcontext(file)
    if _zipped(Path(path)):  # neither name nor time inside: same rows, same bytes
        zipped = gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0)
    options = csv.WriteOptions(delimiter=_separator(Path(path)))
    with zipped as out, csv.CSVWriter(out, schema, write_options=options) as writer:
        yield writer.write_batch
