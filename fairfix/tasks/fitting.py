"""Fitting: split the rows, select, fit, and prove on rows that the fit never saw what the repair did.

The rows are split at random inside each (group, label), so that small groups are in every part. The *fit* part
makes the predictor, the *validation* part chooses among parameter values when several are given, the *holdout*
part judges.
"""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from fairfix.auditing.audit import audit
from fairfix.auditing.comparisons import TRUE_GROUPS, Comparison
from fairfix.auditing.results import CheckResult, Settings
from fairfix.data.counts import Bools, Floats, Ints, groups_of_cells
from fairfix.data.draws import GOLDEN, is_random, mixed
from fairfix.data.encoder import Encoder, arrow_array
from fairfix.data.files import Source
from fairfix.data.names import attribute_name
from fairfix.data.plain import texts_of
from fairfix.data.reading import Reading
from fairfix.data.scan import Scan, scan, stream_batches
from fairfix.data.table import Table, assemble
from fairfix.errors import DataError, FairfixWarning, UsageError
from fairfix.methods.base import Repairer, RepairProblem, expected_accuracy
from fairfix.models.predictors import RepairedPredictor
from fairfix.models.trace import Caution, Note, messages
from fairfix.noisy.description import Noise
from fairfix.noisy.proof import Told
from fairfix.tasks.doubts import (
    Asked,
    Blindness,
    area_of,
    of_blindness,
    of_constant,
    of_gaps,
    of_levelling,
    of_rounding,
    of_selection,
    of_slack,
    of_small_groups,
    one_row,
)
from fairfix.tasks.gaps import Gap, levels_of, unproven, without_passes, without_rule
from fairfix.tasks.guarantee import Guarantee, promise_of
from fairfix.tasks.messages import of_direction, of_shared_ids
from fairfix.tasks.people import Rule, rules_of
from fairfix.tasks.proof import Proof, ProofRow, loss_of, mean_change, prove, results_on


@dataclass(frozen=True)
class Split:
    """Row numbers of the parts, sorted."""

    fit: Ints
    validation: Ints
    holdout: Ints


@dataclass(frozen=True)
class Candidate:
    """A tried setting and its score on the validation part."""

    parameters: Mapping[str, Any]
    score: float
    chosen: bool


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
    fit: Proof
    holdout: Proof | None
    """None where nothing was held out: then checks are on the rows of the fit, and none of them passes."""
    messages: tuple[Note, ...]
    reading: Reading
    rule: tuple[Rule, ...] = ()
    """The probability of a yes by group and score, where decisions hang on nothing else."""
    guarantee: Guarantee | None = None
    """What is promised of people who are not in the data, where that was asked."""

    @property
    def warnings(self) -> tuple[str, ...]:
        """Messages on what endangers the result."""
        return tuple(str(note) for note in self.messages if note.severity == "warning")

    @property
    def notes(self) -> tuple[str, ...]:
        """Messages that only inform."""
        return tuple(str(note) for note in self.messages if note.severity == "note")

    @property
    def criterion(self) -> str:
        """Identifier of the audit comparison that the slack bounds on the rows of the fit."""
        return criterion_of(self.repairer, self.fit.after.reading)

    @property
    def judged(self) -> Proof:
        """What the checks are about."""
        return self.holdout or self.fit

    @property
    def checks(self) -> tuple[CheckResult, ...]:
        """The checks, judged on the held-out rows."""
        return self.judged.after.checks


def criterion_of(repairer: Repairer, reading: Reading) -> str:
    """Return what the slack bounds: within strata, where there are strata."""
    if not reading.columns.strata:
        return repairer.bounds_of(reading)
    return Comparison.parse(repairer.bounds_of(reading)).to("within_strata").id


def split_rows(
    table: Table, rng: np.random.Generator, *, validation: float, holdout: float, alike: Ints | None = None
) -> Split:
    """Split at random inside each (cell, label), or each part of rows that are ``alike``, (n,), by shares.

    A UsageError where the shares leave no rows to fit on.
    """
    if not (0 <= validation < 1 and 0 < holdout < 1 and validation + holdout < 1):
        raise UsageError(
            f"`validation={validation:g}` and `holdout={holdout:g}` must be shares that leave rows to fit on; "
            "0.2 and 0.3 are usual"
        )
    stratum = table.rows.cell if alike is None else alike
    if alike is None and table.reading.binary and table.rows.label is not None:
        stratum = stratum * 2 + table.rows.label
    order = rng.permutation(len(table))
    order = order[np.argsort(stratum[order], kind="stable")]
    sizes = np.unique(stratum, return_counts=True)[1]
    first = np.repeat(np.cumsum(sizes) - sizes, sizes)
    rank, size = np.arange(len(table)) - first, np.repeat(sizes, sizes)
    held = np.round(size * holdout)
    chosen = held + np.round(size * validation)
    return Split(
        np.sort(order[rank >= chosen]),
        np.sort(order[(rank >= held) & (rank < chosen)]),
        np.sort(order[rank < held]),
    )


