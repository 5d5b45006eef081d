"""Guarantees of robust: the true groups that an assumption allows, with the sampling error of its survey."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from fairfix.data.choices import Keep
from fairfix.data.data_spec import DataSpec
from fairfix.errors import UsageError
from fairfix.methods.guarantee import GuaranteeAdapter
from fairfix.methods.robust.histogram import range_of
from fairfix.noise.description import Noise, NoiseTable
from fairfix.noise.dual_certificates import (
    AllowedGroups,
    ClassConditionalProof,
    KnownMembershipProof,
    PossibleTrueGroups,
    RecordedGivenTrue,
    TotalVariationProof,
    TrueGivenRecorded,
)
from fairfix.noise.rates import quotient
from fairfix.noise.total_variation_radii import balls_for

if TYPE_CHECKING:
    from fairfix.methods.robust import Robust


class RobustGuarantee(GuaranteeAdapter):
    """Rates of true groups, by the assumption about the noise."""

    method: Robust

    def refusal(self, data_spec: DataSpec, features: tuple[str, ...] | None) -> str:
        """Return why nothing can be guaranteed: minimax has no limit before the fit."""
        minimax = self.method.goal == "minimax"
        return "`constraint=minimax` sets no bound; use another `constraint`" if minimax else ""

    def true_groups(
        self, noise: Noise, names: Sequence[str], column: str, alpha: float
    ) -> PossibleTrueGroups:
        """Return the possible true groups; a UsageError if what is known of them is of these rows alone."""
        noise = self.method.effective_noise(noise)
        name, demands = self.method.assumption_of(noise), self.method.demands
        if noise.membership is not None:
            members = (KnownMembershipProof(name == "identified"),)
            independent = ", and that decisions and labels are independent of the true group given them"
            words = f", and that the membership probabilities are right{independent * (name == 'identified')}"
            true, columns = tuple(noise.membership), tuple(noise.membership.values())
            return PossibleTrueGroups(tuple(names), true, demands, members, members, False, words, columns)
        if name == "radii" and noise.radii is not None:
            balls = balls_for(noise.radii, names, column)
            near = (TotalVariationProof(balls.radii, balls.home),)
            its = "of its name" if balls.recorded(names) == balls.true else "that it is stated to be near"
            words = f", and that each true group is within its radius of the recorded group {its}"
            return PossibleTrueGroups(tuple(names), balls.true, demands, near, near, False, words)
        if name == "radii" or noise.table is None:
            raise UsageError(
                "`guarantee`: radii computed from a noise table depend on how these rows were recorded; give them "
                "by `noise=radius:GROUP=NUMBER,...`, or use another `solver`, or `assume=none`"
            )
        table, _ = noise.table.for_data(names, np.zeros(len(names)))
        by_recording = name in ("identified", "epsilon")
        if by_recording:
            _require_recording(noise, table, names)
        ways: tuple[Keep, ...] = ("noisy-given-true",) if by_recording else table.ways
        surveyed = table.form == "count"
        exact = tuple(_allowed(name, noise, table, way, None) for way in ways)
        allowed = tuple(_allowed(name, noise, table, way, alpha) for way in ways) if surveyed else exact
        by_label = ", label" * table.by_label
        kept = " or ".join(f"P({way.replace('-given-', ' | ')}{by_label})" for way in ways)
        counted = "from a survey of that population, whose error is included" if surveyed else "exact"
        assumed = {
            "identified": f", that recording depends on the true group{' and the label' * table.by_label} alone",
            "epsilon": f", that recording depends on the score by at most {noise.epsilon or 0:g}",
        }.get(name, "")
        words = f", that {kept} of the noise table also holds in the population{assumed}"
        words += f", and that the table is {counted}"
        return PossibleTrueGroups(table.noisy, table.true, demands, exact, allowed, surveyed, words)


def _require_recording(noise: Noise, table: NoiseTable, names: Sequence[str]) -> None:
    """Raise a UsageError where a table does not show how true groups of the population are recorded."""
    if table.of_recording != "noisy-given-true":
        raise UsageError(
            f"`guarantee`: `assume={noise.assume}` needs a table whose P(noisy | true) holds for the "
            "population; write `noise=FILE(keep=noisy-given-true)`, or use `assume=none`"
        )
    if table.entries[..., len(names) :].any():
        unseen = ", ".join(map(repr, table.noisy[len(names) :]))
        raise UsageError(
            f"`guarantee`: the noise table names {unseen} as recorded, and no row is recorded so, so the "
            "rule's decisions there are unknown; leave these entries out, or use `assume=none`"
        )


def _allowed(name: str, noise: Noise, table: NoiseTable, way: Keep, alpha: float | None) -> AllowedGroups:
    """Return what a table allows by the shares it keeps; with ``alpha``, within the limits of its survey."""
    axis = -2 if way == "true-given-noisy" else -1
    total = np.broadcast_to(table.entries.sum(axis, keepdims=True), table.entries.shape)
    low = high = point = quotient(table.entries, total, 1.0 / table.entries.shape[axis])
    if alpha is not None:
        survey = range_of(table.entries, way, 1.0 - alpha)
        low, high = survey.low, survey.high
    if way == "true-given-noisy":
        return TrueGivenRecorded(low, high)
    if name not in ("identified", "epsilon"):
        return RecordedGivenTrue(low, high, point)
    eps = noise.epsilon or 0.0
    return ClassConditionalProof(np.maximum(low - eps, 0.0), np.minimum(high + eps, 1.0), point)
