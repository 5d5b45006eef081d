"""From the saved form of a repair to a program: one function per kind of predictor, as docs/artifact.md defines it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt

from fairfix.data.memberships import ROUNDED
from fairfix.errors import UsageError
from fairfix.models.export.program import Step, tree_settings
from fairfix.models.export.rule import Rule
from fairfix.models.members import OnnxMember
from fairfix.models.mixtures import CERTAIN
from fairfix.models.repaired import Repaired
from fairfix.models.score_models import OfScorers
from fairfix.solvers.group_blind_rates import LEAST
from fairfix.solvers.monotone import LARGEST_LOGIT
from fairfix.solvers.quantile_matching import EDGE

BELOW_1 = math.nextafter(1.0, 0.0)
"""The largest number below 1: the log-odds of a score that close to an end are cut anyway."""

LAST_DRAW = 1.0 - 1e-12
"""Draws are moved up to this before they are added to the number of a cell, as the plug-in rule does."""


@dataclass(frozen=True)
class Exported:
    """A repair as a program."""

    steps: tuple[Step, ...]
    """What is computed, in order."""
    result: int
    """Number of the step that is P(decision = 1) or the value; missing where there is none."""
    inputs: Mapping[str, str]
    """Column -> ``number``, ``boolean`` or ``text``, of those that the program reads."""

    @property
    def drawn(self) -> bool:
        """Whether the result itself hangs on the row's draw: a value that is drawn, and not a decision."""
        return any(step.operation == "draw" for step in self.steps)


def without_program(repaired: Repaired) -> str:
    """Return why a repair has no program: a rule of classes, from outside, or that reads vectors or runs a graph."""
    rule = repaired.predictor
    if rule.classes:
        return "a multiclass rule, which exported forms do not support"
    if rule.kind not in KINDS:
        return f"a rule of the kind {rule.kind!r}, which is not built into fairfix"
    if isinstance(rule, OfScorers) and any(isinstance(one.member, OnnxMember) for one in rule.scorers):
        return "a rule with a learner that is stored as an ONNX graph"
    vectors = rule.vectors
    return f"a rule that reads the lists of numbers in {vectors[0]!r}" if vectors else ""


def exported(repaired: Repaired) -> Exported:
    """Return the program of a repair; a UsageError where it has none."""
    if why := without_program(repaired):
        raise UsageError(f"`artifact`: {why}, cannot be exported; apply it with fairfix predict")
    settings, arrays = repaired.predictor.state()
    rule = Rule(repaired, settings, arrays)
    result = KINDS[repaired.predictor.kind](rule)
    if repaired.unseen == "original" and ("levels" in settings or repaired.predictor.scales):
        unseen = rule.program.add("is_missing", result)
        result = rule.program.add("choose", unseen, rule.unrepaired(repaired.predictor.gives), result)
    if rule.uses_score:
        program = rule.program
        result = program.add(
            "choose", program.add("is_missing", rule.raw_score), program.constant(math.nan), result
        )
    steps, (place,) = rule.program.needed([result])
    inputs: dict[str, str] = {}
    for step in steps:
        if "column" in step.settings:
            inputs[step.settings["column"]] = "text" if step.operation == "level" else step.settings["kind"]
    return Exported(tuple(steps), place, inputs)


# ---------------------------------------------------------------------- kinds


def _groupwise_ramp(rule: Rule) -> int:
    program, share = rule.program, rule.program.affine(rule.probability, 2.0, -1.0)
    for name in ("offsets", "remainders"):
        if rule.arrays[name].any() or name == "offsets":
            share = program.add("subtract", share, rule.of_each_group(rule.arrays[name]))
    return program.clip(program.add("divide", share, program.constant(rule.settings["gamma"])), 0.0, 1.0)


def _soft_ramp(rule: Rule) -> int:
    return _of_memberships(
        rule, lambda weighted: _ramp_above(rule, rule.ranking, weighted(rule.arrays["offsets"].tolist()))
    )


def _soft_rates(rule: Rule) -> int:
    program, arrays, score = rule.program, rule.arrays, rule.ranking

    def of_row(weighted: Callable[[Sequence[float | Callable[[], int]]], int]) -> int:
        eta = weighted([partial(rule.curve, k, score) for k in range(len(rule.settings["groups"]))])
        g = program.affine(program.clip(eta, 0.0, 1.0), 2.0, -1.0)
        price, rise = (weighted(arrays[name].tolist()) for name in ("offsets", "slopes"))
        return _ramp_above(rule, program.add("subtract", g, price), program.add("multiply", rise, g))

    return _of_memberships(rule, of_row)


