"""The next step of a report: its commands run when they are pasted, and bound what the audit found."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import fairfix
import numpy as np
import pandas as pd
import pytest
from fairfix.cli import run
from fairfix.report import renderer
from fairfix.report.layout import layout
from fairfix.report.markdown_ import code
from markdown_it import MarkdownIt

from tests.results import struct

ODD = 'who\'s "x", or y'
"""A column whose name a shell and the lists of fairfix have to quote."""

QUOTED = '"who\'s ""x"", or y"'


def people(seed: int, many: int = 700) -> pd.DataFrame:
    """Return scored people, of two groups with other rates and of two towns without a difference."""
    rng = np.random.default_rng(seed)
    group, town = rng.choice(["a", "b"], many, p=[0.6, 0.4]), rng.choice(["n", "s"], many)
    score = np.clip(rng.beta(2, 2, many) + np.where(group == "a", 0.15, -0.15), 0.01, 0.99)
    label = (rng.random(many) < score).astype(int)
    return pd.DataFrame(
        {"g": group, ODD: town, "label": label, "score": score, "pay": 10 * score + rng.normal(size=many)}
    )


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in a folder with people."""
    monkeypatch.chdir(tmp_path)
    people(0).to_parquet("people of today.parquet")
    return tmp_path


def result_of(*words: str) -> dict[str, Any]:
    """Run a command to its JSON; a status of 2 fails."""
    assert run([*words, "--out", "json=r.json", "--quiet"]) in (0, 1, 3)
    return dict(json.loads(Path("r.json").read_text()))


def step_of(result: dict[str, Any]) -> list[str]:
    """Return the words of the command of a result's next step."""
    words = shlex.split(result["next_step"]["command"])
    assert words[0] == "fairfix"
    return words[1:]


AUDIT = ("audit", "people of today.parquet", "--protected")


@pytest.mark.parametrize(
    ("options", "constraint"),
    [
        (("g", "--check", "dp.difference<=0.05"), "selection_rate.difference<=0.05"),
        (("g", "--check", "tpr.ratio>=0.99", "--where", "score>0.02"), "true_positive_rate.ratio>=0.99"),
        (
            ("g", "--check", "fnr.difference<=0.01", "--check", "eo.difference<=1%"),
            "equalized_odds.difference<=0.01",
        ),
        (("g", "--protected", QUOTED, "--check", "dp.difference[g]<=0.1"), "selection_rate.difference<=0.1"),
        (
            ("g", "--task", "regression", "--label", "pay", "--check", "ks.to_overall<=0.05"),
            "ks.to_overall<=0.05",
        ),
    ],
    ids=str,
)
def test_a_failed_check_leads_to_a_repair_and_to_its_use(
    options: tuple[str, ...], constraint: str, folder: Path
) -> None:
    """With the limit of the check, of the column alone that it is about; and the next command runs, too."""
    result = result_of(*AUDIT, *options)
    assert result["verdict"] == "fail"
    words = step_of(result)
    assert words[0] == "repair"
    assert words[words.index("--constraint") + 1] == constraint
    assert words[words.index("--protected") + 1] == "g"
    repaired = result_of(*words)
    again = step_of(repaired)
    dry = ["--dry-run"] if again[0] == "compare" else []
    assert again[0] in ("predict", "inspect", "compare")
    assert run([*again, *dry]) == 0


def test_without_checks_the_limit_holds_now(folder: Path) -> None:
    """By the upper end of the interval; with several attributes it is of the first."""
    for options in (("g",), ("g", "--protected", QUOTED, "--score", "pay", "--score-scale", "raw")):
        step = step_of(result_of(*AUDIT, *options))
        assert step[0] == "audit"
        (check,) = result_of(*step)["checks"]
        assert check["verdict"] == "pass"
        assert check["attribute"] == "g"
        assert check["limit"] <= check["high"] + 0.1 * max(1.0, check["high"])


