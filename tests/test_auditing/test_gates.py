"""Gates against a baseline and waivers: verdicts, statuses, and what every format says of them."""

from __future__ import annotations

import json
import math
import re
import shlex
import subprocess
import sys
from datetime import date
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fairfix.auditing.baseline import Allowance, change, likeliest, read_checks
from fairfix.auditing.checks import Check
from fairfix.auditing.results import judged as judged_check
from fairfix.auditing.waivers import Waiver, apply
from fairfix.cli.options import today
from fairfix.errors import ConfigError, UsageError
from fairfix.report import PRINTED
from fairfix.schema import common, json_schema
from fairfix.schema.common import estimate
from fairfix.stats.estimates import Proportions
from fairfix.stats.gaps import difference_between_groups
from scipy.stats import binom

from tests.conftest import Call
from tests.data import scored

RACE = ("--protected", "race", "--prediction", "prediction")
SCHEMA = json_schema("audit")


@pytest.fixture(autouse=True)
def _day(away: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Set the day by which waivers are judged."""
    monkeypatch.setenv("FAIRFIX_TODAY", "2026-06-30")


def decided(path: str, rates: dict[str, float], rows: int = 4000, **more: Any) -> str:
    """Write decisions with exactly these selection rates, half of them right; return the file's name."""
    group, decision = [], []
    for name, rate in rates.items():
        chosen = round(rate * rows)
        group += [name] * rows
        decision += [1] * chosen + [0] * (rows - chosen)
    label = np.arange(len(group)) % 2
    table = {"race": pa.array(group), "label": pa.array(label), "prediction": pa.array(decision), **more}
    pq.write_table(pa.table(table), path)
    return path


def audit_of(call: Call, *arguments: str) -> tuple[int, dict[str, Any]]:
    """Audit with JSON on stdout, which has to hold to its schema."""
    status, out, err = call("audit", *arguments, *RACE, "--quiet", "--format", "json")
    assert out, err
    result = json.loads(out)
    jsonschema.validate(result, SCHEMA, jsonschema.Draft202012Validator)
    return status, result


@pytest.fixture
def old(call: Call) -> str:
    """A saved audit with a gap of 0.10."""
    decided("old.parquet", {"a": 0.5, "b": 0.4})
    call("audit", "old.parquet", *RACE, "--out", "json=old.json")
    return "old.json"


GATE = ("--baseline", "old.json", "--check", "dp.difference.change<=0.02")

# ---------------------------------------------------------------------- baselines


@pytest.mark.parametrize(
    ("rates", "rows", "status"),
    [
        ({"a": 0.5, "b": 0.3}, 4000, 1),  # worse by 0.10
        ({"a": 0.5, "b": 0.40}, 40000, 0),  # the same
        ({"a": 0.5, "b": 0.45}, 4000, 0),  # better by 0.05
        ({"a": 0.5, "b": 0.38}, 4000, 3),  # worse by just what is allowed
        ({"a": 0.5, "b": 0.3}, 100, 3),  # worse, with too few rows to tell
    ],
)
def test_a_gate_on_worse(call: Call, old: str, rates: dict[str, float], rows: int, status: int) -> None:
    """Fails when the whole interval of the change is beyond the amount, passes within it, else cannot tell."""
    if status == 0 and rows > 4000:  # a pass needs rows on both sides
        decided("old.parquet", {"a": 0.5, "b": 0.4}, rows)
        call("audit", "old.parquet", *RACE, "--out", f"json={old}")
    found, result = audit_of(call, decided("new.parquet", rates, rows), *GATE)
    (check,) = result["checks"]

    assert found == status
    assert check["verdict"] == {0: "pass", 1: "fail", 3: "undecided"}[status]
    assert check["id"] == "selection_rate.difference.between_groups.change[race]"
    assert check["value"] == pytest.approx(rates["a"] - rates["b"] - 0.1)


@pytest.mark.slow
@pytest.mark.parametrize(
    "amount", ["change<=0", "change<=0.02", "dp.ratio.change>=0", "accuracy.min.change>=-0.5"]
)
def test_a_result_against_itself_is_unchanged(call: Call, old: str, amount: str) -> None:
    """Every check of a change passes, at any amount and at any number of rows that shows the counts to be the same."""
    for rows in (50, 4000):
        decided("new.parquet", {"a": 0.5, "b": 0.4}, rows)
        call("audit", "new.parquet", *RACE, "--out", f"json={old}")
        gate = ("--baseline", old, "--check", amount, "--check", "accuracy.min>=0.1")
        status, result = audit_of(call, "new.parquet", *gate)
        changes = [check for check in result["checks"] if check["of"] == "change"]

        assert status == 0
        assert changes
        assert {(check["verdict"], check["code"]) for check in changes} == {("pass", "unchanged")}
        assert result["baseline"]["unchanged"]


def test_unchanged_is_so_where_a_group_is_undefined(call: Call, old: str) -> None:
    """A rate that one group lacks, it lacks in both: no change, though a check of the number itself stays open."""
    label = np.where(np.arange(6000) < 4000, np.arange(6000) % 2, 0)
    decided("new.parquet", {"a": 0.5, "b": 0.4, "c": 0.3}, 2000, label=pa.array(label))
    call("audit", "new.parquet", *RACE, "--out", f"json={old}")
    gate = ("--baseline", old, "--check", "tpr.difference.change<=0.01", "--check", "tpr.difference<=0.5")
    status, result = audit_of(call, "new.parquet", *gate)
    codes = {check["of"]: (check["verdict"], check["code"]) for check in result["checks"]}

    assert status == 3
    assert codes == {"value": ("undecided", "group_undefined"), "change": ("pass", "unchanged")}


def test_no_rate_gives_a_count_more_often_than_is_said() -> None:
    """The probability of the same counts by chance is that under the rate that fits best, so a bound for all rates."""
    rates = np.linspace(0, 1, 201)
    for rows in (1, 2, 7, 40):
        for hits in range(rows + 1):
            best = binom.pmf(hits, rows, hits / rows)
            assert likeliest(rows, hits / rows) == pytest.approx(best)
            assert (binom.pmf(hits, rows, rates) <= best * (1 + 1e-12)).all()


@pytest.mark.parametrize("new", [{"a": 0.5, "b": 0.4 + 1 / 4000}, {"a": 0.0, "b": 0.0}])
def test_alike_is_not_the_same(call: Call, old: str, new: dict[str, float]) -> None:
    """One row more is another result; and where no row is positive, few rows could look so by chance."""
    label = pa.array([0] * 40)
    more = {"rows": 20, "label": label} if not any(new.values()) else {}
    if more:
        decided("old.parquet", new, **more)
        call("audit", "old.parquet", *RACE, "--out", f"json={old}")
    _, result = audit_of(
        call, decided("new.parquet", new, **more), "--baseline", old, "--check", "change<=0.02"
    )
    gap = next(c for c in result["checks"] if c["comparison"] == "selection_rate.difference.between_groups")

    assert "unchanged" not in result["baseline"]
    assert (gap["verdict"], gap["code"]) == ("undecided", "limit_inside")


def test_square_and_add_by_hand(call: Call, old: str) -> None:
    """The interval of the change is made of the distances of the four limits."""
    _, result = audit_of(call, decided("new.parquet", {"a": 0.5, "b": 0.3}, 900), *GATE)
    (check,) = result["checks"]
    was = difference_between_groups(Proportions(np.array([2000.0, 1600.0]), np.full(2, 4000.0)), 0.05)
    now = difference_between_groups(Proportions(np.array([450.0, 270.0]), np.full(2, 900.0)), 0.05)

    assert check["low"] == pytest.approx(0.1 - math.hypot(now.value - now.low, was.high - was.value))
    assert check["high"] == pytest.approx(0.1 + math.hypot(now.high - now.value, was.value - was.low))


def test_the_change_of_one_difference_is_newcombes() -> None:
    """With symmetric limits square and add is the usual interval of a difference; open ends stay open."""
    one, two = estimate(0.2, 0.1, 0.3), estimate(0.5, 0.3, 0.7)
    found = change(one, two)

    assert (found.value, found.low) == pytest.approx((0.3, 0.3 - math.sqrt(0.05)))
    assert found.high == pytest.approx(0.3 + math.sqrt(0.05))
    assert change(one, estimate(0.5, 0.3, math.inf)).high is None
    assert change(one, estimate(math.nan, 0.3, 0.7)).value is None


def test_ratios_are_worse_when_smaller(call: Call, old: str) -> None:
    """A ratio that fell fails, one that rose passes, both written as an amount."""
    gate = ("--baseline", old, "--check", "dp.ratio.change>=-0.05")
    fell, result = audit_of(call, decided("new.parquet", {"a": 0.5, "b": 0.2}), *gate)
    rose, _ = audit_of(call, decided("up.parquet", {"a": 0.5, "b": 0.48}), *gate)

    assert (fell, rose) == (1, 0)
    assert (result["checks"][0]["operator"], result["checks"][0]["limit"]) == (">=", -0.05)
    assert result["checks"][0]["check"] == "dp.ratio.change>=-0.05"


def test_a_change_the_other_way_is_refused_with_the_right_one(call: Call, old: str) -> None:
    """The proposal is taken; a check that fails where nothing has changed is refused too."""
    new = decided("new.parquet", {"a": 0.5, "b": 0.2})
    gate = ("audit", new, "--protected", "race", "--baseline", old, "--check")
    for check in ("dp.ratio.change<=0.05", "dp.difference.change>=0.05", "accuracy.change[race=b]<=0.1"):
        status, _, err = call(*gate, check)
        proposed = re.search(r"--check '?([^'\s]+)'?", err.partition("write")[2])
        assert (status, proposed is not None) == (2, True)
    for check in (
        "dp.ratio.change>=0.05",
        "dp.difference.change<=-0.05",
        "change<=-0.1",
        "change>=0.1",
        "change<x",
    ):
        assert call(*gate, check)[0] == 2, check


@pytest.mark.parametrize(("limit", "status"), [(0.3, 0), (0.7, 1), (0.4, 3)])
def test_every_format_shows_a_check_as_it_was_written(call: Call, limit: float, status: int) -> None:
    data = decided("d.parquet", {"a": 0.5, "b": 0.2})
    outs = [part for kind in ("json", "html", "junit", "sarif") for part in ("--out", f"{kind}=o.{kind}")]
    found, text, _ = call("audit", data, *RACE, "-q", "--check", f"dp.ratio>={limit}", *outs)

    assert found == status
    assert f"dp.ratio>={limit}" in text
    assert f"dp.ratio&gt;={limit}" in Path("o.html").read_text()
    assert f"dp.ratio&gt;={limit} [race]" in Path("o.junit").read_text()
    check = json.loads(Path("o.json").read_text())["checks"][0]
    assert (check["check"], check["operator"], check["limit"]) == (f"dp.ratio>={limit}", ">=", limit)


@pytest.mark.parametrize(
    ("waived", "covers"),
    [("dp.ratio", True), ("dp.ratio>=0.7", True), ("dp.ratio[race]>=0.7", True), ("dp.ratio>0.7", False)],
)
def test_a_waiver_names_a_check_as_it_is_written(call: Call, waived: str, covers: bool) -> None:
    """With another sign it is another check."""
    Path("fairfix.toml").write_text(
        f'protected = "race"\n[audit]\ncheck = ["dp.ratio>=0.7"]\n[[waivers]]\ncheck = "{waived}"\n'
        'reason = "x"\nexpires = 2999-12-31\n'
    )
    status, _, _ = call("audit", decided("d.parquet", {"a": 0.5, "b": 0.2}), "-q")

    assert status == int(not covers)


def test_a_bare_amount_is_for_the_short_report_and_what_is_limited(call: Call, old: str) -> None:
    """0.02 holds for every usual comparison and for those of other checks, whose operator says what is worse."""
    arguments = ("--baseline", old, "--check", "change<=0.02", "--check", "selection_rate.min>=0.1")
    _, result = audit_of(call, decided("new.parquet", {"a": 0.5, "b": 0.2}), *arguments)
    changed = {c["id"]: c for c in result["checks"] if ".change[" in c["id"]}

    assert changed["selection_rate.difference.between_groups.change[race]"]["verdict"] == "fail"
    assert changed["selection_rate.min.change[race]"]["verdict"] == "fail"
    assert changed["selection_rate.min.change[race]"]["operator"] == ">="
    assert changed["accuracy.difference.between_groups.change[race]"]["limit"] == 0.02
    assert len(changed) == len(result["baseline"]["changes"]) > 5


def test_an_amount_for_one_goes_before_one_for_all(call: Call, old: str) -> None:
    """Each comparison is gated once."""
    both = ("--baseline", old, "--check", "change<=0.02", "--check", "dp.difference.change<=0.5")
    _, result = audit_of(call, decided("new.parquet", {"a": 0.5, "b": 0.2}), *both)
    gaps = [c for c in result["checks"] if c["id"] == "selection_rate.difference.between_groups.change[race]"]

    assert [(c["limit"], c["verdict"]) for c in gaps] == [(0.5, "pass")]


def test_one_group_can_be_held(call: Call, old: str) -> None:
    """accuracy[race=b]>0.1: not more than 0.1 worse for group b, where worse is smaller."""
    label = pa.array([1] * 4000 + [0] * 4000)
    decided("new.parquet", {"a": 0.5, "b": 0.9}, label=label)
    status, result = audit_of(
        call, "new.parquet", "--baseline", old, "--check", "accuracy.change[race=b]>=-0.1"
    )

    assert status == 1
    assert result["checks"][0]["value"] == pytest.approx(-0.4)


def test_what_cannot_be_compared_is_listed_and_cannot_pass(call: Call, old: str) -> None:
    """Other groups: the comparison is listed; one that an amount names is undecided."""
    new = decided("new.parquet", {"a": 0.5, "b": 0.4, "c": 0.45})
    status, result = audit_of(call, new, *GATE)

    assert status == 3
    assert result["checks"][0]["reason"] == "not comparable: the groups are not the same: c only now"
    assert {one["reason"] for one in result["baseline"]["not_comparable"]} == {
        "the groups are not the same: c only now"
    }
    assert result["baseline"]["changes"] == []


def test_other_thresholds_are_other_decisions(call: Call, tmp_path: Path) -> None:
    """Decisions at another threshold are not compared; score distances are."""
    rng = np.random.default_rng(0)
    data = {"race": rng.choice(["a", "b"], 500).tolist(), "score": rng.random(500)}
    pq.write_table(pa.table(data), tmp_path / "s.parquet")
    common = ("audit", "s.parquet", "--protected", "race", "--quiet")
    call(*common, "--out", "json=old.json")
    _, out, _ = call(*common, "--threshold", "0.6", "--baseline", "old.json", "--format", "json")
    found = json.loads(out)["baseline"]

    assert {one["id"].partition(".")[0] for one in found["changes"]} == {"ks", "mean_score", "scoring_rate"}
    assert "0.5 in the earlier audit, 0.6 now" in found["not_comparable"][0]["reason"]


@pytest.mark.parametrize("where", ["configuration", "environment"])
def test_a_configured_check_of_a_change_waits_for_a_baseline(
    where: str, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is said that it is not checked, with and without other checks; with a baseline it is."""
    decided("d.parquet", {"a": 0.5, "b": 0.4})
    line = ("audit", "d.parquet", "--protected", "race", "--prediction", "prediction", "--format", "json")
    call(*line, "--out", "json=old.json")
    for others in ([], ["dp.difference<=0.9"]):
        checks = [*others, "dp.difference.change<=0.02"]
        if where == "configuration":
            Path("fairfix.toml").write_text(f"check = {checks}\n")
        else:
            monkeypatch.setenv("FAIRFIX_CHECK", " ".join(checks))
        status, out, err = call(*line)
        assert status == 0, err
        assert [one["code"] for one in json.loads(out)["messages"]] == ["not_checked"]
        assert [one["check"] for one in json.loads(out)["checks"]] == others
        status, out, _ = call(*line, "--baseline", "old.json")
        assert (status, len(json.loads(out)["checks"])) == (0, len(checks))
        monkeypatch.delenv("FAIRFIX_CHECK", raising=False)


def test_a_repair_says_in_its_result_that_a_change_is_not_checked(call: Call) -> None:
    pq.write_table(scored(rows=300), "d.parquet")
    Path("fairfix.toml").write_text('check = ["dp.difference.change<=0.02"]\n')
    status, out, err = call(
        "repair", "d.parquet", "--protected", "race", "--method", "ramp", "--format", "json"
    )

    assert status == 0, err
    assert "not_checked" in {one["code"] for one in json.loads(out)["messages"]}


@pytest.mark.parametrize("blank", ["", "  "])
def test_a_blank_variable_replaces_no_check(blank: str, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    decided("d.parquet", {"a": 0.5, "b": 0.4})
    Path("fairfix.toml").write_text('check = ["dp.difference<=0.001"]\n')
    monkeypatch.setenv("FAIRFIX_CHECK", blank)
    assert call("audit", "d.parquet", "--protected", "race", "--prediction", "prediction")[0] in (1, 3)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--check", "change<=0.02"), "there is no --baseline"),
        (("--baseline", "no.json"), "does not exist"),
        (("--baseline", "no_column"), "neither as a file nor as a column"),
        (("--baseline", "race"), "race"),
        (("--baseline", "prediction"), "is the prediction itself"),
        (("--baseline", "empty.json"), "is not a JSON result of 'fairfix audit'"),
        (("--baseline", "old.json", "--confidence", "0.9"), "--confidence 0.95 instead of 0.9"),
        (
            ("--baseline", "old.json", "--label", "label=0"),
            "the positive values 1 of label instead of 0",
        ),
        (("--baseline", "old.json", "--check", "change<=-1"), "without any change"),
        (("--baseline", "old.json", "--check", "ks.change[sex]<=0.1"), "not audited"),
    ],
)
def test_baselines_that_do_not_fit_are_refused(
    call: Call, old: str, arguments: tuple[str, ...], said: str
) -> None:
    """Status 2, with what to do."""
    decided("new.parquet", {"a": 0.5, "b": 0.4})
    Path("empty.json").write_text("{}")
    status, _, err = call("audit", "new.parquet", *RACE, *arguments)

    assert status == 2
    assert said in err


@pytest.mark.parametrize(
    ("part", "entry", "where"),
    [
        ("value", 7.5, "7.5"),
        ("low", 0.99, "0.99"),
        ("high", "1", "$.attributes[0].groups[0].metrics[...].high"),
        ("value", True, "$.attributes[0].groups[0].metrics[...].value"),
    ],
)
def test_a_baseline_of_numbers_that_cannot_be_is_refused(
    part: str, entry: Any, where: str, call: Call, old: str
) -> None:
    """A change from a rate of 7.5 would pass every gate; ``report`` does not show it either."""
    content = json.loads(Path(old).read_text())
    content["attributes"][0]["groups"][0]["metrics"]["selection_rate"][part] = entry
    Path(old).write_text(json.dumps(content))
    for command in (("audit", "old.parquet", *RACE, *GATE), ("report", old)):
        status, out, err = call(*command)

        assert (status, out) == (2, "")
        assert where in err
        assert "make it again" in err


def test_a_baseline_that_another_program_wrote_again_is_read(call: Call, old: str) -> None:
    """To which 1.0 is 1."""
    content = json.loads(Path(old).read_text())
    block = content["attributes"][0]["groups"][0]["metrics"]["selection_rate"]
    block["high"] = 1
    Path(old).write_text(json.dumps(content))

    assert call("audit", "old.parquet", *RACE, *GATE)[0] in (0, 1, 3)


def test_configuration_and_environment_speak_too(
    call: Call, old: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The options of the gate in a file, and in the environment."""
    decided("new.parquet", {"a": 0.5, "b": 0.3})
    Path("fairfix.toml").write_text(
        'protected = "race"\nprediction = "prediction"\nquiet = true\n'
        f'[audit]\nbaseline = "{old}"\ncheck = ["change<=0.02"]\n'
    )
    assert call("audit", "new.parquet")[0] == 1
    monkeypatch.setenv("FAIRFIX_CHECK", "change<=0.5 dp.difference.change<=0.9")
    assert call("audit", "new.parquet")[0] == 0


# ---------------------------------------------------------------------- waivers


def waive(*tables: str, gate: str = 'check = ["dp.difference<=0.05"]') -> None:
    """Write a configuration with waivers."""
    text = 'protected = "race"\nprediction = "prediction"\n[audit]\n' + gate + "\n"
    Path("fairfix.toml").write_text(text + "".join(f"[[waivers]]\n{table}\n" for table in tables))


def waived(call: Call, *arguments: str) -> tuple[int, dict[str, Any]]:
    status, out, err = call("audit", "data.parquet", "--quiet", "--format", "json", *arguments)
    assert out, err
    result = json.loads(out)
    jsonschema.validate(result, SCHEMA, jsonschema.Draft202012Validator)
    return status, result


@pytest.fixture
def data() -> str:
    """Decisions with a gap of 0.10."""
    return decided("data.parquet", {"a": 0.5, "b": 0.4})


ONE = 'check = "dp.difference[race]"\nreason = "known, ticket 12"\nexpires = {expires}'


def test_a_waived_check_does_not_fail(call: Call, data: str) -> None:
    """Status 0; the check is there with its reason and what it would be."""
    waive(ONE.format(expires="2026-06-30"))
    status, result = waived(call)
    (check,) = result["checks"]

    assert (status, result["verdict"], check["verdict"]) == (0, "waived", "waived")
    assert check["waived"] == {
        "verdict": "fail",
        "code": "beyond_limit",
        "severity": "error",
        "reason": "known, ticket 12",
        "expires": "2026-06-30",
    }
    assert result["waivers"]["waivers"][0]["state"] == "used"
    assert result["waivers"]["waivers"][0]["covers"] == [check["id"]]


def test_an_expired_waiver_waives_nothing(call: Call, data: str) -> None:
    """The day after, the check fails and says why; the day can be set by either variable."""
    waive(ONE.format(expires="2026-06-29"))
    status, result = waived(call)

    assert (status, result["waivers"]["waivers"][0]["state"]) == (1, "expired")
    assert "expired on 2026-06-29" in result["checks"][0]["reason"]


@pytest.mark.parametrize(("expires", "left"), [("2026-07-15", None), ("2026-07-14", 14), ("2026-06-30", 0)])
def test_a_waiver_that_ends_soon_warns(call: Call, data: str, expires: str, left: int | None) -> None:
    """From 14 days before its last day, in JSON, in every text and as a warning of GitHub and on stderr."""
    waive(ONE.format(expires=expires))
    status, result = waived(call)
    (one,) = result["waivers"]["waivers"]
    _, text, err = call("audit", "data.parquet", "--quiet")
    _, annotations, _ = call("audit", "data.parquet", "--quiet", "--format", "github")

    assert status == 0
    assert one.get("days_left") == left
    assert ("::warning title=waiver of" in annotations) == (left is not None)
    assert ("ends" in err) == (left is not None)
    assert ("and ends" in " ".join(text.split())) == (left is not None)


def test_an_undecided_check_is_waived_too(call: Call) -> None:
    """A gap near its limit must not block more than one beyond it."""
    decided("data.parquet", {"a": 0.5, "b": 0.4}, 50)
    waive(ONE.format(expires="2027-01-01"))
    status, result = waived(call)

    assert (status, result["checks"][0]["waived"]["verdict"]) == (0, "undecided")


@pytest.mark.parametrize(
    ("limit", "rows", "status", "state"),
    [(0.3, 4000, 0, "used"), (0.06, 4000, 1, "exceeded"), (0.1, 4000, 3, "exceeded")],
)
def test_a_waiver_can_have_a_limit(call: Call, limit: float, rows: int, status: int, state: str) -> None:
    """Beyond the waiver's own limit the check fails, and near it the check is undecided."""
    decided("data.parquet", {"a": 0.5, "b": 0.4}, rows)
    waive(ONE.format(expires="2027-01-01") + f"\nlimit = {limit}")
    found, result = waived(call)

    assert (found, result["waivers"]["waivers"][0]["state"]) == (status, state)


def test_of_several_waivers_the_mildest_counts(call: Call, data: str) -> None:
    """Whatever their order; what the check was without any is kept."""
    tight, loose = (ONE.format(expires="2027-01-01") + f"\nlimit = {limit}" for limit in (0.06, 0.9))
    for tables in ((tight, loose), (loose, tight)):
        waive(*tables)
        status, result = waived(call)
        (check,) = result["checks"]

        assert (status, check["verdict"], check["severity"]) == (0, "waived", "note")
        assert (check["waived"]["verdict"], check["waived"]["code"]) == ("fail", "beyond_limit")
        assert check["waived"]["limit"] == 0.9


def test_waivers_that_do_nothing_are_said(call: Call, data: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that matches nothing and one that is not needed, in the report and on stderr."""
    monkeypatch.setenv("COLUMNS", "160")  # where sentences of tables are in one line
    waive(
        ONE.format(expires="2027-01-01"),
        ONE.format(expires="2027-01-01").replace("dp", "eo"),
        gate='check = ["dp.difference<=0.5"]',
    )
    status, out, err = call("audit", "data.parquet")

    assert status == 0
    assert "is not needed: the check passes without it" in out
    assert "matches no check" in out
    assert "fairfix: warning: the waiver of 'eo.difference[race]' matches no check [waiver]" in err


def test_a_change_can_be_waived(call: Call, old: str) -> None:
    """dp.difference.change is another check than dp.difference."""
    decided("data.parquet", {"a": 0.5, "b": 0.2})
    gate = f'check = ["dp.difference<=0.9", "dp.difference.change<=0.02"]\nbaseline = "{old}"'
    waive(ONE.format(expires="2027-01-01").replace("difference", "difference.change"), gate=gate)
    status, result = waived(call)

    assert status == 0
    assert [check["verdict"] for check in result["checks"]] == ["pass", "waived"]


@pytest.mark.parametrize(("expires", "status"), [("2026-06-30", 0), ("2026-06-29", 1)])
def test_a_repair_can_be_waived(call: Call, tmp_path: Path, expires: str, status: int) -> None:
    """The same tables serve a repair; what is saved with the predictor has the verdict without them."""
    rng = np.random.default_rng(1)
    table = {"race": ["a", "b"] * 400, "score": rng.random(800), "label": rng.integers(0, 2, 800)}
    pq.write_table(pa.table(table), tmp_path / "data.parquet")
    Path("fairfix.toml").write_text(
        'protected = "race"\nquiet = true\n[repair]\nmethod = "ramp"\ncheck = ["accuracy.min>=0.9"]\n'
        f'[[waivers]]\ncheck = "accuracy.min"\nreason = "labels are noise"\nexpires = {expires}\n'
    )
    found, out, err = call("repair", "data.parquet", "--format", "json")
    assert out, err
    result = json.loads(out)
    schema = json_schema("repair")
    jsonschema.validate(result, schema, jsonschema.Draft202012Validator)

    assert found == status
    assert result["waivers"]["waivers"][0]["state"] == ("expired" if status else "used")
    assert result["verdict"] == ("fail" if status else "waived")
    assert "Waivers" in call("repair", "data.parquet")[1]
    assert '"verdict": "fail"' in call("inspect", "repaired.fairfix", "--format", "json")[1]


@pytest.mark.parametrize("name", PRINTED)
def test_every_format_tells_of_waivers_and_baselines(call: Call, old: str, name: str) -> None:
    """The reason, the day, the waiver without effect, and what cannot be compared: nobody is left in the dark."""
    decided("data.parquet", {"a": 0.5, "b": 0.2})
    both = (ONE.format(expires="2027-01-01"), ONE.format(expires="2026-01-01").replace("dp", "eo"))
    waive(
        *both,
        gate=f'check = ["dp.difference<=0.05", "dp.difference.change<=0.02"]\nbaseline = "{old}"',
    )
    content = json.loads(Path(old).read_text())
    content["attributes"][0]["comparisons"] = [
        c for c in content["attributes"][0]["comparisons"] if c["id"] != "equalized_odds.ratio.between_groups"
    ]
    Path(old).write_text(json.dumps(content))
    status, out, _ = call("audit", "data.parquet", "--quiet", "--format", name)
    plain = " ".join(out.replace("\\_", "_").split())

    assert status == 1
    assert "known, ticket 12" in plain
    assert "2027-01-01" in plain
    assert "eo.difference" in plain
    assert "it is not in the earlier audit" in plain
    assert ".change" in plain


def test_sarif_suppresses_what_is_waived(call: Call, data: str) -> None:
    """A viewer of SARIF hides a suppressed result and can show why."""
    waive(ONE.format(expires="2027-01-01"))
    (found,) = json.loads(call("audit", data, "--quiet", "--format", "sarif")[1])["runs"][0]["results"]

    assert found["level"] == "error"
    assert found["suppressions"] == [
        {"kind": "external", "status": "accepted", "justification": "known, ticket 12 (until 2027-01-01)"}
    ]


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ('check = "dp.difference"\nexpires = 2027-01-01', "needs a reason"),
        ('check = "dp.difference"\nreason = " "\nexpires = 2027-01-01', "needs a reason"),
        ('check = "dp.difference"\nreason = "x"', "needs its last valid day"),
        ('check = "dp.difference"\nreason = "x"\nexpires = "soon"', "needs its last valid day"),
        ('check = "dp.difference"\nreason = "x"\nexpires = 2027-01-01T10:00:00', "needs its last valid day"),
        ('reason = "x"\nexpires = 2027-01-01', "names its check"),
        ('check = "wobble"\nreason = "x"\nexpires = 2027-01-01', "unknown metric"),
        ('check = "ks"\nreason = "x"\nexpires = 2027-01-01\nuntil = 1', "no key 'until'"),
        ('check = "ks"\nreason = "x"\nexpires = 2027-01-01\nlimit = "much"', "not a number"),
        ('check = "dp.difference"\nreason = "x"\nexpires = 2027-01-01\nlimit = 0.01', "stricter"),
    ],
)
def test_bad_waivers_are_configuration_errors(call: Call, data: str, table: str, said: str) -> None:
    """A waiver without reason or day, or with a typo, stops the run."""
    waive(table)
    status, _, err = call("audit", data, "--quiet")

    assert status == 2
    assert said in err


def test_waivers_are_tables(call: Call, data: str) -> None:
    """One table instead of a list of them is refused."""
    Path("fairfix.toml").write_text('[waivers]\ncheck = "ks"\n')

    assert call("audit", data, "--protected", "race")[0] == 2
    with pytest.raises(ConfigError, match="is a table"):
        Waiver.parse("ks", "here")


def test_a_waiver_can_name_one_limit() -> None:
    """With operator and limit it covers that check alone."""
    table = {"check": "dp.difference<=0.1", "reason": "x", "expires": date(2027, 1, 1)}
    found = Waiver.parse(table, "here")

    def judged(text: str) -> common.Check:
        check, number = Check.parse(text), estimate(0.5, 0.4, 0.6)
        ruling = check.judge(number, complete=True, gate_on="interval")
        return judged_check(check, ("race", ("race",)), number, (), ruling, complete=True, gate_on="interval")

    assert found.covers(judged("dp.difference<=0.1"))
    assert not found.covers(judged("dp.difference<=0.2"))
    assert not found.covers(judged("ks<=0.1"))


def test_a_waiver_does_not_pass_where_a_group_has_no_value() -> None:
    """Up to its limit it waives a value over all groups; over some of them the value passes no limit."""
    assert waived_verdict(0.15, 0.0, 0.2, complete=True) == "waived"
    assert waived_verdict(0.15, 0.0, 0.2, complete=False) == "undecided"


def test_a_waiver_does_not_pass_within_the_error_of_a_number() -> None:
    """A value whose numerical error reaches beyond the waiver's limit is undecided there."""
    assert waived_verdict(0.19, 0.005, 0.2, complete=True) == "waived"
    assert waived_verdict(0.19, 0.02, 0.2, complete=True) == "undecided"


def waived_verdict(value: float, bound: float, limit: float, *, complete: bool) -> str:
    """Return the verdict of ``auc.difference<=0.1``, by its value, under a waiver up to a limit."""
    check = Check.parse("auc.difference<=0.1")
    number = estimate(value, value, value, bound=bound)
    ruling = check.judge(number, complete=complete, gate_on="point")
    assert ruling.verdict == "fail"
    judged = judged_check(
        check, ("race", ("race",)), number, ("a", "b"), ruling, complete=complete, gate_on="point"
    )
    table = {"check": "auc.difference", "reason": "x", "expires": date(2027, 1, 1), "limit": limit}
    (found,), _ = apply([judged], [Waiver.parse(table, "here")], date(2026, 6, 30))
    return str(found.verdict)


def test_today_comes_from_one_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """FAIRFIX_TODAY, else SOURCE_DATE_EPOCH, else the clock."""
    assert today() == date(2026, 6, 30)
    monkeypatch.delenv("FAIRFIX_TODAY")
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "86400")
    assert today() == date(1970, 1, 2)
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "x")
    with pytest.raises(UsageError, match="is not a date"):
        today()
    monkeypatch.delenv("SOURCE_DATE_EPOCH")
    assert today().year > 2024


def test_amounts_are_read() -> None:
    """Of all usual comparisons, or of one; a metric called change is none."""
    assert Allowance.parse("change<=0.02") == Allowance("change<=0.02", 0.02)
    fallen = Allowance.parse("dp.ratio.change[race] >= -0.1")
    assert (fallen.amount, fallen.larger, fallen.check.comparison.attribute) == (0.1, False, "race")
    assert read_checks(["ks<=0.1", "ks.change<=0.2"])[0] == (Check.parse("ks<=0.1"),)
    for text in (
        "change<=nan",
        "change<=inf",
        "change<=-0.1",
        "ks.change<=-1",
        "change",
        "ks<=0.1",
        "change[race]<=1",
    ):
        with pytest.raises(UsageError):
            Allowance.parse(text)


# ---------------------------------------------------------------------- as a script

SCRIPT = """
for case in "worse 0.3" "same 0.3" "same 0.05" "few 0.3"; do
    set -- $case
    status=0; fairfix audit $1.parquet --protected race --prediction prediction --quiet --baseline old.json \\
        --check 'dp.difference.change<=0.02' --check "dp.difference<=$2" > report.txt || status=$?
    echo "$status"
done
"""


@pytest.mark.slow
def test_a_shell_script_sees_the_status() -> None:
    """Fails for the change, passes, fails for the value, and cannot tell, on draws from given rates under set -e."""
    rng = np.random.default_rng(7)
    for name, rate, count in (
        ("old", 0.4, 60000),
        ("worse", 0.3, 60000),
        ("same", 0.4, 60000),
        ("few", 0.4, 300),
    ):
        drawn = {
            "race": pa.array(["a"] * count + ["b"] * count),
            "prediction": pa.array((rng.random(2 * count) < np.repeat([0.5, rate], count)).astype(int)),
        }
        pq.write_table(pa.table(drawn), f"{name}.parquet")
    function = f'fairfix() {{ "{sys.executable}" -m fairfix "$@"; }}'
    first = "fairfix audit old.parquet --protected race --prediction prediction --quiet --out json=old.json > old.txt"
    script = f"{function}\n{first}\n{SCRIPT}"
    done = subprocess.run(["sh", "-euc", script], capture_output=True, text=True, check=False)

    assert done.stdout.split() == ["1", "0", "1", "3"], done.stderr


def test_saved_counts_know_all_of_this(call: Call, tmp_path: Path) -> None:
    """An audit of counts has baseline, waivers, hidden groups and profiles like one of rows."""
    rng = np.random.default_rng(3)
    race = rng.choice(["a", "b", "few", "more"], 4000, p=[0.5, 0.4, 0.002, 0.098])
    table = {
        "race": race.tolist(),
        "prediction": rng.integers(0, 2, 4000),
        "sex": rng.choice(["f", "m"], 4000).tolist(),
    }
    pq.write_table(pa.table(table), tmp_path / "d.parquet")
    first = tuple(
        shlex.split("audit d.parquet --protected race,sex --prediction prediction --suppress-below 20")
    )
    assert call("count", *first[1:], "-o", "d.counts")[0] == 0
    status, _, err = call(*first, "--out", "json=old.json")
    assert status == 0
    assert "few" not in err

    Path("fairfix.toml").write_text(
        '[[waivers]]\ncheck = "dp.difference"\nreason = "known"\nexpires = 2027-01-01\n'
    )
    more = ("--suppress-below", "20", "--profile", "ll144", "--baseline", "old.json")
    gates = ("--check", "dp.difference.change<=0.2", "--check", "dp.difference<=0.0001")
    status, out, err = call("audit", "d.counts", "--format", "json", *more, *gates)
    result = json.loads(out)

    assert status in (0, 3), err
    assert {block["attribute"] for block in result["attributes"]} == {"race", "sex", "race x sex"}
    assert '"few"' not in out
    assert {check["verdict"] for check in result["checks"] if ".change[" not in check["id"]} == {"waived"}
    assert {check["verdict"] for check in result["checks"] if ".change[" in check["id"]} <= {
        "pass",
        "undecided",
    }
