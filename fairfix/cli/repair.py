"""``fairfix repair``: the options of every method come from its fields."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from fairfix.cli.options import (
    apply_method_table,
    apply_waivers,
    check_outputs,
    data_options,
    gate_options,
    learned_features,
    noise_of,
    noise_options,
    open_data,
    option,
    output_options,
    run_options,
    show_settings,
    talk,
    task_option,
    waivers_of,
    write_results,
)
from fairfix.cli.progress import working
from fairfix.errors import UsageError

if TYPE_CHECKING:
    from fairfix.auditing.results import Settings
    from fairfix.data.files import Source
    from fairfix.data.reading import Reading
    from fairfix.data.table import Table
    from fairfix.methods.base import Repairer, Rule
    from fairfix.models.predictors import RepairedPredictor
    from fairfix.models.repaired import Repaired
    from fairfix.models.scoring import Averaged
    from fairfix.models.user_file import ScoringModel
    from fairfix.noisy.description import Noise
    from fairfix.tasks.proof import Outcome, RowCounts


class RepairCommand(click.Command):
    """A command that gets an option for every hyper-parameter of every method, when it is used."""

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return the fixed options and those of the methods."""
        fixed = super().get_params(ctx)
        at = next(i for i, param in enumerate(fixed) if param.name == "method") + 1
        return [*fixed[:at], *method_options(), *fixed[at:]]


def method_options() -> list[click.Option]:
    """Return one option per hyper-parameter; methods that share a name share the option."""
    from fairfix.methods import available

    shown: dict[str, dict[str, tuple[Any, Rule]]] = {}
    for name, method in available().items():
        for part in method.parameter_fields():
            shown.setdefault(part.name, {})[name] = part.default, part.metadata["rule"]
    everybody = list(available())
    out = []
    for name, users in shown.items():
        flag = "--" + name.replace("_", "-")
        default = _default({user: value for user, (value, _) in users.items()})
        told = _told({user: rule.help for user, (_, rule) in users.items()}, everybody)
        out.append(
            click.Option(
                [flag],
                metavar=_metavar([rule for _, rule in users.values()]),
                envvar="FAIRFIX_" + name.upper(),
                help=f"{told}." + (f"  [default: {default}]" if default else ""),
            )
        )
    return out


def _told(helps: Mapping[str, str], everybody: Sequence[str]) -> str:
    """Return the help of a hyper-parameter: once where methods agree, else method by method."""
    texts: dict[str, list[str]] = {}
    for user, text in helps.items():
        texts.setdefault(text, []).append(user)
    if len(texts) == 1 and list(helps) == list(everybody) and len(helps) > 1:
        return next(iter(texts))
    return "; ".join(f"{', '.join(users)}: {text}" for text, users in texts.items())


def _default(users: Mapping[str, Any]) -> str:
    """Return the default of a hyper-parameter, by method where methods differ."""
    values = {name: str(value) for name, value in users.items()}
    if len(set(values.values())) == 1:
        return next(iter(values.values()))
    return ", ".join(f"{value} for {name}" for name, value in values.items())


def _metavar(rules: Sequence[Rule]) -> str:
    """Return how the values of a hyper-parameter are written in the help, those of all methods that have it."""
    words = [
        word for rule in rules for word in rule.choices or (*rule.words, "TEXT" if rule.text else "NUMBER")
    ]
    one = "|".join(dict.fromkeys(words))
    return f"{one}[,...]" if any(rule.selectable for rule in rules) else one


id_options = [
    option(
        "--id",
        metavar="COLUMN",
        help="Row identity, which draws randomised decisions.  [default: the row's values, and how many equal rows "
        "came before]",
    ),
    option(
        "--duplicate-ids",
        type=click.Choice(["error", "share"]),
        default="error",
        help="Rows with one id: an error, or they share one draw.",
    ),
]


