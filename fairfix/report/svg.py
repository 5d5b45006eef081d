"""Small pictures as SVG, written by hand from plain numbers: dots with intervals, pairs of them, curves, and points.

Nothing is told by colour alone: curves differ by dash and marker and carry their names, points differ by marker, before
and after by shape. Every text is escaped where it is written, in ``_text``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from html import escape
from os.path import commonprefix

Place = tuple[float, float]
Spread = tuple[float, float, float, float]
"""x, height, and the ends of the height's interval."""

NARROW, WIDE = 360, 440
LEFT, RIGHT = 10, 350
INK, QUIET, FAINT, CUT = "#1a1a1a", "#595959", "#d0d0d0", "#a3081e"
COLOURS = ("#0072b2", "#c04f00", "#007a5a", "#8f4a8b", "#1a1a1a", "#7a6000", "#a3123a", "#3d5a80")
DASHES = ("", "8 3", "2 3", "10 3 2 3", "15 4", "5 2 1 2", "1 2", "12 3 4 3")
STROKES = {"cross": ((1, 1), (1, -1)), "plus": ((1, 0), (0, 1)), "star": ((1, 0.6), (1, -0.6), (0, 1.1))}
"""Markers without an inside: the ends of their strokes, seen from the middle."""

CORNERS = {
    "square": ((-1, -1), (1, -1), (1, 1), (-1, 1)),
    "triangle": ((0, -1.2), (1.1, 0.9), (-1.1, 0.9)),
    "diamond": ((0, -1.3), (1.3, 0), (0, 1.3), (-1.3, 0)),
    "down": ((0, 1.2), (1.1, -0.9), (-1.1, -0.9)),
    "left": ((-1.2, 0), (0.9, 1.1), (0.9, -1.1)),
    "right": ((1.2, 0), (-0.9, 1.1), (-0.9, -1.1)),
    "bar": ((-1.4, -0.5), (1.4, -0.5), (1.4, 0.5), (-1.4, 0.5)),
    "post": ((-0.5, -1.4), (0.5, -1.4), (0.5, 1.4), (-0.5, 1.4)),
}
"""Markers with corners."""

SHAPES = ("circle", "square", "triangle", "diamond", "cross", "plus", "down", "star", *list(CORNERS)[4:])
CURVES = len(COLOURS)
"""Largest number of curves that can be told apart in one picture."""
NAMED = 6
"""Largest number of curves that carry their names; more carry letters, which the key explains."""


@dataclass(frozen=True)
class Drawing:
    """The inside of one ``<svg>``, with the size of its view box and of its letters."""

    width: int
    height: float
    body: str
    letters: int = 12


@dataclass(frozen=True)
class Dot:
    """A named value with its interval and how it reads; ``bound``: an interval without a value inside.

    A value that is undefined has a text only, whatever its interval.
    """

    name: str
    value: float | None
    low: float | None
    high: float | None
    text: str
    bound: bool = False


@dataclass(frozen=True)
class Curve:
    """A named line through points; ``quiet`` draws it as background."""

    name: str
    points: tuple[Place, ...]
    quiet: bool = False
    marks: bool = False


@dataclass(frozen=True)
class Gap:
    """A vertical distance between two curves."""

    at: float
    low: float
    high: float
    text: str


@dataclass(frozen=True)
class _Style:
    """A line and a marker; without a width there is no line."""

    colour: str
    width: float = 0.0
    dash: str = ""
    shape: str = ""


def dots(rows: Sequence[Dot], span: tuple[float, float], line: Dot | None = None) -> Drawing:
    """Return a row per dot on a common axis; ``line`` is drawn across all, dashed."""
    start, step = (28 if line else 10), 34
    bottom = start + step * len(rows) + 4
    scale = _Scale(span, (LEFT, RIGHT))
    out = [_axis(scale, bottom, start - 4)]
    if line and line.value is not None:
        x = scale(line.value)
        tops = [start + step * i for i in range(len(rows))]  # broken where the texts are
        out += [_line(x, top + 16, x, top + step + 1, QUIET, 1.2, "4 3") for top in tops]
        out.append(_line(LEFT, 12, LEFT + 22, 12, QUIET, 1.2, "4 3"))
        out.append(_text(LEFT + 28, 16, f"{_elided(line.name, 24, 8)} {line.text}", QUIET))
    names = shortened((row.name for row in rows), 26)
    for i, row in enumerate(rows):
        top = start + step * i
        out.append(_text(LEFT, top + 12, names[row.name], INK))
        out.append(_text(RIGHT, top + 12, row.text, INK, "end"))
        out.append(_interval(row, scale, top + 22, "circle", solid=True))
    return Drawing(NARROW, bottom + 24, "".join(out))


