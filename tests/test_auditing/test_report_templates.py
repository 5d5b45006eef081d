"""Profiles: the tables of rules and guidance, recomputed by hand from the rows."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import fairfix
import jsonschema
import numpy as np
import pandas as pd
import pytest
from fairfix.auditing.report_templates import NO_LAW, TITLES, mantel_haenszel, shortfall, two_rates
from fairfix.errors import UsageError
from scipy import stats

from tests.results import rendered
from tests.test_auditing.test_gates import SCHEMA

ROOT = Path(__file__).parents[2]
LOANS = ROOT / "sample_data" / "loans.parquet"

DECIDED: dict[str, Any] = {"protected": "race", "prediction": "prediction"}


def audit(data: Any, profile: str, **given: Any) -> dict[str, Any]:
    """Return the result of an audit with a profile, which holds to its schema."""
    result = fairfix.audit(data, profile=profile, **given).to_dict()
    jsonschema.validate(result, SCHEMA, jsonschema.Draft202012Validator)
    return result


def table(result: dict[str, Any], title: str) -> pd.DataFrame:
    """Return one table of the profile by group, values without their intervals."""
    (found,) = [one for one in result["profile"]["tables"] if one["title"] == title]
    frame = pd.DataFrame(found["rows"]).set_index("group")
    return frame.map(lambda cell: cell["value"] if isinstance(cell, dict) else cell)


def by_hand(frame: pd.DataFrame, columns: list[str], chosen: pd.Series) -> pd.DataFrame:
    """Return Local Law 144's table as its rule says it."""
    names = frame[columns[0]].str.cat([frame[c] for c in columns[1:]], sep=" & ")
    out = chosen.groupby(names).agg(rows="size", many="sum", rate="mean")
    return out.assign(impact_ratio=out.rate / out.rate.max(), share=out.rows / len(frame))


def assert_ll144(
    result: dict[str, Any], frame: pd.DataFrame, columns: list[str], chosen: pd.Series, kind: str
) -> None:
    """Hold a table of selection or scoring rates against one made by hand."""
    many, rate = {
        "selection rates": ("selected", "selection_rate"),
        "scoring rates": ("above_median", "scoring_rate"),
    }[kind]
    found, hand = table(result, f"{' x '.join(columns)}: {kind}"), by_hand(frame, columns, chosen)

    assert found.index.tolist() == hand.index.tolist()
    for mine, theirs in (
        ("rows", "rows"),
        ("share", "share"),
        (many, "many"),
        (rate, "rate"),
        ("impact_ratio",) * 2,
    ):
        np.testing.assert_allclose(found[mine].astype(float), hand[theirs].astype(float), rtol=1e-12)
    assert "highest rate" in found.loc[hand.rate.idxmax(), "note"]


def test_ll144_tables_of_the_sample_data() -> None:
    """Sex, race and their intersection; selection rates at the threshold, scoring rates at the median."""
    frame = pd.read_parquet(LOANS)
    result = audit(LOANS, "ll144", protected=["race", "sex"])

    assert len(result["profile"]["tables"]) == 6
    for columns in (["race"], ["sex"], ["race", "sex"]):
        assert_ll144(result, frame, columns, frame.score >= 0.5, "selection rates")
        assert_ll144(result, frame, columns, frame.score > frame.score.median(), "scoring rates")


def people(**rates: tuple[int, int]) -> pd.DataFrame:
    """Return rows: so many of each group selected, so many not; the group ``unknown`` is missing."""
    rows = [(name, s) for name, (yes, no) in rates.items() for s in [1] * yes + [0] * no]
    frame = pd.DataFrame(rows, columns=["race", "prediction"])
    return frame.assign(race=frame.race.where(frame.race != "unknown"))


