"""Which column is what, where nobody said: conventional names, printed when they are used."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa

from fairfix.data.reading import Columns
from fairfix.errors import ColumnError

LABELS = ("label", "y", "y_true", "target")
SCORES = ("score", "y_score", "proba", "prediction", "y_pred")
DECISIONS = frozenset({"prediction", "y_pred"})
"""Names that hold decisions when the column is not of fractional numbers."""


def infer_columns(
    columns: Columns, schema: pa.Schema, *, score_from_model: bool = False, score_needed: bool = True
) -> tuple[Columns, dict[str, str]]:
    """Return the columns with label and score filled in by name, and what was inferred (part -> column).

    A missing label is no error: metrics that need none are still computed. Nor is a missing score, where a model is yet
    to be learned and it is not ``score_needed``; decisions are not looked for then.
    """
    taken = set(columns.roles)
    names = [name for name in schema.names if name not in taken]
    inferred: dict[str, str] = {}
    if columns.label is None and (label := _only(LABELS, names, "label")) is not None:
        inferred["label"] = label
        columns = replace(columns, label=label)
    if columns.score or columns.prediction or columns.probability or score_from_model:
        return columns, inferred
    score = _only(SCORES, names, "score")
    if score is None and not score_needed:
        return columns, inferred
    if score is None:
        raise ColumnError(
            "no score column: name it with `score=COLUMN` (or decisions with `prediction`, or a model file "
            f"with `model`); the columns are {', '.join(schema.names)}"
        )
    kind = schema.field(score).type
    if score in DECISIONS and not pa.types.is_floating(kind):
        if not score_needed:
            return columns, inferred
        return replace(columns, prediction=score), {**inferred, "prediction": score}
    return replace(columns, score=score), {**inferred, "score": score}


def _only(conventional: Sequence[str], names: Sequence[str], part: str) -> str | None:
    """Return the one column with a conventional name, None if there is none."""
    fitting = [name for name in conventional if name in names]
    if len(fitting) > 1:
        raise ColumnError(
            f"the columns {', '.join(map(repr, fitting))} could each be the {part}; say which with --{part} COLUMN "
            f"(the columns are {', '.join(names)})"
        )
    return fitting[0] if fitting else None
