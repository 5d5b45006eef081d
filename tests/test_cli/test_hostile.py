"""One hostile frame through every format and every command, with the readers that each output is made for.

Names of columns, groups, files, waivers and records are what attacks are made of. Formats and commands are drawn from
the tables of the program, so that a new one is held to the same laws on the day it exists.
"""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
import tomllib
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, get_args

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fairfix.cli import COMMANDS, run
from fairfix.data.choices import Database, ExportTarget
from fairfix.report import PRINTED
from markdown_it import MarkdownIt

from tests.conftest import Call
from tests.data import scored

PIECES = (
    "<script>document.title='ran'</script>",
    "]]>",
    "--><img src=x onerror=document.title='ran'>",
    "[a](javascript:document.title='ran')",
    "<http://evil.example/>",
    "![a](http://evil.example/x.png)",
    "%0A::error::forged",
    "\n::error::forged\n##[error]forged",
    "a|b `C` **d** \\",
    "\x1b]8;;http://evil.example\x1b\\x\x1b[2J\x07",
    "\u202egnp.\u2066x\u200b",
    "\x9b31mred\x85next\u2028line",
    "=cmd|'/c calc'!A1",
    '*/ } """ \' \\" ; /*',
    "'; DROP TABLE data; --\n\"",
    "{{7*7}} ${HOME} $(id) {0}",
    "##[error]forged ##vso[task.setvariable variable=a]b ##teamcity[x]",
    "@octocat @org/team #1 GH-12 me@evil.example www.evil.example !1 ~x",
    "[[ATTACHMENT|/etc/passwd]]",
    "a\u061cb\u3164c\U000e0041d\xad",
)
"""Of markup, links, mentions, commands to CI, terminals, directions of writing, formulas, code, queries and files."""

WHOLE = " ".join(PIECES)
UNSEEN = re.compile(
    r"[\x00-\x09\x0b-\x1f\x7f-\x9f\xad\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\u3164\ufeff\ud800-\udfff"
    r"\U000e0000-\U000e007f]"
)
"""What a terminal obeys, or nobody sees; a line's end alone may be in a text."""

