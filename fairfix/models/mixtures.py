"""Mixtures: predictors that combine several scorers, by drawing one, averaging them, or a rule over all of them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import cycle
from typing import Annotated, ClassVar, Literal

import numpy as np
from msgspec import Meta

from fairfix.data.codec import ABOVE_0, Array, Inner, Setting
from fairfix.data.counts import Floats
from fairfix.data.table import Table
from fairfix.models.program import Program
from fairfix.models.score_models import OfScorers, Scorer, ScorerPart, ScorersPart
from fairfix.solvers.group_blind_rates import LEAST, BlindMixture, Chances
from fairfix.solvers.plugin_rule import LAST_DRAW, PluginRule

Inside = Annotated[float, Meta(gt=0, lt=1)]

CERTAIN = 1.0 - 1e-9
"""A sum of shares above this is 1, but for rounding."""

TYPES = {"part": "<i8", "cut": "<f8", "below": "<i8", "upto": "<f8", "values": "<f8"}
RULE = Inner(PluginRule, {name: Array(kind, (None,)) for name, kind in TYPES.items()})
"""Saved form of the tree of a plug-in rule."""


@dataclass(frozen=True, eq=False)
class PluginScore(OfScorers):
    """A score drawn by the expected label and the probabilities of groups, which does not see the group."""

    kind: ClassVar[str] = "plugin_score"

    label: Annotated[Scorer, ScorerPart()]
    """Where the expected label comes from."""
    group: Annotated[Scorer, ScorerPart(one_number=False)]
    """Where the probabilities of groups come from; that of the label where the rule does not look at groups."""
    rule: Annotated[PluginRule, RULE]
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
        return program.add("trees", *inputs, start=0.0, roots=[0], **tree)

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

    models: Annotated[tuple[Scorer, ...], ScorersPart("model", "models")]
    weights: Annotated[Floats, Array("<f8", ("models",), ABOVE_0)]
    """Shape (M,), positive, of sum 1."""
    averaged: Annotated[bool, Setting()]
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

    models: Annotated[tuple[Scorer, ...], ScorersPart("model", "models")]
    thresholds: Annotated[Floats, Array("<f8", ("models",))]
    """Least score that each model accepts, shape (M,)."""
    weights: Annotated[Floats, Array("<f8", ("models",), ABOVE_0)]
    """Shape (M,), positive, with ``always`` of sum 1 at most."""
    always: Annotated[float, Meta(ge=0, le=1), Setting()]
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

    models: Annotated[tuple[Scorer, ...], ScorersPart("model", "models")]
    """Models of ``P(y = 1 | x)`` and, for each attribute, of ``P(group | x, y)`` for ``y = 1`` and for ``y = 0``."""
    prior: Annotated[tuple[Inside, Inside], Setting()]
    """``P(y = 0)`` and ``P(y = 1)``."""
    cells: Annotated[Floats, Array("<f8", ("classes",), ABOVE_0)]
    """``P(group, y)`` of the classes of all models but the first, in order, shape (J,)."""
    prices: Annotated[Floats, Array("<f8", ("rules", "classes"))]
    """Multipliers of the classes for each rule, shape (R, J)."""
    shares: Annotated[Floats, Array("<f8", ("rules",), ABOVE_0)]
    """Shape (R,), with ``always`` of sum 1 at most."""
    always: Annotated[float, Meta(ge=0, le=1), Setting()]
    """Acceptance probability that is the same for all rows."""

    @classmethod
    def of(cls, models: tuple[Scorer, ...], mixture: BlindMixture) -> BlindRule:
        """Return the rule of a mixture."""
        cells = np.concatenate([np.zeros(0), *(part for pair in mixture.rule.cells for part in pair)])
        return cls(models, mixture.rule.prior, cells, mixture.prices, mixture.shares, mixture.always)

    @property
    def sound(self) -> bool:
        """Whether the first model gives one number, the others the classes, and the shares sum to 1 at most."""
        first, *sizes = (one.classes_given for one in self.models)
        pairs = first is None and sizes[::2] == sizes[1::2] and None not in sizes
        whole = float(self.shares.sum()) + self.always <= 1.0 + 1e-9
        return whole and pairs and sum(size or 0 for size in sizes) == self.cells.size

    @property
    def randomized(self) -> bool:
        """Whether decisions are drawn: there is more than one rule."""
        return self.shares.size != 1 or float(self.shares[0]) < 1.0

    def write(self, program: Program) -> int:
        """Write the chance to be accepted: the shares of the rules whose score is above 0."""
        zero, one, yes = program.constant(0.0), program.constant(1.0), program.scorer(self.models[0])
        no, (pi_0, pi_1) = program.add("subtract", one, yes), self.prior
        odds = (program.add("divide", own, program.constant(pi)) for own, pi in ((yes, pi_1), (no, pi_0)))
        gain = program.add("multiply", program.constant(0.5), program.add("subtract", *odds))
        gaps, sizes = list[int](), iter(self.cells.tolist())
        for model, (own, pi) in zip(self.models[1:], cycle(((yes, pi_1), (no, pi_0))), strict=False):
            for chance in program.class_scores(model):
                ratio = program.add("divide", chance, program.constant(next(sizes)))
                gaps.append(program.add("multiply", own, program.affine(ratio, 1.0, -1.0 / pi)))
        parts = [program.constant(self.always)]
        for prices in self.prices:
            accepted = program.add("below", zero, program.dot([gain, *gaps], [1.0, *prices]))
            parts.append(program.add("choose", accepted, one, zero))
        total = program.dot(parts, [1.0, *self.shares])
        sure = program.add("below", program.constant(1.0 - LEAST), total)
        return program.add("choose", sure, one, total)


def probabilities_of(
    table: Table, label: Scorer, groups: tuple[tuple[Scorer, Scorer], ...]
) -> tuple[Floats, Chances]:
    """Return ``P(y = 1 | x)`` of each row, and ``P(group | x, y)`` of each attribute for ``y = 1`` and ``y = 0``."""
    return label(table), tuple((one(table), zero(table)) for one, zero in groups)
