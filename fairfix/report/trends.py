"""The sections of a trend: the answer, the audits, each number over time, and what cannot be compared."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from fairfix.auditing.results import in_percent
from fairfix.report.answer import HEADLINE, sentence
from fairfix.report.layout import Columns, Section, TextTable, Verdict, data_lines, interval, titled
from fairfix.report.models import movement, writer_of
from fairfix.schema.trend import Line, Moment, Trend


def sections(result: Trend, *, detail: bool) -> Iterator[Section]:
    """Yield the sections of a trend."""
    yield Section(f"fairfix trend of {len(result.moments)} audits", tuple(_answer(result)), kind="answer")
    names = named_moments(result)
    where = any(one.where for one in result.moments)
    columns: Columns = {
        "audit": lambda row: str(row[0] + 1),
        "date": lambda row: row[1].date or "not stated",
        "file": lambda row: row[1].file,
        "data": lambda row: row[1].source,
        **({"rows where": lambda row: row[1].where or "all"} if where else {}),
        "verdict": lambda row: _verdict(row[1].verdict),
        "rows": lambda row: f"{row[1].rows:,}",
    }
    yield Section(
        "Audits", (), (TextTable.of(columns, enumerate(result.moments), len(columns) - 1, "Audits"),)
    )
    for line in result.lines if detail else shown_lines(result):
        undefined = dict.fromkeys(one.reason for one in line.series if one.reason)
        whose = (
            f"{', '.join(name for name, one in zip(names, line.series, strict=True) if one.reason == why)}: {why}"
            for why in undefined
        )
        yield Section(heading_of(line), tuple(whose), (_grid(line, names),), "trend", line)
    reasons: dict[tuple[str, str], list[str]] = {}
    for moment, name in zip(result.moments, names, strict=True):
        for one in moment.not_comparable:
            reasons.setdefault((name, one.reason), []).append(one.id)
    if reasons:
        missing = (
            f"{name}: {', '.join(dict.fromkeys(ids))}: {reason}" for (name, reason), ids in reasons.items()
        )
        yield Section("Not in the trend", tuple(missing), kind="not comparable")
    yield Section("Data and settings of the last audit", tuple(data_lines(result)), kind="facts")


def shown_lines(result: Trend) -> Sequence[Line]:
    """Return the lines of the short report: those with a check, and the headline of each attribute."""
    attributes = dict.fromkeys(one.attribute for one in result.lines)
    headlines = {
        (attribute, next((name for name in HEADLINE if name in there), there[0]))
        for attribute in attributes
        if (there := [one.comparison for one in result.lines if one.attribute == attribute])
    }
    return [one for one in result.lines if one.check or (one.attribute, one.comparison) in headlines]


def named_moments(result: Trend) -> list[str]:
    """Return a short name of each audit: its date, or its file."""
    dates = [one.date for one in result.moments]
    if result.order == "date" and len(set(dates)) == len(dates):
        return dates
    return [os.path.basename(one.file) for one in result.moments]  # noqa: PTH119  the name of a text


def heading_of(line: Line) -> str:
    """Return the attribute and the number of a line, with its check."""
    return f"By {line.attribute}: {_number(line)}" + (f" ({line.check})" if line.check else "")


def _number(line: Line) -> str:
    return titled(line.comparison) + (f" of {line.group}" if line.group else "")


def _verdict(code: str | None) -> str:
    return "" if code is None else Verdict(code)


def _answer(result: Trend) -> Iterator[str]:
    """Yield how each number of the short report changed, and where its verdict changed first."""
    confidence, names = in_percent(result.settings.confidence), named_moments(result)
    spoken = set[str]()
    for line in shown_lines(result):
        title = f"by {line.attribute}, the {_number(line)}"
        if line.id not in spoken and (change := line.change) is not None:
            yield movement(change, title, writer_of(change), confidence)
        elif line.id not in spoken:
            many = sum(one.value is not None for one in line.series)
            yield sentence(
                f"{title} has a comparable value in {many} of {len(names)} audits, so there is no change"
            )
        spoken.add(line.id)
        if line.check:
            yield sentence(_turn(line, names, result.moments))
    missing = [name for name, one in zip(names, result.moments, strict=True) if one.not_comparable]
    if missing:
        yield f"Some numbers of {', '.join(missing)} are not in the trend; the reasons are below."
    yield (
        "Audits are in the order of the dates of their data."
        if result.order == "date"
        else "Audits are in the order in which their files were given, because not every audit has a date such as "
        "2024-03-31 ([report] date in the configuration)."
    )
    yield (
        f"Each {confidence} interval is for one audit alone. A change is the last audit minus the first comparable "
        "one; both are treated as independent samples."
    )


def _turn(line: Line, names: Sequence[str], moments: Sequence[Moment]) -> str:
    """Return in which audit the verdict of a check changed first."""
    about = f"by {line.attribute}, the verdict of {line.check}"
    verdicts = [one.verdict for one in line.series if one.verdict is not None]
    if line.changed is None:
        where = "every audit that has it" if len(verdicts) > 1 else "the last audit"
        return f"{about} is {Verdict(verdicts[-1])} in {where}"
    after = line.series[line.changed - 1].verdict
    before = next(one.verdict for one in reversed(line.series[: line.changed - 1]) if one.verdict is not None)
    file = moments[line.changed - 1].file
    which = names[line.changed - 1]
    return (
        f"{about} changed first in audit {line.changed} ({which if which == file else f'{which}, {file}'}): "
        f"from {Verdict(before)} to {Verdict(after or before)}"
    )


def _grid(line: Line, names: Sequence[str]) -> TextTable:
    """Return the table of a number over time."""
    columns: Columns = {
        "audit": lambda row: f"{row[0]}, {row[1]}",
        **({"verdict": lambda row: _verdict(row[2].verdict)} if line.check else {}),
        "groups": lambda row: ", ".join(row[2].groups),
        "value [interval]": lambda row: interval(row[2]),
    }
    rows = [(i, name, one) for i, (name, one) in enumerate(zip(names, line.series, strict=True), 1)]
    return TextTable.of(columns, rows, len(columns) - 1, heading_of(line))
