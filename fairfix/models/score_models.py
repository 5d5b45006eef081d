"""Scorers, and the predictors that look at one: scores moved, capped or decided group by group.

A :class:`Scorer` is where scores come from: the model's own score as it is, or a fitted member over a matrix of
features. A probability that a predictor makes of it can be read in two ways: as the chance of a draw, or rounded at a
threshold. What holds for one reading need not hold for the other, so a report shows error and gap of each reading
together and never mixes them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt

from fairfix.data.codec import (
    Array,
    Arrays,
    CodecState,
    EndToEnd,
    FieldForm,
    Inner,
    Setting,
    converted,
    need,
    shown,
)
from fairfix.data.counts import Floats, Ints
from fairfix.data.data_spec import DataSpec, from_ranking
from fairfix.data.table import Table
from fairfix.models.array_interpreter import TableInputs, run
from fairfix.models.features import Feature, FeatureInputs, Features, NewValues
from fairfix.models.members import Member
from fairfix.models.predictors import CURVES, OfCurves, OfGroups, RepairedPredictor, decided
from fairfix.models.program import Program, Rule
from fairfix.models.spline_basis import KINDS
from fairfix.schema.common import Part
from fairfix.solvers.piecewise import Piecewise
from fairfix.solvers.quantile_matching import EDGE, ScoreLevels, Tube

MODEL_SCORE = Features((Feature("score", "score"),))
"""Columns used where the model's score is taken as it is."""


class SavedMember(Part, frozen=True):
    """A fitted model by its kind, which checks the settings."""

    kind: str
    settings: Any


class SavedScorer(Part, frozen=True):
    """Settings of a scorer: of the model's score as it is, the bounds alone."""

    bounds: tuple[float, float] | None
    features: Any = None
    member: SavedMember | None = None


@dataclass(frozen=True, eq=False)
class Scorer:
    """Where scores come from: a member over features, or the model's score as it is where there is no member."""

    features: Features = MODEL_SCORE
    member: Member | None = None
    bounds: tuple[float, float] | None = None
    """Least and greatest value, which others are moved to; None for no bounds."""

    def __call__(self, table: Table) -> Floats:
        """Return the score of each row, shape (n,), or probabilities of classes, shape (n, K)."""
        return run(self.rule, FeatureInputs(table), len(table))

    @cached_property
    def rule(self) -> Rule:
        """The scorer as a program."""
        program = Program()
        if self.member is None:
            out = program.add("probability")
        else:
            out = self.member.write(program, self.features.write(program, gaps=self.member.sees_gaps))
        if self.bounds is not None:
            if (many := self.classes_given) is None:
                out = program.clip(out, *self.bounds)
            else:
                each = (program.add("pick", out, place=k) for k in range(many))
                out = program.stack([program.clip(one, *self.bounds) for one in each])
        return program.rule(out)

    @property
    def classes_given(self) -> int | None:
        """Number of classes whose probabilities a row gets; None for one number."""
        return None if self.member is None else self.member.classes_given

    def bounded(self, scores: Floats) -> Floats:
        """Return scores moved into the bounds."""
        return scores if self.bounds is None else np.clip(scores, *self.bounds)

    def state(self) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
        """Return JSON settings and named arrays."""
        bounds = None if self.bounds is None else list(self.bounds)
        if self.member is None:
            return {"bounds": bounds}, {}
        settings, arrays = self.member.state()
        member = {"kind": self.member.kind, "settings": settings}
        return {"bounds": bounds, "features": self.features.state(), "member": member}, arrays

    @classmethod
    def from_state(cls, settings: Any, arrays: Arrays) -> Scorer:
        """Return the scorer of a saved state; an ArtifactError or ValueError where it does not fit together."""
        held = converted(settings, SavedScorer)
        if held.member is None:
            need(held.features is None and not arrays, "an unchanged score has features or arrays")
            return cls(bounds=held.bounds)
        need(held.member.kind in KINDS, f"{shown(held.member.kind)} is no kind of fitted model")
        features = Features.from_state(held.features)
        made = KINDS[held.member.kind].from_state(held.member.settings, arrays)
        gaps = sum(one.missing for one in features.columns) if made.sees_gaps else 0
        width = len(features.titles) - gaps  # a matrix with gaps has no indicators of them
        need(made.width in (None, width), "a component has another number of features")
        return cls(features, made, held.bounds)


