"""The answer that a report opens with: its numbers are those of the result, and its words are true of them."""

from __future__ import annotations

import json
import math
import re
from functools import cache
from html import unescape
from typing import Any

import fairfix
import numpy as np
import pyarrow as pa
import pytest
from fairfix.auditing.audit import audit
from fairfix.auditing.checks import Check
from fairfix.auditing.comparisons import Comparison
from fairfix.auditing.metrics import METRICS
from fairfix.auditing.results import Settings
from fairfix.data.data_spec import ColumnRoles, DataSpec
from fairfix.report import figures
from fairfix.report.answer import (
    CUT,
    NOT_CHECKED,
    ORDER,
    SURER,
    Amounts,
    Stated,
    answer,
    between_whom,
    judgement,
    leading_check,
    rows_to_decide,
    sides,
    statement,
)
from fairfix.report.layout import MARKS, points
from fairfix.schema.audit import Audit
from fairfix.schema.common import SavedCheck as SavedCheck
from fairfix.schema.common import SavedComparison as SavedComparison
from fairfix.schema.common import estimate
from hypothesis import given
from hypothesis import strategies as st
from msgspec import convert

from tests.results import audit_dict, rendered, struct
from tests.test_report.test_report import READINGS, result_of

NUMBER = r"-?\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?"


def read(text: str) -> list[float]:
    """Return the numbers of a text."""
    return [float(one.replace(",", "")) for one in re.findall(NUMBER, text)]


@cache
def audited(*checks: str, n: int = 4000, gap: float = 0.2, **settings: Any) -> str:
    """Return the JSON of an audit of three groups, of which ``c`` is selected more often by ``gap`` than ``a``."""
    rng = np.random.default_rng(1)
    group = rng.integers(0, 3, n)
    score = np.clip(rng.random(n) + gap * (group - 1) / 2, 0, 1)
    data = {
        "g": pa.array([("a", "b", "c")[i] for i in group]),
        "label": pa.array((rng.random(n) < score).astype(int)),
        "score": pa.array(score),
    }
    data_spec = DataSpec(ColumnRoles(("g",), label="label", score="score"))
    chosen = Settings(checks=tuple(map(Check.parse, checks)), **settings)
    return json.dumps(audit_dict(audit(data, data_spec, chosen)))


def result(*checks: str, **settings: Any) -> dict[str, Any]:
    """Return an audit of three groups."""
    out: dict[str, Any] = json.loads(audited(*checks, **settings))
    return out


def audit_of(content: dict[str, Any]) -> Audit:
    """Return an audit from its JSON form."""
    made = struct(content)
    assert isinstance(made, Audit)
    return made


CHECK = {
    "check": "dp.difference<=0.1",
    "id": "x",
    "of": "value",
    "attribute": "g",
    "columns": ["g"],
    "verdict": "undecided",
    "severity": "warning",
    "reason": "x",
    "gate_on": "interval",
    "complete": True,
    "operator": "<=",
    "groups": [],
}
"""What a check has besides its number."""


def as_check(entry: dict[str, Any]) -> SavedCheck:
    """Return a check from its JSON form."""
    return convert({**CHECK, **entry}, SavedCheck)


def stated(entry: dict[str, Any], attribute: str, stratum: str = "") -> Stated:
    """Return a comparison from its JSON form, as sentences speak of it."""
    return Stated.from_comparison(convert(entry, SavedComparison), attribute, stratum)


@given(
    value=st.builds(lambda x, k: x / 10**k, st.integers(-99, 99), st.integers(0, 4)),
    away=st.builds(lambda x, k: x / 10**k, st.integers(1, 99), st.integers(2, 5)),
    percent=st.booleans(),
)
def test_a_number_never_reads_as_its_limit_or_as_zero(value: float, away: float, percent: bool) -> None:
    """Rounding keeps a number on its side of the limit, and what is not 0 does not read as 0."""
    limit = value + away
    amounts = Amounts.of((value,), percent=percent, apart=(value, limit))
    shown, bound = (read(amounts.bare(one))[0] for one in (value, limit))

    assert (shown < bound) == (value < limit)
    assert (shown == 0) == (value == 0)
    assert shown == pytest.approx(
        value * (100 if percent else 1), abs=0.51 if percent else 0.006 * max(1, abs(value))
    )


