"""Fitting: split the rows, select, fit, and prove on rows that the fit never saw what the repair did."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from fairfix.auditing.continuous_attribute import fifths_of
from fairfix.auditing.results import Settings
from fairfix.data.counts import Bools, Floats, groups_of_cells, rows_of_levels
from fairfix.data.data_spec import DataSpec
from fairfix.data.encoder import Encoder, arrow_array
from fairfix.data.files import Source
from fairfix.data.memory import bytes_of_row, require_room
from fairfix.data.row_hash import GOLDEN, mixed
from fairfix.data.scales import complete
from fairfix.data.scan import Scan, count_table, read_table, scan, stream_batches
from fairfix.data.table import PLAIN_SCORE, Table, assemble, parted, release
from fairfix.errors import DataError, FairfixWarning, UsageError
from fairfix.methods.base import Repairer, StreamSolver, warn_unconverged
from fairfix.methods.problem import RepairProblem
from fairfix.methods.sensei import with_counterfactuals
from fairfix.models.identity import IDENTITY_TYPES, RowDraws, identity_columns
from fairfix.models.predictors import RepairedPredictor
from fairfix.models.repaired import fingerprint, hash_key, with_draws_of
from fairfix.models.scored_source import MODEL_SCORE
from fairfix.models.threads import limited
from fairfix.models.trace import Caution, Note, messages
from fairfix.noise.membership_audit import check_memberships
from fairfix.schema.common import FeatureNames, SavedCheck
from fairfix.schema.repair import Candidate, FromCounts, GroupRule, Guarantee, RepairData
from fairfix.tasks.before_after import Assessment, RepairEffects, evaluate
from fairfix.tasks.dataset import Dataset
from fairfix.tasks.group_changes import acceptance_curves
from fairfix.tasks.guarantee import guarantee_problem
from fairfix.tasks.holdout_costs import (
    comparisons_of,
    cost_of_blindness,
    cost_of_rounding,
    criterion_of,
    repair_warnings,
    rounded_from,
    ties,
)
from fairfix.tasks.messages import of_names
from fairfix.tasks.multiclass_repair import (
    accuracy_of_classes,
    assess_classes,
    check_measured,
    strata_of_classes,
)
from fairfix.tasks.repaired_rows import RepairedRows
from fairfix.tasks.row_split import FIT, HOLDOUT, VALIDATION, Split, check_split, split_rows
from fairfix.tasks.unproven_groups import (
    Levels,
    UnprovenGroups,
    levels_of,
    unproven,
    without_passes,
    without_rule,
)
from fairfix.tasks.warnings import of_directions

if TYPE_CHECKING:
    from fairfix.models.user_file import ScoringModel


@dataclass(frozen=True)
class Outcome:
    """A fitted repair with its proof.

    ``split`` holds row numbers; None for a stream, whose rows have no place in memory. ``sizes`` are the numbers of
    rows.
    """

    repairer: Repairer
    predictor: RepairedPredictor
    split: Split | None
    sizes: Mapping[str, int]
    selection: tuple[Candidate, ...]
    fit: RepairEffects
    holdout: RepairEffects | None
    """None where nothing was held out: then checks are on the training rows, and none of them passes."""
    messages: tuple[Note, ...]
    data_spec: DataSpec
    rule: tuple[GroupRule, ...] = ()
    """The probability of a yes by group and score, where decisions depend on nothing else."""
    guarantee: Guarantee | None = None
    """Guarantee for people who are not in the data, where one was requested."""
    copies: str = ""
    """Name of the file of counterfactual copies, where there is one."""

    @property
    def criterion(self) -> str:
        """Identifier of the audit comparison that the slack bounds on the training rows."""
        return criterion_of(self.repairer, self.data_spec).id

    @property
    def judged(self) -> RepairEffects:
        """Evaluation that the checks are about."""
        return self.holdout or self.fit

    @property
    def checks(self) -> tuple[SavedCheck, ...]:
        """The checks, judged on the held-out rows."""
        return self.judged.checks


@dataclass(frozen=True)
class Made:
    """A repair, and what a result says of the data that it was made of."""

    outcome: Outcome
    data: RepairData
    identity: Mapping[str, str]
    """Column -> kind of what identifies a row."""
    base: Mapping[str, Any]
    """Where the artifact's scores come from."""
    notes: tuple[Note, ...] = ()
    """Reading of the data."""
    features: FeatureNames | None = None
    """Columns that the method learned from; None for the score alone."""
    counts: FromCounts | None = None
    """Counts that took the place of rows."""
    scorer: ScoringModel | None = None
    """The model in memory that scored the rows."""
    read: Source | None = None
    """Data that the rows are from; None where they were counted."""


