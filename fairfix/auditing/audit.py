r"""The audit: from counts to metrics per group, comparisons between groups, and verdicts. Pure.

For every protected attribute (and, when asked, the intersection of all of them) the report holds a table of
groups and a table of comparisons, each comparison a number with the interval that holds it with the stated
confidence, simultaneous over the groups it compares. With strata, the same is done inside each stratum with
intervals simultaneous over the strata too, and ``within_strata`` comparisons take the worst stratum.

Which definition a number has is part of its name, ``metric.kind.scope``:

* ``difference.between_groups``  ``max_g m_g - min_g m_g`` (all pairs)
* ``ratio.between_groups``       ``min_g m_g / max_g m_g``
* ``difference.to_overall``      ``max_g |m_g - m_everybody|``
* ``covariance.to_overall``      ``max_g share_g |m_g - m_everybody|``, of the selection rate with membership
* ``ratio.to_overall``           the ``m_g / m_everybody`` furthest from 1, as ``min(r, 1/r)``
* ``....to_reference``           the same against a named group
* ``min``, ``max``               the worst group
* ``....true_groups``            of the groups behind noisy ones (:mod:`fairfix.noisy.true_groups`)
* ``ks.between_groups``, ``ks.to_overall``  Kolmogorov-Smirnov distances of the scores
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import compress, product
from typing import Any

import numpy as np

from fairfix.auditing.checks import Check, Code, Ruling
from fairfix.auditing.comparisons import NOISE_SCOPES, Comparison
from fairfix.auditing.distances import View, candidate_bins, median_bins, scoring_counts
from fairfix.auditing.metrics import FLIP_SCOPES, metrics_for
from fairfix.auditing.results import AuditReport, Block, CheckResult, ComparisonReport, Settings, Value
from fairfix.auditing.suppression import hidden_groups
from fairfix.auditing.view import Evidence, GroupView, Measured
from fairfix.data.counts import Bools, Counts, groups_of_cells
from fairfix.data.files import Source, open_source
from fairfix.data.names import attribute_name, group_name, stratum_name
from fairfix.data.reading import Reading
from fairfix.data.scan import SORT_ROWS, Scan, collect, count_table, scan
from fairfix.data.table import Table
from fairfix.errors import DataError, UsageError

# ---------------------------------------------------------------------- entry


More = Mapping[str, Sequence[ComparisonReport]]
"""Attribute -> comparisons that were found elsewhere, to be reported and checked with the others."""

OfTrueGroups = Mapping[str, Mapping[str, Mapping[str, Value]]]
"""Attribute -> metric and scope -> true group -> value, to be checked."""


def audit(
    data: Any,
    reading: Reading,
    settings: Settings | None = None,
    more: More | None = None,
    true_groups: OfTrueGroups | None = None,
) -> AuditReport:
    """Audit a file, a frame or a table.

    Parameters
    ----------
    data
        A path, glob or folder, a data frame, a :class:`~fairfix.data.files.Source` or a validated
        :class:`~fairfix.data.table.Table`.
    reading
        Which column is what, and how it is to be understood.
    settings
        What to compute and which limits to hold.
    more
        Comparisons that were found elsewhere, by attribute.
    true_groups
        Values of true groups that were found elsewhere, by attribute, for checks on one of them.

    Raises
    ------
    DataError, UsageError
        The data or the question does not fit; the message names column, value and remedy.
    """
    settings = settings or Settings()
    if isinstance(data, Table):
        table = replace(data, reading=data.reading.with_threshold())
        return judge(count_table(table), settings, "data", None, more, true_groups)
    reading.check()
    source = open_source(data)
    found = scan(source, reading, threads=settings.threads, exact=settings.exact)
    return judge(found, settings, source.name, source, more, true_groups)


def judge(
    found: Scan,
    settings: Settings,
    name: str,
    source: Source | None,
    more: More | None = None,
    true_groups: OfTrueGroups | None = None,
    chances: Mapping[str, tuple[str, ...]] | None = None,
) -> AuditReport:
    """Return the report of a scan; ``source`` is read again where exactness needs rows.

    ``chances`` names attributes that are known by probabilities alone, with their columns; of these there is nothing
    but ``more`` and ``true_groups``.
    """
    counts, reading = found.counts, found.reading
    views = list(_views(counts, reading, settings))
    views, left_out, hidden = _shown(views, counts, settings.suppress_below)
    evidence = _evidence(found, reading, settings, [view.partition for view in views], source)
    computed = [_block(view, evidence) for view in views]
    blocks = [block for view, block in zip(views, computed, strict=True) if not view.stratum]
    strata = [block for view, block in zip(views, computed, strict=True) if view.stratum]
    blocks += [Block(attribute, names, "", (), {}) for attribute, names in (chances or {}).items()]
    values, found_elsewhere = true_groups or {}, more or {}
    blocks = [
        replace(_with_more(_with_strata(b, strata), found_elsewhere), true_groups=values.get(b.attribute, {}))
        for b in blocks
    ]
    everyone = View(np.zeros(len(counts.cells), dtype=np.int64), 1)
    everybody = GroupView("", (), "", everyone, (("everybody",),), 1, None)
    return AuditReport(
        source=name,
        reading=reading,
        settings=settings,
        rows_read=counts.read,
        rows_used=counts.used,
        excluded=counts.excluded,
        weight=float(counts.weights.sum()),
        overall=Measured(everybody, evidence).group_reports()[0],
        blocks=(*blocks, *strata),
        not_computed=_relevant(evidence.missing, reading),
        checks=tuple(_check_results(settings, blocks, evidence.missing, left_out)),
        pooled_median=evidence.median,
        left_out=tuple(left_out),
        hidden=hidden,
    )


# ---------------------------------------------------------------------- views


def _views(counts: Counts, reading: Reading, settings: Settings) -> Iterator[GroupView]:
    """Yield every attribute over everybody, then in each stratum."""
    columns = reading.columns
    chosen: list[tuple[str, ...]] = [(name,) for name in columns.protected]
    if settings.intersect and len(columns.protected) > 1:
        chosen.append(columns.protected)
    known = {attribute_name(names) for names in chosen}
    for name in settings.reference:
        if name not in known:
            raise UsageError(
                f"--reference names {name!r}, which is not audited; audited are {', '.join(sorted(known))}"
            )
    strata: list[tuple[str, ...] | None] = [None]
    if columns.strata:
        strata += sorted({cell[: len(columns.strata)] for cell in counts.cells})
    for stratum, names in product(strata, chosen):
        yield _view(counts, reading, settings, names, stratum, len(strata) - 1)


def _view(
    counts: Counts,
    reading: Reading,
    settings: Settings,
    names: tuple[str, ...],
    stratum: tuple[str, ...] | None,
    strata: int,
) -> GroupView:
    keys, width = reading.columns.cell_keys, len(reading.columns.strata)
    inside = [stratum is None or cell[:width] == stratum for cell in counts.cells]
    levels, _ = groups_of_cells(keys, list(compress(counts.cells, inside)), names)
    group = np.where(inside, groups_of_cells(keys, counts.cells, names, levels)[1], -1)
    attribute = attribute_name(names)
    labels = tuple(map(group_name, levels))
    reference = settings.reference.get(attribute)
    if reference is not None and reference not in labels and stratum is None:
        raise UsageError(f"--reference: {attribute} has no group {reference!r}; it has {', '.join(labels)}")
    return GroupView(
        attribute,
        names,
        "" if stratum is None else stratum_name(reading.columns.strata, stratum),
        View(group, len(levels)),
        levels,
        strata if stratum is not None else 1,
        labels.index(reference) if reference in labels else None,
    )


FEW = "too few of its groups have {} rows or more to show it"


def _shown(
    views: Sequence[GroupView], counts: Counts, least: int
) -> tuple[list[GroupView], dict[str, tuple[str, ...]], int]:
    """Return the views without the groups to hide, attributes left out with their columns, and how many groups hide."""
    if not least:
        return list(views), {}, 0
    partitions = [(view.partition.group_of_cell, view.partition.size) for view in views]
    rows = counts.rows.sum(axis=(1, 2))
    hidden = hidden_groups(partitions, rows, least, [not view.stratum for view in views])
    shown = [_without(view, hide) for view, hide in zip(views, hidden, strict=True)]
    there = {view.attribute for view in shown if view is not None and not view.stratum}
    left_out = {view.attribute: view.columns for view in views if view.attribute not in there}
    out = [view for view in shown if view is not None and view.attribute not in left_out]
    if not out:
        raise DataError(
            f"--suppress-below {least}: {' and '.join(left_out)}: {FEW.format(least)}; a smaller number shows more"
        )
    return out, left_out, int(sum(hide.sum() for hide in hidden))


def _without(view: GroupView, hide: Bools) -> GroupView | None:
    """Return a view without some of its groups; None if none is left."""
    if not hide.any():
        return view
    if hide.all():
        return None
    if view.reference is not None and hide[view.reference]:
        if view.stratum:
            view = replace(view, reference=None)
        else:
            raise DataError(
                f"--reference: the reference group of {view.attribute} is one that --suppress-below hides; name another"
            )
    place = np.cumsum(~hide) - 1
    number = np.where(hide, -1, place)
    old = view.partition.group_of_cell
    partition = View(np.where(old < 0, -1, number[old]), int((~hide).sum()))
    levels = tuple(level for level, gone in zip(view.levels, hide, strict=True) if not gone)
    reference = None if view.reference is None else int(place[view.reference])
    return replace(view, partition=partition, levels=levels, reference=reference, hidden=int(hide.sum()))


# ---------------------------------------------------------------------- evidence


def _evidence(
    found: Scan, reading: Reading, settings: Settings, views: Sequence[View], source: Source | None
) -> Evidence:
    """Fetch the rows that exact distances and the pooled median need."""
    counts, rows = found.counts, found.kept
    if counts.grid is None or not settings.exact:
        return Evidence(counts, reading, settings, None, None, None, None)
    everything = None
    if rows is not None and rows.score.size <= SORT_ROWS:
        rows = everything = rows.by_score()
    else:
        bins = median_bins(counts)
        for view in views:
            bins = bins | candidate_bins(counts, view)
        if rows is not None:
            rows = rows.take(bins[counts.grid.index(rows.score)]).by_score()
        elif source is not None:
            rows = collect(source, reading, counts, bins, threads=settings.threads).by_score()
        else:
            return Evidence(counts, reading, settings, None, None, None, None)
    median, above = scoring_counts(counts, rows)
    return Evidence(counts, reading, settings, everything, rows, median, above)


def _relevant(missing: Mapping[str, str], reading: Reading) -> dict[str, str]:
    """Return what is worth telling: metrics of the other task are not missed."""
    foreign = {"label", "decision"} if reading.task == "regression" else {"real label"}
    metrics = metrics_for(reading.task)
    return {name: reason for name, reason in missing.items() if not foreign.intersection(metrics[name].needs)}


def _block(view: GroupView, evidence: Evidence) -> Block:
    measured = Measured(view, evidence)
    comparisons = {c.id: c for c in measured.comparisons()}
    shares = None if view.stratum else measured.distribution()
    groups = measured.group_reports()
    if view.hidden and not view.stratum:  # shares are of everybody, hidden or not
        total = float(evidence.counts.weights.sum())
        groups = tuple(replace(group, share=group.weight / total) for group in groups)
    return Block(view.attribute, view.columns, view.stratum, groups, comparisons, shares, view.hidden)


# ---------------------------------------------------------------------- strata


def _with_strata(block: Block, strata: Sequence[Block]) -> Block:
    """Return the block with a ``within_strata`` comparison for each one between groups."""
    mine = [s for s in strata if s.attribute == block.attribute and len(s.groups) > 1]
    lone = [s.stratum for s in strata if s.attribute == block.attribute and len(s.groups) < 2]
    note = f"nothing to compare in {', '.join(lone)}: a single group" if lone else ""
    if not mine:
        return block
    more = {}
    for identifier in block.comparisons:
        comparison = Comparison.parse(identifier)
        if comparison.scope == "between_groups" or comparison.kind == "covariance":
            worst = _worst_stratum(comparison, [(s.stratum, s.comparisons[identifier]) for s in mine])
            reason = "; ".join(text for text in (worst.value.reason, note) if text)
            more[worst.id] = replace(worst, value=replace(worst.value, reason=reason))
    return replace(block, comparisons={**block.comparisons, **more})


def _worst_stratum(comparison: Comparison, found: Sequence[tuple[str, ComparisonReport]]) -> ComparisonReport:
    """Return the comparison of the stratum that is worst; its interval is that of the worst stratum."""
    pick = min if comparison.kind == "ratio" else max
    defined = [(s, c) for s, c in found if not math.isnan(c.value.value)]
    stratum, top = pick(defined or found, key=lambda pair: pair[1].value.value)
    undefined = tuple(f"{name} ({s})" for s, c in found for name in c.undefined)
    interval = (pick(c.value.low for _, c in found), pick(c.value.high for _, c in found))
    reason = f"over the rest; undefined in {', '.join(undefined)}" if undefined else ""
    value = replace(top.value, low=interval[0], high=interval[1], reason=top.value.reason or reason)
    ends = [pick(c.value.value + sign * c.value.bound for _, c in defined) for sign in (-1, 1) if defined]
    if ends:
        value = replace(value, bound=max(value.value - ends[0], ends[1] - value.value))
    name = comparison.to("within_strata").id
    return ComparisonReport(name, value, top.groups, undefined, at=top.at, stratum=stratum)


def _with_more(block: Block, more: More) -> Block:
    """Return the block with comparisons that were found elsewhere."""
    own = {found.id: found for found in more.get(block.attribute, ())}
    if block.hidden:
        shown = {group.name for group in block.groups}
        own = {name: _of_shown(found, shown) for name, found in own.items() if shown.issuperset(found.groups)}
    return replace(block, comparisons={**block.comparisons, **own})


def _of_shown(found: ComparisonReport, shown: set[str]) -> ComparisonReport:
    """Return a comparison without what it says of groups that are not shown; reasons may name some."""
    reason = "undefined" if math.isnan(found.value.value) else ""
    return replace(
        found,
        value=replace(found.value, reason=reason),
        per_group={name: value for name, value in found.per_group.items() if name in shown},
        pairs={pair: value for pair, value in found.pairs.items() if shown.issuperset(pair)},
        undefined=tuple(name for name in found.undefined if name in shown),
    )


# ---------------------------------------------------------------------- checks


def _check_results(
    settings: Settings,
    blocks: Sequence[Block],
    not_computed: Mapping[str, str],
    left_out: Mapping[str, tuple[str, ...]],
) -> Iterator[CheckResult]:
    few = FEW.format(settings.suppress_below)
    for check in settings.checks:
        of = check.comparison
        found = [b for b in blocks if of.attribute in (None, b.attribute)]
        gone = [name for name in left_out if of.attribute in (None, name)]
        yield from (_unknown(check, name, left_out[name], "not_shown", few) for name in gone)
        if not found and not gone:
            raise UsageError(
                f"check {check.text!r}: {of.attribute!r} is not audited; audited are "
                f"{', '.join(b.attribute for b in blocks)}"
            )
        if not of.attribute and of.scope in FLIP_SCOPES:  # comparable values have one block
            found = [b for b in found if of.id in b.comparisons] or found
        if not of.attribute and len(found) > 1:  # an attribute known by chances alone has true groups alone
            found = [b for b in found if bool(b.true_groups) == of.of_true_groups] or found
        for block in found:
            yield _check_result(check, block, settings, not_computed)


def _check_result(
    check: Check, block: Block, settings: Settings, not_computed: Mapping[str, str]
) -> CheckResult:
    metric, asked = check.comparison.metric, check.comparison.group
    where = (block.attribute, block.columns)
    if metric in not_computed:
        return _unknown(check, *where, "not_computed", f"not computed: {not_computed[metric]}")
    if block.hidden and asked and asked not in {group.name for group in block.groups}:
        why = "no such group is shown; some are hidden for having few rows"
        return _unknown(check, *where, "not_shown", why)
    value, groups, complete = _looked_up(check, block)
    ruling = check.judge(
        value.value, value.low, value.high, complete=complete, gate_on=settings.gate_on, bound=value.bound
    )
    reason = f"{ruling.reason} ({value.reason})" if value.reason else ruling.reason
    if block.hidden and not asked:
        reason = f"{reason}; {block.hidden} hidden groups are not in it"
    return CheckResult(check, *where, value, groups, replace(ruling, reason=reason), complete)


def _unknown(check: Check, attribute: str, columns: tuple[str, ...], code: Code, reason: str) -> CheckResult:
    """Return the result of a check whose value there is not: it cannot pass."""
    nothing = Value(math.nan, math.nan, math.nan, reason)
    return CheckResult(check, attribute, columns, nothing, (), Ruling("undecided", code, reason), False)


UNDESCRIBED = (
    "say what is known of the noise with --noise FILE or --noise-radius, or name --noise-membership columns"
)


def _looked_up(check: Check, block: Block) -> tuple[Value, tuple[str, ...], bool]:
    """Return the value that a check is about, the groups that reach it, and whether none is undefined."""
    of = check.comparison
    if of.group and of.of_true_groups:
        values = block.true_groups.get(of.id)
        if values is None:
            raise UsageError(f"check {check.text!r}: there is no {of.id}; {UNDESCRIBED}")
        if of.group not in values:
            raise UsageError(
                f"check {check.text!r}: {block.attribute} has no true group {of.group!r}; it has {', '.join(values)}"
            )
        return values[of.group], (of.group,), True
    if not block.groups and not of.of_true_groups:
        raise UsageError(
            f"check {check.text!r}: groups of {block.attribute} are known by chances alone, and checks of them have a "
            "scope: write METRIC.difference.true_groups, or METRIC.true_groups[ATTRIBUTE=GROUP]"
        )
    if of.group:
        for group in block.groups:
            if group.name == of.group:
                return group.metrics[of.metric], (group.name,), True
        raise UsageError(
            f"check {check.text!r}: {block.attribute} has no group {of.group!r}; it has "
            f"{', '.join(group.name for group in block.groups)}"
        )
    found = block.comparisons.get(of.id)
    if found is not None:
        return found.value, found.groups, not found.undefined
    if "individual" in of.entry.needs and of.scope not in FLIP_SCOPES:
        raise UsageError(f"check {check.text!r}: there is no {of.metric}; ask for it with --individual")
    remedies = {
        "to_reference": f"name the reference group with --reference {block.attribute}=GROUP",
        "within_strata": "name the strata with --strata COLUMN",
        "under_flips": "ask for it with --individual and the model file (--model)",
        "within_radius": "ask for it with --individual, the model file and --radius; only transport_cost has it",
        "under_comparable": "name comparable values with --comparable COLUMN=VALUE,VALUE",
        "under_everybody": "name comparable values with --comparable COLUMN=VALUE,VALUE",
        **dict.fromkeys(NOISE_SCOPES, UNDESCRIBED),
    }
    remedy = remedies.get(of.scope, SENSELESS) if of.exists else SENSELESS
    raise UsageError(f"check {check.text!r}: there is no {of.id}; {remedy}")


SENSELESS = "it makes no sense for this metric"


def require_two_groups(report: AuditReport) -> None:
    """Raise ``DataError`` where an attribute has a single group, so that nothing can be compared."""
    for block in report.blocks:
        if not block.stratum and len(block.groups) == 1:
            raise DataError(
                f"column {block.attribute!r} has the single group {block.groups[0].name!r} in the {report.rows_used:,} "
                f"rows used; an audit compares at least two groups"
            )
