"""From a request to data that can be read: the source, its reading, the model that scores it, and the noise."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, get_args

import pyarrow as pa
from msgspec.structs import replace as fields_replaced

from fairfix.auditing.results import with_checks
from fairfix.auditing.waivers import Waiver, apply
from fairfix.data.choices import VALUED, MissingGroup, MissingRows
from fairfix.data.classes import of_classes
from fairfix.data.cutoffs import Capacity, GroupThresholds
from fairfix.data.data_spec import ColumnRoles, DataSpec, infer_columns, of_predict
from fairfix.data.domain import texts_of
from fairfix.data.encoder import truth
from fairfix.data.files import Source, open_source
from fairfix.data.merging import parse_merge
from fairfix.data.names import ValuedColumn, did_you_mean, keyed, quoted_name, with_values
from fairfix.data.numeric_groups import EACH, PARTS, NumbersAsGroupsError, band_names, parse_bands
from fairfix.data.people import PeopleSource, check_entries
from fairfix.data.row_filter import absent_values, filtered, parse_condition
from fairfix.data.scan import settled_bands
from fairfix.data.urls import is_dry
from fairfix.errors import (
    AmbiguousError,
    ColumnError,
    DataError,
    EntryError,
    ModelError,
    ThresholdError,
    UnsentError,
    UsageError,
)
from fairfix.models.scored_source import MODEL_SCORE, ScoredSource
from fairfix.models.trace import Caution, Note
from fairfix.report.layout import waiver_state
from fairfix.schema.common import CheckedResult, Waivers
from fairfix.tasks.request import (
    MULTICLASS,
    WRITTEN,
    AuditRequest,
    CompareRequest,
    DataRequest,
    ExploreRequest,
    GateRequest,
    Names,
    PredictRequest,
    RenewalRequest,
    RepairRequest,
    ReportRequest,
)

if TYPE_CHECKING:
    from fairfix.auditing.countfile import CountFile
    from fairfix.models.user_file import ScoringModel
    from fairfix.noise.description import Noise

log = logging.getLogger("fairfix")
"""Messages of a running task; the command line prints them to standard error."""

COLUMNS = ("protected", "label", "score", "prediction", "weight", "count", "strata")
"""Parameters that name the columns of all data."""

READ_AS = ("task", "score_scale")
"""Parameters that say how the columns are read, by the names that a reading has for them."""


Asked = TypeVar("Asked", bound=DataRequest)


@dataclass(frozen=True)
class Dataset:
    """Rows and how they are read; columns, threshold, scale and bands are settled.

    ``inferred`` is part -> column of a usual name, ``model`` scores the rows if any.
    """

    source: Source
    data_spec: DataSpec
    inferred: Mapping[str, str]
    model: ScoringModel | None
    request: DataRequest

    @property
    def seen_by_model(self) -> tuple[str, ...]:
        """Columns that the model file looks at."""
        return self.model.feature_names if self.model else ()

    def settled(self, request: Asked) -> Asked:
        """Return a request with the threshold that its capacity sets, so that commands made of it have it."""
        if request.top is None:
            return request
        return replace(request, top=None, threshold=self.data_spec.threshold)

    @property
    def unscored(self) -> Source:
        """The source without the scores of a model."""
        return self.source.source if isinstance(self.source, ScoredSource) else self.source


@dataclass(frozen=True)
class Assigned:
    """A source and which of its columns plays which part, by the request or by a usual name (``inferred``)."""

    source: Source
    raw: Source
    """The source without the scores of a model."""
    columns: ColumnRoles
    valued: Mapping[str, ValuedColumn]
    """Part -> what the request says of its positive entries."""
    inferred: Mapping[str, str]
    model: ScoringModel | None


def assigned(
    request: DataRequest,
    *,
    score_needed: bool = True,
    protected_needed: bool = True,
    label_needed: bool = False,
    attempt: Callable[[DataRequest], object] | None = None,
) -> Assigned:
    """Open the source of a request; what it names no column for is looked for by its usual name.

    An error about columns proposes a command for which an ``attempt`` raises nothing; without one, it proposes none.
    """
    if request.data is None:
        raise UsageError("name the `data`: a file, a folder, a pattern, a data frame or an Arrow table")
    many = request.task == MULTICLASS
    columns = ColumnRoles(
        **{name: getattr(request, name) for name in COLUMNS if name not in VALUED},
        probability=getattr(request, "probability", None),
        id=getattr(request, "id", None),
    )
    if request.count:
        whole = replace(columns, label=request.label, prediction=request.prediction)
        DataSpec(whole).check(protected=False)  # the source has the column no more
    source, model = opened(request, request.data), None
    raw, texts = source, {part: getattr(request, part) for part in VALUED}
    valued = {
        part: ValuedColumn.parse(text, source.columns, part)
        for part, text in texts.items()
        if text is not None
    }
    columns = replace(columns, **{part: one.column for part, one in valued.items()})  # type: ignore[arg-type]  # parts of one name
    if "prediction" in valued and (cut := valued["prediction"].threshold.lstrip("<>=")):
        raise UsageError(
            f"`prediction={request.prediction}`: a prediction is a decision; name the score with "
            f"`score={columns.prediction}` and its `threshold={cut}`"
        )
    if many and any(one != ValuedColumn(one.column) for one in valued.values()):
        raise UsageError(
            f"`task={MULTICLASS}`: leave out the values of `label` and `prediction`, since every class is compared "
            "with the rest"
        )

    def guide() -> str:
        return f"\n{_guide(request, raw, attempt)}" if attempt else ""

    if protected_needed and not request.protected:
        text = "name the protected column with `protected=COLUMN`"
        error = UsageError(f"{text}{guide()}")
        error.quotes = bool(source.examples)
        raise error
    if request.model is not None:
        try:
            model = _model_of(request, source, columns, valued["label"].positive if "label" in valued else ())
        except ModelError as error:
            more = _by_class(request, source, columns, error.classes) if error.classes else ""
            raise ModelError(f"{error}{more}") from error
        source = ScoredSource(source, model)
        part = "prediction" if model.score_scale == "decision" else "score"
        columns = replace(columns, **{part: MODEL_SCORE})  # type: ignore[arg-type]  # a part of one name
    try:
        columns, inferred = infer_columns(
            columns,
            source.schema,
            score_from_model=model is not None,
            score_needed=score_needed,
            of_classes=many,
            repaired=isinstance(request, AuditRequest),
            labelled=not isinstance(request, RenewalRequest) or request.late,
        )
        source.require(columns.roles)
    except AmbiguousError as error:
        lines = _to_choose(request, raw, error.choices) if attempt else ""
        raise ColumnError(error.text, lines or error.listing) from error
    except ColumnError as error:
        raise ColumnError(error.text, guide()) from error
    if label_needed and columns.label is None:
        raise ColumnError("this needs labels; name the column with `label=COLUMN`", guide())
    own = of_predict(source.schema)
    for part, name in inferred.items():
        log.info(
            "%s is column %r (%s)", part, name, "of 'fairfix predict'" if name in own else "found by name"
        )
    return Assigned(source, raw, columns, valued, inferred, model)


def open_data(
    request: DataRequest, *, protected_needed: bool = True, guides: bool = True, **needs: bool
) -> Dataset:
    """Open the data of a request: its columns as :func:`assigned` finds them, and how their entries are read.

    An error about columns ``guides`` to a command that runs.
    """
    needs["protected_needed"] = protected_needed
    many = request.task == MULTICLASS
    if many and not isinstance(request, (AuditRequest, RepairRequest)):
        raise UsageError(
            f"`task={MULTICLASS}` is for audits and repairs; `compare` needs two classes: name one with "
            "`label=COLUMN=VALUE`, and all others will be negative"
        )
    whole = assigned(request, **needs, attempt=partial(_attempt, needs) if guides else None)
    source, columns, valued, model = whole.source, whole.columns, whole.valued, whole.model
    options: dict[str, Any] = {name: getattr(request, name) for name in READ_AS}
    if many:
        options["task"] = "classification"  # of each class and the rest
    if model is not None:
        options["score_scale"] = _scale_of(model, request)
    by_group = request.threshold if isinstance(request.threshold, GroupThresholds) else None
    cuts = () if request.threshold is None or by_group else (request.threshold,)
    decided = columns.decision
    if by_group and (decided or not columns.score):
        others = f"{decided!r} has decisions" if decided else "there is none"
        raise UsageError(f"`threshold={by_group}` applies to a score, and {others}; leave it out")
    if cuts and decided and not columns.score and "threshold" not in request.configured:
        raise UsageError(
            f"`threshold={request.threshold:g}` applies to a score, and {decided!r} has decisions; leave it out, "
            "or name the scores with `score`"
        )
    options |= {f"positive_{part}": one.positive for part, one in valued.items()}
    options["label_threshold"] = valued["label"].threshold if "label" in valued else ""
    labels = options.get("positive_label", ())
    if columns.prediction and labels and not options.get("positive_prediction"):
        options["positive_prediction"] = _decided(request, source, columns.prediction, labels)
    rules, merge = parse_bands(request.bands), parse_merge(map(str, request.merge))
    if both := [name for name in merge if rules.get(name, EACH) != EACH]:
        raise UsageError(f"`merge={both[0]}`: its numbers are cut into bands; leave out `merge`, or `bands`")
    missing = missing_as(request.missing)
    if isinstance(request, RenewalRequest) and request.late and columns.label:
        missing["missing_of"].setdefault(columns.label, "drop")
    data_spec = DataSpec(
        columns,
        thresholds=cuts,
        **missing,
        bands=dict.fromkeys(rules, ()),
        merge=merge,
        where="" if request.where is None else str(parse_condition(request.where)),
        **options,
    )
    if by_group:
        data_spec = data_spec.with_group_thresholds(by_group)
    with explaining(Dataset(source, data_spec, whole.inferred, model, request)):
        data_spec.check(protected=protected_needed)
    source.require(list(rules))
    bands = settled_bands(rules, source)
    for name, rule in rules.items():
        if rule in PARTS:
            log.info("%s is cut into %s: %s", name, rule, ", ".join(band_names(bands[name])))
    data = Dataset(source, replace(data_spec, bands=bands).with_threshold(), whole.inferred, model, request)
    if not is_dry():
        source.notes = (*source.notes, *_absent(source, data_spec))
    if isinstance(whole.raw, PeopleSource) and not is_dry():
        with explaining(data):
            check_entries(whole.raw.source, of_classes(data.data_spec) if many else data.data_spec)
    return data if request.capacity is None else _at_capacity(data, request.capacity)


def _at_capacity(data: Dataset, capacity: Capacity) -> Dataset:
    """Return data with the threshold at which at most a given number of rows is selected."""
    from fairfix.data.capacity import capacity_cut

    columns, data_spec = data.data_spec.columns, data.data_spec
    if decided := columns.decision:
        raise UsageError(
            f"`top` ranks scores, and {decided!r} has decisions; leave it out, or name a `score`"
        )
    if not columns.score:
        raise UsageError(f"`top={capacity}` ranks scores; name their column with `score`, or a `model`")
    with explaining(data):
        cut = capacity_cut(data.source, data_spec, capacity)
    note = Note(cut.sentence(capacity), "top")
    log.info("%s", note.line)
    data.source.notes = (*data.source.notes, note)
    return replace(data, data_spec=replace(data_spec, thresholds=(cut.threshold,)))


def cut_counts(counts: CountFile, request: Asked) -> tuple[CountFile, Asked, tuple[Note, ...]]:
    """Return counts at the requested threshold or capacity, the request with that threshold, and a note on it."""
    from fairfix.auditing.count_thresholds import at_threshold

    notes: tuple[Note, ...] = ()
    if (capacity := request.capacity) is not None:
        from fairfix.data.capacity import binned_cut

        counts.require_exact()
        whole = counts.counts()
        columns = counts.data_spec.columns
        if whole.grid is None or columns.decision:
            raise UsageError(f"`top={capacity}` ranks scores, and the counts are of decisions; leave it out")
        cut = binned_cut(whole, capacity, counts.name)
        notes = (Note(cut.sentence(capacity), "top"),)
        log.info("%s", notes[0].line)
        request = replace(request, top=None, threshold=cut.threshold)
    return at_threshold(counts, request.threshold), request, notes


def missing_as(texts: Names | Mapping[str, str]) -> dict[str, Any]:
    """Return what ``missing`` says, by the names that a reading has for it."""
    out: dict[str, Any] = {"missing_group": "error", "missing_rows": "error", "missing_of": {}}
    form = "COLUMN=group, COLUMN=error or COLUMN=drop, or error or drop for all columns"
    for column, policy in keyed("missing=", texts_of(texts), form, last=True, bare=True):
        able = get_args(MissingGroup if column else MissingRows)
        if policy not in able:
            text = f"{column}={policy}" if column else policy
            raise UsageError(
                f"`missing={text}`: {policy!r} is none of {', '.join(able)}{did_you_mean(policy, able)}; write {form}"
            )
        if column:
            out["missing_of"][column] = policy
        else:
            out |= {"missing_group": policy, "missing_rows": policy}
    return out


def _model_of(
    request: DataRequest, source: Source, columns: ColumnRoles, positive: Sequence[str]
) -> ScoringModel:
    """Return the model of a request: from its file, or as it is in memory."""
    about: Any = {"features": tuple(request.features) or None, "positive_label": positive}
    if isinstance(request.model, str):
        from fairfix.models.user_file import load_model

        return load_model(request.model, trust=request.trust_model, **about)
    if request.trust_model is not None:
        raise UsageError("`trust_model` is for model files; leave it out, since this `model` is in memory")
    from fairfix.models.in_memory import fitted_model

    taken = {*columns.roles, *([request.count] if request.count else ())}
    usual = infer_columns(columns, source.schema, score_from_model=True)[
        0
    ]  # a label by its usual name is no feature
    names = [name for name in source.columns if name not in taken | {*usual.roles}]
    model = fitted_model(request.model, names, **about)
    scaled = request.task == "regression" or any(map(request.gives, ("score_scale", "threshold")))
    if not model.classes and not scaled:
        raise UsageError(
            f"`model`: {model.path} predicts numbers, and decisions need a scale; give `task='regression'`, "
            "`score_scale='probability'`, or `threshold=NUMBER` with `score_scale='raw'`"
        )
    return model


def _by_class(request: DataRequest, source: Source, columns: ColumnRoles, classes: Sequence[str]) -> str:
    """Return what follows an error about the positive class of a model: lines to copy, or what to write."""
    from fairfix.data.column_summary import survey

    with suppress(ColumnError):
        columns = infer_columns(columns, source.schema, score_from_model=True)[0]
    form = f", as in `label=COLUMN={classes[-1]}`"
    if (label := columns.label) not in source.usable or is_dry():
        return form
    seen = survey(source, [label], {label: pa.string()})[label]
    shared = [value for value, _ in seen.common if value in classes]
    if not shared:
        return (
            f"; label column {label!r} holds {seen.shown()}: give labels that are classes of the model, or its "
            "probabilities of one class as `score` in place of the model"
        )
    return _to_choose(request, source, [{"label": with_values(label, [value])} for value in shared]) or form


def _scale_of(model: ScoringModel, request: DataRequest) -> str:
    """Return the scale of a model's scores: as it is said where only the user can know; else what the model gives."""
    if model.score_scale == "stated":
        return request.score_scale
    gives = {"probability": "probabilities", "decision": "decisions"}.get(model.score_scale)
    if gives is None:
        return request.score_scale if request.gives("score_scale") else "raw"
    if request.has("score_scale"):
        raise UsageError(
            f"`score_scale={request.score_scale}`: the model file gives {gives} on a fixed scale; leave it out"
        )
    return "probability"


