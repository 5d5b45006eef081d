"""Gates against a baseline and waivers: verdicts, statuses, and what every format says of them."""

from __future__ import annotations

import json
import math
import shlex
from datetime import date, datetime
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
from fairfix.data.choices import GateOn
from fairfix.errors import ConfigError, UsageError
from fairfix.schema import common, json_schema
from fairfix.schema.common import estimate
from scipy.stats import binom

from tests.conftest import Call

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
    ("check", "rates", "rows", "status", "change"),
    [
        ("dp.difference.change<=0.02", {"a": 0.5, "b": 0.3}, 4000, 1, 0.1),
        ("dp.difference.change<=0.02", {"a": 0.5, "b": 0.4}, 40000, 0, 0.0),
        ("dp.difference.change<=0.02", {"a": 0.5, "b": 0.45}, 4000, 0, -0.05),
        ("dp.difference.change<=0.02", {"a": 0.5, "b": 0.38}, 4000, 3, 0.02),
        ("dp.difference.change<=0.02", {"a": 0.5, "b": 0.3}, 100, 3, 0.1),
        ("dp.ratio.change>=-0.05", {"a": 0.5, "b": 0.2}, 4000, 1, -0.4),
        ("dp.ratio.change>=-0.05", {"a": 0.5, "b": 0.48}, 4000, 0, 0.16),
        ("selection_rate.change[race=b]>=-0.1", {"a": 0.5, "b": 0.2}, 4000, 1, -0.2),
    ],
)
def test_a_gate_on_worse(
    call: Call, old: str, check: str, rates: dict[str, float], rows: int, status: int, change: float
) -> None:
    """Fails when the whole interval of the change is beyond the amount, passes within it, else cannot tell."""
    if rows > 4000:  # a pass needs rows on both sides
        decided("old.parquet", {"a": 0.5, "b": 0.4}, rows)
        call("audit", "old.parquet", *RACE, "--out", f"json={old}")
    gate = ("--baseline", old, "--check", check)
    found, result = audit_of(call, decided("new.parquet", rates, rows), *gate)
    (made,) = result["checks"]

    assert found == status
    assert made["verdict"] == {0: "pass", 1: "fail", 3: "undecided"}[status]
    assert (made["check"], made["of"], made["operator"] in check) == (check, "change", True)
    assert made["value"] == pytest.approx(change)


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


def test_the_limits_of_a_change_are_those_of_both_put_together() -> None:
    """By square and add, with the ends that face each other; open ends stay open."""
    was = estimate(0.2, 0.15, 0.3)
    found = change(was, estimate(0.5, 0.3, 0.9))

    assert (found.low, found.value, found.high) == pytest.approx(
        (0.3 - math.hypot(0.2, 0.1), 0.3, 0.3 + math.hypot(0.4, 0.05))
    )
    assert change(was, estimate(0.5, 0.3, math.inf)).high is None
    assert change(was, estimate(math.nan, 0.3, 0.7)).value is None


def test_amounts_are_read() -> None:
    """Of all usual comparisons, or of one; what is worse is not asked for, and a right condition is proposed."""
    assert Allowance.parse("change<=0.02") == Allowance("change<=0.02", 0.02)
    fallen = Allowance.parse("dp.ratio.change[race] >= -0.1")
    assert (fallen.amount, fallen.larger, fallen.check.comparison.attribute) == (0.1, False, "race")
    assert read_checks(["ks<=0.1", "ks.change<=0.2"])[0] == (Check.parse("ks<=0.1"),)
    for text in (
        *(
            "change<=nan",
            "change<=inf",
            "change<=-0.1",
            "change>=0.1",
            "change<x",
            "change",
            "change[race]<=1",
        ),
        *("ks.change<=-1", "ks<=0.1", "dp.ratio.change>=0.05", "dp.difference.change<=-0.05"),
    ):
        with pytest.raises(UsageError):
            Allowance.parse(text)
    for text in ("dp.ratio.change<=0.05", "dp.difference.change>=0.05", "accuracy.change[race=b]<=0.1"):
        with pytest.raises(UsageError, match=r"write `check=[^`]+`"):
            Allowance.parse(text)


