"""DataSpec: the role of each column (by its usual name where nobody says), and how its entries are understood."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa

from fairfix.data.choices import ROLES, MissingGroup, MissingRows, ScoreScale, Task
from fairfix.data.counts import Floats
from fairfix.data.cutoffs import GroupThresholds
from fairfix.data.merging import Merges
from fairfix.data.names import threshold_sign
from fairfix.data.numeric_groups import Edges
from fairfix.errors import AmbiguousError, ColumnError, DataError, ThresholdError, UsageError

SCORE_RANGE: Mapping[str, tuple[float, float]] = {
    "probability": (0.0, 1.0),
    "percent": (0.0, 100.0),
    "margin": (-1.0, 1.0),
}
"""Scales whose values must lie in a known range."""

NATURAL_THRESHOLD: Mapping[str, float] = {"probability": 0.5, "percent": 50.0, "margin": 0.0, "logit": 0.0}
"""Where the probability is one half; a raw score has no such point."""

ORDERS: Mapping[str, Callable[[Any, Any], Any]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
"""Signs of comparisons of numbers."""

LABELS = (
    *("label", "y", "y_true", "target", "true_label", "ground_truth"),
    "label_value",  # Aequitas
    "two_year_recid",  # ProPublica
)
"""Names of labels that mean nothing else."""

DECISIONS = (
    *("prediction", "y_pred", "y_hat", "yhat", "predicted_label"),
    "scored_labels",  # Azure
)
"""Names that hold decisions when the column is not of fractional numbers."""

SCORES = (
    *("score", "scores", "y_score", "y_scores"),
    *("proba", "y_proba", "y_prob", "y_pred_proba", "pred_proba", "predict_proba", "predicted_proba"),
    *("proba_1", "prob_1", "y_proba_1", "predict_proba_1", "predicted_probability", "predicted_prob"),
    "scored_probabilities",  # Azure
    "decile_score",  # ProPublica
    *DECISIONS,
)
"""Names of a model's scores that mean nothing else; every name is as :func:`usual_name` has it."""

RAW = frozenset(("decile_score",))
"""Those of scores that are no probabilities, so that a method that can learn from features does not take them."""


def usual_name(name: str) -> str:
    """Return a name without what writers change: capitals, and blanks, dots or hyphens in place of underscores."""
    return re.sub(r"[\s.-]+", "_", name.strip()).casefold()


OWN = {
    ("p_positive", "decision", "randomized"): {"prediction": "decision"},
    ("prediction", "decision", "randomized"): {"score": "prediction", "prediction": "decision"},
    ("prediction", "randomized"): {"score": "prediction"},
}
"""Columns that ``fairfix predict`` adds side by side -> part -> the one that plays it."""


@dataclass(frozen=True)
class ColumnRoles:
    """Which column plays which part; every other column is a feature."""

    protected: tuple[str, ...]
    label: str | None = None
    """Observed outcome: 0/1, or a real number for regression."""
    score: str | None = None
    """The model's score, or the real-valued prediction for regression."""
    prediction: str | None = None
    """Hard decisions (0/1), instead of a score or in addition to one."""
    probability: str | None = None
    """Probability of a positive decision of a randomised rule (``p_positive`` of ``fairfix predict``)."""
    weight: str | None = None
    strata: tuple[str, ...] = ()
    id: str | None = None
    """Row weight; columns within whose levels groups are also compared; row identity."""
    count: str | None = None
    """For how many people each row of the data was: a source that repeats rows as often has this column no more."""
    classes: tuple[str, ...] = ()
    """Labels and predictions of many classes, which are counted like groups (:mod:`fairfix.data.classes`)."""

    @property
    def cell_keys(self) -> tuple[str, ...]:
        """Columns that make up a cell: strata, then protected, then classes."""
        return (*self.strata, *self.protected, *self.classes)

    @property
    def decision(self) -> str | None:
        """Column of decisions, or of their probabilities; None where there is neither."""
        return self.prediction or self.probability

    @property
    def counted(self) -> tuple[str, ...]:
        """Columns an audit has to read, each once."""
        single = (self.label, self.score, self.prediction, self.probability, self.weight)
        return tuple(dict.fromkeys((*self.cell_keys, *(name for name in single if name))))

    @property
    def roles(self) -> tuple[str, ...]:
        """Columns that are not features."""
        return (*self.counted, *((self.id,) if self.id else ()))


