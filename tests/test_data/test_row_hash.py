"""Draws: of equal rows they lie evenly, whatever the batches, and other rows have nothing to do with them."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from fairfix.data.row_hash import SharedDraws, apart, draws_of, hashes_of, shared, van_der_corput

from tests.conftest import Call


def test_reversed_bits_are_van_der_corputs_sequence() -> None:
    """The first numbers are 0, 1/2, 1/4, 3/4, 1/8, and large ones have their bits in reverse order."""
    number = np.array([0, 1, 2, 3, 4, 5, 2**52, 2**53 - 1, 123_456_789], dtype=np.uint64)
    expected = [int(f"{n:053b}"[::-1], 2) for n in number.tolist()]

    assert van_der_corput(number).tolist() == expected
    assert (van_der_corput(number[:5]) / 2**53).tolist() == [0, 0.5, 0.25, 0.75, 0.125]


@pytest.mark.parametrize("many", [2, 3, 17, 1000, 4096])
def test_a_share_of_equal_rows_is_delivered(many: int) -> None:
    """Of m equal rows, those below p are m p, give or take 2 (log2(m) / 3 + 1)."""
    for i in range(20):
        draw = draws_of([b"row %d" % i] * many, b"key", {})
        for p in (0.01, 0.3, 0.5, 0.77):
            assert abs((draw < p).sum() - many * p) <= 2 * (np.log2(many) / 3 + 1)
        assert np.unique(draw).size == many


def test_rows_that_are_not_equal_do_not_matter() -> None:
    """The first of equal rows has the draw it would have with an id, and others between change nothing."""
    names = [b"a", b"b", b"a", b"c", b"a", b"b"]
    draw = draws_of(names, b"key", {})

    assert draw[[0, 1, 3]].tolist() == shared(hashes_of([b"a", b"b", b"c"], b"key")).tolist()
    assert draw[[0, 2, 4]].tolist() == draws_of([b"a"] * 3, b"key", {}).tolist()
    assert draws_of(names, b"key")[0] == draws_of(names, b"key")[4]


@pytest.mark.parametrize("size", [1, 2, 7, 100])
def test_pieces_give_what_the_whole_gives(size: int) -> None:
    names = [b"%d" % i for i in np.random.default_rng(0).integers(0, 9, 100)]
    hashes, seen = hashes_of(names, b"key"), dict[int, int]()
    parts = [apart(hashes[i : i + size], seen) for i in range(0, 100, size)]

    assert np.concatenate(parts).tolist() == apart(hashes, {}).tolist()


@pytest.fixture
def crowd(tmp_path: Path) -> Path:
    """A scored file of equal rows, and a repair of it without ids."""
    rng = np.random.default_rng(0)
    sex, score = rng.integers(0, 2, 3000), rng.integers(0, 11, 3000) / 10
    score = np.clip(score + 0.1 * sex, 0, 1).round(1)
    label = (rng.random(3000) < score).astype(int)
    pq.write_table(
        pa.table({"sex": sex.astype(str), "score": score, "label": label}), tmp_path / "data.parquet"
    )
    return tmp_path


def test_equal_rows_are_drawn_alike_in_every_file_and_a_note_names_the_id(crowd: Path, call: Call) -> None:
    """Other row groups, or CSV, change no decision; the proof has what is delivered; with ids there is no note."""
    options = ("--method", "ramp", "--protected", "sex", "--gamma", "0.3", "--format", "json", "-o")
    artifact = str(crowd / "r.fairfix")
    out = call.ran("repair", str(crowd / "data.parquet"), *options, artifact)
    result, rows = json.loads(out), pq.read_table(crowd / "data.parquet")
    assert [one["code"] for one in result["messages"] if one["code"] == "equal_rows"] == ["equal_rows"]
    table = result["proof"]["fit"]["table"]
    row = next(row for row in table if row["name"].startswith("selection_rate.difference"))
    assert 0 < abs(row["delivered"] - row["after"]["value"]) < 0.03

    pq.write_table(rows, crowd / "small.parquet", row_group_size=97)
    pa.csv.write_csv(rows, crowd / "rows.csv")
    decisions = []
    for name in ("data.parquet", "small.parquet", "rows.csv"):
        assert call("predict", artifact, str(crowd / name), "-o", str(crowd / "out.parquet"))[0] == 0
        decisions.append(pq.read_table(crowd / "out.parquet").column("decision").to_pylist())
    assert decisions[0] == decisions[1] == decisions[2]
    assert 0 < sum(decisions[0]) < 3000

    named = rows.append_column("person", pa.array(np.arange(len(rows))))
    pq.write_table(named, crowd / "named.parquet")
    out = call.ran("repair", str(crowd / "named.parquet"), "--id", "person", *options, artifact)
    assert not any(one["code"] == "equal_rows" for one in json.loads(out)["messages"])


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_rows_that_share_an_id_share_a_draw_and_that_is_said(crowd: Path, call: Call, ending: str) -> None:
    """How many of the drawn rows do; with ids of their own, or where nothing is drawn, nothing is said."""
    rows = pq.read_table(crowd / "data.parquet").to_pandas()
    options = tuple(shlex.split("--method ramp --protected sex --gamma 0.3 --id person --format json"))
    shared = {}
    for name, ids, more in (
        ("pairs", np.arange(3000) // 2, ("--duplicates", "share")),
        ("own", np.arange(3000), ("--duplicates", "share")),
        ("rounded", np.arange(3000) // 2, ("--duplicates", "share", "--decisions", "deterministic")),
    ):
        path, artifact = crowd / f"{name}.{ending}", str(crowd / f"{name}.fairfix")
        frame = rows.assign(person=ids)
        frame.to_csv(path, index=False) if ending == "csv" else frame.to_parquet(path)
        out = call.ran("repair", str(path), *options, *more, "-o", artifact)
        shared[name] = [one["text"] for one in json.loads(out)["messages"] if one.get("code") == "shared_ids"]
    status, _, err = call(
        "predict",
        str(crowd / "pairs.fairfix"),
        str(path.with_stem("pairs")),
        "--duplicates",
        "share",
        "-o",
        str(crowd / "out.parquet"),
    )
    assert status == 0, err
    decided = pq.read_table(crowd / "out.parquet").to_pandas()
    drawn = decided.randomized
    both = int(decided.person[drawn].duplicated(keep=False).sum())
    assert (
        f": {both:,} of the {drawn.sum():,} rows with a randomized decision share their 'person' with another"
        in err
    )
    assert "[shared_ids]" in err
    for name in ("own", "rounded"):
        artifact, data = str(crowd / f"{name}.fairfix"), str(path.with_stem(name))
        given = ("predict", artifact, data, "--duplicates", "share", "-o", str(crowd / "silent.csv"))
        assert "row IDs repeat" not in call(*given)[2]
    alike = decided[drawn].groupby(["person", "p_positive"]).decision

    assert f": {drawn.sum():,} of the {drawn.sum():,} rows" in shared["pairs"][0]
    assert (alike.nunique() == 1).all()
    assert (alike.size() == 2).any()
    assert shared["own"] == shared["rounded"] == []


def test_shared_draws_are_counted_in_any_batches() -> None:
    """As pandas counts them, however the rows come; nothing is shared where nothing is drawn."""
    rng = np.random.default_rng(0)
    draws = hashes_of((b"%d" % one for one in rng.integers(4000, size=5000)), b"key") * 2.0**-53
    expected = int(pd.Series(draws).duplicated(keep=False).sum())
    for held, pieces in ((1 << 20, 1), (1 << 20, 7), (4000, 500), (4000, 5000)):
        tally = SharedDraws(held)
        for part in np.array_split(draws, pieces):
            tally.add(part)
        assert (tally.alike, tally.rows, tally.exact) == (expected, 5000, True)
    nothing = SharedDraws()
    assert (nothing.alike, nothing.rows, nothing.exact) == (0, 0, True)


def test_more_draws_than_are_kept_are_estimated() -> None:
    """Memory stays bounded, and the mean over keys is the number: every fourth of 8,000 ids stands for three rows."""
    ids = [b"%d" % one for one in np.repeat(np.arange(8000), np.where(np.arange(8000) % 4, 1, 3))]
    found = []
    for key in range(30):
        tally = SharedDraws(1000)
        for part in np.array_split(draws_of(ids, b"%d" % key), 50):
            tally.add(part)
            assert tally._draws.size <= 1000
        assert not tally.exact
        found.append(tally.alike)

    error = np.std(found) / np.sqrt(len(found))
    assert error < 0.02 * 6000
    assert abs(np.mean(found) - 6000) < 4 * error


@pytest.mark.parametrize("method", ["ramp", "fair-regression"])
def test_rows_of_an_unseen_group_that_abstain_are_not_drawn(crowd: Path, call: Call, method: str) -> None:
    """They have no result, so they are neither rows that share a draw nor among those whose result is drawn."""
    rows = pq.read_table(crowd / "data.parquet").to_pandas().assign(person=np.arange(3000) // 2)
    more: tuple[str, ...] = ("--gamma", "0.3")
    if method == "fair-regression":  # whose values are drawn, and no decisions
        rows = rows.assign(label=rows.score, x=rows.score.round()).drop(columns="score")
        more = ("--features", "x", "--task", "regression", "--group", "used")
    artifact, given = str(crowd / "r.fairfix"), ("--duplicates", "share")
    rows.to_parquet(crowd / "rows.parquet")
    unseen = ("--unseen", "abstain", "--id", "person")
    names = ("repair", str(crowd / "rows.parquet"), "--method", method, "--protected", "sex")
    call.ran(*names, *unseen, *more, *given, "-o", artifact)
    told = []
    for name, frame in (("seen", rows), ("unseen", pd.concat([rows, rows.assign(sex="other")]))):
        frame.to_parquet(crowd / f"{name}.parquet")
        data, out = str(crowd / f"{name}.parquet"), crowd / "out.parquet"
        status, _, err = call("predict", artifact, data, *given, "-o", str(out))
        assert status == 0, err
        decided = pq.read_table(out).to_pandas()
        assert not decided.randomized[decided.sex == "other"].any()
        told += [line for line in err.splitlines() if "[shared_ids]" in line]

    assert f"of the {decided.randomized.sum():,} rows with a randomized decision" in told[0]
    assert told[0] == told[1]
