"""HTML: one file with everything in it, for people who read reports and for paper.

The same sections and tables as text and Markdown, with pictures, intervals of every group, and the definition of every
number shown. No script, no font, no picture is fetched; the page even forbids it. Every picture has its numbers in a
table, and says in words what it shows.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from importlib.util import find_spec
from typing import Any

from fairfix.auditing.comparisons import Comparison
from fairfix.auditing.metrics import METRICS, metrics_for
from fairfix.report.layout import (
    HEADLINES,
    MARKS,
    TITLES,
    Grid,
    Section,
    between,
    group_metrics,
    interval,
    layout,
    show,
)
from fairfix.report.style import STYLE
from fairfix.report.svg import CURVES, Curve, Dot, Gap, Pair, dots, lines, pairs, span_of
from fairfix.report.verdicts import WORDS, limit, meaning, measured
from fairfix.report.words import readable

MOST_ROWS = 30
"""Groups in a picture of dots; the table beside it has all."""

FEW_SECTIONS = 3
"""A page with more has a list of them."""

NARROW = 4
"""A table with more columns is wider than a telephone."""

FEW_ROWS = 10
"""A calibration bin with fewer rows of a group is left to the table."""

CLASSES = {word: name for name, word in MARKS.items()}
SIGNS = {"pass": "✔", "fail": "✖", "undecided": "?", "waived": "~"}
NO_EXTRA = (
    "The picture of the frontier is drawn by matplotlib, which is not installed: pip install 'fairfix[plot]'. "
    "The tables hold all its numbers."
)
NO_LAW = "fairfix computes numbers. Whether a model complies with any law is not among them."
LONG_NAME = re.compile(r"[a-z]+(?:[._][a-z]+){3,}")
"""Names of comparisons, too long for a line of a telephone."""

VALUE = re.compile(r"[-+]?[\d.,]+(e[-+]?\d+)?( ±\S+)? \[[^\]]*\]\*?")
"""A number with its interval, which stays in one line."""

POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


def render(result: Mapping[str, Any], *, detail: bool = False) -> str:
    """Return the report as one HTML page."""
    result = readable(result)
    page = _Page(result)
    kind = str(result["schema"]).rpartition("/")[0].removeprefix("fairfix.")
    heading, *rest = layout(
        result, detail=detail or kind == "repair"
    )  # what a solver found is folded nowhere
    body = [_head(heading, result)]
    if len(rest) > FEW_SECTIONS:
        body.append(_contents([_titled(section.title) for section in rest], kind == "compare"))
    if kind == "compare":
        body.append(page.frontier())
    body += [page.section(section, f"s{i}") for i, section in enumerate(rest, 1)]
    shown = {title for section in rest for grid in section.grids for title in (row[0] for row in grid.rows)}
    body.append(page.definitions(_named(result, kind, shown, detail=detail)))
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(heading.title)}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n"
        + "\n".join(body)
        + f"\n</main>\n<footer><p>{escape(NO_LAW)}</p><p>fairfix {escape(str(result['fairfix']))}, "
        f"{escape(str(result['schema']))}</p></footer>\n</body>\n</html>\n"
    )


# ---------------------------------------------------------------------- head


def _head(heading: Section, result: Mapping[str, Any]) -> str:
    """Return title, verdict and the facts of the data."""
    out = [f"<h1>{escape(heading.title)}</h1>"]
    if result.get("checks"):
        told = ", ".join(
            f"{sum(c['verdict'] == verdict for c in result['checks'])} {word}"
            for verdict, word in WORDS.items()
            if verdict != "waived" or "waivers" in result
        )
        out.append(f'<p class="lead">Checks: {_mark(str(result["verdict"]))} <span>{told}</span></p>')
    elif "verdict" in result:
        out.append('<p class="lead">No limits were given, so nothing was gated.</p>')
    rows = result["data"]["rows"]
    counted = [("read", rows["read"]), ("used", rows["used"])]
    counted += [(f"left out: {one['reason']}", one["rows"]) for one in rows["excluded"]]
    grid = Grid(
        ("rows", "number"), tuple((what, f"{many:,}") for what, many in counted), 1, "Rows of the data"
    )
    out += ["<section>", "<h2>Data and settings</h2>", _table(grid), _list(heading.lines), "</section>"]
    return "\n".join(out)


def _contents(titles: Sequence[str], frontier: bool) -> str:
    """Return links to the sections."""
    listed = [("frontier", "Frontier")] if frontier else []
    listed += [*((f"s{i}", title) for i, title in enumerate(titles, 1)), ("definitions", "Definitions")]
    links = "".join(f'<li><a href="#{ident}">{_broken(title)}</a></li>' for ident, title in listed)
    return f'<nav aria-labelledby="contents"><h2 id="contents">On this page</h2><ul>{links}</ul></nav>'


def _broken(text: str) -> str:
    """Return a text in which a line may break inside long names."""
    return LONG_NAME.sub(lambda name: re.sub(r"(?<=[._])(?=\w)", "<wbr>", name[0]), escape(text))


def _mark(verdict: str) -> str:
    return f'<strong class="mark {verdict}">{SIGNS[verdict]} {MARKS[verdict]}</strong>'


def _list(told: Sequence[str]) -> str:
    return "<ul>" + "".join(f"<li>{_broken(line)}</li>" for line in told) + "</ul>" if told else ""


def _table(grid: Grid) -> str:
    """Return a table in a box of its own that scrolls where the page is narrow, or falls apart there.

    The style takes such a table apart into cards, so what it is is said in roles too.
    """
    if not grid.rows:
        return ""
    roles = ROLES if _falls_apart(grid) else {}
    heads = "".join(
        f'<th{roles.get("head", "")} scope="col"{_number(i, grid)}>{escape(heading)}</th>'
        for i, heading in enumerate(grid.headings)
    )
    row = f"<tr{roles.get('row', '')}>"
    body = "".join(
        row + "".join(_cell(cell, i, grid, roles) for i, cell in enumerate(cells)) + "</tr>"
        for cells in grid.rows
    )
    named, part = escape(grid.caption or "Table"), roles.get("part", "")
    hint = (
        '<p class="hint">more columns to the right →</p>' if not roles and len(grid.headings) > NARROW else ""
    )
    return (
        f'{hint}<div class="scroll" tabindex="0" role="group" aria-label="{named}"><table{roles.get("table", "")}>'
        f"<caption>{_broken(grid.caption or 'Table')}</caption><thead{part}>{row}{heads}</tr></thead>"
        f"<tbody{part}>{body}</tbody></table></div>"
    )


def _falls_apart(grid: Grid) -> bool:
    """Tell whether a table is better read as cards on a telephone: one of words, or of few columns."""
    many = len(grid.headings)
    return many > 2 and (grid.text_columns == many or (grid.text_columns > 0 and many <= 4))


ROLES = {
    "table": ' role="table" class="cards"',
    "part": ' role="rowgroup"',
    "row": ' role="row"',
    "head": ' role="columnheader"',
    "name": ' role="rowheader"',
    "cell": ' role="cell"',
}


def _number(i: int, grid: Grid) -> str:
    return "" if i < grid.text_columns else ' class="number"'


def _cell(cell: str, i: int, grid: Grid, roles: Mapping[str, str]) -> str:
    if i == grid.named_by:
        return f'<th{roles.get("name", "")} scope="row">{_broken(cell)}</th>'
    style = _number(i, grid) or (' class="value"' if VALUE.fullmatch(cell) else "")
    label = f' data-label="{escape(grid.headings[i])}"' if roles and i > grid.named_by else ""
    content = _mark(CLASSES[cell]) if cell in CLASSES and i < grid.named_by else escape(cell)
    return f"<td{roles.get('cell', '')}{style}{label}>{content}</td>"


# ---------------------------------------------------------------------- definitions


def _named(
    result: Mapping[str, Any], kind: str, shown: set[str], *, detail: bool
) -> list[tuple[str, str, str]]:
    """Return (as shown, identifier, definition) of every metric and comparison in the report."""
    if kind == "audit":
        entries = metrics_for(result["settings"]["task"])
        metrics = [(title, name, entries[name].formula) for name, title in group_metrics(result)]
        told = result["definitions"]
        heads = [(name, name) for name in told] if detail else HEADLINES.items()
        found = [(title, name, told[name]) for name, title in heads if name in told and title in shown]
        checked = [check["comparison"] for check in result["checks"]]
        known = {name for _, name, _ in (*metrics, *found)}
        more = [name for name in dict.fromkeys(checked) if name not in known]
    else:
        metrics, found = [], []
        names = [
            name
            for point in result.get("points", ())
            for name in (*point.get("gaps", ()), *point.get("qualities", ()))
        ]
        names += [row["id"] for row in result.get("proof", {}).get("holdout", {}).get("table", ())]
        more = list(dict.fromkeys(name.partition(" ")[0] for name in names))
    return [*metrics, *found, *((_titled(name), name, meaning(name, result)) for name in more)]


def _titled(name: str) -> str:
    """Return how a comparison, a metric, or one of an attribute, is called in words."""
    identifier, space, attribute = name.partition(" ")
    return {**TITLES, **HEADLINES}.get(identifier, identifier) + space + attribute


# ---------------------------------------------------------------------- pictures and sections


class _Page:
    """Renders the sections of one result; counts its pictures, so that each has names of its own."""

    def __init__(self, result: Mapping[str, Any]) -> None:
        self.result = result
        self.pictures = 0

    def _ident(self) -> str:
        self.pictures += 1
        return f"p{self.pictures}"

    def section(self, section: Section, ident: str) -> str:
        """Return a section with its tables and what can be drawn of it."""
        out = [f'<section id="{ident}">', f"<h2>{_broken(_titled(section.title))}</h2>", _list(section.lines)]
        about = section.about
        out += [_table(grid) for grid in section.grids]
        if "checks" in about:
            out.append(self._limits(about["checks"]))
        elif "groups" in about:
            if "stratum" not in about:
                out += [*self._rates(about), *self._distribution(about), *self._calibration(about)]
        elif "table" in about:
            out += self._before_after(about, section.title)
        elif "true_groups" in about:
            out += self._bounds(about["true_groups"])
        return "\n".join([*(part for part in out if part), "</section>"])

    def _limits(self, checks: Sequence[Mapping[str, Any]]) -> str:
        """Return every limit in words."""
        gate = checks[0]["gate_on"]
        how = (
            "A check fails when the whole interval of its value lies beyond the limit, passes when the whole "
            "interval lies within it, and is undecided else."
            if gate == "interval"
            else "A check compares the value alone with its limit; the interval is not asked."
        )
        told = "".join(
            f"<dt><code>{_broken(str(check['check']))}</code> {escape(str(check['attribute']))}</dt>"
            f"<dd>{_broken(limit(check))}: {_broken(measured(check, self.result))}.</dd>"
            for check in checks
        )
        return f"<h3>The limits in words</h3><p>{how} An undefined value cannot pass.</p><dl>{told}</dl>"

    def definitions(self, named: Sequence[tuple[str, str, str]]) -> str:
        """Return the definition of every number shown."""
        unit = self.result.get("settings", {})
        share = f"{unit['confidence']:.0%} intervals" if "confidence" in unit else "intervals"
        rows = tuple(
            (title, "" if title == name else name, told) for title, name, told in dict.fromkeys(named)
        )
        return (
            f'<section id="definitions"><h2>Definitions</h2><p>Numbers in brackets are {share}, simultaneous over the '
            "groups compared; – is undefined, which is never counted as 0. y is the label, p the score as a "
            "probability. P(A | B) is the share of the rows with B that have A, E[x] the mean of x.</p>"
            + _table(Grid(("shown as", "name", "definition"), rows, 3, "Definitions of the numbers shown"))
            + "</section>"
        )

    # ------------------------------------------------------------------ audit

    def _rates(self, block: Mapping[str, Any]) -> Iterator[str]:
        """Yield a picture per metric: every group's value with its interval."""
        groups = sorted(block["groups"], key=lambda g: -g["rows"])[:MOST_ROWS]
        shown = [g for g in block["groups"] if g in groups]
        yield f"<h3>Groups of {escape(block['attribute'])}, with intervals</h3>"
        yield self._selected(block)
        if len(shown) < len(block["groups"]):
            yield (
                f"<p>The pictures show the {len(shown)} of {len(block['groups'])} groups with the most rows; the "
                "tables have all.</p>"
            )
        figures = [
            self._rate(block, shown, name, title)
            for name, title in group_metrics(self.result)
            if any(group["metrics"].get(name, {}).get("value") is not None for group in shown)
        ]
        yield f'<div class="figures">{"".join(figures)}</div>'

    def _selected(self, block: Mapping[str, Any]) -> str:
        """Return the base table of decisions: how many of each group are selected, against the highest rate and all."""
        groups = [g for g in block["groups"] if "selection_rate" in g["metrics"]]
        rates = [g["metrics"]["selection_rate"]["value"] or 0.0 for g in groups]
        overall = [c for c in block["comparisons"] if c["id"] == "selection_rate.difference.to_overall"]
        apart = overall[0].get("per_group", {}) if overall else {}
        rows = tuple(
            (
                g["group"],
                f"{g['rows']:,}",
                f"{g['share']:.1%}",
                _many(g, "base_rate"),
                _many(g, "selection_rate"),
                interval(g["metrics"]["selection_rate"]),
                show(rate / max(rates) if max(rates) else None),
                interval(apart[g["group"]]) if g["group"] in apart else "",
            )
            for g, rate in zip(groups, rates, strict=True)
        )
        weighted = any(abs(g["weight"] - g["rows"]) > 1e-9 for g in groups)
        weighed = " (weighted)" if weighted else ""
        headings = (
            "group",
            "rows",
            "share",
            f"y = 1{weighed}",
            f"selected{weighed}",
            "selection rate",
            "divided by the highest",
            "minus everybody's",
        )
        title = f"Decisions by {block['attribute']}"
        return _table(Grid(headings, rows, 1, title).without_empty())

    def _rate(
        self, block: Mapping[str, Any], groups: Sequence[Mapping[str, Any]], name: str, title: str
    ) -> str:
        rows = [_dot(group["group"], group["metrics"][name]) for group in groups]
        everybody = _dot("everybody", self.result["overall"]["metrics"][name], brief=True)
        ends = [end for dot in (*rows, everybody) for end in (dot.value, dot.low, dot.high)]
        scale = METRICS[name].scale
        span = span_of(ends, zero=scale != "data", most=1.0 if scale == "share" else None)
        values = sorted((d.value, d.name) for d in rows if d.value is not None)
        told = (
            f"{title} of each group of {block['attribute']} with its interval: from {show(values[0][0])} "
            f"({values[0][1]}) to {show(values[-1][0])} ({values[-1][1]}); everybody {everybody.text}."
        )
        table = tuple(
            (g["group"], f"{g['rows']:,}", *_numbers(g["metrics"][name]))
            for g in (*block["groups"], {**self.result["overall"]})
        )
        grid = Grid(
            ("group", "rows", "value", "low", "high", "note"), table, 1, f"{title} by {block['attribute']}"
        )
        heading = f"{title} by {block['attribute']}"
        return _figure(dots(self._ident(), heading, told, rows, span, everybody), heading, told, grid)

    def _distribution(self, block: Mapping[str, Any]) -> Iterator[str]:
        """Yield the distribution functions of the scores, with the KS distance marked."""
        found = block.get("distribution")
        if not found:
            return
        gap = found.get("gap")
        names = _curve_names(block, gap["groups"] if gap else ())
        below = {one["group"]: one["below"] for one in found["groups"]}
        scores = found["scores"]
        curves = [Curve("everybody", tuple(zip(scores, found["everybody"], strict=True)), quiet=True)]
        curves += [Curve(name, tuple(zip(scores, below[name], strict=True))) for name in names]
        title = f"Score distributions by {block['attribute']}"
        told = "Share of each group with a score below the one on the horizontal axis"
        if len(names) < len(below):
            told += f", for {len(names)} of {len(below)} groups: those with the most rows and the two furthest apart"
        told += "."
        mark = None
        if gap:
            a, b = gap["shares"]
            told += (
                f" {gap['groups'][0]} and {gap['groups'][1]} are furthest apart at score {show(gap['score'])}, with "
                f"{a:.1%} and {b:.1%} of them at or below it: a KS distance of {abs(a - b):.4f}, the thick "
                "upright line."
            )
            mark = Gap(gap["score"], min(a, b), max(a, b), f"KS {abs(a - b):.3f}")
        picture = lines(self._ident(), title, told, curves, ("score", "share below"), _middle(scores), mark)
        rows = tuple(
            (show(x), show(all_), *(show(below[name][i]) for name in names))
            for i, (x, all_) in enumerate(zip(scores, found["everybody"], strict=True))
        )
        yield f"<h3>{escape(title)}</h3>"
        yield _figure(
            picture,
            title,
            told,
            Grid(("score", "everybody", *names), rows, 0, "Share below the score"),
            wide=True,
        )

    def _calibration(self, block: Mapping[str, Any]) -> Iterator[str]:
        """Yield the rate of positives against the mean score, per score bin and group."""
        names = _curve_names(block, block.get("distribution", {}).get("gap", {}).get("groups", ()))
        groups = [g for g in block["groups"] if g["group"] in names and g.get("calibration")]
        if not groups:
            return
        curves = [Curve("as scored", ((0.0, 0.0), (1.0, 1.0)), quiet=True, marks=True)]
        for group in groups:
            points = [
                (p["mean_score"], p["rate"])
                for p in group["calibration"]
                if p.get("rows", FEW_ROWS) >= FEW_ROWS
                and p["mean_score"] is not None
                and p["rate"] is not None
            ]
            curves.append(Curve(group["group"], tuple(points), marks=True))
        title = f"Calibration by {block['attribute']}"
        told = (
            "Rate of y = 1 against the mean score, per bin of the score and group; on the dashed diagonal a score is "
            f"right as a probability. Bins with fewer than {FEW_ROWS} rows of a group are in the table only."
        )
        rows = tuple(
            (
                group["group"],
                f"{show(p['from'], 4)} to {show(p['to'], 4)}",
                f"{p['rows']:,}" if "rows" in p else "",
                show(p["mean_score"]),
                show(p["rate"]),
            )
            for group in groups
            for p in group["calibration"]
        )
        grid = Grid(("group", "score", "rows", "mean score", "rate of y = 1"), rows, 2, title)
        picture = lines(self._ident(), title, told, curves, ("mean score", "rate of y = 1"), (0.0, 1.0))
        yield f"<h3>{escape(title)}</h3>"
        yield _figure(picture, title, told, grid, wide=True)

    # ------------------------------------------------------------------ true groups

    def _bounds(self, noise: Mapping[str, Any]) -> Iterator[str]:
        """Yield the gaps of true groups: as recorded, weighted, and what they can be, on one axis."""
        figures = []
        for found in noise["comparisons"]:
            rows = _known(found, noise["rests_on"])
            if found["name"] not in DRAWN or not rows:
                continue
            heading = f"{TITLES[found['name']]}, true groups"
            told = f"{heading}: " + "; ".join(f"{row.name} {row.text}" for row in rows) + "."
            span = span_of([e for d in rows for e in (d.value, d.low, d.high)], zero=True, most=1.0)
            table = tuple((d.name, show(d.value), show(d.low), show(d.high)) for d in rows)
            grid = Grid(("figure", "value", "low", "high"), table, 1, heading)
            figures.append(_figure(dots(self._ident(), heading, told, rows, span), heading, "", grid))
        if figures:
            yield "<h3>Gaps of the true groups, side by side</h3>"
            yield (
                "<p>A dot is one number, a line all that the gap can be: the wider the line, the less is known. The "
                "weighted number alone is no bound.</p>"
            )
            yield f'<div class="figures">{"".join(figures)}</div>'

    # ------------------------------------------------------------------ repair

    def _before_after(self, proof: Mapping[str, Any], title: str) -> Iterator[str]:
        """Yield pictures of the proof: gaps, ratios, rates, and each loss on a scale of its own."""
        panels: dict[str, list[Mapping[str, Any]]] = {}
        for row in proof["table"]:
            panels.setdefault(_panel(row), []).append(row)
        figures = []
        for name, rows in panels.items():
            drawn = [
                Pair(_titled(row["name"]), _dot("before", row["before"]), _dot("after", row["after"]))
                for row in rows
            ]
            ends = [end for p in drawn for d in (p.before, p.after) for end in (d.value, d.low, d.high)]
            span = span_of(ends, zero=True, most=1.0 if name in ("ratios", "rates") else None)
            heading = f"{title}: {HINTS.get(name) or _titled(name)}"
            told = "; ".join(f"{p.name} before {p.before.text}, after {p.after.text}" for p in drawn) + "."
            table = tuple(
                (row["name"], when, *_numbers(row[when])) for row in rows for when in ("before", "after")
            )
            grid = Grid(("metric", "when", "value", "low", "high", "note"), table, 2, heading)
            figures.append(_figure(pairs(self._ident(), heading, told, drawn, span), heading, "", grid))
        if figures:
            yield f"<h3>{escape(title)}: before and after, drawn</h3>"
            yield f'<div class="figures">{"".join(figures)}</div>'

    # ------------------------------------------------------------------ comparison

    def frontier(self) -> str:
        """Return the picture of the frontier, or why there is none."""
        out = ['<section id="frontier">', "<h2>Frontier</h2>"]
        points = [point for point in self.result["points"] if "failure" not in point]
        if find_spec("matplotlib") is None:
            out.append(f"<p>{escape(NO_EXTRA)}</p>")
        else:
            out += self._panels(points)
        return "\n".join([*out, "</section>"])

    def _panels(self, points: Sequence[Mapping[str, Any]]) -> Iterator[str]:
        """Yield a picture for each gap, and a table of all points."""
        from fairfix.report.picture import NOTHING, draw_panel, panels

        drawn = panels(points)
        if not drawn:
            yield f"<p>{escape(NOTHING)}</p>"
            return
        yield (
            "<p>How good each method is against how large a gap it leaves, on held-out rows, with the interval of the "
            "quality. Methods differ by marker; the line is the frontier, where no other point has a smaller gap and "
            "better quality.</p>"
        )
        figures = []
        for gap, quality in drawn:
            heading = f"{_titled(quality)} against {_titled(gap)}"
            ident = self._ident()
            drawing = draw_panel(self.result, gap, quality).decode("utf-8")
            some = [p for p in points if gap in p["gaps"] and quality in p["qualities"]]
            picture = _inlined(drawing, ident, heading, _told_of_points(some, gap, quality))
            figures.append(_figure(picture, heading, "", _points(some, gap, quality)))
        yield f'<div class="figures large">{"".join(figures)}</div>'


