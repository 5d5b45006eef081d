"""Promises of a metric of one's own, compared on the same rows of two models."""

from __future__ import annotations

from typing import Any

import fairfix
import numpy as np
import pandas as pd
from scipy import stats

from tests.promises.harness import Shell, Tried, judged, promise

SHARE = 0.4
"""Share of label 1 in every group."""


def cost(c: Any) -> Any:
    """Return what errors cost a row: a false negative five times as much as a false positive."""
    return (5 * c.false_negatives + c.false_positives) / c.rows


def _tried(rng: np.random.Generator, apart: float) -> tuple[dict[str, Any], float, str]:
    """Return the check of the gap against another model on the same rows, the true change, and the world in words.

    Scores are normal within label and group; both models share a part of the noise or none. ``apart`` is the spread of
    the shifts from one model to the other, by group. Which group pays more is sure, as in most data.
    """
    sizes = np.round(np.exp(rng.uniform(np.log(300), np.log(2000), 2))).astype(int)
    code = np.repeat(np.arange(2), sizes)
    label = (rng.random(code.size) < SHARE).astype(int)
    old = np.array([-0.5, 0.5]) + rng.uniform(-0.2, 0.2, 2)
    new = old + apart * rng.uniform(-1, 1, 2)
    rho, noise = float(rng.choice([0.0, 0.9])), rng.normal(size=code.size)
    other = rho * noise + np.sqrt(1 - rho**2) * rng.normal(size=code.size)
    people = pd.DataFrame({"person": range(code.size), "race": [f"g{i}" for i in code], "label": label})
    before, after = (
        people.assign(prediction=(label - 0.5 + shift[code] + one > 0).astype(int))
        for shift, one in ((old, noise), (new, other))
    )
    asked: dict[str, Any] = {"label": "label", "prediction": "prediction", "metrics": {"cost": cost}}
    result = fairfix.audit(
        after, protected="race", id="person", baseline=before, check="cost.difference.change<=0", **asked
    )
    (check,) = result.to_dict()["checks"]
    gaps = [
        np.ptp(5 * SHARE * stats.norm.sf(shift + 0.5) + (1 - SHARE) * stats.norm.sf(0.5 - shift))
        for shift in (old, new)
    ]
    true = float(gaps[1] - gaps[0])
    return check, true, f"{true:+.4f}, [{check['low']:.4f}, {check['high']:.4f}], {sizes}, {rho}"


@promise(level=0.05, quick=22, full=2000, must_say=1.0)
def change_of_an_own_metric(rng: np.random.Generator, shell: Shell) -> Tried:
    """95% interval of the change of the gap of a custom metric on the same rows; no alarm if nothing changed."""
    apart = float(rng.choice([0.0, 0.3]))
    check, true, told = _tried(rng, apart)
    alarm = apart == 0 and check["verdict"] == "fail"
    return judged(check["low"] <= true <= check["high"] and not alarm, told)
