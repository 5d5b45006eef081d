"""Pictures of the pages below docs/benchmarks/ and docs/papers/, each drawn from the tables of its page.

``python benchmarks/pictures.py`` draws all anew, or those named; ``benchmarks/run.py`` draws those of pages it wrote.
Lines and points differ by marker as well as by colour.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MARKERS = "osD^vP*X<>ph"
STYLE = {"svg.hashsalt": "fairfix", "svg.fonttype": "none", "font.size": 8}
NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?")


@dataclass(frozen=True)
class Table:
    """A table of a page: the heading above it, its columns, and its rows as text."""

    heading: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]


def tables(text: str) -> Iterator[Table]:
    """Yield the Markdown tables of a page."""
    heading, lines = "", text.splitlines()
    for at, line in enumerate(lines):
        if line.startswith("#"):
            heading = line.lstrip("# ")
        elif re.fullmatch(r"\|(\s*-+:?\s*\|)+", line):
            body = []
            for row in lines[at + 1 :]:
                if not row.startswith("|"):
                    break
                body.append(_cells(row))
            yield Table(heading, _cells(lines[at - 1]), body)


def _cells(row: str) -> list[str]:
    return [cell.strip() for cell in row.strip().strip("|").split("|")]


def numbers(cell: str) -> list[float]:
    """Return the numbers in a cell."""
    return [float(one) for one in NUMBER.findall(cell)]


# --- one picture a page --------------------------------------------------------------------------------


def ramp(found: Sequence[Table]) -> Figure:
    """Return accuracy against gap on test rows, a panel for each data set and classifier; lines are of slacks."""
    table = next(one for one in found if one.columns[:2] == ["method", "fitted on"])
    pairs = table.columns[2:-1]
    figure, panels = _grid(2, -(-len(pairs) // 2))
    for panel, at in zip(panels, range(2, 2 + len(pairs)), strict=False):
        panel.set_title(table.columns[at])
        for name, (row, mark) in _marked(table.rows):
            accuracy, gap = numbers(row[at])
            panel.plot(gap, accuracy, mark, label=name, markersize=5)
        for style, (name, rows) in zip(("-", "--"), _fronts(found), strict=False):
            accuracies, gaps = zip(*(numbers(row[at]) for row in rows), strict=True)
            panel.plot(gaps, accuracies, style, color="black", label=name, linewidth=0.8, zorder=0)
        panel.set(xlabel="gap of selection rates, %", ylabel="accuracy, %")
    return _keyed(figure, panels)


def _fronts(found: Sequence[Table]) -> Iterator[tuple[str, list[Sequence[str]]]]:
    """Yield the rows of each rule whose slack is varied, by its name."""
    table = next(one for one in found if one.heading == "By slack")
    for name in dict.fromkeys(row[0].partition(", slack")[0] for row in table.rows):
        yield f"{name}, by slack", [row for row in table.rows if row[0].startswith(f"{name}, slack")]


def fair_regression(found: Sequence[Table]) -> Figure:
    """Return loss against KS on test rows: a column for each data set, with and without the group."""
    rows = [row for one in found if "sees group" in one.columns for row in one.rows if row[-1]]
    data = list(dict.fromkeys(row[0] for row in rows))
    methods = list(dict.fromkeys(row[2] for row in rows))
    figure, panels = _grid(2, len(data))
    for at, (sees, name) in enumerate((sees, name) for sees in ("yes", "no") for name in data):
        panel = panels[at]
        panel.set_title(f"{name}, {'with' if sees == 'yes' else 'no'} group")
        for number, method in enumerate(methods):
            own = (row for row in rows if row[:2] == [name, sees] and row[2] == method)
            row = next(own, None)
            if row is None:
                continue
            losses, errors, ks = [], [], []
            for cell in row[3:]:
                loss, error, *_ = numbers(cell)
                losses.append(loss)
                errors.append(error)
                ks.append(numbers(cell)[-1])
            panel.errorbar(
                ks,
                losses,
                errors,
                marker=MARKERS[number % len(MARKERS)],
                color=f"C{number}",
                label=method,
                markersize=4,
                linewidth=0.8,
            )
        panel.set(xlabel="KS to overall", ylabel="loss")
    return _keyed(figure, panels)


def logloss(found: Sequence[Table]) -> Figure:
    """Return error against violation on test rows, with rivals: of decisions, and, filled, drawn by probabilities."""
    # the table of the rivals, which has the most rows
    table = max((one for one in found if one.columns[:2] == ["data", "rule"]), key=lambda one: len(one.rows))
    data = list(dict.fromkeys(row[0] for row in table.rows))
    rules = list(dict.fromkeys(row[1] for row in table.rows))
    figure, panels = _grid(3, -(-len(data) // 3))
    for panel, name in zip(panels, data, strict=False):
        panel.set_title(name)
        for row in (row for row in table.rows if row[0] == name):
            number = rules.index(row[1])
            for cell, hollow in ((row[2], True), (row[3], False)):
                if not cell:
                    continue
                error, violation, *_ = numbers(cell)
                panel.plot(
                    violation,
                    error,
                    MARKERS[number],
                    color=f"C{number}",
                    markerfacecolor="none" if hollow else f"C{number}",
                    label=row[1] if hollow else "_",
                    markersize=5,
                )
        panel.set(xlabel="violation", ylabel="error")
    return _keyed(figure, panels)


def sensei(found: Sequence[Table]) -> Figure:
    """Return balanced accuracy against the gaps of gender and of race, of ours and, in red, of rivals."""
    ours, *rest = [one for one in found if one.columns[:2] == ["rule", "BA"]]
    rivals = [row for one in rest for row in one.rows if not row[0].startswith("ours")]
    figure, panels = _grid(1, 2)
    figure.set_size_inches(7.5, 6.4)
    for panel, column in zip(panels, ("RMS gender", "RMS race"), strict=True):
        at = ours.columns.index(column)
        for number, row in enumerate([*ours.rows, *rivals], 1):
            panel.plot(
                numbers(row[at]),
                numbers(row[1]),
                linestyle="",
                marker=f"${number}$",
                color="C3" if row in rivals else "C0",
                label=row[0],
            )
        panel.set(xlabel=f"{column} gap", ylabel="balanced accuracy, %")
    return _keyed(figure, panels, columns=2)


LEFT_OUT = (
    "z 0",
    "z 0.5",
    "solver soft",
    "solver dro",
    "solver oracle, certified",
    "soft, certified",
    "certified, sees the recorded group",
)
"""Of the rules under noise, those that are not drawn, so that the rest can be told apart."""


def robust(found: Sequence[Table]) -> Figure:
    """Return error and violation against the noise, a column for each data set and kind of noise."""
    parts = [one for one in found if one.columns[:2] == ["rule", "assumes"]]
    figure, panels = _grid(2, len(parts))
    rules = list(dict.fromkeys(row[0] for one in parts for row in one.rows))
    rules = [name for name in rules if not name.endswith(LEFT_OUT)]
    for at, part in enumerate(parts):
        data, _, rest = part.heading.partition(", ")
        panels[at].set_title(f"{data}, {rest.rpartition(', ')[2]}")
        for row in (row for row in part.rows if row[0] in rules):
            number = rules.index(row[0])
            seen = [
                (numbers(name)[0], *numbers(cell)[:2])
                for name, cell in zip(part.columns[2:], row[2:], strict=True)
                if "/" in cell
            ]
            gammas, errors, violations = zip(*seen, strict=True) if seen else ((), (), ())
            for panel, values in ((panels[at], errors), (panels[len(parts) + at], violations)):
                panel.plot(
                    gammas,
                    values,
                    marker=MARKERS[number % len(MARKERS)],
                    color=f"C{number}",
                    label=row[0],
                    markersize=4,
                    linewidth=0.8,
                )
        panels[at].set_ylabel("error")
        panels[len(parts) + at].axhline(0, color="black", linewidth=0.5)
        panels[len(parts) + at].set(xlabel="share of wrong groups", ylabel="violation, true groups")
    return _keyed(figure, panels)


def audit(found: Sequence[Table]) -> Figure:
    """Return the time of an audit by the number of rows, next to reading the columns and to Fairlearn."""
    seconds: dict[str, list[tuple[float, float]]] = {}
    for one in found:
        rows, _, data = one.heading.partition(" rows")
        size = float(rows.replace(",", "")) if data else 0
        for row in one.rows if "Parquet" in data and "read, CPU s" in one.columns else ():
            if row[0] == "whole audit by race, sex, age, one pass":
                seconds.setdefault("pyarrow, reading the columns only", []).append((size, float(row[1])))
                seconds.setdefault("fairfix, all metrics by 3 columns, with intervals", []).append(
                    (size, float(row[2]))
                )
        for row in one.rows if "Fairlearn, CPU s" in one.columns else ():
            if row[0] == "whole audit, one pass":
                seconds.setdefault("Fairlearn, 4 metrics by 2 columns, no interval", []).append(
                    (size, float(row[2]))
                )
    figure, (panel,) = _grid(1, 1)
    figure.set_size_inches(5.2, 3.6)
    for (name, points), mark in zip(seconds.items(), MARKERS, strict=False):
        panel.plot(*zip(*points, strict=True), marker=mark, label=name)
    panel.set(xscale="log", yscale="log", xlabel="rows", ylabel="CPU seconds")
    return _keyed(figure, [panel], columns=1)


def repair(found: Sequence[Table]) -> Figure:
    """Return the time of a fit of the ramp by the number of rows, next to the authors' schedule."""
    table = next(one for one in found if "authors / fit" in one.columns)
    figure, (panel,) = _grid(1, 1)
    figure.set_size_inches(5.2, 3.6)
    at = table.columns.index
    for groups, style in (("2", "-"), ("5", "--")):
        rows = [row for row in table.rows if row[1] == groups]
        size = [float(row[0].replace(",", "")) for row in rows]
        for name, column, unit, mark in (
            ("authors' schedule", "authors, CPU s", 1.0, "s"),
            ("fairfix", "fit, CPU ms", 1e-3, "o"),
        ):
            spans = [numbers(row[at(column)]) for row in rows]
            middle = [sum(span) / len(span) * unit for span in spans]
            panel.plot(size, middle, style, marker=mark, label=f"{name}, {groups} groups")
    panel.set(xscale="log", yscale="log", xlabel="rows", ylabel="CPU seconds of a fit")
    return _keyed(figure, [panel], columns=2)