@dataclass(frozen=True)
class Panel:
    """Values of several groups in the order in which they are drawn, with a mark that some lie beyond."""

    title: str
    rows: tuple[Dot, ...]
    mark: tuple[float, str] | None = None
    """Where a limit lies, as seen from the best group, and how it reads."""


def family(panels: Sequence[Panel], span: tuple[float, float]) -> Drawing:
    """Return panels one above the other on one common axis, a row for each group, with limits as upright lines."""
    scale, step, y, out = _Scale(span, (112, RIGHT - 52)), 15, 12.0, []
    titles = shortened((panel.title for panel in panels), 40)
    names = shortened((row.name for panel in panels for row in panel.rows), 14)
    for panel in panels:
        out.append(_text(LEFT, y + 4, titles[panel.title], INK, bold=True))
        if panel.mark:
            out.append(_text(RIGHT, y + 4, panel.mark[1], CUT, "end"))
        top, y = y + 10, y + 18
        for row in panel.rows:
            out.append(_text(106, y + 4, names[row.name], INK, "end"))
            out.append(_interval(row, scale, y, "circle", solid=True, small=True))
            out.append(_text(RIGHT, y + 4, row.text, INK, "end"))
            y += step
        if panel.mark:
            x = scale(panel.mark[0])
            out.append(_line(x, top, x, y - 6, CUT, 2, "5 3"))
        y += 12
    bottom = y - 10
    return Drawing(NARROW, bottom + 24, _axis(scale, bottom, 0, count=5) + "".join(out))


def pairs(rows: Sequence[tuple[str, Dot, Dot]], span: tuple[float, float]) -> Drawing:
    """Return two lines per (name, before, after): before hollow and dashed, after filled and solid."""
    start, step = 30, 56
    bottom = start + step * len(rows)
    scale = _Scale(span, (LEFT, 205))
    out = [_axis(scale, bottom, start - 6, count=3)]
    for word, shape, solid, x in (("before", "circle", False, LEFT), ("after", "square", True, LEFT + 110)):
        sample = Dot(word, 0.5, 0.0, 1.0, "")
        out.append(_interval(sample, _Scale((0, 1), (x, x + 36)), 12, shape, solid=solid))
        out.append(_text(x + 44, 16, word, INK))
    names = shortened((name for name, *_ in rows), 46)
    for i, (name, before, after) in enumerate(rows):
        top = start + step * i
        out.append(_text(LEFT, top + 12, names[name], INK))
        for dot, shape, solid, y in ((before, "circle", False, top + 24), (after, "square", True, top + 40)):
            out.append(_interval(dot, scale, y, shape, solid=solid))
            out.append(_text(214, y + 4, dot.text, INK))
    return Drawing(NARROW, bottom + 26, "".join(out))


