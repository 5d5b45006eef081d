"""Repairer: what every method is, and everything that methods share.

A method is one file in this folder with one subclass of :class:`Repairer`. Its hyper-parameters are dataclass
fields made by :func:`param`; from that line come the range check and its message, the command-line option with
help and default, the row in the docs and the entry in the artifact.
"""

from __future__ import annotations

import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import Field, dataclass, field, fields, replace
from functools import cached_property
from typing import Any, ClassVar, TypeVar, final

import numpy as np

from fairfix.data.counts import Floats
from fairfix.data.names import attribute_name
from fairfix.data.reading import Reading, Task
from fairfix.data.table import Groups, Table
from fairfix.errors import ConvergenceWarning, DataError, UsageError
from fairfix.individual.flips import Comparable
from fairfix.models.predictors import RepairedPredictor
from fairfix.noisy.description import Noise

Made = TypeVar("Made")


@dataclass(frozen=True)
class Rule:
    """What values a hyper-parameter may take, and what it means."""

    help: str
    above: float | None = None
    at_least: float | None = None
    at_most: float | None = None
    choices: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    selectable: bool = False
    text: bool = False

    def parse(self, owner: str, name: str, text: str) -> Any:
        """Return the value that a text stands for: a choice, a word, or a number.

        Raises
        ------
        UsageError
            The text is none of them.
        """
        text = text.strip()
        if self.text or self.choices or text in self.words:
            return text
        try:
            return float(text)
        except ValueError:
            words = "".join(f"{word}, " for word in self.words)
            wanted = f"{words}or a number" if words else "a number"
            raise UsageError(
                f"{owner}: {name} must be {wanted}; --{name.replace('_', '-')}: {text!r} is not a number"
            ) from None

    def check(self, owner: str, name: str, value: Any) -> None:
        """Raise where the value breaks the rule.

        Raises
        ------
        UsageError
            Names the method, the parameter, the rule and the value.
        """
        if self.choices:
            if value not in self.choices:
                raise UsageError(f"{owner}: {name} must be one of {', '.join(self.choices)}, got {value!r}")
            return
        if isinstance(value, str) and (self.text or value in self.words):
            return
        if isinstance(value, bool) or not isinstance(value, (int, float)) or math.isnan(value):
            raise UsageError(f"{owner}: {name} must be a number, got {value!r}")
        if self.above is not None and not value > self.above:
            raise UsageError(f"{owner}: {name} must be above {self.above:g}, got {value:g}")
        if self.at_least is not None and not value >= self.at_least:
            raise UsageError(f"{owner}: {name} must be at least {self.at_least:g}, got {value:g}")
        if self.at_most is not None and not value <= self.at_most:
            raise UsageError(f"{owner}: {name} must be at most {self.at_most:g}, got {value:g}")


def param(
    default: Any,
    help: str,  # noqa: A002  the word that click and argparse use for the same thing
    *,
    above: float | None = None,
    at_least: float | None = None,
    at_most: float | None = None,
    choices: tuple[str, ...] = (),
    words: tuple[str, ...] = (),
    selectable: bool = False,
    text: bool = False,
) -> Any:
    """Return a dataclass field that is a hyper-parameter.

    ``choices`` are the texts it may be; ``words`` are texts it may be instead of a number. ``selectable``: several
    values may be given, of which the validation part chooses one. ``text``: any text, which the method reads itself.
    """
    rule = Rule(help, above, at_least, at_most, choices, words, selectable, text)
    return field(default=default, metadata={"rule": rule}, kw_only=True)