def _check_choice(table: Table, split: Split, parameter: str, validation: float) -> None:
    """Raise a DataError where values of a parameter have nothing to be chosen by."""
    if table.rows.label is None and not table.data_spec.columns.classes:
        raise DataError(
            f"choosing among values of `{parameter}` needs labels; name the column with `label`, or give one value"
        )
    if not split.sizes["validation"]:
        raise DataError(
            f"`validation={validation:g}` of {len(table):,} rows leaves no row in any group to choose among values of "
            f"`{parameter}`; raise `validation`, or give one value"
        )


def identity_of(data: Dataset, features: Sequence[str] = ()) -> dict[str, str]:
    """Return the columns that identify a row: the id, else those that a rule may read.

    They are ``features``, the columns of groups, the score, and what a model file reads; not the score that it makes.
    """
    columns = data.data_spec.columns
    read = {*features, *columns.strata, *columns.protected, columns.score, *data.seen_by_model}
    made = () if data.model is None else (MODEL_SCORE, PLAIN_SCORE)
    readable = {name for name in data.source.usable if name in read} - {*made}
    return identity_columns(data.source.schema, data.data_spec, readable)


def read_rows(
    data: Dataset,
    columns: Sequence[str],
    seed: int,
    *,
    members: Sequence[str] = (),
    numbers: Sequence[str] = (),
    scored: Sequence[str] = (),
    draws: bool = False,
) -> tuple[Table, str]:
    """Return the rows in memory, with their draws where they may be needed, and the data's fingerprint.

    Parameters
    ----------
    columns
        Feature columns to read.
    members, numbers
        Columns of probabilities of membership, and protected numbers: kept among the features, and checked.
    scored
        Columns of a model whose scores are made anew: read too, but no part of the identity of rows.
    draws
        Whether draws are needed however many rows there are.
    """
    source, data_spec = data.source, data.data_spec
    by_id = data_spec.columns.id is not None
    few = source.about_rows <= HELD_ROWS  # else draws that no method needs are not worth the memory
    identity = identity_of(data, (*columns, *members, *numbers)) if draws or by_id or few else {}
    types = {name: IDENTITY_TYPES[kind] for name, kind in identity.items()} if by_id else {}
    real = dict.fromkeys((*members, *numbers), pa.float64())
    types |= real
    raw = real | {name: types.get(name, source.schema.field(name).type) for name in identity}
    raw |= {name: source.schema.field(name).type for name in scored if name not in raw}
    kept = dict.fromkeys((*columns, *raw))
    each = bytes_of_row(data_spec, source.schema, tuple(kept)) + 8 * len(columns)  # learners see numbers
    require_room(source.rows, each, source.name)
    table = complete(read_table(source, data_spec, columns, raw), numbers)
    if members:
        check_memberships(table, source, data_spec, tuple(members))
    data_fingerprint = fingerprint(count_table(table).counts, source.schema)
    if not identity:
        return table, data_fingerprint
    key = hash_key(seed, data_fingerprint)
    return replace(table, draw=RowDraws(table.features, identity, key, by_id=by_id)), data_fingerprint