def lines(
    curves: Sequence[Curve],
    axes: tuple[str, str],
    x_span: tuple[float, float],
    gap: Gap | None = None,
    cut: tuple[float, str] | None = None,
) -> Drawing:
    """Return curves over a common x with y from 0 to 1, each with its name or letter next to it and in the key.

    ``cut`` is an x with its name, drawn as an upright dashed line.
    """
    across, up = _Scale(x_span, (44, WIDE - 12)), _Scale((0.0, 1.0), (270, 26))
    out = [_frame(across, up, axes)]
    if cut and across.holds(cut[0]):
        x, side = across(cut[0]), "end" if across(cut[0]) > WIDE / 2 else "start"
        out.append(_line(x, 26, x, 270, CUT, 1.5, "5 3"))
        out.append(_text(x, 20, cut[1], CUT, side))
    quiet = [curve for curve in curves if curve.quiet]
    loud = [curve for curve in curves if not curve.quiet]
    background = [_Style(QUIET, 1.0, "2 2" if curve.marks else "") for curve in quiet]
    out += [_path(curve.points, across, up, style) for curve, style in zip(quiet, background, strict=True)]
    lettered = len(loud) > NAMED
    styles, names = [], []
    short = shortened((curve.name for curve in loud), 16)
    for i, curve in enumerate(loud):
        style = _Style(COLOURS[i % CURVES], 1.8, DASHES[i % CURVES], SHAPES[i % CURVES])
        inside = [p for p in curve.points if across.holds(p[0])]
        levels = [((i + 0.5) / len(loud) + k / 3) % 1.0 for k in range(3)]
        marked = inside if curve.marks else _at_levels(inside, levels)
        out.append(_path(curve.points, across, up, style))
        out += [_shape(style.shape, across(x), up(y), style.colour) for x, y in marked]
        at = int((i + 0.5) / len(loud) * len(inside))  # each name at its own part of the way
        named = inside[at : at + 1] if curve.marks else _at_levels(inside, levels[:1])
        name = chr(ord("A") + i) if lettered else short[curve.name]
        names += [_name(name, across(x), up(y), up.places[0], style, bold=lettered) for x, y in named]
        styles.append((f"{name}: {curve.name}" if lettered else curve.name, style))
    out += names  # above all curves
    if gap and across.holds(gap.at):
        out.append(_gap(gap, across(gap.at), up(gap.low), up(gap.high)))
    key = [*zip((curve.name for curve in quiet), background, strict=True), *styles]
    return _keyed(out, key)


def scatter(clouds: Mapping[str, Sequence[Spread]], front: Sequence[Place], axes: tuple[str, str]) -> Drawing:
    """Return points with upright intervals, a marker per named cloud, over the line of the frontier."""
    every = [point for cloud in clouds.values() for point in cloud]
    across = _Scale(span_of((x for x, *_ in every), zero=True), (62, WIDE - 12))
    up = _Scale(span_of((y for _, *ys in every for y in ys), zero=False), (270, 26))
    line = _Style(INK, 1.2, "6 3")
    out, marks, key = [_frame(across, up, axes), _path(front, across, up, line)], [], []
    for i, (name, cloud) in enumerate(clouds.items()):
        style = _Style(COLOURS[i % CURVES], shape=SHAPES[i % len(SHAPES)])
        key += [(name, style)] if cloud else []
        for x, y, low, high in cloud:
            out.append(_line(across(x), up(low), across(x), up(high), style.colour, 0.7))
            marks.append(_shape(style.shape, across(x), up(y), style.colour))
    key.append(("frontier", line))
    return _keyed([*out, *marks], key)


def span_of(numbers: Iterable[float | None], *, zero: bool, most: float | None = None) -> tuple[float, float]:
    """Return round limits that hold the numbers, and zero where it belongs to them."""
    finite = [v for v in numbers if v is not None and math.isfinite(v)]
    low, high = (min(finite), max(finite)) if finite else (0.0, 1.0)
    if zero:
        low, high = min(low, 0.0), max(high, 0.0)
    if low == high:
        high = low + (abs(low) or 1.0)
    step = _step(high - low, 4)
    low, high = math.floor(low / step + 1e-9) * step, math.ceil(high / step - 1e-9) * step
    return low, high if most is None else min(high, most)


def _step(length: float, count: int) -> float:
    """Return a round step; about ``count`` of them fit into the length."""
    raw = length / count
    if not raw or not math.isfinite(raw):
        return 1.0
    power = 10.0 ** math.floor(math.log10(raw))
    return next((m * power for m in (1, 2, 2.5, 5) if m * power >= raw * 0.999), 10 * power)


@dataclass(frozen=True)
class _Scale:
    """From values to places."""

    span: tuple[float, float]
    places: tuple[float, float]

    def holds(self, value: float) -> bool:
        slack = 1e-9 * (self.span[1] - self.span[0])
        return self.span[0] - slack <= value <= self.span[1] + slack

    def __call__(self, value: float) -> float:
        (low, high), (start, end) = self.span, self.places
        share = min(max((value - low) / (high - low), 0.0), 1.0)
        return start + share * (end - start)

    def ticks(self, count: int) -> list[tuple[float, str]]:
        """Return the places of round values, and the values as texts."""
        low, high = self.span
        step = _step(high - low, count)
        first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
        return [
            (self(k * step), f"{k * step if abs(k * step) >= 1e-12 else 0.0:.6g}")
            for k in range(first, last + 1)
        ]