@click.command("repair", cls=RepairCommand)
@data_options
@task_option
@option(
    "--protected-as-feature",
    is_flag=True,
    help="The protected columns are features too; they are needed at predict time then.",
)
@noise_options
@id_options[0]
@id_options[1]
@option("--method", metavar="NAME", help="The repair method: the word before the colon of its options.")
@option(
    "--output",
    "-o",
    type=click.Path(),
    default="repaired.fairfix",
    help="Where to write the repaired predictor.",
)
@option("--seed", type=click.IntRange(0), default=0, help="Of the split and the fit.")
@option(
    "--unlabelled",
    type=click.Path(),
    metavar="DATA",
    help="More scored rows with the same columns but no label, to learn rates from.",
)
@option(
    "--pairs",
    type=click.Path(),
    metavar="DATA",
    help="Pairs of people whose difference does not count: a file of two columns of ids, for methods that heed them.",
)
@option("--holdout", type=float, default=0.3, help="Share of the rows kept for the proof.")
@option(
    "--validation",
    type=float,
    default=0.2,
    help="Share of the rows that select, when a parameter has several values.",
)
@option(
    "--unseen-group",
    type=click.Choice(["error", "base", "abstain"]),
    default="error",
    help="At predict time, rows of a group the fit has not seen.",
)
@gate_options("when the repaired model still breaks, on held-out rows,")
@output_options()
@run_options
@click.pass_context
def command(ctx: click.Context, /, **given: Any) -> int:
    """Fit a repaired predictor and prove it on held-out rows.

    Writes one file that 'fairfix predict' applies to new rows. Several protected columns are repaired together:
    parity among their cells.

    \b
    fairfix repair loans.parquet --method ramp --protected race --id applicant_id
    fairfix repair loans.parquet --method ramp --protected race,sex --slack 0.02 --gamma 0.02,0.05,0.1
    """
    apply_method_table(ctx)
    if given["show_settings"]:
        show_settings(ctx)
    given = dict(ctx.params)
    from fairfix.auditing.checks import Check, exit_status
    from fairfix.auditing.results import Settings
    from fairfix.tasks.as_json import repair_dict

    check_outputs(given)
    waivers = waivers_of(ctx)
    repairer, choices = chosen_method(given)
    checks = tuple(Check.parse(text) for text in given["fail_on"])
    if given["strata"] and not repairer.knows_strata:
        raise UsageError(f"{repairer.name} does not repair within strata; leave out --strata")
    source, reading, inferred, model = open_data(given, score_needed=not repairer.learns)
    noise = noise_known(given, repairer.knows_noise, f"--method {repairer.name}")
    averaged = None
    if repairer.averages:
        source, averaged = _averaged(source, reading, model, repairer)
    features = _learned_from(source, reading, repairer, given, model)
    _check_ids(source, reading, given)
    asked = Settings(confidence=given["confidence"], checks=checks, gate_on=given["gate_on"])
    job = _Job(source, reading, model, averaged, repairer, choices, features, noise, asked)
    with working(given, f"repairing by {repairer.name}"):
        outcome, rows, data = _from_stream(job, given) if repairer.streams else _in_memory(job, given)
    for warning in outcome.warnings:
        talk(given, f"warning: {warning}")
    for note in outcome.notes:
        talk(given, f"note: {note}")
    repaired = _repaired(job, outcome, data, given)
    result = repair_dict(outcome, repaired, source.name, rows, inferred, data)
    result["artifact"] = _save(repaired, result, given)
    apply_waivers(result, waivers, given)  # the artifact has the verdict without them: they end, it stays
    write_results(result, given)
    return exit_status((check["verdict"] for check in result["checks"]), given["undecided"])


@dataclass(frozen=True)
class _Job:
    """What is repaired, from what, by what, and what is asked of the proof.

    Attributes
    ----------
    source, reading
        The data, and how they are read.
    model, averaged
        The model file that scores them, and the mean of its scores over flips; None where there is none.
    repairer, choices
        The method, and the parameters of which several values were given.
    features
        Columns to learn from; None for the score.
    noise
        How recorded groups differ from true ones, and what is said of it; None for a method that takes groups as they
        are.
    settings
        Of the audits before and after.
    """

    source: Source
    reading: Reading
    model: ScoringModel | None
    averaged: Averaged | None
    repairer: Repairer
    choices: Mapping[str, tuple[Any, ...]]
    features: tuple[str, ...] | None
    noise: Noise | None
    settings: Settings