def repair_table(
    table: Table | Callable[[], Table],
    repairer: Repairer,
    *,
    choices: Mapping[str, tuple[Any, ...]] | None = None,
    settings: Settings | None = None,
    seed: int = 0,
    validation: float = 0.2,
    holdout: float = 0.3,
    guarantee: float | None = None,
    **learned: Any,
) -> Outcome:
    """Split, select, fit and evaluate.

    Parameters
    ----------
    table
        Rows with scores and, to evaluate accuracy, labels; or what gives them, which keeps no reference to them, so
        that only the parts stay in memory. Where the reading names columns of classes, the first is the label, the
        second, if there is one, what was predicted.
    choices
        Parameter name -> values; the validation part chooses the combination with the highest expected
        accuracy; the chosen one is then fitted to the validation part as well. Without any, no rows are set aside.
    validation, holdout
        Shares of the rows.
    guarantee
        Confidence with which the slack is to hold for people who are not among the rows, see
        :mod:`fairfix.tasks.guarantee`; None where nothing is promised of them.
    **learned
        Further fields of a :class:`~fairfix.methods.problem.RepairProblem`, such as ``features`` and ``noise``.

    Raises
    ------
    DataError, UsageError
        The data or the shares do not allow the repair.
    """
    table = table() if callable(table) else table
    settings = replace(settings or Settings(), intersect=True)
    copies, seen = learned.get("copies"), learned.get("seen_by_model", ())
    if classes := bool(table.data_spec.columns.classes):
        check_measured(repairer, settings, copies)
    else:
        table = replace(table, data_spec=table.data_spec.with_threshold(learned=True))
    data_spec, level_rows = table.data_spec, table.level_rows
    repairer = repairer if copies is None else with_counterfactuals(repairer)
    learned["protected_as_feature"] = repairer.protected_as_feature
    split_rng, fit_rng = np.random.default_rng(seed).spawn(2)
    promise, alike = None, strata_of_classes(table) if classes else None
    if guarantee is not None:
        criterion, noise = criterion_of(repairer, data_spec), learned.get("noise")
        promise = guarantee_problem(repairer, guarantee, table, criterion, learned.get("features"), noise)
        alike = promise.strata
    split = split_rows(
        table, split_rng, validation=validation if choices else 0.0, holdout=holdout, alike=alike
    )
    check_split(table, split)
    if choices:
        _check_choice(table, split, next(iter(choices)), validation)
    inside = split.part == HOLDOUT
    whole = [table]
    del table
    fitted, held = parted(whole, inside)
    first, validated = fitted, held  # without choices, neither is looked at
    if choices:
        of_fit = split.part[~inside]
        first, validated = fitted.take(of_fit == FIT), fitted.take(of_fit == VALIDATION)

    def score(one: Repairer) -> float:
        rule = one.fit(problem, rng=fit_rng)
        if classes:
            return accuracy_of_classes(validated, rule)
        return one.validation_score(validated, rule.predict(validated))

    with recorded() as caught:
        problem = RepairProblem(first, **learned, many_fits=bool(choices))
        best, selection = select(variants_of(repairer, choices or {}), choices or {}, score)
        if choices:  # also where all are the same value
            problem = RepairProblem(fitted, **learned)
        made = best
        if promise is None:
            predictor = best.fit(problem, rng=fit_rng)
        else:
            promise = replace(promise, repairer=best)
            fit = partial(fit_again, problem, fit_rng.spawn(1)[0])
            made, predictor = promise.fitted(fit, fitted, split.holdout)
    fitted, held = (with_draws_of(one, predictor, seen) for one in (fitted, held))
    problem = replace(problem, table=fitted)  # without what the fit has made of the first one
    release()
    if classes:
        assessed = assess_classes(held, problem, best, predictor, warned(caught), settings)
    else:
        assessed = assess(held, problem, best, predictor, warned(caught), settings, seed=seed, made=made)
    notes = messages((*of_names(level_rows, data_spec), *assessed.messages))
    promised = None
    if promise is not None:
        result = promise.judged(made, predictor, fitted, assessed.held.table)
        promised, notes = result.struct, messages((*result.messages, *notes))
    rule = acceptance_curves(assessed.held.table, predictor)
    parts = split, split.sizes, selection, assessed.of_fit, assessed.proof
    return Outcome(best, predictor, *parts, notes, data_spec, rule, promised, copies.source if copies else "")


