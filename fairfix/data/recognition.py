"""Recognition of files: the kind and the packing of each, by the ending of its name and by its content.

The ending decides, unless the content contradicts it. The first bytes of a file are read where the ending leaves it
open or says text, which nearly anything can be called; else only after the reader of the kind has failed.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

from fairfix.data.files import FileSource, file_kinds, head_of
from fairfix.data.packing import (
    PACKINGS,
    ZIP,
    Packed,
    Packing,
    members_of,
    packing_of_head,
    packing_of_name,
    unpacked,
    without_packing,
)
from fairfix.data.storage import FileLocation, local
from fairfix.data.urls import scheme_of
from fairfix.errors import DataError

HEAD = 1 << 16
"""Bytes that are looked at, which the reader of a text gets without a second request."""

LAYERS = 3
"""Packings around one another, as in a ZIP with a gzip file in it."""

TEXT_ENDINGS = (".txt", ".data", ".dat", ".asc")
"""Endings of tables as text that a folder may also have for other texts."""

TEXT_KIND = ".csv"
"""Ending of the kind that text is read as."""

MANIFEST = "manifest.json"
"""File in the ZIP of a repair or of counts."""

UNPACK = "; unpack it, and name the file with the table"
COPY = "; name it by its path on this machine, not packed and not through a pipe"

PICKLE = "a pickle, which can run code when it is loaded; if you trust who made it, convert it to Parquet"

OTHERS: tuple[tuple[int, bytes, str], ...] = (
    (0, b"%PDF", "a PDF document; save the table in it as CSV"),
    (0, b"7z\xbc\xaf\x27\x1c", f"a 7-Zip archive{UNPACK}"),
    (0, b"Rar!\x1a\x07", f"a RAR archive{UNPACK}"),
    (257, b"ustar", f"a tar archive{UNPACK}"),
    (0, b"SQLite format 3\0", f"an SQLite database{COPY}"),
    (8, b"DUCK", f"a DuckDB database{COPY}"),
    (0, b"\x89HDF\r\n\x1a\n", "an HDF5 file; save the table as Parquet"),
    (0, b"\x93NUMPY", "an array of NumPy; save it as a table with named columns, such as Parquet"),
    (0, b"FEA1", "a Feather file of version 1; save the table as Parquet"),
    *((0, bytes((128, i)), PICKLE) for i in range(2, 6)),
    (0, b"\x89PNG", "a picture"),
    (0, b"\xff\xd8\xff", "a picture"),
    (0, b"\x7fELF", "a program"),
    (0, b"MZ", "a program"),
    (0, b"version https://git-lfs.github.com", "a pointer of Git LFS; fetch the file itself: git lfs pull"),
)
"""Offset, bytes and name of what is no table that can be read, perhaps with what to do."""

PAGES = (b"<!doctype html", b"<html", b"<?xml")
"""Beginnings of pages of the web and the like, in small letters."""


@dataclass(frozen=True)
class Recognised:
    """A file with its kind, unpacked; ``remark`` says where its content overrules its name."""

    kind: type[FileSource]
    place: FileLocation
    remark: str = ""
    table: str = ""
    """Table in it that was named, where it is no file of a ZIP."""

    @property
    def layers(self) -> tuple[object, ...]:
        """The kind and all packings, by which two recognitions of a file are compared."""
        return (self.kind, *_layers(self.place))


def _layers(place: FileLocation) -> Iterator[str]:
    while isinstance(place.store, Packed):
        yield place.store.packing.name
        place = place.store.outer


def recognised(place: FileLocation, member: str = "", *, doubted: bool = False) -> Recognised:
    """Return the kind of a file, and the file without its packing.

    Parameters
    ----------
    member
        File of a ZIP, or table of a file that has several, where one was named.
    doubted
        Whether the reader that the name asks for has failed; then the content decides alone.

    Raises
    ------
    DataError
        Neither the name nor the content is that of a table that can be read.
    """
    outer, remarks = place, list[str]()
    for _ in range(LAYERS + 1):
        name = place.content_name
        packing, kind = packing_of_name(name), kind_of_name(name)
        if not doubted and packing is None and kind is not None and not kind.text:
            return Recognised(kind, place, "; ".join(remarks), member)
        if doubted or packing is None:
            head = _head(place)
            if head or not packing:
                named = packing.name if packing else kind.kind if kind else ""
                packing, kind, contradicted = _by_content(place, head, packing, kind, doubted=doubted)
                if contradicted:
                    actual = packing.name if packing else kind.kind if kind else ""
                    remarks.append(f"read as {actual} by its content, not as {named} by its name")
        if packing is None:
            assert kind is not None
            return Recognised(kind, place, "; ".join(remarks), member)
        place = unpacked(place, packing, member, (table_endings(), TEXT_ENDINGS))
        member = member if packing is not ZIP else ""
    raise DataError(f"{outer.name} is packed more than {LAYERS} times; unpack it, and name the file")


def _by_content(
    place: FileLocation, head: bytes, packing: Packing | None, kind: type[FileSource] | None, *, doubted: bool
) -> tuple[Packing | None, type[FileSource] | None, bool]:
    """Return the packing or the kind of a file by its first bytes, and whether its name says another one.

    ``packing`` and ``kind`` are those of its name.
    """
    text = is_text(head)
    kinds = _signed(head, text=text)
    if kind in kinds or (packing and packing_of_head(head) is packing):
        return packing, None if packing else kind, False
    actual = None if kinds else packing_of_head(head)
    if actual is ZIP and (office := _office(place)):
        kinds, actual = [office], None
    if actual:
        return actual, None, packing is not None or kind is not None
    if kinds:
        return None, kinds[0], packing is not None or kind is not None
    if other := _other(head, text=text):
        error = DataError(f"{place.name} is {other}")
        if other == PICKLE:
            code = "import pandas, sys; pandas.read_pickle(sys.argv[1]).to_parquet(sys.argv[1] + '.parquet')"
            own = place.name, f"{place.name}.parquet"
            raise error.proposing(own, before=f"python -c {shlex.quote(code)}")
        raise error
    if kind is not None and packing is None and (kind.text or not head or not text or not kind.signatures):
        return None, kind, False  # what is wrong with it, its reader says
    if text:
        return None, file_kinds()[TEXT_KIND], packing is not None or kind is not None
    if packing is not None:
        return packing, None, False
    raise DataError(
        f"{place.name} is of an unknown kind; it begins with {head[:8]!r}. Supported kinds are "
        f"{', '.join(kinds_by_name())}"
    )


def _head(place: FileLocation) -> bytes:
    """Return the first bytes of a file, which its next reader gets too."""
    head = head_of(place, HEAD)
    place.heads[:] = [head]
    return head


def _signed(head: bytes, *, text: bool) -> list[type[FileSource]]:
    """Return the kinds whose signature a file has."""
    return [
        kind
        for kind in kinds_by_name().values()
        if any(_has_sign(head, at, sign, text=text) for at, sign in kind.signatures)
    ]


def _office(place: FileLocation) -> type[FileSource] | None:
    """Return the kind of spreadsheets where a ZIP is one; a DataError for a file of fairfix."""
    names = set(members_of(place))
    if MANIFEST in names:
        raise DataError(
            f"{place.name} is a file of fairfix, and here rows are needed: name the rows. Show what it holds: "
            f"fairfix inspect {place.name}. Counts are read by audit, explore, repair and count, from the path of a "
            "file that is not packed"
        )
    if "[Content_Types].xml" in names or "content.xml" in names:
        if kind := file_kinds().get(".xlsx"):
            return kind
        raise DataError(f"{place.name} is an Office document; save the table in it as CSV")
    return None


def holds_manifest(place: FileLocation) -> bool:
    """Tell whether a file is one of fairfix by its content: a ZIP with a manifest."""
    head = head_of(place, 64)
    if packing_of_head(head) is not ZIP:
        return False
    if head[30:].startswith(MANIFEST.encode()):  # the first file in it, behind the header
        return True
    with suppress(DataError):
        return MANIFEST in members_of(place)
    return False


def _other(head: bytes, *, text: bool) -> str:
    """Return what a file is that holds no table; empty where that is unknown."""
    start = head[:64].lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if start.startswith(PAGES):
        return "a web page or XML; open it in a browser or a spreadsheet, and save the table as CSV"
    return next((what for at, sign, what in OTHERS if _has_sign(head, at, sign, text=text)), "")


def _has_sign(head: bytes, at: int, sign: bytes, *, text: bool) -> bool:
    """Tell whether a file has a signature; a word alone is none in a text, which may begin with any."""
    return head[at : at + len(sign)] == sign and not (text and sign.isalnum())


def is_text(head: bytes) -> bool:
    """Tell whether first bytes are those of a text: without control characters, or in UTF-16 with its mark."""
    if head[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return True
    return not set(head) & CONTROL


CONTROL = frozenset(range(32)) - frozenset(b"\t\n\r\f\x0b\x1b\x1a")
"""Bytes that no text has, in any encoding that keeps ASCII."""


def not_a_result(path: str) -> str:
    """Return what a file is that should be a saved result, and what to type; empty where that is unknown."""
    from fairfix.data.container import COUNTS, kind_of
    from fairfix.data.targets import OWN

    shown = shlex.quote(path)
    if scheme_of(path):
        return ""
    place = local(path)
    head = head_of(place, HEAD)
    if holds_manifest(place):
        what = "saved counts" if kind_of(path) == COUNTS else "a repaired predictor"
        return f"; it is {what}, show its content: fairfix inspect {shown}"
    if OWN.match(head):
        return "; it is a report of fairfix in another format; name the result in JSON, which --format json writes"
    try:
        kind = recognised(place).kind
    except DataError as error:
        return f"; {error}"
    if kind.text and kind is not kind_of_name(without_packing(path)):
        return ""
    return (
        f"; it is a table ({kind.kind}), so audit it first: fairfix audit {shown} --protected COLUMN --format json "
        "> audit.json"
    )


# ---------------------------------------------------------------------- endings


def kinds_by_name() -> dict[str, type[FileSource]]:
    """Return the kinds of files by what messages call them."""
    return {kind.kind: kind for kind in file_kinds().values()}


def kind_of_name(name: str) -> type[FileSource] | None:
    """Return the kind of a file by the ending of its name; None where that leaves it open."""
    return next((kind for ending, kind in file_kinds().items() if name.lower().endswith(ending)), None)


def table_endings() -> tuple[str, ...]:
    """Return all endings of tables, those of packed ones included."""
    plain = tuple(file_kinds())
    return (*plain, *(f"{ending}{packed}" for ending in plain for packed in PACKINGS))


def kind_written(name: str, *, stream: bool = False) -> type[FileSource]:
    """Return the kind in which a table is written to a file: by its ending.

    CSV is written to a ``.txt``, to a stream, and into a packing around no other kind.
    """
    plain = without_packing(name)
    kind = kind_of_name(plain)
    if kind is None and (stream or plain != name or plain.lower().endswith(TEXT_ENDINGS)):
        kind = file_kinds()[TEXT_KIND]
    if kind is None:
        base, _, table = name.partition("#")
        into = f"; for a new table, write duckdb:///{base}#{table or 'decided'}" * base.endswith(".duckdb")
        raise DataError(f"{name}: unknown kind of file; supported are {', '.join(file_kinds())}{into}")
    return kind
