"""Evidence: what the rows of a fit, or held-out rows, show of a rule of which something is promised.

Which bound follows is told by :mod:`fairfix.stats.population`; how the promise is made and worded by
:mod:`fairfix.tasks.guarantee`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fairfix.auditing.comparisons import Comparison
from fairfix.auditing.criteria import events_of
from fairfix.data.counts import Floats, Ints
from fairfix.data.memberships import memberships
from fairfix.data.names import group_name
from fairfix.data.scales import scaled
from fairfix.data.table import Groups, Table
from fairfix.individual.by_model import decisions_that_change
from fairfix.methods.base import Repairer
from fairfix.methods.guarantee import adapter_of
from fairfix.models.predictors import RepairedPredictor
from fairfix.models.score_models import GroupTube
from fairfix.noise.dual_certificates import Behind
from fairfix.stats.population import (
    CovariancesOfRules,
    Distances,
    DistancesToOthers,
    Evidence,
    Losses,
    OfEverybody,
    PairsHeldOut,
    PairsOfRules,
    RatiosHeldOut,
    RatiosOfRules,
    ToOthers,
    Trends,
    WeightedRates,
)
from fairfix.tasks.before_after import results_on
from fairfix.tasks.guarantee_under_noise import SURVEY, BehindNoise, ruled_rows

BETS = "the Waudby-Smith-Ramdas betting bound"
CLOPPER = "Clopper-Pearson binomial tails"
"""Names of inequalities."""


@dataclass(frozen=True)
class Witness:
    """What is looked at: the comparison that is bounded, of the groups of all rows that are used."""

    of: Comparison
    alpha: float
    """Chance at which the bound may be wrong."""
    table: Table
    repairer: Repairer
    attributes: tuple[tuple[str, ...], ...]
    """Columns whose groups are compared with one another, each for itself."""
    asked: Ints
    """Numbers of the groups whose losses have a bound."""
    behind: Behind | None
    """True groups behind recorded ones, where those are held alike; None where groups are as they are recorded."""

    def _events(self, table: Table) -> list[tuple[str, Any]]:
        """Return the rows over which rates are means: a name and a mask for each."""
        label = table.rows.label
        events = events_of(self.of.metric)
        return [
            (
                "" if one is None else f", label {one}",
                np.full(len(table), True) if one is None else label == one,
            )
            for one in events
        ]

    def of_rules(self, rule: RepairedPredictor, fitted: Table) -> Evidence:
        """Return what the rows of the fit show of a rule of the score."""
        variation = rule.variation
        assert variation is not None
        if self.of.metric == "ks":
            return _distances(self, rule, fitted)
        if self.of.kind == "covariance":
            assert variation.max() <= 1.0  # each rule rises with the score
            return self._covariances(rule, fitted)
        columns, levels = rule.columns, rule.levels  # type: ignore[attr-defined]  # rules of groups have them
        strata, many = _strata_of(levels, len(columns) - len(fitted.reading.columns.protected))
        rates = self._rates(rule, fitted, columns, levels)
        del rates["numbers"]
        events = len(rates.pop("blocks")) // len(levels)
        more: dict[str, Any] = {
            "alpha": self.alpha,
            "blocks": (strata + many * np.arange(events)[:, None]).ravel(),
            "variation": np.tile(variation, events),
            "rising": self.repairer.rises,
        }
        if self.of.kind == "ratio":
            assert self.repairer.least_ratio is not None
            return RatiosOfRules(**rates, **more, asked=self.repairer.least_ratio)
        return PairsOfRules(**rates, **more)

    def _rates(
        self,
        rule: RepairedPredictor,
        table: Table,
        columns: Sequence[str],
        levels: Sequence[tuple[str, ...]],
        *,
        of: int | None = None,
    ) -> dict[str, Any]:
        """Return names, numbers of rows, rates and chances of the groups in each event, and the number of the event.

        ``of``: from which column on a level is named with its column, as those of several attributes may be alike.
        """
        code, chance = table.codes(columns, levels), _chance(table, rule)
        names, rows, rates, numbers = [], [], [], []
        first = len(columns) if of is None else of
        titles = [
            group_name(f"{columns[at]}={one}" if at >= first else one for at, one in enumerate(level))
            for level in levels
        ]
        for name, inside in self._events(table):
            many = np.bincount(code[inside], minlength=len(levels))
            total = np.bincount(code[inside], chance[inside], len(levels))
            names += [f"{title}{name}" for title in titles]
            rows.append(many)
            rates.append(np.divide(total, many, out=np.zeros(len(levels)), where=many > 0))
            order = np.argsort(code[inside], kind="stable")
            seen = int((code[inside] < 0).sum())  # rows of groups that are not looked at come first
            numbers += np.split(chance[inside][order], seen + np.cumsum(many)[:-1])
            numbers[-len(levels)] = numbers[-len(levels)][seen:]
        return {
            "numbers": tuple(numbers),
            "names": tuple(names),
            "rows": np.concatenate(rows),
            "rates": np.concatenate(rates),
            "blocks": np.repeat(np.arange(len(rows)), len(levels)),
        }

    def of_held(self, rule: RepairedPredictor, fitted: Table, held: Table) -> Evidence:
        """Return what rows that had no part in a rule show of it; ``fitted``: those that had."""
        of = self.of
        if self.behind is not None:
            return BehindNoise(
                names=("everybody",),
                rows=np.array([len(held)]),
                alpha=self.alpha * (1.0 - SURVEY * self.behind.surveyed),
                tail="betting bounds on dual values of rows, by linear programming duality",
                fit=ruled_rows(rule, fitted, self.behind),
                held=ruled_rows(rule, held, self.behind),
                behind=self.behind,
            )
        if (losses := self._losses(rule, fitted, held)) is not None:
            return losses
        if of.metric == "ks":
            return _held_distances(self, rule, held)
        if self.repairer.membership:
            return self._weighted_rates(rule, fitted, held)
        if self.repairer.numbers:
            return self._trends(rule, fitted, held)
        if of.scope == "under_flips":
            changed = decisions_that_change(held, rule, self.table)
            counted = not rule.randomized
            return OfEverybody(
                names=("everybody",),
                rows=np.array([len(held)]),
                alpha=self.alpha,
                tail=CLOPPER if counted else "Chernoff-Hoeffding tails",
                share=float(changed.mean()),
                counted=counted,
            )
        if of.kind == "ratio":
            return self._held_ratios(rule, held, drawn=held is not fitted)
        parts = self._against_others if of.scope == "to_overall" else self._of_attributes
        seen = parts(rule, held)
        if (
            rule.randomized
        ):  # what it gives rows are chances, of which those of the fit tell how far they spread
            spread = (float(own.std()) if own.size else 0.0 for own in parts(rule, fitted)["numbers"])
            seen |= {"spread": tuple(spread), "tail": BETS}
        else:
            seen |= {"numbers": (), "tail": CLOPPER}
        kind = ToOthers if of.scope == "to_overall" else PairsHeldOut
        return kind(**seen, alpha=self.alpha)

    def _of_attributes(self, rule: RepairedPredictor, held: Table) -> dict[str, Any]:
        """Return names, rows, rates, chances and blocks of the groups of each attribute, inside each stratum."""
        parts: list[dict[str, Any]] = []
        strata = self.table.reading.columns.strata
        for attribute in self.attributes:
            columns = (*strata, *attribute)
            levels = self.table.groups(columns).levels
            at = len(strata) if len(self.attributes) > 1 else None
            own = self._rates(rule, held, columns, levels, of=at)
            stratum, many = _strata_of(levels, len(strata))
            own["blocks"] = own["blocks"] * many + np.tile(stratum, own["blocks"].size // len(levels))
            if parts:
                own["blocks"] = own["blocks"] + 1 + parts[-1]["blocks"].max()
            parts.append(own)
        joined = {name: np.concatenate([one[name] for one in parts]) for name in ("rows", "rates", "blocks")}
        listed = {name: tuple(one for own in parts for one in own[name]) for name in ("names", "numbers")}
        return {**listed, **joined}

    def _held_ratios(self, rule: RepairedPredictor, held: Table, *, drawn: bool) -> RatiosHeldOut:
        """Return rates of decisions, drawn with their chances so that they can be counted, or as they are expected."""
        seen = self._of_attributes(rule, held)
        numbers, draws = seen.pop("numbers"), np.random.default_rng(0)  # which hang on nothing that rows have
        if drawn:
            counts = [int((draws.random(own.size) < own).sum()) for own in numbers]
            seen["rates"] = np.array(counts) / np.maximum(seen["rows"], 1)
        return RatiosHeldOut(**seen, alpha=self.alpha, tail=CLOPPER)

    def _losses(self, rule: RepairedPredictor, fitted: Table, held: Table) -> Losses | None:
        """Return the losses of groups, of which stakes are set by the rows of the fit; None where none are bounded."""
        if (seen := adapter_of(self.repairer).losses(rule, fitted, held)) is None:
            return None
        before = adapter_of(self.repairer).losses(rule, fitted, fitted)
        assert before is not None
        groups = self.table.groups()
        code, was = (one.codes(groups.columns, groups.levels) for one in (held, fitted))
        losses = tuple(seen.loss[code == k] for k in self.asked)
        return Losses(
            names=tuple(groups.names[k] for k in self.asked),
            rows=np.array([own.size for own in losses]),
            alpha=self.alpha,
            tail=BETS,
            most=seen.upper,
            losses=losses,
            spread=np.array([before.loss[was == k].std() for k in self.asked]),
        )

    def _against_others(self, rule: RepairedPredictor, held: Table) -> dict[str, Any]:
        """Return names, numbers of rows, rates and chances of each group and all others, by column and event."""
        chance = _chance(held, rule)
        names, rows, rates, numbers = [], [], [], []
        for column in held.reading.columns.protected:
            levels = self.table.groups([column]).levels
            code = held.codes([column], levels)
            for name, inside in self._events(held) if len(levels) > 1 else ():
                for k, level in enumerate(map(group_name, levels)):
                    for mine, title in ((code == k, level), (code != k, f"not {level}")):
                        own = chance[inside & mine]
                        rates.append(float(own.mean()) if own.size else 0.0)
                        rows.append(own.size)
                        numbers.append(own)
                        names.append(f"{title}{name}")
        own = {"names": tuple(names), "numbers": tuple(numbers)}
        return {**own, "rows": np.array(rows), "rates": np.array(rates).reshape(-1, 2)}

    def _weighted_rates(self, rule: RepairedPredictor, fitted: Table, held: Table) -> WeightedRates:
        """Return rates weighted by probabilities of membership, of which stakes are set by the rows of the fit."""
        groups, columns = zip(*self.repairer.membership.items(), strict=True)

        def weighted(table: Table) -> tuple[Floats, Floats]:
            z = memberships(table, columns).T
            return np.concatenate([z * inside for _, inside in self._events(table)]), _chance(table, rule)

        (before, was), (weights, chance) = weighted(fitted), weighted(held)
        total = before.sum(axis=1, keepdims=True)
        rates = np.divide((before @ was)[:, None], total, out=np.zeros(total.shape), where=total > 0)
        return WeightedRates(
            names=("everybody",),
            rows=np.array([len(held)]),
            alpha=self.alpha,
            tail=BETS,
            chance=chance,
            weights=weights,
            blocks=np.repeat(np.arange(len(weights) // len(groups)), len(groups)),
            spread=(before * (was - rates)).std(axis=1),
        )

    def _trends(self, rule: RepairedPredictor, fitted: Table, held: Table) -> Trends:
        """Return how decisions go with numbers, counted on the scales of the fit, whose rows set the stakes."""
        (before, was), (x, chance) = (
            (scaled(table, rule.scales).T, _chance(table, rule)) for table in (fitted, held)
        )
        ends = [max(one.high - one.mean, one.mean - one.low) / one.deviation for one in rule.scales]
        centre = float(was.mean())
        return Trends(
            names=("everybody",),
            rows=np.array([len(held)]),
            alpha=self.alpha,
            tail=BETS,
            most=max(one.widest for one in rule.scales) / 4,  # of the largest variances of both
            chance=chance,
            numbers=x,
            ends=np.array(ends),
            centre=centre,
            spread_of_chance=float(was.std()),
            spread=(before * (was - centre)).std(axis=1),
        )

    def _covariances(self, rule: RepairedPredictor, fitted: Table) -> CovariancesOfRules:
        """Return covariances with membership, of the groups in each stratum."""
        columns = self.table.groups().columns
        strata = self.table.reading.columns.strata
        levels = self.table.groups((*strata, *columns)).levels
        stratum, many = _strata_of(levels, len(strata))
        rates = self._rates(rule, fitted, (*strata, *columns), levels)
        whole = np.bincount(self.table.codes((*strata, *columns), levels), minlength=len(levels))
        each = [np.flatnonzero(stratum == one) for one in range(many)]
        parts = []
        for inside in (one for one in each if one.size > 1):
            rate, share = rates["rates"][inside], whole[inside] / whole[inside].sum()
            parts.append(
                Distances(
                    names=tuple(rates["names"][k] for k in inside),
                    rows=rates["rows"][inside],
                    alpha=self.alpha,
                    far=np.abs(rate - share @ rate),
                    apart=float(np.ptp(rate)),
                    shares=share,
                    total=int(whole[inside].sum()),
                    rising=self.repairer.rises,
                )
            )
        return CovariancesOfRules(
            names=("everybody",), rows=np.array([len(fitted)]), alpha=self.alpha, strata=tuple(parts)
        )


def _distances(of: Witness, rule: RepairedPredictor, table: Table) -> Distances | PairsOfRules:
    """Return distances of values: of a tube as expected over its draws, of others as their values are drawn.

    Of groups to everybody, or, within strata, of any two groups of one stratum.
    """
    groups, code = _cells(of, table)
    shares = np.bincount(groups.codes, minlength=len(groups.levels)) / len(of.table)
    value, mass, owner = rule.predict(table), np.ones(len(table)), code
    if isinstance(rule, GroupTube) and rule.tube.outputs is not None:
        own, at = rule.moved(table), table.codes(rule.columns, rule.levels)
        parts = []
        for k in range(len(rule.levels)):
            inside = np.flatnonzero(at == k)
            number, outcome, chance = rule.tube.outcomes(k, own[inside])
            parts.append((code[inside][number], outcome, chance))
        owner, value, mass = (np.concatenate(one) for one in zip(*parts, strict=True))
    many = np.bincount(code, minlength=len(groups.levels))
    below = _shares_below(value, owner, mass, many.size)
    seen: dict[str, Any] = {"names": groups.names, "rows": many, "alpha": of.alpha}
    if of.table.reading.columns.strata:
        stratum, _ = _strata_of(groups.levels, len(of.table.reading.columns.strata))
        seen |= {"variation": np.ones(many.size), "rising": True}
        return PairsOfRules(**seen, rates=below, blocks=stratum)
    return Distances(
        **seen,
        far=np.abs(below - shares @ below).max(axis=1),
        apart=float(np.ptp(below, axis=0).max()),
        shares=shares,
        total=len(of.table),
    )


def _held_distances(of: Witness, rule: RepairedPredictor, held: Table) -> DistancesToOthers | PairsHeldOut:
    """Return the same of a finished rule, of which values are as they were drawn."""
    groups, code = _cells(of, held)
    value, one = rule.predict(held), np.ones(len(held))
    many = np.bincount(code, minlength=len(groups.levels))
    seen: dict[str, Any] = {"alpha": of.alpha, "tail": CLOPPER}
    if of.table.reading.columns.strata:
        stratum, _ = _strata_of(groups.levels, len(of.table.reading.columns.strata))
        below = _shares_below(value, code, one, many.size)
        return PairsHeldOut(**seen, names=groups.names, rows=many, rates=below, blocks=stratum)
    names = tuple(title for name in groups.names for title in (name, f"not {name}"))
    return DistancesToOthers(
        **seen,
        names=names,
        rows=np.stack([many, many.sum() - many], axis=1).ravel(),
        below=tuple(_shares_below(value, code != k, one, 2) for k in range(many.size)),
        together=of.asked.size == 1,
    )


def _cells(of: Witness, table: Table) -> tuple[Groups, Ints]:
    """Return the groups inside strata of all rows that are used, and the number of each row's."""
    groups = of.table.groups((*of.table.reading.columns.strata, *of.table.reading.columns.protected))
    return groups, table.codes(groups.columns, groups.levels)


