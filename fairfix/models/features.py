r"""Features: columns of mixed type made into a matrix, the same way at fit and at predict time.

What is learned from the training rows is data: means, scales and categories. It is kept in the artifact and applied
to new rows as it is.

=========  ==========================================  ===========================================================
kind       columns of the matrix                       missing and new values
=========  ==========================================  ===========================================================
number     ``(x - mean) / scale``                      missing: 0, the mean, and an indicator column if the fit had
                                                       missing values; for trees NaN, and no indicator
boolean    the same, with true as 1                    the same
vector     each entry less its mean, over one scale    a missing vector: the same, for all of its entries; another
           of all entries, so that directions stay     length is an error
category   an indicator for each category              missing is a category if the fit had it; a category that the
                                                       fit has not kept is none of them: all indicators are 0
group      the same, of a protected column             the same
score      the model's score, standardised: log-odds   none is missing here: rows without score are left out before
           where it is a probability; and what it is
           above each of ``KNOTS`` knots
=========  ==========================================  ===========================================================

Of a column with many categories the ``MOST_LEVELS`` most frequent are kept. A vector is a list of as many numbers in
each row, such as the embedding of a text. Dates and other nested values are refused: what is to be learned from a date,
only the user can say.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa
from msgspec import Meta
from msgspec.structs import asdict, replace

from fairfix.data.codec import converted, need, plain
from fairfix.data.counts import Bools, Floats, Ints
from fairfix.data.encoder import group_codes, numbers
from fairfix.data.merging import MISSING
from fairfix.data.notation import Seen
from fairfix.data.table import Table
from fairfix.errors import ArtifactError, ColumnError, DataError
from fairfix.models.array_interpreter import Block, TableInputs, run, score_as
from fairfix.models.program import Program, Step
from fairfix.schema.common import Part

Kind = Literal["number", "boolean", "vector", "category", "group", "score"]

MOST_LEVELS = 100
"""Categories of a column that get an indicator of their own."""

KNOTS = 9
"""Knots of a score that is learned from, even in its distribution."""

MOST_COLUMNS = 1 << 16
"""Columns of a saved matrix: each has steps of its own, some 3 KB of memory."""

LONGEST = 1 << 14
"""Numbers of a vector: twice those of the largest embeddings in use."""


class NewValues(NamedTuple):
    """Rows of a feature whose value no training row had."""

    missing: int = 0
    """Rows without a value, where each training row had one."""
    others: int = 0
    """Rows of a category that no training row had."""
    example: str = ""
    """Such a category."""


class Feature(Part, frozen=True):
    """One column and what the fit learned of it."""

    name: str
    kind: Kind
    mean: float = 0.0
    scale: Annotated[float, Meta(gt=0)] = 1.0
    """Mean and scale of a number, boolean or score; of a vector the scale alone."""
    missing: bool = False
    """Whether a number or vector has an indicator for missing ones."""
    levels: Annotated[tuple[str, ...], Meta(max_length=MOST_LEVELS)] = ()
    """Categories with an indicator, in order."""
    knots: Annotated[tuple[float, ...], Meta(max_length=KNOTS)] = ()
    """Knots of a score: standardised values from which its slope may differ, increasing."""
    same: tuple[str, ...] = ()
    """Values of a category that are taken for one, which the first of them names."""
    means: Annotated[tuple[float, ...], Meta(max_length=LONGEST)] = ()
    """Means of the entries of a vector."""

    @property
    def titles(self) -> tuple[str, ...]:
        """Names of its columns in the matrix."""
        if self.kind == "score":
            return (self.name, *(f"{self.name} above {knot:g}" for knot in self.knots))
        if self.levels:
            return tuple(f"{self.name}={level}" for level in self.levels)
        entries = tuple(f"{self.name}[{i}]" for i in range(len(self.means))) or (self.name,)
        return (*entries, f"{self.name} is missing") if self.missing else entries

    def new_values(self, table: Table) -> NewValues:
        """Return how many rows of a table have a value that no training row had.

        Nothing is known to be new where the training rows had more categories than are kept.
        """
        if self.kind in ("group", "score") or self.missing or len(self.levels) == MOST_LEVELS:
            return NewValues()
        column = column_of(table, self.name)
        if self.kind == "vector":
            return NewValues(column.null_count)
        if self.kind != "category":
            return NewValues(int(np.count_nonzero(np.isnan(_numbers(column, self.name)))))
        codes, levels, _ = group_codes(column, self.name)
        rows = dict(zip(levels, np.bincount(codes, minlength=len(levels)).tolist(), strict=True))
        new = {level: n for level, n in rows.items() if n and level not in {*self.levels, *self.same}}
        missing = new.pop(MISSING, 0)
        return NewValues(missing, sum(new.values()), max(new, key=new.__getitem__, default=""))

    def write(self, program: Program, *, gaps: bool) -> list[int]:
        """Write its columns of the matrix; with ``gaps``, missing numbers are missing."""
        if self.levels:
            if self.kind == "group":
                place = program.group((self.name,), tuple((level,) for level in self.levels))
            else:
                also = {"merged": dict.fromkeys(self.same[1:], self.same[0])} if self.same else {}
                level = program.add("level", column=self.name, levels=list(self.levels), **also)
                place = program.affine(level, 1.0, 1.0)
            return [program.take(one, place) for one in np.eye(1 + len(self.levels))[1:]]
        zero = program.constant(0.0)

        def standard(entry: int, mean: float) -> int:
            moved = program.add("subtract", entry, program.constant(mean))
            return program.add("divide", moved, program.constant(self.scale))

        if self.kind == "score":
            scaled = standard(program.add("log_odds"), self.mean)
            above = (program.affine(scaled, 1.0, -knot) for knot in self.knots)
            return [scaled, *(program.add("maximum", one, zero) for one in above)]
        if self.kind == "vector":
            own: dict[str, Any] = {"column": self.name, "width": len(self.means)}
            entries = (program.add("entry", **own, place=i) for i in range(len(self.means)))
            out = [standard(one, mean) for one, mean in zip(entries, self.means, strict=True)]
        else:
            out = [standard(program.add("number", column=self.name, kind=self.kind), self.mean)]
        if gaps:
            return out
        missing = program.add("is_missing", out[0])
        filled = [program.add("choose", missing, zero, one) for one in out]
        flag = [program.add("choose", missing, program.constant(1.0), zero)] if self.missing else []
        return [*filled, *flag]


@dataclass(frozen=True)
class Features:
    """All columns that are learned from, in order."""

    columns: tuple[Feature, ...]

    @classmethod
    def learn(
        cls,
        table: Table,
        names: Sequence[str] | None,
        groups: Sequence[str] = (),
        same: Mapping[str, tuple[str, ...]] | None = None,
    ) -> Features:
        """Return what the rows of a table teach about its columns.

        ``names`` are feature columns, None for the model's score alone; ``groups`` are protected columns that are
        features as well; ``same`` maps columns to levels that are taken for one.
        """
        weight, same = table.weight, same or {}
        columns = [_learn(table, name, weight, same.get(name, ())) for name in names or ()]
        columns += [_learn_score(table, weight)] if names is None else []
        columns += [_learn_levels(name, "group", *_coded(table, name, "group"), weight) for name in groups]
        if not columns:
            raise DataError("there are no feature columns to learn from; name some with `features`")
        return cls(tuple(columns))

    @property
    def groups(self) -> tuple[str, ...]:
        """Protected columns that are looked at."""
        return tuple(one.name for one in self.columns if one.kind == "group")

    def unseen(self, table: Table) -> Bools:
        """Return which rows are of a used group that was not in the training rows, shape (n,)."""
        out = np.zeros(len(table), dtype=bool)
        for one in self.columns:
            if one.kind == "group" and len(one.levels) < MOST_LEVELS:  # of more, the rare ones are not kept
                groups = table.groups([one.name])
                out |= ~np.isin(groups.names, one.levels)[groups.codes]
        return out

    @property
    def titles(self) -> tuple[str, ...]:
        """Names of the columns of the matrix without gaps."""
        return tuple(title for one in self.columns for title in one.titles)

    @property
    def reach(self) -> Floats:
        """Squared distance that each column of the matrix without gaps moves at the cost of 1, shape (d,).

        The fair metric's part that is no flip: squared differences of number columns in standard deviations, and 1 for
        each other column in which two rows differ (and for a number that one of them lacks). Of a vector it is the
        squared distance over the mean variance of its entries. An indicator of a category costs a half: two of them
        change. Protected columns move by flips alone: 0. The knots of a score share its cost.
        """
        out: list[float] = []
        for one in self.columns:
            score, boolean = float(len(one.titles)), 1.0 / one.scale**2
            own = {"category": 2.0, "group": 0.0, "boolean": boolean, "score": score}.get(one.kind, 1.0)
            out += [own] * (len(one.titles) - one.missing) + [1.0] * one.missing
        return np.array(out)

    def write(self, program: Program, *, gaps: bool = False) -> list[int]:
        """Write the columns of the matrix; with ``gaps``, missing numbers are missing, for trees."""
        return [step for one in self.columns for step in one.write(program, gaps=gaps)]

    def matrix(self, table: Table, *, gaps: bool = False) -> Floats:
        """Return the matrix of a table's rows, shape (n, d); with ``gaps``, missing numbers are NaN, for trees."""
        program = Program()
        rule = program.rule(program.stack(self.write(program, gaps=gaps)))
        return run(rule, FeatureInputs(table), len(table))

    def directions(self, moves: pa.Table) -> Floats:
        """Return what moves of feature columns, in their own units, do to a row of the matrix without gaps, (r, d).

        A column that is not among the moves stands still. Only numbers, true and false, and lists of numbers can move:
        a ColumnError names another column; a DataError a missing entry, or a row that moves nothing.
        """
        kinds = {one.name: one for one in self.columns if one.kind in ("number", "boolean", "vector")}
        for name in moves.column_names:
            if name not in kinds:
                raise ColumnError(
                    f"column {name!r} is not a feature of numbers or lists of numbers, and only these have directions; "
                    f"such features are {', '.join(map(repr, kinds)) or 'not among those that are learned from'} "
                    "(counterfactual copies need the column of IDs too)"
                )
        out = []
        for one in self.columns:
            own = np.zeros((len(moves), len(one.titles)))
            if one.name in moves.column_names:
                column = moves.column(one.name).combine_chunks()
                entries = (
                    _lists(column, one.name, len(one.means))
                    if one.means
                    else _numbers(column, one.name)[:, None]
                )
                own[:, : entries.shape[1]] = entries / one.scale
            out.append(own)
        moved = np.hstack(out)
        if np.isnan(moved).any():
            row = int(np.argmax(np.isnan(moved).any(axis=1)))
            raise DataError(
                f"an entry of direction {row + 1:,} is missing; write 0 where a column does not move"
            )
        if not moved.any(axis=1).all():
            row = int(np.argmin(moved.any(axis=1)))
            raise DataError(f"direction {row + 1:,} is 0 in every column; remove it")
        return moved

    def state(self) -> list[dict[str, Any]]:
        """Return it as JSON values."""
        return [plain(asdict(one)) for one in self.columns]

    @classmethod
    def from_state(cls, state: Any) -> Features:
        """Return the features of a saved state."""
        try:
            columns = converted(state, tuple[Feature, ...])
            # as often as memory lasts
            need(len({one.name for one in columns}) == len(columns) > 0, "a column occurs twice, or none")
            wide = sum(len(one.titles) for one in columns) <= MOST_COLUMNS
            need(wide, f"they make more than {MOST_COLUMNS:,} columns")
            for one in columns:
                levelled = one.kind in ("category", "group")
                need(bool(one.levels) == levelled, f"{one.name!r} has no levels, or should not")
                need(not one.same or one.kind == "category", f"{one.name!r} is no category")
                need(bool(one.means) == (one.kind == "vector"), f"{one.name!r} has no means, or should not")
        except ValueError as error:
            raise ArtifactError(f"the artifact's features are malformed: {error}") from error
        return cls(columns)


