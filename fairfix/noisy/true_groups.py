r"""What an audit can say of true groups when the data hold noisy ones: bounds, estimates, breakdown points.

Every number of a true group, and every comparison of true groups, is given under each assumption of
:mod:`fairfix.noisy.description` that can be used, by the exact bounds of :mod:`fairfix.noisy.bounds`. It *rests on* the
strongest assumption that was stated; the worst case under each weaker one stands beside it.

* **Comparisons** are held against bounds of rates: a difference lies between ``max_ab (lo_a - hi_b)_+`` and
  ``max_ab (hi_a - lo_b)``, a ratio between ``min_ab lo_a / hi_b`` and ``min_ab hi_a / lo_b``.
* **Transports**: where it is not said what of the table holds for the data too, N0, N1 and N2 run over both.
* **N4** is an estimate, and the true value is also one that the table allows: an estimate beyond those bounds is moved
  to the nearest end, and said to be. If in nearly all draws it lies beyond, N4 is refuted: nothing is told under it.
* **Weighted**: a row counts in true group j with ``P(true = j | noisy)``, by label if the table is. It is one of the
  tables that bounds run over, and right if within a noisy group outcomes do not depend on the true one.
* **Sampling error**: both the data (their cells) and a table of counts are drawn anew as multinomials, and bounds are
  computed each time; the outer interval goes from a low quantile of the lower bound to a high quantile of the upper
  one.
  The end of a comparison that says that groups differ is taken at a level that holds for all pairs at once. Under N3
  each draw costs linear programs, so there are few.
* **Breakdown**: the largest eps of N3 at which a limit is kept for certain on these rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
import numpy.typing as npt

from fairfix.auditing.audit import More, judge
from fairfix.auditing.checks import Check
from fairfix.auditing.comparisons import NOISE_SCOPES
from fairfix.auditing.metrics import EQUALIZED_ODDS, NOISE_METRICS
from fairfix.auditing.results import (
    AuditReport,
    Bound,
    BreakdownReport,
    ComparisonReport,
    Figure,
    NoiseReport,
    Settings,
    Value,
)
from fairfix.auditing.sums import confusion
from fairfix.data.counts import Counts, Floats, groups_of_cells
from fairfix.data.files import Source
from fairfix.data.reading import Reading
from fairfix.data.scan import Scan, scan
from fairfix.errors import DataError, UsageError
from fairfix.noisy.bounds import (
    FN,
    FP,
    RATIOS,
    TN,
    TP,
    Inversion,
    Ratio,
    conditional_radius,
    identified,
    identified_by_label,
    labelled_bounds,
    least_eps,
    left_inverse,
    soft_bounds,
    standard_error,
    tv_bounds,
    vacuous,
    valid_radius,
)
from fairfix.noisy.description import Noise, NoiseTable, radii_for
from fairfix.noisy.ends import End, sensitivity_bounds, sensitivity_ends
from fairfix.noisy.levels import LABELS_OF, level_bounds

REPLICATES = 1000
"""Draws of data and table."""

FEW_REPLICATES = 40
"""Draws of those for which linear programs are solved."""

CURVE = (0.01, 0.02, 0.05, 0.1)
"""Values of eps at which the sensitivity curve is told; 0 would be N4, which has to be asked for."""

MANY = 36
"""True times noisy groups beyond which the curve is left out, because its linear programs are large."""

PRECISION = 1e-4
"""Of breakdown points of limits."""

COARSE = 2e-3
"""Of the eps up to which a difference is certain."""

TOLERANCE = 1e-7
"""What limits may be missed by, for rounding."""

ROOM = 1e-5
"""Distance to the least eps that the data allow, within which bounds are those at this distance."""

NOT_OF_VALUES = "noise is about decisions; with --task regression there are none"

SHARES_OPEN = "P(noisy | true) does not tell how large the true groups are"

NO_DECISIONS = (
    "noise is about decisions, and there are none: say at which score one is positive with --threshold, or "
    "name a column of decisions with --prediction"
)

KINDS = ("difference", "ratio", "min", "max")

Pair = tuple[Floats, Floats]


# ---------------------------------------------------------------------- comparisons of bounds


def _ends(kind: str, bounds: Sequence[Pair]) -> Pair:
    """Return low and high of each pair of groups, or of each group, shape (..., P), over the rates given."""
    lows, highs = [], []
    for lo, hi in bounds:
        if kind in ("min", "max"):
            lows.append(lo)
            highs.append(hi)
            continue
        groups = lo.shape[-1]
        a, b = np.nonzero(~np.eye(groups, dtype=bool))
        if kind == "difference":
            lows.append(lo[..., a] - hi[..., b])
            highs.append(hi[..., a] - lo[..., b])
        else:
            with np.errstate(divide="ignore", invalid="ignore"):
                lows.append(np.minimum(lo[..., a] / hi[..., b], 1.0))
                highs.append(np.minimum(hi[..., a] / lo[..., b], 1.0))
    return np.concatenate(lows, -1), np.concatenate(highs, -1)


def _worst(kind: str, ends: Floats) -> Floats:
    """Return the end that counts of (..., P), NaN where none is defined."""
    if kind in ("difference", "max"):
        best = np.where(np.isnan(ends), -np.inf, ends).max(-1)
        best = np.where(best == -np.inf, np.nan, best)
        return np.asarray(np.maximum(best, 0.0) if kind == "difference" else best)
    none = np.isnan(ends).all(-1)
    best = np.where(np.isnan(ends), np.inf, ends).min(-1)
    best = np.minimum(best, 1.0) if kind == "ratio" else best
    return np.where(none, np.nan, best)


def _quantile(values: Floats, level: float) -> Floats:
    """Return a quantile over the first axis, of what is defined."""
    bad = np.isnan(values)
    if not bad.any():
        return np.asarray(np.quantile(values, level, axis=0))
    out = np.full(values.shape[1:], np.nan)
    some = ~bad.all(0)
    out[some] = np.nanquantile(values[:, some], level, axis=0)
    return out


def _widest(found: Iterable[Pair]) -> Pair:
    """Return the lowest and the highest ends, of what is defined."""
    low, high = zip(*found, strict=True)
    return np.fmin.reduce(low), np.fmax.reduce(high)


def _lower(plug_in: Floats, drawn: Floats) -> Floats:
    """Return the smaller of both, where there are both."""
    return np.asarray(np.fmin(plug_in, drawn))


@dataclass(frozen=True, eq=False)
class Bounds:
    """Bounds of every rate under one assumption: metric -> (low, high), shape (J,), and drawn anew, shape (R, J)."""

    rates: Mapping[str, Pair]
    draws: Mapping[str, Pair]
    alpha: float

    def of_groups(self, metric: str) -> Iterator[Bound]:
        """Yield where each group's rate lies."""
        low, high = self.rates[metric]
        drawn = self.draws.get(metric, (low[None], high[None]))
        outer_low = _lower(low, _quantile(drawn[0], self.alpha / 2))
        outer_high = -_lower(-high, _quantile(-drawn[1], self.alpha / 2))
        for ends in zip(low, high, outer_low, outer_high, strict=True):
            yield _bound(*(float(end) for end in ends))

    def of_comparison(self, kind: str, metrics: Sequence[str]) -> Bound:
        """Return where a comparison lies; of several rates the worst."""
        lows, highs = _ends(kind, [self.rates[name] for name in metrics])
        low, high = float(_worst(kind, lows)), float(_worst(kind, highs))
        if not all(name in self.draws for name in metrics):
            return _bound(low, high, low, high)
        drawn = _ends(kind, [self.draws[name] for name in metrics])
        share = self.alpha / 2 / lows.shape[-1]
        if kind in ("difference", "max"):
            outer_low = float(_worst(kind, _quantile(drawn[0], share)))
            outer_high = float(_quantile(_worst(kind, drawn[1]), 1 - self.alpha / 2))
        else:
            outer_low = float(_quantile(_worst(kind, drawn[0]), self.alpha / 2))
            outer_high = float(_worst(kind, _quantile(drawn[1], 1 - share)))
        return _bound(low, high, float(np.fmin(low, outer_low)), float(np.fmax(high, outer_high)))


