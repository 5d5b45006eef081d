"""The sections of a repair: what it is, checks, the proof on held-out rows, how the fit went."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any, Protocol

from fairfix.auditing.comparisons import TRUE_GROUPS, WITH_NUMBER, Comparison
from fairfix.auditing.grammar import Condition, read
from fairfix.auditing.metrics import METRICS
from fairfix.auditing.results import cut_words, in_percent
from fairfix.report.answer import judged
from fairfix.report.classes import OF_A_CLASS, class_gaps
from fairfix.report.layout import (
    CERTAIN,
    CHANGES_MOST,
    Columns,
    Interval,
    Section,
    TextTable,
    data_lines,
    ends_of,
    exact,
    first_groups,
    interval,
    judgements,
    left_out_columns,
    message_lines,
    pairs,
    percent,
    points,
    shortly,
    show,
    show_signed,
    signed,
    size_of,
    titled,
    with_ends,
)
from fairfix.report.repair_counts import of_counts
from fairfix.schema.common import Estimate, GroupChange, GroupChanges
from fairfix.schema.repair import Evaluation, EvaluationRow, GroupRule, Repair, Solution


class Grouped(Protocol):
    """Numbers of a group."""

    @property
    def group(self) -> str:
        """Name of the group."""


READINGS = {
    "drawn": "randomized decisions, as expected",
    "rounded": "decisions rounded at the threshold",
}
"""The two ways to decide with a probability."""


ROUNDED = 1e-12
"""A change of a rate that is rounding of sums, and no rise."""

QUANTITIES: Columns = {
    "group": lambda one: one.group,
    "number": "name",
    "value": lambda one: exact(one.value),
    "what it is": "meaning",
}

CANDIDATES: Columns = {
    "parameters": "parameters",
    "score": lambda one: show(one.score),
    "": lambda one: "chosen" if one.chosen else "",
}


def sections(result: Repair, *, detail: bool) -> Iterator[Section]:
    """Yield the sections of a repair."""
    title = f"fairfix repair of {result.data.source} by {result.method}"
    yield Section(title, tuple(answer(result)), kind="answer")
    yield from judgements(result)
    held, fit = result.proof.holdout, result.proof.fit
    rows = "training rows" if held is None else "held-out rows"
    people = (held or fit).people
    concerned = _whom(result, held or fit)
    for one in people:
        yield _people(one, rows, in_answer=held is not None and one in concerned)
    if len(concerned) > 1:  # a rule has the groups of all columns
        concerned = [one for one in people if one.attribute == _crossed(result)] or concerned
    whole = next(iter(concerned), None)
    rank: Callable[[Grouped], float] = _by_change(whole) if whole else lambda _: 0.0
    if result.rule:
        yield _rule(result, rank)
    if result.counts is not None:
        yield of_counts(result.counts, rank)
    if held is not None:
        yield from _proof(result, held, "Evaluation on held-out rows")
    yield from _proof(result, fit, "On the training rows", "fitted")
    if detail:
        quantities = result.solution.quantities
        grids = (TextTable.of(QUANTITIES, quantities, 4, "Numbers of the repair", 1),) if quantities else ()
        yield Section("Solver", tuple(solution_facts(result.solution)), grids, "solution")
    if result.selection:
        grid = TextTable.of(CANDIDATES, result.selection, 1, "Candidates")
        yield Section("Selection on the validation rows", (), (grid,))
    yield from left_out_columns(result.features)
    yield Section("Data and settings", tuple(_repair_facts(result)), kind="facts")


def _repair_facts(result: Repair) -> Iterator[str]:
    split = result.split
    parts = f"{split.fit:,} to fit, {split.validation:,} to select, {split.holdout:,} held out"
    yield from data_lines(result, f": {parts} (seed {result.seed})")
    yield f"parameters: {pairs(result.parameters)}"
    if result.does_not_count:
        yield f"what does not count: {result.does_not_count}"
    yield from message_lines(result.messages, "note")
    if result.artifact:
        yield f"written to {result.artifact.file} ({result.artifact.sha256})"


# ---------------------------------------------------------------------- the answer


def answer(result: Repair) -> Iterator[str]:
    """Yield what a repair did: its warnings, the gap before and after it, what it cost, and what it needs."""
    yield from message_lines(result.messages, "warning")
    fit, proven = result.proof.fit, result.proof.holdout
    held = proven or fit
    fitted = {row.attribute: row for row in _of_criterion(result, fit.table)}
    concerned = _whom(result, held)
    if not (shown := _of_criterion(result, held.table)):
        yield _unmeasured(result)
    for row in shown:
        if not proven:
            yield _gap_of_fit(row, held.rows)
            continue
        yield _gap(result, row, held.rows, fitted.get(row.attribute))
        if result.parameters.get("noise"):
            yield (
                "Rates are weighted by the membership probabilities. They are rates of the true groups only under "
                "assumption N4, which the data cannot confirm."
            )
        if row.id == WITH_NUMBER:
            yield from _between_fifths(row.attribute or "", held.table)
        of = next((one for one in concerned if one.attribute == row.attribute), None)
        if of is not None and (who := "; ".join(_most(of.groups, _given(of.groups)))):
            yield f"{who}."
    if result.guarantee is not None and result.guarantee.holds:  # what does not hold is among the warnings
        yield result.guarantee.says
    if result.checks:
        rows = "held-out rows" if proven else "the training rows"
        opening = [f"Checks apply to the repaired decisions, on {rows}."]
        if any(one.of_class for one in result.checks):
            opening.append(f"{OF_A_CLASS}, and label 1 is the class.")
        yield " ".join(opening)
        yield from judged(result)
    confidence = in_percent(result.settings.confidence)
    if cost := _cost(held.table, confidence, proven=proven is not None):
        yield cost
    yield _needs(result, held.randomized)


def _between_fifths(column: str, table: Sequence[EvaluationRow]) -> Iterator[str]:
    """Yield the largest gap between groups of a number, since its covariance shows straight-line relations only."""
    for row in table:
        if (row.id, row.attribute) != ("selection_rate.difference.between_groups", column):
            continue
        if row.before.value is not None and row.after.value is not None:
            before, after = (with_ends(one, points) for one in (row.before, row.after))
            yield (
                f"A covariance only measures a linear trend. Between fifths of the rows by {column}, selection rates "
                f"differ by up to {before} before the repair and {after} after it."
            )


def _whom(result: Repair, held: Evaluation) -> list[GroupChanges]:
    """Return what changes for the groups of the gaps that the slack bounds: those of whom the answer tells."""
    attributes = {row.attribute for row in _of_criterion(result, held.table)}
    return [one for one in held.people if one.attribute in attributes]


def _of_criterion(result: Repair, table: Sequence[EvaluationRow]) -> list[EvaluationRow]:
    """Return the row of the gap that the slack bounds, of true groups if any: of all protected columns together.

    Where the slack bounds the gaps of each column alone, these rows.
    """
    name, of = result.criterion, Comparison.parse(result.criterion)
    wanted = (of.to(TRUE_GROUPS).id, name) if of.scope == "between_groups" else (name,)
    rows = [row for one in wanted for row in table if row.id == one]
    if name == WITH_NUMBER:
        return rows
    if any(one.each for one in _conditions(result.parameters)):
        return [row for row in rows if row.attribute in result.data.columns.protected]
    return [row for row in rows if row.attribute == _crossed(result)][:1] or rows[:1]


def _crossed(result: Repair) -> str:
    """Return the attribute of all protected columns together."""
    return " x ".join(result.data.columns.protected)


def _gap(result: Repair, row: EvaluationRow, rows: int, fitted: EvaluationRow | None) -> str:
    """Return the gap before and after the repair, whether it is surely smaller, and what of the slack."""
    of = Comparison.parse(row.id)
    write: Callable[..., str] = points if of.in_points else show_signed
    before, after, change = row.before, row.after, row.change
    confidence = in_percent(result.settings.confidence)
    metric = of.title.replace(", to ", " to ")
    title = f"by {row.attribute}, the {metric}" if row.attribute else metric
    whose = f"{after.reason} among " if of.scope == "under_counterfactuals" and after.low is not None else ""
    text = (
        f"{title[0].upper()}{title[1:]} is {with_ends(before, write)} before the repair and "
        f"{with_ends(after, write)} after it, on {whose}{rows:,} held-out rows ({confidence} CIs)"
    )
    if change is not None and change.low is not None and change.high is not None:
        moved = write(change.value, sign=True)
        ends = f"change {moved}, {confidence} CI {ends_of(change.low, change.high, write)}"
        if change.way:
            text += f". It {'shrinks' if change.way == 'smaller' else 'grows'} ({ends})"
        elif change.low == change.high:  # both 0
            text += ". Nothing changes"
        else:
            better = "grows" if of.worse == "smaller" else "shrinks"
            text += f". We cannot say whether it {better} in the population ({ends})"
    limit = _limit(result.parameters)
    if not math.isfinite(limit.number) or after.value is None:
        return f"{text}."
    text += f". The {limit.name} is {write(limit.number)}"
    if limit.one_sided:
        return f"{text}; the gap shown also counts groups that are better off."
    there = None if fitted is None else fitted.after.value
    if there is not None:
        text += f", and {limit.of} on the training rows is {write(there)}"
    # a ratio is worse where it is less, so its ends change places
    sign, (low, high) = 1, (after.low, after.high)
    if limit.least:
        sign, (low, high) = -1, (high, low)
    if low is not None and sign * low > sign * limit.number:
        where = f"the whole interval {'falls below' if limit.least else 'exceeds'} the {limit.name}"
        if there is not None and sign * there <= sign * limit.number + ROUNDED:
            where += ", so the repair does not carry over from the training rows to new data"
    elif high is not None and sign * high <= sign * limit.number:
        where = f"the whole interval meets the {limit.name}"
    else:
        where = f"the interval extends beyond the {limit.name}, so we cannot say that new data will stay within it"
    return f"{text}. On held-out rows {where}."


AUDITED = ("auto", "logistic", "square", "absolute")
"""Losses that the audit knows, so that a bound on them can be compared with the criterion."""


@dataclass(frozen=True)
class LimitText:
    """Limit of the criterion of a repair, in words; NaN where there is no number for all."""

    number: float
    name: str
    of: str
    least: bool = False
    one_sided: bool = False
    """Whether it bounds one direction of what is shown alone, so that they are not compared."""


def _limit(parameters: Mapping[str, Any]) -> LimitText:
    """Return what the criterion is to keep to: a least ratio, a bound on losses, or the slack."""
    conditions = _conditions(parameters)
    if parameters.get("constraint") == "minimax":
        return LimitText(math.nan, "", "")
    words = "allowed gap", "the gap"
    if any(one.group for one in conditions) or "slack" not in parameters:  # none, or one for each group
        return LimitText(math.nan, *words)
    for one in conditions:
        if one.operator == ">=":
            return LimitText(float(one.limit), "smallest allowed ratio", "the ratio", least=True)
        if one.operator:
            asked = float(one.limit) if parameters["loss"] in AUDITED else math.nan
            return LimitText(asked, "largest allowed loss", "the loss")
    one_sided = any("worse_than_overall" in one.parts for one in conditions)
    return LimitText(float(parameters["slack"]), *words, one_sided=one_sided)


def _conditions(parameters: Mapping[str, Any]) -> list[Condition]:
    """Return the conditions that a repair was to hold."""
    return read(str(parameters.get("constraint") or ""))


def _unmeasured(result: Repair) -> str:
    """Return that what the repair bounds is no number of these rows: what a score would be that is somebody else's."""
    title = Comparison.parse(result.criterion).title
    return (
        f"The {title} is unknown before and after the repair. The rule uses a score, and these rows do not show the "
        "score that the same person would have in another group."
    )


