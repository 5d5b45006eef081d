"""Repaired predictors: what a repair leaves behind, applied to rows; and the one place where a decision is drawn.

A predictor maps a row to a number, exactly and deterministically: the probability of a positive decision, or a
value. It is made of arrays and plain settings, so it can be saved as data. A rule that randomises decides per
person: :func:`decide` compares that probability with a keyed hash of the row's id, so the same person gets the same
decision in any batch, in any order, on any machine; without ids, equal rows are told apart by their occurrence.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, ClassVar, Literal, Self

import numpy as np
import numpy.typing as npt

from fairfix.data.counts import Bools, Floats, Ints
from fairfix.data.draws import Seen, apart, hashes_of, shared
from fairfix.data.table import Table
from fairfix.errors import ArtifactError
from fairfix.optim.monotone import sigmoid_of
from fairfix.optim.piecewise import Piecewise


class Note(str):
    """What the user should know, in words, with a code by which programs know it; an empty one where there is none."""

    __slots__ = ("code",)
    severity: ClassVar[Literal["note", "warning"]] = "note"
    code: str

    def __new__(cls, text: object, code: str = "") -> Self:
        """Make a note of a text."""
        made = super().__new__(cls, text)
        made.code = code
        return made


class Caution(Note):
    """A note on something that endangers the result: told as a warning, where other notes only inform."""

    __slots__ = ()
    severity = "warning"


def messages(notes: Iterable[str]) -> tuple[Note, ...]:
    """Return every note once, what endangers the result first."""
    once = [note if isinstance(note, Note) else Note(note) for note in dict.fromkeys(notes)]
    return tuple(sorted(once, key=lambda note: note.severity == "note"))


@dataclass(frozen=True)
class Certificate:
    """What is proven of the shipped rule: its objective lies at most ``gap`` above the least of a class of rules.

    Attributes
    ----------
    objective
        What is measured, as a noun: ``mean square loss plus the penalty``.
    value
        Of the shipped rule.
    bound
        What no rule of the class goes below.
    among
        The class, in the plural: ``linear models within the bounds``.
    rows
        The rows it is proven on.
    """

    objective: str
    value: float
    bound: float
    among: str
    rows: str = "the rows of the fit"

    @property
    def gap(self) -> float:
        """How far the value may lie above the least; a rule outside the class may lie below it, which counts as 0."""
        return max(self.value - self.bound, 0.0)

    @property
    def sentence(self) -> str:
        """The same in words."""
        if self.value <= self.bound:
            return f"the {self.objective}, {self.value:.6g}, is not above the least of {self.among}, on {self.rows}"
        return (
            f"the {self.objective}, {self.value:.6g}, is at most {self.gap:.3g} above the least of {self.among}, on "
            f"{self.rows}"
        )


@dataclass(frozen=True)
class Quantity:
    """A number that a solver found or chose, beside its objective: a multiplier, a threshold, a weight.

    Attributes
    ----------
    name
        What it is called in the method's documentation.
    value
        The number.
    meaning
        What it is, in words.
    group
        Whose it is; empty where it is of all.
    """

    name: str
    value: float
    meaning: str
    group: str = ""


@dataclass(frozen=True)
class FitTrace:
    """How a fit went; saved as the ``solution`` of a result and of an artifact.

    Attributes
    ----------
    converged
        Whether the solver reached its tolerance, as measured at the end; exact by construction where there is nothing
        to iterate.
    iterations
        Its steps, in the method's own unit.
    objective
        Value of the method's objective at the solution.
    gap
        Certified distance of that value from the optimum; NaN where there is no certificate.
    notes
        What the user should know, in words; what endangers the result as :class:`Caution`.
    randomized
        The randomised rule that a deterministic one was rounded from, to show what that costs; not saved.
    base
        The same model without the repair, where the method learned it, to compare with; not saved.
    fitted, base_fitted
        Values of the rows of the fit, each by a model that has not seen the row, shape (n,) each; None where the
        predictor's own values are that. Not saved.
    redrawn
        Makes ``fitted`` anew for a table of some rows of the fit, with its draws, and their numbers; None where they
        hang on no draw. Not saved.
    certificates
        What is proven of the shipped rule, each named for what it bounds.
    quantities
        What else the solver found, in the order to show it.
    """

    converged: bool
    iterations: int
    objective: float
    gap: float = float("nan")
    notes: tuple[str, ...] = ()
    randomized: RepairedPredictor | None = None
    base: RepairedPredictor | None = None
    fitted: Floats | None = None
    base_fitted: Floats | None = None
    redrawn: Callable[[Table, Ints], Floats] | None = None
    certificates: tuple[Certificate, ...] = ()
    quantities: tuple[Quantity, ...] = ()

    def state(self) -> dict[str, Any]:
        """Return what is saved, as JSON has it: a number that is not finite is null."""
        return {
            "converged": bool(self.converged),
            "iterations": int(self.iterations),
            "objective": _or_null(self.objective),
            "gap": _or_null(max(self.gap, 0.0)),  # below 0 by rounding only
            "certificates": [
                {
                    "objective": one.objective,
                    "value": _or_null(one.value),
                    "bound": _or_null(one.bound),
                    "gap": _or_null(one.gap),
                    "among": one.among,
                    "rows": one.rows,
                    "says": one.sentence,
                }
                for one in self.certificates
            ],
            "quantities": [
                {"name": one.name, "value": _or_null(one.value), "meaning": one.meaning}
                | ({"group": one.group} if one.group else {})
                for one in self.quantities
            ],
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> FitTrace:
        """Return the trace of a saved state."""
        return cls(
            bool(state["converged"]),
            int(state["iterations"]),
            _or_nan(state["objective"]),
            _or_nan(state["gap"]),
            certificates=tuple(
                Certificate(
                    str(one["objective"]),
                    _or_nan(one["value"]),
                    _or_nan(one["bound"]),
                    str(one["among"]),
                    str(one["rows"]),
                )
                for one in state["certificates"]
            ),
            quantities=tuple(
                Quantity(
                    str(one["name"]), _or_nan(one["value"]), str(one["meaning"]), str(one.get("group", ""))
                )
                for one in state["quantities"]
            ),
        )


def _or_null(number: float) -> float | None:
    return float(number) if math.isfinite(number) else None


def _or_nan(number: float | None) -> float:
    return math.nan if number is None else float(number)


class RepairedPredictor(ABC):
    """Maps the rows of a table to a probability of a positive decision, or to a value.

    A kind is a subclass with a ``kind`` of its own; it is found by it when an artifact is loaded.
    """

    kind: ClassVar[str]
    kinds: ClassVar[dict[str, type[RepairedPredictor]]] = {}
    randomized: ClassVar[bool] = False
    """Whether some results are drawn: decisions of a probability strictly between 0 and 1, or values."""
    gives: ClassVar[Literal["decision", "value"]] = "decision"
    """What a prediction is: the probability of a positive decision, or a value such as a repaired score."""
    is_probability: ClassVar[bool] = False
    """Whether predictions are probabilities that may be drawn with or rounded, so that a proof shows both."""
    needs_protected: ClassVar[bool] = False
    """Whether the protected attribute is needed at predict time."""
    needs_score: ClassVar[bool] = True
    """Whether the model's score is needed at predict time."""
    inputs: tuple[str, ...] = ()
    """Group columns that prediction looks at."""
    features: Mapping[str, str] = MappingProxyType({})
    """Feature columns that prediction looks at, with their kinds (see :mod:`fairfix.models.features`)."""
    trace: FitTrace

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "kind" in cls.__dict__:
            RepairedPredictor.kinds[cls.kind] = cls

    @abstractmethod
    def predict(self, table: Table) -> Floats:
        """Return P(decision = 1) or the value per row, shape (n,); NaN for rows of a group not seen in the fit."""

    def drawn(self, table: Table) -> Bools:
        """Return which rows have a value that hangs on ``table.draws``, shape (n,)."""
        return np.zeros(len(table), dtype=bool)

    def unrepaired(self, table: Table) -> Floats:
        """Return what the base would give each row, shape (n,): its decision at the threshold, as 0 or 1."""
        assert table.rows.score is not None
        return np.asarray((table.rows.score >= table.reading.thresholds[0]).astype(np.float64))

    def of_each_group(self, table: Table) -> tuple[tuple[tuple[str, ...], ...], Floats] | None:
        """Return the groups of the fit and what each row would get in each of them, shape (n, K).

        None where the group is not looked at, or where that is not known.
        """
        return None

    @abstractmethod
    def state(self) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
        """Return (JSON settings, named arrays) from which :meth:`from_state` makes the same predictor."""

    @classmethod
    @abstractmethod
    def from_state(cls, settings: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]]) -> Self:
        """Return the predictor of a saved state.

        Raises
        ------
        ArtifactError
            The state does not fit together.
        """


