"""HTML: one file with everything in it, for people who read reports and for paper.

The same sections and tables as text and Markdown, with pictures, intervals of every group, and the definition of every
number shown. The markup is in ``report.html`` and ``report.css`` in this folder. No script, no font, no picture is
fetched; the page even forbids it. Every picture has its numbers in a table, and says in words what it shows.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache

from jinja2 import Environment, PackageLoader, StrictUndefined, Template
from markupsafe import Markup, escape

from fairfix.auditing.metrics import metrics_for
from fairfix.auditing.results import in_percent
from fairfix.report import headline as headline_of_unrun
from fairfix.report.answer import ORDER, Stated, between_whom, brief, compared, headline
from fairfix.report.audits import group_metrics
from fairfix.report.classes import gap_id, gap_metrics
from fairfix.report.figures import FigurePart
from fairfix.report.frontier import frontier
from fairfix.report.layout import (
    HEADLINES,
    MARKS,
    Interval,
    Section,
    TextTable,
    Verdict,
    interval,
    kind_of,
    layout,
    read_and_used,
    titled,
)
from fairfix.report.picture import drawn
from fairfix.report.trends import shown_lines
from fairfix.report.verdicts import WORDS, cautions, limit, meaning, measured
from fairfix.report.words import as_references, plain, readable
from fairfix.schema import schema_id
from fairfix.schema.audit import Audit
from fairfix.schema.common import Block, CheckedResult, Record, SavedCheck, SavedResult
from fairfix.schema.compare import Compare, Models
from fairfix.schema.repair import Repair
from fairfix.schema.trend import Trend
from fairfix.schema.unrun import Unrun

FEW_SECTIONS = 3
"""A page with more has a list of them."""

WITH_PICTURES = ("attribute", "true groups", "classes", "slices", "gap parts")
"""Kinds of sections whose pictures stand before their tables, which are folded."""

FOLDED = ("stratum", "class", "facts", "not computed", "fitted", "solution", "notes", "other gap")
"""Kinds of sections that are folded."""

TERMS = {
    "N0": "an assumption on how groups were recorded: people of a true group are like those recorded as it, except for "
    "a fraction (the radius)",
    "N1": "the fraction of each true group recorded as each group is known; any rows can be the misrecorded ones",
    "N2": "the same, known by label",
    "N3": "N1 or N2, and the recording of a true group differs by at most eps between outcomes",
    "N4": "the recording of a group is independent of outcomes",
    "eps": "the largest difference in the recording of a true group between outcomes: 0 allows none, 1 allows any",
}
"""Terms of noisy groups, defined where they are on the page."""

WORDED = re.compile(r"[A-Za-z][A-Za-z -]*[A-Za-z]$")
"""A title in words, as sentences have it."""

NARROW = 4
"""A table with more columns is wider than a telephone."""

HALF = 5
"""A table of a picture with no more columns takes half the width of a sheet of paper."""

SIGNS = {"pass": "✔", "fail": "✖", "undecided": "?", "waived": "~"}
TERM = re.compile(rf"\b(?:{'|'.join(TERMS)})\b")
DEFINED = "Definitions of the numbers shown"
LONG_NAME = re.compile(r"(?<![a-z])[a-z]+(?:[._][a-z]+){3,}")
"""Names of comparisons, too long for a line of a telephone."""


@dataclass(frozen=True)
class Shown:
    """A section of the page; without an identifier the list of sections leaves it out."""

    title: str
    parts: tuple[FigurePart, ...]
    lines: tuple[str, ...] = ()
    ident: str = ""
    limits: tuple[tuple[str, str, str], ...] = ()
    """Condition, attribute and meaning of every limit."""
    folded: bool = False
    """Whether the page shows its title alone until it is asked."""
    verdict: Verdict | None = None
    """Worst verdict of an attribute."""
    gap: tuple[str, str, str] = ("", "", "")
    """Title, value and groups of the comparison that stands for an attribute."""


UNRUN = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="generator" content="fairfix">
<title>{0}</title>
<style>body {{ font: 1rem/1.5 sans-serif; max-width: 45rem; margin: 2rem auto; padding: 0 1rem }}</style>
</head>
<body>
<main>
<h1>{0}</h1>
<p>{1} ({2})</p>
</main>
</body>
</html>
"""
"""The page of a run that has no report."""


def unrun(problem: Unrun) -> str:
    """Return a page with the message."""
    return as_references(
        UNRUN.format(
            *(escape(plain(text)) for text in (headline_of_unrun(problem), problem.message, problem.code))
        )
    )


