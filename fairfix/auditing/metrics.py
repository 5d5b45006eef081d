"""The catalogue of metrics: one entry says everything that fairfix knows of a metric; no arithmetic, no numpy.

``explain``, checks, reports, baselines, ``compare`` and the docs read :data:`METRICS`. A plain rate or mean is added by
one entry here. What else has a value per group, or compares groups only, has its arithmetic in
:mod:`fairfix.auditing.group_estimates` or :mod:`fairfix.individual`.

With decision ``d``, label ``y`` and weights ``w``, the confusion table of a group holds ``Σ w 1[y = l, d = e]``; a
randomised decision counts with its probability, so every rate is an expectation over the randomisation. A
:class:`Rate` is the share of *success* entries among *success and failure* entries; a :class:`Mean` is a sum over rows
divided by their weight; an :class:`EntryMean` is a mean of numbers that a row has by its entry. Undefined is NaN.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from itertools import product
from types import MappingProxyType
from typing import Any, Literal, TypeVar

TP, FN, FP, TN = (1, 1), (1, 0), (0, 1), (0, 0)
"""Entries of the confusion table as (label, decision)."""

ENTRIES = (TP, FN, FP, TN)
Entries = tuple[tuple[int, int], ...]

SCOPES = ("between_groups", "to_overall", "to_reference", "within_strata")
"""Which groups a comparison compares."""

FLIP_SCOPES = (
    *("under_flips", "under_comparable", "under_everybody"),
    *("under_counterfactuals", "within_radius"),
)
"""Changes of rows before they are compared with themselves."""

KINDS_OF_VALUES = ("difference", "ratio", "min", "max")
"""Kinds of comparisons of numbers that every group has, and that are not negative."""

Scale = Literal["share", "loss", "signed", "data"]
Better = Literal["larger", "smaller", ""]
Of = Literal["decisions", "scores", "labels"]
Entry = TypeVar("Entry")


@dataclass(frozen=True, kw_only=True)
class Metric:
    """An entry of the catalogue."""

    name: str
    title: str = ""
    """Heading in reports; by default the name."""
    formula: str
    """Definition in the terms of the docs."""
    needs: tuple[str, ...]
    """Keys of :data:`NEEDS`: what the data must have."""
    undefined: str = ""
    """Why the value of a group can be undefined."""
    interval: str = ""
    """Row of ``fairfix.tasks.explain.INTERVALS``."""
    aliases: tuple[str, ...] = ()
    """Other names under which checks may ask for it."""
    parity: str = ""
    """Name of its being equal over groups."""
    better: Better = ""
    """Which way is better for one group; empty where nobody can say."""
    scale: Scale = "share"
    """``share`` of rows in [0, 1], ``loss`` or ``signed`` difference that is best at 0, or in the units of the data."""
    bounds: tuple[float, float] = (0.0, 1.0)
    kinds: tuple[str, ...] = KINDS_OF_VALUES
    """Kinds of its comparisons; none for distances, no ``min`` and ``max`` without values of groups."""
    scopes: tuple[str, ...] = SCOPES
    of: Of = "scores"
    """Whether it is of ``decisions``, which another threshold changes, of ``scores``, or of ``labels``."""
    titles: Mapping[str, str] = field(default_factory=dict)
    """Titles of comparisons that are not made of their parts."""
    phrase: str = ""
    """Its name in a sentence, ``{phrase} is 46% for Black``; by default the title."""
    percent: bool = False
    """Whether sentences write it in percent, and its differences in points."""
    same_as: str = ""
    """Metric of the catalogue that it is by another name."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "title", self.title or self.name.replace("_", " "))
        object.__setattr__(self, "phrase", self.phrase or f"the {self.title}")

    @property
    def of_groups(self) -> bool:
        """Whether each group has a value of its own."""
        return "min" in self.kinds

    @property
    def comparisons(self) -> tuple[str, ...]:
        """Every comparison that a report can have, without the metric's name: ``difference.between_groups``."""
        if not self.kinds:
            return self.scopes
        kinds = (kind for kind in ("difference", "ratio") if kind in self.kinds)
        out = [f"{kind}.{scope}" for kind, scope in product(kinds, self.scopes)]
        if "covariance" in self.kinds:
            out += ["covariance.to_overall", "covariance.within_strata"]
        return (*out, "min", "max") if self.of_groups else tuple(out)


@dataclass(frozen=True, kw_only=True)
class Mean(Metric):
    """A mean over rows of a quantity that counts have a sum of; of its difference to the label, where ``error``."""

    quantity: str
    error: bool = False


