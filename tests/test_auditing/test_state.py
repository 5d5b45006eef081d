"""States: counts that grow by a batch at each audit, once, with a history and changes of gaps."""

from __future__ import annotations

import json
import shlex
import shutil
import zipfile
from pathlib import Path
from typing import Any

import fairfix
import numpy as np
import pandas as pd
import pytest
from fairfix.auditing.countfile import CountFile
from fairfix.cli import run
from fairfix.data.container import COUNTS, Archive, read, write
from fairfix.errors import ArtifactError, DataError, UsageError

ABOUT: dict[str, Any] = {"protected": "group", "score": "score", "label": "label", "prediction": "decision"}


def batch(number: int, rows: int = 400, gap: float = 0.1, groups: str = "ab") -> pd.DataFrame:
    """Return rows of groups, the last of which is selected more often."""
    rng = np.random.default_rng(number)
    group = rng.integers(0, len(groups), rows)
    score = rng.random(rows)
    return pd.DataFrame(
        {
            "id": np.arange(rows) + number * 100_000,
            "group": np.array(list(groups))[group],
            "label": (rng.random(rows) < score).astype(int),
            "score": score,
            "decision": (rng.random(rows) < 0.4 + gap * (group == len(groups) - 1)).astype(int),
        }
    )


def grown(path: Path, *frames: pd.DataFrame, **more: Any) -> dict[str, Any]:
    """Return the JSON result of the last of several audits that add to a state."""
    made = [fairfix.audit(frame, **{**ABOUT, "state": path, **more}) for frame in frames]
    return dict(json.loads(made[-1].to_json()))


def test_a_state_is_audited_as_all_rows_are(tmp_path: Path) -> None:
    """The total has the numbers of an always-valid audit of all rows' counts, and the history leads up to them."""
    frames = [batch(i) for i in range(3)]
    result = grown(tmp_path / "gate.counts", *frames)
    counts = fairfix.count(pd.concat(frames), **ABOUT)
    whole = json.loads(fairfix.audit(counts, always_valid=True).to_json())
    for mine, theirs in zip(*(one["attributes"][0]["comparisons"] for one in (result, whole)), strict=True):
        assert mine["id"] == theirs["id"]
        assert (mine["low"], mine["high"]) == pytest.approx((theirs["low"], theirs["high"]), abs=1e-9)
    state = result["state"]
    assert [one["rows"] for one in state["batches"]] == [400, 400, 400]
    (trace,) = state["traces"]
    gap = next(
        one
        for one in whole["attributes"][0]["comparisons"]
        if one["id"] == "selection_rate.difference.between_groups"
    )
    assert abs(trace["totals"][-1]["value"]) == pytest.approx(gap["value"])
    rates = [frame.groupby("group")["decision"].mean() for frame in frames]
    first, second = trace["groups"]
    assert trace["batches"] == pytest.approx([rate[first] - rate[second] for rate in rates])
    again = json.loads(fairfix.audit(tmp_path / "gate.counts", always_valid=True).to_json())
    assert again["state"] == state


def test_order_and_files_of_batches_do_not_matter(tmp_path: Path) -> None:
    """States of the same batches in another order, from files, counts or frames, have the same total."""
    frames = [batch(i) for i in range(3)]
    paths = []
    for i, frame in enumerate(frames):
        paths.append(tmp_path / f"{i}.csv")
        frame.to_csv(paths[-1], index=False)
    counted = tmp_path / "1.counts"
    fairfix.count(paths[1], **ABOUT).save(counted)
    one = grown(tmp_path / "one.counts", *frames)
    for data in (paths[2], counted, paths[0]):
        made = fairfix.audit(data, **({} if data == counted else ABOUT), state=tmp_path / "two.counts")
    other = json.loads(made.to_json())
    for a, b in zip(*(result["attributes"][0]["comparisons"] for result in (one, other)), strict=True):
        assert (a["low"], a["high"]) == pytest.approx((b["low"], b["high"]), abs=1e-9)


