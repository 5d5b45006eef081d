"""What a result shows of itself in Python: a page in a frame, data frames, figures."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import fairfix
import numpy as np
import pandas as pd
import pytest
from fairfix.errors import UsageError
from fairfix.tasks.result import Result

from tests.data import people
from tests.results import rendered

HOSTILE = '</iframe><script>alert("1")</script> $x$'
"""A group that would leave its frame, run, and be set as mathematics."""


@pytest.fixture(scope="module")
def rows() -> pd.DataFrame:
    """Two attributes, strata, a group without negatives and one with a hostile name."""
    rng = np.random.default_rng(3)
    race = rng.choice(["a", "b", HOSTILE], 600)
    score = rng.random(600) * np.where(race == "a", 1.0, 0.8)
    label = (rng.random(600) < score) | (race == HOSTILE)
    town = rng.choice(["north", "south"], 600)
    frame = pd.DataFrame({"race": race, "sex": rng.choice(["f", "m"], 600), "town": town, "score": score})
    return frame.assign(label=label.astype(int))


@pytest.fixture(scope="module")
def results(rows: pd.DataFrame) -> dict[str, Result]:
    """A result of every kind."""
    given: dict[str, Any] = {"protected": ["race", "sex"]}
    return {
        "audit": fairfix.audit(rows, **given, strata="town", check="dp.difference<=0.1"),
        "repair": fairfix.repair(rows, protected="race", method="ramp", gamma=0.2),
        "compare": fairfix.compare(rows, protected="race", methods="ramp", slacks=[0.02, 0.1]),
        "noise": fairfix.audit(rows, protected="sex", noise="radius:f=0.1,m=0.1"),
    }


class Tags(HTMLParser):
    """The tags of a page, with their attributes."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))


@pytest.mark.parametrize("kind", ["audit", "repair", "compare", "noise"])
def test_a_notebook_shows_the_page_in_a_frame_of_its_own(kind: str, results: dict[str, Result]) -> None:
    """One element, which may run nothing and holds the whole page; no style and no name leaves it."""
    shown = results[kind]._repr_html_()
    ((tag, attributes),) = Tags(shown).tags

    assert (tag, attributes["sandbox"]) == ("iframe", "")
    assert attributes["srcdoc"] == results[kind].to_html()
    assert "script" not in {tag for tag, _ in Tags(str(attributes["srcdoc"])).tags}


def test_the_frame_of_groups_has_every_number_of_the_report(results: dict[str, Result]) -> None:
    """A row per attribute, stratum, group and metric, equal to the JSON form; undefined is NaN with a reason."""
    audit = results["audit"]
    frame, content = audit.to_frame(), audit.to_dict()
    blocks = [*content["attributes"], *content["strata"]]
    keys = ["attribute", "stratum", "group", "metric"]

    assert len(frame) == sum(len(group["metrics"]) for block in blocks for group in block["groups"])
    assert not frame.duplicated(keys).any()
    cells = frame.set_index(keys)
    for block in blocks:
        for group in block["groups"]:
            for metric, value in group["metrics"].items():
                cell = cells.loc[block["attribute"], block.get("stratum", ""), group["group"], metric]
                assert cell["rows"] == group["rows"]
                wanted = [np.nan if value[end] is None else value[end] for end in ("value", "low", "high")]
                np.testing.assert_array_equal(cell[["value", "low", "high"]].astype(float), wanted)
    undefined = frame[frame.value.isna()]
    assert len(undefined)
    assert (undefined.reason != "").all()
    assert set(frame.dtypes[["value", "low", "high", "weight"]]) == {np.dtype(float)}