@dataclass(frozen=True)
class DataSpec:
    """Specification of how columns are read and validated.

    ``thresholds`` are in the units of the score; the first one makes the decisions.
    """

    columns: ColumnRoles
    task: Task = "classification"
    score_scale: ScoreScale = "probability"
    thresholds: tuple[float, ...] = ()
    positive_label: tuple[str, ...] = ()
    """The positive values of labels; none where they are 0/1."""
    positive_prediction: tuple[str, ...] = ()
    """The positive values of decisions; none where they are 0/1, or have those of the labels."""
    label_threshold: str = ""
    """Comparison such as ``>=50000`` that the numbers of positive labels meet; empty where values are named."""
    missing_group: MissingGroup = "error"
    missing_rows: MissingRows = "error"
    missing_of: Mapping[str, MissingGroup] = field(default_factory=dict)
    """Column -> what happens to rows without an entry there, instead of what the two above say."""
    bands: Mapping[str, Edges] = field(default_factory=dict)
    """Column of a cell -> edges of the bands that its numbers are cut into; without any, each number is a group."""
    where: str = ""
    """Condition that the rows meet, as :func:`fairfix.data.row_filter.parse_condition` reads it; empty for all rows."""
    group_thresholds: GroupThresholds | None = None
    """Decision thresholds by group, which are among ``thresholds``; None where all rows have the same, or none."""
    merge: Merges = field(default_factory=dict)
    """Column of a cell, of labels or of decisions -> name -> the name that it is taken for."""

    def check(self, *, protected: bool = True) -> None:
        """Raise where columns contradict each other, a ``protected`` one is missing, or a threshold cannot be one."""
        columns = self.columns
        if protected and not columns.protected:
            raise UsageError("no protected column is named; name one with `protected=COLUMN`")
        seen: dict[str, str] = {}
        for part in ROLES:
            names = getattr(columns, part)
            for name in names if isinstance(names, tuple) else filter(None, (names,)):
                if name in seen:
                    raise UsageError(
                        f"column {name!r} is given to `{seen[name]}` and to `{part}`; it can have only one role"
                    )
                seen[name] = part
        valued = () if self.task == "regression" else tuple(filter(None, (columns.label, columns.prediction)))
        for part, names, able in (("bands", self.bands, ()), ("merge", self.merge, valued)):
            if strange := [name for name in names if name not in (*columns.cell_keys, *able)]:
                groups = ", ".join((*columns.cell_keys, *able)) or "none"
                raise UsageError(
                    f"`{part}={strange[0]}`: it is not a group column; the group columns are {groups}"
                )
        for name, policy in self.missing_of.items():
            able = columns.cell_keys if policy == "group" else columns.counted
            if name not in able:
                what = "a group column" if policy == "group" else "a column with a role"
                raise UsageError(
                    f"`missing={name}={policy}`: {name!r} is not {what}; these are {', '.join(able) or 'none'}"
                )
        if (own := self.group_thresholds) is not None and own.attribute not in columns.cell_keys:
            raise UsageError(
                f"`threshold={own}`: {own.attribute!r} is not a group column; name it with `protected`, or correct it "
                f"to one of {', '.join(columns.cell_keys) or 'none'}"
            )
        if self.label_threshold and self.task == "regression":
            raise UsageError(
                f"`label={columns.label}{self.label_threshold}` turns a number into yes or no, and `task=regression` "
                "compares the number itself; leave out one of them"
            )
        if columns.prediction and columns.probability:
            raise UsageError("`prediction` and `probability` both give decisions; give one of them")
        if self.task == "regression" and not columns.score and columns.decision:
            raise UsageError(
                "`task=regression` is about values, not decisions; name their column with `score`"
            )
        for cut in self.thresholds:
            self._check_threshold(cut)

    def _check_threshold(self, cut: float) -> None:
        """Raise a UsageError where no score can be at a threshold."""
        low, high = self.range
        if math.isfinite(cut) and low <= cut <= high:
            return
        why = f"`threshold={cut:g}` is not a score on the scale {self.score_scale!r}"
        if not (math.isfinite(cut) and math.isfinite(low)):
            raise UsageError(why)
        why += f", which goes from {low:g} to {high:g}"
        if not self.columns.score:
            raise UsageError(f"{why}; give a threshold in this range")
        remedy = "; if scores go further, set another scale with `score_scale`"
        raise ThresholdError(self.columns.score, why, remedy)

    def policy(self, name: str) -> MissingGroup:
        """Return what happens to rows without an entry in a column."""
        columns = self.columns
        usual = self.missing_group if name in (*columns.strata, *columns.protected) else self.missing_rows
        return self.missing_of.get(name, usual)

    def column_of(self, reason: str) -> str:
        """Return the column of ``missing label`` and the like."""
        part = reason.removeprefix("missing ").removeprefix("decision ")
        return str(getattr(self.columns, part))

    @property
    def label_test(self) -> tuple[Callable[[Any, Any], Any], float] | None:
        """The operator and the number of :attr:`label_threshold`; None where there is none."""
        sign = threshold_sign(self.label_threshold)
        return (ORDERS[sign], float(self.label_threshold[len(sign) :])) if sign else None

    @property
    def range(self) -> tuple[float, float]:
        """The least and the largest number that can be a score."""
        ranges = SCORE_RANGE if self.task == "classification" else {}
        return ranges.get(self.score_scale, (-math.inf, math.inf))

    def with_threshold(self, *, learned: bool = False) -> DataSpec:
        """Return the reading with the threshold of its score scale, unless it has one or needs none.

        With ``learned``, a probability that is yet to be learned, where there is no score, has one as well.
        """
        columns = self.columns
        cut = NATURAL_THRESHOLD.get(self.score_scale)
        if not columns.score:
            cut = 0.5 if learned else None
        elif self.decided:
            cut = None
        if self.thresholds or self.task == "regression" or cut is None:
            return self
        return replace(self, thresholds=(cut,))

    def in_type_of(self, schema: pa.Schema) -> DataSpec:
        """Return the reading with its thresholds in the float type of the score column.

        ``float32(0.7) >= 0.7`` holds in float32 and fails after a cast to float64, so a threshold has to be
        rounded as the scores were.
        """
        name = self.columns.score
        if name is None or name not in schema.names:
            return self
        kind = schema.field(name).type
        if not (pa.types.is_float32(kind) or pa.types.is_float16(kind)):
            return self
        with np.errstate(over="ignore"):  # above all scores of that type lies infinity
            rounded = np.array(self.thresholds).astype(kind.to_pandas_dtype())
        own = self.group_thresholds
        if own is not None:
            into = dict(zip(self.thresholds, rounded.tolist(), strict=True))
            own = own.mapped(into.__getitem__)
        return replace(self, thresholds=tuple(float(cut) for cut in rounded), group_thresholds=own)

    @property
    def binary(self) -> bool:
        """Whether labels are 0/1."""
        return self.task == "classification" and self.columns.label is not None

    @property
    def threshold(self) -> float | None:
        """The score at and above which a decision is positive; None when decisions are read or undefined."""
        return None if self.decided or not self.thresholds else self.thresholds[0]

    @property
    def decided(self) -> bool:
        """Whether each row has a decision of its own, which does not follow from one threshold for all."""
        return bool(self.columns.decision or self.group_thresholds)

    def with_group_thresholds(self, own: GroupThresholds) -> DataSpec:
        """Return the reading with a threshold for each group; the first of all is that of the scale, if it has one."""
        first = NATURAL_THRESHOLD.get(self.score_scale, own.edges[0])
        cuts = tuple(dict.fromkeys((first, *own.edges)))
        return replace(self, thresholds=cuts, group_thresholds=own)

    @property
    def of_one_threshold(self) -> DataSpec:
        """The reading without thresholds by group."""
        return self if self.group_thresholds is None else replace(self, group_thresholds=None)

    @property
    def cut(self) -> float:
        """The threshold as a probability: 0.5 where none is given, or the scale of the score has no probability."""
        return self.cuts[0] if self.cuts else 0.5

    @property
    def cuts(self) -> tuple[float, ...]:
        """The thresholds as probabilities; none where the scale of the score has no probability."""
        if self.score_scale not in NATURAL_THRESHOLD:
            return ()
        return tuple(float(cut) for cut in to_probability(np.array(self.thresholds), self.score_scale))


