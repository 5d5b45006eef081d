"""The pictures of the HTML page, made from the JSON form: each has a sentence and a table of its numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from fairfix.auditing.comparisons import Comparison
from fairfix.auditing.metrics import EQUALIZED_ODDS, METRICS
from fairfix.report import svg
from fairfix.report.answer import limit_in_words
from fairfix.report.audits import GROUP, group_metrics, shown_groups, to_reference, worst_first
from fairfix.report.classes import by_gap, gap_id, gap_metrics, gap_of
from fairfix.report.gap_parts import rows as rows_of_gap
from fairfix.report.gap_parts import title as title_of_gap
from fairfix.report.history import title_of
from fairfix.report.layout import (
    GROUP_METRICS,
    Columns,
    TextTable,
    between,
    interval,
    show,
    titled,
)
from fairfix.report.svg import CURVES, Curve, Dot, Drawing, GapMark
from fairfix.report.trends import heading_of, named_moments
from fairfix.report.true_groups import TITLES
from fairfix.schema.audit import Audit, ExplainedGap, NoiseFigure, NoiseResults, StateBatches
from fairfix.schema.common import Block, Distribution, Estimate, Group, Number
from fairfix.schema.repair import Evaluation, EvaluationRow
from fairfix.schema.slices import SliceSearch
from fairfix.schema.trend import Line, Trend

MOST_ROWS = 30
"""Rows of a picture of dots; its table has all, or many more."""

MOST_GROUPS = 12
"""Groups in each picture of a rate."""

FEW_ROWS = 10
"""A calibration bin with fewer rows of a group is left to the table."""

DRAWN = (
    *("selection_rate.difference", "selection_rate.ratio"),
    *("true_positive_rate.difference", "equalized_odds.difference"),
)
"""Comparisons of true groups that have a picture."""

LAST = 26
"""Number of last batches in the picture of a gap."""

HINTS = {"gaps": "gaps, smaller is better", "ratios": "ratios, nearer to 1 is better", "rates": "rates"}
"""Rows of a proof that share an axis, in words."""


@dataclass(frozen=True)
class Figure:
    """A picture, what it shows in words, and the table of its numbers."""

    heading: str
    drawing: Drawing
    description: str
    grid: TextTable | None = None
    """Table of its numbers, if it is not among those of its part."""
    captioned: bool = False
    """Whether the description is also printed next to the picture."""


@dataclass(frozen=True)
class FigurePart:
    """A piece of a section of the page: its title, sentences, tables and figures."""

    title: str = ""
    text: tuple[str, ...] = ()
    grids: tuple[TextTable, ...] = ()
    figures: tuple[Figure, ...] = ()
    folded: bool = False
    """Whether a page shows it only on request."""
    size: str = "narrow"
    """Width of the figures: ``narrow`` and ``large`` ones are side by side, ``wide`` ones alone."""


def _dot(name: str, value: Number, text: str = "") -> Dot:
    return Dot(name, value.value, value.low, value.high, text or interval(value))


def _ends(drawn: Iterable[Dot]) -> list[float | None]:
    return [end for dot in drawn for end in (dot.value, dot.low, dot.high)]


NUMBERS = ("value", "low", "high", "note")


def _numbers(value: Number) -> tuple[str, ...]:
    """Return the cells of a value: the number, its ends, and what is to be noted."""
    return show(value.value), show(value.low), show(value.high), value.reason


def attribute(block: Block, result: Audit, drawn: Sequence[TextTable] = ()) -> Iterator[FigurePart]:
    """Yield the pictures of an attribute and the tables of its groups: rates, score distributions, calibration.

    The tables leave out those of ``drawn``, which its section has, but for the first: that one has no intervals.
    """
    groups, name = block.groups, block.attribute
    ordered, which = worst_first(block, result)
    shown = [group for group in groups if group in ordered[:MOST_GROUPS]]
    drawable = [
        (metric, _rate(block, shown, result, metric, title))
        for metric, title in group_metrics(result)
        if any(group.value(metric) is not None for group in shown)
    ]
    rates = tuple(figure for metric, figure in drawable if METRICS[metric].percent and len(groups) > 1)
    few = f"Charts show {len(shown)} of {len(groups)} groups: {which}. The tables have all."
    text = "Worst-off group first. The grey dashed line is the value of all rows."
    if any(_limit_in(block, metric, result) for metric, _ in drawable):
        text += (
            " The red one is a limit: groups beyond it are further from the best group than the limit allows."
        )
    if rates:
        yield FigurePart(text=(text, *((few,) if len(shown) < len(groups) else ())), figures=rates)
    names = _with_curves(block, ordered)
    curves = [_distribution(block, block.distribution, result, names, which)] if block.distribution else []
    if any(group.calibration for group in groups):
        curves.append(_calibration(block, names))
    if curves:
        yield FigurePart(figures=tuple(curves), size="large")
    rest = tuple(figure for _, figure in drawable if figure not in rates)
    tables = (*_with_intervals(block, result, drawn), _decisions(block))
    tables += tuple(one for one in to_reference(block, result) if one not in drawn)
    yield FigurePart(f"Groups of {name}, with intervals", (), tables, rest, folded=True)


SIDE_BY_SIDE = 5
"""Metrics in a table of groups with intervals: as many as fit on a sheet of paper."""


def _with_intervals(block: Block, result: Audit, drawn: Sequence[TextTable]) -> Iterator[TextTable]:
    """Yield the metrics of all groups with their intervals, some in each table."""
    shown = {heading for grid in drawn[:1] for heading in grid.headings}
    metrics = [
        (name, title) for name, title in group_metrics(result, detail=True) if title in shown or not shown
    ]
    for i in range(0, len(metrics), SIDE_BY_SIDE):
        columns: Columns = {
            **GROUP,
            **{title: _cell_of(name) for name, title in metrics[i : i + SIDE_BY_SIDE]},
        }
        everybody = replace(result.overall, group="overall")
        groups = [*shown_groups(block, result)[0], everybody]
        yield TextTable.of(columns, groups, 1, f"Groups of {block.attribute}")


def _cell_of(metric: str) -> Callable[[Group], str]:
    return lambda group: interval(group.metrics[metric])


def _percent(value: Number) -> str:
    return "undefined" if value.value is None else f"{100 * value.value:.1f}%"


def _limit_in(block: Block, metric: str, result: Audit) -> tuple[float, str] | None:
    """Return where a limit of the gap between groups lies: that far from the highest group, or from the lowest."""
    metrics = (metric, "equalized_odds") if metric in EQUALIZED_ODDS else (metric,)
    for check in result.checks:
        of = Comparison.of(check)
        here = check.attribute == block.attribute and check.of == "value"
        if not here or of.metric not in metrics or of.scope != "between_groups":
            continue
        rates = [group.metrics[metric].value for group in block.groups]
        low, high = (end((r for r in rates if r is not None), default=0.0) for end in (min, max))
        best = low if METRICS[metric].better == "smaller" else high
        if of.kind == "difference":
            place = best + check.limit if best == low else best - check.limit
            return (place, f"limit {limit_in_words(check)}") if 0 <= place <= 1 else None
        if of.kind == "ratio" and check.limit > 0:
            place = best / check.limit if best == low else best * check.limit
            return (place, f"limit ratio {check.limit:g}") if 0 <= place <= 1 else None
    return None


def _rate(block: Block, groups: Sequence[Group], result: Audit, metric: str, title: str) -> Figure:
    """Return a metric of every group with its interval, the worst-off group first, and a limit of its gap."""
    of, whole = METRICS[metric], result.overall.metrics[metric]
    write = _percent if of.percent else interval
    rows = [_dot(group.group, group.metrics[metric], write(group.metrics[metric])) for group in groups]
    plain = "" if whole.value is None else _percent(whole) if of.percent else show(whole.value)
    everybody, mark = _dot("overall", whole, plain), _limit_in(block, metric, result)
    sign = -1 if of.better == "smaller" else 1
    rows.sort(key=lambda row: math.inf if row.value is None else sign * row.value)
    most = 1.0 if of.scale == "share" else None
    span = svg.span_of(
        [*_ends([*rows, everybody]), *(mark[:1] if mark else ())], zero=of.scale != "data", most=most
    )
    heading = f"{title} by {block.attribute}"
    described = ", ".join(f"{row.name} {row.text}" for row in rows)
    return Figure(heading, svg.dots(rows, span, everybody, mark), f"{described}; overall {everybody.text}.")


def _decisions(block: Block) -> TextTable:
    """Return the table of decisions: how many of each group are selected, against the highest rate and all."""
    groups = [group for group in block.groups if "selection_rate" in group.metrics]
    highest = max((group.metrics["selection_rate"].value or 0.0 for group in groups), default=0.0)
    to_overall = block.by_id.get("selection_rate.difference.to_overall")
    apart = to_overall.per_group if to_overall is not None else {}
    weighted = " (weighted)" if any(abs(group.weight - group.rows) > 1e-9 for group in groups) else ""

    def many(metric: str) -> Callable[[Group], str]:
        """Return the cell of the number of rows a rate stands for, which is a weight where rows have weights."""

        def cell(group: Group) -> str:
            value = group.value(metric)
            return "" if value is None else f"{value * group.weight:,.0f}"

        return cell

    def to_highest(group: Group) -> str:
        return show((group.metrics["selection_rate"].value or 0.0) / highest if highest else None)

    columns: dict[str, Callable[[Group], str]] = {
        **GROUP,
        f"y = 1{weighted}": many("base_rate"),
        f"selected{weighted}": many("selection_rate"),
        "selection rate": lambda group: interval(group.metrics["selection_rate"]),
        "divided by the highest": to_highest,
        "minus overall": lambda g: interval(apart[g.group]) if g.group in apart else "",
    }
    filled = {heading: cell for heading, cell in columns.items() if any(map(cell, groups))}
    return TextTable.of(filled, groups, 1, f"Decisions by {block.attribute}")


def _with_curves(block: Block, worst: Sequence[Group]) -> list[str]:
    """Return the groups whose curves are drawn, in order: the two furthest apart, and those that are worst off."""
    gap = block.distribution.gap if block.distribution is not None else None
    furthest = gap.groups if gap is not None else ()
    wanted = list(dict.fromkeys((*furthest, *(group.group for group in worst))))[:CURVES]
    return [group.group for group in block.groups if group.group in wanted]


def _distribution(
    block: Block, shares: Distribution, result: Audit, names: Sequence[str], which: str
) -> Figure:
    """Return the distribution functions of the scores of some groups, with the KS distance marked.

    ``which``: the groups besides the two furthest apart, in words.
    """
    scores, gap = shares.scores, shares.gap
    below = {one.group: one.below for one in shares.groups}
    curves = [Curve("overall", tuple(zip(scores, shares.everybody, strict=True)), quiet=True)]
    curves += [Curve(name, tuple(zip(scores, below[name], strict=True))) for name in names]
    text = "Fraction of each group with a score below the one on the horizontal axis"
    if len(names) < len(below):
        text += f", for {len(names)} of {len(below)} groups: the two furthest apart, {which}"
    text, mark = f"{text}.", None
    if gap:
        a, b = gap.shares
        largest = block.by_id.get("ks.between_groups")
        about = f" ±{largest.bound:.1g}" if largest is not None and largest.bound else ""
        where = "below" if about else "at or below"
        text += (
            f" {gap.groups[0]} and {gap.groups[1]} are furthest apart at score {show(gap.score)}, with "
            f"{a:.1%} and {b:.1%} of them {where} it: a KS distance of {abs(a - b):.4f}{about}, the thick "
            "vertical line."
        )
        mark = GapMark(gap.score, min(a, b), max(a, b), f"KS {abs(a - b):.3f}{about}")
    columns = [scores, shares.everybody, *(below[name] for name in names)]
    near = min(range(len(scores)), key=lambda i: abs(scores[i] - gap.score)) if gap else 0
    every = zip(range(len(scores)), zip(*columns, strict=True), strict=True)
    rows = tuple(tuple(map(show, row)) for i, row in every if i % FIFTH == 0 or i in (near, len(scores) - 1))
    title = f"Score distributions by {block.attribute}"
    grid = TextTable(("score", "overall", *names), rows, 0, "Fraction below the score")
    threshold = result.settings.threshold
    cut = None if threshold is None else (threshold, f"decision threshold {threshold:g}")
    if cut:
        text += " The dashed vertical line is the decision threshold."
    drawing = svg.lines(curves, ("score", "fraction below"), _middle(scores), mark, cut)
    return Figure(title, drawing, text, grid, captioned=True)


FIFTH = 5
"""Every how many scores of a distribution are in its table; the JSON form has all."""


def _middle(scores: Sequence[float]) -> tuple[float, float]:
    """Return the range of scores to draw: all, unless a few at the ends would press the others together."""
    low, high = scores[0], scores[-1]
    if len(scores) > 10 and high - low > 4 * (scores[-3] - scores[2]) > 0:
        low, high = scores[2], scores[-3]
    return (low, high) if high > low else (low - 0.5, low + 0.5)


CALIBRATION: Columns = {
    "group": lambda row: row[0],
    "score": lambda row: f"{show(row[1].start)} to {show(row[1].end)}",
    "rows": lambda row: f"{row[1].rows:,}" if row[1].rows is not None else "",
    "mean score": lambda row: show(row[1].mean_score),
    "rate of y = 1": lambda row: show(row[1].rate),
}


def _calibration(block: Block, names: Sequence[str]) -> Figure:
    """Return the rate of positives against the mean score, per score bin and group."""
    groups = [group for group in block.groups if group.group in names and group.calibration]
    curves = [Curve("calibrated", ((0.0, 0.0), (1.0, 1.0)), quiet=True, marks=True)]
    for group in groups:
        points = (
            (one.mean_score, one.rate)
            for one in group.calibration
            if one.rows is None or one.rows >= FEW_ROWS
        )
        placed = tuple((x, y) for x, y in points if x is not None and y is not None)
        curves.append(Curve(group.group, placed, marks=True))
    text = (
        "Rate of y = 1 against the mean score, per score bin and group; a perfectly calibrated group lies on the "
        "dashed "
        f"diagonal. Bins with fewer than {FEW_ROWS} rows of a group are in the table only."
    )
    bins = [(group.group, one) for group in groups for one in group.calibration]
    title, axes = f"Calibration by {block.attribute}", ("mean score", "rate of y = 1")
    grid = TextTable.of(CALIBRATION, bins, 2, title)
    return Figure(title, svg.lines(curves, axes, (0.0, 1.0)), text, grid, captioned=True)


def true_gaps(noise: NoiseResults) -> Iterator[FigurePart]:
    """Yield the gaps of true groups: as recorded, weighted, and the range of each worst case, on one axis."""
    figures = []
    for comparison in noise.comparisons:
        rows = _estimates(comparison, noise.rests_on)
        if comparison.name not in DRAWN or not rows:
            continue
        figures.append(_gaps(f"{TITLES[comparison.name]}, true groups", "figure", rows))
    if figures:
        text = (
            "A dot is an estimate, a line all values that the gap can have: the wider the line, the less is "
            "known. The weighted estimate alone is not a bound."
        )
        yield FigurePart("Gaps of the true groups, side by side", (text,), figures=tuple(figures))


def _gaps(heading: str, of: str, rows: Sequence[Dot]) -> Figure:
    """Return gaps on one axis, and the table of them with what they are of."""
    description = f"{heading}: " + "; ".join(f"{row.name} {row.text}" for row in rows) + "."
    table = tuple((row.name, *map(show, (row.value, row.low, row.high))) for row in rows)
    drawing = svg.dots(rows, svg.span_of(_ends(rows), zero=True, most=1.0))
    return Figure(heading, drawing, description, TextTable((of, *NUMBERS[:3]), table, 1, heading))


def class_gaps(block: Block, result: Audit) -> Iterator[FigurePart]:
    """Yield the gaps of all classes by an attribute, the largest first, on one axis for each metric."""
    figures = []
    for metric in gap_metrics(result):
        ordered = by_gap(result, block.attribute, metric)[:MOST_ROWS]
        rows = [_dot(one.of_class, gap_of(one, block.attribute, metric)) for one in ordered]
        heading = f"{titled(gap_id(metric))} by {block.attribute}, each class against the rest"
        figures.append(_gaps(heading, "class", rows))
    if figures:
        yield FigurePart(f"Gaps of classes by {block.attribute}, chart", figures=tuple(figures))


def _estimates(comparison: NoiseFigure, rests_on: str) -> list[Dot]:
    """Return the estimates of a comparison of true groups, from the plainest to the surest."""
    single = (
        ("as recorded", comparison.recorded),
        ("weighted", comparison.weighted),
        ("N4", comparison.identified),
    )
    rows = [Dot(name, value, None, None, show(value)) for name, value in single if value is not None]
    bounds = sorted(comparison.bounds.items())
    ranges = [(f"worst case {level}", b.low, b.high) for level, b in bounds if level != "N4"]
    ranges += [
        (f"worst case {level}, with sampling error", b.outer_low, b.outer_high)
        for level, b in bounds
        if level == rests_on
    ]
    spans = (one for one in ranges if one[1] is not None)
    return rows + [Dot(name, None, low, high, between(low, high), bound=True) for name, low, high in spans]


def before_after(proof: Evaluation, title: str) -> Iterator[FigurePart]:
    """Yield pictures of a proof: gaps, ratios, rates, and each loss on a scale of its own."""
    axes: dict[str, list[EvaluationRow]] = {}
    for row in proof.table:
        if row.unlike:
            continue
        axes.setdefault(_axis(row), []).append(row)
    figures = []
    for name, rows in axes.items():
        heading = f"{title}: {HINTS.get(name) or titled(name)}"
        both = tuple(
            (titled(row.id, row.attribute), when, *_numbers(value))
            for row in rows
            for when, value in (("before", row.before), ("after", row.after))
        )
        grid = TextTable(("metric", "when", *NUMBERS), both, 2, heading)
        drawn = {titled(row.id, row.attribute): (row.before, row.after) for row in rows}
        most = 1.0 if name in ("ratios", "rates") else None
        figures.append(pairs_of(heading, drawn, grid, zero=True, most=most))
    if figures:
        yield FigurePart(f"{title}: before and after, chart", figures=tuple(figures))


def pairs_of(
    heading: str,
    drawn: Mapping[str, tuple[Number, Number]],
    grid: TextTable,
    *,
    zero: bool,
    most: float | None,
) -> Figure:
    """Return numbers before and after, by name, on one axis."""
    rows = [(name, _dot("before", before), _dot("after", after)) for name, (before, after) in drawn.items()]
    span = svg.span_of(_ends(dot for _, *both in rows for dot in both), zero=zero, most=most)
    described = "; ".join(f"{name} before {before.text}, after {after.text}" for name, before, after in rows)
    return Figure(heading, svg.pairs(rows, span), f"{described}.", grid)


def _axis(row: EvaluationRow) -> str:
    """Return the axis that a row of a proof shares with others, or its own."""
    name = str(row.id)
    comparison = Comparison.parse(name)
    if comparison.kind == "ratio":
        return "ratios"
    if comparison.kind in ("difference", "covariance") or comparison.metric == "ks":
        small = all((value.value or 0) <= 1 for value in (row.before, row.after))
        return "gaps" if small else name
    rate = comparison.metric in GROUP_METRICS and comparison.entry.scale == "share"
    return "rates" if rate else name


def slices(search: SliceSearch) -> Iterator[FigurePart]:
    """Yield a picture of slices with their intervals and the overall value."""
    if not search.slices:
        return
    title = Comparison.parse(search.metric).entry.title
    heading = f"{'gap in ' if search.attribute else ''}{title} of slices"
    rows = [_dot(one.where, one) for one in search.slices]
    overall = _dot("overall", search.overall, show(search.overall.value))
    span = svg.span_of(_ends([*rows, overall]), zero=False)
    first = rows[0]
    description = f"{heading} with their intervals: {first.text} for {first.name}; overall {overall.text}."
    table = tuple((one.where, f"{one.rows:,}", *_numbers(one)) for one in search.slices)
    grid = TextTable(("slice", "rows", *NUMBERS), table, 1, heading)
    yield FigurePart(
        figures=(Figure(heading, svg.dots(rows, span, overall), description, grid, captioned=True),)
    )


def gap_parts(gap: ExplainedGap) -> Iterator[FigurePart]:
    """Yield a picture of the parts of a gap with their intervals."""
    parts = [(name, part) for name, part in rows_of_gap(gap) if isinstance(part, Estimate)]
    rows, heading = [_dot(name, part) for name, part in parts], title_of_gap(gap)
    span = svg.span_of(_ends(rows), zero=True)
    description = f"{heading} with their intervals: {rows[0].text} for {rows[0].name}, the largest."
    grid = TextTable(("column", *NUMBERS), tuple((name, *_numbers(part)) for name, part in parts), 1, heading)
    drawing = svg.dots(rows, span, Dot("no part", 0.0, None, None, ""))
    yield FigurePart(figures=(Figure(heading, drawing, description, grid, captioned=True),))


def history(state: StateBatches) -> Iterator[FigurePart]:
    """Yield a picture of each gap after the last batches, with always-valid intervals."""
    for trace in state.traces:
        names = [f"batch {i}, {batch.added[:10]}" for i, batch in enumerate(state.batches, 1)]
        heading = f"By {trace.attribute}: {title_of(trace)}, in the total so far"
        yield _over_time(heading, "after", names, trace.totals)


def trend(line: Line, result: Trend) -> FigurePart:
    """Return a picture of a number in the last audits, with the limit of its check."""
    names = [f"{i}, {name}" for i, name in enumerate(named_moments(result), 1)]
    mark = None if line.limit is None else (line.limit, f"limit {line.limit:g}")
    return _over_time(heading_of(line), "audit", names, line.series, mark)


def _over_time(
    heading: str,
    when: str,
    names: Sequence[str],
    each: Sequence[Number],
    mark: tuple[float, str] | None = None,
) -> FigurePart:
    """Return a picture of a number at the last points in time."""
    rows = [_dot(name, value) for name, value in zip(names, each, strict=True)][-LAST:]
    span = svg.span_of([*_ends(rows), *(mark[:1] if mark else ())], zero=True)
    description = f"{heading}, with its interval: {rows[-1].text} at the end."
    numbers = ((row.name, *_numbers(value)) for row, value in zip(rows, each[-LAST:], strict=True))
    grid = TextTable((when, *NUMBERS), tuple(numbers), 1, heading)
    return FigurePart(
        figures=(Figure(heading, svg.dots(rows, span, None, mark), description, grid, captioned=True),)
    )