def said_of_unused(request: DataRequest) -> list[Note]:
    """Return, and say, which parameters were given and change nothing."""
    notes = [Note(text, "unused") for text in request.unused]
    for note in notes:
        log.info("%s", note.line)
    return notes


def _attempt(needs: Mapping[str, bool], asked: DataRequest) -> None:
    """Open and count data as a task with these needs does, but for what the task makes of it."""
    from fairfix.data.scan import scan
    from fairfix.tasks.feature_choice import learned_features

    data = open_data(asked, **needs, guides=False)
    columns = data.data_spec.columns
    if isinstance(asked, CompareRequest) and columns.prediction:
        raise ColumnError("no score", "")
    if not (columns.score or columns.decision):
        learned_features(asked, data)
    scan(data.source, data.data_spec, exact=False, losses=False)


def _guide(
    request: DataRequest, source: Source, attempt: Callable[[DataRequest], object], *, listed: bool = True
) -> str:
    """Return what the columns look like, if ``listed``, and commands to go on with, which run on the first rows."""
    from fairfix.tasks.column_suggestions import guide

    talks, log.disabled = log.disabled, True  # nobody has asked for it yet
    try:
        return guide(request, source, attempt, listed=listed)
    finally:
        log.disabled = talks


def opened(request: DataRequest | PredictRequest, data: Any) -> Source:
    """Return a source of data that is written as the request says, and say how it is read where that was guessed."""
    own = {"sql": request.sql} if data is request.data else {}
    source = open_source(data, **{name: getattr(request, name) for name in WRITTEN}, **own)
    if source.remark and not getattr(request, "suppress_below", 0):  # it may quote values
        log.info("%s: %s", source.name, source.remark)
    count, where = getattr(request, "count", None), getattr(request, "where", None)
    if where is None:
        return PeopleSource(source, count) if count else source
    chosen = filtered(source, parse_condition(where))
    if not getattr(request, "suppress_below", 0):
        for note in chosen.notes:
            log.info("%s: %s", source.name, note)
    if not count:
        return chosen
    people = PeopleSource(chosen, count)
    people.left_out = 0 if is_dry() else int(PeopleSource(source, count).rows or 0) - int(people.rows or 0)
    return people