FILE = "x" + WHOLE.replace("/", "").replace("\x00", "")[:150] + ".parquet"
ROLES = (
    "--protected",
    '"' + WHOLE.replace('"', '""') + '"',
    "--label",
    "label" + WHOLE,
    "--score",
    "score" + WHOLE,
)
QUIET = ("--config", "hostile.toml")
METHOD = ("--method", "ramp", "--id", "id" + WHOLE)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with the frame, a result, a repair and counts of it; it is the current one."""
    place, before = tmp_path_factory.mktemp("hostile"), Path.cwd()
    rng, n = np.random.default_rng(0), 60 * len(PIECES)
    score = np.round(rng.random(n), 3)
    frame = {
        WHOLE: [PIECES[i % len(PIECES)] for i in range(n)],
        "label" + WHOLE: (rng.random(n) < score).astype(int),
        "score" + WHOLE: score,
        "id" + WHOLE: np.arange(n),
    }
    os.chdir(place)
    pq.write_table(pa.table(frame), FILE)
    reason = json.dumps(
        WHOLE.replace("\x7f", "").replace("\udcff", ""), ensure_ascii=False
    )  # TOML has no pairs of escapes
    checks = ", ".join(json.dumps(one) for one in ("dp.difference<=0.01", "ks<=0.9", "eo.difference<=0.3"))
    Path("hostile.toml").write_text(
        f"check = [{checks}]\n[report]\nmodel = {reason}\nowner = {reason}\n"
        f'[[waivers]]\ncheck = "dp.difference<=0.01"\nreason = {reason}\nexpires = 2999-01-01\n'
    )
    assert run(["audit", FILE, *ROLES, *QUIET, "--quiet", "--out", "json=result.json"]) in (0, 1, 3)
    assert run(["repair", FILE, *ROLES, *QUIET, *METHOD, "-o", "r.fairfix", "--quiet"]) in (0, 1, 3)
    assert run(["count", FILE, *ROLES, *QUIET, "--quiet", "-o", "all.counts"]) == 0
    yield place
    os.chdir(before)


def harmless(text: str, *, commands: bool = False) -> None:
    """Nothing in it moves a cursor, turns a line around or is a command to CI."""
    assert [hex(ord(one)) for one in UNSEEN.findall(text)] == []
    if not commands:
        assert [line for line in text.splitlines() if re.match(r"\s*::", line)] == []
    assert re.findall(r"##\w*\[", text) == []  # Azure and older GitHub look for them anywhere in a line


def texts(content: Any) -> Iterator[str]:
    """Yield every text of JSON."""
    if isinstance(content, dict):
        content = list(content.values())
    if isinstance(content, list):
        for one in content:
            yield from texts(one)
    elif isinstance(content, str):
        yield content


def read_json(text: str) -> None:
    """The names are there as they are."""
    assert WHOLE in texts(json.loads(text))


URI = re.compile(r"(?:[\w.~!$&'()*+,;=@/-]|%[0-9A-F]{2})+", re.ASCII)
"""A relative reference: no scheme, and whatever a file may be called besides is escaped."""


def read_sarif(text: str) -> None:
    """It has what GitHub's code scanning asks of an upload, within its limits, and its paths are paths."""
    read_json(text)
    log = json.loads(text)
    assert (log["version"], log["$schema"].rpartition("/")[2]) == ("2.1.0", "sarif-2.1.0.json")
    (own,) = log["runs"]
    driver = own["tool"]["driver"]
    assert driver["name"] == "fairfix"
    for rule in driver["rules"]:
        assert 0 < len(rule["id"]) <= 255
        assert all(
            0 < len(rule[part]["text"]) <= 1024 for part in ("shortDescription", "fullDescription", "help")
        )
        assert rule["defaultConfiguration"]["level"] in ("note", "warning", "error")
    assert all(URI.fullmatch(one["location"]["uri"]) for one in own["artifacts"])
    assert own["results"]
    for one in own["results"]:
        assert driver["rules"][one["ruleIndex"]]["id"] == one["ruleId"]
        assert one["message"]["text"]
        assert "](" not in one["message"]["text"]
        assert all(one["partialFingerprints"].values())
        place = one["locations"][0]["physicalLocation"]
        assert (
            own["artifacts"][place["artifactLocation"]["index"]]["location"]["uri"]
            == place["artifactLocation"]["uri"]
        )
        assert place["region"]["startLine"] >= 1


def read_junit(text: str) -> None:
    """All of it is text or an attribute: there are no elements but its own."""
    tags = {one.tag for one in ET.fromstring(text.encode()).iter()}  # noqa: S314  our own XML
    own = {"testsuites", "testsuite", "properties", "property", "testcase"}
    assert tags <= own | {"failure", "error", "skipped", "system-out"}
    assert "[[attachment|" not in text.lower()  # Jenkins and GitLab publish the file behind it


