"""Small files that would fill the memory or never end: ``python -m tests.fuzz.bombs``, a process with a limit.

Each is read by the commands of its kind after these have read a sound file, so that what they import is in memory. Then
the process may have :data:`ROOM` more, and no more.
"""

from __future__ import annotations

import resource
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tests.fuzz.mutations import Outcome, Workshop
from tests.fuzz.mutators import Sealed, encoded, npy, with_header, zipped
from tests.fuzz.originals import ORIGINALS, Original, content_of

ROOM = 400 << 20
"""Bytes: some ten times what these commands need for a few hundred rows, and a tenth of what the files ask for."""

Bomb = Callable[[Sealed], None]


def deflated(change: Bomb) -> Callable[[bytes], bytes]:
    """Return a change of the contents of a file that is packed as small as it can be."""

    def changed(data: bytes) -> bytes:
        content = Sealed.of(data)
        change(content)
        content.compression = zipfile.ZIP_DEFLATED
        return content.sealed()

    return changed


def _large_array(content: Sealed) -> None:
    content.arrays["more"] = np.zeros(100 << 17)


def _large_manifest(content: Sealed) -> None:
    content.raw["manifest.json"] = b"{" + b" " * (20 << 20) + b"}"


def _many_levels(content: Sealed) -> None:
    for model in content.manifest["predictor"]["settings"]["models"]:
        feature = next(one for one in model["features"] if one["levels"])
        feature["levels"] = [f"{i}" for i in range(200_000)]
    content.arrays["model0.coef"] = np.zeros((200_000 + 4, 1))


def _repeated_feature(content: Sealed) -> None:
    for model in content.manifest["predictor"]["settings"]["models"]:
        model["features"] = model["features"][:1] * 100_000


def _deep_tree(content: Sealed) -> None:
    many = 100_001
    inner = np.arange(many) % 2 == 0
    nodes = np.arange(many)
    left, right = np.where(inner, nodes + 1, nodes), np.where(inner, nodes + 2, nodes)
    left[-1] = right[-1] = many - 1
    arrays = {"left": left.astype("<i4"), "right": right.astype("<i4"), "feature": np.zeros(many, "<i4")}
    arrays |= {"threshold": np.zeros(many), "value": np.zeros(many), "missing_left": np.zeros(many, bool)}
    arrays |= {"roots": np.zeros(1, "<i8"), "classes": np.zeros(1, "<i8")}
    content.arrays |= {f"model0.{name}": array for name, array in arrays.items()}


def _wide_grid(content: Sealed) -> None:
    for piece in content.manifest["pieces"]:
        piece["grid"] = [10, 0, (1 << 25) - 1]


def _many_pieces(content: Sealed) -> None:
    none = {**content.manifest["pieces"][0], "read": 1 << 53, "cells": 0, "entries": 0, "grid": None}
    content.manifest["pieces"] += [none | {"excluded": [["x", 1 << 53]]}] * 20_000


def _huge_header(content: Sealed) -> None:
    name = min(content.arrays)
    content.raw[f"arrays/{name}.npy"] = with_header(
        "{'descr': '<f8', 'fortran_order': False, 'shape': (1 << 60,)}"
    )
    content.lies[name] = {"shape": [1 << 60], "dtype": "<f8"}


def _twice(content: Sealed) -> None:
    content.twice = ("manifest.json",) * 3000


BOMBS: dict[tuple[str, str], dict[str, Callable[[bytes], bytes]]] = {
    ("artifact", "linear model"): {
        "a large array": deflated(_large_array),
        "a large manifest": deflated(_large_manifest),
        "a feature of many levels": deflated(_many_levels),
        "a feature many times": deflated(_repeated_feature),
        "a huge header": deflated(_huge_header),
        "members many times": deflated(_twice),
    },
    ("artifact", "trees"): {"a tree without end": deflated(_deep_tree)},
    ("counts", "raw scores"): {
        "a wide grid": deflated(_wide_grid),
        "many pieces": deflated(_many_pieces),
        "a large array": deflated(_large_array),
    },
    ("noise", "persons"): {
        "a group per person": lambda data: encoded(
            "race,seen\n" + "".join(f"{i},{i}\n" for i in range(20_000))
        )
    },
    ("model", "skops"): {
        "lists in lists": lambda data: zipped(
            {"schema.json": b"[" * (8 << 20)}, compression=zipfile.ZIP_DEFLATED
        ),
        "no model": lambda data: zipped(
            {"x.npy": npy(np.zeros(100 << 17))}, compression=zipfile.ZIP_DEFLATED
        ),
    },
}
"""Kind and name of an original -> what it becomes."""


def readings(workshop: Workshop) -> Iterator[tuple[Original, Sequence[str], bytes, str]]:
    """Yield original, command, content and name of every bomb."""
    for original in ORIGINALS:
        content = None
        for name, change in BOMBS.get((original.kind, original.name), {}).items():
            content = content or content_of(original, workshop.root)
            changed = change(content)
            readers = (
                original.commands if original.kind != "artifact" else original.commands[:3:2]
            )  # inspect, predict
            yield from ((original, command, changed, name) for command in readers[:2])


def main() -> int:
    """Read all of them, and print what is wrong."""
    faults: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        workshop = Workshop(Path(folder).resolve())
        runs = list(readings(workshop))
        warm: dict[Any, Outcome] = {}
        for original, command, _, _ in runs:
            if (original, command) not in warm:
                warm[original, command] = workshop.read(
                    original, command, content_of(original, workshop.root), "nothing"
                )
        own = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (own + ROOM, own + ROOM))
        faults += [
            f"{one.name}, unchanged: {one.command}: {one.fault or one.err}"
            for one in warm.values()
            if one.status == 2
        ]
        for original, command, changed, name in runs:
            one = workshop.read(original, command, changed, name)
            if one.fault or one.status != 2:
                faults.append(f"{one.name}, {name}: {one.command}: status {one.status}: {one.fault}")
    for fault in faults:
        print(fault.encode("ascii", "backslashreplace").decode())
    return bool(faults)


if __name__ == "__main__":
    sys.exit(main())