def check_split(table: Table, split: Split) -> None:
    """Raise a DataError where no rows are held out, or a group has none to fit on: before anything is fitted."""
    if not split.holdout.size:
        raise DataError(f"{len(table)} rows are too few to hold some out for the proof; raise `holdout`")
    groups = table.groups()
    has, fitted = (
        np.bincount(codes, minlength=len(groups.levels)) for codes in (groups.codes, groups.codes[split.fit])
    )
    without = np.flatnonzero((has > 0) & (fitted == 0))
    if without.size:
        k = int(without[0])
        rows = "the only row" if has[k] == 1 else f"none of the {has[k]:,} rows"
        left = "is not left" if has[k] == 1 else "is left"
        raise DataError(
            f"{rows} of group {groups.names[k]!r} of {attribute_name(groups.columns)!r} {left} to fit on; lower "
            "`holdout` or `validation`, or fold the group into another"
        )


def _check_choice(table: Table, split: Split, parameter: str, validation: float) -> None:
    """Raise a DataError where values of a parameter have nothing to be chosen by."""
    if table.rows.label is None:
        raise DataError(
            f"selecting among values of `{parameter}` needs labels; name the column with `label`, or give one value"
        )
    if not split.validation.size:
        raise DataError(
            f"`validation={validation:g}` of {len(table):,} rows leaves none in any group to choose among values of "
            f"`{parameter}` by; raise `validation`, or give one value"
        )


def repair_table(
    table: Table,
    repairer: Repairer,
    *,
    choices: Mapping[str, tuple[Any, ...]] | None = None,
    settings: Settings | None = None,
    seed: int = 0,
    validation: float = 0.2,
    holdout: float = 0.3,
    unlabelled: Table | None = None,
    features: tuple[str, ...] | None = None,
    protected_as_feature: bool = False,
    pairs: tuple[tuple[str, str], ...] = (),
    noise: Noise | None = None,
    seen_by_model: tuple[str, ...] = (),
    guarantee: float | None = None,
) -> Outcome:
    """Split, select, fit and prove.

    Parameters
    ----------
    table
        Rows with scores and, for a proof of accuracy, labels.
    choices
        Parameter name -> values, of which the validation part chooses the combination with the highest expected
        accuracy; the chosen one is then fitted to the validation part as well. Without any, no rows are set aside.
    validation, holdout
        Shares of the rows.
    unlabelled
        More rows without labels, from which the fit learns rates. They prove nothing.
    features, protected_as_feature, pairs, noise, seen_by_model
        As in :class:`~fairfix.methods.base.RepairProblem`.
    guarantee
        With which confidence the slack is to hold for people who are not among the rows, see
        :mod:`fairfix.tasks.guarantee`; None where nothing is promised of them.

    Raises
    ------
    DataError, UsageError
        The data or the shares do not allow the repair.
    """
    settings = replace(settings or Settings(), intersect=len(table.reading.columns.protected) > 1)
    table = replace(table, reading=table.reading.with_threshold(learned=True))
    split_rng, fit_rng = np.random.default_rng(seed).spawn(2)
    promise = None
    if guarantee is not None:
        criterion = criterion_of(repairer, table.reading)
        promise = promise_of(repairer, guarantee, table, criterion, features)
    alike = None if promise is None else promise.strata
    split = split_rows(
        table, split_rng, validation=validation if choices else 0.0, holdout=holdout, alike=alike
    )
    check_split(table, split)
    if choices:
        _check_choice(table, split, next(iter(choices)), validation)
    fitted = table.take(np.sort(np.concatenate([split.fit, split.validation])))
    learned = (None, unlabelled, features, protected_as_feature, pairs, noise, seen_by_model)
    with recorded() as caught:
        problem = RepairProblem(table.take(split.fit), *learned, many_fits=bool(choices))
        best, selection = _select(repairer, choices or {}, problem, table.take(split.validation), fit_rng)
        if selection:
            problem = RepairProblem(fitted, *learned)
        made = best
        if promise is None:
            predictor = best.fit(problem, rng=fit_rng)
        else:
            promise = replace(promise, repairer=best)
            fit = partial(_fit_again, problem, fit_rng.spawn(1)[0])
            made, predictor = promise.fitted(fit, fitted, split.holdout)
    kept = table.take(split.holdout)
    notes = [
        *warned(caught),
        *predictor.trace.notes,
        *_ties(table, predictor),
    ]
    plain = replace(settings, checks=())
    held, gaps = _answered(kept, predictor)
    gaps += unproven(table.reading.columns.protected, levels_of(table), levels_of(kept))
    promised = None if promise is None else promise.judged(made, predictor, fitted, held)
    notes += cost_of_rounding(best, predictor, held, plain)
    notes += best.measured(fitted, *results_on(held, predictor)[:2])
    notes += cost_of_blindness(best, predictor, held, plain)
    claim = None
    if noise is not None and best.demands:
        claim = Told(best.noise_in_force(noise), best.demands, best.slack)
    more: Any = {"also": (criterion_of(best, table.reading),), "comparable": best.comparables, "claim": claim}
    proof = without_passes(prove(held, predictor, settings, **more), gaps)
    of_fit = prove(fitted, predictor, plain, **more, of_fit=True)

    def again(kept: Bools) -> RepairedPredictor:
        problem = RepairProblem(fitted.take(np.flatnonzero(kept)), *learned)
        return made.fit(problem, rng=np.random.default_rng(seed))

    free = noise is None and unlabelled is None and not pairs and fitted.rows.label is not None
    first = doubts_of(best, predictor, fitted, (of_fit, proof), again if free else None, held)
    area = area_of(fitted, settings.confidence) if predictor.needs_score else None
    sizes = {name: part.size for name, part in vars(split).items()}
    lacking = [gap.caution for gap in gaps]
    notes = [*of_direction(area, table.reading), *lacking, *first, *proof.claims, *notes]
    if promised is not None:
        notes = [*promised.messages, *notes]
    rule = rules_of(held, predictor)
    reading = table.reading
    return Outcome(
        best, predictor, split, sizes, selection, of_fit, proof, messages(notes), reading, rule, promised
    )


