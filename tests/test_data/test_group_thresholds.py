"""Thresholds by group: the same as decisions that were made with them, from every kind of data and in every command."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import duckdb
import fairfix
import numpy as np
import pandas as pd
import pytest
from fairfix.data import engines
from fairfix.data.cutoffs import GroupThresholds
from fairfix.errors import DataError, FairfixError, UsageError

from tests.conftest import Call
from tests.data import people
from tests.databases import differences
from tests.test_interactive.test_arithmetic import content_of

CUTS = {"a": 0.625, "b": 0.5, "c": 0.375}
DP = "selection_rate.difference.between_groups"
TEXT = "race:a=0.625,b=0.5,c=0.375"


def decided(rows: int = 2000, score: str = "score") -> pd.DataFrame:
    """Return rows with the decisions of a model whose thresholds differ by race."""
    frame = people(rows)[["race", "sex", "label", "score", "raw", "weight"]]
    frame["score"] = np.round(frame["score"] * 64) / 64  # some are equal to the thresholds
    frame["yes"] = (frame[score] >= frame["race"].map(CUTS)).astype(int)
    return frame


def same(one: Any, other: Any) -> None:
    """Assert that the numbers of two audits are equal, up to the order of their sums."""
    found = differences(*(result.to_dict()["attributes"] for result in (one, other)))
    assert not [
        line for line in found if not re.search(r"comparisons\[\d+\]\.groups", line)
    ]  # of equal rates either


@pytest.mark.slow
@pytest.mark.parametrize("weight", [None, "weight"])
@pytest.mark.parametrize("scale", ["probability", "raw"])
def test_rows_have_the_decisions_of_their_group(scale: str, weight: str | None) -> None:
    score = "raw" if scale == "raw" else "score"
    frame = decided(score=score)
    asked: dict[str, Any] = {
        "protected": ["race", "sex"],
        "intersect": True,
        "label": "label",
        "score": score,
        "score_scale": scale,
        "weight": weight,
    }
    expected = fairfix.audit(frame, **asked, prediction="yes")
    same(fairfix.audit(frame, **asked, threshold=TEXT), expected)
    mapping = fairfix.audit(frame, **asked, threshold={"race": CUTS})
    same(mapping, expected)
    assert mapping.content.settings.group_thresholds == {"race": CUTS}
    assert mapping.content.settings.threshold is None


@pytest.mark.slow
def test_a_database_and_counts_have_them_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Counts at any edges of their bins, and counts that were made with them; back to one threshold as well."""
    monkeypatch.setattr(engines, "SORT_ROWS", 10)
    frame = decided().astype({"score": "float32"})
    frame["yes"] = (frame["score"] >= frame["race"].map(CUTS)).astype(int)
    with duckdb.connect(str(tmp_path / "rows.duckdb")) as connection:
        connection.execute("CREATE TABLE t AS FROM frame")
    asked: dict[str, Any] = {
        "protected": ["race", "sex"],
        "label": "label",
        "score": "score",
        "weight": "weight",
    }
    url = f"duckdb:///{tmp_path / 'rows.duckdb'}#t"
    same(fairfix.audit(url, **asked, threshold=TEXT), fairfix.audit(url, **asked, prediction="yes"))
    plain, by_group = fairfix.count(frame, **asked), fairfix.count(frame, **asked, threshold=TEXT)
    by_group.save(str(tmp_path / "g.counts"))
    expected = fairfix.audit(fairfix.count(frame, **asked, prediction="yes"))
    for counts, threshold in (
        (plain, TEXT),
        (by_group, None),
        (by_group, TEXT),
        (str(tmp_path / "g.counts"), TEXT),
        ([by_group], {"race": CUTS}),
    ):
        same(fairfix.audit(counts, threshold=threshold), expected)
    same(fairfix.audit(by_group, threshold=0.5), fairfix.audit(plain))
    same(fairfix.audit(plain, threshold="sex:f=0.25,m=0.25"), fairfix.audit(plain, threshold=0.25))
    for text in ("race:a=0.3,b=0.5,c=0.5", "race:a=0.25"):
        with pytest.raises(UsageError, match="threshold"):
            fairfix.audit(plain, threshold=text)


