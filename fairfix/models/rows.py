"""Rows as a program has them, in any of its usual kinds; predictions come back in the same kind.

====================================================  =======================================================
rows                                                  come back as
====================================================  =======================================================
dict of one row, list of dicts, dict of columns       the same, with the keys added
series of pandas: one row                             series of pandas
data frame of pandas                                  data frame with the same index
data frame of Polars                                  the same
lazy frame of an engine                               the same (:mod:`fairfix.models.lazy_rows`)
structured array of numpy                             the same, with the fields added
Arrow table, dataset, reader; database; path          Arrow table
====================================================  =======================================================

Whatever the kind, rows become a :class:`~fairfix.data.files.Source` and meet the rules of every other data.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from fairfix.data.choices import MissingScore, Unseen
from fairfix.data.files import Source, open_source
from fairfix.data.frames import columns_of, engine_of
from fairfix.data.row_hash import SharedDraws
from fairfix.errors import DataError, FairfixWarning, ModelError, UsageError
from fairfix.models.in_memory import CONTENT, content_hash, fitted_model
from fairfix.models.repaired import Repaired
from fairfix.models.scored_source import Averaged, ScoredSource, read_changes
from fairfix.models.trace import Note
from fairfix.models.unlike_rows import UnlikeRows
from fairfix.models.user_file import ScoringModel, file_hash, load_model

Back = Callable[[pa.Table], Any]
"""Makes of the columns that prediction adds, a row per row of the data, what is returned."""


def predict_rows(
    repaired: Repaired,
    data: Any,
    *,
    model: Any,
    trust_model: str | None,
    missing: MissingScore,
    share_ids: bool,
    unseen: Unseen | None,
    opening: Callable[[Any], Source] = open_source,
    tally: SharedDraws | None = None,
    say: Callable[[Note], object] | None = None,
) -> Any:
    """Return data with its predictions, in the kind that the data came in; see :meth:`Repaired.predict`.

    ``opening`` makes a source of rows that are in no kind of a program, ``tally`` counts ids that repeat, and ``say``
    gets notes; without it, a note on rows that a repair hardly applies to is a warning of Python.
    """
    if model is None and trust_model is None and (alone := repaired.predict_plain(data)) is not None:
        return alone
    if unseen:
        repaired = replace(repaired, unseen=unseen)
    if isinstance(data, Sequence) and not isinstance(data, str) and not data:
        return []
    repaired = with_model(repaired, model, trust_model)
    if engine_of(data):
        from fairfix.models.lazy_rows import predict_lazily

        if (lazy := predict_lazily(data, repaired, missing, share_ids=share_ids)) is not None:
            return lazy
    source, back = _opened(data, repaired, opening)
    source = scored(source, repaired)
    unlike = UnlikeRows()
    asked: dict[str, Any] = {"missing_score": missing, "duplicates": share_ids, "tally": tally}
    batches = repaired.predict_source(source, **asked, unlike=unlike)
    whole = pa.Table.from_batches(batches, repaired.output_schema(source))
    for note in unlike.notes(repaired.predictor, repaired.unseen, whole.num_rows):
        if say is not None:
            say(note)
        elif note.severity == "warning" and whole.num_rows > 1:
            warnings.warn(FairfixWarning(str(note), note.code), stacklevel=3)
    return whole if back is None else back(whole.select(repaired.output.names))


def with_model(repaired: Repaired, given: Any, trust: str | None) -> Repaired:
    """Return a repair with the model that it was fitted on as its ``scorer``, in a file or in memory."""
    base = repaired.base
    if base["kind"] != "file":
        if given is not None:
            where = "features" if base["kind"] == "features" else f"the column {base['name']!r}"
            raise UsageError(f"this artifact takes its scores from {where}; leave out `model`")
        return repaired
    if given is not None:
        return replace(repaired, scorer=_model_again(base, given, trust))
    if repaired.scorer is None:
        here = base["sha256"].startswith(CONTENT)
        how = "that model, fitted and in memory, or its file," if here else "that file"
        raise UsageError(f"this artifact needs the scores of {base['name']}; give {how} with `model`")
    return repaired


def scored(source: Source, repaired: Repaired) -> Source:
    """Return the source with the scores of the model that the artifact was fitted on, if any."""
    if repaired.base["kind"] != "file":
        return source
    model, average = repaired.scorer, repaired.base.get("average")
    return ScoredSource(source, model if average is None else Averaged(model, read_changes(average)))


def _model_again(base: Mapping[str, Any], given: Any, trust: str | None) -> ScoringModel:
    """Return the model that is given; a ModelError where the artifact was fitted on another one."""
    about: Any = {"features": base["features"], "positive_label": base.get("positive_label")}
    given = os.fspath(given) if isinstance(given, os.PathLike) else given
    if not isinstance(given, str):
        if trust is not None:
            raise UsageError(
                "`trust_model` is for model files; leave it out, since this `model` is in memory"
            )
        model = fitted_model(given, base["features"], **about)
        name = f"the {model.path} in memory"
    elif base["sha256"].startswith(CONTENT):
        model, name = load_model(given, trust=trust, **about), given
    else:
        if file_hash(given) != base["sha256"]:
            raise ModelError(f"{given} is not the model this artifact was fitted on ({base['sha256']})")
        return load_model(given, trust=trust, **about)
    if not base["sha256"].startswith(CONTENT):
        raise UsageError(
            f"this artifact was fitted on a model file; give that file, {base['name']}, with `model`"
        )
    if content_hash(model.estimator) != base["sha256"]:
        raise ModelError(f"{name} is not the model this artifact was fitted on: its content differs")
    return model


def _opened(data: Any, repaired: Repaired, opening: Callable[[Any], Source]) -> tuple[Source, Back | None]:
    """Return data as a source, and what gives predictions back in its kind; None for an Arrow table with all."""
    if isinstance(data, Mapping):
        return _of_dict(data, repaired.predictor.vectors)
    if isinstance(data, Sequence) and not isinstance(data, str):
        if wrong := [type(row).__name__ for row in data if not isinstance(row, Mapping)]:
            raise DataError(
                f"a list of rows holds dicts, and this one a {wrong[0]}; give a dict for each row"
            )
        return open_source(columns_of(data)), lambda added: [
            {**row, **new} for row, new in zip(data, added.to_pylist(), strict=True)
        ]
    if isinstance(data, np.ndarray) and data.dtype.names:
        return open_source(data), partial(_with_fields, np.atleast_1d(data))
    if hasattr(data, "hstack"):
        import polars as pl

        return open_source(_narrowed(data, repaired)), lambda added: data.hstack(pl.from_arrow(added))
    if hasattr(data, "iloc") and hasattr(data, "assign"):

        def framed(added: pa.Table) -> Any:
            columns = added.to_pandas().set_axis(data.index)
            return data.assign(**{name: columns[name] for name in columns})

        return open_source(_narrowed(data, repaired)), framed
    if hasattr(data, "iloc") and hasattr(data, "to_dict"):
        own = data.to_dict()
        source, back = _of_dict(own, repaired.predictor.vectors)
        return source, lambda added: type(data)(back(added), name=data.name)
    return opening(data), None


def _narrowed(frame: Any, repaired: Repaired) -> Any:
    """Return the columns of a frame that prediction needs; the whole frame where it lacks one, which is said later."""
    names = list(repaired.required)
    there = all(name in frame.columns for name in names)
    taken = any(name in frame.columns for name in repaired.output.names)
    return (
        frame[names] if names and there and not taken and getattr(frame.columns, "nlevels", 1) == 1 else frame
    )


def _of_dict(data: Mapping[Any, Any], vectors: Collection[str]) -> tuple[Source, Back]:
    """Return one row, or columns, as a source, and what gives predictions back in a dict."""
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


def _with_fields(rows: Any, added: pa.Table) -> Any:
    """Return a structured array with further fields; decisions that are missing make a field of floats."""
    own = added.to_pandas()
    kinds = [(name, own[name].dtype) for name in own]
    out = np.empty(len(rows), dtype=[*((name, rows.dtype[name]) for name in rows.dtype.names), *kinds])
    for name in rows.dtype.names:
        out[name] = rows[name]
    for name in own:
        out[name] = own[name].to_numpy()
    return out


def _is_one(value: Any, *, vector: bool) -> bool:
    """Tell whether an entry of a dict is the value of one row, which is a list itself in a column of vectors."""
    if isinstance(value, str | bytes) or not hasattr(value, "__len__"):
        return True
    return vector and not any(entry is None or hasattr(entry, "__len__") for entry in value)
