"""The scan equals brute force, however the data is stored and cut."""

from __future__ import annotations

import gzip
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
from fairfix.data.encoder import Encoder, group_codes
from fairfix.data.files import atomic_output, open_source, table_writer
from fairfix.data.merging import MISSING
from fairfix.data.scan import count_table, read_table, scan
from fairfix.data.second_pass import collect
from fairfix.data.workers import Threads
from fairfix.errors import ColumnError, DataError

from tests.conftest import Call

COLUMNS = ColumnRoles(("race", "sex"), label="label", score="score", weight="w")
READING = DataSpec(COLUMNS, thresholds=(0.5,))


def people(n: int = 3000, seed: int = 0) -> pd.DataFrame:
    """Return rows with groups of several types."""
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "race": rng.choice(["a", "b", "c"], n, p=[0.6, 0.3, 0.1]),
            "sex": rng.random(n) < 0.5,
            "label": rng.integers(0, 2, n),
            "score": rng.random(n),
            "w": rng.integers(1, 9, n) / 8,
            "x": rng.normal(size=n),
        }
    )


def brute(frame: pd.DataFrame) -> pd.DataFrame:
    """Return rows and weights per (race, sex, label, decision) by pandas."""
    keys = [frame.race, frame.sex.astype(str), frame.label, frame.score >= 0.5]
    return frame.w.groupby(keys).agg(["size", "sum", lambda w: (w * w).sum()])


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
    np.testing.assert_allclose(counts.sums["log_loss"][..., 0].sum(), (frame.w * log).sum(), rtol=1e-12)
    np.testing.assert_allclose(counts.sums["log_loss"][..., 1].sum(), (frame.w * log**2).sum(), rtol=1e-12)
    if counts.weighted:
        squared = [(frame.w**2 * log**k).sum() for k in (1, 2)]
        np.testing.assert_allclose(counts.sums["log_loss"][..., 2:].sum(axis=(0, 1)), squared, rtol=1e-12)
    np.testing.assert_allclose(
        counts.sums["square_loss"][..., 0].sum(),
        (frame.w * (frame.score - frame.label) ** 2).sum(),
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
    frame.sort_values("x").to_parquet(tmp_path / "d.parquet", row_group_size=row_group)

    assert_brute(scan(open_source(tmp_path / "d.parquet").read_by(Threads(threads)), READING).counts, frame)


def stored(frame: pd.DataFrame, folder: Path, how: str) -> Any:
    """Store a frame in one of the ways data comes; return what to open."""
    table = pa.Table.from_pandas(frame, preserve_index=False)
    if how == "csv":
        pyarrow.csv.write_csv(table, folder / "d.csv")
    elif how == "tsv.gz":
        text = frame.to_csv(index=False, sep="\t")
        (folder / "d.tsv.gz").write_bytes(gzip.compress(text.encode()))
    elif how == "folder":
        for i in range(3):
            pq.write_table(table.slice(i * 1000, 1000), folder / f"part{i}.parquet")
        return folder
    elif how == "glob":
        for i in range(3):
            pyarrow.csv.write_csv(table.slice(i * 1000, 1000), folder / f"part{i}.csv")
        return str(folder / "part*.csv")
    elif how == "pandas":
        return frame
    elif how == "dict":
        return {name: frame[name].to_numpy() for name in frame}
    return next(folder.iterdir())


@pytest.mark.parametrize("how", ["csv", "tsv.gz", "folder", "glob", "pandas", "dict"])
def test_every_store_gives_the_same_counts(how: str, tmp_path: Path) -> None:
    """CSV, gzip, folders, globs, frames and arrays hold the same people."""
    frame = people()

    assert_brute(scan(open_source(stored(frame, tmp_path, how)), READING).counts, frame)


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


@pytest.mark.parametrize(
    "make",
    [
        lambda v: pa.array(v),
        lambda v: pa.array(v, pa.large_string()),
        lambda v: pa.array(v).dictionary_encode(),
        lambda v: pa.array([x and x.encode() for x in v], pa.binary()),
        lambda v: pa.DictionaryArray.from_arrays(
            pa.array([None if x is None else "zba".index(x) for x in v], pa.int8()), pa.array(["z", "b", "a"])
        ),
        lambda v: (
            pa.DictionaryArray.from_arrays(
                pa.array(["zba".index(x) if x else 1 for x in v]), ["z", None, "a"]
            )
            if "b" not in v
            else pa.array(v)
        ),
    ],
)
@pytest.mark.parametrize("values", [["a", "b", "a", None, "b"], ["a", "a", None], ["b", "a"]])
def test_any_text_type_names_the_same_groups(make: Any, values: list[str | None]) -> None:
    """Strings, dictionaries (with nulls inside them) and bytes give the same names, sliced or not."""
    for start in (0, 1):
        array = make(values)[start:]
        codes, names, missing = group_codes(array, "g")
        found = [MISSING if missing is not None and missing[i] else names[c] for i, c in enumerate(codes)]

        assert found == [MISSING if v is None else v for v in values[start:]]


@pytest.mark.parametrize(
    ("array", "names"),
    [
        (pa.array([True, False, None]), ["True", "False", MISSING]),
        (pa.array([3, 1, None], pa.int16()), ["3", "1", MISSING]),
        (pa.array([1.5, float("nan"), 2.0]), ["1.5", MISSING, "2"]),
        (pa.array([0.0, -0.0, 1.0]), ["0", "0", "1"]),
        (pa.array([None, None]), [MISSING, MISSING]),
        (pa.array([0, 1], pa.date32()), ["1970-01-01", "1970-01-02"]),
    ],
)
def test_other_types_are_named_by_their_text(array: pa.Array, names: list[str]) -> None:
    """Booleans, integers, floats and dates are groups by what they print."""
    for start in range(len(array)):
        codes, levels, _ = group_codes(array[start:], "g")
        assert [levels[c] for c in codes] == names[start:]


def test_lists_cannot_name_groups(tmp_path: Path) -> None:
    """A nested column is refused by name, also where the file has it."""
    table = pa.table({"g": [[1], [2]], "label": [0, 1], "score": [0.2, 0.8]})
    pq.write_table(table, tmp_path / "lists.parquet")
    with pytest.raises(ColumnError, match=r"'g' is of type list"):
        group_codes(table["g"].chunk(0), "g")
    with pytest.raises(ColumnError, match=r"'g' is of type list"):
        audit(tmp_path / "lists.parquet", protected="g")


@pytest.mark.parametrize(
    "labels",
    [
        pa.array([0, 1, 1]),
        pa.array([0.0, 1.0, 1.0]),
        pa.array([False, True, True]),
        pa.array(["0", "1", "1"]),
        pa.array(["false", "TRUE", "True"]),
        pa.array([0, 1, 1], pa.uint8()),
        pa.array(["0", "1", "1"]).dictionary_encode(),
    ],
)
def test_labels_in_every_spelling(labels: pa.Array) -> None:
    """Numbers, booleans and their usual texts are 0/1, also in slices."""
    for start in (0, 1):
        table = pa.table({"g": ["a", "b", "a"], "label": labels}).slice(start)
        rows = Encoder(DataSpec(ColumnRoles(("g",), label="label"))).encode(table.to_batches()[0])
        assert rows.label is not None
        assert rows.label.tolist() == [0, 1, 1][start:]


def test_the_positive_label_is_named() -> None:
    """``positive_label`` makes one value positive and all others negative."""
    table = pa.table({"g": ["a", "b", "a"], "label": ["yes", "no", "unknown"]})
    data_spec = DataSpec(ColumnRoles(("g",), label="label"), positive_label=("yes",))
    rows = Encoder(data_spec).encode(table.to_batches()[0])

    assert rows.label is not None
    assert rows.label.tolist() == [1, 0, 0]


@pytest.mark.parametrize("bad", [[0, 2], [0, -1], [0.5, 1.0], ["yes", "no"], [0, 256], [0, 257]])
def test_labels_that_are_not_binary_are_refused(bad: list[Any]) -> None:
    """Also those that would wrap around to 0 or 1 in a byte; a label can never move a row to another group."""
    table = pa.table({"g": ["a", "b"], "label": bad})

    with pytest.raises(DataError, match="'label' holds"):
        scan(open_source(table), DataSpec(ColumnRoles(("g",), label="label")))


def test_every_row_is_accounted_for() -> None:
    """Read = used + excluded, each row for one reason."""
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

    assert counts.read == 6
    assert counts.used == 1
    assert sum(counts.excluded.values()) == 5
    with pytest.raises(DataError, match=r"missing group \(g\) in 1 of 6 rows"):
        scan(open_source(table), DataSpec(columns, missing_rows="drop"))
    with pytest.raises(DataError, match=r"missing score \(score\) in 1 of 6 rows"):
        scan(open_source(table), DataSpec(columns, missing_group="drop"))


def test_negative_weights_are_refused() -> None:
    """The row is named."""
    table = pa.table({"g": ["a", "b"], "score": [0.1, 0.2], "w": [1.0, -1.0]})

    with pytest.raises(DataError, match="holds -1 at row 2"):
        scan(open_source(table), DataSpec(ColumnRoles(("g",), score="score", weight="w")))


def test_a_float32_score_is_compared_as_float32() -> None:
    """float32(0.7) >= 0.7, as numpy says of the column itself."""
    score = np.array([0.7, 0.69999], dtype=np.float32)
    table = pa.table({"g": ["a", "b"], "score": score})
    counts = scan(open_source(table), DataSpec(ColumnRoles(("g",), score="score"), thresholds=(0.7,))).counts

    assert counts.grid is not None
    cut = counts.grid.start(counts.grid.thresholds[0])
    assert counts.rows[:, 0, cut:].sum(axis=-1).tolist() == [1, 0]


def test_many_groups_are_not_groups() -> None:
    """More distinct values than the limit are refused with the option that confirms them."""
    table = pa.table({"g": [f"g{i}" for i in range(2000)], "score": np.linspace(0, 1, 2000)})

    with pytest.raises(ColumnError, match="`bands=g=values`"):
        scan(open_source(table), DataSpec(ColumnRoles(("g",), score="score")))
    assert (
        len(
            scan(
                open_source(table), DataSpec(ColumnRoles(("g",), score="score"), bands={"g": ()})
            ).counts.cells
        )
        == 2000
    )


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
            ("race",), label="label", weight="w", **{"prediction" if name == "hard" else "probability": name}
        )
        counts = scan(open_source(table), DataSpec(columns)).counts
        assert counts.decisions is not None
        found = counts.decisions[:, 1].sum(axis=0)
        one = frame.label == 1
        expected = [(frame.w**p * q)[one].sum() for p in (1, 2) for q in (chance, 1 - chance)]
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
        pd.Series(merged.weight).groupby(merged.score).sum(), expected.w.groupby(expected.score).sum()
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
    cell = [counts.cells.index((r, str(s))) for r, s in zip(frame.race, frame.sex, strict=True)]
    truth = (frame.w**2).groupby([frame.score.to_numpy(), np.array(cell)]).sum().sort_index()
    np.testing.assert_allclose(found, truth, rtol=1e-12)


