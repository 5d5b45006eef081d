"""The command that an error gives to copy: it runs as it is shown, and takes no column for what it is not."""

from __future__ import annotations

import json
import shlex
from itertools import pairwise
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.conftest import Call
from tests.strategies import examples

pytestmark = pytest.mark.usefixtures("away")

ENDS = ("", " ", '"', "'", ",", "\n", "\t", "`", "$(x)", "-", "--", "é", "=", "#", "\\", "[", "; rm")
ROLES = {
    "group": ("race", "sex", "ageBand", "gender x", "trace", "g"),
    "label": ("label", "y", "default", "approved", "outcome 2024", "z"),
    "score": ("score", "riskScore", "proba_1", "my prob", "y_pred", "decision"),
}
RNG = np.random.default_rng(0)
ROWS = 60


def column(kind: str) -> Any:
    """Return entries of a column, as a list."""
    if kind == "group":
        return ["a", "b"] * (ROWS // 2)
    if kind == "label":
        return RNG.permutation([0, 1] * (ROWS // 2)).tolist()
    if kind == "text":
        return RNG.permutation(["yes", "no"] * (ROWS // 2)).tolist()
    return (
        RNG.random(ROWS).round(3).tolist() if kind == "score" else RNG.normal(40, 9, ROWS).round(1).tolist()
    )


@st.composite
def odd_files(draw: st.DrawFn) -> tuple[dict[str, list[Any]], str, list[str]]:
    """Draw columns with names that shells and lists take for something else, a file's name, and a first command."""
    end = st.sampled_from(ENDS)
    columns: dict[str, list[Any]] = {}
    for kind, names in ROLES.items():
        for name in draw(st.lists(st.sampled_from(names), max_size=2)):
            columns[draw(end) + name + draw(end)] = column(kind)
    if draw(st.booleans()):
        columns |= {"proba_0": column("score"), "proba_1": column("score")}
    if draw(st.booleans()):
        columns |= {"default": column("text"), "income": column("feature"), "credit_score": column("feature")}
    columns = {name.strip("\n") or "x": entries for name, entries in columns.items()}
    columns = columns or {"x": column("feature")}
    file = draw(st.sampled_from(["d.csv", "my d.parquet", "-d.parquet", "it's.csv", "d.duckdb"]))
    command = draw(
        st.sampled_from(["audit", "compare", "repair --method ramp", "repair --method logloss", "init"])
    )
    given_names = draw(st.lists(st.sampled_from(list(columns)), max_size=1))
    return (
        columns,
        file,
        [*command.split(), *(["--protected", json.dumps(given_names[0])] if given_names else [])],
    )


def named(path: str, columns: dict[str, list[Any]]) -> str:
    """Write columns to a file; return what a command calls it."""
    table = pa.table(columns)
    if path.endswith(".csv"):
        pyarrow.csv.write_csv(table, path)
    elif path.endswith(".parquet"):
        pq.write_table(table, path)
    else:
        with duckdb.connect(path) as base:
            base.register("rows_here", table)
            base.execute('CREATE TABLE "my t" AS FROM rows_here')
        return f"duckdb:///{path}#my%20t"
    return path


def copied(err: str) -> list[str]:
    """Return the words of the command to copy, as a shell has them; none where there is none."""
    _, _, line = err.rpartition("\nto copy: ")
    return shlex.split(line)[1:] if "\nto copy: " in err else []


@pytest.mark.slow
@settings(max_examples=examples(300), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(world=odd_files())
def test_a_command_to_copy_runs(world: tuple[dict[str, list[Any]], str, list[str]], call: Call) -> None:
    """In a shell, as it is printed, whatever columns and files are called; it is on the same data."""
    columns, file, first = world
    for left in Path().iterdir():
        left.unlink()
    data = named(file, columns)
    status, _, err = call(first[0], *first[1:], *(["-o", "x.toml"] if first[0] == "init" else []), "--", data)
    words = copied(err)
    if status != 2 or not words:
        return
    assert words[0] == first[0]
    again, _, second = call(*words)
    assert again in (0, 1, 3), (words, second)
    chosen = dict(pairwise(words))
    assert chosen.get("--score") != "proba_0"
    assert chosen.get("--label") not in ("default", "income")


CASES: dict[str, tuple[list[str], str, dict[str, str] | None]] = {
    "blanks": ([" race", "label", " my score"], "audit", {"--protected": "race", "--score": "my score"}),
    "labels alone": (["race", "label"], "audit --protected race", None),
    "labels and features": (["race", "label", "x"], "compare", {"--protected": "race"}),
    "both probabilities": (["race", "label", "proba_0", "proba_1"], "audit", {"--protected": "race"}),
    "words for classes": (["race", "label", "prob_no", "prob_yes"], "audit", {"--score": "prob_yes"}),
    "two scores": (["race", "label", "riskScore", "other_prob"], "audit", None),
    "a feature like a label": (
        ["race", "default", "deposit", "riskScore"],
        "audit",
        {"--score": "riskScore"},
    ),
    "a feature like a score": (["race", "label", "credit_score:x"], "audit", None),
    "whole numbers": (["race", "label", "pred_class:label"], "audit", None),
    "decisions": (["race", "label", "final decision:label"], "audit", {"--prediction": "final decision"}),
    "a score and decisions": (["race", "riskScore", "decision:label"], "audit", {"--score": "riskScore"}),
    "what was decided on": (["race", "label", "decision_day:label"], "audit", None),
    "a first file without a score": (["race", "label"], "init", None),
    "a first file": (["race", "label", "riskScore"], "init", {"--score": "riskScore"}),
    "nothing like groups": (["g", "label", "score"], "audit", None),
}


@pytest.mark.parametrize("case", CASES)
def test_what_is_proposed(case: str, call: Call) -> None:
    """No class 0, no feature for a label, no whole number for a score, and nothing where it is open."""
    names, first, chosen = CASES[case]
    kinds = {
        "race": "group",
        "g": "group",
        "label": "label",
        "default": "text",
        "deposit": "label",
        "x": "feature",
    }
    columns = {}
    for name in names:
        own, _, kind = name.partition(":")
        columns[own] = column({"x": "feature"}.get(kind, kind) or kinds.get(own.strip(), "score"))
    status, _, err = call(*first.split(), named("d.csv", columns))
    words = copied(err)
    assert status == 2
    assert bool(words) == (chosen is not None)
    if chosen is not None:
        options = dict(pairwise(words))
        assert chosen.items() <= options.items()
        assert "--label" not in options
        quick = ("--methods", "logloss", "--slacks", "0.1") if first == "compare" else ()
        assert call(*words, *quick)[0] == 0


def test_the_score_of_a_class_is_proposed_for_the_label_of_that_class(call: Call) -> None:
    kind = np.random.default_rng(0).choice(["oak", "elm", "red ash"], 300)
    scores = {f"proba_{one}": np.where(kind == one, 0.7, 0.15) for one in ("oak", "elm", "red ash")}
    pyarrow.csv.write_csv(pa.table({"race": ["a", "b"] * 150, "kind": kind, **scores}), "d.csv")
    status, _, err = call("audit", "d.csv", "--protected", "race", "--label", "kind")
    lines = [shlex.split(line) for line in err.splitlines() if line.startswith("  fairfix ")]
    assert status == 2
    assert lines
    for line in lines:
        chosen = dict(pairwise(line))
        assert chosen["--score"] == f"proba_{chosen['--label'].removeprefix('kind=')}"
        assert call(*line[1:])[0] == 0


def test_a_secret_is_no_part_of_a_command(call: Call) -> None:
    url = named("d.duckdb", {"race": column("group"), "label": column("label"), "score": column("score")})
    assert "'duckdb:///d.duckdb#my%20t'" in call("audit", url)[2]
    assert not copied(call("audit", url.replace("#", "?memory_limit=200MB#"))[2])
    assert not copied(call("audit", url, "--dry-run")[2])