class Page(HTMLParser):
    """Collects what a page could do."""

    def __init__(self) -> None:
        super().__init__()
        self.able: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Keep what runs, or leads out of the page."""
        if tag in ("script", "iframe", "img", "object", "embed", "base", "form"):
            self.able.append(tag)
        for name, content in attrs:
            leads = name in ("href", "src", "xlink:href", "action") and not str(content).startswith("#")
            if leads or name.startswith("on"):
                self.able.append(f"{name}={content}")


def read_html(text: str) -> None:
    """Nothing runs or leads out, and what could is forbidden by the page."""
    page = Page()
    page.feed(text)
    assert page.able == []
    assert "default-src 'none'" in text


LINK = re.compile(r"(?<!\\):(?=//)|www\.|[@#~!](?=\w)|\bGH-(?=\d)", re.IGNORECASE)
"""What GitHub and GitLab make a link or a mention of, in the text of an element."""

OWN_MARKUP = re.compile(r"<!-- fairfix audit -->|<summary>[\w ]+</summary>|</?details>|\s")


def read_markdown(text: str) -> None:
    """It has neither markup nor links nor pictures, and every row of a table has as many cells as its head."""
    tokens = MarkdownIt("gfm-like", {"linkify": False, "html": True}).parse(text)
    inner = [one for token in tokens for one in (token, *(token.children or ()))]
    markup = "".join(one.content for one in inner if one.type in ("html_inline", "html_block"))
    assert OWN_MARKUP.sub("", markup) == ""
    assert {one.type for one in inner} & {"link_open", "image", "code_block", "fence"} == set()
    assert LINK.findall(text.replace("&#8203;", "\u200b")) == []
    for lines in re.findall(r"(?:^\|.*\n?)+", text, re.MULTILINE):
        cells = {len(re.findall(r"(?<!\\)\|", line)) for line in lines.splitlines()}
        assert len(cells) == 1


def read_github(text: str) -> None:
    """Every line is a command of its own, and none is an error beyond those of the checks."""
    assert all(re.match(r"::(error|warning|notice) title=", line) for line in text.splitlines())


def read_csv(text: str) -> None:
    """Every row has the columns of the head, and no cell is a formula."""
    head, *rows = csv.reader(text.splitlines())
    assert {len(row) for row in rows} <= {len(head)}
    cells = [cell for row in (head, *rows) for cell in row if cell]
    assert [cell for cell in cells if cell[0] in "=+-@" and not NUMBER.fullmatch(cell)] == []


NUMBER = re.compile(r"-?[0-9.]+(e-?[0-9]+)?|-inf")


READERS: dict[str, Callable[[str], None]] = {
    "json": read_json,
    "csv": read_csv,
    "sarif": read_sarif,
    "junit": read_junit,
    "html": read_html,
    "markdown": read_markdown,
    "card": read_markdown,
    "comment": read_markdown,
    "github": read_github,
}


@pytest.mark.slow
@pytest.mark.parametrize("name", PRINTED)
def test_a_format_is_read_as_what_it_is(name: str, folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """On stdout and as a file: printed, it does nothing; read by its own reader, the names are names."""
    assert run(["report", "result.json", "--format", name, "--out", f"{name}=out.{name}"]) == 0
    printed = capfd.readouterr().out
    harmless(printed, commands=name == "github")
    harmless(Path(f"out.{name}").read_text(encoding="utf-8"), commands=name == "github")
    READERS.get(name, lambda _: None)(printed)


@pytest.mark.usefixtures("away")
def test_backquotes_of_a_name_are_its_own(call: Call) -> None:
    """A parameter in a message becomes an option; a column that looks like one stays what it is, wherever it stands."""
    table = scored(rows=60, groups=2)
    pq.write_table(table.rename_columns({"race": "`data`", "job": "`model`"}), "d.parquet")
    begin = ("d.parquet", "--protected", "`data`", "--config", "none")
    audited, repaired = call("audit", *begin), call("repair", *begin, "--method", "ramp", "-o", "r.fairfix")
    refused = [
        call("audit", *begin, *more)[2] for more in (("--label", "`model`"), ("--reference", "`data`=z"))
    ]

    assert "By `data`, " in audited[1]
    assert "protected `data`" in audited[1]
    assert "[`data`]" in repaired[1]
    assert "needed for predictions: '`data`', " in repaired[2]
    assert "label column '`model`' holds" in refused[0]
    assert "name the positive one" in refused[0]  # no line to copy: its column would be read as an option
    assert "fairfix: --reference: '`data`' has no group 'z'" in refused[1]
    assert not re.search("DATA|--model", "".join([*audited[1:], *repaired[1:], *refused]))


@pytest.mark.parametrize("name", [one for one in PRINTED if one != "text"])
def test_a_run_that_does_not_happen_is_told_as_safely(
    name: str, folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    group = '"' + WHOLE.replace('"', '""') + 'x"'
    assert run(["audit", FILE, "--protected", group, "--config", "none", "--format", name]) == 2
    said = capfd.readouterr()
    harmless(said.err)
    harmless(said.out, commands=name == "github")
    if name not in ("json", "sarif"):
        READERS[name](said.out.replace(" unrun", " audit"))


LINES: dict[str, tuple[tuple[str, ...], ...]] = {
    "audit": (
        ("audit", FILE, *ROLES, *QUIET, "--detail"),
        ("audit", FILE, *ROLES, *QUIET, "--dry-run"),
        ("audit", WHOLE, *ROLES, "--config", "none"),
        ("audit", FILE, *ROLES[:2], "--label", WHOLE, "--config", "none"),
        ("audit", FILE, *ROLES, "--model", WHOLE + ".onnx", "--config", "none"),
        ("audit", "duckdb:///base.duckdb#" + WHOLE, *ROLES, "--config", "none"),
        ("audit", "duckdb:///base.duckdb#" + WHOLE, *ROLES, "--config", "none", "--dry-run"),
    ),
    "repair": (
        ("repair", FILE, *ROLES, *QUIET, *METHOD, "-o", WHOLE.replace("/", "")[:60], "--detail"),
        ("repair", FILE, *ROLES, "--config", "none", "--method", WHOLE),
    ),
    "compare": (("compare", FILE, *ROLES, "--config", "none", "--methods", "ramp", "--slacks", "0.1"),),
    "predict": (("predict", "r.fairfix", FILE, "-o", "=" + FILE.replace(".parquet", ".csv")),),
    "inspect": (
        ("inspect", "r.fairfix"),
        ("inspect", "r.fairfix", "--format", "json"),
        ("inspect", "all.counts"),
        ("inspect", FILE),
    ),
    "report": (("report", WHOLE), ("report", "result.json", "--out", f"{WHOLE}=x")),
    "init": (("init", FILE, *ROLES, "-o", "made.toml"), ("init", FILE)),
    "count": (
        ("count", "all.counts", FILE, "-o", "sum.counts"),
        ("count", FILE, *ROLES, *QUIET, "-o", "sum.counts"),
        ("count", FILE, *ROLES, *QUIET, "--part", WHOLE, "-o", "sum.counts"),
    ),
    "explore": (
        ("explore", FILE, *ROLES, *QUIET, "-o", "explored.html"),
        ("explore", "all.counts", "--suppress-below", "50", "-o", "explored.html"),
        ("explore", FILE, *ROLES, *QUIET, "-o", WHOLE.replace("/", "")[:60]),
        ("explore", FILE, *ROLES[:2], "--score", WHOLE, "--config", "none", "-o", "explored.html"),
    ),
    "help": (("help", WHOLE), ("help", "audit", WHOLE)),
    "version": (("version",),),
    "explain": (("explain", WHOLE), ("explain", f"dp.difference[{PIECES[9]}{PIECES[10]}]>0.1")),
    "export": (
        *(("export", "r.fairfix", "--to", to, "-o", f"rule.{to}") for to in get_args(ExportTarget)),
        *(("export", "r.fairfix", "--to", to) for to in get_args(ExportTarget)),
    ),
}


def test_every_command_has_its_lines() -> None:
    assert set(LINES) == set(COMMANDS)


@pytest.mark.slow
@pytest.mark.parametrize(
    "line", [line for lines in LINES.values() for line in lines], ids=lambda line: line[0]
)
def test_a_command_says_nothing_that_does_something(
    line: tuple[str, ...], folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    if not Path("base.duckdb").exists():
        with duckdb.connect("base.duckdb") as base:
            frame = pq.read_table(FILE)  # noqa: F841  read by the query
            base.execute(f'CREATE TABLE "{WHOLE.replace(chr(34), chr(34) * 2)}" AS FROM frame')
    assert run(list(line)) in (0, 1, 2, 3)
    said = capfd.readouterr()
    harmless(said.out)
    harmless(said.err)


def test_an_interactive_page_has_its_own_scripts_alone(folder: Path) -> None:
    """Names stand in its JSON, in which no markup and nothing unseen is left."""
    assert run(["explore", FILE, *ROLES, *QUIET, "-q", "-o", "names.html"]) == 0
    text = Path("names.html").read_text(encoding="utf-8")
    harmless(text)
    page = Page()
    page.feed(text)
    assert page.able == ["form", *["script"] * 3]
    assert "default-src 'none'" in text


def test_a_first_configuration_says_what_it_means(folder: Path) -> None:
    """No name leaves its line of a comment or its text: the file audits the columns that it was made for."""
    assert run(["init", FILE, *ROLES, "-o", "first.toml", "--force", "--quiet"]) == 0
    content = Path("first.toml").read_text(encoding="utf-8")
    harmless(content)
    read = tomllib.loads(content)

    assert set(read) == {"data", "protected", "label", "score", "audit", "repair"}
    assert read["audit"] == read["repair"] == {}
    assert read["label"] == "label" + WHOLE
    assert run(["audit", "--config", "first.toml", "--quiet"]) == 0


# ---------------------------------------------------------------------- what is exported


@pytest.fixture(scope="module")
def expected(folder: Path) -> dict[int, float]:
    """Id -> probability, as ``predict`` gives it."""
    assert run(["predict", "r.fairfix", FILE, "-o", "decided.parquet"]) == 0
    table = pq.read_table("decided.parquet").to_pydict()
    return dict(zip(table["id" + WHOLE], table["p_positive"], strict=True))


@pytest.mark.parametrize("dialect", get_args(Database))
def test_a_query_is_one_statement(dialect: str, folder: Path, expected: dict[int, float]) -> None:
    """Of all databases, none lets a name end its text; DuckDB and SQLite give what ``predict`` gives."""
    line = ("export", "r.fairfix", "--to", "sql", "--dialect", dialect, "--table", WHOLE, "-o", "q.sql")
    assert run([*line, "--quiet"]) == 0
    query, frame = Path("q.sql").read_text(encoding="utf-8"), pq.read_table(FILE)
    name = '"' + WHOLE.replace('"', '""') + '"'
    if dialect == "duckdb":
        with duckdb.connect() as base:
            base.execute(f"CREATE TABLE {name} AS FROM frame")
            base.execute("CREATE TABLE data (kept INTEGER)")
            rows = base.execute(query).fetchall()
            assert base.execute("SELECT count(*) FROM data").fetchall() == [(0,)]
    elif dialect == "sqlite":
        with sqlite3.connect(":memory:") as base:
            columns = ", ".join('"' + one.replace('"', '""') + '"' for one in frame.column_names)
            base.execute(f"CREATE TABLE {name} ({columns})")
            base.executemany(
                f"INSERT INTO {name} VALUES (?, ?, ?, ?)", zip(*frame.to_pydict().values(), strict=True)
            )
            rows = base.execute(query).fetchall()
    else:
        return
    assert {row[0]: pytest.approx(row[-1], abs=1e-9) for row in rows} == expected


def test_a_script_is_its_own_text_alone(folder: Path) -> None:
    """Names are data of it: Python reads it, it runs nothing of them, and its results are those of fairfix."""
    assert run(["export", "r.fairfix", "--to", "python", "-o", "rule.py", "--quiet"]) == 0
    done = subprocess.run([sys.executable, "rule.py", "--check"], capture_output=True, text=True, check=False)

    assert (done.returncode, done.stdout) == (0, "all results equal those of fairfix\n")
    assert Path("rule.py").read_text(encoding="utf-8").isascii() or not UNSEEN.search(
        Path("rule.py").read_text()
    )


# ---------------------------------------------------------------------- in a browser


@pytest.mark.slow
@pytest.mark.parametrize("name", ["html", "markdown", "card", "comment"])
def test_a_browser_runs_nothing_of_it(name: str, folder: Path) -> None:
    """Also where the page forbids nothing, as where a server shows Markdown: no script runs and nothing is fetched."""
    playwright = pytest.importorskip("playwright.sync_api", reason="the extra 'browser' is not installed")
    browser = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if browser is None:
        pytest.skip("no browser is on the path")
    assert run(["report", "result.json", "--out", f"{name}=shown"]) == 0
    text = Path("shown").read_text(encoding="utf-8")
    if name != "html":
        text = MarkdownIt("gfm-like", {"linkify": False, "html": True}).render(text)
    page_file = folder / f"{name}-shown.html"
    page_file.write_text(f"<meta charset=utf-8>{text}" if name != "html" else text, encoding="utf-8")
    fetched: list[str] = []
    with playwright.sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=browser, args=["--disable-gpu", "--no-first-run"])
        page = opened.new_page(bypass_csp=True)
        page.on("request", lambda request: fetched.append(request.url))
        page.goto(page_file.as_uri())
        assert page.title() != "ran"
        assert page.evaluate(
            "[...document.querySelectorAll('a')].every(a => a.getAttribute('href')[0] == '#')"
        )
        assert page.evaluate("document.querySelectorAll('script, img, iframe').length") == 0
        opened.close()
    assert fetched == [page_file.as_uri()]
