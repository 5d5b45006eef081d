r"""Metrics of one's own: a function over the counts of a group, and what makes an interval of it possible.

The function gets sums of weights as symbols, not numbers, and returns a quotient of two sums,

.. math:: \frac{\sum_e a_e n_e}{\sum_e b_e n_e}, \qquad b_e \ge 0, \quad a_e = 0 \text{ where } b_e = 0,

over the four entries of the confusion table. That is the mean of the values :math:`a_e / b_e` over rows that count
:math:`b_e` times: a number that has limits by what every rate and mean of the catalogue has them by. A cost per row, a
share of some rows and an F-score are of this kind. A root, a product of rates, the larger of two, or a quotient whose
numerator counts rows that its denominator does not count is none of them, and is refused.

A function of labels and decisions, such as scikit-learn's ``fbeta_score``, is called with made-up rows instead. The
coefficients are solved from its values :math:`f`, as :math:`\sum_e a_e n_e - f \sum_e b_e n_e = 0` is linear in them.
So are those of a quotient of two polynomials, of degree 2 or 3, such as Cohen's kappa or a macro average; its limits
are in :mod:`fairfix.stats.table_ratios`. A function of scikit-learn that the catalogue has, such as ``roc_auc_score``,
is that metric under the name given.
"""

from __future__ import annotations

import inspect
import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any, NoReturn

import numpy as np

from fairfix.auditing.metrics import (
    ADDED,
    ALIASES,
    KINDS_OF_VALUES,
    METRICS,
    NOT_TO_OVERALL,
    EntryMean,
    Metric,
    TableRatio,
)
from fairfix.errors import UsageError
from fairfix.schema.audit import OwnMetric
from fairfix.stats.table_ratios import DEGREES, monomials, powers_of, range_of

SUMS: Mapping[str, tuple[float, float, float, float]] = {
    "true_positives": (1, 0, 0, 0),
    "false_negatives": (0, 1, 0, 0),
    "false_positives": (0, 0, 1, 0),
    "true_negatives": (0, 0, 0, 1),
    "rows": (1, 1, 1, 1),
    "positives": (1, 1, 0, 0),
    "negatives": (0, 0, 1, 1),
    "selected": (1, 0, 1, 0),
    "rejected": (0, 1, 0, 1),
}
"""Countable rows, as weights of the entries: ``positives`` have label 1, ``selected`` a positive decision."""

EXAMPLE = "lambda c: (5 * c.false_negatives + c.false_positives) / c.rows"


ENTRY_ROWS = ((1, 1), (1, 0), (0, 1), (0, 0))
"""Label and decision of a row of each entry."""

EXACT = 1e-9
"""Relative error of a solved equation: rounding adds up to some 1e-14."""


class NoQuotientError(Exception):
    """Error of a function that is no quotient of sums."""


@dataclass(frozen=True)
class Quotient:
    """``above / below``: weights of the four entries, ``below`` None for a plain sum."""

    above: tuple[float, ...]
    below: tuple[float, ...] | None = None

    def _with(self, other: Any, sign: float) -> Any:
        if isinstance(other, (int, float)):
            if self.below is None:
                raise NoQuotientError("it adds a number to a sum; add a multiple of c.rows")
            other = Quotient(tuple(other * b for b in self.below), self.below)
        if not isinstance(other, Quotient):
            return NotImplemented
        if self.below != other.below:
            raise NoQuotientError("it adds quotients of different denominators")
        return Quotient(tuple(a + sign * b for a, b in zip(self.above, other.above, strict=True)), self.below)

    def __add__(self, other: Any) -> Any:
        return self._with(other, 1.0)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Any:
        return self._with(other, -1.0)

    def __rsub__(self, other: Any) -> Any:
        return (-self)._with(other, 1.0)

    def __neg__(self) -> Any:
        return self * -1.0

    def __mul__(self, number: Any) -> Any:
        if isinstance(number, Quotient):
            raise NoQuotientError("it multiplies counts with counts")
        if not isinstance(number, (int, float)):
            return NotImplemented
        return Quotient(tuple(a * number for a in self.above), self.below)

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> Any:
        if isinstance(other, (int, float)):
            return self * (1.0 / other)
        if not isinstance(other, Quotient):
            return NotImplemented
        if self.below is not None or other.below is not None:
            raise NoQuotientError("it divides a quotient")
        return Quotient(self.above, other.above)

    def _refuse(self, *_: Any) -> NoReturn:
        raise NoQuotientError("it compares the size of a count")

    __bool__ = __float__ = __int__ = __lt__ = __le__ = __gt__ = __ge__ = __abs__ = __pow__ = _refuse


def own_metrics(functions: Mapping[str, Callable[..., Any]]) -> tuple[Metric, ...]:
    """Return an entry of the catalogue for each function that is not in it.

    Raises
    ------
    UsageError
        A name is taken or is no identifier, or a function returns no quotient of sums; the message says why not.
    """
    made = (_own(name, function) for name, function in functions.items())
    return tuple(one for one in made if one is not None)