def _bound(low: float, high: float, outer_low: float, outer_high: float) -> Bound:
    if math.isnan(low) or math.isnan(high):
        return Bound(math.nan, math.nan, math.nan, math.nan, "undefined: no rows that it is a rate of")
    return Bound(low, high, outer_low, outer_high)


Place = tuple[int, int, int]
"""An end of a range: number of the rate, side (0 for the lowest), group."""


def _compared(kind: str, ends: Floats) -> tuple[float, float]:
    """Return where a comparison lies; ``ends`` of rates and groups, shape (rates, 2, J)."""
    lows, highs = _ends(kind, [(lo, hi) for lo, hi in ends])
    return float(_worst(kind, lows)), float(_worst(kind, highs))


@dataclass(eq=False)
class _Between:
    """Ends of rates, shape (rates, 2, J), at an eps of which those at a smaller and at a larger one are known.

    What ``holds`` of both ends of the comparison becomes false as bounds become wider, never true.
    """

    kind: str
    near: Floats
    far: Floats
    holds: Callable[[float, float], bool]

    def good(self, low: float, high: float) -> bool:
        """Return whether it holds; of nothing it does not."""
        return not math.isnan(low) and self.holds(low, high)

    def decide(self, solve: Callable[[Sequence[Place]], Floats]) -> bool:
        """Return whether it holds; of the ends only those are solved on which that hangs, one pair after another."""
        while True:
            near, far = _compared(self.kind, self.near), _compared(self.kind, self.far)
            if self.good(*far):
                return True
            if not self.good(*near):
                return False
            places = self._open(1 if self.good(far[0], near[1]) else 0)
            for place, value in zip(places, solve(places), strict=True):
                rate, side, group = place
                self.near[rate, side, group] = self.far[rate, side, group] = value

    def _open(self, side: int) -> list[Place]:
        """Return the unknown ends of the pair (or group) that may reach an end of the comparison."""
        most = self.kind in ("difference", "max")
        source = self.near if (side == 0) == most else self.far
        values = _ends(self.kind, [(lo, hi) for lo, hi in source])[side]
        with np.errstate(invalid="ignore"):
            known = (self.near == self.far) | (np.isnan(self.near) & np.isnan(self.far))
        unknown = [[place for place in pair if not known[place]] for pair in self._pairs(side)]
        score = np.where(np.isnan(values), -np.inf, values if most else -values)
        open_ = [at for at in np.argsort(-score, kind="stable") if unknown[at]]
        return unknown[open_[0]]

    def _pairs(self, side: int) -> Iterator[tuple[Place, ...]]:
        """Yield the ends that make up each number of :func:`_ends`."""
        rates, _, groups = self.near.shape
        a, b = np.nonzero(~np.eye(groups, dtype=bool))
        for rate in range(rates):
            if self.kind in ("min", "max"):
                yield from (((rate, side, j),) for j in range(groups))
            else:
                yield from (
                    ((rate, side, int(i)), (rate, 1 - side, int(j))) for i, j in zip(a, b, strict=True)
                )


# ---------------------------------------------------------------------- what is known


@dataclass(frozen=True, eq=False)
class Profiles:
    """Decisions that look at the recorded group, by what each recorded group's rule makes of a row.

    Attributes
    ----------
    masses
        Of rows that every rule treats alike, by recorded group, profile and label, shape (K, P, 2), of total 1.
    chances
        Chance to be accepted by the rule of each recorded group, shape (K, P).
    """

    masses: Floats
    chances: Floats

    @cached_property
    def levels(self) -> tuple[Floats, Floats]:
        """Which profiles are one level of the own rule, shape (K, P, I), and the chances of levels, shape (K, I)."""
        found = [np.unique(row, return_inverse=True) for row in self.chances]
        most = max(values.size for values, _ in found)
        into = np.stack([np.eye(most)[at.ravel()] for _, at in found])
        return into, np.stack([np.pad(values, (0, most - values.size)) for values, _ in found])

    def by_level(self, masses: Floats) -> Floats:
        """Return masses (..., K, P, 2) by level of the own rule, (..., K, I, 2)."""
        by_label = np.ascontiguousarray(np.swapaxes(masses, -1, -2))  # ..., K, label, P
        return np.asarray(np.swapaxes(by_label @ self.levels[0], -1, -2))

    def cells(self, masses: Floats) -> Floats:
        """Return TP, FN, FP, TN of every rule and recorded group; masses (..., K, P, 2) to (..., K rules, K, 4)."""
        by_label = np.ascontiguousarray(np.swapaxes(masses, -1, -2))  # ..., K, label, P
        yes, no = (
            np.moveaxis(by_label @ chances.T, -1, -3) for chances in (self.chances, 1.0 - self.chances)
        )
        return np.stack([yes[..., 1], no[..., 1], yes[..., 0], no[..., 0]], -1)


