"""The assumptions about noise, from the weakest to the strongest: for each, what states it and the bounds it allows.

====  ================================================================  ================================
N0    true groups are distributed near recorded ones                   :mod:`fairfix.noise.bounds`
N1    a table of true and recorded groups                               :mod:`fairfix.noise.bounds`
N2    a table by label                                                  :mod:`fairfix.noise.bounds`
N3    noise depends on outcomes by at most eps                          :mod:`fairfix.noise.epsilon`
N4    noise depends on nothing but the true group (and the label)       :mod:`fairfix.noise.confusion_matrix_inversion`
====  ================================================================  ================================

Bounds run over all tables that may hold. N4 is an estimate, and the true value is also one that the table allows: an
estimate beyond those bounds is moved to the nearest end, and said to be; if in nearly all draws it lies beyond, N4 is
refuted. Under N3 limits come from the multipliers of few programs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import ClassVar

import numpy as np

from fairfix.data.choices import Level
from fairfix.errors import DataError
from fairfix.noise.added_rows import LOWER, UPPER, level_with_row, with_ends
from fairfix.noise.bootstrap_bounds import Draws
from fairfix.noise.bounds import Pair, table_bounds, tv_bounds, widest
from fairfix.noise.comparisons import RateBounds, quantile
from fairfix.noise.confusion_matrix_inversion import standard_error
from fairfix.noise.randomized_rule_bounds import ball_bounds, level_bounds
from fairfix.noise.rates import LABELS, Floats, Ratio
from fairfix.noise.resampling import TOLERANCE, ResampledGroups

SHARES_OPEN = "P(noisy | true) does not give the sizes of the true groups"
NO_TABLE = "no table was given (`noise=FILE`)"


class Unavailable(Exception):  # noqa: N818 - nothing went wrong
    """There are no bounds under an assumption; the message is the reason."""


class Assumption(ABC):
    """An assumption about the noise behind recorded groups; ``alpha`` is one minus the confidence of intervals."""

    level: ClassVar[Level]

    def __init__(self, evidence: ResampledGroups, alpha: float) -> None:
        self.evidence, self.alpha = evidence, alpha
        self.notes: list[str] = []
        """Remarks for readers of the bounds."""

    @property
    @abstractmethod
    def stated(self) -> str | None:
        """The user's statement, in words; None where the assumption was not stated."""

    @abstractmethod
    def bounds(self, weaker: Mapping[Level, RateBounds]) -> RateBounds:
        """Return the bounds of every rate, given those under weaker assumptions; raise :class:`Unavailable`."""

    def points(self, bounds: RateBounds) -> Mapping[str, Floats]:
        """Return metric -> the best single guess of each rate inside its bounds."""
        return _inside(self.evidence.weighted, bounds)

    def standard_error(self, ratio: Ratio) -> Floats | None:
        """Return the standard error of an estimate, shape (J,); None for bounds."""
        return None

    def _bounded(
        self,
        of_cells: Callable[[Floats, Floats, Ratio], Pair],
        of_levels: Callable[[Floats, Floats, Floats, str], Pair],
        given: Floats,
        drawn: Floats,
    ) -> RateBounds:
        """Return bounds over all tables (or radii) that are first in those given and drawn.

        Of decisions that are drawn later they are those of the levels of decisions, but for the precision.
        """
        evidence, profiles = self.evidence, self.evidence.data.profiles

        def bounds(name: str, end: int | None, table: Floats) -> Pair:
            if profiles is None or name not in LABELS:
                ratio = evidence.data.metrics[name]
                cells = evidence.data.cells if end is None else evidence.drawn_for(ratio, end)
                return of_cells(cells, table, ratio)
            accepted = profiles.levels[1]
            if end is None:
                return of_levels(evidence.levels, table, accepted, name)
            levels = level_with_row(
                evidence.levels_drawn, evidence.imagined, name, end, by_label=evidence.by_label
            )
            return of_levels(levels, table, with_ends(accepted), name)

        def over(name: str, end: int | None, every: Floats) -> Pair:
            return widest([bounds(name, end, table) for table in every])

        rates = {name: over(name, None, given) for name in evidence.data.metrics}
        if not evidence.replicates:
            return RateBounds(rates, {}, self.alpha)
        draws = {name: (over(name, LOWER, drawn)[0], over(name, UPPER, drawn)[1]) for name in rates}
        return RateBounds(rates, draws, self.alpha)