def test_an_undecided_check_tells_how_many_rows_decide_it(folder: Path) -> None:
    """In the words of the answer, which has the same number; no command makes rows."""
    result = result_of(*AUDIT, "g", "--check", "accuracy.difference<=0.03")
    step = result["next_step"]
    assert "command" not in step
    (number,) = (word for word in step["text"].split() if word.replace(",", "").isdigit())
    assert f"about {number} rows" in next(iter(layout(struct(result)))).lines[0]


@pytest.mark.parametrize(
    ("checks", "command"),
    [
        ((), "audit"),
        (("--check", "tpr.difference<=0.001", "--gate-on", "point"), "audit"),
        (("--check", "dp.difference<=0.1"), ""),
    ],
    ids=["none", "failed", "undecided"],
)
def test_many_classes_have_a_next_step_too(checks: tuple[str, ...], command: str, folder: Path) -> None:
    """The limit that all classes meet now, the failed class alone, or the rows that decide every class."""
    rng = np.random.default_rng(0)
    truth = rng.choice(["it's x", "y", "z"], 900)
    said = np.where(rng.random(900) < 0.7, truth, rng.permutation(truth))
    pd.DataFrame({"g": rng.choice(["a", "b"], 900), "out come": truth, "said": said}).to_csv("classes.csv")
    asked = ("audit", "classes.csv", "--protected", "g", "--label", "out come", "--prediction", "said")
    result = result_of(*asked, "--task", "multiclass", *checks)
    if not command:
        assert any(word.replace(",", "").isdigit() for word in result["next_step"]["text"].split())
        return
    again = result_of(*step_of(result))
    if not checks:
        assert {check["verdict"] for check in again["checks"]} == {"pass"}
    else:
        worst = max((one for one in result["checks"]), key=lambda one: one["value"])
        (rate,) = (
            one["value"]
            for one in again["attributes"][0]["comparisons"]
            if one["id"] == "true_positive_rate.difference.between_groups"
        )
        assert rate == pytest.approx(worst["value"])


def test_where_there_is_nothing_to_paste_there_is_no_step(folder: Path) -> None:
    """A check that passes, data in memory, hidden groups, and decisions, which no repair of a score changes."""
    failing = ("--check", "dp.difference<=0.05")
    passed = ("--check", "dp.difference<=0.9")
    for options in (passed, (*failing, "--suppress-below", "20"), (*failing, "--prediction", "label")):
        assert "next_step" not in result_of(*AUDIT, "g", *options)
    assert fairfix.audit(people(0), protected="g", check="dp.difference<=0.05").content.next_step is None


@pytest.mark.parametrize("width", [30, 60, 200])
def test_every_format_ends_with_the_command_and_a_shell_reads_it(width: int, folder: Path) -> None:
    """Text breaks it with backslashes that a shell takes away; no line is broken inside quotes."""
    result = result_of(*AUDIT, "g", "--check", "dp.difference<=0.05")
    text = renderer("text")(struct(result), width=width)
    printed = text[text.index("  fairfix repair") :].replace("\\\n", " ")
    assert shlex.split(printed)[1:] == step_of(result)
    assert result["next_step"]["text"] in " ".join(text.split())
    markdown = renderer("markdown")(struct(result)).partition("Next step")[2]
    (code,) = re.findall(r"- `(.*)`\n", markdown)
    assert shlex.split(code)[1:] == step_of(result)
    page = renderer("html")(struct(result)).partition("Next step")[2]
    assert "selection_rate.difference" in page.replace("<wbr>", "")


def test_a_command_is_code_whatever_is_in_it() -> None:
    """Backquotes, pipes and stars are as a shell needs them; a Markdown reader finds one span with the command."""
    for text in ("a | b", "*a* _b_ <c>", "a `b` c", "``", "`a", "plain"):
        (span,) = MarkdownIt().parseInline(code(text))[0].children or ()
        assert (span.type, span.content.strip()) == ("code_inline", text.strip())
