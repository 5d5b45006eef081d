"""Ramps from scores counted in fine bins, for rows that need not fit into memory.

The mathematics is in :mod:`fairfix.solvers.ramp_stream`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from fairfix.data.counts import Floats
from fairfix.data.data_spec import DataSpec
from fairfix.data.names import group_name
from fairfix.data.numeric_groups import in_order
from fairfix.data.table import Table
from fairfix.errors import UsageError
from fairfix.methods.base import StreamSolver, anything, but, only, require_two
from fairfix.methods.cells import cells_of
from fairfix.methods.problem import RepairProblem
from fairfix.methods.ramp.trace import offsets
from fairfix.models.predictors import GroupwiseRamp, RepairedPredictor
from fairfix.models.trace import Caution, FitTrace
from fairfix.solvers.ramp_stream import PASSES, StreamBatch, StreamSolution, learn

if TYPE_CHECKING:
    from fairfix.methods.ramp import Ramp


class Stream(StreamSolver):
    """Scores counted in fine bins in one pass over the rows, and their rates measured in another."""

    method: Ramp
    option = "`solver=stream`"
    needs_rows = "`solver=stream` reads rows; use `solver=exact`"
    reads: ClassVar = {
        "constraint": only("demographic_parity"),
        "gamma": but(0.0),
        "rho": but("labels"),
        "shape": anything,
        "calibrate": only("none"),
    }

    def fit(self, problem: RepairProblem, rng: np.random.Generator) -> RepairedPredictor:
        """Learn from rows in memory."""
        cells = cells_of(problem)
        if len(set(cells.stratum)) > 1:
            raise UsageError("ramp: `solver=stream` cannot be combined with `strata`; use `solver=exact`")
        batches = [
            StreamBatch(c.score, np.full(c.score.size, k), c.weight) for k, c in enumerate(cells.cells)
        ]
        solution = self._solution(lambda: batches, problem.table.data_spec)
        return self._ramps(cells.columns, cells.levels, solution.offsets, solution)

    def learn(self, tables: Callable[[], Iterator[Table]], rng: np.random.Generator) -> RepairedPredictor:
        """Learn from a stream; cells are numbered as they appear."""
        numbers: dict[tuple[str, ...], int] = {}
        columns: tuple[str, ...] = ()

        def batches() -> Iterator[StreamBatch]:
            nonlocal columns
            for table in tables():
                groups = table.groups()
                columns = groups.columns
                into = np.array([numbers.setdefault(level, len(numbers)) for level in groups.levels])
                yield StreamBatch(2.0 * table.probability - 1.0, into[groups.codes], table.weight)

        data_spec = next(tables()).data_spec
        solution = self._solution(batches, data_spec)
        levels = in_order(numbers, columns, data_spec.bands)
        require_two(columns, [group_name(level) for level in levels])
        own = solution.offsets[[numbers[level] for level in levels]]
        return self._ramps(columns, levels, own, solution)

    def _solution(self, batches: Callable[[], Iterable[StreamBatch]], data_spec: DataSpec) -> StreamSolution:
        """Return the offsets for scores as they are."""
        method = self.method
        rho = None if isinstance(method.rho, str) else float(method.rho)
        mean = method.rho == "mean"
        return learn(batches, method.gamma, method.slack, rho, mean_share=mean, lift=method.lift(data_spec))

    def _ramps(
        self,
        columns: tuple[str, ...],
        levels: tuple[tuple[str, ...], ...],
        thresholds: Floats,
        solution: StreamSolution,
    ) -> RepairedPredictor:
        """Return the predictor of a solution, with a caution where it has not settled."""
        note = Caution(
            f"after {PASSES} passes over {solution.points:,} rows, the selection rates are outside the "
            f"allowed band by {solution.off:.1e}; this happens with many nearly equal scores and a narrow ramp: widen "
            "it with `gamma`",
            "slack",
        )
        trace = FitTrace(
            solution.converged,
            PASSES,
            solution.objective,
            math.nan,
            () if solution.converged else (note,),
            quantities=tuple(offsets(levels, thresholds.tolist())),
        )
        return GroupwiseRamp(
            columns, levels, thresholds, np.zeros(len(levels)), self.method.gamma, trace=trace
        )