@dataclass(frozen=True)
class ScorerPart(FieldForm):
    """Saved form of a scorer: its arrays have the name of the part and a point before their own."""

    one_number: bool = True
    """Whether a row must get one number of it."""

    def save(self, name: str, value: Any, state: CodecState) -> None:
        """Put the scorer into the state."""
        state.settings[name], arrays = value.state()
        state.arrays.update({f"{name}.{own}": array for own, array in arrays.items()})

    def load(self, name: str, state: CodecState) -> Scorer:
        """Take the scorer out of the state."""
        made = Scorer.from_state(state.setting(name), state.under(f"{name}."))
        need(not self.one_number or made.classes_given is None, f"{name!r} gives more than one number")
        return made


@dataclass(frozen=True)
class ScorersPart(FieldForm):
    """Saved form of several scorers: a list of settings, arrays by stem and number; ``many`` is the list's length."""

    stem: str
    many: str

    def save(self, name: str, value: Any, state: CodecState) -> None:
        """Put the scorers into the state."""
        states = [one.state() for one in value]
        state.settings[name] = [settings for settings, _ in states]
        for i, (_, arrays) in enumerate(states):
            state.arrays.update({f"{self.stem}{i}.{own}": array for own, array in arrays.items()})

    def load(self, name: str, state: CodecState) -> tuple[Scorer, ...]:
        """Take the scorers out of the state."""
        settings = Setting(self.many, tuple[Any, ...]).load(name, state)
        return tuple(
            Scorer.from_state(one, state.under(f"{self.stem}{i}.")) for i, one in enumerate(settings)
        )


class OfScorers(RepairedPredictor):
    """A predictor that looks at scorers."""

    @property
    def scorers(self) -> tuple[Scorer, ...]:
        """All scorers it looks at: those among its fields."""
        held = [one if isinstance(one, tuple) else (one,) for one in vars(self).values()]
        return tuple(one for few in held for one in few if isinstance(one, Scorer))

    @property
    def gives(self) -> Literal["decision", "value", "class"]:
        """Kind of a prediction: a value."""
        return "value"

    @property
    def needs_score(self) -> bool:
        """Whether the model's score is looked at."""
        return any(one.kind == "score" for scorer in self.scorers for one in scorer.features.columns)

    @property
    def inputs(self) -> tuple[str, ...]:
        """Group columns that prediction looks at."""
        of_scorers = (name for scorer in self.scorers for name in scorer.features.groups)
        return tuple(dict.fromkeys((*super().inputs, *of_scorers)))

    @property
    def features(self) -> Mapping[str, str]:
        """Feature columns that prediction looks at, with their kinds."""
        return {name: one.kind for name, one in self._columns.items()}

    @cached_property
    def _columns(self) -> dict[str, Feature]:
        columns = (one for scorer in self.scorers for one in scorer.features.columns)
        return {one.name: one for one in columns if one.kind not in ("group", "score")}

    def new_values(self, table: Table) -> dict[str, NewValues]:
        """Return, by feature, how many rows of a table have a value that no training row had."""
        by_feature = {name: one.new_values(table) for name, one in self._columns.items()}
        return {name: new for name, new in by_feature.items() if new.missing or new.others}

    def of_scores(self, table: Table, *scores: Floats) -> Floats:
        """Return what the rows of a table get where the scorers, in order, give these scores, (n,) or (n, K) each."""
        return run(self.compiled_rule, TableInputs(table, self._given(scores)), len(table))

    def redrawn_of_scores(self, table: Table, *scores: Floats) -> Callable[[Table, Ints], Floats]:
        """Return what predicts rows of a table under new draws, where the scorers give these scores."""
        return self._redrawn(TableInputs(table, self._given(scores)))

    def _given(self, scores: Sequence[Floats]) -> dict[int, Floats]:
        return {id(one): given for one, given in zip(self.scorers, scores, strict=False)}

    def unrepaired(self, table: Table) -> Floats:
        """Return the first scorer's score of each row, decided at the threshold where predictions are decisions."""
        if self.gives == "value":
            return self.scorers[0](table)
        return decided(table, self.scorers[0](table) if table.rows.score is None else table.rows.score)


