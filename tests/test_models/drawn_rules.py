"""Drawn rules of every kind, and rows that are hard for them: the ground of the laws in ``test_rules.py``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pandas as pd
from fairfix.data.data_spec import ColumnRoles, DataSpec
from fairfix.models.features import Feature, Features
from fairfix.models.members import ConstantMember, LinearMember, Member, NetworkMember, TreesMember
from fairfix.models.mixtures import BlindRule, DecisionMixture, ModelMixture, PluginScore
from fairfix.models.numeric_rules import NumberRamp, SoftRamp, SoftRates
from fairfix.models.predictors import BinnedRule, GroupwiseCurve, GroupwiseRamp, RepairedPredictor
from fairfix.models.repaired import Repaired, at_predict_time
from fairfix.models.score_models import (
    BinnedTube,
    EstimatedLogit,
    GroupTube,
    ScoreCurves,
    Scorer,
    TruncatedLogit,
    Unrepaired,
)
from fairfix.models.spline_basis import BoostedMember, Splines, SplinesMember
from fairfix.solvers.group_blind_rates import BlindMixture, GroupBlindRule
from fairfix.solvers.piecewise import Piecewise
from fairfix.solvers.plugin_rule import PluginRule
from fairfix.solvers.quantile_matching import ScoreLevels, Tube

Rng = np.random.Generator
LEAST = float(np.finfo(np.float64).smallest_subnormal)
TOWNS = ("(missing)", "no'r\\th \"", "south")


def groups(rng: Rng) -> tuple[tuple[str, ...], tuple[tuple[str, ...], ...]]:
    """Return columns and levels of one, a few or many groups, not all of which have rows; also of two columns."""
    many = int(rng.choice([1, 2, 3, 3, 4, 40]))
    names = sorted({"(missing)", *(f"g{i}" for i in range(many))})[:many]
    if rng.random() < 0.7:
        return ("g",), tuple((name,) for name in names)
    both = [(name, other) for name in names for other in ("h0", "h1")]
    kept = sorted(rng.permutation(len(both))[: max(1, len(both) - 1)].tolist())
    return ("g", "h"), tuple(both[i] for i in kept)


def groups_or_none(rng: Rng) -> tuple[tuple[str, ...], tuple[tuple[str, ...], ...]]:
    """Return groups, or those of one rule for everybody."""
    return ((), ((),)) if rng.random() < 0.2 else groups(rng)


def shares(rng: Rng, *shape: int) -> Any:
    """Return numbers in [0, 1], many of them an end."""
    return rng.choice([0.0, 1.0, 0.5, *rng.random(8)], shape)


def numbers(rng: Rng, many: int) -> Any:
    """Return distinct increasing numbers around [-1, 1], also very near each other, and 0."""
    pool = [*rng.uniform(-1, 1, 4 * many), -1.0, 1.0, 0.0, 0.5, LEAST, np.nextafter(0.5, 1.0)]
    return np.unique(rng.choice(pool, many))


def curve(rng: Rng) -> Piecewise:
    """Return a piecewise linear function."""
    knots = numbers(rng, int(rng.integers(1, 6)))
    left, at, right = shares(rng, 3, knots.size)
    tiny = np.diff(knots) < 1e-300  # a slope that is no float
    left[1:][tiny] = right[:-1][tiny]
    return Piecewise(knots, left, at, right)


def features(rng: Rng) -> Features:
    """Return features of a number, a text, a truth value and perhaps the score and the group."""
    made = [
        Feature("x", "number", 0.3, 1.7, missing=True),
        Feature("town", "category", levels=TOWNS[1:] if rng.random() < 0.5 else TOWNS),
        Feature("yes", "boolean", 0.25, 0.5),
    ]
    if rng.random() < 0.3:
        made.append(Feature("score", "score", 0.1, 0.8, knots=(-0.5, 0.4)))
    if rng.random() < 0.3:
        made.append(Feature("g", "group", levels=("g0", "g1")))
    return Features(tuple(made))


def trees(rng: Rng, width: int, sums: int, link: Any) -> TreesMember:
    """Return trees of depth 2 that send missing numbers either way."""
    many = 3 * sums
    first = 7 * np.arange(many)[:, None]
    left, right = (
        (first + np.array(part)).ravel().astype(np.int32)
        for part in ([1, 3, 5, 3, 4, 5, 6], [2, 4, 6, 3, 4, 5, 6])
    )
    nodes = {
        "feature": rng.integers(0, width, 7 * many).astype(np.int32),
        "threshold": rng.choice([0.0, -0.2, 0.5, 1.0, -np.inf], 7 * many),
        "left": left,
        "right": right,
        "value": rng.normal(size=7 * many),
        "missing_left": rng.random(7 * many) < 0.5,
    }
    roots, classes = 7 * np.arange(many), np.arange(many) % sums
    return TreesMember(nodes, roots, classes, rng.normal(size=sums), width, link)


def member(rng: Rng, own: Features, classes: int) -> Member:
    """Return a fitted model of one number, or of chances of several classes."""
    width, way = len(own.titles), rng.integers(6)
    if classes == 0:
        if way > 3:
            many = width + (5 if way == 4 else 1)
            linear = LinearMember(rng.normal(size=(many, 1)), rng.normal(size=1), "sigmoid")
            if way == 5:
                return BoostedMember(linear, trees(rng, width, 1, "identity"))
            knots, ends = np.sort(rng.normal(size=(1, 7))), np.array([[-2.0, 2.0]])
            splines = Splines(np.zeros(1, dtype=np.int64), knots, ends, rng.normal(size=(1, 5, 10)) / 4)
            return SplinesMember(width, linear, splines)
        if way == 0:
            return ConstantMember(rng.random(1))
        if way == 1:
            out = (
                rng.normal(size=(width, 5)),
                rng.normal(size=5),
                rng.normal(size=(5, 1)),
                rng.normal(size=1),
            )
            return NetworkMember(*out, "sigmoid")
        if way == 2:
            return trees(rng, width - 1, 1, rng.choice(["sigmoid", "shares", "identity"]))
        return LinearMember(rng.normal(size=(width, 1)), rng.normal(size=1), "sigmoid")
    if way == 0:
        value = rng.random(classes) + 0.1
        return ConstantMember(value / value.sum())
    if way == 1:
        return trees(rng, width - 1, classes, "shares")
    sharp = 1.0 if way < 4 else 300.0  # chances of which some are too small for floats
    return LinearMember(sharp * rng.normal(size=(width, classes)), rng.normal(size=classes), "softmax")


def scorer(rng: Rng, classes: int = 0) -> Scorer:
    """Return the model's own score, or a fitted model, perhaps within bounds."""
    if classes == 0 and rng.random() < 0.3:
        return Scorer()
    own = features(rng)
    bounds = (0.0, 1.0) if classes == 0 or rng.random() < 0.3 else None
    return Scorer(own, member(rng, own, classes), bounds)


