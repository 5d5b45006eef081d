"""Rows as a program has them, in any of its usual kinds; predictions come back in the same kind.

A row of a service is a dict, several are a list of dicts or a dict of columns; a data frame and an Arrow table are what
they are. Whatever the kind, rows become one :class:`~fairfix.data.files.Source` and meet the rules of every other data.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from fairfix.data.choices import MissingScore, UnseenGroup
from fairfix.data.files import Source, open_source
from fairfix.data.names import group_name
from fairfix.errors import DataError, FairfixWarning, ModelError, UsageError
from fairfix.models.repaired import Repaired
from fairfix.models.scoring import Averaged, ScoredSource, read_changes
from fairfix.models.trace import Caution, Note
from fairfix.models.user_file import file_hash, load_model

Back = Callable[[pa.Table], Any]
"""Makes of the columns that prediction adds, a row per row of the data, what is returned."""


def predict_rows(
    repaired: Repaired,
    data: Any,
    *,
    model: str | None,
    trust_model: str | None,
    missing: MissingScore,
    share_ids: bool,
    unseen_group: UnseenGroup | None,
) -> Any:
    """Return data with its predictions, in the kind that the data came in; see :meth:`Repaired.predict`."""
    if unseen_group:
        repaired = replace(repaired, unseen_group=unseen_group)
    if isinstance(data, Sequence) and not isinstance(data, str) and not data:
        return []
    source, back = _opened(data, repaired.predictor.vectors)
    source = scored(source, repaired, model, trust_model)
    unseen = Counter[str]()
    batches = repaired.predict_source(source, missing_score=missing, duplicate_ids=share_ids, unseen=unseen)
    whole = pa.Table.from_batches(batches, repaired.output_schema(source))
    for note in of_unseen(repaired, unseen, whole.num_rows):
        if note.severity == "warning" and whole.num_rows > 1:
            warnings.warn(FairfixWarning(str(note), note.code), stacklevel=3)
    return whole if back is None else back(whole.select(repaired.output.names))


MOSTLY = 0.5
"""Share of rows of unseen groups from which on a repair hardly decides anything."""

SHOWN = 6
"""Groups that are named."""


def of_unseen(repaired: Repaired, unseen: Mapping[str, int], rows: int) -> Iterator[Note]:
    """Yield how many rows are of groups that the fit has not seen; a caution where these are at least half."""
    if not unseen:
        return
    total, predictor = sum(unseen.values()), repaired.predictor
    most = sorted(unseen.items(), key=lambda one: (-one[1], one[0]))
    named = ", ".join(f"{name!r} {many:,}" for name, many in most[:SHOWN])
    named += f" and {len(most) - SHOWN:,} groups more" if len(most) > SHOWN else ""
    gets = {
        "abstain": "they get no prediction",
        "base": "the repair changes nothing for them"
        if not predictor.classes
        else "they are predicted as rows of no group",
    }[repaired.unseen_group]
    own = [group_name(level) for level in getattr(predictor, "levels", ())]
    there = (
        f"; the fit has {', '.join(map(repr, own[:SHOWN]))}" + (", ..." if len(own) > SHOWN else "")
        if own
        else ""
    )
    text = f"the fit has not seen the groups of {total:,} of {rows:,} rows ({total / rows:.1%}): {named}; {gets}{there}"
    if total >= MOSTLY * rows:
        yield Caution(
            f"this repair hardly applies here: {text}; check how groups are written", "unseen_groups"
        )
    else:
        yield Note(text, "unseen_groups")


def scored(source: Source, repaired: Repaired, path: str | None, trust: str | None) -> Source:
    """Return the source with the scores of the model file that the artifact was fitted on."""
    base = repaired.base
    if base["kind"] != "file":
        if path:
            where = "features" if base["kind"] == "features" else f"the column {base['name']!r}"
            raise UsageError(f"this artifact takes its scores from {where}; leave out `model`")
        return source
    if not path:
        raise UsageError(f"this artifact needs the scores of {base['name']}; give that file with `model`")
    if file_hash(path) != base["sha256"]:
        raise ModelError(f"{path} is not the model this artifact was fitted on ({base['sha256']})")
    model = load_model(
        path, trust=trust, features=base["features"], positive_label=base.get("positive_label", ())
    )
    average = base.get("average")
    return ScoredSource(source, model if average is None else Averaged(model, read_changes(average)))


def _opened(data: Any, vectors: Collection[str]) -> tuple[Source, Back | None]:
    """Return data as a source, and what gives predictions back in its kind; None for an Arrow table with all."""
    if isinstance(data, Mapping):
        rowwise = {str(name): _is_one(value, vector=name in vectors) for name, value in data.items()}
        if all(rowwise.values()):
            source = open_source({name: [value] for name, value in data.items()})
            return source, lambda added: {**data, **added.to_pylist()[0]}
        if any(rowwise.values()):
            column = next(name for name, one in rowwise.items() if not one)
            value = next(name for name, one in rowwise.items() if one)
            raise DataError(
                f"a dict is one row or has a list for each column, but {column!r} is a list and {value!r} is not"
            )
        return open_source(data), lambda added: {**data, **added.to_pydict()}
    if isinstance(data, Sequence) and not isinstance(data, str):
        if wrong := [type(row).__name__ for row in data if not isinstance(row, Mapping)]:
            raise DataError(
                f"a list of rows holds dicts, and this one a {wrong[0]}; give a dict for each row"
            )
        names = dict.fromkeys(name for row in data for name in row)
        source = open_source({name: [row.get(name) for row in data] for name in names})
        return source, lambda added: [
            {**row, **new} for row, new in zip(data, added.to_pylist(), strict=True)
        ]
    if hasattr(data, "iloc") and hasattr(data, "assign"):

        def framed(added: pa.Table) -> Any:
            columns = added.to_pandas().set_axis(data.index)
            return data.assign(**{name: columns[name] for name in columns})

        return open_source(data), framed
    return open_source(data), None


def _is_one(value: Any, *, vector: bool) -> bool:
    """Tell whether an entry of a dict is the value of one row, which is a list itself in a column of vectors."""
    if isinstance(value, str | bytes) or not hasattr(value, "__len__"):
        return True
    return vector and not any(entry is None or hasattr(entry, "__len__") for entry in value)