def _gap_of_fit(row: EvaluationRow, rows: int) -> str:
    """Return the gap before and after the repair where nothing was held out."""
    of = Comparison.parse(row.id)
    write: Callable[..., str] = points if of.in_points else show_signed
    before, after = (
        "undefined" if one.value is None else write(one.value) for one in (row.before, row.after)
    )
    return (
        f"On the {rows:,} training rows, the {of.title} by {row.attribute} is {before} before the repair and "
        f"{after} after it. The rule was fitted to these rows, so expect other results on new data."
    )


def _cost(table: Sequence[EvaluationRow], confidence: str, *, proven: bool) -> str:
    """Return what the repair cost in accuracy, or in the loss of values, and how many are selected."""
    rows = {row.id: row for row in table if not row.attribute and not row.unlike}
    parts: list[str] = []
    for name in ("accuracy", "selection_rate", "square_loss"):
        row = rows.get(name)
        old, new = (None, None) if row is None else (row.before.value, row.after.value)
        if row is None or old is None or new is None:
            continue
        if name == "square_loss" and parts:
            continue
        size, ends = size_of(row.before, row.after), ""
        write = partial(show, size=size) if name == "square_loss" else percent
        change = row.change if proven else None
        if change is not None and change.low is not None and change.high is not None:
            sign = partial(show_signed, size=size) if name == "square_loss" else points
            ends = f" (change {sign(new - old, sign=True)}, {confidence} CI {ends_of(change.low, change.high, sign)})"
        before, after = write(old), write(new)
        way = f"{'rises' if new > old else 'falls'} from {before} to {after}"
        parts.append(
            f"{'the ' * bool(parts)}{METRICS[name].title} {way if before != after else f'stays at {before}'}{ends}"
        )
    text = "; ".join(parts)
    return f"{text[0].upper()}{text[1:]}." if text else ""


