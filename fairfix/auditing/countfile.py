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
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from fractions import Fraction
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
from msgspec import Meta, to_builtins
from msgspec.structs import asdict

from fairfix import __version__
from fairfix.data.canonical import canonical_text
from fairfix.data.choices import ROLES, MissingGroup, MissingRows, ScoreScale, Task
from fairfix.data.codec import LONGEST_FAULT, Array, Arrays, CodecState, converted, need, plain, shortened
from fairfix.data.container import COUNTS, PROTOCOL, Archive, read, write
from fairfix.data.counts import Counts, Grid, SavedCounts, check_cells, groups_of_cells
from fairfix.data.cutoffs import GroupThresholds
from fairfix.data.data_spec import SCORE_RANGE, ColumnRoles, DataSpec
from fairfix.data.files import open_source
from fairfix.data.names import kept_threshold
from fairfix.data.numeric_groups import Edges, rising, shown
from fairfix.data.quantities import LEAST, SUMMED, are_sums, range_of, summed
from fairfix.data.row_filter import LEFT_OUT, parse_condition
from fairfix.data.row_hash import Share
from fairfix.data.scan import BINS, fixed_grid, scan
from fairfix.data.urls import name_of
from fairfix.data.workers import added
from fairfix.errors import MALFORMED, ArtifactError, DataError, UsageError
from fairfix.schema.common import Count, Names, Part
from fairfix.stats.geometric_noise import budget_of

MAX_ENTRIES = 1 << 26
"""Entries of a table of counts; more is no table that a scan makes."""

MAX_BINS = 4 * BINS
"""Score bins, which a scan lets become twice as many as it begins with; a table of them is in memory."""

MAX_ROWS = 1 << 53
"""Rows, so that their number is exact in floating point."""

Rows = Annotated[int, Meta(ge=0, le=MAX_ROWS)]
Bin = Annotated[int, Meta(ge=-MAX_ROWS, le=MAX_ROWS)]


COLUMNS = tuple(role for role in ROLES if role != "id")
"""Roles of columns that counts know."""


class Batch(Part, frozen=True):
    """Rows that were added to a state at once."""

    source: str
    """Name of their data."""
    added: str
    """Time at which they were added, in UTC, to the second: ``2026-05-01T12:00:00+00:00``."""
    fingerprint: str
    """Hash of the rows, to reject the same rows a second time."""

    def __post_init__(self) -> None:
        """Require a time as it is written."""
        need(
            datetime.fromisoformat(self.added).isoformat() == self.added, "a time is not in the written form"
        )


class SavedSpec(Part, frozen=True, kw_only=True):
    """Roles of columns and the reading of their entries."""

    protected: tuple[str, ...]
    strata: tuple[str, ...]
    label: str | None
    score: str | None
    prediction: str | None
    probability: str | None
    weight: str | None
    count: str | None = None
    task: Task
    score_scale: ScoreScale
    thresholds: Annotated[tuple[float, ...], Meta(max_length=64)]
    positive_label: tuple[str, ...]
    positive_prediction: tuple[str, ...]
    label_threshold: str
    missing_group: MissingGroup
    missing_rows: MissingRows
    missing_of: dict[str, MissingGroup]
    bands: dict[str, Edges]
    merge: dict[str, dict[str, str]]
    where: str
    group_thresholds: str

    def __post_init__(self) -> None:
        """Require texts as they are written, and edges that rise."""
        kept_threshold(self.label_threshold)
        rising(self.bands)
        as_written = not self.where or str(parse_condition(self.where)) == self.where
        need(as_written, "the condition of its rows is not as it was written")
        own = GroupThresholds.parse(self.group_thresholds)
        need(str(own or "") == self.group_thresholds, "its thresholds by group are not as they were written")

    @classmethod
    def of(cls, data_spec: DataSpec) -> SavedSpec:
        """Return what is saved of a reading."""
        held: dict[str, Any] = {name: getattr(data_spec, name, None) for name in cls.__struct_fields__}
        roles = {name: getattr(data_spec.columns, name) for name in COLUMNS}
        return cls(**held | roles | {"group_thresholds": str(data_spec.group_thresholds or "")})

    def data_spec(self) -> DataSpec:
        """Return the reading."""
        held = asdict(self)
        columns = ColumnRoles(**{name: held.pop(name) for name in COLUMNS})
        held["group_thresholds"] = GroupThresholds.parse(self.group_thresholds)
        return DataSpec(columns, **held)