@dataclass(frozen=True)
class GroupwiseRamp(RepairedPredictor):
    r"""A ramp per group on the score ``f = 2 p - 1``.

    .. math:: P(\text{decision} = 1 \mid f, k) = \mathrm{clip}((f - t_k) / \gamma,\, 0,\, 1)

    Attributes
    ----------
    columns
        Columns whose levels make the group.
    levels
        One tuple of levels per group, sorted.
    offsets, remainders
        ``t_k = offsets[k] + remainders[k]``, shape (K,) each; see :mod:`fairfix.optim.ramp`.
    gamma
        Width of the ramp.
    """

    kind: ClassVar[str] = "groupwise_ramp"
    randomized: ClassVar[bool] = True
    needs_protected: ClassVar[bool] = True

    columns: tuple[str, ...]
    levels: tuple[tuple[str, ...], ...]
    offsets: Floats
    remainders: Floats
    gamma: float
    trace: FitTrace = field(default=FitTrace(True, 0, float("nan")), compare=False)

    @property
    def inputs(self) -> tuple[str, ...]:  # type: ignore[override]  # an attribute of the base, derived here
        """Group columns that prediction looks at."""
        return self.columns

    def predict(self, table: Table) -> Floats:
        """Return the ramp of each row's group at its score; NaN for groups not seen in the fit."""
        code, cell = codes_of_cells(table, self.columns, self.levels), table.rows.cell
        share = 2.0 * table.probability - 1.0
        for part in (
            self.offsets,
            self.remainders,
        ):  # in place, in the order of ramp(); 0 would change nothing
            if part.any():
                share -= np.append(part, np.nan)[code][cell]
        if (code < 0).any():
            share[(code < 0)[cell]] = np.nan
        share /= self.gamma
        return np.clip(share, 0.0, 1.0, out=share)

    def state(self) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
        """Return the levels and the width as settings, the offsets as arrays."""
        settings = {
            "columns": list(self.columns),
            "levels": [list(level) for level in self.levels],
            "gamma": self.gamma,
        }
        return settings, {"offsets": self.offsets, "remainders": self.remainders}

    @classmethod
    def from_state(cls, settings: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]]) -> Self:
        """Return the predictor of a saved state, checked."""
        if set(settings) != {"columns", "levels", "gamma"} or set(arrays) != {"offsets", "remainders"}:
            raise ArtifactError(f"a {cls.kind} has other settings or arrays than this artifact holds")
        levels = tuple(tuple(str(part) for part in level) for level in settings["levels"])
        columns = tuple(str(name) for name in settings["columns"])
        gamma = settings["gamma"]
        offsets, remainders = arrays["offsets"], arrays["remainders"]
        sound = (
            offsets.shape == remainders.shape == (len(levels),)
            and offsets.dtype == remainders.dtype == np.float64
            and bool(np.isfinite(offsets).all() and np.isfinite(remainders).all())
            and len(set(levels)) == len(levels) > 0
            and all(len(level) == len(columns) for level in levels)
            and isinstance(gamma, float)
            and 0 < gamma < float("inf")
        )
        if not sound:
            raise ArtifactError(f"the parts of this {cls.kind} do not fit together")
        return cls(columns, levels, offsets, remainders, gamma)