@dataclass(frozen=True, kw_only=True)
class EntryMean(Metric):
    """The mean of ``above / below`` over rows that count ``below`` times, by entry."""

    above: tuple[float, ...]  # in the order of ENTRIES
    below: tuple[float, ...]

    @property
    def levels(self) -> tuple[float, ...]:
        """The value of a row in each entry; NaN in one that does not count."""
        return tuple(a / b if b else math.nan for a, b in zip(self.above, self.below, strict=True))

    @property
    def has_two_values(self) -> bool:
        """Whether it is a rate on another scale."""
        return len({level for level in self.levels if not math.isnan(level)}) == 2


@dataclass(frozen=True, kw_only=True)
class Rate(EntryMean):
    """A share, ``success / (success + failure)`` over entries: the mean of 1 and 0."""

    success: Entries
    failure: Entries


@dataclass(frozen=True, kw_only=True)
class TableRatio(Metric):
    """A ratio of two polynomials of the shares of the entries; :mod:`fairfix.stats.table_ratios` has the order."""

    above: tuple[float, ...]
    below: tuple[float, ...]


NEEDS: Mapping[str, str] = {
    "label": "0/1 labels (`label`)",
    "real label": "real-valued labels (`task=regression` with `label`)",
    "score": "a score (`score` or `model`)",
    "probability": "a score that is a probability (`score_scale=probability`, percent, margin or logit)",
    "decision": "decisions (`prediction`, `probability`, or a score with a threshold)",
    "bins": "a score in a known range (`score_scale=probability`, percent or margin)",
    "second pass": "all rows, not only counts",
    "individual": "`similar=flips`",
    "model": "a model file (`model`), which scores changed rows",
    "number": "a protected number, in the evaluation of a repair by the method ramp (`constraint=covariance[COLUMN]`)",
    "copies": "counterfactual copies of people (`similar=FILE`), with a model file or their scores",
}
"""Requirements on the data, in words."""


ON_PROBABILITIES, ON_PREDICTIONS = ("label", "probability"), ("real label", "score")
NOT_NEGATIVE = (0.0, math.inf)
NOT_TO_OVERALL = ("between_groups", "to_reference", "within_strata")
"""Scopes of a metric whose overall value is no mean of those of the groups."""


def _rate(
    name: str,
    title: str,
    formula: str,
    success: Entries,
    failure: Entries,
    *aliases: str,
    phrase: str = "",
    parity: str = "",
) -> Rate:
    """Return a rate: larger is better where its successes are all right decisions, smaller where all are wrong."""
    labels, decisions = (set(axis) for axis in zip(*success, *failure, strict=True))
    undefined = "no rows"
    if len(labels) == 1:
        undefined = "no positives (y = 1)" if labels == {1} else "no negatives (y = 0)"
    elif len(decisions) == 1:
        undefined = "no positive decisions" if decisions == {1} else "no negative decisions"
    flips = {"decision": (0, 1), "label": (1, 0)}  # an axis matters if flipping it makes a success none
    needs = tuple(
        need
        for need, flip in flips.items()
        if any((y ^ flip[0], d ^ flip[1]) not in success for y, d in success)
    )
    sides = ({y == d for y, d in success}, {y == d for y, d in failure})
    better: Better = (
        "larger" if sides == ({True}, {False}) else "smaller" if sides == ({False}, {True}) else ""
    )
    return Rate(
        name=name,
        title=title,
        formula=formula,
        success=success,
        failure=failure,
        above=tuple(float(entry in success) for entry in ENTRIES),
        below=tuple(float(entry in (*success, *failure)) for entry in ENTRIES),
        aliases=aliases,
        undefined=undefined,
        needs=needs,
        better=better,
        parity=parity,
        phrase=phrase,
        percent=True,
        interval="rates",
        of="decisions" if "decision" in needs else "labels",
        kinds=(*KINDS_OF_VALUES, "covariance") if name == "selection_rate" else KINDS_OF_VALUES,
    )


