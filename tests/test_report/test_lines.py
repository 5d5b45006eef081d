"""No text begins a line with a name of the data: whoever reads lines, as Python reads a .pth file, obeys none of it."""

from __future__ import annotations

import contextlib
import io
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fairfix
import pytest
from fairfix.cli import run
from fairfix.errors import FairfixError
from fairfix.report import PRINTED, unrun
from fairfix.report.words import as_options
from fairfix.schema.unrun import Unrun
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.data import scored
from tests.results import rendered
from tests.strategies import examples

MARK = "import"
"""How each word of a name begins, and no word of fairfix does."""

WORDS = st.lists(st.sampled_from((MARK, "import_os;os.system('id')", "import::x", "import|y", "import,`z`", "import=")),
                 min_size=1, max_size=9)  # fmt: skip
NAMES = st.tuples(
    WORDS, st.sampled_from((" ", "  ", "\n", "\t", "\r\n", "\u2028", "\n\n")), st.integers(0, 9)
).map(lambda made: made[1].join(made[0]) + f" {MARK}{made[2]}")


def lines_of(text: str) -> list[str]:
    """Lines, by whatever ends one, that begin with a name."""
    return [line for line in text.splitlines() if line.startswith(MARK)]


def results(names: list[str], columns: list[str]) -> Iterator[Any]:
    """Yield results of every kind, of groups and columns with such names."""
    group, label, score, town = columns
    table = scored(rows=160, groups=2).rename_columns([group, label, score, "weight", "x", town]).to_pandas()
    kinds = sorted(set(table[group]))
    table[group] = table[group].map(dict(zip(kinds, names, strict=True)))
    ways: dict[str, Any] = {"label": label, "score": score}
    yield fairfix.audit(table, protected=[group, town], intersect=True, check="dp.difference<=0.1", **ways)
    yield fairfix.audit(table, protected=group, strata=town, **ways)
    yield fairfix.repair(table, protected=group, method="ramp", check="dp.difference<=0.1", **ways)
    yield fairfix.compare(table, protected=group, methods="ramp", slacks=0.1, **ways)


@pytest.mark.slow
@given(
    st.lists(NAMES, min_size=2, max_size=2, unique=True),
    st.lists(NAMES, min_size=4, max_size=4, unique_by=lambda name: name.strip().lower()),
    st.integers(20, 200),
)
@settings(max_examples=examples(6))
def test_no_line_of_a_report_begins_with_a_name(names: list[str], columns: list[str], width: int) -> None:
    """Whatever the names are made of, and wherever lines are broken."""
    columns = [one.replace(",", "") for one in columns]
    for result in results(names, columns):
        for name in PRINTED:
            gated = name in ("junit", "github", "sarif", "comment") and not hasattr(result.content, "checks")
            if gated:
                continue
            settings = {"text": {"width": width, "detail": True}, "markdown": {"detail": True}}.get(name, {})
            assert lines_of(rendered(name, result.content, **settings)) == [], name


@given(NAMES)
def test_no_report_of_a_run_that_did_not_happen_begins_one(name: str) -> None:
    text = f"column {name!r} is missing; {name}"
    problem = Unrun(fairfix="0", command="audit", status=2, code="data", message=text)
    for one in PRINTED:
        assert lines_of(unrun(one, problem)) == []


@given(st.lists(NAMES, min_size=2, max_size=2, unique=True), NAMES)
@settings(max_examples=examples(3))
def test_nothing_that_is_exported_or_printed_begins_one(names: list[str], column: str) -> None:
    """Scripts, a first configuration, what an artifact holds, what is printed; a query has lines in quotes."""
    table = scored(rows=160, groups=2)
    frame = table.rename_columns([column, *table.column_names[1:]]).to_pandas()
    kinds = sorted(set(frame[column]))
    frame[column] = frame[column].map(dict(zip(kinds, names, strict=True)))
    quoted = '"' + column.replace('"', '""') + '"'
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        frame.to_parquet("d.parquet")
        assert fairfix.repair(frame, protected=[column], method="ramp", output="r.fairfix")
        for line in (
            ("init", "d.parquet", "--protected", quoted),
            ("inspect", "r.fairfix"),
            ("audit", "d.parquet", "--protected", quoted, "--config", "none"),
            ("audit", "d.parquet", "--protected", quoted, "--config", "none", "--dry-run"),
            ("audit", "d.parquet", "--protected", quoted + "x", "--config", "none"),
            ("explain", f"dp[{column}]"),
            *(("export", "r.fairfix", "--to", to, "-o", f"rule.{to}") for to in ("python", "json")),
        ):
            out, err = io.StringIO(), io.StringIO()
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                run(list(line))
            assert lines_of(out.getvalue()) == lines_of(err.getvalue()) == [], line
        for one in Path().iterdir():
            if one.suffix in (".json", ".toml"):
                assert lines_of(one.read_text(encoding="utf-8")) == [], one


def test_a_line_that_begins_with_a_name_would_be_seen() -> None:
    assert lines_of("a\nimport os\n") == ["import os"]


def test_no_name_breaks_the_line_of_an_error() -> None:
    """Names that a refusal lists stand on its line, whatever they hold."""
    rows = {"g": [f"{MARK}\n{MARK}", f"a `{MARK}`"] * 40, "score": [0.2, 0.4, 0.6, 0.8] * 20}
    for asked in (
        {"reference": "g=other"},
        {"check": "selection_rate[g=other]>=0.1"},
        {"similar": "g=other,x"},
    ):
        with pytest.raises(FairfixError) as error:
            fairfix.audit(rows, protected="g", **asked)
        assert "\n" not in str(error.value).partition("\nto copy")[0], asked
        assert as_options(str(error.value)).count(f"`{MARK}`") == str(error.value).count(f"`{MARK}`"), asked
