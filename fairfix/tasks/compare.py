"""Compare: every method over a range of slack on one split of the rows: what fairness costs, on rows not fitted to.

All repairs are fitted on the same rows and judged on the same others, with the same audit as any file, so their points
lie in one picture, together with the base, as it is, and the best constant.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Literal

import numpy as np
from msgspec.structs import replace as fields_replaced

from fairfix import __version__
from fairfix.auditing.audit import More, audit
from fairfix.auditing.custom_metrics import added, own_struct
from fairfix.auditing.metrics import Metric
from fairfix.auditing.results import Settings, rows_struct, spec_fields
from fairfix.data.data_spec import DataSpec
from fairfix.data.names import did_you_mean
from fairfix.data.table import Table
from fairfix.errors import DataError, FairfixError, UsageError
from fairfix.individual.by_model import of_predictor
from fairfix.individual.similar import Comparable
from fairfix.methods import available
from fairfix.methods.base import Repairer
from fairfix.methods.problem import RepairProblem
from fairfix.models.predictors import RepairedPredictor
from fairfix.models.repaired import with_draws_of
from fairfix.models.threads import threads_of_fits
from fairfix.models.trace import messages
from fairfix.noise.description import Noise
from fairfix.noise.repair_evaluation import RobustnessClaim, true_groups_of, worst_of
from fairfix.report.comparisons import ORIGINAL
from fairfix.schema import compare as of_compare
from fairfix.schema.audit import Audit
from fairfix.schema.common import BeforeAfter, Data, Estimate, GroupChanges
from fairfix.schema.compare import (
    Advice,
    Compare,
    CompareNoise,
    CompareSettings,
    CompareSplit,
    GapName,
    Point,
    SavedGap,
)
from fairfix.tasks.advice import TRIVIAL, advice_of, with_fronts
from fairfix.tasks.before_after import READ, Assessment
from fairfix.tasks.changes import EarlierModel, baseline_of
from fairfix.tasks.command import repair_command
from fairfix.tasks.compare_models import compare_models
from fairfix.tasks.dataset import (
    Dataset,
    explaining,
    log,
    membership_columns,
    noise_of,
    open_data,
    said_of_unused,
)
from fairfix.tasks.feature_choice import FeatureChoice, learned_features
from fairfix.tasks.fit_and_evaluate import assess, read_rows, recorded, warned
from fairfix.tasks.group_changes import changes_of
from fairfix.tasks.messages import message, of_names, of_source, with_messages
from fairfix.tasks.quality import OF_DECISIONS, Quality
from fairfix.tasks.repaired_rows import RepairedRows
from fairfix.tasks.request import CompareRequest, function_of
from fairfix.tasks.result import Result, data_fields
from fairfix.tasks.row_split import check_split, split_rows
from fairfix.tasks.run_metadata import with_record
from fairfix.tasks.warnings import of_directions

DISTANCE = "ks.to_overall"
OF_RATES = (
    "selection_rate.difference.between_groups",
    "true_positive_rate.difference.between_groups",
    "equalized_odds.difference.between_groups",
    "decision_flips.under_flips",
    "decision_flips.under_comparable",
)
GAPS = (DISTANCE, *OF_RATES)
"""Fairness comparisons that are shown for each attribute, where they apply."""

BASELINES = 2
"""Candidates that are no methods: the base as it is, and the best constant."""

QUALITIES = ("accuracy", "log_loss", "square_loss", "absolute_loss")
"""Overall quality metrics that are shown, where they apply."""

DISTINCT = 256
"""Largest number of different probabilities that are kept apart in bounds of true groups."""


@dataclass(frozen=True)
class Contender:
    """A method with parameters, under a title; its slack is varied."""

    title: str
    repairer: Repairer

    def with_slack(self, slack: float | None) -> Repairer:
        """Return the method with a slack; as it is where it has none."""
        return self.repairer if slack is None else replace(self.repairer, slack=slack)

    @property
    def struct(self) -> of_compare.SavedContender:
        """Form in results."""
        parameters = {name: value for name, value in self.repairer.parameters.items() if name != "slack"}
        return of_compare.SavedContender(title=self.title, parameters=parameters)


@dataclass(frozen=True)
class ComparisonOutcome:
    """All points, and the sizes of the parts."""

    points: tuple[Point, ...]
    split: CompareSplit
    data_spec: DataSpec
    advice: tuple[Advice, ...]


Gaps = tuple[SavedGap, ...]
Numbers = tuple[Gaps, dict[str, Estimate]]
"""Gaps, and qualities by their names."""


def compare_table(
    table: Table,
    contenders: Sequence[Contender],
    *,
    slacks: Sequence[float],
    confidence: float = 0.95,
    seed: int = 0,
    holdout: float = 0.3,
    features: tuple[str, ...] | None = None,
    noise: Noise | None = None,
    seen_by_model: tuple[str, ...] = (),
    quality: Quality | None = None,
    done: Callable[[int], None] = lambda fits: None,
    begin: Callable[[str], None] = lambda fit: None,
) -> ComparisonOutcome:
    """Fit every contender at every slack on one part of the rows and judge it on the other.

    Methods are given ``features``, ``noise`` and ``seen_by_model`` as far as they know them
    (:class:`~fairfix.methods.problem.RepairProblem`). ``begin`` is called before every fit of :func:`fits` with its
    name, ``done`` after it with 1. A method that cannot be fitted is a point with its failure. ``quality`` decides what
    is advised; by default the accuracy or the square loss.
    """
    table = replace(table, data_spec=table.data_spec.with_threshold(learned=True))
    if table.rows.score is not None and table.data_spec.binary and table.data_spec.threshold is None:
        raise DataError("the original decisions need a threshold on the score; set one with `threshold`")
    split_rng, fit_rng = np.random.default_rng(seed).spawn(2)
    split = split_rows(table, split_rng, validation=0.0, holdout=holdout)
    check_split(table, split)
    fitted = table.take(split.fit)
    scored, soft = RepairProblem(fitted, many_fits=True), RepairProblem(fitted.ungrouped)

    @cache  # fits of one problem share what is made of it
    def learning(*, grouped: bool, noisy: bool) -> RepairProblem:
        problem = RepairProblem(fitted, features=features, protected_as_feature=grouped)
        return replace(problem, noise=noise, seen_by_model=seen_by_model) if noisy else problem

    planned = fits(contenders, slacks)
    judge = _HoldoutEvaluator(table.take(split.holdout), noise, confidence, len(planned) + BASELINES, quality)

    def point_of(title: str, slack: float | None, repairer: Repairer) -> Point:
        problem, held = (soft, judge.held.ungrouped) if repairer.membership else (scored, judge.held)
        if "features" in repairer.uses:
            problem = learning(grouped=repairer.protected_as_feature, noisy="noise" in repairer.uses)
        settings = Settings(confidence=confidence, intersect=True)
        try:
            with recorded() as caught:
                predictor = repairer.fit(problem, rng=copy.deepcopy(fit_rng))  # as in `repair`, every time
            held, own, fitted_to = (
                with_draws_of(one, predictor, seen_by_model) for one in (held, judge.held, problem.table)
            )
            problem = replace(problem, table=fitted_to)
            facts = held, problem, repairer, predictor, warned(caught), settings
            result = assess(*facts, seed=seed, only=GAPS)
        except FairfixError as error:
            failure = str(error).removeprefix(f"{repairer.name}: ")
            return Point(title=title, slack=_saved(slack), failure=failure, front=(), people=(), messages=())
        return replace(judge, held=own).of_repair(title, slack, result, repairer)

    with added(judge.own_metrics):
        points = [*_baselines(fitted, judge)]
        for contender, slack in planned:
            begin(contender.title if slack is None else f"{contender.title} with slack {slack:g}")
            points.append(point_of(contender.title, slack, contender.with_slack(slack)))
            done(1)
        points = list(with_fronts(points))
        advice = tuple(advice_of(points, slacks, None if quality is None else quality.name))
    sizes = CompareSplit(fit=split.sizes["fit"], holdout=split.sizes["holdout"])
    return ComparisonOutcome(tuple(points), sizes, table.data_spec, advice)


def fits(
    contenders: Sequence[Contender], slacks: Sequence[float]
) -> tuple[tuple[Contender, float | None], ...]:
    """Return every contender with each of the slacks, or with None if it has no slack."""
    return tuple(
        (contender, slack)
        for contender in contenders
        for slack in ((None,) if contender.repairer.shared_slack is None else slacks)
    )


def _saved(slack: float | None) -> float | Literal["inf"] | None:
    """Return a slack as JSON has it."""
    return "inf" if slack == math.inf else slack


@dataclass(frozen=True)
class _HoldoutEvaluator:
    """Held-out rows, what is said of the noise of their groups, and the confidence of every interval."""

    held: Table
    noise: Noise | None
    confidence: float
    points: int
    """Number of candidates, whose intervals have to hold at once for advice."""
    quality: Quality | None = None
    """Requested quality, or None."""

    @property
    def own_metrics(self) -> tuple[Metric, ...]:
        """The metric of a quality that is in no catalogue."""
        return () if self.quality is None else self.quality.own_metrics

    @property
    def base(self) -> Table | None:
        """The rows with the base as it is; None where they have no score."""
        held = self.held
        if held.rows.score is None:
            return None
        plain = held.data_spec.score_scale == "raw" or held.data_spec.task == "regression"
        return held if plain else held.with_score(held.probability)

    @property
    def surest(self) -> float:
        """Confidence of intervals that hold for a gap and a cost of all points at once."""
        return 1.0 - (1.0 - self.confidence) / (2 * self.points)

    def audited(self, table: Table, flips: More | None = None, *, sure: bool = False) -> Audit:
        """Return the audit of held-out rows with some results; of gaps alone if ``sure``, with the surest intervals."""
        confidence = self.surest if sure else self.confidence
        settings = Settings(confidence, intersect=True, only=GAPS, metrics=() if sure else READ)
        return audit(table, table.data_spec, settings, flips)

    def gaps(self, report: Audit, names: Sequence[str] = GAPS) -> Gaps:
        """Return some gaps of an audit, as far as they are there."""
        return tuple(
            SavedGap(gap=GapName(comparison=name, attribute=block.attribute), **own[name].numbers)
            for block in report.attributes
            for own in [block.by_id]
            for name in names
            if name in own
        )

    def qualities(self, report: Audit, *, decided: bool = False) -> dict[str, Estimate]:
        """Return the qualities of an audit; for decisions, without those of the score."""
        metrics = report.overall.metrics
        asked = () if self.quality is None else (self.quality.name,)
        shown = [name for name in dict.fromkeys((*QUALITIES, *asked)) if not decided or name in OF_DECISIONS]
        return {name: metrics[name] for name in shown if name in metrics}

    def of_rule(self, rows: RepairedRows, report: Audit, *, sure: bool = False) -> Numbers:
        """Return the numbers of repaired rows, which ``report`` is an audit of.

        Of a probability, what is about itself (losses, KS distances) stands with decisions drawn with it, whose rates
        and errors are its own; decisions that are rounded from it have their own rates and errors, and nothing else.
        """
        rule, chance = rows.rule, rows.shipped.repaired.rows.decision
        decided = rule.gives == "decision" or rule.is_probability
        gaps = self.gaps(report, OF_RATES if decided else GAPS)
        qualities = self.qualities(report, decided=decided)
        if rule.is_probability and rule.gives == "decision" and chance is not None:
            own = self.audited(self.held.with_score(chance), sure=sure)
            gaps = (*self.gaps(own, (DISTANCE,)), *gaps)
            qualities = {**self.qualities(own), **qualities}
        return gaps, qualities

    def of_repair(self, title: str, slack: float | None, result: Assessment, repairer: Repairer) -> Point:
        """Return the point of a repair; its recorded groups may be others than those that it was fitted to."""
        rows, proof = result.held, result.proof
        rule, report = rows.rule, proof.after
        if len(rows.table) < len(self.held) or repairer.membership:
            rows = RepairedRows(self.held, rule)
            flips = self._flips(rows, repairer.comparable_values, self.confidence)
            report = self.audited(rows.shipped.repaired, flips)
        repaired = rows.shipped.repaired
        sure = self.audited(repaired, self._flips(rows, (), self.surest), sure=True)
        selected = next((row for row in proof.shown.table if row.id == "selection_rate"), None)
        return self.point(
            repaired,
            self.of_rule(rows, report),
            self.of_rule(rows, sure, sure=True)[0],
            rule if rule.gives == "decision" else None,
            title=title,
            slack=_saved(slack),
            randomized=proof.shown.randomized,
            protected_at_predict=rule.needs_beside(self.held.data_spec.columns.strata),
            messages=tuple(map(message, result.messages)),
            selection_rate=selected and BeforeAfter(before=selected.before, after=selected.after),
            people=proof.shown.people,
        )

    def _flips(self, rows: RepairedRows, comparable: Comparable, confidence: float) -> More:
        return of_predictor(self.held, rows.rule, comparable, confidence, score=rows.predict)

    def point(
        self,
        table: Table,
        numbers: Numbers,
        sure: Gaps,
        predictor: RepairedPredictor | None = None,
        **facts: Any,
    ) -> Point:
        """Return a point by its numbers, the gaps with intervals that hold for all points, and further fields."""
        base, costs = self.base, {}
        quality = self.quality or Quality("accuracy" if self.held.data_spec.binary else "square_loss")
        if base is not None and (self.quality is None or quality.name in numbers[1]):
            cost = quality.change(base, table, self.surest)
            costs = {} if cost is None else {quality.name: cost}
        return Point(
            gaps=(*numbers[0], *self.of_true_groups(table, predictor)),
            qualities=numbers[1],
            surer=sure,
            costs=costs,
            front=(),
            **facts,
        )

    def of_true_groups(self, table: Table, predictor: RepairedPredictor | None) -> Iterable[SavedGap]:
        """Return the largest gaps of true groups that any noise allows which fits the noise table.

        Of decisions with more than :data:`DISTINCT` chances the bounds are those of cells, which hold and may be wider.
        """
        if self.noise is None or table.data_spec.task != "classification":
            return ()
        many = table.rows.decision is not None and np.unique(table.rows.decision).size > DISTINCT
        weakest = replace(self.noise, assume="")
        claim = RobustnessClaim(weakest, (), math.inf)
        return worst_of(true_groups_of(table, claim, 1.0 - self.confidence, None if many else predictor))


def _baselines(fitted: Table, judge: _HoldoutEvaluator) -> Iterator[Point]:
    """Yield the base score as it is, and the constant that the labels of the fit make best."""
    held, tables = judge.held, {}
    base = judge.base
    if base is not None:
        tables[ORIGINAL] = base
    if fitted.rows.label is not None:
        mean = float(np.average(fitted.rows.label, weights=fitted.rows.weight))
        tables[TRIVIAL] = held.with_score(np.full(len(held), mean))
    reports = {title: judge.audited(table) for title, table in tables.items()}
    for title, table in tables.items():
        notes = messages(of_directions(fitted, judge.confidence) if title == ORIGINAL else ())
        for note in notes:
            log.info("%s", note.line)
        people, selected = tuple[GroupChanges, ...](), None
        if base is not None:
            was, now = reports[ORIGINAL], reports[title]
            people = changes_of(base, table, was, now)
            rates = [report.overall.metrics.get("selection_rate") for report in (was, now)]
            if rates[0] is not None and rates[1] is not None:
                selected = BeforeAfter(before=rates[0], after=rates[1])
        yield judge.point(
            table,
            (judge.gaps(reports[title]), judge.qualities(reports[title])),
            judge.gaps(judge.audited(table, sure=True)),
            title=title,
            slack=None,
            randomized=0.0,
            protected_at_predict=False,
            messages=tuple(map(message, notes)),
            selection_rate=selected,
            people=people,
        )


# ---------------------------------------------------------------------- from a request to a result


@dataclass(frozen=True, repr=False)
class CompareResult(Result):
    """A comparison of methods."""

    content: Compare


@dataclass(frozen=True)
class ComparePlan:
    """Opened data, and the contenders that a request sets side by side on it."""

    request: CompareRequest
    data: Dataset
    features: FeatureChoice
    noise: Noise | None
    contenders: Sequence[Contender]

    @property
    def fits(self) -> tuple[tuple[Contender, float | None], ...]:
        """Every fit that is to be made."""
        return fits(self.contenders, self.request.slacks)  # type: ignore[arg-type]  # a tuple in a request

    def run(
        self, done: Callable[[int], None] = lambda fits: None, begin: Callable[[str], None] = lambda fit: None
    ) -> CompareResult:
        """Make the comparison; ``begin`` is called before every fit with its name, ``done`` after it with 1."""
        request, data = self.request, self.data
        with explaining(data):
            members = tuple(membership_columns(self.noise, data))
            drawn = any("row_id" in one.repairer.uses for one in self.contenders)
            table, _ = read_rows(data, self.features.names or (), request.seed, members=members, draws=drawn)
        choice, table = self.features.screened(table)
        for note in choice.notes:
            log.info("%s", note.line)
        with threads_of_fits(request.threads):
            outcome = compare_table(
                table,
                self.contenders,
                slacks=request.slacks,  # type: ignore[arg-type]  # a tuple in a request
                confidence=request.confidence,
                seed=request.seed,
                holdout=request.holdout,
                features=choice.names,
                noise=self.noise,
                seen_by_model=data.seen_by_model,
                quality=request.chosen_quality,
                done=done,
                begin=begin,
            )
        rows = rows_struct(table.rows.read, len(table), table.rows.excluded, data.source.left_out)
        noise: CompareNoise | None = None
        if self.noise is not None and self.noise.table is not None:
            noisy = self.noise.table
            noise = CompareNoise(table=noisy.source, assumption="N2" if noisy.by_label else "N1")
        elif self.noise is not None and self.noise.membership is not None:
            columns = ", ".join(self.noise.membership.values())
            noise = CompareNoise(table=f"membership probabilities in {columns}", assumption="N1")
        settings = CompareSettings(
            **spec_fields(outcome.data_spec),
            confidence=request.confidence,
            seed=request.seed,
            features="score" if choice.names is None else choice.names,
            group=request.group,
            noise=noise,
            quality=request.quality,
        )
        own = () if request.chosen_quality is None else request.chosen_quality.own_metrics
        content = Compare(
            fairfix=__version__,
            data=Data(**data_fields(data.source.name, rows, outcome.data_spec, data.inferred)),
            settings=settings,
            split=outcome.split,
            contenders=tuple(one.struct for one in self.contenders),
            points=tuple(map(self.with_command, outcome.points)),
            advice=outcome.advice,
            own_metrics=tuple(map(own_struct, own)),
            features=choice.struct,
        )
        notes = (*of_names(table.level_rows, table.data_spec), *of_source(data.source))
        content = with_messages(content, notes, choice.notes)
        return CompareResult(with_record(content, request, data.source))

    def with_command(self, point: Point) -> Point:
        """Return the point with how ``repair`` makes it; a point of no repair, or that failed, as it is."""
        made = next((one for one in self.contenders if one.title == point.title), None)
        if made is None or point.failure:
            return point
        shared = any(note.code == "shared_ids" for note in point.messages)
        slack = None if point.slack is None else float(point.slack)
        command = repair_command(self.request, made.with_slack(slack), shared_ids=shared)
        return fields_replaced(point, command=command)


def plan_of(request: CompareRequest) -> ComparePlan:
    """Return what is to be compared on which data."""
    said_of_unused(request)
    data = open_data(request, score_needed=False, label_needed=True)
    request = data.settled(request)
    if data.data_spec.columns.prediction:
        raise UsageError("a comparison needs scores or features, not decisions; leave out `prediction`")
    if request.chosen_quality is not None:
        request.chosen_quality.check(data.data_spec.task)
    noise = noise_of(request)
    features = learned_features(request, data, noise)
    contenders = chosen(request.methods, data.data_spec, learned=features.names is not None, noise=noise)
    if request.group is not None:
        contenders = list(_with_group(contenders, request.group))
    log.info("comparing %s", "; ".join(dict.fromkeys(one.title for one in contenders)))
    return ComparePlan(request, data, features, noise, contenders)


def chosen(
    names: Sequence[str], data_spec: DataSpec, *, learned: bool, noise: Noise | None = None
) -> list[Contender]:
    """Return the contenders of the methods asked for; of all that fit the data where none is named."""
    methods, out = available(), []
    for name in names or methods:
        if name not in methods:
            hint = did_you_mean(name, methods)
            then = " Choose" if hint else "; choose"
            raise UsageError(f"`methods={name}`: unknown{hint}{then} among {', '.join(methods)}")
        method = methods[name]
        why = _unfit(method, data_spec, learned=learned, noise=noise)
        if why and names:
            raise UsageError(f"`methods={name}`: {why}")
        if not why:
            out += [Contender(title, repairer) for title, repairer in method.contenders(data_spec, noise)]
    if not out:
        raise UsageError("no method fits these data; name features to learn from, or a score column")
    return out


def _with_group(contenders: Sequence[Contender], group: str) -> Iterator[Contender]:
    """Yield the contenders whose rules use the protected group, or those whose rules do not."""
    made = set[Repairer]()
    for one in contenders:
        repairer = one.repairer
        if hasattr(repairer, "group"):
            try:
                repairer = replace(repairer, group=group)  # type: ignore[call-arg]  # a parameter of its class
            except UsageError:  # its rules cannot do so
                continue
        elif group == "unused":
            continue
        if repairer not in made:
            made.add(repairer)
            yield replace(one, repairer=repairer)


def _unfit(method: type[Repairer], data_spec: DataSpec, *, learned: bool, noise: Noise | None) -> str:
    """Return why a method does not fit the data; empty if it does."""
    if data_spec.task not in method.tasks:
        return f"it repairs {' and '.join(method.tasks)}, not {data_spec.task}"
    if learned and "features" not in method.uses and not data_spec.columns.score:
        return "it works on scores; name a score column with `score`"
    if "noise" in method.uses and noise is None:
        return "it needs a description of the group noise; give `noise=SPEC`"
    return ""


def _compare(request: CompareRequest) -> Result:
    """Show what each method costs over a range of slack, on rows that were not fitted to; or compare two models.

    Two models are compared where ``baseline`` names the scores of the other one:
    ``compare(frame, protected="race", score="new", baseline="old")``.

    The result is that of ``fairfix compare`` with the options of these names.

    Raises
    ------
    UsageError, DataError
        Parameters do not go together, or no method fits the data.
    """
    request, second = settled(request)
    return plan_of(request).run() if second is None else compare_models(request, second)


def settled(request: CompareRequest) -> tuple[CompareRequest, EarlierModel | None]:
    """Return a request and its second model, if it names one; a saved result of a configuration is for audits."""
    base = baseline_of(request.baseline)
    if base is None or base.result is None:
        return request, base
    if "baseline" in request.configured:
        return replace(request, baseline=None), None
    raise UsageError(
        f"`baseline`: {base.name} is a saved result, and two models are compared on rows; name a column or data, or "
        "compare the results with 'fairfix audit'"
    )


compare = function_of("compare", CompareRequest, _compare)
