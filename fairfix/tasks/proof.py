"""Proof: split the rows, select, fit, and show on rows the fit never saw what the repair did.

The rows are split at random inside each (group, label), so that small groups are in every part. The *fit* part
makes the predictor, the *validation* part chooses among parameter values when several are given, the *holdout*
part judges. Before and after are audited by the same code as any file: a randomised rule by its expected
decisions, its base by its decisions at the threshold.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from fairfix.auditing.audit import More, OfTrueGroups, audit
from fairfix.auditing.comparisons import TRUE_GROUPS, Comparison
from fairfix.auditing.paired import Changes, Matched
from fairfix.auditing.results import AuditReport, Block, CheckResult, Settings, Value
from fairfix.data.counts import Bools, Floats, Ints
from fairfix.data.draws import is_random
from fairfix.data.encoder import Encoder, arrow_array
from fairfix.data.files import Source
from fairfix.data.names import attribute_name
from fairfix.data.reading import Reading, to_probability
from fairfix.data.scan import Scan, scan, stream_batches
from fairfix.data.table import PLAIN_SCORE, Table, assemble
from fairfix.errors import DataError, FairfixWarning, UsageError
from fairfix.individual.by_model import of_predictor
from fairfix.individual.flips import Comparable
from fairfix.methods.base import Repairer, RepairProblem, expected_accuracy
from fairfix.models.predictors import RepairedPredictor
from fairfix.models.trace import Caution, Note, messages
from fairfix.noisy.description import Noise
from fairfix.noisy.proof import Told, comparisons_of, said_of, true_groups_of, values_of
from fairfix.optim.parity import ks_to_overall
from fairfix.stats.estimates import Means
from fairfix.stats.ks import ks_noise
from fairfix.tasks.doubts import Asked, of_gaps, of_rounding, of_selection, of_slack, of_small_groups, one_row

FLIPPED = (
    "decision_flips.under_flips",
    "score_change.under_flips",
    "decision_flips.under_comparable",
    "decision_flips.under_everybody",
)
"""Comparisons of rows with their changed copies, which are shown where the predictor makes its own scores."""

COMPARED = (
    "selection_rate.difference.between_groups",
    "selection_rate.ratio.between_groups",
    "selection_rate.difference.within_strata",
    "true_positive_rate.difference.between_groups",
    "true_positive_rate.difference.within_strata",
    "equalized_odds.difference.between_groups",
    "equalized_odds.difference.within_strata",
    *(
        f"{name}.difference.true_groups"
        for name in ("selection_rate", "true_positive_rate", "equalized_odds")
    ),
    "accuracy.min",
    *FLIPPED,
)
"""Comparisons that the before/after table shows for every attribute."""

COMPARED_VALUES = (
    "ks.to_overall",
    "ks.between_groups",
    "log_loss.max",
    "square_loss.max",
    "selection_rate.difference.between_groups",
    "accuracy.min",
    *FLIPPED,
)
"""The same, where values are repaired and not decisions."""

LOSSES = ("log_loss", "square_loss", "absolute_loss")
"""Losses over everybody that the table shows."""


@dataclass(frozen=True)
class Split:
    """Row numbers of the parts, sorted."""

    fit: Ints
    validation: Ints
    holdout: Ints


@dataclass(frozen=True)
class ProofRow:
    """A number before and after the repair, and its change with the interval of the difference on the same rows.

    Where decisions are drawn, ``after`` is expected over the draws, and ``delivered`` the number with the draws of the
    shipped rule on these very rows; where values are, ``after`` is as delivered, and ``expected`` the number expected
    over the draws. None where nothing is drawn, or that is not known.

    Attributes
    ----------
    id
        Metric or comparison.
    before, after, change
        ``change`` has a reason instead of limits where there is no such interval; None where a value is undefined.
    attribute
        Of which groups; empty for everybody.
    """

    id: str
    before: Value
    after: Value
    change: Value | None = None
    attribute: str = ""
    delivered: float | None = None
    expected: float | None = None

    @property
    def name(self) -> str:
        """How the row is called: the comparison, and of what."""
        return f"{self.id} [{self.attribute}]" if self.attribute else self.id


@dataclass(frozen=True)
class Proof:
    """What a repair did to some rows.

    Attributes
    ----------
    rows
        Number of rows.
    randomized
        Weighted share of the rows whose decision or value is left to chance.
    table
        Numbers before and after.
    after
        Audit of the repaired rows.
    noise
        Attribute -> what chance alone makes of ``ks.to_overall`` on so many rows (mean, 95 % quantile); empty for
        decisions.
    other
        The same numbers if the probabilities were read in the other way, where there are two; empty for none.
    drawn
        Whether ``table`` is about drawn decisions.
    said
        What these rows say of the true groups, in words; empty where nothing is known of them, and for rows of the fit.
    """

    rows: int
    randomized: float
    table: tuple[ProofRow, ...]
    after: AuditReport
    noise: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    other: tuple[ProofRow, ...] = ()
    drawn: bool = True
    said: tuple[str, ...] = ()


@dataclass(frozen=True)
class Candidate:
    """A tried setting and its score on the validation part."""

    parameters: Mapping[str, Any]
    score: float
    chosen: bool


@dataclass(frozen=True)
class RowCounts:
    """Rows that came in, rows that are used, and why the others are not."""

    read: int
    used: int
    excluded: Mapping[str, int]


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
    holdout: Proof
    messages: tuple[Note, ...]
    reading: Reading

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
        return _criterion(self.repairer, self.holdout.after.reading)

    @property
    def checks(self) -> tuple[CheckResult, ...]:
        """The checks, judged on the held-out rows."""
        return self.holdout.after.checks


def with_threshold(reading: Reading) -> Reading:
    """Return the reading with its default threshold; a probability that is yet to be learned has one as well."""
    if reading.task == "classification" and not reading.columns.score and not reading.thresholds:
        return replace(reading, thresholds=(0.5,))
    return reading.with_threshold()


def _criterion(repairer: Repairer, reading: Reading) -> str:
    """Return what the slack bounds: within strata, where there are strata."""
    if not reading.columns.strata:
        return repairer.bounds_of(reading)
    return Comparison.parse(repairer.bounds).to("within_strata").id


def split_rows(table: Table, rng: np.random.Generator, *, validation: float, holdout: float) -> Split:
    """Split at random inside each (cell, label).

    Raises
    ------
    UsageError
        The shares leave nothing to fit on.
    """
    if not (0 <= validation < 1 and 0 < holdout < 1 and validation + holdout < 1):
        raise UsageError(
            f"--validation {validation:g} and --holdout {holdout:g} must be shares that leave rows to fit on; "
            "0.2 and 0.3 are usual"
        )
    stratum = table.rows.cell
    if table.reading.binary and table.rows.label is not None:
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
) -> Outcome:
    """Split, select, fit and prove.

    Parameters
    ----------
    table
        Rows with scores and, for a proof of accuracy, labels.
    repairer
        The method with its parameters.
    choices
        Parameter name -> values, of which the validation part chooses the combination with the highest expected
        accuracy; the chosen one is then fitted to the validation part as well. Without any, no rows are set aside.
    settings
        Intervals and checks of the proof.
    seed
        Of the split and of the fit.
    validation, holdout
        Shares of the rows.
    unlabelled
        More rows without labels, from which the fit learns rates. They prove nothing.
    features, protected_as_feature, pairs, noise, seen_by_model
        What the method learns from and is told; see :class:`~fairfix.methods.base.RepairProblem`.

    Raises
    ------
    DataError, UsageError
        The data or the shares do not allow the repair.
    """
    settings = replace(settings or Settings(), intersect=len(table.reading.columns.protected) > 1)
    table = replace(table, reading=with_threshold(table.reading))
    split_rng, fit_rng = np.random.default_rng(seed).spawn(2)
    split = split_rows(table, split_rng, validation=validation if choices else 0.0, holdout=holdout)
    if not split.holdout.size:
        raise DataError(f"{len(table)} rows are too few to hold some out for the proof; raise --holdout")
    notes: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", FairfixWarning)
        learned = (None, unlabelled, features, protected_as_feature, pairs, noise, seen_by_model)
        problem = RepairProblem(table.take(split.fit), *learned, many_fits=bool(choices))
        best, selection = _select(repairer, choices or {}, problem, table.take(split.validation), fit_rng)
        fitted = table.take(np.sort(np.concatenate([split.fit, split.validation])))
        if selection:
            problem = RepairProblem(fitted, *learned)
        predictor = best.fit(problem, rng=fit_rng)
    notes += warned(caught)
    notes += [*predictor.trace.notes, *_unproven(table, split)]
    plain = replace(settings, checks=())
    notes += _undecidable(table, predictor)
    held, aside = _answered(table.take(split.holdout), predictor)
    notes += aside
    notes += _cost_of_rounding(best, predictor, held, plain)
    also, told = (_criterion(best, table.reading),), _behind(best, noise)
    proof = prove(held, predictor, settings, also, comparable=best.comparables, told=told)
    of_fit = prove(fitted, predictor, plain, also, of_fit=True, comparable=best.comparables, told=told)

    def again(kept: Bools) -> RepairedPredictor:
        some = RepairProblem(fitted.take(np.flatnonzero(kept)), *learned)
        return best.fit(some, rng=np.random.default_rng(seed))

    free = noise is None and unlabelled is None and not pairs and fitted.rows.label is not None
    first = _doubts(best, predictor, fitted, (of_fit, proof), again if free else None, held)
    return Outcome(
        best,
        predictor,
        split,
        {"fit": split.fit.size, "validation": split.validation.size, "holdout": split.holdout.size},
        selection,
        of_fit,
        proof,
        messages((*first, *proof.said, *notes)),
        table.reading,
    )


def _behind(repairer: Repairer, noise: Noise | None) -> Told | None:
    """Return what a repair says of true groups; None where it knows of none."""
    if noise is None or not repairer.demands:
        return None
    return Told(repairer.noise_in_force(noise), repairer.demands, repairer.slack)


NO_CHANCE = Value(math.nan, math.nan, math.nan, "a raw score is no probability")

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
    hangs on the seed and their numbers.

    Returns
    -------
    The outcome, and the counts of the whole source.

    Raises
    ------
    DataError, UsageError
        The data, the share or the method do not allow the repair.
    """
    if not 0 < holdout < 1:
        raise UsageError(f"--holdout {holdout:g} must be a share that leaves rows to fit on; 0.3 is usual")
    if not repairer.streams:
        raise UsageError(f"{repairer.name} does not learn from a stream with these parameters")
    if reading.columns.strata:
        raise UsageError(
            "learning from a stream does not go with --strata; take a solver that reads all rows"
        )
    settings = replace(settings or Settings(), intersect=len(reading.columns.protected) > 1)
    counted = scan(source, reading, exact=False, losses=False)
    reading, used = counted.reading, counted.counts.used
    salt, fit_rng = seed, np.random.default_rng(seed).spawn(2)[1]
    kept = min(holdout, HELD_ROWS / used), min(1 - holdout, SHOWN_ROWS / used)
    held, shown = _sampled(source, reading, salt, [(0.0, kept[0]), (holdout, holdout + kept[1])])
    passes: list[int] = []

    def rows() -> Iterator[Table]:
        passes.append(0)
        for table in _streamed(source, reading, salt, holdout):
            passes[-1] += len(table)
            yield table

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", FairfixWarning)
        predictor = repairer.learn(rows, rng=fit_rng)
    held, aside = _answered(held, predictor)
    notes = [*warned(caught), *aside]
    of_fit = prove(shown, predictor, replace(settings, checks=()))
    proof = prove(held, predictor, settings)
    first = _doubts(repairer, predictor, shown, (of_fit, proof), None, held)
    outcome = Outcome(
        repairer,
        predictor,
        None,
        {"fit": max(passes), "validation": 0, "holdout": len(held)},
        (),
        of_fit,
        proof,
        messages((*first, *notes, *predictor.trace.notes)),
        reading,
    )
    return outcome, counted