def to_probability(score: Floats, scale: ScoreScale) -> Floats:
    """Return the probability that a score on the given scale stands for."""
    if scale == "probability":
        return score
    if scale == "percent":
        return score / 100.0
    if scale == "margin":
        return (1.0 + score) / 2.0
    if scale == "logit":
        with np.errstate(over="ignore"):  # beyond 709, where the probability is 0
            return 1.0 / (1.0 + np.exp(-np.clip(score, -745.0, 745.0)))
    raise DataError(
        "a raw score is not a probability; set `score_scale=probability`, percent, margin or logit"
    )


def from_ranking(ranking: Floats, scale: ScoreScale) -> Floats:
    """Return the scores on a scale that have these values of ``2 p - 1``, or of the raw score."""
    if scale in ("raw", "margin"):
        return ranking
    p = (ranking + 1.0) / 2.0
    if scale == "logit":
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.asarray(np.log(p) - np.log1p(-p))
    return 100.0 * p if scale == "percent" else p


def infer_columns(
    columns: ColumnRoles,
    schema: pa.Schema,
    *,
    score_from_model: bool = False,
    score_needed: bool = True,
    of_classes: bool = False,
    repaired: bool = False,
    labelled: bool = True,
) -> tuple[ColumnRoles, dict[str, str]]:
    """Return the columns with label and score filled in by name, and what was inferred (part -> column).

    A missing label is no error: metrics that need none are still computed. Nor is a missing score, where a model is yet
    to be learned and it is not ``score_needed``; decisions are not looked for then. Predictions ``of_classes`` are
    looked for alone; where they are not ``score_needed``, they may be missing. Where a ``repaired`` rule has decided
    the rows, its columns come before those of usual names. Without ``labelled``, no label is looked for.
    """
    for part in ROLES:
        given = getattr(columns, part)
        if "" in ((given,) if isinstance(given, str) else given or ()):
            raise UsageError(f"`{part}`: a column without a name cannot be used; name it in the data")
    taken = set(columns.roles)
    names = [name for name in schema.names if name not in taken]
    inferred: dict[str, str] = {}
    if labelled and columns.label is None and (label := _only(LABELS, names, "label", schema)) is not None:
        inferred["label"] = label
        columns = replace(columns, label=label)
    if columns.score or columns.decision or score_from_model:
        return columns, inferred
    own = of_predict(schema) if repaired else ()
    parts = {"prediction": "prediction"} if of_classes and "prediction" in own else OWN.get(own, {})
    if parts and not taken & {*parts.values()}:
        return replace(columns, **parts), {**inferred, **parts}  # type: ignore[arg-type]  # parts of one name
    if of_classes:
        decided = _only(DECISIONS, names, "prediction", schema)
        if decided is None and not score_needed:
            return columns, inferred
        if decided is None:
            raise ColumnError(
                "no column of predicted classes: name it with `prediction=COLUMN`",
                f"; the columns are {', '.join(schema.names)}",
            )
        return replace(columns, prediction=decided), {**inferred, "prediction": decided}
    usual = [name for name in SCORES if score_needed or name not in RAW]  # else features are learned from
    score = _only(usual, names, "score", schema)
    if score is None and score_needed:
        raise ColumnError(
            "no score column: name it with `score=COLUMN` (or decisions with `prediction`, or a model file "
            "with `model`)",
            f"; the columns are {', '.join(schema.names)}",
        )
    if score is None:
        return columns, inferred
    output = part_of_output(score, schema)
    if output == "prediction" and not score_needed:
        return columns, inferred
    return replace(columns, **{output: score}), {**inferred, output: score}  # type: ignore[arg-type]  # of one name


