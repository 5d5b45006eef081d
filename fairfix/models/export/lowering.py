"""Programs as other systems can run them: the steps that rules have of their own, written as several simple ones."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fairfix.data.merging import MISSING
from fairfix.data.numeric_groups import band_names, pieces
from fairfix.errors import UsageError
from fairfix.models.features import LEAST_CHANCE, Feature
from fairfix.models.members import HIGHEST, OnnxMember
from fairfix.models.program import Program, Rule, Step, tree_settings
from fairfix.models.repaired import Repaired
from fairfix.models.score_models import OfScorers, Scorer
from fairfix.solvers.monotone import LARGEST_LOGIT

BELOW_1 = math.nextafter(1.0, 0.0)
"""The largest number below 1: the log-odds of a score that close to an end are cut anyway."""


@dataclass(frozen=True, eq=False)
class Exported(Rule):
    """A repair as a program of steps that other systems have."""

    inputs: Mapping[str, str]
    """Column -> ``number``, ``boolean`` or ``text``, of those that the program reads."""

    @property
    def drawn(self) -> bool:
        """Whether the result itself depends on the row's draw: a value that is drawn, and not a decision."""
        return any(step.operation == "draw" for step in self.steps)


def without_program(repaired: Repaired) -> str:
    """Return why a repair cannot be exported: a rule of classes, or one that reads vectors or runs a graph."""
    rule = repaired.predictor
    if rule.classes:
        return "a multiclass rule, which exported forms do not support"
    if isinstance(rule, OfScorers) and any(isinstance(one.member, OnnxMember) for one in rule.scorers):
        return "a rule with a learner that is stored as an ONNX graph"
    vectors = rule.vectors
    return f"a rule that reads the lists of numbers in {vectors[0]!r}" if vectors else ""


def exported(repaired: Repaired) -> Exported:
    """Return the program of a repair; a UsageError where it has none."""
    if why := without_program(repaired):
        raise UsageError(f"`artifact`: {why}, cannot be exported; apply it with fairfix predict")
    predictor, lowering = repaired.predictor, _Lowering(repaired)
    program = lowering.program
    result = lowering.of_rule(predictor.compiled_rule)
    if repaired.unseen == "original" and (hasattr(predictor, "levels") or predictor.scales):
        unseen = program.add("is_missing", result)
        result = program.add("choose", unseen, lowering.unrepaired(), result)
    if lowering.uses_score:
        missing = program.add("is_missing", lowering.raw_score)
        result = program.add("choose", missing, program.constant(math.nan), result)
    rule = program.rule(result)
    inputs: dict[str, str] = {}
    for step in rule.steps:
        if "column" in step.settings:
            inputs[step.settings["column"]] = "text" if step.operation == "level" else step.settings["kind"]
    return Exported(rule.steps, rule.result, inputs)


