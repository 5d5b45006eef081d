"""The sections of a comparison of methods: settings, and a table for each gap."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby
from operator import attrgetter

from fairfix.auditing.metrics import METRICS
from fairfix.auditing.results import in_percent
from fairfix.report.layout import (
    Columns,
    Command,
    Interval,
    Section,
    TextTable,
    data_lines,
    interval,
    left_out_columns,
    message_lines,
    pairs,
    points,
    shortly,
    show,
    signed,
    titled,
    titled_gap,
    with_ends,
)
from fairfix.schema.common import NOTHING, Estimate
from fairfix.schema.compare import Axes, Compare, GapName, Point

LEADING = (
    "selection_rate.difference.between_groups",
    "ks.to_overall",
    "true_positive_rate.difference.between_groups",
)
"""Gaps that the report opens with, the first that there is of an attribute."""

MAIN = ("accuracy", "square_loss")
"""The quality by which a candidate is chosen: the first that there is. It stands next to a gap; others are folded."""


def sections(result: Compare, *, detail: bool) -> Iterator[Section]:
    """Yield the sections of a comparison."""
    opening = (*message_lines(result.messages), *answer(result))
    yield Section(f"fairfix comparison on {result.data.source}", opening, kind="answer")
    points = [point for point in result.points if not point.failure]
    qualities = dict.fromkeys(name for point in points for name in point.qualities)
    main = _main(result, qualities)
    gaps = dict.fromkeys(one.gap for point in points for one in point.gaps)
    leading = _leading(result)
    for gap in sorted(gaps, key=lambda one: one not in leading):
        yield _of_gap(
            result,
            gap,
            [point for point in points if gap in point.by_gap],
            main,
            detail=detail,
            leads=gap in leading,
        )
    failures = [(point, point.failure) for point in result.points if point.failure]
    notes = [(point, note) for point in points for note in message_lines(point.messages)]
    lines = [f"{named(point)}: {text}" for point, text in (*failures, *(notes if detail else ()))]
    if notes and not detail:
        lines.append(f"{len(notes)} note{'s' * (len(notes) > 1)} on single fits (shown with --detail)")
    if lines:
        yield Section("Notes", tuple(dict.fromkeys(lines)), kind="notes")
    yield from left_out_columns(result.features)
    yield Section("Data and settings", tuple(_compare_facts(result, detail=detail)), kind="facts")
    commands = [(named(point), point.command) for point in _advised(result, leading) if point.command]
    if commands:
        steps = (line for name, command in commands for line in (f"To fit {name}:", Command(command)))
        yield Section("Next step", tuple(steps), kind="next")


def _of_gap(
    result: Compare, gap: GapName, points: Sequence[Point], main: str | None, *, detail: bool, leads: bool
) -> Section:
    """Return the frontier of a gap and the main quality; all points and qualities with detail, folded on a page.

    What the report opens with, the advice for a gap that ``leads``, is not said again.
    """
    shown = points
    if main:
        axes = Axes(gap=gap, quality=main)
        named_above = _advised(result, [gap])
        shown = [
            point
            for point in points
            if point.title == ORIGINAL or axes in point.front or point in named_above
        ]
    ordered = sorted(shown, key=lambda point: point.by_gap[gap].value or 0.0)
    columns: dict[str, str | Callable[[Point], str]] = {
        "method": "title",
        "allowed gap": slack_of,
        "gap, points": lambda point: shortly(point.by_gap[gap]),
    }
    if main:
        percent = METRICS[main].percent
        write = shortly if percent else interval
        columns[f"{METRICS[main].title}, %" if percent else main] = lambda point: write(
            point.qualities.get(main, NOTHING)
        )
    columns |= {
        "randomized": lambda point: f"{100 * (point.randomized or 0.0):.1f}%",
        "uses group": lambda point: "yes" if point.protected_at_predict else "no",
    }
    selected: Columns = {"selected, %": _selected, "by group, %": _by_group(gap.attribute)}
    columns |= selected if any(point.selection_rate is not None for point in ordered) else {}
    columns |= _WARNED if any(map(_codes, ordered)) else {}
    grids = [TextTable.of(columns, ordered, 2, f"Frontier of {titled_gap(gap)}")]
    lines = [] if leads else list(advised(result, gap))
    if left := len(points) - len(shown):
        lines.append(
            f"{left} dominated {'candidate' if left == 1 else 'candidates'} hidden"
            + ("" if detail else " (--detail shows them)")
        )
    if detail:
        qualities = dict.fromkeys(name for point in points for name in point.qualities)
        every: Columns = {
            "method": "title",
            "allowed gap": slack_of,
            "gap": lambda point: interval(point.by_gap[gap]),
            **{name: _quality_of(Axes(gap=gap, quality=name)) for name in qualities},
        }
        every = {**every, **selected} if any(point.selection_rate is not None for point in points) else every
        every = {**every, **_WARNED} if any(map(_codes, points)) else every
        grids.append(
            replace(TextTable.of(every, points, 2, f"All candidates: {titled_gap(gap)}"), folded=True)
        )
    return Section(titled_gap(gap), tuple(lines), tuple(grids), "gap" if leads else "other gap")


# ---------------------------------------------------------------------- advice


def answer(result: Compare) -> Iterator[str]:
    """Yield the advice for the leading gap of every attribute, and what it rests on."""
    leading = _leading(result)
    main = _main(result, dict.fromkeys(one.quality for one in result.advice)) or MAIN[0]
    base: Point | None = next((one for one in result.points if one.title == ORIGINAL), None)
    lines = [
        line
        for gap in leading
        for line in (*(() if base is None else (_as_is(base, gap, main),)), *advised(result, gap))
    ]
    lines += _of_advised(result, leading)
    if lines and base is None:
        yield "There is no original model to compare with, so changes are not shown."
    yield from lines
    if lines and any(one.metric == main for one in result.own_metrics):
        yield (
            "This cost ranks the candidates. The method ramp minimizes it, as far as the scores are calibrated, with "
            "`threshold` at the probability fp / (fp + fn)."
        )
    if lines:
        many = sum(not point.failure for point in result.points)
        confidence = in_percent(result.settings.confidence)
        one_gap = ", for the gap of one attribute" if len(leading) > 1 else ""
        rows = f"{result.split.holdout:,}"
        yield (
            f"Candidates are chosen and evaluated on the same {rows} held-out rows, so expect somewhat worse results "
            f"on new data. The intervals above allow for that: they hold for all {many} candidates at once{one_gap} "
            f"({confidence})."
        )


def _leading(result: Compare) -> list[GapName]:
    """Return the gaps that the report opens with, one of every attribute."""
    of: dict[str, dict[str, GapName]] = {}
    for one in result.advice:
        of.setdefault(one.gap.attribute, {}).setdefault(one.gap.comparison, one.gap)
    return [next(gaps[name] for name in (*LEADING, *gaps) if name in gaps) for gaps in of.values()]


def _main(result: Compare, qualities: Iterable[str]) -> str | None:
    """Return the quality next to a gap: the requested one, or the first of :data:`MAIN` that there is."""
    return next((name for name in (quality_of(result), *MAIN) if name in qualities), None)


def _as_is(base: Point, gap: GapName, main: str) -> str:
    """Return the gap and the quality of the model as it is."""
    title = f"By {gap.attribute}, the {titled(gap.comparison)} of the original model"
    value = base.by_gap.get(gap, NOTHING)
    if value.value is None:
        return f"{title} is undefined on held-out rows."
    quality, metric, also = base.qualities.get(main, NOTHING), METRICS[main], ""
    if quality.value is not None:
        number = f"{100 * quality.value:.1f}%" if metric.percent else show(quality.value)
        also = f", with {'an' if main[0] == 'a' else 'a'} {metric.title} of {number}"
    return f"{title} is {with_ends(value, points)} on held-out rows{also}."


def advised(result: Compare, gap: GapName) -> Iterator[str]:
    """Yield which point to take for a gap of at most each limit; a point that is taken for several stands once."""
    runs = groupby((one for one in result.advice if one.gap == gap), key=attrgetter("point"))
    for place, run in runs:
        several = list(run)
        one = several[-1 if place is None else 0]
        begin = f"For a gap of at most {_points(one.at_most)}"
        title_of = METRICS[one.quality].title
        refused = None if one.refused is None else result.points[one.refused]
        if place is None:
            if refused is None:
                yield f"{begin}: none of the methods tried reaches it on held-out rows."
                continue
            yield (
                f"{begin}: no repair can be recommended. {named(refused)} has the best {title_of}, with warnings "
                f"({_codes(refused)})."
            )
            continue
        point = result.points[place]
        value, cost = next(own for own in point.surer if own.gap == gap), point.costs.get(one.quality)
        text = f"{begin}: {named(point)}. Its gap is {with_ends(value, points)}"
        shown = value.high is not None and value.high <= one.at_most
        if not shown:
            text += ", so on new data it may exceed that limit"
        if point.title == ORIGINAL and shown:
            text += "; no repair is needed"
        elif point.title == ORIGINAL:
            which = "" if refused is None else " that can be recommended"
            text += f"; no repair within that gap{which} has a better {title_of} on these rows"
        elif cost is not None and cost.value is not None:
            written = (
                with_ends(cost, partial(points, sign=True)) if METRICS[one.quality].percent else signed(cost)
            )
            text += f"; {title_of} changes by {written}"
        text += "; it uses the protected attribute." if point.protected_at_predict else "."
        if refused is not None:
            text += f" {named(refused)} has a better {title_of}, with warnings ({_codes(refused)})."
        yield text


def _of_advised(result: Compare, gaps: Sequence[GapName]) -> Iterator[str]:
    """Yield the warnings of recommended candidates, each text once: it may have numbers of its candidate."""
    warned: dict[tuple[str, str], list[str]] = {}
    for point in _advised(result, gaps):
        for one in point.messages:
            if one.severity == "warning":
                warned.setdefault((one.code, one.text), []).append(named(point))
    for (code, text), names in warned.items():
        yield f"Warning for {'; '.join(dict.fromkeys(names))}: {text} [{code}]"


def _advised(result: Compare, gaps: Sequence[GapName]) -> list[Point]:
    """Return the candidates that are recommended for some gaps, in order."""
    places = dict.fromkeys(one.point for one in result.advice if one.gap in gaps)
    return [result.points[place] for place in places if place is not None]


def _codes(point: Point) -> str:
    """Return the codes of the warnings of a point."""
    codes = (one.code for one in point.messages if one.severity == "warning")
    return ", ".join(dict.fromkeys(codes))


_WARNED: Columns = {"warnings": _codes}


def _selected(point: Point) -> str:
    """Return the selection rate before and after, where that is another one."""
    rates = point.selection_rate
    before, after = (None, None) if rates is None else (rates.before.value, rates.after.value)
    return "–" if before is None or after is None else f"{100 * before:.1f} → {100 * after:.1f}"


def _by_group(attribute: str) -> Callable[[Point], str]:
    """Return the cell of the least and the greatest selection rate of a group, before and after."""

    def cell(point: Point) -> str:
        groups = next((one.groups for one in point.people if one.attribute == attribute), ())
        rates = [group.metrics["selection_rate"] for group in groups if "selection_rate" in group.metrics]

        def span(numbers: Iterable[Estimate]) -> str:
            percents = [100 * one.value for one in numbers if one.value is not None]
            return f"{min(percents):.0f} to {max(percents):.0f}" if percents else "–"

        both = span(rate.before for rate in rates), span(rate.after for rate in rates)
        return " → ".join(both) if rates else "–"

    return cell


def named(point: Point) -> str:
    """Return how a point is called: its method and slack."""
    return point.title + (f" with an allowed gap of {point.slack}" if point.slack is not None else "")


def _points(number: float) -> str:
    return f"{100 * number:.4g} point{'' if number == 0.01 else 's'}"


ORIGINAL = "original model"
"""Title of the candidate that leaves the model as it is."""


def _compare_facts(result: Compare, *, detail: bool) -> Iterator[str]:
    split, settings = result.split, result.settings
    yield from data_lines(
        result, f": {split.fit:,} to fit, {split.holdout:,} held out (seed {settings.seed})"
    )
    marks = "; * marks candidates that no other beats in both gap and quality" if detail else ""
    yield f"all numbers are measured on held-out rows{marks}"
    for contender in result.contenders:
        yield f"{contender.title}: {pairs(contender.parameters)}"
    noise = settings.noise
    if noise:
        yield (
            f"worst cases of true groups cover all noise that fits {noise.table} ({noise.assumption}); all other "
            "numbers are by recorded group"
        )


def quality_of(result: Compare) -> str:
    """Return the requested quality of a comparison, or an empty text."""
    return (result.settings.quality or "").partition("(")[0].strip()


def slack_of(point: Point) -> str:
    """Return the slack of a point of a comparison; a model as it is has none."""
    return "" if point.slack is None else str(point.slack)


def _quality_of(axes: Axes) -> Callable[[Point], str]:
    """Return the cell of a quality, with a star where the point is on the frontier."""

    def cell(point: Point) -> str:
        mark = "*" if axes in point.front else ""
        quality = point.qualities.get(axes.quality)
        return "" if quality is None else Interval(interval(quality) + mark)

    return cell
