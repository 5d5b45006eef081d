"""Programs run on columns of numpy: the rules of a table, and exported programs, which tests hold against them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from fairfix.data.counts import Floats, Ints, rows_of_each
from fairfix.data.data_spec import DataSpec, to_probability
from fairfix.data.memberships import numbers_of
from fairfix.data.table import Table
from fairfix.models.program import ProgramPlan, Rule, Step

Block = slice | Ints
"""Which rows: a run of them, or their numbers."""

Inputs = Callable[[Step, Block], Any]
"""Gives the entries of a step that looks at a row, for the rows of a block."""

CHUNK = 1 << 15
"""Rows that are computed together: few enough for their columns to stay in the processor's cache."""

INPUTS = frozenset(
    {"score", "ranking", "probability", "log_odds", "group", "scorer", "number", "level", "entry", "column"}
    | {"draw"}
)
"""Operations that look at the row."""


def run(rule: Rule, inputs: Inputs, rows: int) -> Floats:
    """Return what a rule gives each row, shape (n,), or (n, m) where it stacks m; truth values as 0 and 1."""
    out = np.empty(0)
    with np.errstate(all="ignore"):
        for start in range(0, max(rows, 1), CHUNK):
            block = slice(start, min(start + CHUNK, rows))
            part = np.asarray(_result(rule, rule.plan, {}, inputs, block))
            if not start:  # a column of several lies together, as those who read it take them
                out = np.empty((*part.shape[:0:-1], rows)).T
            out[block] = part
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


def _result(rule: Rule, plan: ProgramPlan, computed: dict[int, Any], inputs: Inputs, block: Block) -> Any:
    for i in plan.order:
        step = rule.steps[i]
        if step.operation in INPUTS:
            computed[i] = inputs(step, block)
        elif step.operation == "select":
            computed[i] = _selected(rule, plan.branches[i], step.of[0], computed, inputs, block)
        elif step.operation in _OF_MATRIX:
            size = block.stop - block.start if isinstance(block, slice) else block.size
            columns = np.empty((len(step.of), size))
            for column, one in zip(columns, step.of, strict=True):
                column[:] = computed[one]
            computed[i] = _OF_MATRIX[step.operation](step.settings, columns.T)
        else:
            computed[i] = _STEPS[step.operation](step.settings, *(computed[one] for one in step.of))
    return computed[plan.root]


def _selected(
    rule: Rule,
    branches: tuple[ProgramPlan, ...],
    place: int,
    computed: dict[int, Any],
    inputs: Inputs,
    block: Block,
) -> Any:
    code = np.asarray(computed[place]).astype(np.int64)
    first = int(code.flat[0]) if code.size else 0
    if (code == first).all():
        return _result(rule, branches[first], _Part(computed, slice(None)), inputs, block)
    out = np.empty(code.size)
    for branch, rows in zip(branches, rows_of_each(code, len(branches)), strict=True):
        if rows.size:
            own = block.start + rows if isinstance(block, slice) else block[rows]
            out[rows] = _result(rule, branch, _Part(computed, rows), inputs, own)
    return out


def _expit(x: Any) -> Any:
    from scipy.special import expit

    return expit(x)


def _score_logit(x: Any) -> Any:
    from fairfix.solvers.monotone import logit_of

    return logit_of(x)


FUNCTIONS: Mapping[str, Callable[[Any], Any]] = {
    "exp": np.exp,
    "log": np.log,
    "expit": _expit,
    "score_logit": _score_logit,
}
"""Functions whose last bits are those of numpy; those of scipy are imported when they are called."""


def _plain(operation: Callable[..., Any]) -> Callable[..., Any]:
    return lambda own, *of: operation(*of)


def _dot(own: Mapping[str, Any], *of: Any) -> Any:
    total: Any = 0.0
    for column, weight in zip(of, own["weights"], strict=True):
        total = total + column * weight
    return total


def _trees(own: Mapping[str, Any], X: Floats) -> Floats:
    """Return the sum of the leaves that rows come to, shape (n,), trees added in their order.

    All rows take a step down a tree at a time. A missing number is never below a threshold, so it goes right. Where
    there are any, the matrix is laid out twice, the second time with minus infinity for them, and nodes that send
    missing numbers left look there.
    """
    names = ("feature", "threshold", "left", "right", "value", "missing_left")
    column, threshold, left, right, leaf, gaps_left = (np.asarray(own[name]) for name in names)
    gaps, column = np.isnan(X), column.astype(np.intp)
    if gaps.any():
        column = column + X.shape[1] * gaps_left
        X = np.hstack([X, np.where(gaps, -np.inf, X)])
    # right and left child of node i at 2 i and 2 i + 1
    children = np.column_stack([right, left]).astype(np.intp).ravel()
    flat, starts = X.ravel(), np.arange(len(X)) * X.shape[1]
    total = np.full(len(X), own["start"])
    for root in own["roots"]:
        child = np.full(len(X), root, dtype=np.intp)
        at = child - 1
        while not np.array_equal(child, at):
            at = child
            below = flat.take(column.take(at) + starts) <= threshold.take(at)
            child = children.take(2 * at + below)
        total += leaf.take(at)
    return total


_OF_MATRIX: Mapping[str, Callable[[Mapping[str, Any], Floats], Any]] = {
    "trees": _trees,
    "stack": lambda own, X: X,
    "graph": lambda own, X: own["member"].predict(X),
}
"""Operations on steps together, as the columns of a matrix."""

_STEPS: Mapping[str, Callable[..., Any]] = {
    "constant": lambda own: own["value"],
    "dot": _dot,
    "search": lambda own, x: np.searchsorted(own["grid"], x, side="right" if own["right"] else "left"),
    "take": lambda own, place: own["numbers"].take(np.asarray(place).astype(np.int64, copy=False)),
    "pick": lambda own, several: several[:, own["place"]],
    "add": _plain(np.add),
    "subtract": _plain(np.subtract),
    "multiply": _plain(np.multiply),
    "divide": _plain(np.divide),
    "minimum": _plain(np.minimum),
    "maximum": _plain(np.maximum),
    **{name: _plain(function) for name, function in FUNCTIONS.items()},
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
            case "score" | "ranking" | "probability" | "log_odds":
                return score_as(step.operation, self.table.scores[block], self.table.data_spec)
            case "group":
                key = own["columns"], own["levels"]
                return self._once(key, lambda: self.table.cell_codes(*key) + 1)[rows.cell[block]]
            case "scorer":
                one = own["scorer"]
                if id(one) not in self._scores:
                    self._scores[id(one)] = one(self.table)
                return self._scores[id(one)][block]
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


LEAST_CHANCE = 1e-6
"""Probabilities are kept this far from 0 and 1 before their log-odds are taken."""


def as_it_comes(operation: str, data_spec: DataSpec) -> bool:
    """Return whether an operation of a program takes the score as it comes."""
    raw, real = data_spec.score_scale == "raw", data_spec.task == "regression"
    return operation == "score" or (operation != "ranking" and real) or (operation != "probability" and raw)


def score_as(operation: str, score: Floats, data_spec: DataSpec) -> Floats:
    """Return scores as an operation of a program takes them, same shape."""
    if as_it_comes(operation, data_spec):
        return score
    chance = to_probability(score, data_spec.score_scale)
    if operation == "log_odds":
        chance = np.clip(chance, LEAST_CHANCE, 1 - LEAST_CHANCE)
        return np.log(chance / (1 - chance))
    return chance if operation == "probability" else 2.0 * chance - 1.0
