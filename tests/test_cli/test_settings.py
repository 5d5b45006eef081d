"""``--set NAME=VALUE``: the settings of a method that have no option of their own."""

from __future__ import annotations

import shlex
from pathlib import Path

import fairfix
import pytest
from fairfix.cli import run
from fairfix.methods import available
from fairfix.models.repaired import Repaired
from fairfix.report.words import SETTINGS, as_options, option_words

from tests.data import people

METHODS = [
    (method, name) for method, kind in available().items() for name in kind.domains() if name in SETTINGS
]


@pytest.fixture
def line(tmp_path: Path) -> list[str]:
    people(400, shares=(0.5, 0.5, 0.0)).to_csv(tmp_path / "people.csv", index=False)
    given = f"repair {tmp_path / 'people.csv'} --protected race --label label --score score".split()
    return [*given, "-q", "--config", "none", "-o", str(tmp_path / "made.fairfix")]


def test_every_setting_belongs_to_a_method() -> None:
    assert {name for _, name in METHODS} == SETTINGS


@pytest.mark.parametrize(("method", "name"), METHODS)
def test_a_setting_is_read_and_checked_by_its_method(
    method: str, name: str, line: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Its default changes nothing; a value that it cannot have is refused, and so is another method's setting."""
    rule = available()[method].domains()[name]
    default = rule.default
    more = ["--noise", str(Path(line[1]).with_name("no.csv"))] if method == "robust" else []

    run([*line, "--method", method, *more, "--set", f"{name}={default}", "--dry-run"])
    assert f'"{name}={default}"' in capsys.readouterr().out
    if not rule.text:
        assert run([*line, "--method", method, *more, "--set", f"{name}=none of these"]) == 2
        assert name in capsys.readouterr().err
    other = next(one for one, kind in available().items() if name not in kind.domains())
    assert run([*line, "--method", other, "--set", f"{name}={default}"]) == 2


def test_a_setting_does_what_the_keyword_of_the_library_does(line: list[str], tmp_path: Path) -> None:
    """Also with several values, of which one is chosen, and in the table of the method in a configuration."""
    assert run([*line, "--method", "ramp", "--set", "rho=mean,0.4", "--set", "shape=centred"]) == 0
    typed = Repaired.load(tmp_path / "made.fairfix").parameters
    call = fairfix.repair(
        line[1],
        method="ramp",
        protected="race",
        label="label",
        score="score",
        rho=["mean", 0.4],
        shape="centred",
    )
    assert typed == call.repaired.parameters

    config = tmp_path / "own.toml"
    config.write_text('[repair.ramp]\nrho = ["mean", 0.4]\nshape = "centred"\n', encoding="utf-8")
    named = line[: line.index("--config")] + line[line.index("--config") + 2 :]
    assert run([*named, "--method", "ramp", "--config", str(config)]) == 0
    assert Repaired.load(tmp_path / "made.fairfix").parameters == typed
    assert run([*named, "--method", "ramp", "--config", str(config), "--set", "shape=one-sided"]) == 0
    assert Repaired.load(tmp_path / "made.fairfix").parameters != typed


@pytest.mark.parametrize(
    "given",
    [
        ["--set", "rho"],
        ["--set", "rho=0.4", "--set", "rho=0.5"],
        ["--set", "gamma=0.1"],
        ["--set", "=1"],
        ["--rho", "0.4"],
    ],
)
def test_what_is_no_setting_is_refused(given: list[str], line: list[str], tmp_path: Path) -> None:
    assert run([*line, "--method", "ramp", *given]) == 2
    assert not (tmp_path / "made.fairfix").exists()


def test_messages_name_a_setting_as_it_is_typed() -> None:
    for name in SETTINGS:
        assert as_options(f"leave out `{name}=a b`") == f"leave out {shlex.join(['--set', f'{name}=a b'])}"
    assert option_words("score_scale", "raw") == ["--score-scale", "raw"]