def _drawn(result: Repair) -> str:
    """Return what a repair gives to a row."""
    return "value" if result.settings.task == "regression" else "decision"


def _needs(result: Repair, randomized: float) -> str:
    """Return what is needed at predict time, and what the law may have to say."""
    requires = result.requires
    text = f"To predict, the repair needs the columns {', '.join(requires.columns)}"
    if requires.model_file:
        text += " and the model file"
    if requires.protected_at_predict:
        text += ". Check whether you may lawfully use the protected attribute to make decisions"
    if randomized > 0:
        one = _drawn(result)
        text += f". {percent(randomized)} of {one}s are randomized. " + (
            f"Each is drawn once from the row ID, so the same person always gets the same {one}"
            if result.data.columns.id
            else f"Rows have no ID: each {one} is drawn from the columns that the rule reads, and for equal rows "
            "also from their order"
        )
    return f"{text}."


# ---------------------------------------------------------------------- who, and by which rule


def _people(one: GroupChanges, rows: str, *, in_answer: bool) -> Section:
    """Return what changes for each group: rates before and after, and who is decided otherwise.

    Who rises and falls most is left out where it is ``in_answer`` already.
    """
    attribute, metric = one.attribute, _given(one.groups)
    decided = metric == "selection_rate"
    groups, more = first_groups(one.groups, _by_change(one), CHANGES_MOST)
    lines, grids = list(more), list[TextTable]()
    if metric:
        lines += () if in_answer else _most(one.groups, metric)
        name = "yes" if decided else "mean"
        columns: dict[str, str | Callable[[GroupChange], str]] = {
            "group": "group",
            "rows": lambda group: f"{group.rows:,}",
            f"{name} before": lambda group: _rate(group.metrics[metric].before, decided=decided),
            f"{name} after": lambda group: _rate(group.metrics[metric].after, decided=decided),
        }
        if any(group.up is not None for group in groups):
            lines.append(
                "yes is a positive decision; no to yes and yes to no are the fractions of the group whose decision "
                "changes, as expected over the randomization"
            )
            columns |= {
                "no to yes": lambda group: percent(group.up),
                "yes to no": lambda group: percent(group.down),
            }
        grids.append(TextTable.of(columns, groups, 1, f"Groups of {attribute} before and after"))
    others = {
        METRICS[name].title: _both(name)
        for name in ("true_positive_rate", "false_positive_rate", "accuracy", "mean_error")
        if any(name in group.metrics for group in groups)
    }
    if others:
        grids.append(
            TextTable.of(
                {"group": "group", **others}, groups, 1, f"Other numbers by {attribute}, before and after"
            )
        )
    title = f"Changes by group: {attribute}, on {rows}"
    return Section(title, tuple(lines), tuple(grids), "people", one)


