"""``fairfix audit``."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from fairfix.cli.options import (
    apply_waivers,
    check_outputs,
    column_names,
    column_options,
    gate_options,
    noise_of,
    noise_options,
    open_data,
    option,
    output_options,
    run_options,
    show_settings,
    stacked,
    talk,
    task_option,
    waivers_of,
    write_results,
)
from fairfix.cli.progress import working
from fairfix.errors import DataError, UsageError

if TYPE_CHECKING:
    from fairfix.auditing.audit import More
    from fairfix.auditing.baseline import Allowance
    from fairfix.auditing.countfile import CountFile
    from fairfix.auditing.results import AuditReport, ComparisonReport, Settings
    from fairfix.data.files import Source
    from fairfix.data.reading import Reading
    from fairfix.data.table import Table
    from fairfix.models.user_file import ScoringModel
    from fairfix.noisy.description import Noise

PROFILES = ("ll144", "ugesp", "lending", "eu")


membership_options = stacked(
    option(
        "--noise-membership",
        multiple=True,
        metavar="[GROUP=]COLUMN,...",
        callback=column_names,
        help="Nothing is recorded: these columns hold each row's probability to be of each true group; --protected can "
        "be left out.",
    ),
    option(
        "--noise-independent",
        is_flag=True,
        help="State that, given these probabilities, the true group is independent of label and decision.",
    ),
    option("--seed", type=click.IntRange(0), default=0, help="Of the resampling that noise asks for."),
)
"""What is known of groups of which nothing is recorded."""


@click.command("audit")
@click.argument("data", envvar="FAIRFIX_DATA", type=click.Path(), required=False)
@column_options
@option(
    "--probability",
    metavar="COLUMN",
    help="Probability of a positive decision of a randomised rule (p_positive).",
)
@task_option
@option("--intersect", is_flag=True, help="Also audit the cells of all protected columns together.")
@option(
    "--reference",
    multiple=True,
    metavar="ATTRIBUTE=GROUP",
    help="Also compare every group with this one; repeatable.",
)
@option(
    "--individual",
    is_flag=True,
    help="Also ask what happens to a person who is changed in the protected columns alone: with a model file by doing "
    "so, else by what the scores tell.",
)
@option(
    "--comparable",
    multiple=True,
    metavar="COLUMN=VALUE,VALUE",
    help="Values of a feature column whose difference does not count, for --individual; repeatable.",
)
@option(
    "--radius",
    type=click.FloatRange(0.0),
    metavar="NUMBER",
    help="With --individual and a model: also SenSeI's transport regularizer, rows moving by so much (mean square).",
)
@noise_options
@membership_options
@option(
    "--suppress-below",
    type=click.IntRange(0),
    default=0,
    metavar="ROWS",
    help="Hide groups with fewer rows, and others so that their sizes cannot be computed; 0 hides none.",
)
@option(
    "--profile",
    type=click.Choice(PROFILES),
    help="Also make the tables of a rule or guidance: a template, which switches no limit on.",
)
@option(
    "--exclude-small",
    metavar="REASON",
    help="With --profile ll144: why categories below 2 % of the data are left out of impact ratios.",
)
@option("--one-pass", is_flag=True, help="Read the data once: KS and AUC from bins, with certified bounds.")
@option(
    "--counts-out",
    type=click.Path(),
    metavar="FILE",
    help="Also save the counts, in one pass, for 'fairfix merge' and --from-counts.",
)
@option(
    "--from-counts",
    type=click.Path(),
    metavar="FILE",
    help="Audit saved counts instead of DATA; the columns and their meaning are in the file.",
)
@gate_options("the audit")
@option(
    "--baseline",
    type=click.Path(),
    metavar="FILE",
    help="JSON result of an earlier audit to compare with.",
)
@option(
    "--baseline-data",
    type=click.Path(),
    metavar="DATA",
    help="Scored data of the earlier model instead, with the same columns: changes are those of the rows in both.",
)
@option("--id", metavar="COLUMN", help="Row identity, by which --baseline-data matches rows.")
@option(
    "--fail-on-worse",
    multiple=True,
    metavar="AMOUNT|CHECK",
    help="Fail when a number has become worse than in the baseline by more than this: 0.02 for all usual comparisons, "
    "'dp.difference>0.02' for one; repeatable.",
)
@output_options()
@run_options
@click.pass_context
def command(ctx: click.Context, /, **given: Any) -> int:
    """Measure how a model treats groups, and gate on it.

    DATA is a Parquet or CSV file, a folder of them, or a quoted pattern.

    \b
    fairfix audit loans.parquet --protected race
    fairfix audit loans.parquet --protected race,sex --intersect --fail-on 'dp.difference>0.1'
    fairfix audit --from-counts all.counts --fail-on 'dp.difference>0.1'
    """
    if given["show_settings"]:
        show_settings(ctx)
    from fairfix.auditing.as_json import audit_dict
    from fairfix.auditing.baseline import Allowance
    from fairfix.auditing.checks import exit_status

    check_outputs(given)
    for name in ("comparable", "radius"):
        if given[name] not in ((), None) and not given["individual"]:
            raise UsageError(f"--{name} goes with --individual")
    given = _with_profile(ctx, given)
    allowances = tuple(Allowance.parse(text) for text in given["fail_on_worse"])
    if allowances and not (given["baseline"] or given["baseline_data"]):
        raise UsageError(
            "--fail-on-worse compares with an earlier result; name it with --baseline FILE or --baseline-data DATA"
        )
    given = _with_id(given)
    waivers = waivers_of(ctx)
    old = _saved(given["baseline"]) if given["baseline"] else None
    with working(given, "auditing"):
        report, saved = (_of_counts(ctx, given), None) if given["from_counts"] else _of_data(ctx, given)
    if report is None:
        _save_counts(saved, given)
        return 0
    result = audit_dict(report)
    if given["profile"]:
        from fairfix.auditing.profiles import profile

        result["profile"] = profile(given["profile"], result, (given["exclude_small"] or "").strip())
    if old is not None:
        _compare(result, old, allowances, given)
    if given["baseline_data"]:
        _compare_rows(result, report.settings, allowances, given)
    apply_waivers(result, waivers, given)
    _save_counts(saved, given)  # late: a run that ends with an error leaves no file
    write_results(result, given)
    return exit_status((check["verdict"] for check in result["checks"]), given["undecided"])


def _settings(given: Mapping[str, Any], protected: Sequence[str], *, exact: bool) -> Settings:
    """Return what is to be computed."""
    from fairfix.auditing.checks import Check
    from fairfix.auditing.results import Settings

    return Settings(
        confidence=given["confidence"],
        intersect=given["intersect"]
        or ((given["individual"] or given["profile"] == "ll144") and len(protected) > 1),
        reference=dict(_reference(text, protected) for text in given["reference"]),
        exact=exact,
        threads=given["threads"],
        checks=tuple(Check.parse(text) for text in given["fail_on"]),
        gate_on=given["gate_on"],
        suppress_below=given["suppress_below"],
    )


def _of_data(ctx: click.Context, given: Mapping[str, Any]) -> tuple[AuditReport | None, CountFile | None]:
    """Audit data; return the report, None where there are only counts, and the counts that are to be saved."""
    from fairfix.auditing.audit import audit, require_two_groups
    from fairfix.auditing.countfile import count

    if not given["data"]:
        raise click.MissingParameter(ctx=ctx, param_hint="'DATA'", param_type="argument")
    exact = not (given["one_pass"] or given["counts_out"])
    settings = _settings(given, given["protected"], exact=exact)
    groups = _membership(given)
    source, reading, inferred, model = open_data(given, protected_needed=groups is None)
    more = _individual(source, reading, model, settings.confidence, given) if given["individual"] else None
    used = {"file": given["model"].rsplit("/", 1)[-1], "sha256": model.sha256} if model else {}
    noise = _noise(reading, model, given) if groups is None else None
    if groups is not None:
        report = _of_members(source, reading, groups, settings, more, given)
    elif given["counts_out"]:
        saved = count(source, reading, threads=settings.threads, inferred=inferred, model=used)
        return _of_piece(saved, settings, more, given), saved
    elif noise is not None:
        report = _of_noisy(source, reading, noise, settings, more, given)
    else:
        report = audit(source, reading, settings, more)
    require_two_groups(report)
    return replace(report, inferred=inferred, model=used), None


def _save_counts(saved: CountFile | None, given: Mapping[str, Any]) -> None:
    """Write the counts that --counts-out asks for; without any, nothing."""
    if saved is None:
        return
    saved.save(given["counts_out"])
    talk(
        given,
        f"wrote {given['counts_out']}: {saved.read:,} rows read, {saved.used:,} counted in one pass",
    )
    if given["suppress_below"]:
        talk(given, f"{given['counts_out']} counts every group, those hidden in the report too")


def _of_members(
    source: Source,
    reading: Reading,
    groups: Mapping[str, str],
    settings: Settings,
    more: More | None,
    given: Mapping[str, Any],
) -> AuditReport:
    """Audit data with a probability of membership per true group."""
    from fairfix.noisy.membership import audit_membership

    independent, seed = given["noise_independent"], given["seed"]
    return audit_membership(source, reading, groups, settings, independent=independent, seed=seed, more=more)


def _of_noisy(
    source: Source,
    reading: Reading,
    noise: Noise,
    settings: Settings,
    more: More | None,
    given: Mapping[str, Any],
) -> AuditReport:
    """Audit recorded groups and the true ones behind them, and say which checks are about the recorded ones."""
    from fairfix.noisy.true_groups import audit_noisy

    report = audit_noisy(source, reading, noise, settings, seed=given["seed"], more=more)
    for check in settings.checks:
        plain = check.comparison.scope == "between_groups"
        if plain and check.comparison.attribute in (None, *given["protected"]):
            talk(
                given,
                f"check {check.text!r} is about the recorded groups; of the true ones: {check.true_groups}",
            )
    return report


def _of_piece(
    saved: CountFile, settings: Settings, more: More | None, given: Mapping[str, Any]
) -> AuditReport | None:
    """Audit what was counted and saved; a piece that is no data set of its own is no error if nothing hangs on it."""
    from fairfix.auditing.audit import require_two_groups
    from fairfix.auditing.countfile import audit_counts

    try:
        report = audit_counts(saved, settings, more)
        require_two_groups(report)
    except DataError as error:
        if settings.checks or given["out"] or given["fail_on_worse"]:
            raise
        talk(given, f"the counts are saved, but they make no report of their own: {error}")
        return None
    return report


def _of_counts(ctx: click.Context, given: Mapping[str, Any]) -> AuditReport:
    """Audit saved counts.

    Raises
    ------
    UsageError
        An option says something else about the data than the file, or needs its rows.
    """
    from fairfix.auditing.audit import require_two_groups
    from fairfix.auditing.countfile import CountFile, audit_counts

    for name in ("data", "model", "trust_model", "features"):
        if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            what = "DATA" if name == "data" else f"--{name.replace('_', '-')}"
            raise UsageError(f"--from-counts reads no data; leave out {what}")
    for name in ("individual", "counts_out", "noise", "noise_radius", "noise_membership", "baseline_data"):
        if given[name]:
            raise UsageError(
                f"--{name.replace('_', '-')} needs the rows of the data, which saved counts do not have"
            )
    saved = CountFile.load(given["from_counts"])
    _check_agreement(ctx, given, saved)
    report = audit_counts(saved, _settings(given, saved.reading.columns.protected, exact=False))
    require_two_groups(report)
    return report


def _check_agreement(ctx: click.Context, given: Mapping[str, Any], saved: CountFile) -> None:
    """Raise where a flag, the environment or the configuration says something else than the counts were taken with."""
    reading = saved.reading
    columns = reading.columns
    cuts = reading.thresholds
    held = {
        **{
            name: getattr(columns, name) for name in ("label", "score", "prediction", "probability", "weight")
        },
        "protected": columns.protected,
        "strata": columns.strata,
        "task": reading.task,
        "score_scale": reading.score_scale,
        "positive_label": reading.positive_label,
        "missing_group": reading.missing_group,
        "missing": reading.missing_rows,
        "max_groups": reading.max_groups,
        "threshold": given["threshold"] if _is_cut(given["threshold"], cuts) else cuts,
    }
    for name, value in held.items():
        if ctx.get_parameter_source(name) in (None, ParameterSource.DEFAULT) or given[name] == value:
            continue
        told = ",".join(map(str, value)) if isinstance(value, tuple) else value
        raise UsageError(
            f"--{name.replace('_', '-')} is {_shown(given[name])}, but the counts were taken with {told or 'none'}; "
            "leave it out, or count the data again"
        )


def _is_cut(threshold: float | None, cuts: Sequence[float]) -> bool:
    """Tell whether a threshold is the one of the counts, which was rounded to the type of the scores."""
    return (
        threshold is not None and bool(cuts) and math.isclose(cuts[0], threshold, rel_tol=1e-3, abs_tol=1e-7)
    )


def _shown(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _membership(given: Mapping[str, Any]) -> dict[str, str] | None:
    """Return true group -> column of its probabilities; None where none are named.

    Raises
    ------
    UsageError
        An option does not go with them.
    """
    if not given["noise_membership"]:
        if given["noise_independent"]:
            raise UsageError("--noise-independent goes with --noise-membership")
        return None
    from fairfix.noisy.membership import parse_membership

    for name, remedy in (
        ("noise", "describe true groups in one way"),
        ("noise_radius", "describe true groups in one way"),
        ("noise_columns", "it goes with --noise FILE"),
        ("noise_probability", "it goes with --noise FILE"),
        ("noise_keep", "it goes with --noise FILE"),
        ("noise_epsilon", "it goes with --noise FILE"),
        ("noise_class_conditional", "of probabilities of membership say --noise-independent"),
        ("suppress_below", "true groups are told of whatever their size"),
        ("counts_out", "counts hold no probabilities of membership"),
        ("profile", "its tables are about recorded groups"),
    ):
        if given[name] not in (None, (), False, 0):
            raise UsageError(f"--noise-membership: leave out --{name.replace('_', '-')}; {remedy}")
    for name, told in (
        ("individual", "changes protected columns"),
        ("intersect", "crosses protected columns"),
        ("strata", "compares groups of protected columns within levels"),
    ):
        if given[name] and not given["protected"]:
            raise UsageError(f"--{name} {told}; name them with --protected")
    return parse_membership(given["noise_membership"])


def _noise(reading: Reading, model: ScoringModel | None, given: Mapping[str, Any]) -> Noise | None:
    """Return what is said of noise; None where nothing is."""
    noise = noise_of(given)
    if noise is None:
        return None
    used = set(reading.columns.protected) & set(model.feature_names if model else ())
    if used and (noise.class_conditional or noise.epsilon is not None):
        raise UsageError(
            f"the model looks at {', '.join(sorted(used))}, so noise comes into its decisions: leave out "
            "--noise-class-conditional and --noise-epsilon, or drop the column from the model"
        )
    if given["suppress_below"]:
        raise UsageError(
            "--noise tells of every group, also of those that --suppress-below hides; leave one out"
        )
    if given["counts_out"]:
        raise UsageError(
            "--counts-out saves the counts of the recorded groups; leave out --noise, or save apart"
        )
    return noise


def _with_profile(ctx: click.Context, given: dict[str, Any]) -> dict[str, Any]:
    """Return the options with what a profile reads otherwise: unknown groups are rows of their own."""
    if given["exclude_small"] and given["profile"] != "ll144":
        raise UsageError("--exclude-small goes with --profile ll144")
    if not given["profile"]:
        return given
    usual = ctx.get_parameter_source("missing_group") in (None, ParameterSource.DEFAULT)
    return {**given, "missing_group": "group"} if usual else given


def _saved(path: str) -> Any:
    """Return a saved result."""
    import json
    from pathlib import Path

    try:
        return json.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise DataError(f"--baseline: {path} does not exist") from error
    except (OSError, ValueError) as error:
        raise DataError(f"--baseline: {path} is not a JSON result: {error}") from error


def _compare(
    result: dict[str, Any], old: Any, allowances: Sequence[Allowance], given: Mapping[str, Any]
) -> None:
    """Add what has changed since the baseline, and its checks, to a result."""
    from fairfix.auditing.baseline import compare, require_comparable
    from fairfix.auditing.waivers import worst
    from fairfix.report.layout import HEADLINES

    name = given["baseline"]
    try:
        require_comparable(old, result, name)
        usual = tuple(HEADLINES)
        result["baseline"], checks = compare(old, result, allowances, usual, given["gate_on"])
    except (KeyError, IndexError, TypeError, AttributeError, ValueError) as error:
        raise DataError(f"--baseline: {name} is incomplete or was changed: {error!r}") from error
    if allowances and not checks:
        raise DataError(f"--fail-on-worse: nothing in the baseline {name} can be compared with this audit")
    result["checks"] += checks
    result["verdict"] = worst(result["checks"])


def _with_id(given: dict[str, Any]) -> dict[str, Any]:
    """Return the options with an id only where rows are matched by it.

    Raises
    ------
    UsageError
        Rows cannot be matched with what is given.
    """
    if not given["baseline_data"]:
        return {**given, "id": None}
    if given["baseline"]:
        raise UsageError("--baseline compares results and --baseline-data rows; give one of them")
    if not given["id"]:
        raise UsageError("--baseline-data matches rows by their ids; name the column with --id COLUMN")
    if given["model"]:
        raise UsageError(
            "--baseline-data compares the scores of two files; leave out --model, and write its scores to a column"
        )
    if given["suppress_below"]:
        raise UsageError(
            "--baseline-data is about other rows than the rest of the report, so --suppress-below cannot hide for "
            "certain; compare saved results with --baseline"
        )
    return given


def _compare_rows(
    result: dict[str, Any], settings: Settings, allowances: Sequence[Allowance], given: Mapping[str, Any]
) -> None:
    """Add what has changed on the rows that are in both files, and its checks, to a result."""
    from fairfix.auditing.as_json import audit_dict
    from fairfix.auditing.audit import audit, require_two_groups
    from fairfix.auditing.baseline import compare
    from fairfix.auditing.paired import Changes, doubt, match
    from fairfix.auditing.waivers import worst
    from fairfix.data.files import open_source
    from fairfix.report.layout import HEADLINES

    source, reading, _, _ = open_data({**given, "quiet": True})
    reading, name = reading.with_threshold(), given["id"]
    before = open_source(given["baseline_data"])
    tables = [_with_ids(one, reading, name) for one in (before, source)]
    matched = match(tables[0], tables[1], name)
    plain = replace(settings, checks=())
    found = [
        replace(audit(table, reading, plain), source=one.name)
        for table, one in ((matched.old, before), (matched.new, source))
    ]
    require_two_groups(found[1])
    old, new = (audit_dict(report) for report in found)
    limits = Changes(matched, settings.confidence, settings.reference).limits
    usual = tuple(HEADLINES)
    section, checks = compare(
        old, {**new, "checks": result["checks"]}, allowances, usual, given["gate_on"], limits
    )
    doubt(checks, matched)
    result["baseline"] = {**section, "paired": matched.to_dict(name)}
    if matched.share < 1:
        talk(
            given,
            f"{len(matched.new):,} of {len(tables[1]):,} rows are in the baseline too, in the same group",
        )
    if allowances and not checks:
        raise DataError("--fail-on-worse: nothing in the baseline can be compared with this audit")
    result["checks"] += checks
    result["verdict"] = worst(result["checks"])


def _with_ids(source: Source, reading: Reading, name: str) -> Table:
    """Return the rows of a file with their ids, which stay texts where the file is one of text."""
    import pyarrow as pa

    from fairfix.data.scan import read_table

    source.require((name,))
    kind = pa.string() if source.text else source.schema.field(name).type
    return read_table(source, reading, (), {name: kind})


def _individual(
    source: Source,
    reading: Reading,
    model: ScoringModel | None,
    confidence: float,
    given: Mapping[str, Any],
) -> dict[str, list[ComparisonReport]]:
    """Return what is found of individual fairness, by attribute; what is proposed is only said."""
    from fairfix.individual.by_model import of_model, of_scores, readable_table
    from fairfix.individual.flips import parse_comparable, proxies

    comparable = parse_comparable(";".join(given["comparable"]))
    names = given["features"] or None if model is None else model.feature_names
    table = readable_table(source, reading, names)
    declared = {name for name, _ in comparable}
    for proposal in proxies(table, reading.columns.protected):
        if proposal.partition("=")[0] not in declared:
            talk(given, f"comparable values to think about, not used: {proposal}; say so with --comparable")
    if model is None:
        if given["radius"] is not None:
            raise UsageError("--radius moves rows and scores them again, which needs a model file (--model)")
        if comparable:
            raise UsageError(
                "--comparable changes rows and scores them again, which needs a model file (--model)"
            )
        found, aside = of_scores(table, confidence)
        if aside:
            talk(given, f"left aside, since nothing is learned from them: {', '.join(aside)}")
        return found
    return of_model(table, model, comparable, confidence, given["radius"])


def _reference(text: str, protected: Sequence[str]) -> tuple[str, str]:
    """Read ``race=White``; the attribute may be left out when there is only one."""
    attribute, sign, group = text.partition("=")
    if sign:
        return attribute.strip(), group.strip()
    if len(protected) != 1:
        raise UsageError(f"--reference {text!r}: say of which attribute, as ATTRIBUTE=GROUP")
    return protected[0], text.strip()
