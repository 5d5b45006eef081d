"""Predictors: what a repair leaves behind, applied to rows; here their base, and rules on the model's own score.

A predictor maps a row to a number, exactly and deterministically: the probability of a positive decision, or a
value. It is made of arrays and plain settings, so it can be saved as data (:mod:`fairfix.data.codec`). It writes its
rule once, as a program (:mod:`fairfix.models.program`) that prediction, serving and exports run. A rule that randomises
decides per person, by a draw from the row's identity (:mod:`fairfix.data.row_hash`). Predictors that look at scorers
are in :mod:`fairfix.models.score_models` and :mod:`fairfix.models.mixtures`, those that look at numbers of the row in
:mod:`fairfix.models.numeric_rules`.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from msgspec import Meta

from fairfix.data.codec import Array, EndToEnd, Saved, Setting
from fairfix.data.counts import Bools, Floats, Ints
from fairfix.data.data_spec import DataSpec, from_ranking
from fairfix.data.scales import Scale
from fairfix.data.table import Groups, Table
from fairfix.errors import DataError
from fairfix.models.array_interpreter import Block, TableInputs, run
from fairfix.models.features import NewValues
from fairfix.models.program import Program, Rule, Step
from fairfix.models.trace import FitTrace
from fairfix.solvers.monotone import sigmoid_inverse
from fairfix.solvers.piecewise import Piecewise


@dataclass(frozen=True, eq=False)
class RepairedPredictor(Saved):
    """Maps the rows of a table to a probability of a positive decision, or to a value."""

    kinds: ClassVar[dict[str, Any]] = {}
    is_probability: ClassVar[bool] = False
    """Whether predictions are probabilities that may be drawn with or rounded, so that a proof shows both."""
    trace: FitTrace = field(default=FitTrace(True, 0, float("nan")), kw_only=True)

    @property
    def randomized(self) -> bool:
        """Whether some results are drawn: decisions of a probability strictly between 0 and 1, or values."""
        return False

    @property
    def gives(self) -> Literal["decision", "value", "class"]:
        """Kind of a prediction: the probability of a positive decision, a value such as a repaired score, or a class.

        A class is predicted by its number among ``classes``.
        """
        return "decision"

    @property
    def classes(self) -> tuple[str, ...]:
        """The classes that are predicted, in order; empty where decisions or values are."""
        return ()

    def class_probabilities(self, table: Table) -> Floats:
        """Return the chance of each class, shape (n, K); only called where there are ``classes``."""
        raise NotImplementedError

    @property
    def inputs(self) -> tuple[str, ...]:
        """Group columns that prediction looks at."""
        return ()

    @property
    def features(self) -> Mapping[str, str]:
        """Feature columns that prediction looks at, with their kinds (see :mod:`fairfix.models.features`)."""
        return {}

    @property
    def vectors(self) -> tuple[str, ...]:
        """Those of the feature columns that hold a list of numbers in each row."""
        return tuple(name for name, kind in self.features.items() if kind == "vector")

    @property
    def memberships(self) -> tuple[str, ...]:
        """Those of the feature columns that hold the row's probabilities to be of each group, which sum to 1."""
        return ()

    @property
    def scales(self) -> tuple[Scale, ...]:
        """Those of the feature columns that are protected numbers, with the scales by which they are counted."""
        return ()

    @property
    def needs_protected(self) -> bool:
        """Whether some group column is needed at predict time, or what else is known of the group."""
        return bool(self.inputs)

    def needs_beside(self, strata: Sequence[str]) -> bool:
        """Whether it needs what is protected at predict time, where group columns may be strata, which are not."""
        return self.needs_protected and not (self.inputs and set(self.inputs) <= set(strata))

    @property
    def needs_score(self) -> bool:
        """Whether the model's score is needed at predict time."""
        return True

    @abstractmethod
    def write(self, program: Program) -> int:
        """Write the rule into a program; return the step of P(decision = 1) or the value.

        It is missing for rows of a group not seen in the fit.
        """

    def write_drawn(self, program: Program) -> int | None:
        """Write whether a value depends on the row's draw, as 0 and 1; None where no value does."""
        return None

    @cached_property
    def compiled_rule(self) -> Rule:
        """The rule, as it is run."""
        program = Program()
        return program.rule(self.write(program))

    @cached_property
    def _drawn(self) -> Rule | None:
        program = Program()
        result = self.write_drawn(program)
        return None if result is None else program.rule(result)

    def predict(self, table: Table) -> Floats:
        """Return P(decision = 1) or the value per row, shape (n,); NaN for rows of a group not seen in the fit."""
        return run(self.compiled_rule, TableInputs(table), len(table))

    def redrawn(self, table: Table) -> Callable[[Table, Ints], Floats]:
        """Return what predicts rows of a table, which may repeat, under new draws: of these rows and their numbers.

        Scores are computed once.
        """
        return self._redrawn(TableInputs(table))

    def _redrawn(self, inputs: TableInputs) -> Callable[[Table, Ints], Floats]:
        def predicted(rows: Table, own: Ints) -> Floats:
            def again(step: Step, block: Block) -> Any:
                return rows.draws[block] if step.operation == "draw" else inputs(step, own[block])

            return run(self.compiled_rule, again, len(rows))

        return predicted

    def unseen(self, table: Table) -> Bools:
        """Return which rows are of a group without training rows, shape (n,); only these have no prediction."""
        return np.zeros(len(table), dtype=bool)

    def new_values(self, table: Table) -> dict[str, NewValues]:
        """Return, by feature, how many rows of a table have a value that no training row had."""
        return {}

    def drawn(self, table: Table) -> Bools:
        """Return which rows have a value that depends on ``table.draws``, shape (n,)."""
        if self._drawn is None:
            return np.zeros(len(table), dtype=bool)
        return np.asarray(run(self._drawn, TableInputs(table), len(table)) == 1.0)

    def unrepaired(self, table: Table) -> Floats:
        """Return what the base would give each row, shape (n,): its decision at the threshold, as 0 or 1."""
        return decided(table, table.scores)

    def of_each_group(self, table: Table) -> tuple[tuple[tuple[str, ...], ...], Floats] | None:
        """Return the groups of the fit and what each row would get in each of them, shape (n, K).

        None where the group is not looked at, or where that is not known.
        """
        return None

    def knots(self, data_spec: DataSpec) -> Sequence[Floats] | None:
        """Return the scores, on the scale of ``data_spec``, at which each group's rule may bend or jump, (m_k,) each.

        Between them a rule of decisions is a straight line in ``2 p - 1``, or in a raw score. None where the rule is of
        another form.
        """
        return None

    @property
    def variation(self) -> Floats | None:
        """Total variation of each group's rule along a score that was there before the fit, shape (K,).

        Of values: of the chance of at most ``z``, for the worst ``z``. None where the rule looks at other things too,
        or at a score that the fit has made.
        """
        return None


