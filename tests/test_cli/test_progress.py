"""What is shown while work goes on: on a terminal, once it takes long, and nowhere else."""

from __future__ import annotations

import sys
import time
from typing import Any

import pytest
from fairfix.cli import progress
from fairfix.cli.progress import working


def lasting(monkeypatch: pytest.MonkeyPatch, given: dict[str, Any], *, terminal: bool, wait: float) -> None:
    """Do three steps of work that lasts."""
    monkeypatch.setattr(progress, "PATIENCE", 0.05)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    with working(given, "comparing", 3) as (done, _):
        done(2)
        time.sleep(wait)
        done(1)


def test_long_work_is_shown_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The steps that are done are told on stderr, and nothing on stdout."""
    lasting(monkeypatch, {}, terminal=True, wait=0.4)
    said = capsys.readouterr()

    assert "comparing" in said.err
    assert "2 of 3" in said.err
    assert said.out == ""


@pytest.mark.parametrize(
    ("given", "terminal", "wait"), [({}, False, 0.2), ({"quiet": True}, True, 0.2), ({}, True, 0.0)]
)
def test_nothing_is_shown_elsewhere(
    given: dict[str, Any],
    terminal: bool,
    wait: float,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A pipe, whoever asked for quiet, and work that is done at once see nothing."""
    lasting(monkeypatch, given, terminal=terminal, wait=wait)

    assert "comparing" not in capsys.readouterr().err
