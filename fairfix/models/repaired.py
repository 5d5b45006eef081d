"""Repaired: a predictor with all that is needed to use it, explain it and make it again; saved as one file.

The file is an :mod:`artifact <fairfix.data.container>`: a manifest and arrays, data and never code. Applying it to new
rows streams: a batch comes in, the same batch goes out with ``p_positive``, ``decision`` and ``randomized``.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, get_args

import numpy as np
import pyarrow as pa
from msgspec import to_builtins
from msgspec.structs import asdict

import fairfix.models.mixtures
import fairfix.models.numeric_rules  # noqa: F401  their kinds of predictor register themselves
from fairfix import __version__
from fairfix.data.arrow_normalize import as_first
from fairfix.data.choices import Duplicates, MissingScore, Unseen
from fairfix.data.codec import LONGEST_FAULT, converted, need, plain, shortened, shown
from fairfix.data.container import Archive, digest, read, write
from fairfix.data.counts import Bools, Counts, Floats
from fairfix.data.data_spec import ColumnRoles, DataSpec
from fairfix.data.encoder import Encoder, Rows, arrow_array
from fairfix.data.files import Source
from fairfix.data.memberships import NO_POLICY, memberships
from fairfix.data.names import did_you_mean
from fairfix.data.once import once_per_object
from fairfix.data.row_hash import Seen, SharedDraws, decided, draws_of, is_random
from fairfix.data.table import Table
from fairfix.data.urls import name_of
from fairfix.errors import MALFORMED, ArtifactError, DataError, UsageError
from fairfix.models.class_chances import class_schema, classified
from fairfix.models.identity import IDENTITY_TYPES, RowDraws, check_unique, identities
from fairfix.models.manifest import Manifest, PredictColumns
from fairfix.models.one_row import RowRule
from fairfix.models.predictors import RepairedPredictor, unseen_error
from fairfix.models.scored_source import MODEL_SCORE, read_changes, replaced
from fairfix.models.unlike_rows import UnlikeRows
from fairfix.schema.repair import Solution

SPOILT = (
    "it was changed or damaged, or comes from another version of fairfix: make it again with 'fairfix repair'"
)
"""Remedy for an intact container with invalid content."""

CHOICES = {
    "missing": get_args(MissingScore),
    "duplicates": get_args(Duplicates),
    "unseen": get_args(Unseen),
}
"""Messages about rows that are not as they should be."""

OUTPUT = pa.schema([("p_positive", pa.float64()), ("decision", pa.int8()), ("randomized", pa.bool_())])
"""Columns that the prediction of decisions adds; that of values has ``prediction`` for ``p_positive``, that of classes
adds ``prediction``, a chance ``p_CLASS`` for each, and ``randomized``."""

SCHEME = "blake2b-53/2"
"""Scheme of draws: BLAKE2b of the row identity, with equal rows without IDs told apart; see
:mod:`fairfix.data.row_hash`."""


@dataclass(frozen=True)
class Repaired:
    """A repaired predictor, ready to be used or saved."""

    method: str
    parameters: Mapping[str, Any]
    predictor: RepairedPredictor
    data_spec: DataSpec
    """Columns and their meaning at predict time (no label, no weight)."""
    unseen: Unseen
    """Policy for rows of groups that were not in the training rows."""
    identity: Mapping[str, str]
    """Column -> kind (``text``, ``integer``, ``number``, ``boolean``) of what identifies a row."""
    key: bytes
    """Key of the hash that draws decisions."""
    base: Mapping[str, Any]
    """Where scores come from: ``{"kind": "column", "name": ...}``, a model file with its hash, or ``{"kind":
    "features", "names": [...]}`` where the predictor makes them itself."""
    facts: Mapping[str, Any]
    """Facts for people: evaluation, selection, split, fingerprint, warnings."""
    seed: int
    """Seed of the split and the fit."""
    scorer: Any = field(default=None, repr=False, compare=False)
    """The model in memory that scored the rows of the repair; a saved artifact has none."""

    @property
    def required(self) -> tuple[str, ...]:
        """Columns that prediction needs, the score of a model file excepted."""
        names = [name for name in self.data_spec.columns.counted if name != self.made_score]
        names += list(self.predictor.features)
        if self.base["kind"] == "file":
            average = self.base.get("average")
            spared = () if average is None else replaced(read_changes(average))
            names += [name for name in self.base["features"] if name not in spared]
        return tuple(dict.fromkeys((*names, *(self.identity if self.predictor.randomized else ()))))

    @property
    def made_score(self) -> str | None:
        """Name of the score, where a model file makes it."""
        return self.data_spec.columns.score if self.base["kind"] == "file" else None

    @property
    def output(self) -> pa.Schema:
        """Columns that prediction adds: of decisions, of values or of classes, as ``OUTPUT`` says."""
        if self.predictor.gives == "decision":
            return OUTPUT
        if names := self.predictor.classes:
            return class_schema(names)
        decided = [OUTPUT.field("decision")] if self.data_spec.thresholds else []
        return pa.schema([("prediction", pa.float64()), *decided, OUTPUT.field("randomized")])

    def save(self, path: str | os.PathLike[str]) -> str:
        """Write the artifact; return its ``sha256:...``."""
        return str(write(path, self.artifact()))

    def artifact(self) -> Archive:
        """Return the artifact."""
        settings, arrays = self.predictor.state()
        columns, data_spec = self.data_spec.columns, self.data_spec
        manifest = {
            "method": self.method,
            "parameters": self.parameters,
            "predictor": {"kind": self.predictor.kind, "settings": settings},
            "columns": {name: getattr(columns, name) for name in PredictColumns.__struct_fields__},
            "bands": data_spec.bands,
            "merge": data_spec.merge,
            "base": self.base,
            "policies": {
                "task": data_spec.task,
                "score_scale": data_spec.score_scale,
                "threshold": data_spec.thresholds[0] if data_spec.thresholds else None,
                "unseen": self.unseen,
            },
            "requires": self.requires(),
            "randomization": {"scheme": SCHEME, "key": self.key.hex(), "identity": self.identity},
            "facts": self.facts,
            "versions": {"fairfix": __version__, "numpy": np.__version__},
            "seed": self.seed,
        }
        return Archive(plain(manifest), arrays)

    def requires(self) -> dict[str, Any]:
        """Return what prediction needs, as the manifest says it."""
        return {
            "columns": list(self.required),
            "protected_at_predict": self.predictor.needs_beside(self.data_spec.columns.strata),
            "model_file": self.base["kind"] == "file",
        }

    @classmethod
    def load(cls, path: str | os.PathLike[str], more_kinds: Callable[[], object] = dict) -> Repaired:
        """Read an artifact and build its predictor; an ArtifactError where it is damaged or not of this version.

        ``more_kinds`` imports kinds of predictors that no module of this room defines; called only for such a one.
        """
        artifact, name = read(path), name_of(os.fspath(path))
        try:
            held = converted(artifact.manifest, Manifest)
            if held.predictor.kind not in RepairedPredictor.kinds:
                more_kinds()
            made = made_of(held, artifact)
            need(made.requires() == held.requires, "its requirements contradict its content")
        except ArtifactError as error:
            raise ArtifactError(f"{name}: {shortened(str(error), LONGEST_FAULT)}; {SPOILT}") from error
        except MALFORMED as error:
            fault = str(error) if type(error) is ValueError else repr(error)
            raise ArtifactError(
                f"{name}: its manifest is malformed: {shortened(fault, LONGEST_FAULT)}; {SPOILT}"
            ) from error
        return made

    def predict(
        self,
        data: Any,
        *,
        model: Any = None,
        trust_model: str | None = None,
        missing: MissingScore = "error",
        duplicates: Duplicates = "error",
        unseen: Unseen | None = None,
    ) -> Any:
        """Return rows with their predictions, in the kind in which the rows come; it is :func:`fairfix.predict`.

        Parameters
        ----------
        data
            Rows of any kind that :mod:`fairfix.models.rows` lists, or a path.
        model, trust_model, missing, duplicates, unseen
            As in :func:`fairfix.predict`; what happens to unseen groups is by default what the artifact says.

        Returns
        -------
        The same kind with the columns of :attr:`output` added; an Arrow table for a path. A row that is asked for alone
        is decided as it is among others. Rows that nothing tells apart are told apart by their number of occurrence in
        one call only: where they matter, repair with an ``id``.

        Raises
        ------
        DataError, UsageError, ModelError
            Rows are not like those of the repair: a column, a score, a group that is not there, an id that repeats.
        """
        choices = {
            "missing": missing,
            "duplicates": duplicates,
            "unseen": unseen or self.unseen,
        }
        for name, value in choices.items():
            if value not in CHOICES[name]:
                words = CHOICES[name]
                raise UsageError(
                    f"`{name}`: {value!r} is none of {', '.join(words)}{did_you_mean(value, words)}"
                )
        from fairfix.models.rows import predict_rows

        asked: dict[str, Any] = {"model": model, "trust_model": trust_model, "unseen": unseen}
        return predict_rows(self, data, missing=missing, share_ids=duplicates == "share", **asked)

    def predict_plain(self, data: Any) -> dict[str, Any] | None:
        """Return a dict of one row with its prediction; None where it needs more than plain values."""
        rule = self._row_rule if isinstance(data, Mapping) else None
        return None if rule is None else rule(data)

    @cached_property
    def _row_rule(self) -> RowRule | None:
        """Function that decides a single row of plain values, without Arrow; None where a row needs more."""
        return RowRule.of(self)

    def predict_source(
        self,
        source: Source,
        *,
        missing_score: MissingScore = "error",
        duplicates: bool = False,
        tally: SharedDraws | None = None,
        unlike: UnlikeRows | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Yield the source's batches with the output columns appended; a DataError where a policy forbids it.

        ``tally`` counts the draws of the rows on the way, ``unlike`` the rows that are unlike the training rows.
        """
        source.require(self.required)
        self.check_free(source.columns, source.name)
        schema = self.output_schema(source)
        ids: list[pa.Array] = []
        seen: Seen | None = None if self.data_spec.columns.id else {}
        named = self.data_spec.columns.id if self.data_spec.columns.id in source.columns else None

        def draw(batch: pa.RecordBatch, rows: Bools) -> Floats:
            draws = draws_of(self._identities(batch, rows), self.key, seen)
            if tally is not None:
                tally.add(draws)
            return draws

        for part in source.parts(source.columns, self._types_in(source)):
            encoder = Encoder(self.data_spec, part.where, part.first_row)
            first = part.first_row
            for batch in part.batches():
                predicted = self._predicted(batch, encoder, first, missing_score, draw, unlike)
                yield as_first(predicted, schema, part.where)
                first += batch.num_rows
                if named and not duplicates:
                    ids.append(batch.column(named))
        if ids:
            check_unique(ids, str(named))

    def check_free(self, columns: Sequence[str], where: str) -> None:
        """Raise a DataError where a column has the name of one that prediction adds."""
        for name in self.output.names:
            if name in columns:
                raise DataError(
                    f"{where} already has a column {name!r}; rename it, since predicting adds one"
                )

    def output_schema(self, source: Source) -> pa.Schema:
        """Return the schema of what :meth:`predict_source` yields."""
        types = self._types_in(source)
        if not source.text:
            return pa.schema([*source.schema, *self.output])
        fields = [f.with_type(types.get(f.name, f.type)) for f in source.schema]
        return pa.schema([*fields, *self.output])

    def _types_in(self, source: Source) -> dict[str, pa.DataType]:
        """Return the types to read a source with: columns that prediction does not need stay text where in doubt."""
        doubtful = dict.fromkeys(set(source.doubtful) - set(self.required), pa.string())
        types = doubtful | _types_of(self, source.schema)
        cut = (name for name, edges in self.data_spec.bands.items() if edges and source.spells(name))
        return types | dict.fromkeys(cut, pa.float64())

    def _predicted(
        self,
        batch: pa.RecordBatch,
        encoder: Encoder,
        first: int,
        missing: MissingScore,
        draw: Draw,
        unlike: UnlikeRows | None,
    ) -> pa.RecordBatch:
        rows = encoder.encode(batch)
        if self.predictor.classes:
            table = Table(self.data_spec, rows, features_of(batch, self.predictor))
            where = f"{first + 1:,} of {encoder.where}"
            if unlike is not None:
                unlike.add(table, self.predictor, self.predictor.unseen(table))
            return classified(batch, table, self.predictor, self.unseen, where)
        if rows.kept is not None and missing == "error":
            raise DataError(
                f"missing score in {batch.num_rows - len(rows):,} of the {batch.num_rows:,} rows from row "
                f"{first + 1:,} of {encoder.where}; fill them, or leave these rows undecided with `missing=abstain`"
            )
        kept = np.ones(rows.read, dtype=bool) if rows.kept is None else rows.kept
        result, drawn = np.full(rows.read, np.nan), np.zeros(rows.read, dtype=bool)
        if len(rows):
            chosen = batch if rows.kept is None else batch.filter(arrow_array(kept))
            if members := self.predictor.memberships:
                table = Table(self.data_spec, rows, pa.Table.from_batches([chosen.select(list(members))]))
                memberships(
                    table, members, first + 1 + np.flatnonzero(kept), f" of {encoder.where}", NO_POLICY
                )
            where = f"{first + 1:,} of {encoder.where}"
            result[kept], drawn[kept] = self._result(chosen, rows, where, draw, unlike)
        undecided = np.isnan(result)
        columns = [arrow_array(np.where(undecided, 0.0, result), undecided)]
        if self.predictor.gives == "decision":
            decision = decided(result, draw(batch, drawn))
            columns.append(arrow_array(decision, undecided))
        elif self.data_spec.thresholds:
            columns.append(arrow_array((result >= self.data_spec.cut).astype(np.int8), undecided))
        columns.append(arrow_array(drawn))
        return pa.RecordBatch.from_arrays(
            [*batch.columns, *columns], schema=pa.schema([*batch.schema, *self.output])
        )

    def _result(
        self, batch: pa.RecordBatch, rows: Rows, where: str, draw: Draw, unlike: UnlikeRows | None
    ) -> tuple[Floats, Bools]:
        """Return P(decision = 1) or the value per row, NaN where there is none, and which are drawn."""
        table = Table(self.data_spec, rows, features_of(batch, self.predictor))
        if self.predictor.gives == "decision":
            result = self._checked(table, self.predictor.predict(table), where)
            drawn = is_random(result)
        else:
            drawn = self.predictor.drawn(table)
            draws = np.zeros(len(table))
            draws[drawn] = draw(batch, drawn)
            drawing = replace(table, draw=lambda rows: draws[rows])
            result = self._checked(table, self.predictor.predict(drawing), where)
        unseen = np.isnan(result)
        if unlike is not None:
            unlike.add(table, self.predictor, unseen)
        if not unseen.any() or self.unseen == "abstain":
            return result, drawn & ~unseen
        if self.unseen == "original":
            return np.where(unseen, self.predictor.unrepaired(table), result), drawn & ~unseen
        if self.predictor.scales:
            columns = " or ".join(repr(one.column) for one in self.predictor.scales)
            raise DataError(
                f"column {columns} is missing in {int(unseen.sum()):,} of the {len(table):,} rows from row {where}; "
                "fill it, or use `unseen=original` (the original decision) or abstain"
            )
        raise unseen_error(table, self.predictor.inputs, unseen, where, "the original decision")

    def _checked(self, table: Table, result: Floats, where: str) -> Floats:
        """Return what a predictor gives; a DataError where it is no number or probability, of a group that it knows."""
        chance = self.predictor.gives == "decision" or self.predictor.is_probability
        sound = (result >= 0.0) & (result <= 1.0) if chance else np.isfinite(result)
        if not sound.all() and not (sound := sound | self.predictor.unseen(table)).all():
            what = "probability" if chance else "number"
            raise DataError(
                f"the rule gives {result[int(np.argmin(sound))]:g}, which is not a {what}, for one of the "
                f"{len(table):,} "
                f"rows from row {where}: one of its features is too large, or the artifact was changed; correct "
                "the row, or repair again"
            )
        return result

    def _identities(self, batch: pa.RecordBatch, drawn: Bools) -> Iterator[bytes]:
        """Yield the identity of each row whose decision is left to chance."""
        if drawn.any():
            columns = batch.select(list(self.identity)).filter(arrow_array(drawn)).columns
            yield from identities(columns, self.identity)