def decided(table: Table, score: Floats) -> Floats:
    """Return the decisions of scores at the table's threshold, shape (n,), as 0 or 1."""
    return np.asarray((score >= table.data_spec.thresholds[0]).astype(np.float64))


@dataclass(frozen=True, eq=False)
class OfGroups(RepairedPredictor):
    """A predictor that has a rule for each group."""

    columns: Annotated[tuple[str, ...], Setting()]
    """Columns whose levels make the group."""
    levels: Annotated[Levels, Setting("groups")]
    """One tuple of levels per group, sorted."""

    @property
    def inputs(self) -> tuple[str, ...]:
        """Group columns that prediction looks at."""
        return self.columns

    @property
    def sound(self) -> bool:
        """Whether each group has a level of each column, and levels of its own."""
        lengths = {len(level) for level in self.levels}
        return lengths == {len(self.columns)} and len(set(self.levels)) == len(self.levels)

    def unseen(self, table: Table) -> Bools:
        """Return which rows are of a group without a rule, shape (n,)."""
        return np.asarray(table.codes(self.columns, self.levels) < 0)

    def by_group(self, program: Program, branch: Callable[[int], int]) -> int:
        """Return the step of what ``branch(k)`` gives rows of each group ``k``; missing for groups not seen."""
        if not self.columns:
            return branch(0)
        branches = [program.constant(math.nan), *map(branch, range(len(self.levels)))]
        return program.select(program.group(self.columns, self.levels), branches)

    def number_of_group(self, program: Program, numbers: Floats) -> int:
        """Return the step of each group's number, of shape (K,); missing for groups not seen."""
        return program.take([math.nan, *numbers], program.group(self.columns, self.levels))

    def in_each_group(self, table: Table) -> tuple[tuple[tuple[str, ...], ...], Floats]:
        """Return the groups, and what each row would get in each of them, shape (n, K)."""
        inputs, codes = TableInputs(table), np.empty(len(table), dtype=np.int64)

        def there(step: Step, block: Block) -> Any:
            return codes[block] if step.operation == "group" else inputs(step, block)

        each = []
        for k in range(len(self.levels)):
            codes[:] = k + 1
            each.append(run(self.compiled_rule, there, len(table)))
        return self.levels, np.stack(each, axis=-1)

    def of_group(self, k: int, score: Floats) -> Floats:
        """Return P(decision = 1) at scores ``2 p - 1`` of one group, same shape, where nothing else is looked at."""
        given = {"group": np.full(score.size, k + 1), "ranking": score}
        return run(self.compiled_rule, lambda step, block: given[step.operation][block], score.size)