def _given(groups: Sequence[GroupChange]) -> str:
    """Return the metric of what groups get, of decisions or else of scores; empty where there is none."""
    return next((m for m in ("selection_rate", "mean_score") if m in groups[0].metrics), "")


def _by_change(one: GroupChanges) -> Callable[[Grouped], float]:
    """Return the rank of a group by how much what it gets changes, the most first."""
    metric, changes = _given(one.groups), dict[str, float]()
    for group in one.groups if metric else ():
        before, after = (value.value for value in (group.metrics[metric].before, group.metrics[metric].after))
        changes[group.group] = 0.0 if before is None or after is None else -abs(after - before)
    return lambda group: changes.get(group.group, 0.0)


def _most(groups: Sequence[GroupChange], metric: str) -> Iterator[str]:
    """Yield which group gains most and which loses most, by the change of its rate."""
    each = ((group.group, group.metrics[metric]) for group in groups if metric)
    ends = ((name, pair.before.value, pair.after.value) for name, pair in each)
    both = [
        (after - before, name, before, after)
        for name, before, after in ends
        if before is not None and after is not None
    ]
    if not both:
        return
    decided = metric == "selection_rate"
    word = "selection rate" if decided else "mean"
    for verb, (change, name, before, after) in (("gains", max(both)), ("loses", min(both))):
        if (change > ROUNDED) if verb == "gains" else (change < -ROUNDED):
            digits = next((d for d in range(4, 16) if show(before, d) != show(after, d)), 4)
            was, now = (percent(x) if decided else show(x, digits) for x in (before, after))
            rises = "rises" if verb == "gains" else "falls"
            yield f"{name} {verb} most: its {word} {rises} from {was} to {now}"
    if all(change < -ROUNDED for change, *_ in both) and len(both) > 1:
        yield "no group gains on these rows"


