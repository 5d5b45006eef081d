"""Differences row by row: their mean is what audits of both models differ by, and what both share cancels."""

from __future__ import annotations

import math

import numpy as np
import pytest
from fairfix.auditing.audit import audit
from fairfix.auditing.row_differences import ANY, SHARE, between_limits, change_of, mean_change
from fairfix.data.data_spec import ColumnRoles, DataSpec
from fairfix.data.scan import read_table
from fairfix.data.table import Table
from fairfix.schema.common import estimate

from tests.data import scored


def both(weight: str | None) -> tuple[Table, Table]:
    """Return rows with their scores, and with scores that are moved for some."""
    columns = ColumnRoles(("race",), label="label", score="score", weight=weight)
    old = read_table(scored(rows=400), DataSpec(columns, thresholds=(0.5,)), columns=())
    assert old.rows.score is not None
    return old, old.with_score(np.where(np.arange(400) % 3, old.rows.score, 0.2 + 0.6 * old.rows.score))


@pytest.mark.parametrize("weight", [None, "weight"])
@pytest.mark.parametrize("name", ["selection_rate", "accuracy", "square_loss", "log_loss"])
def test_the_mean_difference_is_that_of_the_audits(name: str, weight: str | None) -> None:
    old, new = both(weight)
    was, now = (audit(one, one.data_spec).overall.metrics[name] for one in (old, new))
    support = SHARE if name in ("selection_rate", "accuracy") else ANY
    change = change_of(name, old, new, 0.95, support)

    assert change is not None
    assert change.value == pytest.approx(now.value - was.value, abs=1e-12)
    assert change.low <= change.value <= change.high
    apart = math.hypot(now.high - now.low, was.high - was.low)
    assert change.high - change.low < apart  # what both have in common cancels


def test_what_is_unknown_or_infinite_has_no_difference() -> None:
    old, new = both(None)
    zero = np.zeros(len(old))

    assert mean_change(zero, np.append(zero[1:], math.inf), old, 0.95, ANY) is None
    raw = DataSpec(ColumnRoles(("race",), score="score"), score_scale="raw")
    unlabelled = read_table(scored(rows=400), raw, columns=())
    assert all(change_of(name, unlabelled, new, 0.95, ANY) is None for name in ("accuracy", "square_loss"))
    assert change_of("selection_rate", unlabelled, new, 0.95, SHARE) is None


def test_between_limits_holds_all_differences() -> None:
    change = between_limits(estimate(0.5, 0.4, 0.7), estimate(0.6, 0.55, 0.8))

    assert (change.low, change.high) == pytest.approx((-0.15, 0.4))
    assert change.value == pytest.approx(0.1)