def _answered(held: Table, predictor: RepairedPredictor) -> tuple[Table, list[Caution]]:
    """Return the held-out rows that the predictor has an answer for, and what is to be said of the others.

    Raises
    ------
    DataError
        It has an answer for none.
    """
    known = ~np.isnan(predictor.predict(held))
    if known.all():
        return held, []
    if not known.any():
        raise DataError(
            "every held-out row is of a group that the rows of the fit lack; add rows, or raise --holdout"
        )
    left = f"{int((~known).sum()):,} held-out rows are of groups that the rows of the fit lack: they prove nothing"
    return held.take(np.flatnonzero(known)), [Caution(left)]


def _sampled(
    source: Source, reading: Reading, salt: int, spans: Sequence[tuple[float, float]]
) -> list[Table]:
    """Return the rows whose number falls into each span of [0, 1)."""
    kept: list[list[Any]] = [[] for _ in spans]
    for before, _, batch in stream_batches(source, reading):
        place = _places(before, batch.num_rows, salt)
        for rows, (low, high) in zip(kept, spans, strict=True):
            rows.append(batch.filter(arrow_array((place >= low) & (place < high))))
    tables = [
        assemble([b for b in rows if b.num_rows], reading, source.name)
        for rows in kept
        if any(b.num_rows for b in rows)
    ]
    if len(tables) < len(spans):
        raise DataError(f"{source.name} has too few rows to hold some out for the proof; raise --holdout")
    return tables


