"""Results of tasks: their JSON form, and what it is rendered into."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from inspect import signature
from typing import TYPE_CHECKING, Any

from fairfix.auditing.checks import exit_status
from fairfix.data.choices import Undecided
from fairfix.errors import DataError, UsageError
from fairfix.schema.common import CheckedResult, RowNumbers, SavedResult

if TYPE_CHECKING:
    import pandas as pd

    from fairfix.data.data_spec import DataSpec
    from fairfix.report.frames import GapRow
    from fairfix.report.picture import Picture

MAKE = "fairfix audit DATA --protected COLUMN --format json > audit.json"


def load_result(path: str | os.PathLike[str]) -> SavedResult:
    """Return a saved result; a DataError where a file holds none, or one that is incomplete or was changed."""
    from fairfix.auditing.saved_results import checked_result
    from fairfix.data.codec import LONGEST_FAULT, shortened
    from fairfix.data.files import read_json
    from fairfix.schema import RESULTS, schema_id

    supported = [schema_id(name) for name in RESULTS if name != "unrun"]
    content = read_json(path)
    schema = content.get("schema") if isinstance(content, dict) else None
    if schema not in supported:
        raise DataError(
            f"{path} is not a result of this version of fairfix (schema {schema!r}); supported schemas are "
            f"{', '.join(supported)}; make one: {MAKE}"
        )
    try:
        return checked_result(content)
    except ValueError as error:
        raise DataError(
            f"{path}: the result is incomplete or was changed: {shortened(str(error), LONGEST_FAULT)}; make it again, "
            "or use an unchanged copy"
        ) from error


FRAME = "width:100%;height:36rem;border:1px solid #888;resize:vertical;overflow:auto"
"""Style of the frame that a notebook shows a report in."""


def framed(page: str, title: str, *, sandbox: str = "", allow: str = "") -> str:
    """Return a page in a frame for a notebook; ``sandbox`` and ``allow`` are what it may do, by default nothing."""
    import html

    allowed = f' allow="{allow}"' if allow else ""
    shown = html.escape(page, quote=True)
    return f'<iframe srcdoc="{shown}" sandbox="{sandbox}"{allowed} title="{title}" style="{FRAME}"></iframe>'


@dataclass(frozen=True, repr=False)
class Result:
    """A result of a task; ``content`` has all its fields, typed, as they are saved (:mod:`fairfix.schema`)."""

    content: SavedResult

    def __str__(self) -> str:
        """Return the report as text."""
        return str(self.render("text"))

    def __repr__(self) -> str:
        return f"{type(self).__name__}(verdict={self.verdict!r})"

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        from fairfix.schema import to_dict

        return to_dict(self.content)

    def to_json(self) -> str:
        """Return the text that the format ``json`` prints."""
        return str(self.render("json"))

    def to_html(self, *, detail: bool = False) -> str:
        """Return the report as one HTML page; with ``detail``, with every comparison."""
        return str(self.render("html", detail=detail))

    def to_markdown(self, *, detail: bool = False) -> str:
        """Return the report as Markdown; with ``detail``, with every comparison."""
        return str(self.render("markdown", detail=detail))

    def to_frame(self, of: str | None = None) -> pd.DataFrame:
        """Return the numbers as a data frame, a row for each.

        ``of`` names the table: of an audit ``groups`` (the default: a row per attribute, group and metric),
        ``comparisons``, ``checks`` or ``true_groups``; of many classes the first three, with the class of each number;
        of a repair ``proof``; of a comparison of methods ``points``. A
        value that is undefined is NaN, and its ``reason`` is in the same row; NaN as a limit is none on that side.
        """
        from fairfix.report.frames import frame

        return frame(self.content, of)

    def gap(self, name: str, attribute: str | None = None, *, when: str = "after") -> GapRow:
        """Return a comparison of groups with its interval: ``gap("dp", "race")``, ``gap("tpr.ratio")``.

        A metric alone is its difference between groups. Of a repair it is that on held-out rows: ``"after"`` the
        repair, ``"before"`` it, or the ``"change"``. ``float(gap)`` is the value.
        """
        from fairfix.report.frames import gap

        return gap(self.content, name, attribute, when)

    @property
    def by_group(self) -> pd.DataFrame:
        """The metrics of each group: a row per attribute and group; of a repair ``before`` and ``after`` it."""
        from fairfix.report.frames import by_group

        return by_group(self.content)

    @property
    def overall(self) -> pd.DataFrame:
        """The metrics of all rows together, with intervals; of a repair before and after it, and the change."""
        from fairfix.report.frames import overall

        return overall(self.content)

    def save(self, path: str | os.PathLike[str], *, detail: bool = False) -> None:
        """Write the report to a file, or to a store by its URL, in the format of its ending.

        Endings are ``.html``, ``.pdf``, ``.xlsx``, ``.csv``, ``.json``, ``.md`` and ``.txt``, among others.
        """
        from fairfix.data.files import write_content
        from fairfix.report import format_of, renderer

        format_ = format_of(os.fspath(path))
        if not format_:
            raise UsageError(
                f"`path={path}`: name a file that ends in .html, .pdf, .xlsx, .csv, .json, .md, .txt, .xml or .sarif"
            )
        settings = {"detail": detail} if "detail" in signature(renderer(format_)).parameters else {}
        write_content(path, self.render(format_, **settings))

    def plot(self, about: str = "") -> Picture:
        """Return the pictures of the report as one SVG, which a notebook shows.

        ``about`` selects pictures by words of their headings, such as ``"accuracy"`` or ``"race"``. ``plot().svg`` is
        the text of the picture.
        """
        from fairfix.report.picture import picture_of

        return picture_of(self.content, about)

    def _repr_html_(self) -> str:
        """Return the report for a notebook: a page in a frame, so that neither one's styles reach the other."""
        return framed(self.to_html(), "fairfix report")

    def render(self, format: str, **settings: Any) -> Any:  # noqa: A002  the option's word
        """Return the result in a format of :data:`fairfix.report.FORMATS`; settings are those of the format.

        PDF and Excel are bytes, all others are texts.
        """
        from fairfix.report import renderer

        return renderer(format)(self.content, **settings)

    @property
    def verdict(self) -> str | None:
        """The worst verdict of the checks; None where nothing was gated."""
        return self.content.verdict if isinstance(self.content, CheckedResult) else None

    @property
    def passed(self) -> bool | None:
        """Whether every check passed; None if no checks were set. An undecided check has not passed."""
        status = self.exit_status()
        return None if status == 0 and self.verdict is None else status == 0

    def exit_status(self, undecided: Undecided = "exit3") -> int:
        """Return the status of the command: 1 for a failed check, 3 for an undecided one unless otherwise asked.

        A guarantee that was asked and does not hold is undecided.
        """
        verdicts = [one.verdict for one in getattr(self.content, "checks", ())]
        guarantee = getattr(self.content, "guarantee", None)
        if guarantee is not None and not guarantee.holds:
            verdicts.append("undecided")
        return int(exit_status(verdicts, undecided))


def data_fields(
    source: str, rows: RowNumbers, data_spec: DataSpec, inferred: Mapping[str, str]
) -> dict[str, Any]:
    """Return how data were read, as every result has it."""
    from fairfix.auditing.results import columns_struct

    columns = columns_struct(data_spec, data_spec.columns.id)
    return {"source": source, "rows": rows, "columns": columns, "inferred": dict(inferred)}