def _own(name: str, function: Callable[..., Any]) -> Metric | None:
    where = f"`metrics`: {name!r}"
    if not (isinstance(name, str) and name.isidentifier() and name.isascii()):
        raise UsageError(f"{where} is not a name; use letters, digits and underscores, such as 'cost'")
    built_in = _built_in(function)
    if name in METRICS or name in ALIASES:
        if built_in == ALIASES.get(name, name):
            return None
        raise UsageError(f"{where} is already a metric of fairfix; use another name")
    if not callable(function):
        raise UsageError(f"{where} must be a function of counts, such as {EXAMPLE}")
    try:
        if built_in and METRICS[built_in].interval not in ("rates", "F1"):  # these are solved for
            return make(name, same_as=built_in)
        if _takes_rows(function):
            return make(name, *_solved(function))
        counts = SimpleNamespace(**{one: Quotient(tuple(map(float, sums))) for one, sums in SUMS.items()})
        return make(name, *_parts(function(counts)))
    except Exception as error:  # a function may raise anything
        raise UsageError(
            f"{where} has no valid interval: {error}. Return a quotient of two sums of "
            f"{', '.join(SUMS)}, in which the numerator counts no row that the denominator does not: {EXAMPLE}"
        ) from error


def _built_in(function: object) -> str:
    """Return the metric of the catalogue that a function of scikit-learn computes, or nothing."""
    if not getattr(function, "__module__", "").startswith("sklearn."):
        return ""
    name = getattr(function, "__name__", "")
    return ALIASES.get(name, name if name in METRICS else "")


def _takes_rows(function: Callable[..., Any]) -> bool:
    """Return whether a function needs two arguments: labels and decisions, not counts."""
    try:
        inspect.signature(function).bind(None, None)
    except (TypeError, ValueError):
        return False
    return True


def _takes_fractions(function: Callable[..., Any], labels: np.ndarray[Any, Any]) -> bool:
    """Return whether a function of decisions has a value for scores too."""
    try:
        function(labels, np.linspace(0.2, 0.8, labels.size))
    except Exception:  # the functions have many ways to refuse them
        return False
    return True


