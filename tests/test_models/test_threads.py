"""Threads of fits: as many as are asked for, one where nobody asks, and the same bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from fairfix.cli import run
from fairfix.methods.base import Repairer
from fairfix.models.learners import fit_mean
from fairfix.models.threads import limited, threads_of_fits
from threadpoolctl import threadpool_info, threadpool_limits


def in_force() -> dict[str, set[int]]:
    """Return the threads of each kind of library that is loaded."""
    out: dict[str, set[int]] = {}
    for one in threadpool_info():
        out.setdefault(one["user_api"], set()).add(one["num_threads"])
    return out


@pytest.mark.parametrize("many", [1, 3])
def test_matrices_take_one_thread_and_trees_as_many_as_asked(many: int) -> None:
    """Whatever was in force around, which is so again afterwards."""
    fit_mean(np.eye(3), np.arange(3.0), None, learner="trees", loss="square", l2=0.0, seed=0)  # loads OpenMP
    with threadpool_limits(2):
        around = in_force()
        with threads_of_fits(many), limited():
            assert in_force() == {"blas": {1}, "openmp": {many}}
        with limited():
            assert in_force()["openmp"] == {1}
        assert in_force() == around


@pytest.mark.slow
def test_trees_are_the_same_for_any_number_of_threads() -> None:
    """Nodes to the bit, also of weighted rows."""
    rng = np.random.default_rng(0)
    X, weight = rng.normal(size=(60, 3)), rng.random(60)
    y = X[:, 0] ** 2 + rng.normal(size=60)
    made = []
    for many in (1, 2, 3):
        with threads_of_fits(many):
            member = fit_mean(X, y, weight, learner="trees", loss="square", l2=0.0, seed=0)
        made.append({name: array.tobytes() for name, array in member.state()[1].items()})

    assert made[0] == made[1] == made[2]


@pytest.mark.parametrize("command", ["repair", "compare"])
@pytest.mark.parametrize(("options", "many"), [((), 1), (("--threads", "3"), 3)])
@pytest.mark.usefixtures("away")
def test_a_command_fits_with_the_threads_it_is_given(
    command: str, options: tuple[str, ...], many: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every fit of a repair and of a comparison."""
    rng = np.random.default_rng(1)
    frame = pd.DataFrame({"x": rng.normal(size=200), "sex": rng.choice(["f", "m"], 200)})
    frame["label"] = (frame["x"] + rng.normal(size=200) > 0).astype(int)
    frame["score"] = 1 / (1 + np.exp(-frame["x"]))
    frame.to_parquet("d.parquet")
    seen = []
    fit = Repairer._fit

    def watched(*args: Any) -> Any:
        seen.append(in_force())
        return fit(*args)

    monkeypatch.setattr(Repairer, "_fit", watched)
    method = ("--method", "ramp") if command == "repair" else ("--methods", "ramp", "--slacks", "0.1")

    with threadpool_limits(2):
        assert run([command, "d.parquet", "--protected", "sex", *method, *options]) == 0

    assert seen
    assert all(one == {"blas": {1}, "openmp": {many}} for one in seen)
