"""The scan equals brute force, however the data is stored and cut."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from fairfix import audit, count
from fairfix.auditing import audit as auditing
from fairfix.auditing import ks_candidates as narrowing
from fairfix.auditing.ks_candidates import slice_of
from fairfix.data import counts as tables
from fairfix.data import scan as engine
from fairfix.data import second_pass
from fairfix.data.counts import Counts, check_cells
from fairfix.data.data_spec import ColumnRoles, DataSpec
from fairfix.data.files import open_source
from fairfix.data.scan import count_table, read_table, scan
from fairfix.data.second_pass import collect
from fairfix.data.workers import Threads
from fairfix.errors import DataError

from tests.conftest import Call
from tests.data import people as every_column

COLUMNS = ColumnRoles(("race", "sex"), label="label", score="score", weight="weight")
READING = DataSpec(COLUMNS, thresholds=(0.5,))


def people(rows: int = 3000) -> pd.DataFrame:
    """Return rows of the columns that are counted, and one more."""
    return every_column(rows)[["race", "sex", "label", "score", "weight", "real"]]


def brute(frame: pd.DataFrame) -> pd.DataFrame:
    """Return rows and weights per (race, sex, label, decision) by pandas."""
    keys = [frame.race, frame.sex, frame.label, frame.score >= 0.5]
    return frame.weight.groupby(keys).agg(["size", "sum", lambda w: (w * w).sum()])


def assert_brute(counts: Counts, frame: pd.DataFrame) -> None:
    """Counts at the threshold and sums of losses equal brute force."""
    assert counts.grid is not None
    cut = counts.grid.start(0.5)
    expected = brute(frame)
    for (race, sex, label, decision), row in expected.iterrows():
        cell = counts.cells.index((race, sex))
        side = slice(cut, None) if decision else slice(None, cut)
        found = [t[cell, label, side].sum() for t in (counts.rows, counts.weights, counts.square_weights)]
        np.testing.assert_allclose(found, row, rtol=1e-12)
    log = -np.log(np.where(frame.label == 1, frame.score, 1 - frame.score))
    np.testing.assert_allclose(counts.sums["log_loss"][..., 0].sum(), (frame.weight * log).sum(), rtol=1e-12)
    np.testing.assert_allclose(
        counts.sums["log_loss"][..., 1].sum(), (frame.weight * log**2).sum(), rtol=1e-12
    )
    if counts.weighted:
        squared = [(frame.weight**2 * log**k).sum() for k in (1, 2)]
        np.testing.assert_allclose(counts.sums["log_loss"][..., 2:].sum(axis=(0, 1)), squared, rtol=1e-12)
    np.testing.assert_allclose(
        counts.sums["square_loss"][..., 0].sum(),
        (frame.weight * (frame.score - frame.label) ** 2).sum(),
        rtol=1e-12,
    )


@pytest.mark.parametrize("row_group", [50, 700, 10_000])
@pytest.mark.parametrize("threads", [1, 3])
def test_parquet_equals_brute_force(
    row_group: int, threads: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Any row groups and threads; each row group has a dictionary of its own order."""
    monkeypatch.setattr("fairfix.data.files.PART_ROWS", 200)
    frame = people()
    frame.sort_values("real").to_parquet(tmp_path / "d.parquet", row_group_size=row_group)

    assert_brute(scan(open_source(tmp_path / "d.parquet").read_by(Threads(threads)), READING).counts, frame)


