"""Fairness as an assertion: what fails, skips and passes, and the words with which it does."""

from __future__ import annotations

from unittest import SkipTest

import pandas as pd
import pytest
from fairfix.errors import DataError, UsageError
from fairfix.testing import assert_fair


def decided(rows: int) -> pd.DataFrame:
    """Return decisions with selection rates of .5 and .3."""
    chosen = (
        [1] * (rows // 2) + [0] * (rows - rows // 2) + [1] * (3 * rows // 10) + [0] * (rows - 3 * rows // 10)
    )
    return pd.DataFrame({"race": ["a"] * rows + ["b"] * rows, "label": [0, 1] * rows, "prediction": chosen})


GATE = {"protected": "race", "prediction": "prediction", "check": "dp.difference<=0.1"}


@pytest.mark.parametrize("undecided", ["fail", "skip", "pass"])
def test_a_failed_check_is_the_message(undecided: str) -> None:
    """The answer in words, whatever undecided ones do."""
    with pytest.raises(AssertionError) as raised:
        assert_fair(decided(2000), **GATE, undecided=undecided)

    first, second = str(raised.value).splitlines()
    assert first == "checks of data: 1 failed"
    assert second.startswith("FAIL: selection_rate.difference.between_groups[race] is 0.2000 [0.1")
    assert "between a and b; the whole interval lies beyond the limit" in second


@pytest.mark.parametrize(
    ("undecided", "raised"), [("fail", AssertionError), ("skip", SkipTest), ("pass", None)]
)
def test_an_undecided_check_does_as_asked(undecided: str, raised: type[BaseException] | None) -> None:
    few = decided(60)
    if raised is None:
        assert assert_fair(few, **GATE, undecided=undecided).verdict == "undecided"
        return
    with pytest.raises(raised, match="UNDECIDED: selection_rate") as said:
        assert_fair(few, **GATE, undecided=undecided)
    assert type(said.value) is raised


def test_a_fair_model_passes_and_gives_the_audit() -> None:
    gate = GATE | {"check": "dp.difference<=0.5"}
    assert assert_fair(decided(2000), **gate).verdict == "pass"


def test_what_asserts_nothing_is_an_error() -> None:
    """Neither a failure, which would blame the model, nor a pass."""
    free = {key: value for key, value in GATE.items() if key != "check"}
    with pytest.raises(UsageError, match="give a `check`"):
        assert_fair(decided(100), **free)
    with pytest.raises(UsageError, match="`undecided=maybe`"):
        assert_fair(decided(100), **GATE, undecided="maybe")
    with pytest.raises(DataError):
        assert_fair("no.parquet", **GATE)