@dataclass(frozen=True, eq=False)
class Seen:
    """The data, as far as true groups are concerned.

    Attributes
    ----------
    attribute, names
        Column of the noisy groups, and their names.
    cells
        Masses of TP, FN, FP, TN by noisy group, shape (K, 4), of total 1; without labels positive decisions are in FP.
    rows
        Effective number of rows.
    metrics
        Rates that can be computed.
    profiles
        Where decisions look at the recorded group and are known for the other groups too; None if they do not look.
    """

    attribute: str
    names: tuple[str, ...]
    cells: Floats
    rows: float
    metrics: Mapping[str, Ratio]
    profiles: Profiles | None = None

    @property
    def labelled(self) -> bool:
        """Whether there are labels."""
        return "true_positive_rate" in self.metrics


def seen(counts: Counts, reading: Reading, attribute: str) -> Seen:
    """Return the masses of cells by noisy group.

    Raises
    ------
    UsageError
        There are no decisions.
    """
    levels, into = groups_of_cells(counts.keys, counts.cells, (attribute,))
    names = tuple(level for (level,) in levels)
    found = confusion(counts, reading.threshold)
    if found is None:
        raise UsageError(NO_DECISIONS)
    table = np.zeros((len(names), *found.shape[1:]))
    np.add.at(table, into, found)
    cells = np.zeros((len(names), 4))
    cells[:, FP], cells[:, TN] = table[:, 0, 1, 0], table[:, 0, 0, 0]
    if counts.has_labels:
        cells[:, TP], cells[:, FN] = table[:, 1, 1, 0], table[:, 1, 0, 0]
    total, square = float(counts.weights.sum()), float(counts.square_weights.sum())
    return Seen(attribute, names, cells / cells.sum(), total * total / square, known_rates(counts.has_labels))


def known_rates(labelled: bool) -> dict[str, Ratio]:
    """Return the rates of true groups that can be told, in the order of the report: without labels, selection alone."""
    return {
        name: RATIOS[name]
        for name in NOISE_METRICS
        if name in RATIOS and (labelled or name == "selection_rate")
    }


def _masses(cells: Floats, *, by_label: bool) -> Floats:
    """Return the masses of noisy groups, shape (..., K), or by label (..., 2, K)."""
    if not by_label:
        return np.asarray(cells.sum(-1))
    return np.stack([cells[..., [FP, TN]].sum(-1), cells[..., [TP, FN]].sum(-1)], -2)