def _streamed(source: Source, reading: Reading, salt: int, holdout: float) -> Iterator[Table]:
    """Yield the rows that are not held out, a batch at a time."""
    encoders: dict[str, Encoder] = {}
    for before, part, batch in stream_batches(source, reading):
        encoder = encoders.setdefault(part.where, Encoder(reading, part.where, part.first_row))
        rows = encoder.encode(batch.filter(arrow_array(_places(before, batch.num_rows, salt) >= holdout)))
        if len(rows):
            yield Table(reading, rows, pa.table({}))


def _places(before: int, many: int, salt: int) -> Floats:
    """Return a number in [0, 1) for each row, by its number alone (SplitMix64 of Steele, Lea and Flood, 2014)."""
    with np.errstate(over="ignore"):
        z = np.arange(before, before + many, dtype=np.uint64) + np.uint64(1)
        z = (z + np.uint64(salt) * np.uint64(0xD1342543DE82EF95)) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z ^= z >> np.uint64(31)
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


def _cost_of_rounding(
    repairer: Repairer, predictor: RepairedPredictor, held: Table, settings: Settings
) -> Iterator[str]:
    """Yield what a deterministic rule costs against the randomised one that it was rounded from."""
    before = predictor.trace.randomized
    if before is None:
        return
    name = _criterion(repairer, held.reading)
    found = []
    for rule in (before, predictor):
        repaired = results_on(held, rule)[1]
        report = audit(repaired, repaired.reading, settings)
        gap = max(b.comparisons[name].value.value for b in report.blocks if name in b.comparisons)
        chance = repaired.chance
        assert chance is not None
        right = expected_accuracy(held, chance) if held.reading.binary else math.nan
        found.append((gap, right))
    (gap, right), (rounded_gap, rounded_right) = found
    accuracy = "" if math.isnan(right) else f", accuracy {rounded_right:.4f} instead of {right:.4f}"
    yield f"without randomisation, on held-out rows: {name} {rounded_gap:.4f} instead of {gap:.4f}{accuracy}"


