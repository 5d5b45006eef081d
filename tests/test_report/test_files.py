"""Reports that are no text: workbooks hold the tables of CSV, PDF files come from a browser that reaches nothing."""

from __future__ import annotations

import math
import os
import re
from io import BytesIO
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET
from zipfile import ZipFile

import fairfix
import openpyxl
import pytest
from fairfix.data.targets import is_own
from fairfix.report import csv_, html_, pdf_, unrun, xlsx_
from fairfix.report.frames import frame, tables_of
from fairfix.schema.common import SavedResult
from fairfix.schema.unrun import Unrun
from python_calamine import CalamineWorkbook

from tests.conftest import Call
from tests.data import people

SIGNS = ("=1+1", "+a", "-a", "@sum(a1)", "_x0041_", "<b>&amp;\"'", "a\tb\nc", " a ", "\ufffe\uffff", "群体 ✔")
HOSTILE = (*SIGNS, "x" * 40_000)


def audit_of(*names: str) -> SavedResult:
    """Return an audit whose groups have these names."""
    rows = people(400)[["race", "sex", "label", "score"]]
    rows["race"] = [names[i % len(names)] for i in range(len(rows))]
    told: dict[str, Any] = {"protected": ["race", "sex"], "label": "label", "score": "score"}
    return fairfix.audit(rows, **told, check=["dp.difference<=0.1"]).content


def test_a_workbook_has_every_number_of_every_table() -> None:
    """Read by two libraries, its sheets are the tables of the data frames, digit by digit."""
    result = audit_of("a", "b", "c")
    made = xlsx_.render(result)
    assert made == xlsx_.render(result)
    book, other = openpyxl.load_workbook(BytesIO(made)), CalamineWorkbook.from_filelike(BytesIO(made))
    tables = {name: frame(result, name) for name in tables_of(result)}
    assert book.sheetnames == other.sheet_names == [name for name, table in tables.items() if len(table)]
    for name in book.sheetnames:
        head, *lines = book[name].iter_rows(values_only=True)
        assert list(head) == list(tables[name].columns)
        assert [len(line) for line in other.get_sheet_by_name(name).to_python()] == [len(head)] * (
            len(lines) + 1
        )
        for line, (_, wanted) in zip(lines, tables[name].iterrows(), strict=True):
            for cell, value in zip(line, wanted, strict=True):
                if isinstance(value, float) and math.isnan(value):
                    assert cell is None
                else:
                    assert cell == value or (cell is None and value == "")


@pytest.mark.slow
@pytest.mark.parametrize("name", HOSTILE)
def test_a_name_stays_a_text(name: str) -> None:
    """No cell is a formula or loses its sign, names that differ stay different, and the file is well-formed."""
    made = xlsx_.render(audit_of(name, "A", "x" * 40_001))
    sheets = [ET.fromstring(text) for text in texts_of(made) if b"<worksheet" in text]  # noqa: S314  ours
    assert not [one for sheet in sheets for one in sheet.iter("{*}f")]
    column = list(next(openpyxl.load_workbook(BytesIO(made))["groups"].iter_cols(3, 3)))[1:]
    assert {cell.data_type for cell in column} == {"s"}
    assert len({cell.value for cell in column}) == 3 + 2  # and those of sex
    if name[0] in csv_.FORMULA:
        own = [cell for cell in column if cell.value == name]
        assert own
        assert all(cell.quotePrefix for cell in own)


def texts_of(made: bytes) -> list[bytes]:
    """Return the parts of a workbook."""
    with ZipFile(BytesIO(made)) as file:
        return [file.read(name) for name in file.namelist()]


FAKE = """#!/bin/sh
printf '%s\\n' "$@" > {log}
for one in "$@"; do case "$one" in
  --print-to-pdf=*) to="${{one#--print-to-pdf=}}"; cp "${{to%report.pdf}}report.html" {log}.html; {act} ;;
  --user-data-dir=*) mkdir -p "${{one#--user-data-dir=}}" ;;
esac; done
"""
PRINTS = "printf '%%PDF-1.4 (D:20260101120000)' > $to"


@pytest.fixture
def browser(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program called chromium, alone on the search path besides the shell, which logs its arguments and prints."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}/bin{os.pathsep}/usr/bin")
    monkeypatch.setattr(pdf_, "BROWSERS", ("fairfix-chromium",))
    program = folder / "fairfix-chromium"
    program.write_text(FAKE.format(log=tmp_path / "log", act=PRINTS))
    program.chmod(0o755)
    return program


