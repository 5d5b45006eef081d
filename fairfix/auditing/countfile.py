"""Count files: what a scan counted, saved, so that counts of many files and machines add up to one audit.

A count file holds the :class:`~fairfix.data.counts.Counts` of every part of the data one behind the other, *not* added
up: floating-point sums depend on the order of addition, so the file keeps the order, merging puts the parts of
several files behind one another, and reading adds them as a scan does. So merged counts are, to the last bit, those
of a scan of the files together, however the merging is nested. Entries without rows are left out.

The container is that of :mod:`fairfix.data.container`: JSON and plain arrays, hashed, data and never code. There is no
row in it, no feature and no score: only how many rows fall into which bin of the score.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NoReturn, get_args

import numpy as np
import numpy.typing as npt

from fairfix import __version__
from fairfix.auditing.audit import More, judge
from fairfix.auditing.results import AuditReport, Settings
from fairfix.data.container import COUNTS, PROTOCOL, Artifact, read, write
from fairfix.data.counts import Counts, Floats, Grid, Ints
from fairfix.data.files import open_source
from fairfix.data.reading import SCORE_RANGE, Columns, MissingGroup, MissingRows, Reading, ScoreScale, Task
from fairfix.data.scan import Scan, check_whole, scan, summed
from fairfix.errors import ArtifactError, DataError, UsageError

KIND = COUNTS

MAX_ENTRIES = 1 << 27
"""Entries of a table of counts; more is no table that a scan makes."""

MAX_ROWS = 1 << 53
"""Rows, so that their number is exact in floating point."""

KEYS = frozenset({"fairfix", "reading", "sources", "inferred", "model", "cells", "pieces"})
PIECE_KEYS = frozenset({"read", "excluded", "grid", "cells", "entries"})
COLUMN_KEYS = ("protected", "strata", "label", "score", "prediction", "probability", "weight")
READING_KEYS = (
    "task",
    "score_scale",
    "thresholds",
    "positive_label",
    "missing_group",
    "missing_rows",
    "max_groups",
)


@dataclass(frozen=True)
class Piece:
    """Counts of one part of the data, without the entries that have no rows.

    Attributes
    ----------
    read, excluded, cells
        As in :class:`~fairfix.data.counts.Counts`.
    grid
        Exponent, first and last bin of the grid; None without a score, or without rows.
    place
        Increasing places (n,) of the entries with rows in the table (cell, label, bin).
    rows, mass, square_mass
        Their entries (n,); masses are None when unweighted.
    decisions, sums
        As in :class:`~fairfix.data.counts.Counts`.
    """

    read: int
    excluded: Mapping[str, int]
    grid: tuple[int, int, int] | None
    cells: tuple[tuple[str, ...], ...]
    place: Ints
    rows: Ints
    mass: Floats | None
    square_mass: Floats | None
    decisions: Floats | None
    sums: Mapping[str, Floats]

    @classmethod
    def of(cls, counts: Counts) -> Piece:
        """Return the piece of some counts."""
        place = np.flatnonzero(counts.rows).astype(np.int64)

        def filled(table: npt.NDArray[Any] | None) -> Any:
            return None if table is None else table.reshape(-1)[place]

        grid = counts.grid if counts.cells else None
        return cls(
            counts.read,
            dict(counts.excluded),
            None if grid is None else (grid.exponent, grid.first, grid.last),
            counts.cells,
            place,
            filled(counts.rows),
            filled(counts.mass),
            filled(counts.square_mass),
            counts.decisions if counts.cells else None,
            dict(counts.sums) if counts.cells else {},
        )

    @property
    def digest(self) -> str:
        """A hash of what was counted: equal for the same rows, and hardly ever for others."""
        found = hashlib.sha256(json.dumps([self.grid, self.cells]).encode())
        for table in (self.place, self.rows, self.mass, self.decisions, *self.sums.values()):
            found.update(b"" if table is None else np.ascontiguousarray(table).tobytes())
        return found.hexdigest()

    def counts(self, reading: Reading) -> Counts:
        """Return the counts that the piece was made of."""
        grid = None if self.grid is None else Grid(*self.grid, tuple(sorted(set(reading.thresholds))))
        shape = (len(self.cells), 2 if reading.binary else 1, 1 if grid is None else grid.size)

        def table(entries: npt.NDArray[Any] | None) -> Any:
            if entries is None:
                return None
            out = np.zeros(shape, dtype=entries.dtype)
            out.reshape(-1)[self.place] = entries
            return out

        return Counts(
            reading.columns.cell_keys,
            self.cells,
            grid,
            table(self.rows),
            table(self.mass),
            table(self.square_mass),
            self.decisions,
            self.sums,
            self.read,
            self.excluded,
        )


@dataclass(frozen=True)
class CountFile:
    """Counts with all that is needed to audit them: the reading of the data, and what a report says of its source.

    Attributes
    ----------
    reading
        Columns and their meaning, thresholds in the type of the score column.
    pieces
        Counts of the parts of the data, in order.
    sources
        Names of the data.
    inferred, model
        What was inferred about columns, and the name and hash of the model file, as in a report.
    versions
        Versions of fairfix that counted.
    """

    reading: Reading
    pieces: tuple[Piece, ...]
    sources: tuple[str, ...]
    inferred: Mapping[str, str] = field(default_factory=dict)
    model: Mapping[str, str] = field(default_factory=dict)
    versions: tuple[str, ...] = (__version__,)

    @property
    def name(self) -> str:
        """What a report calls the data."""
        more = len(self.sources) - 1
        return self.sources[0] + (f" and {more} more" if more else "")

    @property
    def used(self) -> int:
        """Rows counted."""
        return sum(int(piece.rows.sum()) for piece in self.pieces)

    @property
    def read(self) -> int:
        """Rows read, counted or not."""
        return sum(piece.read for piece in self.pieces)

    def counts(self) -> Counts:
        """Return the counts of everything: the pieces added up in order.

        Raises
        ------
        DataError
            There are no pieces.
        """
        total: Counts | None = None
        for piece in self.pieces:
            counts = piece.counts(self.reading)
            total = counts if total is None else total + counts
        if total is None:
            raise DataError(f"{self.name} has no rows")
        return total

    def facts(self) -> dict[str, Any]:
        """Return what the file says of itself, as JSON values."""
        excluded: dict[str, int] = {}
        for piece in self.pieces:
            for reason, rows in piece.excluded.items():
                excluded[reason] = excluded.get(reason, 0) + rows
        cells = {cell for piece in self.pieces for cell in piece.cells}
        keys = self.reading.columns.cell_keys
        return {
            "format": f"{KIND}/{PROTOCOL}",
            "sources": list(self.sources),
            "rows": {"read": self.read, "used": self.used, "excluded": excluded},
            "reading": _reading_state(self.reading),
            "levels": {key: sorted({cell[i] for cell in cells}) for i, key in enumerate(keys)},
            "inferred": dict(self.inferred),
            "model": dict(self.model),
            "fairfix": list(self.versions),
        }

    def save(self, path: str | os.PathLike[str]) -> str:
        """Write the file, whole or not at all, and return its hash; the same counts give the same bytes."""
        return write(path, _packed(self), KIND)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> CountFile:
        """Read a file after checking all of it.

        Raises
        ------
        ArtifactError
            Names the file and the first thing that is wrong.
        """
        return _Unpacker(Path(path).name, read(path, KIND)).file()


# ---------------------------------------------------------------------- counting, auditing


def count(
    data: Any,
    reading: Reading,
    *,
    threads: int | None = None,
    inferred: Mapping[str, str] | None = None,
    model: Mapping[str, str] | None = None,
) -> CountFile:
    """Count a file, a frame or a source in one pass; it may be a piece of a whole, with few rows or none.

    Raises
    ------
    DataError, UsageError
        The data does not fit the reading, or has rows that its policies do not allow to be left out.
    """
    source = open_source(data)
    reading.check()
    pieces: list[Piece] = []

    def keep(counts: Counts) -> None:
        pieces.append(Piece.of(counts))

    typed = scan(source, reading, threads=threads, exact=False, each=keep).reading
    return CountFile(typed, tuple(pieces), (source.name,), inferred or {}, model or {})


def audit_counts(
    content: CountFile, settings: Settings | None = None, more: More | None = None
) -> AuditReport:
    """Return the report of counts: that of an audit of the data in one pass.

    Raises
    ------
    DataError, UsageError
        The counts cannot answer the question.
    """
    settings = replace(settings or Settings(), exact=False)
    counts = content.counts()
    check_whole(counts, content.reading, content.name)
    report = judge(Scan(counts, None, content.reading), settings, content.name, None, more)
    return replace(report, inferred=content.inferred, model=content.model)


# ---------------------------------------------------------------------- merging


def merged(files: Sequence[tuple[str, CountFile]], name: str | None = None) -> CountFile:
    """Return the counts of several files together, in the order given.

    Parameters
    ----------
    files
        Name for messages, and content.
    name
        What the data is called from now on; None keeps the names of the sources.

    Raises
    ------
    UsageError
        Two files were read in different ways; names every difference.
    """
    (first_name, first), *others = files
    for other_name, other in others:
        found = list(_differences(first, other))
        if found:
            told = "; ".join(
                f"{what} is {one} in {first_name}, {two} in {other_name}" for what, one, two in found
            )
            raise UsageError(f"counts that were taken in different ways cannot be added: {told}")
    contents = [content for _, content in files]
    return CountFile(
        first.reading,
        tuple(piece for content in contents for piece in content.pieces),
        (name,) if name else tuple(source for content in contents for source in content.sources),
        _agreed([content.inferred for content in contents]),
        first.model,
        tuple(sorted({version for content in contents for version in content.versions})),
    )


def repeated(files: Sequence[tuple[str, CountFile]]) -> tuple[str, str] | None:
    """Return the names of two files that hold the very same counts of some part of the data, if there are any."""
    seen: dict[str, str] = {}
    for name, content in files:
        own = {piece.digest for piece in content.pieces if piece.cells}
        if both := own & seen.keys():
            return seen[min(both)], name
        seen |= dict.fromkeys(own, name)
    return None


def _differences(one: CountFile, two: CountFile) -> Iterator[tuple[str, str, str]]:
    """Yield (what, value in one, value in the other) of all that keeps counts from being added."""
    left, right = _reading_state(one.reading), _reading_state(two.reading)
    yield from (
        (key.replace("_", " "), _said(left[key]), _said(right[key]))
        for key in left
        if left[key] != right[key]
    )
    if one.model.get("sha256") != two.model.get("sha256"):
        yield "the model file", one.model.get("sha256", "none"), two.model.get("sha256", "none")
    grids = [{piece.grid for piece in file.pieces if piece.grid} for file in (one, two)]
    if _has_range(one.reading) and all(grids) and grids[0] != grids[1]:
        ours, theirs = ("/".join(map(_said_grid, sorted(found))) for found in grids)
        yield "the grid of score bins", ours, theirs


def _said(value: Any) -> str:
    if isinstance(value, list):
        return ",".join(map(_said, value)) or "none"
    return "none" if value is None else str(value)


def _said_grid(grid: tuple[int, int, int]) -> str:
    exponent, first, last = grid
    return f"{last - first + 1:,} bins of 2^{-exponent}"


def _agreed(many: Sequence[Mapping[str, str]]) -> dict[str, str]:
    return {key: value for key, value in many[0].items() if all(one.get(key) == value for one in many)}


def _has_range(reading: Reading) -> bool:
    """Tell whether the grid is fixed by the scale of the score, not by the data."""
    return reading.task == "classification" and reading.score_scale in SCORE_RANGE


# ---------------------------------------------------------------------- packing


def _reading_state(reading: Reading) -> dict[str, Any]:
    state = {key: getattr(reading.columns, key) for key in COLUMN_KEYS}
    state |= {key: getattr(reading, key) for key in READING_KEYS}
    return {key: list(value) if isinstance(value, tuple) else value for key, value in state.items()}


def _packed(content: CountFile) -> Artifact:
    pieces = content.pieces
    cells = sorted({cell for piece in pieces for cell in piece.cells})
    place = {cell: i for i, cell in enumerate(cells)}
    filled = [piece for piece in pieces if piece.cells]
    labels = 2 if content.reading.binary else 1

    def joined(parts: Sequence[npt.NDArray[Any] | None], tail: tuple[int, ...], kind: npt.DTypeLike) -> Any:
        own = [part for part in parts if part is not None]
        return np.concatenate(own) if own else np.zeros((0, *tail), dtype=kind)

    arrays = {
        "cell": np.array([place[cell] for piece in pieces for cell in piece.cells], dtype=np.int32),
        "place": joined([piece.place for piece in filled], (), np.int64),
        "rows": joined([piece.rows for piece in filled], (), np.int64),
    }
    for name in ("mass", "square_mass") if content.reading.columns.weight else ():
        arrays[name] = joined([getattr(piece, name) for piece in filled], (), np.float64)
    if _decided(content.reading):
        arrays["decisions"] = joined([piece.decisions for piece in filled], (labels, 4), np.float64)
    for name in summed(content.reading):
        arrays[f"sums.{name}"] = joined([piece.sums[name] for piece in filled], (labels, 2), np.float64)
    manifest = {
        "fairfix": list(content.versions),
        "reading": _reading_state(content.reading),
        "sources": list(content.sources),
        "inferred": dict(content.inferred),
        "model": dict(content.model),
        "cells": [list(cell) for cell in cells],
        "pieces": [
            {
                "read": piece.read,
                "excluded": [[reason, rows] for reason, rows in piece.excluded.items()],
                "grid": None if piece.grid is None else list(piece.grid),
                "cells": len(piece.cells),
                "entries": len(piece.place),
            }
            for piece in pieces
        ],
    }
    return Artifact(manifest, arrays)


def _decided(reading: Reading) -> bool:
    """Tell whether decisions were counted, instead of following from a threshold."""
    return bool(reading.columns.prediction or reading.columns.probability)


# ---------------------------------------------------------------------- unpacking


class _Unpacker:
    """Checks a file's content, step by step, before counts are built of it."""

    def __init__(self, name: str, content: Artifact) -> None:
        self.name = name
        self.manifest = content.manifest
        self.arrays = content.arrays

    def file(self) -> CountFile:
        """Return the file."""
        manifest = self.manifest
        self._need(set(manifest) == KEYS, "the manifest has not the keys of counts")
        versions, sources = (self._texts(manifest[key], key) for key in ("fairfix", "sources"))
        self._need(bool(sources), "it names no source")
        inferred, model = (self._named_texts(manifest[key], key) for key in ("inferred", "model"))
        reading = self._reading(manifest["reading"])
        cells = self._cells(manifest["cells"], len(reading.columns.cell_keys))
        pieces = self._pieces(manifest["pieces"], cells, reading)
        return CountFile(reading, pieces, sources, inferred, model, versions)

    def _refuse(self, reason: str) -> NoReturn:
        raise ArtifactError(f"{self.name} is not a sound file of counts: {reason}")

    def _need(self, sound: object, reason: str) -> None:
        if not sound:
            self._refuse(reason)

    def _texts(self, value: Any, what: str) -> tuple[str, ...]:
        self._need(
            isinstance(value, list) and all(isinstance(v, str) for v in value),
            f"{what!r} is no list of texts",
        )
        return tuple(value)

    def _named_texts(self, value: Any, what: str) -> dict[str, str]:
        self._need(
            isinstance(value, dict) and all(isinstance(v, str) for v in value.values()),
            f"{what!r} is malformed",
        )
        return dict(value)

    def _number(self, value: Any, what: str, low: int = 0, high: int = MAX_ROWS) -> int:
        self._need(type(value) is int and low <= value <= high, f"{what} is {value!r}")
        return int(value)

    # -------------------------------------------------------------- reading

    def _reading(self, state: Any) -> Reading:
        self._need(
            isinstance(state, dict) and set(state) == {*COLUMN_KEYS, *READING_KEYS},
            "the reading is malformed",
        )
        named = {key: self._texts(state[key], key) for key in ("protected", "strata")}
        single = {key: self._text_or_none(state[key], key) for key in COLUMN_KEYS if key not in named}
        choices = {
            "task": Task,
            "score_scale": ScoreScale,
            "missing_group": MissingGroup,
            "missing_rows": MissingRows,
        }
        for key, choice in choices.items():
            self._need(state[key] in get_args(choice), f"{key!r} is {state[key]!r}")
        cuts = state["thresholds"]
        self._need(
            isinstance(cuts, list) and len(cuts) <= 64 and all(isinstance(cut, float) for cut in cuts),
            "the thresholds are malformed",
        )
        reading = Reading(
            Columns(named["protected"], strata=named["strata"], **single),
            **{key: state[key] for key in choices},
            thresholds=tuple(cuts),
            positive_label=self._text_or_none(state["positive_label"], "positive_label"),
            max_groups=self._number(state["max_groups"], "max_groups", 1),
        )
        try:
            reading.check()
        except UsageError as error:
            self._refuse(str(error))
        return reading

    def _text_or_none(self, value: Any, what: str) -> str | None:
        self._need(value is None or isinstance(value, str), f"{what!r} is {value!r}")
        return None if value is None else str(value)

    # -------------------------------------------------------------- pieces

    def _cells(self, value: Any, keys: int) -> tuple[tuple[str, ...], ...]:
        self._need(isinstance(value, list), "the cells are malformed")
        cells = tuple(self._texts(cell, "cells") for cell in value)
        self._need(all(len(cell) == keys for cell in cells), "a cell has not a level per column")
        self._need(list(cells) == sorted(set(cells)), "the cells are not in order")
        return cells

    def _pieces(self, value: Any, cells: tuple[tuple[str, ...], ...], reading: Reading) -> tuple[Piece, ...]:
        self._need(isinstance(value, list), "the pieces are malformed")
        for piece in value:
            self._need(isinstance(piece, dict) and set(piece) == PIECE_KEYS, "a piece is malformed")
            for key in ("cells", "entries"):
                self._number(piece[key], f"the number of {key}")
        self._arrays(sum(p["cells"] for p in value), sum(p["entries"] for p in value), reading)
        out, cell_at, entry_at = [], 0, 0
        for piece in value:
            own = slice(cell_at, cell_at + piece["cells"])
            entries = slice(entry_at, entry_at + piece["entries"])
            out.append(self._piece(piece, own, entries, cells, reading))
            cell_at, entry_at = own.stop, entries.stop
        if _has_range(reading):
            self._need(
                len({piece.grid for piece in out if piece.cells}) <= 1, "its pieces have different score bins"
            )
        return tuple(out)

    def _arrays(self, cells: int, entries: int, reading: Reading) -> None:
        """Check names, types and shapes of all arrays."""
        labels = 2 if reading.binary else 1
        wanted: dict[str, tuple[str, tuple[int, ...]]] = {
            "cell": ("<i4", (cells,)),
            "place": ("<i8", (entries,)),
            "rows": ("<i8", (entries,)),
        }
        if reading.columns.weight:
            wanted |= dict.fromkeys(("mass", "square_mass"), ("<f8", (entries,)))
        if _decided(reading):
            wanted["decisions"] = ("<f8", (cells, labels, 4))
        wanted |= {f"sums.{name}": ("<f8", (cells, labels, 2)) for name in summed(reading)}
        self._need(set(wanted) == set(self.arrays), f"its arrays are not {', '.join(sorted(wanted))}")
        for name, (kind, shape) in wanted.items():
            array = self.arrays[name]
            self._need(
                (array.dtype.str, array.shape) == (kind, shape), f"array {name!r} has not the shape {shape}"
            )

    def _piece(
        self,
        piece: Mapping[str, Any],
        own: slice,
        entries: slice,
        cells: tuple[tuple[str, ...], ...],
        reading: Reading,
    ) -> Piece:
        arrays = self.arrays
        chosen = arrays["cell"][own]
        self._need(
            not chosen.size
            or (chosen.min() >= 0 and chosen.max() < len(cells) and (np.diff(chosen) > 0).all()),
            "the cells of a piece are not in order",
        )
        grid = self._grid(piece["grid"], reading, filled=chosen.size > 0)
        bins = 1 if grid is None else grid[2] - grid[1] + 1 + len(set(reading.thresholds))
        labels = 2 if reading.binary else 1
        room = int(chosen.size) * labels * bins
        self._need(room <= MAX_ENTRIES, f"a table of {room:,} entries is too large")
        place, rows = arrays["place"][entries], arrays["rows"][entries]
        self._need(
            not place.size or (place[0] >= 0 and place[-1] < room and (np.diff(place) > 0).all()),
            "the places of a piece are not in order",
        )
        seen = np.unique(place // (labels * bins))
        self._need(seen.size == chosen.size, "a cell has no rows")
        self._need(
            not rows.size or (rows.min() > 0 and rows.max() <= MAX_ROWS), "a number of rows is not positive"
        )
        found = Piece(
            self._number(piece["read"], "the number of rows read"),
            self._excluded(piece["excluded"]),
            grid,
            tuple(cells[i] for i in chosen),
            place,
            rows,
            self._masses("mass", entries),
            self._masses("square_mass", entries),
            arrays["decisions"][own] if "decisions" in arrays and chosen.size else None,
            {name: arrays[f"sums.{name}"][own] for name in summed(reading)} if chosen.size else {},
        )
        accounted = sum(rows.tolist()) + sum(found.excluded.values())
        self._need(accounted == found.read, f"{found.read:,} rows were read, {accounted:,} are accounted for")
        self._check_decisions(found, labels, bins)
        return found

    def _grid(self, value: Any, reading: Reading, *, filled: bool) -> tuple[int, int, int] | None:
        if not (filled and reading.columns.score):
            self._need(value is None, "a piece has score bins for nothing")
            return None
        self._need(isinstance(value, list) and len(value) == 3, "the score bins of a piece are malformed")
        exponent = self._number(value[0], "the fineness of the score bins", -1021, 1021)
        first, last = (self._number(k, "a score bin", -MAX_ROWS, MAX_ROWS) for k in value[1:])
        self._need(0 <= last - first < MAX_ENTRIES, "a piece has too many score bins")
        return exponent, first, last

    def _excluded(self, value: Any) -> dict[str, int]:
        self._need(
            isinstance(value, list) and all(isinstance(pair, list) and len(pair) == 2 for pair in value),
            "the reasons for rows left out are malformed",
        )
        reasons = self._texts([reason for reason, _ in value], "excluded")
        self._need(len(set(reasons)) == len(reasons), "a reason is there twice")
        return {reason: self._number(rows, "a number of rows") for reason, rows in value}

    def _masses(self, name: str, entries: slice) -> Floats | None:
        if name not in self.arrays:
            return None
        masses = self.arrays[name][entries]
        self._need(
            bool((np.isfinite(masses) & (masses >= 0)).all()),
            f"array {name!r} holds what is no sum of weights",
        )
        return masses

    def _check_decisions(self, piece: Piece, labels: int, bins: int) -> None:
        """Refuse sums of decision probabilities that do not add up to the weights."""
        if piece.decisions is None:
            return
        self._need(
            bool((np.isfinite(piece.decisions) & (piece.decisions >= 0)).all()),
            "the sums of decisions are no sums of probabilities",
        )
        weights = piece.rows.astype(np.float64) if piece.mass is None else piece.mass
        total = np.bincount(piece.place // bins, weights, len(piece.cells) * labels)
        decided = piece.decisions[..., :2].sum(axis=-1).reshape(-1)
        self._need(
            np.allclose(decided, total, rtol=1e-6, atol=1e-9 * max(float(total.max(initial=0.0)), 1.0)),
            "the sums of decisions do not add up to the rows",
        )
