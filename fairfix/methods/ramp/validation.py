"""Which parameters of the ramp go together, and with which rows; whatever does not is refused by its name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairfix.auditing.criteria import CRITERIA
from fairfix.errors import UsageError
from fairfix.methods.problem import RepairProblem

if TYPE_CHECKING:
    from fairfix.methods.ramp import Ramp

NARROWEST = 1e-6
"""Narrowest ramp: below, offsets have no digits left for it. 0 is a branch of its own."""


def check_parameters(method: Ramp) -> None:
    """Raise a UsageError where parameters contradict one another."""
    if 0 < method.gamma < NARROWEST:
        raise UsageError(f"ramp: gamma must be 0 or at least {NARROWEST:g}, got {method.gamma:g}")
    if method.parsed_constraint.least:
        _check_ratio(method)
    if method.parsed_constraint.each:
        _check_each(method)
    if method.instead:
        _check_ungrouped(method)
    if method.rho != "joint" and method.goal in ("equalized_odds", "covariance"):
        raise UsageError(
            f"ramp: rho {method.rho!r} cannot be combined with {method.goal}, which finds its own rates"
        )
    if method.rho in ("mean", "labels") and method.goal != "demographic_parity":
        raise UsageError(
            f"ramp: rho {method.rho!r} is a selection rate, which {method.goal} does not constrain"
        )


def _check_ratio(method: Ramp) -> None:
    """Raise a UsageError where something does not go with a ratio."""
    if method.rho != "joint":
        raise UsageError(
            f"ramp: `constraint={method.constraint}` cannot be combined with `rho={method.rho}`, since it finds the "
            "rates; leave out `rho`"
        )


def _check_each(method: Ramp) -> None:
    """Raise a UsageError where something does not go with groups that overlap."""
    asked = f"ramp: `constraint={method.constraint}`: [each] cannot be combined with"
    if method.goal == "covariance":
        raise UsageError(f"{asked} covariance; limit the difference, or leave out [each]")
    if method.rho != "joint":
        raise UsageError(
            f"{asked} `rho={method.rho}`, since it finds the rates of each column; leave out `rho`"
        )


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