@pytest.mark.parametrize(
    "how", ["same", "shuffled", "by id", "counts", "by id, then not", "counts, then rows"]
)
def test_the_same_rows_are_refused_a_second_time(tmp_path: Path, how: str) -> None:
    """Be they in another order, or known by their IDs alone; the file stays as it was."""
    path, frame = tmp_path / "gate.counts", batch(1)
    more: dict[str, Any] = {"id": "id"} if how == "by id" else {}
    again: Any = frame
    if how == "shuffled":
        again = frame.sample(frac=1, random_state=0)
    elif how == "by id":
        again = frame.assign(decision=1 - frame["decision"])
    elif how.startswith("counts"):
        frame = fairfix.count(frame, **ABOUT)
        again = frame if how == "counts" else again
    first = (
        {} if how.startswith("counts") else {**ABOUT, **more, **({"id": "id"} if "then not" in how else {})}
    )
    about = {} if how == "counts" else {**ABOUT, **more}
    fairfix.audit(frame, **first, state=path)
    content = path.read_bytes()
    with pytest.raises(DataError, match="batch 1"):
        fairfix.audit(again, **about, state=path)
    assert path.read_bytes() == content
    if how != "counts":
        fairfix.audit(batch(2), **about, state=path)
        assert path.read_bytes() != content


def test_what_was_counted_in_another_way_is_refused(tmp_path: Path) -> None:
    """Other columns, thresholds or meanings are named, and nothing is added."""
    path = tmp_path / "gate.counts"
    grown(path, batch(1))
    content = path.read_bytes()
    for more in ({"prediction": None}, {"prediction": "decision=0"}, {"protected": "label", "label": None}):
        with pytest.raises((UsageError, DataError)):
            fairfix.audit(batch(2), **{**ABOUT, **more}, state=path)
    plain = tmp_path / "plain.counts"
    fairfix.count(batch(3), **ABOUT).save(plain)
    with pytest.raises(UsageError, match="batches"):
        fairfix.audit(batch(2), **ABOUT, state=plain)
    with pytest.raises(UsageError, match="state"):
        fairfix.audit(path, state=tmp_path / "new.counts")
    with pytest.raises(UsageError, match="suppress_below"):
        fairfix.audit(batch(2), **ABOUT, state=path, suppress_below=10)
    assert path.read_bytes() == content


def test_a_failed_run_adds_nothing_and_a_failed_check_does(tmp_path: Path) -> None:
    """Status 2 leaves the state as it was, or not there; a check that fails is a result like any other."""
    data, path = tmp_path / "data.parquet", tmp_path / "gate.counts"
    batch(1, 3000, 0.4).to_parquet(data)
    words = [
        "audit",
        str(data),
        "--protected",
        "group",
        "--prediction",
        "decision",
        "--state",
        str(path),
        "-q",
    ]
    assert run([*words, "--check", "dp.difference[nothing]<=0.1"]) == 2
    assert not path.exists()
    assert run([*words, "--check", "dp.difference<=0.1"]) == 1
    assert len(CountFile.load(path).batches) == 1
    assert run(words) == 2


def test_runs_at_the_same_time_lose_no_batch(tmp_path: Path) -> None:
    """A state that another run has written since it was read is left as it is, and the run says so."""
    from fairfix.tasks.request import AuditRequest
    from fairfix.tasks.state import GrowingState

    path = tmp_path / "gate.counts"
    new = [GrowingState.of(AuditRequest(batch(i), **ABOUT, state=path), None) for i in (1, 2)]
    new[0].save()
    with pytest.raises(DataError, match="same time"):
        new[1].save()
    old = [GrowingState.of(AuditRequest(batch(i), **ABOUT, state=path), None) for i in (3, 4)]
    old[1].save()
    with pytest.raises(DataError, match="same time"):
        old[0].save()
    assert len(CountFile.load(path).batches) == 2
    assert [one.name for one in tmp_path.iterdir()] == ["gate.counts"]


@pytest.mark.parametrize(
    "change",
    [
        {"batches": [{"source": "a", "added": "today", "fingerprint": "1"}]},
        {"batches": [{"source": "a", "added": "2026-01-01T00:00:00+00:00"}]},
        {"batches": [{"source": "a", "added": "2026-01-01T00:00:00+00:00", "fingerprint": "1"}] * 2},
        {"batches": 3},
        {
            "batches": [
                {"source": "a", "added": "2026-01-01T00:00:00+00:00", "fingerprint": str(i)} for i in (1, 2)
            ]
        },
    ],
)
def test_damaged_batches_are_refused(tmp_path: Path, change: dict[str, Any]) -> None:
    """Times, hashes and numbers of batches that fairfix does not write make no state."""
    path = tmp_path / "gate.counts"
    grown(path, batch(1))
    content = read(path, COUNTS)
    write(path, Archive({**content.manifest, **change}, content.arrays), COUNTS)
    with pytest.raises(ArtifactError):
        grown(path, batch(2))