@dataclass(frozen=True, eq=False)
class Unrepaired(OfScorers):
    """The scores of a scorer as they are: what a repair is compared with."""

    kind: ClassVar[str] = "unrepaired"

    scorer: Annotated[Scorer, ScorerPart()]

    def write(self, program: Program) -> int:
        """Write the score."""
        return program.scorer(self.scorer)


@dataclass(frozen=True, eq=False)
class GroupedScore(OfScorers, OfGroups):
    """One score, which a rule changes in each group.

    One rule for all groups has no columns and one empty tuple of levels.
    """

    scorer: Annotated[Scorer, ScorerPart()]


def _are_levels(one: ScoreLevels) -> bool:
    """Tell whether atoms do not overlap, and their levels increase from 0 to 1 at most."""
    scores, levels = (np.stack(pair, axis=1).ravel() for pair in ((one.first, one.last), (one.low, one.high)))
    ordered = (np.diff(scores) >= 0).all() and (np.diff(one.first) > 0).all() and (np.diff(levels) >= 0).all()
    return bool(ordered)


NUMBER, LEVEL = Array("<f8", (None,)), Array("<f8", (None,), 0.0, 1.0)
ATOMS = {"first": NUMBER, "last": NUMBER, "low": LEVEL, "high": LEVEL}
TUBE = {
    "levels": EndToEnd(ScoreLevels, "atoms", ATOMS, "groups", _are_levels),
    "outputs": Array("<f8", (None,), optional=True),
    "steps": Array("<f8", ("groups", None), 0.0, 1.0),
}
"""Saved form of a tube."""


@dataclass(frozen=True, eq=False)
class GroupTube(GroupedScore):
    r"""A score moved into a tube of distributions, group by group; see :mod:`fairfix.solvers.quantile_matching`."""

    kind: ClassVar[str] = "group_tube"

    tube: Annotated[Tube, Inner(Tube, TUBE)]

    @property
    def sound(self) -> bool:
        """Whether values rise, if there are any, and steps with them to 1."""
        outputs, steps = self.tube.outputs, self.tube.steps
        many = 0 if outputs is None else outputs.size
        fits = super().sound and steps.shape[1] == many
        if outputs is None or not (fits and many):
            return fits and outputs is None
        return bool(
            (np.diff(outputs) >= 0).all() and (np.diff(steps) >= 0).all() and (steps[:, -1] == 1).all()
        )

    @property
    def randomized(self) -> bool:
        """Whether some rows get a value that is drawn."""
        return self.tube.drawn

    @property
    def variation(self) -> Floats | None:
        """At most 1 each, as values rise with the score; None where the score was learned."""
        return np.ones(len(self.levels)) if self.scorer.member is None else None

    def moved(self, table: Table) -> Floats:
        """Return what of each row is moved, shape (n,): its score."""
        return self.scorer(table)

    def write_moved(self, program: Program) -> int:
        """Write what of each row is moved."""
        return program.scorer(self.scorer)

    def write(self, program: Program) -> int:
        """Write the value; a score between two atoms lies as far between the values at their ends."""
        score = self.write_moved(program)
        if self.tube.outputs is None:
            return self.by_group(program, lambda k: score)
        return self.by_group(program, lambda k: self._of_atoms(program, k, score)[0])

    def write_drawn(self, program: Program) -> int | None:
        """Write whether the levels of a row reach over several values."""
        if self.tube.outputs is None:
            return None
        score = self.write_moved(program)
        return self.by_group(program, lambda k: self._of_atoms(program, k, score)[1])

    def _of_atoms(self, program: Program, k: int, score: int) -> tuple[int, int]:
        """Write the value in group ``k``, and whether it is drawn."""
        one, ends, outputs, steps = (
            self.tube.levels[k],
            self.tube.ends[k],
            self.tube.new_scores,
            self.tube.steps,
        )
        place = program.search(one.first, score, right=True)  # 0 and 1 both mean the first atom

        def of_atom(numbers: Floats) -> int:
            return program.take([numbers[0], *numbers], place)

        def value_at(level: int) -> int:
            return program.take([*outputs, outputs[-1]], program.search(steps[k], level, right=True))

        span = np.append(one.first[1:] - one.last[:-1], 0.0)
        wide_span = of_atom(np.where(span > 0, span, 1.0))
        way = program.add("divide", program.add("subtract", score, of_atom(one.last)), wide_span)
        part = program.add("multiply", program.clip(way, 0.0, 1.0), of_atom((span > 0).astype(np.float64)))
        draw = program.clip(program.draw, EDGE, 1.0 - EDGE)
        level = program.add(
            "add", of_atom(one.low), program.add("multiply", draw, of_atom(one.high - one.low))
        )
        hangs, least = ends.least < ends.most, of_atom(ends.least)
        open_ = of_atom(hangs.astype(np.float64))
        on_atom = program.select(open_, [least, value_at(level)]) if hangs.any() else least
        right = np.append(ends.least[1:], ends.last[-1])
        rise = program.add("multiply", part, of_atom(right - ends.last))
        between = program.add("add", of_atom(ends.last), rise)
        inside = program.add("at_most", part, program.constant(0.0))
        zero, one_ = program.constant(0.0), program.constant(1.0)
        off = program.add("choose", inside, zero, one_)
        return program.select(off, [on_atom, between]), program.add("choose", inside, open_, zero)


