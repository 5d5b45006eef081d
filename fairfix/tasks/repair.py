"""Repair: a predictor fitted by a method, its proof on held-out rows, and the artifact that applies it to new rows."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from msgspec.structs import replace as fields_replaced

from fairfix import __version__
from fairfix.auditing.checks import worst
from fairfix.auditing.results import Settings, rows_struct, spec_fields
from fairfix.auditing.waivers import Waiver
from fairfix.data.classes import of_classes
from fairfix.data.cutoffs import GroupThresholds
from fairfix.data.names import did_you_mean, nearest
from fairfix.data.noise_spec import membership_text
from fairfix.data.scan import read_table
from fairfix.data.table import PLAIN_SCORE, Table
from fairfix.data.urls import is_dry, name_of
from fairfix.errors import DataError, UsageError
from fairfix.individual.by_model import readable_table
from fairfix.individual.flips import changes_of, check_comparable, described
from fairfix.individual.similar import Similar, files_of
from fairfix.methods import available
from fairfix.methods.base import Repairer, StreamSolver
from fairfix.methods.constraint import two_limits
from fairfix.methods.guarantee import adapter_of
from fairfix.methods.sensei.exact import Average
from fairfix.models.export.lowering import exported, without_program
from fairfix.models.export.vectors import vectors
from fairfix.models.identity import IDENTITY_TYPES, check_unique
from fairfix.models.predictors import RepairedPredictor
from fairfix.models.repaired import Repaired, at_predict_time, fingerprint, hash_key, rule_identity
from fairfix.models.scored_source import Averaged, ScoredSource
from fairfix.models.threads import threads_of_fits
from fairfix.models.trace import Note
from fairfix.noise.description import Noise
from fairfix.noise.membership_audit import check_columns
from fairfix.schema import to_dict
from fairfix.schema.common import RowNumbers
from fairfix.schema.repair import (
    Artifact,
    Evaluations,
    Repair,
    RepairData,
    RepairSettings,
    Requirements,
    SplitSizes,
)
from fairfix.tasks.changes import checks_of, not_checked
from fairfix.tasks.count import check_bands, counts_of
from fairfix.tasks.dataset import (
    Dataset,
    explaining,
    log,
    membership_columns,
    noise_of,
    open_data,
    opened,
    said_of_unused,
    unsent,
    waivers_of,
    with_waivers,
)
from fairfix.tasks.feature_choice import FeatureChoice, learned_features
from fairfix.tasks.fit_and_evaluate import (
    Made,
    Outcome,
    identity_of,
    read_rows,
    repair_stream,
    repair_table,
    variants_of,
)
from fairfix.tasks.messages import message, of_missing_labels, of_source
from fairfix.tasks.multiclass_repair import check_knows_classes
from fairfix.tasks.next_step import after_repair
from fairfix.tasks.repair_from_counts import repair_counts
from fairfix.tasks.request import MULTICLASS, RepairRequest, function_of, of_counts
from fairfix.tasks.result import Result, data_fields
from fairfix.tasks.run_metadata import with_record
from fairfix.tasks.similar import people_of
from fairfix.tasks.synonyms import METHODS, ours


@dataclass(frozen=True, repr=False)
class RepairResult(Result):
    """A repair: ``repaired`` predicts and is saved with ``repaired.save(path)``, ``outcome`` has the proof, typed."""

    content: Repair
    repaired: Repaired
    outcome: Outcome

    def predict(self, data: Any, **options: Any) -> Any:
        """Return rows with their repaired decisions; arguments are those of :func:`fairfix.predict`."""
        from fairfix.tasks.predict import predict

        of_rows: Any = predict
        return of_rows(self.repaired, data, **options)


def run_repair(request: RepairRequest) -> RepairResult:
    """Fit a repaired predictor and evaluate it on held-out rows.

    The result is that of ``fairfix repair`` with the options of these names; ``output`` names the artifact to write.
    Parameters of the method may be lists; the validation part of the rows chooses one value:
    ``repair(frame, method="ramp", protected="race", slack=0.02, gamma=[0.02, 0.1])``.

    Raises
    ------
    UsageError, DataError
        Parameters do not go together, or the data does not allow the repair.
    """
    waivers = waivers_of(request)
    check_bands(request)
    counts = counts_of(request.data)
    request = request if counts is None else of_counts(request)
    similar = Similar.parse(request.similar)
    repairer, choices = chosen_method(request.method, _parameters(request, similar))
    if isinstance(request.threshold, GroupThresholds) and repairer.criterion.startswith("decision_flips"):
        raise UsageError(
            f"`threshold={request.threshold}`: {repairer.name} compares people of different groups at one threshold; "
            "give one number"
        )
    many = request.task == MULTICLASS
    if many:
        check_knows_classes(repairer)
    checks, changes = checks_of(request)
    unchecked = not_checked(
        request, changes, "a repair has no baseline; audit the repaired rows to compare them"
    )
    asked = Settings(confidence=request.confidence, checks=checks, gate_on=request.gate_on)
    if counts is not None:
        if request.noise_spec.membership:
            raise UsageError(
                "`noise=membership:...` needs rows, and the data is counts; leave it out, or name the rows"
            )
        noise = _noise(request, repairer)
        made = repair_counts(request, counts, repairer, choices, asked, noise)
        return _result(request, made, waivers, unchecked)
    if not isinstance(request.holdout, float):
        raise UsageError(
            "`holdout` is a fraction of rows, such as 0.3; counts to evaluate on are for a repair of counts"
        )
    if request.strata and "strata" not in repairer.uses:
        raise UsageError(f"{repairer.name} does not repair within strata; leave out `strata`")
    numbers = repairer.parsed_constraint.numbers
    recorded = not (repairer.membership or numbers)
    data = open_data(
        request,
        score_needed=not ("features" in repairer.uses or many),
        protected_needed=recorded,
        label_needed=repairer.uses_labels,
    )
    request = data.settled(request)
    check_columns(data.source, data.data_spec, repairer.membership.values())
    check_columns(data.source, data.data_spec, numbers, "constraint", "numbers")
    noise = _noise(request, repairer)
    solver = repairer.effective_solver
    data, averaged = _averaged(data, repairer) if isinstance(solver, Average) else (data, None)
    streams = isinstance(solver, StreamSolver)
    choice = _learned_from(request, data, repairer, noise)
    features = choice.names
    if many:
        data = replace(data, data_spec=of_classes(data.data_spec))
    files = files_of(similar, data.source.columns, request.id)
    if request.guarantee is not None and (source := files.copies or files.pairs):
        raise UsageError(
            f"`guarantee` is about flips of people who are independent; leave it out, or {source.name} in `similar`"
        )
    of_stream = partial(_from_stream, request, data, repairer, choices, asked)
    of_rows = partial(_read, request, data, repairer, features, noise, paired=bool(files.pairs))
    if is_dry():
        unsent(
            lambda: _check_ids(request, data),
            of_stream if streams else of_rows,
            lambda: _unlabelled(request, data),
            lambda: people_of(files, data, lambda: of_rows()[0]),
        )
    _check_ids(request, data)
    if streams:
        with explaining(data):
            outcome, rows, data_fingerprint = of_stream()
    else:
        with explaining(data):
            table, data_fingerprint = of_rows()
        choice, table = choice.screened(table)
        _tell(choice, request, repairer, data)
        rows = rows_struct(table.rows.read, len(table), table.rows.excluded, data.source.left_out)
        given = [table]
        people = people_of(files, data, lambda: given[0])
        del table  # only its parts are kept while these are repaired
        with threads_of_fits(request.threads):
            outcome = repair_table(
                given.pop,
                repairer,
                choices=choices,
                settings=asked,
                seed=request.seed,
                validation=request.validation,
                holdout=request.holdout,
                guarantee=request.guarantee,
                features=choice.names,
                unlabelled=_unlabelled(request, data),
                noise=noise,
                seen_by_model=data.seen_by_model,
                **people,
            )
    base = _base(request, data, outcome.predictor, averaged)
    notes = (*of_source(data.source), *of_missing_labels(rows, outcome.data_spec.task), *choice.notes)
    beside = (*repairer.membership.values(), *membership_columns(noise, data), *numbers)
    identity = identity_of(data, (*(choice.names or ()), *beside))
    identity = rule_identity(identity, outcome.data_spec, outcome.predictor, data.seen_by_model)
    read_from = data_fields(data.source.name, rows, outcome.data_spec, data.inferred)
    made = Made(
        outcome,
        RepairData(**read_from, fingerprint=data_fingerprint),
        identity,
        base,
        notes,
        choice.struct,
        scorer=data.model if base["kind"] == "file" and not isinstance(request.model, str) else None,
        read=data.source,
    )
    return _result(request, made, waivers, unchecked)


def _result(
    request: RepairRequest, made: Made, waivers: list[Waiver], unchecked: Sequence[Note]
) -> RepairResult:
    """Return the result, and write the artifact that is asked for."""
    outcome = made.outcome
    notes = (*said_of_unused(request), *unchecked, *made.notes)
    for note in outcome.messages:
        log.info("%s", note.line)
    repaired = Repaired(
        outcome.repairer.name,
        outcome.repairer.parameters,
        outcome.predictor,
        at_predict_time(outcome.data_spec, outcome.predictor),
        request.unseen,
        dict(sorted(made.identity.items())),  # as it is saved: the draw of a row depends on the order
        hash_key(request.seed, made.data.fingerprint),
        made.base,
        {},
        request.seed,
        made.scorer,
    )
    if taken := [name for name in repaired.required if name in repaired.output.names]:
        raise DataError(
            f"the rule needs column {taken[0]!r}, and predicting adds a column of this name, so it could not "
            "decide any rows; rename the column, or leave it out"
        )
    content = _content(made, repaired, notes)
    facts = {name: entry for name, entry in to_dict(content).items() if name in FACTS}
    if not without_program(repaired):
        facts["vectors"] = vectors(repaired, exported(repaired))
    repaired = replace(repaired, facts=facts)
    if request.record and made.read is not None:
        made.read.require_unchanged()  # before a file is written
    if request.output is not None:
        digest = repaired.save(request.output)
        # in quotes those that would be read as parameters
        names = (repr(name) if "`" in name else name for name in repaired.required)
        log.info("needed for predictions: %s", ", ".join(names))
        artifact = Artifact(file=name_of(str(request.output)), sha256=digest)
        content = fields_replaced(content, artifact=artifact)
    if made.read is not None:
        content = fields_replaced(content, next_step=after_repair(request, content))
    content = with_waivers(content, waivers, request)  # the artifact has the verdict without them: they end
    return RepairResult(with_record(content, request, made.read), repaired, outcome)


FACTS = (
    *("data", "settings", "split", "selection", "solution", "proof", "guarantee"),
    *("checks", "verdict", "messages", "features", "counts"),
)
"""Parts of the result that the artifact keeps, in addition to vectors to test a reader with."""


def _content(made: Made, repaired: Repaired, notes: Sequence[Note]) -> Repair:
    """Return the struct that is saved and shown."""
    outcome = made.outcome
    data_spec, settings = outcome.data_spec, outcome.judged.after.settings
    same = ""
    if outcome.repairer.criterion.startswith("decision_flips"):
        same = described(data_spec.columns.protected, outcome.repairer.comparable_values)
        same += f"; the columns that the copies in {outcome.copies} change" if outcome.copies else ""
    return Repair(
        fairfix=__version__,
        verdict=worst(check.verdict for check in outcome.checks),
        method=repaired.method,
        parameters=dict(repaired.parameters),
        criterion=outcome.criterion,
        does_not_count=same,
        seed=repaired.seed,
        data=made.data,
        settings=RepairSettings(
            **spec_fields(data_spec), confidence=settings.confidence, gate_on=settings.gate_on
        ),
        requires=Requirements(**repaired.requires()),
        split=SplitSizes(**outcome.sizes),
        selection=outcome.selection,
        solution=outcome.predictor.trace.solution,
        proof=Evaluations(
            fit=outcome.fit.shown, holdout=None if outcome.holdout is None else outcome.holdout.shown
        ),
        guarantee=outcome.guarantee,
        rule=outcome.rule,
        checks=outcome.checks,
        messages=tuple(map(message, (*outcome.messages, *notes))),
        features=made.features,
        counts=made.counts,
    )


def chosen_method(
    name: str | None, parameters: Mapping[str, Any]
) -> tuple[Repairer, dict[str, tuple[Any, ...]]]:
    """Return the repairer, and the parameters with several given values."""
    methods = available()
    if name not in methods:
        listing = "".join(f"\n  {one}: {method.summary}" for one, method in methods.items())
        if not name:
            error = UsageError(f"no `method`; choose one, such as ramp for scores:{listing}")
            raise error.proposing(("", "method=ramp"), ("", "method=logloss"))
        plain = re.sub(r"[\s_-]", "", str(name).lower())
        peer = ours(METHODS).get(plain, "")
        hint = f"; the nearest here is {peer!r}" if peer else did_you_mean(name, methods)
        error = UsageError(
            f"`method={name}`: unknown{hint}; the methods are:{listing}".replace("?; the", "? The")
        )
        raise error.proposing(
            *((str(name), one) for one in ([peer] if peer else nearest(str(name), list(methods))))
        )
    method = methods[name]
    rules = method.domains()
    given = {one: value for one, value in parameters.items() if value is not None}
    for one in given.keys() - rules.keys():
        raise UsageError(f"`{one}` is not an option of {method.name}{did_you_mean(one, rules)}")
    fixed: dict[str, Any] = {}
    choices: dict[str, tuple[Any, ...]] = {}
    for one in (rule for rule in rules if rule in given):
        rule, value = rules[one], given[one]
        if one == "constraint" and isinstance(value, (list, tuple)):
            value = ", ".join(map(str, value))
        elif isinstance(value, str):
            value = rule.split(value)
        parts = value if isinstance(value, (list, tuple)) else [value]
        if not parts:
            raise UsageError(f"`{one}` takes a value, and this list is empty")
        fixed[one], *others = parsed = [rule.one_of(f"{method.name}: {one}", part) for part in parts]
        if others and not rule.selectable:
            raise UsageError(f"`{one}` takes one value, got {given[one]!r}")
        if others:
            choices[one] = tuple(dict.fromkeys(parsed))
    repairer = method(**fixed)
    if "slack" in fixed and not repairer.parsed_constraint.takes_slack:
        raise UsageError(two_limits(fixed["constraint"], fixed["slack"]))
    variants_of(repairer, choices)  # checks every value before any data is read
    return repairer, choices


def _parameters(request: RepairRequest, similar: Similar) -> Mapping[str, Any]:
    """Return the parameters of the method, with those that a request has for all methods."""
    method, spec = available().get(request.method or ""), request.noise_spec
    names = method.domains().keys() if method is not None else set()
    more: dict[str, Any] = {}
    if spec.membership and "noise" in names:
        if spec.assume.word not in ("", "independent"):
            raise UsageError(
                f"`method={request.method}` weighs rates by membership, which assumes independence; leave out "
                f"`assume={spec.assume}`, or use `method=robust`"
            )
        more["noise"] = membership_text(spec.membership)
    if spec.assume.word and "assume" in names:
        more["assume"] = str(spec.assume)
    if request.similar and "similar" in names:
        more["similar"] = [str(replace(one, flips=False)) for one in similar.alternatives]
    elif request.similar and method is not None and "similar" not in request.configured:
        raise UsageError(
            f"`similar` is about single people, and {request.method} repairs groups; leave it out, or use "
            "`method=sensei`"
        )
    return {**request.parameters, **more}


def _noise(request: RepairRequest, repairer: Repairer) -> Noise | None:
    """Return what is said of noise, which a method that knows noise needs and others refuse."""
    if repairer.membership:
        return None
    noise = noise_of(request)
    if noise is None and "noise" in repairer.uses:
        raise UsageError(
            f"`method={repairer.name}` repairs true groups that differ from recorded ones: describe the "
            "difference with "
            "`noise=FILE` (columns true, noisy[, label] and count or probability), `noise=radius:GROUP=NUMBER,...` or "
            "`noise=membership:GROUP=COLUMN,...`"
        )
    if noise is not None and "noise" not in repairer.uses:
        raise UsageError(
            f"`method={repairer.name}` takes groups as recorded; leave out `noise`, or use `method=robust`"
        )
    return noise


def _learned_from(
    request: RepairRequest, data: Dataset, repairer: Repairer, noise: Noise | None
) -> FeatureChoice:
    """Return the columns to learn from, as far as names and types decide."""
    if "features" not in repairer.uses:
        if not data.data_spec.columns.score:
            raise UsageError("a repair needs scores, not decisions; name a score column with `score`")
        given = ["features"] * (tuple(request.features) not in ((), ("score",)) and data.model is None)
        if given := given + ["exclude"] * bool(request.exclude):
            raise UsageError(
                f"{repairer.name} works on scores and learns from no features; leave out `{given[0]}`"
            )
        return FeatureChoice(None)
    return learned_features(request, data, noise)


def _tell(choice: FeatureChoice, request: RepairRequest, repairer: Repairer, data: Dataset) -> None:
    """Print what a method learns from, before it does."""
    for note in choice.notes:
        log.info("%s", note.line)
    if "features" in repairer.uses:
        names, score = choice.names, data.data_spec.columns.score
        from_what = f"only the score {score!r}" if names is None else f"the features {', '.join(names)}"
        group = " and the protected columns" if repairer.protected_as_feature else ""
        log.info("%s learns from %s%s", repairer.name, from_what, group)


def _read(
    request: RepairRequest,
    data: Dataset,
    repairer: Repairer,
    features: tuple[str, ...] | None,
    noise: Noise | None,
    *,
    paired: bool,
) -> tuple[Table, str]:
    """Return the rows in memory, with their draws where the method may need them, and the data's fingerprint."""
    plain = (PLAIN_SCORE,) if isinstance(repairer.effective_solver, Average) else ()
    averaged = data.source.averaged if isinstance(data.source, ScoredSource) else None
    table, data_fingerprint = read_rows(
        data,
        (*(features or ()), *plain),
        request.seed,
        members=(*repairer.membership.values(), *membership_columns(noise, data)),
        numbers=repairer.parsed_constraint.numbers,
        scored=() if averaged is None else averaged.feature_names,
        draws="row_id" in repairer.uses or paired,
    )
    return table if averaged is None else replace(table, rescore=averaged.rescored), data_fingerprint