def _inside(guess: Mapping[str, Floats], bounds: RateBounds) -> dict[str, Floats]:
    return {name: np.clip(rate, *bounds.rates[name]) for name, rate in guess.items()}


class N0(Assumption):
    """Total variation of at most a radius between true and recorded groups."""

    level = "N0"

    @property
    def stated(self) -> str | None:
        """Stated radii, or those of a table that is used for nothing else."""
        if self.evidence.noise.radii is not None:
            return "the given radii"
        table, only = self.evidence.table, self.evidence.noise.assumption.word == "radii"
        return f"radii computed from {table.source}" if only and table is not None else None

    def bounds(self, weaker: Mapping[Level, RateBounds]) -> RateBounds:
        """Return the bounds of balls; of decisions that are drawn after the recording, see :class:`N1`."""
        if self.evidence.balls is None:
            raise Unavailable(NO_TABLE)
        balls, drawn = self.evidence.balls
        profiles = self.evidence.data.profiles
        accepted = None if profiles is None else profiles.accepted
        near = partial(ball_bounds, accepted=accepted, home=balls.home)
        return self._bounded(partial(tv_bounds, home=balls.home), near, balls.radii[None], drawn[None])

    def points(self, bounds: RateBounds) -> Mapping[str, Floats]:
        """Return the rates of the recorded groups that true ones are near."""
        balls, recorded = self.evidence.balls, self.evidence.recorded
        return {} if balls is None else {name: rates[balls[0].home] for name, rates in recorded.items()}


class N1(Assumption):
    """A table of true and recorded groups."""

    level: ClassVar[Level] = "N1"
    by_label: ClassVar[bool] = False

    @property
    def stated(self) -> str | None:
        """A table."""
        table = self.evidence.table
        if table is None or (self.by_label and not table.by_label):
            return None
        return f"the table {'by label ' if self.by_label else ''}in {table.source}"

    def bounds(self, weaker: Mapping[Level, RateBounds]) -> RateBounds:
        """Return the bounds of all noise that fits the table.

        Of decisions that are drawn after the recording, noise does not depend on the draw.
        """
        evidence = self.evidence
        if evidence.table is None:
            raise Unavailable(NO_TABLE)
        if self.by_label and not evidence.by_label:
            raise Unavailable("the table is not by label")
        joints, drawn = evidence.joints, evidence.joints_drawn
        if not self.by_label:
            joints, drawn = evidence.plain(joints), evidence.plain(drawn)
        return self._bounded(table_bounds, level_bounds, joints, drawn)


class N2(N1):
    """A table of true and recorded groups by label."""

    level = "N2"
    by_label = True


class N3(Assumption):
    """Noise depends on outcomes by at most eps."""

    level = "N3"

    @property
    def stated(self) -> str | None:
        """A number, of a table."""
        eps = self.evidence.noise.epsilon
        return None if eps is None else f"noise depends on outcomes by at most {eps:g}"

    def bounds(self, weaker: Mapping[Level, RateBounds]) -> RateBounds:
        """Return the bounds of linear programs."""
        evidence, table, eps = self.evidence, self.evidence.table, self.evidence.noise.epsilon
        if eps is None or table is None:
            raise Unavailable("not stated (`assume=eps=NUMBER`)")
        if evidence.curve is None:
            raise Unavailable(SHARES_OPEN)
        if evidence.curve.least > eps:
            raise Unavailable(
                f"the data refute that noise depends on outcomes by at most {eps:g}: the smallest eps they allow is "
                f"{evidence.curve.least:.4f}"
            )
        metrics = evidence.data.metrics
        rates = {name: evidence.curve.at(name, eps) for name in metrics}
        if not evidence.replicates:
            return RateBounds(rates, {}, self.alpha)
        tables = table.carried(evidence.masses_drawn, table.of_recording, evidence.entries_drawn)[0]
        data = evidence.data.cells, evidence.curve.table
        draws = Draws(data, evidence.drawn, tables, evidence.imagined, max(eps, evidence.curve.room))
        ends = draws.ends(metrics, self.alpha / 2)
        return RateBounds(rates, ends, self.alpha)

    def points(self, bounds: RateBounds) -> Mapping[str, Floats]:
        """Return the rates under N4, where they are identified, inside the bounds."""
        guess = self.evidence.weighted
        with suppress(DataError):
            masses = self.evidence.inverted[0].masses
            guess = {name: ratio.of(masses) for name, ratio in self.evidence.data.metrics.items()}
        return _inside(guess, bounds)