@pytest.mark.parametrize("name", READINGS)
def test_every_comparison_is_said_with_its_own_numbers(name: str) -> None:
    """Value and interval are in the sentence; an undefined value is said to be, with the reason."""
    of = result_of(name)
    for block in (*of["attributes"], *of["strata"]):
        for one in block["comparisons"]:
            text = statement(stated(one, block["attribute"], block.get("stratum", "")), audit_of(of))
            assert text.endswith(".")
            if one["value"] is None:
                assert f"is undefined: {one['reason']}" in text
                continue
            entry = Comparison.parse(one["id"])
            factor = 100 if entry.entry.percent and entry.kind not in ("ratio", "covariance") else 1
            numbers = [abs(x) for x in read(text)]
            for part in ("value", "low", "high"):
                if one[part] is not None:
                    wanted = abs(factor * one[part])
                    nearest = min(abs(x - wanted) for x in numbers)
                    assert nearest <= 0.01 * wanted + 0.5 * (factor > 1) + 0.005, (text, wanted)


@pytest.mark.parametrize("name", READINGS)
def test_the_smaller_side_stands_first(name: str) -> None:
    """The two sides of a difference are that difference apart; of a ratio the first divided by the second is it."""
    of, seen = result_of(name), 0
    for block in (*of["attributes"], *of["strata"]):
        for one in block["comparisons"]:
            comparison = Comparison.parse(one["id"])
            two = sides(stated(one, block["attribute"], block.get("stratum", "")), audit_of(of))
            if two is None or one["value"] is None or comparison.kind not in ("difference", "ratio"):
                continue
            seen += 1
            (_, low), (_, high) = two.low, two.high
            assert low <= high
            gap = high - low if comparison.kind == "difference" else low / high if high else 1.0
            assert gap == pytest.approx(one["value"], abs=1e-6 + one.get("bound", 0))
    assert seen > 5


def test_equalized_odds_name_the_rate_that_differs_more() -> None:
    """Of the two rates, the one whose gap is the number."""
    of = result()
    block = of["attributes"][0]
    gaps = {c["id"]: c for c in block["comparisons"]}
    for kind, worse in (("difference", max), ("ratio", min)):
        one = gaps[f"equalized_odds.{kind}.between_groups"]
        rates = ("true_positive_rate", "false_positive_rate")
        rate = worse(rates, key=lambda name: gaps[f"{name}.{kind}.between_groups"]["value"])
        two = sides(stated(one, "g"), audit_of(of))
        assert two
        assert two.phrase == METRICS[rate].phrase


def test_every_metric_has_a_phrase_of_its_own() -> None:
    """A sentence says what is compared, and no two metrics are the same words."""
    phrases = [metric.phrase for metric in METRICS.values()]

    assert len(set(phrases)) == len(phrases)
    assert all(phrase.startswith("the ") for phrase in phrases)


@pytest.mark.parametrize("percent_limit", [5, 15, 20, 35])
@pytest.mark.parametrize("gate_on", ["interval", "point"])
def test_the_limit_is_on_the_side_that_is_said(percent_limit: int, gate_on: Any) -> None:
    """Above, within or inside: as the numbers of the check are."""
    of = result(f"dp.difference<={percent_limit / 100}", gate_on=gate_on)
    (check,) = of["checks"]
    text = judgement(as_check(check), 4000)
    low, high = (check["value"],) * 2 if gate_on == "point" else (check["low"], check["high"])

    assert ("whole interval exceed your limit" in text or "This exceeds your limit" in text) == (
        low > check["limit"]
    )
    assert ("whole interval meet your limit" in text or "This meets your limit" in text) == (
        high <= check["limit"]
    )
    assert ("so this is undecided" in text) == (low <= check["limit"] < high)
    assert f"limit of {percent_limit} points" in text
    assert ("only the value is checked" in text) == (gate_on == "point")


