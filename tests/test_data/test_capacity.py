"""Capacity: the threshold of so many rows, against the sorted scores, from every kind of data."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import duckdb
import fairfix
import numpy as np
import pytest
from fairfix.data import engines, scan, second_pass
from fairfix.data.capacity import capacity_cut
from fairfix.data.cutoffs import Capacity
from fairfix.data.data_spec import ColumnRoles, DataSpec
from fairfix.data.files import open_source
from fairfix.errors import DataError, UsageError

from tests.conftest import Call
from tests.data import people

SIZES = ("1", "7", "10%", "33.3%", "250", "100%", "5000")


def sorted_cut(score: Any, mass: Any, most: float) -> tuple[float, float] | None:
    """Return the lowest score whose rows and all above are at most so many, and their size, one score at a time."""
    best = None
    for cut in np.unique(score):
        size = float(mass[score >= cut].sum())
        if size <= most * (1 + 1e-9) and (best is None or cut < best[0]):
            best = float(cut), size
    return best


@pytest.mark.parametrize("digits", [1, 3, 12])
@pytest.mark.parametrize("weight", [None, "weight"])
@pytest.mark.parametrize("many", [False, True])
@pytest.mark.parametrize("size", SIZES)
def test_the_threshold_is_that_of_the_sorted_scores(
    digits: int, weight: str | None, many: bool, size: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows that are kept and rows of two bins that are read again give the same, with ties and missing scores."""
    if many:
        for engine in (scan, second_pass):
            monkeypatch.setattr(engine, "KEEP_ROWS", 10)
    frame = people(600, digits)
    frame["score"] = np.round(frame["score"], digits)
    frame.loc[::50, "score"] = np.nan
    spec = DataSpec(ColumnRoles(("race",), score="score", weight=weight), missing_rows="drop")
    used = frame.dropna(subset="score")
    mass = np.ones(len(used)) if weight is None else used["weight"].to_numpy()
    asked = Capacity.parse(size)
    expected = sorted_cut(used["score"].to_numpy(), mass, asked.most(mass.sum()))
    if expected is None:
        with pytest.raises(DataError, match="alone has"):
            capacity_cut(open_source(frame), spec, asked)
        return
    cut = capacity_cut(open_source(frame), spec, asked)
    assert cut.threshold == expected[0]
    assert cut.selected == pytest.approx(expected[1], rel=1e-12)
    below = used["score"].to_numpy()[used["score"] < cut.threshold]
    if cut.tied:
        assert cut.tied == pytest.approx(mass[used["score"] == below.max()].sum())
        assert cut.selected + cut.tied > asked.most(mass.sum())


@pytest.mark.parametrize("scale", ["raw", "probability"])
def test_a_database_and_counts_have_the_threshold_of_the_rows(
    scale: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A database answers by two questions; counts do at an edge of a bin, and refuse elsewhere with a way out."""
    monkeypatch.setattr(engines, "SORT_ROWS", 10)
    frame = people(3000)[["race", "label", "raw", "score"]]
    score = {"raw": "raw", "probability": "score"}[scale]
    asked: dict[str, Any] = {"protected": "race", "score": score, "score_scale": scale, "top": 321}
    base = tmp_path / "rows.duckdb"
    with duckdb.connect(str(base)) as connection:
        connection.execute("CREATE TABLE t AS FROM frame")
    one = fairfix.audit(frame, **asked)
    other = fairfix.audit(f"duckdb:///{base}#t", **asked)
    cut = float(np.sort(frame[score])[-321])
    assert one.content.settings.threshold == other.content.settings.threshold == cut
    assert one.content.overall.metrics["selection_rate"].value == pytest.approx(0.107)
    counts = fairfix.count(frame, protected="race", score=score, score_scale=scale, threshold=cut)
    again = fairfix.audit(counts, top=321)
    assert again.content.settings.threshold == cut
    assert [note.code for note in again.content.messages].count("top") == 1
    counts, ends = fairfix.count(frame, protected="race", score=score, score_scale=scale, threshold=0.5), 0
    for top in range(300, 310):
        with suppress(DataError):
            at_edge = fairfix.audit(counts, top=top)
            assert at_edge.content.overall.metrics["selection_rate"].value == pytest.approx(top / 3000)
            ends += 1
    assert ends < 10


def test_all_commands_use_the_threshold_and_write_it_into_their_commands(call: Call, away: None) -> None:
    frame = people(1500)
    frame["score"] = np.round(frame["score"], 2)
    frame[["race", "label", "score"]].to_parquet("d.parquet")
    expected = sorted_cut(frame["score"].to_numpy(), np.ones(len(frame)), 300)
    assert expected is not None
    status, out, _ = call("audit", "d.parquet", "--protected", "race", "--top", "300", "--format", "json")
    audit = json.loads(out)
    assert (status, audit["settings"]["threshold"]) == (0, expected[0])
    assert audit["overall"]["metrics"]["selection_rate"]["value"] == pytest.approx(expected[1] / 1500)
    assert f"--threshold {expected[0]}" in audit["next_step"]["command"]
    assert "--top" not in audit["next_step"]["command"]
    repair = ("repair", "d.parquet", "--protected", "race", "--method", "ramp", "--format", "json")
    texts = [
        call(*repair, "-o", "a.fairfix", *asked)[1]
        for asked in (("--top", "20%"), ("--threshold", str(expected[0])))
    ]
    one, other = map(json.loads, texts)
    for part in ("rule", "proof", "settings"):
        assert one[part] == other[part]
    assert call("explore", "d.parquet", "--protected", "race", "--top", "300", "-o", "p.html")[0] == 0
    assert f'"start":{expected[0]}' in Path("p.html").read_text()


@pytest.mark.parametrize(
    ("asked", "names"),
    [
        ({"top": "0"}, "top"),
        ({"top": "101%"}, "top"),
        ({"top": "-3"}, "top"),
        ({"top": 0.1}, "10%"),
        ({"top": "nan"}, "top"),
        ({"top": "5", "threshold": 0.5}, "threshold"),
        ({"top": "5", "prediction": "yes"}, "prediction"),
        ({"top": "5", "suppress_below": 5}, "suppress_below"),
        ({"top": "5", "task": "regression"}, "task"),
    ],
)
def test_what_is_no_capacity_is_an_error_of_usage(asked: dict[str, Any], names: str) -> None:
    with pytest.raises(UsageError, match=names):
        fairfix.audit(people(60), protected="race", score="score", **asked)


def test_an_own_threshold_of_the_score_type_selects_as_many() -> None:
    """Scores of 32 bits are compared as they are."""
    frame = people(900)[["race", "score"]].astype({"score": "float32"})
    result = fairfix.audit(frame, protected="race", top=90)
    assert result.content.overall.metrics["selection_rate"].value == pytest.approx(0.1)