def _learn(table: Table, name: str, weight: Floats, same: tuple[str, ...]) -> Feature:
    kind = kind_of(name, column_of(table, name).type)
    if same and kind != "category":
        raise ColumnError(
            f"feature column {name!r} holds {kind}s; only texts can replace them: leave it out, or convert it to text"
        )
    if kind == "category":
        return replace(_learn_levels(name, "category", *_coded(table, name, kind, same), weight), same=same)
    if kind == "vector":
        return _learn_vector(name, _lists(column_of(table, name), name), weight)
    entries = _numbers(column_of(table, name), name)
    gone = np.isnan(entries)
    return _standard(name, kind, entries[~gone], weight[~gone], missing=bool(gone.any()))


def _coded(table: Table, name: str, kind: str, same: Sequence[str] = ()) -> tuple[Ints, Sequence[str]]:
    """Return the codes and levels of a category or group; the first of levels that are taken for one names it."""
    if kind == "group":
        groups = table.groups([name])
        return groups.codes, groups.names
    codes, levels, _ = group_codes(column_of(table, name), name)
    if not same:
        return codes, levels
    place = dict[str, int]()
    merged = [place.setdefault(same[0] if level in same else level, len(place)) for level in levels]
    return np.array(merged, dtype=np.int64)[codes], list(place)


