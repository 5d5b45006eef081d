"""GuaranteeStatistics: what is guaranteed, and the statistics of training or held-out rows that bound it.

:mod:`fairfix.stats.population` has the bounds, :mod:`fairfix.tasks.guarantee` the search for a rule within them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from fairfix.auditing.comparisons import Comparison
from fairfix.auditing.criteria import events_of
from fairfix.data.counts import Bools, Floats, Ints, rows_of_each
from fairfix.data.memberships import memberships
from fairfix.data.names import attribute_name, group_name
from fairfix.data.scales import scaled
from fairfix.data.table import Groups, Table
from fairfix.individual.by_model import decisions_that_change
from fairfix.methods.base import Repairer
from fairfix.methods.guarantee import GuaranteeAdapter, adapter_of
from fairfix.models.predictors import RepairedPredictor
from fairfix.models.score_models import GroupTube
from fairfix.noise.description import Noise
from fairfix.noise.dual_certificates import PossibleTrueGroups
from fairfix.stats.population import (
    BoundedStatistic,
    CovariancesOfRules,
    DistancesOfRules,
    GroupLosses,
    NumberCovariances,
    OverallRate,
    RatesHeldOut,
    RatesOfRules,
    WeightedRates,
)
from fairfix.tasks.guarantee_under_noise import SURVEY, TrueGroupDistances, rows_of_rules
from fairfix.tasks.repaired_rows import RepairedRows

BETS = "the Waudby-Smith-Ramdas betting bound"
CLOPPER = "Clopper-Pearson binomial tails"
DUALS = "betting bounds on dual values of rows, by linear programming duality"
CHERNOFF = "Chernoff-Hoeffding tails"
"""Names of inequalities."""


_Parted = tuple[list[str], Ints, Ints]
"""Names of groups, the number of each row's group, and the blocks of groups that are compared with one another."""


class _Cells(NamedTuple):
    """Outputs of a rule for the rows of groups, in each event."""

    names: tuple[str, ...]
    numbers: tuple[Floats, ...]
    blocks: Ints

    @property
    def rates(self) -> dict[str, Any]:
        """Names, numbers of rows, rates and blocks."""
        rates = [float(own.mean()) if own.size else 0.0 for own in self.numbers]
        rows = np.array([own.size for own in self.numbers])
        return {"names": self.names, "rows": rows, "rates": np.array(rates), "blocks": self.blocks}