def _mean(
    name: str,
    formula: str,
    quantity: str,
    needs: tuple[str, ...],
    scale: Scale,
    bounds: tuple[float, float] = (-math.inf, math.inf),
    *,
    aliases: tuple[str, ...] = (),
    phrase: str = "",
    error: bool = False,
    undefined: str = "its sums are too large for a floating-point number",
) -> Mean:
    ratios = bounds[0] >= 0 or name == "mean_score"  # a score can be a probability
    return Mean(
        name=name,
        formula=formula,
        quantity=quantity,
        error=error,
        needs=needs,
        aliases=aliases,
        phrase=phrase,
        undefined=undefined,
        interval="means, losses",
        better="smaller" if scale == "loss" else "",
        scale=scale,
        bounds=bounds,
        kinds=KINDS_OF_VALUES if ratios else ("difference", "min", "max"),
        of="labels" if name == "mean_label" else "scores",
        titles={"max": f"largest group {name.replace('_', ' ')}"},
    )


def _individual(
    name: str,
    formula: str,
    phrase: str,
    source: str = "model",
    of: Of = "scores",
    aliases: tuple[str, ...] = (),
    scopes: tuple[str, ...] = FLIP_SCOPES,
    **titles: str,
) -> Metric:
    """Return a metric of what changed rows would get, or of what scores tell of it; ``titles`` are by scope."""
    by_scores = source == "score"
    return Metric(
        name=name,
        formula=formula,
        phrase=phrase,
        percent=of == "decisions",
        needs=("individual", source),
        kinds=("difference",) if by_scores else (),
        scopes=("between_groups",) if by_scores else scopes,
        aliases=aliases,
        of=of,
        titles={f"difference.{scope}" if by_scores else scope: title for scope, title in titles.items()},
    )


_OF_TABLES: Mapping[str, Any] = {"needs": ("decision", "label"), "better": "larger", "of": "decisions"}

