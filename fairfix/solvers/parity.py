r"""Distances between the distribution of scores in a group and all rows, or another group.

.. math:: \mathrm{KS}_a = \sup_z |F_a(z) - F(z)|, \qquad F_a(z) = P(u \le z \mid a)
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fairfix.solvers.arrays import Floats, Ints


def ks_to_overall(score: Floats, codes: Ints, weight: Floats | None, groups: int) -> Floats:
    """Return the largest distance of each group's distribution function to the overall one, over all thresholds.

    ``score``, ``codes``: score and group of each row, shape (n,) each. ``weight``: shape (n,); None for 1 each.
    ``groups``: number of groups K; each has rows.

    Returns
    -------
    Shape (K,).
    """
    everybody, levels = _distributions(score, codes, weight, groups)
    return np.array([np.abs(own - everybody).max() for own in levels])


def ks_between(score: Floats, codes: Ints, weight: Floats | None, groups: int) -> float:
    """Return the largest distance of two groups' distribution functions, over all thresholds; as above."""
    everybody, levels = _distributions(score, codes, weight, groups)
    least, most = np.ones_like(everybody), np.zeros_like(everybody)
    for own in levels:
        np.minimum(least, own, out=least)
        np.maximum(most, own, out=most)
    return float((most - least).max())


def _distributions(
    score: Floats, codes: Ints, weight: Floats | None, groups: int
) -> tuple[Floats, Iterator[Floats]]:
    """Return the overall distribution function at all distinct scores, and that of each group there, one by one."""
    order = np.argsort(score, kind="stable")
    s, code = score[order], codes[order]
    w = np.ones(s.size) if weight is None else weight[order]
    last = np.concatenate([s[1:] != s[:-1], [True]])  # tied scores lie on one side of every threshold

    def upto(mass: Floats) -> Floats:
        own = np.cumsum(mass)[last]
        return np.asarray(own / own[-1])

    return upto(w), (upto(np.where(code == k, w, 0.0)) for k in range(groups))