def test_a_bare_amount_is_for_the_short_report_and_what_is_limited(call: Call, old: str) -> None:
    """Of every usual comparison and those of other checks, whose operator says what is worse; one's own goes first."""
    checks = ("change<=0.02", "selection_rate.min>=0.1", "dp.ratio.change>=-0.9")
    arguments = [word for check in checks for word in ("--check", check)]
    new = decided("new.parquet", {"a": 0.5, "b": 0.2})
    _, result = audit_of(call, new, "--baseline", old, *arguments)
    changed = {c["id"]: c for c in result["checks"] if ".change[" in c["id"]}

    assert changed["selection_rate.difference.between_groups.change[race]"]["verdict"] == "fail"
    ratio = changed["selection_rate.ratio.between_groups.change[race]"]
    assert (ratio["limit"], ratio["verdict"]) == (-0.9, "pass")
    assert changed["selection_rate.min.change[race]"]["verdict"] == "fail"
    assert changed["selection_rate.min.change[race]"]["operator"] == ">="
    assert changed["accuracy.difference.between_groups.change[race]"]["limit"] == 0.02
    assert len(changed) == len(result["baseline"]["changes"]) > 5


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


def judged_of(
    text: str, numbers: tuple[float, float, float], bound: float, complete: bool, gate_on: GateOn
) -> common.Check:
    """Return a check of race with the verdict of its number."""
    check, number = Check.parse(text), estimate(*numbers, bound=bound)
    ruling = check.judge(number, complete=complete, gate_on=gate_on)
    return judged_check(
        check, ("race", ("race",)), number, ("a",), ruling, complete=complete, gate_on=gate_on
    )


WAIVED: list[tuple[list[Any], dict[str, Any], str, list[str]]] = [
    ([None], {}, "waived", ["used"]),
    ([None], {"numbers": (0.12, 0.05, 0.2)}, "waived", ["used"]),
    ([None], {"numbers": (0.05, 0.0, 0.08)}, "pass", ["not needed"]),
    ([date(2026, 6, 30)], {}, "waived", ["used"]),
    ([date(2026, 6, 29)], {}, "fail", ["expired"]),
    ([0.5], {}, "waived", ["used"]),
    ([0.15], {}, "fail", ["exceeded"]),
    ([0.3], {}, "undecided", ["exceeded"]),
    ([0.15, 0.9], {}, "waived", ["exceeded", "used"]),
    ([0.9, 0.15], {}, "waived", ["used", "not needed"]),
    # up to its limit a waiver covers a value over all groups, beyond its numerical error
    ([0.5], {"numbers": (0.3, 0.3, 0.3), "complete": False}, "undecided", ["exceeded"]),
    ([0.5], {"numbers": (0.49,) * 3, "bound": 0.005, "gate_on": "point"}, "waived", ["used"]),
    ([0.5], {"numbers": (0.49,) * 3, "bound": 0.02, "gate_on": "point"}, "undecided", ["exceeded"]),
]
"""Limits, or last days, of waivers of ``dp.difference<=0.1``; of its number what is unusual; verdict and states."""


@pytest.mark.parametrize(("ends", "made", "verdict", "states"), WAIVED)
def test_what_waivers_do(ends: list[Any], made: dict[str, Any], verdict: str, states: list[str]) -> None:
    """In any order the mildest counts, and what the check was without any is kept."""
    usual: dict[str, Any] = {
        "numbers": (0.3, 0.2, 0.4),
        "bound": 0.0,
        "complete": True,
        "gate_on": "interval",
    }
    check = judged_of("dp.difference<=0.1", **{**usual, **made})
    tables = [
        {
            "check": "dp.difference",
            "reason": "x",
            "expires": end if isinstance(end, date) else date(2027, 1, 1),
        }
        | ({"limit": end} if isinstance(end, float) else {})
        for end in ends
    ]
    (found,), used = apply([check], [Waiver.parse(table, "here") for table in tables], date(2026, 6, 30))

    assert (found.verdict, [one.state for one in used]) == (verdict, states)
    if verdict == "waived":
        assert found.severity == "note"
        assert (found.waived.verdict, found.waived.code) == (check.verdict, check.code)


