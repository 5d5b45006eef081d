"""Predictors of values: repaired scores and regressions, from the model's score or from members over features.

What a predictor looks at is a :class:`Scorer`: the model's own score as it is, or a fitted member over a matrix of
features. :class:`GroupTube` maps scores group by group.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, Self

import numpy as np
import numpy.typing as npt

from fairfix.data.counts import Bools, Floats
from fairfix.data.table import Table
from fairfix.errors import ArtifactError
from fairfix.models.features import Features
from fairfix.models.learners import LinearMember, Member, NetworkMember, TreesMember
from fairfix.models.predictors import FitTrace, RepairedPredictor, codes_of
from fairfix.optim.blind_rates import BlindMixture, Chances, EqualRates
from fairfix.optim.plugin_rule import PluginRule
from fairfix.optim.quantiles import Levels, Tube

Arrays = Mapping[str, npt.NDArray[Any]]


@dataclass(frozen=True, eq=False)
class Scorer:
    """Where scores come from: a member over features, or the model's score as it is where there is no member.

    Attributes
    ----------
    features, member
        Both or none.
    bounds
        Least and greatest value, which others are moved to; None for no bounds.
    """

    features: Features | None = None
    member: Member | None = None
    bounds: tuple[float, float] | None = None

    def __call__(self, table: Table) -> Floats:
        """Return the score of each row, shape (n,), or probabilities of classes, shape (n, K)."""
        if self.features is None or self.member is None:
            score = table.rows.score
            assert score is not None
            out = score if table.reading.task == "regression" else table.probability
        else:
            out = self.member.predict(self.features.matrix(table, gaps=self.member.kind == "trees"))
        return self.bounded(out)

    def bounded(self, values: Floats) -> Floats:
        """Return values moved into the bounds."""
        return values if self.bounds is None else np.clip(values, *self.bounds)

    @property
    def groups(self) -> tuple[str, ...]:
        """Protected columns that it looks at."""
        return self.features.groups if self.features else ()

    @property
    def inputs(self) -> dict[str, str]:
        """Feature columns that it looks at, with their kinds."""
        return self.features.inputs if self.features else {}

    @property
    def needs_score(self) -> bool:
        """Whether it looks at the model's score."""
        return self.features is None or self.features.needs_score

    def state(self, prefix: str) -> tuple[dict[str, Any] | None, dict[str, npt.NDArray[Any]]]:
        """Return (JSON settings, arrays whose names begin with the prefix and a point)."""
        bounds = None if self.bounds is None else list(self.bounds)
        if self.features is None or self.member is None:
            return {"bounds": bounds}, {}
        settings, arrays = self.member.state()
        named = {f"{prefix}.{name}": array for name, array in arrays.items()}
        member = {"kind": self.member.kind, "settings": settings}
        return {"bounds": bounds, "features": self.features.state(), "member": member}, named

    @classmethod
    def from_state(cls, prefix: str, settings: Any, arrays: Arrays) -> Scorer:
        """Return the scorer of a saved state.

        Raises
        ------
        ArtifactError
            The state does not fit together.
        """
        if not isinstance(settings, Mapping) or set(settings) not in (
            {"bounds"},
            {"bounds", "features", "member"},
        ):
            raise ArtifactError("the artifact does not say where its scores come from")
        bounds = _bounds(settings["bounds"])
        if "member" not in settings:
            return cls(bounds=bounds)
        features, told = Features.from_state(settings["features"]), settings["member"]
        if (
            not isinstance(told, Mapping)
            or set(told) != {"kind", "settings"}
            or told["kind"] not in Member.kinds
        ):
            raise ArtifactError("the artifact holds a member of an unknown kind")
        own = {
            name.removeprefix(f"{prefix}."): a for name, a in arrays.items() if name.startswith(f"{prefix}.")
        }
        member = Member.kinds[told["kind"]].from_state(told["settings"], own)
        wide = len(features.titles)
        if isinstance(member, LinearMember) and len(member.coef) != wide:
            raise ArtifactError("a member of the artifact has another number of coefficients than features")
        if isinstance(member, NetworkMember) and len(member.hidden) != wide:
            raise ArtifactError("a member of the artifact is of another number of features")
        if isinstance(member, TreesMember) and member.features != len(features.titles_with_gaps):
            raise ArtifactError("a member of the artifact is of another number of features")
        return cls(features, member, bounds)


