"""Estimates of one view of the counts: an attribute overall or inside one stratum.

:class:`Evidence` is what all views share: the counts and the few rows that exactness needs. :class:`Measured` turns
them into estimates per group and into comparisons between groups, each with its interval.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from msgspec.structs import replace as fields_replaced

from fairfix.auditing.calibration import Calibration
from fairfix.auditing.comparisons import Comparison
from fairfix.auditing.distances import ALL_PAIRS, Distances, Partition, areas, distances, score_shares
from fairfix.auditing.ks_candidates import KsCandidates
from fairfix.auditing.metrics import (
    ENTRIES,
    EQUALIZED_ODDS,
    METRICS,
    RATES,
    EntryMean,
    Mean,
    Metric,
    TableRatio,
    metrics_for,
)
from fairfix.auditing.results import Settings
from fairfix.auditing.sufficient_statistics import (
    bounds_of,
    entry_estimates,
    entry_size,
    entry_sums,
    mean_sums,
    means,
    proportions,
    table_of,
)
from fairfix.data.counts import Counts, Floats
from fairfix.data.data_spec import SCORE_RANGE, DataSpec
from fairfix.data.names import group_name
from fairfix.data.scan import KeptRows
from fairfix.schema import common
from fairfix.schema.common import Distribution, Estimate, Group, PairGap, number, numbers
from fairfix.stats import gaps
from fairfix.stats.estimates import (
    Areas,
    BalancedAccuracies,
    Correlations,
    Estimates,
    simultaneous_limits,
)
from fairfix.stats.gaps import Contrasts, Gap, combine, worst
from fairfix.stats.ks import ALWAYS, FIXED, ks_between_cdfs, ks_between_groups, ks_to_overall
from fairfix.stats.sequences import ConfidenceSequences
from fairfix.stats.table_ratios import TableRatios

ROUNDING = 1e-10
"""A variance that is a smaller part of the mean square may be nothing but rounding."""

COARSE_BINS = 1024
"""Bins of the score for calibration curves and the spread of areas."""

NO_LIMIT = "too few rows determine a mean on an unbounded scale, so it has no limit on that side"
"""Why an interval of a number that is defined is open."""

INFINITE = "infinite: divided by 0, or too large for a floating-point number"
"""Why a comparison that is defined has no number."""

GAPS: Mapping[tuple[str, str], Callable[..., Gap | Contrasts]] = {
    ("between_groups", "difference"): gaps.difference_between_groups,
    ("between_groups", "ratio"): gaps.ratio_between_groups,
    ("to_overall", "difference"): gaps.difference_to_overall,
    ("to_overall", "ratio"): gaps.ratio_to_overall,
    ("to_overall", "covariance"): gaps.covariance_to_overall,
    ("to_reference", "difference"): gaps.difference_to_reference,
    ("to_reference", "ratio"): gaps.ratio_to_reference,
}
"""Scope and kind -> what compares estimates, in the order of reports."""

OF_TABLES = ("balanced_accuracy", "mcc")
"""Metrics of the confusion table of a group that are not means over rows."""

OF_SCORES = ("ks", "auc", "scoring_rate", "calibration_error")
"""Metrics of the score itself, which bins or rows are needed for."""

CURVE_POINTS = 101
"""Scores at which a report has the distribution functions, at most."""


@dataclass(frozen=True, kw_only=True)
class GroupView(Partition):
    """An attribute overall or in one stratum, as a partition of the cells."""

    attribute: str = ""
    columns: tuple[str, ...] = ()
    stratum: str = ""
    stratum_levels: tuple[str, ...] = ()
    levels: tuple[tuple[str, ...], ...] = (("everybody",),)
    strata: int = 1
    reference: int | None = None

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Printable names of the groups."""
        return tuple(map(group_name, self.levels))

    def looks_at(self, data_spec: DataSpec) -> tuple[str, ...]:
        """Return the columns that say which group a row belongs to here, if any."""
        return (*(data_spec.columns.strata if self.stratum else ()), *self.columns)


# ---------------------------------------------------------------------- evidence