def of_predict(schema: pa.Schema) -> tuple[str, ...]:
    """Return the columns that ``fairfix predict`` has added; none where it has not."""
    names = list(schema.names)
    if names.count("randomized") != 1 or not pa.types.is_boolean(schema.field("randomized").type):
        return ()
    end = names.index("randomized") + 1
    begin = names.index("prediction") if "prediction" in names[:end] else end
    between = names[begin + 1 : end - 1]
    if begin < end and all(name.startswith("p_") for name in between):
        return tuple(names[begin:end])  # of classes, or of values without decisions
    return next((own for own in OWN if tuple(names[max(end - len(own), 0) : end]) == own), ())


def part_of_output(name: str, schema: pa.Schema) -> str:
    """Return the part of a column with a usual name of a model's output: ``score``, or ``prediction``."""
    index = schema.names.index(name)
    decides = usual_name(name) in DECISIONS and not pa.types.is_floating(schema.field(index).type)
    return "prediction" if decides else "score"


def _only(conventional: Sequence[str], names: Sequence[str], part: str, schema: pa.Schema) -> str | None:
    """Return the one column with a conventional name, None if there is none; an AmbiguousError where there are more."""
    order = {name: i for i, name in enumerate(conventional)}
    places = {name: order[usual_name(name)] for name in names if usual_name(name) in order}
    fitting = sorted(places, key=places.__getitem__)
    if len(fitting) > 1:
        parts = {name: part_of_output(name, schema) if part == "score" else part for name in fitting}
        raise AmbiguousError(
            f"the columns {', '.join(map(repr, fitting))} could each be the {part}; choose with `{part}=COLUMN`",
            "",
            [{own: name} for name, own in parts.items()],
        )
    return fitting[0] if fitting else None