def _bounds(told: Any) -> tuple[float, float] | None:
    if told is None:
        return None
    if not (
        isinstance(told, list)
        and len(told) == 2
        and all(isinstance(b, float) for b in told)
        and told[0] <= told[1]
    ):
        raise ArtifactError("the bounds of the artifact's scores are malformed")
    return told[0], told[1]


class ValuePredictor(RepairedPredictor):
    """A predictor of values, which looks at scorers."""

    gives: ClassVar[Literal["decision", "value"]] = "value"

    @property
    def scorers(self) -> tuple[Scorer, ...]:
        """All scorers it looks at."""
        raise NotImplementedError

    def traced(self, trace: FitTrace) -> Self:
        """Return the predictor with this trace."""
        return replace(self, trace=trace)  # type: ignore[type-var]  # every kind is a dataclass

    def unrepaired(self, table: Table) -> Floats:
        """Return the first scorer's score of each row."""
        return self.scorers[0](table)

    @property
    def needs_protected(self) -> bool:  # type: ignore[override]  # an attribute of the base, derived here
        """Whether some protected column is looked at."""
        return bool(self.inputs)

    @property
    def needs_score(self) -> bool:  # type: ignore[override]  # an attribute of the base, derived here
        """Whether the model's score is looked at."""
        return any(scorer.needs_score for scorer in self.scorers)

    @property
    def inputs(self) -> tuple[str, ...]:  # type: ignore[override]  # an attribute of the base, derived here
        """Group columns that prediction looks at."""
        return tuple(dict.fromkeys(name for scorer in self.scorers for name in scorer.groups))

    @property
    def features(self) -> Mapping[str, str]:  # type: ignore[override]  # an attribute of the base, derived here
        """Feature columns that prediction looks at, with their kinds."""
        return {name: kind for scorer in self.scorers for name, kind in scorer.inputs.items()}


@dataclass(frozen=True, eq=False)
class Unrepaired(ValuePredictor):
    """The scores of a scorer as they are: what a repair is compared with."""

    kind: ClassVar[str] = "unrepaired"

    scorer: Scorer
    trace: FitTrace = field(default=FitTrace(True, 0, float("nan")))

    @property
    def scorers(self) -> tuple[Scorer, ...]:
        """The one scorer."""
        return (self.scorer,)

    def predict(self, table: Table) -> Floats:
        """Return the score of each row."""
        return self.scorer(table)

    def state(self) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
        """Return the scorer's state."""
        settings, arrays = self.scorer.state("scorer")
        return {"scorer": settings}, arrays

    @classmethod
    def from_state(cls, settings: Mapping[str, Any], arrays: Arrays) -> Self:
        """Return the predictor of a saved state, checked."""
        if set(settings) != {"scorer"}:
            raise ArtifactError(f"a {cls.kind} predictor has other settings than this artifact holds")
        return cls(Scorer.from_state("scorer", settings["scorer"], arrays))


@dataclass(frozen=True, eq=False)
class GroupedScore(ValuePredictor):
    """One score, of which a rule makes something else in each group.

    Attributes
    ----------
    columns
        Columns whose levels make the group.
    levels
        One tuple of levels per group, sorted.
    scorer
        Where the score comes from.
    """

    columns: tuple[str, ...]
    levels: tuple[tuple[str, ...], ...]
    scorer: Scorer

    @property
    def scorers(self) -> tuple[Scorer, ...]:
        """The one scorer."""
        return (self.scorer,)

    @property
    def inputs(self) -> tuple[str, ...]:  # type: ignore[override]  # an attribute of the base, derived here
        """Group columns that prediction looks at."""
        return tuple(dict.fromkeys((*self.columns, *self.scorer.groups)))