class SavedPiece(Part, frozen=True):
    """A piece but for its arrays."""

    read: Rows
    excluded: tuple[tuple[str, Rows], ...]
    grid: tuple[Annotated[int, Meta(ge=-1021, le=1021)], Bin, Bin] | None
    cells: Count
    entries: Count


class CountManifest(Part, frozen=True, kw_only=True):
    """A file of counts but for its arrays."""

    fairfix: tuple[str, ...]
    data_spec: SavedSpec
    sources: Names
    inferred: dict[str, str]
    model: dict[str, str]
    cells: tuple[tuple[str, ...], ...]
    pieces: tuple[SavedPiece, ...]
    share: Share | None = None
    private: str | None = None
    batches: tuple[Batch, ...] = ()

    def __post_init__(self) -> None:
        """Require a whole model, and each batch once."""
        need(self.model.keys() in (set(), {"file", "sha256"}), "its model has not file and sha256")
        need(len({one.fingerprint for one in self.batches}) == len(self.batches), "a batch occurs twice")


def arrays_of(data_spec: DataSpec, private: Fraction | None = None) -> dict[str, Array]:
    """Return the arrays of a file of counts, with an entry per cell of each piece, or per entry with rows.

    Those of ``private`` counts have noise, and may be negative.
    """
    labels = 2 if data_spec.binary else 1
    arrays = {
        "cell": Array("<i4", ("cells",), 0),
        "place": Array("<i8", ("entries",), 0),
        "rows": Array("<i8", ("entries",), 1, MAX_ROWS),
    }
    if data_spec.columns.weight:
        arrays |= dict.fromkeys(("mass", "square_mass"), Array("<f8", ("entries",), 0.0))
    if data_spec.decided:  # else decisions follow from a threshold
        arrays["decisions"] = Array("<f8", ("cells", labels, 4), 0.0 if private is None else -MAX_ROWS)
    # a loss may be infinite, and a sum of losses not a number
    powers = 4 if data_spec.columns.weight else 2
    return arrays | {
        f"sums.{name}": Array("<f8", ("cells", labels, powers), None) for name in summed(data_spec)
    }


@dataclass(frozen=True)
class Piece:
    """:class:`~fairfix.data.counts.Counts` of one part of the data, without the entries that have no rows."""

    read: int
    excluded: Mapping[str, int]
    grid: tuple[int, int, int] | None
    """Exponent, first and last bin; None without a score, or without rows."""
    cells: tuple[tuple[str, ...], ...]
    arrays: Arrays
    """As in the file but for the cells: increasing places in the table (cell, label, bin), its entries there, ..."""

    @classmethod
    def of(cls, counts: Counts) -> Piece:
        """Return the piece of counts."""
        place, grid = np.flatnonzero(counts.rows).astype(np.int64), counts.grid
        tables = {"rows": counts.rows, "mass": counts.mass, "square_mass": counts.square_mass}
        arrays = {name: table.reshape(-1)[place] for name, table in tables.items() if table is not None}
        if counts.cells:
            arrays |= {} if counts.decisions is None else {"decisions": counts.decisions}
            arrays |= {f"sums.{name}": sums for name, sums in counts.sums.items()}
        grid = grid if counts.cells else None
        bins = None if grid is None else (grid.exponent, grid.first, grid.last)
        return cls(counts.read, dict(counts.excluded), bins, counts.cells, {"place": place, **arrays})

    @property
    def digest(self) -> str:
        """A hash of what was counted: equal for the same rows, and hardly ever for others."""
        digest = hashlib.sha256(json.dumps([self.grid, self.cells]).encode())
        for name in sorted(self.arrays):
            digest.update(np.ascontiguousarray(self.arrays[name]).tobytes())
        return digest.hexdigest()

    def counts(self, data_spec: DataSpec, private: Fraction | None = None) -> Counts:
        """Return the counts that the piece was made of, with the budget of their noise if they are ``private``."""
        grid = None if self.grid is None else Grid(*self.grid, tuple(sorted(set(data_spec.thresholds))))
        check_cells(data_spec.columns.cell_keys, len(self.cells))
        shape = (len(self.cells), 2 if data_spec.binary else 1, 1 if grid is None else grid.size)
        tables = {}
        for name in self.arrays.keys() & {"rows", "mass", "square_mass"}:
            tables[name] = np.zeros(shape, dtype=self.arrays[name].dtype)
            tables[name].reshape(-1)[self.arrays["place"]] = self.arrays[name]
        return Counts(
            data_spec.columns.cell_keys,
            self.cells,
            grid,
            **tables,
            decisions=self.arrays.get("decisions"),
            sums={name: self.arrays[f"sums.{name}"] for name in summed(data_spec)} if self.cells else {},
            read=self.read,
            excluded=self.excluded,
            private=None if private is None else float(private),
        )