@dataclass(frozen=True, eq=False)
class BinnedTube(GroupTube):
    """A tube of score bins: all scores of a bin and group have the same values with the same chances.

    The atoms of its tube are the numbers of the bins. A score is taken as it comes, so that no rounding moves it over
    an edge.
    """

    kind: ClassVar[str] = "binned_tube"

    edges: Annotated[Floats, Array("<f8", ("edges",))]
    """The least score of each bin but the first, increasing, shape (B - 1,)."""

    @classmethod
    def of(cls, tube: GroupTube, starts: Floats, middle: Floats) -> BinnedTube:
        """Return the tube of bins that begin at ``starts``, each with the values of the score in its middle, (B,) each.

        Where the tube leaves scores as they are, it is that middle itself.
        """
        new = np.diff(middle, prepend=-np.inf) > 0  # far out, log-odds of several bins are one probability
        starts, middle, own = starts[new], middle[new], tube.tube
        bins = np.arange(middle.size, dtype=np.float64)
        if own.outputs is None:
            level, upto = (bins + 0.5) / bins.size, np.append(bins[1:] / bins.size, 1.0)
            levels = tuple(ScoreLevels(bins, bins, level, level) for _ in tube.levels)
            made = Tube(levels, middle, np.tile(upto, (len(levels), 1)))
        else:
            made = replace(own, levels=tuple(_at_middles(one, bins, middle) for one in own.levels))
        return cls(tube.columns, tube.levels, tube.scorer, made, starts[1:].copy())

    @property
    def sound(self) -> bool:
        """Whether edges increase, every score has a value, and the atoms are the bins."""
        bins = np.arange(self.edges.size + 1)
        atoms = all(np.array_equal(ends, bins) for one in self.tube.levels for ends in (one.first, one.last))
        return (
            super().sound
            and self.tube.outputs is not None
            and atoms
            and bool((np.diff(self.edges) > 0).all())
        )

    def bins(self, score: Floats) -> Ints:
        """Return the bin of each score, same shape."""
        return np.searchsorted(self.edges, score, side="right")

    def moved(self, table: Table) -> Floats:
        """Return the bin of each score, shape (n,)."""
        return self.bins(table.scores).astype(np.float64)

    def write_moved(self, program: Program) -> int:
        """Write the bin of each score."""
        return program.search(self.edges, program.score, right=True)

    def share_from(self, cut: float) -> Floats:
        """Return the chance of a value of ``cut`` or more in each group and bin, shape (K, B)."""
        bins = np.arange(self.edges.size + 1, dtype=np.float64)
        out = np.zeros((len(self.levels), bins.size))
        for k in range(len(self.levels)):
            place, value, chance = self.tube.outcomes(k, bins)
            np.add.at(out[k], place, np.where(value >= cut, chance, 0.0))
        return np.clip(out, 0.0, 1.0)

    def outcomes(self, table: Table) -> tuple[Ints, Floats, Floats]:
        """Return all values that rows can get, over the draws: the row, a value and its chance for each, shape (m,).

        None of rows of groups that were not seen in the fit.
        """
        code, place = table.codes(self.columns, self.levels), self.moved(table)
        parts = []
        for k in range(len(self.levels)):
            inside = np.flatnonzero(code == k)
            number, value, chance = self.tube.outcomes(k, place[inside])
            parts.append((inside[number], value, chance))
        row, value, chance = (np.concatenate(column) for column in zip(*parts, strict=True))
        order = np.argsort(row, kind="stable")
        return row[order], value[order], chance[order]