def _from_stream(
    request: RepairRequest, data: Dataset, repairer: Repairer, choices: Mapping[str, Any], settings: Settings
) -> tuple[Outcome, RowNumbers, str]:
    """Learn from the data as it is read; return the outcome, what became of the rows, and the data's fingerprint."""
    if request.guarantee is not None and (why := adapter_of(repairer).refusal(data.data_spec, None)):
        raise UsageError(f"`guarantee`: {why}")
    if choices:
        raise UsageError(
            f"`{next(iter(choices))}` takes one value with a solver that learns from a stream: no rows are held out to "
            "choose by"
        )
    if request.unlabelled is not None:
        raise UsageError("a solver that learns from a stream takes no `unlabelled`; add the rows to the data")
    outcome, scanned = repair_stream(
        data.source, data.data_spec, repairer, settings=settings, seed=request.seed, holdout=request.holdout
    )
    counts = scanned.counts
    rows = rows_struct(counts.read, counts.used, counts.excluded, data.source.left_out)
    return outcome, rows, fingerprint(counts, data.source.schema)


def _unlabelled(request: RepairRequest, data: Dataset) -> Table | None:
    """Return the rows without labels, read like the data."""
    if request.unlabelled is None:
        return None
    source, data_spec = opened(request, request.unlabelled), data.data_spec
    if data.model is not None:
        source = ScoredSource(source, data.model)
    bare = replace(
        data_spec, columns=replace(data_spec.columns, label=None), positive_label=(), label_threshold=""
    )
    return read_table(source, bare, columns=())