@dataclass(frozen=True)
class CountFile(SavedCounts):
    """Counts with all that is needed to audit them: the reading of the data, and what a report says of its source."""

    data_spec: DataSpec
    """Columns and their meaning, thresholds in the type of the score column."""
    pieces: tuple[Piece, ...]
    """Counts of the parts of the data, in order."""
    sources: tuple[str, ...]
    """Names of the data."""
    inferred: Mapping[str, str] = field(default_factory=dict)
    model: Mapping[str, str] = field(default_factory=dict)
    """Columns found by name, and name and hash of the model file."""
    versions: tuple[str, ...] = (__version__,)
    """Versions of fairfix that counted."""
    share: Share | None = None
    """Which share of the data's rows was counted; None for all."""
    private: Fraction | None = None
    """Budget epsilon of the noise in every count (:mod:`fairfix.stats.geometric_noise`); None without noise."""
    batches: tuple[Batch, ...] = ()
    """Batches of a state, a piece each; empty for other counts."""

    @property
    def name(self) -> str:
        """Name of the data in reports."""
        more = len(self.sources) - 1
        return self.sources[0] + (f" and {more} more" if more else "")

    @property
    def used(self) -> int:
        """Rows counted."""
        return sum(int(piece.arrays["rows"].sum()) for piece in self.pieces)

    @property
    def read(self) -> int:
        """Rows read, counted or not."""
        return sum(piece.read for piece in self.pieces)

    def require_exact(self) -> None:
        """Raise a UsageError where the counts have noise."""
        if self.private is not None:
            raise UsageError(
                f"{self.name} has private counts (epsilon {float(self.private):g}), which only an audit can "
                "use; name counts without noise, or rows"
            )

    def counts(self, *, noisy: bool = False) -> Counts:
        """Return the counts of everything: the pieces added up in order.

        A UsageError where they have noise, unless ``noisy`` says that the caller reckons with it.
        """
        if not noisy:
            self.require_exact()
        counts = added(piece.counts(self.data_spec, self.private) for piece in self.pieces)
        if counts is None:
            raise DataError(f"{self.name} has no rows")
        return counts

    @property
    def privacy(self) -> str:
        """Guarantee of private counts, and its limits; empty without noise."""
        if self.private is None:
            return ""
        shown, unit = f"{float(self.private):g}", "person" if self.data_spec.columns.count else "row"
        return (
            f"every count has two-sided geometric noise with epsilon={shown}: adding or removing one {unit} changes "
            f"the probability of any counts by at most a factor of e^{shown}. If a {unit} is in several files, their "
            "epsilons add up. Names of columns, groups and data are not protected"
        )

    def facts(self) -> dict[str, Any]:
        """Return what the file says of itself, as JSON values."""
        excluded = Counter[str]()
        for piece in self.pieces:
            excluded.update(piece.excluded)
        cells = list({cell for piece in self.pieces for cell in piece.cells})
        keys = self.data_spec.columns.cell_keys
        out: dict[str, Any] = {
            "format": f"{COUNTS}/{PROTOCOL}",
            "sources": list(self.sources),
            "rows": {"read": self.read, "used": self.used, "excluded": dict(excluded)},
            "data_spec": plain(to_builtins(SavedSpec.of(self.data_spec))),
            "levels": {
                key: [one for (one,) in groups_of_cells(keys, cells, (key,), bands=self.data_spec.bands)[0]]
                for key in keys
            },
            "inferred": dict(self.inferred),
            "model": dict(self.model),
            "fairfix": list(self.versions),
        }
        if self.share is not None:
            out["share"] = str(self.share)
        if self.private is not None:
            out["private"] = {"epsilon": float(self.private), "says": self.privacy}
        return out | ({"batches": len(self.batches)} if self.batches else {})

    def save(self, path: str | os.PathLike[str]) -> str:
        """Write the file, whole or not at all, and return its hash; the same counts give the same bytes."""
        return write(path, packed(self), COUNTS)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> CountFile:
        """Read a file after checking all of it; an ``ArtifactError`` names the first thing that is wrong."""
        content = read(path, COUNTS)
        try:
            return _unpacked(content)
        except (*MALFORMED, UsageError) as error:
            fault = shortened(str(error), LONGEST_FAULT)
            raise ArtifactError(
                f"{name_of(os.fspath(path))} is not a valid file of counts: {fault}; it was changed or damaged: count "
                "the data again"
            ) from error