def test_a_browser_prints_the_page_offline_and_leaves_nothing(browser: Path, tmp_path: Path) -> None:
    """It gets the HTML report, a profile of its own and no way to a network; its folder is gone; no time is left."""
    result = audit_of("a", "b")
    made = pdf_.render(result)
    given = (tmp_path / "log").read_text().splitlines()
    (profile,) = (one.partition("=")[2] for one in given if one.startswith("--user-data-dir="))

    assert made.startswith(b"%PDF-1.4 (D:19800101000000)")
    assert (tmp_path / "log.html").read_text(encoding="utf-8") == html_.render(result)
    assert {"--headless", "--proxy-server=127.0.0.1:9", "--host-resolver-rules=MAP * ~NOTFOUND"} <= {*given}
    assert Path(profile).is_absolute()
    assert not Path(profile).parent.exists()
    assert not {"http:", "https:"} & {one.partition("//")[0] for one in given}


def test_a_browser_of_the_working_folder_is_not_run(
    browser: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the search path has an empty or a relative folder."""
    monkeypatch.chdir(browser.parent)
    monkeypatch.setenv("PATH", os.pathsep.join(("", ".", "../bin", "/nowhere")))
    monkeypatch.setitem(__import__("sys").modules, "weasyprint", None)
    with pytest.raises(fairfix.errors.UsageError, match="pip install"):
        pdf_.render(audit_of("a", "b"))
    assert not (tmp_path / "log").exists()


@pytest.mark.parametrize("act", ["exit 3", "printf no > $to"])
def test_a_browser_that_fails_leaves_no_report(act: str, browser: Path, tmp_path: Path, call: Call) -> None:
    """Status 2, a message with what to do, and a page that says that the run failed."""
    browser.write_text(FAKE.format(log=tmp_path / "log", act=act))
    people(200).to_parquet(tmp_path / "d.parquet")
    out = tmp_path / "a.pdf"
    line = (
        "audit",
        str(tmp_path / "d.parquet"),
        "--protected",
        "race",
        "--score",
        "score",
        "--label",
        "label",
    )
    status, _, err = call(
        *line, "--config", "none", "--out", f"pdf={out}", "--out", f"json={tmp_path / 'a.json'}"
    )

    assert (status, "html=FILE" in err) == (2, True)
    assert b"did not run" in out.read_bytes()
    assert "fairfix.unrun" in (tmp_path / "a.json").read_text()


def test_files_say_that_a_run_failed_and_are_known_as_own(tmp_path: Path) -> None:
    """A workbook with the message, and a PDF whose table of objects is right, whatever signs the message has."""
    message = "no ) file \\ ( 'é' 群体 " + "word " * 60
    problem = Unrun(fairfix="0", command="audit", status=2, code="data", message=message)
    (tmp_path / "a.xlsx").write_bytes(unrun("xlsx", problem))
    (tmp_path / "a.pdf").write_bytes(unrun("pdf", problem))
    rows = [*openpyxl.load_workbook(tmp_path / "a.xlsx").active.values]
    assert rows == [("fairfix audit did not run", message)]
    page = unrun("pdf", problem)
    places = [int(one) for one in re.findall(rb"\n(\d{10}) 00000 n", page)]
    assert [page[place:].startswith(b"%d 0 obj" % i) for i, place in enumerate(places, 1)] == [True] * 5
    assert page[int(page.rpartition(b"startxref\n")[2].split()[0]) :].startswith(b"xref\n0 6")
    assert "(no \\) file \\\\ \\( 'é' ??".encode("latin-1") in page
    for name in ("a.xlsx", "a.pdf"):
        assert is_own(tmp_path / name)
    (tmp_path / "b.pdf").write_bytes(b"%PDF-1.4 another")
    openpyxl.Workbook().save(tmp_path / "b.xlsx")
    for name in ("b.xlsx", "b.pdf"):
        assert not is_own(tmp_path / name)


@pytest.mark.slow
def test_a_real_browser_prints_the_same_bytes_twice(tmp_path: Path) -> None:
    """A PDF of some pages, if the machine has a browser."""
    from fairfix.data.confined import program_of

    if not program_of(pdf_.BROWSERS):
        pytest.skip("no browser to print with")
    result = fairfix.audit(
        people(400)[["race", "label", "score"]], protected="race", label="label", score="score"
    )
    result.save(tmp_path / "a.pdf")
    made = (tmp_path / "a.pdf").read_bytes()
    assert len(re.findall(rb"/Type\s*/Page\b", made)) > 1
    boxes = {
        tuple(map(round, map(float, one.split()))) for one in re.findall(rb"/MediaBox \[([^\]]*)\]", made)
    }
    assert boxes == {(0, 0, 595, 842)}  # A4
    assert made == result.render("pdf")
    assert is_own(tmp_path / "a.pdf")