def _doubts(
    repairer: Repairer,
    predictor: RepairedPredictor,
    fitted: Table,
    shown: tuple[Proof, Proof],
    learn: Callable[[Bools], RepairedPredictor] | None,
    held: Table,
) -> Iterator[Caution]:
    """Yield what has to be said first of a repair, by its proofs on the rows of the fit and on held-out rows."""
    asked = Asked(_criterion(repairer, held.reading), repairer.slack_of_all)
    groups = fitted.groups()
    attribute = attribute_name(groups.columns)
    if repairer.demands:  # of true groups, as far as anything is known of them
        asked = replace(asked, comparison=Comparison.parse(asked.comparison).to(TRUE_GROUPS).id)
    rows = [
        next((row for row in proof.table if (row.id, row.attribute) == (asked.comparison, attribute)), None)
        for proof in shown
    ]
    fit, holdout = rows
    if holdout is not None:
        if fit is not None and predictor.trace.randomized is not None:
            step = one_row(fitted, groups, asked.metric)
            yield from of_rounding(asked, fit.after, holdout.before, holdout.after, step)
        yield from of_gaps(asked, holdout.before, holdout.after)
    told = (
        predictor.gives == "decision" or not shown[0].randomized
    )  # what is expected, not one draw of values
    if fit is not None and told and predictor.trace.randomized is None and not repairer.demands:
        yield from of_slack(asked, fit.after.value)
    if not any(isinstance(note, Caution) and note.code == "selection" for note in predictor.trace.notes):
        taken = next((r for r in shown[1].table if r.name == "selection_rate"), None)
        if taken is not None:
            assert taken.change is not None
            yield from of_selection(taken.before, taken.after, taken.change)
    if learn is not None:
        unit = "the decisions" if _decided(predictor, held) else "the square loss"
        yield from of_small_groups(asked.metric, fitted, held, predictor, learn, _cost, unit)


def _decided(predictor: RepairedPredictor, held: Table) -> bool:
    """Whether a repair is judged by right decisions; else by its values."""
    return held.reading.binary and (predictor.gives == "decision" or predictor.is_probability)