# ---------------------------------------------------------------------- counting


def count(
    data: Any,
    data_spec: DataSpec,
    *,
    inferred: Mapping[str, str] | None = None,
    model: Mapping[str, str] | None = None,
    share: Share | None = None,
) -> CountFile:
    """Count a file, a frame or a source in one pass; it may be a piece of a whole, with few rows or none."""
    source = open_source(data)
    data_spec.check()
    pieces: list[Piece] = []
    scanned = scan(source, data_spec, exact=False, each=lambda counts: pieces.append(Piece.of(counts)))
    if source.left_out and pieces:  # which the first part accounts for
        first, more = pieces[0], source.left_out
        excluded = {**first.excluded, LEFT_OUT: more}
        pieces[0] = replace(first, read=first.read + more, excluded=excluded)
    named = {"inferred": inferred or {}, "model": model or {}, "share": share}
    return CountFile(scanned.data_spec, tuple(pieces), (source.name,), **named)  # type: ignore[arg-type]  # as named


# ---------------------------------------------------------------------- merging


def merged(files: Sequence[tuple[str, CountFile]]) -> CountFile:
    """Return the counts of several files, each with its name for messages, together in the order given."""
    (_, first), *others = files
    for other in others:
        require_alike(files[0], other, "cannot be added")
        if (one := first.share) != (two := other[1].share):
            names = f"{one or 'all rows'} in {files[0][0]}, {two or 'all rows'} in {other[0]}"
            raise UsageError(f"counts of different parts of the rows (`part`) cannot be added: {names}")
    contents = [content for _, content in files]
    return CountFile(
        first.data_spec,
        tuple(piece for content in contents for piece in content.pieces),
        tuple(source for content in contents for source in content.sources),
        {
            key: value
            for key, value in first.inferred.items()
            if all(content.inferred.get(key) == value for content in contents)
        },
        first.model,
        tuple(sorted({version for content in contents for version in content.versions})),
        first.share,
        first.private,
        () if others else first.batches,
    )