@dataclass(frozen=True, eq=False)
class GroupwiseCurve(RepairedPredictor):
    r"""A piecewise linear rule per group on the score ``f = 2 p - 1``, recalibrated first where there is a map.

    Of a raw score ``f`` is the score itself; then there is no map.

    .. math:: P(\text{decision} = 1 \mid f, k) = g_k(f) \quad\text{or}\quad
        g_k(2\, \sigma(a_k \operatorname{logit} p + b_k) - 1)

    Thresholds with a tie probability, ramps with a slope of their own, steps of a recalibrated score and their
    mixtures with constants are all of this form.

    Attributes
    ----------
    columns
        Columns whose levels make the group.
    levels
        One tuple of levels per group, sorted.
    curves
        ``g_k``, one per group.
    sigmoid
        ``(a_k, b_k)``, shape (K, 2); None where the score is taken as it is.
    """

    kind: ClassVar[str] = "groupwise_curve"
    needs_protected: ClassVar[bool] = True

    columns: tuple[str, ...]
    levels: tuple[tuple[str, ...], ...]
    curves: tuple[Piecewise, ...]
    sigmoid: Floats | None = None
    trace: FitTrace = field(default=FitTrace(True, 0, float("nan")))

    @property
    def inputs(self) -> tuple[str, ...]:  # type: ignore[override]  # an attribute of the base, derived here
        """Group columns that prediction looks at."""
        return self.columns

    @property
    def randomized(self) -> bool:  # type: ignore[override]  # an attribute of the base, derived here
        """Whether some curve takes a value strictly between 0 and 1."""
        return not all(curve.sharp for curve in self.curves)

    def predict(self, table: Table) -> Floats:
        """Return the curve of each row's group at its score; NaN for groups not seen in the fit."""
        code = codes_of(table, self.columns, self.levels)
        score = table.ranking
        out = np.full(score.shape, np.nan)
        for k in range(len(self.curves)):
            inside = code == k
            out[inside] = self.of_group(k, score[inside])
        return out

    def of_group(self, k: int, score: Floats) -> Floats:
        """Return P(decision = 1) at scores ``2 p - 1`` of one group, same shape."""
        if self.sigmoid is not None:
            score = 2.0 * sigmoid_of(score, *map(float, self.sigmoid[k])) - 1.0
        return self.curves[k](score)

    def state(self) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
        """Return the levels and the number of knots per group as settings, the curves end to end as arrays."""
        settings = {
            "columns": list(self.columns),
            "levels": [list(level) for level in self.levels],
            "knots": [int(curve.knots.size) for curve in self.curves],
        }
        arrays = arrays_of_curves(self.curves)
        return settings, arrays if self.sigmoid is None else {**arrays, "sigmoid": self.sigmoid}

    @classmethod
    def from_state(cls, settings: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]]) -> Self:
        """Return the predictor of a saved state, checked."""
        if set(settings) != {"columns", "levels", "knots"} or set(arrays) - {"sigmoid"} != set(CURVE_PARTS):
            raise ArtifactError(f"a {cls.kind} has other settings or arrays than this artifact holds")
        levels = tuple(tuple(str(part) for part in level) for level in settings["levels"])
        columns = tuple(str(name) for name in settings["columns"])
        map_ = arrays.get("sigmoid")
        sound = (
            len(set(levels)) == len(levels) > 0
            and all(len(level) == len(columns) for level in levels)
            and (map_ is None or (map_.shape == (len(levels), 2) and bool(np.isfinite(map_).all())))
        )
        curves = curves_of_arrays(settings["knots"], arrays, len(levels)) if sound else None
        if curves is None:
            raise ArtifactError(f"the parts of this {cls.kind} do not fit together")
        return cls(columns, levels, curves, map_)