def test_the_other_frames_hold_comparisons_checks_bounds_proof_and_points(
    results: dict[str, Result],
) -> None:
    """Each number of the JSON form once."""
    audit, content = results["audit"], results["audit"].to_dict()
    comparisons = audit.to_frame("comparisons")
    blocks = [*content["attributes"], *content["strata"]]
    assert len(comparisons) == sum(len(block["comparisons"]) for block in blocks)
    one = comparisons.set_index(["attribute", "stratum", "comparison"]).value
    first = content["attributes"][0]
    assert one[first["attribute"], "", first["comparisons"][0]["id"]] == first["comparisons"][0]["value"]
    checks = audit.to_frame("checks")
    assert list(checks.verdict) == [check["verdict"] for check in content["checks"]]
    assert audit.to_frame("true_groups").empty

    bounds, noise = results["noise"].to_frame("true_groups"), results["noise"].to_dict()["noise"]
    figures = [*noise["comparisons"], *(f for group in noise["groups"] for f in group["figures"])]
    assert len(bounds) == sum(len(figure["bounds"]) for figure in figures) > 0

    proof, table = results["repair"].to_frame(), results["repair"].to_dict()["proof"]["holdout"]["table"]
    held = proof[proof["rows"] == "holdout"]
    assert list(held.number) == [row["id"] for row in table]
    assert list(held.before_value) == [row["before"]["value"] for row in table]

    points = results["compare"].to_frame()
    assert points.point.nunique() == len(results["compare"].to_dict()["points"])
    gap = points[(points.kind == "gap") & (points.method == "ramp")].iloc[0]
    assert (gap.number, gap.attribute) == ("selection_rate.difference.between_groups", "race")


def test_a_gap_is_that_of_the_report(results: dict[str, Result]) -> None:
    """By the short name of a metric, or any comparison; of a repair before, after, and the change."""
    frame = results["audit"].to_frame("comparisons")
    for name in ("dp", "dp.difference", "tpr.ratio", "ks", "accuracy.min"):
        one = results["audit"].gap(name, "race")
        mine = frame[
            (frame.attribute == "race") & (frame.stratum == "") & (frame.comparison == one.comparison)
        ]
        assert (float(one), one.low, one.high) == tuple(mine[["value", "low", "high"]].iloc[0])
        assert results["audit"].gap(f"{one.comparison}[race]") == one
        assert ", ".join(one.groups) == mine.groups.iloc[0]
    repair = results["repair"]
    before, after, change = (repair.gap("dp", when=when).value for when in ("before", "after", "change"))
    assert change == pytest.approx(after - before)
    for name, attribute, hint in (
        ("dp", None, "name one of"),
        ("dp", "rcae", "has race, sex"),
        ("dpp", "race", "'dp'"),
    ):
        with pytest.raises(UsageError, match=hint):
            results["audit"].gap(name, attribute)


def test_groups_and_all_rows_are_data_frames(results: dict[str, Result]) -> None:
    """With the numbers of the long form."""
    audit, frame = results["audit"], results["audit"].to_frame()
    wide = audit.by_group
    for row in frame[frame.stratum == ""].itertuples():
        value = wide.loc[(row.attribute, row.group), row.metric]
        assert value == row.value or (np.isnan(value) and np.isnan(row.value))
    assert list(audit.overall.index) == list(audit.to_dict()["overall"]["metrics"])
    assert (audit.overall.low <= audit.overall.high).all()
    people = {(one["attribute"], g["group"]): g for one in results["repair"].to_dict()["proof"]["holdout"]["people"]
              for g in one["groups"]}  # fmt: skip
    repaired = results["repair"].by_group
    assert set(repaired.index) == set(people)
    for key, group in people.items():
        for when in ("before", "after"):
            assert (
                repaired.loc[key, (when, "selection_rate")]
                == group["metrics"]["selection_rate"][when]["value"]
            )
    assert {"selection_rate", "accuracy"} <= set(results["repair"].overall.index)
    for show in (lambda: results["compare"].by_group, lambda: results["compare"].gap("dp")):
        with pytest.raises(UsageError, match="to_frame"):
            show()


def test_a_result_passes_where_its_checks_do(rows: pd.DataFrame, results: dict[str, Result]) -> None:
    """And not where one is undecided; without checks there is nothing to pass."""
    assert (results["audit"].verdict, results["audit"].passed) == ("undecided", False)
    assert fairfix.audit(rows, protected="race").passed is None
    for check, passed in (("dp.difference<=1", True), ("dp.difference<=0", False)):
        result = fairfix.audit(rows, protected="race", check=check)
        assert result.passed is passed
        assert (result.exit_status() == 0) is passed


@pytest.mark.parametrize("kind", ["audit", "repair", "compare"])
def test_a_report_is_saved_in_the_format_of_its_ending(
    kind: str, results: dict[str, Result], tmp_path: Path
) -> None:
    """Those of the command line; another ending is refused and nothing written."""
    result = results[kind]
    for ending, text in (
        (".html", result.to_html()),
        (".md", result.to_markdown()),
        (".json", result.to_json()),
    ):
        result.save(tmp_path / f"a{ending}")
        assert (tmp_path / f"a{ending}").read_text(encoding="utf-8") == text
    with pytest.raises(UsageError, match=r"\.html"):
        result.save(tmp_path / "a.docx")
    assert not (tmp_path / "a.docx").exists()