HINTS = {
    "gaps": "gaps, smaller is better",
    "ratios": "ratios, nearer to 1 is better",
    "rates": "rates",
}


def _panel(row: Mapping[str, Any]) -> str:
    """Return with which other rows of a proof one shares an axis."""
    name = str(row["id"])
    of = Comparison.parse(name)
    if of.kind == "ratio":
        return "ratios"
    if of.kind in ("difference", "covariance") or of.metric == "ks":
        small = all((row[when]["value"] or 0) <= 1 for when in ("before", "after"))
        return "gaps" if small else name
    return "rates" if of.metric in TITLES and METRICS[of.metric].scale == "share" else name


DRAWN = (
    "selection_rate.difference",
    "selection_rate.ratio",
    "true_positive_rate.difference",
    "equalized_odds.difference",
)
"""Comparisons of true groups that have a picture."""


def _known(found: Mapping[str, Any], rests_on: str) -> list[Dot]:
    """Return all that is known of a comparison of true groups, from the plainest to the surest."""
    told = [
        ("as recorded", found["recorded"]),
        ("weighted", found["weighted"]),
        ("N4", found.get("identified")),
    ]
    rows = [Dot(name, value, None, None, show(value)) for name, value in told if value is not None]
    bounds = found["bounds"]
    spans = [
        (f"worst case {level}", b["low"], b["high"]) for level, b in sorted(bounds.items()) if level != "N4"
    ]
    if rests_on in bounds:
        outer = bounds[rests_on]
        spans.append((f"{rests_on}, sampling error too", outer["outer_low"], outer["outer_high"]))
    return rows + [
        Dot(name, None, low, high, between(low, high), bound=True)
        for name, low, high in spans
        if low is not None
    ]