def _cost(table: Table, predictor: RepairedPredictor) -> float:
    """Return what a repair costs rows: accuracy, or the rise of the square loss as a share of it."""
    base, repaired, _ = results_on(table, predictor)
    weight = table.rows.weight
    if _decided(predictor, table):
        then, now = base.chance, repaired.chance
        assert then is not None
        assert now is not None
        return expected_accuracy(base, then) - expected_accuracy(base, now)
    if table.rows.label is None or base.reading.score_scale == "raw":
        return math.nan
    was, now_ = (float(np.average(_loss("square_loss", one), weights=weight)) for one in (base, repaired))
    return (now_ - was) / was if was > 0 else math.nan


def warned(caught: Sequence[warnings.WarningMessage]) -> list[str]:
    """Return our own among the warnings that were caught."""
    return [Caution(w.message) for w in caught if issubclass(w.category, FairfixWarning)]


def _undecidable(table: Table, predictor: RepairedPredictor) -> Iterator[str]:
    """Yield a note where rows whose result is drawn have nothing that tells them apart."""
    if table.draw is None or table.reading.columns.id is not None or not predictor.randomized:
        return
    drawn = predictor.drawn(table) if predictor.gives == "value" else is_random(predictor.predict(table))
    alike = int(np.count_nonzero(drawn & table.has_equals))
    if alike:
        yield (
            f"{alike:,} of the {int(drawn.sum()):,} rows whose result is drawn equal another in every column, so which "
            "of them gets which hangs on their order, and results as drawn are of each part as a file of its own; "
            "name a column of identities with --id"
        )


def _unproven(table: Table, split: Split) -> Iterator[str]:
    """Yield a note for every group without held-out rows."""
    for name in table.reading.columns.protected:
        groups = table.groups([name])
        seen = np.bincount(groups.codes[split.holdout], minlength=len(groups.levels))
        for group, rows in zip(groups.names, seen, strict=True):
            if not rows:
                yield Caution(f"group {group!r} of {name!r} has no held-out rows: nothing is proven for it")


def prove(
    table: Table,
    predictor: RepairedPredictor,
    settings: Settings,
    also: Sequence[str] = (),
    *,
    of_fit: bool = False,
    comparable: Comparable = (),
    told: Told | None = None,
) -> Proof:
    """Audit the base and the repaired results on the same rows.

    Parameters
    ----------
    table
        The rows.
    predictor
        The repair.
    settings
        Intervals and checks; the checks are about the repaired results.
    also
        More comparisons to show.
    of_fit
        Whether these are the rows of the fit, of which the fit may have kept values by models that have not seen them.
    comparable
        Values whose difference does not count, for what changed copies of the rows get.
    told
        What is known of the noise of the groups, for what can be said of the true ones.

    Raises
    ------
    DataError
        There is no base to compare with: the score has no threshold.
    """
    base, repaired, random = results_on(table, predictor, of_fit=of_fit)
    plain = predictor.trace.base
    was: More = of_predictor(table, plain, comparable, settings.confidence) if plain is not None else {}
    now: More = of_predictor(table, predictor, comparable, settings.confidence)
    each: OfTrueGroups = {}
    said: tuple[str, ...] = ()
    if told is not None:
        alpha = 1.0 - settings.confidence
        plainly = true_groups_of(base, told, alpha)
        was = _joined(was, comparisons_of(plainly, settings.checks))
        found = true_groups_of(repaired, told, alpha, predictor)
        now, each = _joined(now, comparisons_of(found, settings.checks)), values_of(found)
        said = () if of_fit else tuple(said_of(plainly, found, told))
    before = audit(base, base.reading, replace(settings, checks=()), was)
    after = audit(repaired, repaired.reading, settings, now, each)
    shown = COMPARED_VALUES if predictor.gives == "value" else COMPARED
    rows = [
        *_overall_rows(base, repaired, before, after, settings),
        *_comparison_rows(
            before, after, (*shown, *also), None if of_fit else _Pairs(base, repaired, settings)
        ),
    ]
    if random.any() or (of_fit and predictor.trace.redrawn):
        rows = list(_beside(rows, table, predictor, repaired, random, settings, of_fit=of_fit))
    valued = predictor.gives == "value" and not predictor.is_probability
    noise = dict(_noise(after, repaired)) if valued else {}
    share = float(np.average(random, weights=table.rows.weight))
    other = list(_other_reading(table, predictor, settings, also)) if predictor.is_probability else []
    if (
        other and predictor.gives == "value"
    ):  # what is about the probability stands with the draws, whose rates are its
        other += [row for row in rows if _of_score(row.id)]
        rows = [row for row in rows if not _of_score(row.id)]
    return Proof(
        len(table), share, tuple(rows), after, noise, tuple(other), predictor.gives == "decision", said
    )