def _in_memory(job: _Job, given: Mapping[str, Any]) -> tuple[Outcome, RowCounts, str]:
    """Repair with all rows at hand; return the outcome, what became of the rows, and the data's fingerprint."""
    from fairfix.tasks.proof import RowCounts, repair_table

    table, data = _read(job, given)
    outcome = repair_table(
        table,
        job.repairer,
        choices=job.choices,
        settings=job.settings,
        seed=given["seed"],
        validation=given["validation"],
        holdout=given["holdout"],
        unlabelled=_unlabelled(job.reading, given, job.model),
        features=job.features,
        protected_as_feature=given["protected_as_feature"],
        pairs=_pairs(job.reading, given),
        noise=job.noise,
        seen_by_model=job.model.feature_names if job.model else (),
    )
    return outcome, RowCounts(table.rows.read, len(table), table.rows.excluded), data


def _repaired(job: _Job, outcome: Outcome, data: str, given: Mapping[str, Any]) -> Repaired:
    """Return the predictor with all that is needed to use it, but for the facts."""
    from fairfix.models.repaired import Repaired, at_predict_time, hash_key, identity_columns

    return Repaired(
        job.repairer.name,
        outcome.repairer.parameters,
        outcome.predictor,
        at_predict_time(outcome.reading, outcome.predictor),
        given["unseen_group"],
        identity_columns(_without_score(job.source, job.model), job.reading),
        hash_key(given["seed"], data),
        _base(job, outcome.predictor, given),
        {},
        given["seed"],
    )


FACTS = (
    "data",
    "settings",
    "split",
    "selection",
    "solution",
    "proof",
    "checks",
    "verdict",
    "messages",
    "warnings",
    "notes",
)
"""Parts of the result that the artifact keeps."""


def _save(repaired: Repaired, result: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, str]:
    """Write the artifact; return its name and hash."""
    from dataclasses import replace

    digest = replace(repaired, facts={name: result[name] for name in FACTS}).save(given["output"])
    talk(given, f"wrote {given['output']}")
    talk(given, f"needed at predict time: {', '.join(repaired.required)}")
    return {"file": given["output"].rsplit("/", 1)[-1], "sha256": digest}


def noise_known(given: Mapping[str, Any], known: bool, who: str) -> Noise | None:
    """Return what is said of noise, which whoever knows noise needs and others refuse.

    Raises
    ------
    UsageError, DataError
        It is missing, has no use, or cannot be read.
    """
    noise = noise_of(given)
    if noise is None and known:
        raise UsageError(
            f"{who} repairs true groups behind recorded ones: describe how they differ with --noise FILE (columns "
            "true, noisy[, label] and count or probability)"
        )
    if noise is not None and not known:
        raise UsageError(f"{who} takes groups as they are; leave out --noise, or take --method robust")
    return noise


def _learned_from(
    source: Source,
    reading: Reading,
    repairer: Repairer,
    given: Mapping[str, Any],
    model: ScoringModel | None,
) -> tuple[str, ...] | None:
    """Return the columns to learn from, and say which they are; None for the score."""
    if not repairer.learns:
        if not reading.columns.score:
            raise UsageError("a repair needs scores, not decisions; name a score column with --score")
        if given["protected_as_feature"] or (given["features"] not in ((), ("score",)) and model is None):
            raise UsageError(
                f"{repairer.name} works on scores and learns from no features; leave out --features"
            )
        return None
    features = learned_features(given, source, reading, model)
    from_what = (
        f"score {reading.columns.score!r} alone" if features is None else f"features {', '.join(features)}"
    )
    group = ", and the protected columns" if given["protected_as_feature"] else ""
    talk(given, f"{repairer.name} works on the {from_what}{group}")
    return features


