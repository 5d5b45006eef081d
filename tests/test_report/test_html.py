"""The HTML report: one file, well-formed, readable without colours and pictures, and safe with any names."""

from __future__ import annotations

import io
import json
import math
import re
import shlex
from contextlib import redirect_stdout
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any

import fairfix
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fairfix.auditing.audit import audit
from fairfix.auditing.checks import Check
from fairfix.auditing.results import Settings
from fairfix.cli import run
from fairfix.data.data_spec import ColumnRoles, DataSpec
from fairfix.report import layout
from fairfix.report.figures import FIFTH, MOST_GROUPS
from fairfix.report.html_ import _breakable
from fairfix.report.layout import MARKS
from fairfix.report.svg import CURVES, Curve, Dot, dots, lines, span_of

from tests.data import people
from tests.results import audit_dict, rendered, struct
from tests.test_report.test_report import READINGS, result_of, rows

ROOT = Path(__file__).parents[2]
VOID = {"meta", "br", "hr", "img", "input", "link"}
HOSTILE = "<script>alert('x')</script>\"&</title></style>${0}"


class Page(HTMLParser):
    """A page as a list of elements; nesting is checked on the way."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.texts: list[tuple[tuple[str, ...], str]] = []
        self.feed(text.replace("<wbr>", ""))
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: Any) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        assert self.open, tag
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append((tuple(self.open), data))

    def all(self, tag: str) -> list[dict[str, str]]:
        return [attributes for name, attributes in self.elements if name == tag]

    def text(self, *without: str) -> str:
        return " ".join(data for path, data in self.texts if not set(without) & set(path))


def assert_sound(text: str) -> Page:
    """Hold a page to what every page of ours keeps."""
    page = Page(text)
    assert text.startswith("<!DOCTYPE html>")
    assert page.all("html") == [{"lang": "en"}]
    assert len(page.all("h1")) == len(page.all("title")) - len(page.all("svg")) == 1
    levels = [int(tag[1]) for tag, _ in page.elements if re.fullmatch(r"h[1-6]", tag)]
    assert levels[0] == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
    assert not {"script", "iframe", "object", "link", "base", "form"} & {tag for tag, _ in page.elements}
    for _, attributes in page.elements:
        for name, value in attributes.items():
            assert not name.startswith("on")
            if name in ("src", "href", "xlink:href", "srcset", "action", "data"):
                assert value.startswith("#")
                assert name != "href" or sum(one.get("id") == value[1:] for _, one in page.elements) == 1
    assert "@import" not in text
    assert not re.search(r"url\((?!#)", text)
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    for picture in page.all("svg"):
        assert picture["role"] == "img"
        assert set(picture["aria-labelledby"].split()) <= set(ids)
    assert len(page.all("desc")) == len(page.all("svg"))
    assert not page.all("img")
    assert len(page.all("figure")) == len(page.all("figcaption"))
    assert len(page.all("caption")) == len(page.all("table"))
    assert all(head.get("scope") in ("col", "row") for head in page.all("th"))
    assert not re.search(r"\bNone\b|\bnan\b", page.text("style"))
    return page


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """An audit, a repair, a comparison and an audit of classes of the sample data."""
    folder = tmp_path_factory.mktemp("saved")
    data = str(ROOT / "sample_data" / "loans.parquet")
    common = [data, "--protected", "race", "--config", "none", "--quiet"]
    gate = ["--check", "dp.difference<=0.1", "--check", "eo.difference<=0.2"]
    run(["audit", *common, *gate, "--out", f"json={folder / 'audit.json'}"])
    method = ["--method", "ramp", "-o", str(folder / "r.fairfix")]
    run(["repair", *common, *gate, *method, "--out", f"json={folder / 'repair.json'}"])
    slacks = ["--methods", "ramp", "--slacks", "0.05,inf"]
    run(["compare", *common, *slacks, "--out", f"json={folder / 'compare.json'}"])
    loans = pd.read_parquet(data)
    told = loans["product"].where(
        loans["late_payments"] > 0, loans["product"].sample(frac=1, random_state=0).values
    )
    loans.assign(told=told).to_parquet(folder / "classes.parquet")
    of_classes = shlex.split("--task multiclass --label product --prediction told --config none --quiet")
    gate = ["--check", "tpr.difference<=0.1", "--check", "tpr.difference.rms_of_classes<=0.9"]
    out = ["--out", f"json={folder / 'classes.json'}"]
    run(["audit", str(folder / "classes.parquet"), "--protected", "race,sex", *of_classes, *gate, *out])
    return {path.stem: json.loads(path.read_text()) for path in folder.glob("*.json")}


WITH_GROUPS = ("attribute", "people", "rule")
"""Kinds of sections that have tables of groups."""


@pytest.mark.parametrize("name", READINGS)
@pytest.mark.parametrize("exact", [True, False])
def test_every_audit_makes_a_sound_page(name: str, exact: bool) -> None:
    page = assert_sound(rendered("html", json.loads(rendered("json", result_of(name, exact=exact)))))

    assert page.all("svg")


def test_the_running_head_of_paper_is_the_title() -> None:
    """As CSS reads it, where a blank after an escape ends the escape."""
    result = result_of("plain")
    result["data"]["source"] = 'a (b) c" d\\ e.csv'
    text = rendered("html", result)
    head = re.findall(r'@top-left { content: "([^"]*)" }', text)

    assert [re.sub(r"\\([0-9a-f]{6})\s?", lambda one: chr(int(one[1], 16)), one) for one in head] == [
        'fairfix audit of a (b) c" d\\ e.csv'
    ]


FREE = {
    *("attribute", "check", "file", "group", "groups", "hidden", "meaning", "parameters"),
    *("protected", "reason", "says", "source", "title", "class", "of_class"),
}
"""Keys of the JSON form whose texts come from data, users or sentences."""


def with_markup(value: Any, key: str = "") -> Any:
    """Return the JSON form with markup behind every text of a free key."""
    if isinstance(value, dict):
        groups = HOSTILE if key == "per_group" else ""
        return {name + groups: with_markup(one, name) for name, one in value.items()}
    if isinstance(value, list):
        return [with_markup(one, key) for one in value]
    # "original model" is the title by which a comparison finds it
    return value + HOSTILE if key in FREE and isinstance(value, str) and value != "original model" else value


@pytest.mark.parametrize("kind", ["audit", "repair", "compare", "classes"])
def test_no_text_of_a_result_is_markup(kind: str, saved: dict[str, Any]) -> None:
    """Whatever text it is that holds markup, the page shows it, also in pictures, and has the elements it had."""
    texts = [rendered("html", one) for one in (saved[kind], with_markup(saved[kind]))]
    plain, hostile = map(assert_sound, texts)

    assert plain.all("svg")
    assert rendered("html", saved[kind]) == texts[0]
    assert "<script" not in texts[1]
    assert sum(HOSTILE in text for _, text in hostile.texts) > 20
    assert kind != "audit" or sum("<script>" in data for path, data in hostile.texts if "svg" in path) > 3
    assert [tag for tag, _ in plain.elements] == [tag for tag, _ in hostile.elements]


def test_every_number_of_a_picture_is_in_its_table(saved: dict[str, Any]) -> None:
    """Rates with their intervals, the distributions, the calibration with its rows."""
    block = saved["audit"]["attributes"][0]
    text = assert_sound(rendered("html", saved["audit"])).text("svg", "style")
    for group in block["groups"]:
        for name in ("selection_rate", "true_positive_rate", "auc"):
            one = group["metrics"][name]
            assert f"{one['value']:.4f} [{one['low']:.3f}, {one['high']:.3f}]" in text
        assert all(f"{p['rows']:,}" in text and f"{p['rate']:.4f}" in text for p in group["calibration"])
    for one in block["distribution"]["groups"]:
        assert all(f"{share:.4f}" in text for share in one["below"][::FIFTH] if share > 1e-4)


def test_verdicts_are_words_and_limits_are_explained(saved: dict[str, Any]) -> None:
    for kind in ("audit", "repair"):
        page = assert_sound(rendered("html", saved[kind]))
        marks = [
            data
            for path, data in page.texts
            if path[-1:] == ("strong",) and any(m in data for m in MARKS.values())
        ]
        for check in saved[kind]["checks"]:
            assert any(MARKS[check["verdict"]] in mark for mark in marks)
            assert f"is above {check['limit']:g}" in page.text()
        assert "largest minus smallest value over the groups; selection_rate = P(decision = 1)" in page.text()


def test_decisions_are_counted_by_group(saved: dict[str, Any]) -> None:
    """How many are selected, and their rate against the highest."""
    groups = saved["audit"]["attributes"][0]["groups"]
    highest = max(g["metrics"]["selection_rate"]["value"] for g in groups)
    page = rendered("html", saved["audit"])
    table = page.partition("<caption>Decisions by race</caption>")[2].partition("</table>")[0]
    for group in groups:
        row = table.partition(f'<th scope="row">{group["group"]}</th>')[2].partition("</tr>")[0]
        rate = group["metrics"]["selection_rate"]["value"]
        assert f">{round(rate * group['rows']):,}<" in row
        assert f">{rate / highest:.4f}<" in row


def test_rows_are_accounted_for() -> None:
    """Read, used, left out and why."""
    data = rows()
    data["race"] = pa.array([None if i % 50 == 0 else x for i, x in enumerate(data["race"].to_pylist())])
    data_spec = DataSpec(ColumnRoles(("race",), label="label", score="score"), missing_group="drop")
    result = audit_dict(audit(data, data_spec))
    text = assert_sound(rendered("html", result)).text("style")

    for one in result["data"]["rows"]["excluded"]:
        assert f"left out: {one['reason']}" in text
    assert "500" in text
    assert "490" in text


def test_the_gap_is_marked_where_it_is(saved: dict[str, Any]) -> None:
    """The thick line stands at the score of the KS distance, between the two shares."""
    gap = saved["audit"]["attributes"][0]["distribution"]["gap"]
    scores = saved["audit"]["attributes"][0]["distribution"]["scores"]
    text = rendered("html", saved["audit"])
    (x, high, same, low) = map(
        float,
        re.findall(
            r'<line x1="([\d.]+)" y1="([\d.]+)" x2="([\d.]+)" y2="([\d.]+)" stroke="#1a1a1a" stroke-width="3"',
            text,
        )[0],
    )
    place = (gap["score"] - scores[0]) / (scores[-1] - scores[0])

    assert x == same == pytest.approx(44 + place * (440 - 56), abs=0.1)
    assert sorted([high, low]) == pytest.approx(sorted(270 - 226 * share for share in gap["shares"]), abs=0.1)


@pytest.mark.slow
def test_many_groups_are_drawn_in_part_and_told_in_full() -> None:
    """The pictures keep to what can be told apart, and say so; the group table has all."""
    rng = np.random.default_rng(0)
    data = {
        "g": pa.array([f"group {i}" for i in rng.integers(0, 45, 3000)]),
        "label": pa.array(rng.integers(0, 2, 3000)),
        "score": pa.array(rng.random(3000)),
    }
    text = rendered(
        "html", audit_dict(audit(data, DataSpec(ColumnRoles(("g",), label="label", score="score"))))
    )
    page = assert_sound(text)

    assert f"{MOST_GROUPS} of 45 groups" in page.text()
    assert f"{CURVES} of 45 groups" in page.text()
    assert all(f"group {i}" in page.text("svg") for i in range(45))


def test_every_point_of_a_comparison_is_drawn_where_it_is(saved: dict[str, Any]) -> None:
    """A marker per point and one per method in the key; the frontier lies where its numbers are, from zero on."""
    gap = {"comparison": "selection_rate.difference.between_groups", "attribute": "race"}
    axes = {"gap": gap, "quality": "accuracy"}
    points = [p for p in saved["compare"]["points"] if any(one["gap"] == gap for one in p["gaps"])]
    front = sorted(
        one["value"] for p in points for one in p["gaps"] if axes in p["front"] and one["gap"] == gap
    )
    pictures = re.findall(r"<svg.*?</svg>", rendered("html", saved["compare"]), re.DOTALL)
    (picture,) = (one for one in pictures if ">accuracy against demographic parity difference [race]<" in one)
    titles = {p["title"] for p in points}
    line = re.search(r'<polyline points="([^"]*)"', picture)
    assert line
    left = float(re.findall(r'<text x="([^"]*)"[^>]*>0</text>', picture)[0])
    reach = [float(place.split(",")[0]) - left for place in line[1].split()]

    assert len(front) > 1
    assert len(re.findall("<(circle|polygon|path) ", picture)) == len(points) + len(titles)
    assert all(f">{title}</text>" in picture for title in titles)
    assert reach == pytest.approx([reach[-1] * x / front[-1] for x in front], abs=0.2)


def test_a_comparison_without_points_says_so(saved: dict[str, Any]) -> None:
    """Every method failed: the page has no picture and no empty table."""
    parts = dict.fromkeys(("front", "people", "messages"), ())
    failed = [{"title": "ramp", "slack": 0.0, "failure": "no solution", **parts}]
    page = assert_sound(rendered("html", {**saved["compare"], "points": failed}))

    assert not page.all("svg")
    assert "There are no candidates to show" in page.text()


def test_a_group_called_like_a_verdict_is_none() -> None:
    """Only cells of checks are marked as verdicts: by their type, not by their words."""
    data = {
        "g": pa.array(["PASS", "FAIL"] * 100),
        "label": pa.array([0, 0, 1, 1] * 50),
        "score": pa.array(np.linspace(0, 1, 200)),
    }
    data_spec = DataSpec(ColumnRoles(("g",), label="label", score="score"))
    result = audit_dict(audit(data, data_spec, Settings(checks=(Check.parse("dp.difference<=1"),))))
    assert (
        len(re.findall('class="mark', rendered("html", result))) == 3
    )  # of the whole, its attribute, the check
    plain, coloured = (rendered("text", result, color=colour) for colour in (False, True))
    assert plain.count("PASS") > 3
    assert len(re.findall("\x1b\\[32mPASS", coloured)) == 1


def test_a_column_called_like_a_metric_keeps_its_name() -> None:
    """The section of an attribute has its name, whatever words a metric of the same name has."""
    data = rows()
    data["auc"] = data.pop("race")
    result = audit_dict(audit(data, DataSpec(ColumnRoles(("auc",), label="label", score="score"))))

    assert "<h2>auc</h2>" in rendered("html", result)


def test_pictures_survive_odd_numbers() -> None:
    """Nothing defined, one value, huge and tiny ones, an open interval."""
    for values in ([], [None], [0.0], [3.0, 3.0], [-1e300, 1e300], [1e-12, 2e-12], [float("inf"), 1.0]):
        low, high = span_of(values, zero=False)
        assert low < high
    rows_ = [Dot("a" * 99, 0.5, None, 0.7, "x"), Dot("b", None, None, None, "undefined")]
    text = dots(rows_, (0.0, 1.0), Dot("all", None, None, None, "undefined")).body

    assert "…" in text
    assert "nan" not in text
    drawn = {bound: dots([Dot("b", None, 0.2, 0.8, "x", bound)], (0.0, 1.0)).body for bound in (False, True)}
    assert 'stroke-dasharray="1 4"' in drawn[False]  # undefined: nothing is known of it
    assert drawn[True].count('stroke-width="2"') == drawn[False].count('stroke-width="2"') + 1
    assert "<circle" not in drawn[True] + drawn[False]


def test_the_command_line_writes_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As a file and on stdout: the same page, which a saved result gives again."""
    pq.write_table(pa.table(rows()), tmp_path / "d.parquet")
    html, saved = tmp_path / "a.html", tmp_path / "a.json"
    command = ["audit", str(tmp_path / "d.parquet"), "--protected", "race", "--config", "none", "-q"]
    assert run([*command, "--format", "html", "--out", f"html={html}", "--out", f"json={saved}"]) == 0
    first = capsys.readouterr().out
    assert run(["report", str(saved), "--format", "html"]) == 0

    assert first == capsys.readouterr().out == html.read_text(encoding="utf-8")
    assert_sound(first)
    assert run([*command, "--format", "html", "--detail"]) == 0
    assert "covariance.to_overall" in Page(capsys.readouterr().out).text()