def _ramp(rng: Rng) -> RepairedPredictor:
    columns, levels = groups(rng)
    many = len(levels)
    offsets = rng.choice([0.0, 0.25, *rng.normal(size=3)], many)
    remainders = np.zeros(many) if rng.random() < 0.5 else rng.normal(size=many) * 1e-17
    return GroupwiseRamp(columns, levels, offsets, remainders, float(rng.choice([1e-6, 0.05, 0.7])))


def _curves(rng: Rng) -> RepairedPredictor:
    columns, levels = groups(rng)
    curves = tuple(curve(rng) for _ in levels)
    sigmoid = rng.normal(size=(len(levels), 2)) if rng.random() < 0.5 else None
    return GroupwiseCurve(columns, levels, curves, sigmoid)


def _number_ramp(rng: Rng) -> RepairedPredictor:
    low, high = np.array([-1.0, 0.0]), np.array([2.0, 0.5])
    mean, deviation = rng.normal(size=2), rng.random(2) + 0.1
    return NumberRamp(("far", "x"), low, high, mean, deviation, rng.normal(size=2), float(rng.normal()), 0.3)


def _binned(rng: Rng) -> RepairedPredictor:
    columns, levels = groups_or_none(rng)
    edges = numbers(rng, int(rng.integers(1, 9)))
    return BinnedRule(columns, levels, edges, shares(rng, len(levels), edges.size + 1))


def _levels(rng: Rng, first: Any, last: Any) -> ScoreLevels:
    ends = np.sort(rng.random(2 * first.size))
    low, high = ends[::2], ends[1::2]
    return ScoreLevels(first, last, low, low.copy() if rng.random() < 0.3 else high)