def assess(
    held_out: Table,
    problem: RepairProblem,
    repairer: Repairer,
    predictor: RepairedPredictor,
    caught: Sequence[Note],
    settings: Settings,
    *,
    seed: int | None = None,
    made: Repairer | None = None,
    only: Sequence[str] | None = None,
    fitted_levels: Levels | None = None,
    gaps: Sequence[UnprovenGroups] = (),
) -> Assessment:
    """Evaluate a repair and collect its messages, the same in a repair of rows or of counts and in a comparison.

    The rule predicts the training rows once, and the held-out rows once.

    Parameters
    ----------
    held_out
        The rows that are held out.
    problem
        What the repair was fitted to; its rows and those held out are all there are.
    repairer, made
        The method as it was asked for, and as it was fitted where a promise made that another one.
    caught
        Warnings of the fit.
    settings
        Intervals and checks of the proof on held-out rows.
    seed
        Of fits to fewer groups; None where the method is not fitted again.
    only
        Comparisons to make in addition to the bounded one, where no report shows the evaluations; None for all.
    fitted_levels
        The groups that the fit had; by default those of the problem's rows.
    gaps
        Groups that are not evaluated, in addition to those without held-out rows.
    """
    noise, plain = problem.noise, replace(settings, checks=())
    made = repairer if made is None else made
    fitted, kept = RepairedRows(problem.table, predictor), RepairedRows(held_out, predictor)
    data_spec = held_out.data_spec
    claim = repairer.claim(noise)
    more: Any = {
        "also": comparisons_of(repairer, data_spec),
        "comparable": repairer.comparable_values,
        "copies": problem.copies,
        "claim": claim,
        "fifths": fifths_of(fitted.table, predictor.scales),
        "only": only,
    }
    of_fit = evaluate(fitted, plain, **{**more, "only": None if only is None else ()}, of_fit=True)
    held, lost = _answered(kept)
    levels = levels_of(problem.table) if fitted_levels is None else fitted_levels
    gaps = [*gaps, *lost, *unproven(data_spec.columns.protected, levels, levels_of(held_out))]
    proof = without_passes(evaluate(held, settings, **more), gaps)
    drawn = rounded_from(repairer, held, plain)
    notes = [*caught, *predictor.trace.notes, *ties((fitted, kept))]
    notes += cost_of_rounding(repairer, held, proof, drawn)
    if predictor.trace.of_held_out is not None:
        notes += predictor.trace.of_held_out(*held.shipped[:2])
    notes += cost_of_blindness(repairer, held, proof.after if drawn is None else drawn.report, plain)

    def again(rows: Bools) -> RepairedPredictor:
        fewer = replace(problem, table=problem.table.take(np.flatnonzero(rows)))
        return made.fit(fewer, rng=np.random.default_rng(seed))

    more_than_rows = noise, claim, problem.unlabelled, problem.subspace, problem.copies
    of_rows = all(one is None for one in more_than_rows) and not (
        problem.pairs or repairer.parsed_constraint.numbers
    )
    learn = again if seed is not None and of_rows and problem.table.rows.label is not None else None
    first = repair_warnings(repairer, fitted, held, (of_fit, proof), drawn, learn)
    wrong = of_directions(fitted.table, settings.confidence, scored=predictor.needs_score)
    lacking = [gap.caution for gap in gaps]
    notes = [*wrong, *lacking, *first, *proof.claims, *notes]
    return Assessment(of_fit, proof, messages(notes), held)


def fit_again(problem: RepairProblem, rng: np.random.Generator, method: Repairer) -> RepairedPredictor:
    """Return the fit of a method, with the same chance at each call."""
    return method.fit(problem, rng=copy.deepcopy(rng))


HELD_ROWS = 1 << 20
"""Held-out rows of a stream that are kept in memory for the proof; further ones are left aside."""

SHOWN_ROWS = 1 << 18
"""Rows of a stream's fit on which the proof shows what the fit reached."""


def repair_stream(
    source: Source,
    data_spec: DataSpec,
    repairer: Repairer,
    *,
    settings: Settings | None = None,
    seed: int = 0,
    holdout: float = 0.3,
) -> tuple[Outcome, Scan]:
    """Learn from the rows as they come, and prove on a sample that was not learned from.

    Memory does not grow with the data: of the held-out rows at most ``HELD_ROWS`` are kept. Which rows are held out
    depends on the seed and their numbers. Returned with the outcome are the counts of the whole source.
    """
    if not 0 < holdout < 1:
        raise UsageError(f"`holdout={holdout:g}` must be a fraction that leaves rows to fit on; 0.3 is usual")
    solver = repairer.effective_solver
    if not isinstance(solver, StreamSolver):
        raise UsageError(f"{repairer.name} does not learn from a stream with these parameters")
    if data_spec.columns.strata:
        raise UsageError(
            "learning from a stream cannot be combined with `strata`; use a solver that reads all rows"
        )
    settings = replace(settings or Settings(), intersect=True)
    counted = scan(source, data_spec, exact=False, losses=False)
    data_spec, used = counted.data_spec, counted.counts.used
    kept = min(holdout, HELD_ROWS / used), min(1 - holdout, SHOWN_ROWS / used)
    held, shown = _sampled(source, data_spec, seed, [(0.0, kept[0]), (holdout, holdout + kept[1])])
    passes: list[int] = []

    def rows() -> Iterator[Table]:
        passes.append(0)
        for table in _streamed(source, data_spec, seed, holdout):
            passes[-1] += len(table)
            yield table

    with recorded() as caught, limited():
        rng = np.random.default_rng(seed).spawn(2)[1]
        predictor = warn_unconverged(repairer.name, solver.learn(rows, rng))
    cells = counted.counts

    def fitted_levels(columns: tuple[str, ...]) -> Sequence[tuple[str, ...]]:
        return groups_of_cells(cells.keys, cells.cells, columns)[0]

    assessed = assess(
        held, RepairProblem(shown), repairer, predictor, warned(caught), settings, fitted_levels=fitted_levels
    )
    levels = rows_of_levels(cells.keys, cells.cells, cells.rows.sum(axis=(1, 2)))
    notes = messages((*of_names(levels, data_spec), *assessed.messages))
    answered = assessed.held.table
    sizes = {"fit": max(passes), "validation": 0, "holdout": len(answered)}
    rule = acceptance_curves(answered, predictor)
    parts = sizes, (), assessed.of_fit, assessed.proof
    return Outcome(repairer, predictor, None, *parts, notes, data_spec, rule), counted