def test_a_saved_result_shows_itself_too(results: dict[str, Result], tmp_path: Path) -> None:
    """As the one that it was saved from."""
    path = tmp_path / "audit.json"
    path.write_text(results["audit"].to_json())
    again = fairfix.load(str(path))

    assert isinstance(again, Result)
    assert again._repr_html_() == results["audit"]._repr_html_()
    pd.testing.assert_frame_equal(again.to_frame(), results["audit"].to_frame())


def test_a_table_that_there_is_not_is_said(results: dict[str, Result]) -> None:
    """With those that there are."""
    with pytest.raises(
        UsageError, match=r"unknown table 'points'; .* groups, comparisons, per_group, checks, true_groups"
    ):
        results["audit"].to_frame("points")


@pytest.mark.parametrize("kind", ["audit", "repair", "compare"])
def test_a_picture_is_one_svg_of_the_pictures_of_the_page(kind: str, results: dict[str, Result]) -> None:
    """Well-formed, the same each time, with each drawing as the page has it and no markup of a name."""
    picture = results[kind].plot()
    root = ET.fromstring(picture.svg)  # noqa: S314  ours
    drawings = root.findall("{*}svg")
    page = results[kind].to_html()

    assert picture._repr_svg_() == picture.svg == results[kind].plot().svg
    assert len(drawings) == len(picture.headings) > 0
    bottom = 0.0
    for drawing in drawings:
        assert float(drawing.attrib["y"]) > bottom
        bottom = float(drawing.attrib["y"]) + float(drawing.attrib["height"])
    assert bottom < float(root.attrib["height"])
    assert not root.findall(".//{*}script")
    for body in re.findall("</desc>(.*?)</svg>", picture.svg):
        assert body in page


def test_a_picture_is_chosen_by_the_words_of_its_heading(results: dict[str, Result]) -> None:
    """Also one that the page folds; words that no heading has are refused with the headings there are."""
    assert results["audit"].plot("accuracy by race").headings == ("accuracy by race",)
    assert len(results["audit"].plot("ACCURACY").headings) == 2
    with pytest.raises(UsageError, match="'accuracy by race'"):
        results["audit"].plot("speed")


def test_a_sentence_leads_to_the_definition_of_what_it_uses_first(results: dict[str, Any]) -> None:
    """Each term once on a page, there where it is used first, also with a capital; to a definition that is there."""
    page = rendered("html", results["repair"].to_dict())
    sentences = re.findall(r'<p class="answer">(.*?)</p>|<li>(.*?)</li>', page.replace("\n", " "))
    text = " ".join(answer or line for answer, line in sentences)
    links = re.findall(r'<a href="#(d-[^"]+)">([^<]*)</a>', text)

    assert "d-accuracy" in dict(links)
    assert "Accuracy" in dict(links).values() or "accuracy" in dict(links).values()
    assert len({ident for ident, _ in links}) == len(links)
    for ident, words in links:
        assert f'id="{ident}"' in page
        before = text[: text.index(f">{words}</a>")]
        assert not re.search(rf"(?<![\w.-]){re.escape(words)}(?![\w-])", before.replace(f'#{ident}"', ""))


def test_frames_hold_the_bound_of_a_number_from_counts() -> None:
    """A column ``bound``: that of the JSON form, and 0 where a value is exact."""
    audit = fairfix.audit(fairfix.count(people(2000, 1), protected="race"), check="ks<=0.9")
    content = audit.to_dict()
    comparisons = audit.to_frame("comparisons")
    wanted = [one.get("bound", 0.0) for one in content["attributes"][0]["comparisons"]]
    assert list(comparisons.bound) == wanted
    assert max(wanted) > 0
    assert list(audit.to_frame("checks").bound) == [content["checks"][0]["bound"]]
    groups = audit.to_frame().set_index(["group", "metric"]).bound
    for group in content["attributes"][0]["groups"]:
        assert groups[group["group"], "auc"] == group["metrics"]["auc"].get("bound", 0.0)
        assert groups[group["group"], "selection_rate"] == 0