class _Lowering:
    """A program under construction, of the simple steps alone."""

    def __init__(self, repaired: Repaired) -> None:
        self.program = Program()
        self.repaired, self.reading = repaired, repaired.reading
        self.uses_score = False

    def of_rule(self, rule: Rule) -> int:
        """Write a rule; return the step of its result."""
        places: list[int] = []
        for step in rule.steps:
            places.append(self._lowered(step, [places[i] for i in step.of]))
        return places[rule.result]

    def _lowered(self, step: Step, of: list[int]) -> int:
        program, own = self.program, step.settings
        match step.operation:
            case "score":
                return self.raw_score
            case "ranking":
                return self.raw_score if self.is_raw else program.affine(self.probability, 2.0, -1.0)
            case "group":
                return self.code(own["columns"], own["levels"])
            case "scorer":
                return self.scorer(own["scorer"])[own["of_class"] or 0]
            case "expit":
                return self.expit(of[0])
            case "score_logit":
                inside, one = program.clip(of[0], -BELOW_1, BELOW_1), program.constant(1.0)
                odds = program.add("add", one, inside), program.add("subtract", one, inside)
                log = program.add("log", program.add("divide", *odds))
                return program.clip(log, -LARGEST_LOGIT, LARGEST_LOGIT)
            case "select":
                place, *branches = of
                out = branches[0]
                for k in reversed(range(1, len(branches))):
                    here = program.add("equal", place, program.constant(float(k)))
                    out = program.add("choose", here, branches[k], out)
                return out
            case _:
                return program.add(step.operation, *of, **own)

    def unrepaired(self) -> int:
        """The row's original result: its score where values are given, else its decision at the threshold."""
        program, predictor = self.program, self.repaired.predictor
        if predictor.gives == "value" or self.reading.columns.score is None:
            assert isinstance(predictor, OfScorers)
            score = self.scorer(predictor.scorers[0])[0]
        else:
            score = self.raw_score
        if predictor.gives == "value":
            return score
        accepted = program.add("at_most", program.constant(self.reading.thresholds[0]), score)
        return program.add("choose", accepted, program.constant(1.0), program.constant(0.0))

    # ------------------------------------------------------------------ inputs

    @property
    def raw_score(self) -> int:
        """The score as it comes."""
        self.uses_score = True
        assert self.reading.columns.score is not None
        return self.program.number(self.reading.columns.score)

    @property
    def is_raw(self) -> bool:
        """Whether the score stands for no probability."""
        return self.reading.task == "regression" or self.reading.score_scale == "raw"

    @property
    def probability(self) -> int:
        """The score as a probability."""
        score = self.raw_score
        match self.reading.score_scale:
            case "percent":
                return self.program.add("divide", score, self.program.constant(100.0))
            case "margin":
                half = self.program.add("add", self.program.constant(1.0), score)
                return self.program.add("divide", half, self.program.constant(2.0))
            case "logit":
                return self.expit(score)
        return score

    def expit(self, step: int) -> int:
        """The step ``1 / (1 + exp(-x))``.

        Databases stop where an exponential overflows: beyond 700 the result is 1, or less than 1e-303, anyway.
        """
        program, one = self.program, self.program.constant(1.0)
        inside = program.clip(step, -700.0, 700.0)
        power = program.add("exp", program.add("subtract", program.constant(0.0), inside))
        return program.add("divide", one, program.add("add", one, power))

    def code(self, columns: Sequence[str], levels: Sequence[Sequence[str]]) -> int:
        """The place of the row's group among the levels of the fit, plus 1; 0 for any other group."""
        program = self.program
        names = [sorted({level[i] for level in levels}) for i in range(len(columns))]
        places = [self.place(column, own) for column, own in zip(columns, names, strict=True)]
        shape = [len(own) + 1 for own in names]
        code = places[0]
        for place, size in zip(places[1:], shape[1:], strict=True):
            code = program.add("add", program.affine(code, float(size), 0.0), place)
        table = np.zeros(math.prod(shape))
        for k, level in enumerate(levels):
            at = [own.index(one) + 1 for own, one in zip(names, level, strict=True)]
            table[np.ravel_multi_index(at, shape)] = k + 1
        same = np.array_equal(table, np.arange(table.size))
        return code if same else program.take(table, code)

    def place(self, column: str, levels: Sequence[str]) -> int:
        """The place of a column's entry among levels, plus 1; 0 for any other. Numbers in bands have their band's."""
        program, edges = self.program, self.reading.bands.get(column)
        if not edges:
            merged = dict(self.reading.merge.get(column, {}))
            also = {"merged": merged} if merged else {}
            return program.affine(program.add("level", column=column, levels=list(levels), **also), 1.0, 1.0)
        places = {level: i + 1.0 for i, level in enumerate(levels)}
        entry = program.add("number", column=column, kind="number")
        names, (cuts, bands) = band_names(edges), pieces(edges)
        piece = program.search(cuts, entry, right=True)
        of_band = program.take([places.get(names[band], 0.0) for band in bands], piece)
        gone = program.constant(places.get(MISSING, 0.0))
        return program.add("choose", program.add("is_missing", entry), gone, of_band)

    # ------------------------------------------------------------------ scorers

    def scorer(self, one: Scorer) -> list[int]:
        """The results of a scorer: one, or one per class."""
        out = self._score(one)
        return out if one.bounds is None else [self.program.clip(each, *one.bounds) for each in out]

    def _score(self, one: Scorer) -> list[int]:
        if one.member is None:
            return [self.raw_score if self.reading.task == "regression" else self.probability]
        program, kind, (own, arrays) = self.program, one.member.kind, one.member.state()
        if kind == "constant":
            return [program.constant(one) for one in arrays["value"].tolist()]
        gaps = one.member.sees_gaps
        X = [step for feature in one.features.columns for step in self._columns(feature, gaps=gaps)]
        if kind == "splines":
            X = self._splined(X, arrays)
        if kind == "boosted":
            roots, start = arrays["roots"].tolist(), float(arrays["baseline"][0])
            X = [*X, program.add("trees", *X, **tree_settings(arrays, roots, start))]
        if kind in ("linear", "splines", "boosted"):
            sums = [
                program.add("add", program.dot(X, weights), program.constant(shift))
                for weights, shift in zip(arrays["coef"].T, arrays["intercept"].tolist(), strict=True)
            ]
            return self._linked(sums, own["link"])
        if kind == "network":
            zero = program.constant(0.0)
            inner = [
                program.add(
                    "maximum", program.add("add", program.dot(X, weights), program.constant(bias)), zero
                )
                for weights, bias in zip(arrays["hidden"].T, arrays["hidden_bias"].tolist(), strict=True)
            ]
            return [
                self.expit(
                    program.affine(program.dot(inner, arrays["out"]), 1.0, float(arrays["out_bias"][0]))
                )
            ]
        assert kind == "trees"
        sums = []
        for k, start in enumerate(arrays["baseline"].tolist()):
            roots = arrays["roots"][arrays["classes"] == k].tolist()
            sums.append(program.add("trees", *X, **tree_settings(arrays, roots, start)))
        return self._linked(sums, own["link"])

    def _splined(self, X: list[int], arrays: Mapping[str, npt.NDArray[Any]]) -> list[int]:
        """The columns of a matrix, some between their ends, and their curves (:mod:`fairfix.models.spline_basis`)."""
        program, zero, more = self.program, self.program.constant(0.0), list[int]()
        own = (arrays[name] for name in ("column", "knots", "ends", "curves"))
        for column, t, ends, curves in zip(*own, strict=True):
            x = X[column] = program.clip(X[column], float(ends[0]), float(ends[1]))
            last = program.constant(float(t[-1]))
            u = program.add("minimum", x, last)
            terms = [u, program.add("maximum", program.add("subtract", x, last), zero)]
            for knot in t.tolist():
                over = program.add("maximum", program.affine(u, 1.0, -knot), zero)
                terms.append(program.add("multiply", program.add("multiply", over, over), over))
            more += [program.affine(program.dot(terms, one[1:]), 1.0, float(one[0])) for one in curves]
        return [*X, *more]

    def _linked(self, sums: list[int], link: str) -> list[int]:
        program = self.program
        if link == "identity":
            return sums[:1]
        if link == "exp":
            return [program.add("exp", program.add("minimum", sums[0], program.constant(HIGHEST)))]
        if link == "shares":
            if len(sums) == 1:
                return [program.clip(sums[0], 0.0, 1.0)]
            zero = program.constant(0.0)
            shares = [program.add("maximum", one, zero) for one in sums]
            total = program.total(shares)
            empty, whole = program.add("at_most", total, zero), program.constant(1.0)
            divisor = program.add("choose", empty, whole, total)  # of all branches, some systems compute each
            alike = program.constant(1.0 / len(shares))
            return [
                program.add("choose", empty, alike, program.add("divide", one, divisor)) for one in shares
            ]
        if link == "softmax":
            most = sums[0]
            for one in sums[1:]:
                most = program.add("maximum", most, one)
            powers = [program.add("exp", program.add("subtract", one, most)) for one in sums]
            total = program.total(powers)
            return [program.add("divide", one, total) for one in powers]
        chance = self.expit(sums[0])
        return (
            [chance]
            if link == "sigmoid"
            else [program.add("subtract", program.constant(1.0), chance), chance]
        )

    def _columns(self, one: Feature, *, gaps: bool) -> list[int]:
        """A feature's columns of the matrix."""
        program, name = self.program, one.name
        if one.levels:
            texts = sorted({*one.levels, *one.same})
            place = self.place(name, texts)
            merged = [one.same[0] if text in one.same else text for text in texts]
            return [
                program.take([0.0, *(float(text == level) for text in merged)], place) for level in one.levels
            ]
        if one.kind == "score":
            entry = self.raw_score if self.is_raw else self._log_odds()
        else:
            entry = program.add("number", column=name, kind=one.kind)
        shifted = program.add("subtract", entry, program.constant(one.mean))
        scaled = program.add("divide", shifted, program.constant(one.scale))
        if one.kind == "score":
            zero = program.constant(0.0)
            return [
                scaled,
                *(program.add("maximum", program.affine(scaled, 1.0, -knot), zero) for knot in one.knots),
            ]
        if gaps:
            return [scaled]
        missing, zero = program.add("is_missing", scaled), program.constant(0.0)
        filled = program.add("choose", missing, zero, scaled)
        flag = program.add("choose", missing, program.constant(1.0), zero)
        return [filled, flag] if one.missing else [filled]

    def _log_odds(self) -> int:
        program = self.program
        chance = program.clip(self.probability, LEAST_CHANCE, 1 - LEAST_CHANCE)
        return program.add(
            "log", program.add("divide", chance, program.add("subtract", program.constant(1.0), chance))
        )
