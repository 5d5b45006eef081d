"""The artifact: one file of data, never code.

``repaired.fairfix`` is a ZIP of ``manifest.json`` and ``arrays/NAME.npy``. This room owns the container: its
bytes are reproducible, and nothing is built before everything is checked. What the manifest means is decided by
:mod:`fairfix.models.repaired`. Files of counts (:mod:`fairfix.auditing.countfile`) are the same container under
another name.

Reading takes the steps: directory of the ZIP, manifest, table of arrays, each array's bytes, header and hash. Sizes
are bounded before anything is inflated and counted while it is, so a small file cannot fill the memory.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import os
import re
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fairfix.data.atomic_write import created, exclusively, replacing
from fairfix.data.codec import json_of, need, shown
from fairfix.data.files import atomic_output
from fairfix.data.storage import content_of
from fairfix.data.urls import name_of, scheme_of
from fairfix.errors import ArtifactError, DataError

PROTOCOL = 1
# To change the format: raise PROTOCOL; let `read` keep understanding the old number by a branch of its own, tested
# with a committed small file of the old format; describe the new layout and the change in docs/artifact.md.

NAME = "fairfix.artifact"
COUNTS = "fairfix.counts"
MANIFEST = "manifest.json"

MAX_MANIFEST = 16 << 20
MAX_TOTAL = 2 << 30
MAX_MEMBERS = 4096
MAX_RATIO = 1100  # deflate cannot do better than about 1030 to 1, so more is a lie
MAX_UNPACKED = 32 << 20
MAX_GROWTH = 16
"""Times the file, where that is more: fairfix does not deflate, which hardly makes a rule smaller."""

DTYPES = frozenset(["|b1", "|i1", "|u1", "<i2", "<i4", "<i8", "<u2", "<u4", "<u8", "<f4", "<f8"])
"""Types of arrays; text belongs in the manifest, where it is readable."""

_ARRAY_NAME = re.compile(r"[a-z0-9_.]{1,100}")
_EPOCH = (1980, 1, 1, 0, 0, 0)
_ENCRYPTED = 0x1


@dataclass(frozen=True)
class Archive:
    """A manifest of JSON values and named read-only arrays."""

    manifest: Mapping[str, Any]
    arrays: Mapping[str, npt.NDArray[Any]]


def write(path: str | os.PathLike[str], artifact: Archive, kind: str = NAME) -> str:
    """Write an artifact, whole or not at all, and return ``sha256:...`` of it; the same content gives the same bytes.

    ``kind`` is what its format is called; a reader of another kind refuses it.
    """
    content = packed(artifact, kind)
    if len(content) > MAX_TOTAL:
        raise ArtifactError(
            f"{name_of(os.fspath(path))} would be larger than {MAX_TOTAL >> 20} MiB, which cannot be read back"
        )
    with atomic_output(path) as file:
        file.write(content)
    return digest(content)


def write_over(path: Path, artifact: Archive, kind: str, held: str | None) -> None:
    """Write an artifact in place of a file that has the hash ``held``, or of none where that is None.

    A DataError where another process has written the file since it was read: then nothing is.
    """
    content = packed(artifact, kind)
    if held is None:
        alone = created(path, io.BytesIO(content))
    else:
        with exclusively(path):
            if alone := digest(_content(path)) == held:
                with replacing(path) as file:
                    file.write(content)
    if not alone:
        raise DataError(
            f"another run wrote {path.name} at the same time, so this run did not change it; run it again"
        )


def packed(artifact: Archive, kind: str = NAME) -> bytes:
    """Return the bytes of an artifact."""
    if reserved := {"format", "arrays"} & set(artifact.manifest):
        raise ArtifactError(
            f"the manifest must not hold the container's own keys {', '.join(sorted(reserved))}"
        )
    packed = {name: _npy(name, np.asarray(artifact.arrays[name])) for name in sorted(artifact.arrays)}
    table = {name: entry for name, (entry, _) in packed.items()}
    manifest = {**artifact.manifest, "format": f"{kind}/{PROTOCOL}", "arrays": table}
    try:
        text = json.dumps(manifest, sort_keys=True, indent=1, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ArtifactError(f"the manifest contains a value that JSON does not support: {error}") from error
    members = {MANIFEST: text.encode()} | {f"arrays/{name}.npy": data for name, (_, data) in packed.items()}
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, data in members.items():
            info = zipfile.ZipInfo(name, _EPOCH)
            info.external_attr = 0o644 << 16
            info.create_system = 3
            archive.writestr(info, data, zipfile.ZIP_STORED)
    return out.getvalue()


def _npy(name: str, array: npt.NDArray[Any]) -> tuple[dict[str, Any], bytes]:
    """Return an array's entry in the manifest, and its file."""
    if not _ARRAY_NAME.fullmatch(name):
        raise ArtifactError(f"{name!r} cannot name an array; use a-z, 0-9, underscore and point")
    plain = array.astype(array.dtype.newbyteorder("<"), order="C", copy=False)
    if plain.dtype.str not in DTYPES:
        raise ArtifactError(f"array {name!r} is of type {plain.dtype}, which the format does not support")
    out = io.BytesIO()
    flat = np.ascontiguousarray(plain).reshape(plain.shape)
    np.lib.format.write_array(out, flat, (1, 0), allow_pickle=False)
    data = out.getvalue()
    digest = hashlib.sha256(data).hexdigest()
    entry = {"dtype": plain.dtype.str, "shape": list(plain.shape), "bytes": len(data), "sha256": digest}
    return entry, data