def intervals(found: Sequence[Table]) -> Figure:
    """Return how often checks fail a fair model, by the interval and by the point estimate alone."""
    table = next(one for one in found if one.columns[0] == "gate")
    figure, (panel,) = _grid(1, 1)
    figure.set_size_inches(5.6, 3.2)
    for place, (name, column) in enumerate(
        (("point estimate alone", "point: fail"), ("whole interval (the default)", "interval: fail"))
    ):
        at = table.columns.index(column)
        widths = [numbers(row[at])[0] for row in table.rows]
        heights = [number + 0.38 * (0.5 - place) for number in range(len(widths))]
        bars = panel.barh(heights, widths, 0.36, label=name, color=f"C{1 - place}")
        panel.bar_label(bars, [row[at] for row in table.rows], padding=2)
    panel.set(xlabel="fair models that fail, %", xlim=(0, 112))
    panel.set_yticks(range(len(table.rows)), [row[0].strip("`") for row in table.rows])
    return _keyed(figure, [panel], columns=2)


PICTURES: Mapping[str, Callable[[Sequence[Table]], Figure]] = {
    "benchmarks/audit": audit,
    "benchmarks/repair": repair,
    "benchmarks/intervals": intervals,
    "papers/ramp": ramp,
    "papers/fair-regression": fair_regression,
    "papers/logloss": logloss,
    "papers/sensei": sensei,
    "papers/robust": robust,
}
"""Page below docs/ -> how its picture is drawn."""


