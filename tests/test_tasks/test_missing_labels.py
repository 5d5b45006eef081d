"""Rows that are left out for a missing label are missing in selection rates too, which every result says."""

from __future__ import annotations

from typing import Any

import fairfix
import numpy as np
import pandas as pd
import pytest

ROWS = 1000


def approved(unlabelled: int) -> pd.DataFrame:
    """Return decisions that half of the people get, of whom the last rejected ones have no label."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"sex": rng.choice(["f", "m"], ROWS), "score": np.linspace(1.0, 0.0, ROWS)})
    frame["label"] = (rng.random(ROWS) < frame["score"]).astype(float)
    frame.loc[ROWS - unlabelled :, "label"] = np.nan
    return frame


RUNS: dict[str, Any] = {
    "audit": lambda frame, **more: fairfix.audit(frame, **more),
    "slices": lambda frame, **more: fairfix.audit(frame.assign(age=range(ROWS)), **more, slices="age"),
    "repair": lambda frame, **more: fairfix.repair(frame, **more, method="ramp"),
    "compare": lambda frame, **more: fairfix.compare(frame, **more, methods="ramp", slacks=[0.1]),
    "models": lambda frame, **more: fairfix.compare(
        frame.assign(old=frame["score"] ** 2), **more, baseline="old"
    ),
}


@pytest.mark.parametrize(
    ("unlabelled", "severity"), [(0, None), (50, "note"), (51, "warning"), (500, "warning")]
)
@pytest.mark.parametrize("run", RUNS)
def test_it_is_a_warning_where_the_selection_rate_can_change_by_a_twentieth(
    run: str, unlabelled: int, severity: str | None
) -> None:
    made = RUNS[run](approved(unlabelled), protected="sex", label="label", score="score", missing="drop")

    told = [one["severity"] for one in made.to_dict().get("messages", ()) if one["code"] == "missing_labels"]
    assert told == ([] if severity is None else [severity])


def test_all_labels_of_the_selected_alone_make_everybody_selected() -> None:
    """The rate is that of the rows left; the audit without the label has that of everyone."""
    frame, ways = approved(500), {"protected": "sex", "score": "score"}
    left = fairfix.audit(frame, **ways, label="label", missing="drop").to_dict()
    every = fairfix.audit(frame.drop(columns="label"), **ways).to_dict()

    rates = [one["overall"]["metrics"]["selection_rate"]["value"] for one in (left, every)]
    assert rates == [1.0, 0.5]


def test_numbers_without_decisions_are_not_warned_of() -> None:
    """A regression has no selection rates."""
    made = fairfix.audit(
        approved(500), protected="sex", label="label", score="score", task="regression", missing="drop"
    )
    assert "missing_labels" not in {one["code"] for one in made.to_dict().get("messages", ())}
