"""``--noise SPEC`` and ``--assume`` mean the same in audit, repair and compare, in a configuration and the library."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import fairfix
import numpy as np
import pandas as pd
import pytest
from fairfix.cli import run
from fairfix.data.noise_spec import NEEDS

SPECS = {
    "table": "t.csv",
    "by label": "y.csv",
    "people": "p.csv(true=own,label=label)",
    "kept": "t.csv(keep=true-given-noisy)",
    "radii": "radius:a=0.2,b=0.2",
    "membership": "membership:a=p_a,b=p_b",
}
LEVELS = {
    **{(kind, "eps=0.9"): "N3" for kind in ("table", "by label", "people")},
    **{(kind, "class-conditional"): "N4" for kind in ("table", "by label", "people")},
    **{(kind, "radii"): "N0" for kind in ("table", "by label", "people", "kept", "radii")},
    **{(kind, "none"): "N2" if kind in ("by label", "people") else "N1" for kind in SPECS},
    ("radii", "none"): "N0",
    ("kept", "eps=0.9"): "N3",
    ("kept", "class-conditional"): "N4",
    ("membership", "independent"): "N4",
}
"""Kind of noise and assumption -> what a report rests on; all others are refused."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with people of two groups, and what is known of how they are recorded."""
    rng, place = np.random.default_rng(0), tmp_path_factory.mktemp("noise")
    own = rng.integers(0, 2, 600)
    seen = np.where(rng.random(600) < 0.1, 1 - own, own)
    score = np.clip(0.5 + 0.1 * (own - 0.5) + rng.normal(0, 0.2, 600), 0.01, 0.99).round(3)
    chance = np.where(seen == 0, 0.9, 0.1)
    people = pd.DataFrame(
        {
            "own": np.array(["a", "b"])[own],
            "seen": np.array(["a", "b"])[seen],
            "score": score,
            "label": (rng.random(600) < score).astype(int),
            "p_a": chance,
            "p_b": (1 - chance).round(1),
            "id": np.arange(600),
        }
    )
    people.to_csv(place / "d.csv", index=False)
    people[["own", "seen", "label"]].to_csv(place / "p.csv", index=False)
    for name, keys in (("t.csv", ["own", "seen"]), ("y.csv", ["own", "seen", "label"])):
        table = people.groupby(keys).size().reset_index(name="count")
        table.rename(columns={"own": "true", "seen": "noisy"}).to_csv(place / name, index=False)
    return place


def lines(kind: str, assume: str, command: str) -> list[str]:
    """Return the arguments of a command."""
    common = ["--noise", SPECS[kind], *(["--assume", assume] if assume else []), "--protected", "seen"]
    own = {
        "audit": [],
        "repair": ["--method", "robust", "--slack", "0.3", "--set", "bins=5", "--id", "id"],
        "compare": ["--methods", "robust", "--slacks", "0.3"],
    }[command]
    return [command, "d.csv", *common, *own, "--format", "json", "-q", "--config", "none"]


@pytest.mark.slow
@pytest.mark.parametrize("assume", ["", "none", "eps=0.9", "class-conditional", "independent", "radii"])
@pytest.mark.parametrize("kind", SPECS)
def test_every_command_takes_the_same_assumptions(
    kind: str, assume: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What one refuses all refuse, with a status of 2; what they accept they rest on, and none is the default.

    A comparison, which fits the most, tries one that each kind allows.
    """
    monkeypatch.chdir(folder)
    level = LEVELS.get((kind, assume or "none"))
    last = [one for of, one in LEVELS if of == kind][-1]
    for command in ("audit", "repair", *(["compare"] if not level or assume == last else [])):
        status = run(lines(kind, assume, command))
        told = capsys.readouterr()
        assert status == (0 if level else 2), (command, told.err)
        if not level:
            assert f"--assume {assume} needs" in told.err
            continue
        result = json.loads(told.out)
        if command == "audit":
            assert result["noise"]["rests_on"] == level
        elif command == "repair":
            assert any(one["text"].startswith(f"relies on {level}:") for one in result["messages"])
            assert result["parameters"]["assume"] == assume
        else:
            assert not any("failure" in point for point in result["points"])
            commands_shown = [point["command"] for point in result["points"] if "command" in point]
            assert all(("--assume" in one) or not assume for one in commands_shown)


@pytest.mark.slow
def test_a_configuration_and_the_library_say_the_same(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Files of a configuration lie beside it, whatever is said of them; a mapping names the parts in Python."""
    monkeypatch.chdir(folder)
    line = ["audit", "d.csv", "--protected", "seen", "--format", "json", "-q"]
    more = ["--noise", "t.csv(keep=noisy-given-true)", "--noise", "radius:a=0.2,b=0.1", "--assume", "eps=0.1"]
    assert run([*line, *more, "--config", "none"]) == 0
    by_line = json.loads(capsys.readouterr().out)["noise"]

    inside = folder / "inside"
    inside.mkdir(exist_ok=True)
    (inside / "t.csv").write_bytes((folder / "t.csv").read_bytes())
    (inside / "fairfix.toml").write_text(
        'assume = "eps=0.1"\nnoise = ["t.csv(keep=noisy-given-true)", "radius:a=0.2,b=0.1"]\n'
    )
    assert run([*line, "--config", "inside/fairfix.toml"]) == 0
    assert json.loads(capsys.readouterr().out)["noise"] == by_line

    parts: list[Any] = [{"file": "t.csv", "keep": "noisy-given-true"}, {"radius": {"a": 0.2, "b": 0.1}}]
    for noise in (parts, ["t.csv(keep=noisy-given-true)", "radius:a=0.2,b=0.1"]):
        by_call = fairfix.audit("d.csv", protected="seen", noise=noise, assume="eps=0.1")
        assert by_call.to_dict()["noise"] == by_line


def test_a_configuration_that_was_found_names_files_beneath_it_alone(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As for any other file, whatever stands behind its name."""
    inside = folder / "found"
    inside.mkdir()
    (inside / "fairfix.toml").write_text('noise = "../t.csv(keep=noisy-given-true)"\n')
    monkeypatch.chdir(inside)
    assert run(["audit", "../d.csv", "--protected", "seen"]) == 2
    assert "so it cannot set --noise" in capsys.readouterr().err


def test_no_report_is_written_over_a_noise_file(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The file is read by the same run."""
    monkeypatch.chdir(folder)
    line = shlex.split("audit d.csv --protected seen --noise t.csv(keep=noisy-given-true) --config none")
    assert run([*line, "--out", "json=t.csv"]) == 2
    assert "also used by --noise" in capsys.readouterr().err


def test_the_table_of_assumptions_is_documented() -> None:
    """Each word stands in the table of the page."""
    page = (Path(__file__).parents[2] / "docs" / "noise.md").read_text()
    table = page.partition("### Which assumption goes with which description")[2].partition("###")[0]
    for word in NEEDS:
        assert f"`{word}" in table