def _read(job: _Job, given: Mapping[str, Any]) -> tuple[Table, str]:
    """Return the rows in memory, with their draws where the method may need them, and the data's fingerprint."""
    from dataclasses import replace

    from fairfix.data.scan import count_table, read_table
    from fairfix.data.table import PLAIN_SCORE
    from fairfix.models.repaired import IDENTITY_TYPES, fingerprint, hash_key, identity_columns, row_draws
    from fairfix.tasks.proof import HELD_ROWS

    source, reading = job.source, job.reading
    few = source.about_rows <= HELD_ROWS  # else draws that no method needs are not worth the memory
    kept = job.repairer.draws or bool(given["pairs"]) or reading.columns.id is not None or few
    identity = identity_columns(_without_score(source, job.model), reading) if kept else {}
    types = {name: IDENTITY_TYPES[kind] for name, kind in identity.items()} if reading.columns.id else {}
    raw = {name: types.get(name, source.schema.field(name).type) for name in identity}
    plain = (PLAIN_SCORE,) if job.repairer.averages else ()
    table = read_table(source, reading, (*(job.features or ()), *plain), raw)
    data = fingerprint(count_table(table).counts, source.schema)
    key = hash_key(given["seed"], data)
    if not identity:
        return table, data
    by_id = reading.columns.id is not None
    return replace(table, draw=row_draws(table.features, identity, key, by_id=by_id)), data


def chosen_method(given: Mapping[str, Any]) -> tuple[Repairer, dict[str, tuple[Any, ...]]]:
    """Return the repairer, and the parameters of which several values were given.

    Raises
    ------
    UsageError
        No such method, or a parameter that it has not, or a value it cannot take.
    """
    from fairfix.methods import available

    known = available()
    if given["method"] not in known:
        asked = f"--method {given['method']}: unknown" if given["method"] else "no --method"
        listing = "; ".join(f"{name} ({method.summary})" for name, method in known.items())
        raise UsageError(f"{asked}; choose one of {listing}")
    method = known[given["method"]]
    own = dict(method.rules())
    fixed: dict[str, Any] = {}
    choices: dict[str, tuple[Any, ...]] = {}
    for name in {part.name for other in known.values() for part in other.parameter_fields()}:
        text = given.get(name)
        if text is None:
            continue
        if name not in own:
            raise UsageError(f"--{name.replace('_', '-')} is not an option of {method.name}")
        parts = [str(text)] if own[name].text else str(text).split(",")
        values = tuple(own[name].parse(method.name, name, part) for part in parts)
        if len(values) > 1 and not own[name].selectable:
            raise UsageError(f"--{name.replace('_', '-')} takes one value, got {text!r}")
        fixed[name] = values[0]
        if len(values) > 1:
            choices[name] = tuple(dict.fromkeys(values))
    repairer = method(**fixed)
    repairer.variants(choices)  # checks every value before any data is read
    return repairer, choices


def _from_stream(job: _Job, given: Mapping[str, Any]) -> tuple[Outcome, RowCounts, str]:
    """Learn from the file as it is read, returning as :func:`_in_memory`; what needs all rows at once is refused."""
    from fairfix.models.repaired import fingerprint
    from fairfix.tasks.proof import RowCounts, repair_stream

    if job.choices:
        raise UsageError(
            f"--{next(iter(job.choices)).replace('_', '-')} takes one value with a solver that learns from a stream: "
            "nothing is set aside to choose by"
        )
    if given["unlabelled"]:
        raise UsageError("a solver that learns from a stream takes no --unlabelled; add the rows to the data")
    outcome, found = repair_stream(
        job.source,
        job.reading,
        job.repairer,
        settings=job.settings,
        seed=given["seed"],
        holdout=given["holdout"],
    )
    counts = found.counts
    rows = RowCounts(counts.read, counts.used, counts.excluded)
    return outcome, rows, fingerprint(counts, job.source.schema)