def _rate(value: Estimate, *, decided: bool) -> str:
    return shortly(value, "%") if decided and value.value is not None else interval(value)


def _both(name: str) -> Callable[[GroupChange], str]:
    """Return the cell of a metric before and after."""
    write = percent if METRICS[name].scale == "share" else show

    def cell(group: GroupChange) -> str:
        pair = group.metrics.get(name)
        if pair is None:
            return ""
        before, after = (write(value.value) for value in (pair.before, pair.after))
        return Interval(f"{before} → {after}")

    return cell


def _rule(result: Repair, rank: Callable[[Grouped], float]) -> Section:
    """Return the rule of every group in words."""
    cut, where = cut_words(result.settings), "" if result.settings.group_thresholds else ", in every group"
    lines = (f"before the repair: yes from a score of {cut}{where}",) if cut else ()
    rules, more = first_groups(result.rule, rank, CHANGES_MOST)
    grid = TextTable.of({"group": "group", "decision": in_words}, rules, 2, "Decision rule of each group")
    return Section("Decision rule by group", (*more, *lines), (grid,), "rule", result.rule)


def in_words(rule: GroupRule) -> str:
    """Return a rule of the score in words."""
    scores, probabilities = rule.scores, rule.probabilities
    first, last = probabilities[0], probabilities[-1]
    falls = any(later < sooner - CERTAIN for sooner, later in pairwise(probabilities))
    if max(probabilities) - min(probabilities) <= CERTAIN:
        return {0.0: "no for every score", 1.0: "yes for every score"}.get(
            round(first, 6), f"yes with probability {percent(first)}, whatever the score"
        )
    if falls:
        return (
            f"yes with a probability from {percent(min(probabilities))} to {percent(max(probabilities))} that does not "
            "always rise with the score"
        )
    if first > CERTAIN or last < 1 - CERTAIN:
        return f"yes with a probability that rises with the score, from {percent(first)} to {percent(last)}"
    start = max(x for x, chance in zip(scores, probabilities, strict=True) if chance <= CERTAIN)
    sure = min(x for x, chance in zip(scores, probabilities, strict=True) if chance >= 1 - CERTAIN)
    if f"{start:.4f}" == f"{sure:.4f}":
        return f"no below {start:.4f}, yes above"
    return f"no below {start:.4f}; yes above {sure:.4f}; in between, the probability of yes rises from 0 to 1"


