"""Messages at the top of every result, about its scores and about the reading of its data.

``score_direction`` is the code of scores that are lower for rows of label 1, ``decision_direction`` that of positive
decisions that are rarer for them, ``unknown_classes`` that of predictions that no label has, ``read_as`` that of a file
whose format had to be detected, ``shared_ids`` that of rows that share a draw, in a repair and in
predictions. ``alike_groups`` and ``missing_marks`` are about names of groups. The module needs no more than an audit;
:mod:`fairfix.tasks.warnings` has what a repair says of itself.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

from msgspec.structs import replace as fields_replaced

from fairfix.auditing.metrics import EQUALIZED_ODDS
from fairfix.data.data_spec import DataSpec
from fairfix.data.files import Source
from fairfix.data.merging import MISSING, look_alikes, marks_in
from fairfix.data.names import few, quoted_name, threshold_sign, with_values
from fairfix.models.scored_source import MODEL_SCORE
from fairfix.models.trace import Caution, Note, messages
from fairfix.schema.audit import Audit
from fairfix.schema.common import Estimate, Message, Number, RowNumbers, SavedResult

log = logging.getLogger("fairfix")

SomeResult = TypeVar("SomeResult", bound=SavedResult)


def of_direction(auc: Number | None, data_spec: DataSpec, name: str | None = None) -> Iterator[Caution]:
    """Yield a message where a score points the wrong way: the whole interval of its overall AUC is below one half.

    ``name`` is that of its column, where there are several.
    """
    if auc is None or not auc.upper < 0.5:
        return
    if data_spec.columns.score == MODEL_SCORE:
        remedy = "check that the label is what the model was fitted to, or name another one with `label`"
    else:
        remedy = (
            f"if it is the score of the other label, use {_other_value(data_spec)}; otherwise name the model's "
            "score with `score`"
        )
    positive = _positive_value(data_spec)
    which = "" if name is None else f" {name!r}"
    yield Caution(
        f"the score{which} points in the wrong direction: its AUC is {_shown(auc)}, so rows "
        f"of label {positive} have lower scores than the others; {remedy}",
        "score_direction",
    )


OPPOSITE = {">=": "<", "<": ">=", ">": "<=", "<=": ">"}
"""Sign of a comparison -> the one that holds for all other numbers."""


def _positive_value(data_spec: DataSpec) -> str:
    """Return the positive values of labels in words."""
    return data_spec.label_threshold or " or ".join(map(repr, data_spec.positive_label)) or "1"


def _other_value(data_spec: DataSpec) -> str:
    """Return what makes another value of labels positive."""
    if sign := threshold_sign(data_spec.label_threshold):
        return f"`label={data_spec.columns.label}{OPPOSITE[sign]}{data_spec.label_threshold[len(sign) :]}`"
    value = "VALUE" if data_spec.positive_label else "0"
    return f"`label={with_values(str(data_spec.columns.label), [value])}`"


def wrong_way(metrics: Mapping[str, Estimate]) -> bool:
    """Return whether the TPR is below the FPR, and so is the whole interval of their difference (square and add)."""
    if not set(EQUALIZED_ODDS) <= set(metrics):
        return False
    tpr, fpr = (metrics[name] for name in EQUALIZED_ODDS)
    change = tpr.point - fpr.point + math.hypot(tpr.upper - tpr.point, fpr.point - fpr.lower)
    return change < 0


def _shown(one: Number) -> str:
    return f"{one.point:.3f} [{one.lower:.3f}, {one.upper:.3f}]"


def of_decisions(metrics: Mapping[str, Estimate], data_spec: DataSpec) -> Iterator[Caution]:
    """Yield a message where decisions point the wrong way; ``metrics`` are the overall ones."""
    if not wrong_way(metrics):
        return
    columns = data_spec.columns
    if MODEL_SCORE in (columns.prediction, columns.score):
        remedy = "check that the label is what the model was fitted to, or name another one with `label`"
    elif columns.prediction:
        remedy = (
            f"if they are of the other label, use {_other_value(data_spec)}, or name the positive decision with "
            f"`prediction={with_values(columns.prediction, ['VALUE'])}`; otherwise name the model's decisions with "
            "`prediction`"
        )
    elif columns.probability:
        remedy = (
            f"if they are probabilities of the other label, use {_other_value(data_spec)}; otherwise name the "
            "right column with `probability`"
        )
    else:
        remedy = "check the label and the score, or name others with `label` and `score`"
    tpr, fpr = (_shown(metrics[name]) for name in EQUALIZED_ODDS)
    yield Caution(
        f"the decisions point in the wrong direction: the TPR is {tpr} and the FPR {fpr}, so rows of label "
        f"{_positive_value(data_spec)} get a positive decision less often than the others; {remedy}",
        "decision_direction",
    )


def of_class_decisions(classes: Mapping[str, Mapping[str, Estimate]]) -> Iterator[Caution]:
    """Yield which classes are predicted less often for rows of that class than for others; of class -> metrics."""
    wrong = [name for name, metrics in classes.items() if wrong_way(metrics)]
    if wrong:
        yield Caution(
            f"some classes are predicted less often for their own rows than for others: {few(wrong)}; check that label "
            "and prediction spell classes the same way",
            "decision_direction",
        )


WHOLE = 1e-9
"""By how much a sum of whole weights may be off, as a share."""

OF_A_CELL = 4
"""Rows of a group in a table of frequencies without scores: one for each label and decision."""


def of_weights(result: Audit) -> Iterator[Note]:
    """Yield that weights look like counts of people: they are whole, and rows are hardly more than kinds of people."""
    columns = result.data.columns
    if not columns.weight or columns.score:
        return
    kinds = math.prod(len(block.groups) for block in result.attributes if len(block.columns) == 1)
    kinds *= len({block.stratum for block in result.strata}) or 1
    masses = [group.weight for block in (*result.attributes, *result.strata) for group in block.groups]
    whole = all(abs(mass - round(mass)) <= WHOLE * mass for mass in masses)
    used = result.data.rows.used
    if whole and used <= OF_A_CELL * kinds and result.data.weight > used:
        yield Note(
            f"the weights {columns.weight!r} are whole numbers, and no two rows describe the same kind of "
            f"people. If they are numbers of people, use `count={columns.weight}` instead: intervals treat a "
            "weighted row as one person",
            "weights_or_counts",
        )


def of_source(source: Source | None) -> Iterator[Note]:
    """Yield how a source was read, where that had to be guessed."""
    if source is not None and source.remark:
        yield Note(source.remark, "read_as")
    for note in () if source is None else source.notes:
        yield note if isinstance(note, Note) else Note(note, "where_unmatched")


def names_of(result: Audit) -> dict[str, dict[str, int]]:
    """Return the names of groups and strata in an audit, with their rows, by column."""
    columns = result.data.columns
    out = {name: dict[str, int]() for name in (*columns.strata, *columns.protected)}
    first = result.strata[0].attribute if result.strata else ""
    for block in result.strata:
        rows = sum(group.rows for group in block.groups) if block.attribute == first else 0
        for column, level in zip(columns.strata, block.stratum_levels, strict=True):
            out[column][level] = out[column].get(level, 0) + rows
    for block in result.attributes:
        if len(block.columns) == 1 and block.groups:
            out[block.columns[0]] = {group.levels[0]: group.rows for group in block.groups}
    return {name: own for name, own in out.items() if own}


def of_names(
    levels: Mapping[str, Mapping[str, int]], data_spec: DataSpec, *, counted: bool = False
) -> Iterator[Caution]:
    """Yield names of groups that look like one group, or like missing values.

    ``levels``: column -> level -> rows. Those of counts keep their names, so they must be ``counted`` again.
    """
    add = "count the data again with" if counted else "add"
    for column, own in levels.items():
        stated = data_spec.merge.get(column, {})
        for name in sorted({*stated.values()} - {*own, MISSING}):
            yield Caution(f"no row of {column!r} has a name that `merge` maps to {name!r}", "merged_nothing")
        for names in look_alikes(own, stated):
            first = max(names, key=lambda name: own[name])
            merge = with_values(column, (first, *(name for name in names if name != first)))
            yield Caution(
                f"{len(names)} groups of {column!r} differ only in case, blanks or Unicode form: "
                f"{_with_rows(names, own)}. They are separate groups here. To make them one, {add} `merge={merge}`; to "
                f"keep them apart, name each alone, as in `merge={with_values(column, names[:1])}`",
                "alike_groups",
            )
        if marks := marks_in(own, stated):
            merge = with_values(column, (MISSING, *marks))
            many = len(marks) > 1
            yield Caution(
                f"{_with_rows(marks, own)} of {column!r} look{'' if many else 's'} like missing values, but "
                f"{'are groups' if many else 'is a group'} here. To make them missing, {add} `merge={merge}` and "
                f"`missing={quoted_name(column, '=')}=drop`; to keep one as a group, name it alone: "
                f"`merge={with_values(column, marks[:1])}`",
                "missing_marks",
            )


def _with_rows(names: Sequence[str], rows: Mapping[str, int]) -> str:
    return ", ".join(f"{name!r} ({rows[name]:,} rows)" for name in names)


def of_unknown_classes(classes: Mapping[str, Mapping[str, Estimate]]) -> Iterator[Caution]:
    """Yield that classes are predicted which no row has as its label; of class -> metrics."""
    names = [name for name, own in classes.items() if "base_rate" in own and own["base_rate"].value == 0]
    if names:
        yield Caution(
            f"some predicted classes are not the label of any row: {few(names)}. Such a class has no true positive "
            "rate, so no gap over the classes can be shown to be small. If the labels have this class, spell it the "
            "same way",
            "unknown_classes",
        )


def of_shared_ids(
    name: str, alike: int, drawn: int, *, whom: str = "another row", exact: bool = True
) -> Iterator[Caution]:
    """Yield how many of the rows whose result is drawn share their id, and with it their draw, and with whom."""
    if alike:
        yield Caution(
            f"row IDs repeat: {'' if exact else 'about '}{alike:,} of the {drawn:,} rows with a randomized "
            "decision share their "
            f"{name!r} with {whom}, and therefore one draw. They are not decided independently: where their "
            "probabilities are equal, so are their results",
            "shared_ids",
        )


UNLABELLED = 0.05
"""Part of the rows that may be without a label before it is warned of: it can change the overall rate by as much."""


def of_missing_labels(rows: RowNumbers, task: str) -> Iterator[Note]:
    """Yield that rows are left out for their label, which numbers that need none lack as well."""
    missing = sum(one.rows for one in rows.excluded if one.reason == "missing label")
    if not missing or task == "regression":
        return
    part = missing / (missing + rows.used)
    text = (
        f"{missing:,} rows ({part:.1%}) have no label and are left out of every number, also of selection rates. If "
        "labels exist mainly for people who were selected, these rates are too high. An audit without the label "
        "counts the decisions on all people"
    )
    yield Caution(text, "missing_labels") if part > UNLABELLED else Note(text, "missing_labels")


def with_messages(result: SomeResult, notes: Iterable[Note], printed: Sequence[Note] = ()) -> SomeResult:
    """Return a result with what is said of it; warnings are also printed, unless they are already."""
    unlabelled = of_missing_labels(result.data.rows, result.settings.task)
    noted = messages((*printed, *unlabelled, *notes))
    for note in noted:
        if note.severity == "warning" and note not in printed:
            log.info("%s", note.line)
    return fields_replaced(result, messages=(*result.messages, *map(message, noted)))


def message(note: Note) -> Message:
    """Return what is said of a result."""
    return Message(severity=note.severity, code=note.code, text=str(note))
