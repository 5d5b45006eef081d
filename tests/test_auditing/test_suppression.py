"""Hidden groups: nothing in a report names a small group, and its size cannot be computed from the rest."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator, Mapping
from typing import Any

import jsonschema
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fairfix.auditing.as_json import audit_dict
from fairfix.auditing.audit import audit
from fairfix.auditing.checks import Check
from fairfix.auditing.results import ComparisonReport, Settings, Value
from fairfix.auditing.suppression import hidden_groups
from fairfix.cli import run
from fairfix.data.reading import Columns, Reading
from fairfix.errors import DataError
from fairfix.report import FORMATS, renderer
from scipy.optimize import linprog

from tests.strategies import examples
from tests.test_auditing.test_gates import SCHEMA

RACES = ("Ash", "Birch", "Cedar", "Dogwood", "Elm")
SHARES = (0.5, 0.3, 0.15, 0.04, 0.01)
READING = Reading(Columns(("race", "sex"), label="label", score="score", strata=("product",)))


def people(rows: int, seed: int) -> dict[str, Any]:
    """Return people with some rare races, sexes and products."""
    rng = np.random.default_rng(seed)
    return {
        "race": rng.choice(RACES, rows, p=SHARES),
        "sex": rng.choice(["female", "male", "other"], rows, p=[0.5, 0.47, 0.03]),
        "product": rng.choice(["boat", "car", "home"], rows, p=[0.05, 0.5, 0.45]),
        "label": rng.integers(0, 2, rows),
        "score": rng.random(rows),
    }


def audited(
    data: Mapping[str, Any], least: int, reading: Reading = READING, **settings: Any
) -> dict[str, Any]:
    """Return the JSON form of an audit, which holds to its schema."""
    columns = {name: pa.array(values.tolist()) for name, values in data.items()}
    chosen = Settings(intersect=len(reading.columns.protected) > 1, suppress_below=least, **settings)
    result = json.loads(renderer("json")(audit_dict(audit(columns, reading, chosen))))
    jsonschema.validate(result, SCHEMA, jsonschema.Draft202012Validator)
    return result


@functools.cache
def of_people(seed: int, least: int) -> dict[str, Any]:
    """Return the audit of 700 people, not to be changed."""
    return audited(people(700, seed), least)


def tables(result: Mapping[str, Any]) -> Iterator[tuple[dict[str, str], int, Mapping[str, Any]]]:
    """Yield what a reader sees of each group: the columns that define it, its rows, and all else."""
    for block in (*result["attributes"], *result["strata"]):
        where = dict(pair.split("=") for pair in block.get("stratum", "").split(" & ") if pair)
        for group in block["groups"]:
            levels = dict(zip(block["columns"], group["group"].split(" & "), strict=True))
            yield {**where, **levels}, group["rows"], group


def every_group(result: Mapping[str, Any], plain: Mapping[str, Any]) -> Iterator[dict[str, str]]:
    """Yield every group that a report without hidden ones, ``plain``, has in the same tables."""
    seen = {b["attribute"] for b in result["attributes"]}
    for block in (*plain["attributes"], *plain["strata"]):
        where = dict(pair.split("=") for pair in block.get("stratum", "").split(" & ") if pair)
        for group in block["groups"]:
            if block["attribute"] in seen:
                yield {**where, **dict(zip(block["columns"], group["group"].split(" & "), strict=True))}


def indicator(cells: list[tuple[str, str, str]], levels: Mapping[str, str]) -> np.ndarray:
    """Return which of the finest cells a group is made of."""
    names = ("product", "race", "sex")
    return np.array(
        [all(levels.get(n, v) == v for n, v in zip(names, cell, strict=True)) for cell in cells], float
    )


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(examples(9) // 3))
def test_the_size_of_a_small_group_cannot_be_reconstructed(seed: int) -> None:
    """Whoever solves all tables at once, knowing which cells exist, is left with a range of N/2 sizes or more."""
    least = 12
    data = people(700, seed)
    result = of_people(seed, least)
    cells, sizes = np.unique(
        np.array([data["product"], data["race"], data["sex"]]).T, axis=0, return_counts=True
    )
    listed = [tuple(cell) for cell in cells.tolist()]
    shown = list(tables(result))
    published = np.array([np.ones(len(listed)), *(indicator(listed, levels) for levels, _, _ in shown)])
    totals = np.array([result["overall"]["rows"], *(rows for _, rows, _ in shown)], float)
    small = [
        levels
        for levels in every_group(result, of_people(seed, 0))
        if indicator(listed, levels) @ sizes < least
    ]

    assert len(small) > 5
    assert np.allclose(published @ sizes, totals)
    assert min(rows for _, rows, _ in shown) >= least
    for levels in small:
        group = indicator(listed, levels)
        weights = np.linalg.lstsq(published.T, group, rcond=None)[0]
        assert np.abs(published.T @ weights - group).max() > 1e-6, f"{levels} is a sum of what is published"
        ends = [
            linprog(sign * group, A_eq=published, b_eq=totals, bounds=(0, None)).fun * sign
            for sign in (1, -1)
        ]
        assert ends[1] - ends[0] >= least / 2 - 1e-4, levels


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(examples(9) // 3))
def test_differences_of_tables_give_no_small_group(seed: int) -> None:
    """Total minus those shown, in every table and for every count: never the count of a small group."""
    least = 12
    result = of_people(seed, least)
    everybody = {tuple(sorted(levels.items())): levels for levels, _, _ in tables(of_people(seed, 0))}
    shown = {tuple(sorted(levels.items())) for levels, _, _ in tables(result)}
    for block in result["attributes"]:
        missing = [
            levels
            for key, levels in everybody.items()
            if key not in shown and set(levels) == set(block["columns"])
        ]
        assert len(missing) == block.get("hidden", 0)
        rest = result["overall"]["rows"] - sum(group["rows"] for group in block["groups"])
        assert rest == 0 or rest >= least
        shares = sum(group["share"] for group in block["groups"])
        assert shares == pytest.approx(1 - rest / 700)
        for levels in missing:  # the same in the bins of calibration
            assert not any(group["group"] == " & ".join(levels.values()) for group in block["groups"])


def names_in(node: Any) -> Iterator[str]:
    """Yield every text in a JSON value."""
    if isinstance(node, str):
        yield node
    elif isinstance(node, dict):
        for key, value in node.items():
            yield key
            yield from names_in(value)
    elif isinstance(node, list):
        for value in node:
            yield from names_in(value)


@pytest.mark.parametrize("name", FORMATS)
def test_no_format_names_a_hidden_group(name: str) -> None:
    """A hidden race is nowhere: in no table, comparison, curve or check; how many are hidden is said."""
    reading = Reading(Columns(("race",), label="label", score="score"))
    checks = tuple(Check.parse(text) for text in ("dp.difference>0.5", "ks>0.01"))
    result = audited(people(700, 1), 12, reading, checks=checks)
    text = renderer(name)(result)

    assert result["suppressed"] == {"below": 12, "groups": 2, "left_out": []}
    for hidden in ("Dogwood", "Elm"):
        assert hidden not in text
        assert not any(hidden in said for said in names_in(result))
    assert "2 hidden groups are not in it" in text or name in ("markdown", "html") or "hidden" in text


def test_comparisons_are_those_of_the_groups_shown() -> None:
    """The same numbers as an audit of the rows of these groups."""
    data = people(700, 1)
    reading = Reading(Columns(("race",), label="label", score="score"))
    block = audited(data, 12, reading)["attributes"][0]
    keep = np.isin(data["race"], [group["group"] for group in block["groups"]])
    alone = audited({name: values[keep] for name, values in data.items()}, 0, reading)["attributes"][0]
    skipped = ("scoring_rate",)  # the median is everybody's

    assert 0 < keep.sum() < keep.size
    for mine, theirs in zip(block["comparisons"], alone["comparisons"], strict=True):
        if not mine["id"].startswith(skipped):
            assert mine == theirs


def test_what_is_found_elsewhere_is_hidden_too() -> None:
    """Comparisons that come from changed rows lose what they say of hidden groups."""
    value = Value(0.1, 0.0, 0.2, "over the rest; undefined in Elm")
    told = ComparisonReport(
        "decision_flips.under_flips", value, ("Ash",), per_group={"Ash": value, "Elm": value}
    )
    named = ComparisonReport("score_change.under_flips", value, ("Elm", "Ash"))
    data = {name: pa.array(values.tolist()) for name, values in people(700, 1).items()}
    reading = Reading(Columns(("race",), label="label", score="score"))
    report = audit(data, reading, Settings(suppress_below=12), {"race": [told, named]})

    assert set(report.block("race").comparisons["decision_flips.under_flips"].per_group) == {"Ash"}
    assert "Elm" not in report.block("race").comparisons["decision_flips.under_flips"].value.reason
    assert "score_change.under_flips" not in report.block("race").comparisons


def test_one_small_group_takes_another_with_it() -> None:
    """Alone it would be the total minus the others: the smallest of these is hidden too."""
    groups = np.arange(4)
    (hide,) = hidden_groups([(groups, 4)], np.array([100, 80, 5, 60]), 10, [True])

    assert hide.tolist() == [False, False, True, True]


def test_nothing_small_nothing_hidden() -> None:
    """Groups of just enough rows stay."""
    (hide,) = hidden_groups([(np.arange(3), 3)], np.array([10, 80, 60]), 10, [True])

    assert not hide.any()


def test_a_cell_is_hidden_by_a_rectangle() -> None:
    """In a table with both margins shown, three more cells hide one."""
    race, sex = np.repeat(np.arange(3), 2), np.tile(np.arange(2), 3)
    rows = np.array([100, 90, 80, 70, 5, 60])
    hidden = hidden_groups([(race, 3), (sex, 2), (np.arange(6), 6)], rows, 10, [True] * 3)

    assert not hidden[0].any()
    assert not hidden[1].any()
    assert hidden[2].tolist() == [False, False, True, True, True, True]


def test_attributes_with_too_little_to_show_are_left_out() -> None:
    """Said in the report; a check of them cannot pass."""
    data = people(700, 1)
    data["sex"] = np.where(np.arange(700) < 5, "other", "male")
    reading = Reading(Columns(("race", "sex"), label="label", score="score"))
    checks = (Check.parse("dp.difference>0.9"), Check.parse("accuracy[race=Elm]<0.1"))
    result = audited(data, 12, reading, checks=checks[:1])

    assert "sex" in result["suppressed"]["left_out"]
    assert {c["attribute"]: c["verdict"] for c in result["checks"]}["sex"] == "undecided"
    (check,) = audited(data, 12, reading, checks=checks[1:])["checks"]
    assert check["verdict"] == "undecided"
    assert "Elm" not in check["reason"]
    with pytest.raises(DataError, match="too few of its groups"):
        audited(data, 12, Reading(Columns(("sex",), score="score")))
    with pytest.raises(DataError, match="one that `suppress_below` hides"):
        audited(data, 12, reading, reference={"race": "Elm"})


def test_it_is_an_option(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """On the command line, in the file and in the environment."""
    monkeypatch.chdir(tmp_path)
    data = {name: pa.array(values.tolist()) for name, values in people(700, 1).items()}
    pq.write_table(pa.table(data), "d.parquet")
    (tmp_path / "fairfix.toml").write_text('protected = "race"\nquiet = true\nsuppress-below = 12\n')

    def hidden(*arguments: str) -> int:
        assert run(["audit", "d.parquet", "--format", "json", *arguments]) == 0
        result = json.loads(capsys.readouterr().out)
        return int(result.get("suppressed", {"groups": -1})["groups"])

    assert hidden() == 2
    assert hidden("--suppress-below", "0") == -1
    monkeypatch.setenv("FAIRFIX_SUPPRESS_BELOW", "1")
    assert hidden() == 0
