"""Programs as other systems can run them: the steps that rules have of their own, written as several simple ones."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fairfix.data.codec import LARGEST
from fairfix.data.merging import MISSING
from fairfix.data.numeric_groups import band_names, pieces
from fairfix.errors import UsageError
from fairfix.models.array_interpreter import LEAST_CHANCE, as_it_comes
from fairfix.models.members import OnnxMember
from fairfix.models.program import Program, Rule, Step
from fairfix.models.repaired import Repaired
from fairfix.models.score_models import OfScorers
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
        self.repaired, self.data_spec = repaired, repaired.data_spec
        self.uses_score = False

    def of_rule(self, rule: Rule) -> Any:
        """Write a rule; return the step of its result, or those of several."""
        places: list[Any] = []
        for step in rule.steps:
            places.append(self._lowered(step, [places[i] for i in step.of]))
        return places[rule.result]

    def _lowered(self, step: Step, of: list[Any]) -> Any:
        program, own = self.program, step.settings
        match step.operation:
            case "score" | "ranking" | "probability" | "log_odds":
                return self.score_as(step.operation)
            case "group":
                return self.code(own["columns"], own["levels"])
            case "scorer":
                return self.of_rule(own["scorer"].rule)
            case "stack":
                return of
            case "pick":
                return of[0][own["place"]]
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
            case "trees":  # other systems have no infinite numbers, and no row has one
                finite = np.clip(own["threshold"], -LARGEST, LARGEST)
                return program.add("trees", *of, **{**own, "threshold": finite})
            case _:
                return program.add(step.operation, *of, **own)

    def unrepaired(self) -> int:
        """The row's original result: its score where values are given, else its decision at the threshold."""
        program, predictor = self.program, self.repaired.predictor
        if predictor.gives == "value" or self.data_spec.columns.score is None:
            assert isinstance(predictor, OfScorers)
            score: int = self.of_rule(predictor.scorers[0].rule)
        else:
            score = self.raw_score
        if predictor.gives == "value":
            return score
        accepted = program.add("at_most", program.constant(self.data_spec.thresholds[0]), score)
        return program.add("choose", accepted, program.constant(1.0), program.constant(0.0))

    # ------------------------------------------------------------------ inputs

    @property
    def raw_score(self) -> int:
        """The score as it comes."""
        self.uses_score = True
        assert self.data_spec.columns.score is not None
        return self.program.number(self.data_spec.columns.score)

    def score_as(self, operation: str) -> int:
        """The score as an operation takes it."""
        program = self.program
        if as_it_comes(operation, self.data_spec):
            return self.raw_score
        if operation == "ranking":
            return program.affine(self.probability, 2.0, -1.0)
        if operation == "probability":
            return self.probability
        chance = program.clip(self.probability, LEAST_CHANCE, 1 - LEAST_CHANCE)
        rest = program.add("subtract", program.constant(1.0), chance)
        return program.add("log", program.add("divide", chance, rest))

    @property
    def probability(self) -> int:
        """The score as a probability."""
        score = self.raw_score
        match self.data_spec.score_scale:
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
        program, edges = self.program, self.data_spec.bands.get(column)
        if not edges:
            merged = dict(self.data_spec.merge.get(column, {}))
            also = {"merged": merged} if merged else {}
            return program.affine(program.add("level", column=column, levels=list(levels), **also), 1.0, 1.0)
        places = {level: i + 1.0 for i, level in enumerate(levels)}
        entry = program.add("number", column=column, kind="number")
        names, (cuts, bands) = band_names(edges), pieces(edges)
        piece = program.search(cuts, entry, right=True)
        of_band = program.take([places.get(names[band], 0.0) for band in bands], piece)
        gone = program.constant(places.get(MISSING, 0.0))
        return program.add("choose", program.add("is_missing", entry), gone, of_band)