CURVE_PARTS = ("knots", "left", "at", "right")


def arrays_of_curves(curves: Sequence[Piecewise]) -> dict[str, npt.NDArray[Any]]:
    """Return curves end to end, as arrays of an artifact."""
    return {part: np.concatenate([getattr(curve, part) for curve in curves]) for part in CURVE_PARTS}


def curves_of_arrays(
    sizes: Sequence[Any], arrays: Mapping[str, npt.NDArray[Any]], many: int
) -> tuple[Piecewise, ...] | None:
    """Return so many curves from their numbers of knots and :func:`arrays_of_curves`, None if they do not fit."""
    parts = [arrays[name] for name in CURVE_PARTS]
    sound = (
        len(sizes) == many
        and all(isinstance(size, int) and size > 0 for size in sizes)
        and all(a.shape == (sum(sizes),) and a.dtype == np.float64 and np.isfinite(a).all() for a in parts)
        and all(bool(((a >= 0) & (a <= 1)).all()) for a in parts[1:])
    )
    if not sound:
        return None
    cuts = np.cumsum(sizes)[:-1]
    curves = tuple(Piecewise(*four) for four in zip(*(np.split(a, cuts) for a in parts), strict=True))
    return None if any((np.diff(curve.knots) <= 0).any() for curve in curves) else curves