def digest(content: bytes) -> str:
    """Return ``sha256:...`` of bytes."""
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def fingerprint(path: str | os.PathLike[str]) -> str:
    """Return ``sha256:...`` of a file."""
    return digest(_content(path))


def read(path: str | os.PathLike[str], kind: str = NAME) -> Archive:
    """Read an artifact of a kind after checking all of it.

    An ArtifactError names the file and the first thing that is wrong; nothing else is ever raised for any content.
    """
    return unpacked(_content(path), name_of(os.fspath(path)), kind)


def unpacked(content: bytes, name: str, kind: str = NAME) -> Archive:
    """Return the artifact of these bytes, as :func:`read` does that of a file with this name."""
    try:
        return _Reader(name, content, kind).artifact()
    except ArtifactError:
        raise
    except Exception as error:  # the ZIP reader answers some damaged headers with errors of other libraries
        own = isinstance(error, (zipfile.BadZipFile, ValueError))
        fault = f"{error}" if own else f"{type(error).__name__}: {error}"
        title = ".fairfix file" if kind == NAME else f"file of {kind.removeprefix('fairfix.')}"
        raise ArtifactError(f"{name} is not a valid {title}: {fault}") from error


def kind_of(path: str | os.PathLike[str]) -> str:
    """Return what the format of a file is called; empty where it is damaged."""
    content = _content(path)
    try:
        reader = _Reader(name_of(os.fspath(path)), content, NAME)
        name = reader.manifest(reader.members()).get("format")
    except Exception:  # whoever reads it says what is wrong
        return ""
    return name.partition("/")[0] if isinstance(name, str) else ""


def _content(path: str | os.PathLike[str]) -> bytes:
    try:
        if not scheme_of(path) and Path(path).stat().st_size > MAX_TOTAL:
            raise ArtifactError(f"{Path(path).name} is larger than {MAX_TOTAL >> 20} MiB")
        return content_of(path, MAX_TOTAL)
    except OSError as error:
        raise ArtifactError(f"{path} cannot be read: {error.strerror}") from error