def unseen_error(table: Table, columns: Sequence[str], unseen: Bools, where: str, base: str) -> DataError:
    """Return the error of rows, (n,), of groups that were not in the training rows.

    ``where``: the first row of the table; ``base``: the result of such rows with ``unseen=original``.
    """
    unknown = unseen_group(table.groups(columns), unseen, f"the {len(table):,} rows from row {where}")
    return DataError(f"{unknown}; repair again with such rows, or use `unseen=original` ({base}) or abstain")


def unseen_group(groups: Groups, unseen: Bools, every: str) -> str:
    """Return which group of the rows ``unseen``, (n,), was not in the training rows, with its number of ``every``."""
    codes = groups.codes[unseen]
    own = int(np.count_nonzero(codes == codes[0]))
    others = f", and {codes.size - own:,} of other such groups," if own < codes.size else ""
    columns = " x ".join(groups.columns)
    return (
        f"group {groups.names[int(codes[0])]!r} of {columns!r} was not in the training rows ({own:,}{others} of "
        f"{every})"
    )


MOST_GROUPS = 1 << 16
"""Groups that a saved rule may have: each has steps of its own, some 12 KB of memory."""

Levels = Annotated[tuple[tuple[str, ...], ...], Meta(min_length=1, max_length=MOST_GROUPS)]
PER_GROUP = Array("<f8", ("groups",))

SHARE = Array("<f8", (None,), 0.0, 1.0)

CURVES = EndToEnd(
    Piecewise,
    "knots",
    {"knots": Array("<f8", (None,)), "left": SHARE, "at": SHARE, "right": SHARE},
    "groups",
    lambda curve: bool((np.diff(curve.knots) > 0).all()),
)
"""Saved form of a curve of each group."""


@dataclass(frozen=True, eq=False)
class GroupwiseRamp(OfGroups):
    r"""A ramp per group on the score ``f = 2 p - 1``.

    .. math:: P(\text{decision} = 1 \mid f, k) = \mathrm{clip}((f - t_k) / \gamma,\, 0,\, 1)
    """

    kind: ClassVar[str] = "groupwise_ramp"
    randomized: ClassVar[bool] = True

    offsets: Annotated[Floats, PER_GROUP]
    remainders: Annotated[Floats, PER_GROUP]
    """``t_k = offsets[k] + remainders[k]``, shape (K,) each; see :mod:`fairfix.solvers.ramp`."""
    gamma: Annotated[float, Meta(gt=0), Setting()]
    """Width of the ramp."""

    @property
    def variation(self) -> Floats:
        """At most 1 each: a ramp only rises."""
        return np.ones(len(self.levels))

    def write(self, program: Program) -> int:
        """Write the ramp of each row's group at its score."""
        score = program.add("subtract", program.ranking, self.number_of_group(program, self.offsets))
        if self.remainders.any():
            score = program.add("subtract", score, self.number_of_group(program, self.remainders))
        return program.clip(program.add("divide", score, program.constant(self.gamma)), 0.0, 1.0)

    def knots(self, data_spec: DataSpec) -> Sequence[Floats]:
        """Return where each group's ramp begins and ends."""
        begin = self.offsets + self.remainders
        return [*from_ranking(np.stack([begin, begin + self.gamma], axis=1), data_spec.score_scale)]


class OfCurves(OfGroups):
    """A predictor that has a piecewise linear rule for each group, ``curves[k]``, on a score ``2 p - 1``."""

    curves: tuple[Piecewise, ...]

    @property
    def randomized(self) -> bool:
        """Whether some curve takes a value strictly between 0 and 1."""
        return not all(curve.sharp for curve in self.curves)

    def write(self, program: Program) -> int:
        """Write the curve of each row's group at its score."""
        return self.by_group(program, lambda k: program.curve(self.curves[k], self.ranked(program, k)))

    @abstractmethod
    def ranked(self, program: Program, k: int) -> int:
        """Write the score ``2 p - 1`` that the curve of group ``k`` looks at."""


