"""Trace: how a fit went, in numbers and in words; what is proven of it, and what the user should know."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from fairfix.schema import repair as schema
from fairfix.schema.common import number

if TYPE_CHECKING:
    from fairfix.data.counts import Floats, Ints
    from fairfix.data.table import Table
    from fairfix.models.predictors import RepairedPredictor


class Note(str):
    """A message for the user, with a code of :data:`fairfix.errors.CODES` by which programs know it."""

    __slots__ = ("code",)
    severity: ClassVar[Literal["note", "warning"]] = "note"
    code: str

    def __new__(cls, text: object, code: str) -> Self:
        """Make a note of a text."""
        made = super().__new__(cls, text)
        made.code = code
        return made

    def __getnewargs__(self) -> tuple[str, str]:  # type: ignore[override]  # of str, which has no code
        return str(self), self.code

    @property
    def line(self) -> str:
        """The note as it is told: with its severity before it, and its code at its end."""
        return f"{self.severity}: {self} [{self.code}]"


class Caution(Note):
    """A note on something that endangers the result: told as a warning, where other notes only inform."""

    __slots__ = ()
    severity = "warning"


def messages(notes: Iterable[Note]) -> tuple[Note, ...]:
    """Return every note once, what endangers the result first."""
    return tuple(sorted(dict.fromkeys(notes), key=lambda note: note.severity == "note"))


@dataclass(frozen=True)
class Certificate:
    """Certificate of the shipped rule: its objective is at most ``gap`` above the least of a class of rules."""

    objective: str
    """Name of the objective: ``mean square loss plus the penalty``."""
    value: float
    bound: float
    """Lower bound over the rules of the class."""
    among: str
    """The class, in the plural: ``linear models within the bounds``."""
    rows: str = "the training rows"

    @property
    def gap(self) -> float:
        """Largest distance of the value above the least; 0 where a rule outside the class is below it."""
        return max(self.value - self.bound, 0.0)

    @property
    def sentence(self) -> str:
        """The same in words."""
        if self.value <= self.bound:
            return (
                f"the {self.objective}, {self.value:.6g}, is not above the smallest possible for "
                f"{self.among}, on {self.rows}"
            )
        return (
            f"the {self.objective}, {self.value:.6g}, is at most {self.gap:.3g} above the smallest possible for "
            f"{self.among}, on "
            f"{self.rows}"
        )


@dataclass(frozen=True)
class Quantity:
    """A number that a solver found or chose, other than its objective: a multiplier, a threshold, a weight."""

    name: str
    """Name in the method's documentation."""
    value: float
    meaning: str
    group: str = ""
    """Its group; empty for all rows."""


@dataclass(frozen=True)
class FitTrace:
    """Record of a fit; saved as the ``solution`` of a result and of an artifact."""

    converged: bool
    """Whether the solver reached its tolerance, as measured at the end; exact by construction where there is nothing to
    iterate."""
    iterations: int
    """Its steps, in the method's own unit."""
    objective: float
    """Value of the method's objective at the solution."""
    gap: float = float("nan")
    """Certified distance of that value from the optimum; NaN where there is no certificate."""
    notes: tuple[Note, ...] = ()
    """Messages for the user; threats to the result are of the class :class:`Caution`."""
    randomized: RepairedPredictor | None = None
    """The randomised rule that a deterministic one was rounded from, to show what that costs; not saved."""
    base: RepairedPredictor | None = None
    """The same model without the repair, where the method learned it, to compare with; not saved."""
    aware: RepairedPredictor | None = None
    """The same repair with a rule that looks at the group, where this one does not, to show what that costs; not
    saved."""
    fitted: Floats | None = None
    base_fitted: Floats | None = None
    """Values of the training rows, each by a model that was fitted without the row, shape (n,) each; None where the
    predictor's own values are that. Not saved."""
    redrawn: Callable[[Table, Ints], Floats] | None = None
    """Computes ``fitted`` anew for a table of some training rows, with its draws, and their numbers; None where they
    depend on no draw. Not saved."""
    of_held_out: Callable[[Table, Table], Iterable[Note]] | None = None
    """Tells what rows that had no part in the fit, before and after the repair, say of the rule, which the audit does
    not know; None where there is no such thing. Not saved."""
    certificates: tuple[Certificate, ...] = ()
    """Certificates of the shipped rule, each named for its objective."""
    quantities: tuple[Quantity, ...] = ()
    """Further results of the solver, in the order of display."""

    @property
    def known_base(self) -> RepairedPredictor:
        """The same model without the repair; a ValueError where the method learned none."""
        if self.base is None:
            raise ValueError("the method learned no model without the repair")
        return self.base

    def without_rows(self) -> FitTrace:
        """Return the trace without the values for its evaluation on training rows, which it would keep in memory."""
        gone: dict[str, Any] = dict.fromkeys(
            ("base", "aware", "fitted", "base_fitted", "redrawn", "of_held_out")
        )
        return replace(self, **gone)

    @property
    def solution(self) -> schema.Solution:
        """The trace as results and artifacts have it: a number that is not finite is null."""
        return schema.Solution(
            converged=bool(self.converged),
            iterations=int(self.iterations),
            objective=number(self.objective),
            gap=number(max(self.gap, 0.0)),  # below 0 by rounding only
            certificates=tuple(
                schema.SavedCertificate(
                    **_finite(one, "value", "bound"), gap=number(one.gap), says=one.sentence
                )
                for one in self.certificates
            ),
            quantities=tuple(schema.SavedQuantity(**_finite(one, "value")) for one in self.quantities),
        )


def _finite(one: Certificate | Quantity, *names: str) -> dict[str, Any]:
    """Return the fields of a thing; of these numbers null where one is not finite."""
    return {**vars(one), **{name: number(getattr(one, name)) for name in names}}
