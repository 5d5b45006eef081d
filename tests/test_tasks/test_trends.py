"""A trend has the numbers of its audits in the order of time; what is not the same question is never joined."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import fairfix
import numpy as np
import pandas as pd
import pytest
from fairfix.errors import DataError
from fairfix.report import FORMATS
from fairfix.schema.trend import Line, Trend
from fairfix.tasks.result import load_result

from tests.conftest import Call
from tests.results import FILES, rendered

pytestmark = pytest.mark.usefixtures("away")
CHECK = "dp.difference<=0.2"
ASKED: dict[str, Any] = {"protected": ["race", "sex"], "label": "y", "score": "score", "check": CHECK}


def people(seed: int, gap: float = 0.0) -> pd.DataFrame:
    """Return people of whom those of race b score lower by a gap."""
    rng = np.random.default_rng(seed)
    race, score = rng.choice(["a", "b"], 900), rng.random(900)
    score = np.clip(score - gap * (race == "b"), 0, 1)
    return pd.DataFrame(
        {"race": race, "sex": rng.choice(["f", "m"], 900), "y": (rng.random(900) < score) * 1, "score": score}
    )


def saved(name: str, rows: pd.DataFrame, date: str = "", **asked: Any) -> Any:
    """Save an audit; return it."""
    made = fairfix.audit(rows, **{**ASKED, **asked}, record={"date": date} if date else {})
    made.save(f"{name}.json")
    return made


def trend(*names: str) -> Trend:
    content = fairfix.load(*(f"{name}.json" for name in names)).content
    assert isinstance(content, Trend)
    return content


def line_of(made: Trend, attribute: str = "race") -> Line:
    return next(one for one in made.lines if one.attribute == attribute and one.check == CHECK)


def test_it_has_the_numbers_of_the_audits_in_the_order_of_their_dates() -> None:
    """However the files are given, with the first audit whose verdict is another, and the change since the first."""
    gaps = {"x": ("2024-03", 0.4), "a": ("2024-01", 0.0), "k": ("2024-02", 0.0), "b": ("2024-04", 0.45)}
    made = {name: saved(name, people(i, gap), day) for i, (name, (day, gap)) in enumerate(gaps.items())}
    order = ["a", "k", "x", "b"]

    for given in (order, ["b", "a", "x", "k"]):
        made_ = trend(*given)
        assert [one.file for one in made_.moments] == [f"{name}.json" for name in order]
        assert made_.order == "date"
        for attribute in ("race", "sex"):
            line = line_of(made_, attribute)
            audits = [made[name].content for name in order]
            checks = [next(c for c in one.checks if c.attribute == attribute) for one in audits]
            assert [(o.value, o.low, o.high, o.verdict, o.groups) for o in line.series] == [
                (c.value, c.low, c.high, c.verdict, c.groups) for c in checks
            ]
        race = line_of(made_)
        assert [one.verdict for one in race.series] == ["pass", "pass", "fail", "fail"]
        assert race.changed == 3
        assert line_of(made_, "sex").changed is None
        assert race.change is not None
        assert race.change.value == pytest.approx(race.series[-1].point - race.series[0].point)
        assert made_.next_step is not None
        assert made_.next_step.command.endswith("x.json")


@pytest.mark.parametrize("dates", [("2024-01", ""), ("2024-02", "2024"), ("May", "April")])
def test_without_dates_of_one_form_the_order_is_that_given(dates: tuple[str, str]) -> None:
    saved("one", people(0), dates[0])
    saved("two", people(1), dates[1])

    made = trend("one", "two")

    assert made.order == "given"
    assert [one.file for one in made.moments] == ["one.json", "two.json"]


OTHERS: dict[str, tuple[Any, dict[str, Any]]] = {
    "confidence": (None, {"confidence": 0.9}),
    "threshold": (None, {"threshold": 0.6}),
    "label": (lambda d: d.assign(y=np.where(d["y"] == 1, "no", "yes")), {"label": "y=yes"}),
    "column of the score": (lambda d: d.rename(columns={"score": "other"}), {"score": "other"}),
    "column of the label": (lambda d: d.rename(columns={"y": "z"}), {"label": "z"}),
    "groups": (lambda d: d.assign(race=d["race"].where(np.arange(900) > 50, "c")), {}),
    "attribute": (None, {"protected": ["sex"]}),
    "weights": (lambda d: d.assign(w=2.0), {"weight": "w"}),
    "hidden groups": (None, {"suppress_below": 20}),
    "looks": (None, {"always_valid": True}),
}
"""Audits that ask another question than the last one: how their rows are changed, and their parameters."""


@pytest.mark.parametrize("name", OTHERS)
def test_another_question_is_never_joined(name: str) -> None:
    """Its value is undefined with a reason, it takes no part in changes, and the report says so."""
    change, asked = OTHERS[name]
    rows = people(0)
    saved("other", rows if change is None else change(rows), "2024-01", **asked)
    saved("early", people(1), "2024-02")
    saved("late", people(2, 0.4), "2024-03")

    made = trend("other", "early", "late")
    line = line_of(made)

    assert made.moments[0].not_comparable
    assert line.series[0].value is None
    assert line.series[0].reason
    assert line.series[0].verdict is None
    assert line.change is not None
    assert line.change.old.value == line.series[1].value
    assert line.changed == 3
    assert all("other.json" not in one.file for one in made.moments if not one.not_comparable)


def test_another_limit_has_the_number_without_a_verdict() -> None:
    """The number of the gap is the same question; the verdict on another limit is not."""
    saved("other", people(0), check="dp.difference<=0.9")
    saved("late", people(1, 0.4))

    line = line_of(trend("other", "late"))

    assert line.series[0].value is not None
    assert [one.verdict for one in line.series] == [None, "fail"]
    assert line.changed is None
    assert [one.id for one in trend("other", "late").moments[0].not_comparable] == ["dp.difference<=0.9"] * 2


def test_an_undefined_number_stays_undefined() -> None:
    """A rate of no rows is null with its reason in the trend too, and no change starts from it."""
    none = people(0).assign(y=lambda d: d["y"].where(d["race"] == "a", 0))
    asked = {"check": "tpr.difference<=0.2"}
    for name, rows in {"none": none, "early": people(1), "late": people(2)}.items():
        saved(name, rows, **asked)

    line = next(one for one in trend("none", "early", "late").lines if one.check and one.attribute == "race")

    assert line.series[0].value is None
    assert line.series[0].reason
    assert line.change is not None
    assert line.change.old.value == line.series[1].value


def test_it_is_a_result_like_others(call: Call) -> None:
    """Every format without checks renders it, also when it is read back; those of CI refuse it."""
    for i in range(3):
        saved(f"r{i}", people(i, 0.2 * i))
    status, text, _ = call("report r0.json r1.json r2.json --format json")
    Path("trend.json").write_text(text)

    assert status == 0
    assert load_result("trend.json") == trend("r0", "r1", "r2")
    for name in {*FILES} - {"junit", "github", "comment", "sarif"}:
        assert "r1" in rendered(name, load_result("trend.json"))
    assert rendered("html", load_result("trend.json")).count("<svg") >= 2
    for name in {*FORMATS} & {"junit", "github", "comment", "sarif"}:
        assert call(f"report r0.json r1.json --format {name}")[0] == 2


def test_what_is_no_audit_is_refused_by_its_name(call: Call) -> None:
    """So is a file that is broken or not there, or an audit given twice; nothing is written."""
    saved("one", people(0))
    saved("late", people(1))
    content = json.loads(Path("one.json").read_text())
    Path("copy.json").write_text(json.dumps(content))
    content["verdict"] = "fail"
    Path("broken.json").write_text(json.dumps(content))
    Path("half.json").write_text(Path("one.json").read_text()[:400])
    fairfix.slices(people(0), label="y", score="score", features=["sex"]).save("slices.json")

    for name in ("copy", "broken", "half", "gone", "slices"):
        said = call.refused(f"report one.json {name}.json late.json --out html=page.html")
        assert f"{name}.json" in said
        assert "fairfix trend of" not in Path("page.html").read_text()
    assert call("report one.json one.json")[0] == 2


def test_equal_numbers_at_two_dates_are_two_audits() -> None:
    """The date tells the second from a copy."""
    saved("may", people(0), "2024-05")
    saved("june", people(0), "2024-06")

    line = line_of(trend("may", "june"))

    assert line.change is not None
    assert line.change.value == 0
    with pytest.raises(DataError):
        trend("may", "may")
