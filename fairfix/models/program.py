"""A rule as a program of simple steps: written once, run on arrays, on one row, and in other systems.

A program is a list of steps; each makes one number (a double) or one truth value of those before it. Its operation
says what a step does:

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
``trees``          ``start`` plus the ``value`` of the leaf that each of ``roots`` leads to, in order: to ``left`` where
                   the step of number ``feature`` is at most ``threshold``, or is missing and ``missing_left``, else to
                   ``right``; a leaf is its own child
=================  =================================================================================================

Rules also have steps that exports write as several of these (:mod:`fairfix.models.export.lowering`):

=================  =================================================================================================
``score``          the score as it comes
``ranking``        ``2 p - 1`` of the score's probability ``p``, or a raw score as it is
``probability``    the score as a probability, or a label's prediction as it is
``log_odds``       the log-odds of that probability, or a raw score as it is
``group``          1 plus the place of the row's group among ``levels`` of ``columns``; 0 for any other group
``entry``          the entry of a vector of ``width`` numbers at a ``place``
``column``         the entry of a row of a matrix at a ``place``
``scorer``         what ``scorer`` gives: a score, or probabilities of classes
``graph``          the same of ``member``, which runs a graph of ONNX, from the steps
``stack``          the steps together, as probabilities of classes are
``pick``           what is at a ``place`` of those
``expit``          ``1 / (1 + exp(-x))``
``score_logit``    the log-odds of a score ``2 p - 1``, within +-:data:`LARGEST_LOGIT`
``select``         the step after the first one that the first one numbers; no other is computed for the row
=================  =================================================================================================

:mod:`fairfix.models.array_interpreter` runs programs on columns, :mod:`fairfix.models.standalone` on one row.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from fairfix.models.score_models import Scorer
    from fairfix.solvers.piecewise import Piecewise

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Step:
    """One step: an operation on the steps of these numbers, with settings."""

    operation: str
    of: tuple[int, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def plain(self) -> dict[str, Any]:
        """The step as JSON has it: lists for arrays, null for a missing number."""
        return {"operation": self.operation, "of": list(self.of)} | {
            name: _plain(value) for name, value in self.settings.items()
        }


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        whole = value.tolist()
        return [None if one != one else one for one in whole] if value.dtype.kind == "f" else whole
    return None if isinstance(value, float) and math.isnan(value) else value


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
        key = (operation, of, *((name, _key(settings[name])) for name in sorted(settings)))
        if key not in self._place:
            self._place[key] = len(self.steps)
            self.steps.append(Step(operation, of, settings))
        return self._place[key]

    def constant(self, number: float) -> int:
        """Return the step of a number; NaN is a missing one."""
        return self.add("constant", value=float(number))

    def number(self, column: str) -> int:
        """Return the step of an input column of numbers."""
        return self.add("number", column=column, kind="number")

    def clip(self, step: int, low: float, high: float) -> int:
        """Return the step that moves another into [low, high]."""
        return self.add("minimum", self.add("maximum", step, self.constant(low)), self.constant(high))

    def affine(self, step: int, scale: float, shift: float) -> int:
        """Return the step ``scale x + shift``."""
        product = step if scale == 1.0 else self.add("multiply", self.constant(scale), step)
        return product if shift == 0.0 else self.add("add", product, self.constant(shift))

    def take(self, numbers: Sequence[float] | Floats, place: int) -> int:
        """Return the step that looks a number up; NaN is a missing one."""
        return self.add("take", place, numbers=np.array(numbers, dtype=np.float64))

    def search(self, grid: Sequence[float] | Floats, step: int, *, right: bool) -> int:
        """Return the step that counts the numbers of an increasing grid below another, or not above it."""
        return self.add("search", step, grid=np.array(grid, dtype=np.float64), right=right)

    def dot(self, X: Sequence[int], weights: Sequence[float] | Floats) -> int:
        """Return the step of the sum of numbers times weights."""
        return self.add("dot", *X, weights=np.array(weights, dtype=np.float64))

    def total(self, X: Sequence[int]) -> int:
        """Return the step of a sum."""
        return self.dot(X, np.ones(len(X)))

    def ramp(self, score: int, threshold: int, width: float) -> int:
        """Return the step ``clip((score - threshold) / width, 0, 1)``."""
        over = self.add("subtract", score, threshold)
        return self.clip(self.add("divide", over, self.constant(width)), 0.0, 1.0)

    def curve(self, one: Piecewise, x: int) -> int:
        """Return the step of a piecewise linear function at ``x``; see :mod:`fairfix.solvers.piecewise`."""
        knots, inner = one.knots, slice(None, -1)
        after = self.search(knots, x, right=False)
        between = self.take([one.left[0], *one.right], after)
        with np.errstate(over="ignore"):
            slopes = (one.left[1:] - one.right[inner]) / np.diff(knots)
        slopes[~np.isfinite(slopes)] = 0.0  # between neighbours among the smallest floats
        if slopes.any() or self.steps[x].operation != "ranking":  # which is never missing where a rule is run
            inside = self.clip(x, float(knots[0]), float(knots[-1]))
            way = self.add("subtract", inside, self.take([knots[0], *knots], after))
            rise = self.add("multiply", self.take([0.0, *slopes, 0.0], after), way)
            between = self.add("add", rise, between)
        on_knot = self.add("equal", self.take([*knots, knots[-1]], after), x)
        return self.add("choose", on_knot, self.take([*one.at, one.at[-1]], after), between)

    # ------------------------------------------------------------------ what rules look at

    @property
    def score(self) -> int:
        """The step of the score as it comes."""
        return self.add("score")

    @property
    def ranking(self) -> int:
        """The step of ``2 p - 1``, or of a raw score as it is."""
        return self.add("ranking")

    @property
    def draw(self) -> int:
        """The step of the row's draw."""
        return self.add("draw")

    def group(self, columns: tuple[str, ...], levels: tuple[tuple[str, ...], ...]) -> int:
        """Return the step of the place of the row's group, plus 1; 0 for a group that is not there."""
        return self.add("group", columns=columns, levels=levels) if columns else self.constant(1.0)

    def scorer(self, one: Scorer) -> int:
        """Return the step of the score of a scorer of one number."""
        return self.add("scorer", scorer=one)

    def class_scores(self, one: Scorer) -> list[int]:
        """Return the steps of a scorer's probabilities of its classes."""
        return [self.add("pick", self.scorer(one), place=k) for k in range(one.classes_given or 0)]

    def stack(self, steps: Sequence[int]) -> int:
        """Return the step of several together."""
        return self.add("stack", *steps)

    def select(self, place: int, branches: Sequence[int]) -> int:
        """Return the step that gives the branch of a number, counted from 0."""
        return self.add("select", place, *branches)

    def rule(self, result: int) -> Rule:
        """Return the steps that a result depends on, in order."""
        wanted, left = set[int](), [result]
        while left:
            if (i := left.pop()) not in wanted:
                wanted.add(i)
                left.extend(self.steps[i].of)
        place = {old: new for new, old in enumerate(sorted(wanted))}
        steps = (self.steps[i] for i in place)
        return Rule(
            tuple(Step(one.operation, tuple(place[i] for i in one.of), one.settings) for one in steps),
            place[result],
        )