@dataclass(frozen=True, eq=False)
class GroupTube(GroupedScore):
    r"""A score moved into a tube of distributions, group by group; see :mod:`fairfix.optim.quantiles`.

    Attributes
    ----------
    columns, levels, scorer
        Of the groups, and of the score; see :class:`GroupedScore`.
    tube
        What becomes of the scores of each group.
    """

    kind: ClassVar[str] = "group_tube"

    tube: Tube
    trace: FitTrace = field(default=FitTrace(True, 0, float("nan")))

    @property
    def randomized(self) -> bool:  # type: ignore[override]  # an attribute of the base, derived here
        """Whether some rows get a value that is drawn."""
        return self.tube.drawn

    def predict(self, table: Table) -> Floats:
        """Return the value of each row; NaN for groups not seen in the fit."""
        return self.of_scores(table, self.scorer(table))

    def of_scores(self, table: Table, score: Floats) -> Floats:
        """Return the value of each row from its score, shape (n,)."""
        code = codes_of(table, self.columns, self.levels)
        draw = table.draws if self.randomized else np.zeros(len(table))
        out = np.full(score.shape, np.nan)
        for k in range(len(self.levels)):
            inside = code == k
            out[inside] = self.tube.of_group(k, score[inside], draw[inside])
        return out

    def drawn(self, table: Table) -> Bools:
        """Return which rows have a value that hangs on a draw: those whose levels reach over several values."""
        code, score = codes_of(table, self.columns, self.levels), self.scorer(table)
        out = np.zeros(len(table), dtype=bool)
        for k in range(len(self.levels)):
            inside = code == k
            out[inside] = self.tube.hangs_on_draw(k, score[inside])
        return out

    def state(self) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
        """Return the groups and the numbers of their atoms as settings, atoms, values and steps as arrays."""
        settings, arrays = self.scorer.state("scorer")
        tube = self.tube
        told = {
            "columns": list(self.columns),
            "levels": [list(level) for level in self.levels],
            "atoms": [int(one.first.size) for one in tube.levels],
            "moved": tube.values is not None,
            "scorer": settings,
        }
        parts = {part: np.concatenate([getattr(one, part) for one in tube.levels]) for part in LEVEL_PARTS}
        return told, {
            **arrays,
            **parts,
            **({} if tube.values is None else {"values": tube.values, "steps": tube.steps}),
        }

    @classmethod
    def from_state(cls, settings: Mapping[str, Any], arrays: Arrays) -> Self:
        """Return the predictor of a saved state, checked."""
        own = {name: a for name, a in arrays.items() if not name.startswith("scorer.")}
        wanted = {*LEVEL_PARTS, *(("values", "steps") if settings.get("moved") else ())}
        if set(settings) != {"columns", "levels", "atoms", "moved", "scorer"} or set(own) != wanted:
            raise ArtifactError(f"a {cls.kind} has other settings or arrays than this artifact holds")
        columns, levels = names_and_levels(cls.kind, settings)
        sizes, values = settings["atoms"], own.get("values")
        steps = own.get("steps", np.ones((len(levels), 0)))
        sound = (
            isinstance(sizes, list)
            and len(sizes) == len(levels)
            and all(isinstance(size, int) and size > 0 for size in sizes)
            and all(a.dtype == np.float64 and bool(np.isfinite(a).all()) for a in own.values())
            and all(own[part].shape == (sum(sizes),) for part in LEVEL_PARTS)
            and (values is None or _are_steps(values, steps, len(levels)))
        )
        if not sound:
            raise ArtifactError(f"the parts of this {cls.kind} do not fit together")
        cuts = np.cumsum(sizes)[:-1]
        split = zip(*(np.split(own[part], cuts) for part in LEVEL_PARTS), strict=True)
        parts = tuple(Levels(*four) for four in split)
        if not all(_are_levels(one) for one in parts):
            raise ArtifactError(f"the parts of this {cls.kind} do not fit together")
        tube = Tube(parts, values, steps)
        return cls(columns, levels, Scorer.from_state("scorer", settings["scorer"], arrays), tube)


def _are_steps(values: npt.NDArray[Any], steps: npt.NDArray[Any], groups: int) -> bool:
    """Tell whether values increase, and each group reaches them by levels that do not decrease and end at 1."""
    return (
        values.ndim == 1
        and values.size > 0
        and steps.shape == (groups, values.size)
        and bool((np.diff(values) >= 0).all() and (np.diff(steps) >= 0).all())
        and bool((steps[:, 0] >= 0).all() and (steps[:, -1] == 1).all())
    )


