"""Mixtures: predictors that combine several scorers, by drawing one, averaging them, or a rule over all of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from fairfix.data.codec import (
    ABOVE_0,
    BELOW_1,
    Array,
    Inner,
    Part,
    Setting,
    list_of,
    need,
    real,
    truth,
    whole,
)
from fairfix.data.counts import Bools, Floats, Ints
from fairfix.data.table import Table
from fairfix.models.score_models import OfScorers, Scorer, ScorerPart, ScorersPart
from fairfix.solvers.group_blind_rates import BlindMixture, Chances, EqualRates
from fairfix.solvers.plugin_rule import PluginRule

CERTAIN = 1.0 - 1e-9
"""A sum of shares above this is 1, but for rounding."""

TYPES = {"part": "<i8", "cut": "<f8", "below": "<i8", "upto": "<f8", "values": "<f8"}
RULE = Inner(PluginRule, {name: Array(kind, (None,)) for name, kind in TYPES.items()})
"""How the tree of a plug-in rule is kept."""


@dataclass(frozen=True, eq=False)
class PluginScore(OfScorers):
    """A score drawn by the expected label and the probabilities of groups, which does not see the group."""

    kind: ClassVar[str] = "plugin_score"
    parts: ClassVar[Mapping[str, Part]] = {
        "label": ScorerPart(),
        "group": ScorerPart(one_number=False),
        "rule": RULE,
    }

    label: Scorer
    """Where the expected label comes from."""
    group: Scorer
    """Where the probabilities of groups come from; that of the label where the rule does not look at groups."""
    rule: PluginRule
    """See :mod:`fairfix.solvers.plugin`."""

    @property
    def sound(self) -> bool:
        """Whether the rule is a tree whose leaves have distributions, and its groups have probabilities."""
        return self.rule.sound and self.rule.groups <= (self.group.classes_given or 0)

    @property
    def scorers(self) -> tuple[Scorer, ...]:
        """That of the label, and that of the group where the rule looks at it."""
        return (self.label, self.group) if self.rule.groups else (self.label,)

    @property
    def randomized(self) -> bool:
        """Whether some rows get a value that is drawn."""
        return bool(self.rule.moves and self.rule.spread.any())

    def predict(self, table: Table) -> Floats:
        """Return the value of each row."""
        return self.of_scores(table, self.label(table), self._group_probabilities(table))

    def redrawn(self, table: Table) -> Callable[[Table, Ints], Floats]:
        """Return what predicts rows of a table under new draws."""
        eta, pi = self.label(table), self._group_probabilities(table)
        return lambda rows, own: self.of_scores(rows, eta[own], pi[own])

    def of_scores(self, table: Table, eta: Floats, pi: Floats) -> Floats:
        """Return the value of each row from its expected label (n,) and its probabilities of groups (n, K)."""
        draw = table.draws if self.randomized else np.zeros(len(table))
        return self.rule.score(eta, pi, draw)

    def drawn(self, table: Table) -> Bools:
        """Return which rows have a value that hangs on a draw."""
        if not self.randomized:
            return np.zeros(len(table), dtype=bool)
        return self.rule.drawn(self.label(table), self._group_probabilities(table))

    def _group_probabilities(self, table: Table) -> Floats:
        if not self.rule.groups:
            return np.zeros((len(table), 0))
        return self.group(table)


@dataclass(frozen=True, eq=False)
class ModelMixture(OfScorers):
    """Several models with weights: one is drawn for each row, or they are averaged; one alone is a model."""

    kind: ClassVar[str] = "model_mixture"
    parts: ClassVar[Mapping[str, Part]] = {
        "models": ScorersPart("model", "models"),
        "averaged": Setting(truth),
        "weights": Array("<f8", ("models",), ABOVE_0),
    }

    models: tuple[Scorer, ...]
    weights: Floats
    """Shape (M,), positive, of sum 1."""
    averaged: bool
    """Whether the value is the average; else each row draws its model."""

    @property
    def sound(self) -> bool:
        """Whether the weights sum to 1, and each model gives one number."""
        return (
            all(one.classes_given is None for one in self.models)
            and abs(float(self.weights.sum()) - 1.0) < 1e-9
        )

    @property
    def randomized(self) -> bool:
        """Whether rows draw a model."""
        return len(self.models) > 1 and not self.averaged

    def predict(self, table: Table) -> Floats:
        """Return the value of each row."""
        return self.of_scores(table, np.stack([model(table) for model in self.models]))

    def redrawn(self, table: Table) -> Callable[[Table, Ints], Floats]:
        """Return what predicts rows of a table under new draws."""
        scores = np.stack([model(table) for model in self.models])
        return lambda rows, own: self.of_scores(rows, scores[:, own])

    def of_scores(self, table: Table, scores: Floats) -> Floats:
        """Return what each row gets of the models' scores, shape (M, n)."""
        if not self.randomized:
            return np.asarray(self.weights @ scores)
        drawn = np.searchsorted(np.cumsum(self.weights)[:-1], table.draws, side="right")
        return np.asarray(scores[drawn, np.arange(len(table))])

    def drawn(self, table: Table) -> Bools:
        """Return which rows have a value that hangs on a draw: all, where models are drawn."""
        return np.full(len(table), self.randomized)


