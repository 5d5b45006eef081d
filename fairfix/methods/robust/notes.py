"""Assumptions of a robust rule, in words: its worst cases under each description of the noise, and its limits."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from fairfix.data.counts import Floats
from fairfix.methods.problem import RepairProblem
from fairfix.methods.robust.histogram import Binned, Merged, RowNoise, over_labels
from fairfix.models.trace import Caution, Note
from fairfix.noise.bounds import Pair, vacuous
from fairfix.noise.description import NoiseTable
from fairfix.noise.randomized_rule_bounds import ball_bounds
from fairfix.noise.rates import DEMANDS, LABELS, Parity, bounded_in_words, shortfalls
from fairfix.noise.score_bin_bounds import (
    Assumption,
    BoundedDependence,
    ClassConditional,
    KnownMembership,
    KnownTable,
    KnownTableByLabel,
    breakdown_of,
    rate_bounds,
)
from fairfix.noise.total_variation_radii import Balls
from fairfix.noise.uncertainty_set import Range

if TYPE_CHECKING:
    from fairfix.methods.robust import Robust

FEW = 0.02
"""Fraction of all rows, accepted or not, from which a message is given."""

LITTLE = 0.25
"""Share of those whom the base accepts (or refuses) that is worth a word, if no more are left."""

HOLDS = 1e-6
"""Tolerance of constraints, which is that of the programs."""


def reliance(
    method: Robust,
    problem: RepairProblem,
    rows: Binned,
    behind: RowNoise,
    chance: Floats,
    assumed: Assumption,
) -> Iterator[Note]:
    """Yield what the result relies on, its worst case under other assumptions, and what breaks it."""
    noise = problem.known_noise
    table, short, columns = noise.table, rows.merged(chance), problem.groups.columns
    about_recording = isinstance(assumed, ClassConditional | BoundedDependence)
    kept = "" if table is None else f"; {_kept(table, about_recording)}"
    what = "set of probabilities" if noise.membership else "set of radii" if table is None else "table"
    relies = _relied_on(method, problem, behind, assumed)
    basis = "is taken as known"
    if behind.ranges and table is not None:
        basis = f"is known from a survey of {table.rows:,} rows, at {_percent(method)} confidence"
    yield Note(f"relies on {relies}; on the training rows, the {what} {basis}{kept}", "assumption")
    if about_recording and not problem.seen_by_model and problem.features is None:
        yield Note(
            f"the repair assumes that the score does not use {' x '.join(columns)!r}, which it cannot check",
            "assumption",
        )
    cases = list(_worst_cases(method.parity, problem, rows, short, behind))
    named = {} if table is None else dict(zip(table.noisy, table.entries.T, strict=True))
    extra = [name for name, own in named.items() if name not in problem.groups.names and own.any()]
    if extra:
        yield Caution(
            f"the noise table names {', '.join(map(repr, extra))} as recorded, and no training row is recorded "
            "so: rename it in the table if it is another name of a group",
            "unknown_recorded",
        )
    recorded = (
        "the tables of the report show recorded groups; numbers named true_groups are about true groups"
    )
    yield Note(recorded, "recorded_groups")
    minimax = method.goal == "minimax"
    slack = "" if minimax else f"; the slack is {method.slack:g}"
    yield Note(f"{bounded_in_words(method.demands)} at most {'; '.join(cases)}{slack}", "worst_case")
    if table is not None and not minimax:
        yield Note(_breakdown(method, short, behind, assumed), "breakdown")
    if isinstance(assumed, KnownTable) and method.goal not in ("demographic_parity", "minimax"):
        empty = np.any([vacuous(short.cells, over_labels(one)) for one in behind.tables], axis=0)
        true = tuple(noise.membership or ()) if table is None else table.true
        names = [name for name, bad in zip(true, empty, strict=True) if bad]
        if names:
            which = (
                "the membership probabilities guarantee"
                if table is None
                else "the table without labels guarantees"
            )
            yield Note(
                f"{which} {', '.join(map(repr, names))} nothing: all of their "
                "positives may be among those that a rule misses",
                "no_guarantee",
            )


def _relied_on(method: Robust, problem: RepairProblem, behind: RowNoise, assumed: Assumption) -> str:
    """Return the assumption in words."""
    noise = problem.known_noise
    label = " and the label" if behind.by_label else ""
    if noise.membership is not None:
        columns = ", ".join(noise.membership.values())
        if isinstance(assumed, KnownMembership):
            return (
                f"N4: given the membership probabilities in {columns}, the true group is independent "
                f"of score and label, with a margin of {_errors(method.z)}"
            )
        return f"N1: any rows with the same membership probabilities in {columns} may belong to each group"
    if isinstance(assumed, KnownTableByLabel):
        return "N2: any noise that fits the noise table by label"
    if isinstance(assumed, KnownTable):
        return "N1: any noise that fits the noise table without labels"
    if isinstance(assumed, BoundedDependence):
        return (
            f"N3: noise that fits the noise table and, given the true group{label}, depends on the score"
            f"{'' if label else ' and the label'} by at most {assumed.eps:g}"
        )
    if isinstance(assumed, ClassConditional):
        return f"N4: noise that depends on the true group{label} alone, with a margin of {_errors(method.z)}"
    each = ""
    balls, names = behind.known_balls, problem.groups.names
    homes = balls.recorded(names)
    elsewhere = homes != balls.true
    if method.solver == "dro" or elsewhere:
        each = ", ".join(
            f"{name!r}{f' near {home!r}' if elsewhere else ''} {radius:.3f}"
            for name, home, radius in zip(balls.true, homes, balls.radii, strict=True)
        )
        each = f" ({each})"
    origin = (
        "by the given radii"
        if noise.radii
        else "by radii that are valid for any noise that fits the noise table"
    )
    return (
        f"N0: any distribution within total variation of that of "
        f"{'a recorded group' if elsewhere else 'the recorded group of the same name'}, {origin}{each}"
    )


def _worst_cases(
    parity: Parity, problem: RepairProblem, rows: Binned, short: Merged, behind: RowNoise
) -> Iterator[str]:
    """Yield how far the worst true group is away (or on the wrong side) under each description of the noise."""
    label = " and the label" if behind.by_label else ""
    worst: dict[str, tuple[tuple[Floats | Range, ...], Assumption]] = {}
    if behind.members is not None:
        text = (
            "if the true group is independent of score and label, given the probabilities (N4, an estimate)"
        )
        worst[text] = (short.members(behind.members),), KnownMembership()
    if behind.conditional is not None and not set(problem.groups.columns) & set(problem.seen_by_model):
        text = f"if noise depends on the true group{label} alone (N4, an estimate)"
        worst[text] = (behind.conditional,), ClassConditional(0.0, rows.rows)
    if behind.by_label:
        worst["under any noise that fits the table by label (N2)"] = (
            behind.of_assumption(KnownTableByLabel()),
            KnownTableByLabel(),
        )
    if behind.tables:
        plain = behind.of_assumption(KnownTable())
        fits = "the probabilities" if behind.members is not None else "the table without labels"
        worst[f"under any noise that fits {fits} (N1)"] = plain, KnownTable()

    def away(bounds: Callable[[str], Pair]) -> float:
        return float(np.nanmax(shortfalls(DEMANDS[parity], short.overall, bounds)))

    for text, (tables, what) in worst.items():
        try:
            gap = max(
                away(partial(rate_bounds, short.n, table, short.chance, assumption=what)) for table in tables
            )
        except ValueError:  # not identified
            continue
        yield f"{gap:z.4f} {text}"
    if (balls := behind.balls) is not None:
        yield f"{away(partial(_near, short, balls)):z.4f} within the radii (N0)"


def _near(rows: Merged, balls: Balls, rate: str) -> Pair:
    """Return the range of rates within radii, of true groups that consist of the training rows."""
    own = rows.n[:, :, list(LABELS[rate])].sum(2) > 0
    return ball_bounds(rows.n, balls.radii, rows.chance, rate, rows.chance[own], balls.home)


def _breakdown(method: Robust, short: Merged, behind: RowNoise, assumed: Assumption) -> str:
    """Return how much noise may depend on outcomes before the constraint can break."""
    if behind.recording is None:
        return "the noise table does not give the sizes of the true groups, so there is no eps*"
    (recording,) = behind.of_assumption(BoundedDependence(0.0))
    if isinstance(recording, Range) and recording.keep == "true-given-noisy":
        return (
            "eps* is about P(noisy | true), and the survey is used for P(true | noisy), so it is not computed"
        )
    broken = breakdown_of(short.n, recording, short.chance, method.parity, min(method.slack, 1.0))
    about = "P(noisy | true) depends on decisions and the label"
    if behind.by_label:
        about = "P(noisy | true, label) depends on decisions"
    eps = broken.eps
    if isinstance(assumed, BoundedDependence):  # known of bins, which say more than levels of the decision
        eps = assumed.eps if math.isnan(eps) else max(eps, assumed.eps)
    if math.isnan(eps):
        return (
            f"the slack need not hold even if {about} by the smallest amount that the data allow, "
            f"{broken.smallest_eps:.3f}; the result is an estimate (no eps*)"
        )
    if eps >= 1:
        return f"the slack holds however much {about} (eps* = 1)"
    return f"the slack holds as long as {about} by at most eps* = {eps:.3f}"


def _errors(z: float) -> str:
    """Return a number of standard errors in words."""
    return f"{z:g} standard error{'' if z == 1 else 's'}"


def _percent(method: Robust) -> str:
    """Return the confidence over the draw of the survey."""
    assert not isinstance(method.survey_confidence, str)
    return f"{100 * method.survey_confidence:g}%"


def _kept(table: NoiseTable, about_recording: bool) -> str:
    """Return what of the noise table is taken to hold for the rows."""
    ways = (table.of_recording,) if about_recording else table.ways
    both = " or ".join(f"P({way.replace('-given-', ' | ')})" for way in ways)
    return f"its {both} holds for these rows{', whichever is worse' if len(ways) > 1 else ''}"


def cut_note(problem: RepairProblem) -> Iterator[Note]:
    """Yield that errors count alike where the base decides at another threshold than 0.5."""
    if abs(problem.threshold - 0.5) > HOLDS:
        alike = "both kinds of error have equal weight in the repair, whatever the threshold of the original decisions"
        yield Note(alike, "threshold")


def extremes(problem: RepairProblem, base: Floats, chance: Floats) -> Iterator[Note]:
    """Yield a message where nearly all rows get one decision, unlike those of the base."""
    weight = problem.weight / problem.weight.sum()
    taken, was = float(weight @ chance), float(weight @ (base >= problem.threshold))
    few, had = min(taken, 1 - taken), was if taken < 0.5 else 1 - was
    if 0 < few < max(FEW, LITTLE * had):
        yield Caution(
            f"the repaired rule accepts {taken:.2%} of all rows, and the original model accepts {was:.2%}: the "
            "constraint is met by deciding nearly all rows the same way",
            "selection",
        )
