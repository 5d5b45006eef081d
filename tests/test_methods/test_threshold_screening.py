"""Many points, of which only those near the thresholds are looked at: the same rule as from all of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from fairfix.data.reading import Columns, Reading
from fairfix.data.scan import read_table
from fairfix.methods.problem import RepairProblem
from fairfix.methods.ramp import Ramp, strata, threshold_screening

from tests.data import people

ASKED: dict[str, dict[str, Any]] = {
    "parity": {},
    "slack": {"slack": 0.05},
    "ratio": {"constraint": "dp.ratio>=0.8"},
    "covariance": {"constraint": "covariance", "slack": 0.02},
    "each": {"constraint": "dp[each]<=0.03"},
    "a given rate": {"rho": 0.3},
    "a wide slack": {"slack": 0.9},
}


@pytest.fixture
def tried(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Make few points many, and return a list of whether each stratum was solved from those near its thresholds."""
    monkeypatch.setattr(threshold_screening, "SAMPLE", 256)
    monkeypatch.setattr(threshold_screening, "MANY", 1000)
    monkeypatch.setattr(threshold_screening, "ROOM", 0.15)
    found: list[bool] = []

    def noted(*given: Any) -> Any:
        fit = threshold_screening.near_thresholds(*given)
        found.append(fit is not None)
        return fit

    monkeypatch.setattr(strata, "near_thresholds", noted)
    return found


def problem(frame: pd.DataFrame, *protected: str, **columns: Any) -> RepairProblem:
    reading = Reading(
        Columns(protected or ("race",), label="label", score="score", **columns)
    ).with_threshold()
    return RepairProblem(read_table(frame, reading))


def fits(frame: pd.DataFrame, asked: dict[str, Any], *protected: str, **columns: Any) -> Any:
    """Return the rows' table, and the rules from those near the thresholds and from all points."""
    one = problem(frame, *protected, **columns)
    ramp = Ramp(gamma=0.0, **asked)
    near = ramp.fit(one, rng=np.random.default_rng(0))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(strata, "near_thresholds", lambda *_: None)
        whole = ramp.fit(one, rng=np.random.default_rng(0))
    return one.table, near, whole


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("asked", ASKED)
def test_it_is_the_rule_from_all_points(asked: str, tied: bool, weighted: bool, tried: list[bool]) -> None:
    for seed in range(2):
        frame = people(4000, seed, (0.5, 0.4, 0.1))
        if tied:
            frame["score"] = frame["score"].round(2)
        protected = ("race", "sex") if asked == "each" else ("race",)
        columns = {"weight": "weight"} if weighted else {}
        table, near, whole = fits(frame, ASKED[asked], *protected, **columns)
        rates = [one.predict(table) for one in (near, whole)]
        differ = np.abs(rates[0] - rates[1]) > 1e-9
        assert differ.mean() <= 0.005  # one tie of a cell may be split differently by rounding
        worth = [float(np.average((2 * table.probability - 1) * q, weights=table.rows.weight)) for q in rates]
        assert worth[0] == pytest.approx(worth[1], abs=1e-9)
        assert near.trace.objective == pytest.approx(whole.trace.objective, abs=1e-12)
        assert abs(near.trace.gap) <= max(1e-12, 2 * abs(whole.trace.gap))
    assert any(tried)


def test_strata_are_screened_one_by_one(tried: list[bool]) -> None:
    table, near, whole = fits(people(8000, 3), {"slack": 0.02}, strata=("town",))
    assert tried == [True, True]
    assert near.trace.objective == pytest.approx(whole.trace.objective, abs=1e-12)
    assert np.abs(near.predict(table) - whole.predict(table)).mean() < 1e-3


def test_a_misleading_sample_changes_nothing(tried: list[bool]) -> None:
    """Rows in an order that every stride of the sample falls into: all points are solved, to the same end."""
    frame = people(4000, 1, (0.55, 0.45, 0.0))
    for race in "ab":
        own = np.flatnonzero(frame["race"] == race)
        seen = own[:: own.size // threshold_screening.SAMPLE]
        frame.loc[seen, "score"] = np.linspace(0.9, 1.0, seen.size)
    table, near, whole = fits(frame, {"rho": 0.3})
    assert tried == [False]
    np.testing.assert_array_equal(near.predict(table), whole.predict(table))