@dataclass(frozen=True)
class GuaranteeStatistics:
    """A guarantee that is asked for, of the groups of all rows that are used."""

    repairer: Repairer
    confidence: float
    table: Table
    """All rows that are used."""
    comparison: Comparison
    noise: Noise | None = None
    """Knowledge about the recorded groups, where the comparison is about true ones."""

    @property
    def adapter(self) -> GuaranteeAdapter:
        """The limits of the repairer."""
        return adapter_of(self.repairer)

    @property
    def alpha(self) -> float:
        """Probability that the guarantee is wrong."""
        return 1.0 - self.confidence

    @cached_property
    def attributes(self) -> tuple[tuple[str, ...], ...]:
        """The columns whose groups are compared, each for itself."""
        return self.repairer.constrained_attributes(self.table.data_spec.columns.protected)

    @cached_property
    def true_groups(self) -> PossibleTrueGroups | None:
        """The true groups behind recorded ones; None where groups are as they are recorded."""
        if self.noise is None:
            return None
        names, column = self.table.groups().names, attribute_name(self.table.data_spec.columns.protected)
        return self.adapter.true_groups(self.noise, names, column, self.alpha * SURVEY)

    @cached_property
    def requested(self) -> Floats:
        """The largest allowed gaps, of all groups, (1,), or of each, (K,)."""
        gaps = self.adapter.gaps(self.table.groups())
        return np.array([self.repairer.slack]) if gaps is None else gaps

    @cached_property
    def bounded(self) -> Ints:
        """Indices of those with a bound: a loss need not have one in every group."""
        return np.flatnonzero(np.isfinite(self.requested) | (self.comparison.kind != "max"))

    # ------------------------------------------------------------------ training rows

    def uniform(self, rule: RepairedPredictor, fitted: Table, alpha: float) -> BoundedStatistic:
        """Return the statistic of training rows whose bound is uniform over all rules of a score."""
        assert rule.variation is not None
        if self.comparison.metric == "ks":
            return self._distances(rule, fitted, alpha)
        if self.comparison.kind == "covariance":
            assert rule.variation.max() <= 1.0  # each rule rises with the score
            return self._covariances(rule, fitted, alpha)
        groups = self._groups(fitted, rule.columns, rule.levels)  # type: ignore[attr-defined]  # of groups
        cells = self._cells(fitted, _chance(fitted, rule), [[groups]])
        return RatesOfRules(
            **cells.rates,
            alpha=alpha,
            variation=np.tile(rule.variation, len(cells.names) // rule.variation.size),
            rising=self.adapter.rising,
            least_ratio=self.repairer.parsed_constraint.least,
        )

    def _covariances(self, rule: RepairedPredictor, fitted: Table, alpha: float) -> CovariancesOfRules:
        """Return covariances with membership, of the groups in each stratum."""
        groups = self._crossed
        compared = self._groups(fitted, groups.columns, groups.levels)
        seen = self._cells(fitted, _chance(fitted, rule), [[compared]])
        rates, whole = seen.rates, np.bincount(groups.codes, minlength=len(groups.levels))
        parts = tuple(
            DistancesOfRules.from_rates(
                rates["rates"][inside][:, None],
                whole[inside],
                names=tuple(seen.names[k] for k in inside),
                rows=rates["rows"][inside],
                alpha=alpha,
                rising=self.adapter.rising,
            )
            for inside in (np.flatnonzero(seen.blocks == one) for one in np.unique(seen.blocks))
            if inside.size > 1
        )
        return CovariancesOfRules(**_everybody(fitted), alpha=alpha, strata=parts)

    def _distances(self, rule: RepairedPredictor, fitted: Table, alpha: float) -> BoundedStatistic:
        """Return distances of groups to all rows, or, within strata, of any two groups of one stratum.

        Values of a randomized map are as expected over their draws, others as they are.
        """
        groups = self._crossed
        code = fitted.codes(groups.columns, groups.levels)
        value, mass, owner = rule.predict(fitted), np.ones(len(fitted)), code
        if isinstance(rule, GroupTube) and rule.tube.outputs is not None:
            own, at, parts = rule.moved(fitted), fitted.codes(rule.columns, rule.levels), []
            for k, inside in enumerate(rows_of_each(at, len(rule.levels))):
                number, outcome, chance = rule.tube.outcomes(k, own[inside])
                parts.append((code[inside][number], outcome, chance))
            owner, value, mass = (np.concatenate(one) for one in zip(*parts, strict=True))
        rows, whole = (np.bincount(one, minlength=len(groups.levels)) for one in (code, groups.codes))
        below = _shares_below(value, owner, mass, rows.size)
        seen: dict[str, Any] = {"names": groups.names, "rows": rows, "alpha": alpha}
        if strata := self.table.data_spec.columns.strata:
            blocks = _strata_of(groups.levels, len(strata))
            return RatesOfRules(**seen, rates=below, blocks=blocks, variation=np.ones(rows.size), rising=True)
        return DistancesOfRules.from_rates(below, whole, **seen)

    # ------------------------------------------------------------------ held-out rows

    def held_out(self, rule: RepairedPredictor, fitted: Table, held: Table, alpha: float) -> BoundedStatistic:
        """Return the statistic of rows that had no part in a finished rule; ``fitted`` are those that had."""
        of, everybody = self.comparison, {**_everybody(held), "alpha": alpha}
        if self.true_groups is not None:
            everybody["alpha"] = alpha * (1.0 - SURVEY * self.true_groups.surveyed)
            of_fit, of_held = (rows_of_rules(rule, table, self.true_groups) for table in (fitted, held))
            return TrueGroupDistances(
                **everybody, tail=DUALS, fit=of_fit, held=of_held, true_groups=self.true_groups
            )
        if self.repairer.membership:
            return self._weighted_rates(rule, fitted, held, everybody)
        if self.repairer.parsed_constraint.numbers:
            return self._number_covariances(rule, fitted, held, everybody)
        if of.scope == "under_flips":
            rate = float(decisions_that_change(held, rule, self.table).mean())
            tail = CHERNOFF if rule.randomized else CLOPPER
            return OverallRate(**everybody, tail=tail, rate=rate, counted=not rule.randomized)
        losses = self.adapter.losses(rule, fitted, held)
        ks, others = of.metric == "ks", of.scope == "to_overall"

        def cells_of(table: Table) -> _Cells:
            own = losses if table is held else self.adapter.losses(rule, fitted, table)
            if own is not None:
                return self._compared(table, own.loss, others)
            return self._compared(table, rule.predict(table) if ks else _chance(table, rule), others)

        cells = cells_of(held)
        seen = {**cells.rates, "alpha": alpha, "tail": CLOPPER, "others": others}
        if losses is not None:
            before, bounded = cells_of(fitted).numbers, self.bounded
            return GroupLosses(
                names=tuple(cells.names[k] for k in bounded),
                rows=seen["rows"][bounded],
                alpha=alpha,
                tail=BETS,
                upper=losses.upper,
                losses=tuple(cells.numbers[k] for k in bounded),
                spread=np.array([before[k].std() for k in bounded]),
            )
        if ks:
            at = np.append(-np.inf, np.unique(np.concatenate(cells.numbers)))
            below = [np.searchsorted(np.sort(own), at, "right") / max(own.size, 1) for own in cells.numbers]
            if others and self.bounded.size > 1:  # each group has a limit of its own
                seen["alpha"] = alpha / (len(below) // 2)
            seen["rates"] = np.array(below)
        elif of.kind == "ratio":
            seen["least_ratio"] = self.repairer.parsed_constraint.least
            if held is not fitted:  # decisions are drawn to count them, by nothing that rows have
                draws = np.random.default_rng(0)
                taken = [int((draws.random(own.size) < own).sum()) for own in cells.numbers]
                seen["rates"] = np.array(taken) / np.maximum(seen["rows"], 1)
        elif rule.randomized:  # rows have probabilities, whose spread training rows show
            spread = tuple(float(own.std()) if own.size else 0.0 for own in cells_of(fitted).numbers)
            seen |= {"numbers": cells.numbers, "spread": spread, "tail": BETS}
        return RatesHeldOut(**seen)

    def _weighted_rates(
        self, rule: RepairedPredictor, fitted: Table, held: Table, everybody: dict[str, Any]
    ) -> WeightedRates:
        """Return rates weighted by probabilities of membership."""
        groups, columns = zip(*self.repairer.membership.items(), strict=True)

        def weighted(table: Table) -> tuple[Floats, Floats]:
            z = memberships(table, columns).T
            return np.concatenate([z * inside for _, inside in self._events(table)]), _chance(table, rule)

        (before, was), (weights, chance) = weighted(fitted), weighted(held)
        total = before.sum(axis=1, keepdims=True)
        rates = np.divide((before @ was)[:, None], total, out=np.zeros(total.shape), where=total > 0)
        blocks, spread = np.arange(len(weights)) // len(groups), (before * (was - rates)).std(axis=1)
        return WeightedRates(
            **everybody, tail=BETS, chance=chance, weights=weights, blocks=blocks, spread=spread
        )

    def _number_covariances(
        self, rule: RepairedPredictor, fitted: Table, held: Table, everybody: dict[str, Any]
    ) -> NumberCovariances:
        """Return covariances of decisions with numbers, on the scales of the training rows."""
        (before, was), (x, chance) = (
            (scaled(table, rule.scales).T, _chance(table, rule)) for table in (fitted, held)
        )
        ends = [max(one.high - one.mean, one.mean - one.low) / one.deviation for one in rule.scales]
        centre = float(was.mean())
        return NumberCovariances(
            **everybody,
            tail=BETS,
            upper=max(one.widest for one in rule.scales) / 4,  # of the largest variances of both
            chance=chance,
            numbers=x,
            ends=np.array(ends),
            centre=centre,
            chance_spread=float(was.std()),
            spread=(before * (was - centre)).std(axis=1),
        )

    # ------------------------------------------------------------------ groups and events

    def _events(self, table: Table) -> Iterator[tuple[str, Bools]]:
        """Yield the rows over which rates are means: the end of a name, and a mask."""
        label, of = table.rows.label, self.comparison
        for one in (None,) if of.metric == "ks" or of.kind == "max" else events_of(of.metric):
            inside = np.full(len(table), True) if one is None else np.asarray(label == one)
            yield "" if one is None else f", label {one}", inside

    def _compared(self, table: Table, gives: Floats, others: bool) -> _Cells:
        """Return the groups of each attribute, or each group with all ``others``; ``gives``: what each row has."""
        strata = () if others else self.table.data_spec.columns.strata
        parts = []
        for columns in ((*strata, *attribute) for attribute in self.attributes):
            levels = self.table.groups(columns).levels
            groups = self._groups(table, columns, levels, named=len(self.attributes) > 1 and not others)
            parts.append(_with_others(*groups) if others else [groups])
        return self._cells(table, gives, parts)

    def _groups(
        self, table: Table, columns: Sequence[str], levels: Sequence[tuple[str, ...]], *, named: bool = False
    ) -> _Parted:
        """Return the groups of columns, compared within strata. ``named``: with the names of their columns."""
        strata = len(self.table.data_spec.columns.strata)
        own = ["" if at < strata or not named else f"{name}=" for at, name in enumerate(columns)]
        titles = [group_name(map(str.__add__, own, level)) for level in levels]
        return titles, table.codes(columns, levels), _strata_of(levels, strata)

    def _cells(self, table: Table, gives: Floats, attributes: Sequence[list[_Parted]]) -> _Cells:
        """Return what the rows of the groups of each attribute have in each event; each has blocks of its own."""
        names: list[str] = []
        numbers: list[Floats] = []
        blocks: list[Ints] = []
        for parts, (event, inside) in product(attributes, list(self._events(table))):
            for titles, code, block in parts:
                here = inside & (code >= 0)
                names += [f"{title}{event}" for title in titles]
                numbers += [gives[here][own] for own in rows_of_each(code[here], len(titles))]
                blocks.append(block + (blocks[-1].max() + 1 if blocks else 0))
        return _Cells(tuple(names), tuple(numbers), np.concatenate(blocks))

    @cached_property
    def _crossed(self) -> Groups:
        """The groups inside strata of all rows that are used."""
        columns = self.table.data_spec.columns
        return self.table.groups((*columns.strata, *columns.protected))


def _with_others(titles: list[str], code: Ints, blocks: Ints) -> list[_Parted]:
    """Return each of several groups with all others, a block each."""
    both = np.zeros(2, dtype=np.int64)
    parts = [([name, f"not {name}"], (code != k).astype(np.int64), both) for k, name in enumerate(titles)]
    return parts if len(parts) > 1 else []


def _everybody(table: Table) -> dict[str, Any]:
    """Return the name and the rows of a statistic of all rows together."""
    return {"names": ("everybody",), "rows": np.array([len(table)])}


def _shares_below(value: Floats, code: Any, mass: Floats, groups: int) -> Floats:
    """Return the shares of each group's mass that have values of at most each value, from 0, (groups, c + 1)."""
    order = np.argsort(value, kind="stable")
    last = np.append(value[order][1:] != value[order][:-1], True)[: value.size]
    each = [np.cumsum(np.where(code[order] == k, mass[order], 0.0))[last] for k in range(groups)]
    total = [max(float(mass[code == k].sum()), 1e-300) for k in range(groups)]
    below = np.stack([np.minimum(own / all_, 1.0) for own, all_ in zip(each, total, strict=True)])
    return np.concatenate([np.zeros((groups, 1)), below], axis=1)


def _chance(table: Table, rule: RepairedPredictor) -> Floats:
    """Return the probability of a positive decision of each row, shape (n,)."""
    return RepairedRows(table, rule).shipped.repaired.decisions


def _strata_of(levels: Sequence[tuple[str, ...]], columns: int) -> Ints:
    """Return the number of each level's stratum, which its first columns name, shape (K,)."""
    number = {name: at for at, name in enumerate(dict.fromkeys(one[:columns] for one in levels))}
    return np.array([number[one[:columns]] for one in levels])
