"""The section of an audit on the groups behind noisy ones: estimates, worst cases and breakdown points."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from fairfix.auditing.comparisons import Comparison
from fairfix.data.choices import Level
from fairfix.report.layout import GROUP_METRICS, Columns, Section, TextTable, between, show
from fairfix.schema.audit import CurvePoint, Membership, NoiseFigure, NoiseResults

_COMPARISONS = (
    *("selection_rate.difference", "selection_rate.ratio", "true_positive_rate.difference"),
    *("false_positive_rate.difference", "equalized_odds.difference", "accuracy.difference"),
    "positive_predictive_value.difference",
)
TITLES = {name: Comparison.parse(name).title for name in (*GROUP_METRICS, *_COMPARISONS)}
"""Figures of true groups that the short report shows, with their titles."""

OUTNUMBERED = {"true_positive_rate": "y = 0", "false_positive_rate": "y = 1"}
"""Rates that noise may leave open, and the rows that then outnumber those of the rate."""

TABLE_WORDS = {
    "count": "{rows:,} rows counted",
    "joint": "joint probabilities",
    "true-given-noisy": "P(true | noisy)",
    "noisy-given-true": "P(noisy | true)",
}

BREAKDOWN: Columns = {
    "check": "check",
    "certainly met up to eps": lambda one: _up_to(one.holds_up_to, "not certain at any"),
    "certainly exceeded up to eps": lambda one: _up_to(one.fails_up_to, "not certain at any"),
}


def true_groups(noise: NoiseResults, *, detail: bool) -> Section:
    """Return the section: figures, what outcome-dependent noise does to them, and breakdown points of the limits."""
    figures = [("", figure) for figure in noise.comparisons if detail or figure.name in TITLES]
    figures += [(group.group, figure) for group in noise.groups for figure in group.figures]
    title = f"True groups behind {noise.attribute}"
    if noise.membership is not None:
        title = "True groups by membership probabilities"
    grids = [TextTable.of({**OF, **_estimates(noise, figures)}, figures, 2, title)]
    curves = [(group, figure) for group, figure in figures if figure.curve and (detail or not group)]
    if curves:
        caption = "If noise depends on outcomes by at most eps (N3)"
        grids.append(TextTable.of({**OF, **_curve(curves[0][1].curve)}, curves, 2, caption))
    if noise.breakdown:
        grids.append(TextTable.of(BREAKDOWN, noise.breakdown, 1, "Breakdown points of the limits"))
    return Section(title, tuple(_facts(noise)), tuple(grids), "true groups", noise)


OF: Columns = {
    "metric": lambda row: TITLES.get(row[1].name, row[1].name),
    "true group": lambda row: row[0] or "all",
}


Row = tuple[str, NoiseFigure]
"""A true group, empty for a comparison, and a number of it."""


def _estimates(noise: NoiseResults, figures: Sequence[Row]) -> Columns:
    """Return the columns of estimates and worst cases; without recorded groups, no number depends on them."""

    def worst_case(level: Level) -> Callable[[Row], str]:
        def cell(row: Row) -> str:
            bound = row[1].bounds.get(level)
            return between(bound.low, bound.high) if bound else "–"

        return cell

    def with_sampling(row: Row) -> str:
        bound = row[1].bounds.get(noise.rests_on)
        return between(bound.outer_low, bound.outer_high) if bound else "–"

    def identified(row: Row) -> str:
        error = row[1].standard_error
        return show(row[1].identified) + ("" if error is None else f" ({show(error, 3)})")

    weighted: Callable[[Row], str] = lambda row: show(row[1].weighted)  # noqa: E731  as the others of the table
    columns: dict[str, Callable[[Row], str]] = {
        "recorded": lambda row: show(row[1].recorded),
        "weighted": weighted,
        "N4 (se)": identified,
        "naive": lambda row: between(*row[1].naive) if row[1].naive is not None else "–",
    }
    if noise.membership is not None:
        columns = {"weighted": weighted}
    elif "N4" not in noise.assumptions:
        del columns["N4 (se)"]
    levels = sorted({level for _, figure in figures for level in figure.bounds if level != "N4"})
    columns |= {f"worst case {level}": worst_case(level) for level in levels}
    return {**columns, f"{noise.rests_on} with sampling error": with_sampling}


def _curve(points: Sequence[CurvePoint]) -> Columns:
    """Return a column per eps, and up to which the sign of a gap is certain."""

    def at(i: int) -> Callable[[Row], str]:
        return lambda row: between(row[1].curve[i].low, row[1].curve[i].high, "refuted")

    def certain(row: Row) -> str:
        is_gap = Comparison.parse(row[1].name).kind == "difference"
        return _up_to(row[1].certain_up_to, "never") if is_gap else ""

    columns = {f"eps {point.eps:g}": at(i) for i, point in enumerate(points)}
    return {**columns, "a gap is certain up to eps": certain}


def _up_to(eps: float | None, never: str) -> str:
    return never if eps is None else "1 (whatever the noise)" if eps >= 1 else show(eps)


def _facts(noise: NoiseResults) -> Iterator[str]:
    rests = noise.rests_on
    yield f"checks assume {rests}: {noise.assumptions[rests]}"
    yield from (f"{name}: {text}" for name, text in noise.assumptions.items() if name != rests)
    missing: dict[str, list[str]] = {}
    for level, reason in noise.unavailable.items():
        missing.setdefault(reason, []).append(level)
    yield from (f"{' and '.join(levels)} not available: {reason}" for reason, levels in missing.items())
    if noise.membership is not None:
        yield from _membership_facts(noise, noise.membership)
    else:
        yield from _table_facts(noise)
    drawn = noise.resampling
    if drawn.replicates:
        yield f"sampling error by {drawn.replicates:,} draws (seed {drawn.seed}), for each number alone"
    else:
        yield "sampling error by confidence limits for means, for each number alone"
    yield from noise.notes


def _table_facts(noise: NoiseResults) -> Iterator[str]:
    table = noise.table
    if table.form:
        kind = TABLE_WORDS[table.form].format(rows=table.rows or 0)
        yield f"noise from {noise.source}: {kind}{', by label' if table.by_label else ''}"
    if table.shift is not None:
        yield f"recorded groups of table and data: total variation {show(table.shift)}; {_carried(table.kept)}"
    elif table.form:
        yield _carried(table.kept)
    if table.transport_difference and table.kept != "either":
        (other,) = {"true-given-noisy", "noisy-given-true"} - {table.kept}
        by = "N2" if table.by_label else "N1"
        yield f"with {TABLE_WORDS[other]} carried over instead, {by} would give: " + "; ".join(
            f"{TITLES[f.name]} {between(*f.other_transport)}"
            for f in noise.comparisons
            if f.name in TITLES and f.other_transport is not None
        )
    if noise.radii:
        yield "radii of N0: " + ", ".join(
            f"{r.group}{'' if r.near == r.group else ' near ' + r.near} {show(r.radius)}" for r in noise.radii
        )
    yield from _vacuous(noise, "the table without labels gives no bound", "recorded group")
    yield (
        "recorded: of the recorded groups; weighted: each row counted by its probability to be in the true "
        "group; naive: recorded plus or minus the fraction recorded wrongly, which is not a bound"
    )


def _carried(kept: str) -> str:
    """Return in words what of a noise table holds for the data."""
    if kept == "either":
        return "carried over with P(true | noisy) or with P(noisy | true) unchanged, whichever is worse"
    return f"carried over with {TABLE_WORDS[kept]} unchanged"


def _membership_facts(noise: NoiseResults, membership: Membership) -> Iterator[str]:
    yield "membership probabilities: " + ", ".join(
        (group.group if group.group == group.column else f"{group.group} in {group.column}")
        + f" ({group.share:.1%} of the data)"
        for group in membership.groups
    )
    yield from _vacuous(noise, "the probabilities give no bound", "bin")
    yield (
        "weighted: each row counted in each group by its probability, which is the rate if N4 holds; worst case: among "
        "rows with the same probabilities, any row can belong to any group"
    )


def _vacuous(noise: NoiseResults, nothing: str, part: str) -> Iterator[str]:
    """Yield which rates the noise leaves open, and why."""
    for item in noise.vacuous:
        name, other = TITLES[item.metric], OUTNUMBERED[item.metric]
        yield (
            f"{nothing} on the {name} of {item.group}, whatever the decisions are: in every {part} there are at "
            f"least as many rows with {other} as rows of {item.group}"
        )
