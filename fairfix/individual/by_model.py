r"""Individual fairness of a model: what it says of a person, and of the same person changed in what does not count.

Let ``x_k`` be row ``x`` under flip ``k`` (see :mod:`fairfix.individual.flips`), ``h`` the score, ``d`` the decision.
Over the rows:

* ``decision_flips``: ``P(d(x_k) is not the same for all k)``; for a decision drawn with probability ``p`` by the
  person's own draw, ``E[max_k p(x_k) - min_k p(x_k)]``
* ``score_change``: ``E[max_k h(x_k) - min_k h(x_k)]``
* ``score_effect``: ``max_{a,b} |E[h(x_a) - h(x_b)]|``, everybody flipped to one level, then to another
* ``transport_cost``: ``E[max_k (logit h(x_k) - logit h(x))^2]``: SenSeI's transport regularizer at radius 0, log-odds
  kept within 8

Each is of one of three kinds of flips: ``under_flips`` of the attribute's levels; ``under_comparable``, where rows
with one of the comparable values get each of the others; ``under_everybody``, where every row gets each comparable
value, as in the paper's *spouse consistency*, single people too.

From scores alone, without a model: :func:`of_scores` compares rows that are equal in all other columns
(``matched_effect``) and what other columns do not foretell (``residual_effect``), see
:mod:`fairfix.individual.contrasts`. How fast a score changes with its features is no discrimination and is not
reported.

References
----------
M. Yurochkin and Y. Sun, *SenSeI: sensitive set invariance for enforcing individual fairness*, ICLR 2021.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

from fairfix.auditing.results import ComparisonReport, Pair, Value
from fairfix.data.counts import Floats
from fairfix.data.files import Source
from fairfix.data.names import attribute_name
from fairfix.data.reading import Reading, to_probability
from fairfix.data.scan import read_table
from fairfix.data.table import Table
from fairfix.errors import DataError, FairfixError, UsageError
from fairfix.individual.flips import Comparable, Flip, check_comparable, concerned, flipped, protected_flips
from fairfix.individual.matched import MatchedContrast, keys_of, matched_effect
from fairfix.individual.residual import ResidualContrast, residual_effect
from fairfix.models.features import Features
from fairfix.models.predictors import RepairedPredictor
from fairfix.optim.transport import regularizer_empirical
from fairfix.stats.estimates import Means, Proportions

if TYPE_CHECKING:
    from fairfix.models.user_file import ScoringModel

FARTHEST = 8.0
"""Log-odds are kept within this of 0 before they are compared."""

UNSEEN = "some rows, once changed, are in groups that the fit has not seen"
"""Why nothing is known of flips that a predictor has no answer to."""


@dataclass(frozen=True)
class Judge:
    """What is judged: a model's scores, and how they decide.

    Attributes
    ----------
    score
        Table -> scores, shape (n,).
    cut
        Score from which on a decision is positive; None where there is no decision.
    chance
        Whether the score is the probability of a positive decision that is drawn.
    is_probability
        Whether it is a probability at all.
    looks_at
        Columns that it looks at; None where nobody knows.
    blind
        What to say where it looks at none of those that are changed.
    """

    score: Callable[[Table], Floats]
    cut: float | None = None
    chance: bool = False
    is_probability: bool = True
    looks_at: frozenset[str] | None = None
    blind: str = ""


def under_flips(
    table: Table, columns: Sequence[str], judge: Judge, confidence: float
) -> Iterator[ComparisonReport]:
    """Yield what flips of protected columns do to what is judged.

    Parameters
    ----------
    table
        Rows, with the protected columns among the features where the judge looks at them there.
    columns
        The protected columns, flipped jointly.
    judge
        The model.
    confidence
        Of the intervals.
    """
    flips = protected_flips(table, columns)
    blind = judge.looks_at is not None and not judge.looks_at & set(columns)
    scores = _scores(table, flips, judge, blind=blind)
    yield from _compared(table, flips, scores, judge, confidence, "under_flips", blind=blind)


def under_comparable(
    table: Table, comparable: Comparable, judge: Judge, confidence: float
) -> Iterator[ComparisonReport]:
    """Yield the same for comparable values: of the rows that have them, and of everybody."""
    if not comparable:
        return
    flips = protected_flips(table, (), comparable)
    blind = judge.looks_at is not None and not judge.looks_at & {name for name, _ in comparable}
    inside = np.ones(len(table), dtype=bool)
    for name, values in comparable:
        inside &= concerned(table, name, values)
    some = table.take(np.flatnonzero(inside)) if inside.any() else None
    if some is None:
        nothing = Value(math.nan, math.nan, math.nan, "no row has comparable values in every column named")
        yield ComparisonReport("decision_flips.under_comparable", nothing, ())
    else:
        scores = _scores(some, flips, judge, comparable, blind=blind)
        yield from _compared(some, flips, scores, judge, confidence, "under_comparable", blind=blind)
    everybody = [replace(flip, everybody=True) for flip in flips]
    scores = _scores(table, everybody, judge, comparable, blind=blind)
    yield from _compared(table, everybody, scores, judge, confidence, "under_everybody", blind=blind)


def readable_table(source: Source, reading: Reading, features: Sequence[str] | None) -> Table:
    """Return the rows with feature columns and, among these, the protected columns as they come."""
    roles = [name for name in reading.columns.protected if features is None or name in features]
    source.require(roles)
    names = None if features is None else [name for name in features if name not in roles]
    return read_table(source, reading, names, {name: source.schema.field(name).type for name in roles})


def of_model(
    table: Table, model: ScoringModel, comparable: Comparable, confidence: float, radius: float | None = None
) -> dict[str, list[ComparisonReport]]:
    """Return what flips do to a model: attribute -> comparisons; comparable values are with the last.

    Parameters
    ----------
    table
        Rows with the model's features, see :func:`readable_table`.
    model
        What scores them.
    comparable
        Columns with the values that are comparable.
    confidence
        Of the intervals.
    radius
        Mean squared distance for :func:`within_radius`; None to leave it out.

    Raises
    ------
    ColumnError, UsageError
        A comparable value is not there, there are too many flips, or a radius is given and the model's scores are no
        probabilities.
    """
    check_comparable(table, comparable)
    reading = table.reading.with_threshold()
    decides, scale = model.score_scale == "decision", reading.score_scale
    is_probability = not decides and scale != "raw" and reading.task == "classification"
    names = list(model.feature_names)

    def score(rows: Table) -> Floats:
        found = model.score(rows.features.select(names).to_pandas())
        return to_probability(found, scale) if is_probability else found

    cut = 0.5 if decides else reading.threshold
    if cut is not None and is_probability:
        cut = reading.cut
    said = "the model does not look at these columns"
    judge = Judge(score, cut, is_probability=is_probability, looks_at=frozenset(names), blind=said)
    columns = table.reading.columns.protected
    asked = [(name,) for name in columns] + ([columns] if len(columns) > 1 else [])
    out = {attribute_name(some): list(under_flips(table, some, judge, confidence)) for some in asked}
    out[attribute_name(asked[-1])] += under_comparable(table, comparable, judge, confidence)
    if radius is not None:
        if not is_probability:
            raise UsageError("--radius compares log-odds, so the model has to give probabilities")
        out[attribute_name(asked[-1])].append(
            within_radius(table, asked[-1], judge, radius, confidence, comparable)
        )
    return out


def of_scores(table: Table, confidence: float) -> tuple[dict[str, list[ComparisonReport]], tuple[str, ...]]:
    """Return what scores alone tell of the effect of each protected attribute, and the columns that were left aside.

    Parameters
    ----------
    table
        Rows with the columns that the score may hang on, see :func:`readable_table`.
    confidence
        Of the intervals, which hold for all pairs of groups together.

    Raises
    ------
    DataError
        There is no score and no decision, or no column that could be held equal.
    """
    score = _known_score(table)
    roles = table.reading.columns.protected
    features, aside = [], []
    for name in table.features.column_names:
        if name in roles:
            continue
        try:
            Features.learn(table, [name])
            features.append(name)
        except FairfixError:
            aside.append(name)
    out = {}
    for attribute in roles:
        others = [name for name in roles if name != attribute]
        if not features and not others:
            raise DataError(
                "there is no other column that could be held equal; name some with --features, or give the model "
                "file with --model"
            )
        groups = table.groups([attribute])
        if len(groups.levels) < 2:
            out[attribute] = [
                _nothing(metric, "there is only one group")
                for metric in ("matched_effect", "residual_effect")
            ]
            continue
        matched = matched_effect(
            score,
            groups.codes,
            keys_of(table, [*features, *others]),
            table.rows.weight,
            confidence=_shared(confidence, len(groups.levels)),
        )
        X = Features.learn(table, features, others).matrix(table, gaps=True)
        left = residual_effect(
            score,
            groups.codes,
            X,
            table.rows.weight,
            confidence=1.0 - (1.0 - confidence) / (len(groups.levels) if len(groups.levels) > 2 else 1),
        )
        out[attribute] = [
            _largest(
                "matched_effect", matched.pairs, groups.names, f"{matched.coverage:.1%} of rows have an equal"
            ),
            _largest("residual_effect", left.contrasts, groups.names, ""),
        ]
    return out, tuple(aside)


def _known_score(table: Table) -> Floats:
    """Return probabilities or scores, or decisions where there are no scores."""
    if table.rows.score is None:
        if table.rows.decision is None:
            raise DataError("there is neither a score nor a decision to look at; name one with --score")
        return table.rows.decision
    plain = table.reading.task == "regression" or table.reading.score_scale == "raw"
    return table.rows.score if plain else table.probability


def _shared(confidence: float, groups: int) -> float:
    """Return the confidence of each pair of groups, so that all pairs together have the given one."""
    return 1.0 - (1.0 - confidence) / math.comb(groups, 2)


def _nothing(metric: str, why: str) -> ComparisonReport:
    """Return a difference of which nothing is known."""
    identifier = f"{metric}.difference.between_groups"
    return ComparisonReport(identifier, Value(math.nan, math.nan, math.nan, why), ())


def _largest(
    metric: str,
    found: Sequence[MatchedContrast | ResidualContrast],
    names: tuple[str, ...],
    said: str,
) -> ComparisonReport:
    """Return the largest difference of what can be judged; undefined is what cannot, with the reasons."""
    identifier = f"{metric}.difference.between_groups"

    def called(one: MatchedContrast | ResidualContrast) -> tuple[str, str]:
        return names[one.first], "everybody else" if one.second is None else names[one.second]

    known = [one for one in found if one.undecided is None]
    unknown = tuple(" / ".join(called(one)) for one in found if one.undecided is not None)
    pairs = tuple(Pair(called(one), one.value) for one in known)
    if not known:
        why = next((one.undecided for one in found if one.undecided), "there is nothing to compare")
        return replace(_nothing(metric, str(why)), undefined=unknown)
    top = max(known, key=lambda one: abs(one.value))
    low = max(max(one.low, -one.high, 0.0) for one in known)
    high = max(max(one.high, -one.low) for one in known)
    value = Value(abs(top.value), low, high, said or _trust(top))
    first, second = called(top)
    higher = (first, second) if top.value >= 0 else (second, first)
    return ComparisonReport(identifier, value, higher, unknown, pairs=pairs)


def _trust(found: MatchedContrast | ResidualContrast) -> str:
    """Say how far an effect by residuals can be trusted."""
    if isinstance(found, MatchedContrast):
        return ""
    blind = f"a score made blind of the same columns shows {abs(found.blind):.2g} ± {found.blind_error:.1g}"
    return f"{found.overlap:.1%} of rows where the groups overlap; {blind}"


NEIGHBOURS, QUERIES, REFERENCES = 20, 5_000, 20_000
"""Nearest rows that a row may move to, rows that move, and rows that they may move to, at most."""


def within_radius(
    table: Table,
    columns: Sequence[str],
    judge: Judge,
    radius: float,
    confidence: float,
    comparable: Comparable = (),
) -> ComparisonReport:
    r"""Return SenSeI's transport regularizer at a radius, on the rows there are.

    .. math:: \hat R(\epsilon) = \inf_{\lambda \ge 0}\; \lambda \epsilon + \frac1n \sum_i
        \max\Big(0, \max_{j, k}\; (h(x_{jk}) - h(x_i))^2 - \lambda\, d(x_i, x_j)^2\Big)

    over the nearest rows ``j`` of each row and all flips ``k`` of these, with log-odds ``h`` and distances between the
    other columns by the metric of a repair, see :attr:`fairfix.models.features.Features.reach`: numbers in standard
    deviations (of these rows), 1 for another category, 0 for what is flipped. Rows move to rows that there are, so it
    is a lower bound of the regularizer of a repair, whose rows move freely between the least and the greatest values.
    The multiplier is exact; the interval is that of the mean at it. **It tells how steep the score is, and no
    discrimination:** of two scores without any effect of the group the steeper one has more of it.

    Parameters
    ----------
    table, columns, judge, confidence
        As for :func:`under_flips`; the judge gives probabilities.
    radius
        ``epsilon``: the mean squared distance that rows move.
    comparable
        Columns with values whose difference does not count.
    """
    from sklearn.neighbors import NearestNeighbors

    step = -(-len(table) // REFERENCES)
    some = table.take(np.arange(0, len(table), step)) if step > 1 else table
    roles = some.reading.columns.protected
    names = [name for name in some.features.column_names if name not in roles]
    features = Features.learn(some, names, [name for name in roles if name not in columns], dict(comparable))
    # a protected column that is not flipped counts like any other category
    X = features.matrix(some) / np.sqrt(np.where(features.reach > 0, features.reach, 2.0))
    asked = np.arange(0, len(some), -(-len(some) // QUERIES))
    near = NearestNeighbors(n_neighbors=min(NEIGHBOURS, len(some)), algorithm="brute").fit(X)
    away, rows = near.kneighbors(X[asked])
    flips = protected_flips(some, columns, comparable)
    with np.errstate(divide="ignore"):
        scores = _scores(some, flips, judge, comparable, blind=False)
        logit = np.clip(np.log(scores) - np.log1p(-scores), -FARTHEST, FARTHEST)
    own = logit[0, asked]
    gains = np.maximum(
        (logit.max(axis=0)[rows] - own[:, None]) ** 2, (logit.min(axis=0)[rows] - own[:, None]) ** 2
    )
    here = np.maximum((logit.max(axis=0)[asked] - own) ** 2, (logit.min(axis=0)[asked] - own) ** 2)
    gains, away = np.column_stack([here, gains]), np.column_stack([np.zeros(asked.size), away**2])
    weight = some.weight
    number = np.repeat(np.arange(asked.size), gains.shape[1])
    price = regularizer_empirical(
        number, gains.ravel(), away.ravel(), radius, many=asked.size, weight=weight[asked]
    ).multiplier
    price = price if math.isfinite(price) else 1.0 / np.finfo(float).tiny ** 0.5
    most = np.maximum((gains - price * away).max(axis=1), 0.0)
    value = _mean(most, weight[asked], (0.0, 4 * FARTHEST**2), 1.0 - confidence, exact=False)
    moved = price * radius
    said = "how steep the score is at least, and no discrimination"
    shifted = Value(value.value + moved, value.low + moved, value.high + moved, said)
    return ComparisonReport("transport_cost.within_radius", shifted, ())


MOST_SCORES = 4_000_000
"""Rows times flips that a predictor is asked for, at most; of more rows an even part is taken."""


def of_predictor(
    table: Table, predictor: RepairedPredictor, comparable: Comparable, confidence: float
) -> dict[str, list[ComparisonReport]]:
    """Return what flips do to a predictor that makes its own scores: attribute -> comparisons.

    Parameters
    ----------
    table
        Rows with the predictor's features.
    predictor
        What is asked. Of a predictor that looks at somebody else's score nobody knows what flips would do to that.
    comparable
        Columns with the values that are comparable.
    confidence
        Of the intervals.
    """
    if predictor.needs_score:
        return {}
    columns = table.reading.columns.protected
    asked = [(name,) for name in columns] + ([columns] if len(columns) > 1 else [])
    flips = max(len(protected_flips(table, some)) for some in asked)
    step = -(-len(table) * (flips + 1) // MOST_SCORES)
    some_rows = table.take(np.arange(0, len(table), step)) if step > 1 else table
    decided, real = predictor.gives == "decision", table.reading.task == "regression"
    cut = None if real else 0.5
    if not decided and table.reading.thresholds:
        cut = table.reading.cut
    looks = frozenset((*predictor.inputs, *predictor.features))
    judge = Judge(predictor.predict, cut, decided and predictor.randomized, not decided and not real, looks)
    out = {attribute_name(some): list(under_flips(some_rows, some, judge, confidence)) for some in asked}
    out[attribute_name(asked[-1])] += under_comparable(some_rows, comparable, judge, confidence)
    return out


def _scores(
    table: Table, flips: Sequence[Flip], judge: Judge, comparable: Comparable = (), *, blind: bool
) -> Floats:
    """Return the scores under no flip and under each, shape (1 + K, n)."""
    plain = judge.score(table)
    if blind:
        return np.repeat(plain[None], 1 + len(flips), axis=0)
    return np.stack([plain, *(judge.score(flipped(table, flip, comparable)) for flip in flips)])


def _compared(
    table: Table,
    flips: Sequence[Flip],
    scores: Floats,
    judge: Judge,
    confidence: float,
    scope: str,
    *,
    blind: bool,
) -> Iterator[ComparisonReport]:
    """Yield the four numbers of a kind of flips, from scores of shape (1 + K, n); NaN is a score that there is not."""
    reason = UNSEEN if np.isnan(scores).any() else judge.blind if blind else ""
    weight = table.weight
    spread: Floats = np.asarray(scores[1:].max(axis=0) - scores[1:].min(axis=0))

    def mean(values: Floats, support: tuple[float, float], alpha: float = 1.0 - confidence) -> Value:
        return replace(_mean(values, weight, support, alpha, exact=blind), reason=reason)

    if judge.chance or judge.cut is not None:
        decided = (
            scores[1:] if judge.cut is None or judge.chance else (scores[1:] >= judge.cut).astype(np.float64)
        )
        differs = np.where(np.isnan(spread), np.nan, np.ptp(decided, axis=0))
        flips_of = _share(differs, weight, 1.0 - confidence, exact=blind)
        yield ComparisonReport(f"decision_flips.{scope}", replace(flips_of, reason=reason), ())
    top = 1.0 if judge.is_probability else math.inf
    yield ComparisonReport(f"score_change.{scope}", mean(spread, (0.0, top)), ())
    yield _effect(flips, scores[1:], weight, top, confidence, scope, reason, exact=blind)
    if judge.is_probability:
        with np.errstate(divide="ignore"):
            logit = np.clip(np.log(scores) - np.log1p(-scores), -FARTHEST, FARTHEST)
        worst: Floats = ((logit[1:] - logit[0]) ** 2).max(axis=0)
        yield ComparisonReport(f"transport_cost.{scope}", mean(worst, (0.0, 4 * FARTHEST**2)), ())


def _effect(
    flips: Sequence[Flip],
    scores: Floats,
    weight: Floats,
    top: float,
    confidence: float,
    scope: str,
    reason: str,
    *,
    exact: bool,
) -> ComparisonReport:
    """Return the largest difference of the mean score between two flips, with limits that hold for all pairs."""
    pairs = list(combinations(range(len(flips)), 2))
    alpha = (1.0 - confidence) / max(len(pairs), 1)
    found = [
        (
            _mean(scores[a] - scores[b], weight, (-top, top), alpha, exact=exact),
            (str(flips[a]), str(flips[b])),
        )
        for a, b in pairs
    ]
    if not found:
        nothing = Value(math.nan, math.nan, math.nan, "there is only one level")
        return ComparisonReport(f"score_effect.{scope}", nothing, ())
    if np.isnan(scores).any():
        return ComparisonReport(f"score_effect.{scope}", Value(math.nan, 0.0, top, reason), ())
    best, names = max(found, key=lambda item: abs(item[0].value))
    low = max(max(value.low, -value.high, 0.0) for value, _ in found)
    high = max(max(value.high, -value.low) for value, _ in found)
    return ComparisonReport(f"score_effect.{scope}", Value(abs(best.value), low, high, reason), names)


def _share(values: Floats, weight: Floats, alpha: float, *, exact: bool) -> Value:
    """Return a weighted mean of values in [0, 1] with limits for few rows; without any where it holds whatever."""
    if exact:
        return Value(0.0, 0.0, 0.0)
    if np.isnan(values).any():
        return Value(math.nan, 0.0, 1.0)
    sums = ([float((weight**k * part).sum())] for k in (1, 2) for part in (values, 1.0 - values))
    estimate = Proportions.weighted(*sums)
    low, high = estimate.limits(alpha)
    return Value(float(estimate.value[0]), float(low[0]), float(high[0]))


def _mean(
    values: Floats, weight: Floats, support: tuple[float, float], alpha: float, *, exact: bool
) -> Value:
    """Return a weighted mean with its limits; without any where it holds for every row whatever."""
    if exact:
        return Value(0.0, 0.0, 0.0)
    sums = (weight, weight**2, weight * values, weight * values * values, weight * np.abs(values))
    n, n2, total, squares, sizes = (np.array([float(part.sum())]) for part in sums)
    estimate = Means.from_sums(n, n2, total, squares, support, sizes)
    low, high = estimate.limits(alpha)
    return Value(float(estimate.value[0]), float(low[0]), float(high[0]))