def test_unknown_and_small_categories() -> None:
    """Unknown is a row without ratio; small ones are left out of ratios where that is asked, and keep rows and rate."""
    frame = people(a=(300, 300), b=(200, 300), tiny=(9, 1), unknown=(20, 10))
    kept = table(audit(frame, "ll144(exclude_small=0.005)", **DECIDED), "race: selection rates")
    why = 'll144(exclude_small=0.02,reason="ten people, too few to compare")'
    result = audit(frame, why, **DECIDED)
    left = table(result, "race: selection rates")

    assert kept.loc["tiny", "impact_ratio"] == 1
    assert kept.loc["a", "impact_ratio"] == pytest.approx(0.5 / 0.9)
    assert left.loc["a", "impact_ratio"] == 1
    assert left.loc["b", "impact_ratio"] == pytest.approx(0.8)
    assert math.isnan(left.loc["tiny", "impact_ratio"])
    assert left.loc["tiny", ["rows", "selection_rate"]].tolist() == [10, pytest.approx(0.9)]
    assert "left out" in left.loc["tiny", "note"]
    for found in (kept, left):
        assert math.isnan(found.loc["(missing)", "impact_ratio"])
        assert found.loc["(missing)", ["rows", "selected", "note"]].tolist() == [30, 20, "unknown category"]
    assert any("ten people, too few to compare" in line for line in result["profile"]["lines"])


def test_ugesp_by_hand() -> None:
    """Ratio, z, Fisher's exact test and the shortfall, against scipy and arithmetic."""
    frame = people(high=(60, 40), low=(15, 35), same=(30, 20))
    found = table(audit(frame, "ugesp", **DECIDED), "race: selections")
    low = found.loc["low"]

    assert low["impact_ratio"] == pytest.approx(0.5)
    assert low["difference"] == pytest.approx(-0.3)
    assert low["shortfall"] == 15
    assert low["z"] == pytest.approx(-0.3 / math.sqrt(0.5 * 0.5 * (1 / 50 + 1 / 100)))
    assert low["p"] == pytest.approx(2 * stats.norm.sf(abs(low["z"])))
    assert low["fisher_p"] == pytest.approx(stats.fisher_exact([[15, 35], [60, 40]]).pvalue)
    assert found.loc["same", ["shortfall", "impact_ratio"]].tolist() == [0, 1]
    assert found.loc["high", "note"] == "highest rate"


def test_mantel_haenszel_against_statsmodels_formula() -> None:
    """The pooled comparison of the sample data, by the formulas of the textbook."""
    result = audit(LOANS, "ugesp", protected="race", strata="product")
    found = table(result, "race: against Asian within strata (Mantel-Haenszel)").loc["Black"]
    frame = pd.read_parquet(LOANS).query("race in ['Asian', 'Black']")
    frame = frame.assign(s=frame.score >= 0.5, g=frame.race == "Black")
    parts = [
        (len(d), (d.s & d.g).sum(), (~d.s & d.g).sum(), (d.s & ~d.g).sum(), (~d.s & ~d.g).sum())
        for _, d in frame.groupby("product")
    ]
    odds = sum(a * d / n for n, a, b, c, d in parts) / sum(b * c / n for n, a, b, c, d in parts)
    expected = sum((a + b) * (a + c) / n for n, a, b, c, d in parts)
    spread = sum((a + b) * (c + d) * (a + c) * (b + d) / (n**2 * (n - 1)) for n, a, b, c, d in parts)

    assert found["odds_ratio"] == pytest.approx(odds)
    assert found["z"] == pytest.approx((sum(p[1] for p in parts) - expected) / math.sqrt(spread))
    assert found["strata"] == 3
    assert mantel_haenszel([]) == (None, None, None)


def test_lending_by_hand() -> None:
    """Approvals and denials against the control group, which has to be named."""
    frame = people(control=(80, 20), other=(30, 30))
    found = table(audit(frame, "lending", **DECIDED, reference="race=control"), "race: approvals")

    assert found.loc["other", "adverse_impact_ratio"] == pytest.approx(0.5 / 0.8)
    assert found.loc["other", "denial_ratio"] == pytest.approx(0.5 / 0.2)
    assert found.loc["control", "note"] == "control group"
    with pytest.raises(UsageError, match="control group"):
        audit(frame, "lending", **DECIDED)


@pytest.mark.parametrize("weighted", [False, True])
def test_scores_are_compared_in_standard_deviations(weighted: bool) -> None:
    """By numpy: the difference of the means over the deviation of everybody's score."""
    frame = pd.read_parquet(LOANS).assign(w=lambda d: 1.0 + d["score"])
    more = {"weight": "w"} if weighted else {}
    result = audit(frame, "lending", protected="sex", reference="sex=male", **more)
    weight = frame["w"] if weighted else np.ones(len(frame))
    mean = {s: np.average(d["score"], weights=weight[d.index]) for s, d in frame.groupby("sex")}
    center = np.average(frame["score"], weights=weight)
    spread = math.sqrt(np.average((frame["score"] - center) ** 2, weights=weight))

    assert result["overall"]["score_deviation"] == pytest.approx(spread)
    found = table(result, "sex: approvals")["standardised_difference"]
    assert found["female"] == pytest.approx((mean["female"] - mean["male"]) / spread)
    assert found["male"] == 0