def _tube(rng: Rng) -> RepairedPredictor:
    columns, levels = groups(rng)
    atoms = []
    for _ in levels:
        ends = numbers(rng, int(rng.integers(1, 10)))
        first = ends[::2]
        atoms.append(_levels(rng, first, np.append(ends[1::2], ends[-1])[: first.size]))
    return GroupTube(columns, levels, scorer(rng), _tube_of(rng, tuple(atoms)))


def _tube_of(rng: Rng, atoms: tuple[ScoreLevels, ...]) -> Tube:
    if rng.random() < 0.15:
        return Tube(atoms, None, np.ones((len(atoms), 0)))
    values = np.sort(rng.random(5))
    steps = np.concatenate([np.sort(rng.random((len(atoms), 4))), np.ones((len(atoms), 1))], axis=1)
    return Tube(atoms, values, steps)


def _binned_tube(rng: Rng) -> RepairedPredictor:
    columns, levels = groups(rng)
    edges = numbers(rng, int(rng.integers(1, 9)))
    bins = np.arange(edges.size + 1.0)
    while (tube := _tube_of(rng, tuple(_levels(rng, bins, bins) for _ in levels))).outputs is None:
        pass
    return BinnedTube(columns, levels, Scorer(), tube, edges)


def _logit(rng: Rng) -> RepairedPredictor:
    columns, levels = groups(rng)
    prices = rng.choice([0.0, 1.0, -1.0, *(3 * rng.normal(size=6))], (2, len(levels)))
    if rng.random() < 0.5:
        prices[0] = prices[1]
    return TruncatedLogit(columns, levels, scorer(rng), prices, bool(rng.random() < 0.5))


def _estimated(rng: Rng) -> RepairedPredictor:
    columns, levels = groups_or_none(rng)
    many = len(levels) + int(rng.integers(0 if len(levels) > 1 else 1, 3))
    owners = rng.permutation(np.arange(many) % len(levels))
    return EstimatedLogit(
        columns,
        levels,
        scorer(rng),
        3 * rng.normal(size=many),
        bool(rng.random() < 0.5),
        classifier=scorer(rng, many),
        owners=owners,
    )


def _score_curves(rng: Rng) -> RepairedPredictor:
    columns, levels = groups_or_none(rng)
    return ScoreCurves(columns, levels, scorer(rng), tuple(curve(rng) for _ in levels))


def _plugin(rng: Rng) -> RepairedPredictor:
    classes = int(rng.integers(2, 4))
    part = np.array([int(rng.integers(0, classes + 1)), int(rng.integers(0, 2)), 0, 1, 2])
    rule = PluginRule(
        part,
        rng.choice([0.5, 0.3, *rng.random(2)], 5),
        np.array([1, 3, -1, -1, -1]),
        np.array([0.25, 1.0, 2.0, 2.5, 2.75, 3.0]),
        rng.random(6),
    )
    if rng.random() < 0.2:
        rule = PluginRule.free()
    if rng.random() < 0.2:
        rule = PluginRule.of_constant(0.25)
    return PluginScore(scorer(rng), scorer(rng, classes), rule)


def _mixture(rng: Rng) -> RepairedPredictor:
    many = int(rng.integers(1, 5))
    weights = rng.random(many) + 0.05
    return ModelMixture(
        tuple(scorer(rng) for _ in range(many)), weights / weights.sum(), bool(rng.random() < 0.4)
    )


def _decisions(rng: Rng) -> RepairedPredictor:
    many = int(rng.integers(1, 5))
    weights = rng.random(many + 1) + 0.05
    weights /= weights.sum()
    cuts = rng.choice([0.0, 0.5, *rng.random(3)], many)
    return DecisionMixture(tuple(scorer(rng) for _ in range(many)), cuts, weights[1:], float(weights[0]))


def _blind(rng: Rng) -> RepairedPredictor:
    sizes = rng.integers(2, 4, int(rng.integers(1, 3))).tolist()
    cells = tuple((rng.random(size) + 0.05, rng.random(size) + 0.05) for size in sizes)
    rules = int(rng.integers(0, 3))
    parts = rng.random(rules + 1) + 0.05
    parts /= parts.sum()
    rule = GroupBlindRule(cells, (0.4, 0.6), cells)
    mixture = BlindMixture(rule, rng.normal(size=(rules, 2 * sum(sizes))), parts[1:], float(parts[0]))
    each = (scorer(rng, size) for size in sizes for _ in range(2))
    return BlindRule.of((scorer(rng), *each), mixture)