def _proof(result: Repair, proof: Evaluation, title: str, kind: str = "proof") -> Iterator[Section]:
    """Yield numbers before and after, and those of the other way to decide with a probability."""
    lines = [f"{proof.rows:,} rows; {proof.randomized:.2%} of {_drawn(result)}s are randomized"]
    lines += [  # chance alone makes so much, and no repair can go below it on so many rows
        f"if the groups were exactly equal, ks.to_overall [{one.attribute}] would be {show(one.mean)} on average "
        f"in samples of this size, and at most {show(one.upper)} in 19 of 20"
        for one in proof.noise
    ]
    lines += [
        f"{titled(row.id, row.attribute)} after the repair: {row.after.reason}"
        for row in proof.table
        if row.after.reason
    ]
    reading = f": {READINGS[proof.reading]}" if proof.reading is not None else ""
    grids = [_before_and_after([row for row in proof.table if not row.unlike])]
    if unlike := [row for row in proof.table if row.unlike]:
        grids.append(TextTable.of(UNLIKE, unlike, 1, "Losses, which are not compared"))
        lines.append(f"losses before and after are not comparable: {unlike[0].unlike}")
    yield Section(title + reading, tuple(lines), tuple(grids), kind, proof)
    if proof.classes:
        yield from class_gaps(proof, title)
    if proof.other:
        other = "rounded" if proof.reading == "drawn" else "drawn"
        yield Section(f"{title}: {READINGS[other]} instead", (), (_before_and_after(proof.other),))


UNLIKE: Columns = {
    "loss": lambda row: titled(row.id, row.attribute),
    "of the score, before": lambda row: interval(row.before),
    "of the probability of yes, after": lambda row: interval(row.after),
}


def _before_and_after(table: Sequence[EvaluationRow]) -> TextTable:
    beside: Mapping[str, Callable[[EvaluationRow], float | None]] = {
        "realized": lambda row: row.delivered,
        "expected": lambda row: row.expected,
    }

    def cell(number: Callable[[EvaluationRow], float | None]) -> Callable[[EvaluationRow], str]:
        return lambda row: "–" if (value := number(row)) is None else f"{value:.4f}"

    columns: Columns = {
        "metric": lambda row: titled(row.id, row.attribute),
        "before": lambda row: interval(row.before),
        "after": lambda row: interval(row.after),
        "change": _change,
        **{title: cell(of) for title, of in beside.items() if any(of(row) is not None for row in table)},
    }
    return TextTable.of(columns, table, 1, "Before and after")


def _change(row: EvaluationRow) -> str:
    before, after, change = row.before.value, row.after.value, row.change
    if before is None or after is None:
        return "–"
    size = size_of(row.before, row.after)
    if change is None or (change.low is None and change.high is None):
        return show_signed(after - before, size=size, sign=True)
    return signed(change, 4, size)


def solution_facts(solution: Solution) -> Iterator[str]:
    """Yield how a solver stopped, and what is proven of what it left."""
    how = "reached its tolerance" if solution.converged else "stopped before its tolerance"
    yield f"the solver {how} ({solution.iterations:,} steps); objective {exact(solution.objective)}"
    if solution.certificates:
        yield from (f"certified: {one.says}" for one in solution.certificates)
    elif solution.gap is not None:
        yield f"optimality gap reported by the solver: {exact(solution.gap)}"
    else:
        yield "no lower bound on the objective is known, so optimality is not certified"
