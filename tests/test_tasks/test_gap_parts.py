"""Parts of gaps through the library and the command line: what is explained, shown and refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import fairfix
import numpy as np
import pandas as pd
import pytest
from fairfix.cli import run
from fairfix.errors import FairfixError
from fairfix.schema import checked
from fairfix.schema.audit import ExplainedGap
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from tests.data import people


def loans(rows: int = 1200, seed: int = 0) -> pd.DataFrame:
    """Return people whose scores follow income, town and sex, and whose income differs by race."""
    frame = people(rows, seed, (0.5, 0.4, 0.1)).drop(columns=["raw", "real", "p", "yes"])
    rng = np.random.default_rng(seed)
    frame["income"] = rng.normal(40.0, 8.0, rows) + 6.0 * (frame["race"] == "a")
    frame["income"] = frame["income"].where(rng.random(rows) < 0.9)
    frame["town"] = frame["town"].where(rng.random(rows) < 0.95)
    linear = 0.3 + 0.005 * frame["income"].fillna(30.0) + 0.1 * (frame["town"] == "north")
    frame["score"] = np.clip(linear + 0.05 * (frame["sex"] == "f") + rng.normal(0, 0.05, rows), 0.0, 1.0)
    frame["label"] = (rng.random(rows) < frame["score"]).astype(int)
    return frame


KEYS: dict[str, Any] = {"protected": "race", "label": "label", "score": "score", "explain_gap": True}


def gaps_of(frame: Any, **given: Any) -> dict[str, ExplainedGap]:
    """Return the explained gaps of an audit by their metric, and require that their parts add up."""
    content = fairfix.audit(frame, **(KEYS | given)).content
    explained = content.explained_gaps
    assert explained is not None
    for gap in explained.gaps:
        total = sum(one.point for one in gap.parts) + (0.0 if gap.rest is None else gap.rest.point)
        assert total == pytest.approx(gap.value, abs=1e-12)
    return {gap.metric: gap for gap in explained.gaps}


def numbers(gap: ExplainedGap) -> dict[tuple[str, ...], tuple[float | None, ...]]:
    """Return the parts with their limits by their columns."""
    assert gap.rest is not None
    parts = {one.columns: (one.value, one.low, one.high) for one in gap.parts}
    return parts | {(): (gap.rest.value, gap.rest.low, gap.rest.high)}


def assert_same(one: ExplainedGap, other: ExplainedGap, *, limits: bool = True) -> None:
    """Require the same parts, and the same limits too."""
    assert one.groups == other.groups
    first, second = numbers(one), numbers(other)
    assert first.keys() == second.keys()
    for name in first:
        size = 3 if limits else 1
        assert first[name][:size] == pytest.approx(second[name][:size], abs=1e-9), name


def test_the_gap_is_the_one_of_the_report_and_its_parts_are_those_of_the_world() -> None:
    frame = loans(6000)
    content = fairfix.audit(frame, **KEYS).content
    gaps = gaps_of(frame)
    dp = content.block("race").by_id["selection_rate.difference.between_groups"]
    assert gaps["selection_rate"].value == pytest.approx(dp.value, abs=1e-12)
    assert set(gaps["selection_rate"].groups) == set(dp.groups)
    score = gaps["mean_score"]
    parts = {one.columns: one for one in score.parts}
    assert next(iter(parts)) == ("income",)
    assert parts["income",].low is not None
    assert parts["income",].high is not None
    assert parts["income",].low < 0.03 < parts["income",].high
    assert score.rest is not None
    assert score.rest.low is not None
    assert score.rest.low < 0 < score.rest.point + 0.02
    assert {one.column for one in content.explained_gaps.left_out} == {"id"}  # type: ignore[union-attr]  # it is there


def test_parts_do_not_depend_on_units_names_of_levels_order_or_other_groups() -> None:
    frame = loans()
    plain = gaps_of(frame)
    renamed = frame.assign(
        income=frame["income"] * 1000.0 - 5.0, town=frame["town"].map({"north": "z", "south": "a"})
    )
    shuffled = frame.sample(frac=1.0, random_state=1)
    least = fairfix.audit(frame, **KEYS).content.block("race").groups
    rest = {one.group for one in least} - set(plain["selection_rate"].groups)
    for other in (renamed, shuffled, frame[~frame["race"].isin(rest)]):
        for metric, gap in gaps_of(other).items():
            assert_same(gap, plain[metric])


def test_a_weight_is_as_many_rows_and_a_count_is_as_many_people() -> None:
    frame = loans(800).drop(columns="weight").assign(many=lambda x: np.arange(len(x)) % 3 + 1)
    repeated = frame.loc[frame.index.repeat(frame["many"])].drop(columns="many")
    expected = gaps_of(repeated)
    for metric, gap in gaps_of(frame, weight="many").items():
        assert_same(gap, expected[metric], limits=False)
    assert gaps_of(frame, weight="many", features="all") == gaps_of(frame, weight="many")
    for metric, gap in gaps_of(frame, count="many").items():
        assert_same(gap, expected[metric])


def test_copies_recodings_constants_and_rare_levels() -> None:
    """Copies have one part; a recoding of the group is left out, and so is a constant; rare values are pooled."""
    frame = loans().drop(columns=["weight", "product", "sex"])
    plain = gaps_of(frame)["mean_score"]
    frame = frame.assign(
        cents=frame["income"] * 100.0,
        color=frame["race"].map({"a": "red", "b": "blue", "c": "green"}),
        one="x",
        village=["v" + str(i % 40) if i % 7 == 0 else "w" for i in range(len(frame))],
    )
    gap = gaps_of(frame.drop(columns="village"))["mean_score"]
    assert {one.columns for one in gap.parts} == {("income", "cents"), ("town",)}
    assert numbers(gap)["income", "cents"][0] == pytest.approx(numbers(plain)["income",][0], abs=1e-9)
    named = gaps_of(frame, features=["income", "color", "village"])["mean_score"]
    assert {one.columns for one in named.parts} == {("income",), ("village",)}
    assert [one.column for one in named.left_out] == ["color"]
    assert any("village" in note for note in named.notes)


def test_a_linear_score_has_the_same_parts_by_regression_and_by_its_model() -> None:
    frame = loans(900).dropna()
    frame["male"] = (frame["sex"] == "m") * 1.0
    frame["noise"] = np.random.default_rng(0).normal(size=len(frame))
    few = frame["race"].value_counts()[["a", "b"]].min()
    frame = frame[frame["race"].isin(["a", "b"])].groupby("race").head(few)
    names = ["income", "male", "noise"]
    model = LinearRegression().fit(frame[names].assign(noise=0.0), frame["score"])
    asked = {"protected": "race", "label": "score", "task": "regression", "explain_gap": True}
    scored = frame.assign(out=model.predict(frame[names]))
    by_rows = fairfix.audit(scored, **asked, score="out", features=names).content.explained_gaps
    by_model = fairfix.audit(frame, **asked, model=model).content.explained_gaps
    assert by_rows is not None
    assert by_model is not None
    (one,), (other,) = by_rows.gaps, by_model.gaps
    assert other.rest is None
    assert one.rest is not None
    assert one.rest.value == pytest.approx(0.0, abs=1e-9)
    ours, theirs = ({part.columns: part.value for part in gap.parts} for gap in (one, other))
    assert ours == pytest.approx(theirs, abs=1e-9)
    assert theirs["noise",] == 0.0


def test_a_model_has_parts_that_add_up_and_one_for_the_group_it_looks_at() -> None:
    frame = loans(2000).dropna()
    frame["group"] = (frame["race"] == "a") * 1.0
    names = ["income", "group"]
    model = make_pipeline(StandardScaler(), LogisticRegression())
    model.fit(frame[names], frame["score"] + 0.1 * frame["group"] > 0.7)
    gaps = gaps_of(frame, protected="group", score=None, model=model)
    assert set(gaps) == {"selection_rate", "mean_score"}
    for gap in gaps.values():
        parts = {one.columns: one for one in gap.parts}
        assert gap.pairs > 0
        assert parts["group",].low is not None
        assert parts["group",].low > 0
    assert (
        gaps_of(frame, protected="group", score=None, model=model, seed=1)["mean_score"] != gaps["mean_score"]
    )


def test_the_reference_group_is_compared_with_the_one_farthest_from_it() -> None:
    gap = gaps_of(loans(), reference="race=b")["selection_rate"]
    assert "b" in gap.groups
    assert gap.value >= 0


def test_every_format_shows_parts_of_hostile_names(tmp_path: Path) -> None:
    names = {"income": "<b>in`come\n|", "town": '=1+1,"x" + y', "race": "ra]ce", "sex": "unexplained"}
    result = fairfix.audit(loans().rename(columns=names), **(KEYS | {"protected": "ra]ce"}))
    assert checked(json.loads(result.to_json())) == result.content
    for name in ("text", "markdown", "html", "csv"):
        shown = result.render(name)
        assert name != "html" or "<b>in" not in shown
        assert "come" in shown
        assert "unexplained" in shown
    frame = result.to_frame("gap_parts")
    assert len(frame) == sum(len(one.parts) + 1 for one in result.content.explained_gaps.gaps)  # type: ignore[union-attr]  # it is there
    result.save(tmp_path / "a.xlsx")


def test_small_groups_leave_no_trace_where_they_are_hidden() -> None:
    frame = loans(1500, 3)
    least = int((frame["race"] == "c").sum()) + 1
    other = frame.copy()
    other.loc[other["race"] == "c", ["income", "town", "score"]] = [9e9, "south", 0.0]
    one, two = (fairfix.audit(x, **KEYS, suppress_below=least).content.explained_gaps for x in (frame, other))
    assert one == two
    frame["size"] = [f"{i} cm" for i in range(len(frame))]
    frame["few"] = np.where(np.arange(len(frame)) < 5, "x", "y")
    both = fairfix.audit(frame, **(KEYS | {"protected": ["few", "race"]}), suppress_below=least).content
    assert both.explained_gaps is not None
    assert {gap.attribute for gap in both.explained_gaps.gaps} == {"race"}
    assert [one.text for one in both.explained_gaps.left_out if " cm" in one.text] == []
    assert "size" in {one.column for one in both.explained_gaps.left_out}
    assert one is not None
    assert one.gaps


def test_gaps_without_parts_have_a_reason() -> None:
    frame = loans(600)
    noise = pd.DataFrame(np.random.default_rng(0).normal(size=(600, 150))).add_prefix("x")
    for rows, words in (
        (frame.assign(race=["a"] * 580 + ["b"] * 20), "50 rows"),
        (frame.assign(score=0.5), "no gap"),
        (pd.concat([frame, noise], axis=1), "too few"),
    ):
        content = fairfix.audit(rows, **KEYS).content
        assert content.explained_gaps is not None
        assert not content.explained_gaps.gaps
        assert any(words in one.reason for one in content.not_computed)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"strata": "town"}, "strata"),
        ({"task": "multiclass", "score": None, "prediction": "label"}, "explain_gap"),
        ({"always_valid": True}, "always_valid"),
        ({"noise": ["radius:a=0.05"]}, "noise"),
        ({"features": ["race"]}, "features"),
        ({"features": ["nothing"]}, "nothing"),
    ],
)
def test_what_it_does_not_go_with(given: dict[str, Any], words: str) -> None:
    with pytest.raises(FairfixError, match=words):
        fairfix.audit(loans(300), **(KEYS | given))


def test_counts_and_rows_without_columns_cannot_explain(tmp_path: Path) -> None:
    frame = loans(300)[["race", "label", "score"]]
    with pytest.raises(FairfixError, match="no column"):
        fairfix.audit(frame, **KEYS)
    frame.to_csv(tmp_path / "a.csv", index=False)
    assert (
        run(["count", str(tmp_path / "a.csv"), "--protected", "race", "-o", str(tmp_path / "a.counts")]) == 0
    )
    with pytest.raises(FairfixError, match="needs rows"):
        fairfix.audit(str(tmp_path / "a.counts"), explain_gap=True)
