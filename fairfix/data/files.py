"""Files in, batches out; results in, files out.

A :class:`Source` is data that can be read more than once in independent parts: one or many files of one kind
(:mod:`fairfix.data.sources`), or a table in memory. It yields Arrow record batches of the columns asked for and knows
nothing of their meaning. Writing is atomic: a file appears whole or not at all.
"""

from __future__ import annotations

import hashlib
import os
import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from copy import copy
from dataclasses import dataclass, replace
from functools import cache, partial
from importlib import import_module
from itertools import accumulate, chain
from pathlib import Path
from pkgutil import iter_modules
from types import MappingProxyType
from typing import IO, TYPE_CHECKING, Any, ClassVar, Self

import pyarrow as pa

from fairfix.data.arrow_normalize import is_plain, plain_batch, plain_field, plain_schema
from fairfix.data.atomic_write import FULL, check_writable, replacing, written
from fairfix.data.codec import json_of
from fairfix.data.names import did_you_mean, listed
from fairfix.data.storage import FileLocation, content_of, uploaded
from fairfix.data.targets import OPEN, check_links
from fairfix.data.urls import EXAMPLE, is_database, name_of, scheme_of, shown_url
from fairfix.data.workers import Threads, Workers
from fairfix.errors import ColumnError, DataError, UnreadableError, UsageError, first_line

if TYPE_CHECKING:
    from fairfix.data.counts import BinSlice, Counts, Grid
    from fairfix.data.data_spec import DataSpec
    from fairfix.data.scan import KeptRows

BATCH_ROWS = 65_536
"""Rows per batch: a batch of a few columns stays in the processor's cache."""

PART_ROWS = 1_000_000
"""Row groups are joined up to about this many rows, so that a part is worth a thread."""

Types = Mapping[str, pa.DataType]
"""Column -> the type that is asked for, where the format leaves a choice."""

NO_TYPES: Types = {}
"""Nothing is asked for."""

Write = Callable[[pa.RecordBatch], None]
"""Appends a batch to a file."""


@dataclass(frozen=True)
class SourcePart:
    """A piece of a source that can be read on its own, again and again."""

    where: str
    batches: Callable[[], Iterator[pa.RecordBatch]]
    first_row: int = 0
    """Rows of ``where`` that come before."""
    loaded_by: Any = None
    """Rows that Dask computes first; see :mod:`fairfix.data.dask_frames`."""

    def mapped(self, change: Callable[[pa.RecordBatch], pa.RecordBatch], **more: Any) -> SourcePart:
        """Return the part with every batch changed, and ``more`` fields; it may go to another process."""
        return replace(self, batches=partial(_changed, self, change), **more)


