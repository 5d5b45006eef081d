"""Private counts: what a row changes, what is in the file, and what is made of it."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import fairfix
import numpy as np
import pandas as pd
import pytest
from fairfix.auditing.countfile import CountFile, count, merged
from fairfix.auditing.disclosure import audit_counts, with_noise
from fairfix.auditing.results import Settings
from fairfix.cli import run
from fairfix.data import container
from fairfix.data.container import COUNTS, Archive
from fairfix.data.data_spec import ColumnRoles, DataSpec
from fairfix.errors import ArtifactError, UsageError

from tests.data import below, people

COLUMNS = ColumnRoles(("race", "sex"), label="label", score="score")
READINGS = {
    "scores": DataSpec(COLUMNS, thresholds=(0.5,)),
    "decisions": DataSpec(replace(COLUMNS, prediction="yes")),
    "strata": DataSpec(replace(COLUMNS, strata=("town",)), thresholds=(0.4,)),
    "no label": DataSpec(replace(COLUMNS, label=None), thresholds=(0.5,)),
}


def private(data: Any, data_spec: DataSpec, epsilon: str = "1", seed: int = 0) -> CountFile:
    return with_noise(count(data, data_spec), Fraction(epsilon), below(seed))


def noisy(content: CountFile) -> Any:
    """Return the counts, shape (cells, labels, 2): of positive and of negative decisions."""
    decisions = content.counts(noisy=True).decisions
    assert decisions is not None
    return decisions[..., :2]


@pytest.mark.parametrize("name", READINGS)
def test_a_row_more_changes_one_count_by_one(name: str) -> None:
    """With the same draws, so noise hides it. Rows left out, parts of the data and scores are not in the file."""
    frame, data_spec = people(300, seed=1), READINGS[name]
    whole = private(frame, data_spec)
    for row in (0, 100, 299):
        less = private(frame.drop(index=row), data_spec)
        assert less.counts(noisy=True).cells == whole.counts(noisy=True).cells
        assert sorted(np.abs(noisy(whole) - noisy(less)).ravel())[-2:] == [0.0, 1.0]
    lacking = pd.concat([frame, frame.head(5).assign(score=np.nan, yes=None)], ignore_index=True)
    assert (
        private(lacking, replace(data_spec, missing_rows="drop")).pieces[0].digest == whole.pieces[0].digest
    )
    (piece,) = whole.pieces
    assert (piece.grid, piece.excluded, set(piece.arrays)) == (None, {}, {"place", "rows", "decisions"})
    assert whole.read == whole.used


def test_every_combination_of_levels_is_there() -> None:
    """So none shows whether anybody has it: of empty ones the noise alone."""
    frame = people(300, seed=2)
    frame = frame[(frame["race"] != "a") | (frame["sex"] == "f")]
    cells = private(frame, READINGS["scores"]).counts(noisy=True).cells
    levels = [sorted(frame[name].unique()) for name in ("race", "sex")]
    assert cells == tuple((race, sex) for race in levels[0] for sex in levels[1])


def test_batches_of_a_state_are_left_out(tmp_path: Path) -> None:
    """Their fingerprints are hashes of the rows; what is left is a file of counts, not a state."""
    people(200, seed=3).to_parquet(tmp_path / "rows.parquet")
    state = str(tmp_path / "state.counts")
    given = ("--protected", "race", "--label", "label", "--score", "score")
    assert run(["audit", str(tmp_path / "rows.parquet"), *given, "--state", state]) == 0
    assert CountFile.load(state).batches
    for i, hiding in enumerate((("--private", "1"), ("--suppress-below", "5"))):
        path = str(tmp_path / f"{i}.counts")
        assert run(["count", state, *hiding, "-o", path]) == 0
        assert CountFile.load(path).batches == ()
        assert run(["audit", path]) == 0


def test_noise_is_fresh() -> None:
    frame = people(200, seed=3)
    one, two = (with_noise(count(frame, READINGS["scores"]), Fraction("0.1")) for _ in range(2))
    assert (noisy(one) != noisy(two)).any()


def test_a_file_holds_them(tmp_path: Path) -> None:
    """To the bit, negative counts too; a sum has the counts of both, and the same budget."""
    one, two = (private(people(60, seed=i), READINGS["strata"], "0.2", i) for i in (4, 5))
    assert (noisy(one) < 0).any()
    digest = one.save(tmp_path / "one.counts")
    again = CountFile.load(tmp_path / "one.counts")
    assert (again.private, again.save(tmp_path / "two.counts")) == (Fraction("0.2"), digest)
    assert np.array_equal(noisy(again), noisy(one))
    both = merged([("one", again), ("two", two)])
    assert noisy(both).sum() == noisy(one).sum() + noisy(two).sum()
    assert both.facts()["private"]["epsilon"] == 0.2
    for other in (private(people(60), READINGS["strata"], "0.3"), count(people(60), READINGS["strata"])):
        with pytest.raises(UsageError, match="private is 0"):
            merged([("one", one), ("other", other)])


@pytest.mark.parametrize(
    "change",
    [
        lambda manifest, arrays: manifest.update(private="1e99"),
        lambda manifest, arrays: manifest.update(private="0"),
        lambda manifest, arrays: manifest.pop("private"),
        lambda manifest, arrays: arrays["decisions"].__setitem__((0, 0, 0), 0.5),
        lambda manifest, arrays: arrays["decisions"].__setitem__((0, 0, 0), np.inf),
        lambda manifest, arrays: arrays["decisions"].__setitem__((0, 0, 2), 2.0),
        lambda manifest, arrays: arrays["rows"].__setitem__(0, arrays["rows"][0] + 1),
        lambda manifest, arrays: manifest["data_spec"].update(score="score"),
        lambda manifest, arrays: manifest["data_spec"].update(weight="w"),
    ],
)
def test_a_changed_file_is_refused(change: Any, tmp_path: Path) -> None:
    private(people(60, seed=6), READINGS["scores"], "0.2").save(tmp_path / "one.counts")
    content = container.read(tmp_path / "one.counts", COUNTS)
    manifest = json.loads(json.dumps(dict(content.manifest)))
    arrays = {name: np.array(array) for name, array in content.arrays.items()}
    change(manifest, arrays)
    container.write(tmp_path / "two.counts", Archive(manifest, arrays), COUNTS)
    with pytest.raises(ArtifactError):
        CountFile.load(tmp_path / "two.counts")


def test_little_noise_gives_the_audit_of_exact_counts() -> None:
    """At the largest budget, where hardly a count has noise: the same rates and gaps of decisions."""
    frame, data_spec = people(2000, seed=7), READINGS["strata"]
    made, exact = private(frame, data_spec, "10"), count(frame, data_spec)
    assert noisy(made).sum() == exact.used
    settings = Settings(exact=False, intersect=True)
    found, wanted = audit_counts(made, settings), audit_counts(exact, settings)
    assert found.data.rows.used == wanted.data.rows.used
    for block in (*found.attributes, *found.strata):
        other = wanted.block(block.attribute, block.stratum)
        for name, one in block.by_id.items():
            want = other.by_id[name]
            assert one.point == pytest.approx(want.point, nan_ok=True, abs=0.02)
            if want.low is not None and want.high is not None:
                assert one.upper - one.lower >= (want.high - want.low) - 0.01
    assert not any("to_overall" in one.id for one in found.attributes[0].comparisons)
    assert {"ks", "auc", "square_loss", "mean_score"} <= {one.metric for one in found.not_computed}


def test_what_takes_counts_as_exact_refuses_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With the status of a wrong use; audits and sums take them, and say what is private."""
    people(400, seed=9).to_parquet(tmp_path / "rows.parquet")
    rows, made, plain = (str(tmp_path / name) for name in ("rows.parquet", "p.counts", "e.counts"))
    given = ("--protected", "race", "--label", "label", "--score", "score")
    assert run(["count", rows, *given, "--private", "0.5", "-o", made]) == 0
    assert run(["count", rows, *given, "-o", plain]) == 0
    assert run(["count", plain, "--private", "0.5", "-o", str(tmp_path / "q.counts")]) == 0
    assert run(["count", made, str(tmp_path / "q.counts"), "-o", str(tmp_path / "s.counts")]) == 0
    capsys.readouterr()
    assert run(["audit", made, "--out", f"json={tmp_path / 'a.json'}"]) == 0
    told = json.loads((tmp_path / "a.json").read_text())
    assert [one["code"] for one in told["messages"] if "epsilon=0.5" in one["text"]] == ["private_counts"]
    assert run(["inspect", made]) == 0
    assert "epsilon=0.5" in capsys.readouterr().out
    quartiles = ("--strata", "raw", "--bands", "raw=quartiles")
    refused = [
        ["repair", made, "--method", "ramp", "-o", str(tmp_path / "r")],
        ["repair", plain, "--holdout", made, "--method", "ramp", "-o", str(tmp_path / "r")],
        ["audit", made, "--baseline", plain],
        ["audit", plain, "--baseline", made],
        ["audit", plain, "--baseline", str(tmp_path / "a.json")],
        ["audit", made, "--profile", "ll144"],
        ["audit", made, "--suppress-below", "5"],
        ["audit", made, "--check", "dp.difference.to_overall<=0.1"],
        ["count", made, "--private", "1", "-o", str(tmp_path / "r")],
        ["count", rows, *given, "--private", "1", "--suppress-below", "5", "-o", str(tmp_path / "r")],
        ["count", rows, *given, "--private", "1", "--weight", "weight", "-o", str(tmp_path / "r")],
        ["count", rows, *given, "--private", "1", "--score-scale", "raw", "-o", str(tmp_path / "r")],
        ["count", rows, *given, "--private", "11", "-o", str(tmp_path / "r")],
        ["count", rows, *given, *quartiles, "--private", "1", "-o", str(tmp_path / "r")],
    ]
    for words in refused:
        assert run(words) == 2, words
        assert "noise" in (text := capsys.readouterr().err) or "private" in text, (words, text)
    assert not (tmp_path / "r").exists()
    own = fairfix.audit(
        made, metrics={"cost": lambda of: (5 * of.false_negatives + of.false_positives) / of.rows}
    )
    assert "private" in {one.metric: one.reason for one in own.content.not_computed}["cost"]