# --- drawing ---------------------------------------------------------------------------------------------


def _grid(down: int, across: int) -> tuple[Figure, list[Axes]]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(2.6 * across + 0.4, 2.3 * down + 0.8), layout="constrained")
    return figure, list(figure.subplots(down, across, squeeze=False).flat)


def _marked(rows: Sequence[Sequence[str]]) -> Iterator[tuple[str, tuple[Sequence[str], str]]]:
    """Yield the name of each row, with the row and its marker."""
    for number, row in enumerate(rows):
        yield row[0], (row, MARKERS[number % len(MARKERS)])


def _keyed(figure: Figure, panels: Sequence[Axes], columns: int = 4) -> Figure:
    """Return the figure with one key below all panels; a panel without anything is taken away."""
    names: dict[str, Artist] = {}
    for panel in panels:
        if not panel.has_data():
            panel.remove()
        for handle, name in zip(*panel.get_legend_handles_labels(), strict=True):
            names.setdefault(name, handle)
    figure.legend(list(names.values()), list(names), loc="outside lower center", ncols=columns, frameon=False)
    return figure


def draw(name: str, docs: Path) -> None:
    """Draw the picture of a page below ``docs`` beside it.

    Raises
    ------
    ImportError
        matplotlib is not installed.
    StopIteration
        The table that is drawn is not on the page.
    """
    from matplotlib import rc_context

    page = docs / f"{name}.md"
    with rc_context(STYLE):
        figure = PICTURES[name](list(tables(page.read_text(encoding="utf-8"))))
        figure.savefig(page.with_suffix(".svg"), metadata={"Date": None})


if __name__ == "__main__":
    for one in sys.argv[1:] or PICTURES:
        draw(one, Path(__file__).resolve().parents[1] / "docs")
