"""The comparison: one split for all, the frontier, its formats and its picture."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import fairfix
import jsonschema
import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fairfix.auditing import audit as audits
from fairfix.cli import run
from fairfix.data.data_spec import ColumnRoles, DataSpec
from fairfix.data.files import open_source
from fairfix.data.scan import read_table
from fairfix.data.table import Table
from fairfix.methods import available
from fairfix.methods.problem import RepairProblem
from fairfix.models.predictors import OfGroups
from fairfix.noise.description import Noise, NoiseTable
from fairfix.noise.true_groups import audit_noisy
from fairfix.report.comparisons import sections
from fairfix.schema import json_schema
from fairfix.schema.compare import Axes, GapName
from fairfix.tasks.advice import REFUSED, is_refused
from fairfix.tasks.compare import GAPS, ComparisonOutcome, Contender, chosen, compare_table, fits
from fairfix.tasks.quality import Quality
from fairfix.tasks.row_split import split_rows
from sklearn.metrics import balanced_accuracy_score

from tests.conftest import Call

NONE = NoiseTable("table", ("0", "1"), ("0", "1"), np.eye(2), "count")
"""No noise."""
READING = DataSpec(ColumnRoles(("sex",), label="label", score="score"))
SLACKS = (0.05, 0.1)
PARITY = GapName(comparison="selection_rate.difference.between_groups", attribute="sex")


def frame(many: int = 800) -> pa.Table:
    """Return scored people with a feature."""
    rng = np.random.default_rng(0)
    group = rng.integers(0, 2, many)
    score = np.clip(rng.beta(2, 3, many) + 0.15 * group, 0, 1)
    return pa.table(
        {
            "sex": group.astype(str),
            "x": score + 0.1 * rng.normal(size=many),
            "label": (rng.random(many) < score).astype(int),
            "score": score,
        }
    )


@pytest.fixture
def call(call: Call, tmp_path: Path) -> Call:
    """Run compare on the frame and return status, output and talk."""
    pq.write_table(frame(), tmp_path / "people.parquet")

    def invoke(*options: str) -> tuple[int, str, str]:
        base = ["compare", str(tmp_path / "people.parquet"), "--protected", "sex", "--slacks", "0.02,0.1"]
        return call(*base, *options, "--config", "none")

    return invoke


@pytest.fixture(scope="module")
def table() -> Table:
    """The frame, read."""
    return read_table(frame(), READING)


@pytest.fixture(scope="module")
def outcome(table: Table) -> ComparisonOutcome:
    """Methods that repair decisions, values and models, over two slacks."""
    return compare_table(table, contenders("ramp", "fair-regression", "logloss"), slacks=SLACKS)


def contenders(*names: str) -> list[Contender]:
    """Return methods as they are."""
    return [Contender(name, available()[name]()) for name in names]


@pytest.mark.slow
def test_every_method_is_compared_on_one_split(table: Table) -> None:
    """Each contender has a point for each slack that changes it, on the same held-out rows, beside two baselines."""
    outcome = compare_table(table, contenders(*available()), slacks=SLACKS, noise=Noise(NONE))
    titles = [point.title for point in outcome.points]

    assert titles[:2] == ["original model", "constant"]
    assert {name: titles.count(name) for name in available()} == {
        name: 1 if method().shared_slack is None else len(SLACKS) for name, method in available().items()
    }
    assert outcome.split.holdout == 240
    assert not any(point.failure for point in outcome.points)
    last = Contender(outcome.points[-1].title, available()[outcome.points[-1].title]())
    alone = compare_table(table, [last], slacks=SLACKS[-1:], noise=Noise(NONE)).points[-1]
    assert alone.gaps == outcome.points[-1].gaps  # what is compared with it changes nothing


def test_scores_have_a_repair_for_each_gap_that_is_shown() -> None:
    """The ramp has each constraint that is about a gap of decisions, and the four-fifths rule beside those.

    Fair regression is with and without the group.
    """
    every = [one.repairer for one in chosen(["ramp"], READING, learned=False)]
    ramps = {one.bounded_comparison(READING) for one in every if one.parsed_constraint.least is None}
    assert [one.bounded_comparison(READING) for one in every if one.parsed_constraint.least == 0.8] == [
        "selection_rate.ratio.between_groups"
    ]
    two = replace(READING, columns=replace(READING.columns, protected=("group", "other")))
    more = {
        one.title: one.repairer.constrained_attributes(("group", "other"))
        for one in chosen(["ramp"], two, learned=False)
    }
    assert more.pop("ramp, each column") == (("group",), ("other",))
    assert set(more.values()) == {(("group", "other"),)}
    assert len(more) == len(every)
    values = {
        (one.repairer.bounded_comparison(READING), one.repairer.protected_as_feature)
        for one in chosen(["fair-regression"], READING, learned=False)
    }

    assert ramps == {gap for gap in GAPS if gap.endswith(".difference.between_groups")}
    assert values == {("ks.to_overall", False), ("ks.to_overall", True)}


def test_repairs_are_fitted_to_one_part_and_judged_on_the_other() -> None:
    """The gap of a repair is that of its rule, fitted with its slack to the one part, on the other alone."""
    table = read_table(
        frame(), DataSpec(ColumnRoles(("sex",), label="label", score="score"), thresholds=(0.5,))
    )
    split = split_rows(table, np.random.default_rng(0).spawn(2)[0], validation=0.0, holdout=0.3)
    fitted, held = table.take(split.fit), table.take(split.holdout)
    ramp, codes, label = available()["ramp"](slack=0.1), held.groups().codes, held.rows.label
    assert label is not None
    chance = ramp.fit(RepairProblem(fitted), rng=np.random.default_rng(0)).predict(held)
    other = Contender("ramp", replace(ramp, slack=0.0))
    _, constant, repaired = compare_table(table, [other], slacks=(0.1,)).points

    gap = np.ptp([chance[codes == k].mean() for k in (0, 1)])
    assert repaired.by_gap[PARITY].value == pytest.approx(gap, abs=1e-9)
    assert (constant.protected_at_predict, repaired.protected_at_predict) == (False, True)
    loss = np.mean((label - np.mean(fitted.rows.label)) ** 2)
    assert constant.qualities["square_loss"].value == pytest.approx(loss, abs=1e-12)


def test_the_frontier_is_what_no_other_point_beats(outcome: ComparisonOutcome) -> None:
    """A point is marked if and only if no other has both a smaller gap and a better quality."""
    axes = Axes(gap=PARITY, quality="accuracy")
    places = [
        (p.by_gap[PARITY].value, p.qualities["accuracy"].value, axes in p.front) for p in outcome.points
    ]

    for i, (x, y, marked) in enumerate(places):
        beaten = any(
            (u <= x and v >= y and (u < x or v > y)) or ((u, v) == (x, y) and j < i)
            for j, (u, v, _) in enumerate(places)
        )
        assert marked != beaten


def test_stars_mark_the_points_of_the_frontier(call: Call, tmp_path: Path) -> None:
    """In the table of all candidates, each quality of each gap; without that table no star is explained."""
    saved = tmp_path / "c.json"
    _, shown, _ = call("--methods", "ramp", "--format", "markdown", "--detail", "--out", f"json={saved}")
    result = json.loads(saved.read_text())
    own = [
        (a["gap"], a["quality"])
        for p in result["points"]
        for a in p["front"]
        if a["quality"] in p["qualities"]
    ]

    assert own
    assert shown.count("]*") + shown.count(r"]\*") == len(own)
    assert "*" not in call("--methods", "ramp", "-q")[1]


def test_features_are_learned_from_when_asked(call: Call) -> None:
    """With features the methods that learn use them; methods that need a score are compared where there is one."""
    status, out, err = call("--features", "x", "--group", "used", "--format", "json")
    result = json.loads(out)

    assert status == 0, err
    assert result["settings"]["features"] == ["x"]
    assert {point["title"] for point in result["points"]} >= {"fair-regression", "ramp"}
    assert "logloss, without the group" not in {point["title"] for point in result["points"]}
    assert all(point["protected_at_predict"] for point in result["points"] if point["slack"] is not None)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--slacks", "0.1,x"], "--slacks must be a number, got 'x'"),
        (["--quality", "accuraci"], "accuracy"),
        (["--quality", "cost(fp=-1)"], "fp must be at least 0, got -1"),
        (["--quality", "cost(fp=0,fn=0)"], "at least one above 0"),
        (["--quality", "absolute_loss"], "balanced_accuracy"),
        (["--slacks=-1"], "--slacks must be at least 0, got -1"),
        (["--methods", "magic"], "--methods magic"),
        (["--methods", "ramp", "--task", "regression"], "not regression"),
        (["--out", "html=nowhere/front.html"], "does not exist"),
        (["--out", "html=a.svg", "--out", "text=a.svg"], "also used by --out"),
        (["--features", "label"], "has a role already"),
    ],
)
def test_status_2_when_it_did_not_run(options: list[str], said: str, call: Call) -> None:
    status, out, err = call(*options)

    assert (status, out) == (2, "")
    assert said in err


def test_a_score_of_any_range_is_a_feature_and_a_base(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of points out of a hundred the base has accuracy but no losses; methods that learn are compared as ever."""
    people = frame()
    points = np.round(100 * np.asarray(people["score"]))
    pq.write_table(people.set_column(3, "score", pa.array(points)), tmp_path / "p.parquet")
    line = "--protected sex --slacks 0.1 --config none --score-scale raw --features score --format json"
    command = ["compare", str(tmp_path / "p.parquet"), *shlex.split(line)]
    command += ["--methods", "logloss,ramp,fair-regression"]

    assert run(command) == 2
    assert "set one with --threshold" in capsys.readouterr().err
    assert run([*command, "--threshold", "50"]) == 0
    told = {point["title"]: point for point in json.loads(capsys.readouterr().out)["points"]}
    held = told["original model"]["qualities"]
    assert 0.5 < held["accuracy"]["value"] < 1
    assert "log_loss" not in held
    assert told["logloss"]["qualities"]["log_loss"]["value"] > 0
    assert told["ramp"]["qualities"]["accuracy"]["value"] > 0.5
    assert "probability" in told["fair-regression"]["failure"]


