"""The first line on each of twenty public files leads to a report, and forty first guesses lead on.

The law: two lines at most, for each file and each task. :data:`LEADING_ON` is only ever made larger.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.real.files import FILES, Real, names_of
from tests.real.first_guesses import GUESSES, files, leads_on
from tests.real.first_lines import cases, fault, measured, next_line, proposed

LAW = 2
"""Lines that a person types until the first report."""

LEADING_ON = 36
"""Guesses that run, or are answered with a line that does; forty in the end."""

NEEDS = {".ssp": "pyreadstat", ".xlsx": "openpyxl"}
"""Kind of file -> library that writes it."""


@pytest.mark.slow
@pytest.mark.parametrize(("real", "task"), [pytest.param(*one, id=name) for name, *one in cases()])
def test_a_first_line_leads_to_a_report(real: Real, task: str, tmp_path: Path) -> None:
    if library := NEEDS.get(Path(real.file).suffix):
        pytest.importorskip(library, reason="writes the file")
    done = measured(real, task, tmp_path)

    assert done.tries <= LAW, "\n".join([*done.lines, *done.answers[-1:], done.wrong])


@pytest.mark.slow
def test_first_guesses_lead_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for library in ("openpyxl", "duckdb", "polars"):
        pytest.importorskip(library, reason="makes what is guessed")
    files(tmp_path)
    monkeypatch.chdir(tmp_path)
    stuck = [line for line, means in GUESSES if not leads_on(line, means)]

    assert len(GUESSES) == 40
    assert len(GUESSES) - len(stuck) >= LEADING_ON, "\n".join(stuck)


def test_files_have_the_names_of_the_public_ones() -> None:
    wide = {"compas": 53, "hmda": 99, "homecredit": 122, "lending": 151, "diabetic": 50, "communities": 128}

    assert {name: len(names_of(name)) for name in wide} == wide
    assert sorted(name for name in set(names_of("compas")) if names_of("compas").count(name) == 2) == [
        "decile_score", "priors_count",
    ]  # fmt: skip
    assert len({real.name for real in FILES}) == 20


def test_files_are_the_same_each_time(tmp_path: Path) -> None:
    compas = FILES[0]
    first = compas.write(tmp_path, scored=False).read_bytes()
    del compas.__dict__["drawn"]

    assert compas.write(tmp_path, scored=False).read_bytes() == first


@pytest.mark.parametrize(
    ("answer", "then"),
    [
        ("x\nto copy: fairfix audit a.csv --protected race\n", "fairfix audit a.csv --protected race"),
        ("no column 'c'; did you mean 'race'?", "fairfix audit a.csv --protected race"),
        (
            "say --label y=bad or --label 'y=very good'",
            "fairfix audit a.csv --protected c --label 'y=very good'",
        ),
        ("name it with --score COLUMN", "fairfix audit a.csv --protected c --score p"),
        ("add --config none.", "fairfix audit a.csv --protected c --config none"),
        ("name the column with --weight", None),
        ("--features names the columns", None),
        ("fairfix: note: --score x\nfairfix: name the column with --weight", None),
        ("type: fairfix audit a.csv --protected COLUMN", None),
        ("unknown kind of file", None),
    ],
)
def test_a_person_types_what_is_answered_and_no_more(answer: str, then: str | None) -> None:
    knows = {"label": ("very good",), "score": ("p",)}

    assert next_line("fairfix audit a.csv --protected c", answer, knows) == then


def test_a_person_takes_the_proposal_with_the_own_columns() -> None:
    answer = "fairfix audit a.csv --label x\n  fairfix audit a.csv --label two_year_recid\n"

    assert proposed(answer) == [line.strip() for line in answer.splitlines()]
    assert (
        next_line("fairfix audit a.csv", answer, {"label": ("two_year_recid",)})
        == proposed(answer)[1]
    )  # fmt: skip


@pytest.mark.parametrize(
    ("change", "faulty"),
    [
        ({}, False), ({"read": 599}, True), ({"label": None}, True), ({"label": "default"}, True),
        ({"positive": "no"}, True), ({"rate": 0.1}, True),
    ],
)  # fmt: skip
def test_a_report_about_something_else_is_none(change: dict[str, Any], faulty: bool) -> None:
    bank = next(real for real in FILES if real.name == "bank")
    given = {"read": 600, "label": "y", "positive": "yes", "rate": bank.base_rates()[0]} | change
    result = {
        "data": {"rows": {"read": given["read"]}, "columns": {"label": given["label"]}},
        "settings": {"task": "classification", "positive_label": given["positive"]},
        "overall": {"metrics": {"base_rate": {"value": given["rate"]}}},
    }

    assert bool(fault(bank, result)) == faulty