@given(
    value=st.floats(0.01, 0.9),
    limit=st.floats(0.0, 1.0),
    below=st.floats(0.001, 0.5),
    above=st.floats(0.001, 0.5),
    rows=st.integers(50, 10**6),
)
def test_so_many_rows_decide(value: float, limit: float, below: float, above: float, rows: int) -> None:
    """With half the rows named, and an interval narrower by their root, the check is decided; with a third, not."""
    low, high = value - below, value + above
    check = {
        "value": value,
        "low": low,
        "high": high,
        "limit": limit,
        "code": "limit_inside",
        "comparison": "selection_rate.difference.between_groups",
        "of": "value",
    }
    needed = rows_to_decide(as_check(check), rows)
    if needed is None or not low < limit < high:
        return
    own = Check.parse(f"dp.difference<={limit!r}") if limit >= 1e-4 else None
    if own is None:
        return

    def verdict(many: float) -> str:
        shrunk = math.sqrt(rows / many)
        narrow = estimate(value, value - shrunk * below, value + shrunk * above)
        return own.judge(narrow, complete=True, gate_on="interval").verdict

    assert verdict(1.001 * needed / SURER) != "undecided"
    if low in CUT or high in CUT:  # the interval may have been cut off there, so more rows are named
        return
    assert needed <= rows + 1 or verdict(needed / (1.5 * SURER)) == "undecided" or needed / 3 < rows


def test_a_value_at_its_limit_has_no_number_of_rows() -> None:
    """Nor has an open end, a group without a value, or a change."""
    (check,) = result("dp.difference<=0.2")["checks"]
    assert check["code"] == "limit_inside"
    assert rows_to_decide(as_check(check), 4000)

    for change in (
        {"limit": check["value"]},
        {"high": None, "limit": 0.99},
        {"code": "group_undefined"},
        {"of": "change"},
    ):
        assert rows_to_decide(as_check({**check, **change}), 4000) is None


@pytest.mark.parametrize(("comparison", "limit"), [("dp.difference", 0.01), ("dp.ratio", 0.99)])
def test_an_end_that_the_scale_cuts_off_tells_no_width(comparison: str, limit: float) -> None:
    """The other end does; where both are cut off, there is no number."""
    (check,) = result(f"{comparison}{'<=' if limit < 0.5 else '>='}{limit}", gap=0.02)["checks"]
    value, cut = check["value"], 0.0 if limit < 0.5 else 1.0
    side = "high" if limit < 0.5 else "low"
    near = {**check, "code": "limit_inside", "low": 0.0, "high": 1.0, side: check[side]}
    limit_between = {**near, "limit": (value + cut) / 2}

    assert (rows_to_decide(as_check(limit_between), 4000) or 0) > 1.5 * SURER * 4000
    assert rows_to_decide(as_check({**limit_between, "low": 0.0, "high": 1.0}), 4000) is None


def test_of_checks_that_pass_the_nearest_to_its_limit_is_said() -> None:
    """The worst attribute is the one that is furthest beyond its limit, or least within it."""
    (check,) = result("dp.difference<=0.9")["checks"]
    worse = {**check, "attribute": "h", "value": check["value"] + 0.1, "high": 1.0}

    two = as_check(check), as_check(worse)
    for checks in (two, two[::-1]):
        assert leading_check(checks) is two[1]


def test_nothing_is_judged_without_limits() -> None:
    text = " ".join(answer(audit_of(result())))

    assert NOT_CHECKED in text
    assert "limit of" not in text
    assert "for a and" in text
    assert "there may be no difference" not in text
    assert "there may be no difference" in " ".join(answer(audit_of(result(gap=0.0))))