def features_of(batch: pa.RecordBatch, predictor: RepairedPredictor) -> pa.Table:
    """Return the feature columns that a predictor looks at."""
    return pa.Table.from_batches([batch.select(list(predictor.features))])


def _types_of(repaired: Repaired, schema: pa.Schema) -> dict[str, pa.DataType]:
    """Return the types to read identity and cell columns with, so that text files give what was fitted."""
    types: dict[str, pa.DataType] = {name: IDENTITY_TYPES[kind] for name, kind in repaired.identity.items()}
    for name, kind in repaired.identity.items():  # whole numbers may be written as 1.0 in this file
        if kind == "integer" and name in schema.names and pa.types.is_floating(schema.field(name).type):
            types[name] = pa.float64()
    features = repaired.predictor.features.items()
    types |= {name: FEATURE_TYPES[kind] for name, kind in features if kind in FEATURE_TYPES}
    types |= dict.fromkeys(repaired.data_spec.columns.cell_keys, pa.string())
    if repaired.data_spec.columns.score and not repaired.made_score:
        types[repaired.data_spec.columns.score] = pa.float64()
    return types


def made_of(held: Manifest, artifact: Archive) -> Repaired:
    """Return the repair that a manifest and its arrays hold."""
    kind, drawn, policies, base = (
        held.predictor.kind,
        held.randomization,
        held.policies,
        to_builtins(held.base),
    )
    if kind not in RepairedPredictor.kinds:
        kinds = ", ".join(sorted(RepairedPredictor.kinds))
        raise ArtifactError(f"unknown kind of predictor {shown(kind)}; this version knows {kinds}")
    if drawn.scheme != SCHEME:
        raise ArtifactError(f"unknown randomization scheme {shown(drawn.scheme)}")
    data_spec = DataSpec(
        ColumnRoles(**asdict(held.columns)),
        task=policies.task,
        score_scale=policies.score_scale,
        thresholds=() if policies.threshold is None else (policies.threshold,),
        missing_group="group",
        missing_rows="drop",
        bands=held.bands,
        merge=held.merge,
    )
    if "solution" in held.facts:
        converted(held.facts["solution"], Solution)
    predictor = RepairedPredictor.kinds[kind].from_state(held.predictor.settings, artifact.arrays)
    _check_spec(data_spec, predictor, base)
    key = bytes.fromhex(drawn.key)
    if predictor.randomized and not (drawn.identity and 0 < len(key) <= 64):
        raise ArtifactError("the manifest does not say how decisions are randomized")
    own = held.method, held.parameters, predictor, data_spec, policies.unseen
    return Repaired(*own, drawn.identity, key, base, held.facts, held.seed)