def test_a_deviation_lost_in_rounding_is_not_told() -> None:
    frame = pd.read_parquet(LOANS).assign(score=lambda d: 1e9 + d["score"])
    given = {"protected": "sex", "score_scale": "raw", "threshold": 1e9, "reference": "sex=male"}
    result = audit(frame, "lending", **given)
    assert "score_deviation" not in result["overall"]


def test_a_tiny_p_is_no_zero() -> None:
    """A probability below what is worth telling is told as smaller."""
    frame = people(control=(900, 100), other=(100, 900))
    told = rendered("markdown", audit(frame, "ugesp", **DECIDED))

    assert told.count("<1e-12") == 2


def test_eu_has_intervals_and_the_data() -> None:
    """Rows read and left out, and the same performance numbers as the audit."""
    result = audit(LOANS, "eu", protected="sex")
    sheet = result["profile"]["tables"][0]
    rows = {row["group"]: row for row in result["profile"]["tables"][1]["rows"]}

    assert sheet["rows"] == [{"what": "read", "number": 20000}, {"what": "used", "number": 20000}]
    for group in result["attributes"][0]["groups"]:
        assert rows[group["group"]]["accuracy"] == group["metrics"]["accuracy"]
    assert rows["overall"]["share"] == 1


def test_weighted_rows_have_no_tests_of_counts() -> None:
    """A sum of weights is no number of people: z and Fisher's test are left out, and it is said."""
    frame = people(a=(60, 40), b=(30, 50)).assign(w=1.5)
    result = audit(frame, "ugesp", **DECIDED, weight="w")
    found = table(result, "race: selections")

    assert not {"z", "fisher_p"} & set(found.columns)
    assert found.loc["a", "selected"] == pytest.approx(90)
    assert any("tests of counts are left out" in line for line in result["profile"]["lines"])


@pytest.mark.parametrize("name", TITLES)
def test_profiles_are_rendered_and_judge_nothing(name: str) -> None:
    """Every table is in every format for people, what fairfix does not do is said, and nothing is gated."""
    result = audit(people(a=(60, 40), b=(30, 50)), name, **DECIDED, reference="race=a")
    for kind in ("text", "markdown", "html", "json"):
        text = " ".join(rendered(kind, result).split())

        assert NO_LAW in text
        assert not [word for word in ("compliant", "PASS", "FAIL") if word in text]


@pytest.mark.parametrize(
    ("profile", "said"),
    [
        ("ll145", "ll144"),
        ("ugesp(exclude_small=0.02)", "exclude_small"),
        ("ll144(exclude_small=0.03)", "exclude_small"),
        ("ll144(reason=few)", "exclude_small"),
        ("ll144(", "ll144"),
        ("ugesp", "needs decisions"),
    ],
)
def test_profiles_are_refused_where_they_mean_nothing(profile: str, said: str) -> None:
    """So is one of decisions where there are none."""
    frame = people(a=(60, 40), b=(30, 50)).rename(columns={"prediction": "s"})
    with pytest.raises(UsageError, match=said):
        audit(frame, profile, protected="race", score="s", score_scale="raw")


def test_hidden_groups_are_in_no_profile() -> None:
    """A profile is made of what the report shows."""
    frame = people(a=(60, 40), b=(30, 50), few=(3, 2), more=(20, 5))
    result = audit(frame, "ugesp", **DECIDED, suppress_below=10)

    assert set(table(result, "race: selections").index) == {"a", "b", "more"}


def test_small_arithmetic() -> None:
    """Nothing to compare gives nothing; a shortfall is whole people, none where there is none."""
    assert two_rates(0, 10, 0, 10) == (None, None)
    assert two_rates(1, 0, 1, 10) == (None, None)
    assert (shortfall(30, 50, 0.6), shortfall(29, 50, 0.6), shortfall(40, 50, 0.6)) == (0, 1, 0)
