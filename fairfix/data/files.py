"""Files in, batches out; results in, files out.

A :class:`Source` is data that can be read more than once in independent parts:
one or many Parquet or CSV files, or a table in memory. It yields Arrow record
batches of the columns asked for and knows nothing of their meaning. Writing is
atomic: a file appears whole or not at all.

Parquet is read with ``pre_buffer=False`` and a small buffer: the default caches
the column chunks of the whole file, about 1 GB at 100 million rows.
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
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Self

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
    text = False
    """Whether the format leaves the types of columns open, so that ``types`` decides them."""

    @property
    def columns(self) -> tuple[str, ...]:
        """Column names, in the order of the data."""
        return tuple(self.schema.names)

    @property
    def rows(self) -> int | None:
        """Number of rows where it is known without reading."""
        return None

    @property
    def about_rows(self) -> int:
        """Roughly how many rows there are; decides how finely to count."""
        return self.rows or 0

    @abstractmethod
    def parts(self, columns: Sequence[str], types: Mapping[str, pa.DataType] | None = None) -> list[Part]:
        """Return parts that yield these columns.

        ``types`` asks for types where the format leaves a choice (CSV text, Parquet dictionaries).
        """

    def require(self, columns: Sequence[str]) -> None:
        """Raise a ColumnError where a column is not there, or there twice."""
        for name in columns:
            if name not in self.columns:
                raise ColumnError(missing_column(name, self.columns, self.name))
            if self.columns.count(name) > 1:
                raise ColumnError(f"{self.name} has the column {name!r} more than once; rename one")


def missing_column(name: str, columns: Sequence[str], where: str) -> str:
    """Return the message for a column that is not there."""
    from difflib import get_close_matches

    near = get_close_matches(name, columns, 1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    shown = ", ".join(columns[:40]) + (", ..." if len(columns) > 40 else "")
    whole = next((one for one in columns if "," in one and name in map(str.strip, one.split(","))), None)
    quoted = (
        "" if whole is None else f"; in a list, a name with a comma goes into double quotes: '\"{whole}\"'"
    )
    return f"{where} has no column {name!r}; {hint}it has: {shown}{quoted}"


# ---------------------------------------------------------------------- Parquet


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

    @property
    def rows(self) -> int:
        """Number of rows, from the files' footers."""
        return sum(meta.num_rows for _, meta in self._files)

    def parts(self, columns: Sequence[str], types: Mapping[str, pa.DataType] | None = None) -> list[Part]:
        """Return runs of row groups of about a million rows."""
        out = []
        for path, meta in self._files:
            _same_columns(path, meta.schema.to_arrow_schema().names, columns, self.name)
            coded = [name for name, kind in (types or {}).items() if pa.types.is_dictionary(kind)]
            rows = [meta.row_group(i).num_rows for i in range(meta.num_row_groups)]
            out += [
                Part(path.name, _parquet_reader(path, run, list(columns), coded), sum(rows[: run[0]]))
                for run in _runs(rows)
            ]
        return out


def _runs(rows: Sequence[int]) -> Iterator[list[int]]:
    """Yield consecutive indices whose rows add up to about ``PART_ROWS``."""
    run: list[int] = []
    total = 0
    for i, n in enumerate(rows):
        run.append(i)
        total += n
        if total >= PART_ROWS:
            yield run
            run, total = [], 0
    if run:
        yield run


def _parquet_reader(
    path: Path, groups: list[int], columns: list[str], coded: list[str]
) -> Callable[[], Iterator[pa.RecordBatch]]:
    def batches() -> Iterator[pa.RecordBatch]:
        import pyarrow.parquet as pq

        with (
            _readable(path, "Parquet"),
            pq.ParquetFile(path, read_dictionary=coded, pre_buffer=False, buffer_size=1 << 20) as file,
        ):
            yield from file.iter_batches(BATCH_ROWS, groups, columns, use_threads=False)

    return batches


# ---------------------------------------------------------------------- CSV