def test_verdicts_stand_by_attribute_where_there_are_several() -> None:
    """A row per attribute, a column per check, as the checks have them."""
    of = result_of("plain")
    page = (
        rendered("html", of).partition("<caption>Verdicts by attribute</caption>")[2].partition("</table>")[0]
    )

    for check in of["checks"]:
        row = page.partition(f">{check['attribute']}</th>")[2].partition("</tr>")[0]
        assert f'class="mark {check["verdict"]}"' in row
    assert "Verdicts by attribute" not in rendered("text", result("dp.difference<=0.1", "ks<=0.1"))


def test_the_highest_is_so_called_where_all_are_shown() -> None:
    of = result()
    block = of["attributes"][0]
    one = next(c for c in block["comparisons"] if c["id"] == "selection_rate.difference.between_groups")
    shown = between_whom(stated(one, "g"), audit_of(of))
    of["suppressed"] = {"below": 20, "left_out": []}

    assert re.fullmatch(r"a \.\d{3} against c \.\d{3} \(highest\)", shown)
    assert between_whom(stated(one, "g"), audit_of(of)).endswith("(highest shown)")


@pytest.mark.parametrize("width", [60, 80, 100])
@pytest.mark.parametrize("name", READINGS)
def test_text_fits_its_width(name: str, width: int) -> None:
    """No line is wider, and every interval of a headline stands in one line."""
    of = result_of(name)
    text = rendered("text", of, width=width)

    assert max(map(len, text.splitlines())) <= width
    for block in of["attributes"]:
        for group in block["groups"]:
            for metric in ("selection_rate", "accuracy", "auc"):
                value = group["metrics"].get(metric, {}).get("value")
                assert value is None or f"{value:.4f}" in text
        gap = next((c for c in block["comparisons"] if c["id"] == "ks.between_groups"), None)
        if gap and gap["low"] is not None:
            assert f"[{gap['low']:.3f}, {gap['high']:.3f}]" in text


def test_every_format_for_people_opens_with_the_answer() -> None:
    of = result("dp.difference<=0.05")
    (first,) = answer(audit_of(of))
    for name in ("text", "markdown", "html"):
        text = re.sub(r"</?[a-z!][^>]*>|\\", "", rendered(name, of))
        words = " ".join(text.partition("fairfix audit of")[2].split())
        assert first.split(":")[0] in words
        assert words.index(first.split(":")[0]) < words.index("the whole interval lies")


@pytest.mark.parametrize(
    ("check", "beyond"), [("dp.difference<=0.13", 1), ("dp.ratio>=0.5", 0), ("dp.ratio>=0.99", 2)]
)
def test_a_limit_is_drawn_that_far_from_the_best_group(check: str, beyond: int) -> None:
    """So many groups lie on the far side of the dashed line as are further from the highest than the limit allows."""
    of = result(check)
    rates = {g["group"]: g["metrics"]["selection_rate"]["value"] for g in of["attributes"][0]["groups"]}
    limit, best = of["checks"][0]["limit"], max(rates.values())
    apart = [best - r > limit if "difference" in check else r / best < limit for r in rates.values()]
    panel = rendered("html", of).partition(">selection rate by g</title>")[2].partition("</svg>")[0]
    (line,) = set(re.findall(r'<line x1="([\d.]+)"[^>]*stroke-dasharray="5 3"', panel))
    dots = [float(x) for x in re.findall(r'<circle cx="([\d.]+)"', panel)]

    assert len(dots) == 3
    assert sum(x < float(line) for x in dots) == sum(apart) == beyond
    assert dots == sorted(dots)  # the group that fares worst stands first