Draw = Callable[[pa.RecordBatch, Bools], Floats]
"""Gives the draws of the rows of a batch that are left to chance."""

FEATURE_TYPES = {**IDENTITY_TYPES, "category": pa.string()}
"""Kinds of features that a text file can hold, with the type it is read as."""


def fingerprint(counts: Counts, schema: pa.Schema) -> str:
    """Return a hash of counts and names of columns: it tells data apart, whatever the types, and holds no row."""
    words = json.dumps(schema.names) + json.dumps(counts.cells)
    content = words.encode() + np.ascontiguousarray(counts.rows, dtype="<i8").tobytes()
    return digest(content)


def hash_key(seed: int, data: str) -> bytes:
    """Return the key that draws decisions: fixed by the seed and the data's fingerprint."""
    return hashlib.blake2b(f"{seed}:{data}".encode(), digest_size=16, person=b"fairfix-draw").digest()


def at_predict_time(data_spec: DataSpec, predictor: RepairedPredictor) -> DataSpec:
    """Return the reading of new rows: no label, weight or decision; groups and score only if they are looked at."""
    strata, protected = (
        tuple(name for name in names if name in predictor.inputs)
        for names in (data_spec.columns.strata, data_spec.columns.protected)
    )
    score = data_spec.columns.score if predictor.needs_score else None
    columns = ColumnRoles(protected, score=score, strata=strata, id=data_spec.columns.id)
    return replace(
        data_spec.of_one_threshold,
        columns=columns,
        thresholds=data_spec.thresholds[:1],
        missing_group="group",
        missing_rows="drop",
        positive_label=(),
        positive_prediction=(),
        label_threshold="",
        where="",
        bands={name: data_spec.bands.get(name, ()) for name in columns.cell_keys},
        merge={name: names for name, names in data_spec.merge.items() if name in columns.cell_keys},
    )