def _ramp_above(rule: Rule, score: int, threshold: int) -> int:
    """The share of a ramp of the rule's width above a threshold."""
    over = rule.program.add("subtract", score, threshold)
    width = rule.program.constant(rule.settings["gamma"])
    return rule.program.clip(rule.program.add("divide", over, width), 0.0, 1.0)


def _of_memberships(rule: Rule, of_row: Callable[[Callable[..., int]], int]) -> int:
    """What ``of_row`` makes of means weighted by probabilities of membership; missing where they are none."""
    program, zero = rule.program, rule.program.constant(0.0)
    parts = [program.add("number", column=name, kind="number") for name in rule.settings["columns"]]
    total = zero
    for part in parts:
        total = program.add("add", total, part)
    whole = program.add("maximum", total, program.constant(0.5))  # sums are near 1; none divides by 0

    def weighted(numbers: Sequence[float | Callable[[], int]]) -> int:
        mean = zero
        for part, number in zip(parts, numbers, strict=True):
            own = program.constant(number) if isinstance(number, float) else number()
            mean = program.add("add", mean, program.add("multiply", program.add("divide", part, whole), own))
        return mean

    out = of_row(weighted)
    nothing, most = program.constant(math.nan), program.constant(1.0 + ROUNDED)
    for part in parts:  # what is no probability, or of another sum, has no result
        out = program.add("choose", program.add("at_most", zero, part), out, nothing)
        out = program.add("choose", program.add("at_most", part, most), out, nothing)
    off = program.add("subtract", total, program.constant(1.0))
    for end in (off, program.add("subtract", zero, off)):
        out = program.add("choose", program.add("at_most", end, program.constant(ROUNDED)), out, nothing)
    return out


def _number_ramp(rule: Rule) -> int:
    program, arrays = rule.program, rule.arrays
    price, entries = program.constant(rule.settings["offset"]), []
    scales = (arrays[name].tolist() for name in ("low", "high", "mean", "deviation", "prices"))
    for name, low, high, mean, deviation, own in zip(rule.settings["columns"], *scales, strict=True):
        entries.append(program.add("number", column=name, kind="number"))
        inside = program.add("subtract", program.clip(entries[-1], low, high), program.constant(mean))
        counted = program.add("divide", inside, program.constant(deviation))
        price = program.add("add", price, program.add("multiply", counted, program.constant(own)))
    out = _ramp_above(rule, rule.ranking, price)
    for entry in entries:  # whatever a language makes of the greater of a number and none
        out = program.add("choose", program.add("is_missing", entry), program.constant(math.nan), out)
    return out


def _groupwise_curve(rule: Rule) -> int:
    program = rule.program
    score, sigmoid = rule.ranking, rule.arrays.get("sigmoid")
    if sigmoid is None:
        return rule.by_group(lambda k: rule.curve(k, score))
    inside, one = program.clip(score, -BELOW_1, BELOW_1), program.constant(1.0)
    odds = program.add("divide", program.add("add", one, inside), program.add("subtract", one, inside))
    logit = program.clip(program.add("log", odds), -LARGEST_LOGIT, LARGEST_LOGIT)

    def recalibrated(k: int) -> int:
        slope, shift = sigmoid[k].tolist()
        chance = program.expit(program.affine(logit, slope, shift))
        return rule.curve(k, program.affine(chance, 2.0, -1.0))

    return rule.by_group(recalibrated)


def _binned_rule(rule: Rule) -> int:
    program = rule.program
    place = program.search(rule.arrays["edges"].tolist(), rule.raw_score, right=True)
    return rule.by_group(lambda k: program.take(rule.arrays["probabilities"][k].tolist(), place))


def _score_curves(rule: Rule) -> int:
    score = rule.program.affine(rule.scorer("scorer")[0], 2.0, -1.0)
    return rule.by_group(lambda k: rule.curve(k, score))


def _unrepaired(rule: Rule) -> int:
    return rule.scorer("scorer")[0]


def _binned_tube(rule: Rule) -> int:
    return _group_tube(rule, rule.program.search(rule.arrays["edges"].tolist(), rule.raw_score, right=True))


