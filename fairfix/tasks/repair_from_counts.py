"""Repair from counts: a rule of group and score bin, fitted and evaluated without a row.

Counts become weighted rows with their scores at the middles of their bins (:mod:`fairfix.data.binned`), so that methods
and proofs work on them as on any rows, with the intervals of the rows behind them. What a method finds is then made
constant on every bin (:class:`~fairfix.models.predictors.BinnedRule`,
:class:`~fairfix.models.score_models.BinnedTube`). So its rates do not depend on where in its bin a score lies, and
results about them hold for the rows (:mod:`fairfix.tasks.bin_bounds`).
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
from msgspec.structs import replace as fields_replaced

from fairfix.auditing.count_thresholds import at_threshold
from fairfix.auditing.countfile import CountFile, repeated, require_alike
from fairfix.auditing.disclosure import SUPPRESSED
from fairfix.auditing.results import Settings, rows_struct
from fairfix.data.binned import entries_of, middles, of_columns
from fairfix.data.counts import Counts, Floats, Grid, groups_of_cells
from fairfix.data.data_spec import DataSpec, to_probability
from fairfix.data.names import attribute_name, each_and_crossed
from fairfix.data.scan import check_whole
from fairfix.data.table import Table
from fairfix.data.urls import shown_url
from fairfix.errors import DataError, UsageError
from fairfix.methods.base import Repairer
from fairfix.methods.problem import RepairProblem
from fairfix.methods.ramp import Ramp
from fairfix.methods.ramp.exact import hidden_by_bins
from fairfix.models.predictors import BinnedRule, GroupwiseCurve, GroupwiseRamp, OfGroups, RepairedPredictor
from fairfix.models.repaired import fingerprint
from fairfix.models.score_models import BinnedTube, GroupTube
from fairfix.models.trace import Caution, Certificate, Note, messages
from fairfix.noise.description import Noise
from fairfix.schema.repair import CountedRows, Ends, FromCounts, Optimum, RepairData
from fairfix.tasks.before_after import RepairEffects, evaluate
from fairfix.tasks.bin_bounds import certified, certified_values
from fairfix.tasks.count import check_agreement, counts_of, protected_among
from fairfix.tasks.dataset import cut_counts
from fairfix.tasks.fit_and_evaluate import Made, Outcome, assess, recorded, warned
from fairfix.tasks.group_changes import acceptance_curves
from fairfix.tasks.holdout_costs import criterion_of, targets_of
from fairfix.tasks.messages import of_names
from fairfix.tasks.repaired_rows import RepairedRows
from fairfix.tasks.request import RepairRequest
from fairfix.tasks.result import data_fields
from fairfix.tasks.unproven_groups import UnprovenGroups, groups_in_words, without_passes, without_rule
from fairfix.tasks.warnings import of_directions, of_slack

FIT_ONLY = "checked on the training counts, not on held-out ones"


@dataclass(frozen=True)
class CountsPart:
    """A file of counts, for the asked columns."""

    name: str
    content: CountFile
    counts: Counts

    @property
    def left_out(self) -> int:
        """Rows that suppression left out, at most."""
        return self.counts.excluded.get(SUPPRESSED, 0)

    @property
    def struct(self) -> CountedRows:
        """Form in results."""
        share = "" if self.content.share is None else str(self.content.share)
        return CountedRows(
            source=self.content.name, rows=self.counts.used, share=share, left_out=self.left_out or None
        )

    def table(self, data_spec: DataSpec) -> Table:
        """Return the counts as a table."""
        return Table(data_spec, entries_of(self.counts, data_spec), pa.table({}))


def repair_counts(
    request: RepairRequest,
    counts: CountFile,
    repairer: Repairer,
    choices: Mapping[str, Any],
    settings: Settings,
    noise: Noise | None,
) -> Made:
    """Fit a repair to counts, and evaluate it on counts of other rows where ``holdout`` has some.

    Raises
    ------
    UsageError, DataError, ArtifactError
        The method needs rows, the counts lack what it needs, or the evaluation would be on training rows.
    """
    counts.require_exact()
    counts, request, cut = cut_counts(counts, request)
    fit_file, proof_file = (_name_of(request.data, counts), counts), _held_out_counts(request)
    data_spec = _data_spec(request, repairer, fit_file[1])
    _check_method(request, repairer, choices, data_spec)
    notes: list[Note] = [*cut]
    if proof_file is not None:
        require_alike(fit_file, proof_file, "cannot be used to fit and to evaluate one repair")
        notes += _held_out(fit_file, proof_file)
    fit, held = _parts(fit_file, proof_file, data_spec)
    settings = replace(settings, intersect=True, exact=False)
    table, grid = fit.table(data_spec), fit.counts.bins
    problem = RepairProblem(table, noise=noise, protected_as_feature=repairer.protected_as_feature)
    with recorded() as caught:
        rule, lost = fit_to_bins(repairer, problem, np.random.default_rng(request.seed).spawn(2)[1])
    if rule.gives == "value":  # what a proof knows of values is all of them
        settings = replace(settings, exact=True)
    proof: RepairEffects | None = None
    shown = table
    hidden_rows = list(_of_left_out(fit, held))
    if held is None:
        more: Any = {"also": (criterion_of(repairer, data_spec).id,), "claim": repairer.claim(noise)}
        of_fit = evaluate(RepairedRows(table, rule), settings, **more, of_fit=True).without_passes(
            "fit_only", lambda check: f"{FIT_ONLY}, where {check.reason}"
        )
        first: list[Note] = [*of_directions(table, settings.confidence), Caution(NOTHING, "nothing_proven")]
        if rule.trace.randomized is None and "noise" not in repairer.uses:
            for columns, asked in targets_of(repairer, data_spec).items():
                if (pair := of_fit.pair_of(asked.comparison.id, attribute_name(columns))) is not None:
                    first += of_slack(asked, pair[1].point)
        notes = [*first, *hidden_rows, *warned(caught), *rule.trace.notes, *notes]
    else:
        held, gaps = _answered(held, rule, data_spec.columns.protected)
        shown = held.table(data_spec)
        assessed = assess(shown, problem, repairer, rule, warned(caught), settings, gaps=gaps)
        of_fit, proof = assessed.of_fit, assessed.proof
        if held.left_out:
            hidden = (
                f"up to {held.left_out:,} held-out rows of small groups are hidden, and it is unknown which "
                "groups these are"
            )
            attributes = each_and_crossed(data_spec.columns.protected)
            proof = without_passes(proof, [UnprovenGroups(columns, (), hidden) for columns in attributes])
            notes = [*hidden_rows, *assessed.messages, *notes]
        else:
            notes = [*assessed.messages, *hidden_rows, *notes]
    by = held or fit
    names = of_names(table.level_rows, data_spec, counted=True)
    outcome = Outcome(
        repairer,
        rule,
        None,
        {"fit": fit.counts.used, "validation": 0, "holdout": 0 if held is None else held.counts.used},
        (),
        of_fit,
        proof,
        messages((*names, *notes, *_of_identity(request, fit, rule, data_spec))),
        data_spec,
        acceptance_curves(shown, rule),
    )
    sure = list(certified(by.counts, rule, data_spec, by.left_out))
    losses: dict[str, Ends] = {}
    if isinstance(rule, BinnedTube):
        distances, losses = certified_values(shown, by.counts, rule, by.left_out)
        sure = [fields_replaced(one, distance=distances[one.attribute, one.group]) for one in sure]
    content = FromCounts(
        bins=grid.size,
        width=grid.width,
        fit=fit.struct,
        proof=None if held is None else held.struct,
        no_proof=NO_PROOF if held is None else "",
        certified=tuple(sure),
        losses=losses,
        optimum=lost,
    )
    parts = [one for one in (fit, held) if one is not None]
    excluded = Counter[str]()
    for one in parts:
        excluded.update(one.counts.excluded)
    rows = rows_struct(sum(one.counts.read for one in parts), sum(one.counts.used for one in parts), excluded)
    whole = fit_file[1]
    data = RepairData(
        **data_fields(whole.name, rows, data_spec, whole.inferred),
        fingerprint=fingerprint(fit.counts, pa.schema([])),
    )
    base = {"kind": "column", "name": data_spec.columns.score}
    return Made(outcome, data, _identity(data_spec), base, counts=content)


# ---------------------------------------------------------------------- what is asked


def _name_of(data: Any, counts: CountFile) -> str:
    """Return what messages call counts."""
    return shown_url(os.fspath(data)) if isinstance(data, (str, os.PathLike)) else counts.name


def _held_out_counts(request: RepairRequest) -> tuple[str, CountFile] | None:
    """Return the counts to evaluate on, with their name for messages; None where there are none."""
    held = request.holdout
    if isinstance(held, float):
        if request.gives("holdout") and "holdout" not in request.configured:
            raise UsageError(
                f"`holdout={held:g}`: counts cannot be divided; count the held-out rows apart (`part=0.7:1`), and name "
                "that file"
            )
        return None
    if (counts := counts_of(held)) is None:
        raise UsageError("`holdout`: the data is counts, so name counts of the held-out rows, not the rows")
    counts.require_exact()
    return _name_of(held, counts), at_threshold(counts, request.threshold)


def _data_spec(request: RepairRequest, repairer: Repairer, content: CountFile) -> DataSpec:
    """Return how the counts were read, for the asked protected columns and the id of new rows."""
    data_spec, share = content.data_spec, content.share
    if content.model:
        raise UsageError(
            f"the scores in the counts are those of the model file {content.model['file']}, which a rule of counts "
            "cannot use at predict time; write its scores to a column and count that column with `score`"
        )
    asked = protected_among(request, content)
    by_id = share.columns[0] if share is not None and share.by_id else None
    columns = replace(data_spec.columns, protected=asked, id=request.id or by_id)
    bands = {name: edges for name, edges in data_spec.bands.items() if name in columns.cell_keys}
    merge = {name: names for name, names in data_spec.merge.items() if name in columns.cell_keys}
    data_spec = replace(data_spec, columns=columns, bands=bands, merge=merge)
    check_agreement(request, data_spec)
    data_spec.check()
    return data_spec


def _check_method(
    request: RepairRequest, repairer: Repairer, choices: Mapping[str, Any], data_spec: DataSpec
) -> None:
    """Raise a UsageError that says why counts do not do, and what does."""
    name, columns = repairer.name, data_spec.columns
    if repairer.needs_rows:
        raise UsageError(f"`method={name}` cannot be fitted to counts, since {repairer.needs_rows}")
    if choices:
        raise UsageError(
            f"`{next(iter(choices))}` takes one value where the data is counts: no rows are held out to choose by"
        )
    if columns.strata and "strata" not in repairer.uses:
        raise UsageError(f"{name} does not repair within strata; count the data without `strata`")
    if columns.decision:
        raise UsageError("the counts are of decisions, not of scores; count the data with its score alone")
    if not columns.score:
        raise UsageError("the counts have no score bins; count the data with `score`")


def _held_out(fit: tuple[str, CountFile], proof: tuple[str, CountFile]) -> Iterator[Note]:
    """Yield what is known of rows that may be in both files; a UsageError where some surely or probably are."""
    one, other = fit[1].share, proof[1].share
    remedy = (
        "count the training rows with `part=0:0.7` and the held-out rows with `part=0.7:1`, with the same "
        "`id` and seed"
    )
    if repeated([fit, proof]):
        raise UsageError(
            f"`holdout`: {fit[0]} and {proof[0]} contain identical counts of some part of the data, and training "
            f"rows cannot evaluate a repair; {remedy}"
        )
    if one is not None and other is not None and (why := one.apart_from(other)):
        raise UsageError(f"`holdout`: training rows may be in {proof[0]}: {why}; {remedy}")
    if (one is None) != (other is None):
        whole = fit[0] if one is None else proof[0]
        raise UsageError(
            f"`holdout`: training rows may be in {proof[0]}: {whole} counts all rows, not a `part` of them; "
            f"{remedy}"
        )
    if one is None:
        yield Caution(
            "neither file of counts was made with `part`, so fairfix cannot check that no row is in both. The "
            "evaluation assumes that none is",
            "held_out_unknown",
        )
    elif not one.by_id:
        yield Note(
            "rows are split by their values as written, not by an ID. A person whose values differ between files, "
            "such as a rounded score, may be in both. To avoid this, name an `id`",
            "held_out_unknown",
        )


def _parts(
    fit: tuple[str, CountFile], proof: tuple[str, CountFile] | None, data_spec: DataSpec
) -> tuple[CountsPart, CountsPart | None]:
    """Return the counts of both files for the asked columns, on one grid of score bins."""
    files = [fit] if proof is None else [fit, proof]
    parts = []
    for name, content in files:
        counts = content.counts()
        check_whole(counts, data_spec, content.name)
        parts.append(CountsPart(name, content, of_columns(counts, data_spec.columns.cell_keys)))
    grid, last = parts[0].counts.bins, parts[-1].counts.bins
    if last != grid:  # a rule of the coarser bins is constant on the finer ones
        common = grid.covering(last, most=max(grid.size, last.size, 2048))
        parts = [replace(one, counts=one.counts.regrid(common)) for one in parts]
    return parts[0], parts[1] if proof is not None else None


def _answered(
    held: CountsPart, rule: OfGroups, protected: tuple[str, ...]
) -> tuple[CountsPart, list[UnprovenGroups]]:
    """Return held-out counts without groups that the fit lacks, and what is not proven for these."""
    counts = held.counts
    _, place = groups_of_cells(counts.keys, counts.cells, rule.columns, rule.levels)
    inside = place >= 0
    if inside.all():
        return held, []
    if not inside.any():
        raise DataError("the training counts lack every group of `holdout`; give other held-out counts")
    gone = int(counts.rows[~inside].sum())
    kept = counts.cells_at(np.flatnonzero(inside))
    kept = replace(kept, read=kept.read - gone)
    lost = [cell for cell, there in zip(counts.cells, inside, strict=True) if not there]
    levels = groups_of_cells(counts.keys, lost, rule.columns)[0]
    is_in, them = ("is", "it") if len(levels) == 1 else ("are", "them")
    text = (
        f"{groups_in_words(levels, rule.columns)} {is_in} in the held-out counts alone: the training rows lack {them}"
        f", so there is no rule for {gone:,} held-out rows, and nothing was evaluated for {them}"
    )
    gaps = without_rule(protected, lambda columns: groups_of_cells(counts.keys, lost, columns)[0], text)
    return replace(held, counts=kept), gaps


# ---------------------------------------------------------------------- the rule


def fit_to_bins(
    repairer: Repairer, problem: RepairProblem, rng: np.random.Generator
) -> tuple[BinnedRule | BinnedTube, Optimum]:
    """Return the rule of a problem of entries of counts, and how much better a rule of exact scores could be.

    The rule gives all of a bin what the method gives its middle: a chance of a yes, or values with their chances. The
    second is a bound, or a reason why there is none.
    """
    table, fitted = problem.table, repairer.fit(problem, rng=rng)
    assert isinstance(fitted, OfGroups)
    grid = table.entries.grid
    unknown = Optimum(reason="there is no bound on how much better a rule of exact scores could be")
    if isinstance(fitted, GroupTube):
        trace = replace(fitted.trace, fitted=None, redrawn=None)
        return replace(binned_values(fitted, table, grid), trace=trace), unknown
    rule = binned(fitted, table, grid)
    trace = fitted.trace
    if trace.randomized is not None:
        assert isinstance(trace.randomized, OfGroups)
        trace = replace(trace, randomized=binned(trace.randomized, table, grid))
    by_bin = "the training counts, with each score at the middle of its bin"
    certificates = tuple(replace(one, rows=by_bin) for one in trace.certificates)
    hidden, lost = None, unknown
    if isinstance(repairer, Ramp):
        hidden = hidden_by_bins(repairer, problem, rule.predict(table), _reach(table, grid))
    if certificates and hidden is not None:
        one = trace.certificates[0]
        lost = Optimum(bound=one.gap + hidden, of=one.objective, among=one.among)
        certificates += (
            Certificate(
                f"{one.objective}, of exact scores (this number uses the middle of each score bin)",
                one.value,
                one.bound - hidden,
                one.among,
                "the rows behind the counts",
            ),
        )
    trace = replace(trace.without_rows(), certificates=certificates)
    return replace(rule, trace=trace), lost


def _bins_of(grid: Grid, data_spec: DataSpec) -> tuple[Floats, Floats]:
    """Return the least score and the middle of every bin that can have scores, shape (B,) each."""
    wide = grid.edges[:-1] < grid.edges[1:]  # a threshold on an edge makes a bin without scores
    return grid.edges[:-1][wide], middles(grid, data_spec)[wide]


def binned_values(fitted: GroupTube, table: Table, grid: Grid) -> BinnedTube:
    """Return the tube that gives all of a bin what another one gives its middle."""
    starts, score = _bins_of(grid, table.data_spec)
    real = table.data_spec.task == "regression"
    return BinnedTube.of(
        fitted, starts, score if real else to_probability(score, table.data_spec.score_scale)
    )


def binned(fitted: OfGroups, table: Table, grid: Grid) -> BinnedRule:
    """Return the rule that decides all of a bin as another one decides its middle; rounded where that rounds."""
    data_spec = table.data_spec
    starts, score = _bins_of(grid, data_spec)
    code, each = table.codes(fitted.columns, fitted.levels), []
    for k in range(len(fitted.levels)):
        rows = np.flatnonzero(code == k)
        if not rows.size:  # a group that the fit lacks, whose rule adds up those of others
            assert isinstance(fitted, GroupwiseRamp | GroupwiseCurve)
            each.append(fitted.of_group(k, 2.0 * to_probability(score, data_spec.score_scale) - 1.0))
            continue
        alike = table.take(np.full(score.size, int(rows[0])))
        given = fitted.predict(replace(alike, rows=replace(alike.rows, score=score)))
        each.append((given >= data_spec.cut).astype(np.float64) if fitted.gives == "value" else given)
    return BinnedRule.of(fitted.columns, fitted.levels, starts, np.stack(each))


def _reach(table: Table, grid: Grid) -> Floats | None:
    """Return how far an exact ``2 p - 1`` may be from that of each row's middle; None where there is no probability."""
    data_spec = table.data_spec
    if data_spec.score_scale == "raw" or data_spec.task == "regression":
        return None
    ends = np.clip(grid.edges, *data_spec.range)
    p, at = (
        to_probability(ends, data_spec.score_scale),
        to_probability(middles(grid, data_spec), data_spec.score_scale),
    )
    reach = 2.0 * np.maximum(at - p[:-1], p[1:] - at)
    return np.asarray(reach[table.entries.place])


