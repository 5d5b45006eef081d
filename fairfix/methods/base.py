"""Repairer: what every method is, and everything that methods share.

A method is one module or folder here with one subclass of :class:`Repairer`. Its hyper-parameters are
:func:`~fairfix.data.domain.parameter` fields of a dataclass; from that line come the range check and its message, the
command-line option with help and default, the row in the docs and the entry in the artifact. Where a method has several
algorithms, each is a :class:`Solver` that says which of the parameters it reads.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, final

import numpy as np

from fairfix.data.choices import Asked
from fairfix.data.counts import Floats
from fairfix.data.data_spec import DataSpec
from fairfix.data.domain import Domain, parameter, parameters_of
from fairfix.data.names import attribute_name
from fairfix.data.table import Table
from fairfix.errors import ConvergenceWarning, DataError, UsageError
from fairfix.individual.similar import Comparable
from fairfix.methods.constraint import Constrained
from fairfix.methods.guarantee import GuaranteeAdapter
from fairfix.methods.problem import RepairProblem, only_label, require_rows
from fairfix.models.estimators import title_of
from fairfix.models.predictors import RepairedPredictor
from fairfix.models.threads import limited
from fairfix.noise.description import Noise
from fairfix.noise.repair_evaluation import RobustnessClaim

# ---------------------------------------------------------------------- parameters


def group_param(default: str, *others: str) -> Any:
    """Return the hyper-parameter that says whether rules use the protected group when they predict."""
    return parameter(
        default,
        "use of the protected group in predictions: used, so predictions need its columns, or unused"
        + "; auto: used with solvers that adjust scores by group" * (default == "auto"),
        choices=(default, *others),
    )


# ---------------------------------------------------------------------- methods


Accepts = Callable[[Any], bool]
"""Whether a solver reads a value of a parameter."""


def only(*accepted: Any) -> Accepts:
    """Accept the given values of a parameter."""
    return lambda value: value in accepted


def but(*refused: Any) -> Accepts:
    """Accept all but the given values of a parameter."""
    return lambda value: value not in refused


anything = but()
"""Accepts every value of a parameter."""


class Solver:
    """One algorithm of a method: which of the method's parameters it reads, what it uses, and its fit."""

    option: ClassVar[str] = ""
    """The parameter that chooses it, for messages."""
    remedy: ClassVar[str] = ""
    """The parameter to add in order to use it, where that is another one than :attr:`option`."""
    reads: ClassVar[Mapping[str, Accepts]] = {}
    """Parameters that apply to it in addition to the slack, with their values."""
    tasks: ClassVar[tuple[Asked, ...]] = ()
    """Labels it knows, where they are fewer than the method's."""
    uses_labels: ClassVar[bool] = False
    needs_rows: ClassVar[str] = "it learns from individual rows"
    """Why counts do not do for rows, with what to do instead; empty where a fit to weighted rows, one for each group,
    label and score bin, is that to the rows up to what bins cannot tell."""
    method: Any

    def __init__(self, method: Any) -> None:
        self.method = method

    def fit(self, problem: RepairProblem, rng: np.random.Generator) -> RepairedPredictor:
        """Return the predictor with its trace; the inputs are valid."""
        raise NotImplementedError

    def check_parameters(self) -> None:
        """Raise a UsageError where a parameter has a value, other than its default, that this solver does not read."""
        method, solvers = self.method, self.method.solvers.values()
        for name, spec in method.domains().items():
            value = getattr(method, name)
            if name == "slack" or value == spec.default or f"`{name}={value}`" == self.option:
                continue
            if name == "constraint" and not any(name in one.reads for one in solvers):
                continue
            suited = [one for one in solvers if one.reads.get(name, only())(value)]
            if self.option not in {one.option for one in suited}:
                # `solver=auto` takes the place of others, and what is given already is no remedy
                given = {f"`{one}={getattr(method, one)}`" for one in method.domains()}
                users = {one.remedy or one.option for one in suited} - {"`solver=auto`"}
                shown = f"{value:g}" if isinstance(value, float) else value
                remedy = "leave one out" if users else "leave it out"
                if users - given:
                    remedy = f"it needs {' or '.join(sorted(users - given))}"
                raise UsageError(f"{method.name}: `{name}={shown}` conflicts with {self.option}; {remedy}")