_ENTRIES: tuple[Metric, ...] = (
    _rate("base_rate", "base rate", "P(y = 1)", (TP, FN), (FP, TN), phrase="the base rate (label 1)"),
    _rate(
        *("selection_rate", "selection rate", "P(decision = 1)", (TP, FP), (FN, TN)),
        *("dp", "demographic_parity", "statistical_parity"),
        parity="demographic parity",
    ),
    _rate(
        *("true_positive_rate", "TPR", "P(decision = 1 | y = 1)", (TP,), (FN,)),
        *("equal_opportunity", "eop", "tpr", "recall", "recall_score"),
        phrase="the true positive rate",
        parity="equal opportunity",
    ),
    _rate(
        *("false_positive_rate", "FPR", "P(decision = 1 | y = 0)", (FP,), (TN,)),
        *("fpr", "predictive_equality"),
        phrase="the false positive rate",
    ),
    _rate(
        *("true_negative_rate", "TNR", "P(decision = 0 | y = 0)", (TN,), (FP,), "tnr"),
        phrase="the true negative rate",
    ),
    _rate(
        *("false_negative_rate", "FNR", "P(decision = 0 | y = 1)", (FN,), (TP,), "fnr"),
        phrase="the false negative rate",
    ),
    _rate(
        *("positive_predictive_value", "PPV", "P(y = 1 | decision = 1)", (TP,), (FP,)),
        *("ppv", "precision", "precision_score"),
        phrase="the precision (label 1 among positive decisions)",
    ),
    _rate(
        *("negative_predictive_value", "NPV", "P(y = 0 | decision = 0)", (TN,), (FN,), "npv"),
        phrase="the negative predictive value (label 0 among negative decisions)",
    ),
    _rate("accuracy", "accuracy", "P(decision = y)", (TP, TN), (FP, FN), "accuracy_score"),
    Metric(
        name="balanced_accuracy",
        phrase="the balanced accuracy (mean of the true positive and the true negative rate)",
        percent=True,
        formula="(true_positive_rate + true_negative_rate) / 2",
        undefined="no positives or no negatives",
        interval="balanced accuracy",
        aliases=("balanced_accuracy_score",),
        scopes=NOT_TO_OVERALL,
        **_OF_TABLES,
    ),
    EntryMean(
        name="f1",
        title="F1",
        phrase="the F1 score",
        formula="2 true_positives / (2 true_positives + false_positives + false_negatives)",
        above=(2.0, 0.0, 0.0, 0.0),
        below=(2.0, 1.0, 1.0, 0.0),
        undefined="no positives and no positive decisions",
        interval="F1",
        aliases=("f1_score",),
        **_OF_TABLES,
    ),
    Metric(
        name="mcc",
        title="MCC",
        phrase="the correlation of decision and label (MCC)",
        formula="correlation of decision and label over rows",
        undefined="all labels or all decisions are the same",
        interval="MCC",
        aliases=("matthews_corrcoef",),
        scale="data",
        bounds=(-1.0, 1.0),
        kinds=("difference", "min", "max"),
        scopes=NOT_TO_OVERALL,
        **_OF_TABLES,
    ),
    _mean("mean_score", "E[score]", "score", ("score",), "data", phrase="the mean score"),
    _mean("mean_label", "E[y]", "label", ("real label",), "data", phrase="the mean label"),
    _mean(
        "calibration_gap",
        "E[p - y]",
        "score",
        ON_PROBABILITIES,
        "signed",
        (-1.0, 1.0),
        error=True,
        phrase="the mean score minus the base rate",
    ),
    _mean(
        "mean_error",
        "E[prediction - y]",
        "score",
        ON_PREDICTIONS,
        "signed",
        error=True,
        phrase="the mean prediction minus the mean label",
    ),
    _mean(
        *("square_loss", "E[(p - y)^2]", "square_loss", ON_PROBABILITIES, "loss", (0.0, 1.0)),
        aliases=("brier", "brier_score_loss"),
        phrase="the mean square error of the score",
    ),
    _mean(
        "absolute_loss",
        "E|prediction - y|",
        "absolute_loss",
        ON_PREDICTIONS,
        "loss",
        NOT_NEGATIVE,
        phrase="the mean absolute error",
    ),
    _mean(
        "log_loss",
        "E[-log P(y)]",
        "log_loss",
        ON_PROBABILITIES,
        "loss",
        NOT_NEGATIVE,
        phrase="the log loss of the score",
        undefined="infinite: an observed label was given probability 0",
    ),
    Metric(
        name="auc",
        title="AUC",
        phrase="the AUC (probability that a row with label 1 has a higher score than one with label 0)",
        formula="P(score of a positive > score of a negative), ties half",
        needs=("label", "score"),
        undefined="no positives or no negatives",
        interval="AUC",
        aliases=("roc_auc_score",),
        better="larger",
        scopes=NOT_TO_OVERALL,
    ),
    Metric(
        name="calibration_error",
        phrase="the calibration error (distance between scores and observed rates of label 1)",
        formula="sum over 16 score bins of fraction of rows * |rate of y = 1 - mean score|",
        needs=("label", "bins"),
        undefined="no rows",
        interval="calibration error",
        better="smaller",
        scale="loss",
        scopes=NOT_TO_OVERALL,
    ),
    Metric(
        name="scoring_rate",
        phrase="the scoring rate (scores above the overall median)",
        percent=True,
        formula="P(score > median score of all rows)",
        needs=("score", "second pass"),
        undefined="no rows",
        interval="rates",
        titles={"ratio.between_groups": "scoring rate ratio (fraction above the pooled median)"},
    ),
    Metric(
        name="equalized_odds",
        phrase="the selection rate among rows with the same label",
        percent=True,
        formula="the larger gap of true_positive_rate and false_positive_rate",
        needs=("decision", "label"),
        undefined="no positives or no negatives",
        interval="equalized odds",
        aliases=("eo",),
        kinds=("difference", "ratio"),
        of="decisions",
    ),
    Metric(
        name="ks",
        title="KS distance",
        phrase="the fraction of scores up to a given value",
        percent=True,
        formula="largest distance between distribution functions of the score",
        needs=("score",),
        undefined="fewer than two groups",
        interval="KS",
        kinds=(),
        scopes=("between_groups", "to_overall", "within_strata"),
        titles={"between_groups": "KS distance, between groups"},
    ),
    _individual(
        "decision_flips",
        "fraction of rows whose decision is not the same in all flips",
        "the fraction of rows whose decision changes",
        of="decisions",
        under_flips="fraction of decisions that change with the group",
        under_comparable="fraction of decisions that change with comparable values",
        under_everybody="the same, if all rows get these values",
        under_counterfactuals="fraction of decisions that change with counterfactual copies",
    ),
    _individual(
        "score_change",
        "mean over rows of largest minus smallest score over the flips",
        "the mean over rows of the largest change of the score",
        under_flips="largest change of the score with the group, mean",
        under_counterfactuals="largest change of the score with counterfactual copies, mean",
    ),
    _individual(
        "score_effect",
        "largest difference of the mean score between two flips of all rows",
        "the largest change of the overall mean score",
        under_flips="effect of the group on the mean score",
    ),
    _individual(
        "transport_cost",
        "mean over rows of the largest squared change of the log-odds, kept within 8",
        "the mean over rows of the largest squared change of the log-odds",
    ),
    _individual(
        "counterfactual_gap",
        "mean over people of the mean absolute change of the score from the row to its copies",
        "the mean change of a person's score",
        "copies",
        aliases=("ctf",),
        scopes=("under_counterfactuals",),
        under_counterfactuals="counterfactual gap: change of the score with copies, mean",
    ),
    _individual(
        "score_std",
        "mean over people of the standard deviation of the score over the row and its copies",
        "the standard deviation of a person's score",
        "copies",
        aliases=("ctf_std",),
        scopes=("under_counterfactuals",),
        under_counterfactuals="standard deviation of the score over copies, mean",
    ),
    _individual(
        "class_distance",
        "mean over people of the mean squared distance of the class probabilities of the row and its copies",
        "the squared change of a person's class probabilities",
        "copies",
        aliases=("ctf_classes",),
        scopes=("under_counterfactuals",),
        under_counterfactuals="squared change of class probabilities with copies, mean",
    ),
    Metric(
        name="decision_covariance",
        title="covariance with decisions per standard deviation",
        phrase="the covariance of positive decisions with",
        percent=True,
        formula="absolute covariance of decision and number, divided by the standard deviation of the number",
        needs=("decision", "number"),
        undefined="no rows",
        interval="covariance with a number",
        kinds=(),
        scopes=("with_number",),
        aliases=("covariance",),
        of="decisions",
        titles={"with_number": "covariance with decisions per standard deviation"},
    ),
    _individual(
        "matched_effect",
        "difference of the mean score between rows that are equal in all other columns",
        "the mean score of rows that are equal in all other columns",
        "score",
        between_groups="mean score difference of rows equal in all other columns",
    ),
    _individual(
        "residual_effect",
        "slope of the score's residual on the group's residual, both after adjusting for the other columns",
        "the mean score, adjusted for the other columns,",
        "score",
        between_groups="mean score difference, adjusted for the other columns",
    ),
)