class CsvSource(Source):
    """One or more CSV files (comma or, by the name ``.tsv``, tab) with the same header."""

    text = True

    def __init__(self, paths: Sequence[Path], name: str) -> None:
        self.name = name
        self._paths = list(paths)
        for path in paths:
            if not path.stat().st_size:
                raise DataError(f"{path.name} is empty")
        with _readable(paths[0], "CSV"), _open_csv(paths[0], None, None) as reader:
            self.schema = reader.schema
        twice = {n for n in self.schema.names if self.schema.names.count(n) > 1}
        if twice:
            raise DataError(f"{name} has the column {min(twice)!r} more than once; rename one")

    @property
    def about_rows(self) -> int:
        """Roughly how many rows there are, at a hundred bytes a row."""
        return sum(path.stat().st_size for path in self._paths) // 100

    def parts(self, columns: Sequence[str], types: Mapping[str, pa.DataType] | None = None) -> list[Part]:
        """Return one part per file: CSV text has no places to start from."""
        return [Part(path.name, self._reader(path, list(columns), types)) for path in self._paths]

    def _reader(
        self, path: Path, columns: list[str], types: Mapping[str, pa.DataType] | None
    ) -> Callable[[], Iterator[pa.RecordBatch]]:
        # every file gets the types of the first, so that "01" does not turn into 1 from file to file
        wanted = {name: self.schema.field(name).type for name in columns} | dict(types or {})
        wanted = {name: kind for name, kind in wanted.items() if not pa.types.is_null(kind)}
        # truth values are spelled in many ways; as booleans they have one name each
        wanted |= {n: pa.bool_() for n in columns if pa.types.is_boolean(self.schema.field(n).type)}

        def batches() -> Iterator[pa.RecordBatch]:
            with _readable(path, "CSV"), _open_csv(path, columns, wanted) as reader:
                yield from reader

        return batches


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


# ---------------------------------------------------------------------- memory


class FrameSource(Source):
    """A table already in memory."""

    def __init__(self, table: pa.Table, name: str = "data") -> None:
        self.name = name
        self._table = table
        self.schema = table.schema

    @property
    def rows(self) -> int:
        """Number of rows."""
        return int(self._table.num_rows)

    def parts(self, columns: Sequence[str], types: Mapping[str, pa.DataType] | None = None) -> list[Part]:
        """Return the table as one part."""
        chosen = self._table.select(list(columns))
        return [Part(self.name, lambda: iter(chosen.to_batches(max_chunksize=BATCH_ROWS)))]


def open_source(data: Any) -> Source:
    """Return a source for a path, a glob, a folder, an Arrow table, a pandas frame or a dict of columns.

    Raises
    ------
    DataError
        Nothing is there, it is of no known format, or formats are mixed.
    """
    if isinstance(data, Source):
        return data
    if isinstance(data, (str, os.PathLike)):
        return _open_files(os.fspath(data))
    if isinstance(data, (pa.Table, pa.RecordBatch)):
        return FrameSource(pa.table(data) if isinstance(data, pa.Table) else pa.Table.from_batches([data]))
    if isinstance(data, Mapping):
        with _convertible("dict"):
            return FrameSource(pa.table({str(name): pa.array(values) for name, values in data.items()}))
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
        files = sorted(
            file
            for file in path.rglob("*")
            if file.is_file()
            and file.name.lower().endswith(PARQUET + CSV)
            and not any(part.startswith((".", "_")) for part in file.relative_to(path).parts)
        )
        if not files:
            raise DataError(f"the folder {text} holds no Parquet or CSV file")
        return files
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


def _same_columns(path: Path, there: Sequence[str], columns: Sequence[str], name: str) -> None:
    for column in columns:
        if column not in there:
            raise ColumnError(missing_column(column, list(there), f"{path.name} (of {name})"))