@pytest.mark.parametrize("unit", [1e-9, 1e-3, 1e6, 1e9])
def test_losses_in_any_unit_are_read_with_three_digits(unit: float) -> None:
    """In sentences and tables: neither a row of zeros nor a dozen digits, of which three are known."""
    rng = np.random.default_rng(0)
    group, x = rng.choice(["a", "b"], 400), rng.normal(size=400)
    y, score = (unit * (x + (group == "a") + noise) for noise in (rng.normal(size=400), 0.0))
    rows = pa.table({"g": group, "y": y, "score": score, "id": np.arange(400)})
    asked: dict[str, Any] = {"method": "fair-regression", "task": "regression", "group": "used"}
    result = fairfix.repair(rows, protected="g", label="y", id="id", **asked).to_dict()
    text = rendered("text", result)

    number = r"(-?[\d.]+(?:e[+-]\d+)?)"
    table = {row["id"]: row for row in result["proof"]["holdout"]["table"]}
    row, said = table["square_loss"], re.search(rf"[Ss]quare loss \w+ from {number} to {number} \(", text)
    assert said is not None
    for word, when in zip(said.groups(), ("before", "after"), strict=True):
        assert float(word) == pytest.approx(row[when]["value"], rel=5e-3)
    line = re.findall(r"\n\| square loss .*\| ([+-]\S+) \[", rendered("markdown", result))[0]
    assert float(line) == pytest.approx(row["change"]["value"], rel=5e-3)
    assert not re.search(r"\d{7}", text[: text.index("Data and settings")])
    assert "decisions are randomized" not in text  # a regression has none

    audited = fairfix.audit(rows, protected="g", label="y", score="score", task="regression").to_dict()
    page, groups = rendered("markdown", audited), audited["attributes"][0]["groups"]
    heads = re.findall(r"\n\| (group \| .*) \|\n", page)[0].split(" | ")
    for group in groups:
        cells = re.findall(rf"\n\| ({group['group']} \| .*) \|\n", page)[0].split(" | ")
        loss = group["metrics"]["square_loss"]["value"]
        assert float(cells[heads.index("square loss")]) == pytest.approx(loss, rel=5e-3)
    means = {one["group"]: one["metrics"]["mean_score"]["value"] for one in groups}
    between = re.findall(rf"\n\| mean score difference .*\b(\w) {number} against (\w) {number}", page)[0]
    for name, mean in zip(between[::2], between[1::2], strict=True):
        assert float(mean) == pytest.approx(means[name], rel=0.2)  # of three decimals, or three digits


@given(st.floats(-1.0, 1.0).filter(lambda change: abs(change) > 1e-9))
def test_an_end_of_a_change_has_its_sign(change: float) -> None:
    """So no interval of what surely shrinks is read as one that reaches 0."""
    assert float(points(change, sign=True).split()[0]) * change > 0


def test_means_that_round_alike_are_told_apart() -> None:
    """Who rises most rises in the sentence too, where a change is small beside the labels."""
    rng = np.random.default_rng(0)
    group, x = rng.choice(["a", "b"], 400), rng.normal(size=400)
    y = 1e6 + x + (group == "a")
    rows = pa.table({"g": group, "y": y, "score": y, "id": np.arange(400)})
    asked: dict[str, Any] = {"method": "fair-regression", "task": "regression", "group": "used"}
    text = rendered("text", fairfix.repair(rows, protected="g", label="y", id="id", **asked).to_dict())
    pairs = re.findall(r"most:\s+its\s+mean\s+(rises|falls)\s+from\s+(\S+)\s+to\s+([^\s;]+\d)", text)

    assert {way for way, *_ in pairs} == {"rises", "falls"}
    for way, before, after in pairs:
        assert (float(after) > float(before)) == (way == "rises")
        assert float(after) != float(before)


@cache
def crossed(*checks: str) -> str:
    """Return the JSON of an audit by two columns and their intersections, whose largest group is an average one."""
    rng = np.random.default_rng(2)
    rows = pa.table(
        {
            "a": rng.choice([*"uvwxyz"], 6000, p=[0.5, 0.1, 0.1, 0.1, 0.1, 0.1]),
            "b": rng.choice(["m", "n"], 6000),
            "label": rng.integers(0, 2, 6000),
            "score": rng.random(6000),
        }
    )
    frame = rows.to_pandas()
    frame.loc[(frame["a"] == "z") & (frame["b"] == "n"), "score"] *= 0.4
    return fairfix.audit(frame, protected=["a", "b"], intersect=True, check=list(checks)).to_json()