ADDED: ContextVar[Mapping[str, Metric]] = ContextVar("ADDED", default=MappingProxyType({}))
"""Metrics of one's own, for the time of an audit or of a rendering; :func:`fairfix.auditing.custom_metrics.added` sets
it."""


class Catalogue(Mapping[str, Entry]):
    """Entries of fairfix, and what ``of`` makes of the metrics that are added for a time: a name and its entry."""

    def __init__(self, entries: Mapping[str, Entry], of: Callable[[Metric], tuple[str, Entry]]) -> None:
        self._entries, self._of = entries, of

    def _added(self) -> dict[str, Entry]:
        return dict(map(self._of, ADDED.get().values()))

    def __getitem__(self, name: str) -> Entry:
        return self._entries[name] if name in self._entries else self._added()[name]

    def __iter__(self) -> Iterator[str]:
        yield from self._entries
        yield from self._added()

    def __len__(self) -> int:
        return len(self._entries) + len(ADDED.get())


METRICS: Mapping[str, Metric] = Catalogue(
    {metric.name: metric for metric in _ENTRIES}, lambda metric: (metric.name, metric)
)
"""Every metric by name, in the order of reports."""

REAL_SQUARE_LOSS = _mean(
    "square_loss",
    "E[(prediction - y)^2]",
    "square_loss",
    ("real label", "score"),
    "loss",
    NOT_NEGATIVE,
    phrase="the mean square error",
)
"""The square loss of predictions of a real-valued label."""


def metrics_for(task: str) -> Mapping[str, Metric]:
    """Return the catalogue for ``classification`` or ``regression``."""
    return {**METRICS, "square_loss": REAL_SQUARE_LOSS} if task == "regression" else METRICS


ALIASES: Mapping[str, str] = {alias: metric.name for metric in METRICS.values() for alias in metric.aliases}
"""Other name -> metric."""

RATES: Mapping[str, Rate] = {name: one for name, one in METRICS.items() if isinstance(one, Rate)}
MEANS: Mapping[str, Mean] = {name: one for name, one in METRICS.items() if isinstance(one, Mean)}

EQUALIZED_ODDS = ("true_positive_rate", "false_positive_rate")
"""The two rates whose gaps make up ``equalized_odds``: the larger difference, the smaller ratio."""

NOISE_METRICS = (
    "selection_rate",
    "true_positive_rate",
    "false_positive_rate",
    "accuracy",
    "positive_predictive_value",
    "equalized_odds",
)
"""Metrics with bounds for the groups behind noisy ones, in the order of reports."""

CLASS_METRICS = ("selection_rate", "true_positive_rate", "false_positive_rate")
"""Metrics whose gaps are averaged over the classes of a label of many, in the order of reports."""
