"""Reports for CI: JUnit, GitHub annotations and SARIF say what the JSON says, in their own structure."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fairfix.auditing.audit import audit
from fairfix.auditing.checks import Check
from fairfix.auditing.results import Settings
from fairfix.cli import run
from fairfix.data.data_spec import ColumnRoles, DataSpec
from fairfix.report import FORMATS, is_gated, unrun
from fairfix.schema.unrun import Unrun
from msgspec import convert

from tests.conftest import Call
from tests.results import audit_dict, rendered
from tests.test_report.test_report import rows

HOSTILE = "\x07<b>&\"'%,:]](x){0}\r\n::error::d"
CHECKS = ("dp.difference<=0.01", "ks<=0.9", "eo.difference<=0.3", "selection_rate[race=<i>c</i>]>=0.9")
GATED = tuple(filter(is_gated, FORMATS))
WORDS = {"pass": "PASS", "fail": "FAIL", "undecided": "UNDECIDED"}


def audited(*checks: str, hostile: bool = False) -> dict[str, Any]:
    """Return an audit with one check of each verdict."""
    data = rows()
    if hostile:
        data["race"] = pa.array([HOSTILE if x == "a|b" else x for x in data["race"].to_pylist()])
    data_spec = DataSpec(ColumnRoles(("race",), label="label", score="score"))
    settings = Settings(checks=tuple(Check.parse(text) for text in checks))
    return json.loads(rendered("json", audit_dict(audit(data, data_spec, settings))))


@pytest.fixture(scope="module")
def result() -> dict[str, Any]:
    return audited(*CHECKS)


def verdicts(result: dict[str, Any]) -> list[str]:
    return [check["verdict"] for check in result["checks"]]


def test_the_example_has_every_verdict(result: dict[str, Any]) -> None:
    assert set(verdicts(result)) == {"pass", "fail", "undecided"}


# ---------------------------------------------------------------------- JUnit

SUITES = {"name", "time", "tests", "failures", "errors", "disabled"}
SUITE = {
    *("name", "time", "tests", "failures", "errors", "skipped", "timestamp", "hostname", "id", "package"),
    *("group", "file", "log", "url", "version"),
}
CASE = {"name", "time", "classname", "group", "status", "assertions", "class", "file", "line"}


def assert_junit(root: ET.Element) -> ET.Element:
    """Hold a tree against the structure that CI systems share; return its suite."""
    assert root.tag == "testsuites"
    assert set(root.attrib) <= SUITES
    (suite,) = root
    assert suite.tag == "testsuite"
    assert {"name", "tests", "failures", "errors"} <= set(suite.attrib) <= SUITE
    assert [child.tag for child in suite] == ["properties"] + ["testcase"] * int(suite.attrib["tests"])
    assert all(p.tag == "property" and set(p.attrib) == {"name", "value"} for p in suite[0])
    for case in suite.iter("testcase"):
        assert {"name", "classname"} <= set(case.attrib) <= CASE
        assert {child.tag for child in case} <= {"failure", "error", "skipped", "system-out", "system-err"}
        assert len(case.findall("failure")) + len(case.findall("skipped")) <= 1
        float(case.attrib["time"])
    counted = {"failures": "failure", "errors": "error", "skipped": "skipped"}
    for attribute, tag in counted.items():
        assert int(suite.attrib[attribute]) == len(suite.findall(f"testcase/{tag}"))
    return suite


def test_junit_has_a_case_per_check(result: dict[str, Any]) -> None:
    suite = assert_junit(ET.fromstring(rendered("junit", result).encode()))  # noqa: S314  our own XML
    cases = list(suite.iter("testcase"))

    assert len(cases) == len(result["checks"])
    assert len({(case.attrib["classname"], case.attrib["name"]) for case in cases}) == len(cases)
    tags = {"fail": "failure", "undecided": "skipped", "pass": "system-out"}
    for case, check in zip(cases, result["checks"], strict=True):
        (first, *_) = case
        assert first.tag == tags[check["verdict"]]
        said = first.attrib.get("message") or first.text or ""
        assert said.startswith(WORDS[check["verdict"]])
        assert check["reason"] in said
        assert f"{check['value']:.4f}" in said


def test_junit_of_nothing_gated_is_an_empty_suite() -> None:
    suite = assert_junit(ET.fromstring(rendered("junit", audited()).encode()))  # noqa: S314  our own XML

    assert suite.attrib["tests"] == "0"
    assert {p.attrib["name"]: p.attrib["value"] for p in suite[0]}["verdict"] == "no checks gated"


def test_hostile_names_stay_inside_the_xml() -> None:
    hostile = audited("dp.difference<=0.01", "ks<=0.2", "dp.difference<=0.9", hostile=True)
    assert any(group["group"] == HOSTILE for group in hostile["attributes"][0]["groups"])
    hostile["checks"][0].update(verdict="fail", groups=[HOSTILE, "b"])
    suite = assert_junit(ET.fromstring(rendered("junit", hostile).encode()))  # noqa: S314  our own XML

    assert "�<b>&\"'%,:]](x){0}\r\n::error::d" in suite.findall("testcase/failure")[0].attrib["message"]


# ---------------------------------------------------------------------- GitHub

COMMAND = re.compile(r"::(error|warning|notice) title=([^:,\r\n]*)::([^\r\n]*)")


def commands(text: str) -> list[tuple[str, str, str]]:
    """Read workflow commands as the runner does."""
    found = []
    for line in text.splitlines():
        match = COMMAND.fullmatch(line)
        assert match, line
        level, title, message = match.groups()
        for mark, code in ((":", "%3A"), (",", "%2C")):
            title = title.replace(code, mark)
        for mark, code in (("\r", "%0D"), ("\n", "%0A"), ("%", "%25")):
            title, message = title.replace(code, mark), message.replace(code, mark)
        found.append((level, title, message))
    return found


def test_annotations_are_errors_and_warnings(result: dict[str, Any]) -> None:
    found = commands(rendered("github", result))
    levels = [level for level, _, _ in found]

    assert levels.count("error") == verdicts(result).count("fail")
    assert levels.count("warning") == verdicts(result).count("undecided")
    assert levels[-1] == "notice"
    assert f"{verdicts(result).count('pass')} passed" in found[-1][2]
    for check in result["checks"]:
        assert (check["verdict"] == "pass") == (check["id"] not in "".join(m for _, _, m in found))


def test_hostile_names_stay_inside_their_annotation() -> None:
    hostile = audited("dp.difference<=0.01")
    name = "50%,a:b\n::error::x\r"
    hostile["checks"][0].update(verdict="fail", groups=[name, "b"], attribute=name)
    found = commands(rendered("github", hostile))

    assert len(found) == 2
    assert name in found[0][1]
    assert name in found[0][2]


# ---------------------------------------------------------------------- SARIF


def test_sarif_tells_of_what_did_not_pass(result: dict[str, Any]) -> None:
    (one,) = json.loads(rendered("sarif", result))["runs"]
    wanted = [c for c in result["checks"] if c["verdict"] != "pass"]
    levels = {"fail": "error", "undecided": "warning"}

    assert [r["level"] for r in one["results"]] == [levels[c["verdict"]] for c in wanted]
    assert [r["properties"]["verdict"] for r in one["results"]] == [c["verdict"] for c in wanted]
    assert one["properties"]["passed"] == len(result["checks"]) - len(wanted)
    prints = {tuple(r["partialFingerprints"].values()) for r in one["results"]}
    assert len(prints) == len(wanted)
    ids = [rule["id"] for rule in one["tool"]["driver"]["rules"]]
    assert len(set(ids)) == len(ids)
    for found in one["results"]:
        assert ids[found["ruleIndex"]] == found["ruleId"]
        for place in found["locations"]:
            artifact = place["physicalLocation"]["artifactLocation"]
            assert one["artifacts"][artifact["index"]]["location"]["uri"] == artifact["uri"]
            assert re.fullmatch(r"[\w.~/%-]+", artifact["uri"])
    for rule in one["tool"]["driver"]["rules"]:
        told = result["definitions"].get(rule["id"], "P(decision = 1)")
        assert told in rule["fullDescription"]["text"]


def test_hostile_names_are_neither_links_nor_placeholders() -> None:
    hostile = audited("dp.difference<=0.01", "selection_rate.max<=1")
    hostile["checks"][0]["groups"] = ["[x](https://example.org)", "{0}"]
    text = json.loads(rendered("sarif", hostile))["runs"][0]["results"][0]["message"]["text"]

    assert "](" not in text
    assert "{{0}}" in text


@pytest.mark.parametrize(
    "how", ["check = ['dp.difference<=0.01', 'ks<=0.9']", "check = [\n 'dp.difference<=0.01', 'ks<=0.9' ]"]
)
def test_a_check_is_shown_where_its_limit_is_written(how: str, call: Call) -> None:
    """In SARIF and annotations: the line of the configuration; for a check of the command line, the data."""
    Path("fairfix.toml").write_text(f'protected = "race"\n\n[audit]\n{how}\n')
    line = next(
        i for i, text in enumerate(Path("fairfix.toml").read_text().splitlines(), 1) if "'dp.d" in text
    )
    out = ("--out", "sarif=a.sarif", "--out", "github=a.txt", "--quiet")
    for more, file, number in (
        ((), "fairfix.toml", line),
        (("--check", "dp.difference<=0.01"), "d.parquet", 1),
    ):
        assert run(["audit", "d.parquet", *out, *more]) in (1, 3)
        (one,) = json.loads(Path("a.sarif").read_text())["runs"]
        (place,) = one["results"][0]["locations"]
        artifact = place["physicalLocation"]["artifactLocation"]
        assert (artifact["uri"], place["physicalLocation"]["region"]["startLine"]) == (file, number)
        assert one["artifacts"][artifact["index"]]["location"]["uri"] == file
        first = Path("a.txt").read_text().splitlines()[0]
        assert (f",file={file},line={number}::" in first) == (file == "fairfix.toml")


# ---------------------------------------------------------------------- a comment


@pytest.mark.slow
def test_a_comment_opens_with_what_did_not_pass(result: dict[str, Any]) -> None:
    """What passed and the whole report are folded; too long a report is left out."""
    text = rendered("comment", result)
    shown, *folded = text.split("<details>")

    assert text.startswith("<!-- fairfix audit -->\n\n### fairfix audit: ")
    for verdict, word in WORDS.items():
        assert shown.count(f"\n| {word} |") == (verdicts(result).count(verdict) if verdict != "pass" else 0)
    assert "1 passed" in folded[0]
    assert folded[0].count("\n| PASS |") == 1
    assert folded[-1].endswith("</details>\n")
    long = json.loads(json.dumps(result))
    long["attributes"] = [{**long["attributes"][0], "attribute": f"g{i}"} for i in range(200)]
    assert len(rendered("comment", long)) < 20_000


def test_hostile_names_stay_inside_a_comment() -> None:
    hostile = audited("dp.difference<=0.01", hostile=True)
    hostile["checks"][0].update(verdict="fail", groups=["</details><img src=x>", "a|b\n# c"])
    text = rendered("comment", hostile)

    assert "<img" not in text.replace("\\<", "")
    assert "\n# c" not in text


# ---------------------------------------------------------------------- of a run that did not happen

PROBLEM = {
    "schema": "fairfix.unrun/1",
    "fairfix": "0",
    "command": "audit",
    "status": 2,
    "code": "data",
    "message": HOSTILE,
}


def test_junit_has_an_error() -> None:
    suite = assert_junit(ET.fromstring(unrun("junit", convert(PROBLEM, Unrun)).encode()))  # noqa: S314  our own XML

    assert (suite.attrib["tests"], suite.attrib["errors"]) == ("1", "1")


def test_the_other_formats_say_it_safely() -> None:
    """Whatever is in the message, it stays a message."""
    assert [level for level, _, _ in commands(unrun("github", convert(PROBLEM, Unrun)))] == ["error"]
    assert json.loads(unrun("json", convert(PROBLEM, Unrun))) == PROBLEM
    assert "<b>" not in unrun("html", convert(PROBLEM, Unrun))
    assert "<b>" not in unrun("markdown", convert(PROBLEM, Unrun)).replace("\\<", "")
    for name in ("text", "markdown"):
        assert not any(line.startswith("::") for line in unrun(name, convert(PROBLEM, Unrun)).splitlines())


# ---------------------------------------------------------------------- on the command line


@pytest.fixture
def call(call: Call, away: None, monkeypatch: pytest.MonkeyPatch) -> Call:
    """Run the command line in a folder with data."""
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)
    pq.write_table(pa.table(rows(900)), "d.parquet")

    def called(*arguments: str) -> tuple[int, str, str]:
        return call(*arguments, *([] if arguments[0] == "report" else ["--config", "none"]))

    return called


def test_a_saved_result_gives_the_same_report(call: Call) -> None:
    """All from one scan, or rendered later: the same bytes."""
    command = ("audit", "d.parquet", "--protected", "race", "--check", "dp.difference<=0.01")
    call(*command, *(f"--out={name}=a.{name}" for name in ("json", *GATED)))
    for name in GATED:
        status, out, _ = call("report", "a.json", "--format", name)
        assert status == 0
        assert Path(f"a.{name}").read_text(encoding="utf-8") == out


def test_a_repair_has_checks_for_ci(call: Call) -> None:
    command = ("repair", "d.parquet", "--protected", "race", "--method", "ramp", "-o", "r.fairfix")
    outs = [part for one in GATED for part in ("--out", f"{one}=r.{one}")]
    status, out, _ = call(*command, *outs, "--check", "dp.difference<=0.9", "--format", "json")
    checks = json.loads(out)["checks"]

    assert status == 0
    tree = ET.parse("r.junit")  # noqa: S314  our own XML
    assert assert_junit(tree.getroot()).attrib["tests"] == str(len(checks))
    assert "1 passed" in Path("r.github").read_text()
    (one,) = json.loads(Path("r.sarif").read_text())["runs"]
    assert one["properties"]["protected"] == ["race"]


@pytest.mark.parametrize("name", GATED)
def test_a_comparison_has_none(name: str, call: Call) -> None:
    """Refused before the work, with what to take instead; a saved one too."""
    for arguments in (("--format", name), ("--out", f"{name}=x")):
        status, out, err = call("compare", "d.parquet", "--protected", "race", *arguments)
        assert status == 2
        assert ("has none" in out) == ("--format" in arguments)
        assert "has none" in err
    rows = {"read": 1, "used": 1, "excluded": []}
    data = {"source": "d", "rows": rows, "columns": {}, "inferred": {}}
    settings = {
        "task": "classification",
        "score_scale": "raw",
        "threshold": 0.5,
        "confidence": 0.95,
        "seed": 0,
    }
    result = {"schema": "fairfix.compare/1", "fairfix": "1", "data": data, "split": {"fit": 1, "holdout": 1}}
    result |= {"settings": settings | {"features": "score"}, "contenders": [], "points": []}
    Path("c.json").write_text(json.dumps(result))
    assert call("report", "c.json", "--out", f"{name}=x")[0] == 2
    assert "has none" in Path("x").read_text()
    assert call("report", "c.json")[0] == 0


def test_the_step_summary_is_the_markdown_report(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is appended, once, and only for the format of GitHub."""
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", "summary.md")
    Path("summary.md").write_text("before\n")
    command = ("audit", "d.parquet", "--protected", "race", "--check", "dp.difference<=0.01")
    assert call(*command)[0] != 2
    assert Path("summary.md").read_text() == "before\n"
    _, out, _ = call(*command, "--format", "github", "--out", "markdown=a.md", "--out", "github=a.txt")

    assert commands(out)
    assert Path("summary.md").read_text() == "before\n" + Path("a.md").read_text() + "\n"
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", "no/such/folder")
    status, again, err = call(*command, "--format", "github")
    assert again == out
    assert status in (1, 3)
    assert "step summary cannot be written" in err


def test_formats_are_the_modules_of_their_names() -> None:
    assert " ".join(FORMATS) == "text json card comment csv github html junit markdown pdf sarif xlsx"
    assert GATED == ("comment", "github", "junit", "sarif")