def unsent(*steps: Callable[[], object]) -> NoReturn:
    """Take steps of a dry run, each up to the first question that it does not send, and raise all of these."""
    statements = []
    for step in steps:
        try:
            step()
        except UnsentError as end:
            statements.append(end.statements)
    raise UnsentError("\n\n".join(statements))


def _decided(request: DataRequest, source: Source, name: str, positive: tuple[str, ...]) -> tuple[str, ...]:
    """Return the positive values of decisions where the positive values of labels have names."""
    source.require([name])
    if name == MODEL_SCORE:
        return ("1",)
    from fairfix.data.column_summary import survey, ways

    seen = survey(source, [name], {name: pa.string()})[name]
    if all(truth(value) is not None for value, _ in seen.common):
        return ("1",)
    if shared := tuple(value for value in positive if value in dict(seen.common)):
        return shared
    text, choices = ways(seen, "prediction", name)
    error = UsageError(f"prediction column {name!r}: {text}{_to_choose(request, source, choices)}")
    error.quotes = True
    raise error


def _absent(source: Source, data_spec: DataSpec) -> Iterator[str]:
    """Yield which of several positive values no row has; a run in which none is there is refused elsewhere."""
    columns = data_spec.columns
    for part, levels in (("label", data_spec.positive_label), ("prediction", data_spec.positive_prediction)):
        name = getattr(columns, part)
        if len(levels) > 1 and name and name != MODEL_SCORE:
            for value, hint in absent_values(source, name, levels):
                yield f"no row has {value!r} in column {name!r}, which `{part}` names{hint}"


