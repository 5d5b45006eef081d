"""Packed files: gzip, bzip2, xz, Zstandard and LZ4 around a file of any kind, and ZIP with one table in it.

A packed file is a :class:`~fairfix.data.storage.FileLocation` whose store unpacks. Arrow unpacks text while it reads.
Everything else is unpacked once, into a temporary file.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from threading import Lock
from types import SimpleNamespace
from typing import IO, Any

import pyarrow as pa

from fairfix.data.names import did_you_mean, listed
from fairfix.data.spool import CHUNK, spooled
from fairfix.data.storage import BLOCK, FileLocation, FileVersion, Store, is_hidden
from fairfix.errors import DataError, UnreadableError

XZ_MEMORY = 1 << 28
"""Bytes that unpacking xz may take: four times what its strongest preset asks for."""

ZIP_DIRECTORY = 1 << 24
"""Bytes that the directory of a ZIP may have."""

UNZIPPED = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA)
"""Ways of compression in a ZIP that Python undoes."""

DAMAGED = (EOFError, OSError, ValueError, RuntimeError, lzma.LZMAError, zipfile.BadZipFile, zlib.error)
"""Errors of Python's unpacking."""


@dataclass(frozen=True)
class Packing:
    """A way to pack one file, known by ``magic`` at an offset.

    ``unpack`` makes the content out of the packed file, ``pack`` a file to write it to.
    """

    name: str
    ending: str
    magic: tuple[int, bytes]
    unpack: Callable[[pa.NativeFile], Any]
    pack: Callable[[IO[bytes], str], AbstractContextManager[IO[bytes]]]
    is_native: bool = False
    """Whether Arrow unpacks it, without Python."""


