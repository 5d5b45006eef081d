"""Programs run on columns of numpy: the rules of a table, and exported programs, which tests hold against them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import expit

from fairfix.data.counts import Floats, Ints, rows_of_each
from fairfix.data.memberships import numbers_of
from fairfix.data.reading import to_probability
from fairfix.data.table import Table
from fairfix.errors import DataError
from fairfix.models.program import Plan, Rule, Step
from fairfix.solvers.monotone import logit_of

Block = slice | Ints
"""Which rows: a run of them, or their numbers."""

Inputs = Callable[[Step, Block], Any]
"""Gives the entries of a step that looks at a row, for the rows of a block."""

CHUNK = 1 << 15
"""Rows that are computed together: few enough for their columns to stay in the processor's cache."""

INPUTS = frozenset({"score", "ranking", "group", "scorer", "number", "level", "draw"})
"""Operations that look at the row."""


def run(rule: Rule, inputs: Inputs, rows: int) -> Floats:
    """Return what a rule gives each row, shape (n,); truth values as 0 and 1."""
    out = np.empty(rows)
    with np.errstate(all="ignore"):
        for start in range(0, rows, CHUNK):
            block = slice(start, min(start + CHUNK, rows))
            out[block] = _result(rule, rule.plan, {}, inputs, block)
    return out


class _Part(dict[int, Any]):
    """Values computed for some rows of a block, where necessary from those of all rows."""

    def __init__(self, whole: dict[int, Any], rows: Block) -> None:
        super().__init__()
        self.whole, self.rows = whole, rows

    def __missing__(self, step: int) -> Any:
        entries = self.whole[step]
        self[step] = entries = entries[self.rows] if np.ndim(entries) else entries
        return entries


def _result(rule: Rule, plan: Plan, computed: dict[int, Any], inputs: Inputs, block: Block) -> Any:
    for i in plan.order:
        step = rule.steps[i]
        if step.operation in INPUTS:
            computed[i] = inputs(step, block)
        elif step.operation == "select":
            computed[i] = _selected(rule, plan.branches[i], step.of[0], computed, inputs, block)
        else:
            computed[i] = _STEPS[step.operation](step.settings, *(computed[one] for one in step.of))
    return computed[plan.root]


def _selected(
    rule: Rule,
    branches: tuple[Plan, ...],
    place: int,
    computed: dict[int, Any],
    inputs: Inputs,
    block: Block,
) -> Any:
    code = np.asarray(computed[place]).astype(np.int64)
    first = int(code.flat[0])
    if (code == first).all():
        return _result(rule, branches[first], _Part(computed, slice(None)), inputs, block)
    out = np.empty(code.size)
    for branch, rows in zip(branches, rows_of_each(code, len(branches)), strict=True):
        if rows.size:
            own = block.start + rows if isinstance(block, slice) else block[rows]
            out[rows] = _result(rule, branch, _Part(computed, rows), inputs, own)
    return out


def _plain(operation: Callable[..., Any]) -> Callable[..., Any]:
    return lambda own, *of: operation(*of)


def _dot(own: Mapping[str, Any], *of: Any) -> Any:
    total: Any = 0.0
    for column, weight in zip(of, own["weights"], strict=True):
        total = total + column * weight
    return total


def _trees(own: Mapping[str, Any], *of: Any) -> Floats:
    """Return the sum of the leaves that rows come to, shape (n,)."""
    X = np.stack(np.broadcast_arrays(*of, np.zeros(max(np.size(one) for one in of))), axis=1)
    names = ("feature", "threshold", "left", "right", "value", "missing_left")
    feature, threshold, left, right, leaf, gaps_left = (np.asarray(own[name]) for name in names)
    total, rows = np.full(len(X), own["start"]), np.arange(len(X))
    for root in own["roots"]:
        at = np.full(len(X), root)
        while True:
            entry = X[rows, feature[at]]
            below = (entry <= threshold[at]) | (np.isnan(entry) & gaps_left[at])
            child = np.where(below, left[at], right[at])
            if np.array_equal(child, at):
                break
            at = child
        total = total + leaf[at]
    return total


_STEPS: Mapping[str, Callable[..., Any]] = {
    "constant": lambda own: own["value"],
    "dot": _dot,
    "search": lambda own, x: np.searchsorted(own["grid"], x, side="right" if own["right"] else "left"),
    "take": lambda own, place: own["numbers"].take(np.asarray(place).astype(np.int64, copy=False)),
    "trees": _trees,
    "add": _plain(np.add),
    "subtract": _plain(np.subtract),
    "multiply": _plain(np.multiply),
    "divide": _plain(np.divide),
    "minimum": _plain(np.minimum),
    "maximum": _plain(np.maximum),
    "exp": _plain(np.exp),
    "log": _plain(np.log),
    "expit": _plain(expit),
    "score_logit": _plain(logit_of),
    "below": _plain(np.less),
    "at_most": _plain(np.less_equal),
    "equal": _plain(np.equal),
    "is_missing": _plain(np.isnan),
    "choose": _plain(np.where),
}


class TableInputs:
    """Inputs of rules in the rows of a table; scores are computed once, and may be given."""

    def __init__(self, table: Table, scores: Mapping[int, Floats] | None = None) -> None:
        """Take a table, and scores by the ``id`` of their scorer where others than its own are to be taken."""
        self.table, self._scores = table, dict(scores or {})
        self._columns: dict[Any, npt.NDArray[Any]] = {}

    def __call__(self, step: Step, block: Block) -> Any:
        """Return the entries of a step for the rows of a block."""
        own, rows = step.settings, self.table.rows
        match step.operation:
            case "score" | "ranking":
                score = self.table.rows.score
                if score is None:
                    raise DataError("a score column is needed; name it with `score`")
                return score[block] if step.operation == "score" else self._ranking(score[block])
            case "group":
                key = own["columns"], own["levels"]
                return self._once(key, lambda: self.table.cell_codes(*key) + 1)[rows.cell[block]]
            case "scorer":
                one, k = own["scorer"], own["of_class"]
                if id(one) not in self._scores:
                    self._scores[id(one)] = one(self.table)
                scores = self._scores[id(one)][block]
                return scores if k is None else scores[:, k]
            case "number":
                return self._once(own["column"], lambda: numbers_of(self.table, own["column"]))[block]
            case "draw":
                return self.table.draws[block]
            case _:
                raise AssertionError(step.operation)

    def _once(self, key: Any, make: Callable[[], npt.NDArray[Any]]) -> npt.NDArray[Any]:
        if key not in self._columns:
            self._columns[key] = make()
        return self._columns[key]

    def _ranking(self, score: Floats) -> Floats:
        scale = self.table.reading.score_scale
        return score if scale == "raw" else 2.0 * to_probability(score, scale) - 1.0