def _pairs(reading: Reading, given: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """Return the pairs of --pairs, as texts.

    Raises
    ------
    UsageError, DataError
        There is no id column, or the file has other than two columns, no rows, a gap, or a pair of one person.
    """
    if not given["pairs"]:
        return ()
    import pyarrow as pa

    from fairfix.data.files import open_source
    from fairfix.errors import DataError

    if reading.columns.id is None:
        raise UsageError("--pairs names people by their ids; say with --id which column has them")
    source = open_source(given["pairs"])
    if len(source.columns) != 2:
        raise DataError(
            f"{source.name} has the columns {', '.join(source.columns)}; pairs are two columns of ids"
        )
    types = dict.fromkeys(source.columns, pa.string())
    out = [
        pair
        for part in source.parts(source.columns, types)
        for batch in part.batches()
        for pair in zip(*(column.cast(pa.string()).to_pylist() for column in batch.columns), strict=True)
    ]
    if any(one is None for pair in out for one in pair):
        raise DataError(f"{source.name} has a pair with a missing id; remove it")
    if not out:
        raise DataError(f"{source.name} has no pairs; write two ids per row, or leave out --pairs")
    if (same := next((a for a, b in out if a == b), None)) is not None:
        raise DataError(f"{source.name} has a pair of {same!r} with itself, which says nothing; remove it")
    return tuple(out)


def _unlabelled(reading: Reading, given: Mapping[str, Any], model: ScoringModel | None) -> Table | None:
    """Return the rows of --unlabelled, read like the data but for the label."""
    if not given["unlabelled"]:
        return None
    from dataclasses import replace

    from fairfix.data.files import open_source
    from fairfix.data.scan import read_table
    from fairfix.models.scoring import ScoredSource

    source: Source = open_source(given["unlabelled"])
    if model is not None:
        source = ScoredSource(source, model)
    bare = replace(reading, columns=replace(reading.columns, label=None), positive_label=None)
    return read_table(source, bare, columns=())


def _check_ids(source: Source, reading: Reading, given: Mapping[str, Any]) -> None:
    """Raise where ids repeat or are missing, before anything is fitted."""
    name = reading.columns.id
    if name is None:
        return
    source.require([name])
    if given["duplicate_ids"] == "error":
        from fairfix.models.repaired import IDENTITY_TYPES, check_unique

        types = {name: IDENTITY_TYPES["text"]}
        check_unique([b.column(0) for part in source.parts([name], types) for b in part.batches()], name)


def _without_score(source: Source, model: ScoringModel | None) -> Any:
    """Return the schema of the data as it comes, without a score that a model file fills in."""
    import pyarrow as pa

    from fairfix.data.table import PLAIN_SCORE
    from fairfix.models.scoring import MODEL_SCORE

    made = (MODEL_SCORE, PLAIN_SCORE)
    fields: Sequence[Any] = [field for field in source.schema if model is None or field.name not in made]
    return pa.schema(fields)


def _averaged(
    source: Source, reading: Reading, model: ScoringModel | None, repairer: Repairer
) -> tuple[Source, Averaged]:
    """Return the source with the mean of the model's scores over flips of the protected columns, by their shares.

    Raises
    ------
    UsageError
        There is no model file, or it looks at nothing that is flipped.
    """
    from fairfix.individual.by_model import readable_table
    from fairfix.individual.flips import changes_of, check_comparable
    from fairfix.models.scoring import Averaged, ScoredSource

    if model is None or not isinstance(source, ScoredSource):
        raise UsageError(
            f"{repairer.name}: to average scores over flips, rows have to be scored again; give the model with --model"
        )
    if model.score_scale == "decision":
        raise UsageError(f"{repairer.name}: the model gives decisions; only scores can be averaged")
    table = readable_table(source, reading, model.feature_names)
    check_comparable(table, repairer.comparables)
    columns = [name for name in reading.columns.protected if name in model.feature_names]
    if not columns and not repairer.comparables:
        raise UsageError(
            f"{repairer.name}: the model does not look at {', '.join(reading.columns.protected)}, so its scores are "
            "constant under flips as they are; name comparable values with --comparable, or repair something else"
        )
    averaged = Averaged(model, changes_of(table, columns, repairer.comparables))
    return ScoredSource(source.unscored, averaged), averaged


def _base(job: _Job, predictor: RepairedPredictor, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return where the artifact's scores come from."""
    if not predictor.needs_score:
        return {"kind": "features", "names": sorted(predictor.features)}
    if job.model is None:
        return {"kind": "column", "name": job.reading.columns.score}
    return {
        "kind": "file",
        "name": given["model"].rsplit("/", 1)[-1],
        "sha256": job.model.sha256,
        "features": list(job.model.feature_names),
        **({} if given["positive_label"] is None else {"positive_label": given["positive_label"]}),
        **({} if job.averaged is None else {"average": job.averaged.state()}),
    }
