"""One row, as a service asks for it: read from a dict with plain values and decided without Arrow and data frames.

A row is decided here as it is among others, to the bit: by the same program, step by step in plain numbers. What is
not plain (a missing score, a group without training rows, a column that is not there, a value of another type) is left
to the rules of all data, which know what to do and what to say.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from fairfix.data.data_spec import DataSpec
from fairfix.data.encoder import level_of
from fairfix.data.merging import MISSING
from fairfix.data.numeric_groups import band_names, pieces
from fairfix.data.row_hash import draw_of, identity_of
from fairfix.models.array_interpreter import FUNCTIONS, as_it_comes, score_as
from fairfix.models.program import ProgramPlan, Rule, Step
from fairfix.models.standalone import Computed, Computing, compiled

PLAIN = frozenset({str, int, float, bool, type(None)})
"""Types of values that are read here as Arrow reads them; the numbers of numpy are turned into these."""

LARGEST_WHOLE = 1 << 53
"""Whole numbers below it are floats as well, and fit into 64 bits."""


class NotPlainError(Exception):
    """A row has an entry that only the rules of all data can read, or refuse."""


class OneRow:
    """A row of plain values."""

    __slots__ = ("_draw", "_draw_for", "entries", "levels", "score")

    def __init__(
        self,
        levels: tuple[str, ...],
        score: float | None,
        entries: Mapping[str, Any],
        draw_for: Callable[[Mapping[str, Any]], float],
    ) -> None:
        """Take the levels of the row's cell, its score, its values by column, and what draws."""
        self.levels, self.score, self.entries = levels, score, entries
        self._draw_for, self._draw = draw_for, math.nan

    def draw(self) -> float:
        """Return the row's draw."""
        if not self.is_drawn:
            self._draw = self._draw_for(self.entries)
        return self._draw

    @property
    def is_drawn(self) -> bool:
        """Whether somebody has asked for the draw."""
        return self._draw == self._draw

    def number(self, name: str) -> float:
        """Return the entry of a feature of numbers, NaN where it is missing."""
        entry = self.entries[name]
        if entry is None:
            return math.nan
        if type(entry) is str or math.isinf(entry):
            raise NotPlainError
        return float(entry)