def _are_levels(one: Levels) -> bool:
    """Tell whether atoms do not overlap, and their levels increase from 0 to 1 at most."""
    scores, levels = (np.stack(pair, axis=1).ravel() for pair in ((one.first, one.last), (one.low, one.high)))
    return bool(
        (np.diff(scores) >= 0).all()
        and (np.diff(one.first) > 0).all()
        and (np.diff(levels) >= 0).all()
        and levels[0] >= 0
        and levels[-1] <= 1
    )


@dataclass(frozen=True, eq=False)
class PluginScore(ValuePredictor):
    """A score drawn by the expected label and the probabilities of groups, which does not see the group.

    Attributes
    ----------
    label, group
        Where the expected label and the probabilities of groups come from; the second is the first where the rule does
        not look at groups.
    rule
        See :mod:`fairfix.optim.plugin`.
    """

    kind: ClassVar[str] = "plugin_score"

    label: Scorer
    group: Scorer
    rule: PluginRule
    trace: FitTrace = field(default=FitTrace(True, 0, float("nan")))

    @property
    def scorers(self) -> tuple[Scorer, ...]:
        """That of the label, and that of the group where the rule looks at it."""
        return (self.label, self.group) if self.rule.groups else (self.label,)

    @property
    def randomized(self) -> bool:  # type: ignore[override]  # an attribute of the base, derived here
        """Whether some rows get a value that is drawn."""
        return bool(self.rule.moves and self.rule.spread.any())

    def predict(self, table: Table) -> Floats:
        """Return the value of each row."""
        return self.of_scores(table, self.label(table), self._chances(table))

    def of_scores(self, table: Table, eta: Floats, pi: Floats) -> Floats:
        """Return the value of each row from its expected label (n,) and its probabilities of groups (n, K)."""
        draw = table.draws if self.randomized else np.zeros(len(table))
        return self.rule.score(eta, pi, draw)

    def drawn(self, table: Table) -> Bools:
        """Return which rows have a value that hangs on a draw."""
        if not self.randomized:
            return np.zeros(len(table), dtype=bool)
        return self.rule.drawn(self.label(table), self._chances(table))

    def _chances(self, table: Table) -> Floats:
        if not self.rule.groups:
            return np.zeros((len(table), 0))
        pi = self.group(table)
        if pi.ndim != 2 or pi.shape[1] < self.rule.groups:
            raise ArtifactError(f"the parts of this {self.kind} do not fit together")
        return pi

    def state(self) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
        """Return the scorers as settings, tree and values as arrays."""
        label, label_arrays = self.label.state("label")
        group, group_arrays = self.group.state("group")
        own = {name: getattr(self.rule, name) for name in RULE_PARTS}
        return {"label": label, "group": group}, {**label_arrays, **group_arrays, **own}

    @classmethod
    def from_state(cls, settings: Mapping[str, Any], arrays: Arrays) -> Self:
        """Return the predictor of a saved state, checked."""
        own = {name: a for name, a in arrays.items() if not name.startswith(("label.", "group."))}
        if set(settings) != {"label", "group"} or set(own) != set(RULE_PARTS):
            raise ArtifactError(f"a {cls.kind} has other settings or arrays than this artifact holds")
        right = all(own[name].ndim == 1 and own[name].dtype == kind for name, kind in RULE_PARTS.items())
        rule = PluginRule(**own) if right else None
        if rule is None or not rule.sound:
            raise ArtifactError(f"the parts of this {cls.kind} do not fit together")
        label = Scorer.from_state("label", settings["label"], arrays)
        return cls(label, Scorer.from_state("group", settings["group"], arrays), rule)


