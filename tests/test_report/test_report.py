"""Reports: the JSON holds to its schema, and the other formats say what it says."""

from __future__ import annotations

import html
import json
import math
import re
from copy import deepcopy
from functools import cache
from itertools import pairwise
from typing import Any

import fairfix
import jsonschema
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from fairfix.auditing.audit import audit
from fairfix.auditing.checks import Check
from fairfix.auditing.results import Settings
from fairfix.data.data_spec import ColumnRoles, DataSpec
from fairfix.report import FORMATS, json_
from fairfix.report.layout import HEADLINES, layout
from fairfix.report.words import UNSEEN_IN_LINES, as_json, as_options, readable
from fairfix.schema import json_schema
from hypothesis import example, given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from tests.results import audit_dict, rendered, struct
from tests.strategies import examples

SETTINGS = Settings(
    intersect=True,
    checks=(Check.parse("dp.difference<=0.01"), Check.parse("eo.difference<=0.9"), Check.parse("ks<=0.2")),
)


def rows(n: int = 500, seed: int = 0) -> dict[str, Any]:
    """Return data with a group that has no positives and names that tempt markup."""
    rng = np.random.default_rng(seed)
    race = rng.choice(["a|b", "<i>c</i>", "d_e*f"], n)
    label = np.where(race == "d_e*f", 0, rng.integers(0, 2, n))
    return {
        "race": pa.array(race.tolist()),
        "sex": pa.array(rng.choice(["f", "m"], n).tolist()),
        "product": pa.array(rng.choice(["car", "home"], n).tolist()),
        "label": pa.array(label),
        "score": pa.array(rng.random(n)),
        "weight": pa.array(rng.random(n) + 0.5),
    }


READINGS = {
    "plain": DataSpec(ColumnRoles(("race", "sex"), label="label", score="score")),
    "strata": DataSpec(ColumnRoles(("race",), label="label", score="score", strata=("product",))),
    "weights": DataSpec(ColumnRoles(("race",), label="label", score="score", weight="weight")),
    "no labels": DataSpec(ColumnRoles(("race",), score="score")),
    "decisions": DataSpec(ColumnRoles(("race",), label="label", prediction="label2")),
    "positive": DataSpec(ColumnRoles(("race",), label="label", score="score"), positive_label=("0",)),
    "raw": DataSpec(ColumnRoles(("race",), label="label", score="score"), score_scale="raw"),
    "regression": DataSpec(ColumnRoles(("race",), label="weight", score="score"), task="regression"),
}


@cache
def audited(name: str, exact: bool) -> dict[str, Any]:
    """Return the JSON form of an audit, which is made once."""
    settings = SETTINGS if name == "plain" else Settings(exact=exact)
    return audit_dict(audit({**rows(), "label2": rows()["label"]}, READINGS[name], settings))


def result_of(name: str, *, exact: bool = True) -> dict[str, Any]:
    """Return the JSON form of an audit, to be changed at will."""
    return deepcopy(audited(name, exact))


@pytest.mark.slow
@pytest.mark.parametrize("name", READINGS)
@pytest.mark.parametrize("exact", [True, False])
def test_every_audit_holds_to_the_schema(name: str, exact: bool) -> None:
    """The shipped JSON Schema accepts what the audit writes, whatever it is given."""
    schema = json_schema("audit")
    jsonschema.Draft202012Validator.check_schema(schema)
    result = json.loads(rendered("json", result_of(name, exact=exact)))

    jsonschema.validate(result, schema, jsonschema.Draft202012Validator)


def test_a_positive_value_that_is_named_is_told() -> None:
    """Without it nobody can compute the rates again."""
    result = result_of("positive")
    line = "label '0' is positive, all others are negative"

    assert result["settings"]["positive_label"] == ["0"]
    assert line in rendered("text", result)
    assert line not in rendered("text", result_of("strata"))


def test_the_schema_refuses_what_is_wrong() -> None:
    """An undefined value without a reason, an unknown key and a missing one are refused."""
    schema = json_schema("audit")
    validator = jsonschema.Draft202012Validator(schema)
    for change in (
        lambda r: r["overall"]["metrics"].update(accuracy={"value": None, "low": 0, "high": 1}),
        lambda r: r.update(extra=1),
        lambda r: r.pop("data"),
        lambda r: r.update(schema="fairfix.audit/2"),
    ):
        result = result_of("plain")
        change(result)
        assert not validator.is_valid(result)