def _fit_again(problem: RepairProblem, rng: np.random.Generator, method: Repairer) -> RepairedPredictor:
    """Return the fit of a method, with the same chance at each call."""
    return method.fit(problem, rng=copy.deepcopy(rng))


HELD_ROWS = 1 << 20
"""Held-out rows of a stream that are kept in memory for the proof; further ones are left aside."""

SHOWN_ROWS = 1 << 18
"""Rows of a stream's fit on which the proof shows what the fit reached."""


def repair_stream(
    source: Source,
    reading: Reading,
    repairer: Repairer,
    *,
    settings: Settings | None = None,
    seed: int = 0,
    holdout: float = 0.3,
) -> tuple[Outcome, Scan]:
    """Learn from the rows as they come, and prove on a sample that was not learned from.

    Memory does not grow with the data: of the held-out rows at most ``HELD_ROWS`` are kept. Which rows are held out
    hangs on the seed and their numbers. Returned with the outcome are the counts of the whole source.
    """
    if not 0 < holdout < 1:
        raise UsageError(f"`holdout={holdout:g}` must be a share that leaves rows to fit on; 0.3 is usual")
    if not repairer.solver_in_force.streams:
        raise UsageError(f"{repairer.name} does not learn from a stream with these parameters")
    if reading.columns.strata:
        raise UsageError(
            "learning from a stream does not go with `strata`; take a solver that reads all rows"
        )
    settings = replace(settings or Settings(), intersect=len(reading.columns.protected) > 1)
    counted = scan(source, reading, exact=False, losses=False)
    reading, used = counted.reading, counted.counts.used
    kept = min(holdout, HELD_ROWS / used), min(1 - holdout, SHOWN_ROWS / used)
    held, shown = _sampled(source, reading, seed, [(0.0, kept[0]), (holdout, holdout + kept[1])])
    passes: list[int] = []

    def rows() -> Iterator[Table]:
        passes.append(0)
        for table in _streamed(source, reading, seed, holdout):
            passes[-1] += len(table)
            yield table

    with recorded() as caught:
        predictor = repairer.learn(rows, rng=np.random.default_rng(seed).spawn(2)[1])
    there = levels_of(held)
    held, gaps = _answered(held, predictor)
    gaps += unproven(
        reading.columns.protected,
        lambda columns: groups_of_cells(counted.counts.keys, counted.counts.cells, columns)[0],
        there,
    )
    of_fit = prove(shown, predictor, replace(settings, checks=()))
    proof = without_passes(prove(held, predictor, settings), gaps)
    lacking = [gap.caution for gap in gaps]
    first = doubts_of(repairer, predictor, shown, (of_fit, proof), None, held)
    wrong = of_direction(area_of(shown, settings.confidence), reading)
    notes = messages((*wrong, *lacking, *first, *warned(caught), *predictor.trace.notes))
    sizes = {"fit": max(passes), "validation": 0, "holdout": len(held)}
    rule = rules_of(held, predictor)
    return Outcome(repairer, predictor, None, sizes, (), of_fit, proof, notes, reading, rule), counted