@pytest.mark.parametrize(
    ("asked", "names"),
    [
        ({"threshold": "race:a=0.4,c=0.2"}, "'b'"),
        ({"threshold": "race:a=0.4"}, "'b', 'c'"),
        ({"threshold": "town:north=0.4,south=0.5"}, "town"),
        ({"threshold": "race:a"}, "COLUMN:GROUP=SCORE"),
        ({"threshold": "race:"}, "race"),
        ({"threshold": "race:a=x,b=0.5,c=0.5"}, "'a'.*'x'"),
        ({"threshold": {"race": CUTS | {"b": "x"}}}, "'b'.*'x'"),
        ({"threshold": "race:a=nan,b=0.5,c=0.5"}, "finite"),
        ({"threshold": "race:a=0.1,a=0.2"}, "twice"),
        ({"threshold": "race:a=1.5,b=0.5,c=0.5"}, "1.5"),
        ({"threshold": {"race": 0.5}}, "mapping"),
        ({"threshold": {"race": CUTS, "sex": {"f": 0.1}}}, "mapping"),
        ({"threshold": TEXT, "prediction": "yes"}, "'yes'"),
        ({"threshold": TEXT, "top": 5}, "top"),
        ({"threshold": TEXT, "similar": "flips"}, "similar"),
        ({"threshold": TEXT, "noise": "radius:a=0.1"}, "noise"),
        ({"threshold": TEXT, "task": "regression"}, "task"),
    ],
)
def test_what_is_no_threshold_of_each_group_is_an_error(asked: dict[str, Any], names: str) -> None:
    with pytest.raises(FairfixError, match=names) as raised:
        fairfix.audit(people(300), protected="race", score="score", label="label", **asked)
    assert raised.value.exit_status == 2


def test_names_of_groups_with_signs_and_numbers_are_read_back() -> None:
    odd = GroupThresholds('ra:ce "x"', {"a,b": 0.1, 'c"d': 1.0, "e=f": -2.5, "1": 1e-9})
    assert GroupThresholds.parse(str(odd)) == odd
    frame = pd.DataFrame({"g": [1.0, 2.0] * 50, "score": np.linspace(0, 1, 100)})
    texts = [
        fairfix.audit(frame, protected="g", threshold=own)
        for own in ("g:1=0.2,2.0=0.6", {"g": {1: 0.2, 2: 0.6}})
    ]
    same(*texts)


def test_a_missing_group_needs_one_only_where_it_is_a_group() -> None:
    frame = decided(400)
    frame.loc[::9, "race"] = None
    asked: dict[str, Any] = {"protected": "race", "label": "label", "score": "score", "threshold": TEXT}
    used = fairfix.audit(frame, **asked, missing="drop")
    same(used, fairfix.audit(frame.dropna(), **asked))
    with pytest.raises(UsageError, match="missing"):
        fairfix.audit(frame, **asked, missing="race=group")


def test_a_repair_begins_with_them(call: Call, away: None) -> None:
    """Its evaluation before is that of the decisions on the held-out rows; what it writes decides new rows."""
    decided(3000).to_parquet("d.parquet")
    line = (
        "repair",
        "d.parquet",
        "--protected",
        "race",
        "--label",
        "label",
        "--score",
        "score",
        "--method",
        "ramp",
    )
    asked = (*line, "--format", "json", "-o", "a.fairfix")
    results = [
        json.loads(call(*asked, *more)[1]) for more in (("--threshold", TEXT), ("--prediction", "yes"), ())
    ]
    one, other, plain = (
        {(row["id"], row["attribute"]): row["before"]["value"] for row in result["proof"]["holdout"]["table"]}
        for result in results
    )
    assert one == pytest.approx(other)
    assert one != plain
    assert results[0]["rule"] == results[1]["rule"]
    assert call(*asked, "--threshold", TEXT)[0] == 0
    assert call("predict", "a.fairfix", "d.parquet", "-o", "out.csv")[0] == 0