def test_undefined_is_null_with_a_reason() -> None:
    """No positives: TPR is null, never 0; the gap says whom it leaves out and its interval stays open."""
    block = result_of("plain")["attributes"][0]
    group = next(g for g in block["groups"] if g["group"] == "d_e*f")
    gap = next(c for c in block["comparisons"] if c["id"] == "true_positive_rate.difference.between_groups")

    assert group["metrics"]["true_positive_rate"]["value"] is None
    assert group["metrics"]["true_positive_rate"]["reason"] == "no positives (y = 1)"
    assert gap["undefined"] == ["d_e*f"]
    assert gap["high"] == 1.0


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("name", ["plain", "weights", "raw", "regression", "no labels"])
def test_score_distributions_are_the_shares_of_rows(name: str, exact: bool) -> None:
    """At each score, the share of the (weighted) rows below it; the gap lies where the KS distance says."""
    data = rows()
    data_spec = READINGS[name]
    result = audit_dict(audit(data, data_spec, Settings(exact=exact)))
    race, score = np.array(data["race"].to_pylist()), data["score"].to_numpy()
    weight = data["weight"].to_numpy() if name == "weights" else np.ones(score.size)
    block = result["attributes"][0]
    found = block["distribution"]

    assert 50 < len(found["scores"]) <= 101
    assert all(a < b for a, b in pairwise(found["scores"]))
    for group in (*found["groups"], {"group": None, "below": found["everybody"]}):
        inside = np.ones(score.size, bool) if group["group"] is None else race == group["group"]
        below = [(weight * inside)[score < x].sum() / weight[inside].sum() for x in found["scores"]]
        assert group["below"] == pytest.approx(below, abs=1e-12)
        assert (group["below"][0], group["below"][-1]) == (0.0, pytest.approx(1.0))
    ks = next(c for c in block["comparisons"] if c["id"] == "ks.between_groups")
    gap = found["gap"]
    a, b = gap["shares"]
    assert gap["groups"] == ks["groups"]
    assert abs(a - b) == pytest.approx(ks["value"], abs=1e-12)
    assert not exact or gap["score"] == ks["at_score"]
    assert any(abs(x - gap["score"]) <= 1 / 1024 for x in found["scores"])


def test_calibration_counts_its_rows() -> None:
    """The rows of the bins add up to the rows of the group, weighted or not."""
    for name in ("plain", "weights"):
        for group in result_of(name)["attributes"][0]["groups"]:
            assert sum(point["rows"] for point in group["calibration"]) == group["rows"]


def test_decisions_have_no_distribution() -> None:
    """Without a score there is nothing to draw, and no key."""
    assert "distribution" not in result_of("decisions")["attributes"][0]


def test_every_comparison_has_its_definition() -> None:
    """Each identifier in the report is explained in the report."""
    result = result_of("strata")
    ids = {c["id"] for block in (*result["attributes"], *result["strata"]) for c in block["comparisons"]}

    assert ids == set(result["definitions"])
    assert {name for name in HEADLINES if "reference" not in name} & ids


@pytest.mark.slow
@pytest.mark.parametrize("name", FORMATS)
def test_every_format_renders_every_result(name: str) -> None:
    """No format chokes on undefined values, strata or regression."""
    for data_spec in READINGS:
        text = rendered(name, result_of(data_spec))
        assert "race" in text


def test_markdown_keeps_names_in_their_cells() -> None:
    """A group's name can neither break the table nor become markup."""
    text = rendered("markdown", result_of("plain"))
    tables = [line for line in text.splitlines() if line.startswith("|")]
    widths = {len(re.findall(r"(?<!\\)\|", line)) for line in tables if "a\\|b" in line}

    assert "<i>" not in text.replace("\\<", "")
    assert widths <= {
        len(re.findall(r"(?<!\\)\|", line)) for line in tables if line.startswith("| group")
    } | {4, 7}


def test_text_says_the_same_as_the_json() -> None:
    """Every headline number of the JSON is in the text, to four digits."""
    result = result_of("plain")
    text = rendered("text", result)
    for block in result["attributes"]:
        found = {c["id"]: c for c in block["comparisons"]}
        for identifier, title in HEADLINES.items():
            if identifier in found and found[identifier]["value"] is not None:
                assert title in text
                assert f"{found[identifier]['value']:.4f}" in text


def test_detail_shows_every_comparison() -> None:
    """With detail, no comparison of an attribute is left out."""
    result = result_of("plain")
    shown = {
        row[0]
        for section in layout(struct(result), detail=True)
        for grid in section.grids
        for row in grid.rows
    }

    assert {c["id"] for c in result["attributes"][0]["comparisons"]} <= shown