def _to_choose(request: DataRequest, source: Source, choices: Sequence[Mapping[str, str]]) -> str:
    """Return the lines to choose from, each the request with other settings; none that cannot be copied."""
    from fairfix.tasks.column_suggestions import alternatives

    lines = alternatives(request, source, choices)
    return "".join(f"\n  {line}" for line in lines)


def _with_bands(data: Dataset, column: str) -> str:
    """Return the lines that run with a column of numbers cut into quarters; empty for data in memory."""
    request = data.request
    if not isinstance(request.data, str) or isinstance(request.bands, (str, Mapping)):
        return ""
    cut = replace(
        request,
        bands=(*map(str, request.bands), f"{quoted_name(column, '=')}=quartiles"),
        explicit=request.explicit | {"bands"},
    )
    needed = {"score_needed": isinstance(request, AuditRequest), "protected_needed": True}
    source = data.unscored
    return _guide(cut, source, partial(_attempt, needed), listed=False)


@contextmanager
def explaining(data: Dataset) -> Iterator[None]:
    """Say of an entry that was refused what else is in its column."""
    try:
        yield
    except NumbersAsGroupsError as error:
        if lines := _with_bands(data, error.column):
            raise ColumnError(error.text, lines) from error
        raise
    except (EntryError, ThresholdError) as error:
        from fairfix.data.column_summary import explained
        from fairfix.methods import available

        if is_dry() or (getattr(data.request, "suppress_below", False) and not error.quotes):
            raise
        if error.column == MODEL_SCORE and data.model is not None and data.model.score_scale != "stated":
            raise UsageError(f"{error.place}; give a threshold in this range") from error
        page = isinstance(data.request, ExploreRequest)
        decides = page or isinstance(data.request, (RepairRequest, CompareRequest))
        decides &= data.request.threshold is None
        method = available().get(getattr(data.request, "method", None) or "")
        real = not page and (method is None or "regression" in method.tasks)
        text, choices = explained(error, data.source, data.data_spec, decides=decides, real=real)
        source = data.unscored
        raise DataError(text + _to_choose(data.request, source, choices)) from error