SHIFTS = 16
"""Fewest even draws of a row that tell what is expected of values, ..."""

REDRAWN = 1 << 21
"""... about the most values that they may make, in half a second, ..."""

CHUNK = 1 << 16
"""... and values that are made at once."""

EXACT = 20_000
"""Even draws of one row tell its chances to half of the distance between two: so many to less than half of the fourth
decimal that is shown. Errors of ``m`` rows are like independent ones: of each, so many over ``sqrt(m)`` do the same."""


def _beside(
    rows: Sequence[ProofRow],
    table: Table,
    predictor: RepairedPredictor,
    repaired: Table,
    random: Bools,
    settings: Settings,
    *,
    of_fit: bool,
) -> Iterator[ProofRow]:
    """Yield the rows of a proof with what is delivered of drawn decisions, or expected of drawn values."""
    if predictor.gives == "value":
        expected = _expected(table, predictor, of_fit)
        for row in rows:
            yield replace(row, expected=expected.get(row.name))
        return
    if table.draw is None:  # nobody knows with which draws the rule will be shipped
        yield from rows
        return
    chance = repaired.chance
    assert chance is not None
    decided = np.where(random, 0.0, chance)
    drawn = np.flatnonzero(random)
    decided[drawn] = table.draw(drawn) < chance[drawn]
    done = repaired.with_decision(decided)
    report = audit(done, done.reading, replace(settings, checks=()))
    delivered = {
        name: report.overall.metrics[name].value
        for name in ("selection_rate", "accuracy")
        if name in report.overall.metrics
    }
    for block in report.blocks:
        if not block.stratum:
            named = block.comparisons.items()
            delivered |= {f"{name} [{block.attribute}]": one.value.value for name, one in named}
    for row in rows:
        found = delivered.get(row.name, math.nan)
        yield row if math.isnan(found) else replace(row, delivered=found)


def _expected(table: Table, predictor: RepairedPredictor, of_fit: bool) -> dict[str, float]:
    """Return what is expected over the draws of the distances to everybody; empty where nobody can tell."""
    redrawn = predictor.trace.redrawn if of_fit else None
    if of_fit and predictor.trace.fitted is not None and redrawn is None:
        return {}
    cells = table.groups().codes
    size = np.bincount(cells)
    shifts = (min(EXACT, REDRAWN / np.sqrt(size).sum()) / np.sqrt(size)).astype(np.int64).clip(SHIFTS)
    rows = np.concatenate([np.tile(np.flatnonzero(cells == k), many) for k, many in enumerate(shifts)])
    draw = np.concatenate([(np.arange(many) + 0.5) / many for many in size * shifts])
    parts = []
    for i in range(0, rows.size, CHUNK):
        own, now = rows[i : i + CHUNK], draw[i : i + CHUNK]
        some = replace(table.take(own), draw=now.__getitem__)
        parts.append(predictor.predict(some) if redrawn is None else redrawn(some, own))
    every, weight = np.concatenate(parts), (table.weight / shifts[cells])[rows]
    asked = table.reading.columns.protected
    out = {}
    for columns in [(name,) for name in asked] + ([asked] if len(asked) > 1 else []):
        groups = table.groups(columns)
        far = ks_to_overall(every, groups.codes[rows], weight, len(groups.levels))
        out[f"ks.to_overall [{attribute_name(columns)}]"] = float(far.max())
    return out


def _of_score(identifier: str) -> bool:
    """Tell whether a row is about the score and not about decisions."""
    return Comparison.parse(identifier).metric in ("ks", "log_loss", "square_loss", "score_change")


def _joined(one: More, other: More) -> More:
    """Return the comparisons of both by attribute."""
    return {name: (*one.get(name, ()), *other.get(name, ())) for name in {**one, **other}}


def _other_reading(
    table: Table, predictor: RepairedPredictor, settings: Settings, also: Sequence[str]
) -> Iterator[ProofRow]:
    """Yield what probabilities do that are rounded instead of drawn, or drawn instead of rounded."""
    read = _values if predictor.gives == "decision" else _decisions
    base, repaired, _ = read(table, predictor, False)
    plain = replace(settings, checks=())
    before, after = (audit(one, one.reading, plain) for one in (base, repaired))
    for row in _overall_rows(base, repaired, before, after, settings):
        if row.id not in LOSSES:
            yield row
    yield from _comparison_rows(before, after, (*COMPARED, *also), _Pairs(base, repaired, plain))


