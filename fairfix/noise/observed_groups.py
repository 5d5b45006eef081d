"""Recorded groups: the cells of their decisions, and decisions by rules that look at the recorded group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fairfix.auditing.metrics import NOISE_METRICS
from fairfix.auditing.sufficient_statistics import confusion
from fairfix.data.counts import Counts, groups_of_cells
from fairfix.data.data_spec import DataSpec
from fairfix.data.names import attribute_name, group_name
from fairfix.errors import UsageError
from fairfix.noise.rates import RATIOS, Floats, Ratio, cells_of, quotient

NOT_OF_VALUES = "noise is about decisions; with `task=regression` there are none"

NO_DECISIONS = (
    "noise is about decisions, and there are none: set the score of a positive decision with `threshold`, or "
    "name a column of decisions with `prediction`"
)


@dataclass(frozen=True, eq=False)
class Profiles:
    """Decisions that look at the recorded group, by profile: rows that each recorded group's rule treats alike."""

    masses: Floats
    """By recorded group, profile and label, shape (K, P, 2), of total 1."""
    accepted: Floats
    """Probability to be accepted by the rule of each recorded group, shape (K, P)."""

    @cached_property
    def levels(self) -> tuple[Floats, Floats]:
        """Which profiles are one level of the own rule, shape (K, P, I), and probabilities of levels, shape (K, I)."""
        pairs = [np.unique(row, return_inverse=True) for row in self.accepted]
        most = max(level.size for level, _ in pairs)
        into = np.stack([np.eye(most)[at.ravel()] for _, at in pairs])
        return into, np.stack([np.pad(level, (0, most - level.size)) for level, _ in pairs])

    def by_level(self, masses: Floats) -> Floats:
        """Return masses (..., K, P, 2) by level of the own rule, (..., K, I, 2)."""
        by_label = np.ascontiguousarray(np.swapaxes(masses, -1, -2))  # ..., K, label, P
        return np.asarray(np.swapaxes(by_label @ self.levels[0], -1, -2))

    def cells(self, masses: Floats) -> Floats:
        """Return TP, FN, FP, TN of every rule and recorded group; masses (..., K, P, 2) to (..., K rules, K, 4)."""
        by_label = np.ascontiguousarray(np.swapaxes(masses, -1, -2))  # ..., K, label, P
        yes, no = (np.moveaxis(by_label @ rule.T, -1, -3) for rule in (self.accepted, 1.0 - self.accepted))
        return cells_of(yes, no)


@dataclass(frozen=True, eq=False)
class Recorded:
    """Cells of the recorded groups of a column, or of several taken together (``attribute``)."""

    attribute: str
    names: tuple[str, ...]
    cells: Floats
    """Masses of TP, FN, FP, TN by group, shape (K, 4), of total 1; without labels positive decisions are in FP."""
    rows: float
    """Effective number of rows."""
    metrics: Mapping[str, Ratio]
    """Rates that can be computed."""
    profiles: Profiles | None = None
    """None if decisions do not look at the recorded group."""
    row_mass: Floats | None = None
    """Mass of a typical row by group and label, shape (K, 2); None where all rows are of the same mass."""

    @property
    def labelled(self) -> bool:
        """Whether there are labels."""
        return "true_positive_rate" in self.metrics

    @property
    def row(self) -> Floats:
        """Mass of a typical row by group and label, shape (K, 2)."""
        return np.full((len(self.names), 2), 1.0 / self.rows) if self.row_mass is None else self.row_mass

    @cached_property
    def rates(self) -> dict[str, Floats]:
        """Metric -> rates of the recorded groups, shape (K,)."""
        return {name: ratio.of(self.cells) for name, ratio in self.metrics.items()}


def recorded_groups(counts: Counts, data_spec: DataSpec, columns: Sequence[str]) -> Recorded:
    """Return the masses of cells by recorded group: the levels of a column, or of several taken together."""
    levels, into = groups_of_cells(counts.keys, counts.cells, columns, bands=data_spec.bands)
    names, attribute = tuple(map(group_name, levels)), attribute_name(columns)
    by_cell = confusion(counts, data_spec.threshold)
    if by_cell is None:
        raise UsageError(NO_DECISIONS)
    table = np.zeros((len(names), *by_cell.shape[1:]))
    np.add.at(table, into, by_cell)
    of_label = np.pad(table[..., 0], ((0, 0), (0, 2 - table.shape[1]), (0, 0)))  # group, label, decision
    cells = cells_of(of_label[..., 1], of_label[..., 0])
    total, square = float(counts.held_weights.sum()), float(counts.held_square_weights.sum())
    row_mass = None
    if counts.weighted:
        sums = np.zeros((2, len(names), 2))
        for own, weights in zip(sums, (counts.weights, counts.square_weights), strict=True):
            np.add.at(own[:, : weights.shape[1]], into, weights.sum(-1))
        row_mass = quotient(sums[1], sums[0], square / total) / total
    metrics = rates_with(counts.has_labels)
    return Recorded(attribute, names, cells / cells.sum(), total * total / square, metrics, row_mass=row_mass)


def rates_with(labels: bool) -> dict[str, Ratio]:
    """Return the rates of true groups that can be told, in the order of the report: without labels, selection alone."""
    return {
        name: RATIOS[name]
        for name in NOISE_METRICS
        if name in RATIOS and (labels or name == "selection_rate")
    }
