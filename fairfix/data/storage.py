"""Locations of files: on this machine, in an object store, on a web server. All are opened in one way.

A :class:`FileLocation` remembers the version of its file that was seen first, and every opening is checked against it,
so no result is made of two versions of a file. Stores are pyarrow's own file systems; HTTP, which pyarrow lacks, is
fsspec's. Nothing here waits for ever: see :data:`SILENCE` and :data:`TRIES`.
"""

from __future__ import annotations

import io
import os
import re
from abc import ABC, abstractmethod
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any

import pyarrow as pa

from fairfix.data.signals import uninterrupted
from fairfix.data.spool import mapped, temporary_file
from fairfix.data.urls import hidden, name_of, scheme_of, shown_url, split
from fairfix.errors import DataError

SILENCE = 15.0
"""Seconds in which a server that says nothing is given up, and asked again."""

CONNECTING = 10.0
"""Seconds that a connection may take."""

TRIES = 4
"""Number of attempts with a server that cuts a connection, is silent or says that it is busy."""

BLOCK = 64 << 10
"""Bytes that come at least where fewer are read: a request costs more than they do."""

BLOCKS = 64
"""Blocks that are kept of an open file."""

MAGIC = frozenset("*?[")
"""Signs of a pattern."""

CHANGED = "{place} changed while it was read; run again when no process writes to it, or read a copy"
"""Error for two versions of a file or of a table."""

FileVersion = dict[str, Any]
"""Version of a file: size, time of modification and tag, as far as its location gives them."""


@dataclass(frozen=True)
class FileLocation:
    """A file that can be opened again and again; printed without secrets."""

    name: str
    """Last part of its path, by which messages call it; more parts where several files have one name."""
    shown: str
    path: str = field(repr=False)
    """As its store takes it."""
    store: Store = field(repr=False)
    stamp: FileVersion = field(default_factory=dict, repr=False, compare=False)
    """Version that was seen first."""
    inner_name: str = ""
    """Name of the file in it, where it is packed."""
    heads: list[bytes] = field(default_factory=list, repr=False, compare=False)
    """First bytes that were read to recognise the file, until its reader takes them."""

    def __getstate__(self) -> dict[str, Any]:
        """Return the fields without the first bytes, which another process reads itself."""
        return {**vars(self), "heads": []}

    def __str__(self) -> str:
        """Return where it is."""
        return self.shown

    @property
    def size(self) -> int | None:
        """Bytes; None where a server does not say."""
        return self.stamp.get("size")

    @property
    def is_remote(self) -> bool:
        """Whether it is elsewhere, where every request takes its time."""
        return isinstance(self.store, Remote)

    @property
    def is_direct(self) -> bool:
        """Whether it is a file of this machine that is read as it is, so that its end costs nothing to look at."""
        return isinstance(self.store, LocalStorage)

    @property
    def content_name(self) -> str:
        """Name of the file without packing, whose ending gives its kind."""
        return self.inner_name or self.name

    def opened(self) -> AbstractContextManager[pa.NativeFile]:
        """Return a context that yields the file for reading at any offset.

        A DataError where it is not there, must not be read, does not come, or has changed since it was first seen.
        """
        return self._watched(self.store.opened(self))

    def streamed(self, ahead: int = BLOCK) -> AbstractContextManager[pa.NativeFile]:
        """Return a context that yields the file for reading from its beginning, ``ahead`` bytes at a time from stores.

        Packed files are unpacked on the way, without a copy. Errors are those of :meth:`opened`.
        """
        return self._watched(self.store.streamed(self, ahead))

    @contextmanager
    def _watched(self, opening: AbstractContextManager[pa.NativeFile]) -> Iterator[pa.NativeFile]:
        try:
            with opening as file:
                yield file
        except DataError:
            raise
        except Exception:  # half of one version and half of another make no file: then that is the reason
            stamp: FileVersion = {}
            with suppress(DataError, OSError):
                stamp = self.store.look(self.path, self.shown)
            self.hold(stamp)
            raise
        self.hold(self.store.look(self.path, self.shown))

    def hold(self, stamp: FileVersion) -> None:
        """Raise a DataError where a version is not the first one; remember what is new."""
        if any(stamp[key] != value for key, value in self.stamp.items() if key in stamp):
            raise DataError(CHANGED.format(place=self))
        self.stamp.update(stamp)


