"""Small pictures as SVG, written by hand from plain numbers: dots with intervals, pairs of them, and curves.

Each is a string of one ``<svg>`` with a title and a description that say what is drawn. Nothing is told by colour
alone: curves differ by dash and marker and carry their names, before and after differ by shape. Every name is escaped.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

NARROW, WIDE = 360, 440
LEFT, RIGHT = 10, 350
INK, QUIET, FAINT = "#1a1a1a", "#595959", "#d0d0d0"
COLOURS = ("#0072b2", "#c04f00", "#007a5a", "#8f4a8b", "#1a1a1a", "#7a6000", "#a3123a", "#3d5a80")
DASHES = ("", "8 3", "2 3", "10 3 2 3", "15 4", "5 2 1 2", "1 2", "12 3 4 3")
SHAPES = ("circle", "square", "triangle", "diamond", "cross", "plus", "down", "star")
CURVES = len(COLOURS)
"""So many curves can be told apart in one picture."""
NAMED = 4
"""Up to so many carry their names; more carry letters, which the key explains."""


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
class Pair:
    """A value before and after, each with its interval."""

    name: str
    before: Dot
    after: Dot


@dataclass(frozen=True)
class Curve:
    """A named line through points; ``quiet`` draws it as background."""

    name: str
    points: tuple[tuple[float, float], ...]
    quiet: bool = False
    marks: bool = False


@dataclass(frozen=True)
class Gap:
    """A vertical distance between two curves."""

    at: float
    low: float
    high: float
    text: str


def dots(
    ident: str,
    title: str,
    told: str,
    rows: Sequence[Dot],
    span: tuple[float, float],
    line: Dot | None = None,
) -> str:
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
        out.append(_text(LEFT + 28, 16, f"{shortened(line.name, 24)} {line.text}", QUIET))
    for i, row in enumerate(rows):
        top = start + step * i
        out.append(_text(LEFT, top + 12, shortened(row.name, 26), INK))
        out.append(_text(RIGHT, top + 12, row.text, INK, "end"))
        out.append(_interval(row, scale, top + 22, "circle", solid=True))
    return _svg(ident, title, told, NARROW, bottom + 24, out)


def pairs(ident: str, title: str, told: str, rows: Sequence[Pair], span: tuple[float, float]) -> str:
    """Return two lines per pair: before hollow and dashed, after filled and solid."""
    start, step = 30, 56
    bottom = start + step * len(rows)
    scale = _Scale(span, (LEFT, 205))
    out = [_axis(scale, bottom, start - 6, count=3)]
    key = (("before", "circle", False, LEFT), ("after", "square", True, LEFT + 110))
    for word, shape, solid, x in key:
        sample = Dot(word, 0.5, 0.0, 1.0, "")
        out.append(_interval(sample, _Scale((0, 1), (x, x + 36)), 12, shape, solid=solid))
        out.append(_text(x + 44, 16, word, INK))
    for i, row in enumerate(rows):
        top = start + step * i
        out.append(_text(LEFT, top + 12, shortened(row.name, 54), INK))
        for dot, shape, solid, y in (
            (row.before, "circle", False, top + 24),
            (row.after, "square", True, top + 40),
        ):
            out.append(_interval(dot, scale, y, shape, solid=solid))
            out.append(_text(214, y + 4, dot.text, INK))
    return _svg(ident, title, told, NARROW, bottom + 26, out)


def lines(
    ident: str,
    title: str,
    told: str,
    curves: Sequence[Curve],
    axes: tuple[str, str],
    x_span: tuple[float, float],
    gap: Gap | None = None,
) -> str:
    """Return curves over a common x with y from 0 to 1, each with its name or letter beside it and in the key."""
    across, up = _Scale(x_span, (44, WIDE - 12)), _Scale((0.0, 1.0), (270, 26))
    out = [_frame(across, up, axes)]
    loud = [curve for curve in curves if not curve.quiet]
    out += [
        _path(curve, across, up, QUIET, 1.0, "2 2" if curve.marks else "") for curve in curves if curve.quiet
    ]
    for i, curve in enumerate(loud):
        out.append(_path(curve, across, up, COLOURS[i % CURVES], 1.8, DASHES[i % CURVES]))
        inside = [p for p in curve.points if across.holds(p[0])]
        levels = [((i + 0.5) / len(loud) + k / 3) % 1.0 for k in range(3)]
        shown = inside if curve.marks else _at_levels(inside, levels)
        out += [_shape(SHAPES[i % CURVES], across(x), up(y), COLOURS[i % CURVES]) for x, y in shown]
    lettered = len(loud) > NAMED
    names = [chr(ord("A") + i) if lettered else shortened(curve.name, 16) for i, curve in enumerate(loud)]
    for i, curve in enumerate(loud):
        inside = [p for p in curve.points if across.holds(p[0])]
        where = inside if curve.marks else _at_levels(inside, [(i + 0.5) / len(loud)])
        for x, y in _along(where, i, len(loud)) if curve.marks else where:
            side = "end" if across(x) + 8 + 7 * len(names[i]) > WIDE - 4 else "start"
            shift = -8 if side == "end" else 8
            low = up(y) + 14
            height = low if low < up.places[0] - 4 else up(y) - 8
            out.append(_text(across(x) + shift, height, names[i], COLOURS[i % CURVES], side, bold=lettered))
    if gap and across.holds(gap.at):
        out.append(_gap(gap, across(gap.at), up(gap.low), up(gap.high)))
    key, height = _key(curves, names if lettered else [], 318)
    return _svg(ident, title, told, WIDE, height, [*out, *key], size=13)


# ---------------------------------------------------------------------- scales


def span_of(values: Iterable[float | None], *, zero: bool, most: float | None = None) -> tuple[float, float]:
    """Return round limits that hold the values, and zero where it belongs to them."""
    known = [v for v in values if v is not None and math.isfinite(v)]
    low, high = (min(known), max(known)) if known else (0.0, 1.0)
    if zero:
        low, high = min(low, 0.0), max(high, 0.0)
    if low == high:
        high = low + (abs(low) or 1.0)
    step = _step(high - low, 4)
    low, high = math.floor(low / step + 1e-9) * step, math.ceil(high / step - 1e-9) * step
    return low, high if most is None else min(high, most)


def _step(length: float, count: int) -> float:
    """Return a round step of which about ``count`` fit into the length."""
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

    def ticks(self, count: int) -> list[float]:
        low, high = self.span
        step = _step(high - low, count)
        first = math.ceil(low / step - 1e-9)
        return [k * step for k in range(first, math.floor(high / step + 1e-9) + 1)]


def _tick(value: float) -> str:
    return f"{0.0 if abs(value) < 1e-12 else value:.6g}"


# ---------------------------------------------------------------------- parts


def shortened(text: str, most: int) -> str:
    """Return the text, with an ellipsis in its middle where it is too long for a picture."""
    tail = (most - 1) // 3
    return text if len(text) <= most else f"{text[: most - 1 - tail]}…{text[len(text) - tail :]}"


def _svg(
    ident: str, title: str, told: str, width: int, height: float, parts: Iterable[str], size: int = 12
) -> str:
    return (
        f'<svg viewBox="0 0 {width} {height:g}" role="img" aria-labelledby="{ident}-t {ident}-d" '
        f'font-size="{size}"><title id="{ident}-t">{escape(title)}</title>'
        f'<desc id="{ident}-d">{escape(told)}</desc>{"".join(parts)}</svg>'
    )


def _text(x: float, y: float, text: str, colour: str, anchor: str = "start", *, bold: bool = False) -> str:
    weight = ' font-weight="bold"' if bold else ""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" fill="{colour}" text-anchor="{anchor}"{weight} class="halo">'
        f"{escape(text)}</text>"
    )


def _line(x1: float, y1: float, x2: float, y2: float, colour: str, width: float, dash: str = "") -> str:
    dashed = f' stroke-dasharray="{dash}"' if dash else ""
    return (
        f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}" '
        f'stroke-width="{width:g}"{dashed}/>'
    )


def _shape(shape: str, x: float, y: float, colour: str, *, hollow: bool = False) -> str:
    """Return a marker; crosses have no inside."""
    r = 4.2
    if shape == "circle":
        body = f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{r}"'
    elif shape in ("cross", "plus", "star"):
        ends = {"cross": ((1, 1), (1, -1)), "plus": ((1, 0), (0, 1)), "star": ((1, 0.6), (1, -0.6), (0, 1.1))}
        strokes = " ".join(
            f"M{x - r * dx:.1f} {y - r * dy:.1f}L{x + r * dx:.1f} {y + r * dy:.1f}" for dx, dy in ends[shape]
        )
        return f'<path d="{strokes}" stroke="{colour}" stroke-width="2" fill="none"/>'
    else:
        corners = {
            "square": ((-1, -1), (1, -1), (1, 1), (-1, 1)),
            "triangle": ((0, -1.2), (1.1, 0.9), (-1.1, 0.9)),
            "diamond": ((0, -1.3), (1.3, 0), (0, 1.3), (-1.3, 0)),
            "down": ((0, 1.2), (1.1, -0.9), (-1.1, -0.9)),
        }[shape]
        body = f'<polygon points="{" ".join(f"{x + r * dx:.1f},{y + r * dy:.1f}" for dx, dy in corners)}"'
    return f'{body} fill="{"#fff" if hollow else colour}" stroke="{colour}" stroke-width="1.6"/>'


def _interval(dot: Dot, scale: _Scale, y: float, shape: str, *, solid: bool) -> str:
    """Return a dot on its interval; an end that is open has no cap and is not drawn."""
    middle = dot.low if dot.bound else dot.value
    if middle is None:
        return _line(scale.places[0], y, scale.places[1], y, FAINT, 1, "1 4")
    x = scale(middle)
    low, high = (x if end is None else scale(end) for end in (dot.low, dot.high))
    out = [_line(scale.places[0], y, scale.places[1], y, "#ececec", 1)]
    out.append(_line(low, y, high, y, INK, 2, "" if solid else "3 2"))
    out += [
        _line(place, y - 4, place, y + 4, INK, 1.5)
        for end, place in ((dot.low, low), (dot.high, high))
        if end is not None
    ]
    if dot.bound:
        return "".join(out)
    return "".join(out) + _shape(shape, x, y, COLOURS[0] if solid else INK, hollow=not solid)


def _axis(scale: _Scale, bottom: float, top: float, count: int = 5) -> str:
    out = [_line(*_ends(scale, bottom), INK, 1)]
    places = scale.ticks(count)
    for i, value in enumerate(places):
        x = scale(value)
        anchor = (
            "start" if i == 0 and x < 20 else "end" if i == len(places) - 1 and x > NARROW - 20 else "middle"
        )
        out.append(_line(x, top, x, bottom + 4, FAINT, 0.8))
        out.append(_text(x, bottom + 17, _tick(value), QUIET, anchor))
    return "".join(out)


def _ends(scale: _Scale, y: float) -> tuple[float, float, float, float]:
    return scale.places[0], y, scale.places[1], y


def _frame(across: _Scale, up: _Scale, axes: tuple[str, str]) -> str:
    bottom = up.places[0]
    out = []
    for value in across.ticks(5):
        x = across(value)
        out.append(_line(x, up.places[1], x, bottom + 4, FAINT, 0.8))
        out.append(_text(x, bottom + 17, _tick(value), QUIET, "middle"))
    for value in up.ticks(5):
        y = up(value)
        out.append(_line(across.places[0] - 4, y, across.places[1], y, FAINT, 0.8))
        out.append(_text(across.places[0] - 8, y + 4, _tick(value), QUIET, "end"))
    out.append(_line(*_ends(across, bottom), INK, 1))
    out.append(_line(across.places[0], bottom, across.places[0], up.places[1], INK, 1))
    out.append(_text(sum(across.places) / 2, bottom + 34, axes[0], INK, "middle"))
    out.append(_text(8, 14, axes[1], INK))
    return "".join(out)


def _path(curve: Curve, across: _Scale, up: _Scale, colour: str, width: float, dash: str) -> str:
    points = " ".join(f"{across(x):.1f},{up(y):.1f}" for x, y in curve.points if across.holds(x))
    dashed = f' stroke-dasharray="{dash}"' if dash else ""
    return f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="{width:g}"{dashed}/>'


def _at_levels(points: Sequence[tuple[float, float]], levels: Sequence[float]) -> list[tuple[float, float]]:
    """Return the points of a curve whose heights are nearest to the levels."""
    if not points:
        return []
    return [min(points, key=lambda p: (abs(p[1] - level), p[0])) for level in levels]


def _along(points: Sequence[tuple[float, float]], i: int, many: int) -> Sequence[tuple[float, float]]:
    """Return the point that carries the name of one of many curves: each its own part of the way."""
    at = int((i + 0.5) / many * len(points))
    return points[at : at + 1]


def _gap(gap: Gap, x: float, low: float, high: float) -> str:
    """Return a thick upright line with caps, and its text beside it."""
    caps = [_line(x - 6, y, x + 6, y, INK, 2) for y in (low, high)]
    side, shift = ("end", -10) if x > WIDE * 0.6 else ("start", 10)
    text = _text(x + shift, (low + high) / 2 + 4, gap.text, INK, side, bold=True)
    return "".join([_line(x, low, x, high, INK, 3), *caps, text])


def _key(curves: Sequence[Curve], letters: Sequence[str], top: int) -> tuple[list[str], float]:
    """Return the key, in two columns where the names are short, and where it ends."""
    columns = 1 if max(len(curve.name) for curve in curves) > 22 else 2
    most, out, loud = (26 if columns == 2 else 56), [], 0
    for i, curve in enumerate(curves):
        x, y, name = 10 + (i % columns) * (WIDE // 2), top + (i // columns) * 18, curve.name
        if curve.quiet:
            out.append(_line(x, y, x + 34, y, QUIET, 1, "2 2" if curve.marks else ""))
        else:
            out.append(_line(x, y, x + 34, y, COLOURS[loud % CURVES], 1.8, DASHES[loud % CURVES]))
            out.append(_shape(SHAPES[loud % CURVES], x + 17, y, COLOURS[loud % CURVES]))
            name = f"{letters[loud]}: {name}" if letters else name
            loud += 1
        out.append(_text(x + 42, y + 4, shortened(name, most), INK))
    return out, top + math.ceil(len(curves) / columns) * 18 + 4
