"""The audit: from counts to metrics per group, comparisons between groups, and verdicts. Pure.

For every protected attribute (and, when asked, the intersection of all of them) the report holds a table of
groups and a table of comparisons, each comparison a number with the interval that holds it with the stated
confidence, simultaneous over the groups it compares. With strata, the same is done inside each stratum with
intervals simultaneous over the strata too, and ``within_strata`` comparisons take the worst stratum. The name of a
number has its definition: :data:`fairfix.auditing.comparisons.MEANINGS`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import compress, product
from typing import Any

import numpy as np
from msgspec.structs import replace as fields_replaced

from fairfix import __version__
from fairfix.auditing.checks import Check, Ruling, worst
from fairfix.auditing.comparisons import CLASS_SCOPES, NOISE_SCOPES, Comparison
from fairfix.auditing.distances import Partition, scoring_counts
from fairfix.auditing.given_scores import GivenScores
from fairfix.auditing.group_estimates import OF_SCORES, Evidence, GroupView, Measured
from fairfix.auditing.ks_candidates import KsCandidates, candidates
from fairfix.auditing.metrics import FLIP_SCOPES, metrics_for
from fairfix.auditing.results import (
    Settings,
    columns_struct,
    definitions,
    judged,
    rows_struct,
    spec_fields,
)
from fairfix.auditing.suppression import shown_rows, shown_table, tables_of
from fairfix.data.choices import Code
from fairfix.data.counts import Counts, groups_of_cells
from fairfix.data.data_spec import DataSpec
from fairfix.data.files import Source, open_source
from fairfix.data.names import attribute_name, each_and_crossed, group_name, listed, stratum_name
from fairfix.data.numeric_groups import in_order
from fairfix.data.scan import SORT_ROWS, Scan, count_table, scan
from fairfix.data.table import Table
from fairfix.errors import DataError, UsageError
from fairfix.schema import common
from fairfix.schema.audit import Audit, AuditData, AuditSettings
from fairfix.schema.common import Block, Estimate, no_number, numbers
from fairfix.schema.common import SavedComparison as Compared

# ---------------------------------------------------------------------- entry


More = Mapping[str, Sequence[Compared]]
"""Attribute -> comparisons that were made elsewhere, to be reported and checked with the others."""

OfTrueGroups = Mapping[str, Mapping[str, Mapping[str, Estimate]]]
"""Attribute -> metric and scope -> true group -> value, to be checked."""


def audit(
    data: Any,
    data_spec: DataSpec,
    settings: Settings | None = None,
    more: More | None = None,
    true_groups: OfTrueGroups | None = None,
    uncertain: Mapping[str, tuple[str, ...]] | None = None,
) -> Audit:
    """Audit a file, a frame or a table.

    Parameters
    ----------
    data
        A path, glob or folder, a data frame, a :class:`~fairfix.data.files.Source` or a validated
        :class:`~fairfix.data.table.Table`.
    data_spec
        Which column is what, and how it is to be understood.
    settings
        What to compute and which limits to hold.
    more, true_groups
        Comparisons, and values of true groups for checks, that were made elsewhere.
    uncertain
        Attributes of a table that are known by probabilities alone, as in :func:`judge`.

    Raises
    ------
    DataError, UsageError
        The data or the question does not fit; the message names column, value and remedy.
    """
    settings = settings or Settings()
    least = settings.suppress_below
    if isinstance(data, Table):
        table = replace(data, data_spec=data.data_spec.with_threshold())
        if least:
            table = shown_table(
                table, tables_of(table.data_spec.columns, intersect=settings.intersect), least
            )
        return judge(
            count_table(table, exact=settings.exact), settings, "data", None, more, true_groups, uncertain
        )
    data_spec.check()
    source = open_source(data)
    if least:
        source = shown_rows(
            source, data_spec, tables_of(data_spec.columns, intersect=settings.intersect), least
        )
    scanned = scan(source, data_spec, exact=settings.exact)
    return judge(scanned, settings, source.name, source, more, true_groups, uncertain)


def judge(
    scanned: Scan,
    settings: Settings,
    name: str,
    source: Source | None = None,
    more: More | None = None,
    true_groups: OfTrueGroups | None = None,
    uncertain: Mapping[str, tuple[str, ...]] | None = None,
) -> Audit:
    """Return the result for a scan; ``source`` is read again where exactness needs rows.

    With ``suppress_below`` the scan is of the rows that may be shown (:mod:`fairfix.auditing.suppression`).

    ``uncertain`` names attributes that are known by probabilities alone, with their columns; of these there is nothing
    but ``more`` and ``true_groups``.
    """
    counts, data_spec = scanned.counts, scanned.data_spec
    if settings.always_valid:
        require_equal_weights(counts)
    views, left_out = _shown(list(views_of(counts, data_spec, settings)), settings.suppress_below)
    evidence = _evidence(scanned, settings, views, source)
    computed = [_block(view, evidence) for view in views]
    strata = [block for block in computed if block.stratum]
    blocks = [_with_strata(block, strata) for block in computed if not block.stratum]
    for attribute, names in (uncertain or {}).items():
        blocks.append(Block(attribute=attribute, columns=names, groups=(), comparisons=()))
    blocks = [_with_more(block, more or {}, settings.suppress_below) for block in blocks]
    everybody = GroupView(group_of_cell=np.zeros(len(counts.cells), dtype=np.int64), size=1)
    whole = Measured(everybody, evidence)
    # metrics of the other task are not missed
    foreign = {"label", "decision"} if data_spec.task == "regression" else {"real label"}
    entries, least = metrics_for(data_spec.task), settings.suppress_below
    checks = tuple(check_results(settings, blocks, evidence.missing, left_out, true_groups or {}))
    return Audit(
        fairfix=__version__,
        verdict=worst(one.verdict for one in checks),
        data=AuditData(
            source=name,
            rows=rows_struct(counts.read, counts.used, counts.excluded, source.left_out if source else 0),
            columns=columns_struct(data_spec),
            inferred={},
            weight=float(counts.held_weights.sum()),
            model={},
        ),
        settings=AuditSettings(
            **spec_fields(data_spec),
            confidence=settings.confidence,
            gate_on=settings.gate_on,
            exact=settings.exact,
            reference=dict(settings.reference),
            suppress_below=least or None,
            always_valid=settings.always_valid,
        ),
        checks=checks,
        overall=GivenScores(whole).groups(whole.groups())[0],
        attributes=tuple(blocks),
        strata=tuple(strata),
        not_computed=tuple(
            common.NotComputed(metric=metric, reason=why)
            for metric, why in sorted(evidence.missing.items())
            if not foreign & set(entries[metric].needs)
        ),
        definitions=definitions(one.id for block in (*blocks, *strata) for one in block.comparisons),
        suppressed=common.Suppressed(below=least, left_out=tuple(left_out)) if least else None,
        pooled_median=evidence.median,
    )


# ---------------------------------------------------------------------- views


def views_of(counts: Counts, data_spec: DataSpec, settings: Settings) -> Iterator[GroupView]:
    """Yield every attribute overall, then in each stratum."""
    columns = data_spec.columns
    chosen = each_and_crossed(columns.protected, crossed=settings.intersect)
    audited = sorted(map(attribute_name, chosen))
    for name in settings.reference:
        if name not in audited:
            raise UsageError(
                f"`reference` names {name!r}, which is not audited; this audit has {', '.join(audited)}"
            )
    width = len(columns.strata)
    strata = (
        in_order({cell[:width] for cell in counts.cells}, columns.strata, data_spec.bands) if width else ()
    )
    for stratum, names in product((None, *strata), chosen):
        inside = [stratum is None or cell[:width] == stratum for cell in counts.cells]
        there = list(compress(counts.cells, inside))
        levels, _ = groups_of_cells(columns.cell_keys, there, names, bands=data_spec.bands)
        group = np.where(inside, groups_of_cells(columns.cell_keys, counts.cells, names, levels)[1], -1)
        attribute, labels = attribute_name(names), tuple(map(group_name, levels))
        reference = settings.reference.get(attribute)
        if reference is not None and reference not in labels and stratum is None:
            raise UsageError(
                f"`reference`: {attribute!r} has no group {reference!r}; it has {listed(labels)}"
            )
        yield GroupView(
            group_of_cell=group,
            size=len(levels),
            attribute=attribute,
            columns=names,
            stratum="" if stratum is None else stratum_name(columns.strata, stratum),
            stratum_levels=stratum or (),
            levels=levels,
            strata=1 if stratum is None else len(strata),
            reference=labels.index(reference) if reference in labels else None,
        )


FEW = "too few of its groups have {} rows or more to show it"


def _shown(views: Sequence[GroupView], least: int) -> tuple[list[GroupView], dict[str, tuple[str, ...]]]:
    """Return the views of attributes with something to compare, and the columns of those that are left out.

    Without suppression, an attribute of one group is no case for this: it is an error elsewhere.
    """
    if not least:
        return list(views), {}
    left_out = {view.attribute: view.columns for view in views if not view.stratum and view.size < 2}
    out = [view for view in views if view.attribute not in left_out]
    if not out:
        raise DataError(
            f"`suppress_below={least}`: {' and '.join(left_out)}: {FEW.format(least)}; a smaller number shows more"
        ).without_values()
    return out, left_out


# ---------------------------------------------------------------------- evidence


def _evidence(
    scanned: Scan, settings: Settings, views: Sequence[GroupView], source: Source | None
) -> Evidence:
    """Fetch the rows that exact distances and the pooled median need."""
    counts, rows, data_spec = scanned.counts, scanned.kept, scanned.data_spec
    # rows that are one person each and have labels; none where some were merged
    alone = rows is not None and rows.label is not None and rows.rows is None and rows.square_weight is None
    evidence = Evidence(counts, data_spec, settings, labelled=rows if alone else None)
    place = source if rows is None else rows
    needed = settings.needed
    unread = needed is not None and not needed & {*OF_SCORES}
    if counts.grid is None or not settings.exact or place is None or unread:
        return evidence
    everything = None
    if rows is not None and rows.score.size <= SORT_ROWS:
        everything = rows.by_score()
        there = KsCandidates(everything)
    else:
        by_columns = dict[tuple[str, ...], list[Partition]]()
        for view in views:
            by_columns.setdefault(view.looks_at(data_spec), []).append(view)
        there = candidates(place, data_spec, counts, by_columns)
    median, above = scoring_counts(counts, there.rows)
    return replace(evidence, all_rows=everything, candidates=there, median=median, above_median=above)


def _block(view: GroupView, evidence: Evidence) -> Block:
    measured = Measured(view, evidence)
    given = GivenScores(measured)
    return Block(
        attribute=view.attribute,
        columns=view.columns,
        stratum=view.stratum,
        stratum_levels=view.stratum_levels,
        groups=given.groups(measured.groups()),
        comparisons=tuple(given.comparisons(measured.comparisons())),
        distribution=None if view.stratum else measured.distribution(),
    )


# ---------------------------------------------------------------------- strata


def _with_strata(block: Block, strata: Sequence[Block]) -> Block:
    """Return the block with a ``within_strata`` comparison for each one between groups."""
    mine = [s for s in strata if s.attribute == block.attribute and len(s.groups) > 1]
    lone = [s.stratum for s in strata if s.attribute == block.attribute and len(s.groups) < 2]
    note = f"nothing to compare in {', '.join(lone)}: only one group" if lone else ""
    if not mine:
        return block
    more, by_stratum = list[Compared](), [(one.stratum, one.by_id) for one in mine]
    for one in block.comparisons:
        comparison = Comparison.parse(one.id)
        if comparison.scope == "between_groups" or comparison.kind == "covariance":
            worst = _worst_stratum(comparison, [(name, own[one.id]) for name, own in by_stratum])
            reason = "; ".join(text for text in (worst.reason, note) if text)
            more.append(fields_replaced(worst, reason=reason))
    return _with_comparisons(block, more)


def _with_comparisons(block: Block, more: Iterable[Compared]) -> Block:
    """Return the block with more comparisons, which replace those of the same name."""
    every = {**block.by_id, **{one.id: one for one in more}}
    return fields_replaced(block, comparisons=tuple(every.values()))


def _worst_stratum(comparison: Comparison, strata: Sequence[tuple[str, Compared]]) -> Compared:
    """Return the comparison of the stratum that is worst; its interval is that of the worst stratum."""
    pick = min if comparison.kind == "ratio" else max
    defined = [(s, c) for s, c in strata if c.value is not None]
    stratum, top = pick(defined or strata, key=lambda pair: pair[1].point)
    undefined = tuple(f"{name} ({s})" for s, c in strata for name in c.undefined)
    low, high = pick(c.lower for _, c in strata), pick(c.upper for _, c in strata)
    reason = f"over the rest; undefined in {', '.join(undefined)}" if undefined else ""
    bound = top.bound or 0.0
    if defined:
        ends = [pick(c.point + sign * (c.bound or 0.0) for _, c in defined) for sign in (-1, 1)]
        bound = max(top.point - ends[0], ends[1] - top.point)
    return Compared(
        id=comparison.to("within_strata").id,
        **numbers(top.point, low, high, top.reason or reason, bound),
        groups=top.groups,
        undefined=undefined,
        stratum=stratum,
        at_score=top.at_score,
    )


def _with_more(block: Block, more: More, least: int) -> Block:
    """Return the block with comparisons that were made elsewhere; under suppression, with what concerns its groups."""
    own = more.get(block.attribute, ())
    if least:
        shown = {group.group for group in block.groups}
        own = [_of_shown(one, shown) for one in own if shown.issuperset(one.groups)]
    return _with_comparisons(block, own)


def _of_shown(report: Compared, shown: set[str]) -> Compared:
    """Return a comparison without what it says of groups that are not shown; reasons may name some."""
    return fields_replaced(
        report,
        reason="undefined" if report.value is None else "",
        per_group={name: value for name, value in report.per_group.items() if name in shown},
        pairs=tuple(pair for pair in report.pairs if shown.issuperset(pair.groups)),
        undefined=tuple(name for name in report.undefined if name in shown),
    )


# ---------------------------------------------------------------------- checks


def check_results(
    settings: Settings,
    blocks: Sequence[Block],
    not_computed: Mapping[str, str],
    left_out: Mapping[str, tuple[str, ...]],
    true_groups: OfTrueGroups,
) -> Iterator[common.SavedCheck]:
    """Yield every check of the settings, judged of each attribute that it is about."""
    few = FEW.format(settings.suppress_below)
    for check in settings.checks:
        of = check.comparison
        asked = [b for b in blocks if of.attribute in (None, b.attribute)]
        gone = [name for name in left_out if of.attribute in (None, name)]
        if check.each:
            asked = [b for b in asked if len(b.columns) == 1]
            gone = [name for name in gone if len(left_out[name]) == 1]
        yield from (_unknown(check, (name, left_out[name]), settings, "not_shown", few) for name in gone)
        if not asked and not gone:
            of_groups = [
                f"; {of.attribute!r} is a group of {block.attribute}, whose value is "
                f"'{Comparison(of.metric, '', '', block.attribute, of.attribute)}'"
                for block in blocks
                if of.entry.of_groups and of.attribute in {group.group for group in block.groups}
            ]
            raise UsageError(
                f"check {check.text!r}: {of.attribute!r} is not audited; this audit has "
                f"{', '.join(b.attribute for b in blocks)}{''.join(of_groups[:1])}"
            )
        if not of.attribute and of.scope in FLIP_SCOPES:  # comparable values have one block
            asked = [b for b in asked if of.id in b.by_id] or asked
        if not of.attribute and len(asked) > 1:  # an attribute known by probabilities has true groups alone
            asked = [b for b in asked if bool(true_groups.get(b.attribute)) == of.of_true_groups] or asked
        for block in asked:
            yield _check_result(check, block, settings, not_computed, true_groups.get(block.attribute, {}))


def _check_result(
    check: Check,
    block: Block,
    settings: Settings,
    not_computed: Mapping[str, str],
    true_groups: Mapping[str, Mapping[str, Estimate]],
) -> common.SavedCheck:
    metric, asked = check.comparison.metric, check.comparison.group
    where = (block.attribute, block.columns)
    if metric in not_computed:
        return _unknown(check, where, settings, "not_computed", f"not computed: {not_computed[metric]}")
    if settings.suppress_below and asked and asked not in {group.group for group in block.groups}:
        why = "no such group is shown; one with few rows is not"
        return _unknown(check, where, settings, "not_shown", why)
    value, groups, complete = _looked_up(check, block, true_groups)
    ruling = check.judge(value, complete=complete, gate_on=settings.gate_on)
    if value.given_scores is not None and ruling.verdict == "undecided":
        low, high = value.given_scores
        more = f"given the scores of these rows, the interval is {low:.3f} to {high:.3f}"
        ruling = replace(ruling, reason=f"{ruling.reason}; {more}")
    if settings.suppress_below and not asked:
        few = f"groups of fewer than {settings.suppress_below} rows are left out of it"
        ruling = replace(ruling, reason=f"{ruling.reason}; {few}")
    return judged(check, where, value, groups, ruling, complete=complete, gate_on=settings.gate_on)


def _unknown(
    check: Check, where: tuple[str, tuple[str, ...]], settings: Settings, code: Code, reason: str
) -> common.SavedCheck:
    """Return the result of a check whose value there is not: it cannot pass."""
    nothing, ruling = no_number(reason), Ruling("undecided", code, reason)
    return judged(check, where, nothing, (), ruling, complete=False, gate_on=settings.gate_on)


UNDESCRIBED = "describe the noise with `noise=SPEC`, such as `noise=FILE` or `noise=radius:GROUP=NUMBER,...`"

REMEDIES = {
    "within_strata": "name the strata with `strata=COLUMN`",
    "to_overall": "not available for private counts, because the fractions of groups have noise",
    "under_flips": "add `similar=flips` and the model file (`model`)",
    "with_number": "it needs a repair by `method=ramp` with `constraint=covariance[COLUMN]`",
    "within_radius": "add `similar=near(radius=NUMBER)` and the model file (`model`); only transport_cost has it",
    "under_comparable": "name comparable values with `similar=COLUMN=VALUE,VALUE`",
    "under_everybody": "name comparable values with `similar=COLUMN=VALUE,VALUE`",
    "under_counterfactuals": "give copies of people with `similar=FILE`; score_effect has none",
    **dict.fromkeys(NOISE_SCOPES, UNDESCRIBED),
    **dict.fromkeys(CLASS_SCOPES, "it needs a label of many classes, with `task=multiclass`"),
}
"""Scope -> what gives a comparison that an audit has not; the reference group's remedy names the attribute."""


