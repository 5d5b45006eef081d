"""What several test files share: a small data set with every kind of column, made from a seed."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest

Frames = Callable[..., pd.DataFrame]


def make_frame(n: int = 400, seed: int = 0, groups: int = 3) -> pd.DataFrame:
    """Return rows with a text and a boolean group, a stratum, labels, scores that tie, weights and a feature."""
    rng = np.random.default_rng(seed)
    code = rng.integers(0, groups, n)
    score = np.round(np.clip(rng.beta(2, 2, n) + 0.1 * (code == 0), 0, 1), 3)
    return pd.DataFrame(
        {
            "race": np.array([f"r{i}" for i in range(groups)])[code],
            "member": rng.random(n) < 0.5,
            "town": rng.choice(["north", "south"], n),
            "label": (rng.random(n) < score).astype(int),
            "score": score,
            "weight": rng.integers(1, 9, n) / 4,
            "x": rng.normal(size=n),
        }
    )


@pytest.fixture(scope="session")
def frames() -> Frames:
    """A factory: the same arguments give the same frame."""
    return make_frame