def _told_of_points(points: Sequence[Mapping[str, Any]], gap: str, quality: str) -> str:
    """Return the frontier in words."""
    front = [p for p in points if f"{gap}|{quality}" in p["front"]]
    front.sort(key=lambda p: p["gaps"][gap]["value"])
    return "On the frontier: " + "; ".join(
        p["title"]
        + ("" if p["slack"] is None else f" with slack {p['slack']}")
        + f": gap {show(p['gaps'][gap]['value'])}, {quality.replace('_', ' ')} {show(p['qualities'][quality]['value'])}"
        for p in front
    )


def _points(points: Sequence[Mapping[str, Any]], gap: str, quality: str) -> Grid:
    """Return the points of a panel as a table."""
    rows = tuple(
        (
            point["title"],
            "" if point["slack"] is None else str(point["slack"]),
            interval(point["gaps"][gap]),
            interval(point["qualities"][quality]),
            "frontier" if f"{gap}|{quality}" in point["front"] else "",
        )
        for point in points
    )
    caption = f"{_titled(quality)} against {_titled(gap)}"
    return Grid(("method", "slack", "gap", quality.replace("_", " "), "on it"), rows, 5, caption)


NAMES = re.compile(r'(\bid="|href="#|url\(#)')
"""Where a drawing names its parts; several in one page must not share names."""