def _shares_below(value: Floats, code: Ints, mass: Floats, groups: int) -> Floats:
    """Return the shares of each group's mass that have values of at most each value, from 0, (groups, c + 1)."""
    order = np.argsort(value, kind="stable")
    last = np.append(value[order][1:] != value[order][:-1], True)[: value.size]
    each = [np.cumsum(np.where(code[order] == k, mass[order], 0.0))[last] for k in range(groups)]
    total = [max(float(mass[code == k].sum()), 1e-300) for k in range(groups)]
    below = np.stack([np.minimum(own / all_, 1.0) for own, all_ in zip(each, total, strict=True)])
    return np.concatenate([np.zeros((groups, 1)), below], axis=1)


def _chance(table: Table, rule: RepairedPredictor) -> Floats:
    """Return the chance of a positive decision of each row, shape (n,)."""
    chance = results_on(table, rule)[1].chance
    assert chance is not None
    return chance


def _strata_of(levels: Sequence[tuple[str, ...]], columns: int) -> tuple[Ints, int]:
    """Return the stratum of each level, which its first columns name, shape (K,), and how many strata there are."""
    place = {name: number for number, name in enumerate(dict.fromkeys(one[:columns] for one in levels))}
    return np.array([place[one[:columns]] for one in levels]), len(place)
