"""The ramp: exactness on random instances and up to a million rows, and the time of a fit."""

from __future__ import annotations

import statistics
import time

import numpy as np
from fairfix.solvers.ramp import Cell, solve

ROWS = (10_000, 100_000, 1_000_000)


def scores(rows: int, cells: int, kind: str, rng: np.random.Generator) -> list[np.ndarray]:
    """Return the scores of each cell: smooth, clumped at the ends, or of eleven values."""
    out = []
    for k in range(cells):
        f = np.tanh(rng.normal(0.4 * k / cells - 0.2, 0.6, rows // cells))
        if kind == "clumped":
            f = np.clip(f * 3, -1, 1)
        elif kind == "11 values":
            f = np.round((f + 1) * 5) / 5 - 1
        out.append(f)
    return out


def main() -> None:
    """Print the tables."""
    rng = np.random.default_rng(0)
    print("## Ramp\n\nFit with the rate chosen jointly, slack 0; sorting counted.\n")
    print("| rows | cells | scores | gamma | weights | CPU ms | largest rate error | duality gap |")
    print("|---|---|---|---|---|---|---|---|")
    for rows in ROWS:
        for cells in (2, 5, 10):
            for kind, gamma in (("smooth", 0.1), ("clumped", 0.01), ("11 values", 0.01)):
                for weighted in (False, True):
                    data = scores(rows, cells, kind, rng)
                    weights = [rng.random(f.size) + 0.1 if weighted else None for f in data]
                    times = []
                    for _ in range(3):
                        begin = time.process_time()
                        best = solve([Cell.of(f, w) for f, w in zip(data, weights, strict=True)], gamma, 0.0)
                        times.append(1e3 * (time.process_time() - begin))
                    rates = [
                        np.average(np.clip((f - t - r) / gamma, 0, 1), weights=w)
                        for f, w, t, r in zip(data, weights, best.offsets, best.remainders, strict=True)
                    ]
                    error = max(abs(rate - best.rho) for rate in rates)
                    print(
                        f"| {rows:,} | {cells} | {kind} | {gamma} | {'yes' if weighted else 'no'} "
                        f"| {statistics.median(times):.1f} | {error:.0e} | {best.gap:.0e} |"
                    )


if __name__ == "__main__":
    main()