@pytest.mark.parametrize(
    ("text", "covered", "others"),
    [
        ("dp.difference", ("dp.difference<=0.1", "dp.difference<0.2"), ("ks<=0.1",)),
        ("dp.difference[race]", ("dp.difference<=0.1",), ()),
        ("dp.difference<=0.1", ("dp.difference<=0.1",), ("dp.difference<=0.2", "dp.difference<0.1")),
        ("dp.difference[sex]", (), ("dp.difference<=0.1",)),
    ],
)
def test_a_waiver_covers_the_check_that_it_names(
    text: str, covered: tuple[str, ...], others: tuple[str, ...]
) -> None:
    """With operator and limit that check alone."""
    waiver = Waiver.parse({"check": text, "reason": "x", "expires": date(2027, 1, 1)}, "here")
    for check in (*covered, *others):
        assert waiver.covers(judged_of(check, (0.5, 0.4, 0.6), 0.0, True, "interval")) == (check in covered)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"reason": None}, "needs a reason"),
        ({"reason": " "}, "needs a reason"),
        ({"expires": None}, "needs its last valid day"),
        ({"expires": "soon"}, "needs its last valid day"),
        ({"expires": datetime(2027, 1, 1)}, "needs its last valid day"),
        ({"check": None}, "names its check"),
        ({"check": "wobble"}, "unknown metric"),
        ({"until": 1}, "no key 'until'"),
        ({"limit": "much"}, "not a number"),
        ({"limit": 0.01}, "stricter"),
    ],
)
def test_bad_waivers_are_configuration_errors(change: dict[str, Any], said: str) -> None:
    """A waiver without reason or day, or with a typo, stops the run; so does one that is no table."""
    table = {"check": "dp.difference", "reason": "x", "expires": "2027-01-01", **change}
    check = judged_of("dp.difference<=0.1", (0.5, 0.4, 0.6), 0.0, True, "interval")
    with pytest.raises(ConfigError, match=said):
        apply([check], [Waiver.parse(table, "here")], date(2026, 6, 30))
    with pytest.raises(ConfigError, match="is a table"):
        Waiver.parse("ks", "here")


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
    """What is saved with the predictor has the verdict without waivers; a check of a change is said not to be made."""
    rng = np.random.default_rng(1)
    table = {"race": ["a", "b"] * 400, "score": rng.random(800), "label": rng.integers(0, 2, 800)}
    pq.write_table(pa.table(table), tmp_path / "data.parquet")
    Path("fairfix.toml").write_text(
        'protected = "race"\nquiet = true\n[repair]\nmethod = "ramp"\n'
        'check = ["accuracy.min>=0.9", "dp.difference.change<=0.02"]\n'
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
    assert "not_checked" in {one["code"] for one in result["messages"]}
    assert '"verdict": "fail"' in call("inspect", "repaired.fairfix", "--format", "json")[1]


def test_sarif_suppresses_what_is_waived(call: Call, data: str) -> None:
    """A viewer of SARIF hides a suppressed result and can show why."""
    waive(ONE.format(expires="2027-01-01"))
    (found,) = json.loads(call("audit", data, "--quiet", "--format", "sarif")[1])["runs"][0]["results"]

    assert found["level"] == "error"
    assert found["suppressions"] == [
        {"kind": "external", "status": "accepted", "justification": "known, ticket 12 (until 2027-01-01)"}
    ]


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