def results_on(
    table: Table, predictor: RepairedPredictor, *, of_fit: bool = False
) -> tuple[Table, Table, Bools]:
    """Return the rows with base results, the rows with repaired results, and which of these are left to chance.

    Raises
    ------
    DataError
        Decisions are repaired and the score has no threshold.
    """
    return (_values if predictor.gives == "value" else _decisions)(table, predictor, of_fit)


def _decisions(table: Table, predictor: RepairedPredictor, of_fit: bool) -> tuple[Table, Table, Bools]:
    """Return the rows with base and with repaired decisions, and which of these are random."""
    base = _base(table, predictor, of_fit)
    if base.reading.threshold is None:
        raise DataError("the base decisions need a threshold on the score; give one with --threshold")
    chance = predictor.predict(table)
    return base, table.with_decision(chance), is_random(chance)


def _values(table: Table, predictor: RepairedPredictor, of_fit: bool) -> tuple[Table, Table, Bools]:
    """Return the rows with base and with repaired values, and which of these are drawn."""
    fitted = predictor.trace.fitted if of_fit else None
    repaired = table.with_score(predictor.predict(table) if fitted is None else fitted)
    return _base(table, predictor, of_fit), repaired, predictor.drawn(table)


def _base(table: Table, predictor: RepairedPredictor, of_fit: bool) -> Table:
    """Return the rows with the scores that the repair began with: their own, or of the model it learned."""
    if PLAIN_SCORE in table.features.column_names:
        plain = table.features.column(PLAIN_SCORE).to_numpy()
        real = table.reading.task == "regression"
        return table.with_score(plain if real else to_probability(plain, table.reading.score_scale))
    if table.rows.score is not None:
        return table
    trace = predictor.trace
    assert trace.base is not None
    own = trace.base_fitted if of_fit else None
    return table.with_score(trace.base.predict(table) if own is None else own)


def _noise(report: AuditReport, table: Table) -> Iterator[tuple[str, tuple[float, float]]]:
    """Yield attribute -> mean and quantile of the largest distance to everybody that chance alone makes."""
    for block in report.blocks:
        if block.stratum:
            continue
        groups = table.groups(block.columns)
        weight = table.rows.weight
        mass = np.bincount(groups.codes, weight)
        sizes = mass if weight is None else mass**2 / np.bincount(groups.codes, weight**2)
        yield block.attribute, ks_noise(sizes)


class _Pairs:
    """Intervals of changes of comparisons, of rows before and after a repair.

    Rates and means have those of the differences row by row, which hold for every pair of groups that may be furthest
    apart (:mod:`fairfix.auditing.paired`). A change of a KS distance is between the limits of the one before and of
    the one after, each at half the miscoverage: wide, and true however the two hang together.
    """

    def __init__(self, base: Table, repaired: Table, settings: Settings) -> None:
        self.changes = Changes(Matched(base, repaired, 0, 0, 0), settings.confidence, settings.reference)
        self.surer = replace(settings, checks=(), confidence=(1 + settings.confidence) / 2)
        self.tables = base, repaired

    @cached_property
    def sure(self) -> tuple[AuditReport, ...]:
        """Audits before and after, each with half the miscoverage."""
        return tuple(audit(table, table.reading, self.surer) for table in self.tables)

    def change(self, comparison: str, block: Block, value: float) -> Value:
        """Return a change with its interval, or with why there is none."""
        of = Comparison.parse(comparison, block.attribute)
        if of.metric == "ks":
            was, now = (report.block(block.attribute).comparisons[comparison].value for report in self.sure)
            return Value(value, now.low - was.high, now.high - was.low)
        ends: Any = "true groups are not seen row by row"
        if of.metric in LOSSES and not self._ends_at_1(of.metric):
            ends = "a few rows can make the whole of a loss without an upper end"
        elif not of.of_true_groups:
            ends = self.changes.limits(of, block.columns)
        if isinstance(ends, str):
            return Value(value, math.nan, math.nan, f"no interval of this change: {ends}")
        return Value(value, min(ends[0], value), max(ends[1], value))

    def _ends_at_1(self, loss: str) -> bool:
        return loss == "square_loss" and self.tables[0].reading.binary


