"""The record that is kept with a result, and the model card."""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import shutil
from pathlib import Path
from typing import Any

import fairfix
import jsonschema
import pytest
from fairfix.cli import run
from fairfix.errors import UsageError
from fairfix.schema import json_schema

from tests.conftest import Call, make_frame
from tests.results import rendered

LOANS = Path(__file__).parents[2] / "sample_data" / "loans.csv"
RECORD = {"model": "loans *2*", "owner": "Credit risk", "purpose": "Who gets a loan", "date": "2024"}
RUNS = {
    "audit": ("audit", "--check", "dp.difference<=0.1"),
    "repair": ("repair", "--method", "ramp"),
    "compare": ("compare", "--methods", "ramp", "--slacks", "0.05"),
    "models": ("compare", "--baseline", "debt_ratio"),
}


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """A result of every kind, with a record from the configuration."""
    folder = tmp_path_factory.mktemp("kept")
    shutil.copy(LOANS, folder / "loans.csv")
    lines = [f"{name} = {json.dumps(text)}" for name, text in RECORD.items()]
    (folder / "fairfix.toml").write_text("[report]\n" + "\n".join(lines) + "\n")
    for kind, (command, *options) in RUNS.items():
        more = ["-o", str(folder / "r.fairfix")] if kind == "repair" else []
        out = ["--out", f"json={folder / kind}.json", "--quiet", "--config", str(folder / "fairfix.toml")]
        assert run([command, str(folder / "loans.csv"), "--protected", "race", *options, *more, *out]) in (
            0,
            1,
            3,
        )
    return {kind: json.loads((folder / f"{kind}.json").read_text()) for kind in RUNS}


@pytest.mark.parametrize("kind", RUNS)
def test_a_record_is_kept_with_every_result(kind: str, results: dict[str, dict[str, Any]]) -> None:
    """What the configuration states, the command, the file's hash and the versions; valid by the schema, and shown."""
    record = results[kind]["record"]
    schema = json_schema(kind)

    jsonschema.validate(results[kind], schema, jsonschema.Draft202012Validator)
    assert {name: record[name] for name in RECORD} == RECORD
    assert record["command"].startswith(f"fairfix {RUNS[kind][0]} ")
    assert record["data_sha256"] == "sha256:" + hashlib.sha256(LOANS.read_bytes()).hexdigest()
    assert record["versions"]["fairfix"] == fairfix.__version__
    for name in ("text", "html", "markdown"):
        assert "Credit risk" in rendered(name, results[kind])


@pytest.mark.parametrize("kind", RUNS)
def test_a_card_says_whose_model_and_how_groups_fare(kind: str, results: dict[str, dict[str, Any]]) -> None:
    """Names are escaped; what nobody stated is said to be not stated; every group stands in the card of a model."""
    card = rendered("card", results[kind])
    bare = rendered("card", {k: v for k, v in results[kind].items() if k != "record"})

    assert card.startswith("# Model card: loans \\*2\\*\n")
    assert "owner: Credit risk" in card
    assert "It does not show whether the model complies with any law" in card
    assert "owner: not stated" in bare
    assert "date of the data: not stated" in bare
    if kind in ("audit", "repair"):
        assert all(f"| {group} |" in card for group in ("Asian", "Black", "Hispanic", "Native", "White"))
    if kind == "repair":
        assert "needed for predictions: race, score" in card


def test_without_a_record_nothing_of_the_machine_is_in_a_result() -> None:
    """The same question has the same answer on every machine; an entry that nobody knows is an error."""
    assert "record" not in fairfix.audit(str(LOANS), protected="race").to_dict()
    assert (
        fairfix.audit(str(LOANS), protected="race", record=RECORD).to_dict()["record"]["owner"]
        == "Credit risk"
    )
    with pytest.raises(UsageError, match="boss"):
        fairfix.audit(str(LOANS), protected="race", record={"boss": "me"})


RECORDED: dict[str, tuple[str, ...]] = {
    "audit": ("audit", "d.csv"),
    "audit of classes": tuple(shlex.split("audit d.csv --task multiclass --label kind --prediction guess")),
    "repair": ("repair", "d.csv", "--method", "ramp", "-o", "r.fairfix"),
    "compare": ("compare", "d.csv", "--methods", "ramp", "--slacks", "0.1"),
    "two models": ("compare", "d.csv", "--score", "score", "--baseline", "other"),
}


@pytest.mark.usefixtures("away")
@pytest.mark.parametrize("name", RECORDED)
def test_a_file_that_is_written_again_before_it_is_hashed_is_noticed(
    name: str, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run ends with 2 and writes nothing: the hash would be of rows that nobody has counted."""
    frame = make_frame(200)[["race", "label", "score"]]
    frame["other"], frame["kind"] = 1 - frame["score"], ["a", "b", "c", "d"] * 50
    frame["guess"] = frame["kind"]
    frame.to_csv("d.csv", index=False)
    Path("fairfix.toml").write_text('[report]\nmodel = "m"\n')
    line = (*RECORDED[name], "--protected", "race", "--out", "json=r.json")
    status, _, err = call(*line)
    assert status in (0, 1, 3), err
    assert "data_sha256" in json.loads(Path("r.json").read_text())["record"]

    def written_again(path: Any) -> str:
        frame.to_csv(path, index=False)
        os.utime(path, ns=(9, 9))
        return "sha256:" + "0" * 64

    for file in ("r.json", "r.fairfix"):
        Path(file).unlink(missing_ok=True)
    monkeypatch.setattr("fairfix.tasks.run_metadata.file_hash", written_again)
    status, _, err = call(*line)
    assert status == 2
    assert "changed while it was read" in err
    assert json.loads(Path("r.json").read_text())["schema"] == "fairfix.unrun/1"
    assert not Path("r.fairfix").exists()
