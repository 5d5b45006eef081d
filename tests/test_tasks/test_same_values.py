"""The same values in other types and files: the same audit, the same decisions, the same draws."""

from __future__ import annotations

import gzip
import json
import sqlite3
import warnings
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import fairfix
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
from fairfix.errors import FairfixWarning

from tests.databases import differences, without_source

ROWS = 900


def people(seed: int = 0) -> pd.DataFrame:
    """Return rows whose names are numbers: a group, a truth value, a stratum, a label 1/2 and an id."""
    rng = np.random.default_rng(seed)
    group = rng.integers(1, 4, ROWS)
    score = np.round(np.clip(rng.beta(2, 2, ROWS) + 0.08 * (group == 1), 0, 1), 3)
    return pd.DataFrame(
        {
            "group": group,
            "member": rng.random(ROWS) < 0.5,
            "area": rng.integers(0, 2, ROWS),
            "label": 1 + (rng.random(ROWS) < score).astype(int),
            "decided": 1 + (score >= 0.5).astype(int),
            "score": score,
            "id": rng.permutation(ROWS) + 1000,
        }
    )


NAMES = ("group", "area", "label", "decided", "id")


def typed(
    frame: pd.DataFrame, number: Callable[[pd.Series], Any], truth: Callable[[pd.Series], Any]
) -> pd.DataFrame:
    return frame.assign(**{name: number(frame[name]) for name in NAMES}, member=truth(frame["member"]))


def texts(column: pd.Series, form: str) -> list[str]:
    return [form.format(int(one)) for one in column]


FRAMES: dict[str, Callable[[pd.DataFrame], pd.DataFrame]] = {
    "int64": lambda frame: frame,
    "floats": lambda frame: typed(frame, lambda c: c.astype(float), lambda c: c.astype(object)),
    "float32": lambda frame: typed(frame, lambda c: c.astype("float32"), lambda c: c.astype("boolean")),
    "Int16": lambda frame: typed(frame, lambda c: c.astype("Int16"), lambda c: c.astype("category")),
    "decimals": lambda frame: typed(
        frame, lambda c: [Decimal(int(x)).quantize(Decimal("1.00")) for x in c], lambda c: c
    ),
    "texts": lambda frame: typed(
        frame, lambda c: texts(c, "{}"), lambda c: c.map({True: "true", False: "false"})
    ),
    "texts of floats": lambda frame: typed(
        frame, lambda c: texts(c, "{}.0"), lambda c: c.map({True: "TRUE", False: "FALSE"})
    ),
    "mixed texts": lambda frame: typed(
        frame,
        lambda c: [f"{one}.0" if i % 3 else str(one) for i, one in enumerate(c)],
        lambda c: ["True" if one and i % 2 else str(one).lower() for i, one in enumerate(c)],
    ),
    "categories": lambda frame: typed(
        frame, lambda c: c.astype(float).astype("category"), lambda c: c.astype(str).astype("category")
    ),
    "arrow": lambda frame: typed(
        frame, lambda c: c.astype("double[pyarrow]"), lambda c: c.astype("bool[pyarrow]")
    ),
}


def files(frame: pd.DataFrame, folder: Path) -> dict[str, Any]:
    """Return the rows as data of every kind, by name."""
    table = pa.Table.from_pandas(frame, preserve_index=False)
    for kind in ("csv", "tsv"):
        frame.to_csv(folder / f"x.{kind}", index=False, sep="," if kind == "csv" else "\t")
    with gzip.open(folder / "x.csv.gz", "wt") as file:
        frame.to_csv(file, index=False)
    pq.write_table(table, folder / "x.parquet")
    pyarrow.feather.write_feather(table, str(folder / "x.feather"))
    return {name.name: str(name) for name in sorted(folder.iterdir())} | {"frame": frame, "table": table}


ASKED: dict[str, Any] = {
    "protected": ("group", "member"),
    "strata": "area",
    "label": "label=2",
    "score": "score",
    "threshold": 0.5,
    "reference": ("group=1.0", "member=true"),
    "check": ("true_positive_rate[group=1.0]>=0.1", "dp.difference<=0.5"),
    "intersect": True,
}


def audited(data: Any, **more: Any) -> dict[str, Any]:
    return without_source(json.loads(fairfix.audit(data, **ASKED, **more).to_json()))


@pytest.mark.slow
@pytest.mark.parametrize("kind", FRAMES)
def test_an_audit_does_not_depend_on_types(kind: str, tmp_path: Path) -> None:
    frame = people()
    expected = audited(frame)
    assert [one["group"] for one in expected["attributes"][0]["groups"]] == ["1", "2", "3"]
    assert [one["group"] for one in expected["attributes"][1]["groups"]] == ["False", "True"]
    for name, data in files(FRAMES[kind](frame), tmp_path).items():
        assert not differences(expected, audited(data)), name


def test_a_folder_of_mixed_spellings_has_each_group_once(tmp_path: Path) -> None:
    frame = people()
    expected = audited(frame)
    for i, kind in enumerate(("int64", "floats", "texts of floats", "texts")):
        part = frame.iloc[i * ROWS // 4 : (i + 1) * ROWS // 4]
        FRAMES[kind](part).to_csv(tmp_path / f"{i}.csv", index=False)
    assert not differences(expected, audited(str(tmp_path)))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["int64", "floats", "texts of floats", "mixed texts", "decimals"])