def _at_middles(one: ScoreLevels, bins: Floats, middle: Floats) -> ScoreLevels:
    """Return the levels of bins whose scores have those of their middles; one level where there is no atom."""
    at = np.searchsorted(one.first, middle, side="right") - 1
    inside = (at >= 0) & (middle <= one.last[at])
    upto, after = np.append(one.high, 0.0)[at], np.append(one.low, 1.0)[at + 1]
    level = np.where(at < 0, 0.0, np.where(at + 1 < one.first.size, (upto + after) / 2, 1.0))
    low, high = (np.where(inside, ends[at], level) for ends in (one.low, one.high))
    return ScoreLevels(bins, bins, low, high)


@dataclass(frozen=True, eq=False)
class TruncatedLogit(GroupedScore):
    r"""A logistic score that is capped or lifted group by group; see :mod:`fairfix.solvers.robust_log_loss`."""

    kind: ClassVar[str] = "truncated_logit"
    is_probability: ClassVar[bool] = True

    prices: Annotated[Floats, Array("<f8", (2, "groups"))]
    """``c`` of each group if the label were 0 and if it were 1, shape (2, K); equal where the label has no part."""
    rounded: Annotated[bool, Setting()]
    """Whether decisions are rounded at the threshold instead of drawn."""

    @property
    def gives(self) -> Literal["decision", "value"]:
        """Kind of a prediction: a probability to draw with, or one to round."""
        return "value" if self.rounded else "decision"

    @property
    def randomized(self) -> bool:
        """Whether decisions are drawn."""
        return not self.rounded

    def write(self, program: Program) -> int:
        """Write the probability: of the row's label unknown, where prices of labels differ (eqs. 14 to 16)."""
        score, (zero, one) = program.scorer(self.scorer), self.prices
        of_1 = self._truncated(program, score, one)
        if np.array_equal(zero, one):
            return of_1
        of_0, whole = self._truncated(program, score, zero), program.constant(1.0)

        def adversary(chance: int, price: Floats) -> int:
            left = program.add("subtract", whole, chance)
            factor = program.add("multiply", self.number_of_group(program, price), left)
            return program.clip(program.add("multiply", chance, program.add("add", whole, factor)), 0.0, 1.0)

        q_0, q_1 = adversary(of_0, zero), adversary(of_1, one)
        total = program.add("add", program.add("subtract", whole, q_1), q_0)
        certain = program.add(
            "at_most", total, program.constant(1e-12)
        )  # both are sure of the label they get
        safe = program.add("choose", certain, whole, total)  # a database stops at a division by 0
        label = program.add("choose", certain, score, program.add("divide", q_0, safe))
        label = program.clip(label, 0.0, 1.0)
        parts = (
            program.add("multiply", label, of_1),
            program.add("multiply", program.add("subtract", whole, label), of_0),
        )
        return program.clip(program.add("add", *parts), 0.0, 1.0)

    def _truncated(self, program: Program, score: int, price: Floats) -> int:
        """Write the score between the ends of each group's price, shape (K,)."""
        floor, cap = 1.0 + 1.0 / np.minimum(price, -1.0), 1.0 / np.maximum(price, 1.0)
        lifted = program.add("maximum", score, self.number_of_group(program, floor))
        return program.add("minimum", lifted, self.number_of_group(program, cap))


