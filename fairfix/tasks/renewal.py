"""Renewal: whether the decisions of a repaired predictor keep the gap that its guarantee allows, at any of many looks.

The rows are the output of ``fairfix predict``. Their rates are those of the probabilities, as in the guarantee. The
guarantee becomes checks of an always-valid audit. In a state, the rows since each of several batches are checked too
(:func:`fairfix.auditing.history.beyond_since`). Either error, a false *holds* or a false *no longer holds*, has
probability at most 1 minus the confidence, over all looks.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from operator import methodcaller
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from msgspec import convert
from msgspec.structs import replace as fields_replaced

from fairfix.auditing.checks import Check
from fairfix.auditing.history import beyond_since
from fairfix.auditing.results import Settings, with_checks
from fairfix.data.files import NO_TYPES, DerivedSource, Source, SourcePart, Types
from fairfix.data.merging import parse_merge
from fairfix.data.names import with_values
from fairfix.data.numeric_groups import EACH, parse_bands
from fairfix.data.urls import name_of
from fairfix.errors import MALFORMED, ArtifactError, DataError, UsageError
from fairfix.models.repaired import Repaired
from fairfix.schema import common
from fairfix.schema.audit import Audit
from fairfix.schema.repair import Guarantee
from fairfix.tasks.count import counted
from fairfix.tasks.dataset import Dataset, explaining, open_data
from fairfix.tasks.predict import repaired_of
from fairfix.tasks.request import OF_ROWS, AuditRequest, RenewalRequest

if TYPE_CHECKING:
    from fairfix.auditing.countfile import CountFile

WAS = "\0p_positive"
"""Name of the probabilities in the data, while the rule gives its own."""

SAME = 1e-6
"""Largest difference of a probability that was written and the one that the rule gives."""

OTHERS = ("score", "prediction", "model", "top")
"""Parameters of other decisions."""

OF_ARTIFACT = ("protected", "strata", "bands", "merge", "threshold", "probability", "confidence")
"""Parameters that the artifact has; a configuration may have others for other tasks."""

UNLABELLED = "no row has a label yet; add the rows when their labels are there"


@dataclass(frozen=True)
class Renewal:
    """A guarantee, and the request that audits the decisions of its rule."""

    name: str
    """Name of the artifact."""
    guarantee: Guarantee
    request: RenewalRequest

    @classmethod
    def of(cls, request: AuditRequest) -> Renewal:
        """Return the renewal that a request asks for.

        Raises
        ------
        UsageError, ArtifactError
            The artifact has no guarantee, none that an audit has checks of, or parameters contradict it.
        """
        rule = repaired_of(request.of, "of")
        path = request.of if isinstance(request.of, str) else ""
        name = name_of(os.fspath(path)) if path else "the repair"
        guarantee, checks = _guarantee_of(rule, name)
        late = any("label" in one.comparison.entry.needs for one in checks)
        gone = request.configured & {*OF_ARTIFACT, *OTHERS, *(() if late else ("label",))}
        request = request.without(gone, explicit=request.explicit - gone)
        own = {part.name: getattr(request, part.name) for part in fields(request)}
        own |= _columns(rule, request) | _read_as(rule, name, request)
        if "confidence" in request.explicit and request.confidence != guarantee.confidence:
            raise UsageError(
                f"`confidence={request.confidence:g}`: that of the guarantee is {guarantee.confidence:g}; leave it out"
            )
        own["intersect"] |= any(one.comparison.attribute not in own["protected"] for one in checks)
        asked = tuple(request.check)
        return cls(
            name,
            guarantee,
            RenewalRequest(
                **own
                | {
                    "check": (*asked, *(one for one in guarantee.checks if one not in asked)),
                    "confidence": guarantee.confidence,
                    "always_valid": True,
                    "rule": rule,
                    "late": late,
                }
            ),
        )

    def counted(self) -> tuple[CountFile, RenewalRequest]:
        """Return the counts of the rows, and the request of an audit of them."""
        return with_labels(self.request, counted_rows(self.request)[0])

    def certified(self, content: Audit, counts: CountFile, settings: Settings) -> Audit:
        """Return an audit whose checks of the guarantee say since when it no longer holds, if it does not."""
        mine = [one for one in settings.checks if one.text in self.guarantee.checks]
        since = dict[str, common.SavedCheck]()
        for one in beyond_since(counts, replace(settings, checks=tuple(mine))):
            if one.id not in since or _beyond(one) > _beyond(since[one.id]):
                since[one.id] = one
        texts = {one.text for one in mine}
        return with_checks(
            content,
            (
                self._certificate(one, since.get(one.id)) if one.check in texts else one
                for one in content.checks
            ),
        )

    def _certificate(self, total: common.SavedCheck, since: common.SavedCheck | None) -> common.SavedCheck:
        """Return the check of all rows, or that of the rows since a batch where they show more that it is broken."""
        of = f"the guarantee of {self.name}"
        if since is not None and not (total.verdict == "fail" and _beyond(total) >= _beyond(since)):
            return fields_replaced(
                since, reason=f"{of} no longer holds: since batch {since.since}, {since.reason}"
            )
        says = {"pass": "holds", "fail": "no longer holds", "undecided": "is undecided"}[total.verdict]
        why = total.reason
        if total.code == "not_computed" and self.request.late:
            why = UNLABELLED
        return fields_replaced(total, reason=f"{of} {says}: {why}")


def _beyond(check: common.SavedCheck) -> float:
    """Return how far the whole interval of a check lies beyond its limit; negative where it does not."""
    return check.limit - check.upper if check.operator.startswith(">") else check.lower - check.limit


def _guarantee_of(rule: Repaired, name: str) -> tuple[Guarantee, list[Check]]:
    """Return the guarantee of an artifact, and its checks."""
    held = rule.facts.get("guarantee")
    if held is None:
        raise UsageError(
            f"`of`: {name} has no guarantee; repair with `guarantee=0.95`, or check a limit of your own with `check` "
            "and `always_valid`"
        )
    try:
        guarantee = convert(held, Guarantee)
        checks = [Check.parse(one) for one in guarantee.checks]
    except (*MALFORMED, UsageError) as error:
        raise ArtifactError(
            f"{name}: its guarantee is malformed ({type(error).__name__}); make it again with 'fairfix repair'"
        ) from error
    if not guarantee.holds:
        raise UsageError(
            f"`of`: the guarantee of {name} was not proven; repair with more rows or a larger allowed gap, or check a "
            "limit of your own with `check` and `always_valid`"
        )
    if not checks or rule.predictor.classes or "p_positive" not in rule.output.names:
        raise UsageError(
            f"`of`: the guarantee of {name} is about {guarantee.criterion} by {guarantee.attribute}, and an audit of "
            "decisions has no check of it; make a new guarantee by a repair of the new rows"
        )
    return guarantee, checks


def _columns(rule: Repaired, request: AuditRequest) -> dict[str, Any]:
    """Return the columns of the decisions and of the groups; a UsageError where others are asked for."""
    columns, own = rule.data_spec.columns, dict[str, Any]()
    for part in OTHERS:
        if request.has(part):
            raise UsageError(
                f"`of`: leave out `{part}`; the decisions are in the columns of 'fairfix predict'"
            )
    for part in ("protected", "strata"):
        wanted, given = getattr(columns, part), tuple(getattr(request, part))
        if given and sorted(given) != sorted(wanted):
            groups = ", ".join(wanted) or "none"
            raise UsageError(
                f"`{part}={','.join(given)}`: the guarantee has {groups}; leave it out, or repair for these groups"
            )
        own[part] = wanted
    if request.probability not in (None, "p_positive"):
        raise UsageError(
            f"`probability={request.probability}`: the guarantee is about 'p_positive'; leave it out"
        )
    return own | {"probability": "p_positive"}


def _read_as(rule: Repaired, name: str, request: AuditRequest) -> dict[str, Any]:
    """Return how groups and decisions are read; a UsageError where the artifact does it in another way."""
    spec, cut = rule.data_spec, rule.data_spec.thresholds[:1]
    if request.threshold is not None and (request.threshold,) != cut:
        raise UsageError(
            f"`threshold={request.threshold}`: the decisions of {name} have the threshold "
            f"{', '.join(f'{one:g}' for one in cut) or 'none'}; leave it out"
        )
    bands = {column: edges or EACH for column, edges in spec.bands.items()}
    if request.bands and parse_bands(request.bands) != bands:
        raise UsageError(f"`bands`: the groups of {name} have other bands; leave it out")
    if request.merge and parse_merge(map(str, request.merge)) != spec.merge:
        raise UsageError(f"`merge`: the groups of {name} have other names; leave it out")
    return {
        "threshold": None,
        "explicit": request.explicit - {"threshold", "confidence"},
        "bands": {column: rule if isinstance(rule, str) else list(rule) for column, rule in bands.items()},
        "merge": tuple(
            with_values(column, dict.fromkeys((into, *(one for one, own in names.items() if own == into))))
            for column, names in spec.merge.items()
            for into in dict.fromkeys(names.values())
        ),
    }


# ---------------------------------------------------------------------- rows


def counted_rows(request: RenewalRequest) -> tuple[CountFile, Dataset]:
    """Return the counts of decisions that are those of the rule, and the data."""
    data = open_data(replace(request, id=None), guides=False)
    with explaining(data):
        _require_same(request.rule, data)
    return counted(data, cluster=request.cluster, threads=request.threads), data


def with_labels(request: RenewalRequest, counts: CountFile) -> tuple[CountFile, RenewalRequest]:
    """Return counts and the request of an audit of them; without labels, counts that need none where all are late."""
    if late(request, counts):
        request = replace(request, late=False, label=None, explicit=request.explicit - {"label"})
        counts = counted(open_data(replace(request, id=None), guides=False))
        request = replace(request, late=True)
    return counts, request.without(OF_ROWS)


def late(request: AuditRequest, counts: CountFile) -> bool:
    """Tell whether a guarantee about labels is asked for and no row has one."""
    about_labels = isinstance(request, RenewalRequest) and request.late
    return about_labels and not (counts.data_spec.columns.label and counts.used)


class _Again(DerivedSource):
    """The columns that a rule needs, and under another name the probabilities that it gave before."""

    def __init__(self, source: Source, rule: Repaired) -> None:
        super().__init__(source)
        self.schema = pa.schema(
            [*(source.schema.field(name) for name in rule.required), pa.field(WAS, pa.float64())]
        )
        self.doubtful = {}

    def parts(self, columns: Sequence[str], types: Types = NO_TYPES) -> list[SourcePart]:
        """Return the parts of the source, with the probabilities as numbers."""
        asked = {"p_positive": pa.float64(), **types}
        asked.pop(WAS, None)
        names = ["p_positive" if name == WAS else name for name in columns]
        renamed = methodcaller("rename_columns", list(columns))
        return [part.mapped(renamed) for part in self.source.parts(names, asked)]


def _require_same(rule: Repaired, data: Dataset) -> None:
    """Raise a DataError where a probability is not the one that the rule gives, if the data has what it needs."""
    source, first = data.source, 0
    if rule.base["kind"] == "file" or not {*rule.required} <= {*source.columns}:
        return
    lenient = replace(rule, unseen="original")
    for batch in lenient.predict_source(_Again(source, rule), missing_score="abstain", duplicates=True):
        was, now = (batch.column(name).to_numpy(zero_copy_only=False) for name in (WAS, "p_positive"))
        if (other := np.flatnonzero(np.abs(was - now) > SAME)).size:
            at = int(other[0])
            raise DataError(
                f"{source.name}: p_positive is {was[at]:.6g} in row {first + at + 1}, and the rule of `of` gives "
                f"{now[at]:.6g}; name the artifact that made these decisions, or decide again with 'fairfix predict'"
            )
        first += batch.num_rows