def _looked_up(
    check: Check, block: Block, true_groups: Mapping[str, Mapping[str, Estimate]]
) -> tuple[Estimate, tuple[str, ...], bool]:
    """Return the value that a check is about, the groups that reach it, and whether none is undefined."""
    of = check.comparison
    if not block.groups and not of.of_true_groups:
        raise UsageError(
            f"check {check.text!r}: groups of {block.attribute} are known by probabilities alone, and checks of "
            "them have a scope: write METRIC.difference.true_groups, or METRIC.true_groups[ATTRIBUTE=GROUP]"
        )
    if of.group:
        if of.of_true_groups and of.id not in true_groups:
            raise UsageError(f"check {check.text!r}: there is no {of.id}; {UNDESCRIBED}")
        if of.of_true_groups:
            each: Mapping[str, Estimate] = true_groups[of.id]
        else:
            each = {group.group: group.metrics[of.metric] for group in block.groups}
        if of.group not in each:
            group = "true group" if of.of_true_groups else "group"
            raise UsageError(
                f"check {check.text!r}: {block.attribute} has no {group} {of.group!r}; it has {listed(list(each))}"
            )
        return each[of.group], (of.group,), True
    report = block.by_id.get(of.id)
    if report is not None:
        return report, report.groups, not report.undefined
    if "individual" in of.entry.needs and of.scope not in FLIP_SCOPES:
        raise UsageError(f"check {check.text!r}: there is no {of.metric}; add `similar=flips` to compute it")
    remedy = "this metric does not support it"
    if of.exists and of.scope == "to_reference":
        remedy = (
            f"name the reference group with `reference={block.attribute}=GROUP`, or the attribute to check, as in "
            f"'{of.id}[ATTRIBUTE]'"
        )
    elif of.exists:
        remedy = REMEDIES.get(of.scope, remedy)
    raise UsageError(f"check {check.text!r}: there is no {of.id} by {block.attribute}; {remedy}")


def require_equal_weights(counts: Counts) -> None:
    """Raise a UsageError if weights differ or counts have noise: they have no always-valid intervals."""
    if counts.private is not None:
        raise UsageError(
            "`always_valid`: private counts have noise, and their intervals hold for one look only; leave it out"
        )
    mass, squares, rows = (
        float(table.sum()) for table in (counts.held_weights, counts.held_square_weights, counts.rows)
    )
    if abs(mass**2 - rows * squares) > 1e-9 * mass**2:
        raise UsageError(
            "`always_valid`: rows have different weights, and weighted rates have no always-valid interval; leave out "
            "`weight` or `always_valid`"
        )


def joined(one: More, other: More) -> More:
    """Return the comparisons of both by attribute."""
    return {name: (*one.get(name, ()), *other.get(name, ())) for name in {**one, **other}}


def require_two_groups(result: Audit) -> None:
    """Raise ``DataError`` where an attribute has a single group, so that nothing can be compared."""
    for block in result.attributes:
        if len(block.groups) == 1:
            raise DataError(
                f"column {block.attribute!r} has only the group {block.groups[0].group!r} in the "
                f"{result.data.rows.used:,} rows used; an audit compares at least two groups"
            )
