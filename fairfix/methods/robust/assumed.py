"""The assumption in force, and whether it goes with the description of the noise, the constraint and the model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairfix.data.counts import Floats
from fairfix.errors import UsageError
from fairfix.methods.problem import RepairProblem
from fairfix.methods.robust.rows import RowNoise
from fairfix.noisy.binned import Assumption, Certified, Identified, Independent, Radii, Sensitive, Soft
from fairfix.noisy.description import Noise

if TYPE_CHECKING:
    from fairfix.methods.robust import Robust


def assumption_of(method: Robust, problem: RepairProblem) -> Assumption:
    """Return the assumption in force.

    Raises
    ------
    UsageError
        It does not go with what is known of the noise, with the constraint or with the model.
    """
    noise, name = problem.noise, ""
    assert noise is not None
    name = method.assumption_of(noise)
    if noise.membership is not None:
        return _by_membership(method, noise, name)
    if noise.table is None and name != "radii":
        what = f"`assumption={name}`" if method.solver != "soft" else "`solver=soft`"
        instead = "`assumption=radii`" if method.solver != "soft" else "`solver=dro`"
        raise UsageError(
            f"{method.name}: `noise_radius` alone does not give the information that {what} needs; give a noise "
            "table with `noise`, or "
            f"use {instead}"
        )
    plain = method.assumption == "auto" and name == "soft" and method.solver != "soft"
    if plain and method.constraint != "demographic_parity":
        others = "`assumption=identified` or epsilon (which assume more), or soft (which may accept no one)"
        if method.solver != "thresholds":
            others = "`assumption=soft` (which may accept no one)"
        raise UsageError(
            f"{method.name}: the noise table has no labels, and without labels, {method.constraint} can hardly be "
            f"guaranteed by any rule. Add a column label to the table, or choose {others}"
        )
    method.require_labels_of_certified(noise)
    used = [column for column in problem.cells.columns if column in problem.seen_by_model]
    if used and name in ("identified", "epsilon"):
        raise UsageError(
            f"{method.name}: the model uses {', '.join(used)}; assumption {name} needs a score that does not "
            "use the noisy group. Use `assumption=certified` or soft, or a model without it"
        )
    if name == "epsilon":
        return Sensitive(method.epsilon_of(noise))
    if name == "identified":
        return Identified(method.z)
    return Certified() if name == "certified" else Soft() if name == "soft" else Radii()


def surveyed(method: Robust, problem: RepairProblem, taken: RowNoise, own: Floats) -> RowNoise:
    """Return what is known of the noise with the sampling error of its survey, where that is asked for.

    ``own`` are the masses of recorded groups by label, shape (K, 2).

    Raises
    ------
    UsageError
        There is no survey, or its sampling error has no part in the assumption.
    """
    if isinstance(method.survey_confidence, str):
        return taken
    noise, who = problem.noise, f"{method.name}: `survey_confidence={method.survey_confidence:g}`"
    assert noise is not None
    if noise.table is None or noise.table.form != "count":
        raise UsageError(f"{who} needs a noise table of counts (`noise=FILE`); leave it out")
    name = method.assumption_of(noise)
    if name == "identified":
        raise UsageError(
            f"{who} cannot be combined with `assumption=identified`, an estimate by one table; "
            "`assumption=epsilon` with `epsilon=0` makes the same assumption and holds for all tables of the survey"
        )
    if name == "radii" and noise.radii is not None:
        raise UsageError(f"{who}: `noise_radius` is not a survey; leave one of them out")
    return taken.surveyed(problem, own, method.survey_confidence)


def _by_membership(method: Robust, noise: Noise, name: str) -> Assumption:
    """Return the assumption in force of probabilities of membership; UsageError where they say nothing of it."""
    if method.solver not in ("thresholds", "oracle"):
        raise UsageError(
            f"{method.name}: `solver={method.solver}` does not support membership probabilities; use "
            "`solver=thresholds`"
        )
    allowed = ("soft", "identified") if method.solver == "thresholds" else ("soft",)
    if name not in allowed:
        what = "needs recorded groups" if name != "identified" else "needs `solver=thresholds`"
        raise UsageError(
            f"{method.name}: `assumption={name}` {what}, and `noise_membership` gives probabilities; use "
            f"`assumption=soft`{' or identified' * (len(allowed) > 1)}"
        )
    if method.assumption == "auto" and name == "soft" and method.constraint != "demographic_parity":
        others = (
            "`assumption=identified` (which assumes more), or soft"
            if len(allowed) > 1
            else "`assumption=soft`"
        )
        raise UsageError(
            f"{method.name}: `noise_membership` has no labels, and without labels {method.constraint} can "
            f"hardly be guaranteed by any rule. Choose {others} (which may accept no one)"
        )
    return Soft() if name == "soft" else Independent(method.z)
