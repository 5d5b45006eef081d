"""Explore: counts of data as an interactive page, with the command for each result."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from fairfix.auditing.comparisons import Comparison
from fairfix.auditing.metrics import RATES
from fairfix.auditing.suppression import withholding
from fairfix.data.binned import of_columns
from fairfix.data.counts import Counts, groups_of_cells
from fairfix.data.data_spec import SCORE_RANGE, DataSpec
from fairfix.data.names import attribute_name, key_and_rest, quoted_name, shell_line
from fairfix.data.scan import check_whole
from fairfix.errors import UsageError
from fairfix.report.words import plain
from fairfix.tasks.command import command_of, settings_for
from fairfix.tasks.count import check_agreement, check_bands, counted, counts_of, protected_among
from fairfix.tasks.dataset import cut_counts, open_data, said_of_unused
from fairfix.tasks.request import (
    MULTICLASS,
    AuditRequest,
    ExploreRequest,
    RepairRequest,
    function_of,
    of_counts,
)
from fairfix.tasks.result import framed

if TYPE_CHECKING:
    from fairfix.auditing.countfile import CountFile

CUTS = (*(k / 10_000 for k in range(1, 100)), *(k / 100 for k in range(1, 100)))
"""Thresholds of a page as fractions of the score range: hundredths, and finer ones for rare outcomes."""

NUMBER = "\N{CURRENCY SIGN}"
"""Sign that stands for a number in the text of an option."""

CONSTRAINTS = {
    "selection_rate": "demographic_parity",
    "true_positive_rate": "equal_opportunity",
    "false_positive_rate": "predictive_equality",
    "equalized_odds": "equalized_odds",
}
"""Metric -> the constraint of ``ramp`` that bounds its difference between groups."""


@dataclass(frozen=True, repr=False)
class Explored:
    """An interactive page.

    Attributes
    ----------
    html
        The page: one file that needs no other.
    """

    html: str

    def __repr__(self) -> str:
        return f"Explored({len(self.html):,} characters)"

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the page to a file, whole or not at all."""
        from fairfix.data.files import atomic_output

        with atomic_output(path) as file:
            file.write(self.html.encode("utf-8"))

    def _repr_html_(self) -> str:
        """Return the page for a notebook, in a frame whose scripts reach nothing outside it."""
        return framed(self.html, "fairfix explore", sandbox="allow-scripts", allow="clipboard-write")


def run_explore(request: ExploreRequest) -> Explored:
    """Make an interactive page of scored data, to try thresholds, allowed gaps and costs offline.

    ``html`` is the text of the page. ``save(path)`` writes the same file as ``fairfix explore``, and a notebook shows
    the page. It contains counts and no rows.

    Raises
    ------
    UsageError, DataError, ArtifactError
        Parameters contradict each other, the data has no score, or it has too many groups for a page.
    """
    from fairfix.interactive.page import attributes_of, content_of, page

    if request.task != "classification":
        more = "; name the positive class with `label=COLUMN=VALUE`" if request.task == MULTICLASS else ""
        raise UsageError(f"`task={request.task}`: the page needs scores of two classes{more}")
    if request.strata:
        raise UsageError("`strata`: the page compares groups over all rows; leave it out")
    with withholding(request.suppress_below, request.data):
        given = counts_of(request.data)
        file, request = _counted(request) if given is None else _shown(of_counts(request), given)
        data_spec = file.data_spec
        protected = tuple(request.protected) or data_spec.columns.protected
        counts = of_columns(file.counts(), protected)
        check_whole(counts, data_spec, file.name)
        by_group = data_spec.group_thresholds
        attributes = attributes_of(protected, counts, by_group.attribute if by_group else "")
        content = content_of(counts, data_spec, attributes)
    audit, called, commands = _commands(request, attributes, counts)
    content["attributes"] = [one | own for one, own in zip(content["attributes"], commands, strict=True)]
    content |= {
        "source": plain(file.name),
        "confidence": request.confidence,
        "constraints": CONSTRAINTS,
        "hidden": request.suppress_below,
        "exponent": None if given is None or counts.grid is None else counts.grid.exponent,
        "audit": audit,
        "call": called,
    }
    return Explored(page(content))


def _checked(data_spec: DataSpec) -> DataSpec:
    """Return the reading if its decisions follow from a score; otherwise raise a UsageError."""
    columns = data_spec.columns
    if decided := columns.decision:
        raise UsageError(f"{decided!r} has decisions, but the page needs a score; name it with `score`")
    if not columns.score:
        raise UsageError("the page needs a score; name it with `score`, or name a model file with `model`")
    if not data_spec.thresholds:
        raise UsageError(
            "a raw score has no default threshold; give one with `threshold`, or set `score_scale`"
        )
    return data_spec