def _answered(held: Table, predictor: RepairedPredictor) -> tuple[Table, list[Gap]]:
    """Return the held-out rows that the predictor has an answer for, and the groups of the others."""
    answered = ~np.isnan(predictor.predict(held))
    if answered.all():
        return held, []
    if not answered.any():
        raise DataError(
            "every held-out row is of a group that the rows of the fit lack; add rows, or raise `holdout`"
        )
    lost = held.take(np.flatnonzero(~answered))
    why = f"{len(lost):,} held-out rows are of groups that the rows of the fit lack: they prove nothing"
    gaps = without_rule(held.reading.columns.protected, levels_of(lost), why)
    return held.take(np.flatnonzero(answered)), gaps


def _sampled(
    source: Source, reading: Reading, salt: int, spans: Sequence[tuple[float, float]]
) -> list[Table]:
    """Return the rows whose number falls into each span of [0, 1)."""
    kept: list[list[Any]] = [[] for _ in spans]
    for before, _, batch in stream_batches(source, reading):
        place = _places(before, batch.num_rows, salt)
        for rows, (low, high) in zip(kept, spans, strict=True):
            part = batch.filter(arrow_array((place >= low) & (place < high)))
            if part.num_rows:
                rows.append(part)
    if not all(kept):
        raise DataError(f"{source.name} has too few rows to hold some out for the proof; raise `holdout`")
    return [assemble(rows, reading, source.name) for rows in kept]


def _streamed(source: Source, reading: Reading, salt: int, holdout: float) -> Iterator[Table]:
    """Yield the rows that are not held out, a batch at a time."""
    encoders: dict[str, Encoder] = {}
    for before, part, batch in stream_batches(source, reading):
        encoder = encoders.setdefault(part.where, Encoder(reading, part.where, part.first_row))
        rows = encoder.encode(batch.filter(arrow_array(_places(before, batch.num_rows, salt) >= holdout)))
        if len(rows):
            yield Table(reading, rows, pa.table({}))


def _places(before: int, many: int, salt: int) -> Floats:
    """Return a number in [0, 1) for each row, by its number alone."""
    first = np.uint64((before + 1 + salt * 0xD1342543DE82EF95) % 2**64)
    z = mixed((np.arange(many, dtype=np.uint64) + first) * GOLDEN)
    return (z >> np.uint64(11)).astype(np.float64) * 2.0**-53


def _select(
    repairer: Repairer,
    choices: Mapping[str, tuple[Any, ...]],
    problem: RepairProblem,
    validation: Table,
    rng: np.random.Generator,
) -> tuple[Repairer, tuple[Candidate, ...]]:
    """Return the variant with the highest expected accuracy on the validation part; the first of equals."""
    variants = repairer.variants(choices)
    if len(variants) == 1:
        return variants[0], ()
    cut = validation.reading.cut
    scores = [v.quality(validation, v.fit(problem, rng=rng).predict(validation), cut) for v in variants]
    best = int(np.argmax(scores))
    shown = tuple(
        Candidate({name: getattr(v, name) for name in choices}, score, i == best)
        for i, (v, score) in enumerate(zip(variants, scores, strict=True))
    )
    return variants[best], shown


def cost_of_rounding(
    repairer: Repairer, predictor: RepairedPredictor, held: Table, settings: Settings
) -> Iterator[Note]:
    """Yield what a deterministic rule costs against the randomised one that it was rounded from."""
    before = predictor.trace.randomized
    if before is None:
        return
    name, asked = criterion_of(repairer, held.reading), asked_of(repairer, held.reading).values()
    (gap, right), (rounded_gap, rounded_right) = (
        _gap_and_accuracy(rule, held, name, settings, asked) for rule in (before, predictor)
    )
    accuracy = "" if math.isnan(right) else f", accuracy {rounded_right:.4f} instead of {right:.4f}"
    yield Note(
        f"without randomisation, on held-out rows: {name} {rounded_gap:.4f} instead of {gap:.4f}{accuracy}",
        "rounded",
    )


