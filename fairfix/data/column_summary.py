"""Summaries of columns in words, for messages and a first configuration."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from fairfix.data.arrow_normalize import entries_of, widened
from fairfix.data.canonical import canonical
from fairfix.data.data_spec import SCORE_RANGE, DataSpec
from fairfix.data.encoder import shown
from fairfix.data.files import NO_TYPES, Source, Types
from fairfix.data.names import nearest, quoted_name, with_values
from fairfix.data.numeric_groups import MOST_NUMBERS
from fairfix.errors import EntryError, ThresholdError

MANY = 50
"""Values of a column are collected up to this many."""

MANY_CLASSES = 20
"""Values of a label up to which each may be a class."""

DECILES = 20
"""Points of a score, such as deciles, up to which whole numbers are no percentages."""

SHOWN = 6
"""Values that are shown."""


@dataclass
class Survey:
    """Summary of one column: missing values, counts of values if they are few, least and largest value, and rows."""

    missing: int = 0
    counts: Counter[str] | None = field(default_factory=Counter)
    low: float = math.inf
    high: float = -math.inf
    rows: int = 0

    def add(self, column: pa.Array) -> None:
        """Look at some more values."""
        import pyarrow.compute as pc

        self.rows += len(column)
        missing = column.is_null(nan_is_null=True)
        self.missing += missing.true_count
        column = column.filter(pc.invert(missing))
        if pa.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        column = widened(column)
        if (pa.types.is_integer(column.type) or pa.types.is_floating(column.type)) and len(column):
            ends = pc.min_max(column)
            self.low = min(self.low, float(ends["min"].as_py()))
            self.high = max(self.high, float(ends["max"].as_py()))
        if self.counts is None or pa.types.is_nested(column.type):
            self.counts = None
            return
        for entry, many in zip(*map(entries_of, column.value_counts().flatten()), strict=True):
            self.counts[canonical(entry)] += many
            if len(self.counts) > MANY:
                self.counts = None
                return

    @property
    def has_many(self) -> bool:
        """Whether there are more different values than there are groups or classes."""
        return self.counts is None or len(self.counts) > MOST_NUMBERS

    @property
    def common(self) -> list[tuple[str, int]]:
        """The values with their numbers of rows, the most frequent first; none where they are many."""
        return sorted((self.counts or {}).items(), key=lambda one: (-one[1], one[0]))

    def shown(self, write: Callable[[str], str] = repr, first: Sequence[tuple[str, int]] = ()) -> str:
        """Return in words the values that are ``first``, or most frequent, or the ends of the numbers."""
        if self.counts is None:
            numbers = f"numbers from {self.low:g} to {self.high:g}"
            text = numbers if math.isfinite(self.low) else f"more than {MANY} values"
        else:
            common = first or self.common
            text = ", ".join(f"{write(value)} in {rows:,}" for value, rows in common[:SHOWN]) + " rows"
            text += f" and {len(common) - SHOWN} values more" if len(common) > SHOWN else ""
        return text + (f", {self.missing:,} missing" if self.missing else "")


def survey(source: Source, names: Iterable[str], types: Types = NO_TYPES) -> dict[str, Survey]:
    """Return what is seen of columns; ``types`` are those that text files are read as."""
    seen = {name: Survey() for name in names}
    for batch in source.batches(list(seen), types if source.text else NO_TYPES):
        for name in seen:
            seen[name].add(batch.column(batch.schema.get_field_index(name)))
    return seen


def explained(
    error: EntryError | ThresholdError,
    source: Source,
    data_spec: DataSpec,
    *,
    decides: bool = False,
    real: bool = True,
) -> tuple[str, list[dict[str, str]]]:
    """Return the error with what the whole column holds, and the settings to choose from.

    Where the run ``decides`` by the score and no threshold was given, that of a raw one is the middle of its range.
    ``real`` is whether it knows a regression.
    """
    part, name = error.part, error.column
    kind = pa.float64() if part == "score" else pa.string()
    seen = survey(source, [name], {name: kind})[name]
    if part == "score":
        if not math.isfinite(seen.low):
            return str(error), []
        low, high = (shown(one, *data_spec.range) for one in (seen.low, seen.high))
        label = data_spec.columns.label
        of_entry = isinstance(error, EntryError)
        conditioned = bool(data_spec.positive_label or data_spec.label_threshold)
        real &= of_entry and not conditioned
        column = "the column" if of_entry else f"column {name!r}"
        text = f"{error.place}; {column} goes from {low} to {high}"
        if data_spec.range[0] <= seen.low and seen.high <= data_spec.range[1]:
            return f"{text}: give a threshold in this range", []
        if of_entry and label and not conditioned and is_amount(survey(source, [label])[label]):
            remedy, choices = _of_amounts(label, real=real)
            return f"{text}; {remedy}", choices
        scales = _scales(seen, data_spec)
        words = " or ".join(f"`score_scale={scale}` ({meaning})" for scale, meaning in scales.items())
        other = ", or `task=regression` for a real-valued target" if real else ""
        raw = "; a raw score has decisions only with `threshold=NUMBER`" * ("raw" in scales and of_entry)
        choices = [{"score_scale": scale} for scale in scales]
        if decides and "raw" in scales:
            middle = f"{(seen.low + seen.high) / 2:.6g}"
            next(one for one in choices if one["score_scale"] == "raw")["threshold"] = middle
            raw += f", such as {middle}, the middle of its range"
        return f"{text}: set its scale with {words}{other}{raw}", choices
    wanted = data_spec.positive_label if part == "label" else data_spec.positive_prediction
    # where texts are few, so are the numbers that they are
    if part == "label" and not wanted and seen.has_many and is_amount(survey(source, [name])[name]):
        remedy, choices = _of_amounts(name, real=real)
        return f"{error.place}; {remedy}", choices
    text, choices = ways(seen, part, name, wanted, real=real)
    return f"{error.place}; {text}", choices


def is_amount(seen: Survey) -> bool:
    """Return whether a column is of numbers, and of more different ones than there are groups or classes."""
    return math.isfinite(seen.low) and seen.has_many


def _of_amounts(label: str, *, real: bool) -> tuple[str, list[dict[str, str]]]:
    """Return what to do about a label of amounts, in words and as settings."""
    holds = f"the label {label!r} holds more than {MOST_NUMBERS} different numbers"
    limit = f"name its positive values by a limit, as in `label={quoted_name(label, '=')}>=NUMBER`"
    if real:
        return f"{holds}: set `task=regression`, or, to audit decisions, {limit}", [{"task": "regression"}]
    return f"{holds}: {limit}", []


def ways(
    seen: Survey, part: str, name: str, wanted: Sequence[str] = (), *, real: bool = True
) -> tuple[str, list[dict[str, str]]]:
    """Return the content of a column in words, and settings that each name one of its values as positive.

    Where ``wanted`` values are not there, the nearest ones come first.
    """
    few = seen.common
    near = [one for value in wanted for one in nearest(value, [value for value, _ in few], SHOWN)]
    few = sorted(few, key=lambda one: near.index(one[0]) if one[0] in near else len(near))
    text = f"the column holds {seen.shown(first=few)}"
    choices = [{part: with_values(name, [value])} for value, _ in few[:SHOWN]]
    other = "; name a score with `score`" if part != "label" else ""
    other = "; for a real-valued target set `task=regression`" if part == "label" and real else other
    if not few:
        example = f"`{part}={with_values(name, ['VALUE'])}`"
        return f"{text}; name the positive one with {example}, and all others will be negative{other}", []
    if len(few) == 1:
        choices.clear()  # of a single value nothing else is negative
    if len(few) <= 2:
        return f"{text}; name the positive one", choices
    how = "the positive ones, as in"
    if len(few) <= MANY_CLASSES:
        how = "the positive one, or several as in"
        other = "; an audit compares every class with the rest by `task=multiclass`"
    several = f"`{part}={with_values(name, [value for value, _ in few[:2]])}`"
    return f"{text}; name {how} {several}, and all others will be negative{other}", choices


def _scales(seen: Survey, data_spec: DataSpec) -> dict[str, str]:
    """Return what scores of a range may be, by scale.

    Whole numbers up to 20, such as deciles, are no percentages, and numbers hardly above 1 are rounded probabilities.
    Margins and log-odds have both signs. Numbers of such a size are rather raw.
    """
    points = seen.counts is not None and all(value.lstrip("-").isdecimal() for value in seen.counts)
    unlikely = {
        "percent": seen.high < 1.5 or (points and seen.high <= DECILES),
        "margin": seen.low >= 0,
        "logit": seen.low >= 0,
    }
    scales: dict[str, Any] = {
        "percent": "100p",
        "margin": "2p-1",
        "logit": "log-odds",
        "raw": "not a probability",
    }
    if seen.high <= DECILES:
        scales = {"raw": scales["raw"], **scales}
    return {
        scale: words
        for scale, words in scales.items()
        for low, high in (SCORE_RANGE.get(scale, (-math.inf, math.inf)),)
        if scale != data_spec.score_scale
        and not unlikely.get(scale)
        and low <= seen.low
        and seen.high <= high
        and all(low <= cut <= high for cut in data_spec.thresholds)
    }