class TrueGroups:
    """Bounds and estimates of the true groups behind the noisy groups of a data set.

    Parameters
    ----------
    data
        The data.
    noise
        What is said of noise.
    alpha
        One minus the confidence of intervals.
    seed
        Of the resampling.
    replicates
        Draws; 0 for none.
    """

    def __init__(
        self, data: Seen, noise: Noise, alpha: float = 0.05, seed: int = 0, replicates: int = REPLICATES
    ) -> None:
        self.data, self.noise, self.alpha, self.seed = data, noise, alpha, seed
        self.replicates = replicates
        self.table: NoiseTable | None = None
        self.true = data.names
        self.notes: list[str] = []
        self.unavailable: dict[str, str] = {}
        rng = np.random.default_rng(seed)
        rows = max(round(data.rows), 1)
        self.rules: Floats | None = None
        self.rules_drawn: Floats | None = None
        if data.profiles is None:
            self.drawn = (
                rng.multinomial(rows, data.cells.ravel(), replicates).reshape(replicates, len(data.names), 4)
                / rows
            )
        else:
            masses = data.profiles.masses
            drawn = (
                rng.multinomial(rows, masses.ravel(), replicates).reshape(replicates, *masses.shape) / rows
            )
            self.rules, self.rules_drawn = data.profiles.cells(masses), data.profiles.cells(drawn)
            self.levels, self.levels_drawn = data.profiles.by_level(masses), data.profiles.by_level(drawn)
            own = np.arange(len(data.names))
            self.drawn = self.rules_drawn[:, own, own]
        if noise.table is not None:
            self.table = noise.table.for_groups(data.names, data.attribute)
            if self.table.by_label and not data.labelled:
                raise UsageError(
                    f"{self.table.source} is by label, and the data have no label; name it with --label"
                )
            self.true = self.table.true
            self.said = replace(noise, table=self.table)
            self.values_drawn = self.table.drawn(replicates, rng) if replicates else None
            self.joints = self.said.tables(self._masses(data.cells))
            self.recording = self.said.recording(self._masses(data.cells))
        self.stated = self._stated()

    def _masses(self, cells: Floats) -> Floats:
        """Return the masses of noisy groups that the table is about."""
        return _masses(cells, by_label=self.table is not None and self.table.by_label)

    @cached_property
    def joints_drawn(self) -> Floats:
        """The tables that may hold in every draw, shape (W, R, ...)."""
        return self.said.tables(self._masses(self.drawn), self.values_drawn)

    def _stated(self) -> dict[str, str]:
        """Return assumption -> what was stated."""
        noise, out = self.noise, {}
        if noise.radii is not None:
            out["N0"] = "the radii that were given"
        if self.table is not None:
            out["N1"] = f"the table of {self.table.source}"
            if self.table.by_label:
                out["N2"] = f"the table by label of {self.table.source}"
            if noise.epsilon is not None:
                out["N3"] = f"noise depends on outcomes by at most {noise.epsilon:g}"
            if noise.class_conditional:
                by = " and the label" if self.table.by_label else ""
                out["N4"] = (
                    f"noise depends on nothing but the true group{by}, and decisions do not use the recorded one"
                )
        return out

    @property
    def rests_on(self) -> str:
        """The strongest assumption that was stated."""
        return max(self.stated)

    @property
    def same_groups(self) -> bool:
        """Whether true and noisy groups have the same names."""
        return self.true == self.data.names

    # ------------------------------------------------------------------ bounds

    @cached_property
    def bounds(self) -> dict[str, Bounds]:
        """Assumption -> bounds of every rate."""
        out: dict[str, Bounds] = {}
        makers: tuple[tuple[str, Callable[[], Bounds | str]], ...] = (
            ("N0", self._n0),
            ("N1", self._n1),
            ("N2", self._n2),
            ("N3", self._n3),
            ("N4", lambda: self._n4(out)),
        )
        for name, make in makers:
            found = make()
            if isinstance(found, str):
                self.unavailable[name] = found
            else:
                out[name] = found
        return out

    def _each(self, bounds: Callable[[Floats, Floats, Ratio], Pair], known: Floats, drawn: Floats) -> Bounds:
        """Return bounds by a function of masses, table (or radii) and rate; over all that is first in what is known."""

        def widest(cells: Floats, tables: Floats, ratio: Ratio) -> Pair:
            return _widest(bounds(cells, table, ratio) for table in tables)

        rates = {name: widest(self.data.cells, known, ratio) for name, ratio in self.data.metrics.items()}
        draws = {}
        if self.replicates:
            draws = {name: widest(self.drawn, drawn, ratio) for name, ratio in self.data.metrics.items()}
        return Bounds(rates, draws, self.alpha)

    @cached_property
    def radii(self) -> tuple[Floats, Floats] | None:
        """The radii of N0 and those drawn; None where there are none."""
        if self.noise.radii is not None:
            found = radii_for(self.noise.radii, self.data.names, self.data.attribute)
            if not self.same_groups:
                raise UsageError(
                    "--noise-radius compares a true group with the recorded group of the same name; the table's true "
                    f"groups are {', '.join(self.true)} and the recorded ones {', '.join(self.data.names)}: leave it "
                    "out"
                )
            return found, np.broadcast_to(found, (self.replicates, found.size))
        if self.table is None or not self.same_groups:
            return None
        drawn = valid_radius(self.plain(self.joints_drawn)).max(0) if self.replicates else np.zeros((0, 0))
        return valid_radius(self.plain(self.joints)).max(0), drawn

    def _n0(self) -> Bounds | str:
        if self.radii is None:
            return "true and recorded groups do not have the same names"
        radii, drawn = self.radii
        return self._each(tv_bounds, radii[None], drawn[None])

    def plain(self, joint: Floats) -> Floats:
        """Return a table without labels."""
        assert self.table is not None
        return np.asarray(joint.sum(-3)) if self.table.by_label else joint

    def _n1(self) -> Bounds | str:
        if self.table is None:
            return "no table was given (--noise FILE)"
        drawn = self.plain(self.joints_drawn) if self.replicates else self.joints
        return self._drawn_apart(
            self._each(soft_bounds, self.plain(self.joints), drawn), self.plain(self.joints), drawn
        )

    def _n2(self) -> Bounds | str:
        if self.table is None or not self.table.by_label:
            return "the table is not by label" if self.table else "no table was given (--noise FILE)"
        drawn = self.joints_drawn if self.replicates else self.joints
        return self._drawn_apart(self._each(labelled_bounds, self.joints, drawn), self.joints, drawn)

    def _drawn_apart(self, found: Bounds, joints: Floats, drawn: Floats) -> Bounds:
        """Return the bounds of decisions that are drawn after the recording: noise does not depend on the draw."""
        if self.data.profiles is None:
            return found
        chances = self.data.profiles.levels[1]
        names = [name for name in self.data.metrics if name in LABELS_OF]

        def widest(levels: Floats, tables: Floats, name: str) -> Pair:
            return _widest(level_bounds(levels, table, chances, name) for table in tables)

        rates = {name: widest(self.levels, joints, name) for name in names}
        draws = {}
        if self.replicates:
            draws = {name: widest(self.levels_drawn, drawn, name) for name in names}
        return Bounds({**found.rates, **rates}, {**found.draws, **draws}, self.alpha)

    def _n3(self) -> Bounds | str:
        eps = self.noise.epsilon
        if eps is None:
            return "not stated (--noise-epsilon)"
        if self.recording is None:
            return SHARES_OPEN
        rates = {name: self._at(name, eps) for name in self.data.metrics}
        if self.least > eps:
            return (
                f"the data refute that noise depends on outcomes by at most {eps:g}: the least eps they allow is "
                f"{self.least:.4f}"
            )
        few = min(FEW_REPLICATES, self.replicates)
        draws: dict[str, list[Pair]] = {name: [] for name in self.data.metrics}
        refuted = 0
        values = None if self.values_drawn is None else self.values_drawn[:few]
        tables = self.said.recording(self._masses(self.drawn[:few]), values) if few else None
        for m, joint in zip(self.drawn[:few], () if tables is None else tables, strict=True):
            found = {
                name: sensitivity_bounds(m, joint, ratio, eps) for name, ratio in self.data.metrics.items()
            }
            refuted += all(np.isnan(lo).all() for lo, _ in found.values())
            for name, pair in found.items():
                draws[name].append(pair)
        if refuted:
            self.notes.append(
                f"N3: eps = {eps:g} is refuted in {refuted} of {few} draws, which count nothing; it is hardly more "
                "than sampling error alone makes"
            )
        stacked = {
            name: (np.array([p[0] for p in d]), np.array([p[1] for p in d]))
            for name, d in draws.items()
            if few
        }
        return Bounds(rates, stacked, self.alpha)

    @cached_property
    def inverted(self) -> tuple[Inversion, Inversion | None]:
        """Masses of true groups under N4, of the data and of the draws.

        Raises
        ------
        DataError
            They are not identified.
        """
        assert self.table is not None
        try:
            found = self._inverted(self.data.cells, self._recording(self.data.cells), self.rules)
        except ValueError as error:
            raise DataError(
                f"--noise-class-conditional: {error}; leave the option out, and the bounds remain"
            ) from error
        if not self.replicates:
            return found, None
        drawn = self._recording(self.drawn, self.values_drawn)
        if drawn.ndim == self.table.values.ndim:
            drawn = drawn[None]
        return found, self._inverted(self.drawn, drawn, self.rules_drawn)

    def _recording(self, cells: Floats, values: Floats | None = None) -> Floats:
        """Return a table of the ``P(noisy | true)`` that N4 is about: as it is, wherever it can be."""
        assert self.table is not None
        if self.said.of_recording == "noisy-given-true":
            return self.table.values if values is None else values
        return np.asarray(self.table.carried(self._masses(cells), self.said.of_recording, values)[0])

    def _inverted(self, cells: Floats, table: Floats, rules: Floats | None = None) -> Inversion:
        """Return the inversion by a table's ``P(noisy | true)``, shape (..., J, K) or by label (..., 2, J, K).

        A table that was carried over with that as it is has another one wherever no shares of true groups fit exactly;
        so the table is taken as it was. Where decisions look at the recorded group, the cells of each group's rule are
        inverted, and a true group has each rule as often as it is recorded so.
        """
        some = next(iter(self.data.metrics.values()))
        if self.table is not None and self.table.by_label:
            parts = [
                (cells[..., cs], *left_inverse(table[..., y, :, :]))
                for y, cs in ((1, [TP, FN]), (0, [FP, TN]))
            ]
            weights = np.stack([parts[1][2], parts[0][2]], -3)
        else:
            parts = [(cells, *left_inverse(table))]
            weights = parts[0][2]
        if rules is None:
            masses = np.concatenate([w @ m for m, _, w in parts], -1)
        else:
            kinds = ([TP, FN], [FP, TN]) if len(parts) > 1 else ([TP, FN, FP, TN],)
            masses = np.concatenate(
                [
                    np.einsum("...jr,...rjc->...jc", t, w[..., None, :, :] @ rules[..., cs])
                    for (_, t, w), cs in zip(parts, kinds, strict=True)
                ],
                -1,
            )
        left = np.concatenate([m - np.swapaxes(t, -1, -2) @ (w @ m) for m, t, w in parts], -1)
        return Inversion(some.of(masses), masses, weights, left)

    def _n4(self, weaker_bounds: Mapping[str, Bounds]) -> Bounds | str:
        if not self.noise.class_conditional:
            return "not stated (--noise-class-conditional)"
        found, drawn = self.inverted
        weaker = "N2" if self.table is not None and self.table.by_label else "N1"
        allowed = weaker_bounds[weaker]
        rates: dict[str, Pair] = {}
        draws: dict[str, Pair] = {}
        beyond: list[tuple[str, str]] = []
        refuted: list[tuple[str, str]] = []
        share = self.alpha / (len(self.data.metrics) * len(self.true))
        for name, ratio in self.data.metrics.items():
            rate = ratio.of(found.masses)
            low, high = allowed.rates[name]
            kept = np.clip(rate, low, high)
            rates[name] = kept, kept
            off = np.abs(rate - kept) > TOLERANCE
            beyond += [(name, self.true[j]) for j in np.flatnonzero(off)]
            if drawn is None:
                continue
            rate, (low, high) = ratio.of(drawn.masses), allowed.draws[name]
            open_ = np.isnan(
                rate
            )  # a draw that leaves a group no rows says nothing but what the table allows
            draws[name] = (
                np.where(open_, low, np.clip(rate, low, high)),
                np.where(open_, high, np.clip(rate, low, high)),
            )
            above, below = (
                np.where(open_, 0.0, rate - low),
                np.where(open_, 0.0, high - rate),
            )  # 0 or more where it is allowed
            never = np.fmin(_quantile(above, 1 - share), _quantile(below, 1 - share)) < -TOLERANCE
            refuted += [(name, self.true[j]) for j in np.flatnonzero(never & off)]
        if refuted:
            return (
                "the data refute that noise depends on nothing but the true group"
                f"{' and the label' if weaker == 'N2' else ''}: beyond sampling error it gives {_each_of(refuted)} "
                f"that the table rules out ({weaker})"
            )
        if beyond:
            self.notes.append(
                f"N4: the inversion gives {_each_of(beyond)} that the table rules out ({weaker}), by no more than "
                "sampling error or a slightly wrong assumption makes; the nearest that it allows is told"
            )
        if np.abs(found.residual).max() > TOLERANCE:
            self.notes.append(
                f"N4: there are more recorded than true groups, and the masses of their cells are off by up to "
                f"{np.abs(found.residual).max():.2g} of all rows; 0 if the assumption holds and there is no "
                "sampling error"
            )
        return Bounds(rates, draws, self.alpha)

    # ------------------------------------------------------------------ estimates

    @cached_property
    def weighted(self) -> dict[str, Floats]:
        """Metric -> rates with every row in each true group by its chance; empty without a table."""
        if self.table is None:
            return {}
        m = self.data.cells
        masses = self._masses(m)[..., None, :]
        share = np.where(masses > 0, self.joints[0] / np.where(masses > 0, masses, 1.0), 0.0)
        if self.table.by_label:
            cells = np.concatenate([share[1] @ m[:, [TP, FN]], share[0] @ m[:, [FP, TN]]], -1)
        else:
            cells = share @ m
        return {name: ratio.of(cells) for name, ratio in self.data.metrics.items()}

    @cached_property
    def recorded(self) -> dict[str, Floats]:
        """Metric -> rates of the recorded groups."""
        return {name: ratio.of(self.data.cells) for name, ratio in self.data.metrics.items()}

    def points(self, assumption: str) -> dict[str, Floats]:
        """Return metric -> the best single guess of each rate under an assumption, inside its bounds."""
        if assumption == "N4":
            return {name: low for name, (low, _) in self.bounds["N4"].rates.items()}
        if assumption == "N0":
            return self.recorded
        guess = self.weighted
        if assumption == "N3":
            with suppress(DataError):
                masses = self.inverted[0].masses
                guess = {name: ratio.of(masses) for name, ratio in self.data.metrics.items()}
        bounds = self.bounds[assumption].rates
        return {name: np.clip(rate, *bounds[name]) for name, rate in guess.items()}

    # ------------------------------------------------------------------ sensitivity

    @cached_property
    def least(self) -> float:
        """The least eps that the data allow."""
        assert self.recording is not None
        return least_eps(self.data.cells, self.recording)

    @cached_property
    def _known(self) -> dict[tuple[str, float], Pair]:
        return {}

    def _at(self, metric: str, eps: float) -> Pair:
        """Return the bounds under N3 with another eps; NaN where the data refute it."""
        if (metric, eps) not in self._known:
            self._known[metric, eps] = self._found_at(self.data.metrics[metric], eps)
        return self._known[metric, eps]

    def _found_at(self, ratio: Ratio, eps: float) -> Pair:
        assert self.recording is not None
        if eps < self.least:
            nothing = np.full(len(self.true), np.nan)
            return nothing, nothing
        if eps == 0:
            by_label = self.table is not None and self.table.by_label
            with suppress(ValueError):  # it can be inverted, and nothing is left open
                known = (identified_by_label if by_label else identified)(
                    self.data.cells, self.recording, ratio
                )
                return known.rates, known.rates
        room = self.least + ROOM if self.least > 0 else 0.0  # to the solver less is all but empty, or empty
        return sensitivity_bounds(self.data.cells, self.recording, ratio, max(eps, room))

    def compared_at(self, kind: str, metrics: Sequence[str], eps: float) -> tuple[float, float]:
        """Return where a comparison lies under N3 with another eps."""
        return _compared(kind, np.array([self._at(name, eps) for name in metrics]))

    def largest(
        self,
        holds: Callable[[float, float], bool],
        kind: str,
        metrics: Sequence[str],
        precision: float = PRECISION,
    ) -> float:
        """Return the largest eps at which something holds of both ends of a comparison; NaN if it never does.

        Bounds become wider with eps, so those at a smaller and at a larger eps enclose what lies between them: of an
        eps between both only the ends are computed on which the answer hangs.
        """

        def known(eps: float) -> Floats:
            return np.array([self._at(name, eps) for name in metrics])

        def good(ends: Floats) -> bool:
            return between.good(*_compared(kind, ends))

        inside, outside = self.least, 1.0
        between = _Between(kind, known(inside), known(outside), holds)
        if not good(between.near):
            return math.nan
        if good(between.far):
            return 1.0
        for eps in self._curve():
            if inside < eps < outside:
                if good(known(eps)):
                    inside, between.near = eps, known(eps)
                else:
                    outside, between.far = eps, known(eps)
        while outside - inside > precision:
            middle = (inside + outside) / 2
            trial = _Between(kind, between.near.copy(), between.far.copy(), holds)
            if trial.decide(partial(self._ends_at, middle, metrics)):
                inside, between.near = middle, trial.near
            else:
                outside, between.far = middle, trial.far
        return inside

    def _ends_at(self, eps: float, metrics: Sequence[str], places: Sequence[Place]) -> Floats:
        """Return ends under N3 with another eps."""
        ends = [
            End(self.data.metrics[metrics[rate]], group, 1.0 - 2.0 * side) for rate, side, group in places
        ]
        assert self.recording is not None
        return sensitivity_ends(self.data.cells, self.recording, eps, ends)

    # ------------------------------------------------------------------ report

    def figures(self) -> Iterator[Figure]:
        """Yield the numbers of groups, then of comparisons."""
        naive = self._naive()
        other = self._other()
        for metric, ratio in self.data.metrics.items():
            bounds = {name: list(found.of_groups(metric)) for name, found in self.bounds.items()}
            error = self._standard_error(ratio)
            for j, group in enumerate(self.true):
                same = self.data.names.index(group) if group in self.data.names else None
                yield Figure(
                    metric,
                    group,
                    math.nan if same is None else float(self.recorded[metric][same]),
                    float(self.weighted[metric][j]) if self.weighted else math.nan,
                    {name: found[j] for name, found in bounds.items()},
                    None if naive is None else _floats(*(end[j] for end in naive[metric])),
                    float(self.bounds["N4"].rates[metric][0][j]) if "N4" in self.bounds else None,
                    None if error is None else float(error[j]),
                    None if other is None else _floats(*(end[j] for end in other[metric])),
                    tuple(
                        (eps, *_floats(*(end[j] for end in self._at(metric, eps)))) for eps in self._curve()
                    ),
                )
        for kind, name, metrics in _comparisons(self.data.metrics):
            yield self._comparison(kind, name, metrics, naive, other)

    def _comparison(
        self,
        kind: str,
        name: str,
        metrics: tuple[str, ...],
        naive: Mapping[str, Pair] | None,
        other: Mapping[str, Pair] | None,
    ) -> Figure:
        def of(found: Mapping[str, Pair]) -> tuple[float, float]:
            low, high = _ends(kind, [found[m] for m in metrics])
            return float(_worst(kind, low)), float(_worst(kind, high))

        def single(found: Mapping[str, Floats]) -> float:
            return of({m: (found[m], found[m]) for m in metrics})[0]

        certain = None
        if kind == "difference" and self._curve():
            certain = self.largest(lambda low, high: low > TOLERANCE, kind, metrics, COARSE)
        n4 = self.bounds.get("N4")
        return Figure(
            f"{name}.{kind}",
            "",
            single(self.recorded),
            single(self.weighted) if self.weighted else math.nan,
            {level: found.of_comparison(kind, metrics) for level, found in self.bounds.items()},
            None if naive is None else of(naive),
            None if n4 is None else of(n4.rates)[0],
            None,
            None if other is None else of(other),
            tuple((eps, *self.compared_at(kind, metrics, eps)) for eps in self._curve())
            if kind == "difference"
            else (),
            certain,
        )

    def _curve(self) -> tuple[float, ...]:
        few = self.table is not None and len(self.true) * len(self.data.names) <= MANY
        return CURVE if few and self.recording is not None else ()

    def _naive(self) -> dict[str, Pair] | None:
        """Return recorded rates give or take the share of the true group that is recorded as another."""
        if not self.same_groups:
            return None
        if self.table is not None:
            gamma = conditional_radius(self.plain(self.joints[0]))
        else:
            assert self.radii is not None
            gamma = self.radii[0]
        return {
            name: (np.clip(rate - gamma, 0.0, 1.0), np.clip(rate + gamma, 0.0, 1.0))
            for name, rate in self.recorded.items()
        }

    @cached_property
    def other_joint(self) -> Floats | None:
        """The table carried over as the user says it is not; None where that is the same, or nothing is said."""
        if self.table is None or self.noise.keep is None:
            return None
        others = [keep for keep in self.table.ways if keep != self.noise.keep]
        if not others:
            return None
        try:
            (found,) = self.table.carried(self._masses(self.data.cells), others[0])
        except ValueError:  # more than one, or none
            return None
        return found if np.abs(found - self.joints[0]).max() > TOLERANCE else None

    def _other(self) -> dict[str, Pair] | None:
        if self.other_joint is None or self.table is None:
            return None
        bounds = labelled_bounds if self.table.by_label else soft_bounds
        return {
            name: bounds(self.data.cells, self.other_joint, ratio)
            for name, ratio in self.data.metrics.items()
        }

    def _standard_error(self, ratio: Ratio) -> Floats | None:
        if "N4" not in self.bounds:
            return None
        found = replace(self.inverted[0], rates=ratio.of(self.inverted[0].masses))
        return standard_error(self.data.cells, found, ratio, self.data.rows)

    def vacuous(self) -> Iterator[tuple[str, str]]:
        """Yield (metric, group) of which the table without labels can say nothing."""
        if self.table is None or not self.data.labelled:
            return
        for name in EQUALIZED_ODDS:
            empty = [
                vacuous(self.data.cells, table, self.data.metrics[name]) for table in self.plain(self.joints)
            ]
            yield from ((name, self.true[j]) for j in np.flatnonzero(np.any(empty, axis=0)))

    def breakdowns(self, checks: Iterable[Check]) -> Iterator[BreakdownReport]:
        """Yield the breakdown points of all checks that have some."""
        if self.table is None or self.recording is None:
            return
        known = {(name, kind): metrics for kind, name, metrics in _comparisons(self.data.metrics)}
        for check in checks:
            of = check.comparison
            name, kind = of.metric, of.kind
            ours = of.attribute in (None, self.data.attribute) and of.group is None
            if not ours or (name, kind) not in known or of.scope not in ("", "between_groups", *NOISE_SCOPES):
                continue
            metrics = known[name, kind]
            yield BreakdownReport(
                check.text,
                self.largest(partial(_kept, check), kind, metrics),
                self.largest(partial(_broken, check), kind, metrics),
            )

    def comparisons(self, figures: Iterable[Figure], checks: Iterable[Check]) -> Iterator[ComparisonReport]:
        """Yield what checks can look at: what the report rests on, and what is asked for under another assumption."""
        asked = {check.comparison.id for check in checks}
        known = {f"{name}.{kind}": (kind, metrics) for kind, name, metrics in _comparisons(self.data.metrics)}
        for figure in figures:
            if figure.group:
                continue
            kind, metrics = known[figure.name]
            yield self._report(figure, kind, metrics, self.rests_on, "true_groups")
            for scope in NOISE_SCOPES[1:]:
                if f"{figure.name}.{scope}" in asked:
                    yield self._report(figure, kind, metrics, scope.removeprefix("under_").upper(), scope)

    def told(self, checks: Iterable[Check] = ()) -> Iterator[ComparisonReport]:
        """Yield the comparisons of :meth:`comparisons` without the figures, curves and breakdown points beside them."""
        figures = [
            Figure(
                f"{name}.{kind}",
                "",
                math.nan,
                math.nan,
                {level: found.of_comparison(kind, metrics) for level, found in self.bounds.items()},
            )
            for kind, name, metrics in _comparisons(self.data.metrics)
        ]
        return self.comparisons(figures, checks)

    def of_each(self) -> dict[str, dict[str, Value]]:
        """Return :meth:`values` without the figures, curves and breakdown points beside them."""
        known = {name: list(self.of_groups(name)) for name in self.data.metrics}
        return self.values(
            Figure(name, group, math.nan, math.nan, bounds)
            for name, found in known.items()
            for group, bounds in zip(self.true, found, strict=True)
        )

    def of_groups(self, metric: str) -> Iterator[dict[str, Bound]]:
        """Yield assumption -> bounds of each true group's rate."""
        for bounds in zip(*(found.of_groups(metric) for found in self.bounds.values()), strict=True):
            yield dict(zip(self.bounds, bounds, strict=True))

    def shortfall(self, level: str, sides: Iterable[tuple[str, float]]) -> tuple[float, float]:
        """Return what the worst true group is on the wrong side of the rate over everybody by, and an upper limit.

        Parameters
        ----------
        level
            The assumption.
        sides
            Rate, and 1 where a group must not be below, -1 where it must not be above.

        Returns
        -------
        On the rows as they are, and the quantile of that over the draws; one-sided, at half of alpha.
        """
        found = self.bounds[level]

        def worst(cells: Floats, rates: Mapping[str, Pair]) -> Floats:
            out = []
            for name, sign in sides:
                overall = self.data.metrics[name].of(cells.sum(-2))[..., None]
                out.append(sign * (overall - rates[name][0 if sign > 0 else 1]))
            return _worst("max", np.concatenate(out, -1))

        point = float(worst(self.data.cells, found.rates))
        if not found.draws:
            return point, point
        drawn = _quantile(worst(self.drawn, found.draws), 1 - self.alpha / 2)
        return point, float(np.fmax(point, drawn))

    def values(self, figures: Iterable[Figure]) -> dict[str, dict[str, Value]]:
        """Return metric and scope -> group -> value, for checks on one group."""
        out: dict[str, dict[str, Value]] = {}
        for figure in figures:
            if not figure.group:
                continue
            for scope in NOISE_SCOPES:
                level = self.rests_on if scope == "true_groups" else scope.removeprefix("under_").upper()
                out.setdefault(f"{figure.name}.{scope}", {})[figure.group] = self._value(figure, level)
        return out

    def _value(self, figure: Figure, assumption: str) -> Value:
        """Return a group's number under an assumption."""
        bound = figure.bounds.get(assumption)
        if bound is None or bound.reason:
            why = f"{assumption}: {self.unavailable[assumption]}" if bound is None else bound.reason
            return Value(math.nan, math.nan, math.nan, why)
        point = float(self.points(assumption)[figure.name][self.true.index(figure.group)])
        return Value(point, bound.outer_low, bound.outer_high, _told(assumption, bound))

    def _report(
        self, figure: Figure, kind: str, metrics: tuple[str, ...], assumption: str, scope: str
    ) -> ComparisonReport:
        identifier = f"{figure.name}.{scope}"
        bound = figure.bounds.get(assumption)
        if bound is None:
            why = f"{assumption}: {self.unavailable[assumption]}"
            return ComparisonReport(identifier, Value(math.nan, math.nan, math.nan, why), ())
        if bound.reason:
            return ComparisonReport(identifier, Value(math.nan, math.nan, math.nan, bound.reason), ())
        points = self.points(assumption)
        rates = [(points[name], points[name]) for name in metrics]
        value = float(_worst(kind, _ends(kind, rates)[0]))
        bounds = [self.bounds[assumption].rates[name] for name in metrics]
        lost = np.any([np.isnan(low) for low, _ in bounds], axis=0)
        return ComparisonReport(
            identifier,
            Value(value, bound.outer_low, bound.outer_high, _told(assumption, bound)),
            self._who(kind, bounds),
            tuple(self.true[j] for j in np.flatnonzero(lost)),
        )

    def _who(self, kind: str, bounds: Sequence[Pair]) -> tuple[str, ...]:
        """Return the groups that reach the worst case."""
        lows, highs = _ends(kind, bounds)
        ends = highs if kind in ("difference", "max") else -lows
        if np.isnan(ends).all():
            return ()
        best = int(np.nanargmax(ends))
        groups = len(self.true)
        if kind in ("min", "max"):
            return (self.true[best % groups],)
        a, b = np.nonzero(~np.eye(groups, dtype=bool))
        best %= a.size
        return self.true[int(a[best])], self.true[int(b[best])]

    def report(self, checks: Sequence[Check] = ()) -> tuple[NoiseReport, list[ComparisonReport]]:
        """Return what is told of true groups, and what checks can look at."""
        figures = tuple(self.figures())
        breakdowns = tuple(self.breakdowns(checks))
        found = list(self.comparisons(figures, checks))
        names = self.data.names
        self.notes.extend(self._cautions())
        told = NoiseReport(
            attribute=self.data.attribute,
            source="",
            true=self.true,
            noisy=names,
            form="",
            rows=None,
            by_label=False,
            keep="",
            table=(),
            rests_on=self.rests_on,
            stated=self.stated,
            unavailable=self.unavailable,
            radii={} if self.radii is None else dict(zip(names, self.radii[0].tolist(), strict=True)),
            conditional_radii={},
            shift=None,
            transport_difference=None,
            smallest_eps=None,
            vacuous=tuple(self.vacuous()),
            figures=figures,
            breakdowns=breakdowns,
            replicates=self.replicates,
            seed=self.seed,
            notes=tuple(self.notes),
        )
        return told if self.table is None else self._with_table(told, self.table), found

    def _cautions(self) -> Iterator[str]:
        """Yield what has to be borne in mind of the table, and of what is stated besides."""
        table = self.table
        if table is None:
            return
        if table.rows is None:
            yield (
                f"{table.source} holds probabilities, which are taken as known; counts would show their sampling error"
            )
        if "N4" in self.stated or "N3" in self.stated:
            yield (
                f"{self.rests_on} takes for granted that decisions do not use the recorded group, which the data "
                "cannot show"
            )
        if len(self.joints) > 1 and np.ptp(self.joints, 0).max() > TOLERANCE:
            yield (
                f"the groups of {table.source} have other shares than the data, and it is not said what holds for "
                "both: N0, N1 and N2 allow P(true | noisy) and P(noisy | true). With --noise-keep, which says it, "
                "bounds become narrower"
            )
        if self.recording is None:
            yield f"{SHARES_OPEN}: there are no breakdown points and no curve over eps"
        elif not self._curve():
            yield "there are many groups, so the curve over eps was left out; breakdown points of checks are told"
        if self.recording is not None and self.least > 0:
            yield (
                f"the data refute that noise does not depend on outcomes at all; the least eps they allow is "
                f"{self.least:.4f}, part of it sampling error"
            )

    def _with_table(self, told: NoiseReport, table: NoiseTable) -> NoiseReport:
        """Return a report with what there is to say of the noise table."""
        plain = self.plain(self.joints)
        radii: dict[str, float] = {}
        if self.same_groups:
            radii = dict(zip(told.noisy, conditional_radius(plain[0]).tolist(), strict=True))
        apart = 0.0 if table.says_noisy else None
        if self.noise.keep is None and table.says_noisy:
            found = float(np.ptp(self.joints, 0).max())
            apart = found if found > TOLERANCE else 0.0
        elif self.other_joint is not None:
            apart = float(np.abs(self.other_joint - self.joints[0]).max())
        return replace(
            told,
            source=table.source,
            form=table.form,
            rows=table.rows,
            by_label=table.by_label,
            keep=self.said.ways[0] if len(self.said.ways) == 1 else "either",
            table=tuple(tuple(row) for row in plain[0].tolist()),
            conditional_radii=radii,
            shift=table.shift(_masses(self.data.cells, by_label=table.by_label)),
            transport_difference=apart,
            smallest_eps=None if self.recording is None else self.least,
        )


