"""Mixtures: predictors that combine several scorers, by drawing one, averaging them, or a rule over all of them."""

from __future__ import annotations

import math
from collections.abc import Mapping
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
from fairfix.data.counts import Floats
from fairfix.data.table import Table
from fairfix.models.program import Program, tree_settings
from fairfix.models.score_models import OfScorers, Scorer, ScorerPart, ScorersPart
from fairfix.solvers.group_blind_rates import LEAST, BlindMixture, Chances, EqualRates
from fairfix.solvers.plugin_rule import LAST_DRAW, PluginRule

CERTAIN = 1.0 - 1e-9
"""A sum of shares above this is 1, but for rounding."""

TYPES = {"part": "<i8", "cut": "<f8", "below": "<i8", "upto": "<f8", "values": "<f8"}
RULE = Inner(PluginRule, {name: Array(kind, (None,)) for name, kind in TYPES.items()})
"""Saved form of the tree of a plug-in rule."""


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
        """Models of the label, and of the group where the rule uses it."""
        return (self.label, self.group) if self.rule.groups else (self.label,)

    @property
    def randomized(self) -> bool:
        """Whether some rows get a value that is drawn."""
        return bool(self.rule.moves and self.rule.spread.any())

    def _cell(self, program: Program) -> int:
        """Write the cell of each row: the leaf that its expected label and its probabilities of groups lead to."""
        rule, inner = self.rule, self.rule.below >= 0
        inputs = [program.scorer(self.label), *(program.class_scores(self.group) if rule.groups else ())]
        nodes = np.arange(rule.part.size)
        tree = {  # a node is its own child where it is a leaf; the value of a leaf is its cell
            "feature": np.where(inner, rule.part, 0),
            "threshold": rule.cut,
            "left": np.where(inner, rule.below, nodes),
            "right": np.where(inner, rule.below + 1, nodes),
            "value": np.where(inner, 0, rule.part).astype(np.float64),
            "missing_left": np.zeros(nodes.size, dtype=bool),
        }
        return program.add("trees", *inputs, **tree_settings(tree, [0], 0.0))

    def write(self, program: Program) -> int:
        """Write the value: a draw from the cell's distribution."""
        rule = self.rule
        if not rule.moves:
            return program.scorer(self.label)
        cell, first = (
            self._cell(program),
            np.searchsorted(rule.upto, np.arange(rule.spread.size), side="right"),
        )
        alone = program.take(rule.values[first], cell)
        if not rule.spread.any():
            return alone
        draw = program.add("minimum", program.draw, program.constant(LAST_DRAW))
        place = program.search(rule.upto, program.add("add", cell, draw), right=True)
        drawn = program.take([*rule.values, math.nan], place)
        return program.select(program.take(rule.spread.astype(np.float64), cell), [alone, drawn])

    def write_drawn(self, program: Program) -> int | None:
        """Write whether the cell has more than one value."""
        if not self.randomized:
            return None
        return program.take(self.rule.spread.astype(np.float64), self._cell(program))


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

    def write(self, program: Program) -> int:
        """Write the average, or the score of the model that is drawn."""
        scores = [program.scorer(model) for model in self.models]
        if not self.randomized:
            return program.dot(scores, self.weights)
        return program.select(program.search(np.cumsum(self.weights)[:-1], program.draw, right=True), scores)

    def write_drawn(self, program: Program) -> int | None:
        """Write that all values are drawn, where models are."""
        return program.constant(1.0) if self.randomized else None


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
    """Acceptance probability that is the same for all rows."""

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

    def write(self, program: Program) -> int:
        """Write the chance to be accepted: the weights of the models that accept."""
        one, zero, parts = program.constant(1.0), program.constant(0.0), [program.constant(self.always)]
        for model, least in zip(self.models, self.thresholds.tolist(), strict=True):
            accepted = program.add("at_most", program.constant(least), program.scorer(model))
            parts.append(program.add("choose", accepted, one, zero))
        total = program.dot(parts, [1.0, *self.weights])
        return program.add("choose", program.add("at_most", total, program.constant(CERTAIN)), total, one)


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
        rule = EqualRates(cells, held["prior"], cells)
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

    def write(self, program: Program) -> int:
        """Write the chance to be accepted: the shares of the rules whose score is above 0."""
        zero, one = program.constant(0.0), program.constant(1.0)
        (pi_0, pi_1), yes = self.mixture.rule.prior, program.scorer(self.label)
        no = program.add("subtract", one, yes)
        odds = (program.add("divide", own, program.constant(pi)) for own, pi in ((yes, pi_1), (no, pi_0)))
        gain = program.add("multiply", program.constant(0.5), program.add("subtract", *odds))
        gaps = []
        for scorers, cells in zip(self.groups, self.mixture.rule.cells, strict=True):
            for scorer, sizes, own, pi in zip(scorers, cells, (yes, no), (pi_1, pi_0), strict=True):
                for chance, size in zip(program.class_scores(scorer), sizes.tolist(), strict=True):
                    ratio = program.add("divide", chance, program.constant(size))
                    gaps.append(program.add("multiply", own, program.affine(ratio, 1.0, -1.0 / pi)))
        parts = [program.constant(self.mixture.always)]
        for prices in self.mixture.prices:
            accepted = program.add("below", zero, program.dot([gain, *gaps], [1.0, *prices]))
            parts.append(program.add("choose", accepted, one, zero))
        total = program.dot(parts, [1.0, *self.mixture.shares])
        sure = program.add("below", program.constant(1.0 - LEAST), total)
        return program.add("choose", sure, one, total)


def probabilities_of(
    table: Table, label: Scorer, groups: tuple[tuple[Scorer, Scorer], ...]
) -> tuple[Floats, Chances]:
    """Return ``P(y = 1 | x)`` of each row, and ``P(group | x, y)`` of each attribute for ``y = 1`` and ``y = 0``."""
    return label(table), tuple((one(table), zero(table)) for one, zero in groups)