def test_a_table_keeps_all_its_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is in memory anyway needs no second pass, so nothing is given up."""
    monkeypatch.setattr(engine, "KEEP_ROWS", 10)
    found = count_table(read_table(people(), READING))

    assert found.kept is not None
    np.testing.assert_array_equal(found.kept.score, people().score)
    expected = [(r, str(s)) for r, s in zip(people().race, people().sex, strict=True)]
    assert [found.counts.cells[c] for c in found.kept.cell] == expected


def test_a_table_counts_like_its_file() -> None:
    """Counting a table in memory equals the scan of its data."""
    table = read_table(people(), READING)

    assert_brute(count_table(table).counts, people())
    assert table.features.column_names == ["x"]


def test_an_unfinished_output_vanishes(tmp_path: Path) -> None:
    """When writing fails half-way, no file is left."""
    schema = pa.schema([("a", pa.int64())])

    def write_and_fail() -> None:
        with atomic_output(tmp_path / "o.parquet") as file, table_writer(file, "o.parquet", schema) as write:
            write(pa.record_batch({"a": [1]}, schema=schema))
            raise RuntimeError

    with pytest.raises(RuntimeError):
        write_and_fail()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({}, "contains no ARFF, .* or Stata file"),
        ({"a.csv": b"g\n1", "b.parquet": b""}, "contains CSV and Parquet"),
        ({"a.csv": b"g,g\n1,2"}, r"2 columns 'g'"),
        ({"a.csv": b"g,score\n1"}, "has 1 cells"),
        ({"a.csv": b"g,score\na,0.5\nb,many"}, "many"),
    ],
)
def test_odd_files_are_named(files: dict[str, bytes], words: str, tmp_path: Path) -> None:
    """Empty folders, mixed kinds, twofold headers, ragged rows and text among numbers."""
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)

    with pytest.raises(DataError, match=words):
        scan(open_source(str(tmp_path)), DataSpec(ColumnRoles(("g",), score="score")))


def test_na_without_quotes_is_missing_and_in_quotes_a_name(tmp_path: Path) -> None:
    """R writes NA for a missing value and "NA" for the text."""
    (tmp_path / "d.csv").write_text('g,score\n"NA",0.1\nNA,0.2\nb,0.3\n')
    data_spec = DataSpec(ColumnRoles(("g",), score="score"), missing_group="group")

    assert scan(open_source(tmp_path / "d.csv"), data_spec).counts.cells == ((MISSING,), ("NA",), ("b",))


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
    status, out, err = call("audit", "d.parquet", "--protected", "a,b", "--config", "none")

    assert (status, out) == (2, "")
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