def _group_tube(rule: Rule, moved_number: int | None = None) -> int:
    program, arrays = rule.program, rule.arrays
    score = rule.scorer("scorer")[0] if moved_number is None else moved_number
    if not rule.settings["moved"]:
        return rule.by_group(lambda k: score)
    ends = np.cumsum([0, *rule.settings["atoms"]])
    outputs = arrays["values"]

    def moved(k: int) -> int:
        first, last, low, high = (
            arrays[name][ends[k] : ends[k + 1]] for name in ("first", "last", "low", "high")
        )
        wide, steps = high - low, arrays["steps"][k]
        place = program.search(first.tolist(), score, right=True)  # 0 and 1 both mean the first atom

        def of_atom(numbers: npt.NDArray[np.float64]) -> int:
            return program.take([numbers[0], *numbers], place)

        def value_at(level: int) -> int:
            piece = program.search(steps.tolist(), level, right=True)
            return program.take([*outputs, outputs[-1]], piece)

        def value_of(levels: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
            return outputs[np.minimum(np.searchsorted(steps, levels, side="right"), outputs.size - 1)]

        if wide.any():
            draw = program.clip(program.add("draw"), EDGE, 1.0 - EDGE)
            level = program.add("add", of_atom(low), program.add("multiply", draw, of_atom(wide)))
        else:
            level = of_atom(low)
        span = np.append(first[1:] - last[:-1], 0.0)
        wide_span = of_atom(np.where(span > 0, span, 1.0))
        share = program.add("divide", program.add("subtract", score, of_atom(last)), wide_span)
        apart = of_atom((span > 0).astype(np.float64))
        share = program.add("multiply", program.clip(share, 0.0, 1.0), apart)
        left = value_of(high - EDGE * wide)
        right = np.append(value_of(low + EDGE * wide)[1:], left[-1])
        between = program.add("add", of_atom(left), program.add("multiply", share, of_atom(right - left)))
        on_atom = program.add("at_most", share, program.constant(0.0))
        return program.add("choose", on_atom, value_at(level), between)

    return rule.by_group(moved)


def _truncated_logit(rule: Rule) -> int:
    program, score = rule.program, rule.scorer("scorer")[0]
    prices = rule.arrays["prices"]

    def truncated(price: npt.NDArray[np.float64]) -> int:
        floor, cap = 1.0 + 1.0 / np.minimum(price, -1.0), 1.0 / np.maximum(price, 1.0)
        lifted = program.add("maximum", score, rule.of_each_group(floor))
        return program.add("minimum", lifted, rule.of_each_group(cap))

    if np.array_equal(prices[0], prices[1]):
        return truncated(prices[1])
    one = program.constant(1.0)

    def adversary(price: npt.NDArray[np.float64], chance: int) -> int:
        left = program.add("subtract", one, chance)
        factor = program.add("add", one, program.add("multiply", rule.of_each_group(price), left))
        return program.clip(program.add("multiply", chance, factor), 0.0, 1.0)

    of_0, of_1 = truncated(prices[0]), truncated(prices[1])
    q_0, q_1 = adversary(prices[0], of_0), adversary(prices[1], of_1)
    total = program.add("add", program.add("subtract", one, q_1), q_0)
    certain = program.add(
        "at_most", total, program.constant(1e-12)
    )  # both are sure of the label they are given
    safe = program.add("choose", certain, one, total)  # a database stops at a division by 0
    label = program.add("choose", certain, score, program.add("divide", q_0, safe))
    label = program.clip(label, 0.0, 1.0)
    other = program.add("multiply", program.add("subtract", one, label), of_0)
    return program.clip(program.add("add", program.add("multiply", label, of_1), other), 0.0, 1.0)


def _estimated_logit(rule: Rule) -> int:
    program, score, by_class = rule.program, rule.scorer("scorer")[0], rule.scorer("classifier")
    prices, owners = rule.arrays["prices"], rule.arrays["owners"]
    one, zero = program.constant(1.0), program.constant(0.0)

    def priced(k: int) -> int:
        own = np.flatnonzero(owners == k)
        of_group = [by_class[j] for j in own]
        total = rule.dot(of_group, np.ones(own.size))
        nothing = program.add("equal", total, zero)
        safe = program.add("choose", nothing, one, total)  # a database stops at a division by 0
        mean = program.add("divide", rule.dot(of_group, prices[own]), safe)
        return program.add("choose", nothing, program.constant(float(prices[own].mean())), mean)

    price = rule.by_group(priced)
    cap = program.add("divide", one, program.add("maximum", price, one))
    lowest = program.add("minimum", price, program.constant(-1.0))
    floor = program.add("add", one, program.add("divide", one, lowest))
    return program.add("minimum", program.add("maximum", score, floor), cap)


def _plugin_score(rule: Rule) -> int:
    program, arrays = rule.program, rule.arrays
    eta = rule.scorer("label")[0]
    if not arrays["values"].size:
        return eta
    inner = arrays["below"] >= 0
    inputs = [eta, *(rule.scorer("group") if arrays["part"][inner].max(initial=0) else [])]
    nodes = np.arange(arrays["part"].size)
    tree = {  # a node is its own child where it is a leaf; the value of a leaf is its cell
        "feature": np.where(inner, arrays["part"], 0),
        "threshold": arrays["cut"],
        "left": np.where(inner, arrays["below"], nodes),
        "right": np.where(inner, arrays["below"] + 1, nodes),
        "value": np.where(inner, 0, arrays["part"]).astype(np.float64),
        "missing_left": np.zeros(nodes.size, dtype=bool),
    }
    cell = program.add("trees", *inputs, **tree_settings(tree, [0], 0.0))
    if np.array_equal(arrays["upto"], np.arange(1.0, arrays["upto"].size + 1)):  # a value per cell
        return program.take(arrays["values"].tolist(), cell)
    draw = program.add("minimum", program.add("draw"), program.constant(LAST_DRAW))
    place = program.search(arrays["upto"].tolist(), program.add("add", cell, draw), right=True)
    return program.take([*arrays["values"].tolist(), math.nan], place)


def _model_mixture(rule: Rule) -> int:
    program, weights = rule.program, rule.arrays["weights"]
    scores = [rule.scorer(f"model{i}", one)[0] for i, one in enumerate(rule.settings["models"])]
    if rule.settings["averaged"] or len(scores) == 1:
        return program.add("dot", *scores, weights=weights.tolist())
    place = program.search(np.cumsum(weights)[:-1].tolist(), program.add("draw"), right=True)
    out = scores[-1]
    for i in reversed(range(len(scores) - 1)):
        out = program.add("choose", program.add("at_most", place, program.constant(float(i))), scores[i], out)
    return out


def _decision_mixture(rule: Rule) -> int:
    program, least, weights = rule.program, rule.arrays["thresholds"], rule.arrays["weights"]
    out, nothing = program.constant(rule.settings["always"]), program.constant(0.0)
    for i, one in enumerate(rule.settings["models"]):
        score = rule.scorer(f"model{i}", one)[0]
        accepted = program.add("at_most", program.constant(float(least[i])), score)
        share = program.add("choose", accepted, program.constant(float(weights[i])), nothing)
        out = program.add("add", out, share)
    return program.add(
        "choose", program.add("at_most", out, program.constant(CERTAIN)), out, program.constant(1.0)
    )


def _blind_rule(rule: Rule) -> int:
    program, settings, arrays = rule.program, rule.settings, rule.arrays
    (pi_0, pi_1), cells = settings["prior"], arrays["cells"]
    p, *groups = (rule.scorer(f"scorer{i}", one) for i, one in enumerate(settings["scorers"]))
    one = program.constant(1.0)
    yes, no = p[0], program.add("subtract", one, p[0])
    half = program.constant(0.5)
    gain = program.add(
        "multiply",
        half,
        program.add(
            "subtract",
            program.add("divide", yes, program.constant(pi_1)),
            program.add("divide", no, program.constant(pi_0)),
        ),
    )
    ends = np.cumsum([0, *settings["groups"]])
    gaps, order = [], []
    for a in range(len(settings["groups"])):
        for row, (share, prior) in enumerate(((yes, pi_1), (no, pi_0))):  # label 1, then label 0
            for k in range(ends[a], ends[a + 1]):
                chance = groups[2 * a + row][k - ends[a]]
                ratio = program.add("divide", chance, program.constant(float(cells[row, k])))
                gaps.append(program.add("multiply", share, program.affine(ratio, 1.0, -1.0 / prior)))
                order.append((row, k))
    total = program.constant(settings["always"])
    for mu, share in zip(arrays["mu"], arrays["shares"].tolist(), strict=True):
        c = gain
        for (row, k), gap in zip(order, gaps, strict=True):
            c = program.add("add", c, program.affine(gap, float(mu[row, k]), 0.0))
        accepted = program.add("below", program.constant(0.0), c)
        total = program.add(
            "add", total, program.add("choose", accepted, program.constant(share), program.constant(0.0))
        )
    sure = program.add("below", program.constant(1.0 - LEAST), total)
    return program.add("choose", sure, one, total)


KINDS: Mapping[str, Callable[[Rule], int]] = {
    "groupwise_ramp": _groupwise_ramp,
    "soft_ramp": _soft_ramp,
    "soft_rates": _soft_rates,
    "number_ramp": _number_ramp,
    "groupwise_curve": _groupwise_curve,
    "binned_rule": _binned_rule,
    "group_tube": _group_tube,
    "binned_tube": _binned_tube,
    "truncated_logit": _truncated_logit,
    "estimated_logit": _estimated_logit,
    "score_curves": _score_curves,
    "unrepaired": _unrepaired,
    "plugin_score": _plugin_score,
    "model_mixture": _model_mixture,
    "decision_mixture": _decision_mixture,
    "blind_rule": _blind_rule,
}
"""Kind of predictor -> what writes its program."""
