"""The limits of methods as a guarantee asks for them: what is taken off a gap is off the gap that the fit is given."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from fairfix.data.data_spec import ColumnRoles, DataSpec
from fairfix.data.table import Groups
from fairfix.methods import available
from fairfix.methods.base import Repairer
from fairfix.methods.guarantee import adapter_of

GROUPS = Groups(("race",), (("g0",), ("g1",), ("g2",)), lambda: np.arange(3))


@pytest.mark.parametrize(
    ("method", "asked", "parameter", "gaps"),
    [
        ("ramp", {"slack": 0.1}, "slack", [0.1]),
        ("ramp", {"constraint": "dp.ratio>=0.8"}, "constraint", [0.2]),
        ("logloss", {"slack": 0.3}, "slack", [0.3]),
        ("robust", {"slack": 0.3}, "slack", [0.3]),
        ("robust", {"constraint": "minimax"}, "slack", None),
        ("sensei", {"solver": "merge"}, "slack", None),
        ("sensei", {"solver": "equal-rates", "slack": 0.2}, "slack", [0.2]),
        ("fair-regression", {"slack": 0.1}, "slack", [0.1]),
        (
            "fair-regression",
            {"constraint": "ks.to_overall, ks.to_overall[race=g1]<=0.05", "slack": 0.3},
            "constraint",
            [0.3, 0.05, 0.3],
        ),
        ("fair-regression", {"constraint": "log_loss.max<=0.7"}, "constraint", [0.7] * 3),
    ],
)
def test_tightened_limits_are_smaller_by_what_is_asked_and_never_below_0(
    method: str, asked: dict[str, Any], parameter: str, gaps: list[float] | None
) -> None:
    adapter = adapter_of(available()[method](**asked))
    given = adapter.gaps(GROUPS)

    assert adapter.parameter == parameter
    assert (given is None) is (gaps is None)
    if given is None or gaps is None:
        return
    np.testing.assert_allclose(given, gaps)
    for by in (np.zeros(given.size), np.linspace(0.01, 0.04, given.size), given, 2 * given):
        less = adapter_of(adapter.tightened(by)).gaps(GROUPS)
        np.testing.assert_allclose(less, np.maximum(given - by, 0.0), atol=1e-12)


@pytest.mark.parametrize(
    ("criterion", "bounded"),
    [
        ("selection_rate.difference.between_groups", True),
        ("true_positive_rate.difference.between_groups", True),
        ("equalized_odds.difference.between_groups", True),
        ("accuracy.difference.between_groups", False),
        ("positive_predictive_value.difference.between_groups", False),
        ("mean_score.difference.between_groups", False),
    ],
)
def test_a_gap_without_a_bound_is_refused(criterion: str, bounded: bool) -> None:
    """Bounds are of means of decisions; a precision is none, and as a selection rate it would be promised wrongly."""
    rule = type("Rule", (Repairer,), {"name": "rule", "criterion": criterion})()
    refusal = adapter_of(rule).refusal(DataSpec(ColumnRoles(("race",)), thresholds=(0.5,)), None)

    assert bool(refusal) is not bounded