def render(result: SavedResult, *, detail: bool = False) -> str:
    """Return the report as one HTML page."""
    result = readable(result)
    detail = detail or isinstance(result, Repair | Compare)  # what they show of single fits is folded nowhere
    heading, *rest = layout(result, detail=detail)
    facts = tuple(line for line in heading.lines if not line.startswith("warning: "))  # they stand above
    sections = [_section(section, f"s{i}", result) for i, section in enumerate(rest, 1)]
    if isinstance(result, Compare):
        sections.insert(0, Shown("Frontier", (frontier(result),), ident="frontier"))
    checks = result.checks if isinstance(result, CheckedResult) else ()
    page = _template().render(
        title=heading.title,
        answer=facts if heading.kind == "answer" else (),
        facts=Shown("Data and settings", (FigurePart(grids=(_rows(result),)),), facts)
        if heading.kind != "answer"
        else None,
        metadata=_metadata(result),
        warnings=[f"{text} [{code}]" for code, text in cautions(result)],
        sections=[*sections, _definitions(result, detail=detail)],
        contents=len(rest) > FEW_SECTIONS,
        verdict=Verdict(result.verdict or "pass") if isinstance(result, CheckedResult) and checks else None,
        counts=_counts(result),
        ungated=isinstance(result, CheckedResult),
        gate_on=checks[0].gate_on if checks else "",
        version=result.fairfix,
        schema=schema_id(kind_of(result)),
        anchors=_anchors(result, detail=detail),
        linked=set(),
    )
    return as_references(page)


