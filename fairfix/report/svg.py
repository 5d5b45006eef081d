"""Small pictures as SVG, written by hand from plain numbers: dots with intervals, pairs of them, curves, and points.

Nothing is told by colour alone: curves differ by dash and marker and carry their names, points differ by marker, before
and after by shape. Every text is escaped where it is written, in ``_text``.
"""

from __future__ import annotations

import math
import unicodedata
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
class GapMark:
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


def dots(
    rows: Sequence[Dot],
    span: tuple[float, float],
    line: Dot | None = None,
    mark: tuple[float, str] | None = None,
) -> Drawing:
    """Return a row per dot on a common axis, with name and text next to its interval if both are short, else above it.

    ``line`` is drawn across all, dashed; so is ``mark``, a limit with its name.
    """
    name_width = max((width_of(row.name) for row in rows), default=0.0)
    text_width = max((width_of(row.text) for row in rows), default=0.0)
    beside, start, whole = name_width <= 140 and text_width <= 70, (28 if line or mark else 10), RIGHT - LEFT
    stacked = not beside and whole - text_width < 100
    step = 18 if beside else 48 if stacked else 34
    bottom = start + step * len(rows) + 4
    scale = _Scale(span, (LEFT + name_width + 8, RIGHT - text_width - 12) if beside else (LEFT, RIGHT))
    out = [_axis(scale, bottom, start - 4)]
    uprights = [(line.value, QUIET, "4 3")] if line and line.value is not None else []
    for value, colour, dash in [*uprights, *([(mark[0], CUT, "5 3")] if mark else [])]:
        x, low = scale(value), 0 if beside else step - 18  # broken where the texts are
        out += [
            _line(x, start + step * i + low, x, start + step * (i + 1) + 1, colour, 1.4, dash)
            for i in range(len(rows))
        ]
    if line and line.value is not None:
        out.append(_line(LEFT, 12, LEFT + 22, 12, QUIET, 1.2, "4 3"))
        out.append(
            _text(LEFT + 28, 16, f"{_elided(line.name, 24, 8)} {line.text}", QUIET, most=whole / 2 - 30)
        )
    if mark:
        out.append(_text(RIGHT, 16, mark[1], CUT, "end", most=whole / 2 - 10))
    room = name_width if beside else whole if stacked else whole - text_width - 10
    names = fitted((row.name for row in rows), room)
    for i, row in enumerate(rows):
        top = start + step * i
        out.append(_text(LEFT, top + 13, names[row.name], INK, most=room))
        out.append(_text(RIGHT, top + (27 if stacked else 13), row.text, INK, "end", most=whole))
        out.append(
            _interval(row, scale, top + (9 if beside else step - 12), "circle", solid=True, small=beside)
        )
    return Drawing(NARROW, bottom + 24, "".join(out))


def pairs(rows: Sequence[tuple[str, Dot, Dot]], span: tuple[float, float]) -> Drawing:
    """Return two lines per (name, before, after): before hollow and dashed, after filled and solid."""
    start, step = 30, 56
    bottom = start + step * len(rows)
    text_width = min(max((width_of(dot.text) for _, *both in rows for dot in both), default=0.0), 200.0)
    scale = _Scale(span, (LEFT, RIGHT - text_width - 12))
    out = [_axis(scale, bottom, start - 6, count=3)]
    for word, shape, solid, x in (("before", "circle", False, LEFT), ("after", "square", True, LEFT + 110)):
        sample = Dot(word, 0.5, 0.0, 1.0, "")
        out.append(_interval(sample, _Scale((0, 1), (x, x + 36)), 12, shape, solid=solid))
        out.append(_text(x + 44, 16, word, INK))
    names = fitted((name for name, *_ in rows), RIGHT - LEFT)
    for i, (name, before, after) in enumerate(rows):
        top = start + step * i
        out.append(_text(LEFT, top + 12, names[name], INK, most=RIGHT - LEFT))
        for dot, shape, solid, y in ((before, "circle", False, top + 24), (after, "square", True, top + 40)):
            out.append(_interval(dot, scale, y, shape, solid=solid))
            out.append(_text(RIGHT, y + 4, dot.text, INK, "end", most=text_width))
    return Drawing(NARROW, bottom + 26, "".join(out))


