"""A repair as a program of simple steps, which other systems can run without fairfix.

A program is a list of steps; each makes one number (a double) or one truth value of those before it. What a step
does is said by its operation:

=================  =================================================================================================
operation          gives
=================  =================================================================================================
``number``         the entry of an input column; missing where there is none
``level``          the place of a value among ``levels``, by its one text (:func:`fairfix.data.canonical.canonical`), or
                   by the text that this is ``merged`` into, where there is such a setting; -1 for any other
``draw``           the row's draw in [0, 1)
``constant``       ``value``; null is missing
``add``, ``subtract``, ``multiply``, ``divide``, ``minimum``, ``maximum``, ``exp``, ``log``
                   arithmetic of one or two steps; missing where one of them is
``dot``            the sum of steps times ``weights``, added in order from 0
``below``, ``at_most``, ``equal``, ``is_missing``
                   truth values; a comparison with a missing number is false
``choose``         the second step where the first is true, else the third
``search``         how many numbers of the increasing ``grid`` are below the step, or not above it where ``right``
``take``           the entry of ``numbers`` at a place
``trees``          ``start`` plus the value of the leaf that each tree leads to, in order; see :func:`tree_settings`
=================  =================================================================================================

:func:`run` is the reference: it runs a program on columns of numpy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from fairfix.data.canonical import canonical

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Step:
    """One step: an operation on the steps of these numbers, with settings."""

    operation: str
    of: tuple[int, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)


def names_of(level: Mapping[str, Any]) -> list[list[str]]:
    """Return the texts that mean each of the levels of a step, by its settings."""
    merged = level.get("merged", {})
    return [
        [one, *(text for text, into in merged.items() if into == one and text != one)]
        for one in level["levels"]
    ]


class Program:
    """Steps under construction: equal steps are one."""

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self._place: dict[Any, int] = {}

    def add(self, operation: str, *of: int, **settings: Any) -> int:
        """Return the number of a step, which is added unless it is there already."""
        key = (operation, of, repr(sorted(settings.items())))
        if key not in self._place:
            self._place[key] = len(self.steps)
            self.steps.append(Step(operation, of, settings))
        return self._place[key]

    def constant(self, number: float) -> int:
        """Return the step of a number; NaN is a missing one."""
        return self.add("constant", value=None if np.isnan(number) else float(number))

    def clip(self, step: int, low: float, high: float) -> int:
        """Return the step that moves another into [low, high]."""
        return self.add("minimum", self.add("maximum", step, self.constant(low)), self.constant(high))

    def affine(self, step: int, scale: float, shift: float) -> int:
        """Return the step ``scale x + shift``."""
        product = step if scale == 1.0 else self.add("multiply", self.constant(scale), step)
        return product if shift == 0.0 else self.add("add", product, self.constant(shift))

    def expit(self, step: int) -> int:
        """Return the step ``1 / (1 + exp(-x))``.

        Databases stop where an exponential overflows: beyond 700 the result is 1, or less than 1e-303, anyway.
        """
        step = self.clip(step, -700.0, 700.0)
        power = self.add("exp", self.add("subtract", self.constant(0.0), step))
        return self.add("divide", self.constant(1.0), self.add("add", self.constant(1.0), power))

    def take(self, numbers: Sequence[float], place: int) -> int:
        """Return the step that looks a number up."""
        return self.add("take", place, numbers=[None if np.isnan(one) else float(one) for one in numbers])

    def search(self, grid: Sequence[float], step: int, *, right: bool) -> int:
        """Return the step that counts the numbers of an increasing grid below another, or not above it."""
        return self.add("search", step, grid=[float(one) for one in grid], right=right)

    def needed(self, results: Sequence[int]) -> tuple[list[Step], list[int]]:
        """Return the steps that results hang on, in order, and the numbers of the results among them."""
        wanted = set(results)
        for i in range(len(self.steps) - 1, -1, -1):
            if i in wanted:
                wanted.update(self.steps[i].of)
        place = {old: new for new, old in enumerate(sorted(wanted))}
        steps = [
            Step(step.operation, tuple(place[one] for one in step.of), step.settings)
            for step in (self.steps[i] for i in place)
        ]
        return steps, [place[one] for one in results]


LARGEST = float(np.finfo(np.float64).max)


def tree_settings(
    nodes: Mapping[str, npt.NDArray[Any]], roots: Sequence[int], start: float
) -> dict[str, Any]:
    """Return the settings of a step ``trees``.

    A walk begins at a root. At a node it goes to ``left`` where the feature's number is at most ``threshold``, or is
    missing and ``missing_left``, else to ``right``; a leaf is its own child, and has a ``value``.
    """
    threshold = np.clip(nodes["threshold"], -LARGEST, LARGEST)
    return {
        "start": float(start),
        "roots": [int(root) for root in roots],
        "threshold": threshold.tolist(),
        **{name: nodes[name].tolist() for name in ("feature", "left", "right", "value", "missing_left")},
    }


# ---------------------------------------------------------------------- the reference


def run(
    steps: Sequence[Step], columns: Mapping[str, npt.NDArray[Any]], draw: Floats
) -> list[npt.NDArray[Any]]:
    """Return what every step gives, each of shape (n,).

    Parameters
    ----------
    columns
        Column -> floats with NaN for missing, or texts, shape (n,) each.
    draw
        Shape (n,).
    """
    out: list[npt.NDArray[Any]] = []
    with np.errstate(all="ignore"):
        for step in steps:
            out.append(_step(step, [out[i] for i in step.of], columns, draw))
    return out


def _step(
    step: Step, of: Sequence[npt.NDArray[Any]], columns: Mapping[str, npt.NDArray[Any]], draw: Floats
) -> npt.NDArray[Any]:
    own, rows = step.settings, draw.size
    if step.operation in _ARITHMETIC:
        return np.asarray(_ARITHMETIC[step.operation](*of))
    match step.operation:
        case "number":
            return columns[own["column"]].astype(np.float64)
        case "level":
            place = {level: float(i) for i, level in enumerate(own["levels"])}
            merged = own.get("merged", {})
            texts = map(canonical, columns[own["column"]].tolist())
            return np.array([place.get(merged.get(text, text), -1.0) for text in texts])
        case "draw":
            return draw
        case "constant":
            return np.full(rows, np.nan if own["value"] is None else own["value"])
        case "dot":
            total = np.zeros(rows)
            for column, weight in zip(of, own["weights"], strict=True):
                total = total + column * weight
            return total
        case "search":
            side: Literal["left", "right"] = "right" if own["right"] else "left"
            return np.searchsorted(np.array(own["grid"]), of[0], side=side).astype(np.float64)
        case "take":
            numbers = np.array(own["numbers"], dtype=np.float64)
            return np.asarray(numbers[of[0].astype(np.int64)])
        case "trees":
            return _trees(own, np.column_stack([*of, np.zeros(rows)]))
        case _:
            raise AssertionError(step.operation)


_ARITHMETIC: Mapping[str, Callable[..., npt.NDArray[Any]]] = {
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "divide": np.divide,
    "minimum": np.minimum,
    "maximum": np.maximum,
    "exp": np.exp,
    "log": np.log,
    "below": np.less,
    "at_most": np.less_equal,
    "equal": np.equal,
    "is_missing": np.isnan,
    "choose": np.where,
}


def _trees(own: Mapping[str, Any], X: Floats) -> Floats:
    """Return the sum of the leaves that rows come to, shape (n,)."""
    feature, threshold, left, right, leaf, gaps_left = (
        np.array(own[name]) for name in ("feature", "threshold", "left", "right", "value", "missing_left")
    )
    total, rows = np.full(len(X), own["start"]), np.arange(len(X))
    for root in own["roots"]:
        at = np.full(len(X), root)
        while True:
            entry = X[rows, feature[at]]
            child = np.where(
                (entry <= threshold[at]) | (np.isnan(entry) & gaps_left[at]), left[at], right[at]
            )
            if np.array_equal(child, at):
                break
            at = child
        total = total + leaf[at]
    return total