def shortened(names: Iterable[str], most: int) -> dict[str, str]:
    """Return name -> itself, or with an ellipsis in its middle where it has more than ``most`` characters.

    Different names stay different: the ellipsis is where all of them do, after about two thirds and before a word if
    it can be; else in place of what all long names begin with; else names that would be equal are numbered.
    """
    whole = list(dict.fromkeys(names))
    long, usual = [name for name in whole if len(name) > most], (most - 1) // 3

    def far(tail: int) -> tuple[bool, int, int]:
        inside_words = sum(not name[-tail - 1].isspace() for name in long)
        return abs(tail - usual) > 2, inside_words, abs(tail - usual)

    ways = [partial(_elided, most=most, tail=tail) for tail in sorted(range(1, most - 1), key=far)]
    ways.append(partial(_from_difference, most=most, common=len(commonprefix(long))))  # noqa: RUF071  of characters
    for way in ways:
        short = {name: way(name) for name in whole}
        if len(set(short.values())) == len(whole):
            return short
    short = {name: name for name in whole if name not in long}
    taken, number = {*short}, 0
    for name in whole:
        text = short.get(name) or _elided(name, most, usual)
        while name not in short and text in taken:
            number += 1
            mark = f" ({number})"
            text = _elided(name, most - len(mark), 0) + mark
        short[name] = text
        taken.add(text)
    return short


def _from_difference(name: str, most: int, common: int) -> str:
    head = most // 4
    shown = f"{name[:head]}…{name[common:]}"[:most] if common > head else name
    return (
        name if len(name) <= most else shown if len(shown) <= most else _elided(name, most, (most - 1) // 3)
    )


def _elided(name: str, most: int, tail: int) -> str:
    return name if len(name) <= most else f"{name[: most - 1 - tail]}…{name[len(name) - tail :]}"


def _text(x: float, y: float, text: str, colour: str, anchor: str = "start", *, bold: bool = False) -> str:
    weight = ' font-weight="bold"' if bold else ""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" fill="{colour}" text-anchor="{anchor}"{weight} class="halo">'
        f"{escape(text)}</text>"
    )


def _dashed(dash: str) -> str:
    return f' stroke-dasharray="{dash}"' if dash else ""


def _line(x1: float, y1: float, x2: float, y2: float, colour: str, width: float, dash: str = "") -> str:
    return (
        f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}" '
        f'stroke-width="{width:g}"{_dashed(dash)}/>'
    )


def _path(points: Sequence[Place], across: _Scale, up: _Scale, style: _Style) -> str:
    places = " ".join(f"{across(x):.1f},{up(y):.1f}" for x, y in points if across.holds(x))
    return (
        f'<polyline points="{places}" fill="none" stroke="{style.colour}" stroke-width="{style.width:g}"'
        f"{_dashed(style.dash)}/>"
    )


def _shape(shape: str, x: float, y: float, colour: str, *, hollow: bool = False, size: float = 4.2) -> str:
    """Return a marker; those of strokes have no inside."""
    r = size
    if shape in STROKES:
        strokes = " ".join(
            f"M{x - r * dx:.1f} {y - r * dy:.1f}L{x + r * dx:.1f} {y + r * dy:.1f}"
            for dx, dy in STROKES[shape]
        )
        return f'<path d="{strokes}" stroke="{colour}" stroke-width="2" fill="none"/>'
    if shape == "circle":
        body = f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{r}"'
    else:
        places = " ".join(f"{x + r * dx:.1f},{y + r * dy:.1f}" for dx, dy in CORNERS[shape])
        body = f'<polygon points="{places}"'
    return f'{body} fill="{"#fff" if hollow else colour}" stroke="{colour}" stroke-width="1.6"/>'


