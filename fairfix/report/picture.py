"""Pictures of results in notebooks: those of the HTML report, below one another in one SVG."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from fairfix.auditing.custom_metrics import added
from fairfix.errors import UsageError
from fairfix.report import figures, repair_figures
from fairfix.report.figures import Figure, FigurePart
from fairfix.report.frontier import frontier
from fairfix.report.layout import Section, layout
from fairfix.report.words import readable
from fairfix.schema.audit import Audit, ExplainedGap, NoiseResults, StateBatches
from fairfix.schema.common import Block, GroupChanges, SavedResult
from fairfix.schema.compare import Compare
from fairfix.schema.repair import Evaluation, GroupRule
from fairfix.schema.slices import SliceSearch
from fairfix.schema.trend import Line, Trend

WIDTH, MARGIN, HEADING = 480, 12, 28
STYLE = (
    "text { font-family: system-ui, sans-serif } "
    ".halo { paint-order: stroke; stroke: #fff; stroke-width: 3px; stroke-linejoin: round }"
)


class Picture:
    """Figures as one SVG picture, which a notebook shows by itself; ``svg`` is its text."""

    def __init__(self, shown: tuple[Figure, ...]) -> None:
        self.headings = tuple(figure.heading for figure in shown)
        body, top = "", MARGIN
        for figure in shown:
            drawing, width = figure.drawing, WIDTH - 2 * MARGIN
            height = drawing.height * width / drawing.width
            body += (
                f'<text x="{MARGIN}" y="{top + 16}" font-size="15" font-weight="bold">{escape(figure.heading)}</text>'
                f'<svg x="{MARGIN}" y="{top + HEADING}" width="{width}" height="{height:g}" '
                f'viewBox="0 0 {drawing.width} {drawing.height:g}" font-size="{drawing.letters}">'
                f"<desc>{escape(figure.description)}</desc>{drawing.body}</svg>"
            )
            top += HEADING + round(height) + MARGIN
        self.svg = (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{top}" viewBox="0 0 {WIDTH} {top}">'
            f"<title>fairfix</title><style>{STYLE}</style>"
            f'<rect width="100%" height="100%" fill="#fff"/>{body}</svg>\n'
        )

    def __repr__(self) -> str:
        return f"Picture({', '.join(map(repr, self.headings))})"

    def _repr_svg_(self) -> str:
        return self.svg


def picture_of(result: SavedResult, about: str = "") -> Picture:
    """Return the main pictures of a result, or all whose heading has the words of ``about``.

    Raises
    ------
    UsageError
        The result has no picture, or none of these words.
    """
    with added(getattr(result, "own_metrics", ())):
        parts = list(_parts(readable(result)))
    every = [figure for part in parts for figure in part.figures]
    shown = [figure for part in parts for figure in part.figures if not part.folded]
    if about:
        shown = [figure for figure in every if about.lower() in figure.heading.lower()]
    if not shown:
        there = ", ".join(repr(figure.heading) for figure in every)
        raise UsageError(f"no picture about {about!r}; there are {there}" if every else "nothing to draw")
    return Picture(tuple(shown))


def _parts(result: SavedResult) -> Iterator[FigurePart]:
    """Yield the parts of the page with figures."""
    if isinstance(result, Compare):
        yield frontier(result)
        return
    for section in layout(result, detail=False):
        yield from drawn(section, result)


def drawn(section: Section, result: SavedResult) -> Iterator[FigurePart]:
    """Yield the pictures of a section of a result, by what it is about."""
    match section.about:
        case Block() as block if section.kind == "classes" and isinstance(result, Audit):
            yield from figures.class_gaps(block, result)
        case Block() as block if section.kind == "attribute" and isinstance(result, Audit):
            yield from figures.attribute(block, result, section.grids)
        case Evaluation() as proof:
            yield from figures.before_after(proof, section.title)
        case SliceSearch() as search:
            yield from figures.slices(search)
        case ExplainedGap() as gap:
            yield from figures.gap_parts(gap)
        case NoiseResults() as noise:
            yield from figures.true_gaps(noise)
        case StateBatches() as state:
            yield from figures.history(state)
        case Line() as line if isinstance(result, Trend):
            yield figures.trend(line, result)
        case GroupChanges() as changes:
            yield from repair_figures.people(changes)
        case tuple() as each if rules := [one for one in each if isinstance(one, GroupRule)]:
            yield from repair_figures.rule(rules)