def _told(assumption: str, bound: Bound) -> str:
    """Return what a verdict rests on."""
    if assumption == "N4":
        return f"rests on N4; estimate {bound.low:.4f}"
    return f"rests on {assumption}; worst case {bound.low:.4f} to {bound.high:.4f}"


def _each_of(found: Sequence[tuple[str, str]]) -> str:
    """Return in words of which metrics and groups something is told."""
    parts = [
        f"{name} of {', '.join(g for n, g in found if n == name)}"
        for name in dict.fromkeys(n for n, _ in found)
    ]
    return f"values ({'; '.join(parts)})"


def _kept(check: Check, low: float, high: float) -> bool:
    """Return whether no value from low to high breaks a limit, but for rounding."""
    return not (check.violated_by(high - TOLERANCE) or check.violated_by(low + TOLERANCE))


def _broken(check: Check, low: float, high: float) -> bool:
    """Return whether every value from low to high breaks a limit."""
    return check.violated_by(low) and check.violated_by(high)


def _floats(*values: npt.ArrayLike) -> Any:
    return tuple(float(np.asarray(value)) for value in values)


def _comparisons(metrics: Mapping[str, Ratio]) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """Yield (kind, name, rates) of every comparison that there is."""
    for kind in KINDS:
        for name in NOISE_METRICS:
            if name in metrics:
                yield kind, name, (name,)
            elif (
                name == "equalized_odds"
                and "true_positive_rate" in metrics
                and kind in ("difference", "ratio")
            ):
                yield kind, name, EQUALIZED_ODDS