class StreamSolver(Solver):
    """A solver that also learns from rows that come in pieces, which need not fit into memory."""

    def learn(self, tables: Callable[[], Iterator[Table]], rng: np.random.Generator) -> RepairedPredictor:
        """Return the predictor of a stream; ``tables`` starts it again at each call, with equal pieces in order."""
        raise NotImplementedError


Use = Literal["features", "strata", "noise", "unlabelled", "row_id"]


@dataclass(frozen=True)
class Repairer(Constrained):
    """Turns a problem into a repaired predictor. Holds hyper-parameters only; ``fit`` changes nothing here."""

    name: ClassVar[str]
    """Value of ``--method``."""
    summary: ClassVar[str]
    """One line for help and docs."""
    solvers: ClassVar[Mapping[str, type[Solver]]] = {}
    """The algorithms that the parameter ``solver`` chooses from, where there are several."""
    _rivals: ClassVar[Mapping[str, Mapping[str, Any]]] = {"": {}}
    """Variants that `compare` shows side by side, by what their title adds: the parameters of each."""
    tasks: ClassVar[tuple[Asked, ...]] = ("classification",)
    """Labels it knows: 0/1 (classification), real numbers (regression), many classes (multiclass)."""
    uses: ClassVar[tuple[Use, ...]] = ()
    """Parts of a problem beyond scores, labels and groups that it can use. A method with ``noise`` repairs true groups
    behind recorded ones and needs a description of the noise; ``row_id``: its values may be randomized in the fit."""
    guarantee_adapter: ClassVar[type[GuaranteeAdapter]] = GuaranteeAdapter
    """Its limits, for a guarantee about the population."""

    slack: float = parameter(
        0.0,
        "largest allowed gap between two groups, measured by the method's criterion",
        at_least=0.0,
        finite=False,
    )

    def __post_init__(self) -> None:
        for name, domain in self.domains().items():
            object.__setattr__(self, name, domain.one_of(f"{self.name}: {name}", getattr(self, name)))
        if self.grammar.criteria:
            self._take_limit()
        if self.solvers:
            self.effective_solver.check_parameters()

    # ------------------------------------------------------------------ parameters

    @classmethod
    def domains(cls) -> dict[str, Domain]:
        """Return the domain of every hyper-parameter, by its name."""
        return parameters_of(cls)

    @property
    def parameters(self) -> dict[str, Any]:
        """Name -> value of every hyper-parameter, as JSON has it: infinity is the text ``inf``."""
        given = {name: getattr(self, name) for name in self.domains()}
        return {name: "inf" if value == math.inf else title_of(value) for name, value in given.items()}

    # ------------------------------------------------------------------ what the parameters make of the method

    @property
    def effective_solver(self) -> Solver:
        """The algorithm that the parameters choose."""
        return self.solvers.get(getattr(self, "solver", ""), Solver)(self)

    @property
    def uses_labels(self) -> bool:
        """Whether the fit uses labels."""
        return self.effective_solver.uses_labels

    @property
    def needs_rows(self) -> str:
        """Why counts do not do for rows; empty where they do."""
        return self.effective_solver.needs_rows

    @property
    def comparable_values(self) -> Comparable:
        """Columns with values whose difference does not count, as the parameters declare them."""
        return ()

    @property
    def protected_as_feature(self) -> bool:
        """Whether the protected columns are features too."""
        return getattr(self, "group", "unused") == "used"

    def claim(self, noise: Noise | None) -> RobustnessClaim | None:
        """Return what is claimed of true groups that rows do not tell, by a description of noise; None for nothing."""
        return None

    @classmethod
    def contenders(cls, data_spec: DataSpec, noise: Noise | None = None) -> Iterator[tuple[str, Repairer]]:
        """Yield (title, repairer) of each variant of the method that `compare` shows on such data."""
        for title, settings in cls._rivals.items():
            yield f"{cls.name}, {title}" if title else cls.name, cls(**settings)

    def validation_score(self, table: Table, predicted: Floats) -> float:
        """Return what selection among parameter values makes large: the expected accuracy of the decisions."""
        return expected_accuracy(table, predicted, table.data_spec.cut)

    # ------------------------------------------------------------------ fit

    @final
    def fit(self, problem: RepairProblem, *, rng: np.random.Generator) -> RepairedPredictor:
        """Return the repaired predictor of a problem, which is left as it is; ``rng`` is the source of all chance.

        Raises
        ------
        DataError
            Fewer than two groups, a group without rows, or a single class: names it.

        Warns
        -----
        ConvergenceWarning
            The solver stopped before its tolerance; ``predictor.trace.converged`` is False.
        """
        self._check(problem)
        with limited():
            predictor = self._fit(problem, rng)
        return warn_unconverged(self.name, predictor)

    def _fit(self, problem: RepairProblem, rng: np.random.Generator) -> RepairedPredictor:
        """Return the predictor with its trace; the inputs are valid."""
        return self.effective_solver.fit(problem, rng)

    def _check(self, problem: RepairProblem) -> None:
        """Raise where the problem has something that the method cannot use, or lacks something that it needs."""
        groups, solver = problem.groups, self.effective_solver
        task, paf, noise = problem.task, problem.protected_as_feature, problem.noise
        learned = problem.features is not None or paf
        name, tasks, needs_noise = self.name, solver.tasks or self.tasks, "noise" in self.uses
        this = f"{name}: {solver.option}" if solver.option else name
        refused = {
            f"{name} does not repair within strata; leave out `strata`": (
                problem.strata is not None and "strata" not in self.uses
            ),
            f"{this if solver.tasks else name} repairs {' and '.join(tasks)}, not {task}": task not in tasks,
            f"{name} learns nothing from rows without labels; leave out `unlabelled`": (
                problem.unlabelled is not None and "unlabelled" not in self.uses
            ),
            f"{this}: counterfactual copies differ in features, and here it learns from the score alone; name columns "
            "with `features`": problem.copies is not None and problem.features is None,
            f"{name} needs a description of the group noise; give a table with `noise`": (
                needs_noise and not noise
            ),
            f"{name} takes groups as recorded; leave out `noise`": noise and not needs_noise,
            f"{name} works on scores and learns from no features; leave out `features`": (
                learned and "features" not in self.uses
            ),
        }
        refuse(refused)
        self._check_attribute(groups.columns)
        if not (self.membership or self.parsed_constraint.numbers):
            require_two(groups.columns, groups.names)
        require_rows(problem)
        if self.uses_labels and not problem.has_labels:
            raise DataError(f"{self.name} needs labels with these parameters; name the column with `label`")
        if (label := only_label(problem)) is not None:
            raise DataError(f"all labels are {label}; a repair needs both classes")