def _comparison_rows(
    before: AuditReport, after: AuditReport, shown: Sequence[str], pairs: _Pairs | None
) -> Iterator[ProofRow]:
    """Yield comparisons of groups; without ``pairs`` changes have no interval, as on rows that the rule was made of."""
    for block in after.blocks:
        if block.stratum:
            continue
        other = before.block(block.attribute)
        for identifier in dict.fromkeys(shown):
            if identifier in block.comparisons and identifier in other.comparisons:
                was, now = (one.comparisons[identifier].value for one in (other, block))
                change, value = None, now.value - was.value
                if not math.isnan(value):
                    why = "no interval of this change: the rule was made of these rows"
                    change = Value(value, math.nan, math.nan, why)
                    change = change if pairs is None else pairs.change(identifier, block, value)
                yield ProofRow(identifier, was, now, change, block.attribute)


def _overall_rows(
    base: Table, repaired: Table, before: AuditReport, after: AuditReport, settings: Settings
) -> Iterator[ProofRow]:
    """Yield selection rate, accuracy and the losses over everybody."""
    was, now = before.overall.metrics, after.overall.metrics
    then, chance = base.chance, repaired.chance
    if then is not None and chance is not None:
        change = _paired(chance - then, base, settings)
        yield ProofRow("selection_rate", was["selection_rate"], now["selection_rate"], change)
        if base.reading.binary:
            y = base.rows.label == 1
            right = np.where(y, chance, 1 - chance) - np.where(y, then, 1 - then)
            yield ProofRow("accuracy", was["accuracy"], now["accuracy"], _paired(right, base, settings))
    if base.rows.label is None:
        return
    if repaired.reading.columns.probability and base.reading.binary:
        yield from _losses_of_decisions(repaired, before, settings)
    elif not repaired.reading.columns.probability:
        yield from _losses_of_values(base, repaired, was, now, settings)


def _losses_of_decisions(table: Table, before: AuditReport, settings: Settings) -> Iterator[ProofRow]:
    """Yield log loss and square loss of the decision probabilities, beside those of the base score."""
    chance = table.rows.decision
    assert chance is not None
    given = np.where(table.rows.label == 1, chance, 1 - chance)
    with np.errstate(divide="ignore"):
        loss = _log_loss(-np.log(given), table, settings)
    was = before.overall.metrics
    yield ProofRow("log_loss", was.get("log_loss", NO_CHANCE), loss)
    square = _mean((1 - given) ** 2, table, settings, (0.0, 1.0))
    yield ProofRow("square_loss", was.get("square_loss", NO_CHANCE), square)


def _losses_of_values(
    base: Table, repaired: Table, was: Mapping[str, Value], now: Mapping[str, Value], settings: Settings
) -> Iterator[ProofRow]:
    """Yield the losses of values, with the interval of their paired change."""
    for name in LOSSES:
        if name in was and name in now:
            change = _loss(name, repaired) - _loss(name, base)
            inside = bool(np.isfinite(change).all())
            paired = _mean(change, base, settings, (-math.inf, math.inf)) if inside else None
            yield ProofRow(name, was[name], now[name], paired)


def _loss(name: str, table: Table) -> Floats:
    """Return the loss of each row."""
    y, u = table.rows.label, table.rows.score if table.reading.task == "regression" else table.probability
    assert y is not None
    assert u is not None
    if name == "log_loss":
        with np.errstate(divide="ignore"):
            return np.asarray(-np.log(np.where(y == 1, u, 1 - u)))
    return np.asarray(np.abs(u - y) if name == "absolute_loss" else (u - y) ** 2)


def _log_loss(loss: Floats, table: Table, settings: Settings) -> Value:
    """Return the log loss of the decision probabilities, or why it is infinite."""
    wrong = int(np.count_nonzero(np.isinf(loss)))
    if wrong:
        why = f"infinite: {wrong:,} rows are decided against their label with certainty, as every threshold does"
        return Value(math.nan, math.nan, math.nan, why)
    return _mean(loss, table, settings, (0.0, math.inf))


def _paired(difference: Floats, table: Table, settings: Settings) -> Value:
    """Return the mean of a difference per row with its interval: sharper than two intervals apart."""
    return _mean(difference, table, settings, (-1.0, 1.0))


def _mean(values: Floats, table: Table, settings: Settings, support: tuple[float, float]) -> Value:
    weight = table.weight
    sums = (weight, weight**2, weight * values, weight * values * values, weight * np.abs(values))
    n, n2, total, squares, sizes = (np.array([float(part.sum())]) for part in sums)
    estimate = Means.from_sums(n, n2, total, squares, support, sizes)
    low, high = estimate.limits(1.0 - settings.confidence)
    return Value(float(estimate.value[0]), float(low[0]), float(high[0]))