def test_a_change_of_a_gap_is_dated(tmp_path: Path) -> None:
    """After a gap has changed, the report says since when, between whom, and from what to what; before, nothing."""
    path = tmp_path / "gate.counts"
    result = grown(path, *(batch(i, 2000, 0.0, "abc") for i in range(3)))
    assert "drifts" not in result["state"] or not result["state"]["drifts"]
    result = grown(path, *(batch(i, 2000, 0.4, "abc") for i in range(3, 5)))
    (drift,) = result["state"]["drifts"]
    assert drift["since"] == 4
    assert drift["groups"][0] == "c"
    assert drift["before"]["high"] < drift["after"]["low"]
    assert drift["before"]["low"] <= 0 <= drift["before"]["high"]
    assert drift["after"]["low"] <= 0.4 <= drift["after"]["high"]


def test_states_of_scores_and_of_means_are_followed(tmp_path: Path) -> None:
    """Without decisions the mean score is followed, and what a check names otherwise; the page draws it."""
    path, page = tmp_path / "gate.counts", tmp_path / "page.html"
    frame = batch(1).drop(columns=["decision", "label"])
    about: dict[str, Any] = {"protected": "group", "score": "score", "score_scale": "percent", "state": path}
    made = fairfix.audit(frame.assign(score=100 * frame["score"]), **about, check="mean_score.difference<=90")
    (trace,) = json.loads(made.to_json())["state"]["traces"]
    assert trace["metric"] == "mean_score"
    assert 0 <= trace["batches"][0] <= 1
    frames = [batch(i).assign(decision=1) for i in (1, 2)]
    for i, one in enumerate(frames):
        one.to_parquet(tmp_path / f"{i}.parquet")
    words = shlex.split("--protected group --label label --score score --check square_loss.difference<=0.5")
    for i in (0, 1):
        status = run(
            [
                *("audit", str(tmp_path / f"{i}.parquet"), *words, "--state", str(tmp_path / "loss.counts")),
                *("--out", f"html={page}", "--out", f"json={tmp_path / 'r.json'}", "-q"),
            ]
        )
    assert status in (0, 3)
    state = json.loads((tmp_path / "r.json").read_text())["state"]
    assert [one["metric"] for one in state["traces"]] == ["square_loss"]
    assert "in the total so far" in page.read_text()


def test_a_history_shows_no_hidden_group(tmp_path: Path) -> None:
    """Where small groups are hidden, an audit of a state has no history, which would show them."""
    path = tmp_path / "gate.counts"
    grown(path, batch(1), batch(2, 7, groups="xy"))
    shown, hidden = (
        fairfix.audit(path, always_valid=True, suppress_below=least).to_json() for least in (0, 50)
    )
    assert '"state"' in shown
    assert '"x"' in shown
    assert '"state"' not in hidden
    assert '"x"' not in hidden


def test_a_state_is_a_file_of_counts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It is inspected, by a line that audits it, and added up as such; the sum of two has no batches."""
    paths = [tmp_path / "all of it.counts", tmp_path / "b.counts"]
    for i, path in enumerate(paths):
        grown(path, batch(i))
    assert CountFile.load(paths[0]).facts()["batches"] == 1
    capsys.readouterr()
    assert run(["inspect", str(paths[0])]) == 0
    (line,) = (one for one in capsys.readouterr().out.splitlines() if one.startswith("batches"))
    assert run(shlex.split(line[line.index("fairfix") :])[1:]) in (0, 1, 3)
    both = fairfix.count([str(path) for path in paths])
    assert both.used == 800
    assert not both.batches
    shutil.copy(paths[0], tmp_path / "copy.counts")
    assert zipfile.is_zipfile(tmp_path / "copy.counts")
