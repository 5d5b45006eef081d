"""Gates against a baseline and waivers: verdicts, statuses, and what is refused."""

from __future__ import annotations

import json
import math
from datetime import date, datetime
from pathlib import Path
from typing import Any, Literal

import fairfix
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
from fairfix.errors import ConfigError, DataError, UsageError
from fairfix.schema import common, json_schema
from fairfix.schema.common import estimate
from scipy.stats import binom

from tests.conftest import Call

SCHEMA = json_schema("audit")
ABOUT: dict[str, Any] = {"protected": "race", "prediction": "prediction"}
RACE = ("--protected", "race", "--prediction", "prediction")
WAS = {"a": 0.5, "b": 0.4}
"""Selection rates of the baseline."""


@pytest.fixture(autouse=True)
def _day(away: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Set the day by which waivers are judged."""
    monkeypatch.setenv("FAIRFIX_TODAY", "2026-06-30")


def decided(rates: dict[str, float], rows: int = 4000, label: Any = None) -> pa.Table:
    """Return decisions with exactly these selection rates, half of them right."""
    group = np.repeat(list(rates), rows)
    decision = np.concatenate([np.arange(rows) < round(rate * rows) for rate in rates.values()])
    label = np.arange(len(group)) % 2 if label is None else label
    return pa.table({"race": group.tolist(), "label": label, "prediction": decision.astype(int)})


def against(old: pa.Table, new: pa.Table, *checks: str) -> dict[str, Any]:
    """Return the result of an audit against one of other decisions, which holds to its schema."""
    result = fairfix.audit(new, **ABOUT, baseline=fairfix.audit(old, **ABOUT), check=[*checks]).to_dict()
    jsonschema.validate(result, SCHEMA, jsonschema.Draft202012Validator)
    return result


# ---------------------------------------------------------------------- baselines


@pytest.mark.parametrize(
    ("check", "rates", "rows", "verdict", "change"),
    [
        ("dp.difference.change<=0.02", {"a": 0.5, "b": 0.3}, 4000, "fail", 0.1),
        ("dp.difference.change<=0.02", {"a": 0.5, "b": 0.45}, 4000, "pass", -0.05),
        ("dp.difference.change<=0.02", {"a": 0.5, "b": 0.38}, 4000, "undecided", 0.02),
        ("dp.difference.change<=0.02", {"a": 0.5, "b": 0.3}, 100, "undecided", 0.1),
        ("dp.ratio.change>=-0.05", {"a": 0.5, "b": 0.2}, 4000, "fail", -0.4),
        ("dp.ratio.change>=-0.05", {"a": 0.5, "b": 0.48}, 4000, "pass", 0.16),
        ("selection_rate.change[race=b]>=-0.1", {"a": 0.5, "b": 0.2}, 4000, "fail", -0.2),
    ],
)
def test_a_gate_on_worse(check: str, rates: dict[str, float], rows: int, verdict: str, change: float) -> None:
    """Fails when the whole interval of the change is beyond the amount, passes within it, else cannot tell."""
    (made,) = against(decided(WAS), decided(rates, rows), check)["checks"]

    assert (made["check"], made["of"], made["verdict"]) == (check, "change", verdict)
    assert made["value"] == pytest.approx(change)


@pytest.mark.parametrize("rows", [50, 4000])
def test_a_result_against_itself_is_unchanged(rows: int) -> None:
    """At any amount and number of rows that shows the counts to be the same; what one group lacks, both lack.

    A check of the number itself stays open then.
    """
    label = np.where(np.arange(3 * rows) < 2 * rows, np.arange(3 * rows) % 2, 0)
    table = decided({**WAS, "c": 0.3}, rows, label)
    changes = ("change<=0", "dp.ratio.change>=0", "accuracy.min.change>=-0.5", "tpr.difference.change<=0.01")
    result = against(table, table, *changes, "tpr.difference<=0.5")
    codes = {(one["of"], one["verdict"], one["code"]) for one in result["checks"]}

    assert codes == {("value", "undecided", "group_undefined"), ("change", "pass", "unchanged")}
    assert result["baseline"]["unchanged"]


@pytest.mark.parametrize(
    ("rates", "more"), [({"a": 0.5, "b": 0.4 + 1 / 4000}, ()), ({"a": 0, "b": 0}, (20, [0] * 40))]
)
def test_alike_is_not_the_same(rates: dict[str, float], more: tuple[Any, ...]) -> None:
    """One row more is another result; and where no row is positive, few rows could look so by chance."""
    new = decided(rates, *more)
    result = against(new if more else decided(WAS), new, "change<=0.02")
    gap = next(
        one for one in result["checks"] if one["comparison"] == "selection_rate.difference.between_groups"
    )

    assert "unchanged" not in result["baseline"]
    assert (gap["verdict"], gap["code"]) == ("undecided", "limit_inside")


def test_no_rate_gives_a_count_more_often_than_is_said() -> None:
    """The probability of the same counts by chance is that under the rate that fits best, so a bound for all rates."""
    rates = np.linspace(0, 1, 201)
    for rows in (1, 2, 7, 40):
        for hits in range(rows + 1):
            best = binom.pmf(hits, rows, hits / rows)
            assert likeliest(rows, hits / rows) == pytest.approx(best)
            assert (binom.pmf(hits, rows, rates) <= best * (1 + 1e-12)).all()


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


def test_a_bare_amount_is_for_the_short_report_and_what_is_limited() -> None:
    """Of every usual comparison and those of other checks, whose operator says what is worse; one's own goes first."""
    checks = ("change<=0.02", "selection_rate.min>=0.1", "dp.ratio.change>=-0.9")
    result = against(decided(WAS), decided({"a": 0.5, "b": 0.2}), *checks)
    found = {one["comparison"]: one for one in result["checks"] if one["of"] == "change"}

    for name, operator, limit, verdict in (
        ("selection_rate.difference.between_groups", "<=", 0.02, "fail"),
        ("accuracy.difference.between_groups", "<=", 0.02, "undecided"),
        ("selection_rate.ratio.between_groups", ">=", -0.9, "pass"),
        ("selection_rate.min", ">=", -0.02, "fail"),
    ):
        one = found[name]
        assert (one["operator"], one["limit"], one["verdict"]) == (operator, limit, verdict), name
    assert len(found) == len(result["baseline"]["changes"]) > 5


def test_what_cannot_be_compared_is_listed_and_cannot_pass() -> None:
    """Other groups: the comparison is listed, and a check of it is undecided. So are decisions at another threshold."""
    result = against(decided(WAS), decided({**WAS, "c": 0.45}), "dp.difference.change<=0.02")
    assert (result["checks"][0]["verdict"], result["checks"][0]["code"]) == ("undecided", "not_comparable")
    reasons = {one["reason"] for one in result["baseline"]["not_comparable"]}
    assert reasons == {"the groups are not the same: c only now"}
    assert result["baseline"]["changes"] == []

    rng = np.random.default_rng(0)
    table = pa.table({"race": rng.choice(["a", "b"], 500).tolist(), "score": rng.random(500)})
    old = fairfix.audit(table, protected="race")
    found = fairfix.audit(table, protected="race", threshold=0.6, baseline=old).to_dict()["baseline"]
    assert {one["id"].partition(".")[0] for one in found["changes"]} == {"ks", "mean_score", "scoring_rate"}
    assert "0.5 in the earlier audit, 0.6 now" in found["not_comparable"][0]["reason"]


@pytest.mark.parametrize("where", ["configuration", "environment"])
def test_a_configured_check_of_a_change_waits_for_a_baseline(
    where: str, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is said that it is not checked, with and without other checks; with a baseline it is."""
    pq.write_table(decided(WAS), "d.parquet")
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
    pq.write_table(decided(WAS), "d.parquet")
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
        (("--baseline", "old.json", "--label", "label=0"), "the positive values 1 of label instead of 0"),
        (("--baseline", "old.json", "--check", "change<=-1"), "without any change"),
        (("--baseline", "old.json", "--check", "ks.change[sex]<=0.1"), "not audited"),
    ],
)
def test_baselines_that_do_not_fit_are_refused(call: Call, arguments: tuple[str, ...], said: str) -> None:
    """Status 2, with what to do."""
    pq.write_table(decided(WAS), "new.parquet")
    Path("old.json").write_text(fairfix.audit("new.parquet", **ABOUT).to_json())
    Path("empty.json").write_text("{}")
    status, _, err = call("audit", "new.parquet", *RACE, *arguments)

    assert status == 2
    assert said in err


@pytest.mark.parametrize(
    ("part", "entry", "where"),
    [("value", 7.5, "7.5"), ("low", 0.99, "0.99"), ("high", "1", "high"), ("value", True, "value")],
)
def test_a_baseline_of_numbers_that_cannot_be_is_refused(part: str, entry: Any, where: str) -> None:
    """A change from a rate of 7.5 would pass every gate."""
    old = json.loads(json.dumps(fairfix.audit(decided(WAS), **ABOUT).to_dict()))
    old["attributes"][0]["groups"][0]["metrics"]["selection_rate"][part] = entry

    with pytest.raises(DataError, match=f"{where}.*make it again"):
        fairfix.audit(decided(WAS), **ABOUT, baseline=old)


# ---------------------------------------------------------------------- waivers


def judged_of(
    text: str,
    numbers: tuple[float, float, float] = (0.3, 0.2, 0.4),
    bound: float = 0.0,
    complete: bool = True,
    gate_on: GateOn = "interval",
    of: Literal["value", "change"] = "value",
) -> common.SavedCheck:
    """Return a check of race with the verdict of its number."""
    check, number = Check.parse(text), estimate(*numbers, bound=bound)
    ruling = check.judge(number, complete=complete, gate_on=gate_on)
    return judged_check(
        check, ("race", ("race",)), number, ("a",), ruling, complete=complete, gate_on=gate_on, of=of
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
    late = {"check": "dp.difference", "reason": "x", "expires": date(2027, 1, 1)}
    kinds = {date: "expires", float: "limit"}
    tables = [late | ({kinds[type(end)]: end} if end else {}) for end in ends]
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
        assert waiver.covers(judged_of(check)) == (check in covered)
        assert not waiver.covers(judged_of(check, of="change"))
    table = {"check": "dp.difference.change", "reason": "x", "expires": date(2027, 1, 1)}
    assert Waiver.parse(table, "here").covers(judged_of("dp.difference<=0.1", of="change"))


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
    check = judged_of("dp.difference<=0.1")
    with pytest.raises(ConfigError, match=said):
        apply([check], [Waiver.parse(table, "here")], date(2026, 6, 30))
    with pytest.raises(ConfigError, match="is a table"):
        Waiver.parse("ks", "here")


ONE = '[[waivers]]\ncheck = "dp.difference[race]"\nreason = "known, ticket 12"\nexpires = {}\n'


def test_waivers_of_the_configuration_are_judged_by_the_day(call: Call) -> None:
    """Status 0 until the last day, with the reason and what the verdict would be; 1 on the day after.

    One that ends soon or matches nothing is a warning, and formats with suppressions suppress what is waived.
    """
    pq.write_table(decided(WAS), "data.parquet")
    config = 'protected = "race"\nprediction = "prediction"\n[audit]\ncheck = ["dp.difference<=0.05"]\n'
    line = ("audit", "data.parquet", "--quiet", "--format")
    Path("fairfix.toml").write_text(
        config + ONE.format("2026-06-30") + ONE.format("2027-01-01").replace("dp", "eo")
    )
    status, out, _ = call(*line, "json")
    result = json.loads(out)
    jsonschema.validate(result, SCHEMA, jsonschema.Draft202012Validator)
    (check,), (used, unused) = result["checks"], result["waivers"]["waivers"]

    assert (status, result["verdict"], check["verdict"]) == (0, "waived", "waived")
    was = {"verdict": "fail", "code": "beyond_limit", "severity": "error"}
    assert check["waived"] == {**was, "reason": "known, ticket 12", "expires": "2026-06-30"}
    assert (used["state"], used["covers"], used["days_left"]) == ("used", [check["id"]], 0)
    assert unused["state"] == "matches nothing"
    assert "waiver of 'eo.difference[race]' matches no check [waiver]" in call("audit", "data.parquet")[2]
    assert "::warning title=waiver of" in call(*line, "github")[1]
    (found,) = json.loads(call(*line, "sarif")[1])["runs"][0]["results"]
    assert found["suppressions"] == [
        {"kind": "external", "status": "accepted", "justification": "known, ticket 12 (until 2026-06-30)"}
    ]
    Path("fairfix.toml").write_text(config + ONE.format("2026-06-29"))
    status, out, _ = call(*line, "json")
    assert (status, json.loads(out)["waivers"]["waivers"][0]["state"]) == (1, "expired")


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


def test_saved_counts_know_all_of_this() -> None:
    """An audit of counts has baseline, waivers, hidden groups and profiles like one of rows."""
    rng = np.random.default_rng(3)
    race = rng.choice(["a", "b", "few", "more"], 4000, p=[0.5, 0.4, 0.002, 0.098])
    sex = rng.choice(["f", "m"], 4000).tolist()
    table = pa.table({"race": race.tolist(), "prediction": rng.integers(0, 2, 4000), "sex": sex})
    about: dict[str, Any] = {**ABOUT, "protected": ["race", "sex"], "suppress_below": 20}
    result = fairfix.audit(
        fairfix.count(table, **about),
        suppress_below=20,
        profile="ll144",
        baseline=fairfix.audit(table, **about),
        check=["dp.difference.change<=0.2", "dp.difference<=0.0001"],
        waivers=[{"check": "dp.difference", "reason": "known", "expires": "2027-01-01"}],
        today=date(2026, 6, 30),
    ).to_dict()
    verdicts = {
        of: {one["verdict"] for one in result["checks"] if one["of"] == of} for of in ("value", "change")
    }

    assert {block["attribute"] for block in result["attributes"]} == {"race", "sex", "race x sex"}
    assert '"few"' not in json.dumps(result)
    assert verdicts["value"] == {"waived"}
    assert verdicts["change"] <= {"pass", "undecided"}