def _key(value: Any) -> Any:
    """Return what is equal for settings that are."""
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape, value.tobytes()
    if isinstance(value, dict | list | float):
        return repr(value)
    return value if isinstance(value, str | int | tuple | None) else id(value)


# ---------------------------------------------------------------------- what is computed for a row


@dataclass(frozen=True)
class ProgramPlan:
    """The steps to compute for a row, in order, and those of each branch of a ``select`` among them."""

    root: int
    order: tuple[int, ...]
    branches: Mapping[int, tuple[ProgramPlan, ...]]


@dataclass(frozen=True, eq=False)
class Rule:
    """A finished program."""

    steps: tuple[Step, ...]
    result: int
    """Number of the step that is asked for."""

    @cached_property
    def plan(self) -> ProgramPlan:
        """The steps to compute for a row, without those of branches that it does not take."""
        return self._plan(self.result, frozenset())

    def _plan(self, root: int, above: Collection[int]) -> ProgramPlan:
        wanted, left = set[int](), [root]
        while left:
            if (i := left.pop()) in wanted or i in above:
                continue
            wanted.add(i)
            step = self.steps[i]
            left.extend(step.of[:1] if step.operation == "select" else step.of)
        selects = [i for i in wanted if self.steps[i].operation == "select"]
        there = {*above, *wanted} if selects else above
        branches = {i: tuple(self._plan(one, there) for one in self.steps[i].of[1:]) for i in selects}
        return ProgramPlan(root, tuple(sorted(wanted)), branches)
