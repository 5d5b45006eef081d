"""What a solver found, and what is proven of it, on the way from the fit to everybody who may read it."""

from __future__ import annotations

import json
import math

import pytest
from fairfix.predictors import Certificate, FitTrace, Quantity
from fairfix.report.layout import solution_facts


def test_a_trace_comes_back_from_its_json() -> None:
    """All that is saved is read again; what is not finite is null on the way."""
    proven = Certificate("mean square loss", 0.5, 0.4, "linear models within the bounds")
    price = Quantity("multiplier", 0.25, "what a unit more of the bound would save", "a")
    trace = FitTrace(False, 12, 0.5, 0.1, ("a note",), certificates=(proven,), quantities=(price,))
    state = json.loads(json.dumps(trace.state(), allow_nan=False))
    again = FitTrace.from_state(state)

    assert again.certificates == (proven,)
    assert again.quantities == (price,)
    assert (again.converged, again.iterations, again.objective, again.gap) == (False, 12, 0.5, 0.1)
    assert FitTrace(True, 0, math.nan).state()["objective"] is None


@pytest.mark.parametrize(
    ("value", "says"), [(0.5, "at most 0.1 above the least of"), (0.3, "not above the least of")]
)
def test_a_certificate_says_what_it_bounds(value: float, says: str) -> None:
    """The sentence names objective, class and rows; a rule outside the class may be better than all inside."""
    proven = Certificate("mean square loss", value, 0.4, "linear models")

    assert proven.gap == pytest.approx(max(value - 0.4, 0.0))
    assert proven.sentence.startswith(
        f"the mean square loss, {value}, is {says} linear models, on the rows of"
    )
    assert proven.sentence in list(solution_facts(FitTrace(True, 1, 0.5, certificates=(proven,)).state()))[1]