class N4(Assumption):
    """Noise depends on nothing but the true group, and the label if the table is by label."""

    level = "N4"

    @property
    def stated(self) -> str | None:
        """The statement, for a table."""
        if not self.evidence.noise.class_conditional:
            return None
        by = " and the label" if self.evidence.by_label else ""
        return f"noise depends only on the true group{by}, and decisions do not use the recorded one"

    def bounds(self, weaker: Mapping[Level, RateBounds]) -> RateBounds:
        """Return the estimates, inside the bounds by the table alone."""
        if not self.evidence.noise.class_conditional:
            raise Unavailable("not stated (`assume=class-conditional`)")
        (inverted, drawn), data = self.evidence.inverted, self.evidence.data
        level: Level = "N2" if self.evidence.by_label else "N1"
        by = " and the label" if self.evidence.by_label else ""
        allowed, groups = weaker[level], self.evidence.true
        rates: dict[str, Pair] = {}
        draws: dict[str, Pair] = {}
        beyond: list[tuple[str, str]] = []
        refuted: list[tuple[str, str]] = []
        share = self.alpha / (len(data.metrics) * len(groups))
        for name, ratio in data.metrics.items():
            rate = ratio.of(inverted.masses)
            kept = np.clip(rate, *allowed.rates[name])
            rates[name] = kept, kept
            off = np.abs(rate - kept) > TOLERANCE
            beyond += [(name, groups[j]) for j in np.flatnonzero(off)]
            if drawn is None:
                continue
            low, high = allowed.draws[name]
            least, most = (ratio.of(self.evidence.inverted_for(drawn, ratio, end)) for end in (LOWER, UPPER))
            # a draw that leaves a group no rows says nothing but what the table allows
            empty = np.isnan(least) | np.isnan(most)
            least, most = np.where(empty, low, least), np.where(empty, high, most)
            draws[name] = np.clip(least, low, high), np.clip(most, low, high)
            above, below = most - low, high - least
            never = np.fmin(quantile(above, 1 - share), quantile(below, 1 - share)) < -TOLERANCE
            refuted += [(name, groups[j]) for j in np.flatnonzero(never & off)]
        if refuted:
            raise Unavailable(
                f"the data refute that noise depends only on the true group{by}: beyond sampling error, it gives "
                f"{_listed(refuted)} that the table excludes ({level})"
            )
        if beyond:
            self.notes.append(
                f"N4: the inversion gives {_listed(beyond)} that the table excludes ({level}), by no more than "
                "sampling error or a slightly wrong assumption causes; the nearest allowed value is shown"
            )
        residual = np.abs(inverted.residual).max()
        if residual > TOLERANCE:
            self.notes.append(
                f"N4: there are more recorded than true groups, and the masses of their intersections are off by up to "
                f"{residual:.2g} of all rows; 0 if the assumption holds and there is no sampling error"
            )
        return RateBounds(rates, draws, self.alpha)

    def points(self, bounds: RateBounds) -> Mapping[str, Floats]:
        """Return the estimates."""
        return {name: low for name, (low, _) in bounds.rates.items()}

    def standard_error(self, ratio: Ratio) -> Floats | None:
        """Return the standard error of the inversion, the table taken as known."""
        data = self.evidence.data
        return standard_error(data.cells, self.evidence.inverted[0], ratio, data.rows)


def _listed(cases: Sequence[tuple[str, str]]) -> str:
    """Return in words the metrics and groups given."""
    parts = [
        f"{name} of {', '.join(g for n, g in cases if n == name)}"
        for name in dict.fromkeys(n for n, _ in cases)
    ]
    return f"values ({'; '.join(parts)})"


ASSUMPTIONS: tuple[type[Assumption], ...] = (N0, N1, N2, N3, N4)
"""From the weakest to the strongest."""