def _inlined(drawing: str, ident: str, title: str, told: str) -> str:
    """Return a drawn SVG as a part of the page: no prolog, no metadata, with a title and a description."""
    body = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>|<!--.*?-->", "", drawing, flags=re.DOTALL)
    head, _, inner = body[body.index("<svg") :].partition(">")
    inner = re.sub(r"<[^>]*>", lambda tag: NAMES.sub(rf"\1{ident}-", tag[0]), inner)
    box = re.search(r'viewBox="[^"]*"', head)
    named = f'<title id="{ident}-t">{escape(title)}</title><desc id="{ident}-d">{escape(told)}</desc>'
    return (
        f'<svg {box[0] if box else ""} role="img" aria-labelledby="{ident}-t {ident}-d" class="drawn" '
        f'xmlns:xlink="http://www.w3.org/1999/xlink">{named}{inner.strip()}'
    )


def _sentence(text: str) -> str:
    """Return the text with a capital letter first."""
    return text[:1].upper() + text[1:]


def _figure(picture: str, heading: str, told: str, grid: Grid, *, wide: bool = False) -> str:
    """Return a picture with its caption and, folded away, its numbers."""
    words = f"<figcaption><strong>{escape(heading)}.</strong> {escape(_sentence(told))}</figcaption>"
    folded = f"<details><summary>Table: {escape(heading)}</summary>{_table(grid)}</details>"
    box = f'<div class="scroll" tabindex="0" role="group" aria-label="{escape(heading)}, picture">{picture}</div>'
    return (
        f'<figure class="{"wide" if wide else "narrow"}">{words}{box if wide else picture}{folded}</figure>'
    )