# ---------------------------------------------------------------------- entry


def audit_noisy(
    source: Source,
    reading: Reading,
    noise: Noise,
    settings: Settings | None = None,
    *,
    seed: int = 0,
    more: More | None = None,
) -> AuditReport:
    """Audit data whose protected column holds noisy groups; the data are read once, as in any audit.

    Parameters
    ----------
    source, reading, settings, more
        As in :func:`fairfix.auditing.audit.audit`; ``reading`` names one protected column, that of the noisy groups.
    noise
        What is known of the noise.
    seed
        Of the resampling.

    Raises
    ------
    DataError, UsageError
        Data, noise and question do not fit one another.
    """
    settings = settings or Settings()
    if len(reading.columns.protected) != 1:
        raise UsageError(
            f"noise is described for one column, and --protected names {', '.join(reading.columns.protected)}: name "
            "the column of the recorded groups alone"
        )
    if reading.task == "regression":
        raise UsageError(NOT_OF_VALUES)
    reading.check()
    found: Scan = scan(source, reading, threads=settings.threads, exact=settings.exact)
    (attribute,) = reading.columns.protected
    data = seen(found.counts, found.reading, attribute)
    true = TrueGroups(data, noise, 1.0 - settings.confidence, seed)
    told, comparisons = true.report(settings.checks)
    every = {**(more or {}), attribute: [*(more or {}).get(attribute, ()), *comparisons]}
    values = {attribute: true.values(told.figures)}
    return replace(judge(found, settings, source.name, source, every, values), noise=told)