@pytest.mark.parametrize("name", ["html", "junit"])
def test_markup_is_printed_in_any_encoding(name: str, saved: dict[str, Any], tmp_path: Path) -> None:
    """Where stdout is not UTF-8, characters are written as references: they read the same."""
    text = json.dumps(saved["audit"], ensure_ascii=False).replace("Asian", "Zoë ✔")
    (tmp_path / "a.json").write_text(text, encoding="utf-8")
    printed = {}
    for encoding in ("utf-8", "cp1252"):
        out = io.BytesIO()
        with redirect_stdout(io.TextIOWrapper(out, encoding=encoding, write_through=True)):
            assert run(["report", str(tmp_path / "a.json"), "--format", name]) == 0
            printed[encoding] = out.getvalue().decode(encoding)

    assert printed["cp1252"].isascii()
    assert not printed["utf-8"].isascii()
    texts = [Page(one).texts for one in printed.values()]
    assert texts[0] == texts[1]


@pytest.mark.parametrize("part", ["scores", "groups", "gap"])
def test_a_changed_result_is_refused(
    part: str, saved: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What no format could have written is bad data, not a bug, and the page says that it is none."""
    changed = json.loads(json.dumps(saved["audit"]))
    changed["attributes"][0]["distribution"][part] = [1]
    (tmp_path / "a.json").write_text(json.dumps(changed))

    assert run(["report", str(tmp_path / "a.json"), "--out", f"html={tmp_path / 'a.html'}"]) == 2
    assert "incomplete or was changed" in capsys.readouterr().err
    assert "fairfix report did not run" in (tmp_path / "a.html").read_text()


@pytest.mark.parametrize("kind", ["audit", "repair", "models"])
def test_of_very_many_groups_a_table_has_the_worst(
    kind: str, saved: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that reach a comparison, or that change most; a sentence counts the others, and JSON has all."""
    if kind == "models":
        data = pd.read_parquet(ROOT / "sample_data" / "loans.parquet")
        data.assign(other=data.score**2).to_parquet(tmp_path / "d.parquet")
        asked = shlex.split("--protected race --score score --baseline other --config none --quiet")
        run(["compare", str(tmp_path / "d.parquet"), *asked, "--out", f"json={tmp_path / 'm.json'}"])
        result = json.loads((tmp_path / "m.json").read_text())
        groups = [(abs(one["new"]["value"] - one["old"]["value"]), one["group"]) for one in result["groups"]]
    elif kind == "repair":
        result = saved[kind]
        (people,) = result["proof"]["holdout"]["people"]
        changes = [(one["group"], one["metrics"]["selection_rate"]) for one in people["groups"]]
        groups = [(abs(one["after"]["value"] - one["before"]["value"]), name) for name, one in changes]
    else:
        result = saved[kind]
        block = result["attributes"][0]
        by_id = {one["id"]: one["groups"] for one in block["comparisons"]}
        reached = [name for one in layout.HEADLINES for name in by_id.get(one, ())]
        groups = [
            (-reached.index(one["group"]) if one["group"] in reached else -math.inf, one["group"])
            for one in block["groups"]
        ]
    assert len(groups) > 2
    monkeypatch.setattr(layout, "MOST_GROUPS", 2)
    shown = [
        one
        for one in layout.layout(struct(result))
        if "group" in one.title.lower() or one.kind in WITH_GROUPS
    ]
    grids = [grid for one in shown for grid in one.grids if grid.headings[0] == "group"]

    assert grids
    for grid in grids:
        names = {row[0] for row in grid.rows} - {"everybody", "overall"}
        assert names == {name for _, name in sorted(groups)[-2:]}
    if kind == "audit":
        backwards = json.loads(json.dumps(result))
        backwards["attributes"][0]["groups"].reverse()
        page = rendered("html", backwards)
        for table in re.findall(r"<caption>Groups of race</caption>.*?</table>", page, re.DOTALL):
            names = set(re.findall(r'<th scope="row">(.*?)</th>', table)) - {"overall"}
            assert names == {name for _, name in sorted(groups)[-2:]}
    assert f"The table has 2 of {len(groups)} groups" in rendered("text", result)
    assert all(name in rendered("json", result) for _, name in groups)


def test_a_number_and_its_interval_stay_together(saved: dict[str, Any]) -> None:
    """Cells of words do not break inside a value, and tables of words say what they are when they fall apart."""
    page = rendered("html", saved["audit"])
    assert re.search(r'<td role="cell" class="value" data-label="value">\d\.\d{4} \[', page)
    for _, attributes in Page(page).elements:
        if attributes.get("class") == "cards":
            assert attributes["role"] == "table"


def test_a_long_page_lists_its_sections() -> None:
    """Every link leads to a section of the page, in their order; a short page has none."""
    page = assert_sound(rendered("html", result_of("plain")))
    links = [one["href"][1:] for one in page.all("a") if not one["href"].startswith("#d-")]

    assert links[-1] == "definitions"
    assert links == [attributes["id"] for attributes in page.all("section") if "id" in attributes]
    assert len(links) > 4
    assert not assert_sound(rendered("html", result_of("weights"))).all("nav")


def test_the_list_of_sections_has_the_value_of_the_verdict() -> None:
    """Where a group's own number fails, it stands next to the word, not the gap that is undecided."""
    frame = people(600)
    worst = fairfix.audit(frame, protected=["sex", "race"], score="p").by_group["accuracy"].iloc[0]
    checks = ["dp.difference[sex]<=0.9", f"accuracy[sex={frame['sex'].iloc[0]}]>=0.999"]
    result = fairfix.audit(
        frame, protected=["sex", "race"], score="p", check=checks, gate_on="point", intersect=True
    )
    (failed,) = (one for one in result.content.checks if one.verdict == "fail")
    contents = rendered("html", result.to_dict()).partition('id="contents"')[2].partition("</nav>")[0]
    (entry,) = (line for line in contents.split("<li>") if ">sex</a>" in line)

    assert worst > 0
    assert f"<span>{failed.value:.4f}</span>" in entry


def test_curves_carry_their_names_apart() -> None:
    """Calibration curves end at the same corner; each name stands at its own part of the way."""
    corner = tuple((i / 10, i / 10) for i in range(11))
    text = lines([Curve(n, corner, marks=True) for n in "abcd"], ("x", "y"), (0.0, 1.0)).body
    places = re.findall(r'<text x="([\d.]+)" y="([\d.]+)"[^>]*>[abcd]</text>', text)

    assert len({x for x, _ in places[:4]}) == 4


def test_a_long_name_is_broken_in_no_time() -> None:
    """A million letters are looked at once, and not from each of them on; only names of comparisons may break."""
    assert str(_breakable("x" * 1_000_000)) == "x" * 1_000_000
    broken = "selection_<wbr>rate.<wbr>difference.<wbr>between_<wbr>groups"
    assert str(_breakable("selection_rate.difference.between_groups")) == broken


def test_a_page_begins_with_where_it_comes_from(tmp_path: Path) -> None:
    """Data, rows, date, model, version and command stand before the answer, as far as they are known."""
    frame = pd.DataFrame(rows())
    record = {"model": "<b>loans</b> 7", "date": "May 2026", "owner": "x", "purpose": "y"}
    for stated in ({}, record):
        result = fairfix.audit(frame, protected="race", label="label", score="score", record=stated)
        text = Page(result.to_html()).text("style")
        top = text.partition("fairfix audit of")[2].partition("the selection rate is")[0]
        counts = result.to_dict()["data"]["rows"]
        for one in (
            f"{counts['read']:,} rows read",
            f"{counts['used']:,} used",
            f"fairfix {fairfix.__version__}",
        ):
            assert one in top
        assert all((record[name] in top) == bool(stated) for name in ("model", "date"))
    result = fairfix.audit(
        frame, protected="race", label="label", score="score", record={**record, "command": "fairfix x"}
    )
    assert "fairfix x" in Page(result.to_html()).text("style").partition("the selection rate is")[0]
