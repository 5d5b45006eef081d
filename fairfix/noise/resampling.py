"""Data and a description of noise together: masses, the tables that may hold, and both resampled.

Sampling error is that of rows and table, which are drawn anew together: rows with one imagined row more in each
recorded group (:mod:`fairfix.noise.added_rows`), and a table of counts as a multinomial. Where it is not said what of
the table holds for the data too, all tables that may hold are kept, first axis W.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property

import numpy as np

from fairfix.errors import DataError, UsageError
from fairfix.noise.added_rows import LABEL, drawn_row, drawn_rows, inverted_with_row, with_row
from fairfix.noise.bounds import masses_of, valid_radius
from fairfix.noise.confusion_matrix_inversion import Inversion, invert
from fairfix.noise.description import Noise, NoiseTable
from fairfix.noise.epsilon import EpsCurve
from fairfix.noise.observed_groups import Recorded
from fairfix.noise.rates import CELLS_OF_LABEL, Floats, Ratio, quotient
from fairfix.noise.total_variation_radii import Balls, balls_for, balls_of

REPLICATES = 1000
"""Draws of data and table."""

TOLERANCE = 1e-7
"""Tolerance of limits, masses and tables for rounding."""


class ResampledGroups:
    """Recorded groups with a description of noise; drawn anew ``replicates`` times, or never if 0."""

    def __init__(self, data: Recorded, noise: Noise, seed: int = 0, replicates: int = REPLICATES) -> None:
        self.data, self.noise, self.replicates = data, noise, replicates
        self.table: NoiseTable | None = None
        self.true = data.names
        rng = np.random.default_rng(seed)
        if noise.table is not None:
            self.table = noise.table.for_groups(data.names, data.attribute)
            if self.by_label and not data.labelled:
                raise UsageError(
                    f"{self.table.source} is by label, and the data have no label; name the label column with `label`"
                )
            self.true = self.table.true
            self.noise = replace(noise, table=self.table)
            self.entries_drawn = self.table.drawn(replicates, rng) if replicates else None
            self.joints = self.table.tables(self.masses(data.cells))
            self.recording = self.table.recording(self.masses(data.cells))
        elif noise.radii is not None:
            self.true = balls_for(noise.radii, data.names, data.attribute).true
        self._draw(rng)

    def _draw(self, rng: np.random.Generator) -> None:
        """Draw rows anew: cells ``drawn``, (R, K, 4), and ``imagined`` rows, (R, K) or by label (R, 2, K), of total 1.

        A recorded group without rows has an imagined row if the table says who that could be.
        """
        data, draws = self.data, self.replicates
        one = data.row.T if self.by_label else data.row.max(-1)
        may_be = self.masses(data.cells) > 0
        if self.table is not None:
            may_be |= self.table.entries.any(-2)
        imagined = drawn_row(np.where(may_be, one, 0.0), draws, rng)
        profiles = data.profiles
        if profiles is None:
            rows = drawn_rows(data.cells, data.row[:, LABEL], draws, rng)
        else:
            rows = drawn_rows(profiles.masses, data.row[:, None], draws, rng)
        total = sum(part.sum(tuple(range(1, part.ndim))) for part in (rows, imagined))
        self.imagined = (imagined.T / total).T
        self.drawn = rows = (rows.T / total).T
        self.rules: Floats | None = None
        self.rules_drawn: Floats | None = None
        if profiles is not None:
            self.rules, self.rules_drawn = map(profiles.cells, (profiles.masses, rows))
            self.levels, self.levels_drawn = map(profiles.by_level, (profiles.masses, rows))
            own = np.arange(len(data.names))
            self.drawn = self.rules_drawn[:, own, own]

    @property
    def masses_drawn(self) -> Floats:
        """The masses of recorded groups that the table is about, in every draw, with the imagined rows."""
        return np.asarray(self.masses(self.drawn) + self.imagined)

    def drawn_for(self, ratio: Ratio, end: int) -> Floats:
        """Return the cells of every draw, (R, K, 4), with the imagined rows at the worst place for an end of a rate."""
        return with_row(self.drawn, self.imagined, ratio, end, by_label=self.by_label)

    @property
    def by_label(self) -> bool:
        """Whether there is a table by label."""
        return self.table is not None and self.table.by_label

    @property
    def same_groups(self) -> bool:
        """Whether true and recorded groups have equal names."""
        return self.true == self.data.names

    def masses(self, cells: Floats) -> Floats:
        """Return the masses of recorded groups that the table is about."""
        return masses_of(cells, by_label=self.by_label)

    def plain(self, joint: Floats) -> Floats:
        """Return a table without labels."""
        return np.asarray(joint.sum(-3)) if self.by_label else joint

    @cached_property
    def plain_joints(self) -> Floats | None:
        """The tables that may hold, without labels, shape (W, J, K); None where there is none."""
        return None if self.table is None else self.plain(self.joints)

    @cached_property
    def joints_drawn(self) -> Floats:
        """The tables that may hold in every draw, shape (W, R, ...); those of the data, if there are no draws."""
        if self.table is None or not self.replicates:
            return self.joints
        return self.table.tables(self.masses_drawn, self.entries_drawn)

    @cached_property
    def balls(self) -> tuple[Balls, Floats] | None:
        """The balls of N0, and the radii drawn, shape (R, J); None where nothing is said of recorded groups."""
        if self.noise.radii is not None:
            given = balls_for(self.noise.radii, self.data.names, self.data.attribute)
            if set(given.true) != set(self.true):
                raise UsageError(
                    f"`noise=radius:...` is about the true groups {', '.join(given.true)}, and those of the "
                    f"noise table are {', '.join(self.true)}; name each of these, as TRUE near RECORDED=NUMBER "
                    "where no group is recorded by its name"
                )
            given = given.ordered(self.true)
            return given, np.broadcast_to(given.radii, (self.replicates, given.radii.size))
        if self.plain_joints is None:
            return None
        balls = balls_of(self.plain_joints, self.true, self.data.names)
        if not self.replicates:
            return balls, np.zeros((0, len(self.true)))
        return balls, valid_radius(self.plain(self.joints_drawn), balls.home).max(0)

    @cached_property
    def curve(self) -> EpsCurve | None:
        """Bounds as a function of eps; None where ``P(noisy | true)`` does not tell how large the true groups are."""
        if self.table is None or self.recording is None:
            return None
        return EpsCurve(self.data, self.recording)

    @cached_property
    def inverted(self) -> tuple[Inversion, Inversion | None]:
        """Masses of true groups under N4, of the data and of the draws; DataError if they are not identified."""
        assert self.table is not None
        try:
            table = self.table.conditional(self.masses(self.data.cells))
            inversion = invert(self.data.cells, table, self.rules, by_label=self.by_label)
        except ValueError as error:
            raise DataError(
                f"`assume=class-conditional`: {error}; leave the option out to get the bounds only"
            ) from error
        if not self.replicates:
            return inversion, None
        drawn = self.table.conditional(self.masses_drawn, self.entries_drawn)
        if drawn.ndim == self.table.entries.ndim:
            drawn = drawn[None]
        return inversion, invert(self.drawn, drawn, self.rules_drawn, by_label=self.by_label)

    def inverted_for(self, drawn: Inversion, ratio: Ratio, end: int) -> Floats:
        """Return cells of true groups under N4 in every draw, (R, J, 4), as :meth:`drawn_for` does."""
        return inverted_with_row(
            drawn.masses, drawn.weights, self.imagined, ratio, end, by_label=self.by_label
        )

    @cached_property
    def weighted(self) -> Mapping[str, Floats]:
        """Metric -> rates with every row in each true group by its probability; empty without a table.

        It is one of the tables that bounds run over, and right if within a recorded group outcomes do not depend on
        the true one.
        """
        if self.table is None:
            return {}
        m = self.data.cells
        masses = self.masses(m)[..., None, :]
        share = quotient(self.joints[0], masses, 0.0)
        parts = [share[y] @ m[:, CELLS_OF_LABEL[y]] for y in (1, 0)] if self.by_label else [share @ m]
        cells = np.concatenate(parts, -1)
        return {name: ratio.of(cells) for name, ratio in self.data.metrics.items()}

    @property
    def recorded(self) -> Mapping[str, Floats]:
        """Metric -> rates of the recorded groups."""
        return self.data.rates

    @cached_property
    def other_joint(self) -> Floats | None:
        """The table carried over as the user says it is not; None where nothing is said, or it makes no difference."""
        if self.table is None or self.table.keep is None:
            return None
        try:
            (keep,) = (keep for keep in self.table.possible if keep != self.table.keep)
            (other,) = self.table.carried(self.masses(self.data.cells), keep)
        except ValueError:  # there is no other way, or more than one table, or none
            return None
        return other if np.abs(other - self.joints[0]).max() > TOLERANCE else None