def _counted(request: ExploreRequest) -> tuple[CountFile, ExploreRequest]:
    """Return the counts of rows, cut at the thresholds of the page, and the request with its threshold."""
    check_bands(request)
    said_of_unused(request)
    data = open_data(request)
    data_spec = _checked(data.data_spec)
    low, high = SCORE_RANGE.get(data_spec.score_scale, (0.0, 0.0))
    cuts = [float(f"{low + (high - low) * part:.12g}") for part in CUTS] if high > low else []
    kept = data_spec.thresholds if data_spec.group_thresholds else data_spec.thresholds[:1]
    data_spec = replace(data_spec, thresholds=(*kept, *cuts))
    return counted(replace(data, data_spec=data_spec), request.suppress_below), data.settled(request)


def _shown(request: ExploreRequest, counts: CountFile) -> tuple[CountFile, ExploreRequest]:
    """Return counts at the requested threshold, without small groups, and the request with that threshold."""
    from fairfix.auditing.disclosure import suppressed

    counts.require_exact()
    counts, request, _ = cut_counts(counts, request)
    asked = protected_among(request, counts)
    check_agreement(replace(request, protected=counts.data_spec.columns.protected), counts.data_spec)
    _checked(counts.data_spec)
    if request.suppress_below:
        counts = suppressed(counts, [asked], request.suppress_below)
    return counts, request


# ---------------------------------------------------------------------- commands


def _commands(
    request: ExploreRequest, attributes: Sequence[tuple[str, ...]], counts: Counts
) -> tuple[str, bool, list[Any]]:
    """Return the command of the audit, whether it is a call of the library, and the texts of each attribute.

    The page appends options with numbers, and the bracket that ends a call. Each attribute has the texts before and
    after the limit of the check of each metric, those between the thresholds of its groups, and the command of a repair
    or the reason why there is none.
    """
    audited = settings_for(AuditRequest, request, ("data", "threshold"))
    if len(attributes[-1]) > 1:
        audited["intersect"] = True
    audit = command_of("audit", request.data, audited)
    called = audit.startswith("fairfix.")
    own = []
    for columns in attributes:
        checks = {}
        for metric in (*RATES, "equalized_odds"):
            of = Comparison(metric, "difference", "between_groups", attribute_name(columns))
            text = f", check={f'{of}<=0'!r}" if called else f" {shell_line(('--check', f'{of}<=0'))}"
            before, sign, after = text.rpartition("<=0")
            checks[metric] = [plain(before + sign[:-1]), plain(after)]
        cuts = [] if request.suppress_below else _between_cuts(columns, counts, called=called)
        own.append({"checks": checks, "cuts": cuts, **_repair(request, columns)})
    return plain(audit.removesuffix(")") if called else audit), called, own


def _between_cuts(columns: tuple[str, ...], counts: Counts, *, called: bool) -> list[str]:
    """Return the texts before, between and after the thresholds of groups; none where no option can name these."""
    levels = [level[0] for level in groups_of_cells(counts.keys, counts.cells, columns)[0]]
    if len(columns) > 1 or any(NUMBER in level for level in levels):
        return []
    listed = ",".join(quoted_name(f"{level}={NUMBER}") for level in levels)
    text = f"{quoted_name(columns[0], ':')}:{listed}"
    written = f", threshold={text!r}" if called else f" {shell_line(('--threshold', text))}"
    return [plain(part) for part in written.split(NUMBER)]


def _repair(request: ExploreRequest, columns: tuple[str, ...]) -> dict[str, str]:
    """Return the command of the repair that the page makes, up to its constraint, or why there is none."""
    if request.suppress_below:
        why = "A repair shows all groups. To leave out small ones, repair counts of 'fairfix count --suppress-below'."
        return {"no_repair": why}
    settings = settings_for(RepairRequest, request, ("data", "threshold", "protected", "confidence"))
    for name in ("bands", "merge", "missing"):
        gone = set(request.protected) - set(columns)
        settings[name] = [one for one in settings.get(name, ()) if key_and_rest(one)[0] not in gone]
    settings = {name: value for name, value in settings.items() if value != []}
    settings = {"protected": list(columns), **settings, "method": "ramp", "gamma": 0, "calibrate": "isotonic"}
    return {"repair": plain(command_of("repair", request.data, settings).removesuffix(")"))}


explore = function_of("explore", ExploreRequest, run_explore)
