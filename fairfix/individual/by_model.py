r"""Individual fairness of a model: what it says of a person, and of the same person changed in what does not count.

Let ``x_k`` be row ``x`` under flip ``k`` (see :mod:`fairfix.individual.flips`), ``h`` the score, ``d`` the decision.
Over the rows:

* ``decision_flips``: ``P(d(x_k) is not the same for all k)``; for a decision drawn with probability ``p`` by the
  person's own draw, ``E[max_k p(x_k) - min_k p(x_k)]``
* ``score_change``: ``E[max_k h(x_k) - min_k h(x_k)]``
* ``score_effect``: ``max_{a,b} |E[h(x_a) - h(x_b)]|``, all people flipped to one level, then to another
* ``transport_cost``: ``E[max_k (logit h(x_k) - logit h(x))^2]``: SenSeI's transport regularizer at radius 0, log-odds
  kept within 8

Each is of one of three kinds of flips: ``under_flips`` of the attribute's levels; ``under_comparable``, where rows
with one of the comparable values get each of the others; ``under_everybody``, where every row gets each comparable
value, as in the paper's *spouse consistency*, single people too.

Copies of people (:mod:`fairfix.individual.counterfactuals`) are a fourth kind, ``under_counterfactuals``: ``k`` goes
over the person's row and all copies, and the mean is over those who have copies. Two more numbers are of copies only:

* ``counterfactual_gap``: ``E[mean_k |h(x_k) - h(x)|]``, ``k`` over the copies (CTF, Garg et al. 2019)
* ``score_std``: ``E[std_k h(x_k)]``, ``k`` over the person's row and the copies (CTF of SenSeI's paper)

From scores alone, without a model: :func:`of_scores` compares rows that are equal in all other columns
(``matched_effect``) and what other columns do not foretell (``residual_effect``), see
:mod:`fairfix.individual.contrasts`.

References
----------
M. Yurochkin and Y. Sun, *SenSeI: sensitive set invariance for enforcing individual fairness*, ICLR 2021.
S. Garg et al., *Counterfactual fairness in text classification through robustness*, AIES 2019.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations
from operator import attrgetter
from typing import TYPE_CHECKING

import numpy as np

from fairfix.auditing.results import first_of
from fairfix.data.counts import Floats
from fairfix.data.data_spec import DataSpec, to_probability
from fairfix.data.files import NO_TYPES, Source, Types
from fairfix.data.names import attribute_name
from fairfix.data.scan import read_table
from fairfix.data.table import Table
from fairfix.errors import DataError, FairfixError, UsageError
from fairfix.individual.copied import alone_tells
from fairfix.individual.counterfactuals import Counterfactuals
from fairfix.individual.flips import Flip, check_comparable, concerned, flipped, protected_flips
from fairfix.individual.matched import MatchedContrast, keys_of, matched_effect
from fairfix.individual.residual import ResidualContrast, residual_effect
from fairfix.individual.similar import Comparable
from fairfix.models.features import Features
from fairfix.models.predictors import RepairedPredictor
from fairfix.schema.common import Estimate, PairGap, SavedComparison, comparison, estimate, no_number, number
from fairfix.solvers.transport import regularizer_empirical
from fairfix.stats.estimates import Means, Proportions, powers

if TYPE_CHECKING:
    from fairfix.models.user_file import ScoringModel

FARTHEST = 8.0
"""Log-odds are kept within this of 0 before they are compared."""

MATCHED, RESIDUAL = (f"{metric}_effect.difference.between_groups" for metric in ("matched", "residual"))

UNSEEN = "some rows, once changed, belong to groups that the training rows lack"
"""Why nothing is known of flips that a predictor has no answer to."""


@dataclass(frozen=True)
class Judge:
    """The model that is audited: its scores, and how they decide.

    Attributes
    ----------
    score
        Table -> scores, shape (n,).
    cut
        The decision threshold; None where there is no decision.
    chance
        Whether the score is the probability of a positive decision that is drawn.
    is_probability
        Whether it is a probability at all.
    looks_at
        Columns that it looks at; None where nobody knows.
    blind
        What to say where it looks at none of those that are changed.
    decision
        Table -> decisions or their chances, where these are not made of the score.
    """

    score: Callable[[Table], Floats]
    cut: float | None = None
    chance: bool = False
    is_probability: bool = True
    looks_at: frozenset[str] | None = None
    blind: str = ""
    decision: Callable[[Table], Floats] | None = None


Compared = Callable[[Table, Sequence[Flip], str, Comparable], Iterable[SavedComparison]]
"""Compares what rows get under flips: the rows, the flips, the name of their kind, the comparable values changed."""


def of_each_attribute(
    table: Table, comparable: Comparable, compare: Compared
) -> dict[str, list[SavedComparison]]:
    """Return what flips of each protected column, and of all, do: attribute -> comparisons.

    Comparable values are with the last attribute: for the rows that have them, and for all rows.
    """
    asked = _attributes(table)
    out = {
        attribute_name(columns): [*compare(table, protected_flips(table, columns), "under_flips", ())]
        for columns in asked
    }
    if comparable:
        out[attribute_name(asked[-1])] += under_comparable(table, comparable, compare)
    return out


def under_comparable(table: Table, comparable: Comparable, compare: Compared) -> Iterator[SavedComparison]:
    """Yield the effects of changes of comparable values: for the rows that have them, and for all rows."""
    flips = protected_flips(table, (), comparable)
    inside = np.logical_and.reduce([concerned(table, *one) for one in comparable])
    if inside.any():
        yield from compare(table.take(np.flatnonzero(inside)), flips, "under_comparable", comparable)
    else:
        yield _undefined(
            "decision_flips.under_comparable", "no row has comparable values in every named column"
        )
    everybody = [replace(flip, everybody=True) for flip in flips]
    yield from compare(table, everybody, "under_everybody", comparable)


def under_counterfactuals(
    table: Table, copies: Counterfactuals, judge: Judge, confidence: float
) -> Iterator[SavedComparison]:
    """Yield what is different for copies of the people in a table: numbers of one unit per person who has any."""
    people, of, changed, counted = copies.by_person(table)
    if not people.size:
        yield _undefined("decision_flips.under_counterfactuals", "none of these rows has a copy")
        return
    own = table.take(people)
    blind = judge.looks_at is not None and not judge.looks_at & copies.columns
    tables = (own, own.take(of) if blind else changed)  # columns it does not look at may be missing
    score, others = (judge.score(one) for one in tables)
    reason = (blind and judge.blind) or counted
    reason = UNSEEN if np.isnan(others).any() or np.isnan(score).any() else reason
    weight, alpha, top = own.weight, 1.0 - confidence, 1.0 if judge.is_probability else math.inf

    def widest(one: Floats, all_copies: Floats) -> Floats:
        high, low = one.copy(), one.copy()
        np.maximum.at(high, of, all_copies)
        np.minimum.at(low, of, all_copies)
        return np.asarray(high - low)

    def mean(
        metric: str, x: Floats, largest: float, how: Callable[..., Estimate] = mean_of
    ) -> SavedComparison:
        value = unchanged(reason) if blind else how(x, weight, (0.0, largest), alpha, reason)
        return comparison(f"{metric}.under_counterfactuals", value)

    decided_by = None
    if judge.decision is not None:
        decided_by = tuple(map(judge.decision, tables))
    elif judge.chance:
        decided_by = score, others
    elif judge.cut is not None:
        decided_by = tuple(np.where(np.isnan(one), np.nan, one >= judge.cut) for one in (score, others))
    if decided_by is not None:
        yield mean("decision_flips", widest(*decided_by), 1.0, mean_share)
    yield mean("score_change", widest(score, others), top)
    away, many = others - score[of], np.bincount(of)
    yield mean("counterfactual_gap", np.bincount(of, np.abs(away)) / many, top)
    shift = np.bincount(of, away) / (many + 1)
    square = np.bincount(of, (away - shift[of]) ** 2) + shift**2
    yield mean("score_std", np.sqrt(square / (many + 1)), top / 2)
    if judge.is_probability:
        logit, there = _log_odds(score), _log_odds(others)
        worst = np.zeros(people.size)
        np.maximum.at(worst, of, (there - logit[of]) ** 2)
        yield mean("transport_cost", worst, 4 * FARTHEST**2)


def readable_table(
    source: Source,
    data_spec: DataSpec,
    features: Sequence[str] | None,
    more: Types = NO_TYPES,
) -> Table:
    """Return the rows with feature columns and, among these, the protected columns as they come, and ``more``."""
    roles = [name for name in data_spec.columns.protected if features is None or name in features]
    source.require(roles)
    names = None if features is None else [name for name in features if name not in roles]
    return read_table(
        source, data_spec, names, {name: source.schema.field(name).type for name in roles} | dict(more)
    )


def judge_of_model(data_spec: DataSpec, model: ScoringModel) -> Judge:
    """Return a model file as a judge of a :func:`readable_table`."""
    decides, scale = model.score_scale == "decision", data_spec.score_scale
    is_probability = not decides and scale != "raw" and data_spec.task == "classification"
    names = list(model.feature_names)

    def score(rows: Table) -> Floats:
        scores = model.score(rows.features.select(names).to_pandas())
        return to_probability(scores, scale) if is_probability else scores

    cut = 0.5 if decides else data_spec.threshold
    if cut is not None and is_probability:
        cut = data_spec.cut
    blind = "the model does not use these columns"
    return Judge(score, cut, is_probability=is_probability, looks_at=frozenset(names), blind=blind)


def judge_of_scores(data_spec: DataSpec) -> Judge:
    """Return the scores or decisions that rows come with as a judge of them."""
    decided = data_spec.decided
    plain = data_spec.task == "regression" or data_spec.score_scale == "raw" or not data_spec.columns.score

    cut = data_spec.threshold if plain else data_spec.cut
    by = attrgetter("decisions") if decided else None
    return Judge(_score_of, None if decided else cut, is_probability=not plain, decision=by)


def of_counterfactuals(
    table: Table, judge: Judge, copies: Counterfactuals, confidence: float
) -> dict[str, list[SavedComparison]]:
    """Return what is different for copies of people: all protected columns together -> comparisons."""
    where = attribute_name(table.data_spec.columns.protected)
    return {where: [*under_counterfactuals(table, copies, judge, confidence)]}


def of_model(
    table: Table, model: ScoringModel, comparable: Comparable, confidence: float, radius: float | None = None
) -> dict[str, list[SavedComparison]]:
    """Return what flips do to a model: attribute -> comparisons; comparable values are with the last.

    The table is a :func:`readable_table`. With a ``radius``, a mean squared distance, :func:`within_radius` is added.

    Raises
    ------
    ColumnError, UsageError
        A comparable value is not there, there are too many flips, or a radius is given and the model's scores are no
        probabilities.
    """
    check_comparable(table, comparable)
    judge = judge_of_model(table.data_spec, model)
    out = of_each_attribute(table, comparable, partial(compared, judge, confidence))
    if radius is not None:
        if not judge.is_probability:
            raise UsageError(
                "`similar`: near(radius=...) compares log-odds, so the model must give probabilities"
            )
        columns = table.data_spec.columns.protected
        out[attribute_name(columns)].append(
            within_radius(table, columns, judge, radius, confidence, comparable)
        )
    return out


def _attributes(table: Table) -> list[tuple[str, ...]]:
    """Return each protected column, and all of them together, last."""
    columns = table.data_spec.columns.protected
    return list(dict.fromkeys([*((name,) for name in columns), columns]))


def of_scores(table: Table, confidence: float) -> tuple[dict[str, list[SavedComparison]], tuple[str, ...]]:
    """Return what scores alone tell of the effect of each protected attribute, and the columns that were left aside.

    ``table`` has the columns that the score may depend on, see :func:`readable_table`; the intervals of an attribute
    hold together. Nothing is said where a column may be a copy of the score, see :mod:`fairfix.individual.copied`.
    DataError where there is no score and no decision, or no column that could be held equal.
    """
    score, weight = _score_of(table), table.rows.weight
    roles = table.data_spec.columns.protected
    features, aside = [], []
    for name in table.features.column_names:
        if name in roles:
            continue
        try:
            Features.learn(table, [name])
            features.append(name)
        except FairfixError:
            aside.append(name)
    copied = _copied(table, features, score)
    out = {}
    for attribute in roles:
        others = [name for name in roles if name != attribute]
        if not features and not others:
            raise DataError(
                "there is no other column to hold equal; name some with `features`, or give the model "
                "file with `model`"
            )
        groups = table.groups([attribute])
        many = len(groups.levels)
        if many < 2:
            out[attribute] = [_undefined(name, "there is only one group") for name in (MATCHED, RESIDUAL)]
            continue
        if copied:
            out[attribute] = [_undefined(name, copied) for name in (MATCHED, RESIDUAL)]
            continue
        keys = keys_of(table, [*features, *others])
        level = 1.0 - (1.0 - confidence) / math.comb(many, 2)
        matched = matched_effect(score, groups.codes, keys, weight, confidence=level)
        X = Features.learn(table, features, others).matrix(table, gaps=True)
        level = 1.0 - (1.0 - confidence) / (many if many > 2 else 1)
        left = residual_effect(score, groups.codes, X, weight, confidence=level)
        out[attribute] = [
            _largest(MATCHED, matched.pairs, groups.names, f"{matched.coverage:.1%} of rows have an equal"),
            _largest(RESIDUAL, left, groups.names),
        ]
    return out, tuple(aside)


def _copied(table: Table, features: Sequence[str], score: Floats) -> str:
    """Return why nothing is said of an effect given some columns; empty where none may be a copy of the score."""
    described = {
        name: alone_tells(score, keys_of(table, [name])[:, 0], table.rows.weight) for name in features
    }
    copies = ", ".join(f"{name!r} ({what})" for name, what in described.items() if what)
    if not copies:
        return ""
    return (
        f"columns that may be made from the score: {copies}; leave them out of `features`, or, if the score is made "
        "from them, give the model with `model`"
    )


def _score_of(table: Table) -> Floats:
    """Return probabilities or scores, or decisions where there are no scores."""
    if table.rows.score is None:
        if table.rows.decision is None:
            raise DataError("there is no score and no decision; name one with `score`")
        return table.rows.decision
    plain = table.data_spec.task == "regression" or table.data_spec.score_scale == "raw"
    return table.rows.score if plain else table.probability


def _undefined(identifier: str, why: str, undefined: tuple[str, ...] = ()) -> SavedComparison:
    """Return a comparison without a value."""
    return comparison(identifier, no_number(why), undefined=undefined)


def _largest(
    identifier: str,
    contrasts: Sequence[MatchedContrast | ResidualContrast],
    names: tuple[str, ...],
    reason: str = "",
) -> SavedComparison:
    """Return the largest difference of what can be judged; undefined is what cannot, with the reasons."""
    decided, undecided = (dict[tuple[str, str], MatchedContrast | ResidualContrast]() for _ in range(2))
    for one in contrasts:
        sides = names[one.first], "all other rows" if one.second is None else names[one.second]
        (decided if one.undecided is None else undecided)[sides] = one
    unknown = tuple(map(" / ".join, undecided))
    if not decided:
        whys = (str(one.undecided) for one in undecided.values())
        return _undefined(identifier, next(whys, "there is nothing to compare"), unknown)
    pairs = tuple(PairGap(groups=sides, value=number(one.value)) for sides, one in decided.items())
    (first, second), top = max(decided.items(), key=lambda item: abs(item[1].value))
    if isinstance(top, ResidualContrast):
        reason = (
            f"over the {top.overlap:.1%} of rows where the groups overlap; a group-blind score of the same columns "
            f"shows {abs(top.blind):.2g} ± {top.blind_error:.1g}"
        )
    ends = _of_any((one.low, one.high) for one in decided.values())
    value = estimate(abs(top.value), *ends, reason)
    higher = (first, second) if top.value >= 0 else (second, first)
    return comparison(identifier, value, higher, undefined=unknown, pairs=pairs)


def _of_any(limits: Iterable[tuple[float, float]]) -> tuple[float, float]:
    """Return the limits of the largest difference, whatever its sign, from those of all."""
    ends = [(max(low, -high, 0.0), max(high, -low)) for low, high in limits]
    return max(low for low, _ in ends), max(high for _, high in ends)


NEIGHBOURS, QUERIES, REFERENCES = 20, 5_000, 20_000
"""Nearest rows that a row may move to, rows that move, and rows that they may move to, at most."""


def within_radius(
    table: Table,
    columns: Sequence[str],
    judge: Judge,
    radius: float,
    confidence: float,
    comparable: Comparable = (),
) -> SavedComparison:
    r"""Return SenSeI's transport regularizer at a radius, on the rows there are.

    .. math:: \hat R(\epsilon) = \inf_{\lambda \ge 0}\; \lambda \epsilon + \frac1n \sum_i
        \max\Big(0, \max_{j, k}\; (h(x_{jk}) - h(x_i))^2 - \lambda\, d(x_i, x_j)^2\Big)

    over the nearest rows ``j`` of each row and all flips ``k`` of these, with log-odds ``h`` and distances between the
    other columns by the metric of a repair, see :attr:`fairfix.models.features.Features.reach`: numbers in standard
    deviations (of these rows), 1 for another category, 0 for what is flipped. Rows move to rows that there are, so it
    is a lower bound of the regularizer of a repair, whose rows move freely between the least and the greatest values.
    The multiplier is exact; the interval is that of the mean at it. **It tells how steep the score is, and no
    discrimination:** of two scores without any effect of the group the steeper one has more of it.

    The judge gives probabilities; ``radius`` is ``epsilon``, the mean squared distance that rows move.
    """
    from sklearn.neighbors import NearestNeighbors

    step = -(-len(table) // REFERENCES)
    sample = table.take(np.arange(0, len(table), step)) if step > 1 else table
    roles = sample.data_spec.columns.protected
    names = [name for name in sample.features.column_names if name not in roles]
    features = Features.learn(
        sample, names, [name for name in roles if name not in columns], dict(comparable)
    )
    # a protected column that is not flipped counts like any other category
    X = features.matrix(sample) / np.sqrt(np.where(features.reach > 0, features.reach, 2.0))
    asked = np.arange(0, len(sample), -(-len(sample) // QUERIES))
    near = NearestNeighbors(n_neighbors=min(NEIGHBOURS, len(sample)), algorithm="brute").fit(X)
    away, rows = near.kneighbors(X[asked])
    flips = protected_flips(sample, columns, comparable)
    logit = _log_odds(_scores(sample, flips, judge, comparable))
    own = logit[0, asked]
    gains = np.maximum(
        *(
            (end[np.column_stack([asked, rows])] - own[:, None]) ** 2
            for end in (logit.max(axis=0), logit.min(axis=0))
        )
    )
    away = np.column_stack([np.zeros(asked.size), away**2])
    weight = sample.weight
    number = np.repeat(np.arange(asked.size), gains.shape[1])
    price = regularizer_empirical(
        number, gains.ravel(), away.ravel(), radius, many=asked.size, weight=weight[asked]
    )[1]
    price = price if math.isfinite(price) else 1.0 / np.finfo(float).tiny ** 0.5
    most = np.maximum((gains - price * away).max(axis=1), 0.0)
    value = mean_of(most, weight[asked], (0.0, 4 * FARTHEST**2), 1.0 - confidence)
    moved = price * radius
    reason = "a lower bound of the steepness of the score, not a measure of discrimination"
    shifted = estimate(value.point + moved, value.lower + moved, value.upper + moved, reason)
    return comparison("transport_cost.within_radius", shifted)


MOST_SCORES = 4_000_000
"""Rows times flips that a predictor is asked for, at most; of more rows an even part is taken."""


def of_predictor(
    table: Table,
    predictor: RepairedPredictor,
    comparable: Comparable,
    confidence: float,
    copies: Counterfactuals | None = None,
    score: Callable[[Table], Floats] | None = None,
) -> dict[str, list[SavedComparison]]:
    """Return what flips, and copies, do to a predictor that makes its own scores: attribute -> comparisons.

    Of a predictor that looks at somebody else's score nobody knows what flips would do to that, unless the table can
    be scored anew: it has none. ``score``: scores of a table to look at in place of the predictor's.
    """
    if predictor.needs_score and table.rescore is None:
        return {}
    flips = max(len(protected_flips(table, columns)) for columns in _attributes(table))
    step = -(-len(table) * (flips + 1) // MOST_SCORES)
    rows = table.take(np.arange(0, len(table), step)) if step > 1 else table
    decided, real = predictor.gives == "decision", table.data_spec.task == "regression"
    cut = None if real else 0.5
    if not decided and table.data_spec.thresholds:
        cut = table.data_spec.cut
    looks = None if table.rescore else frozenset((*predictor.inputs, *predictor.features))
    judge = Judge(
        score or predictor.predict, cut, decided and predictor.randomized, not decided and not real, looks
    )
    out = of_each_attribute(rows, comparable, partial(compared, judge, confidence))
    if copies is not None:
        where = attribute_name(table.data_spec.columns.protected)
        out[where] += under_counterfactuals(table, copies, judge, confidence)
    return out


def decisions_that_change(table: Table, predictor: RepairedPredictor, whole: Table) -> Floats:
    """Return how much of each row's decision depends on the protected columns, shape (n,): all of them flipped jointly.

    1 where it, or the predicted class, changes under some flip to a level of ``whole``, as
    ``decision_flips.under_flips`` has it, also where the predictor has no answer.
    """
    columns = table.data_spec.columns.protected
    if any(table.groups([name]).levels != whole.groups([name]).levels for name in columns):
        return np.ones(len(table))  # no row here is an example of some level
    flips = protected_flips(whole, columns)
    scores = np.stack([predictor.predict(one) for one in (table, *(flipped(table, flip) for flip in flips))])
    if predictor.gives == "value":
        scores = np.where(np.isnan(scores), np.nan, scores >= table.data_spec.cut)
    if predictor.gives == "class":
        return np.asarray((scores != scores[0]).any(axis=0), np.float64)
    return np.where(np.isnan(scores).any(axis=0), 1.0, np.ptp(scores, axis=0))


def _scores(table: Table, flips: Sequence[Flip], judge: Judge, comparable: Comparable) -> Floats:
    """Return the scores under no flip and under each, shape (1 + K, n)."""
    return np.stack([judge.score(table), *(judge.score(flipped(table, flip, comparable)) for flip in flips)])


def _log_odds(scores: Floats) -> Floats:
    """Return log-odds within ``FARTHEST`` of 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(np.clip(np.log(scores) - np.log1p(-scores), -FARTHEST, FARTHEST))


