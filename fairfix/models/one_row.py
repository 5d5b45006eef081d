"""One row, as a service asks for it: read from a dict with plain values and decided without Arrow and data frames.

A row is decided here as it is among others, to the bit: by the same program, step by step in plain numbers, on a
:class:`~fairfix.data.table.OneRow` instead of a table. What is not plain (a missing score, a group without training
rows, a column that is not there, a value of another type) is left to the rules of all data, which know what to do and
what to say.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from scipy.special import expit

from fairfix.data.encoder import level_of
from fairfix.data.merging import MISSING
from fairfix.data.numeric_groups import band_names, pieces
from fairfix.data.reading import Reading
from fairfix.data.row_hash import draw_of, identity_of
from fairfix.data.table import NotPlainError, OneRow
from fairfix.models.predictors import RepairedPredictor
from fairfix.models.program import Plan, Rule, Step
from fairfix.models.score_models import OfScorers
from fairfix.models.standalone import Computed, Computing, compiled
from fairfix.solvers.monotone import logit_of

PLAIN = frozenset({str, int, float, bool, type(None)})
"""Types of values that are read here as Arrow reads them; the numbers of numpy are turned into these."""

LARGEST_WHOLE = 1 << 53
"""Whole numbers below it are floats as well, and fit into 64 bits."""


class RowRule:
    """Decides rows of dicts one by one; made once per repaired predictor."""

    def __init__(
        self,
        predictor: RepairedPredictor,
        reading: Reading,
        required: tuple[str, ...],
        output: tuple[str, ...],
        identity: Mapping[str, str],
        key: bytes,
    ) -> None:
        columns = reading.columns
        self.predictor, self.reading = predictor, reading
        self.required, self.output = frozenset(required), output
        self.keys, self.score, self.id = columns.cell_keys, columns.score, columns.id
        self.bands = {
            name: (*pieces(edges), band_names(edges)) for name, edges in reading.bands.items() if edges
        }
        self.least, self.most = reading.range
        self.gives = predictor.gives
        self.chance = self.gives == "decision" or predictor.is_probability
        self.cut = reading.cut if reading.thresholds else None
        self.identity, self.key = dict(identity), key
        self.numbers = frozenset(name for name, kind in identity.items() if kind != "text")
        self.truths = frozenset(name for name, kind in identity.items() if kind == "boolean")
        self._rule: Callable[[OneRow], float] | None = None

    @classmethod
    def of(cls, repaired: Any) -> RowRule | None:
        """Return the rule of a repaired predictor; None where it gives classes, or looks at more than plain values.

        The latter is a model file, and a predictor that reads feature columns in a way of its own.
        """
        predictor = repaired.predictor
        if repaired.base["kind"] == "file" or predictor.classes:
            return None
        if not (
            isinstance(predictor, OfScorers)
            or {*predictor.features} == {*predictor.memberships, *(one.column for one in predictor.scales)}
        ):
            return None
        names = repaired.required, tuple(repaired.output.names)
        return cls(predictor, repaired.reading, *names, repaired.identity, repaired.key)

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
        table = self._table(row)
        if self._rule is None:
            self._rule = row_function(self.predictor.compiled_rule, self.reading)
        result = float(self._rule(table))
        if not (0.0 <= result <= 1.0 if self.chance else math.isfinite(result)):
            raise NotPlainError
        added: dict[str, Any] = {self.output[0]: result}
        drawn = table.is_drawn
        if self.gives == "decision":
            drawn = 0.0 < result < 1.0
            added["decision"] = int(self._draw(table) < result) if drawn else int(result >= 1.0)
        elif self.cut is not None:
            added["decision"] = int(result >= self.cut)
        added["randomized"] = drawn
        return {**data, **added}

    def _table(self, row: Mapping[str, Any]) -> OneRow:
        """Return the row as a table."""
        levels, score = tuple([self._level(name, row[name]) for name in self.keys]), None
        if self.score is not None:
            score = row[self.score]
            if type(score) not in (float, int, bool):
                raise NotPlainError
            score = float(score)
            if not (self.least <= score <= self.most and math.isfinite(score)):
                raise NotPlainError
        return OneRow(self.reading, levels, score, row, self._draw)

    def _level(self, name: str, value: Any) -> str:
        """Return the level of a column of groups."""
        if (band := self.bands.get(name)) is not None:
            if value is None or value != value:
                return MISSING
            if type(value) not in (int, float) or not math.isfinite(value):
                raise NotPlainError
            cuts, places, names = band
            return str(names[places[bisect_right(cuts, value)]])
        return level_of(value, self.reading.merge.get(name))

    def _draw(self, table: OneRow) -> float:
        """Return the draw of the row."""
        row = table.entries
        if any(type(row[name]) is str for name in self.numbers):
            raise NotPlainError
        if any(type(row[name]) in (int, float) for name in self.truths):
            raise NotPlainError
        return draw_of(identity_of([row[name] for name in self.identity]), self.key)


def row_function(rule: Rule, reading: Reading) -> Callable[[OneRow], float]:
    """Return what gives the result of a rule for a row, computing no branch of a ``select`` but the row's own."""

    def input_of(step: Mapping[str, Any]) -> Computing | None:
        return _input(rule.steps[step["number"]], reading)

    steps = [{**one.plain, "number": i} for i, one in enumerate(rule.steps)]
    computing = compiled(steps, input_of)

    def in_order(plan: Plan) -> list[tuple[int, Computing]]:
        return [(i, selected(i, plan) if i in plan.branches else computing[i]) for i in plan.order]

    def selected(step: int, plan: Plan) -> Computing:
        place = rule.steps[step].of[0]
        branches = [(one.root, in_order(one)) for one in plan.branches[step]]

        def branch(computed: Computed, row: OneRow) -> Any:
            root, order = branches[int(computed[place])]
            for i, compute in order:
                computed[i] = compute(computed, row)
            return computed[root]

        return branch

    order = in_order(rule.plan)

    def result(row: OneRow) -> float:
        computed: Computed = {}
        for i, compute in order:
            computed[i] = compute(computed, row)
        return float(computed[rule.result])

    return result


def _input(step: Step, reading: Reading) -> Computing | None:
    """Return what computes a step that looks at a row, or has no form in plain Python that is that of arrays."""
    own = step.settings
    match step.operation:
        case "score":
            return lambda _, row: row.score
        case "ranking":
            return lambda _, row: row.own_ranking
        case "number":
            return lambda _, row: row.number(own["column"])
        case "draw":
            return lambda _, row: row.draw_alone()
        case "group":
            at = [reading.columns.cell_keys.index(name) for name in own["columns"]]
            places = {level: k for k, level in enumerate(own["levels"], 1)}
            return lambda _, row: places.get(tuple([row.levels[i] for i in at]), 0)
        case "scorer":
            one, k = own["scorer"], own["of_class"]
            return lambda _, row: one.of_row(row) if k is None else row.once(one)[0, k]
        case "exp" | "log" | "expit" | "score_logit":
            function, (x,) = _FUNCTIONS[step.operation], step.of
            return lambda computed, _: float(function(computed[x]))
        case "select":
            return _never
        case _:
            return None


_FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "exp": np.exp,
    "log": np.log,
    "expit": expit,
    "score_logit": logit_of,
}
"""Functions whose last bits are those of numpy."""


def _never(computed: Computed, row: OneRow) -> Any:
    """Stand for a selection, which is compiled with its branches."""
    raise AssertionError


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
