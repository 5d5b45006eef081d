"""Tables of frequencies: a row with a count is so many rows, in everything that is made of rows."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import fairfix
import numpy as np
import pandas as pd
import pytest
from fairfix.data import files
from fairfix.data import people as counted
from fairfix.errors import DataError, UsageError

from tests.conftest import Call
from tests.data import people

pytestmark = pytest.mark.usefixtures("away")

NAMES = ["race", "sex", "town", "label", "score", "yes", "p", "x", "real", "weight"]


def tables(rows: int = 900, seed: int = 0) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return a table of frequencies, some of them 0, and the same people a row each."""
    rng = np.random.default_rng(seed)
    frame = people(rows, seed)
    frame = frame.assign(
        score=frame.score.round(1).clip(0.05, 0.95),
        p=frame.p.round(1),
        real=frame.real.round(),
        weight=rng.integers(1, 4, rows) / 2,
        x=rng.integers(0, 4, rows),
    )[NAMES]
    frame["n"] = rng.integers(0, 4, rows)
    frame.loc[:3, "n"] = [7, 0, 1, 2]
    one = frame.loc[frame.index.repeat(frame.n)].drop(columns="n").reset_index(drop=True)
    return frame, one


def plain(result: Any) -> Any:
    """Return the JSON form of a result without the name of the column of counts."""
    content = json.loads(result.to_json())
    content["data"]["columns"].pop("count", None)
    return content