def test_counts_are_repaired_from_them() -> None:
    counts = fairfix.count(people(3000), protected="race", label="label", score="score")
    proof = fairfix.repair(counts, method="ramp", threshold=TEXT).content.proof.fit
    block = fairfix.audit(counts, threshold=TEXT).content.attributes[0]
    gap = next(row.before for row in proof.table if (row.id, row.attribute) == (DP, "race"))
    assert gap.value == pytest.approx(block.by_id[DP].value)


def test_counts_that_were_made_with_them_have_one_threshold_for_a_capacity() -> None:
    frame = people(800)
    counts = fairfix.count(frame, protected="race", label="label", score="score", threshold=TEXT)
    many = int((frame["score"] >= 0.5).sum())
    result = fairfix.audit(counts, top=many)
    assert result.content.settings.group_thresholds == {}
    same(result, fairfix.audit(counts, threshold=0.5))


def test_the_page_starts_with_them_and_its_command_sets_others(call: Call, away: None) -> None:
    """Also with one above all scores. Attributes without the column are not shown: their groups have no threshold."""
    frame = people(1500)[["race", "sex", "label", "score"]]
    frame.assign(score=0.9 * frame["score"]).to_parquet("d.parquet")
    cuts = {**CUTS, "c": 1.0}
    columns = ("--label", "label", "--score", "score")
    asked = ("d.parquet", "--protected", "race,sex", *columns, "--threshold", "race:a=0.625,b=0.5,c=1")
    assert call("explore", *asked, "-o", "p.html")[0] == 0
    content = content_of(Path("p.html").read_text(encoding="utf-8"))
    race, crossed = content["attributes"]
    assert race["starts"] == list(cuts.values())
    assert crossed["starts"] == [cuts[name[0]] for name in crossed["names"]]
    assert set(cuts.values()) <= set(content["edges"])
    numbers = [str(cut) for cut in (0.25, 0.5, 0.75)]
    option = "".join(text + number for text, number in zip(race["cuts"], [*numbers, ""], strict=True))
    out = call.ran(*shlex.split(f"{content['audit']}{option} --format json")[1:])
    assert json.loads(out)["settings"]["group_thresholds"] == {"race": {"a": 0.25, "b": 0.5, "c": 0.75}}


def test_a_baseline_has_the_same_thresholds() -> None:
    """The score of another column is cut by them; a saved audit with others has other decisions."""
    frame = decided(800)
    frame["old"] = 1 - frame["score"]
    asked: dict[str, Any] = {"protected": "race", "label": "label", "score": "score"}
    now = fairfix.audit(frame, **asked, threshold=TEXT, baseline="old")
    then = fairfix.audit(frame, **{**asked, "score": "old"}, threshold=TEXT)
    assert now.content.baseline is not None
    change = next(one for one in now.content.baseline.changes if one.comparison == DP)
    assert change.old.value == pytest.approx(then.content.attributes[0].by_id[DP].value)
    saved = fairfix.audit(frame, **asked)
    other = fairfix.audit(frame, **asked, threshold=TEXT, baseline=saved)
    assert "0.625 for a" in str(other.to_dict()["baseline"])


def test_slices_and_a_second_look_use_them(tmp_path: Path) -> None:
    frame = decided(600)
    state = tmp_path / "s.counts"
    asked: dict[str, Any] = {"protected": "race", "label": "label", "score": "score"}
    for threshold in (TEXT, TEXT):
        part = frame.iloc[:300] if not state.exists() else frame.iloc[300:]
        result = fairfix.audit(part, **asked, threshold=threshold, state=str(state))
    expected = fairfix.audit(frame, **asked, threshold=TEXT, always_valid=True)
    assert [g.metrics["selection_rate"].value for g in result.content.attributes[0].groups] == pytest.approx(
        [g.metrics["selection_rate"].value for g in expected.content.attributes[0].groups]
    )
    with pytest.raises((UsageError, DataError)):
        fairfix.audit(frame.iloc[:50], **asked, state=str(state))
    found = [
        fairfix.audit(frame, **asked, **own, slices="sex", slice_metric="selection_rate").to_dict()["slices"]
        for own in ({"threshold": TEXT}, {"prediction": "yes"})
    ]
    assert [one["value"] for one in found[0]["slices"]] == [one["value"] for one in found[1]["slices"]]