@dataclass(frozen=True)
class Evidence:
    """The counts that all views are computed from, with rows for exactness: every row, or those in candidate bins.

    ``labelled`` are all rows in any order, with their labels, where they are at hand.
    """

    counts: Counts
    data_spec: DataSpec
    settings: Settings
    all_rows: KeptRows | None = None
    labelled: KeptRows | None = None
    candidates: KsCandidates | None = None
    median: float | None = None
    above_median: Floats | None = None

    def rows_of(self, view: GroupView) -> KeptRows | None:
        """Return the rows in candidate bins of a view, sorted by score; None where there are none."""
        return None if self.candidates is None else self.candidates.of(view.looks_at(self.data_spec))

    @cached_property
    def coarse(self) -> Counts:
        """The counts on few bins: enough for all but distances and areas, and much quicker to add up."""
        grid = self.counts.grid
        while grid is not None and grid.size > 2 * COARSE_BINS:
            grid = grid.halved()
        return self.counts if grid is None else self.counts.regrid(grid)

    @cached_property
    def plain(self) -> dict[str, Mean | EntryMean]:
        """The plain rates and means by name."""
        entries = metrics_for(self.data_spec.task).items()
        return {name: metric for name, metric in entries if isinstance(metric, (Mean, EntryMean))}

    @cached_property
    def ratios(self) -> dict[str, TableRatio]:
        """The ratios of polynomials of the confusion table, by name."""
        return {name: one for name, one in METRICS.items() if isinstance(one, TableRatio)}

    @cached_property
    def missing(self) -> dict[str, str]:
        """Metric -> reason for what this data cannot give, be it by another name."""
        out = self._missing()
        return out | {name: out[one.same_as] for name, one in METRICS.items() if one.same_as in out}

    def _missing(self) -> dict[str, str]:
        counts, data_spec = self.counts, self.data_spec
        out = dict(self.unlimited)
        for name, metric in self.plain.items():
            if why := unavailable(metric, counts, data_spec):
                out[name] = why
        for name in reversed(EQUALIZED_ODDS):
            if name in out:
                out |= dict.fromkeys(("equalized_odds", *OF_TABLES, *self.ratios), out[name])
        if counts.grid is None:
            if counts.private is None:
                return out | dict.fromkeys(OF_SCORES, NO_SCORE)
            of_others = (name for name in self.plain if name not in RATES)
            return out | dict.fromkeys((*of_others, *OF_TABLES, *self.ratios, *OF_SCORES), PRIVATE)
        if not counts.has_labels:
            out["auc"] = out["calibration_error"] = unavailable(RATES["base_rate"], counts, data_spec)
        elif data_spec.score_scale not in SCORE_RANGE:
            out["calibration_error"] = "calibration bins need scores in [0, 1]"
        if self.above_median is None and not self.settings.always_valid:
            out["scoring_rate"] = "the exact pooled median needs rows, not only counts"
        return out

    @cached_property
    def unlimited(self) -> dict[str, str]:
        """Metric without an always-valid interval -> reason; empty if none is requested."""
        if not self.settings.always_valid:
            return {}
        out = dict.fromkeys(("auc", "calibration_error", *OF_TABLES, *self.ratios), NO_SEQUENCE)
        out["scoring_rate"] = MOVING_MEDIAN
        for name, metric in self.plain.items():
            if isinstance(metric, EntryMean):
                uneven = len({one for one in metric.below if one}) > 1
                out |= {name: UNEVEN} if uneven else {}
            elif isinstance(metric, Mean) and not all(map(math.isfinite, bounds_of(metric, self.data_spec))):
                out[name] = UNBOUNDED
        return out


NO_SEQUENCE = "it has no always-valid interval; leave out `always_valid` for an interval for one look"
MOVING_MEDIAN = "the pooled median changes as rows arrive, so it has no always-valid interval"
UNBOUNDED = "a mean on an unbounded scale has no always-valid interval"
UNEVEN = "its rows have different denominators, so it has no always-valid interval"

PRIVATE = "private counts give only rates of decisions and labels"
NO_SCORE = "no score column (name one with `score`)"
NO_LABEL = "no label column (name one with `label`)"