def environment_of(folder: str) -> Environment:
    """Return an environment for pages in a folder of the package, which escapes texts and lets none be missing."""
    environment = Environment(
        loader=PackageLoader("fairfix", folder),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["css"] = _css
    return environment


@cache
def _template() -> Template:
    environment = environment_of("report")
    environment.filters.update(breakable=_breakable, cards=_falls_apart, linked=_linked, sentence=_sentence)
    environment.tests.update(
        verdict=lambda cell: isinstance(cell, Verdict), interval=lambda cell: isinstance(cell, Interval)
    )
    environment.globals.update(
        SIGNS=SIGNS,
        VERDICTS={MARKS[code]: Verdict(code) for code in MARKS},
        NARROW=NARROW,
        HALF=HALF,
        DEFINED=DEFINED,
    )
    return environment.get_template("report.html")


def _breakable(text: str) -> Markup:
    """Return a text in which a line may break inside long names."""
    return Markup(  # noqa: S704  what is marked as safe is escaped first
        LONG_NAME.sub(lambda name: re.sub(r"(?<=[._])(?=\w)", "<wbr>", name[0]), str(escape(text)))
    )


def _linked(text: str, anchors: Mapping[str, str]) -> Markup:
    """Return a text with links to the definitions: of what it is as a whole, else of the terms in it."""
    if text in anchors:
        return Markup('<a href="#{}">{}</a>').format(anchors[text], _breakable(text))
    if isinstance(text, (Verdict, Interval)):
        return escape(text)
    if not any(term in anchors for term in TERMS):
        return _breakable(text)
    return Markup(  # noqa: S704  a term has nothing to escape, and the rest is escaped first
        TERM.sub(lambda term: f'<a href="#{anchors[term[0]]}">{term[0]}</a>', str(_breakable(text)))
    )


def _sentence(text: str, anchors: Mapping[str, str], linked: set[str]) -> Markup:
    """Return a sentence in which what is defined is a link where the page uses it first; ``linked`` has what was."""
    words = sorted(
        (name for name in anchors if name not in TERMS and WORDED.match(name)), key=len, reverse=True
    )
    if text in anchors or not words:
        return _linked(text, anchors)
    capitals = {name[0].upper() + name[1:]: name for name in words}
    defined = re.compile(
        rf"(?<![\w.-])(?:{'|'.join(map(re.escape, dict.fromkeys([*capitals, *words])))})(?![\w-])"
    )
    out, at = Markup(), 0
    for use in defined.finditer(text):
        name = use[0] if use[0] in anchors else capitals[use[0]]
        if name not in linked:
            linked.add(name)
            out += _linked(text[at : use.start()], anchors)
            out += Markup('<a href="#{}">{}</a>').format(anchors[name], use[0])
            at = use.end()
    return out + _linked(text[at:], anchors)


def _css(text: str) -> Markup:
    """Return a text as a string of CSS in which every character but letters and digits is a number.

    Blanks too: one that follows a number would only end it.
    """
    escaped = re.sub(r"[^A-Za-z0-9]", lambda one: f"\\{ord(one[0]):06x}", text)
    return Markup('"{}"').format(Markup(escaped))  # noqa: S704  no sign of HTML is left


def _anchors(result: SavedResult, *, detail: bool) -> dict[str, str]:
    """Return what is defined on the page, as shown, with the identifier of its definition."""
    names = {title: f"d-{name}" for title, name, _ in _named(result, detail=detail)}
    if isinstance(result, Audit) and result.noise is not None:
        names |= {term: f"d-{term}" for term in TERMS}
    return names


def _falls_apart(grid: TextTable) -> bool:
    """Tell whether a table is better read as cards on a telephone: one of words, or of few columns."""
    many = len(grid.headings)
    return many > 2 and (grid.text_columns == many or (grid.text_columns > 0 and many <= 4))


def _counts(result: SavedResult) -> str:
    """Return the number of checks of each verdict."""
    if not isinstance(result, CheckedResult):
        return ""
    verdicts: list[str] = [check.verdict for check in result.checks]
    return ", ".join(
        f"{verdicts.count(verdict)} {word}"
        for verdict, word in WORDS.items()
        if verdict != "waived" or result.waivers is not None
    )


def _metadata(result: SavedResult) -> dict[str, str]:
    """Return the entries below the title that are known: the data, its date, the model, and how the report was made."""
    record = result.record or Record(versions={})
    file = result.data.model.get("file", "") if isinstance(result, Audit) else ""
    entries = {
        "Data": f"{result.data.source}, {read_and_used(result)}",
        "Date of the data": record.date,
        "Model": record.model or file,
        "Version": f"fairfix {result.fairfix}",
        "Command": record.command,
    }
    return {name: entry for name, entry in entries.items() if entry}


def _rows(result: SavedResult) -> TextTable:
    rows = result.data.rows
    counted = {"read": rows.read, "used": rows.used}
    counted |= {f"left out: {one.reason}": one.rows for one in rows.excluded}
    table = tuple((name, f"{number:,}") for name, number in counted.items())
    return TextTable(("rows", "number"), table, 1, "Rows of the data")


def _section(section: Section, ident: str, result: SavedResult) -> Shown:
    """Return a section with its tables and what can be drawn of it."""
    figures = tuple(drawn(section, result))
    limits = tuple(
        (check.check, check.attribute, f"{limit(check)}: {measured(check, result)}.")
        for check in (section.about if isinstance(section.about, tuple) else ())
        if isinstance(check, SavedCheck)
    )
    if section.kind == "facts":
        figures = (FigurePart(grids=(_rows(result),)),)
    first = 1 if section.kind == "attribute" else 0  # the table of groups has intervals here
    tables = FigurePart(grids=section.grids[first:], folded=section.kind in WITH_PICTURES)
    folded = section.kind in FOLDED
    verdict, gap = None, ("", "", "")
    if isinstance(result, Audit) and isinstance(about := section.about, Block):
        own = () if about.stratum else [c for c in result.checks if c.attribute == about.attribute]
        if own:
            check = min(own, key=lambda one: ORDER.index(one.verdict))
            verdict, stated = Verdict(check.verdict), Stated.from_check(check, compared(check, result))
            gap = brief(check), interval(check), between_whom(stated, result)
        elif (one := headline(about)) is not None:
            stated = Stated.from_comparison(one, about.attribute, about.stratum)
            gap = titled(one.id), interval(one), between_whom(stated, result)
    return Shown(section.title, (tables, *figures), section.lines, ident, limits, folded, verdict, gap)


def _definitions(result: SavedResult, *, detail: bool) -> Shown:
    """Return the definition of every number shown."""
    always = isinstance(result, Audit) and result.settings.always_valid
    intervals = f"{in_percent(result.settings.confidence)} {'always-valid ' * always}intervals"
    text = (
        f"Numbers in brackets are {intervals}, simultaneous over the groups compared; – is undefined, which is never "
        "counted as 0. y is the label, p the score as a probability. P(A | B) is the fraction of the rows with B that "
        "have A, E[x] the mean of x."
    )
    rows = tuple(
        (title, "" if title == name else name, definition)
        for title, name, definition in dict.fromkeys(_named(result, detail=detail))
    )
    if isinstance(result, Audit) and result.noise is not None:
        rows += tuple((term, "", text) for term, text in TERMS.items())
    grid = TextTable(("shown as", "name", "definition"), rows, 3, DEFINED)
    return Shown("Definitions", (FigurePart(text=(text,), grids=(grid,)),), ident="definitions", folded=True)


def _named(result: SavedResult, *, detail: bool) -> Iterator[tuple[str, str, str]]:
    """Yield (as shown, identifier, definition) of every metric and comparison in the report."""
    names: list[str] = []
    if isinstance(result, Audit) and result.classes:
        names = [*(one.comparison for one in result.checks), *map(gap_id, gap_metrics(result))]
    elif isinstance(result, Audit):
        entries = metrics_for(result.settings.task)
        metrics, definitions = dict(group_metrics(result, detail=detail)), result.definitions
        for name, title in metrics.items():
            yield title, name, entries[name].formula
        titles = {name: name for name in definitions} if detail else HEADLINES
        titles = {name: title for name, title in titles.items() if name in definitions}
        yield from ((title, name, definitions[name]) for name, title in titles.items())
        checked = [check.comparison for check in result.checks]
        names = [name for name in checked if name not in metrics and name not in titles]
    elif isinstance(result, Compare):
        names = [
            name
            for point in result.points
            for name in (*(one.gap.comparison for one in point.gaps), *point.qualities)
        ]
    elif isinstance(result, Models):
        names = [*(one.comparison for one in result.changes), *(one.id for one in result.qualities)]
    elif isinstance(result, Trend):
        names = [one.comparison for one in shown_lines(result)]
    elif isinstance(result, Repair) and result.proof.holdout is not None:
        names = [row.id for row in result.proof.holdout.table]
    yield from ((titled(name), name, meaning(name, result)) for name in names)