MEMBERSHIPS = (("a", "b", "c"), ("in_a", "in_b", "in_c"))

DRAWN: Mapping[str, Callable[[Rng], RepairedPredictor]] = {
    "groupwise_ramp": _ramp,
    "groupwise_curve": _curves,
    "soft_ramp": lambda rng: SoftRamp(*MEMBERSHIPS, rng.normal(size=3), 0.4),
    "soft_rates": lambda rng: SoftRates(
        *MEMBERSHIPS, tuple(curve(rng) for _ in range(3)), *(rng.normal(size=(2, 3)) / 4), 0.4
    ),
    "number_ramp": _number_ramp,
    "binned_rule": _binned,
    "group_tube": _tube,
    "binned_tube": _binned_tube,
    "truncated_logit": _logit,
    "estimated_logit": _estimated,
    "score_curves": _score_curves,
    "unrepaired": lambda rng: Unrepaired(scorer(rng)),
    "plugin_score": _plugin,
    "model_mixture": _mixture,
    "decision_mixture": _decisions,
    "blind_rule": _blind,
}
"""Kind of rule -> what draws one."""


def drawn_rule(kind: str, seed: int) -> Repaired:
    """Return a drawn rule as it is used: with the columns it reads, a scale of scores, and a key of draws."""
    rng = np.random.default_rng([seed, len(kind)])
    predictor = DRAWN[kind](rng)
    plain = kind in ("groupwise_curve", "binned_rule", "binned_tube") and rng.random() < 0.3
    plain = plain and getattr(predictor, "sigmoid", None) is None
    scale = "raw" if plain else rng.choice(["probability"] * 3 + ["percent", "margin", "logit"])
    data_spec = DataSpec(
        ColumnRoles(("g", "h"), score="score", id="id"), score_scale=str(scale), thresholds=(0.5,)
    )
    return Repaired(
        "drawn",
        {},
        predictor,
        at_predict_time(data_spec, predictor),
        "abstain",
        {"id": "text"},
        b"key of draws",
        {"kind": "column", "name": "score"},
        {},
        seed,
    )


def hard_rows(repaired: Repaired, seed: int, many: int = 120) -> pd.DataFrame:
    """Return rows for a rule: unknown groups, and scores at its thresholds, beside them and at the ends."""
    rng, predictor = np.random.default_rng(seed), repaired.predictor
    curves = [one.knots for one in getattr(predictor, "curves", ())]
    if isinstance(predictor, GroupTube):
        curves += [ends for one in predictor.tube.levels for ends in (one.first, one.last)]
    points = np.concatenate([*curves, getattr(predictor, "edges", np.zeros(0)), [0.0, 0.5, LEAST, -0.0]])
    points = np.concatenate([points, *(np.nextafter(points, end) for end in (-np.inf, np.inf))])
    points = np.concatenate([points, (points + 1) / 2, rng.uniform(-1, 1, 60)])
    scale = repaired.data_spec.score_scale
    if scale in ("raw", "logit"):
        points = np.concatenate([points, [1e300, -1e300, 40.0, -40.0]])
    elif scale == "percent":
        points = points * 100
    low, high = repaired.data_spec.range
    points = points[(points >= low) & (points <= high)]
    z = rng.random((3, many))
    z[:, ::5] = np.eye(3)[rng.integers(0, 3, z[:, ::5].shape[1])].T
    z /= z.sum(axis=0)
    return pd.DataFrame(
        {
            "g": rng.choice([*(f"g{i}" for i in range(5)), "strange", "g39", None], many),
            "h": rng.choice(["h0", "h1", "h1", "h9"], many),
            "score": rng.choice(points, many),
            "x": rng.choice([np.nan, 0.0, -0.0, LEAST, 0.5, -1.0, 1e300, *rng.normal(size=20)], many),
            "town": rng.choice([*TOWNS[1:], "elsewhere", None], many),
            "yes": rng.random(many) < 0.5,
            "far": rng.choice([-1e300, 1e300, 0.0, *rng.normal(size=20)], many),
            "in_a": z[0],
            "in_b": z[1],
            "in_c": z[2],
            "id": [f"p{i}" for i in range(many)],
        }
    )
