"""The stated assumption, and whether it suits the description of the noise, the constraint and the model."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from fairfix.data.counts import Floats
from fairfix.data.noise_spec import TABLE
from fairfix.data.noise_spec import StatedAssumption as Stated
from fairfix.errors import UsageError
from fairfix.methods.base import Accepts
from fairfix.methods.problem import RepairProblem
from fairfix.methods.robust.histogram import RowNoise
from fairfix.noise.score_bin_bounds import (
    Assumption,
    BoundedDependence,
    ClassConditional,
    KnownMembership,
    KnownTable,
    KnownTableByLabel,
    TotalVariation,
)

if TYPE_CHECKING:
    from fairfix.methods.robust import Robust


def assuming(*words: str) -> Accepts:
    """Accept what assumes one of some words, or states nothing."""
    return lambda text: Stated.parse(text).word in ("", *words)


def assumption_of(method: Robust, problem: RepairProblem) -> Assumption:
    """Return the stated assumption.

    Raises
    ------
    UsageError
        It does not suit the description of the noise, the constraint or the model.
    """
    noise = method.effective_noise(problem.known_noise)
    method = replace(method, assume=noise.assume)  # which its solver may not know
    name, members = method.assumption_of(noise), noise.membership is not None
    if members and method.solver not in ("thresholds", "oracle"):
        raise UsageError(
            f"{method.name}: `solver={method.solver}` does not support membership probabilities; use "
            "`solver=thresholds`"
        )
    if name == "radii" and method.solver == "soft":
        raise UsageError(f"{method.name}: `solver=soft` needs {TABLE}; with radii, use `solver=dro`")
    plain = name == "soft" and not method.assume and method.solver != "soft"
    if plain and method.goal != "demographic_parity":
        stronger = "`assume=independent`" if members else "`assume=class-conditional` or `assume=eps=NUMBER`"
        assumes_more = f"{stronger} (which assumes more), or " if method.solver == "thresholds" else ""
        raise UsageError(
            f"{method.name}: {'memberships have' if members else 'the noise table has'} no labels, and without labels "
            f"{method.goal} can hardly be guaranteed by any rule. "
            f"{'Choose' if members else 'Add a column label to the table, or choose'} "
            f"{assumes_more}`assume=none` (which may accept no one)"
        )
    used = [column for column in problem.groups.columns if column in problem.seen_by_model]
    if used and not members and name in ("identified", "epsilon"):
        raise UsageError(
            f"{method.name}: the model uses {', '.join(used)}; `assume={method.assume}` needs a score that does not "
            "use the recorded group. Use `assume=none`, or a model without it"
        )
    if noise.epsilon is not None:
        return BoundedDependence(noise.epsilon)
    if name == "identified":
        return KnownMembership(method.z) if members else ClassConditional(method.z)
    return (
        KnownTableByLabel() if name == "certified" else KnownTable() if name == "soft" else TotalVariation()
    )


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
    noise, who = problem.known_noise, f"{method.name}: `survey_confidence={method.survey_confidence:g}`"
    if noise.table is None or noise.table.form != "count":
        raise UsageError(f"{who} needs a noise table of counts (`noise=FILE`); leave it out")
    name = method.assumption_of(noise)
    if name == "identified":
        raise UsageError(
            f"{who} cannot be combined with `assume=class-conditional`, an estimate by one table; "
            "`assume=eps=0` makes the same assumption and holds for all tables of the survey"
        )
    if name == "radii" and noise.radii is not None:
        raise UsageError(f"{who}: radii are not a survey; leave it out")
    return taken.surveyed(problem, noise.table, own, method.survey_confidence)