@pytest.mark.parametrize(
    "checks", [(), ("dp.difference<=0.2",), ("dp.difference[a]<=0.2",), ("dp.difference<=0.2", "ks<=0.9")]
)
def test_every_attribute_has_a_line_of_the_answer(checks: tuple[str, ...]) -> None:
    """One that names its worst-off group, value and ends, and begins with its worst verdict, if it is checked."""
    of = json.loads(crossed(*checks))
    verdicts: dict[str, list[str]] = {}
    for check in of["checks"]:
        verdicts.setdefault(check["attribute"], []).append(check["verdict"])
    lines = answer(audit_of(of))
    worst = []
    for block in of["attributes"]:
        (line,) = (one for one in lines if f"y {block['attribute']}, " in one)
        (gap,) = (c for c in block["comparisons"] if c["id"] == "selection_rate.difference.between_groups")
        own = sorted(verdicts.get(block["attribute"], []), key=ORDER.index)
        assert line.partition(":")[0] == MARKS[own[0]] if own else line.startswith("By")
        assert all(f"{100 * gap[end]:.0f}" in line for end in ("value", "low", "high") if gap[end] > 0.1)
        assert f"for {gap['groups'][-1]} and" in line
        worst.append((ORDER.index(own[0]) if own else len(ORDER), lines.index(line)))
    assert [place for _, place in sorted(worst)] == sorted(place for _, place in worst)
    for name in ("text", "markdown", "html"):
        text = " ".join(re.sub(r"</?[a-z!][^>]*>|\\", " ", rendered(name, of)).split())
        first = [text.index(f"y {block['attribute']}, ") for block in of["attributes"]]
        assert max(first) < text.index("accuracy")


def test_the_contents_and_the_folds_of_a_page_show_verdicts_and_gaps() -> None:
    """Each attribute has its worst verdict in the list, and its gap there and on its fold."""
    of = json.loads(crossed("dp.difference<=0.2", "ks<=0.9"))
    page = rendered("html", of)
    contents = page.partition("<nav")[2].partition("</nav>")[0]
    for block in of["attributes"]:
        own = [one["verdict"] for one in of["checks"] if one["attribute"] == block["attribute"]]
        entry = contents.partition(f">{block['attribute']}</a>")[2].partition("</li>")[0]
        (gap,) = (c for c in block["comparisons"] if c["id"] == "selection_rate.difference.between_groups")
        assert f'class="mark {min(own, key=ORDER.index)}"' in entry
        assert f"{gap['value']:.4f}" in entry
        folds = re.findall(r"<summary>(.*?)</summary>", page, re.DOTALL)
        (fold,) = (one for one in folds if f"{gap['value']:.4f} [{gap['low']:.3f}" in one)
        assert all(name in unescape(fold) for name in gap["groups"])


def test_the_worst_groups_are_drawn_and_not_the_largest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of more groups than a picture can hold, those of the largest gap are in it."""
    of = json.loads(crossed())
    block = of["attributes"][-1]
    (gap,) = (c for c in block["comparisons"] if c["id"] == "selection_rate.difference.between_groups")
    monkeypatch.setattr(figures, "MOST_GROUPS", 2)
    page = rendered("html", of).partition("</strong>")[2]
    pictures = re.findall(r"<title[^>]*>selection rate by a x b</title>.*?</svg>", page, re.DOTALL)
    drawn = set(re.findall(r">([u-z] &amp; [mn])</text>", pictures[-1]))

    assert {unescape(name) for name in drawn} == set(gap["groups"])
    assert not drawn & {"u &amp; m", "u &amp; n"}