def rule_identity(
    identity: Mapping[str, str],
    data_spec: DataSpec,
    predictor: RepairedPredictor,
    model: Collection[str] = (),
) -> dict[str, str]:
    """Return the part of an identity that prediction reads anyway; all of it where that is nothing.

    ``model`` has the columns that a model file reads to make the scores. An id is always read.
    """
    columns = at_predict_time(data_spec, predictor).columns
    read = {*columns.counted, *predictor.features, *(model if predictor.needs_score else ()), columns.id}
    return {name: kind for name, kind in identity.items() if name in read} or dict(identity)


def with_draws_of(table: Table, predictor: RepairedPredictor, model: Collection[str] = ()) -> Table:
    """Return a table whose rows are drawn as prediction by a predictor draws them."""
    if not isinstance(table.draw, RowDraws):
        return table
    identity = rule_identity(table.draw.identity, table.data_spec, predictor, model)
    return _with_draw(table, table.draw.narrowed(*identity))


@once_per_object
def _with_draw(table: Table, draw: RowDraws) -> Table:
    """Return a table whose rows are drawn otherwise: one table for all rules of one identity."""
    return replace(table, draw=draw)


def _check_spec(data_spec: DataSpec, predictor: RepairedPredictor, base: Mapping[str, Any]) -> None:
    """Raise an ArtifactError where a manifest's reading contradicts itself, or lacks what the predictor needs."""
    try:
        data_spec.check(protected=not set(predictor.inputs) <= set(data_spec.columns.strata))
    except UsageError as error:
        raise ArtifactError(f"the manifest contradicts itself: {error}") from error
    if not set(predictor.inputs) <= set(data_spec.columns.cell_keys):
        raise ArtifactError(
            f"the predictor needs {', '.join(predictor.inputs)}, which the manifest does not list"
        )
    if predictor.needs_score and data_spec.columns.score is None:
        raise ArtifactError("the predictor needs a score, which the manifest does not name")
    if base["kind"] == "file" and data_spec.columns.score not in (None, MODEL_SCORE):
        raise ArtifactError(
            "the scores are those of a model file, and the manifest names a column of the data"
        )
    if predictor.gives == "decision" and not data_spec.thresholds:
        raise ArtifactError("the manifest names no threshold")
