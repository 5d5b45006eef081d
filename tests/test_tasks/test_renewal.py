"""Renewed guarantees: decisions are held to what the artifact guarantees, at every look, and refused where not its."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import fairfix
import numpy as np
import pandas as pd
import pytest
from fairfix.auditing.countfile import CountFile
from fairfix.cli import run
from fairfix.errors import ArtifactError, FairfixError

LIMIT = 0.25


def people(number: int, rows: int = 3000, gap: float = 0.05) -> pd.DataFrame:
    """Return scored people of two groups; the scores of group a are higher by a gap."""
    rng = np.random.default_rng(number)
    group = rng.choice(["a", "b"], rows)
    score = np.clip(rng.beta(2, 2, rows) + gap * (group == "a"), 0, 1)
    label = (rng.random(rows) < score).astype(int)
    names = [f"{number}-{i}" for i in range(rows)]
    return pd.DataFrame({"id": names, "group": group, "score": score, "label": label})


def made(folder: Path, **more: Any) -> str:
    """Return the path of a repair."""
    path = str(folder / "r.fairfix")
    asked = {"method": "ramp", "protected": "group", "id": "id", "slack": LIMIT, "guarantee": 0.9, **more}
    fairfix.repair(people(0), **asked, output=path)
    return path


@pytest.fixture(scope="module")
def parity(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return an artifact that guarantees demographic parity."""
    return made(tmp_path_factory.mktemp("parity"))


