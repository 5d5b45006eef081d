"""Every option is of a type, wherever it is said: what is no number is refused, and nothing is taken for another.

The options are those of the program's own registry, so that a new one is held to this on the day it exists.
"""

from __future__ import annotations

import datetime as dt
import math
from importlib import import_module
from pathlib import Path
from typing import Any

import click
import fairfix
import numpy as np
import pyarrow.parquet as pq
import pytest
from fairfix.cli import run
from fairfix.cli.options import NumberOption, known_options
from fairfix.data.domain import parameters_of
from fairfix.methods import available
from fairfix.report.words import SETTINGS
from fairfix.tasks.repair import hyper_parameters
from fairfix.tasks.request import AuditRequest, CompareRequest, ExploreRequest, PredictRequest, RepairRequest

from tests.data import scored

REQUESTS = {
    "audit": AuditRequest,
    "repair": RepairRequest,
    "compare": CompareRequest,
    "predict": PredictRequest,
    "explore": ExploreRequest,
}
LINES = {
    "audit": ("d.parquet", "--protected", "race"),
    "repair": ("d.parquet", "--protected", "race", "--method", "ramp", "-o", "new.fairfix"),
    "compare": ("d.parquet", "--protected", "race", "--methods", "ramp"),
    "predict": ("r.fairfix", "d.parquet", "-o", "new.parquet"),
    "explore": ("d.parquet", "--protected", "race", "-o", "new.html"),
    "count": ("d.parquet", "--protected", "race", "-o", "new.counts"),
}
CALLS: dict[str, Any] = {
    "audit": fairfix.audit,
    "repair": fairfix.repair,
    "compare": fairfix.compare,
    "explore": fairfix.explore,
}
NOT_NUMBERS = ("nan", "true", "2020-01-01", "2020-01-01T10:00:00Z", "10:00:00", '"x"', '""', "-1e400")
INFINITE = ("inf", "-inf", "1e400")
ODD = (
    *NOT_NUMBERS,
    *INFINITE,
    "false",
    "1.5",
    "-1",
    "9223372036854775808",
    "[]",
    "[[1]]",
    "[inf]",
    "{a = 1}",
)
"""Values of TOML."""


def numbers(name: str) -> dict[str, Any]:
    """Parameter -> its domain, of those of a command that are one number."""
    domains = parameters_of(REQUESTS[name])
    return {one: domain for one, domain in domains.items() if domain.kind in (int, float) and not domain.many}


NUMBERS = [(name, one) for name in REQUESTS for one in numbers(name)]


def refused(name: str, key: str) -> tuple[str, ...]:
    """What TOML can say that is none of the numbers of a parameter."""
    return (*NOT_NUMBERS, *INFINITE, *(("1.5", "1.0") if numbers(name)[key].kind is int else ()))


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with rows and a repair of them."""
    place = tmp_path_factory.mktemp("typed")
    pq.write_table(scored(rows=80, groups=2), place / "d.parquet")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        line = ("--protected", "race", "--config", "none", "-q", "--method", "ramp", "-o", "r.fairfix")
        assert run(["repair", "d.parquet", *line]) in (0, 1, 3)
    return place


@pytest.fixture
def here(files: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same folder, as the current one, without a configuration."""
    monkeypatch.chdir(files)
    (files / "fairfix.toml").unlink(missing_ok=True)
    return files


def status(name: str, *more: str) -> int:
    """Run a command."""
    return run([name, *LINES[name], *more, "-q"])


def configured(name: str, key: str, text: str, *more: str) -> int:
    """Run a command with a configuration that says one more thing."""
    Path("fairfix.toml").write_text(f"[{name}]\n{key} = {text}\n", encoding="utf-8")
    return status(name, *more)


