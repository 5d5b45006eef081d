"""Counts are additive, and the grid never misplaces a score."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from fairfix.data.counts import Counts, Grid
from fairfix.data.data_spec import ColumnRoles, DataSpec
from fairfix.data.encoder import Encoder
from fairfix.data.files import open_source
from fairfix.data.scan import Tally, scan
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.strategies import examples

finite = st.floats(allow_nan=False, allow_infinity=False, width=64)
scores = st.lists(finite | st.floats(-2, 2) | st.sampled_from([0.0, 0.5, 1.0, 0.7]), min_size=1, max_size=30)


@given(scores, st.lists(finite, max_size=3))
@example([63.0, -5e-324, 1e300], [-5e-324])
@example([0.0, 5e-324], [1e300])
@example([-1.7e308, 1.7e308], [1e-300])
def test_every_score_lies_inside_its_bin(values: list[float], cuts: list[float]) -> None:
    """The bin of a score has a lower edge at or below it and an upper edge above it (top edge excepted)."""
    score = np.array(values)
    grid = Grid.over(score.min(), score.max(), bins=64, thresholds=cuts)
    index = grid.index(score)

    assert grid.size <= 64 + 2 + len(cuts)
    assert grid.edges.size == grid.size + 1
    assert ((index >= 0) & (index < grid.size)).all()
    assert (grid.edges[index] <= score).all()
    assert (score < grid.edges[index + 1]).all()


@given(
    st.lists(st.floats(0, 1), min_size=1, max_size=30),
    st.lists(st.floats(-0.5, 1.5), min_size=1, max_size=4),
    st.data(),
)
def test_thresholds_are_exact(values: list[float], cuts: list[float], data: st.DataObject) -> None:
    """Bins at and above start(t) hold exactly the scores >= t, for ties and their neighbours too."""
    tied = data.draw(st.sampled_from(cuts))
    score = np.array([*values, *np.clip([tied, np.nextafter(tied, 0), np.nextafter(tied, 1)], 0, 1)])
    grid = Grid.over(0.0, 1.0, bins=64, thresholds=cuts)
    index = grid.index(score)

    for cut in cuts:
        np.testing.assert_array_equal(index >= grid.start(cut), score >= cut)


@given(scores, st.lists(finite, max_size=3), st.integers(0, 70))
@example([63.0, -5e-324, 1e300], [-5e-324], 3)
@example([0.0, 1.0, 0.3], [0.3, 0.30001], 40)
def test_a_finer_grid_cuts_bins_and_names_their_tops(
    values: list[float], cuts: list[float], steps: int
) -> None:
    score = np.array(values)
    grid = Grid.over(score.min(), score.max(), bins=64, thresholds=cuts)
    finer = grid.finer(steps)
    place = finer.index(score)
    top = finer.tops(place)

    assert (top >= score).all()
    np.testing.assert_array_equal(finer.index(top), place)
    np.testing.assert_array_equal(grid.index(top), grid.index(score))
    with np.errstate(over="ignore"):  # above the largest float
        above = np.nextafter(top, np.inf)
    inside = np.isfinite(above) & (above < grid.edges[-1])
    assert (finer.index(above[inside]) > place[inside]).all()


@settings(max_examples=examples(60))
@given(
    st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=40),
    st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=40),
)
@example([63.0], [-5e-324])
def test_grids_fold_without_loss(left: list[float], right: list[float]) -> None:
    """Folding the bins onto a common grid is the same as binning on it."""
    cuts = (0.25, 100.0)
    one, two = (Grid.over(min(v), max(v), bins=32, thresholds=cuts) for v in (left, right))
    common = one.covering(two, most=64)
    for grid, values in ((one, left), (two, right)):
        np.testing.assert_array_equal(
            grid.onto(common)[grid.index(np.array(values))], common.index(np.array(values))
        )


def frame(n: int, seed: int, *, raw: bool = False, shift: float = 0.0) -> pa.Table:
    """Return rows with two group columns and weights that add exactly."""
    rng = np.random.default_rng(seed)
    score = rng.normal(shift, 3, n) if raw else rng.random(n)
    return pa.table(
        {
            "a": pa.array(rng.choice(["x", "y", f"only{seed}"], n).tolist()).dictionary_encode(),
            "b": pa.array(rng.integers(0, 2, n).astype(bool)),
            "label": pa.array(rng.integers(0, 2, n)),
            "score": pa.array(score),
            "w": pa.array(rng.integers(1, 5, n) / 4),
        }
    )


def counted(table: pa.Table, *, raw: bool = False, weight: bool = False) -> Counts:
    """Count a table."""
    columns = ColumnRoles(("a", "b"), label="label", score="score", weight="w" if weight else None)
    data_spec = DataSpec(columns, score_scale="raw" if raw else "probability", thresholds=(0.5,))
    return scan(open_source(table), data_spec).counts


def assert_same(one: Counts, two: Counts) -> None:
    """The two are equal: integers exactly, sums to rounding."""
    assert (one.keys, one.cells, one.grid, one.read) == (two.keys, two.cells, two.grid, two.read)
    np.testing.assert_array_equal(one.rows, two.rows)
    for name in ("mass", "square_mass"):
        a, b = getattr(one, name), getattr(two, name)
        assert (a is None) == (b is None)
        if a is not None:
            np.testing.assert_allclose(a, b, rtol=1e-12)
    assert one.sums.keys() == two.sums.keys()
    for name, table in one.sums.items():
        np.testing.assert_allclose(table, two.sums[name], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("raw", [False, True])
@pytest.mark.parametrize("weight", [False, True])
def test_adding_counts_is_counting_together(raw: bool, weight: bool) -> None:
    """count(A) + count(B) = count(A and B), with other cells, dictionaries and score ranges in each."""
    one, two = frame(400, 1, raw=raw), frame(300, 2, raw=raw, shift=40.0)
    added = counted(one, raw=raw, weight=weight) + counted(two, raw=raw, weight=weight)
    together = counted(pa.concat_tables([t.cast(unified(one)) for t in (one, two)]), raw=raw, weight=weight)
    if raw:  # the order of the data decides how fine the grid is, so compare on a common one
        assert added.grid is not None
        assert together.grid is not None
        common = added.grid.covering(together.grid, most=4096)
        added, together = added.regrid(common), together.regrid(common)

    assert_same(added, together)


def unified(table: pa.Table) -> pa.Schema:
    """Return the schema with plain text instead of a dictionary."""
    return pa.schema(
        [f.with_type(pa.string()) if pa.types.is_dictionary(f.type) else f for f in table.schema]
    )


def test_addition_commutes_and_associates() -> None:
    a, b, c = (counted(frame(200, seed)) for seed in (1, 2, 3))

    assert_same(a + b, b + a)
    assert_same((a + b) + c, a + (b + c))


def test_an_empty_part_adds_its_reasons_only() -> None:
    """A file of which no row is used changes nothing but read and excluded."""
    columns = ColumnRoles(("a", "b"), label="label", score="score")
    data_spec = DataSpec(columns, thresholds=(0.5,), missing_rows="drop")
    a = scan(open_source(frame(50, 1)), data_spec).counts
    tally = Tally(data_spec, 1024)
    nobody = pa.record_batch({"a": ["x"], "b": [True], "label": [1], "score": [None]})
    tally.add(Encoder(data_spec).encode(nobody))
    b = tally.counts()

    for both in (a + b, b + a):
        assert_same(both, replace(a, read=51))
        assert both.excluded == {"missing score": 1}


@pytest.mark.parametrize("raw", [False, True])
def test_halving_keeps_the_totals_on_both_sides_of_a_threshold(raw: bool) -> None:
    """However coarse the grid gets, thresholds stay exact."""
    counts = counted(frame(400, 1, raw=raw), raw=raw, weight=True)
    for _ in range(15):
        assert counts.grid is not None
        coarse = counts.regrid(counts.grid.halved())
        assert coarse.grid is not None
        for name in ("rows", "weights", "square_weights"):
            old, new = getattr(counts, name), getattr(coarse, name)
            cuts = counts.grid.start(0.5), coarse.grid.start(0.5)
            np.testing.assert_allclose(new[:, :, : cuts[1]].sum(-1), old[:, :, : cuts[0]].sum(-1))
            np.testing.assert_allclose(new.sum(-1), old.sum(-1))
        counts = coarse


def test_folding_cells_keeps_every_row() -> None:
    counts = counted(frame(500, 1), weight=True)
    group = np.arange(len(counts.cells)) % 3 - 1
    folded = counts.fold(group, 4)

    for g in range(2):
        np.testing.assert_array_equal(folded.rows[g], counts.rows[group == g].sum(axis=0))
        np.testing.assert_allclose(folded.weights[g], counts.weights[group == g].sum(axis=0))
    assert folded.rows[2:].sum() == 0


def test_weights_that_are_all_one_change_nothing() -> None:
    table = frame(300, 1).set_column(4, "w", pa.array(np.ones(300)))
    weighted, plain = counted(table, weight=True), counted(table)

    np.testing.assert_array_equal(weighted.mass, plain.weights)
    np.testing.assert_array_equal(weighted.square_mass, plain.weights)
    for name, sums in plain.sums.items():
        np.testing.assert_allclose(weighted.sums[name], np.concatenate([sums, sums], axis=-1), rtol=1e-14)
