"""A label from a threshold means the same as the column of 0/1 that it makes, wherever the data is."""

from __future__ import annotations

import operator
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fairfix
import numpy as np
import pandas as pd
import pytest
from fairfix.data.names import ValuedColumn
from fairfix.errors import FairfixError
from hypothesis import given
from hypothesis import strategies as st

from tests.databases import differences

pytestmark = pytest.mark.filterwarnings("ignore:The 'future.infer_string' option")  # set by Ibis, of SQLite

AUDIT: Any = fairfix.audit
REPAIR: Any = fairfix.repair
SIGNS: dict[str, Callable[[Any, Any], Any]] = {
    ">=": operator.ge, ">": operator.gt, "<=": operator.le, "<": operator.lt,
}  # fmt: skip


def rows(whole: bool = False) -> pd.DataFrame:
    rng = np.random.default_rng(3)
    income = rng.integers(0, 20, 300) if whole else rng.integers(0, 40, 300) / 2 - 0.1
    return pd.DataFrame(
        {"race": rng.choice(["a", "b"], 300), "score": rng.random(300).round(2), "income": income}
    )


def stored(data: pd.DataFrame, kind: str, folder: Path) -> Any:
    path = folder / f"x.{kind}"
    if kind == "frame":
        return data
    if kind == "csv":
        data.to_csv(path, index=False)
    elif kind == "de.csv":
        data.to_csv(path, index=False, sep=";", decimal=",")
    elif kind == "parquet":
        data.to_parquet(path)
    elif kind == "jsonl":
        data.to_json(path, orient="records", lines=True)
    elif kind == "duckdb":
        duckdb = pytest.importorskip("duckdb")
        with duckdb.connect(path) as base:
            base.register("rows", data)
            base.execute("CREATE TABLE x AS FROM rows")
    elif kind == "sqlite":
        with sqlite3.connect(path) as base:
            data.to_sql("x", base, index=False)
        base.close()
    return str(path) if kind not in ("duckdb", "sqlite") else f"{kind}:///{path}#x"


def numbers(result: Any, *parts: str) -> dict[str, Any]:
    return {part: result.to_dict()[part] for part in parts or ("overall", "attributes")}


KINDS = ["frame", "csv", "de.csv", "parquet", "jsonl", "duckdb", "sqlite"]


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("sign", SIGNS)
@pytest.mark.parametrize("whole", [False, True])
def test_a_threshold_is_the_column_of_0_and_1_that_it_makes(
    kind: str, sign: str, whole: bool, tmp_path: Path
) -> None:
    data, limit = rows(whole), 7 if whole else 6.9
    if kind in ("duckdb", "sqlite"):
        pytest.importorskip("ibis")
    made = data.assign(yes=SIGNS[sign](data.income, limit).astype(int)).drop(columns="income")
    result = AUDIT(stored(data, kind, tmp_path), protected="race", label=f"income{sign}{limit}")

    assert not differences(numbers(result), numbers(AUDIT(made, protected="race", label="yes")))
    assert result.to_dict()["settings"]["label_threshold"] == f"{sign}{limit}"
    assert result.to_dict()["data"]["columns"]["label"] == "income"


@pytest.mark.parametrize("kind", ["frame", "csv", "parquet", "jsonl", "duckdb"])
def test_a_missing_number_is_a_missing_label(kind: str, tmp_path: Path) -> None:
    if kind == "duckdb":
        pytest.importorskip("ibis")
    data = rows()
    data.loc[::7, "income"] = np.nan
    given_ = {"protected": "race", "label": "income>6.9"}
    source = stored(data, kind, tmp_path)
    with pytest.raises(FairfixError, match="missing"):
        AUDIT(source, **given_)
    result = AUDIT(source, missing="drop", **given_)

    assert result.to_dict()["data"]["rows"]["used"] == int(data.income.notna().sum())
    assert result.to_dict()["overall"]["metrics"]["base_rate"]["value"] == pytest.approx(
        float((data.income.dropna() > 6.9).mean())
    )


def test_a_repair_learns_what_the_column_says() -> None:
    data = rows().assign(key=range(300))
    made = data.assign(yes=(data.income >= 6.9).astype(int)).drop(columns="income")
    one = REPAIR(data, method="ramp", protected="race", label="income>=6.9", score="score", id="key")
    other = REPAIR(made, method="ramp", protected="race", label="yes", score="score", id="key")

    ours, theirs = (numbers(result, "proof", "rule") for result in (one, other))
    found = differences(ours, theirs)
    assert not [line for line in found if ".delivered: " not in line]  # drawn by a key of the artifact
    assert one.to_dict()["settings"]["label_threshold"] == ">=6.9"


@pytest.mark.parametrize(
    ("label", "more"),
    [
        ("income>=1000", {}), ("race>=1", {}), ("income>=5", {"task": "regression"}),
        ("income>=5", {"task": "multiclass"}), ("incom>=5", {}),
    ],
)  # fmt: skip
def test_a_threshold_that_says_nothing_is_refused(label: str, more: dict[str, str]) -> None:
    protected, bands = ("income", "income=quartiles") if label.startswith("race") else ("race", ())
    with pytest.raises(FairfixError) as caught:
        AUDIT(rows(), protected=protected, label=label, bands=bands, **more)

    assert label[:4] in str(caught.value) or "leave out" in str(caught.value)


def test_a_threshold_is_kept_when_another_column_is_proposed() -> None:
    with pytest.raises(FairfixError) as caught:
        AUDIT(rows(), protected="race", label="incom>=5")
    lines = [line for line in str(caught.value).splitlines() if "fairfix.audit(" in line]

    assert lines
    assert all("income>=5" in line for line in lines)


@given(
    st.sampled_from(list(SIGNS)), st.integers(-999, 999) | st.floats(-1e9, 1e9), st.sampled_from(["", " "])
)
def test_the_grammar_of_thresholds(sign: str, number: float, blank: str) -> None:
    text = f"x{blank}{sign}{blank}{number}"

    read = ValuedColumn.parse(text, ["x", "y"], "label")
    assert read == ("x", (), f"{sign}{number}")
    assert str(read) == f"x{sign}{number}"
    assert not ValuedColumn.parse(text, [text], "label").threshold  # a column with that very name
    for other in (f"x={sign}{number}", f"x{sign}{number}K"):  # values that look like one
        assert not ValuedColumn.parse(other, ["x"], "label").threshold