class Store(ABC):
    """Where files are: how one is looked at and opened."""

    is_lasting = True
    """Whether the files have names by which they can be read again."""

    @abstractmethod
    def look(self, path: str, shown: str) -> FileVersion:
        """Return what a file is now."""

    @abstractmethod
    def opened(self, place: FileLocation) -> AbstractContextManager[pa.NativeFile]:
        """Return a context that yields a file, which has been held against its stamp."""

    def streamed(self, place: FileLocation, ahead: int) -> AbstractContextManager[pa.NativeFile]:
        """Return a context that yields a file for reading from its beginning, ``ahead`` bytes at a time."""
        return self.opened(place)


# ---------------------------------------------------------------------- this machine


class LocalStorage(Store):
    """The file system of this machine."""

    def look(self, path: str, shown: str) -> FileVersion:
        """Return size and time of the last change."""
        status = Path(path).stat()
        return {"size": status.st_size, "modified": status.st_mtime_ns}

    @contextmanager
    def opened(self, place: FileLocation) -> Iterator[pa.NativeFile]:
        """Yield the file itself; it is not mapped into memory, where one that becomes shorter kills its readers."""
        try:
            place.path.encode()
        except UnicodeEncodeError:
            raise DataError(
                f"{place.shown!r} has a name that is not UTF-8 and cannot be opened; rename it"
            ) from None
        place.hold(self.look(place.path, place.shown))
        with pa.OSFile(place.path) as file:
            yield file


def local(path: str | os.PathLike[str]) -> FileLocation:
    """Return the place of a file on this machine that is there."""
    text, here = os.fspath(path), LocalStorage()
    return FileLocation(Path(text).name, text, text, here, here.look(text, text))


def named_apart(places: Sequence[FileLocation]) -> list[FileLocation]:
    """Return places by as many last parts of their paths as tell all of them apart."""
    parts = [re.split(r"[/\\]", place.shown.partition("?")[0]) for place in places]
    for many in range(1, max(map(len, parts), default=0) + 1):
        names = ["/".join(each[-many:]) for each in parts]
        if len(set(names)) == len(places):
            pairs = zip(places, names, strict=True)
            return [replace(one, name=name) if many > 1 else one for one, name in pairs]
    return list(places)


# ---------------------------------------------------------------------- what travels

_LOCK = Lock()
_TRAFFIC: Counter[str] = Counter()


def count_bytes(place: FileLocation, size: int) -> None:
    """Count bytes of a file that have come from elsewhere."""
    with _LOCK:
        _TRAFFIC[place.shown] += size


def traffic() -> Counter[str]:
    """Return how many bytes of the content of files have come from elsewhere, by place, since the process began."""
    with _LOCK:
        return Counter(_TRAFFIC)