def codes_of(table: Table, columns: Sequence[str], levels: Sequence[tuple[str, ...]]) -> Ints:
    """Return the index of each row's group among ``levels``, -1 for a group that is not there; shape (n,)."""
    return codes_of_cells(table, columns, levels)[table.rows.cell]


def codes_of_cells(table: Table, columns: Sequence[str], levels: Sequence[tuple[str, ...]]) -> Ints:
    """Return the same for each of the table's cells, in their order."""
    keys = table.reading.columns.cell_keys
    at = [keys.index(name) for name in columns]
    place = {level: i for i, level in enumerate(levels)}
    found = [place.get(tuple(cell[i] for i in at), -1) for cell in table.rows.cells]
    return np.array(found, dtype=np.int64)


def decide(
    chance: Floats, identities: Iterable[bytes], key: bytes, seen: Seen | None = None
) -> npt.NDArray[np.int8]:
    """Return decisions for probabilities, drawn by a keyed hash of the rows' identities.

    Parameters
    ----------
    chance
        P(decision = 1), shape (n,), no NaN.
    identities
        One identity per row whose probability lies strictly between 0 and 1, in order; the others need none.
    key
        At most 64 bytes.
    seen
        As :func:`draws_of`.

    Returns
    -------
    Shape (n,): 1 where the row's draw is below its chance.
    """
    out = (chance >= 1.0).astype(np.int8)
    open_rows = np.flatnonzero(is_random(chance))
    uniform = draws_of(identities, key, seen)
    assert uniform.size == open_rows.size
    out[open_rows] = uniform < chance[open_rows]
    return out


def draws_of(identities: Iterable[bytes], key: bytes, seen: Seen | None = None) -> Floats:
    """Return a number in [0, 1) per identity, shape (n,); see :mod:`fairfix.data.draws`.

    Rows of one identity share it; with ``seen``, where the identity is made of a row's values, they are told apart by
    their occurrence, which is counted on there.
    """
    hashes = hashes_of(identities, key)
    return shared(hashes) if seen is None else apart(hashes, seen)


def is_random(chance: Floats) -> Bools:
    """Return which probabilities leave the decision to chance; NaN does not."""
    return (chance > 0.0) & (chance < 1.0)


def identity_of(values: Sequence[Any]) -> bytes:
    """Return the identity of a row from its values, the same for the same values in any file format.

    Whole numbers are written without a fraction, other numbers as their shortest exact decimal, a missing
    value as NUL; the values are joined by the unit separator.
    """
    return b"\x1f".join(_canonical(value) for value in values)


def _canonical(value: Any) -> bytes:
    if value is None or value != value:  # NaN differs from itself
        return b"\x00"
    if isinstance(value, float):
        return (str(int(value)) if value.is_integer() and abs(value) < 2**53 else repr(value)).encode()
    return value if isinstance(value, bytes) else str(value).encode()