class _Reader:
    """Checks and reads one file's content, step by step; a ValueError says what is wrong with it."""

    def __init__(self, name: str, content: bytes, kind: str) -> None:
        self.name = name
        self.kind = kind
        self.archive = zipfile.ZipFile(io.BytesIO(content))
        self.size = len(content)

    def artifact(self) -> Archive:
        """Return the artifact: directory, manifest, table of arrays, arrays."""
        members = self.members()
        manifest = self.manifest(members)
        table = manifest.pop("arrays", None)
        self._check_format(manifest.pop("format", None))
        need(isinstance(table, dict), "the manifest has no table of arrays")
        stored = {name for name in members if name != MANIFEST}
        odd = min(stored ^ {f"arrays/{name}.npy" for name in table}, default="")
        what = "not listed in the manifest" if odd in stored else "listed but not there"
        need(not odd, f"{odd!r} is {what}")
        return Archive(manifest, {name: self._array(name, table[name], members) for name in sorted(table)})

    def members(self) -> dict[str, zipfile.ZipInfo]:
        """Return the directory of the ZIP, checked before anything is inflated."""
        infos = self.archive.infolist()
        need(len(infos) <= MAX_MEMBERS, f"it has {len(infos):,} members")
        out: dict[str, zipfile.ZipInfo] = {}
        for info in infos:
            self._check_member(info)
            need(info.filename not in out, f"the member {info.filename!r} is there twice")
            out[info.filename] = info
        need(MANIFEST in out, f"it has no {MANIFEST}")
        size = sum(info.file_size for info in infos)
        most = min(max(MAX_UNPACKED, MAX_GROWTH * self.size), MAX_TOTAL)
        need(size <= most, f"it unpacks to {size:,} bytes, more than such a file may")
        spans = sorted((info.header_offset, info.header_offset + 30 + info.compress_size) for info in infos)
        need(all(start >= end for (_, end), (start, _) in pairwise(spans)), "its members overlap")
        return out

    def _check_member(self, info: zipfile.ZipInfo) -> None:
        name, modes = info.filename, (0, 0o100000)
        inner = name.removeprefix("arrays/").removesuffix(".npy")
        array = name == f"arrays/{inner}.npy" and _ARRAY_NAME.fullmatch(inner)
        need(name == MANIFEST or array, f"unknown member {name[:80]!r}")
        plain = not info.is_dir() and (info.external_attr >> 16) & 0o170000 in modes
        need(plain and info.orig_filename == name, f"the member {name!r} is not a plain file")
        need(not info.flag_bits & _ENCRYPTED, f"the member {name!r} is encrypted")
        common = info.compress_type in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
        need(common, f"the member {name!r} is compressed in an unknown way")
        most = MAX_RATIO * max(info.compress_size, 1)
        possible = info.compress_size <= self.size and info.file_size <= most
        need(possible, f"the member {name!r} claims a size it cannot have")

    def _bytes(self, info: zipfile.ZipInfo, limit: int) -> bytes:
        """Return a member's content, never more than it claims."""
        need(info.file_size <= limit, f"the member {info.filename!r} is larger than {limit:,} bytes")
        with self.archive.open(info) as file:
            data = file.read(info.file_size + 1)
        need(len(data) == info.file_size, f"the member {info.filename!r} is not as long as it claims")
        return data

    def manifest(self, members: Mapping[str, zipfile.ZipInfo]) -> dict[str, Any]:
        """Return the manifest's JSON object."""
        data = self._bytes(members[MANIFEST], MAX_MANIFEST)
        try:
            manifest = json_of(data)
        except ValueError as error:
            raise ValueError(f"the manifest is not JSON: {error}") from error
        need(isinstance(manifest, dict), "the manifest is not a JSON object")
        return dict(manifest)

    def _check_format(self, text: Any) -> None:
        ours, (kind, _, number) = f"{self.kind}/{PROTOCOL}", str(text).partition("/")
        sound = isinstance(text, str) and kind == self.kind and re.fullmatch(r"\d{1,9}", number)
        need(sound, f"its format is {shown(text)}, not {ours!r}")
        if int(number) > PROTOCOL:
            raise ArtifactError(
                f"{self.name} has the format {text}; this fairfix reads up to {ours}: use a newer one"
            )
        need(int(number) == PROTOCOL, f"its format is {text!r}, which does not exist")

    def _array(self, name: str, entry: Any, members: Mapping[str, zipfile.ZipInfo]) -> npt.NDArray[Any]:
        """Return an array, whose bytes, hash and header are checked before anything is built."""
        sound = isinstance(entry, dict) and set(entry) == {"dtype", "shape", "bytes", "sha256"}
        need(sound, f"the entry of array {name!r} is malformed")
        info = members[f"arrays/{name}.npy"]
        right = entry["bytes"] == info.file_size and not isinstance(entry["bytes"], bool)
        need(right, f"array {name!r} is not as long as the manifest says")
        data = self._bytes(info, MAX_TOTAL)
        digest = hashlib.sha256(data).hexdigest()
        need(digest == entry["sha256"], f"array {name!r} has another hash than the manifest says")
        stream = io.BytesIO(data)
        need(np.lib.format.read_magic(stream) == (1, 0), f"array {name!r} is of an unknown .npy version")
        shape, fortran, kind = np.lib.format.read_array_header_1_0(stream, max_header_size=4096)
        right = not kind.hasobject and kind.str in DTYPES and kind.str == entry["dtype"]
        need(right, f"array {name!r} is of type {kind}, the manifest says {entry['dtype']!r}")
        need(not fortran or len(shape) <= 1, f"array {name!r} is in Fortran order")
        right = list(shape) == entry["shape"] and not any(isinstance(n, bool) or n < 0 for n in shape)
        need(right, f"array {name!r} has the shape {shape}, the manifest says {entry['shape']}")
        body, size = memoryview(data)[stream.tell() :], math.prod(shape) * kind.itemsize
        need(size == len(body), f"array {name!r} holds {len(body):,} bytes where its shape needs {size:,}")
        array = np.frombuffer(body, dtype=kind).reshape(shape)
        array.setflags(write=False)
        return array