def _interval(dot: Dot, scale: _Scale, y: float, shape: str, *, solid: bool, small: bool = False) -> str:
    """Return a dot on its interval; an end that is open has no cap and is not drawn."""
    left, right = scale.places
    middle = dot.low if dot.bound else dot.value
    if middle is None:
        return _line(left, y, right, y, FAINT, 1, "1 4")
    x = scale(middle)
    ends = [None if end is None else scale(end) for end in (dot.low, dot.high)]
    low, high = (x if end is None else end for end in ends)
    out = [_line(left, y, right, y, "#ececec", 1), _line(low, y, high, y, INK, 2, "" if solid else "3 2")]
    out += [_line(end, y - 4, end, y + 4, INK, 1.5) for end in ends if end is not None]
    if not dot.bound:
        colour, size = COLOURS[0] if solid else INK, 3.2 if small else 4.2
        out.append(_shape(shape, x, y, colour, hollow=not solid, size=size))
    return "".join(out)


def _axis(scale: _Scale, bottom: float, top: float, count: int = 5) -> str:
    left, right = scale.places
    out = [_line(left, bottom, right, bottom, INK, 1)]
    ticks = scale.ticks(count)
    for i, (x, text) in enumerate(ticks):
        first, last = i == 0 and x < 20, i == len(ticks) - 1 and x > NARROW - 20
        out.append(_line(x, top, x, bottom + 4, FAINT, 0.8))
        out.append(_text(x, bottom + 17, text, QUIET, "start" if first else "end" if last else "middle"))
    return "".join(out)


def _frame(across: _Scale, up: _Scale, axes: tuple[str, str]) -> str:
    (left, right), (bottom, top) = across.places, up.places
    out = []
    for x, text in across.ticks(5):
        out.append(_line(x, top, x, bottom + 4, FAINT, 0.8))
        out.append(_text(x, bottom + 17, text, QUIET, "middle"))
    for y, text in up.ticks(5):
        out.append(_line(left - 4, y, right, y, FAINT, 0.8))
        out.append(_text(left - 8, y + 4, text, QUIET, "end"))
    out.append(_line(left, bottom, right, bottom, INK, 1))
    out.append(_line(left, bottom, left, top, INK, 1))
    out.append(_text((left + right) / 2, bottom + 34, axes[0], INK, "middle"))
    out.append(_text(8, 14, axes[1], INK))
    return "".join(out)


def _at_levels(points: Sequence[Place], levels: Sequence[float]) -> list[Place]:
    """Return the points of a curve whose heights are nearest to the levels."""
    return [min(points, key=lambda p: (abs(p[1] - level), p[0])) for level in levels] if points else []


def _name(name: str, x: float, y: float, bottom: float, style: _Style, *, bold: bool) -> str:
    """Return the name of a curve next to one of its points, inside the picture."""
    side, shift = ("end", -8) if x + 8 + 7 * len(name) > WIDE - 4 else ("start", 8)
    height = y + 14 if y + 14 < bottom - 4 else y - 8
    return _text(x + shift, height, name, style.colour, side, bold=bold)


def _gap(gap: Gap, x: float, low: float, high: float) -> str:
    """Return a thick upright line with caps, and its text above and before it, where no growing curve or name is."""
    caps = [_line(x - 6, y, x + 6, y, INK, 2) for y in (low, high)]
    room = x > 44 + 8 * len(gap.text)
    side, shift, height = ("end", -10, high - 2) if room else ("start", 10, (low + high) / 2 + 4)
    text = _text(x + shift, height, gap.text, INK, side, bold=True)
    return "".join([_line(x, low, x, high, INK, 3), *caps, text])


def _keyed(body: list[str], key: Sequence[tuple[str, _Style]]) -> Drawing:
    """Return a drawing with its key below, in two columns where the longest name is short."""
    columns, most, top = (1, 56, 318) if max(len(name) for name, _ in key) > 22 else (2, 26, 318)
    names = shortened((name for name, _ in key), most)
    for i, (name, style) in enumerate(key):
        x, y = 10 + (i % columns) * (WIDE // 2), top + (i // columns) * 18
        if style.width:
            body.append(_line(x, y, x + 34, y, style.colour, style.width, style.dash))
        if style.shape:
            body.append(_shape(style.shape, x + 17, y, style.colour))
        body.append(_text(x + 42, y + 4, names[name], INK))
    return Drawing(WIDE, top + math.ceil(len(key) / columns) * 18 + 4, "".join(body), letters=13)