def require_alike(one: tuple[str, CountFile], other: tuple[str, CountFile], what: str) -> None:
    """Raise a UsageError where files, with their names, were not counted alike; ``what`` says what they cannot."""
    each = _differences(one[1], other[1])
    texts = [f"{part} is {mine} in {one[0]}, {theirs} in {other[0]}" for part, mine, theirs in each]
    if texts:
        raise UsageError(f"counts that were made in different ways {what}: {'; '.join(texts)}")


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
    """Yield (part, value in one, value in the other) of all that keeps counts from being added."""
    left, right = (asdict(SavedSpec.of(file.data_spec)) for file in (one, two))
    for key in left:
        if left[key] != right[key]:
            yield key.replace("_", " "), shown(left[key]), shown(right[key])
    if one.private != two.private:
        mine, theirs = ("none" if e is None else f"{float(e):g}" for e in (one.private, two.private))
        yield "private", mine, theirs
    if one.model.get("sha256") != two.model.get("sha256"):
        yield "the model file", one.model.get("sha256", "none"), two.model.get("sha256", "none")
    grids = [{piece.grid for piece in file.pieces if piece.grid} for file in (one, two)]
    if has_range(one.data_spec) and all(grids) and grids[0] != grids[1]:
        ours, theirs = (
            "/".join(
                f"{last - first + 1:,} bins of 2^{-exponent}" for exponent, first, last in sorted(of_file)
            )
            for of_file in grids
        )
        yield "the grid of score bins", ours, theirs


def has_range(data_spec: DataSpec) -> bool:
    """Tell whether the grid is fixed by the scale of the score, not by the data."""
    return data_spec.task == "classification" and data_spec.score_scale in SCORE_RANGE


# ---------------------------------------------------------------------- packing


def packed(content: CountFile) -> Archive:
    """Return the file of counts."""
    pieces = content.pieces
    cells = sorted({cell for piece in pieces for cell in piece.cells})
    place = {cell: i for i, cell in enumerate(cells)}
    arrays = {"cell": np.array([place[cell] for piece in pieces for cell in piece.cells], dtype=np.int32)}
    for name, part in list(arrays_of(content.data_spec, content.private).items())[1:]:
        tail = [size for size in part.shape[1:] if isinstance(size, int)]
        nothing = np.zeros((0, *tail), dtype=part.dtype)
        arrays[name] = np.concatenate([nothing, *(p.arrays[name] for p in pieces if name in p.arrays)])
    manifest = CountManifest(
        fairfix=content.versions,
        data_spec=SavedSpec.of(content.data_spec),
        sources=content.sources,
        inferred=dict(content.inferred),
        model=dict(content.model),
        cells=tuple(cells),
        pieces=tuple(map(_saved_piece, pieces)),
        share=content.share,
        private=None if content.private is None else str(content.private),
        batches=content.batches,
    )
    return Archive(to_builtins(manifest), arrays)


def _saved_piece(piece: Piece) -> SavedPiece:
    excluded, entries = tuple(piece.excluded.items()), len(piece.arrays["place"])
    return SavedPiece(piece.read, excluded, piece.grid, len(piece.cells), entries)


def _unpacked(content: Archive) -> CountFile:
    """Return what a file holds, all of it checked before counts are built of it; else a ValueError or UsageError."""
    held = converted(content.manifest, CountManifest)
    data_spec = held.data_spec.data_spec()
    data_spec.check()
    columns, cells, pieces = data_spec.columns, held.cells, held.pieces
    need(
        all(len(cell) == len(columns.cell_keys) for cell in cells),
        "a cell does not have one level per column",
    )
    need([*cells] == sorted(set(cells)), "the cells are not in order")
    cells = tuple(tuple(map(canonical_text, cell)) for cell in cells)
    need(len(set(cells)) == len(cells), "it holds one group in two spellings, such as 1 and 1.0")
    need(len(held.batches) in (0, len(pieces)), "its batches do not match its counts")
    need(sum(piece.read for piece in pieces) <= MAX_ROWS, "it has more rows than can be counted exactly")
    ends = {
        axis: np.cumsum([0, *(getattr(piece, axis) for piece in pieces)]) for axis in ("cells", "entries")
    }
    state = CodecState({}, dict(content.arrays), {axis: int(sums[-1]) for axis, sums in ends.items()})
    private = None if held.private is None else budget_of(held.private)
    need(
        private is None or (columns.prediction and not (columns.score or columns.weight)),
        "private counts have decisions without scores and weights",
    )
    parts = arrays_of(data_spec, private)
    arrays = {name: part.load(name, state) for name, part in parts.items()}
    need(not state.arrays, f"unknown arrays {', '.join(sorted(state.arrays))}")
    made = []
    for i, piece in enumerate(pieces):
        places = {axis: slice(*sums[i : i + 2]) for axis, sums in ends.items()}
        own = {name: arrays[name][places[str(part.shape[0])]] for name, part in parts.items()}
        made.append(_piece(piece, own, cells, data_spec, private))
    about = held.sources, held.inferred, held.model, held.fairfix, held.share, private, held.batches
    return CountFile(data_spec, tuple(made), *about)