def test_threads_do_not_change_a_bit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sums of floats are added in the order of the data, whatever the number of threads."""
    monkeypatch.setattr("fairfix.data.files.PART_ROWS", 100)
    people().to_parquet(tmp_path / "d.parquet", row_group_size=100)
    found = [scan(open_source(tmp_path / "d.parquet").read_by(Threads(n)), READING).counts for n in (1, 2, 4)]

    for other in found[1:]:
        assert other.mass is not None
        assert found[0].mass is not None
        assert other.mass.tobytes() == found[0].mass.tobytes()
        for name, sums in found[0].sums.items():
            assert other.sums[name].tobytes() == sums.tobytes()


def test_every_row_is_accounted_for() -> None:
    """Read = used + excluded, each row for one reason; a weight of 0 is one."""
    table = pa.table(
        {
            "g": ["a", None, "b", "a", "b", "a"],
            "label": [1, 1, None, 0, 0, 1],
            "score": [0.1, None, 0.2, float("nan"), 0.4, 0.9],
            "w": [1.0, 1.0, 1.0, 1.0, 0.0, None],
        }
    )
    columns = ColumnRoles(("g",), label="label", score="score", weight="w")
    counts = scan(open_source(table), DataSpec(columns, missing_group="drop", missing_rows="drop")).counts
    assert (counts.read, counts.used) == (6, 1)
    assert sorted(name.split(" (")[0] for name in counts.excluded) == [
        "missing group",
        "missing label",
        "missing score",
        "missing weight",
        "zero weight",
    ]
    assert set(counts.excluded.values()) == {1}
    with pytest.raises(DataError, match=r"missing group \(g\) in 1 of 6 rows"):
        scan(open_source(table), DataSpec(columns, missing_rows="drop"))
    with pytest.raises(DataError, match=r"missing score \(score\) in 1 of 6 rows"):
        scan(open_source(table), DataSpec(columns, missing_group="drop"))
    assert scan(open_source(table.take([0, 4])), DataSpec(columns)).counts.excluded == {"zero weight": 1}


def test_short_floats_are_cut_in_their_own_type() -> None:
    """A score written 0.7 is at the threshold 0.7."""
    table = pa.table({"g": ["a", "b"], "score": pa.array(np.array([0.7, 0.6], dtype=np.float32))})
    data_spec = DataSpec(ColumnRoles(("g",), score="score"), thresholds=(0.7, 1e300))
    counts = scan(open_source(table), data_spec).counts
    assert counts.grid is not None
    cut = counts.grid.start(counts.grid.thresholds[0])
    assert counts.rows[:, 0, cut:].sum(axis=-1).tolist() == [1, 0]


@pytest.mark.parametrize("scale", [1e-300, 1e-3, 1.0, 1e6, 1e300])
def test_raw_scores_of_any_size(scale: float) -> None:
    """Scores without a range are counted on a grid that follows the data."""
    rng = np.random.default_rng(0)
    score = np.concatenate([rng.normal(size=500), rng.normal(5, 100, 500)]) * scale
    table = pa.table({"g": rng.choice(["a", "b"], 1000).tolist(), "score": score})
    source = open_source(pa.Table.from_batches(table.to_batches(max_chunksize=100)))
    data_spec = DataSpec(ColumnRoles(("g",), score="score"), score_scale="raw", thresholds=(scale,))
    counts = scan(source, data_spec).counts

    assert counts.grid is not None
    cut = counts.grid.start(scale)
    assert counts.rows[:, 0, cut:].sum() == (score >= scale).sum()
    assert counts.used == 1000


def test_decisions_may_be_read() -> None:
    """Hard decisions and probabilities of decisions are counted beside any score."""
    frame = people()
    hard, soft = (frame.score > 0.3).astype(int), frame.score**2
    table = frame.assign(hard=hard, soft=soft)
    for name, chance in (("hard", hard), ("soft", soft)):
        columns = ColumnRoles(
            ("race",),
            label="label",
            weight="weight",
            **{"prediction" if name == "hard" else "probability": name},
        )
        counts = scan(open_source(table), DataSpec(columns)).counts
        assert counts.decisions is not None
        found = counts.decisions[:, 1].sum(axis=0)
        one = frame.label == 1
        expected = [(frame.weight**p * q)[one].sum() for p in (1, 2) for q in (chance, 1 - chance)]
        np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_collect_returns_the_rows_of_the_chosen_bins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second pass finds exactly the scores in the bins, merging ties when there are many."""
    frame = people()
    frame["score"] = frame.score.round(2)
    frame.to_parquet(tmp_path / "d.parquet", row_group_size=500)
    source = open_source(tmp_path / "d.parquet")
    counts = scan(source, READING, exact=False).counts
    bins = np.arange(counts.rows.shape[2]) % 3 == 0
    assert counts.grid is not None
    chosen = [slice_of(counts, bins)]
    expected = frame[bins[counts.grid.index(frame.score.to_numpy())]].sort_values("score")
    plain = collect(source, READING, counts, chosen).by_score()
    monkeypatch.setattr(second_pass, "KEEP_ROWS", 100)
    merged = collect(source, READING, counts, chosen)

    np.testing.assert_array_equal(plain.score, expected.score)
    assert merged.weight is not None
    assert merged.score.size < plain.score.size
    np.testing.assert_allclose(
        pd.Series(merged.weight).groupby(merged.score).sum(), expected.weight.groupby(expected.score).sum()
    )