def _learn_score(table: Table, weight: Floats) -> Feature:
    score = score_as("log_odds", table.scores, table.data_spec)
    plain = _standard(table.data_spec.columns.score or "score", "score", score, weight, missing=False)
    scaled = (score - plain.mean) / plain.scale
    order = np.argsort(scaled, kind="stable")
    mass = np.cumsum(weight[order])
    at = np.searchsorted(mass, mass[-1] * (np.arange(1, KNOTS + 1) / (KNOTS + 1) - 1e-9))
    knots = np.unique(scaled[order[at]])  # unrounded: a row at a knot is nowhere above it
    return replace(plain, knots=tuple(float(knot) for knot in knots))


def _standard(name: str, kind: Kind, entries: Floats, weight: Floats, *, missing: bool) -> Feature:
    mass = float(weight.sum())
    if not mass:
        return Feature(name, kind, missing=missing)
    with np.errstate(over="ignore", invalid="ignore"):
        mean = float(entries @ weight / mass)
        scale = math.sqrt(float((entries - mean) ** 2 @ weight / mass))
    if not (math.isfinite(mean) and math.isfinite(scale)):
        raise DataError(f"feature column {name!r} holds numbers too large to be squared; rescale it")
    scale = scale if scale > 1e-12 * max(abs(mean), 1e-300) else 1.0
    # to 12 digits, which the order of the rows has no part in: the same rows make the same matrix to the bit
    return Feature(name, kind, float(f"{mean:.12g}"), float(f"{scale:.12g}"), missing)