@pytest.mark.parametrize(("name", "key"), NUMBERS)
def test_what_is_no_number_is_refused_wherever_it_is_said(
    name: str, key: str, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a configuration, the environment and the line, which say it in the same words."""
    flag, variable = "--" + key.replace("_", "-"), f"FAIRFIX_{key.upper()}"
    for text in refused(name, key):
        assert configured(name, key, text) == 2, text
        Path("fairfix.toml").unlink()
        plain = text.strip('"')
        assert status(name, f"{flag}={plain}") == 2, plain
        if plain:  # one that is empty says nothing
            monkeypatch.setenv(variable, plain)
            assert status(name) == 2, plain
            monkeypatch.delenv(variable)


PYTHON = (
    *(math.nan, math.inf, -math.inf, True, np.True_, "x", "", b"1", [], [1], object, 1j, 10**400, "1e400"),
    *(dt.date(2020, 1, 1), np.datetime64("2020-01-01"), np.float64("nan")),
)


@pytest.mark.parametrize(("name", "key"), [one for one in NUMBERS if one[0] in CALLS])
def test_python_is_asked_the_same(name: str, key: str, here: Path) -> None:
    more = {"method": "ramp"} if name == "repair" else {}
    whole = (1.5, 1.0, "1.5") if numbers(name)[key].kind is int else ()
    for value in (*PYTHON, *whole):
        if isinstance(value, int) and numbers(name)[key].kind is int and value is not True:
            continue
        with pytest.raises(fairfix.UsageError):
            CALLS[name]("d.parquet", protected="race", **{key: value}, **more)


@pytest.mark.parametrize("name", CALLS)
def test_a_flag_is_true_or_false(name: str, here: Path) -> None:
    """A text that says no is not taken for yes."""
    flags = [one for one, domain in parameters_of(REQUESTS[name]).items() if domain.kind is bool]
    more = {"method": "ramp"} if name == "repair" else {}
    for flag in flags:
        for value in ("no", "false", 0, 1, 1.5, math.nan, [], dt.date(2020, 1, 1)):
            with pytest.raises(fairfix.UsageError):
                CALLS[name]("d.parquet", protected="race", **{flag: value}, **more)
        for text in ("1", "1.5", "nan", "inf", "2020-01-01", "[]", "{}"):
            assert configured(name, flag, text) == 2, (flag, text)


METHODS = [(method, name) for method, kind in available().items() for name in kind.domains()]


@pytest.mark.slow
@pytest.mark.parametrize(("method", "key"), METHODS)
def test_parameters_of_methods_are_asked_too(method: str, key: str, here: Path) -> None:
    """Also in the table of the method; infinity is among the numbers of some, so that only no bug may come of it."""
    rule = available()[method].domains()[key]
    line = ["repair", "d.parquet", "--protected", "race", "--method", method, "-q", "-o", "new.fairfix"]
    for text in ("nan", "true", "2020-01-01", '"\\u00e9"', "[true]", "[nan]", "[[1]]", "{a = 1}"):
        for table in (() if key in SETTINGS else ("repair",)) + (f"repair.{method}",):
            Path("fairfix.toml").write_text(f"[{table}]\n{key} = {text}\n", encoding="utf-8")
            came = run(line)
            assert came == 2 if not rule.text else came in (0, 1, 2, 3), (table, text)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "key"),
    [(name, key) for name, keys in known_options(methods=True).items() for key in sorted(keys)],
)
def test_no_value_of_a_configuration_is_a_bug(name: str, key: str, here: Path) -> None:
    """Of all keys of all commands; a comparison is of few candidates, and what the line says is tried less often."""
    if name == "repair" and key in hyper_parameters() and key != "slack":
        return  # above
    few = ("--slacks", "0") if name == "compare" and key != "slacks" else ()
    for text in ODD[:: 6 if "--" + key in LINES.get(name, ()) else 1]:
        assert configured(name, key, text, *few) in (0, 1, 2, 3), text


WAIVER = {"check": '"ks<=0.1"', "reason": '"r"', "expires": "2999-01-01", "limit": "0.5"}


@pytest.mark.parametrize("key", WAIVER)
def test_no_value_of_a_waiver_is_a_bug(key: str, here: Path) -> None:
    for text in ODD:
        lines = "\n".join(f"{one} = {text if one == key else other}" for one, other in WAIVER.items())
        Path("fairfix.toml").write_text(f"check = 'ks<=0.1'\n[[waivers]]\n{lines}\n", encoding="utf-8")
        came = status("audit")
        assert came == 2 if key == "limit" and text in (*NOT_NUMBERS, *INFINITE) else came in (0, 1, 2, 3), (
            text
        )


def test_every_option_that_is_a_number_is_in_a_request() -> None:
    """So none is read past the one check: what the commands have beside their requests are no numbers."""
    for name in ("audit", "repair", "compare", "predict", "export", "report", "init", "count", "inspect"):
        command = import_module(f"fairfix.cli.{name}").command
        of_click = (click.types.IntParamType, click.types.FloatParamType)
        assert not [
            one.name
            for one in command.params
            if isinstance(one.type, of_click) and not isinstance(one.type, NumberOption)
        ]


def test_a_file_that_is_removed_in_the_middle_is_named(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After it is read and before its fingerprint is taken."""
    from fairfix.tasks import run_metadata

    Path("gone.parquet").write_bytes(Path("d.parquet").read_bytes())
    Path("fairfix.toml").write_text('[report]\nmodel = "m"\n', encoding="utf-8")
    hashed = run_metadata.file_hash
    monkeypatch.setattr(run_metadata, "file_hash", lambda path: (Path(path).unlink(), hashed(path))[1])
    assert run(["audit", "gone.parquet", "--protected", "race", "-q"]) == 2