def test_merged_ties_keep_their_squared_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sums of w^2 of merged rows are those of the rows, as effective sizes need."""
    frame = people()
    frame["score"] = frame.score.round(1)
    frame.to_parquet(tmp_path / "d.parquet")
    source = open_source(tmp_path / "d.parquet")
    counts = scan(source, READING, exact=False).counts
    monkeypatch.setattr(second_pass, "KEEP_ROWS", 10)
    monkeypatch.setattr("fairfix.data.files.BATCH_ROWS", 100)
    merged = collect(source, READING, counts, [slice_of(counts, np.ones(counts.rows.shape[2], dtype=bool))])

    assert merged.square_weight is not None
    assert merged.score.size < len(frame) / 2
    found = pd.Series(merged.square_weight).groupby([merged.score, merged.cell]).sum().sort_index()
    cell = [counts.cells.index((r, s)) for r, s in zip(frame.race, frame.sex, strict=True)]
    truth = (frame.weight**2).groupby([frame.score.to_numpy(), np.array(cell)]).sum().sort_index()
    np.testing.assert_allclose(found, truth, rtol=1e-12)


def test_a_table_keeps_all_its_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is in memory anyway needs no second pass, so nothing is given up."""
    monkeypatch.setattr(engine, "KEEP_ROWS", 10)
    found = count_table(read_table(people(), READING))

    assert found.kept is not None
    np.testing.assert_array_equal(found.kept.score, people().score)
    expected = [(r, s) for r, s in zip(people().race, people().sex, strict=True)]
    assert [found.counts.cells[c] for c in found.kept.cell] == expected


def test_a_table_counts_like_its_file() -> None:
    table = read_table(people(), READING)

    assert_brute(count_table(table).counts, people())
    assert table.features.column_names == ["real"]


def test_any_number_of_columns_can_be_crossed() -> None:
    """Also where no integer has room for the product of their levels: a cell is what rows have in common."""
    rng, names = np.random.default_rng(0), tuple(f"p{j}" for j in range(70))
    codes = rng.integers(0, 2, (40, 70))
    codes[10:20] = codes[:10]
    codes[10:20, 0] ^= 1  # alike but for the column that an overflow would forget
    codes[20:] = codes[:20]
    table = pa.table(
        {**{name: [f"v{i}" for i in codes[:, j]] for j, name in enumerate(names)}, "d": [0, 1] * 20}
    )
    counts = scan(open_source(table), DataSpec(ColumnRoles(names, prediction="d"))).counts

    assert counts.cells == tuple(sorted(tuple(f"v{i}" for i in row) for row in codes[:20]))
    assert counts.rows.sum(axis=(1, 2)).tolist() == [2] * 20


def test_cells_without_room_are_refused(monkeypatch: pytest.MonkeyPatch, away: None, call: Call) -> None:
    """With their number, before the memory is taken: columns of ids, crossed, are no groups."""
    monkeypatch.setattr(tables, "MOST_CELLS", 50)
    ids = pa.array([f"i{i}" for i in range(60)])
    pq.write_table(
        pa.table({"a": ids, "b": ids, "label": [0, 1] * 30, "score": [0.2, 0.7] * 30}), "d.parquet"
    )
    err = call.refused("audit", "d.parquet", "--protected", "a,b", "--config", "none")
    assert "'a', 'b'" in err
    assert "50" in err
    for name, more in (("one", ids[:30]), ("two", ids[30:])):
        columns = {"a": more, "b": ids[:30], "label": [0, 1] * 15, "score": [0.2, 0.7] * 15}
        pq.write_table(pa.table(columns), f"{name}.parquet")
    assert call("audit", "*.parquet", "--protected", "a,b", "--config", "none")[0] == 2
    for name in ("one", "two"):
        line = ("count", f"{name}.parquet", "--protected", "a,b", "--config", "none", "--label", "label")
        assert call(*line, "-o", f"{name}.counts")[0] == 0
    assert call("audit", "one.counts", "two.counts", "--config", "none")[0] == 2


