"""Messages: what any result says first, of its scores and of how its data was read.

``score_direction`` is the code of scores that are lower for rows of label 1, ``read_as`` that of a file of which it had
to be found out how it is written, ``shared_ids`` that of rows that share a draw, in a repair and in predictions. The
module needs no more than an audit; :mod:`fairfix.tasks.doubts` has what a repair says of itself.
"""

from __future__ import annotations

from collections.abc import Iterator

from fairfix.auditing.results import Value
from fairfix.data.files import Source
from fairfix.data.reading import Reading
from fairfix.models.scoring import MODEL_SCORE
from fairfix.models.trace import Caution, Note


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


def message_dict(note: Note) -> dict[str, str]:
    """Return what is said of a result."""
    return {"severity": note.severity, "code": note.code, "text": str(note)}
