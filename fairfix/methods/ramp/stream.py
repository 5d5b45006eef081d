"""Ramps by stochastic Newton steps, for rows that need not fit into memory.

The mathematics is in :mod:`fairfix.solvers.ramp_stream`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from fairfix.data.names import attribute_name, group_name
from fairfix.data.numeric_groups import in_order
from fairfix.data.reading import Reading
from fairfix.data.table import Table
from fairfix.errors import UsageError
from fairfix.methods.base import StreamSolver, anything, but, only, require_two
from fairfix.methods.cells import cells_of
from fairfix.methods.problem import RepairProblem
from fairfix.models.predictors import GroupwiseRamp, RepairedPredictor
from fairfix.models.trace import Caution, FitTrace, Quantity
from fairfix.solvers.ramp_stream import Batch, StreamSolution, learn

if TYPE_CHECKING:
    from fairfix.methods.ramp import Ramp


class Stream(StreamSolver):
    """Stochastic Newton steps in passes over the rows, from the exact solution of a sample."""

    method: Ramp
    option = "`solver=stream`"
    needs_rows = "`solver=stream` takes its steps row by row; use `solver=exact`"
    reads: ClassVar = {
        "constraint": only("demographic_parity"),
        "gamma": but(0.0),
        "rho": but("labels"),
        "shape": anything,
        "calibrate": only("none"),
    }

    def fit(self, problem: RepairProblem, rng: np.random.Generator) -> RepairedPredictor:
        """Learn from rows in memory, in random order."""
        cells = cells_of(problem)
        if len(set(cells.stratum)) > 1:
            raise UsageError("ramp: `solver=stream` cannot be combined with `strata`; use `solver=exact`")
        code = np.repeat(np.arange(len(cells.cells)), [cell.score.size for cell in cells.cells])
        order = rng.permutation(code.size)
        score, weight = (
            np.concatenate(part) for part in zip(*((c.score, c.weights) for c in cells.cells), strict=True)
        )
        batch = Batch(score[order], code[order], weight[order])
        return self._ramps(
            cells.columns, cells.levels, self._solution(lambda: [batch], problem.table.reading, rng)
        )

    def learn(self, tables: Callable[[], Iterator[Table]], rng: np.random.Generator) -> RepairedPredictor:
        """Learn from a stream; cells are numbered as they appear."""
        numbers: dict[tuple[str, ...], int] = {}
        columns: tuple[str, ...] = ()

        def batches() -> Iterator[Batch]:
            nonlocal columns
            for table in tables():
                groups = table.groups()
                columns = groups.columns
                into = np.array([numbers.setdefault(level, len(numbers)) for level in groups.levels])
                yield Batch(2.0 * table.probability - 1.0, into[groups.codes], table.weight)

        reading = next(tables()).reading
        solution = self._solution(batches, reading, rng)
        levels = in_order(numbers, columns, reading.bands)
        require_two(columns, [group_name(level) for level in levels])
        order = [numbers[level] for level in levels]
        solution = replace(solution, offsets=solution.offsets[order], rates=solution.rates[order])
        return self._ramps(columns, levels, solution)

    def _solution(
        self, batches: Callable[[], Iterable[Batch]], reading: Reading, rng: np.random.Generator
    ) -> StreamSolution:
        """Return the offsets for scores as they are."""
        method, lift = self.method, self.method.lift(reading)
        rho = None if isinstance(method.rho, str) else float(method.rho)
        mean = method.rho == "mean"
        solution = learn(batches, method.gamma, method.slack, rho, rng=rng, mean_share=mean, lift=lift)
        return replace(solution, offsets=solution.offsets - lift)

    def _ramps(
        self, columns: tuple[str, ...], levels: tuple[tuple[str, ...], ...], solution: StreamSolution
    ) -> RepairedPredictor:
        """Return the predictor of a solution, with a caution where it has not settled."""
        note = Caution(
            f"after {solution.passes} passes over {solution.points:,} rows, the selection rates are outside the "
            "allowed "
            f"band by {solution.off:.1e}; this happens with few distinct scores and a narrow ramp: widen it with "
            "`gamma`",
            "slack",
        )
        meaning = (
            "group threshold offset, on the scale 2 p - 1: the probability of yes rises from 0 there to 1 "
            "one gamma above"
        )
        trace = FitTrace(
            solution.converged,
            solution.passes,
            solution.objective,
            math.nan,
            () if solution.converged else (note,),
            quantities=tuple(
                Quantity("offset", offset, meaning, attribute_name(level))
                for offset, level in zip(solution.offsets, levels, strict=True)
            ),
        )
        return GroupwiseRamp(
            columns, levels, solution.offsets, np.zeros(len(levels)), self.method.gamma, trace=trace
        )