def _piece(
    held: SavedPiece,
    arrays: Arrays,
    cells: Sequence[tuple[str, ...]],
    data_spec: DataSpec,
    private: Fraction | None,
) -> Piece:
    """Return a piece whose entries lie in its table and add up."""
    own, place, rows = arrays["cell"], arrays["place"], arrays["rows"]
    grid, excluded, many = held.grid, dict(held.excluded), int(own.size)
    need(_increasing_below(own, len(cells)), "the cells of a piece are not in order")
    need((grid is not None) == bool(many and data_spec.columns.score), "score bins are missing or unused")
    need(grid is None or 0 <= grid[2] - grid[1] < MAX_BINS, "a piece has too many score bins, or none")
    if grid is not None and (fixed := fixed_grid(data_spec, BINS)) is not None:
        need(
            grid == (fixed.exponent, fixed.first, fixed.last), "score bins are not those of the score's scale"
        )
    bins = 1 if grid is None else grid[2] - grid[1] + 1 + len(set(data_spec.thresholds))
    labels = 2 if data_spec.binary else 1
    room = many * labels * bins
    need(room <= MAX_ENTRIES, f"a table of {room:,} entries is too large")
    need(_increasing_below(place, room), "the places of a piece are not in order")
    need(private is not None or np.unique(place // (labels * bins)).size == many, "a cell has no rows")
    need(len(excluded) == len(held.excluded), "a reason for rows left out occurs twice")
    accounted = sum(rows.tolist()) + sum(excluded.values())
    need(accounted == held.read, f"{held.read:,} rows were read, {accounted:,} are accounted for")
    if "mass" in arrays:
        with np.errstate(over="ignore", under="ignore"):
            squares, most = arrays["mass"] ** 2, arrays["square_mass"] * rows
            fits = arrays["square_mass"] <= squares * (1 + SUMMED) + LEAST
            fits &= squares <= most * (1 + SUMMED) + LEAST
            need(
                fits.all() and np.isfinite(most.sum()),
                "the sums of weights and of their squares contradict each other",
            )
    at = place // bins
    weighed = arrays.get("mass", rows), arrays.get("square_mass", rows)
    for k, total in enumerate(np.bincount(at, one, many * labels) for one in weighed):
        pairs = {
            name: array.reshape(many * labels, array.shape[-1])[:, 2 * k : 2 * k + 2]
            for name, array in arrays.items()
            if array.ndim == 3
        }
        for name, pair in pairs.items():
            if name == "decisions" and private is not None:
                whole = pair == np.round(pair)
                adds_up = np.array_equal(np.maximum(pair.sum(axis=-1), 0.0), total) if not k else pair == 1.0
                need(np.all(whole) and np.all(adds_up), "noisy counts do not add up to the rows")
            elif name == "decisions":
                least = 1e-9 * max(float(total.max(initial=0.0)), 1.0)  # sums in another order
                adds_up = np.allclose(pair.sum(axis=-1), total, SUMMED, least)
                need(adds_up, "the sums of decisions do not add up to the rows")
            else:
                ends = range_of(name.removeprefix("sums."), data_spec)
                need(
                    are_sums(pair, total, *ends),
                    f"array {name!r} contains values that are not sums of the rows",
                )
    per_cell = () if many else ("decisions", *(name for name in arrays if name.startswith("sums.")))
    kept = {name: array for name, array in arrays.items() if name not in ("cell", *per_cell)}
    return Piece(held.read, excluded, grid, tuple(cells[i] for i in own), kept)


def _increasing_below(places: npt.NDArray[Any], end: int) -> bool:
    return not places.size or bool(places[-1] < end and (np.diff(places) > 0).all())