def unavailable(metric: Metric, counts: Counts, data_spec: DataSpec) -> str:
    """Return why a metric cannot be computed from this data, or an empty text."""
    score, real = data_spec.columns.score, data_spec.task == "regression"
    decided = counts.decisions is not None or (data_spec.threshold is not None and counts.grid is not None)
    for need in sorted(metric.needs):
        if need == "label" and not counts.has_labels:
            return "the label is a real number, not 0/1" if real else NO_LABEL
        if need == "real label" and not (real and data_spec.columns.label):
            return "needs a real-valued label (`task=regression` with `label`)"
        if need == "score" and "score" not in counts.sums:
            return NO_SCORE
        if need == "probability" and real:
            return "a real-valued prediction is not a probability"
        if need == "probability" and "square_loss" not in counts.sums:
            if score and data_spec.score_scale == "raw":
                return (
                    "a raw score is not a probability (`score_scale=probability`, percent, margin or logit)"
                )
            return NO_LABEL if score else NO_SCORE
        if need == "decision" and not decided:
            if score:
                return "no decision: set the score of a positive decision with `threshold`"
            return "no score and no decision column (name one with `score` or `prediction`)"
    return ""


# ---------------------------------------------------------------------- one view


class Measured:
    """Estimates and comparisons of one view."""

    def __init__(self, view: GroupView, evidence: Evidence) -> None:
        self.view = view
        self.evidence = evidence
        # intervals of strata hold for all strata at once, so the worst stratum's is an interval of the worst
        self.alpha = (1.0 - evidence.settings.confidence) / view.strata
        self.counts = evidence.coarse.fold(view.group_of_cell, view.size)
        self.missing = evidence.missing

    @cached_property
    def sizes(self) -> tuple[Floats, Floats]:
        """Sums of weights and of squared weights per group, shape (G,) each."""
        return self.counts.weights.sum(axis=(1, 2)), self.counts.square_weights.sum(axis=(1, 2))

    @cached_property
    def table(self) -> Floats:
        """The confusion table, with every decision negative where there is none."""
        return table_of(self.counts, self.evidence.data_spec.threshold)

    @cached_property
    def estimates(self) -> dict[str, tuple[Estimates, str]]:
        """Metric -> (estimates per group, why one can be undefined)."""
        out: dict[str, Estimates] = {}
        for name, metric in self.evidence.plain.items():
            if not self._makes(name):
                continue
            if isinstance(metric, EntryMean):
                out[name] = self._of_entries(metric, entry_sums(metric, self.table))
            else:
                out[name] = means(metric, self.evidence.data_spec, mean_sums(metric, self.counts))
        if any(map(self._makes, (*OF_TABLES, *self.evidence.ratios))):
            out |= {name: made for name, made in self._of_tables().items() if self._makes(name)}
        if (above := self.evidence.above_median) is not None and self._makes("scoring_rate"):
            out["scoring_rate"] = proportions(self._above_median(above), self.counts.weighted)
        if self._makes("auc"):
            out["auc"] = self._areas()
        if self._makes("calibration_error"):
            out["calibration_error"] = self._calibration.errors
        whys = metrics_for(self.evidence.data_spec.task)
        out |= {name: out[one.same_as] for name, one in METRICS.items() if one.same_as in out}
        why_areas = {"auc": "needs positives and negatives"}
        return {name: (self._kind(of), why_areas.get(name, whys[name].undefined)) for name, of in out.items()}

    def _makes(self, name: str) -> bool:
        """Whether a metric is needed, and the data can give it."""
        needed = self.evidence.settings.needed
        return name not in self.missing and (needed is None or name in needed)

    def _kind(self, estimates: Estimates) -> Estimates:
        """Return the estimates with the requested intervals: for one look, or for all."""
        return ConfidenceSequences.of(estimates) if self.evidence.settings.always_valid else estimates

    def _of_tables(self) -> dict[str, Estimates]:
        names = ("base_rate", "true_positive_rate", "true_negative_rate")
        if any(name in self.missing for name in names):
            return {}
        base, right, rejected = (
            proportions(entry_sums(RATES[name], self.table), self.counts.weighted) for name in names
        )
        decided = (self.table[..., 0].sum(axis=1) > 0).all(axis=1)
        both = BalancedAccuracies(right, rejected), Correlations(base, right, rejected, decided)
        out: dict[str, Estimates] = dict(zip(OF_TABLES, both, strict=True))
        entries = np.stack([self.table[:, label, decision, 0] for label, decision in ENTRIES], axis=1)
        for name, one in self.evidence.ratios.items():
            out[name] = TableRatios(entries, (base, right, rejected), one.above, one.below, one.bounds)
        return out

    def _of_entries(self, metric: EntryMean, sums: Floats) -> Estimates:
        return entry_estimates(metric, sums, self.counts.weighted, self.counts.private)

    def _above_median(self, above: Floats) -> Floats:
        group = self.view.group_of_cell
        out = np.zeros((self.view.size + 1, 2, 2))  # the last one takes cells of no group
        np.add.at(out, group, above)
        return out[:-1].reshape(-1, 4)

    def _areas(self) -> Areas:
        value, slack = areas(self.evidence.counts, self.view, self.evidence.all_rows)
        negative, positive = np.moveaxis(self.counts.weights, 1, 0)
        negative2, positive2 = np.moveaxis(self.counts.square_weights, 1, 0)
        squares = (positive2, negative2) if self.counts.weighted else None
        binned = Areas.from_histograms(positive, negative, squares)
        return replace(binned, area=value, numerical_error=slack)

    @cached_property
    def _calibration(self) -> Calibration:
        return Calibration(self.counts, self.evidence.data_spec.score_scale)

    # -------------------------------------------------------------- groups

    def groups(self) -> tuple[Group, ...]:
        """Return the group table."""
        weight, _ = self.sizes
        rows = self.counts.rows.sum(axis=(1, 2))
        limits = {name: simultaneous_limits(e, self.alpha) for name, (e, _) in self.estimates.items()}
        curves = self._calibration.points() if "calibration_error" in self.estimates else [()] * len(weight)
        total = float(self.sizes[0].sum())
        spread = self._score_deviations()
        columns = [_values(e.value, *limits[m], why, e.slack) for m, (e, why) in self.estimates.items()]
        metrics = zip(*columns, strict=True) if columns else [()] * len(weight)
        names, levels, many, mass = self.view.names, self.view.levels, rows.tolist(), weight.tolist()
        return tuple(
            Group(
                group=names[g],
                levels=levels[g],
                rows=many[g],
                weight=mass[g],
                share=mass[g] / total,
                metrics=dict(zip(limits, own, strict=True)),
                calibration=curves[g],
                score_deviation=spread[g],
            )
            for g, own in enumerate(metrics)
        )

    def _score_deviations(self) -> list[float | None]:
        r"""Return :math:`\sqrt{E_w[s^2] - E_w[s]^2}` per group; None without scores, or if lost in rounding."""
        weight, _ = self.sizes
        if "score" not in self.counts.sums:
            return [None] * len(weight)
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            mean, square = (self.counts.sums["score"][..., :2].sum(axis=1) / weight[:, None]).T
            variance = square - mean**2
            variance[~(variance > ROUNDING * square)] = np.nan
        return [math.sqrt(one) if math.isfinite(one) else None for one in variance.tolist()]

    # -------------------------------------------------------------- comparisons

    def comparisons(self) -> Iterator[common.SavedComparison]:
        """Yield the comparisons of the view that are asked for."""
        for name, (estimates, why) in self.estimates.items():
            for of, gap in self._gaps(name, name, self.alpha):
                yield self._report(of, gap, why)
            for kind in ("min", "max"):
                if self._asked(of := Comparison(name, kind)):
                    yield self._report(of, worst(estimates, self.alpha, smallest=kind == "min"), why)
        if all(name in self.estimates for name in EQUALIZED_ODDS):
            yield from self._equalized_odds()
        distances = (Comparison("ks", "", scope) for scope in ("to_overall", "between_groups"))
        if self.counts.grid is not None and any(map(self._asked, distances)):  # these are made together
            yield from self._ks()

    def _asked(self, of: Comparison) -> bool:
        """Whether a comparison is to be made; that of the worst stratum is one of those between groups."""
        only = self.evidence.settings.only
        return only is None or not {of.id, of.to("within_strata").id}.isdisjoint(only)

    def _gaps(self, name: str, metric: str, alpha: float) -> Iterator[tuple[Comparison, Gap | Contrasts]]:
        """Yield what makes sense for a rate or a mean, as comparisons of a metric that is made of it."""
        estimates, reference = self.estimates[name][0], self.view.reference
        kinds = set(METRICS[name].kinds) - (set() if estimates.support[0] >= 0 else {"ratio"})
        made = [
            (Comparison(metric, kind, scope), gap) for (scope, kind), gap in GAPS.items() if kind in kinds
        ]
        asked = [(of, gap) for of, gap in made if self._asked(of)]
        more = {
            "between_groups": (),
            "to_overall": self._others(name) if any(of.scope == "to_overall" for of, _ in asked) else None,
            "to_reference": None if reference is None else (reference,),
        }
        for of, gap in asked:
            arguments = more[of.scope]
            if arguments is not None:
                yield of, gap(estimates, *arguments, alpha)

    def _others(self, name: str) -> tuple[Estimates, Floats] | None:
        """Return the estimates of all rows outside each group and the group's share of the denominator."""
        metric = self.evidence.plain.get(name)
        if self.counts.private is not None:  # the shares of groups have noise too
            return None
        if isinstance(metric, Mean):
            weight = self.sizes[0]
            others = np.stack([_rest(part) for part in mean_sums(metric, self.counts)])
            return self._kind(means(metric, self.evidence.data_spec, others)), weight / weight.sum()
        if isinstance(metric, EntryMean):
            sums = entry_sums(metric, self.table)
            size, rest = entry_size(metric, sums), self._of_entries(metric, _rest(sums))
        elif name == "scoring_rate" and (above := self.evidence.above_median) is not None:
            sums = self._above_median(above)
            size = sums[:, 0] + sums[:, 2]
            rest = proportions(_rest(sums), self.counts.weighted)
        else:
            return None
        with np.errstate(invalid="ignore", divide="ignore"):
            return self._kind(rest), np.nan_to_num(size / size.sum())

    def _equalized_odds(self) -> Iterator[common.SavedComparison]:
        """Yield the worse of the two rates' gaps, each at half the miscoverage."""
        both = (self._gaps(name, "equalized_odds", self.alpha / 2) for name in EQUALIZED_ODDS)
        for pair in zip(*both, strict=True):
            of = pair[0][0]
            two = [gap if isinstance(gap, Gap) else gap.gap for _, gap in pair]
            gap = combine(*two, smallest=of.kind == "ratio")
            if any(math.isnan(g.value) for g in two) and not gap.undefined:  # 0/0 in one of the two
                gap = replace(gap, undefined=tuple(range(self.view.size)))
            yield self._report(of, gap, of.entry.undefined)

    @cached_property
    def _distances(self) -> Distances:
        return distances(self.evidence.counts, self.view, self.evidence.rows_of(self.view))

    def distribution(self) -> Distribution | None:
        """Return the distribution functions of the groups at a few scores; None without scores, and unasked."""
        if self.counts.grid is None or self.evidence.settings.only is not None:
            return None
        exact = self._distances, self.evidence.rows_of(self.view)
        return score_shares(self.evidence.counts, self.view, self.view.names, *exact, CURVE_POINTS)

    def _ks(self) -> Iterator[common.SavedComparison]:
        """Yield the largest distance to all rows, and between two groups."""
        far, (weight, weight2), k = self._distances, self.sizes, self.view.size
        margins = ALWAYS if self.evidence.settings.always_valid else FIXED
        sizes = weight**2 / weight2
        with np.errstate(invalid="ignore", divide="ignore"):
            rests = np.nan_to_num(_rest(weight) ** 2 / _rest(weight2))
        of, shares = Comparison("ks", "", "to_overall"), weight / weight.sum()
        overall = ks_to_overall(
            far.to_overall, sizes, rests, shares, self.alpha, far.to_overall_slack, margins
        )
        at, bound = far.to_overall_at[np.argmax(far.to_overall)], float(far.to_overall_slack.max())
        yield self._report(of, overall, "", at=at, bound=bound)
        of = of.to("between_groups")
        if k <= ALL_PAIRS:
            above = np.zeros((2, k, k))
            above[:, *far.pairs.T] = far.between, far.between_slack
            gap = ks_between_groups(above[0], sizes, self.alpha, above[1], margins)
        else:
            weights = self.counts.weights.sum(axis=1)
            cdfs = np.cumsum(weights, axis=1) / weights.sum(axis=1, keepdims=True)
            exact = float(far.between.max()) if self.evidence.candidates is not None else None
            gap = ks_between_cdfs(cdfs, sizes, self.alpha, exact, margins)
        if k < 2:
            yield self._report(of, gap, of.entry.undefined)
            return
        g, h = far.pairs[far.farthest].tolist()
        bound = float((far.between + far.between_slack).max() - far.between.max())
        report = self._report(
            of, replace(gap, groups=(g, h)), "", at=far.between_at[far.farthest], bound=bound
        )
        names, each = self.view.names, (far.pairs, far.between, far.between_slack)
        pairs = (
            PairGap(groups=(names[g], names[h]), value=number(value), bound=number(slack) if slack else None)
            for (g, h), value, slack in zip(*(one.tolist() for one in each), strict=True)
        )
        yield fields_replaced(report, pairs=tuple(pairs) if k <= ALL_PAIRS else ())

    def _report(
        self,
        of: Comparison,
        result: Gap | Contrasts,
        why: str,
        *,
        at: float = math.nan,
        bound: float = 0.0,
    ) -> common.SavedComparison:
        names = self.view.names
        gap = result if isinstance(result, Gap) else result.gap
        why = f"{why}, or 0/0" if of.kind == "ratio" else why
        undefined = tuple(names[g] for g in gap.undefined)
        reason = ""
        if math.isnan(gap.value) and len(names) < 2:
            reason = "fewer than two groups"
        elif math.isnan(gap.value) and not undefined:
            undefined, reason = names, "0/0: it is 0 in every group"
        elif undefined:
            rest = "" if math.isnan(gap.value) else "over the rest; "
            reason = f"{rest}undefined in {', '.join(undefined)}: {why}"
        elif math.isinf(gap.value):
            reason = INFINITE
        elif math.isinf(gap.high):
            reason = NO_LIMIT
        per_group = {}
        if isinstance(result, Contrasts):
            bounds = np.broadcast_to(result.bound, result.value.shape)
            own = _values(result.value, result.low, result.high, why, bounds)
            per_group = dict(zip(names, own, strict=True))
        return common.SavedComparison(
            id=of.id,
            **numbers(gap.value, gap.low, gap.high, reason, max(bound, gap.bound)),
            groups=tuple(names[g] for g in gap.groups),
            undefined=undefined,
            at_score=number(at),
            per_group=per_group,
        )