def membership_columns(noise: Noise | None, data: Dataset) -> dict[str, pa.DataType]:
    """Return the columns of probabilities of membership, with the type that text is read as; none where none say."""
    if noise is None or noise.membership is None:
        return {}
    from fairfix.noise.membership_audit import check_columns

    check_columns(data.source, data.data_spec, noise.membership.values())
    return dict.fromkeys(noise.membership.values(), pa.float64())


def noise_of(request: ReportRequest) -> Noise | None:
    """Return what is said of noise; None where nothing is."""
    if not request.noise:
        return None
    from fairfix.noise.description import WORDS
    from fairfix.noise.description import noise_of as described

    spec = request.noise_spec
    noise = described(spec, open_source, request.protected)
    if noise.table is not None and not spec.columns:
        log.info("%s contains %s", noise.table.source, WORDS[noise.table.form])
    return noise


def waivers_of(request: GateRequest) -> list[Waiver]:
    """Return the waivers of a request."""
    return [one if isinstance(one, Waiver) else Waiver.parse(one, "waivers") for one in request.waivers]


def with_waivers(result: Gated, waivers: list[Waiver], request: GateRequest) -> Gated:
    """Return a result with what the waivers do to its checks; without any, as it is."""
    if not waivers:
        return result
    today = request.today or datetime.now(UTC).date()
    checks, states = apply(result.checks, waivers, today)
    for one in states:
        does = Caution(f"the waiver of {one.check!r} {waiver_state(one)}", "waiver")
        if one.state in ("expired", "matches nothing"):
            log.info("%s", does.line)
        elif one.days_left is not None:
            log.warning("%s", does.line)
    return with_checks(
        fields_replaced(result, waivers=Waivers(today=today.isoformat(), waivers=states)), checks
    )


Gated = TypeVar("Gated", bound=CheckedResult)