AUDITS: dict[str, dict[str, Any]] = {
    "scores": {
        "score": "score",
        "intersect": True,
        "protected": ["race", "sex"],
        "reference": ["race=a", "sex=f"],
    },
    "weights": {"score": "score", "weight": "weight", "strata": "town"},
    "decisions": {"prediction": "yes"},
    "chances": {"probability": "p", "strata": "town"},
    "regression": {"label": "real", "score": "x", "task": "regression"},
    "classes": {"label": "x", "prediction": "yes", "task": "multiclass", "missing": "drop"},
    "noise": {"prediction": "yes", "noise": "radius:a=0.05,b=0.05,c=0.05"},
    "suppressed": {"score": "score", "suppress_below": 30},
    "checks": {"score": "score", "check": ["dp.difference<=0.1"], "profile": "ugesp"},
    "individual": {"score": "score", "similar": "flips", "features": ["x", "town"]},
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", AUDITS)
def test_an_audit_of_counts_is_that_of_the_people(kind: str) -> None:
    """Every metric, comparison, interval and check, and the numbers of people, to the last digit."""
    table, one = tables()
    asked = {"protected": "race", **AUDITS[kind]}
    assert plain(fairfix.audit(table, count="n", **asked)) == plain(fairfix.audit(one, **asked))


REPAIRS: dict[str, dict[str, Any]] = {
    "ramp": {"score": "score"},
    "ramp, strata": {"method": "ramp", "score": "score", "strata": "town", "guarantee": 0.9, "slack": 0.3},
    "logloss": {"features": ["x", "town"]},
    "fair-regression": {"features": ["x"], "label": "real", "task": "regression"},
    "sensei": {"features": ["x", "town"]},
    "robust": {"score": "score", "noise": "radius:a=0.05,b=0.05,c=0.05"},
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", REPAIRS)
def test_a_repair_of_counts_is_that_of_the_people(kind: str) -> None:
    """Rule, split and proof, by each method."""
    table, one = tables()
    asked: dict[str, Any] = {
        "protected": "race",
        "method": kind.partition(",")[0],
        "seed": 3,
        **REPAIRS[kind],
    }
    drop = [name for name in ("yes", "p") if name not in asked.values()]
    with_counts, without = (
        plain(fairfix.repair(frame.drop(columns=drop), **asked, **more))
        for frame, more in ((table, {"count": "n"}), (one, {}))
    )
    for content in (with_counts, without):  # which advice fits is another
        content["messages"] = [one for one in content["messages"] if one["code"] != "equal_rows"]
    assert with_counts == without


def test_a_comparison_and_saved_counts_are_those_of_the_people(call: Call) -> None:
    """Through the command line: ``compare``, ``count`` and a repair from counts."""
    for name, frame in zip(("n.csv", "one.csv"), tables(), strict=True):
        frame[[*NAMES[:5], *(["n"] if "n" in frame else [])]].to_csv(name, index=False)
    found = []
    for data, more in (("n.csv", ("--count", "n")), ("one.csv", ())):
        asked = (data, "--protected", "race", *more, "--format", "json")
        compared = call("compare", *asked, "--methods", "ramp", "--slacks", "0,0.1")
        audited = call("audit", *asked)
        assert call("count", *asked[:-2], "-o", f"{data}.counts")[0] == 0
        again = call("audit", f"{data}.counts", "--format", "json")
        repaired = call("repair", f"{data}.counts", "--method", "ramp", "--format", "json")
        for status, out, err in (compared, audited, again, repaired):
            assert status == 0, err
            content = json.loads(out)
            content["data"]["columns"].pop("count", None)
            content.pop("artifact", None)  # its hash is of names too
            content.pop("next_step", None)  # which names the counts
            for point in content.get("points", ()):
                point["messages"] = [one["code"] for one in point.get("messages", ())]
                point.pop("command", None)  # which names the counts
            found.append(json.loads(json.dumps(content).replace("one.csv", "n.csv")))
    assert found[:4] == found[4:]
    err = call.refused("audit", "n.csv.counts", "--count", "weight")
    assert "--count is weight, but the counts were made with n" in err


def test_databases_settings_and_first_settings_know_counts(call: Call) -> None:
    table, one = tables()
    names = [*NAMES[:5], "n"]
    with sqlite3.connect("t.sqlite") as connection:
        table[names].to_sql("t", connection, index=False)
    table[names].to_csv("n.csv", index=False)
    one[NAMES[:5]].to_csv("one.csv", index=False)
    asked = ("--protected", "race,sex", "--format", "json")
    out = call.ran("audit", f"sqlite:///{Path('t.sqlite').absolute()}#t", "--count", "n", *asked)
    _, wanted, _ = call("audit", "one.csv", *asked)
    assert json.loads(out)["attributes"] == json.loads(wanted)["attributes"]
    call.ran("init", "n.csv", "--count", "n", "--protected", "race,sex")
    out = call.ran("audit", "--format", "json")
    assert json.loads(out)["attributes"] == json.loads(wanted)["attributes"]
    assert json.loads(out)["data"]["rows"]["used"] == len(one)


def test_people_come_in_batches_of_a_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many a row is for: no batch is longer than others, and the numbers are the same."""
    table, one = tables()
    table = table.assign(n=table.n * 1000)
    source = counted.PeopleSource(files.open_source(table), "n")
    sizes = [batch.num_rows for part in source.parts(["race"]) for batch in part.batches()]
    assert sum(sizes) == source.rows == 1000 * len(one)
    assert max(sizes) <= files.BATCH_ROWS
    rates = [
        fairfix.audit(frame, protected="race", prediction="yes", **more)
        .content.overall.metrics["accuracy"]
        .value  # type: ignore[union-attr]  # it is there
        for frame, more in ((table, {"count": "n"}), (one, {}))
    ]
    assert rates[0] == pytest.approx(rates[1], rel=1e-12)


@pytest.mark.parametrize(
    ("entry", "says"),
    [
        (1.5, "holds 1.5 at row 3"),
        (-1, "holds -1 at row 3"),
        (None, "holds nothing at row 3"),
        (1e300, "1e+300"),
    ],
)
@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_what_is_no_count_is_refused_with_its_row(entry: float | None, says: str, ending: str) -> None:
    """Fractions, negative numbers, missing and endless ones; the file is what it was."""
    table, _ = tables(60)
    table["n"] = table.n.astype(float)
    table.loc[2, "n"] = entry
    getattr(table, f"to_{ending}")(f"t.{ending}", index=False)
    with pytest.raises(DataError, match="count column 'n'") as error:
        fairfix.audit(f"t.{ending}", protected="race", prediction="yes", count="n")
    assert says in str(error.value)


def test_rows_of_messages_are_those_of_the_file() -> None:
    """A wrong entry of another column is named by its row in the data, not among the people."""
    table, _ = tables(60)
    table.loc[40, "score"] = 7.0
    with pytest.raises(DataError, match="holds 7 at row 41 of data"):
        fairfix.audit(table, protected="race", score="score", count="n")


@pytest.mark.parametrize(
    "more", [{"id": "x"}, {"weight": "n"}, {"protected": "n"}, {"count": "gone"}, {"prediction": "n"}]
)
def test_what_does_not_go_with_counts_is_refused(more: dict[str, str]) -> None:
    table, _ = tables(60)
    with pytest.raises((UsageError, DataError)):
        fairfix.audit(table, **{"protected": "race", "prediction": "yes", "count": "n", **more})  # type: ignore[arg-type]  # keywords of the request


def test_counts_that_are_all_0_are_refused() -> None:
    table, _ = tables(60)
    with pytest.raises(DataError, match="0 in every row"):
        fairfix.audit(table.assign(n=0), protected="race", prediction="yes", count="n")


def test_whole_weights_of_a_table_of_frequencies_are_asked_about() -> None:
    """A note: weights that look like counts; not of survey weights, nor of many alike rows."""
    _, one = tables()
    small = one.groupby(["race", "label", "yes"]).size().reset_index(name="n")

    def noted(frame: pd.DataFrame, **more: str) -> bool:
        asked: dict[str, Any] = {"protected": "race", "prediction": "yes", **more}
        messages = fairfix.audit(frame, **asked).to_dict().get("messages", [])
        return "weights_or_counts" in [message["code"] for message in messages]

    assert noted(small, weight="n")
    assert not noted(small, count="n")
    assert not noted(small.assign(n=small.n + 0.3), weight="n")
    assert not noted(one.assign(n=2), weight="n")
