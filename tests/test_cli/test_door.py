"""The door: every line that a refusal proposes gets further when it is typed, and unused columns stop nothing."""

from __future__ import annotations

import datetime as dt
import json
import shlex
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import fairfix
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fairfix.data.data_spec import DECISIONS, LABELS, SCORES, usual_name
from fairfix.errors import ColumnError, DataError, UsageError

Call = Callable[..., tuple[int, str, str]]

N = 400
RNG = np.random.default_rng(0)
SCORE = RNG.random(N).round(3)
LABEL = (RNG.random(N) < SCORE).astype(int)
RACE = RNG.choice(["A", "B"], N)
DECIDED = (SCORE > 0.5).astype(int)


def rows(**columns: Any) -> pd.DataFrame:
    """Return rows of two groups with some columns."""
    return pd.DataFrame({"race": RACE, **columns})


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run in a folder of its own."""
    monkeypatch.chdir(tmp_path)


def proposed(message: str) -> list[str]:
    """Return the lines of a message that are to be copied."""
    lines = (line.removeprefix("to copy:").strip() for line in message.splitlines())
    return [line for line in lines if line.startswith("fairfix ")]


WORDS = {"class": np.where(LABEL, "good", "bad")}
CODES = {"action_taken": np.where(LABEL, RNG.choice([1, 2], N), RNG.choice([3, 7], N))}

REFUSED: dict[str, tuple[pd.DataFrame, str]] = {
    "two labels": (rows(score=SCORE, label=LABEL, target=LABEL), "--protected race"),
    "two scores": (rows(score=SCORE, proba=SCORE, label=LABEL), "--protected race"),
    "a score and decisions": (rows(proba=SCORE, y_pred=DECIDED, label=LABEL), "--protected race"),
    "Azure": (
        rows(**{"Scored Probabilities": SCORE, "Scored Labels": DECIDED, "y": LABEL}),
        "--protected race",
    ),
    "deciles": (rows(decile_score=(SCORE * 10).astype(int) + 1, two_year_recid=LABEL), "--protected race"),
    "percentages": (rows(score=SCORE * 100, label=LABEL), "--protected race"),
    "log-odds": (rows(score=8 * SCORE - 4, label=LABEL), "--protected race"),
    "above one": (rows(score=np.where(np.arange(N) == 3, 1.0000001, SCORE), label=LABEL), "--protected race"),
    "labels in words": (rows(score=SCORE, **WORDS), "--protected race --label class"),
    "labels of codes": (rows(score=SCORE, **CODES), "--protected race --label action_taken"),
    "a misspelt value": (rows(score=SCORE, **WORDS), "--protected race --label class=god"),
    "a misspelt column of a value": (rows(score=SCORE, **WORDS), "--protected race --label clas=good"),
    "decisions in words": (
        rows(said=np.where(DECIDED, "it's", "no, never"), label=LABEL),
        "--protected race --prediction said",
    ),
    "decisions in words by their name": (
        rows(decision=np.where(DECIDED, "it's", "no, never"), label=LABEL),
        "--protected race",
    ),
    "decisions beside labels in words": (
        rows(said=np.where(DECIDED, "yes", "no"), **WORDS),
        "--protected race --label class=good --prediction said",
    ),
    "two unusual scores": (rows(risk_a=SCORE, risk_b=SCORE, outcome=LABEL), "--protected race"),
    "no group is named": (rows(Score=SCORE, LABEL=LABEL), ""),
    "capitals": (rows(score=SCORE, label=LABEL), "--protected RACE --where 'score>=0.1'"),
}
"""Case -> data, and what is typed first."""


def typed(call: Call, line: str) -> tuple[int, str]:
    """Return the status and the message of a line as it is typed."""
    program, *arguments = shlex.split(line)
    assert program == "fairfix"
    status, _, err = call(*arguments)
    return status, err


@pytest.mark.slow
@pytest.mark.parametrize("case", REFUSED)
@pytest.mark.parametrize("command", ["audit", "repair"])
def test_every_proposed_line_gets_further(command: str, case: str, call: Call) -> None:
    """Each line runs, or is refused for another reason with lines of its own; none leads nowhere."""
    frame, asked = REFUSED[case]
    frame.to_csv("my data.csv", index=False)
    more = "" if command == "audit" else " --method logloss --features score"
    first = f"fairfix {command} 'my data.csv' {asked}{more}"
    status, err = typed(call, first)
    if command == "repair" and not proposed(err):
        pytest.skip("a repair refuses decisions, or asks for a method of other scores, in words")
    assert status == 2
    ways = [(line, err) for line in proposed(err)]
    assert ways, err
    reached = 0
    for _ in range(3):
        further = []
        for line, before in ways:
            status, err = typed(call, line)
            assert status != 2 or err != before, line
            reached += status != 2
            further += [(one, err) for one in proposed(err)] if status == 2 else []
        ways = further
    assert reached or command == "repair", err  # which may need a threshold that is the user's to set


@pytest.mark.parametrize("name", [*LABELS])
@pytest.mark.parametrize(
    "written", [str, str.upper, lambda name: f"{name} ", lambda name: name.replace("_", " ")]
)
def test_usual_labels_are_found_however_they_are_written(name: str, written: Callable[[str], str]) -> None:
    """What is found is in the result, with the name of the data."""
    result = fairfix.audit(rows(score=SCORE, **{written(name): LABEL}), protected="race").to_dict()
    assert result["data"]["inferred"]["label"] == written(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", SCORES)
def test_usual_scores_are_found(name: str) -> None:
    """Whole numbers of an ambiguous name are decisions, fractional ones a score."""
    for column, part in ((SCORE, "score"), (DECIDED, "prediction" if name in DECISIONS else "score")):
        result = fairfix.audit(rows(label=LABEL, **{name: column}), protected="race").to_dict()
        assert result["data"]["inferred"][part] == name


PROPOSED = (
    "outcome",
    "class",
    "income",
    "default",
    "loan_status",
    "approved",
    "hired",
    "readmitted",
    "probability",
)


@pytest.mark.parametrize("name", PROPOSED)
def test_names_that_may_mean_something_else_are_not_taken(name: str) -> None:
    """A wrong guess would be a false number."""
    assert usual_name(name) not in (*LABELS, *SCORES)
    result = fairfix.audit(rows(score=SCORE, **{name: LABEL}), protected="race").to_dict()
    assert "label" not in result["data"]["columns"]


# ---------------------------------------------------------------------- positive values


def numbers_of(**asked: Any) -> Any:
    """Return the numbers of an audit."""
    return fairfix.audit(protected="race", **asked).to_dict()["attributes"]


def test_several_values_are_positive() -> None:
    """They are those of a column that holds 1 for them and 0 for all others."""
    frame = rows(score=SCORE, label=LABEL, **CODES)
    plain = numbers_of(data=frame[["race", "score", "label"]])
    assert numbers_of(data=frame.drop(columns="label"), label="action_taken=1,2") == plain
    assert numbers_of(data=frame.drop(columns="label"), label="action_taken=1.0,2.00") == plain
    assert numbers_of(data=frame.drop(columns="label"), label="action_taken=1") != plain


@pytest.mark.parametrize("value", ["a,b", 'a "b"', " a", "a=b", "x"])
def test_values_are_quoted_as_in_other_lists(value: str) -> None:
    """And the line that is proposed has the quotes."""
    frame = rows(score=SCORE, kind=np.where(LABEL, value, "other"))
    quoted = '"' + value.replace('"', '""') + '"'
    plain = numbers_of(data=rows(score=SCORE, label=LABEL))
    assert numbers_of(data=frame, label=f"kind={quoted}") == plain


def test_a_column_of_that_name_wins() -> None:
    """A column may be called class=good, and one with a sign in its name has values."""
    frame = rows(score=SCORE, **{"class=good": LABEL, "a=b": np.where(LABEL, "c", "d")})
    plain = numbers_of(data=rows(score=SCORE, label=LABEL))
    assert numbers_of(data=frame, label="class=good") == plain
    assert numbers_of(data=frame, label="a=b=c") == plain


def test_a_value_that_no_row_has_is_noted_beside_others() -> None:
    """Alone it is refused, and the nearest value comes first."""
    frame = rows(score=SCORE, **CODES)
    result = fairfix.audit(frame, protected="race", label="action_taken=1,22").to_dict()
    assert "where_unmatched" in {one["code"] for one in result["messages"]}
    words = rows(score=SCORE, kind=np.where(LABEL, RNG.choice(["granted", "grants"], N), "denied"))
    with pytest.raises(DataError) as refused:
        fairfix.audit(words, protected="race", label="kind=grnts")
    lines = [line for line in str(refused.value).splitlines() if "label=" in line and line.startswith("  ")]
    assert "grants" in lines[0]


@pytest.mark.parametrize("text", ["kind=", "=x"])
def test_an_empty_value_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        fairfix.audit(rows(score=SCORE, kind=LABEL), protected="race", label=text)


def test_a_repair_keeps_the_positive_values(tmp_path: Path) -> None:
    """Its artifact has them; predictions and the rest work on rows without labels."""
    frame = rows(score=SCORE, **CODES)
    path = str(tmp_path / "r.fairfix")
    asked: dict[str, Any] = {"protected": "race", "method": "ramp", "label": "action_taken=1,2"}
    fairfix.repair(frame, output=path, **asked)
    loaded = fairfix.load(path)
    assert loaded.facts["settings"]["positive_label"] == ["1", "2"]
    assert len(fairfix.predict(path, frame)) == N


# ---------------------------------------------------------------------- columns without a role

ODD: dict[str, list[Any]] = {
    "mixed": [1, "a"] * (N // 2),
    "lists and dicts": [{"a": 1}, [1]] * (N // 2),
    "objects": [object()] * N,
    "complex": [1j] * N,
    "bytes": [b"\xff"] * N,
    "large": [2**70] * N,
    "dates and texts": [dt.date(2020, 1, 1), "x"] * (N // 2),
    "decimals and floats": [Decimal("1.5"), 2.5] * (N // 2),
    "nested": [[1], [2]] * (N // 2),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", ODD)
@pytest.mark.parametrize("form", ["frame", "dict"])
def test_a_column_that_is_not_used_stops_nothing(kind: str, form: str) -> None:
    """In a frame and in a dict, for audits and repairs."""
    plain = rows(score=SCORE, label=LABEL)
    odd = plain.assign(odd=pd.Series(ODD[kind], dtype=object))
    data: Any = odd if form == "frame" else {name: odd[name].tolist() for name in odd}
    assert numbers_of(data=data) == numbers_of(data=plain)
    fairfix.repair(data, protected="race", method="ramp")


def test_a_column_of_several_types_is_text_where_it_is_used() -> None:
    """As a CSV file has it; one that no table can hold is refused by its name."""
    frame = rows(score=SCORE, label=LABEL).assign(group=pd.Series([1, "a"] * (N // 2), dtype=object))
    groups = fairfix.audit(frame, protected="group").to_dict()["attributes"][0]["groups"]
    assert {one["group"] for one in groups} == {"1", "a"}
    with pytest.raises(ColumnError, match="'group' of data cannot be read"):
        fairfix.audit(frame.assign(group=pd.Series(ODD["objects"], dtype=object)), protected="group")


def repeated(form: str, name: str, folder: Path) -> Any:
    """Return data in which a name stands twice."""
    plain = rows(score=SCORE, label=LABEL, x=np.arange(N))
    frame = pd.concat([plain, plain[[name]]], axis=1)
    if form == "frame":
        return frame
    columns = [pa.array(frame.iloc[:, at].tolist()) for at in range(frame.shape[1])]
    table = pa.table(columns, names=list(frame.columns))
    if form == "table":
        return table
    path = str(folder / f"d.{form}")
    if form == "parquet":
        pq.write_table(table, path)
    else:
        with pa.ipc.new_file(path, table.schema) as file:
            file.write_table(table)
    return path


@pytest.mark.parametrize("form", ["frame", "table", "parquet", "arrow"])
def test_a_repeated_name_stops_nothing_unless_it_is_used(form: str, tmp_path: Path) -> None:
    plain = numbers_of(data=rows(score=SCORE, label=LABEL))
    data = repeated(form, "x", tmp_path)
    assert numbers_of(data=data) == plain
    fairfix.repair(data, protected="race", method="ramp")
    fairfix.count(data, protected="race", part="0:0.7")
    for name in ("race", "score", "label"):
        with pytest.raises(ColumnError, match=f"'{name}' more than once"):
            fairfix.audit(repeated(form, name, tmp_path), protected="race")


# ---------------------------------------------------------------------- values


def test_groups_of_single_rows_are_refused_in_a_line() -> None:
    days = pd.date_range("1950-01-01", periods=N).astype(str)
    frame = rows(score=SCORE, label=LABEL, born=days)
    for task in (fairfix.audit, lambda *data, **asked: fairfix.repair(*data, method="ramp", **asked)):
        with pytest.raises(ColumnError, match="`bands=born=values`") as refused:
            task(frame, protected="born")  # type: ignore[operator]  # one of several tasks
        assert "\n" not in str(refused.value)
    assert fairfix.audit(frame, protected="born", bands="born=values").to_dict()["data"]["rows"]["used"] == N


@pytest.mark.parametrize("value", [1.0000001, 1 + 2e-16, -1e-9])
def test_a_score_hardly_outside_shows_the_digits_that_matter(value: float) -> None:
    frame = rows(score=np.where(np.arange(N) == 3, value, SCORE), label=LABEL)
    with pytest.raises(DataError) as refused:
        fairfix.audit(frame, protected="race")
    words: Iterator[str] = iter(str(refused.value).split())
    held = next(float(next(words)) for word in words if word == "holds")
    assert not 0 <= held <= 1


def test_checks_of_the_environment_may_have_blanks(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    rows(score=SCORE, label=LABEL).replace({"race": {"A": "of A"}}).to_csv("d.csv", index=False)
    monkeypatch.setenv("FAIRFIX_CHECK", "dp.difference <= 0.9  ks<0.9 accuracy[race=of A] >= 0.01")
    status, out, err = call("audit", "d.csv", "--protected", "race", "--format", "json")
    assert status in (0, 3), err
    assert len(json.loads(out)["checks"]) == 3


@pytest.mark.parametrize(
    ("score", "scales"),
    [
        ((SCORE * 10).astype(int) + 1, {"raw"}),
        (SCORE * 100, {"percent", "raw"}),
        (8 * SCORE - 4, {"logit", "raw"}),
        (SCORE + 0.01, {"raw"}),
        (2 * SCORE - 1, {"margin", "logit", "raw"}),
    ],
)
def test_only_likely_scales_are_proposed(score: Any, scales: set[str]) -> None:
    """Deciles are no percentages, and a score without negative numbers is no log-odds."""
    with pytest.raises(DataError) as refused:
        fairfix.audit(rows(score=score, label=LABEL), protected="race")
    lines = [
        line for line in str(refused.value).splitlines() if "score_scale=" in line and line.startswith("  ")
    ]
    assert {line.partition("score_scale='")[2].partition("'")[0] for line in lines} == scales
