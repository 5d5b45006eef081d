"""Gates on data whose truth is known: fair models are rarely failed, unfair ones are."""

from __future__ import annotations

from types import ModuleType

import pytest

from tests.scripts import script

SETS = 100


@pytest.fixture(scope="module")
def bench() -> ModuleType:
    """The benchmark that measures this at length."""
    return script("benchmarks/gates.py")


@pytest.mark.slow
def test_false_alarms_at_parity(bench: ModuleType) -> None:
    """A 95 % gate fails at most one fair model in twenty; a gate on the point fails most of them."""
    found = bench.alone(SETS, ("dp.difference<=0", "dp.ratio>=0.8"))

    assert found["dp.difference<=0", "interval"]["fail"] <= 0.05 * SETS
    assert found["dp.ratio>=0.8", "interval"]["fail"] == 0
    assert found["dp.difference<=0", "point"]["fail"] > 0.95 * SETS
    assert found["dp.ratio>=0.8", "point"]["fail"] > 0.3 * SETS


@pytest.mark.slow
def test_false_alarms_against_a_baseline(bench: ModuleType) -> None:
    """The same for a change, at parity and with a gap that has not changed."""
    parity = bench.against(SETS // 2, ("dp.difference.change<=0", "change<=0"))
    gap = bench.against(SETS // 2, ("dp.difference.change<=0",), 0.2, 0.2, 10, low=0.3)

    assert parity["dp.difference.change<=0", "interval"]["fail"] <= 0.05 * SETS / 2
    assert parity["change<=0", "interval"]["fail"] <= 0.05 * SETS / 2
    assert gap["dp.difference.change<=0", "interval"]["fail"] <= 0.05 * SETS / 2
    assert parity["change<=0", "point"]["fail"] > 0.5 * SETS / 2


def test_true_alarms(bench: ModuleType) -> None:
    """A gap of 0.3 fails limits below it, and a model that became worse by 0.3 fails against its baseline."""
    gap = bench.alone(5, ("dp.difference<=0.1",), 0.3, **bench.LARGE)
    worse = bench.against(5, ("dp.difference.change<=0.02", "change<=0.02"), 0.3, **bench.LARGE)

    assert gap["dp.difference<=0.1", "interval"]["fail"] == 5
    assert worse["dp.difference.change<=0.02", "interval"]["fail"] == 5
    assert worse["change<=0.02", "interval"]["fail"] == 5
