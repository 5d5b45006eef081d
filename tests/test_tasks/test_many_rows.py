"""Rows are looked at some at a time: how many makes no difference to a repair, and every row is in one part."""

from __future__ import annotations

from typing import Any

import fairfix
import numpy as np
import pyarrow as pa
import pytest
from fairfix.data import counts
from fairfix.data.data_spec import ColumnRoles, DataSpec
from fairfix.data.scan import read_table
from fairfix.data.table import parted
from fairfix.errors import FairfixError
from fairfix.tasks.row_split import split_rows
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.data import people, scored
from tests.databases import differences
from tests.strategies import examples

METHODS: tuple[dict[str, Any], ...] = (
    {"method": "ramp", "slack": 0.02},
    {"method": "ramp", "gamma": 0},
    {"method": "ramp", "gamma": [0.05, 0.2], "validation": 0.3},
    {"method": "ramp", "constraint": "equalized_odds", "slack": 0.05},
    {"method": "ramp", "constraint": "tpr.difference<=0.05", "decisions": "deterministic"},
    {"method": "ramp", "calibrate": "sigmoid"},
    {"method": "ramp", "score": "raw", "score_scale": "raw", "threshold": 0.0},
    {"method": "ramp", "constraint": "covariance[real]<=0.3", "protected": None},
    {"method": "fair-regression", "task": "regression", "label": "real", "score": "score"},
    {"method": "robust", "noise": "radius:a=0.02,b=0.02,c=0.1"},
)

MORE: tuple[dict[str, Any], ...] = (
    {},
    {"weight": "weight"},
    {"id": "id"},
    {"strata": "town"},
    {"protected": ["race", "sex"]},
    {"guarantee": 0.95},
    {"missing": "race=group"},
    {"check": ["selection_rate.difference<=0.2", "ks<=0.3"], "weight": "weight", "id": "id"},
)


READING = DataSpec(ColumnRoles(("race",), label="label", score="score"))


@given(
    st.integers(0, 99),
    st.sampled_from(METHODS),
    st.sampled_from(MORE),
    st.sampled_from([1, 7, 64]),
    st.booleans(),
)
@settings(max_examples=examples(24))
def test_the_rows_that_are_looked_at_together_make_no_difference(
    seed: int, method: dict[str, Any], more: dict[str, Any], together: int, tied: bool
) -> None:
    rows = people(150, seed, (0.5, 0.4, 0.1))
    if tied:
        rows["score"] = rows["score"].round(1)
    if "missing" in more:
        rows.loc[rows.index % 7 == 0, "race"] = None
    asked = {"protected": "race", "label": "label", "score": "score", **more, **method}
    made: list[Any] = []
    for size in (counts.PIECE_ROWS, together):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(counts, "PIECE_ROWS", size)
            try:
                result = fairfix.repair(rows, **asked)
                made.append((result.to_dict(), result.predict(rows)))
            except FairfixError as error:
                made.append(str(error))
    one, other = made
    if isinstance(one, str) or isinstance(other, str):
        assert one == other
        return
    assert not differences(one[0], other[0])
    decided = [name for name in one[1].columns if name in ("decision", "prediction")]
    assert decided
    for name in decided:
        np.testing.assert_array_equal(one[1][name].to_numpy(), other[1][name].to_numpy())


@given(
    st.integers(0, 99),
    st.integers(20, 400),
    st.floats(0, 0.4),
    st.floats(0.05, 0.5),
    st.sampled_from([3, 1 << 17]),
)
@settings(max_examples=examples(40))
def test_of_each_group_and_label_the_first_shuffled_rows_are_held_out(
    seed: int, rows: int, validation: float, holdout: float, together: int
) -> None:
    table = read_table(scored(seed, rows), READING)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(counts, "PIECE_ROWS", together)
        split = split_rows(table, np.random.default_rng(seed), validation=validation, holdout=holdout)
    order = np.random.default_rng(seed).permutation(len(table))
    assert table.rows.label is not None
    for cell in range(len(table.rows.cells)):
        for label in (0, 1):
            own = order[(table.rows.cell[order] == cell) & (table.rows.label[order] == label)]
            held, chosen = (round(own.size * share) for share in (holdout, validation))
            assert {*own[:held]} <= {*split.holdout}
            assert {*own[held : held + chosen]} <= {*split.validation}
            assert {*own[held + chosen :]} <= {*split.fit}
    assert sum(split.sizes.values()) == len(table)


def test_a_table_is_parted_as_by_its_row_numbers() -> None:
    table = read_table(scored(1, 200), READING, columns=["x"])
    inside = np.random.default_rng(0).random(len(table)) < 0.4
    for part, mask in zip(parted([table], inside), (~inside, inside), strict=True):
        own = table.take(np.flatnonzero(mask))
        assert part.features.equals(own.features)
        assert len(part) == part.rows.read == mask.sum()
        for name in ("cell", "label", "score"):
            np.testing.assert_array_equal(getattr(part.rows, name), getattr(own.rows, name))


def test_cells_of_two_bytes_hold_as_many_as_there_may_be() -> None:
    table = read_table(pa.table({"race": ["a"], "label": [1], "score": [0.5]}), READING)
    assert np.iinfo(table.rows.cell.dtype).max >= counts.MOST_CELLS - 1