def _answered(kept: RepairedRows) -> tuple[RepairedRows, list[UnprovenGroups]]:
    """Return the held-out rows that the rule has an answer for, and the groups of the others."""
    answered = ~np.isnan(kept.predicted)
    if answered.all():
        return kept, []
    if not answered.any():
        raise DataError(
            "every held-out row belongs to a group that the training rows lack; add rows, or raise `holdout`"
        )
    lost = kept.table.take(np.flatnonzero(~answered))
    why = f"{len(lost):,} held-out rows belong to groups that the training rows lack: they are not evaluated"
    gaps = without_rule(kept.table.data_spec.columns.protected, levels_of(lost), why)
    return kept.take(np.flatnonzero(answered)), gaps


def _sampled(
    source: Source, data_spec: DataSpec, salt: int, spans: Sequence[tuple[float, float]]
) -> list[Table]:
    """Return the rows whose number falls into each span of [0, 1)."""
    kept: list[list[Any]] = [[] for _ in spans]
    for before, _, batch in stream_batches(source, data_spec):
        place = _places(before, batch.num_rows, salt)
        for rows, (low, high) in zip(kept, spans, strict=True):
            part = batch.filter(arrow_array((place >= low) & (place < high)))
            if part.num_rows:
                rows.append(part)
    if not all(kept):
        raise DataError(
            f"{source.name} has too few rows to hold some out for the evaluation; raise `holdout`"
        )
    return [assemble(rows, data_spec, source.name) for rows in kept]


def _streamed(source: Source, data_spec: DataSpec, salt: int, holdout: float) -> Iterator[Table]:
    """Yield the rows that are not held out, a batch at a time."""
    encoders: dict[str, Encoder] = {}
    for before, part, batch in stream_batches(source, data_spec):
        encoder = encoders.setdefault(part.where, Encoder(data_spec, part.where, part.first_row))
        rows = encoder.encode(batch.filter(arrow_array(_places(before, batch.num_rows, salt) >= holdout)))
        if len(rows):
            yield Table(data_spec, rows, pa.table({}))


def _places(before: int, many: int, salt: int) -> Floats:
    """Return a number in [0, 1) for each row, by its number alone."""
    first = np.uint64((before + 1 + salt * 0xD1342543DE82EF95) % 2**64)
    z = mixed((np.arange(many, dtype=np.uint64) + first) * GOLDEN)
    return (z >> np.uint64(11)).astype(np.float64) * 2.0**-53


def variants_of(repairer: Repairer, choices: Mapping[str, tuple[Any, ...]]) -> list[Repairer]:
    """Return the repairers of all combinations of some parameter values; a UsageError where one is not valid."""
    return [
        replace(repairer, **dict(zip(choices, given, strict=True))) for given in product(*choices.values())
    ]


def select(
    variants: Sequence[Repairer], choices: Collection[str], score: Callable[[Repairer], float]
) -> tuple[Repairer, tuple[Candidate, ...]]:
    """Return the variant with the highest score on the validation part, the first of equals, and all of them."""
    if len(variants) == 1:
        return variants[0], ()
    scores = [score(one) for one in variants]
    best = int(np.argmax(scores))
    shown = tuple(
        Candidate(
            parameters=", ".join(f"{name} {one.parameters[name]}" for name in choices),
            score=value,
            chosen=i == best,
        )
        for i, (one, value) in enumerate(zip(variants, scores, strict=True))
    )
    return variants[best], shown


def recorded() -> warnings.catch_warnings[list[warnings.WarningMessage]]:
    """Return a context that yields the list of all warnings inside it, of ours also those that come again."""
    return warnings.catch_warnings(record=True, action="always", category=FairfixWarning)


def warned(caught: Sequence[warnings.WarningMessage]) -> list[Note]:
    """Return our own among the warnings that were caught."""
    own = (one.message for one in caught)
    return [Caution(one, one.code) for one in own if isinstance(one, FairfixWarning)]