# ---------------------------------------------------------------------- what is to be said

NO_PROOF = "no counts of other rows were given, so all numbers come from the rows that the rule was fitted to"
NOTHING = (
    f"nothing was evaluated: {NO_PROOF}, and no check passes on them; count some rows separately (`part=0.7:1`) and "
    "give that file as `holdout`"
)


def _of_left_out(fit: CountsPart, held: CountsPart | None) -> Iterator[Caution]:
    """Yield that rows are missing, and what that can do."""
    for part, what in ((fit, "the fit"), (held, "the evaluation")):
        if part is None or not part.left_out:
            continue
        gone, used = part.left_out, part.counts.used
        passes = "" if part is fit else ", and no check passes on them"
        yield Caution(
            f"the counts of {what} hide up to {gone:,} rows of small groups, in addition to the {used:,} used. "
            "Groups without other rows have no rule. Intervals and verdicts are about the rows that are not "
            f"hidden{passes}; the certified rates account for hidden rows",
            "suppressed",
        )


def _of_identity(
    request: RepairRequest, fit: CountsPart, rule: RepairedPredictor, data_spec: DataSpec
) -> Iterator[Caution]:
    """Yield by what new rows are drawn, where no id is known."""
    if rule.randomized and data_spec.columns.id is None:
        names = ", ".join(_identity(data_spec))
        yield Caution(
            f"decisions will be randomized by {names} and the order of rows that are equal in these, since "
            "counts have no other columns; name the ID column of new rows with `id`",
            "equal_rows",
        )


def _identity(data_spec: DataSpec) -> dict[str, str]:
    """Return what identifies a new row: its id, or all that counts know of it."""
    columns = data_spec.columns
    if columns.id is not None:
        return {columns.id: "text"}
    return {str(columns.score): "number", **dict.fromkeys(columns.cell_keys, "text")}