@dataclass(frozen=True, eq=False)
class DecisionMixture(OfScorers):
    """Decisions of several models, each at a threshold of its own: which decides is drawn for each row."""

    kind: ClassVar[str] = "decision_mixture"
    gives: ClassVar[Literal["decision"]] = "decision"
    parts: ClassVar[Mapping[str, Part]] = {
        "models": ScorersPart("model", "models"),
        "thresholds": Array("<f8", ("models",)),
        "weights": Array("<f8", ("models",), ABOVE_0),
        "always": Setting(real(0.0, 1.0)),
    }

    models: tuple[Scorer, ...]
    thresholds: Floats
    """Least score that each model accepts, shape (M,)."""
    weights: Floats
    """Shape (M,), positive, with ``always`` of sum 1 at most."""
    always: float
    """Share of a rule that accepts everybody."""

    @property
    def sound(self) -> bool:
        """Whether the shares sum to 1 at most, and each model gives one number."""
        return (
            all(one.classes_given is None for one in self.models)
            and float(self.weights.sum()) + self.always < 2.0 - CERTAIN
        )

    @property
    def randomized(self) -> bool:
        """Whether some chance lies between 0 and 1."""
        shares = [*self.weights.tolist(), self.always]
        return any(1.0 - CERTAIN < share < CERTAIN for share in shares)

    def predict(self, table: Table) -> Floats:
        """Return the chance of each row to be accepted."""
        return self.of_scores([model(table) for model in self.models], len(table))

    def of_scores(self, scores: Sequence[Floats], rows: int) -> Floats:
        """Return the chance of rows by the models' scores, shape (n,) each."""
        out = np.full(rows, self.always)
        for score, least, weight in zip(scores, self.thresholds, self.weights, strict=True):
            out += np.where(score >= least, weight, 0.0)
        return np.where(out > CERTAIN, 1.0, out)


@dataclass(frozen=True, eq=False)
class BlindRule(OfScorers):
    """Decisions of equal rates that do not see the group (:class:`fairfix.solvers.group_blind_rates.BlindMixture`)."""

    kind: ClassVar[str] = "blind_rule"
    gives: ClassVar[Literal["decision"]] = "decision"
    parts: ClassVar[Mapping[str, Part]] = {
        "scorers": ScorersPart("scorer", "scorers"),
        "groups": Setting(list_of(whole(2), least=1)),
        "prior": Setting(list_of(real(ABOVE_0, BELOW_1), 2, 2)),
        "always": Setting(real(0.0, 1.0)),
        "mu": Array("<f8", ("rules", 2, "groups")),
        "cells": Array("<f8", (2, "groups"), ABOVE_0),
        "shares": Array("<f8", ("rules",), ABOVE_0),
    }

    label: Scorer
    """Where ``P(y = 1 | x)`` comes from."""
    groups: tuple[tuple[Scorer, Scorer], ...]
    """For each attribute where ``P(group | x, y)`` comes from, for ``y = 1`` and for ``y = 0``."""
    mixture: BlindMixture

    def held(self) -> Mapping[str, Any]:
        """Return the value of every part; groups of all attributes end to end."""
        mixture, rule = self.mixture, self.mixture.rule
        cells = np.concatenate([np.stack(pair) for pair in rule.cells], axis=1)
        mu = [
            np.concatenate([np.stack(pair) for pair in rule.priced(one).mu], axis=1) for one in mixture.prices
        ]
        return {
            "scorers": self.scorers,
            "groups": [int(one.size) for one, _ in rule.mu],
            "prior": rule.prior,
            "always": mixture.always,
            "mu": np.array(mu).reshape(len(mu), *cells.shape),
            "cells": cells,
            "shares": mixture.shares,
        }

    @classmethod
    def made_of(cls, held: Mapping[str, Any]) -> BlindRule:
        """Return what has these values of its parts."""
        sizes, shares, (first, *others) = held["groups"], held["shares"], held["scorers"]
        need(len(others) == 2 * len(sizes), "there is not a scorer for the label and two for each attribute")
        given = [one.classes_given for one in (first, *others)]
        need(given == [None, *(size for size in sizes for _ in range(2))], "a scorer is not of its groups")
        need(sum(sizes) == held["cells"].shape[1], "the number of intersections differs from that of groups")
        need(float(shares.sum()) + held["always"] <= 1.0 + 1e-9, "the probabilities add up to more than 1")
        cuts = np.cumsum(sizes)[:-1]
        cells = tuple((one, zero) for one, zero in np.split(held["cells"], cuts, axis=1))
        prices = [
            np.concatenate([part for pair in np.split(mu, cuts, axis=1) for part in pair])
            for mu in held["mu"]
        ]
        rule = EqualRates(cells, held["prior"], cells, math.nan, math.nan, True)
        mixture = BlindMixture(
            rule, np.array(prices).reshape(shares.size, 2 * sum(sizes)), shares, held["always"]
        )
        return cls(first, tuple(zip(others[::2], others[1::2], strict=True)), mixture)

    @property
    def scorers(self) -> tuple[Scorer, ...]:
        """All of them."""
        return (self.label, *(one for pair in self.groups for one in pair))

    @property
    def randomized(self) -> bool:
        """Whether decisions are drawn."""
        return self.mixture.randomized

    def predict(self, table: Table) -> Floats:
        """Return the chance of a positive decision of each row."""
        return self.mixture.chance(*probabilities_of(table, self.label, self.groups))


def probabilities_of(
    table: Table, label: Scorer, groups: tuple[tuple[Scorer, Scorer], ...]
) -> tuple[Floats, Chances]:
    """Return ``P(y = 1 | x)`` of each row, and ``P(group | x, y)`` of each attribute for ``y = 1`` and ``y = 0``."""
    return label(table), tuple((one(table), zero(table)) for one, zero in groups)