def test_json_of_very_many_groups_is_not_indented(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is the same otherwise, and rendered again it has the same bytes."""
    result = result_of(next(iter(READINGS)))
    indented = rendered("json", result)
    monkeypatch.setattr(json_, "MOST_INDENTED", 1)
    text = rendered("json", result)
    assert text.count("\n") == 1 < indented.count("\n")
    assert json.loads(text) == json.loads(indented)
    assert rendered("json", json.loads(text)) == text


def test_json_has_no_nan() -> None:
    """The JSON is strict: no NaN, no infinity."""
    text = rendered("json", result_of("plain"))

    json.loads(text, parse_constant=lambda name: pytest.fail(f"the JSON holds {name}"))
    assert not math.isnan(json.loads(text)["overall"]["metrics"]["accuracy"]["value"])


UNSEEN = (
    *("", " a", "\x1b[31mred", "b\n::error::boom", "::error::first"),
    *("\u202eabc", "[x](https://example.org)", "&lt;i>"),
)


def test_names_do_nothing_to_terminals_logs_and_lines() -> None:
    """No codes, no line that GitHub takes for a command, no turned direction, no link; blank names are in quotes."""
    rng = np.random.default_rng(0)
    group = [UNSEEN[i] for i in rng.integers(0, len(UNSEEN), 800)]
    data = {
        "::g": pa.array(group),
        "label": pa.array(rng.integers(0, 2, 800)),
        "score": pa.array(rng.random(800)),
    }
    data_spec = DataSpec(ColumnRoles(("::g",), label="label", score="score"))
    result = audit_dict(audit(data, data_spec, Settings(checks=(Check.parse("dp.difference<=0.01"),))))
    for name in ("text", "markdown", "html"):
        shown = rendered(name, result)
        assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", shown), name
        assert not [line for line in shown.splitlines() if line.lstrip().startswith("::")], name
        assert "\\x1b[31mred" in shown.replace("\\\\", "\\"), name
        assert "''" in html.unescape(shown), name
    assert "](" not in rendered("markdown", result)
    assert r"\&lt;i" in rendered("markdown", result)
    assert [g["group"] for g in result["attributes"][0]["groups"]] == sorted(UNSEEN)
    for name in ("json", "sarif", "junit", "github"):  # formats for programs keep the names, by escapes
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", rendered(name, result)), name
    assert json.loads(rendered("json", result)) == result


def test_text_keeps_every_letter_of_a_table_under_its_heading() -> None:
    """Wide letters, marks above letters and brackets, also of headings, stand whole, and numbers below one another."""
    names = ("日本語", "e\u0301\u0301\u0301te", "[bold]plain")
    data = {"g": [*names] * 40, "label": [0, 1] * 60, "score": [0.25, 0.5, 0.75, 0.5] * 30}
    result = audit_dict(audit(data, DataSpec(ColumnRoles(("g",), label="label", score="score")), Settings()))
    lines = rendered("text", result, width=60).splitlines()

    row = {name: next(line for line in lines if line.startswith(f"  {name}  ")) for name in names}
    assert len({cell_len(line) for line in row.values()}) == 1
    assert any("value [interval]" in line for line in lines)
    assert all(cell_len(line) <= 60 for line in lines)
    assert not [line for line in lines if "…" in line]


def test_a_name_in_backquotes_is_found_by_its_name() -> None:
    """What is named in a JSON form has the same name as a key and as a value."""
    result = as_options({"attribute": "the `data`", "bands": {"the `data`": 1.0}})
    assert result["bands"][result["attribute"]] == 1.0


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@settings(max_examples=examples(60))
@given(JSON_VALUES, JSON_VALUES)
@example({}, [{}])
@example([{"}": "},\x1f", "{": ": \x1e{"}, {": {": "[\n{"}], {"\u2028\x7f": {"a": {"b": "}"}}})
def test_json_is_that_of_the_standard_library(one: Any, other: Any) -> None:
    """Written several times as fast, to the last blank, but for what a terminal must not get."""
    for content in (
        one,
        {"a": one, "b": [other, 1.5]},
        [{"x": 1, "y": one}, {"z": other}],
        [[one], {"q": other}],
    ):
        wanted = json.dumps(content, indent=2, ensure_ascii=False)
        assert json.loads(as_json(content)) == content
        if not re.search(r"\d[eE][+-]?\d", wanted):  # exponents are written otherwise
            assert as_json(content) == UNSEEN_IN_LINES.sub(lambda match: f"\\u{ord(match[0]):04x}", wanted)


def test_long_names_are_cut_for_people_and_whole_in_json() -> None:
    """A name of a megabyte is not printed hundreds of times; two that begin and end alike stay two."""
    names = ["x" * 100_000 + middle + "x" * 100_000 for middle in "ab"]
    frame = pd.DataFrame({"g": names * 40, "label": [0, 0, 1, 1] * 20, "score": [0.1, 0.9, 0.3, 0.7] * 20})
    result = fairfix.audit(frame, protected="g", label="label", score="score")
    for name in ("text", "html", "markdown", "github", "comment", "card"):
        assert len(result.render(name)) < 1_000_000, name
    shown = readable(result.to_dict())["attributes"][0]["groups"]
    assert len({group["group"] for group in shown}) == 2
    assert all(name in result.to_json() for name in names)
