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
from fairfix.data.counts import Ints
from fairfix.data.names import group_name
from fairfix.data.table import Table
from fairfix.individual.by_model import decisions_that_change
from fairfix.methods.base import Repairer
from fairfix.models.predictors import RepairedPredictor
from fairfix.models.scorers import GroupTube
from fairfix.noisy.prices import Behind
from fairfix.stats.population import (
    Distances,
    Evidence,
    Losses,
    OfEverybody,
    PairsHeldOut,
    PairsOfRules,
    RatiosOfRules,
    ToOthers,
)
from fairfix.tasks.behind import SURVEY, BehindNoise, ruled_rows
from fairfix.tasks.proof import results_on


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
            assert isinstance(rule, GroupTube)
            return self._distances(rule, fitted)
        columns, levels = rule.columns, rule.levels  # type: ignore[attr-defined]  # rules of groups have them
        strata, many = _strata_of(levels, len(columns) - len(fitted.reading.columns.protected))
        rates = self._rates(rule, fitted, columns, levels)
        events = len(rates.pop("blocks")) // len(levels)
        kind = RatiosOfRules if self.of.kind == "ratio" else PairsOfRules
        return kind(
            **rates,
            alpha=self.alpha,
            blocks=(strata + many * np.arange(events)[:, None]).ravel(),
            variation=np.tile(variation, events),
        )

    def _rates(
        self,
        rule: RepairedPredictor,
        table: Table,
        columns: Sequence[str],
        levels: Sequence[tuple[str, ...]],
        *,
        of: int | None = None,
    ) -> dict[str, Any]:
        """Return names, numbers of rows and rates of the groups in each event, and the number of the event.

        ``of``: from which column on a level is named with its column, as those of several attributes may be alike.
        """
        code, chance = table.codes(columns, levels), results_on(table, rule)[1].chance
        assert chance is not None
        names, rows, rates = [], [], []
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
        return {
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
                tail="bets on prices of rows, by duality of linear programs",
                fit=ruled_rows(rule, fitted, self.behind),
                held=ruled_rows(rule, held, self.behind),
                behind=self.behind,
            )
        if (losses := self._losses(rule, fitted, held)) is not None:
            return losses
        if of.metric == "ks":
            return self._distances(rule, held)
        if of.scope == "under_flips":
            changed = decisions_that_change(held, rule, self.table)
            counted = not rule.randomized
            return OfEverybody(
                names=("everybody",),
                rows=np.array([len(held)]),
                alpha=self.alpha,
                tail=_tail(counted=counted),
                share=float(changed.mean()),
                counted=counted,
            )
        counted = not rule.randomized
        more: dict[str, Any] = {"alpha": self.alpha, "tail": _tail(counted=counted), "counted": counted}
        if of.scope == "to_overall":
            return ToOthers(**self._against_others(rule, held), **more)
        return PairsHeldOut(**self._of_attributes(rule, held), **more)

    def _of_attributes(self, rule: RepairedPredictor, held: Table) -> dict[str, Any]:
        """Return names, numbers of rows, rates and blocks of the groups of each attribute, inside each stratum."""
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
        return {"names": tuple(name for one in parts for name in one["names"]), **joined}

    def _losses(self, rule: RepairedPredictor, fitted: Table, held: Table) -> Losses | None:
        """Return the losses of groups, of which stakes are set by the rows of the fit; None where none are bounded."""
        if (seen := self.repairer.losses_of(rule, fitted, held)) is None:
            return None
        before = self.repairer.losses_of(rule, fitted, fitted)
        assert before is not None
        groups = self.table.groups()
        code, was = (one.codes(groups.columns, groups.levels) for one in (held, fitted))
        losses = tuple(seen[1][code == k] for k in self.asked)
        return Losses(
            names=tuple(groups.names[k] for k in self.asked),
            rows=np.array([own.size for own in losses]),
            alpha=self.alpha,
            tail="the betting bound of Waudby-Smith and Ramdas",
            most=seen[2],
            losses=losses,
            spread=np.array([before[1][was == k].std() for k in self.asked]),
        )

    def _against_others(self, rule: RepairedPredictor, held: Table) -> dict[str, Any]:
        """Return names, numbers of rows and rates of each group and all others, by column and event."""
        chance = results_on(held, rule)[1].chance
        assert chance is not None
        names, rows, rates = [], [], []
        for column in held.reading.columns.protected:
            levels = self.table.groups([column]).levels
            code = held.codes([column], levels)
            for name, inside in self._events(held) if len(levels) > 1 else ():
                for k, level in enumerate(map(group_name, levels)):
                    for mine, title in ((code == k, level), (code != k, f"not {level}")):
                        own = chance[inside & mine]
                        rates.append(float(own.mean()) if own.size else 0.0)
                        rows.append(own.size)
                        names.append(f"{title}{name}")
        return {"names": tuple(names), "rows": np.array(rows), "rates": np.array(rates).reshape(-1, 2)}

    def _distances(self, rule: RepairedPredictor, table: Table) -> Distances:
        """Return distances of values: of a tube as expected over its draws, of others as their values are drawn."""
        groups = self.table.groups()
        code = table.codes(groups.columns, groups.levels)
        shares = np.bincount(groups.codes, minlength=len(groups.levels)) / len(self.table)
        value, mass, of = rule.predict(table), np.ones(len(table)), code
        if isinstance(rule, GroupTube) and rule.tube.outputs is not None:
            own, at = rule.moved(table), table.codes(rule.columns, rule.levels)
            parts = []
            for k in range(len(rule.levels)):
                inside = np.flatnonzero(at == k)
                number, outcome, chance = rule.tube.outcomes(k, own[inside])
                parts.append((code[inside][number], outcome, chance))
            of, value, mass = (np.concatenate(one) for one in zip(*parts, strict=True))
        many = np.bincount(code, minlength=len(groups.levels))
        order = np.argsort(value, kind="stable")
        last = np.append(value[order][1:] != value[order][:-1], True)
        below = np.stack(
            [
                np.cumsum(np.where(of[order] == k, mass[order], 0.0))[last] / max(many[k], 1)
                for k in range(many.size)
            ]
        )
        return Distances(
            names=groups.names,
            rows=many,
            alpha=self.alpha,
            tail="the inequality of Dvoretzky, Kiefer and Wolfowitz",
            far=np.abs(below - shares @ below).max(axis=1),
            apart=float(np.ptp(below, axis=0).max()),
            shares=shares,
            total=len(self.table),
        )


def _strata_of(levels: Sequence[tuple[str, ...]], columns: int) -> tuple[Ints, int]:
    """Return the stratum of each level, which its first columns name, shape (K,), and how many strata there are."""
    place = {name: number for number, name in enumerate(dict.fromkeys(one[:columns] for one in levels))}
    return np.array([place[one[:columns]] for one in levels]), len(place)


def _tail(*, counted: bool) -> str:
    return "the binomial tails of Clopper and Pearson" if counted else "the tails of Chernoff and Hoeffding"