def _check_ids(request: RepairRequest, data: Dataset) -> None:
    """Raise where ids repeat or are missing, before anything is fitted."""
    name = data.data_spec.columns.id
    if name is None:
        return
    data.source.require([name])
    if request.duplicates == "error":
        batches = data.source.batches([name], {name: IDENTITY_TYPES["text"]})
        check_unique([batch.column(0) for batch in batches], name)


def _averaged(data: Dataset, repairer: Repairer) -> tuple[Dataset, Averaged]:
    """Return the data with the mean of the model's scores over flips of the protected columns, by their shares."""
    source, model, protected = data.source, data.model, data.data_spec.columns.protected
    if model is None or not isinstance(source, ScoredSource):
        raise UsageError(
            f"{repairer.name}: averaging scores over flips needs the model to score rows again; give it with `model`"
        )
    if model.score_scale == "decision":
        raise UsageError(f"{repairer.name}: the model gives decisions; only scores can be averaged")
    table = readable_table(source, data.data_spec, model.feature_names)
    check_comparable(table, repairer.comparable_values)
    columns = [name for name in protected if name in model.feature_names]
    if not columns and not repairer.comparable_values:
        raise UsageError(
            f"{repairer.name}: the model does not use {', '.join(protected)}, so its scores are already constant under "
            "flips; name comparable values with `similar`, or repair something else"
        )
    averaged = Averaged(model, changes_of(table, columns, repairer.comparable_values))
    return replace(data, source=ScoredSource(source.source, averaged)), averaged


