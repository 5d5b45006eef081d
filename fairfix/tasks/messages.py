"""Messages: what any result says first, of its scores and of how its data was read.

``score_direction`` is the code of scores that are lower for rows of label 1, ``unknown_classes`` that of predictions
that no label has, ``read_as`` that of a file of which it had to be found out how it is written, ``shared_ids`` that of
rows that share a draw, in a repair and in predictions. ``alike_groups`` and ``missing_marks`` are about names of
groups. The module needs no more than an audit; :mod:`fairfix.tasks.doubts` has what a repair says of itself.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from fairfix.auditing.results import Value
from fairfix.data.files import Source
from fairfix.data.merging import MISSING, look_alikes, marks_in, written_merge
from fairfix.data.reading import Reading
from fairfix.models.scoring import MODEL_SCORE
from fairfix.models.trace import Caution, Note, messages

log = logging.getLogger("fairfix")


def of_direction(auc: Value | None, reading: Reading) -> Iterator[Caution]:
    """Yield that a score points the wrong way: the whole interval of its AUC over everybody is below one half."""
    if auc is None or not auc.high < 0.5:
        return
    if reading.columns.score == MODEL_SCORE:
        remedy = "look whether the label is what the model was fitted to, and name another one with `label`"
    else:
        other = (
            "`positive_label=0`" if reading.positive_label is None else "another value with `positive_label`"
        )
        remedy = (
            f"if it is the score of the other label, say {other}; else name the model's score with `score`"
        )
    positive = "1" if reading.positive_label is None else repr(reading.positive_label)
    yield Caution(
        f"the score points the wrong way: its AUC is {auc.value:.3f} [{auc.low:.3f}, {auc.high:.3f}], so rows of "
        f"label {positive} have lower scores than the others; {remedy}",
        "score_direction",
    )


def of_source(source: Source | None) -> Iterator[Note]:
    """Yield how a source was read, where that had to be guessed."""
    if source is not None and source.remark:
        yield Note(source.remark, "read_as")


def of_names(levels: Mapping[str, Mapping[str, int]], reading: Reading) -> Iterator[Caution]:
    """Yield names of groups that look like one group, or like missing values.

    ``levels``: column -> level -> rows.
    """
    for column, own in levels.items():
        stated = reading.merge.get(column, {})
        for name in sorted({*stated.values()} - {*own, MISSING}):
            yield Caution(
                f"no row of {column!r} has a name that `merge` takes for {name!r}", "merged_nothing"
            )
        for names in look_alikes(own, stated):
            first = max(names, key=lambda name: own[name])
            merge = written_merge(column, (first, *(name for name in names if name != first)))
            yield Caution(
                f"{len(names)} groups of {column!r} differ only in case or blanks: {_with_rows(names, own)}. They are "
                f"separate groups here. To make them one, add `merge={merge}`; to keep them apart, name each alone, as "
                f"in `merge={written_merge(column, names[:1])}`",
                "alike_groups",
            )
        if marks := marks_in(own, stated):
            merge = written_merge(column, (MISSING, *marks))
            many = len(marks) > 1
            yield Caution(
                f"{_with_rows(marks, own)} of {column!r} look{'' if many else 's'} like missing values, but "
                f"{'are groups' if many else 'is a group'} here. To make them missing, add `merge={merge}` and "
                f"`missing_group=drop`; to keep one as a group, name it alone: "
                f"`merge={written_merge(column, marks[:1])}`",
                "missing_marks",
            )


def _with_rows(names: Sequence[str], rows: Mapping[str, int]) -> str:
    return ", ".join(f"{name!r} ({rows[name]:,} rows)" for name in names)


def of_unknown_classes(names: Sequence[str]) -> Iterator[Caution]:
    """Yield that classes are predicted which no row has as its label."""
    if names:
        shown = ", ".join(map(repr, names[:3])) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
        yield Caution(
            f"predicted, but no row's label: {shown}; such a class has no true positive rate, and no gap over the "
            "classes can be shown to be small; if it is one that labels have, spell it alike",
            "unknown_classes",
        )


def of_shared_ids(
    name: str, alike: int, drawn: int, *, whom: str = "another row", exact: bool = True
) -> Iterator[Caution]:
    """Yield how many of the rows whose result is drawn share their id, and with it their draw, and with whom."""
    if alike:
        yield Caution(
            f"ids repeat: {'' if exact else 'about '}{alike:,} of the {drawn:,} rows whose result is drawn share their "
            f"{name!r} with {whom}, and with it one draw, so they are not decided each for itself: where their "
            "chances are equal, so are their results",
            "shared_ids",
        )


def add_messages(content: dict[str, Any], notes: Iterable[Note]) -> None:
    """Add to a result what is said of it, if anything; warnings are also said while it is made."""
    noted = messages(notes)
    if not noted:
        return
    content["messages"] = list(map(message_dict, noted))
    for note in noted:
        if note.severity == "warning":
            log.info("%s", note.line)


def message_dict(note: Note) -> dict[str, str]:
    """Return what is said of a result."""
    return {"severity": note.severity, "code": note.code, "text": str(note)}