def test_an_audit_in_a_database_does_not_depend_on_types(kind: str, tmp_path: Path) -> None:
    frame = people()
    expected, made = audited(frame), FRAMES[kind](frame)
    with duckdb.connect(str(tmp_path / "x.duckdb")) as base:
        base.register("rows", pa.Table.from_pandas(made, preserve_index=False))
        base.execute("CREATE TABLE people AS SELECT * FROM rows")
    assert not differences(expected, audited(f"duckdb:///{tmp_path}/x.duckdb#people"))
    if kind in ("decimals", "int64"):  # of which SQLite has neither the numbers nor the truth values
        return
    with sqlite3.connect(tmp_path / "x.sqlite") as lite:
        made.assign(member=made["member"].astype(str)).to_sql("people", lite, index=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of Ibis, about pandas
        assert not differences(expected, audited(f"sqlite:///{tmp_path}/x.sqlite#people"))


@pytest.mark.slow
@pytest.mark.parametrize("positive", ["2", "2.0", 2, 2.0, "2.00"])
def test_a_positive_value_is_named_in_any_spelling(positive: Any) -> None:
    frame = people()
    asked = {"protected": "group", "prediction": "decided"}
    expected = fairfix.audit(frame, **asked, label="label=2").to_dict()["attributes"]
    for kind in ("floats", "texts of floats", "decimals", "categories"):
        beside = frame.assign(decided=FRAMES[kind](frame)["decided"])
        given = fairfix.audit(beside, **asked, label=f"label={positive}").to_dict()["attributes"]
        assert not differences(expected, given), kind


@pytest.mark.slow
@pytest.mark.parametrize("by_id", [True, False])
def test_a_repair_decides_rows_of_other_types_alike(by_id: bool, tmp_path: Path) -> None:
    frame = people().drop(columns=["label", "decided"])
    asked: dict[str, Any] = {"protected": ["group", "member"], "strata": "area", "label": "label=2"}
    repaired = fairfix.repair(
        people().drop(columns="decided"), **asked, method="ramp", slack=0.0, id="id" if by_id else None
    ).repaired
    saved = str(tmp_path / "r.fairfix")
    repaired.save(saved)
    added = ["p_positive", "decision", "randomized"]
    expected = fairfix.predict(saved, frame)[added]
    assert expected["randomized"].sum() > 20
    alone = [repaired.predict(row)["decision"] for row in frame.head(40).to_dict("records")]
    assert alone == expected["decision"].to_list()[:40]
    for kind, made in FRAMES.items():
        rows = made(people()).drop(columns=["label", "decided"])
        (folder := tmp_path / kind).mkdir()
        for name, data in files(rows, folder).items():
            given = fairfix.predict(saved, data)
            given = given if isinstance(given, pd.DataFrame) else given.to_pandas()
            assert given[added].equals(expected), (kind, name)
        alone = [repaired.predict(row)["decision"] for row in rows.head(40).to_dict("records")]
        assert alone == expected["decision"].to_list()[:40], kind


SHARES: list[tuple[float, Any, str]] = [
    (1.0, "original", "WARNING"),
    (0.6, "abstain", "WARNING"),
    (0.1, "original", "INFO"),
]


@pytest.mark.parametrize(("share", "policy", "severity"), SHARES)
def test_rows_of_unseen_groups_are_counted(
    share: float, policy: Any, severity: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Each strange group is named with its rows; where a repair hardly applies, it is a warning."""
    frame = people()
    repaired = fairfix.repair(frame, protected="group", label="label=2", id="id", method="ramp")
    many = round(share * ROWS)
    strange = frame.assign(group=frame["group"].astype(object)).drop(columns=["label", "decided"])
    strange["group"] = [
        "new" if i < many // 3 else "New" if i < many else one for i, one in enumerate(frame["group"])
    ]
    strange["group"] = strange["group"].astype(str)
    caplog.clear()
    with caplog.at_level("INFO", "fairfix"):
        fairfix.predict(repaired, strange, unseen=policy)
    said = [one for one in caplog.records if "lack" in one.getMessage()]
    assert [one.levelname for one in said] == [severity]
    for text in (f"{many:,} of {ROWS:,} rows", f"'new' {many // 3:,}", f"'New' {many - many // 3:,}"):
        assert text in said[0].getMessage()
    if severity == "WARNING":
        with pytest.warns(FairfixWarning, match="lack"):
            repaired.repaired.predict(strange, unseen=policy)


@pytest.mark.parametrize("by_id", [True, False])
@pytest.mark.parametrize("kind", ["floats", "decimals", "texts of floats", "mixed texts"])
def test_a_repair_is_the_same_of_other_types(kind: str, by_id: bool) -> None:
    """Its rule, its proof with the decisions as drawn, and its fingerprint."""

    def made(frame: pd.DataFrame) -> Any:
        asked: dict[str, Any] = {"protected": "group", "label": "label=2", "method": "ramp", "slack": 0.0}
        return fairfix.repair(frame, **asked, id="id" if by_id else None).to_dict()

    own = people().drop(columns="decided")
    assert not differences(made(own), made(FRAMES[kind](people()).drop(columns="decided")))


@pytest.mark.parametrize("kind", ["floats", "decimals"])
def test_a_comparison_is_the_same_of_other_types(kind: str) -> None:
    asked: dict[str, Any] = {"protected": "group", "label": "label=2", "slacks": [0.05], "score": "score"}
    one, other = (
        fairfix.compare(frame.drop(columns="decided"), methods=["fair-regression"], **asked).to_dict()
        for frame in (people(), FRAMES[kind](people()))
    )
    assert not differences(one, other)