class _Ranges(io.RawIOBase):
    """A file of a store as Python has files; ``read_at`` gets (size, offset). The first error of the store is kept."""

    def __init__(self, size: int, read_at: Callable[[int, int], bytes]) -> None:
        self._size, self._read_at = size, read_at
        self._offset = 0
        self._blocks: OrderedDict[int, bytes] = OrderedDict()
        self.error: DataError | None = None

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._offset

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._offset = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._offset, io.SEEK_END: self._size}[whence]
        return self._offset

    def read(self, size: int | None = -1) -> bytes:
        left = max(0, self._size - self._offset)
        size = left if size is None or size < 0 else min(size, left)
        if not size:
            return b""
        try:
            data = self._read_at(size, self._offset) if size >= BLOCK else self._within(size)
        except DataError as error:
            self.error = self.error or error
            raise
        self._offset += len(data)
        return data

    def _within(self, size: int) -> bytes:
        """Return a few bytes, out of one block or two."""
        first = self._offset // BLOCK
        data = b"".join(map(self._block, range(first, (self._offset + size - 1) // BLOCK + 1)))
        begin = self._offset - first * BLOCK
        return data[begin : begin + size]

    def _block(self, i: int) -> bytes:
        if i not in self._blocks:
            self._blocks[i] = self._read_at(min(BLOCK, self._size - i * BLOCK), i * BLOCK)
            if len(self._blocks) > BLOCKS:
                self._blocks.popitem(last=False)
        return self._blocks[i]


class Remote(Store):
    """A store whose files come in ranges of bytes."""

    @abstractmethod
    def ranges(self, place: FileLocation) -> tuple[FileVersion, Callable[[int, int], bytes]]:
        """Return what a file is now, and what reads (size, offset) of it."""

    @contextmanager
    def opened(self, place: FileLocation) -> Iterator[pa.NativeFile]:
        """Yield the file; what goes wrong on the way is a DataError, whatever Arrow makes of it."""
        stamp, read_at = self.ranges(place)
        place.hold(stamp)
        source = _Ranges(place.size or 0, read_at)
        try:
            with pa.PythonFile(source, mode="r") as file:
                yield file
        except Exception:
            if source.error is not None:
                raise source.error from None
            raise

    @contextmanager
    def streamed(self, place: FileLocation, ahead: int) -> Iterator[pa.NativeFile]:
        """Yield the file in order; a request brings ``ahead`` bytes."""
        with self.opened(place) as file:
            yield pa.BufferedInputStream(file, ahead)


@contextmanager
def answering(shown: str, doing: str) -> Iterator[None]:
    """Turn what a store says no with into a DataError that names the place and has no secret in it."""
    try:
        yield
    except DataError:
        raise
    except (pa.ArrowException, OSError, ValueError) as error:
        raise DataError(refusal(error, shown, doing)) from None  # the chain would quote URLs and headers


def refusal(error: Exception, shown: str, doing: str) -> str:
    """Return what is said of an error of a store, without secrets."""
    text = " ".join(hidden(str(error)).split()) or type(error).__name__
    status = getattr(error, "status", None)
    if isinstance(error, FileNotFoundError) or status == 404 or "NO_SUCH_BUCKET" in text:
        return f"{shown} does not exist" + ("; there is no such bucket" if "NO_SUCH_BUCKET" in text else "")
    if status == 416 or "HTTP status 416" in text or "INVALID_RANGE" in text:  # it has become shorter
        return CHANGED.format(place=shown)
    denied = ("HTTP status 403", "HTTP status 401", "ACCESS_DENIED", "UNAUTHENTICATED", "PERMISSION_DENIED")
    if isinstance(error, PermissionError) or status in (401, 403) or any(word in text for word in denied):
        return (
            f"no permission for {doing} {shown}, or it does not exist; check the credentials in the environment or in "
            "the profile, which are used as the store's own tools use them"
        )
    return f"{doing} {shown} failed: {text[:300]}"


# ---------------------------------------------------------------------- pyarrow's file systems


class ArrowStore(Remote):
    """A file system of pyarrow: S3, Google Cloud Storage, Azure, HDFS."""

    def __init__(self, filesystem: Any, base: str, root: str) -> None:
        self._filesystem, self._base, self._root = filesystem, base, shown_url(root)

    def look(self, path: str, shown: str) -> FileVersion:
        """Return what the store says of a file."""
        with answering(shown, "reading"), self._filesystem.open_input_file(path) as file:
            return self._stamp(file, path)

    def _stamp(self, file: pa.NativeFile, path: str) -> FileVersion:
        headers = {key.lower(): value.decode() for key, value in (file.metadata() or {}).items()}
        modified = _second(headers.get("last-modified"))
        if modified is None:
            modified = _second(self._filesystem.get_file_info(path).mtime)
        stamp = {"size": file.size(), "modified": modified, "tag": headers.get("etag")}
        return {key: value for key, value in stamp.items() if value is not None}

    def ranges(self, place: FileLocation) -> tuple[FileVersion, Callable[[int, int], bytes]]:
        """Open a file; Arrow closes it when it is let go."""
        with answering(place.shown, "reading"):
            file = self._filesystem.open_input_file(place.path)
            stamp = self._stamp(file, place.path)

        def read_at(size: int, offset: int) -> bytes:
            with answering(place.shown, "reading"):
                data: bytes = file.read_at(size, offset)
                if len(data) < size:
                    raise DataError(CHANGED.format(place=place))
                count_bytes(place, size)
                return data

        return stamp, read_at

    def find(self, path: str, wanted: Callable[[str], bool]) -> list[FileLocation]:
        """Return the file of a path, those of a folder whose name is ``wanted``, or those of a pattern, in order."""
        path = f"{self._base}/{path}".rstrip("/")
        shown = self._shown(path)
        with answering(shown, "reading"):
            info = self._filesystem.get_file_info(path)
            if info.is_file:
                return [self._place(info)]
            if info.type.name == "Directory":
                files = self._within(path, recursive=True)
                names = [name for name in files if wanted(name) and not is_hidden(name)]
            else:
                base, pattern = _fixed(path)
                if self._filesystem.get_file_info(self._base or "/").type.name == "NotFound":
                    raise DataError(f"{shown} does not exist; there is no such bucket")
                if not pattern:
                    raise DataError(f"{shown} does not exist")
                files = self._within(base, recursive=len(pattern) > 1 or "**" in pattern)
                names = [name for name in files if matches(name.split("/"), pattern)]
            return [self._place(files[name]) for name in sorted(names, key=lambda name: name.split("/"))]

    def _within(self, folder: str, *, recursive: bool) -> dict[str, Any]:
        """Return the files of a folder by their path in it."""
        from pyarrow.fs import FileSelector

        selected = FileSelector(folder, allow_not_found=True, recursive=recursive)
        infos = self._filesystem.get_file_info(selected)
        return {info.path.removeprefix(folder).lstrip("/"): info for info in infos if info.is_file}

    def _shown(self, path: str) -> str:
        return self._root + path.removeprefix(self._base)

    def _place(self, info: Any) -> FileLocation:
        stamp = {"size": info.size, "modified": _second(info.mtime)}
        first = {key: value for key, value in stamp.items() if value is not None}
        return FileLocation(name_of(info.path), self._shown(info.path), info.path, self, first)

    def check(self, path: str) -> None:
        """Raise a DataError where there is no bucket to write to."""
        with suppress(OSError):  # who may write need not be allowed to look
            if self._filesystem.get_file_info(self._base).type.name == "NotFound":
                raise DataError(f"cannot write {self._root}/{path}: there is no such bucket")

    def put(self, file: Any, path: str) -> None:
        """Upload a temporary file as a whole.

        Closing a stream of pyarrow completes the upload, whatever has been written before. So nothing may come between:
        one call writes all, closing raises where a part was lost, and signals wait until both are done.
        """
        content = mapped(file)
        with (
            answering(f"{self._root}/{path}", "writing"),
            uninterrupted(),
            self._filesystem.open_output_stream(f"{self._base}/{path}", compression=None) as stream,
        ):
            stream.write(content)


def _second(time_: datetime | str | None) -> int | None:
    """Return a time in whole seconds, which listings and headers agree on; None where it is none."""
    if isinstance(time_, str):
        from email.utils import parsedate_to_datetime

        try:
            time_ = datetime.fromisoformat(time_) if time_[:1].isdigit() else parsedate_to_datetime(time_)
        except ValueError:
            return None
    if time_ is None:
        return None
    return int((time_ if time_.tzinfo else time_.replace(tzinfo=UTC)).timestamp())


def is_hidden(path: str) -> bool:
    """Tell whether a part of a path begins with a point or an underscore: a folder is read without such files."""
    return any(part.startswith((".", "_")) for part in path.split("/"))


def _fixed(path: str) -> tuple[str, list[str]]:
    """Return the folder before the first part that is a pattern, and the parts from there on."""
    names = path.split("/")
    first = next((i for i, name in enumerate(names) if MAGIC & set(name)), len(names))
    return "/".join(names[:first]), names[first:]


def matches(names: list[str], pattern: list[str]) -> bool:
    """Tell whether the parts of a path match those of a pattern, as :func:`glob.glob` does with ``recursive``."""
    if not pattern:
        return not names
    if pattern[0] == "**":
        deeper = bool(names) and not names[0].startswith(".") and matches(names[1:], pattern)
        return matches(names, pattern[1:]) or deeper
    plain = bool(names) and (not names[0].startswith(".") or pattern[0].startswith("."))
    return plain and fnmatchcase(names[0], pattern[0]) and matches(names[1:], pattern[1:])


def _s3(authority: str, query: str) -> tuple[Any, str]:
    """Return S3 as the environment, the profile and the URL say, with limits of its own."""
    from pyarrow.fs import AwsStandardS3RetryStrategy, S3FileSystem

    bucket = authority.removeprefix("anonymous@")
    plain, base = S3FileSystem.from_uri(f"s3://{bucket}{query}")
    # from_uri alone reads the environment, and takes no limits: so the file system is made anew
    _, (settings,) = plain.__reduce__()
    limits = {
        "anonymous": bucket != authority,
        "connect_timeout": CONNECTING,
        "request_timeout": SILENCE,
        "retry_strategy": AwsStandardS3RetryStrategy(max_attempts=TRIES),
    }
    return S3FileSystem(**{**settings, **limits}), base


def _google(authority: str, query: str) -> tuple[Any, str]:
    """Return Google Cloud Storage, with a limit for its retries."""
    limit = "" if "retry_limit_seconds=" in query else f"retry_limit_seconds={SILENCE * TRIES:.0f}"
    return _by_uri("gs", authority, f"{query or '?'}{'&' if query and limit else ''}{limit}")


def _by_uri(scheme: str, authority: str, query: str) -> tuple[Any, str]:
    from pyarrow.fs import FileSystem

    filesystem, base = FileSystem.from_uri(f"{scheme}://{authority}/{query}")
    return filesystem, base.rstrip("/")


# ---------------------------------------------------------------------- by scheme

ARROW: Mapping[str, Callable[[str, str], tuple[Any, str]]] = {
    "s3": _s3,
    "gs": _google,
    "gcs": _google,
    **{scheme: partial(_by_uri, scheme) for scheme in ("abfs", "abfss", "hdfs")},
}
"""Scheme -> what makes the file system, and the path of the bucket in it, out of a bucket or host and a query."""

SCHEMES = (*ARROW, "https", "http")
"""Schemes of URLs whose files are read."""

WRITTEN = tuple(scheme for scheme in ARROW if scheme != "hdfs")
"""Schemes of stores in which a file appears whole or not at all; what is written to HDFS is seen while it grows."""


def _stored(url: str) -> tuple[ArrowStore, str]:
    """Return the store that a URL names, and the path in it; a DataError where it cannot be had."""
    scheme, authority, path, query = split(url)
    if not authority.rpartition("@")[2] and scheme != "hdfs":
        raise DataError(f"{shown_url(url)} names no bucket; write {scheme}://BUCKET/PATH")
    if "@" in path and ":" in authority.rpartition("@")[2] and "@" not in authority:
        raise DataError(
            f"{shown_url(url)}: write a slash in a user or a password of a URL as %2F, and other special "
            "characters likewise"
        )
    with answering(shown_url(url), "opening"):
        filesystem, base = ARROW[scheme](authority, f"?{query}" if query else "")
    return ArrowStore(filesystem, base, f"{scheme}://{authority}"), path


def find(url: str, wanted: Callable[[str], bool]) -> list[FileLocation]:
    """Return the files that a URL names: one, those of a folder whose name is ``wanted``, or those of a pattern.

    As on this machine, what begins with a point or an underscore is not read with its folder. A DataError where there
    is none.
    """
    if split(url)[0] not in ARROW:
        from fairfix.data.web import HttpStore

        return HttpStore().find(url)
    store, path = _stored(url)
    places = store.find(path, wanted)
    if not places:
        is_pattern = bool(MAGIC & set(path))
        raise DataError(f"{shown_url(url)} {'matches no file' if is_pattern else 'holds no file of rows'}")
    return places


def content_of(path: str | os.PathLike[str] | FileLocation, at_most: int | None = None) -> bytes:
    """Return what one file holds, on this machine or by a URL.

    A DataError where there is none by the URL, or one of more than ``at_most`` bytes; on this machine, an OSError.
    """
    if isinstance(path, FileLocation):
        places = [path]
    else:
        scheme = scheme_of(text := os.fspath(path))
        if not scheme:
            return Path(text).read_bytes()
        if scheme not in SCHEMES:
            raise DataError(f"{shown_url(text)} has a scheme that fairfix cannot read")
        places = find(text, lambda _: True)
        if len(places) > 1:
            raise DataError(f"{shown_url(text)} are {len(places)} files; name one")
    if at_most is not None and (places[0].size or 0) > at_most:
        raise DataError(f"{places[0]} is larger than {at_most >> 20} MiB")
    with places[0].opened() as file:
        content: bytes = file.read()
        return content


def check_target(url: str) -> None:
    """Raise a DataError where nothing can be written to a URL, before the work is done."""
    scheme, _, path, _ = split(url)
    shown = shown_url(url)
    if scheme not in WRITTEN:
        able = ", ".join(f"{one}://" for one in WRITTEN)
        raise DataError(f"cannot write {shown}: files are written to this machine and to {able}")
    if not path or path.endswith("/") or MAGIC & set(path):
        raise DataError(f"cannot write {shown}: name one file")
    store, path = _stored(url)
    store.check(path)


@contextmanager
def uploaded(url: str) -> Iterator[Any]:
    """Yield a binary file that is uploaded whole to a URL when the block ends well; else nothing is written there."""
    check_target(url)
    with temporary_file(f"cannot write {shown_url(url)}") as file:
        yield file
        store, path = _stored(url)
        store.put(file, path)