def _solved(function: Callable[..., Any]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return the coefficients of a function of labels and decisions; its answers to other rows confirm them."""
    rng = np.random.default_rng(0)
    rows = np.array(ENTRY_ROWS)

    def answer(counts: np.ndarray[Any, Any]) -> float:
        labels, decisions = rng.permutation(np.repeat(rows, counts, axis=0)).T
        return float(function(labels, decisions))

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if _takes_fractions(function, rows[:, 0]):
            raise NoQuotientError("it takes scores for decisions, and its values for these would differ")
        counts, answers = np.empty((0, len(rows)), int), np.empty(0)
        for terms, degree in DEGREES.items():  # 2 terms unknowns, up to a factor: half of the answers solve
            counts = np.vstack([counts, rng.integers(1, 40, (8 * terms - len(counts), len(rows)))])
            answers = np.append(answers, [answer(one) for one in counts[len(answers) :]])
            if not np.isfinite(answers).all():
                raise NoQuotientError("it is undefined where there are rows of all four kinds")
            if (solution := _coefficients(counts, answers, degree)) is not None:
                return solution
    if not np.isclose(answer(counts[0]), answers[0], rtol=EXACT):
        raise NoQuotientError("its value depends on the order of rows, or on chance")
    raise NoQuotientError(
        "its values are not a quotient of two sums of counts, or of products of up to three counts"
    )


def _coefficients(
    counts: np.ndarray[Any, Any], answers: np.ndarray[Any, Any], degree: int
) -> tuple[tuple[float, ...], tuple[float, ...]] | None:
    """Return the coefficients of a quotient with these answers, above and below; None where there is none."""
    terms = monomials(counts / counts.sum(axis=1, keepdims=True), degree)
    equations = np.hstack([terms, -answers[:, None] * terms])
    _, sizes, directions = np.linalg.svd(equations[: len(equations) // 2])
    solution = directions[-1]
    if sizes[-2] < EXACT * sizes[0] or not np.allclose(equations @ solution, 0.0, atol=EXACT * sizes[0]):
        return None
    solution[np.abs(solution) < EXACT] = 0.0
    solution /= solution[terms.shape[1] :][np.flatnonzero(solution[terms.shape[1] :])[0]]
    smallest = np.abs(solution[solution != 0]).min()
    above, below = (np.round(solution / smallest, 9) + 0.0).reshape(2, -1).tolist()  # + 0.0: no -0.0
    return tuple(above), tuple(below)


def _parts(quotient: Any) -> tuple[tuple[float, ...], tuple[float, ...]]:
    if not isinstance(quotient, Quotient) or quotient.below is None:
        raise NoQuotientError(
            "it returns no quotient; divide by the number of rows that it is a rate or a mean of"
        )
    return quotient.above, quotient.below


def make(name: str, above: Sequence[float] = (), below: Sequence[float] = (), same_as: str = "") -> Metric:
    """Return the metric of the coefficients of its numerator and its denominator, or one of the catalogue."""
    if same_as:
        as_it_is = METRICS[same_as]
        own: Any = {"title": "", "phrase": "", "aliases": (), "titles": {}, "same_as": same_as}
        return replace(as_it_is, name=name, **own)
    if len(above) > len(ENTRY_ROWS):
        return _table_ratio(name, above, below)
    if not all(map(math.isfinite, (*above, *below))) or not any(below) or min(below) < 0:
        raise NoQuotientError("its denominator must count some rows, and none of them negatively")
    if any(a and not b for a, b in zip(above, below, strict=True)):
        raise NoQuotientError("its numerator counts rows that its denominator does not")
    levels = {a / b for a, b in zip(above, below, strict=True) if b}
    if len(levels) == 1:
        raise NoQuotientError(f"it is {levels.pop():g} whatever the counts")
    bounds = min(levels), max(levels)
    needs = []
    for need, other in (("label", (2, 3, 0, 1)), ("decision", (1, 0, 3, 2))):  # the entry with the other one
        if any(part[e] != part[o] for part in (above, below) for e, o in enumerate(other)):
            needs.append(need)
    return EntryMean(
        name=name,
        formula=f"{_sum(above)} / {_sum(below)}",
        above=tuple(above),
        below=tuple(below),
        needs=tuple(needs),
        undefined="no rows that its denominator counts",
        interval="rates" if len(levels) == 2 else "means, losses",
        scale="share" if bounds[0] >= 0 and bounds[1] <= 1 else "data",
        bounds=bounds,
        kinds=KINDS_OF_VALUES if bounds[0] >= 0 else ("difference", "min", "max"),
        of="decisions" if "decision" in needs else "labels",
    )


def _table_ratio(name: str, above: Sequence[float], below: Sequence[float]) -> TableRatio:
    """Return a quotient of polynomials, if its range is bounded."""
    if min(below) < 0:
        raise NoQuotientError("its denominator can be negative")
    bounds = range_of(above, below)
    if not all(map(math.isfinite, bounds)):
        raise NoQuotientError("it has no largest or no smallest value, so an interval would have no end")
    return TableRatio(
        name=name,
        formula=f"{_polynomial(above)} / {_polynomial(below)}",
        above=tuple(above),
        below=tuple(below),
        needs=("decision", "label"),
        undefined="its denominator is 0",
        interval="ratios of products",
        scale="data",
        bounds=bounds,
        kinds=KINDS_OF_VALUES if bounds[0] >= 0 else ("difference", "min", "max"),
        scopes=NOT_TO_OVERALL,
        of="decisions",
    )


def _polynomial(weights: Sequence[float]) -> str:
    """Return a polynomial of the four counts in words."""
    products = (
        " ".join(
            part for part, power in zip(("TP", "FN", "FP", "TN"), powers, strict=True) for _ in range(power)
        )
        for powers in powers_of(DEGREES[len(weights)])
    )
    terms = (f"{w:+g} {product}" for w, product in zip(weights, products, strict=True) if w)
    return (
        f"({' '.join(terms)})".replace("(+", "(")
        .replace("+1 ", "+ ")
        .replace("-1 ", "- ")
        .replace("(1 ", "(")
    )


def _sum(weights: Sequence[float]) -> str:
    """Return a sum in words, by the name of the whole where it is one."""
    for name, sums in SUMS.items():
        whole = [weight for weight, one in zip(weights, sums, strict=True) if one]
        if len(set(whole)) == 1 and not any(w for w, one in zip(weights, sums, strict=True) if not one):
            return name if whole[0] == 1 else f"{whole[0]:g} {name}"
    terms = [
        name if w == 1 else f"{w:g} {name}" for name, w in zip(list(SUMS)[:4], weights, strict=True) if w
    ]
    return f"({' + '.join(terms)})" if len(terms) > 1 else "".join(terms) or "0"


def own_struct(metric: Metric) -> OwnMetric:
    """Return the metric in a result, from which a saved report makes it again."""
    if isinstance(metric, (EntryMean, TableRatio)):
        return OwnMetric(metric=metric.name, above=metric.above, below=metric.below)
    return OwnMetric(metric=metric.name, same_as=metric.same_as)


@contextmanager
def added(metrics: Sequence[Metric | OwnMetric]) -> Iterator[None]:
    """Have metrics in the catalogue for the time of a ``with`` block, in this thread; also those of a result."""
    made = [
        one if isinstance(one, Metric) else make(one.metric, one.above, one.below, one.same_as)
        for one in metrics
    ]
    token = ADDED.set({**ADDED.get(), **{one.name: one for one in made}})
    try:
        yield
    finally:
        ADDED.reset(token)
