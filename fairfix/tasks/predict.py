"""Predict: a repaired predictor applied to new rows; and the loading of saved files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from fairfix.auditing.countfile import CountFile
from fairfix.data.container import COUNTS, kind_of
from fairfix.data.draws import SharedDraws
from fairfix.data.files import read_json
from fairfix.errors import UsageError
from fairfix.models.repaired import Repaired
from fairfix.models.rows import scored
from fairfix.tasks.dataset import log, opened
from fairfix.tasks.messages import of_shared_ids
from fairfix.tasks.request import PredictRequest, function_of
from fairfix.tasks.result import Result


@dataclass(frozen=True)
class Predictions:
    """Rows with their predictions, made a batch at a time; ``rows`` is their number, where it is known."""

    schema: pa.Schema
    batches: Iterator[pa.RecordBatch]
    rows: int | None


def predictions_of(request: PredictRequest) -> Predictions:
    """Return the predictions that a request asks for."""
    if request.artifact is None or request.data is None:
        raise UsageError("name the `artifact` and the `data` that it decides on")
    repaired = repaired_of(request.artifact)
    if request.unseen_group:
        repaired = replace(repaired, unseen_group=request.unseen_group)
    source = scored(opened(request, request.data), repaired, request.model, request.trust_model)
    if repaired.predictor.needs_protected:
        names = ", ".join(repaired.reading.columns.protected)
        what = "decisions" if repaired.predictor.gives == "decision" else "values"
        log.info("%s use the protected attribute (%s)", what, names)
    shared = request.duplicate_ids == "share"
    name, tally = repaired.reading.columns.id, SharedDraws()

    def batches() -> Iterator[pa.RecordBatch]:
        ways: Any = {"missing_score": request.missing, "duplicate_ids": shared}
        yield from repaired.predict_source(source, **ways, tally=tally if name and shared else None)
        way: Any = {"whom": "another of them", "exact": tally.exact}
        for note in of_shared_ids(str(name), tally.alike, tally.rows, **way):
            log.info("%s", note.line)

    return Predictions(repaired.output_schema(source), batches(), source.rows)


def repaired_of(artifact: Any) -> Repaired:
    """Return the repaired predictor that is given: itself, with the result of its repair, or as a file."""
    artifact = getattr(artifact, "repaired", artifact)
    return artifact if isinstance(artifact, Repaired) else Repaired.load(artifact, _kinds_of_methods)


def _kinds_of_methods() -> None:
    """Import the repair methods, some of which may bring a kind of predictor of their own."""
    from fairfix.methods import available

    available()


def _predict(request: PredictRequest) -> pa.Table:
    """Apply a repaired predictor to new rows.

    Returns
    -------
    The rows in order, as an Arrow table with the columns ``p_positive`` (``prediction`` for a method that repairs
    values), ``decision`` and ``randomized``; ``.to_pandas()`` makes a data frame of it.

    Raises
    ------
    UsageError, DataError, ModelError, ArtifactError
        The artifact is damaged, or the data is not like that of the repair.
    """
    predictions = predictions_of(request)
    return pa.Table.from_batches(predictions.batches, predictions.schema)


predict = function_of("predict", PredictRequest, _predict)


def load(path: str) -> Repaired | CountFile | Result:
    """Return what a file of fairfix holds: a repaired predictor, counts, or a result in JSON.

    Raises
    ------
    ArtifactError, DataError
        The file is none of them, or damaged.
    """
    if str(path).endswith(".json"):
        return Result(read_json(path))
    return CountFile.load(path) if kind_of(path) == COUNTS else Repaired.load(path, _kinds_of_methods)
