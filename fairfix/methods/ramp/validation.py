"""Which parameters of the ramp go together, and with which rows; whatever does not is refused by its name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairfix.auditing.criteria import CRITERIA
from fairfix.errors import UsageError
from fairfix.methods.base import refuse
from fairfix.methods.problem import RepairProblem

if TYPE_CHECKING:
    from fairfix.methods.ramp import Ramp

NARROWEST = 1e-6
"""Narrowest ramp: below, offsets have no digits left for it. 0 is a branch of its own."""


def check_parameters(method: Ramp) -> None:
    """Raise a UsageError where parameters contradict one another."""
    each, rho, goal = method.parsed_constraint.each, method.rho, method.goal
    asked = f"`constraint={method.constraint}`"
    chosen = rho != "joint"
    before = {
        f"gamma must be 0 or at least {NARROWEST:g}, got {method.gamma:g}": 0 < method.gamma < NARROWEST,
        f"{asked} cannot be combined with `rho={rho}`, since it finds the rates; leave out `rho`": (
            method.parsed_constraint.least and chosen
        ),
        f"{asked}: [each] cannot be combined with covariance; limit the difference, or leave out [each]": (
            each and goal == "covariance"
        ),
        f"{asked}: [each] cannot be combined with `rho={rho}`, since it finds the rates of each column; leave out "
        "`rho`": each and chosen,
    }
    after = {
        f"rho {rho!r} cannot be combined with {goal}, which finds its own rates": (
            chosen and goal in ("equalized_odds", "covariance")
        ),
        f"rho {rho!r} is a selection rate, which {goal} does not constrain": (
            rho in ("mean", "labels") and goal != "demographic_parity"
        ),
    }
    refuse(before, "ramp: ")
    if method.instead:
        _check_ungrouped(method)
    refuse(after, "ramp: ")


def _check_ungrouped(method: Ramp) -> None:
    """Raise a UsageError where something does not go with soft groups, or with protected numbers."""
    own = method.instead
    accepted: list[tuple[str, object]] = [("calibrate", "none")]
    accepted += [("constraint", one) for one in CRITERIA]
    accepted += [("calibrate", "isotonic")] if method.membership and method.about_labels else []
    for name, spec in method.domains().items():
        value = getattr(method, name)
        usual = value == spec.default or name in ("slack", "shape", own.partition("=")[0])
        if usual or (name == "gamma" and value > 0) or (name, value) in accepted:
            continue
        remedy = "use a `gamma` above 0" if name == "gamma" else f"leave out `{name}`"
        shown = f"{value:g}" if isinstance(value, float) else value
        raise UsageError(
            f"ramp: `{own}` cannot be combined with `{name}={shown}`: {_reason(method, name)}; {remedy}"
        )


def _reason(method: Ramp, name: str) -> str:
    """Return why a parameter does not go with soft groups, or with protected numbers."""
    if name == "gamma":
        return "its solver needs ramps of positive width"
    if name == "decisions":
        return "it meets its slack with ramps, whose decisions are randomized"
    if not method.membership:
        return "it limits a covariance with numbers, which have no groups"
    if name == "calibrate":
        return (
            "for groups that are not recorded, scores are recalibrated by isotonic regression, and only for "
            "rates by label"
        )
    return "for groups that are not recorded, the solver needs differences and ramps of positive width"


def check_rows(method: Ramp, problem: RepairProblem) -> None:
    """Raise a UsageError where rows have something that does not go with soft groups or protected numbers."""
    table = problem.table
    for name, given in (
        ("protected", table.data_spec.columns.protected),
        ("strata", table.data_spec.columns.strata),
        ("unlabelled", problem.unlabelled is not None),
        ("score_scale=raw", table.data_spec.score_scale == "raw"),
    ):
        if method.instead and given:
            groups = (
                "; for the covariance with its groups, write dp.covariance"
                if method.parsed_constraint.numbers
                else ""
            )
            raise UsageError(
                f"ramp: `{method.instead}` cannot be combined with `{name}`; leave one of them out{groups}"
            )