@dataclass(frozen=True)
class RepairProblem:
    """What a method is given: rows with scores (and labels), and the groups that are to be treated alike.

    Attributes
    ----------
    table
        The rows. If its reading names strata, groups are to be alike within each stratum.
    groups
        Defaults to the cells of all protected columns: parity among the cells of race and sex implies parity by
        race and by sex.
    unlabelled
        More rows with scores and groups but no labels, for what needs none.
    features
        Feature columns to learn from; None for the model's score alone.
    protected_as_feature
        Whether the protected columns are features too, and so needed at predict time.
    pairs
        Identities of two people each, whose difference does not count; the identities are a feature column of the name
        that the reading's columns have for them.
    noise
        How the groups differ from the true ones, and what is said of it, for a method that knows noise.
    seen_by_model
        Protected columns that the model behind the score looks at, as far as that is known.
    many_fits
        Whether several fits will be made of the problem, so that work which only pays for many is done.
    """

    table: Table
    groups: Groups | None = None
    unlabelled: Table | None = None
    features: tuple[str, ...] | None = None
    protected_as_feature: bool = False
    pairs: tuple[tuple[str, str], ...] = ()
    noise: Noise | None = None
    seen_by_model: tuple[str, ...] = ()
    many_fits: bool = False
    _found: dict[Any, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    @cached_property
    def cells(self) -> Groups:
        """The groups in force."""
        return self.table.groups() if self.groups is None else self.groups

    @cached_property
    def strata(self) -> Groups | None:
        """The strata within which groups are to be alike; None for everybody together."""
        names = self.table.reading.columns.strata
        return self.table.groups(names) if names else None

    def once(self, key: Any, make: Callable[[], Made]) -> Made:
        """Return what ``make`` makes, from the first call with this key on: fits of one problem share a sort."""
        if key not in self._found:
            self._found[key] = make()
        found: Made = self._found[key]
        return found

    @property
    def weight(self) -> Floats:
        """Row weights, shape (n,); ones when there are none."""
        return self.table.weight


@dataclass(frozen=True)
class Repairer(ABC):
    """Turns a problem into a repaired predictor. Holds hyper-parameters only; ``fit`` changes nothing here.

    Attributes
    ----------
    name
        What ``--method`` takes.
    summary
        One line for help and docs.
    criterion
        Identifier of the audit comparison that ``slack`` bounds on the rows of the fit, by default.
    needs_labels
        Whether the fit uses labels, by default.
    knows_strata
        Whether it can make groups alike within strata.
    learns
        Whether it can learn from feature columns.
    tasks
        What labels it knows: 0/1 (classification), real numbers (regression).
    knows_unlabelled
        Whether it learns from rows without labels.
    knows_noise
        Whether it repairs true groups that are seen through noise, and so needs a table of the noise.
    draws
        Whether values of its predictors may hang on chance, so that rows of the fit need an identity.
    exceptions
        Laws of the contract suite that the method leaves, with the reason.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    criterion: ClassVar[str]
    needs_labels: ClassVar[bool] = False
    knows_strata: ClassVar[bool] = False
    learns: ClassVar[bool] = False
    knows_unlabelled: ClassVar[bool] = False
    knows_noise: ClassVar[bool] = False
    draws: ClassVar[bool] = False
    tasks: ClassVar[tuple[Task, ...]] = ("classification",)
    exceptions: ClassVar[Mapping[str, str]] = {}

    slack: float = param(
        0.0, "largest gap between two groups that is left, in the method's criterion", at_least=0.0
    )

    def __post_init__(self) -> None:
        for name, rule in self.rules():
            rule.check(self.name, name, getattr(self, name))

    @classmethod
    def rules(cls) -> Iterator[tuple[str, Rule]]:
        """Yield (name, rule) of every hyper-parameter."""
        for part in fields(cls):
            if "rule" in part.metadata:
                yield part.name, part.metadata["rule"]

    @classmethod
    def parameter_fields(cls) -> Iterator[Field[Any]]:
        """Yield the dataclass fields that are hyper-parameters."""
        return (part for part in fields(cls) if "rule" in part.metadata)

    @property
    def parameters(self) -> dict[str, Any]:
        """Name -> value of every hyper-parameter, as JSON has it: infinity is the text ``inf``."""
        values = {name: getattr(self, name) for name, _ in self.rules()}
        return {name: "inf" if value == math.inf else value for name, value in values.items()}

    @property
    def bounds(self) -> str:
        """Identifier of the audit comparison that ``slack`` bounds with these parameters, strata aside."""
        return self.criterion

    def bounds_of(self, reading: Reading) -> str:
        """Return the same for labels of the kind that a reading has."""
        return self.bounds

    @property
    def comparables(self) -> Comparable:
        """Columns with values whose difference does not count, as the parameters declare them."""
        return ()

    @property
    def has_slack(self) -> bool:
        """Whether the slack changes the fit with these parameters, so that a comparison varies it."""
        return True

    @property
    def slack_of_all(self) -> float | None:
        """The slack that holds for every group alike; None where there is none such."""
        return self.slack if self.has_slack else None

    @property
    def knows_pairs(self) -> bool:
        """Whether the fit heeds pairs of people whose difference does not count."""
        return False

    @property
    def demands(self) -> tuple[tuple[str, float], ...]:
        """Rates of true groups that the slack bounds: 1 where none may be below that of everybody, -1 where above."""
        return ()

    def noise_in_force(self, noise: Noise) -> Noise:
        """Return what is said of the noise, with what these parameters assume besides; fit and proof rest on it.

        Raises
        ------
        UsageError
            They contradict one another.
        """
        return noise

    @property
    def sees_groups(self) -> bool:
        """Whether the protected columns have to be features with these parameters."""
        return False

    @property
    def averages(self) -> bool:
        """Whether it takes the mean of a model file's scores over flips, which is done where the scores are made."""
        return False

    @property
    def uses_labels(self) -> bool:
        """Whether the fit uses labels with these parameters."""
        return self.needs_labels

    @property
    def streams(self) -> bool:
        """Whether :meth:`learn` works with these parameters, so that the rows need not fit into memory."""
        return False

    @final
    def fit(self, problem: RepairProblem, *, rng: np.random.Generator) -> RepairedPredictor:
        """Return the repaired predictor of a problem.

        Parameters
        ----------
        problem
            Left as it is.
        rng
            Source of all randomness of the fit.

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
        return self._told(self._fit(problem, rng))

    @final
    def learn(self, tables: Callable[[], Iterator[Table]], *, rng: np.random.Generator) -> RepairedPredictor:
        """Return the repaired predictor of rows that come in pieces.

        Parameters
        ----------
        tables
            Starts the rows again at each call: the same pieces in the same order.
        rng
            Source of all randomness of the fit.

        Raises
        ------
        UsageError
            The method does not learn from a stream with these parameters.
        DataError
            Fewer than two groups.

        Warns
        -----
        ConvergenceWarning
            As :meth:`fit` does.
        """
        if not self.streams:
            raise UsageError(f"{self.name} does not learn from a stream with these parameters")
        return self._told(self._learn(tables, rng))

    def _learn(self, tables: Callable[[], Iterator[Table]], rng: np.random.Generator) -> RepairedPredictor:
        """Do the method on a stream; only called where ``streams``."""
        raise NotImplementedError

    def _told(self, predictor: RepairedPredictor) -> RepairedPredictor:
        """Return the predictor, with a warning if it has not converged."""
        if not predictor.trace.converged:
            warnings.warn(
                f"{self.name} stopped after {predictor.trace.iterations} steps without reaching what it searches for; "
                "this is the best that it met",
                ConvergenceWarning,
                stacklevel=3,
            )
        return predictor

    def _check(self, problem: RepairProblem) -> None:
        groups, where = problem.cells, attribute_name(problem.cells.columns)
        if problem.strata is not None and not self.knows_strata:
            raise UsageError(f"{self.name} does not repair within strata; leave out --strata")
        if problem.table.reading.task not in self.tasks:
            raise UsageError(
                f"{self.name} repairs {' and '.join(self.tasks)}, not {problem.table.reading.task}"
            )
        if problem.unlabelled is not None and not self.knows_unlabelled:
            raise UsageError(f"{self.name} learns nothing from rows without labels; leave out --unlabelled")
        if problem.pairs and not self.knows_pairs:
            raise UsageError(
                f"{self.name} knows no comparable pairs with these parameters; leave out --pairs"
            )
        if problem.noise is None and self.knows_noise:
            raise UsageError(f"{self.name} needs to know the noise of the groups; give a table with --noise")
        if problem.noise is not None and not self.knows_noise:
            raise UsageError(f"{self.name} takes groups as they are; leave out --noise")
        if not self.learns and (problem.features is not None or problem.protected_as_feature):
            raise UsageError(f"{self.name} works on scores and learns from no features; leave out --features")
        if len(groups.levels) < 2:
            only = groups.names[0] if groups.names else "none"
            raise DataError(
                f"column {where!r} has the single group {only!r}; a repair needs at least two groups"
            )
        mass = problem.once(
            "mass", lambda: np.bincount(groups.codes, problem.table.rows.weight, len(groups.levels))
        )
        if not mass.all():
            empty = groups.names[int(np.argmin(mass))]
            raise DataError(
                f"group {empty!r} of {where!r} has no rows to fit on; leave it out or fold it into another"
            )
        label = problem.table.rows.label
        if label is None:
            if self.uses_labels:
                raise DataError(
                    f"{self.name} needs labels with these parameters; name the column with --label"
                )
        elif problem.table.reading.binary and problem.once(
            "one class", lambda: bool((label == label[0]).all())
        ):
            raise DataError(f"all labels are {int(label[0])}; a repair needs both classes to be judged by")

    def quality(self, table: Table, predicted: Floats, threshold: float) -> float:
        """Return what selection among parameter values makes large: the expected accuracy of the decisions."""
        return expected_accuracy(table, predicted, threshold)

    @abstractmethod
    def _fit(self, problem: RepairProblem, rng: np.random.Generator) -> RepairedPredictor:
        """Do the method; the inputs are valid. Returns the predictor with its trace."""

    @classmethod
    def contenders(cls, reading: Reading) -> Iterator[tuple[str, Repairer]]:
        """Yield (title, repairer) of what `compare` shows of the method on such data."""
        yield cls.name, cls()

    @classmethod
    def noisy_contenders(cls, reading: Reading, noise: Noise) -> Iterator[tuple[str, Repairer]]:
        """Yield the same where the noise of the groups is known."""
        yield from cls.contenders(reading)

    def variants(self, choices: Mapping[str, tuple[Any, ...]]) -> list[Repairer]:
        """Return the repairers of all combinations of the given parameter values."""
        out: list[Repairer] = [self]
        for name, values in choices.items():
            out = [replace(one, **{name: value}) for one in out for value in values]
        return out


def expected_accuracy(table: Table, chance: Floats, threshold: float = 0.5) -> float:
    """Return the share of right decisions, expected over the randomisation: mean of q y + (1 - q)(1 - y).

    A ``threshold`` c on the probability weighs the two kinds by 2 (1 - c) and 2 c, as it does in a decision.
    """
    label, weight = table.rows.label, table.rows.weight
    if label is None:
        raise DataError("selecting among parameter values needs labels; name the column with --label")
    right = np.where(label == 1, 2.0 * (1.0 - threshold) * chance, 2.0 * threshold * (1.0 - chance))
    return float(np.average(right, weights=weight))