def _learn_vector(name: str, entries: Floats, weight: Floats) -> Feature:
    gone = np.isnan(entries).any(axis=1)
    own = [
        _standard(name, "number", column, weight[~gone], missing=bool(gone.any()))
        for column in entries[~gone].T
    ]
    spread = math.sqrt(sum(one.scale**2 for one in own) / len(own))
    return replace(own[0], kind="vector", mean=0.0, scale=spread, means=tuple(one.mean for one in own))


def _learn_levels(name: str, kind: Kind, codes: Ints, levels: Sequence[str], weight: Floats) -> Feature:
    mass = np.bincount(codes, weight, len(levels))
    rows = np.bincount(codes, minlength=len(levels))
    distinct = int(np.count_nonzero(rows))
    there = (level for level, many in zip(levels, rows, strict=True) if many and level != MISSING)
    if kind == "category" and (number := number_as_text(there)):
        raise DataError(
            f"feature column {name!r} holds numbers as text, such as {number!r}; convert it to numbers, or "
            "leave it out with `features`"
        )
    if kind == "category" and distinct > MOST_LEVELS and distinct > codes.size / 2:
        raise DataError(
            f"feature column {name!r} has {distinct:,} different texts in {codes.size:,} rows, which looks like a name "
            "and not like a feature; name it with `id`, or leave it out with `features`"
        )
    order = sorted(np.flatnonzero(mass > 0).tolist(), key=lambda i: (-mass[i], levels[i]))[:MOST_LEVELS]
    return Feature(name, kind, levels=tuple(sorted(levels[i] for i in order)))


def number_as_text(levels: Iterable[str]) -> str:
    """Return one of some texts where all are numbers with units, thousands signs or decimal commas; else nothing."""
    seen = Seen()
    seen.add(levels)
    odd = seen.unit or seen.open or seen.thousands or "," in seen.decimal
    return str(seen.in_words) if odd and not seen.text else ""