def _changed(
    part: SourcePart, change: Callable[[pa.RecordBatch], pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    return map(change, part.batches())


class Source(ABC):
    """Data that can be scanned; ``schema`` holds the columns' names and types."""

    name: str
    schema: pa.Schema
    rows: int | None = None
    """Number of rows where it is known without reading."""
    about_rows: int = 0
    """Roughly how many rows there are; decides how finely to count."""
    remark = ""
    """Details of reading that were detected, in words; empty where data is read as usual."""
    left_out = 0
    """Number of rows that do not meet the row filter, which nothing yields."""
    notes: tuple[str, ...] = ()
    """Values of the row filter that no row has, in words."""
    workers: Workers = Threads()
    """Workers that read the parts."""
    answers = False
    """Whether rows are counted and collected where they are, by questions, instead of being read."""
    text = False
    """Whether the format leaves the types of columns open, so that ``types`` decides them."""
    unreadable: Mapping[str, str] = MappingProxyType({})
    """Columns of a data frame that no table can hold, and that are left out -> why."""
    doubtful: Mapping[str, str] = MappingProxyType({})
    """Columns that may hold numbers and are read as text alone -> why; ``parts`` refuses them as anything else."""
    examples: Mapping[str, str] = MappingProxyType({})
    """An entry of each column, where columns have numbers instead of names."""
    as_arrays: Mapping[str, tuple[str, ...]] = MappingProxyType({})
    """Role -> its columns, where their values were given as arrays."""

    @property
    def columns(self) -> tuple[str, ...]:
        """Column names, in the order of the data."""
        return tuple(self.schema.names)

    @property
    def usable(self) -> tuple[str, ...]:
        """Names of the columns that can be read: those that are there once."""
        times = Counter(self.columns)
        return tuple(name for name in self.columns if times[name] == 1)

    @abstractmethod
    def parts(self, columns: Sequence[str], types: Types = NO_TYPES) -> list[SourcePart]:
        """Return parts that yield these columns.

        ``types`` asks for types where the format leaves a choice (CSV text, Parquet dictionaries).
        """

    def batches(self, columns: Sequence[str], types: Types = NO_TYPES) -> Iterator[pa.RecordBatch]:
        """Yield these columns of all rows."""
        return chain.from_iterable(part.batches() for part in self.parts(columns, types))

    @property
    def schemas(self) -> Sequence[pa.Schema]:
        """The columns of each of its files, whose types may differ."""
        return [self.schema]

    def files(self) -> list[tuple[str, Source]]:
        """Return (path, source) of each file; a UsageError where the source has none."""
        raise UsageError(f"{self.name} does not consist of files; set `output` to a file, not a folder")

    def require_unchanged(self) -> None:
        """Raise a DataError where a file is not the version that was read first."""
        for inner in vars(self).values():
            if isinstance(inner, Source):
                inner.require_unchanged()

    def read_by(self, workers: Workers) -> Self:
        """Return the source with others who read its parts."""
        other = copy(self)
        other.workers = self.workers.replaced_by(workers)
        return other

    def counted(self, data_spec: DataSpec, *, exact: bool, losses: bool) -> Counts | None:
        """Return the counts of all rows where the data is counted where it is; None where its parts are to be read.

        The arguments are those of :func:`fairfix.data.scan.scan`, the reading is that of its result.
        """
        return None

    def collected(
        self,
        data_spec: DataSpec,
        counts: Counts,
        slices: Sequence[BinSlice],
        columns: tuple[str, ...] | None = None,
        finer: Grid | None = None,
    ) -> KeptRows:
        """Return the rows in slices of the scores, read again where the data does not answer.

        Those of equal score, cell and label are one there, and where they are many. With ``columns``, cells are as
        coarse as these: the first one of the counts stands for all that are equal in them. With a finer grid, the rows
        of a bin are one, at its top.
        """
        from fairfix.data.second_pass import collect

        return collect(self, data_spec, counts, slices, columns, finer)

    def spells(self, name: str) -> bool:
        """Tell whether numbers of a column have signs whose meaning only the source knows."""
        return self.text and (name in self.doubtful or pa.types.is_floating(self.schema.field(name).type))

    def require(self, columns: Sequence[str]) -> None:
        """Raise a ColumnError where a column is not there, or there twice."""
        for name in columns:
            if name in self.unreadable and name not in self.columns:
                raise ColumnError(f"column {name!r} of {self.name} cannot be read: {self.unreadable[name]}")
        require(columns, self.columns, self.name)


def require(names: Sequence[str], columns: Sequence[str], where: str) -> None:
    """Raise a ColumnError where one of the names is not among the columns, or there twice."""
    times = Counter(columns)
    for name in names:
        if times[name] > 1:
            raise ColumnError(f"{where} has the column {name!r} more than once; rename one").without_values()
        if name in times:
            continue
        hint = did_you_mean(name, columns)
        whole = next((one for one in columns if "," in one and name in map(str.strip, one.split(","))), None)
        quotes = f"; in a list, a name with a comma goes into double quotes: '\"{whole}\"'" if whole else ""
        raise ColumnError(
            f"{where} has no column {name!r}{hint}{quotes}",
            f"{'' if hint and not quotes else ';'} it has: {listed(columns)}",
        ).without_values()


class FileSource(Source):
    """Files of one kind with the same columns. A kind is a module in ``fairfix/data/sources`` with a subclass."""

    kind: ClassVar[str]
    """Name in messages."""
    endings: ClassVar[tuple[str, ...]]
    """Endings of its files' names, in small letters; packed files have another one behind."""
    signatures: ClassVar[tuple[tuple[int, bytes], ...]] = ()
    """Offset and bytes by which the content of its files is known."""
    has_tables: ClassVar[bool] = False
    """Whether a file may hold several tables; ``table`` names one."""

    def __init__(self, places: Sequence[FileLocation], name: str) -> None:
        self.name = name
        self.places = list(places)

    def files(self) -> list[tuple[str, Source]]:
        """Return (path, source) of each file, read as all of them are; a URL's path without its query.

        A UsageError where the source is a stream.
        """
        if not self.places[0].store.is_lasting:
            return super().files()
        out: list[tuple[str, Source]] = []
        for place in self.places:
            one = copy(self)
            one.places, one.rows = [place], None
            out.append((place.shown if scheme_of(place.path) else place.path, one))
        return out

    def require_unchanged(self) -> None:
        """Raise a DataError where a file is not the version that was read first."""
        for place in self.places:
            if not place.is_remote:
                place.hold(place.store.look(place.path, place.shown))

    @classmethod
    def writer(cls, file: IO[bytes], path: Path, schema: pa.Schema) -> AbstractContextManager[Write]:
        """Return a context that yields what appends batches; ``path`` tells the dialect. Without it, only reading."""
        raise DataError(f"{path.name}: {cls.kind} files are read, not written; use another ending")


@cache
def file_kinds() -> dict[str, type[FileSource]]:
    """Return the kind of file for each ending; every module of ``fairfix/data/sources`` is searched."""
    from fairfix.data import sources

    return {
        ending: member
        for info in iter_modules(sources.__path__, f"{sources.__name__}.")
        for member in vars(import_module(info.name)).values()
        if isinstance(member, type) and issubclass(member, FileSource) and "kind" in vars(member)
        for ending in member.endings
    }


class PiecedFile(FileSource):
    """Files that know the rows of each of their pieces, such as row groups; runs of about a million rows are parts."""

    def __init__(self, places: Sequence[FileLocation], name: str) -> None:
        super().__init__(places, name)
        self._looked = {place: self.look(place) for place in places}
        self.schema = self._looked[places[0]][0]
        self.rows = self.about_rows = sum(sum(rows) for _, rows, _ in self._looked.values())

    @property
    def schemas(self) -> Sequence[pa.Schema]:
        """The columns of each of the files."""
        return [schema for schema, _, _ in self._looked.values()]

    @classmethod
    @abstractmethod
    def look(cls, place: FileLocation) -> tuple[pa.Schema, list[int], Any]:
        """Return the columns of a file, the rows of its pieces, and what else reading needs to know."""

    @classmethod
    @abstractmethod
    def read(
        cls, place: FileLocation, about: Any, run: list[int], columns: list[str], coded: list[str]
    ) -> Iterator[pa.RecordBatch]:
        """Yield the columns of a run of pieces; of ``coded`` ones, texts may come as dictionaries."""

    def parts(self, columns: Sequence[str], types: Types = NO_TYPES) -> list[SourcePart]:
        """Return runs of pieces."""
        coded = [
            name
            for name, kind in types.items()
            if pa.types.is_dictionary(kind) and not pa.types.is_nested(self.schema.field(name).type)
        ]
        out = []
        for place in self.places:
            schema, rows, about = self._looked[place]
            require(columns, schema.names, f"{place.name} (of {self.name})")
            before = [0, *accumulate(rows)]
            run: list[int] = []
            for i in range(len(rows)):
                run.append(i)
                if before[i + 1] - before[run[0]] >= PART_ROWS or i == len(rows) - 1:
                    batches = partial(self.read, place, about, run, list(columns), coded)
                    out.append(SourcePart(place.name, batches, before[run[0]]))
                    run = []
        return out


class FrameSource(Source):
    """A table already in memory."""

    def __init__(
        self, table: pa.Table, name: str = "data", unreadable: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        self.name, self.unreadable = name, unreadable
        if unreadable:
            self.remark = f"left out, since they cannot be read: {', '.join(map(repr, unreadable))}"
        self._table = table
        self.schema = table.schema
        self.rows = self.about_rows = int(table.num_rows)

    def parts(self, columns: Sequence[str], types: Types = NO_TYPES) -> list[SourcePart]:
        """Return the table as one part."""
        chosen = self._table if tuple(columns) == self.columns else self._table.select(list(columns))
        if any(column.num_chunks > 1 for column in chosen.columns):  # sums depend on where batches end
            chosen = chosen.combine_chunks()
        return [SourcePart(self.name, lambda: iter(chosen.to_batches(max_chunksize=BATCH_ROWS)))]


class DerivedSource(Source):
    """Rows that are made of those of another source; what is said of that one holds of them too, but their number."""

    def __init__(self, source: Source) -> None:
        self.source = source
        for name in ("name", "remark", "workers", "text", "schema", "doubtful", "unreadable", "examples"):
            setattr(self, name, getattr(source, name))

    @property
    def schemas(self) -> Sequence[pa.Schema]:
        """The columns of each of its files, before anything is made of them."""
        return self.source.schemas


class PlainSource(DerivedSource):
    """Another source whose columns have the types of :func:`fairfix.data.arrow_normalize.plain_type`."""

    def __init__(self, source: Source) -> None:
        super().__init__(source)
        self.rows, self.about_rows = source.rows, source.about_rows
        self.schema = plain_schema(source.schema)

    def parts(self, columns: Sequence[str], types: Types = NO_TYPES) -> list[SourcePart]:
        """Return the parts of the source, with plain columns; types are asked for where a column is plain already."""
        odd = {one.name for one in self.source.schema if plain_field(one).type != one.type}
        asked = {name: kind for name, kind in types.items() if name not in odd}
        return [part.mapped(plain_batch) for part in self.source.parts(columns, asked)]

    def files(self) -> list[tuple[str, Source]]:
        """Return (path, source) of each file, with plain columns."""
        return [(path, PlainSource(source)) for path, source in self.source.files()]


def _plain(source: Source) -> Source:
    """Return the source, with plain columns where it has others."""
    return source if all(map(is_plain, source.schemas)) else PlainSource(source)


def open_source(data: Any, **stated: Any) -> Source:
    """Return a source for a path, a glob, a folder, a URL of such or of a database, ``-``, or rows in memory.

    :mod:`fairfix.data.frames` has the kinds of rows in memory. ``delimiter``, ``decimal``, ``encoding`` and ``header``
    state how text files are written, ``sql`` which rows of a database are read; ``#`` names a table of a database, or
    a sheet of a workbook. ``-`` is standard input.
    """
    given: Mapping[str, str] = {name: sign for name, sign in stated.items() if sign is not None}
    if is_database(data):
        from fairfix.data.database import open_database

        return open_database(data, given)
    if isinstance(data, (str, os.PathLike, FileLocation)):
        from fairfix.data.opening import open_named

        return _plain(open_named(data if isinstance(data, FileLocation) else os.fspath(data), given))
    if "sql" in given:
        raise UsageError(f"`sql` is for databases; leave it out, or give the URL of one, such as {EXAMPLE}")
    if given:
        raise UsageError(f"`{min(given)}` is for CSV files; leave it out, since no file is read")
    if isinstance(data, Source):
        return data
    from fairfix.data.frames import frame_source

    return _plain(frame_source(data))


def head_of(place: FileLocation, size: int) -> bytes:
    """Return the first bytes of a file, unpacked; none where that cannot be done, which its reader will say."""
    if place.heads:
        return place.heads.pop()[:size]
    try:
        with place.streamed(size) as file:
            head: bytes = file.read(size)
            return head
    except (OSError, pa.ArrowException, DataError):
        return b""


@contextmanager
def readable(place: FileLocation, kind: str) -> Iterator[None]:
    """Turn what Arrow says of a damaged file into one line that names the file."""
    try:
        yield
    except FileNotFoundError as error:
        raise DataError(f"{place} does not exist") from error
    except MemoryError:  # Arrow's is one of its own errors too
        raise
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        first = first_line(error)
        # CSV has no types: those of columns without a role are what the beginning of the file looks like
        remedy = "; correct the value, or save the data as Parquet, which keeps types"
        if re.search(r"invalid value '[^']*\d,\d+'", first):
            remedy = "; if the comma is its decimal sign, set `decimal=,`" + remedy.replace(
                "; correct", ", otherwise correct"
            )
        hint = remedy if "conversion error" in first else ""
        raise UnreadableError(f"{place.name} cannot be read as {kind}: {first}{hint}") from error


UNRUN = "fairfix.unrun/1"
"""Schema of what stands in the place of a result whose run did not happen."""


def read_json(path: str | os.PathLike[str] | FileLocation, opening: str = "") -> Any:
    """Return what a JSON file holds; ``opening`` begins the message of an error."""
    try:
        content = json_of(content_of(path))
    except FileNotFoundError as error:
        raise DataError(f"{opening}{path} does not exist") from error
    except (OSError, ValueError) as error:
        from fairfix.data.recognition import not_a_result

        other = "" if isinstance(error, OSError) else not_a_result(str(path))
        raise DataError(f"{opening}{path} is not a JSON result{other or f': {error}'}") from error
    if isinstance(content, dict) and content.get("schema") == UNRUN:
        raise DataError(f"{opening}{path} has no result, since its run failed: {content.get('message')}")
    return content


@contextmanager
def atomic_output(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """Yield a binary file that takes the place of ``path`` when the block ends well, and vanishes when not.

    What is no file, such as ``/dev/null`` or a named pipe, is written to and never replaced. ``/dev/stdout`` and
    other names of open descriptors are written to where they stand, so that a file behind them keeps what it has. To a
    URL the file is uploaded whole at the end. A DataError where a link leads to the file
    (:func:`~fairfix.data.targets.check_links`), it or its folder cannot be written to, or the disk is full.
    """
    if is_database(path):
        raise UsageError(
            f"{shown_url(str(path))} is a database, which is only read; write a file, and load it from there"
        )
    if scheme_of(path):
        with uploaded(str(path)) as file:
            yield file
        return
    target = Path(path)
    stream = _stream(target)
    if stream is None:
        with replacing(target) as file:
            yield file
        return
    with written(target, errors=FULL), stream:
        yield stream


def _stream(target: Path) -> IO[bytes] | None:
    """Return what is no file but is written to, opened; None of a file."""
    check_links(target)
    with written(target):
        if (number := descriptor(target)) is not None:
            return os.fdopen(os.dup(number), "wb")
        # of another process's /proc/PID/fd, the end: opening must not empty it
        if is_special(target) and not target.is_dir():
            return target.open("ab")
    check_writable(target)
    return None


def descriptor(path: str | os.PathLike[str]) -> int | None:
    """Return the number of the open descriptor that a path names, as ``/dev/stdout`` does, perhaps through links."""
    place = Path(path)
    for _ in range(40):  # links, as many as systems follow
        folder = os.path.realpath(place.parent)
        own = OPEN.fullmatch(folder)
        if own and own[1] in (None, str(os.getpid())) and place.name.isdecimal():
            return int(place.name)
        if not place.is_symlink():
            break
        place = Path(folder, place.readlink())
    return None


def make_folder_of(path: str | os.PathLike[str]) -> None:
    """Make the folder that a file is to be written to, where there is none."""
    check_links(Path(path))
    try:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(f"cannot write {path}: {error.strerror}") from error


def is_special(path: Path) -> bool:
    """Return whether there is something by that name which is no file: a device, a pipe, what a process has open."""
    return OPEN.fullmatch(os.path.realpath(path.parent)) is not None or (path.exists() and not path.is_file())


def file_hash(path: str | Path) -> str:
    """Return ``sha256:<hex>`` of a file, read a piece at a time."""
    with Path(path).open("rb") as file:
        return f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"


def write_content(path: str | os.PathLike[str], text: str | bytes) -> None:
    """Write text as UTF-8, or bytes, whole or not at all."""
    with atomic_output(path) as file:
        file.write(text.encode("utf-8") if isinstance(text, str) else text)


def table_writer(
    file: IO[bytes], path: str | os.PathLike[str], schema: pa.Schema
) -> AbstractContextManager[Write]:
    """Return a context that yields what appends batches of one schema, in the kind that the file's name says.

    A DataError where the kind has no way to write a column, such as CSV of lists or of times in an unknown zone.
    """
    from fairfix.data.recognition import kind_written
    from fairfix.data.streams import is_stream

    text = os.fspath(path)
    name = Path(name_of(text))
    return _written(kind_written(name.name, stream=is_stream(text)), file, name, schema)


@contextmanager
def _written(kind: type[FileSource], file: IO[bytes], name: Path, schema: pa.Schema) -> Iterator[Write]:
    from fairfix.data.packing import packing_of_name, without_packing

    plain, packing = Path(without_packing(name.name)), packing_of_name(name.name)

    @contextmanager
    def writable() -> Iterator[None]:
        try:
            yield
        except pa.ArrowException as error:
            first = first_line(error)
            raise DataError(
                f"{name} cannot be written as {kind.kind}: {first}; leave the column out of the data, or set "
                "`output` to an Arrow or a Parquet file"
            ) from error

    with ExitStack() as stack:
        inner = plain.name if plain.suffix else f"{plain.name}{kind.endings[0]}"
        target = stack.enter_context(packing.pack(file, inner)) if packing else file
        with writable():
            write = stack.enter_context(kind.writer(target, plain, schema))

        def append(batch: pa.RecordBatch) -> None:
            with writable():
                write(batch)

        yield append