class _LeftOpen(io.RawIOBase):
    """A file that stays open when what writes to it is closed."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        return self._file.write(data)


def _arrow(name: str, ending: str, magic: tuple[int, bytes], codec: str, pack: Any = None) -> Packing:
    """Return a packing that Arrow has a codec for."""

    def compressed(file: IO[bytes], _: str) -> Any:
        return pa.CompressedOutputStream(_LeftOpen(file), codec)

    return Packing(
        name,
        ending,
        magic,
        lambda file: pa.CompressedInputStream(file, codec),
        pack or compressed,
        is_native=True,
    )


def _gzip(file: IO[bytes], _: str) -> Any:
    """Return a file without name and time inside: same rows, same bytes."""
    return gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0)


def _xz_chunks(file: pa.NativeFile) -> Iterator[bytes]:
    """Yield the content of an xz file, which may be several one after the other, with zeros between."""
    data, decoder = file.read(CHUNK), None
    while data or decoder:
        if decoder is None:
            decoder = lzma.LZMADecompressor(memlimit=XZ_MEMORY)
        yield decoder.decompress(data, CHUNK)
        data = b""
        if decoder.eof:
            data, decoder = decoder.unused_data.lstrip(b"\0"), None
            while not data and (more := file.read(CHUNK)):
                data = more.lstrip(b"\0")
        elif decoder.needs_input and not (data := file.read(CHUNK)):
            raise EOFError("it ends too early")


@contextmanager
def _xz(file: pa.NativeFile) -> Iterator[Any]:
    """Yield what reads the content of an xz file, a chunk at a time."""
    chunks = filter(None, _xz_chunks(file))
    yield SimpleNamespace(read=lambda _: next(chunks, b""))


@contextmanager
def _zip_writer(file: IO[bytes], name: str) -> Iterator[IO[bytes]]:
    """Yield the one file of a ZIP, without a time of its own."""
    info = zipfile.ZipInfo(name)
    info.compress_type = zipfile.ZIP_DEFLATED
    with zipfile.ZipFile(file, "w") as archive, archive.open(info, "w", force_zip64=True) as member:
        yield member


ZIP = Packing("ZIP", ".zip", (0, b"PK\x03\x04"), lambda file: file, _zip_writer)
"""Unpacked by :func:`_member`, since it may hold several files."""

PACKINGS: Mapping[str, Packing] = {
    one.ending: one
    for one in (
        _arrow("gzip", ".gz", (0, b"\x1f\x8b\x08"), "gzip", _gzip),
        _arrow("bzip2", ".bz2", (4, b"1AY&SY"), "bz2", lambda file, _: bz2.BZ2File(file, "wb")),
        Packing(
            "xz",
            ".xz",
            (0, b"\xfd7zXZ\x00"),
            _xz,
            lambda file, _: lzma.LZMAFile(file, "wb"),  # noqa: SIM115  a context itself
        ),
        _arrow("Zstandard", ".zst", (0, b"\x28\xb5\x2f\xfd"), "zstd"),
        _arrow("LZ4", ".lz4", (0, b"\x04\x22\x4d\x18"), "lz4"),
        ZIP,
    )
}
"""Packings by the endings of their files."""


def packing_of_name(name: str) -> Packing | None:
    """Return the packing that the name of a file ends in."""
    return next((one for ending, one in PACKINGS.items() if name.lower().endswith(ending)), None)


def packing_of_head(head: bytes) -> Packing | None:
    """Return the packing of a file by its first bytes."""
    return next((one for one in PACKINGS.values() if head.startswith(one.magic[1], one.magic[0])), None)


def without_packing(name: str) -> str:
    """Return the name of a file without the ending of its packing."""
    packing = packing_of_name(name)
    return name[: -len(packing.ending)] if packing else name


class Packed(Store):
    """The one store of a packed file; ``member`` is the file of a ZIP."""

    def __init__(self, outer: FileLocation, packing: Packing, member: str = "") -> None:
        self.outer, self.packing, self.member = outer, packing, member
        self.is_lasting = outer.store.is_lasting
        self._copying, self._copy = Lock(), None

    def __reduce__(self) -> tuple[Any, ...]:
        """Let another process unpack it itself."""
        return _packed, (self.outer, self.packing.ending, self.member)

    def look(self, path: str, shown: str) -> FileVersion:
        """Return what the packed file is now."""
        return self.outer.store.look(path, shown)

    @contextmanager
    def opened(self, place: FileLocation) -> Iterator[pa.NativeFile]:
        """Yield a copy, made once, which is gone with the process."""
        with self._copying:
            if self._copy is None:
                with self._unpacked(BLOCK) as content:
                    self._copy = spooled(content.read, place.shown, place.size or 0)
        with pa.BufferReader(self._copy) as file:
            yield file

    @contextmanager
    def streamed(self, place: FileLocation, ahead: int) -> Iterator[pa.NativeFile]:
        """Yield the content in order, without a copy where Arrow unpacks it.

        Threads of Arrow read ahead. They may not call Python, which could be at its end by then: so the others are
        copied first.
        """
        if not self.packing.is_native:
            with self.opened(place) as file:
                yield file
            return
        with self.outer.store.streamed(self.outer, ahead) as raw, self.packing.unpack(raw) as content:
            yield content

    @contextmanager
    def _unpacked(self, ahead: int) -> Iterator[Any]:
        """Yield the content in order; a DataError where the packing is damaged."""
        outer, store = self.outer, self.outer.store
        opening = store.opened(outer) if self.packing is ZIP else store.streamed(outer, ahead)
        try:
            with opening as raw:
                if self.packing is not ZIP:
                    with self.packing.unpack(raw) as content:
                        yield content
                    return
                with zipfile.ZipFile(_Bounded(raw)) as archive, archive.open(self.member) as content:
                    yield content
        except (*DAMAGED, pa.ArrowException) as error:
            raise _damaged(outer, error) from None


def _packed(outer: FileLocation, ending: str, member: str) -> Packed:
    return Packed(outer, PACKINGS[ending], member)


def _damaged(place: FileLocation, error: Exception) -> UnreadableError:
    return UnreadableError(
        f"{place.name} cannot be unpacked: {str(error) or type(error).__name__}; it is damaged or incomplete, so "
        "download it again"
    )


class _Bounded:
    """A file whose ZIP directory is read only up to a size."""

    def __init__(self, file: pa.NativeFile) -> None:
        self.tell, self._file = file.tell, file

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        try:
            return int(self._file.seek(offset, whence))
        except ValueError as error:  # before the beginning, where zipfile expects the error of Python's files
            raise OSError(str(error)) from None

    def seekable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        data: bytes = self._file.read(min(size, ZIP_DIRECTORY + 1) if size >= 0 else ZIP_DIRECTORY + 1)
        if len(data) > ZIP_DIRECTORY:
            raise zipfile.BadZipFile("its directory is larger than that of any set of tables")
        return data


def members_of(place: FileLocation) -> list[str]:
    """Return the names of the files in a ZIP, without hidden ones; a DataError where it is damaged or encrypted."""
    try:
        with place.opened() as file, zipfile.ZipFile(_Bounded(file)) as archive:
            infos = [one for one in archive.infolist() if not one.is_dir() and not is_hidden(one.filename)]
    except DAMAGED as error:
        raise _damaged(place, error) from None
    for one in infos:
        if one.flag_bits & 1:
            raise DataError(f"{place.name} is encrypted; unpack it yourself, and name the file")
        if one.compress_type not in UNZIPPED:
            raise DataError(
                f"{place.name} uses an unsupported compression; unpack it yourself, and name the file"
            )
    return [one.filename for one in infos]


def unpacked(
    place: FileLocation, packing: Packing, member: str, endings: Sequence[Sequence[str]]
) -> FileLocation:
    """Return the place of the file in a packed one; a DataError for a ZIP with several candidates.

    Parameters
    ----------
    member
        File of a ZIP that was named; empty for the only table in it.
    endings
        Endings of tables, first those that are surely tables.
    """
    if packing is not ZIP:
        inner = without_packing(place.content_name) if packing_of_name(place.content_name) is packing else ""
        return replace(place, store=Packed(place, packing), inner_name=inner or place.content_name, heads=[])
    names = members_of(place)
    name = _chosen(place, names, member, endings)
    return replace(place, store=Packed(place, packing, name), inner_name=PurePosixPath(name).name, heads=[])


def _chosen(place: FileLocation, names: list[str], member: str, endings: Sequence[Sequence[str]]) -> str:
    if member:
        if member in names:
            return member
        hint = did_you_mean(member, names) or f"; it has: {listed(names) or 'none'}"
        raise DataError(f"{place.name} has no file {member!r}{hint}")
    if len(names) == 1:
        return names[0]
    groups = ([name for name in names if name.lower().endswith(tuple(group))] for group in endings)
    tables = next(filter(None, groups), [])
    if len(tables) == 1:
        return tables[0]
    if not tables:
        raise DataError(f"{place.name} does not hold a table; it holds: {listed(names) or 'nothing'}")
    raise DataError(
        f"{place.name} holds {len(tables):,} tables; name one of them after #, such as "
        f"'{place.shown}#{tables[0]}'; it holds: {listed(tables)}"
    )
