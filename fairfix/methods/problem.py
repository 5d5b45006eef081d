"""Input of a repair: rows, groups and knowledge about them; and computations that its fits share."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from fairfix.data.choices import Asked
from fairfix.data.classes import classes_of_rows
from fairfix.data.counts import Floats, Ints
from fairfix.data.names import attribute_name
from fairfix.data.once import once_per_object
from fairfix.data.table import Groups, Table
from fairfix.errors import DataError
from fairfix.individual.counterfactuals import Counterfactuals
from fairfix.noise.description import Noise


@dataclass(frozen=True, eq=False)
class RepairProblem:
    """Input of a method: rows with scores (and labels), and the groups that are to be treated alike.

    Attributes
    ----------
    table
        The rows. If its reading names strata, groups are to be alike within each stratum.
    unlabelled
        More rows with scores and groups but no labels, for what needs none.
    features
        Feature columns to learn from; None for the model's score alone.
    protected_as_feature
        Whether the protected columns are features too, and so needed at predict time.
    pairs
        Identities of two people each, whose difference does not count; the identities are a feature column of the name
        that the reading's columns have for them.
    subspace
        Directions that do not count, a row each: some of the feature columns, of numbers or lists of them.
    noise
        How the groups differ from the true ones, and what is said of it, for a method that knows noise.
    seen_by_model
        Protected columns that the model behind the score looks at, as far as that is known.
    copies
        Counterfactual copies of people, whose difference does not count; the identities are a feature column, as for
        ``pairs``.
    many_fits
        Whether several fits will be made of the problem, so that work which only pays for many is done.
    """

    table: Table
    unlabelled: Table | None = None
    features: tuple[str, ...] | None = None
    protected_as_feature: bool = False
    pairs: tuple[tuple[str, str], ...] = ()
    subspace: pa.Table | None = None
    noise: Noise | None = None
    seen_by_model: tuple[str, ...] = ()
    copies: Counterfactuals | None = None
    many_fits: bool = False

    @cached_property
    def groups(self) -> Groups:
        """The intersections of all protected columns: parity among those of race and sex implies parity by each."""
        return self.table.groups()

    @cached_property
    def strata(self) -> Groups | None:
        """The strata within which groups are to be alike; None for all rows together."""
        names = self.table.data_spec.columns.strata
        return self.table.groups(names) if names else None

    @property
    def known_noise(self) -> Noise:
        """The description of noise; a ValueError where there is none."""
        if self.noise is None:
            raise ValueError("nothing describes the noise of the groups")
        return self.noise

    @property
    def task(self) -> Asked:
        """Kind of the labels."""
        return "multiclass" if self.has_classes else self.table.data_spec.task

    @property
    def has_labels(self) -> bool:
        """Whether there are labels, of whatever kind."""
        return self.has_classes or self.table.rows.label is not None

    @property
    def has_classes(self) -> bool:
        """Whether labels are classes: the first column of classes that the reading names."""
        return bool(self.table.data_spec.columns.classes)

    @cached_property
    def classes(self) -> tuple[tuple[str, ...], Ints]:
        """The classes that labels have, in order, and the number of each row's, shape (n,)."""
        return classes_of_rows(self.table, self.table.data_spec.columns.classes[0], "label")

    @property
    def threshold(self) -> float:
        """The original decision threshold on the probability; 0.5 where there is none."""
        return self.table.data_spec.cut

    @property
    def weight(self) -> Floats:
        """Row weights, shape (n,); ones when there are none."""
        return self.table.weight


@once_per_object
def group_masses(problem: RepairProblem) -> Floats:
    """Return the weight of each group, shape (K,)."""
    groups = problem.groups
    return np.bincount(groups.codes, problem.weight, len(groups.levels)).astype(np.float64)


def require_rows(problem: RepairProblem) -> None:
    """Raise a DataError that names a group, or a class, without any row of positive weight."""
    if problem.has_classes:
        _require_classes(problem)
    mass = group_masses(problem)
    if not mass.all():
        empty, where = problem.groups.names[int(np.argmin(mass))], attribute_name(problem.groups.columns)
        raise DataError(
            f"group {empty!r} of {where!r} has no rows to fit on; leave it out or merge it into another"
        )


def _require_classes(problem: RepairProblem) -> None:
    """Raise a DataError where there are not two classes to learn, or one has no weight."""
    (column, *_), (names, codes) = problem.table.data_spec.columns.classes, problem.classes
    if len(names) < 2:
        raise DataError(
            f"label column {column!r} has only the class {names[0]!r}; a repair needs two or more"
        )
    mass = np.bincount(codes, problem.weight, len(names))
    if not mass.all():
        empty = names[int(np.argmin(mass))]
        raise DataError(
            f"class {empty!r} of {column!r} has no rows of positive weight to fit on; leave its rows out, or merge it "
            "into another"
        )


@once_per_object
def only_label(problem: RepairProblem) -> int | None:
    """Return the label that all rows have; None where there are both, or none, or real ones."""
    label = problem.table.rows.label
    if label is None or not problem.table.data_spec.binary:
        return None
    return int(label[0]) if (label == label[0]).all() else None