def compared(
    judge: Judge,
    confidence: float,
    table: Table,
    flips: Sequence[Flip],
    scope: str,
    comparable: Comparable = (),
) -> Iterator[SavedComparison]:
    """Yield the four numbers of a kind of flips; NaN is a score that there is not.

    The table has the protected columns among its features where the judge looks at them there.
    """
    changed = {name for flip in flips for name in (*flip.protected, *flip.comparable)}
    blind = judge.looks_at is not None and not judge.looks_at & changed
    if blind:
        scores = np.repeat(judge.score(table)[None], 1 + len(flips), axis=0)
    else:
        scores = _scores(table, flips, judge, comparable)
    lost = bool(np.isnan(scores).any())
    reason = UNSEEN if lost else judge.blind if blind else ""
    weight, alpha, top = table.weight, 1.0 - confidence, 1.0 if judge.is_probability else math.inf

    def mean(
        metric: str, x: Floats, largest: float, of: Callable[..., Estimate] = mean_of
    ) -> SavedComparison:
        value = unchanged(reason) if blind else of(x, weight, (0.0, largest), alpha, reason)
        return comparison(f"{metric}.{scope}", value)

    # of people whose group is missing, what they get as they are counts too; others are as one of the flips has them
    among = scores if scope == "under_flips" else scores[1:]
    if judge.chance or judge.cut is not None:
        decided = among if judge.cut is None or judge.chance else (among >= judge.cut) * 1.0
        differs = np.where(np.isnan(among).any(axis=0), np.nan, np.ptp(decided, axis=0))
        yield mean("decision_flips", differs, 1.0, mean_share)
    yield mean("score_change", np.ptp(among, axis=0), top)

    effects = {
        pair: unchanged()
        if blind
        else mean_of(scores[1 + a] - scores[1 + b], weight, (-top, top), alpha / math.comb(len(flips), 2))
        for (a, one), (b, other) in combinations(enumerate(flips), 2)
        for pair in [(str(one), str(other))]
    }
    if not effects:
        yield _undefined(f"score_effect.{scope}", "there is only one level")
    elif lost:
        yield comparison(f"score_effect.{scope}", estimate(math.nan, 0.0, top, reason))
    else:
        names, best = max(effects.items(), key=lambda item: abs(item[1].point))
        ends = _of_any((one.lower, one.upper) for one in effects.values())
        yield comparison(f"score_effect.{scope}", estimate(abs(best.point), *ends, reason), names)
    if judge.is_probability:
        logit = _log_odds(scores)
        yield mean("transport_cost", ((logit[1:] - logit[0]) ** 2).max(axis=0), 4 * FARTHEST**2)


def unchanged(reason: str = "") -> Estimate:
    """Return the number of what does not depend on the changed columns."""
    return Estimate(value=0.0, low=0.0, high=0.0, reason=reason)


def mean_share(
    x: Floats, weight: Floats, support: tuple[float, float], alpha: float, reason: str = ""
) -> Estimate:
    """Return a weighted mean of numbers in [0, 1] with limits for few rows; of unknown numbers there is none."""
    if np.isnan(x).any():
        return estimate(math.nan, *support, reason)
    sums = ([float((weight**k * part).sum())] for k in (1, 2) for part in (x, 1.0 - x))
    mean = Proportions.weighted(*sums)
    return first_of(mean.value, mean.limits(alpha), reason)


def mean_of(
    x: Floats, weight: Floats, support: tuple[float, float], alpha: float, reason: str = ""
) -> Estimate:
    """Return a weighted mean with its limits."""
    sums = powers(weight, x).sum(axis=1, keepdims=True)
    mean = Means.from_sums(sums, support, [float((weight * np.abs(x)).sum())])
    return first_of(mean.value, mean.limits(alpha), reason)
