"""History of a state: the gap in every batch and in the total so far, and the batch since which it has changed.

For each attribute, it follows the two groups that are furthest apart in the total. The gap in the total has an
interval that holds after every batch at once, and for all pairs of groups.

**Changes.** The gap of every pair of groups before a batch ``t + 1`` is compared with that since then. Both have
intervals for all looks, each at ``α / (2 m t (t + 1))`` for ``m`` pairs. If the gap has not changed, disjoint intervals
mean that one of them is wrong, and the levels of all pairs and all ``t`` add up to ``α``. So an alarm, at whatever
look, is false with probability at most ``α``.

**Limits.** A check of the rows since batch ``t``, from 2, has intervals for all looks at ``α / (t (t - 1))``. Half of
it is for the end that a check fails by. The halves add up to ``α / 2``, and the check of all rows has the other half.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import msgspec
import numpy as np

from fairfix.auditing.audit import judge, views_of
from fairfix.auditing.countfile import CountFile
from fairfix.auditing.group_estimates import Evidence, GroupView
from fairfix.auditing.metrics import Mean, Rate
from fairfix.auditing.results import Settings
from fairfix.auditing.sufficient_statistics import entry_sums, mean_sums, means, proportions, table_of
from fairfix.data.counts import Counts, Floats, groups_of_cells
from fairfix.data.scan import Scan
from fairfix.data.workers import added
from fairfix.schema.audit import Drift, StateBatch, StateBatches, Trace
from fairfix.schema.common import Number, SavedCheck, number
from fairfix.stats.estimates import Estimates
from fairfix.stats.gaps import attained
from fairfix.stats.sequences import ConfidenceSequences

USUAL = ("selection_rate", "mean_score", "base_rate")
"""Metrics to follow if no check names one: the first that is defined."""

MOST_GROUPS = 30
"""Number of groups, the largest ones, whose pairs are tested for changes."""

CANDIDATES = 40
"""Number of pairs and batches, those with the clearest changes, for which intervals are computed."""

CLEAR = 2.5
"""Standard errors of a change below which no interval for all looks can show it."""


@dataclass(frozen=True)
class _Sums:
    """Additive sums of a metric, of each batch and group."""

    metric: Rate | Mean
    content: CountFile
    weighted: bool
    sums: Floats
    """(s, batches, groups)."""

    def sequence(self, sums: Floats) -> ConfidenceSequences:
        """Return the rates or means of sums of shape (s, k)."""
        if isinstance(self.metric, Mean):
            estimates: Estimates = means(self.metric, self.content.data_spec, sums)
        else:
            estimates = proportions(sums.T, self.weighted)
        return ConfidenceSequences.of(estimates)


def history(content: CountFile, settings: Settings) -> StateBatches:
    """Return the history of a state."""
    pieces = [piece.counts(content.data_spec) for piece in content.pieces]
    counts = added(pieces)
    assert counts is not None  # a state has a batch
    evidence = Evidence(counts, content.data_spec, settings)
    asked = dict.fromkeys(
        one.comparison.metric for one in settings.checks if one.comparison.scope == "between_groups"
    )
    plain = {
        name: one
        for name, one in evidence.plain.items()
        if isinstance(one, (Rate, Mean)) and name not in evidence.missing
    }
    followed = [name for name in asked if name in plain] or [name for name in USUAL if name in plain][:1]
    traces, drifts = list[Trace](), list[Drift]()
    for view in views_of(counts, content.data_spec, settings):
        if view.stratum or view.size < 2:
            continue
        for name in followed:
            sums = _Sums(plain[name], content, counts.weighted, _sums(plain[name], view, pieces, content))
            alpha = 1.0 - settings.confidence
            traces += _trace(name, view, sums, alpha)
            drifts += _drift(name, view, sums, alpha)
    rows = [int(piece.rows.sum()) for piece in pieces]
    batches = tuple(
        StateBatch(source=one.source, added=one.added, rows=many)
        for one, many in zip(content.batches, rows, strict=True)
    )
    return StateBatches(batches=batches, traces=tuple(traces), drifts=tuple(drifts))


def _sums(metric: Rate | Mean, view: GroupView, pieces: Sequence[Counts], content: CountFile) -> Floats:
    """Return the sums of every batch by the groups of the total, shape (s, batches, groups)."""
    keys, bands = content.data_spec.columns.cell_keys, content.data_spec.bands
    out = []
    for piece in pieces:
        group = groups_of_cells(keys, piece.cells, view.columns, view.levels, bands=bands)[1]
        counts = piece.fold(np.asarray(group), view.size)
        if isinstance(metric, Mean):
            out.append(mean_sums(metric, counts))
        else:
            out.append(entry_sums(metric, table_of(counts, content.data_spec.threshold)).T)
    return np.stack(out, axis=1)


def _trace(name: str, view: GroupView, sums: _Sums, alpha: float) -> Iterator[Trace]:
    """Yield the gap of the two groups that are furthest apart in the total, by batch and so far, if there are two."""
    upto = np.cumsum(sums.sums, axis=1)
    last = sums.sequence(upto[:, -1]).value
    defined = np.flatnonzero(~np.isnan(last))
    if defined.size < 2:
        return
    top, bottom = attained(last[defined], defined)
    own = [sums.sequence(sums.sums[:, :, g]).value for g in (top, bottom)]
    first, second = (sums.sequence(upto[:, :, g]) for g in (top, bottom))
    low, high = first.minus(second, alpha / (view.size * (view.size - 1) / 2))
    total = zip(first.value - second.value, low, high, strict=True)
    yield Trace(
        attribute=view.attribute,
        metric=name,
        groups=(view.names[top], view.names[bottom]),
        batches=tuple(map(number, own[0] - own[1])),
        totals=tuple(Number(value=number(value), low=number(a), high=number(b)) for value, a, b in total),
    )


def _drift(name: str, view: GroupView, sums: _Sums, alpha: float) -> Iterator[Drift]:
    """Yield the clearest change of a gap whose intervals are disjoint, if there is any."""
    upto = np.cumsum(sums.sums, axis=1)
    before, since = upto[:, :-1], upto[:, -1:] - upto[:, :-1]
    times = before.shape[1]
    if not times:
        return
    rows = sums.sequence(upto[:, -1]).rows
    pairs = list(combinations(sorted(np.argsort(-rows, kind="stable")[:MOST_GROUPS].tolist()), 2))
    level = alpha / (view.size * (view.size - 1) / 2)
    (old, old_error), (new, new_error) = (
        (one.value.reshape(times, -1), _squared_error(one).reshape(times, -1))
        for one in (sums.sequence(part.reshape(len(part), -1)) for part in (before, since))
    )
    i, j = np.array(pairs).T
    moved, error = new - old, old_error + new_error
    with np.errstate(invalid="ignore"):
        clear = np.nan_to_num(np.abs(moved[:, i] - moved[:, j]) / np.sqrt(error[:, i] + error[:, j]))
    for at in np.argsort(-clear, axis=None, kind="stable")[:CANDIDATES].tolist():
        t, pair = divmod(at, len(pairs))
        if clear[t, pair] < CLEAR:
            return
        ends = []
        for part in (before, since):
            first, second = (sums.sequence(part[:, t, g : g + 1]) for g in pairs[pair])
            low, high = first.minus(second, level / (2 * (t + 1) * (t + 2)))
            ends.append(
                Number(value=float((first.value - second.value)[0]), low=float(low[0]), high=float(high[0]))
            )
        if not _overlap(*ends):
            names = (view.names[pairs[pair][0]], view.names[pairs[pair][1]])
            if (ends[1].value or 0.0) < 0:  # the larger one first, as it is now
                names, ends = names[::-1], [_turned(one) for one in ends]
            yield Drift(
                attribute=view.attribute,
                metric=name,
                groups=names,
                since=t + 2,
                before=ends[0],
                after=ends[1],
            )
            return


def starts_of(last: int) -> set[int]:
    """Return the batches, from 2, since which rows are checked when there are ``last``.

    They are the last 1, 2, 3, 4, 6, 8, 12, 16 batches and so on: of the rows since a change, two thirds or more count.
    """
    lengths = {step << power for power in range(last.bit_length()) for step in (2, 3)} | {1}
    return {last - one + 1 for one in lengths if one < last}


def level_since(since: int, alpha: float) -> float:
    """Return the level of the rows since a batch; those of all batches add up to ``alpha``."""
    return alpha / (since * (since - 1))


def beyond_since(content: CountFile, settings: Settings) -> Iterator[SavedCheck]:
    """Yield the checks of settings that fail in the rows since a batch of a state, for each of some of the batches."""
    last, rest = len(content.batches), None
    starts = starts_of(last)
    asked = replace(settings, only={one.comparison.id for one in settings.checks}, metrics=(), reference={})
    for since in range(last, 1, -1):
        piece = content.pieces[since - 1].counts(content.data_spec)
        rest = piece if rest is None else piece + rest
        if since not in starts or not rest.used:
            continue
        own = replace(asked, confidence=1.0 - level_since(since, 1.0 - settings.confidence))
        for one in judge(Scan(rest, None, content.data_spec), own, content.name).checks:
            if one.verdict == "fail":
                yield msgspec.structs.replace(one, since=since)


def _turned(one: Number) -> Number:
    """Return a difference of the other group minus the one."""
    value, low, high = (None if end is None else -end for end in (one.value, one.high, one.low))
    return Number(value=value, low=low, high=high)


def _overlap(one: Number, other: Number) -> bool:
    """Return whether two intervals have a number in common."""
    assert None not in (one.low, one.high, other.low, other.high)
    return bool(one.low <= other.high and other.low <= one.high)  # type: ignore[operator]  # both ends are there


def _squared_error(one: ConfidenceSequences) -> Floats:
    """Return the squared standard error of each mean, as of 0/1 rows on its scale; infinite without rows."""
    low, high = one.support
    unit = (one.value - low) / (high - low)
    with np.errstate(invalid="ignore", divide="ignore"):
        spread = np.maximum(unit * (1 - unit), 0.25 / np.maximum(one.rows, 1.0))
        if one.squares is not None:
            spread = np.maximum(one.squares / one.rows - unit**2, 1e-6)
        return np.where(one.rows > 0, (high - low) ** 2 * spread / one.rows, np.inf)
