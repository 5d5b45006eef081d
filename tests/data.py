"""Makers of data that more than one test file needs: the same arguments give the same rows.

A test that needs rows of a special shape (ties, noise, an effect of known size) makes them where it stands.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from fairfix.data.files import open_source


def people(rows: int, seed: int = 0, shares: Sequence[float] = (0.6, 0.38, 0.02)) -> pd.DataFrame:
    """Return rows of every kind of column; race a has higher scores, and race c has its last share of the rows.

    Columns: race, sex, town, product (texts); label of the score's probability; score; raw and real (scores and labels
    of any size); p (a probability of few digits); yes (0 or 1); weight; id.
    """
    rng = np.random.default_rng(seed)
    race = rng.choice(["a", "b", "c"], rows, p=shares)
    score = np.clip(rng.beta(2, 2, rows) + 0.1 * (race == "a"), 0, 1)
    label = (rng.random(rows) < score).astype(int)
    return pd.DataFrame(
        {
            "race": race,
            "sex": rng.choice(["f", "m"], rows),
            "town": rng.choice(["north", "south"], rows),
            "label": label,
            "score": score,
            "raw": rng.normal(size=rows) * 10.0 ** rng.integers(-3, 4),
            "real": rng.normal(3.0, 2.0, rows),
            "p": np.round(rng.random(rows), 3),
            "yes": rng.integers(0, 2, rows),
            "weight": rng.gamma(2.0, size=rows),
            "product": rng.choice(["car", "home"], rows),
            "id": [f"p{i}" for i in range(rows)],
        }
    )


def scored(seed: int = 0, rows: int = 600, groups: int = 3, *, skew: float = 1.0) -> pa.Table:
    """Return rows whose groups g0, g1, ... differ in score; a tenth of the scores tie; ``skew`` > 1: they are too high.

    Columns: race, label of probability score**skew, score, weight (1 to 3), x, job (a stratum).
    """
    rng = np.random.default_rng(seed)
    group = rng.integers(0, groups, rows)
    score = np.clip(rng.beta(2, 3, rows) + 0.15 * group / groups, 0, 1)
    score[: rows // 10] = np.round(score[: rows // 10], 1)
    return pa.table(
        {
            "race": pa.array([f"g{g}" for g in group]),
            "label": pa.array((rng.random(rows) < score**skew).astype(np.int64)),
            "score": pa.array(score),
            "weight": pa.array(rng.integers(1, 4, rows).astype(np.float64)),
            "x": pa.array(rng.normal(size=rows)),
            "job": pa.array([f"j{j}" for j in rng.integers(0, 2, rows)]),
        }
    )


def couples(seed: int = 0, many: int = 2000) -> pd.DataFrame:
    """Return rows of sex, race, role (wife or husband for half of them), age and a label that hangs on all of these."""
    rng = np.random.default_rng(seed)
    sex = np.array(["f", "m"])[np.arange(many) % 2]
    race = np.array(["a", "b", "c"])[rng.integers(0, 3, many)]
    spouse = np.where(sex == "m", "husband", "wife")
    role = np.where(rng.random(many) < 0.5, spouse, np.array(["child", "single"])[rng.integers(0, 2, many)])
    age = rng.normal(40 + 4 * (sex == "m"), 10, many)
    z = (
        0.06 * (age - 42)
        + 0.9 * (sex == "m")
        + 0.5 * (race == "a")
        + 0.8 * np.isin(role, ["husband", "wife"])
        - 0.9
    )
    return pd.DataFrame(
        {
            "sex": sex,
            "race": race,
            "role": role,
            "age": age,
            "label": (rng.random(many) < 1 / (1 + np.exp(-z))).astype(int),
        }
    )


def below(seed: int) -> Callable[[int], int]:
    """Return what draws whole numbers below its argument, the same ones for a seed."""
    rng = np.random.default_rng(seed)
    return lambda many: int(rng.integers(many))


def read(
    data: Any, columns: Sequence[str] | None = None, types: dict[str, pa.DataType] | None = None
) -> pa.Table:
    """Return rows of whatever fairfix opens: of all columns, or of some, and in the types that are asked for."""
    source = open_source(data)
    names = list(source.columns) if columns is None else columns
    return pa.Table.from_batches(list(source.batches(names, types or {}))).combine_chunks()


def columns_read(data: Any, columns: Sequence[str] | None = None, types: Any = None) -> dict[str, list[Any]]:
    """Return the same as lists."""
    return dict(read(data, columns, types).to_pydict())
