"""Search for slices: against all conjunctions one by one, and with numbers that must not change."""

from __future__ import annotations

from itertools import combinations, product

import fairfix
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from fairfix.auditing.metrics import METRICS
from fairfix.auditing.slicing import search as search_module
from fairfix.auditing.slicing import selection
from fairfix.auditing.slicing.quantity import SliceMetric, quantity_of
from fairfix.auditing.slicing.search import Cells, cubes, most_slices, search
from fairfix.auditing.slicing.selection import Searched, confirmed, searched
from fairfix.data.data_spec import ColumnRoles, DataSpec
from fairfix.data.scan import read_table
from fairfix.data.slice_levels import levels_of
from fairfix.data.table import Table

METRIC_NAMES = (
    "accuracy",
    "selection_rate",
    "true_positive_rate",
    "positive_predictive_value",
    "square_loss",
)


def frame_of(rows: int = 300, seed: int = 0) -> pd.DataFrame:
    """Return rows with features of few levels, one of them too rare, and one of many numbers."""
    rng = np.random.default_rng(seed)
    score = rng.random(rows)
    return pd.DataFrame(
        {
            "a": rng.choice(["p", "q", "r"], rows, p=[0.6, 0.37, 0.03]),
            "b": rng.integers(0, 3, rows),
            "c": rng.choice(["x", None, "z", "few", "fewer"], rows, p=[0.4, 0.3, 0.22, 0.04, 0.04]),
            "d": rng.normal(size=rows),
            "sex": rng.choice(["f", "m"], rows),
            "label": (rng.random(rows) < score).astype(int),
            "score": score,
            "yes": rng.random(rows),
            "weight": rng.integers(1, 4, rows).astype(float),
        }
    )


def table_of(frame: pd.DataFrame, **roles: str) -> Table:
    """Return the rows as a table."""
    columns = ColumnRoles(protected=("sex",), label="label", score="score", **roles)
    return read_table(frame, DataSpec(columns).with_threshold())


def cells_of(
    frame: pd.DataFrame, name: str = "accuracy", gap: bool = False, least: int = 15, **roles: str
) -> Cells:
    """Return the cells of a metric over the features."""
    table = table_of(frame, **roles)
    groups = table.groups(("sex",)) if gap else None
    levels, _ = levels_of(table.features, ["a", "b", "c", "d"], {}, least)
    return Cells(tuple(levels), quantity_of(table, METRICS[name], groups))


def conjunctions(cells: Cells) -> list[tuple[tuple[int, int], ...]]:
    """Return every conjunction of up to three conditions."""
    places = [[(i, code) for code in range(len(one.conditions))] for i, one in enumerate(cells.levels)]
    return [
        place for many in (1, 2, 3) for chosen in combinations(places, many) for place in product(*chosen)
    ]


def value_of(frame: pd.DataFrame, name: str, weight: np.ndarray) -> float:
    """Return a metric by its definition."""
    label, decision = frame["label"].to_numpy(), (frame["score"] >= 0.5).to_numpy().astype(float)
    of = {
        "accuracy": (decision == label, np.ones(len(frame))),
        "selection_rate": (decision, np.ones(len(frame))),
        "true_positive_rate": (decision * label, label),
        "positive_predictive_value": (decision * label, decision),
        "square_loss": ((frame["score"] - label) ** 2, np.ones(len(frame))),
    }
    above, below = of[name]
    below = weight @ below
    return float(weight @ above / below) if below else np.nan


@pytest.mark.slow
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("gap", [False, True])
@pytest.mark.parametrize("name", METRIC_NAMES)
def test_every_conjunction_of_enough_rows_is_there_with_its_value(
    name: str, gap: bool, weighted: bool
) -> None:
    frame = frame_of()
    cells = cells_of(frame, name, gap, **({"weight": "weight"} if weighted else {}))
    weight = frame["weight"].to_numpy() if weighted else np.ones(len(frame))
    expected, sizes = {}, set()
    for place in conjunctions(cells):
        mask = np.logical_and.reduce([cells.levels[i].codes == code for i, code in place])
        if mask.sum() < 6:
            continue
        sizes.add(int(mask.sum()))
        own, w = frame[mask], weight[mask]
        if gap:
            sexes = [value_of(own[own.sex == s], name, w[own.sex == s]) for s in ("f", "m")]
            expected[place] = abs(sexes[0] - sexes[1])
        else:
            expected[place] = value_of(own, name, w)
    seen = {}
    for cube in cubes(cells, 6):
        values, low, high = cells.quantity.limits(cube.tables, 0.05)
        for levels, *interval in zip(cube.levels.tolist(), values, low, high, strict=True):
            seen[tuple(zip(cube.columns, levels, strict=True))] = interval

    assert seen.keys() == expected.keys()
    assert min(sizes) == 6  # as few as there may be
    assert len(seen) > 80
    for place, (value, low, high) in seen.items():
        np.testing.assert_allclose(value, expected[place], atol=1e-9)
        assert np.isnan(value) or low <= value + 1e-9 <= high + 2e-9