@dataclass(frozen=True, eq=False)
class GroupwiseCurve(OfCurves):
    r"""A piecewise linear rule per group on the score ``f = 2 p - 1``, recalibrated first where there is a map.

    Of a raw score ``f`` is the score itself; then there is no map.

    .. math:: P(\text{decision} = 1 \mid f, k) = g_k(f) \quad\text{or}\quad
        g_k(2\, \sigma(a_k \operatorname{logit} p + b_k) - 1)

    Thresholds with a tie probability, ramps with a slope of their own, steps of a recalibrated score and their
    mixtures with constants are all of this form.
    """

    kind: ClassVar[str] = "groupwise_curve"

    curves: Annotated[tuple[Piecewise, ...], CURVES]
    sigmoid: Annotated[Floats | None, Array("<f8", ("groups", 2), optional=True)] = None
    """``(a_k, b_k)``, shape (K, 2); None where the score is taken as it is."""

    @property
    def variation(self) -> Floats:
        """Those of the curves; a map before them rises or falls, which changes none."""
        return np.array([curve.variation for curve in self.curves])

    def ranked(self, program: Program, k: int) -> int:
        """Write the model's own score, recalibrated where there is a map."""
        if self.sigmoid is None:
            return program.ranking
        slope, shift = self.sigmoid[k].tolist()
        logit = program.add("score_logit", program.ranking)
        return program.affine(program.add("expit", program.affine(logit, slope, shift)), 2.0, -1.0)

    def knots(self, data_spec: DataSpec) -> Sequence[Floats]:
        """Return the knots of each group's curve."""
        knots = [curve.knots for curve in self.curves]
        if self.sigmoid is not None:
            knots = [sigmoid_inverse(x, *ab) for x, ab in zip(knots, self.sigmoid.tolist(), strict=True)]
        return [from_ranking(x, data_spec.score_scale) for x in knots]


@dataclass(frozen=True, eq=False)
class BinnedRule(OfGroups):
    """One probability of a positive decision for all scores of a bin, group by group: the rules that counts determine.

    A score is taken as it comes, so that no rounding moves it over an edge. A rule for all groups has no
    columns and one empty tuple of levels.
    """

    kind: ClassVar[str] = "binned_rule"

    edges: Annotated[Floats, Array("<f8", ("edges",))]
    """The least score of each bin but the first, increasing, shape (B - 1,)."""
    probabilities: Annotated[Floats, Array("<f8", ("groups", None), 0.0, 1.0)]
    """Shape (K, B)."""

    @classmethod
    def of(cls, columns: Any, levels: Any, starts: Floats, probabilities: Floats) -> BinnedRule:
        """Return the rule of bins that begin at ``starts``, (B,), with neighbours of equal probabilities as one bin."""
        new = np.concatenate([[True], (np.diff(probabilities, axis=1) != 0).any(axis=0)])
        return cls(columns, levels, starts[new][1:].copy(), probabilities[:, new].copy())

    @property
    def sound(self) -> bool:
        """Whether edges increase, and there is a chance for each bin."""
        rising = bool((np.diff(self.edges) > 0).all())
        return super().sound and rising and self.probabilities.shape[1] == self.edges.size + 1

    @property
    def randomized(self) -> bool:
        """Whether some chance is neither 0 nor 1."""
        return not bool(np.isin(self.probabilities, (0.0, 1.0)).all())

    def knots(self, data_spec: DataSpec) -> Sequence[Floats]:
        """Return the edges of the bins, which all groups have."""
        return [self.edges] * len(self.levels)

    def bins(self, score: Floats) -> Ints:
        """Return the bin of each score, same shape."""
        return np.searchsorted(self.edges, score, side="right")

    def write(self, program: Program) -> int:
        """Write the chance of each row's group in the bin of its score."""
        place = program.search(self.edges, program.score, right=True)
        return self.by_group(program, lambda k: program.take(self.probabilities[k], place))

    def of_each_group(self, table: Table) -> tuple[tuple[tuple[str, ...], ...], Floats] | None:
        """Return each group's chance at the scores, unless there is one rule."""
        return self.in_each_group(table) if self.columns else None
