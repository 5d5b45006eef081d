"""``make quick`` runs the tests that a change needs first, and leaves out those that its seconds do not reach."""

from __future__ import annotations

import math
import signal
from types import SimpleNamespace

import pytest

from tests.changed import MOST, chosen
from tests.conftest import pytest_runtest_call


@pytest.mark.parametrize(
    ("file", "test", "most"),
    [
        ("fairfix/auditing/metrics.py", "tests/test_auditing/test_metrics.py", 1),
        ("fairfix/solvers/ramp.py", "tests/test_solvers/test_ramp.py", 1),
        ("fairfix/methods/ramp/__init__.py", "tests/test_methods/test_ramp.py", 4),
        ("fairfix/methods/made_up.py", "tests/test_methods/test_contract.py", 1),
        ("fairfix/report/made_up_.py", "tests/test_report/test_report.py", 5),
        ("fairfix/data/sources/made_up.py", "tests/test_data/test_formats.py", 2),
        ("tests/test_docs.py", "tests/test_docs.py", 1),
    ],
)
def test_a_change_runs_the_tests_of_its_room_first(file: str, test: str, most: int) -> None:
    """A module that no test names is tested by those that import its package."""
    architecture, *tests = chosen({file})

    assert architecture == "tests/test_architecture.py"
    assert test in tests[:most]
    assert len(tests) <= MOST


@pytest.mark.parametrize(
    ("seconds", "outcome"),
    [(0.0, pytest.skip.Exception), (math.inf, pytest.PytestUnraisableExceptionWarning)],
)
def test_an_alarm_that_a_callback_drops_leaves_the_test_out(
    monkeypatch: pytest.MonkeyPatch, seconds: float, outcome: type[BaseException]
) -> None:
    """Before the seconds are over, what a callback dropped is an error."""
    monkeypatch.setattr(signal, "setitimer", lambda *_: None)
    item = SimpleNamespace(config=SimpleNamespace(getoption=lambda name: seconds))
    call = pytest_runtest_call(item)  # type: ignore[arg-type]  # it reads the option alone
    next(call)

    with pytest.raises(outcome):
        call.throw(pytest.PytestUnraisableExceptionWarning("dropped"))