def _base(
    request: RepairRequest, data: Dataset, predictor: RepairedPredictor, averaged: Averaged | None
) -> dict[str, Any]:
    """Return where the artifact's scores come from."""
    if not predictor.needs_score:
        return {"kind": "features", "names": sorted(predictor.features)}
    if data.model is None:
        return {"kind": "column", "name": data.data_spec.columns.score}
    return {
        "kind": "file",
        "name": name_of(str(data.model.path)),
        "sha256": data.model.identity,
        "features": list(data.model.feature_names),
        **({"positive_label": list(data.data_spec.positive_label)} if data.data_spec.positive_label else {}),
        **({} if averaged is None else {"average": averaged.state()}),
    }


def hyper_parameters() -> dict[str, str]:
    """Return the help of every parameter of a method that is not one of every repair."""
    users: dict[str, dict[str, list[str]]] = {}
    for name, method in available().items():
        for one, rule in method.domains().items():
            if one not in RepairRequest.__dataclass_fields__:
                users.setdefault(one, {}).setdefault(rule.help, []).append(name)
    return {
        one: "; ".join(f"{', '.join(methods)}: {text}" for text, methods in texts.items())
        for one, texts in users.items()
    }


repair = function_of("repair", RepairRequest, run_repair, hyper_parameters())