@contextmanager
def _readable(path: Path, kind: str) -> Iterator[None]:
    """Turn what Arrow says of a damaged file into one line that names the file."""
    try:
        yield
    except FileNotFoundError as error:
        raise DataError(f"{path} does not exist") from error
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        # CSV has no types: those of columns without a role are what the beginning of the file looks like
        hint = (
            "; mend the value, or save the data as Parquet, which keeps types"
            if "conversion error" in first
            else ""
        )
        raise DataError(f"{path.name} cannot be read as {kind}: {first}{hint}") from error


@contextmanager
def _convertible(kind: str) -> Iterator[None]:
    """Turn what Arrow says of values it cannot hold into an error of the data."""
    try:
        yield
    except (pa.ArrowException, ValueError, TypeError) as error:
        said = "; ".join(map(str, error.args)) or type(error).__name__
        raise DataError(f"the {kind} cannot be turned into columns of one type each: {said}") from error


def read_json(path: str | os.PathLike[str], said: str = "") -> Any:
    """Return what a JSON file holds; ``said`` opens the message of an error."""
    try:
        return json.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise DataError(f"{said}{path} does not exist") from error
    except (OSError, ValueError) as error:
        raise DataError(f"{said}{path} is not a JSON result: {error}") from error


# ---------------------------------------------------------------------- writing


@contextmanager
def atomic_output(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """Yield a binary file that takes the place of ``path`` when the block ends well, and vanishes when not.

    What is no file, such as ``/dev/null``, ``/dev/stdout`` or a named pipe, is written to and never replaced. A link
    stays one; the file behind it is replaced.

    Raises
    ------
    DataError
        The folder does not exist or cannot be written to, or the disk is full.
    """
    target = Path(path)
    if target.is_dir():
        raise DataError(f"{target} is a folder; name a file")
    named = target.is_absolute() and target.parts[1] in ("dev", "proc")
    special = named or (target.exists() and not target.is_file())
    try:
        with _opened(target) if special else _replacing(target.resolve()) as file:
            yield file
    except OSError as error:
        if error.errno not in FULL:
            raise
        raise DataError(f"cannot write {target}: {error.strerror}") from error


FULL = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EFBIG))
"""Errors of a place that has no room for more."""


def _opened(target: Path) -> IO[bytes]:
    try:
        return target.open("wb")
    except OSError as error:
        raise DataError(f"cannot write {target}: {error.strerror}") from error


@contextmanager
def _replacing(target: Path) -> Iterator[IO[bytes]]:
    """Yield a file beside the target, which it becomes at the end."""
    try:
        handle, temporary = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    except OSError as error:
        raise DataError(f"cannot write {target}: {error.strerror}") from error
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).chmod(0o666 & ~_umask())
        Path(temporary).replace(target)
    except BaseException:
        with suppress(OSError):
            Path(temporary).unlink()
        raise


def _umask() -> int:
    """Return the process's file mode mask, which can only be read by setting it."""
    mask = os.umask(0)
    os.umask(mask)
    return mask


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write text as UTF-8, whole or not at all."""
    with atomic_output(path) as file:
        file.write(text.encode("utf-8"))


class TableWriter:
    """Writes record batches of one schema to Parquet or CSV, by the file's name; a context that finishes the file."""

    def __init__(self, file: IO[bytes], path: str | os.PathLike[str], schema: pa.Schema) -> None:
        self._zip: gzip.GzipFile | None = None
        if _kind(Path(path)) == "parquet":
            import pyarrow.parquet as pq

            self._writer: Any = pq.ParquetWriter(file, schema)
        else:
            from pyarrow import csv

            if _zipped(Path(path)):  # neither name nor time inside: same rows, same bytes
                self._zip = gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0)
            options = csv.WriteOptions(delimiter=_separator(Path(path)))
            self._writer = csv.CSVWriter(self._zip or file, schema, write_options=options)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._writer.close()
        if self._zip is not None:
            self._zip.close()

    def write(self, batch: pa.RecordBatch) -> None:
        """Append a batch."""
        self._writer.write_batch(batch)
