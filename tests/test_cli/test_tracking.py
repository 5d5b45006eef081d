"""``--log mlflow`` sends what the reports have, to the place that the user named, and nothing else anywhere."""

from __future__ import annotations

import json
import re
import socket
import sqlite3
from pathlib import Path
from typing import Any

import fairfix
import numpy as np
import pandas as pd
import pytest

from tests.conftest import Call

pytestmark = pytest.mark.usefixtures("away")


@pytest.fixture
def rows(away: None) -> str:
    """Data with two attributes whose names are nearly alike, and a group without positive labels."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a|b": rng.choice(["x", "y"], 600), "a?b": rng.choice(["x", "y", "z"], 600)})
    frame["score"] = rng.random(600).round(3)
    frame["label"] = (rng.random(600) < frame["score"]) & (frame["a|b"] == "x")
    frame.astype({"label": int}).to_csv("d.csv", index=False)
    return "d.csv --protected a|b,a?b"


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The runs that MLflow has in this folder, the last one first; no test reaches a network."""
    pytest.importorskip("mlflow", reason="pip install 'fairfix[mlflow]'")
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    for name in ("MLFLOW_EXPERIMENT_NAME", "MLFLOW_EXPERIMENT_ID"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(socket.socket, "connect", refuse)

    def listed() -> list[Any]:
        from mlflow.tracking import MlflowClient

        client = MlflowClient(f"sqlite:///{Path('mlflow.db').absolute()}")
        every = [one.experiment_id for one in client.search_experiments()]
        return list(client.search_runs(every))

    return listed


def refuse(*_: object) -> None:
    raise ConnectionRefusedError("no network")


def files_of(run: Any) -> dict[str, Path]:
    return {one.name: one for one in Path(run.info.artifact_uri).iterdir()}


@pytest.mark.slow
def test_an_audit_is_a_run_with_its_numbers_verdicts_and_reports(rows: str, runs: Any, call: Call) -> None:
    """Every comparison is a metric with its limits; an undefined one is a tag with the reason, and no metric."""
    check = "dp.difference<=0.2"
    status, out, _ = call(f"audit {rows} --log mlflow --format json", "--check", check)
    saved, (run,) = json.loads(out), runs()

    assert status in (0, 1, 3)
    assert run.info.status == "FINISHED"
    metrics, tags = run.data.metrics, run.data.tags
    keys, undefined = [key for key in metrics if re.fullmatch(r"dp.difference.a_b.\w{8}", key)], 0
    for block in saved["attributes"]:
        dp = next(
            one for one in block["comparisons"] if one["id"] == "selection_rate.difference.between_groups"
        )
        (key,) = [key for key in keys if metrics[key] == dp["value"]]
        assert (metrics[f"{key}.lower"], metrics[f"{key}.upper"]) == (dp["low"], dp["high"])
        undefined += sum(one["value"] is None for one in block["comparisons"])
    assert undefined
    assert sum(key.startswith("undefined.") for key in tags) >= undefined
    assert all(tags[key] for key in tags if key.startswith("undefined."))
    assert not [key for key in tags if key.removeprefix("undefined.") in metrics]
    assert sorted(v for k, v in tags.items() if k.startswith("check.")) == sorted(
        c["verdict"] for c in saved["checks"]
    )
    assert tags["fairfix.verdict"] == saved["verdict"]
    assert run.data.params["check"] == check
    files = files_of(run)
    assert json.loads(files["result.json"].read_text()) == saved
    assert {*files} == {"result.json", "report.html", "card.md"}


@pytest.mark.slow
def test_a_repair_has_its_artifact_and_a_comparison_its_candidates(rows: str, runs: Any, call: Call) -> None:
    assert call("repair d.csv --protected a?b --method ramp --log mlflow -q")[0] == 0
    (repair,) = runs()
    assert files_of(repair)["repaired.fairfix"].read_bytes() == Path("repaired.fairfix").read_bytes()
    metrics = repair.data.metrics
    change = metrics["accuracy.overall"] - metrics["before.accuracy.overall"]
    assert metrics["change.accuracy.overall"] == pytest.approx(change)

    assert call("compare d.csv --protected a?b --methods ramp --slacks 0.01,0.1 --log mlflow -q")[0] == 0
    compared = runs()[0]
    assert {key.split(".dp.")[0] for key in compared.data.metrics if ".dp.difference" in key} >= {
        "ramp.0.01",
        "ramp.0.1",
    }


@pytest.mark.slow
def test_a_store_that_was_found_sends_nothing_elsewhere(
    rows: str, runs: Any, call: Call, tmp_path: Path
) -> None:
    """A stranger's store in the working folder names another place for files: refused, until it is named."""
    elsewhere = tmp_path.parent / f"{tmp_path.name}-elsewhere"
    assert call(f"audit {rows} --log mlflow -q")[0] == 0
    with sqlite3.connect("mlflow.db") as database:
        database.execute("UPDATE experiments SET artifact_location = ?", (str(elsewhere),))
    database.close()

    err = call.refused(f"audit {rows} --log mlflow --out json=new.json")
    assert "MLFLOW_TRACKING_URI" in err
    assert not elsewhere.exists()
    assert json.loads(Path("new.json").read_text())["schema"] == "fairfix.unrun/1"
    assert runs()[0].info.status == "FAILED"


def test_no_secret_of_the_address_is_shown(
    rows: str, runs: Any, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that is not reached ends the run with status 2, and no report claims a result."""
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://me:hush@127.0.0.1:9/")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")

    err = call.refused(f"audit {rows} --log mlflow --out json=new.json")
    assert "127.0.0.1:9" in err
    assert "hush" not in err + Path("new.json").read_text()
    assert json.loads(Path("new.json").read_text())["code"] == "data"


def test_without_the_package_it_says_what_to_install(
    rows: str, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before any work, with status 2; a configuration that is named may ask for it."""
    monkeypatch.setattr("fairfix.cli.tracking.find_spec", lambda _: None)
    Path("named.toml").write_text('log = "mlflow"\n')

    for more in ("--log mlflow", "--config named.toml"):
        err = call.refused(f"audit {rows} {more}")
        assert "fairfix[mlflow]" in err
    assert fairfix.audit("d.csv", protected="a|b").content.checks == ()
    assert not Path("mlflow.db").exists()