@pytest.mark.parametrize("gap", [False, True])
def test_the_pool_is_that_of_all_slices_by_rank(gap: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cutting the pool while it is filled leaves the best: those of a pool that holds everything."""
    cells = cells_of(frame_of(600), gap=gap)
    whole = search(cells, 15, 0.05)
    monkeypatch.setattr(search_module, "POOL", 7)
    few = search(cells, 15, 0.05)

    assert few.searched == whole.searched == sum(len(cube.levels) for cube in cubes(cells, 15))
    assert list(few.tables) == list(whole.tables)[:7]
    assert whole.searched <= most_slices(cells, 15)


def planted(rows: int = 6000, seed: int = 0, chance: float = 0.45) -> tuple[pd.DataFrame, np.ndarray]:
    """Return rows of which those of a=p and b=1 are wrong more often than the tenth of the others, and these rows."""
    rng = np.random.default_rng(seed)
    frame = frame_of(rows, seed)
    bad = ((frame.a == "p") & (frame.b == 1)).to_numpy()
    wrong = rng.random(rows) < np.where(bad, chance, 0.1)
    frame["label"] = np.where(wrong, frame.score < 0.5, frame.score >= 0.5).astype(int)
    return frame, bad


def texts(result: Searched) -> list[str]:
    """Return the conditions of the slices that are shown to be worse."""
    return [str(one.condition) for one in result.slices if one.worse]


def test_a_planted_slice_is_reported_alone() -> None:
    frame, bad = planted()
    cells = cells_of(frame, least=60)
    held = np.random.default_rng(1).random(len(frame)) < 0.5
    result, split = searched(cells, 60, 0.05), confirmed(cells, held, 60, 0.05)

    assert texts(result) == texts(split) == ["a == 'p' and b == 1"]
    (one,) = result.slices
    wrong = (frame.label != (frame.score >= 0.5)).to_numpy()
    assert one.rows == bad.sum()
    assert one.value == pytest.approx(1 - wrong[bad].mean())
    assert one.error == pytest.approx(wrong[bad].sum() / wrong.sum())
    assert split.slices[0].rows == (bad & held).sum()
    assert split.slices[0].proposed == (
        (bad & ~held).sum(),
        pytest.approx(1 - wrong[bad & ~held].mean()),
    )


def test_a_worse_part_of_a_bad_slice_is_reported_with_it() -> None:
    frame, _ = planted(12000, chance=0.3)
    worst = (frame.a == "p") & (frame.b == 1) & (frame.c == "x")
    frame.loc[worst, "label"] = (frame.score[worst] < 0.5).astype(int)
    assert texts(searched(cells_of(frame, least=60), 60, 0.05)) == [
        "a == 'p' and b == 1 and c == 'x'",
        "a == 'p' and b == 1",
    ]


def test_a_part_that_is_worse_by_another_slice_alone_is_none() -> None:
    """Rows of d below its first edge are worse, and so are those of a=p and b=1: their conjunctions with others are."""
    frame, bad = planted(20000, chance=0.5)
    low = (frame.d < frame.d.quantile(0.2)).to_numpy() & ~bad
    flip = low & (np.random.default_rng(5).random(len(frame)) < 0.25)
    frame.loc[flip, "label"] = 1 - frame.label[flip]
    shown = texts(searched(cells_of(frame, least=100), 100, 0.05))

    assert shown[0] == "a == 'p' and b == 1"
    assert len(shown) == 2
    assert shown[1].startswith("d < ")


@pytest.mark.parametrize("name", ["accuracy", "square_loss"])
def test_equal_rows_may_be_counted_once(name: str) -> None:
    """Cells that stand for several rows give the result of these rows."""
    frame, _ = planted()
    frame["score"] = np.where(frame.score >= 0.5, 0.75, 0.25)
    frame["d"] = 0.0
    cells = cells_of(frame, name, least=60)
    merged = cells.merged()
    assert len(merged) < len(cells)

    whole = {cube.columns: cube for cube in cubes(cells, 60)}
    for cube in cubes(merged, 60):
        np.testing.assert_array_equal(cube.levels, whole[cube.columns].levels)
        np.testing.assert_allclose(cube.tables, whole[cube.columns].tables)
    np.testing.assert_allclose(merged.table(), cells.table())


@pytest.mark.parametrize("weight", ["", "weight"])
def test_a_slice_without_a_group_has_no_gap_and_no_warning(weight: str) -> None:
    """Of two groups, where one has no row in a slice; of rates with and without weights."""
    frame = pd.DataFrame(
        {"g": ["u"] * 60 + ["v"] * 20, "a": ["x"] * 40 + ["y"] * 40, "prediction": [0, 1] * 40, "weight": 0.5}
    )
    result = fairfix.slices(
        frame, protected="g", weight=weight or None, slice_metric="dp.difference", min_rows=20
    )

    assert result.content.slices.searched > 0
    assert result.content.slices.slices == ()


def test_order_of_rows_and_columns_and_names_do_not_matter() -> None:
    frame, _ = planted()
    result = searched(cells_of(frame, least=60), 60, 0.05, extreme=True)
    shuffled = frame.sample(frac=1, random_state=0).reset_index(drop=True)
    renamed = shuffled.replace({"a": {"p": "Z", "q": "p"}})
    table = table_of(renamed)
    levels, _ = levels_of(table.features, ["d", "c", "b", "a"], {}, 60)
    other = searched(
        Cells(tuple(levels), quantity_of(table, METRICS["accuracy"], None)), 60, 0.05, extreme=True
    )

    assert other.searched == result.searched
    assert other.extreme == pytest.approx(result.extreme)
    assert other.overall == pytest.approx(result.overall)
    assert [(one.rows, one.low, one.high) for one in other.slices] == [
        pytest.approx((one.rows, one.low, one.high)) for one in result.slices
    ]


def test_limits_of_the_worst_value_are_the_worst_of_all_limits() -> None:
    cells = cells_of(frame_of(800), "accuracy", least=40)
    each = 0.05 * (1 - selection.OF_WHOLE) / most_slices(cells, 40)
    intervals = np.concatenate(
        [np.stack(cells.quantity.limits(c.tables, each)) for c in cubes(cells, 40)], axis=1
    )
    result = searched(cells, 40, 0.05, extreme=True)

    assert result.extreme == pytest.approx(tuple(np.nanmin(intervals, axis=1)))


def test_tables_of_more_cells_than_rows_are_made_of_those_that_are_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cells = cells_of(frame_of(400), least=10)
    dense = list(cubes(cells, 10))
    monkeypatch.setattr(search_module, "DENSE", -100)
    for one, other in zip(dense, cubes(cells, 10), strict=True):
        np.testing.assert_array_equal(one.levels, other.levels)
        np.testing.assert_array_equal(one.tables, other.tables)
    monkeypatch.setattr(search_module, "FEW", 2.0)
    for one, other in zip(dense, cubes(cells, 10), strict=True):
        np.testing.assert_array_equal(one.tables, other.tables)


def test_a_number_without_a_range_is_tested_on_held_out_rows() -> None:
    rng = np.random.default_rng(0)
    rows = 4000
    a = rng.choice(["p", "q", "r"], rows)
    loss = rng.exponential(1.0 + 2.0 * (a == "q"))
    levels, _ = levels_of(pa.table({"a": a, "b": rng.integers(0, 3, rows)}), ["a", "b"], {}, 50)
    key = np.zeros(rows, dtype=np.int64)
    for weight in (None, rng.random(rows)):
        sums = (
            np.stack([loss, loss**2])
            if weight is None
            else np.stack([w * loss**k for w in (weight, weight**2) for k in range(3)])
        )
        quantity = SliceMetric(METRICS["absolute_loss"], "free", 1, (), key, 1, sums)
        result = confirmed(Cells(tuple(levels), quantity), rng.random(rows) < 0.5, 50, 0.05)
        assert texts(result) == ["a == 'q'"]