def cost_of_blindness(
    repairer: Repairer, predictor: RepairedPredictor, held: Table, settings: Settings
) -> Iterator[Note]:
    """Yield what a rule that does not look at the group costs against the same repair with one that does."""
    aware, base = predictor.trace.aware, predictor.trace.base
    if aware is None or base is None or held.rows.label is None:
        return
    answered = held.take(np.flatnonzero(~np.isnan(aware.predict(held))))
    rules: list[RepairedPredictor] = [predictor, aware, base]
    label, weight = answered.rows.label, answered.weight
    assert label is not None
    mean = float(np.average(label, weights=weight))
    shown = [answered.with_score(rule.predict(answered)) for rule in rules]
    losses = [loss_of("log_loss", one) for one in (*shown, answered.with_score(np.full(len(answered), mean)))]
    if not (np.isfinite(losses).all() and len(answered)):
        return
    own, seeing, free, constant = (float(np.average(loss, weights=weight)) for loss in losses)
    more = mean_change(losses[0] - losses[1], answered, settings, (-math.inf, math.inf))
    name, asked = criterion_of(repairer, answered.reading), asked_of(repairer, answered.reading).values()
    # whose rates are those of the probability
    drawn = [rule.trace.randomized or rule for rule in (predictor, aware)]
    gap, aware_gap = (_gap_and_accuracy(rule, answered, name, settings, asked)[0] for rule in drawn)
    attribute = attribute_name(answered.reading.columns.protected)
    yield from of_blindness(Blindness(attribute, name, own, seeing, more, free, constant, gap, aware_gap))


def _gap_and_accuracy(
    rule: RepairedPredictor, held: Table, name: str, settings: Settings, asked: Collection[Asked]
) -> tuple[float, float]:
    """Return the worst value of a comparison on held-out rows, and the expected accuracy, NaN without labels.

    It is that of the attributes that are ``asked`` for by name, or of all.
    """
    repaired = results_on(held, rule)[1]
    report = audit(repaired, repaired.reading, replace(settings, checks=(), only=(name,)))
    worst = min if Comparison.parse(name).worse == "smaller" else max
    blocks = [b for b in report.blocks if any(one.attribute in ("", b.attribute) for one in asked)]
    gap = worst(b.comparisons[name].value.value for b in blocks if name in b.comparisons)
    chance = repaired.chance
    assert chance is not None
    return gap, expected_accuracy(held, chance) if held.reading.binary else math.nan


def asked_of(repairer: Repairer, reading: Reading) -> dict[tuple[str, ...], Asked]:
    """Return what is bounded between the groups of each attribute, by its columns; with its name where not alone."""
    every = repairer.alike(reading.columns.protected)
    bound = Asked(criterion_of(repairer, reading), repairer.slack_of_all, repairer.least_ratio)
    named = {columns: replace(bound, attribute=attribute_name(columns)) for columns in every}
    return named if len(every) > 1 else dict.fromkeys(every, bound)


def row_of(proof: Proof, asked: Asked, columns: tuple[str, ...]) -> ProofRow | None:
    """Return the row of a proof about what is bounded between the groups of some columns; None where there is none."""
    wanted = asked.comparison, attribute_name(columns)
    return next((row for row in proof.table if (row.id, row.attribute) == wanted), None)