def _dot(name: str, value: Mapping[str, Any], *, brief: bool = False) -> Dot:
    text = show(value["value"]) if brief and value["value"] is not None else interval(value)
    return Dot(name, value["value"], value["low"], value["high"], text)


def _numbers(value: Mapping[str, Any]) -> tuple[str, str, str, str]:
    return show(value["value"]), show(value["low"]), show(value["high"]), str(value.get("reason", ""))


def _many(group: Mapping[str, Any], rate: str) -> str:
    """Return how many rows of a group a rate stands for, which is a weight where rows have weights."""
    value = group["metrics"].get(rate, {}).get("value")
    return "" if value is None else f"{value * group['weight']:,.0f}"


def _curve_names(block: Mapping[str, Any], needed: Sequence[str]) -> list[str]:
    """Return the groups whose curves are drawn, in order: those needed, and those with the most rows."""
    by_size = sorted(block["groups"], key=lambda g: -g["rows"])
    wanted = list(dict.fromkeys((*needed, *(group["group"] for group in by_size))))[:CURVES]
    return [group["group"] for group in block["groups"] if group["group"] in wanted]


def _middle(scores: Sequence[float]) -> tuple[float, float]:
    """Return the range of scores to draw: all, unless a few at the ends would press the others together."""
    low, high = scores[0], scores[-1]
    if len(scores) > 10 and high - low > 4 * (scores[-3] - scores[2]) > 0:
        low, high = scores[2], scores[-3]
    return (low, high) if high > low else (low - 0.5, low + 0.5)