def test_the_limit_of_cells_is_one_number() -> None:
    """The docs say what the code has, whatever the columns beside: scores, labels, decisions alone."""
    docs = Path(__file__).parents[2] / "docs"
    assert all(f"{tables.MOST_CELLS:,}" in (docs / name).read_text() for name in ("security.md", "scale.md"))
    check_cells(("a",), tables.MOST_CELLS)
    with pytest.raises(DataError, match=f"{tables.MOST_CELLS:,}"):
        check_cells(("a",), tables.MOST_CELLS + 1)


@pytest.mark.slow
@pytest.mark.parametrize("weighted", [False, True])
def test_ties_take_no_memory_and_change_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, weighted: bool
) -> None:
    """Rows of one score and cell are one, in the part and over parts; distances are those of all rows at once."""
    rng, n = np.random.default_rng(3), 6000
    group, near = rng.integers(0, 3, n), 0.3 + rng.integers(0, 1000, n) * 2.0**-40
    for score in (np.full(n, 0.5), rng.random(n).round(2), near + 2.0**-35 * group):
        frame = pd.DataFrame({"g": [f"g{i}" for i in group], "label": np.arange(n) % 2, "score": score})
        frame["w"] = rng.integers(1, 4, n)
        frame.to_parquet(tmp_path / "d.parquet", row_group_size=500)

        def found(path: Path = tmp_path / "d.parquet") -> dict[str, Any]:
            result = audit(
                path, protected="g", label="label", score="score", weight="w" if weighted else None
            )
            return {c["id"]: c["value"] for c in result.to_dict()["attributes"][0]["comparisons"]}

        exact = found()
        with monkeypatch.context() as patch:
            for name, value in (("KEEP_ROWS", 400), ("MOST_SCORES", 3500), ("SORT_ROWS", 50)):
                for module in (engine, second_pass, narrowing, auditing):
                    patch.setattr(module, name, value, raising=False)
            patch.setattr("fairfix.data.files.PART_ROWS", 500)
            few = found()
        for name in exact:
            if name.startswith(("ks", "scoring")):
                assert few[name] == pytest.approx(exact[name], abs=1e-12), name


def test_scores_without_room_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neighbouring scores that no finer bin parts are held up to a limit; one pass needs none of them."""
    n = 4000
    frame = pd.DataFrame({"g": ["a", "b"] * (n // 2), "label": [0, 0, 1, 1] * (n // 4)})
    frame.assign(score=0.5 + np.arange(n) * 2.0**-52).to_parquet(tmp_path / "d.parquet", row_group_size=500)
    for name, value in (("KEEP_ROWS", 400), ("MOST_SCORES", 1000), ("SORT_ROWS", 50)):
        for module in (engine, second_pass, narrowing, auditing):
            monkeypatch.setattr(module, name, value, raising=False)
    with pytest.raises(DataError, match="fairfix count"):
        audit(tmp_path / "d.parquet", protected="g", label="label", score="score")
    counts = count(tmp_path / "d.parquet", protected="g", label="label", score="score")
    assert audit(counts).to_dict()


@pytest.mark.parametrize("weights", [[1e-320] * 9, [1e200] * 9, [1e308] * 9, [1.0, *[1e-200, 1.0] * 4]])
def test_weights_without_squares_are_refused(weights: list[float]) -> None:
    """They would leave a number undefined for no reason that a report could give."""
    data = {"g": list("ababababa"), "label": [0, 1, 1] * 3, "score": [0.25, 0.5, 0.75] * 3, "w": weights}
    data_spec = DataSpec(ColumnRoles(("g",), label="label", score="score", weight="w"))
    with pytest.raises(DataError, match="weight column 'w'"):
        scan(open_source(data), data_spec)