@dataclass(frozen=True, eq=False)
class ModelMixture(ValuePredictor):
    """Several models with weights: one is drawn for each row, or they are averaged; one alone is a model.

    Attributes
    ----------
    models
        Where scores come from.
    weights
        Shape (M,), positive, of sum 1.
    averaged
        Whether the value is the average; else each row draws its model.
    """

    kind: ClassVar[str] = "model_mixture"

    models: tuple[Scorer, ...]
    weights: Floats
    averaged: bool
    trace: FitTrace = field(default=FitTrace(True, 0, float("nan")))

    @property
    def scorers(self) -> tuple[Scorer, ...]:
        """All models."""
        return self.models

    @property
    def randomized(self) -> bool:  # type: ignore[override]  # an attribute of the base, derived here
        """Whether rows draw a model."""
        return len(self.models) > 1 and not self.averaged

    def predict(self, table: Table) -> Floats:
        """Return the value of each row."""
        return self.of_values(table, np.stack([model(table) for model in self.models]))

    def of_values(self, table: Table, values: Floats) -> Floats:
        """Return what each row gets of the models' values, shape (M, n)."""
        if not self.randomized:
            return np.asarray(self.weights @ values)
        drawn = np.searchsorted(np.cumsum(self.weights)[:-1], table.draws, side="right")
        return np.asarray(values[drawn, np.arange(len(table))])

    def unrepaired(self, table: Table) -> Floats:
        """Return the value of each row: it hangs on no group."""
        return self.predict(table)

    def drawn(self, table: Table) -> Bools:
        """Return which rows have a value that hangs on a draw: all, where models are drawn."""
        return np.full(len(table), self.randomized)

    def state(self) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
        """Return the models' states, and the weights."""
        parts = [model.state(f"model{i}") for i, model in enumerate(self.models)]
        arrays = {name: array for _, own in parts for name, array in own.items()}
        return {"models": [told for told, _ in parts], "averaged": self.averaged}, {
            **arrays,
            "weights": self.weights,
        }

    @classmethod
    def from_state(cls, settings: Mapping[str, Any], arrays: Arrays) -> Self:
        """Return the predictor of a saved state, checked."""
        told, weights = settings.get("models"), arrays.get("weights")
        sound = (
            set(settings) == {"models", "averaged"}
            and isinstance(settings["averaged"], bool)
            and isinstance(told, list)
            and weights is not None
            and weights.dtype == np.float64
            and weights.shape == (len(told),)
            and weights.size > 0
            and bool((weights > 0).all())
            and abs(float(weights.sum()) - 1.0) < 1e-9
        )
        if not sound or told is None or weights is None:
            raise ArtifactError(f"the parts of this {cls.kind} do not fit together")
        models = tuple(Scorer.from_state(f"model{i}", one, arrays) for i, one in enumerate(told))
        return cls(models, weights, settings["averaged"])


