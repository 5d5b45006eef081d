"""Predict: a repaired predictor applied to new rows; and the loading of saved files."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pyarrow as pa

from fairfix.auditing.countfile import CountFile
from fairfix.data.container import COUNTS, kind_of
from fairfix.data.files import Source, atomic_output, make_folder_of, open_source, table_writer
from fairfix.data.row_hash import SharedDraws
from fairfix.data.storage import check_target
from fairfix.data.urls import inside, name_of, scheme_of
from fairfix.data.workers import workers_of
from fairfix.errors import UsageError
from fairfix.models.repaired import Repaired
from fairfix.models.rows import predict_rows, scored, with_model
from fairfix.models.trace import Note
from fairfix.models.unlike_rows import UnlikeRows
from fairfix.tasks.dataset import log, opened
from fairfix.tasks.messages import of_shared_ids
from fairfix.tasks.request import WRITTEN, PredictRequest, function_of
from fairfix.tasks.result import Result, load_result


@dataclass(frozen=True)
class Predictions:
    """Rows with their predictions, made a batch at a time; ``rows`` is their number, where it is known."""

    schema: pa.Schema
    batches: Iterator[pa.RecordBatch]
    rows: int | None


@dataclass(frozen=True)
class FileOfMany:
    """A file whose rows are to be predicted, and where they are to be written."""

    where: str
    source: Source
    target: str


def say_note(note: Note, where: str = "") -> None:
    """Log a message about predictions; a repair that hardly applies is a warning."""
    unlike = note.code in ("unseen_groups", "unseen_features")
    say = log.warning if unlike and note.severity == "warning" else log.info
    say("%s%s", where, note.line)


def predictions_of(request: PredictRequest) -> Predictions:
    """Return the predictions that a request asks for."""
    return _of_source(*_opened(request), request)


def predict_files(request: PredictRequest, folder: str, cluster: str | None) -> Iterator[tuple[str, int]]:
    """Yield (file, rows) of predictions: a file in a folder for each file of the data, each whole or not there.

    The folder may be the URL of one. The workers of a cluster, where there is one, write the files themselves. Each
    file is data of its own: ids are unique in it, and equal rows are told apart in it.
    """
    repaired, source = _opened(request)
    sources = dict(source.files())
    top = os.path.commonpath([os.path.dirname(path) for path in sources])  # noqa: PTH120  of stores too
    taken = {os.path.realpath(path) if os.path.isabs(path) else path for path in sources}  # noqa: PTH117  of stores too
    files = []
    for path, single in sources.items():
        own = os.path.relpath(path, top)
        files.append(FileOfMany(own, single, inside(folder, own)))
    for one in files:
        stored = scheme_of(one.target)
        if (one.target.partition("://")[2] if stored else os.path.realpath(one.target)) in taken:
            raise UsageError(
                f"`output={folder}` would replace {one.where}, an input file; name another folder"
            )
    for one in files:
        if scheme_of(one.target):
            check_target(one.target)
        else:
            make_folder_of(one.target)
    with workers_of(cluster, 1) as workers:
        done = workers.each(files, partial(_write, repaired, replace(request, data=None, artifact=None)))
        for one, (rows, notes) in zip(files, done, strict=True):
            for note in notes:
                say_note(note, f"{one.where}: ")
            yield one.target, rows


def _write(repaired: Repaired, request: PredictRequest, one: FileOfMany) -> tuple[int, list[Note]]:
    """Write the predictions of a file; return how many rows they are, and what is to be said of them."""
    notes: list[Note] = []
    predictions, rows = _of_source(repaired, one.source, request, notes.append), 0
    with atomic_output(one.target) as file, table_writer(file, one.target, predictions.schema) as write:
        for batch in predictions.batches:
            write(batch)
            rows += batch.num_rows
    return rows, notes


def _opened(request: PredictRequest) -> tuple[Repaired, Source]:
    """Return the predictor and the rows, scored by the model if need be."""
    if request.artifact is None or request.data is None:
        raise UsageError("name the `artifact` and the `data` to decide on")
    repaired = repaired_of(request.artifact)
    if request.unseen:
        repaired = replace(repaired, unseen=request.unseen)
    repaired = with_model(repaired, request.model, request.trust_model)
    source = scored(opened(request, request.data), repaired)
    if repaired.predictor.needs_beside(repaired.data_spec.columns.strata):
        rule = repaired.predictor
        names = (
            *repaired.data_spec.columns.protected,
            *rule.memberships,
            *(one.column for one in rule.scales),
        )
        what = {"decision": "decisions", "value": "values", "class": "classes"}[repaired.predictor.gives]
        log.info(
            "for groups in the training rows, %s use the protected attribute (%s)", what, ", ".join(names)
        )
    return repaired, source


def _of_source(
    repaired: Repaired, source: Source, request: PredictRequest, say: Callable[[Note], object] = say_note
) -> Predictions:
    """Return the predictions of a source; ``say`` gets what there is to say of them after the last batch."""
    shared = request.duplicates == "share"
    name, tally, unlike = repaired.data_spec.columns.id, SharedDraws(), UnlikeRows()

    def batches() -> Iterator[pa.RecordBatch]:
        ways: Any = {"missing_score": request.missing, "duplicates": shared, "unlike": unlike}
        rows = 0
        for batch in repaired.predict_source(source, **ways, tally=tally if name and shared else None):
            rows += batch.num_rows
            yield batch
        on_rows = unlike.notes(repaired.predictor, repaired.unseen, rows)
        for note in (*_of_draws(name, tally), *on_rows):
            say(note)

    return Predictions(repaired.output_schema(source), batches(), source.rows)


def _of_draws(name: str | None, tally: SharedDraws) -> Iterator[Note]:
    """Yield what is to be said of rows that share their id, and with it their draw."""
    yield from of_shared_ids(str(name), tally.alike, tally.rows, whom="another of them", exact=tally.exact)


def repaired_of(artifact: Any, parameter: str = "artifact") -> Repaired:
    """Return the repaired predictor that is given: itself, with the result of its repair, or as a file."""
    artifact = getattr(artifact, "repaired", artifact)
    if isinstance(artifact, Repaired):
        return artifact
    if not isinstance(artifact, (str, os.PathLike)):
        raise UsageError(
            f"`{parameter}`: a value of type {type(artifact).__name__} is not a repair; give the result of "
            "fairfix.repair, or a path"
        )
    return _loaded(artifact)


def _loaded(path: Any) -> Repaired:
    """Read an artifact whose rule gives what its test vectors say."""
    repaired = Repaired.load(path, _kinds_of_methods)
    if "vectors" in repaired.facts:
        from fairfix.models.export.vectors import check_vectors

        check_vectors(repaired, name_of(os.fspath(path)))
    return repaired


def _kinds_of_methods() -> None:
    """Import the repair methods, since some may bring a kind of predictor of their own."""
    from fairfix.methods import available

    available()


def _predict(request: PredictRequest) -> Any:
    """Apply a repaired predictor to new rows; ``repaired.predict(rows)`` is the same.

    Returns
    -------
    The rows in order and in the kind they came in, with the columns ``p_positive`` (``prediction`` for a method that
    repairs values), ``decision`` and ``randomized``: a data frame of pandas or Polars for one, a dict for a dict. A
    path and an Arrow table give an Arrow table; its ``.to_pandas()`` makes a data frame. A lazy frame of an engine is
    predicted when it is read.

    Raises
    ------
    UsageError, DataError, ModelError, ArtifactError
        The artifact is damaged, or the data is not like that of the repair.
    """
    if request.artifact is None or request.data is None:
        raise UsageError("name the `artifact` and the `data` to decide on")
    asked = {name: getattr(request, name) for name in ("model", "trust_model", "missing", "unseen")}
    repaired, rows = repaired_of(request.artifact), request.data
    share, tally = request.duplicates == "share", SharedDraws()
    name = repaired.data_spec.columns.id if share else None
    opening: Callable[[Any], Source] = partial(opened, request)
    if any(map(request.has, ("sql", *WRITTEN))):
        # refuses parameters of files for other rows
        rows, opening = opened(request, rows), open_source
    asked |= {"share_ids": share, "tally": tally if name else None}
    out = predict_rows(repaired, rows, opening=opening, say=say_note, **asked)
    for note in _of_draws(name, tally):
        say_note(note)
    return out


predict = function_of("predict", PredictRequest, _predict)


def load(path: str, *more: str) -> Repaired | CountFile | Result:
    """Return what a file of fairfix holds: a repaired predictor, counts, or a result in JSON.

    Several results of audits are returned as one result, their trend.

    Raises
    ------
    ArtifactError, DataError
        The file is none of them, or damaged.
    """
    if more:
        from fairfix.tasks.trends import trend_of

        return Result(trend_of((path, *more)))
    if str(path).endswith(".json"):
        return Result(load_result(path))
    return CountFile.load(path) if kind_of(path) == COUNTS else _loaded(path)