def kind_of(name: str, kind: pa.DataType) -> Kind:
    """Return how a feature column of an Arrow type is read."""
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    if pa.types.is_temporal(kind):
        raise ColumnError(
            f"feature column {name!r} holds dates or times ({kind}); turn it into a number (days since a day, the "
            "month), or leave it out with `features`"
        )
    types = pa.types
    if types.is_boolean(kind):
        return "boolean"
    if any(fits(kind) for fits in (types.is_integer, types.is_floating, types.is_decimal, types.is_null)):
        return "number"
    if any(fits(kind) for fits in (types.is_string, types.is_large_string, types.is_string_view)):
        return "category"
    if any(fits(kind) for fits in (types.is_list, types.is_large_list, types.is_fixed_size_list)) and (
        types.is_integer(kind.value_type) or types.is_floating(kind.value_type)
    ):
        return "vector"
    raise ColumnError(
        f"feature column {name!r} is of type {kind}, which is not a number, a text or a list of numbers; convert "
        "it, or leave it out with `features`"
    )


class FeatureInputs(TableInputs):
    """Inputs of scorers in the rows of a table."""

    def __call__(self, step: Step, block: Block) -> Any:
        """Return the entries of a step for the rows of a block."""
        own, name = step.settings, step.settings.get("column", "")
        match step.operation:
            case "number":
                return self._once(name, lambda: _numbers(column_of(self.table, name), name))[block]
            case "entry":
                whole = self._once(name, lambda: _lists(column_of(self.table, name), name, own["width"]))
                return whole[block, own["place"]]
            case "level":
                return self._once(name, lambda: self._places(own))[block]
            case _:
                return super().__call__(step, block)

    def _places(self, own: Mapping[str, Any]) -> Ints:
        """Return the place of each row's category among the levels, shape (n,)."""
        codes, names, _ = group_codes(column_of(self.table, own["column"]), own["column"])
        place, merged = {level: i for i, level in enumerate(own["levels"])}, own.get("merged", {})
        return np.array([place.get(merged.get(name, name), -1) for name in names])[codes]


def column_of(table: Table, name: str) -> pa.Array:
    """Return a feature column as one array; a ColumnError where there is none."""
    if name not in table.features.column_names:
        raise ColumnError(f"there is no feature column {name!r}; name the features with `features`")
    column = table.features.column(name).combine_chunks()
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def _numbers(column: pa.Array, name: str) -> Floats:
    """Return a number or boolean column as float64 with NaN for missing; infinities are refused."""
    entries: Floats = numbers(column, name, "feature", remedy=" as in the fit; convert it")
    if np.isinf(entries).any():
        row = int(np.argmax(np.isinf(entries)))
        raise DataError(
            f"feature column {name!r} holds {entries[row]} (row {row + 1:,} of those used); correct or remove it"
        )
    return entries


def _lists(column: pa.Array, name: str, width: int | None = None) -> Floats:
    """Return a column of lists of numbers, shape (n, d), with NaN in all entries of one that is missing.

    ``width`` is the d of the fit; None takes that of the rows.
    """
    import pyarrow.compute as pc

    if kind_of(name, column.type) != "vector":
        raise ColumnError(
            f"feature column {name!r} is of type {column.type}, but a list of {width} numbers as in the fit"
        )
    here = column.is_valid().to_numpy(zero_copy_only=False)
    lengths = pc.list_value_length(column).drop_null().to_numpy(zero_copy_only=False)
    if width is None:
        if not lengths.size:
            raise DataError(f"feature column {name!r} does not hold lists; leave it out with `features`")
        width = int(lengths[0])
        if not 0 < width <= LONGEST:
            raise DataError(
                f"feature column {name!r} holds lists of {width:,} numbers, and 1 to {LONGEST:,} can be learned from; "
                "leave it out with `features`"
            )
    if (lengths != width).any():
        at = int(np.argmax(lengths != width))
        raise DataError(
            f"feature column {name!r} holds a list of {lengths[at]:,} numbers (row {np.flatnonzero(here)[at] + 1:,} of "
            f"those used), but other rows have lists of {width:,}; use one length"
        )
    entries = np.full((len(column), width), np.nan)
    flat = numbers(pc.list_flatten(column), name, "feature").astype(np.float64, copy=False)
    entries[here] = flat.reshape(-1, width)
    if not np.isfinite(entries[here]).all():
        row = np.flatnonzero(here)[int(np.argmin(np.isfinite(entries[here]).all(axis=1)))]
        raise DataError(
            f"feature column {name!r} holds a list with a number that is missing or infinite (row {row + 1:,} of "
            f"those used); correct or remove it"
        )
    return entries
