"""Targets: the files that fairfix may write, and those that it refuses by name. Every output passes here.

Folders and links may be a stranger's, who made a branch of the repository that is worked in. So no output goes through
a symbolic link, and a configuration that was found instead of named may write little more than reports
(docs/security.md).
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fairfix.errors import DataError

OPEN = re.compile(r"/dev/fd|/proc/(\d+)(?:/task/\d+)?/fd")
"""Folder in which a process has the names of what it has open."""

PACKAGES = frozenset(("site-packages", "dist-packages", "node_modules"))
"""Folders whose files may be executed."""

ENVIRONMENT = ("pyvenv.cfg", "conda-meta")
"""Names at the top of an environment of Python."""

HEAD = 2048
"""Bytes at the beginning of a file that tell whose it is; SVG has its metadata within the first 1,000."""

TAIL = 16
"""Bytes at the end of a file that tell it of a PDF."""

OWN = re.compile(
    rb"""\s*(?:
        (?:\#\ )?fairfix\ (?:audit|repair|compare|comparison|report)\ (?:of|on|did|was)\b  # text, Markdown
      | fairfix\ table,                                                                  # CSV
      | \#\ Model\ card:\                                                              # a card
      | <!--\ fairfix\ [a-z]+\ -->                                                       # a comment
      | ::(?:error|warning|notice)\ title=                                               # GitHub
      | \{\s*"schema":\ "fairfix\.                                                       # JSON
      | \{\s*"\$schema":[^{}]*\{\s*"tool":\ \{\s*"driver":\ \{\s*"name":\ "fairfix"      # SARIF
      | <\?xml[^>]*>\s*<testsuites\ name="fairfix"                                       # JUnit
      | <!DOCTYPE\ html>.*<meta\ name="generator"\ content="fairfix                      # HTML
      | PK\x03\x04.{26}manifest\.json                                                    # repairs and counts
      | PK\x03\x04.{26}\[Content_Types\]\.xml<\?xml[^>]*>\s*<!--\ fairfix\ -->              # Excel
      | %PDF-.*\n%fairfix\n\Z                                                            # PDF
    )""",
    re.VERBOSE | re.DOTALL,
)
"""First and last bytes of files of fairfix, except tables of predictions."""

MADE = "randomized"
"""Last column of a table of predictions."""


def check_links(target: Path) -> None:
    """Raise a DataError where the way to a file leads through a symbolic link, which need not be the user's.

    The file itself may be none, wherever it is, nor may any folder that a relative name has, or a full name has below
    the working folder. Links of the system, as ``/dev/stdout`` is one, are followed.
    """
    if link := link_on_the_way(target, Path()):
        leads = os.path.realpath(link)
        what = "it" if link == target else str(link)
        raise DataError(
            f"cannot write {target}: {what} is a symbolic link, to {leads}; name the intended file, or remove the "
            "link"
        )


def link_on_the_way(target: Path, folder: Path) -> Path | None:
    """Return the first link of a name that is looked at: its last part, and what it has below ``folder``."""
    top, place = os.path.realpath(folder), Path(target.anchor)
    below = not target.is_absolute()
    parts = target.parts[len(place.parts) :]
    for i, part in enumerate(parts, 1):
        place = place / part
        if (below or i == len(parts)) and place.is_symlink() and not _is_systems(place):
            return place
        below = below or os.path.realpath(place) == top
    return None


def _is_systems(place: Path) -> bool:
    """Return whether a name is one of those that the system gives to what is open, and to devices."""
    folder = os.path.realpath(place.parent)
    return folder == "/dev" or OPEN.fullmatch(folder) is not None


def refused_below(folder: Path, target: Path, endings: Sequence[str]) -> str:
    """Return why a configuration that was found in a folder may not write a file; empty where it may."""
    whole = Path(os.path.abspath(target))  # noqa: PTH100  links stay, and are refused below
    if not whole.is_relative_to(folder):
        return f"it is outside {folder}"
    if not whole.name.lower().endswith(tuple(endings)) or target.is_dir():
        return f"{target.name!r} does not end in {' or '.join(endings)}"
    if hidden := next((part for part in whole.relative_to(folder).parts if part.startswith(".")), None):
        return f"{hidden!r} begins with a dot"
    if link := link_on_the_way(target, folder):
        return f"{link} is a symbolic link"
    if packages := next((part for part in whole.parts if part.lower() in PACKAGES), None):
        return f"it is in {packages}, whose files may be executed"
    if any((above / mark).exists() for above in whole.parents for mark in ENVIRONMENT):
        return "it is in a Python environment, whose files may be executed"
    if whole.exists() and not is_own(whole):
        return f"{target.name!r} exists already, and fairfix did not write it"
    return ""


def is_own_content(file: Any) -> bool:
    """Return whether fairfix has written an open file, by its first and last bytes; not if it is a table."""
    head = file.read(HEAD)
    file.seek(max(0, file.seek(0, os.SEEK_END) - TAIL))
    return OWN.match(head + file.read(TAIL)) is not None


def is_own(path: Path) -> bool:
    """Return whether fairfix has written a file, by how its content begins; of a table, by its last column."""
    from fairfix.data.files import open_source
    from fairfix.data.recognition import table_endings

    if not path.is_file():
        return False
    with path.open("rb") as file:
        if is_own_content(file):
            return True
    if not path.name.lower().endswith(table_endings()):
        return False
    try:
        return bool(open_source(str(path)).schema.names[-1:] == [MADE])
    except Exception:  # of many kinds: it is no table that can be read
        return False