def doubts_of(
    repairer: Repairer,
    predictor: RepairedPredictor,
    fitted: Table,
    shown: tuple[Proof, Proof],
    learn: Callable[[Bools], RepairedPredictor] | None,
    held: Table,
) -> Iterator[Caution]:
    """Yield what has to be said first of a repair, by its proofs on the rows of the fit and on held-out rows."""
    asked = asked_of(repairer, held.reading)
    if repairer.demands:  # of true groups, as far as anything is known of them
        asked = {
            columns: replace(one, comparison=Comparison.parse(one.comparison).to(TRUE_GROUPS).id)
            for columns, one in asked.items()
        }
    metric = Comparison.parse(criterion_of(repairer, held.reading)).metric
    proof_rows = {columns: [row_of(proof, one, columns) for proof in shown] for columns, one in asked.items()}
    drawn = predictor.trace.randomized
    for columns, one in asked.items():
        fit, holdout = proof_rows[columns]
        if holdout is None or fit is None or drawn is None:
            continue
        groups, attribute = fitted.groups(columns), attribute_name(columns)
        step, plain = one_row(fitted, groups, metric), replace(shown[1].after.settings, checks=())
        if one.is_ratio:  # of rates up to the greatest, which a row moves as it does the least
            rates = [group.metrics[metric].value for group in shown[0].after.block(attribute).groups]
            step *= 2 / max(rates) if max(rates) > 0 else math.inf
        left, _ = _gap_and_accuracy(drawn, held, criterion_of(repairer, held.reading), plain, [one])
        yield from of_rounding(one, fit.after, holdout.before, holdout.after, step, left)
    parts = [results_on(rows, predictor)[:2] for rows in (fitted, held)]
    own = [note for note in predictor.trace.notes if isinstance(note, Caution) and note.code == "selection"]
    same = list(of_constant(*parts, decides=False)) if predictor.gives == "value" else []
    if not (same or own) and parts[1][1].chance is not None:
        same = list(of_constant(*parts, decides=True))
    yield from same or own  # who knows why says it
    for columns, one in asked.items():
        if (holdout := proof_rows[columns][1]) is not None:
            yield from of_gaps(one, holdout.before, holdout.after)
    yield from of_levelling(*parts[1], shown[1].after.settings.confidence)
    by_row = fitted.rows.entries is None
    expected = predictor.gives == "decision" or not (by_row and shown[0].randomized)  # not one draw of values
    for columns, one in asked.items():
        fit = proof_rows[columns][0]
        if fit is not None and expected and drawn is None and not repairer.demands:
            yield from of_slack(one, fit.after.value)
    if not same and not own:
        taken = next((r for r in shown[1].table if r.name == "selection_rate"), None)
        if taken is not None:
            assert taken.change is not None
            yield from of_selection(taken.before, taken.after, taken.change)
    if learn is not None:
        unit = "the decisions" if _decided(predictor, held) else "the square loss"
        yield from of_small_groups(metric, fitted, held, predictor, learn, _cost, unit)


def _decided(predictor: RepairedPredictor, held: Table) -> bool:
    """Whether a repair is judged by right decisions; else by its values."""
    return held.reading.binary and (predictor.gives == "decision" or predictor.is_probability)


def _cost(table: Table, predictor: RepairedPredictor) -> float:
    """Return what a repair costs rows: accuracy, or the rise of the square loss as a share of it."""
    base, repaired, _ = results_on(table, predictor)
    if _decided(predictor, table):
        then, now = base.chance, repaired.chance
        assert then is not None
        assert now is not None
        return expected_accuracy(base, then) - expected_accuracy(base, now)
    if table.rows.label is None or base.reading.score_scale == "raw":
        return math.nan
    losses = (loss_of("square_loss", one) for one in (base, repaired))
    loss, left = (float(np.average(one, weights=table.rows.weight)) for one in losses)
    return (left - loss) / loss if loss > 0 else math.nan


def recorded() -> warnings.catch_warnings[list[warnings.WarningMessage]]:
    """Return a context that yields the list of all warnings inside it, of ours also those that come again."""
    return warnings.catch_warnings(record=True, action="always", category=FairfixWarning)


def warned(caught: Sequence[warnings.WarningMessage]) -> list[Note]:
    """Return our own among the warnings that were caught."""
    own = (one.message for one in caught)
    return [Caution(one, one.code) for one in own if isinstance(one, FairfixWarning)]


def _ties(table: Table, predictor: RepairedPredictor) -> Iterator[Caution]:
    """Yield what is to be said where nothing, or an id that repeats, tells rows apart whose result is drawn."""
    name = table.reading.columns.id
    if table.draw is None or not predictor.randomized:
        return
    drawn = predictor.drawn(table) if predictor.gives == "value" else is_random(predictor.predict(table))
    many = int(drawn.sum())
    if name is None and (alike := int(np.count_nonzero(drawn & table.has_equals))):
        yield Caution(
            f"no column tells people apart: {alike:,} of the {many:,} rows whose result is drawn equal another in "
            "every column, so which of them gets which result hangs on their order, and results as drawn are of each "
            "part as a file of its own; name a column of identities with `id`",
            "equal_rows",
        )
    if name is not None and name in table.features.column_names:
        again = (
            texts_of(table.features.column(name).combine_chunks())
            .to_pandas()
            .duplicated(keep=False)
            .to_numpy()
        )
        yield from of_shared_ids(name, int(np.count_nonzero(drawn & again)), many)