@pytest.fixture(scope="module")
def opportunity(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return an artifact that guarantees equal opportunity."""
    return made(tmp_path_factory.mktemp("opportunity"), constraint="equal_opportunity")


def decided(artifact: str, number: int, rows: int = 3000, gap: float = 0.05) -> pd.DataFrame:
    """Return people with what the rule decides of them."""
    frame = fairfix.predict(artifact, people(number, rows, gap))
    assert isinstance(frame, pd.DataFrame)
    return frame


def result_of(data: Any, **more: Any) -> dict[str, Any]:
    """Return the JSON result of an audit."""
    return dict(json.loads(fairfix.audit(data, **more).to_json()))


def test_the_certificate_is_the_always_valid_check_of_the_probabilities(parity: str) -> None:
    """Its numbers are those of the check that a user would write, by the confidence of the guarantee."""
    rows = decided(parity, 1)
    plain = {"protected": "group", "probability": "p_positive", "always_valid": True, "confidence": 0.9}
    (mine,), (theirs,) = (
        result_of(rows, **asked)["checks"]
        for asked in ({"of": parity}, {**plain, "check": f"dp.difference[group]<={LIMIT}"})
    )
    for name in ("limit", "verdict", "check", "groups"):
        assert mine[name] == theirs[name]
    for name in ("value", "low", "high"):
        assert mine[name] == pytest.approx(theirs[name], abs=1e-9)
    assert mine["verdict"] == "pass"
    rates = rows.groupby("group")["p_positive"].mean()
    assert mine["value"] == pytest.approx(abs(rates["a"] - rates["b"]))


@pytest.mark.parametrize(("gap", "rows", "status"), [(0.05, 3000, 0), (0.6, 3000, 1), (0.05, 60, 3)])
def test_the_exit_status_is_that_of_a_check(
    parity: str, tmp_path: Path, gap: float, rows: int, status: int
) -> None:
    data = tmp_path / "decided.parquet"
    decided(parity, 2, rows, gap).to_parquet(data)
    words = ["--protected", "group", "--of", parity, "--state", str(tmp_path / "gate.counts"), "-q"]
    assert run(["audit", str(data), *words, "--out", f"junit={tmp_path / 'j.xml'}"]) == status
    assert ("<failure" in (tmp_path / "j.xml").read_text()) == (status == 1)


def test_a_drift_is_found_with_its_batch_and_the_numbers_of_the_rows_since_then(
    parity: str, tmp_path: Path
) -> None:
    """The gap of all rows is still within the limit; that since the batch is that of an audit of these batches."""
    path, since = tmp_path / "gate.counts", 6
    for number in range(1, since + 3):
        rows = decided(parity, number, 600, 0.03 if number < since else 0.5)
        checks = result_of(rows, state=path, of=parity)["checks"]
        if number < since:
            assert checks[0]["verdict"] != "fail"
    (one,) = checks
    assert (one["verdict"], one["since"]) == ("fail", since)
    assert one["low"] > LIMIT
    state = CountFile.load(path)
    rates = np.concatenate(
        [np.asarray(piece.arrays["decisions"]).sum(axis=1)[None] for piece in state.pieces[since - 1 :]]
    ).sum(axis=0)
    each = rates[:, 0] / (rates[:, 0] + rates[:, 1])
    assert one["value"] == pytest.approx(abs(each[0] - each[1]))
    late = [decided(parity, number, 600, 0.5) for number in range(since, since + 3)]
    about = {"protected": "group", "probability": "p_positive", "always_valid": True}
    again = result_of(
        pd.concat(late), **about, confidence=1 - 0.1 / (since * (since - 1)), check=f"dp.difference<={LIMIT}"
    )
    assert (one["low"], one["high"]) == pytest.approx(
        tuple(again["checks"][0][end] for end in ("low", "high")), abs=1e-9
    )
    whole = result_of(path, of=parity)
    (gap,) = (
        c for c in whole["attributes"][0]["comparisons"] if c["id"].endswith("difference.between_groups")
    )
    assert gap["value"] < LIMIT


def test_labels_may_be_late(opportunity: str, tmp_path: Path) -> None:
    """Rows count when they have a label; without any the check is undecided, and nothing is added."""
    path, rows = tmp_path / "gate.counts", decided(opportunity, 3)
    for none in (rows.drop(columns="label"), rows.assign(label=np.nan), rows.assign(label=np.nan)):
        for more in ({}, {"state": path}):
            (check,) = result_of(none, of=opportunity, **more)["checks"]
            assert (check["verdict"], check["code"], check["value"]) == ("undecided", "not_computed", None)
            assert "label yet" in check["reason"]
    assert not path.exists()
    some = rows.assign(label=rows["label"].where(rows.index % 2 == 0))
    result = result_of(some, of=opportunity, state=path, id="id")
    assert result["data"]["rows"]["used"] == len(rows) // 2
    content, (check,) = path.read_bytes(), result["checks"]
    labelled = some[some["label"] == 1].groupby("group")["p_positive"].mean()
    assert check["value"] == pytest.approx(abs(labelled["a"] - labelled["b"]))
    (again,) = result_of(decided(opportunity, 4).drop(columns="label"), of=opportunity, state=path)["checks"]
    assert again["value"] == check["value"]
    assert path.read_bytes() == content


def test_a_gap_of_decisions_needs_no_label(parity: str, tmp_path: Path) -> None:
    rows = decided(parity, 5)
    some = rows.assign(label=rows["label"].where(rows.index % 3 == 0))
    (one,), (all_,) = (result_of(data, of=parity)["checks"] for data in (some, rows))
    assert one == all_


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"protected": "label"}, "protected"),
        ({"strata": "label"}, "strata"),
        ({"threshold": 0.4}, "threshold"),
        ({"confidence": 0.8}, "confidence"),
        ({"probability": "score"}, "probability"),
        ({"prediction": "decision"}, "prediction"),
        ({"score": "score"}, "score"),
        ({"gate_on": "point"}, "gate_on"),
        ({"weight": "score"}, "weight"),
        ({"bands": {"group": [1.0]}}, "bands"),
        ({"merge": "group=a,b"}, "merge"),
        ({"of": 3}, "of"),
        ({"of": "none.fairfix"}, "none.fairfix"),
    ],
)
def test_what_contradicts_the_artifact_is_refused(
    parity: str, tmp_path: Path, asked: dict[str, Any], words: str
) -> None:
    path = tmp_path / "gate.counts"
    with pytest.raises(FairfixError, match=words):
        fairfix.audit(decided(parity, 6, 300), **{"of": parity, "state": path, **asked})
    assert not path.exists()


def test_decisions_of_another_rule_are_refused(parity: str, opportunity: str, tmp_path: Path) -> None:
    """They differ from what the rule gives, or there are none; rows without the score are taken as they are."""
    path, rows = tmp_path / "gate.counts", decided(parity, 7, 400)
    others = [
        rows.assign(p_positive=1 - rows["p_positive"]),
        rows.assign(p_positive=np.where(rows.index == 399, 0.5, rows["p_positive"])),
        rows.drop(columns=["p_positive"]),
        people(7),
        decided(opportunity, 7, 400),
    ]
    for data in others:
        with pytest.raises(FairfixError, match="p_positive"):
            fairfix.audit(data, of=parity, state=path)
    assert not path.exists()
    short = rows[["group", "p_positive", "decision", "randomized"]]
    (one,), (whole,) = (result_of(data, of=parity)["checks"] for data in (short, rows))
    assert one == whole


def test_what_an_artifact_does_not_guarantee_is_not_renewed(tmp_path: Path) -> None:
    """No guarantee, one that was not proven, or one whose quantity no audit of decisions has."""
    fairfix.repair(people(0), method="ramp", protected="group", output=str(tmp_path / "plain.fairfix"))
    (tmp_path / "few").mkdir()
    (tmp_path / "other").mkdir()
    few = made(tmp_path / "few", slack=0.001)
    other = made(tmp_path / "other", method="fair-regression", slack=0.4)
    for artifact in (str(tmp_path / "plain.fairfix"), few, other):
        with pytest.raises(FairfixError, match="of"):
            fairfix.audit(fairfix.predict(artifact, people(1, 300)), of=artifact)


@pytest.mark.parametrize(
    "change",
    [
        {"checks": ["moon<=1"]},
        {"checks": 3},
        {"confidence": 2.0},
        {"holds": "yes"},
        {"slack": None},
        {"unknown": 1},
    ],
)
def test_a_guarantee_that_was_changed_is_an_error(
    parity: str, tmp_path: Path, change: dict[str, Any]
) -> None:
    """An artifact comes from strangers: what is no guarantee ends with status 2, not with a traceback."""
    from fairfix.data.container import Archive, read, write

    held = read(parity)
    facts = {**held.manifest["facts"], "guarantee": {**held.manifest["facts"]["guarantee"], **change}}
    path = tmp_path / "strange.fairfix"
    write(path, Archive({**held.manifest, "facts": facts}, held.arrays))
    assert zipfile.is_zipfile(path)
    with pytest.raises(ArtifactError, match="guarantee"):
        fairfix.audit(decided(parity, 8, 300), of=str(path))