def lines(
    curves: Sequence[Curve],
    axes: tuple[str, str],
    x_span: tuple[float, float],
    gap: GapMark | None = None,
    cut: tuple[float, str] | None = None,
) -> Drawing:
    """Return curves over a common x with y from 0 to 1, each with its name or letter next to it and in the key.

    ``cut`` is an x with its name, drawn as an upright dashed line.
    """
    across, up = _Scale(x_span, (44, WIDE - 12)), _Scale((0.0, 1.0), (270, 44))
    out, labels = [_frame(across, up, axes)], _Labels((46, 46, WIDE - 4, 268))
    if cut and across.holds(cut[0]):
        x, side = across(cut[0]), "end" if across(cut[0]) > WIDE / 2 else "start"
        out.append(_line(x, 44, x, 270, CUT, 1.5, "5 3"))
        out.append(_text(x, 36, cut[1], CUT, side, most=200, letters=13))
    if gap and across.holds(gap.at):
        x, low, high = across(gap.at), up(gap.low), up(gap.high)
        labels.place(
            gap.text, [(x - 10, high - 2), (x - 10, low + 12), (x + 10, (low + high) / 2)], INK, bold=True
        )
    quiet = [curve for curve in curves if curve.quiet]
    loud = [curve for curve in curves if not curve.quiet]
    background = [_Style(QUIET, 1.0, "2 2" if curve.marks else "") for curve in quiet]
    out += [_path(curve.points, across, up, style) for curve, style in zip(quiet, background, strict=True)]
    lettered = len(loud) > NAMED
    styles = []
    short = fitted((curve.name for curve in loud), 130, 13)
    for i, curve in enumerate(loud):
        style = _Style(COLOURS[i % CURVES], 1.8, DASHES[i % CURVES], SHAPES[i % CURVES])
        inside = [p for p in curve.points if across.holds(p[0])]
        levels = [((i + 0.5) / len(loud) + k / 3) % 1.0 for k in range(3)]
        marked = inside if curve.marks else _at_levels(inside, levels)
        out.append(_path(curve.points, across, up, style))
        out += [_shape(style.shape, across(x), up(y), style.colour) for x, y in marked]
        at = int(
            (i + 0.5) / len(loud) * len(inside)
        )  # each name begins its search at its own part of the way
        nearby = sorted(range(0, len(inside), max(1, len(inside) // 24)), key=lambda k: abs(k - at))
        name = chr(ord("A") + i) if lettered else short[curve.name]
        points = [(across(inside[k][0]), up(inside[k][1])) for k in nearby]
        places = [(x + dx, y + dy) for x, y in points for dx in (8, -8) for dy in (14, -6)]
        labels.place(name, places, style.colour, bold=lettered)
        styles.append((f"{name}: {curve.name}" if lettered else curve.name, style))
    out += labels.texts  # above all curves
    if gap and across.holds(gap.at):
        x, low, high = across(gap.at), up(gap.low), up(gap.high)
        caps = [_line(x - 6, y, x + 6, y, INK, 2) for y in (low, high)]
        out += [_line(x, low, x, high, INK, 3), *caps]
    key = [*zip((curve.name for curve in quiet), background, strict=True), *styles]
    return _keyed(out, key)


class _Labels:
    """Texts in an area that do not overlap: each takes the first of its places that is free, or is left to the key."""

    def __init__(self, area: tuple[float, float, float, float]) -> None:
        self.area, self.texts = area, list[str]()
        self._taken: list[tuple[float, float, float, float]] = []

    def place(self, text: str, places: Sequence[Place], colour: str, *, bold: bool) -> None:
        """Write a text at the first free place, to its right or else to its left."""
        wide = width_of(text, 13, bold=bold) + 2
        for x, y in places:
            for anchor, left in (("start", x), ("end", x - wide)):
                box = left, y - 13, left + wide, y + 5
                inside = box[0] >= self.area[0] and box[1] >= self.area[1]
                inside = inside and box[2] <= self.area[2] and box[3] <= self.area[3]
                if inside and not any(_overlap(box, other) for other in self._taken):
                    self._taken.append(box)
                    self.texts.append(_text(x, y, text, colour, anchor, bold=bold, letters=13))
                    return


def _overlap(one: tuple[float, float, float, float], other: tuple[float, float, float, float]) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


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


NARROWEST = 0.32
"""Width of the narrowest letters, as a part of the size of the letters."""

SLIM, BROAD = frozenset("iljtfrI.,:;'!|()[]/ -"), frozenset("mwMWQ@%&+=<>±×–—…")
"""Signs narrower, or wider, than most."""

LATER = 0x590
"""First character of the scripts whose widths are not known here, which are set to the width that they are given."""


def _em(sign: str) -> float:
    """Return how wide a sign is at most, as a part of the size of the letters."""
    if unicodedata.category(sign) in ("Mn", "Me", "Cf"):
        return 0.0
    if sign in SLIM:
        return 0.42
    if sign in BROAD:
        return 1.0
    if ord(sign) >= LATER:
        return 1.3 if ord(sign) >= 0x1F000 else 1.0
    return 0.8 if sign.isupper() else 0.66


def width_of(text: str, letters: float = 12, *, bold: bool = False) -> float:
    """Return about how wide a text is at most, in a font with wide letters such as DejaVu Sans."""
    return letters * (1.12 if bold else 1.0) * sum(map(_em, text))


def fitted(names: Iterable[str], room: float, letters: float = 12) -> dict[str, str]:
    """Return name -> itself, or as much of it as is as wide as there is room; different names stay different."""
    whole = list(dict.fromkeys(names))
    most = min(max(map(len, whole), default=0), int(room / (NARROWEST * letters)) + 1)
    while most > LEAST:
        short = shortened(whole, most)
        if all(width_of(text, letters) <= room for text in short.values()):
            return short
        most -= 1 + most // 16
    return shortened(whole, LEAST)


LEAST = 10
"""Characters of a name that are shown in any case, pressed together if they must."""


def _text(
    x: float,
    y: float,
    text: str,
    colour: str,
    anchor: str = "start",
    *,
    bold: bool = False,
    most: float = math.inf,
    letters: int = 12,
) -> str:
    """Return a text that is no wider than ``most``: it is pressed together where its letters may be too wide."""
    wide = width_of(text, letters, bold=bold)
    unknown = any(ord(sign) >= LATER and sign not in BROAD for sign in text)
    length = (
        f' textLength="{min(wide, most):.0f}" lengthAdjust="spacingAndGlyphs"'
        if wide > most or unknown
        else ""
    )
    weight = ' font-weight="bold"' if bold else ""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" fill="{colour}" text-anchor="{anchor}"{weight}{length} class="halo">'
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
    return _line(left, bottom, right, bottom, INK, 1) + _below(scale, bottom, top, count, NARROW, 12)


def _below(scale: _Scale, bottom: float, top: float, count: int, width: int, letters: int) -> str:
    """Return upright lines at round values, which have their texts below where these are inside and apart."""
    out, end = [], 0.0
    for x, text in scale.ticks(count):
        half = width_of(text, letters) / 2
        middle = min(max(x, half + 2), width - half - 2)
        out.append(_line(x, top, x, bottom + 4, FAINT, 0.8))
        if middle - half >= end:
            out.append(_text(middle, bottom + 17, text, QUIET, "middle", letters=letters))
            end = middle + half + 6
    return "".join(out)


def _frame(across: _Scale, up: _Scale, axes: tuple[str, str]) -> str:
    (left, right), (bottom, top) = across.places, up.places
    out = [_below(across, bottom, top, 5, WIDE, 13)]
    for y, text in up.ticks(5):
        out.append(_line(left - 4, y, right, y, FAINT, 0.8))
        out.append(_text(left - 8, y + 4, text, QUIET, "end", most=left - 10, letters=13))
    out.append(_line(left, bottom, right, bottom, INK, 1))
    out.append(_line(left, bottom, left, top, INK, 1))
    middle = (left + right) / 2
    out.append(_text(middle, bottom + 34, axes[0], INK, "middle", most=2 * (WIDE - middle) - 8, letters=13))
    out.append(_text(8, 14, axes[1], INK, most=WIDE - 16, letters=13))
    return "".join(out)


def _at_levels(points: Sequence[Place], levels: Sequence[float]) -> list[Place]:
    """Return the points of a curve whose heights are nearest to the levels."""
    return [min(points, key=lambda p: (abs(p[1] - level), p[0])) for level in levels] if points else []


def _keyed(body: list[str], key: Sequence[tuple[str, _Style]]) -> Drawing:
    """Return a drawing with its key below, in two columns where the longest name is short."""
    widest, top = max(width_of(name, 13) for name, _ in key), 318
    columns, room = (1, WIDE - 60) if widest > WIDE / 2 - 60 else (2, WIDE / 2 - 56)
    names = fitted((name for name, _ in key), room, 13)
    for i, (name, style) in enumerate(key):
        x, y = 10 + (i % columns) * (WIDE // 2), top + (i // columns) * 18
        if style.width:
            body.append(_line(x, y, x + 34, y, style.colour, style.width, style.dash))
        if style.shape:
            body.append(_shape(style.shape, x + 17, y, style.colour))
        body.append(_text(x + 42, y + 4, names[name], INK, most=room, letters=13))
    return Drawing(WIDE, top + math.ceil(len(key) / columns) * 18 + 4, "".join(body), letters=13)
