r"""Distances between the distribution of scores in a group and everybody's.

.. math:: \mathrm{KS}_a = \sup_z |F_a(z) - F(z)|, \qquad F_a(z) = P(u \le z \mid a)
"""

from __future__ import annotations

import numpy as np

from fairfix.optim.arrays import Floats, Ints


def ks_to_overall(score: Floats, codes: Ints, weight: Floats | None, groups: int) -> Floats:
    """Return the largest distance of each group's distribution function to everybody's, over all thresholds.

    ``score``, ``codes``: score and group of each row, shape (n,) each. ``weight``: shape (n,); None for 1 each.
    ``groups``: number of groups K, all of which have rows.

    Returns
    -------
    Shape (K,).
    """
    order = np.argsort(score, kind="stable")
    s, code = score[order], codes[order]
    w = np.ones(s.size) if weight is None else weight[order]
    last = np.concatenate([s[1:] != s[:-1], [True]])  # tied scores lie on one side of every threshold
    everybody = np.cumsum(w)[last]
    everybody /= everybody[-1]
    out = np.empty(groups)
    for k in range(groups):
        own = np.cumsum(np.where(code == k, w, 0.0))[last]
        out[k] = np.abs(own / own[-1] - everybody).max()
    return out