@dataclass(frozen=True, eq=False)
class EstimatedLogit(TruncatedLogit):
    """A logistic score, capped or lifted by what a row is likely to be; see :mod:`fairfix.solvers.robust_log_loss`.

    A model of the features gives a row chances of classes, each a group, or a group and a label. The row pays the mean
    price of the classes of its own group, or of all classes where the group is not looked at: then there are no columns
    and one empty tuple of levels.
    """

    kind: ClassVar[str] = "estimated_logit"

    prices: Annotated[Floats, Array("<f8", ("classes",))]
    """``c`` of each class, shape (C,)."""
    classifier: Annotated[Scorer, ScorerPart(one_number=False)] = field(kw_only=True)
    """The model of the classes."""
    owners: Annotated[Ints, Array("<i8", ("classes",), 0)] = field(kw_only=True)
    """Number of the group, among the levels, that each class belongs to, shape (C,)."""

    @property
    def sound(self) -> bool:
        """Whether the model gives a chance for each class, and each group has a class."""
        own = np.unique(self.owners)
        return (
            super().sound
            and self.classifier.classes_given == self.prices.size
            and np.array_equal(own, np.arange(len(self.levels)))
        )

    def write(self, program: Program) -> int:
        """Write the probability: the score between the ends of the mean price of the row's classes."""
        score, by_class = program.scorer(self.scorer), program.class_scores(self.classifier)
        zero, one = program.constant(0.0), program.constant(1.0)

        def priced(k: int) -> int:
            own = np.flatnonzero(self.owners == k)
            of_group, prices = [by_class[j] for j in own], self.prices[own]
            total = program.total(of_group)
            nothing = program.add("equal", total, zero)  # chances that are too small for floats
            safe = program.add("choose", nothing, one, total)  # a database stops at a division by 0
            each = [program.add("divide", chance, safe) for chance in of_group]
            alike = float(sum(price / own.size for price in prices.tolist()))
            return program.add("choose", nothing, program.constant(alike), program.dot(each, prices))

        price = self.by_group(program, priced)
        cap = program.add("divide", one, program.add("maximum", price, one))
        lowest = program.add("minimum", price, program.constant(-1.0))
        floor = program.add("add", one, program.add("divide", one, lowest))
        return program.add("minimum", program.add("maximum", score, floor), cap)


@dataclass(frozen=True, eq=False)
class ScoreCurves(OfCurves, GroupedScore):
    r"""A piecewise linear rule on ``f = 2 s - 1`` for a score ``s``: one per group, or one for all groups.

    .. math:: P(\text{decision} = 1 \mid f, k) = g_k(f)
    """

    kind: ClassVar[str] = "score_curves"
    gives: ClassVar[Literal["decision"]] = "decision"

    curves: Annotated[tuple[Piecewise, ...], CURVES]

    def ranked(self, program: Program, k: int) -> int:
        """Write ``f``."""
        return program.affine(program.scorer(self.scorer), 2.0, -1.0)

    def knots(self, data_spec: DataSpec) -> Sequence[Floats] | None:
        """Return the knots of each group's curve; None where they are of a score that the fit has made."""
        if self.scorer.member is not None:
            return None
        return [from_ranking(curve.knots, data_spec.score_scale) for curve in self.curves]

    def of_each_group(self, table: Table) -> tuple[tuple[tuple[str, ...], ...], Floats] | None:
        """Return each curve at the scores, unless there is one rule or the score looks at the group too."""
        return None if not self.columns or self.scorer.features.groups else self.in_each_group(table)