def test_fits_are_counted_as_they_end(table: Table) -> None:
    heard: list[int] = []

    compare_table(table, contenders("ramp"), slacks=(0.0, 0.1), done=heard.append)
    assert len(heard) == len(fits(contenders("ramp"), (0.0, 0.1))) == 2


def test_a_further_slack_costs_three_audits_and_two_predictions(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Original results are audited once; repaired ones on both parts, and on the held-out one with surest intervals.

    A further audit of the original results is of the way in which they point.
    """
    calls = {"audits": 0, "predictions": 0}

    def counted(kind: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def count(*given: Any) -> Any:
            calls[kind] += 1
            return function(*given)

        return count

    monkeypatch.setattr(audits, "judge", counted("audits", audits.judge))
    monkeypatch.setattr(OfGroups, "predict", counted("predictions", OfGroups.predict))
    totals = []
    for slacks in (SLACKS, (*SLACKS, 0.15)):
        calls |= dict.fromkeys(calls, 0)
        compare_table(table, contenders("ramp"), slacks=slacks)
        totals.append(dict(calls))
    assert totals[0] == {"audits": 7 + 3 * len(SLACKS), "predictions": 2 * len(SLACKS)}
    assert totals[1] == {"audits": totals[0]["audits"] + 3, "predictions": totals[0]["predictions"] + 2}


def test_worst_cases_of_true_groups_are_those_of_an_audit(table: Table) -> None:
    """Every point has the largest gap of true groups that the table allows; without noise it is the recorded gap."""
    known = NoiseTable("table", ("0", "1"), ("0", "1"), np.array([[90.0, 10.0], [20.0, 80.0]]), "count")
    worst = GapName(comparison="selection_rate.difference.true_groups.worst_case", attribute="sex")
    ramp = contenders("ramp")
    points, exact = (
        compare_table(table, ramp, slacks=(0.1,), noise=Noise(noise)).points for noise in (known, NONE)
    )
    for some, same in zip(points, exact, strict=True):
        assert same.by_gap[worst].value == pytest.approx(same.by_gap[PARITY].value, abs=1e-9)
        assert some.by_gap[worst].value >= some.by_gap[PARITY].value - 1e-9
        assert some.by_gap[worst].high >= some.by_gap[worst].value
    split = split_rows(table, np.random.default_rng(0).spawn(2)[0], validation=0.0, holdout=0.3)
    data_spec = replace(table.data_spec, thresholds=(0.5,))
    report = audit_noisy(open_source(frame().take(split.holdout)), data_spec, Noise(known))
    assert report.noise is not None
    (bound,) = (
        one.bounds["N1"] for one in report.noise.comparisons if one.name == "selection_rate.difference"
    )
    assert points[0].by_gap[worst].value == pytest.approx(bound.high, abs=1e-9)


def test_advice_is_the_best_point_within_the_gap(outcome: ComparisonOutcome) -> None:
    """No point but the constant is within the gap and better, unless its warnings forbid to advise it."""
    assert {one.at_most for one in outcome.advice} == set(SLACKS)
    assert {one.gap for one in outcome.advice} == {gap.gap for point in outcome.points for gap in point.surer}
    for one in outcome.advice:
        sign = 1 if one.quality == "accuracy" else -1
        within = [
            sign * point.qualities[one.quality].value
            for point in outcome.points
            if point.title != "constant"
            and any(gap.gap == one.gap for gap in point.surer)
            and point.by_gap[one.gap].value <= one.at_most
            and not is_refused(point)
        ]
        assert (one.point is None) == (not within)
        if one.point is not None:
            taken = outcome.points[one.point]
            assert not is_refused(taken)
            assert sign * taken.qualities[one.quality].value == max(within)
            assert taken.by_gap[one.gap].value <= one.at_most


def test_the_table_has_what_is_recommended() -> None:
    """Also where other candidates, which cannot be recommended, are better."""
    result = fairfix.compare(frame(), protected="sex", methods=["ramp"], slacks=SLACKS).content
    points = tuple(msgspec.structs.replace(point, front=()) for point in result.points)
    taken = {points[one.point].title for one in result.advice if one.point is not None}
    assert taken - {"original model"}
    shown = [
        section.grids for section in sections(msgspec.structs.replace(result, points=points), detail=False)
    ]
    assert taken <= {row[0] for grids in shown for grid in grids for row in grid.rows}


def test_intervals_of_advice_are_wider_and_costs_are_against_the_base(outcome: ComparisonOutcome) -> None:
    """The intervals that hold for all points at once contain those of single points; the base costs nothing."""
    base = outcome.points[0]
    wider = 0
    for point in outcome.points:
        for value in point.surer:
            own = point.by_gap[value.gap]
            assert value.value == own.value
            assert value.low <= own.low + 1e-12
            assert value.high >= own.high - 1e-12
            wider += value.high > own.high + 1e-6
        if "accuracy" in point.qualities:
            change = point.qualities["accuracy"].value - base.qualities["accuracy"].value
            assert point.costs["accuracy"].value == pytest.approx(change, abs=1e-9)
            assert point.costs["accuracy"].low <= change <= point.costs["accuracy"].high
    assert wider > len(outcome.points)


@pytest.mark.parametrize("text", ["cost(fp=1,fn=3)", "balanced_accuracy"])
def test_a_quality_that_is_asked_for_decides(text: str, tmp_path: Path) -> None:
    """Values by hand, the best within the gap by it, changes within their limits, and pages from the saved result."""
    data, saved = tmp_path / "people.parquet", tmp_path / "r.json"
    pq.write_table(frame(), data)
    options = ["--protected", "sex", "--slacks", "0.05,0.1", "--methods", "ramp", "--quality", text]
    assert run(["compare", str(data), *options, f"--out=json={saved}", "--config", "none"]) == 0
    result, name = json.loads(saved.read_text()), text.partition("(")[0]
    jsonschema.validate(result, json_schema("compare"), jsonschema.Draft202012Validator)
    assert {one["quality"] for one in result["advice"]} == {name}
    sign = 1 if name == "balanced_accuracy" else -1
    taken = [one for one in result["advice"] if one["point"] is not None]
    assert taken
    for one in taken:
        numbers = [
            sign * point["qualities"][name]["value"]
            for point in result["points"]
            if point["title"] != "constant"
            and any(gap["gap"] == one["gap"] and gap["value"] <= one["at_most"] for gap in point["gaps"])
            and not {message["code"] for message in point["messages"]} & REFUSED
        ]
        assert sign * result["points"][one["point"]]["qualities"][name]["value"] == max(numbers)

    whole = read_table(frame(), DECIDED)
    held = whole.take(
        split_rows(whole, np.random.default_rng(0).spawn(2)[0], validation=0.0, holdout=0.3).holdout
    )
    y, d = np.asarray(held.rows.label), np.asarray(held.chance)
    cost = np.mean(np.where(y > d, 3, np.where(y < d, 1, 0)))
    base = result["points"][0]["qualities"][name]["value"]
    assert base == pytest.approx(cost if name == "cost" else balanced_accuracy_score(y, d), abs=1e-9)
    for point in result["points"]:
        change = point["costs"][name]
        assert change["value"] == pytest.approx(point["qualities"][name]["value"] - base, abs=1e-9)
        assert change["low"] <= change["value"] <= change["high"]
    for kind in ("text", "html"):
        assert run(["report", str(saved), "--out", f"{kind}={tmp_path / kind}"]) == 0
        assert name.replace("_", " ") in " ".join((tmp_path / kind).read_text().split())


DECIDED = replace(READING, thresholds=(0.5,))


def test_costs_of_one_are_errors() -> None:
    """The cost is then 1 - accuracy, and its change that of the accuracy with the limits exchanged."""
    old = read_table(frame(), DECIDED)
    new = old.with_score(np.asarray(old.rows.score) ** 1.5)
    cost, right = (Quality.parse(text).change(old, new, 0.95) for text in ("cost", "accuracy"))
    assert cost is not None
    assert right is not None
    assert (cost.value, cost.low, cost.high) == pytest.approx(
        (-right.value, -right.high, -right.low), abs=1e-12
    )
