"""What a robust rule relies on, in words: its worst cases under each description of the noise, and what breaks it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np

from fairfix.data.counts import Floats
from fairfix.methods.base import RepairProblem
from fairfix.methods.robust.rows import Binned, Merged, Radii, RowNoise, over_labels
from fairfix.models.trace import Caution
from fairfix.noisy.binned import Assumption, Certified, Identified, Sensitive, Soft, breakdown_of, rate_bounds
from fairfix.noisy.bounds import tv_bounds, vacuous
from fairfix.noisy.description import Noise
from fairfix.noisy.rates import DEMANDS, RATIOS, Parity, where_of

if TYPE_CHECKING:
    from fairfix.methods.robust import Robust

FEW = 0.02
"""Share of everybody, accepted or not, that is worth a word."""

HOLDS = 1e-6
"""What a constraint may be missed by, as programs are solved to no more."""


def reliance(
    method: Robust,
    problem: RepairProblem,
    rows: Binned,
    known: RowNoise,
    chance: Floats,
    assumed: Assumption | Radii,
    relies: str,
) -> Iterator[str]:
    """Yield what the result relies on, its worst case under other assumptions, and what breaks it."""
    noise = problem.noise
    assert noise is not None
    table, short, columns = noise.table, rows.merged(chance), problem.cells.columns
    about_recording = isinstance(assumed, Identified | Sensitive)
    kept = "" if table is None else f"; {_kept(noise, about_recording)}"
    what = "radii" if table is None else "table"
    yield f"{relies}; on the rows of the fit, the {what} taken as known{kept}"
    if about_recording and not problem.seen_by_model and problem.features is None:
        yield f"that the score does not use {' x '.join(columns)!r} is taken on trust"
    cases = list(_worst_cases(method.parity, problem, rows, short, known))
    extra = (
        ()
        if table is None
        else [
            name
            for k, name in enumerate(table.noisy)
            if name not in problem.cells.names and table.entries[..., k].any()
        ]
    )
    if extra:
        yield Caution(
            f"the noise table names {', '.join(map(repr, extra))} as recorded, and no row of the fit is recorded "
            "so: rename it there if it is another name of a group"
        )
    yield "the tables of the report are by recorded group, but for what is named true_groups"
    yield (
        f"the worst true group is {where_of(method.demands)} the rate over everybody by at most {'; '.join(cases)}; "
        f"the slack is {method.slack:g}"
    )
    if table is None:
        return
    yield _breakdown(method, short, known, " and the label" if table.by_label else "", assumed)
    if isinstance(assumed, Soft) and method.solver != "dro" and method.constraint != "demographic_parity":
        plain = [over_labels(one) for one in known.tables]
        empty = np.any([vacuous(short.cells, one, RATIOS["true_positive_rate"]) for one in plain], axis=0)
        names = [name for name, bad in zip(table.true, empty, strict=True) if bad]
        if names:
            yield (
                f"the table without labels guarantees {', '.join(map(repr, names))} nothing: all of their "
                "positives may be among those that a rule misses"
            )


def _worst_cases(
    parity: Parity, problem: RepairProblem, rows: Binned, short: Merged, known: RowNoise
) -> Iterator[str]:
    """Yield how far the worst true group is away (or on the wrong side) under each description of the noise."""
    label = " and the label" if known.by_label else ""
    worst: dict[str, tuple[tuple[Floats, ...], Assumption]] = {}
    rates = [rate for rate, _ in DEMANDS[parity]]
    if known.conditional is not None and not set(problem.cells.columns) & set(problem.seen_by_model):
        text = f"noise depends on the true group{label} alone (N4, an estimate)"
        worst[text] = (known.conditional,), Identified(0.0, rows.rows)
    if known.by_label:
        worst["any noise that fits the table by label (N2)"] = known.tables, Certified()
    if known.tables:
        plain = tuple(over_labels(table) for table in known.tables)
        worst["any noise that fits the table without labels (N1)"] = plain, Soft()
    for text, (tables, what) in worst.items():
        try:
            gap = max(
                _shortfall(
                    parity, short, {r: rate_bounds(short.n, table, short.chance, r, what) for r in rates}
                )
                for table in tables
            )
        except ValueError:  # not identified
            continue
        yield f"{gap:z.4f} if {text}"
    if known.radii is not None:
        gap = _shortfall(parity, short, {r: tv_bounds(short.cells, known.radii, RATIOS[r]) for r in rates})
        yield f"{gap:z.4f} within the radii (N0)"


def _shortfall(parity: Parity, short: Merged, bounds: Mapping[str, tuple[Floats, Floats]]) -> float:
    """Return what the worst true group is away (or on the wrong side) by, over all rates of the constraint."""
    gaps = [
        sign * (short.overall(rate) - bounds[rate][0 if sign > 0 else 1]) for rate, sign in DEMANDS[parity]
    ]
    return float(np.nanmax(gaps))


def _breakdown(
    method: Robust, short: Merged, known: RowNoise, label: str, assumed: Assumption | Radii
) -> str:
    """Return how much noise may depend on outcomes before the constraint can break."""
    if known.recording is None:
        return "the noise table does not tell how large the true groups are, so there is no eps*"
    broken = breakdown_of(short.n, known.recording, short.chance, method.parity, min(method.slack, 1.0))
    given = "decisions" if label else "decisions and the label"
    about = f"P(noisy | true{', label' if label else ''}) depends on {given}"
    eps = broken.eps
    if isinstance(assumed, Sensitive):  # known of bins, which say more than levels of the decision
        eps = assumed.eps if math.isnan(eps) else max(eps, assumed.eps)
    if math.isnan(eps):
        return (
            f"the slack need not hold even if {about} by the least that the data allow, "
            f"{broken.smallest_eps:.3f}: it is an estimate (no eps*)"
        )
    if eps >= 1:
        return f"the slack holds however much {about} (eps* = 1)"
    return f"the slack holds as long as {about} by at most eps* = {eps:.3f}"


def _kept(noise: Noise, about_recording: bool) -> str:
    """Return what of the noise table is taken to hold for the rows."""
    ways = (noise.of_recording,) if about_recording else noise.ways
    both = " or ".join(f"P({way.replace('-given-', ' | ')})" for way in ways)
    return f"of it {both} holds for them{', whichever is worse' if len(ways) > 1 else ''}"


def origin_of_radii(noise: Noise) -> str:
    """Return where the radii come from."""
    if noise.radii is None:
        return "the radii valid whatever the noise that fits the noise table"
    return "by the radii given"


def cut_note(problem: RepairProblem) -> Iterator[str]:
    """Yield that errors count alike where the base decides at another threshold than 0.5."""
    if abs(problem.table.reading.cut - 0.5) > HOLDS:
        yield "both kinds of error count alike in the repair, wherever the threshold of the base decisions lies"