def refuse(refused: Mapping[str, object], beginning: str = "") -> None:
    """Raise a UsageError with the first of the sentences that hold."""
    for words, holds in refused.items():
        if holds:
            raise UsageError(beginning + words)


def warn_unconverged(name: str, predictor: RepairedPredictor) -> RepairedPredictor:
    """Return the predictor, with a warning if its fit by a method has not converged."""
    if not predictor.trace.converged:
        stopped = ConvergenceWarning(
            f"{name} stopped after {predictor.trace.iterations} steps before reaching its tolerance; "
            "this is the best solution that it found"
        )
        warnings.warn(stopped, stacklevel=3)
    return predictor


def require_two(columns: Iterable[str], names: Sequence[str]) -> None:
    """Raise a DataError where there are no two groups to make alike."""
    if len(names) < 2:
        alone = names[0] if names else "none"
        raise DataError(
            f"column {attribute_name(columns)!r} has only the group {alone!r}; a repair needs at least two groups"
        )


def expected_accuracy(table: Table, chance: Floats, threshold: float = 0.5) -> float:
    """Return the share of right decisions, expected over the randomisation: mean of q y + (1 - q)(1 - y).

    A ``threshold`` c on the probability weighs the two kinds by 2 (1 - c) and 2 c, as it does in a decision.
    """
    if table.rows.label is None:
        raise DataError("choosing among parameter values needs labels; name the column with `label`")
    right = mass = 0.0
    for piece, own in table.pieces_with(chance):
        weight = piece.weight
        each = np.where(piece.rows.label == 1, 2.0 * (1.0 - threshold) * own, 2.0 * threshold * (1.0 - own))
        right += float((each * weight).sum())
        mass += float(weight.sum())
    return right / mass