@dataclass(frozen=True, eq=False)
class BlindRule(ValuePredictor):
    """Decisions of equal rates that do not see the group; see :class:`fairfix.optim.blind_rates.BlindMixture`.

    Attributes
    ----------
    label
        Where ``P(y = 1 | x)`` comes from.
    groups
        For each attribute where ``P(group | x, y)`` comes from, for ``y = 1`` and for ``y = 0``.
    mixture
        What is made of them.
    """

    kind: ClassVar[str] = "blind_rule"
    gives: ClassVar[Literal["decision", "value"]] = "decision"

    label: Scorer
    groups: tuple[tuple[Scorer, Scorer], ...]
    mixture: BlindMixture
    trace: FitTrace = field(default=FitTrace(True, 0, float("nan")))

    @property
    def scorers(self) -> tuple[Scorer, ...]:
        """All of them."""
        return (self.label, *(one for pair in self.groups for one in pair))

    @property
    def randomized(self) -> bool:  # type: ignore[override]  # an attribute of the base, derived here
        """Whether decisions are drawn."""
        return self.mixture.randomized

    def predict(self, table: Table) -> Floats:
        """Return the chance of a positive decision of each row."""
        return self.mixture.chance(*chances_of(table, self.label, self.groups))

    def unrepaired(self, table: Table) -> Floats:
        """Return the same: it hangs on no group."""
        return self.predict(table)

    def state(self) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
        """Return the scorers, the sizes and the share of everybody as settings, prices and shares as arrays."""
        parts = {f"scorer{i}": one.state(f"scorer{i}") for i, one in enumerate(self.scorers)}
        arrays = {name: array for _, own in parts.values() for name, array in own.items()}
        mixture, rule = self.mixture, self.mixture.rule
        told = {
            "scorers": [settings for settings, _ in parts.values()],
            "groups": [int(one.size) for one, _ in rule.mu],
            "prior": list(rule.prior),
            "always": mixture.always,
        }
        cells = np.concatenate([np.stack(pair) for pair in rule.cells], axis=1)
        mu = [
            np.concatenate([np.stack(pair) for pair in rule.priced(one).mu], axis=1) for one in mixture.prices
        ]
        own = {"mu": np.array(mu).reshape(len(mu), *cells.shape), "cells": cells, "shares": mixture.shares}
        return told, {**arrays, **own}

    @classmethod
    def from_state(cls, settings: Mapping[str, Any], arrays: Arrays) -> Self:
        """Return the predictor of a saved state, checked."""
        own = {name: a for name, a in arrays.items() if not name.startswith("scorer")}
        if set(settings) != {"scorers", "groups", "prior", "always"} or set(own) != set(BLIND_PARTS):
            raise ArtifactError(f"a {cls.kind} has other settings or arrays than this artifact holds")
        told, sizes, prior, always = (settings[name] for name in ("scorers", "groups", "prior", "always"))
        shares = own["shares"]
        sound = (
            isinstance(sizes, list)
            and all(isinstance(size, int) and size > 1 for size in sizes)
            and len(sizes) > 0
            and isinstance(told, list)
            and len(told) == 1 + 2 * len(sizes)
            and isinstance(prior, list)
            and len(prior) == 2
            and all(isinstance(part, float) and 0 < part < 1 for part in prior)
            and isinstance(always, float)
            and 0.0 <= always <= 1.0
            and all(a.dtype == np.float64 and bool(np.isfinite(a).all()) for a in own.values())
            and own["cells"].shape == (2, sum(sizes))
            and bool((own["cells"] > 0).all())
            and shares.ndim == 1
            and bool((shares > 0).all())
            and float(shares.sum()) + always <= 1.0 + 1e-9
            and own["mu"].shape == (shares.size, 2, sum(sizes))
        )
        if not sound:
            raise ArtifactError(f"the parts of this {cls.kind} do not fit together")
        cuts = np.cumsum(sizes)[:-1]
        cells = tuple((one, zero) for one, zero in np.split(own["cells"], cuts, axis=1))
        prices = [
            np.concatenate([part for pair in np.split(mu, cuts, axis=1) for part in pair]) for mu in own["mu"]
        ]
        first, *others = (Scorer.from_state(f"scorer{i}", one, arrays) for i, one in enumerate(told))
        rule = EqualRates(cells, (prior[0], prior[1]), cells, math.nan, math.nan, True)
        mixture = BlindMixture(rule, np.array(prices).reshape(shares.size, 2 * sum(sizes)), shares, always)
        return cls(first, tuple(zip(others[::2], others[1::2], strict=True)), mixture)


def chances_of(
    table: Table, label: Scorer, groups: tuple[tuple[Scorer, Scorer], ...]
) -> tuple[Floats, Chances]:
    """Return ``P(y = 1 | x)`` of each row, and ``P(group | x, y)`` of each attribute for ``y = 1`` and ``y = 0``."""
    return label(table), tuple((one(table), zero(table)) for one, zero in groups)


BLIND_PARTS = ("mu", "cells", "shares")
RULE_PARTS: Mapping[str, type] = {
    "part": np.int64,
    "cut": np.float64,
    "below": np.int64,
    "upto": np.float64,
    "values": np.float64,
}
LEVEL_PARTS = ("first", "last", "low", "high")


def names_and_levels(
    kind: str, settings: Mapping[str, Any]
) -> tuple[tuple[str, ...], tuple[tuple[str, ...], ...]]:
    """Return the group columns and levels of a saved state.

    Raises
    ------
    ArtifactError
        They are malformed.
    """
    columns: Sequence[Any] = settings["columns"]
    levels = tuple(tuple(level) for level in settings["levels"])
    texts = [*columns, *(part for level in levels for part in level)]
    sound = (
        all(isinstance(text, str) for text in texts)
        and all(len(level) == len(columns) for level in levels)
        and len(set(levels)) == len(levels) > 0
    )
    if not sound:
        raise ArtifactError(f"the groups of this {kind} are malformed")
    return tuple(columns), levels