def _rest(sums: Floats) -> Floats:
    """Return, for each group, the sum over all others."""
    finite = np.isfinite(sums)
    if finite.all():
        rest = sums.sum(axis=0) - sums
        return np.asarray(
            np.maximum(rest, 0.0) if (sums >= 0).all() else rest
        )  # no -1e-17 where nothing is left
    return np.stack([np.delete(sums, g, axis=0).sum(axis=0) for g in range(len(sums))])


def _values(value: Floats, low: Floats, high: Floats, why: str, bound: Floats) -> list[Estimate]:
    """Return numbers with their limits, (k,) each; ``why`` is the reason of those that are undefined."""
    reasons = [""] * len(value)
    for g in np.flatnonzero(~(np.isfinite(value) & np.isfinite(low) & np.isfinite(high))).tolist():
        reasons[g] = why if np.isnan(value[g]) else INFINITE if np.isinf(value[g]) else ""
        if not reasons[g] and (np.isinf(low[g]) or np.isinf(high[g])):
            reasons[g] = NO_LIMIT
    columns = [[x if math.isfinite(x) else None for x in part.tolist()] for part in (value, low, high, bound)]
    return [
        Estimate(value=v, low=a, high=b, reason=reason, bound=off or None)
        for v, a, b, off, reason in zip(*columns, reasons, strict=True)
    ]
