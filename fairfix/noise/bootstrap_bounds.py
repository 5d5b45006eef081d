r"""Sampling error of rates if noise depends on outcomes by at most eps (N3), by the influence of rows and table.

Data and table are drawn anew many times, and an end of a rate's range is a linear program. Its multipliers on the data
are the influence of each row and of each entry of the table, so that in a draw the end is, to first order,

.. math:: v + \sum_{kc} u_k(c) \{m'_k(c) - m_k(c)\} + \sum_{jk} a_{jk} (C'_{jk} - C_{jk})
    + \sum_{jk} w_{jk} (T'_{jk} - T_{jk}) ,

plus ``e_k min_c u_k(c)`` for a row of mass ``e_k`` that may be in any cell of noisy group k
(:mod:`fairfix.noise.added_rows`). Two corrections hold where rows are few: no end is beyond that of any noise, which
has a closed form; and programs of draws at the quantile are solved, and all draws are moved by what an end is further
out there. So limits are never narrower than the first order has them, and of no width only if no row could change the
end.

Sources: A. Shapiro, D. Dentcheva and A. Ruszczynski, *Lectures on stochastic programming* (2009), 5.1.3, for the
influence of data on an optimum; ``docs/methods/noise.md``.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from fairfix.noise.added_rows import LOWER, UPPER, with_row
from fairfix.noise.bounds import Pair, table_bounds
from fairfix.noise.epsilon import End, cell_parts, sensitivity_ends
from fairfix.noise.label_shift import noise_of
from fairfix.noise.rates import Floats, Ratio
from fairfix.noise.uncertainty_set import influence, joint_masses

NEAR = 1
"""Draws on either side of that at the quantile whose programs are solved too."""


class Draws:
    """Data, and data and tables drawn anew.

    Parameters
    ----------
    data
        Masses of TP, FN, FP, TN in noisy groups, shape (K, 4), and the table, shape (J, K) or by label (2, J, K).
    masses, tables
        The same drawn anew, shapes (R, K, 4) and (R, J, K) or (R, 2, J, K).
    imagined
        Masses of rows in unknown cells that the drawn tables hold besides, shape (R, K), or (R, 2, K) by label.
    eps
        Largest ``|P(noisy | true, cell) - P(noisy | true)|``.
    """

    def __init__(self, data: Pair, masses: Floats, tables: Floats, imagined: Floats, eps: float) -> None:
        self.masses, self.tables, self.imagined, self.eps = masses, tables, imagined, eps
        self.by_label = tables.ndim == 4
        parts, self.which = cell_parts(*data)
        drawn, alike = np.moveaxis(tables, 1, 0) if self.by_label else tables[None], 1.0 / tables.shape[-1]
        self.space = joint_masses(parts, eps) if eps < 1 else None
        rest = np.moveaxis(imagined, 1, 0) if self.by_label else imagined[None]
        self.more = [
            (masses[..., own] - mass, C - table, noise_of(C, alike) - noise_of(table, alike), row)
            for own, (mass, table), C, row in zip(self.which, parts, drawn, rest, strict=True)
        ]

    def ends(self, ratios: Mapping[str, Ratio], level: float) -> dict[str, Pair]:
        """Return both ends of each rate in every draw, shape (R, J), with the quantile at a level held to its program.

        NaN for a group without rows.
        """
        return {
            name: (self._end(ratio, LOWER, level), self._end(ratio, UPPER, level))
            for name, ratio in ratios.items()
        }

    def _end(self, ratio: Ratio, side: int, level: float) -> Floats:
        """Return an end of a rate in every draw, shape (R, J)."""
        sign = 1.0 if side == LOWER else -1.0
        cells = with_row(self.masses, self.imagined, ratio, side, by_label=self.by_label)
        ends = sign * table_bounds(cells, self.tables, ratio)[side]  # for any noise
        for group in range(ends.shape[1]):
            end = End(ratio, group, sign)
            estimate = self._estimated(end)
            if estimate is not None and not np.isnan(ends[:, group]).all():
                estimate = np.minimum(np.fmax(estimate, ends[:, group]), max(sign, 0.0))
                order, at = np.argsort(estimate, kind="stable"), int(level * (len(estimate) - 1))
                off = [
                    sign * self._program(draw, end) - estimate[draw]
                    for draw in order[max(at - NEAR, 0) : at + NEAR + 1].tolist()
                ]
                estimate += np.fmin.reduce(off, initial=0.0)
                ends[:, group] = np.maximum(ends[:, group], estimate)
        return np.asarray(sign * ends) + 0.0

    def _program(self, draw: int, end: End) -> float:
        """Return an end of a draw by its program; NaN where the draw is refuted."""
        table, row = self.tables[draw], self.imagined[draw]
        return float(sensitivity_ends(self.masses[draw], table, self.eps, [end], row)[0])

    def _estimated(self, end: End) -> Floats | None:
        """Return the end of a rate times its sign in every draw to first order, shape (R,); None without a program."""
        if self.space is None:
            return None
        top, bottom = end.placed(self.space, self.which)
        slopes = influence(self.space, end.sign * top, bottom)
        if slopes is None:
            return None
        out = np.full(len(self.masses), slopes.least)
        every = zip(self.more, slopes.of_cells, slopes.of_tables, slopes.of_noise, strict=True)
        for (masses, tables, noise, imagined), of_cells, of_tables, of_noise in every:
            out += np.einsum("kc,rkc->r", of_cells, masses) + imagined @ of_cells.min(-1)
            out += np.einsum("jk,rjk->r", of_tables, tables) + np.einsum("jk,rjk->r", of_noise, noise)
        return out