class RowRule:
    """Decides rows of dicts one by one; made once per repaired predictor."""

    def __init__(self, repaired: Any) -> None:
        predictor, data_spec = repaired.predictor, repaired.data_spec
        columns = data_spec.columns
        self.predictor, self.data_spec = predictor, data_spec
        self.required, self.output = frozenset(repaired.required), tuple(repaired.output.names)
        self.keys, self.score, self.id = columns.cell_keys, columns.score, columns.id
        self.bands = {
            name: (*pieces(edges), band_names(edges)) for name, edges in data_spec.bands.items() if edges
        }
        self.least, self.most = data_spec.range
        self.gives = predictor.gives
        self.chance = self.gives == "decision" or predictor.is_probability
        self.cut = data_spec.cut if data_spec.thresholds else None
        self.identity, self.key = dict(repaired.identity), repaired.key
        self.numbers = frozenset(name for name, kind in self.identity.items() if kind != "text")
        self.truths = frozenset(name for name, kind in self.identity.items() if kind == "boolean")
        self._rule: Callable[[OneRow], float] | None = None

    @classmethod
    def of(cls, repaired: Any) -> RowRule | None:
        """Return the rule of a repaired predictor; None where it gives classes, or needs a model file or vectors."""
        predictor = repaired.predictor
        beyond = repaired.base["kind"] == "file" or predictor.classes or predictor.vectors
        return None if beyond else cls(repaired)

    def __call__(self, data: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the row with its prediction; None where it is not plain."""
        try:
            return self._decided(data)
        except NotPlainError:
            return None

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_rule": None}  # which is made again

    def _decided(self, data: Mapping[str, Any]) -> dict[str, Any]:
        row = _plain(data)
        if not self.required <= row.keys() or any(name in row for name in self.output):
            raise NotPlainError
        if self.id is not None and not (self.id not in row or type(row[self.id]) in (str, int)):
            raise NotPlainError
        one = self._one(row)
        if self._rule is None:
            self._rule = row_function(self.predictor.compiled_rule, self.data_spec)
        result = float(self._rule(one))
        if not (0.0 <= result <= 1.0 if self.chance else math.isfinite(result)):
            raise NotPlainError
        added: dict[str, Any] = {self.output[0]: result}
        drawn = one.is_drawn
        if self.gives == "decision":
            drawn = 0.0 < result < 1.0
            added["decision"] = int(one.draw() < result) if drawn else int(result >= 1.0)
        elif self.cut is not None:
            added["decision"] = int(result >= self.cut)
        added["randomized"] = drawn
        return {**data, **added}

    def _one(self, row: Mapping[str, Any]) -> OneRow:
        """Return the row with its levels and its score."""
        levels, score = tuple([self._level(name, row[name]) for name in self.keys]), None
        if self.score is not None:
            score = row[self.score]
            if type(score) not in (float, int, bool):
                raise NotPlainError
            score = float(score)
            if not (self.least <= score <= self.most and math.isfinite(score)):
                raise NotPlainError
        return OneRow(levels, score, row, self._draw)

    def _level(self, name: str, value: Any) -> str:
        """Return the level of a column of groups."""
        if (band := self.bands.get(name)) is not None:
            if value is None or value != value:
                return MISSING
            if type(value) not in (int, float) or not math.isfinite(value):
                raise NotPlainError
            cuts, places, names = band
            return str(names[places[bisect_right(cuts, value)]])
        return level_of(value, self.data_spec.merge.get(name))

    def _draw(self, row: Mapping[str, Any]) -> float:
        """Return the draw of the row."""
        if any(type(row[name]) is str for name in self.numbers):
            raise NotPlainError
        if any(type(row[name]) in (int, float) for name in self.truths):
            raise NotPlainError
        return draw_of(identity_of([row[name] for name in self.identity]), self.key)


def row_function(rule: Rule, data_spec: DataSpec) -> Callable[[OneRow], Any]:
    """Return what gives the result of a rule for a row, a number or a list of them.

    It computes no branch of a ``select`` but the row's own.
    """

    def input_of(step: Mapping[str, Any]) -> Computing | None:
        return _input(rule.steps[step["number"]], data_spec)

    steps = [{**one.plain, "number": i} for i, one in enumerate(rule.steps)]
    computing = compiled(steps, input_of)

    def in_order(plan: ProgramPlan) -> list[tuple[int, Computing]]:
        return [(i, selected(i, plan) if i in plan.branches else computing[i]) for i in plan.order]

    def selected(step: int, plan: ProgramPlan) -> Computing:
        place = rule.steps[step].of[0]
        branches = [(one.root, in_order(one)) for one in plan.branches[step]]

        def branch(computed: Computed, row: OneRow) -> Any:
            root, order = branches[int(computed[place])]
            for i, compute in order:
                computed[i] = compute(computed, row)
            return computed[root]

        return branch

    order = in_order(rule.plan)

    def result(row: OneRow) -> Any:
        computed: Computed = {}
        for i, compute in order:
            computed[i] = compute(computed, row)
        return computed[rule.result]

    return result


def _input(step: Step, data_spec: DataSpec) -> Computing | None:
    """Return what computes a step that looks at a row, or has no form in plain Python that is that of arrays."""
    own = step.settings
    match step.operation:
        case "score" | "ranking" | "probability" | "log_odds":
            return _of_score(step.operation, data_spec)
        case "number":
            return lambda _, row: row.number(own["column"])
        case "level":
            places, merged = {level: i for i, level in enumerate(own["levels"])}, own.get("merged")
            return lambda _, row: places.get(level_of(row.entries[own["column"]], merged), -1)
        case "draw":
            return lambda _, row: row.draw()
        case "group":
            at = [data_spec.columns.cell_keys.index(name) for name in own["columns"]]
            places = {level: k for k, level in enumerate(own["levels"], 1)}
            return lambda _, row: places.get(tuple([row.levels[i] for i in at]), 0)
        case "scorer":
            inner = row_function(own["scorer"].rule, data_spec)
            return lambda _, row: inner(row)
        case "graph":
            member = own["member"]
            return lambda computed, _: member.predict(np.array([[computed[i] for i in step.of]]))[0]
        case "stack":
            return lambda computed, _: [computed[i] for i in step.of]
        case "pick":
            (several,), place = step.of, own["place"]
            return lambda computed, _: computed[several][place]
        case "exp" | "log" | "expit" | "score_logit":
            function, (x,) = FUNCTIONS[step.operation], step.of
            return lambda computed, _: float(function(computed[x]))
        case "select":  # compiled with its branches
            return lambda computed, row: None
        case _:
            return None


def _of_score(operation: str, data_spec: DataSpec) -> Computing:
    """Return what computes the score of a row as an operation takes it."""
    plain = data_spec.score_scale == "probability"
    if as_it_comes(operation, data_spec) or (plain and operation == "probability"):
        return lambda _, row: row.score
    if plain and operation == "ranking":
        return lambda _, row: 2.0 * row.score - 1.0
    return lambda _, row: float(score_as(operation, np.array([row.score]), data_spec)[0])


def _plain(data: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a row with plain values; raises :class:`NotPlainError` where there are others."""
    odd = None
    for name, value in data.items():
        kind = type(value)
        if kind is str:
            if not value.isascii():
                _check_text(value)
        elif kind is int:
            if not -LARGEST_WHOLE < value < LARGEST_WHOLE:
                raise NotPlainError
        elif kind not in PLAIN:
            if kind not in NUMPY:
                raise NotPlainError
            odd = odd or {}
            odd[name] = value.item()
        if type(name) is not str:
            raise NotPlainError
    return data if odd is None else {**data, **_plain(odd)}


NUMPY = frozenset({np.float64, np.int64, np.bool_, np.str_})
"""Types of numpy that hold what a plain type holds."""


def _check_text(value: str) -> None:
    try:
        value.encode()
    except UnicodeEncodeError:
        raise NotPlainError from None
