"""Options that commands share, the configuration behind them, and how they become a reading of the data."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import date
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource

from fairfix.errors import ConfigError, ExitStatus, UsageError

if TYPE_CHECKING:
    from fairfix.auditing.waivers import Waiver
    from fairfix.data.files import Source
    from fairfix.data.reading import Columns, Reading
    from fairfix.models.user_file import ScoringModel
    from fairfix.noisy.description import Noise, NoiseTable

Command = TypeVar("Command", bound=Callable[..., Any])
Decorator = Callable[[Command], Command]


def option(*names: str, **settings: Any) -> Decorator[Any]:
    """Return a click option that the environment variable ``FAIRFIX_NAME`` can set too."""
    long = next(name for name in names if name.startswith("--")).split("/")[0].lstrip("-")
    settings.setdefault("envvar", "FAIRFIX_" + long.upper().replace("-", "_"))
    settings.setdefault("show_default", settings.get("default") is not None and not settings.get("is_flag"))
    return click.option(*names, **settings)


def stacked(*decorators: Decorator[Any]) -> Decorator[Any]:
    """Return one decorator that adds the options in the order given."""

    def add(command: Any) -> Any:
        for decorator in reversed(decorators):
            command = decorator(command)
        return command

    return add


LISTED = re.compile(r'\s*"((?:[^"]|"")*)"\s*(?:,|$)|([^,]*)(?:,|$)')
"""A name of a list with commas: in double quotes, or up to the next comma."""


def column_names(ctx: click.Context, param: click.Parameter, values: Sequence[str]) -> tuple[str, ...]:
    """Split ``a,b`` and drop repeats: ``--protected race,sex`` is ``--protected race --protected sex``.

    A name in double quotes is taken as it is, commas and blanks included: ``--protected '"race, self",sex'``.
    """
    parts = [part for value in values for part in LISTED.finditer(value)]
    names = (p[2].strip() if p[1] is None else p[1].replace('""', '"') for p in parts)
    return tuple(dict.fromkeys(name for name in names if name))


column_options = stacked(
    option(
        "--protected",
        multiple=True,
        metavar="COLUMN",
        callback=column_names,
        help="Column whose groups are compared; several by commas or repeated, names with commas in double quotes.",
    ),
    option("--label", metavar="COLUMN", help="Observed outcome, 0/1.  [default: label, y, y_true or target]"),
    option(
        "--score",
        metavar="COLUMN",
        help="The model's score.  [default: score, y_score, proba, prediction or y_pred]",
    ),
    option("--prediction", metavar="COLUMN", help="Hard decisions, 0/1, instead of or beside a score."),
    option(
        "--model",
        type=click.Path(),
        metavar="FILE",
        help="Score the rows with this model file (.skops, .onnx, .joblib, .pkl).",
    ),
    option(
        "--trust-model",
        metavar="sha256:HASH",
        help="Load a pickle-family model file, which runs its code, if it has this hash.",
    ),
    option(
        "--features",
        multiple=True,
        metavar="COLUMN",
        callback=column_names,
        help="Feature columns: of the model file, if it does not name them itself; for a method that learns, what it "
        "learns from: columns, all (every column without a role), or score (the model's score alone).",
    ),
    option("--positive-label", metavar="VALUE", help="The positive value of labels that are not 0/1."),
    option("--weight", metavar="COLUMN", help="Row weights."),
    option(
        "--strata",
        multiple=True,
        metavar="COLUMN",
        callback=column_names,
        help="Compare, and repair, within each level of this column.",
    ),
    option(
        "--threshold",
        type=float,
        metavar="SCORE",
        help="A score at or above it is a positive decision.  [default: where the probability is 0.5]",
    ),
    option(
        "--score-scale",
        type=click.Choice(["probability", "margin", "logit", "raw"]),
        default="probability",
        help="What a score is: p, 2p-1, log-odds, or no probability.",
    ),
    option(
        "--missing-group",
        type=click.Choice(["error", "group", "drop"]),
        default="error",
        help="Rows whose group is missing.",
    ),
    option(
        "--missing",
        type=click.Choice(["error", "drop"]),
        default="error",
        help="Rows whose score, label or weight is missing.",
    ),
    option(
        "--max-groups",
        type=click.IntRange(2),
        default=1000,
        help="More distinct values than this are no groups.",
    ),
)
"""The columns of the data, and what they mean."""


data_options = stacked(click.argument("data", envvar="FAIRFIX_DATA", type=click.Path()), column_options)
"""The data and its columns."""


task_option = option(
    "--task",
    type=click.Choice(["classification", "regression"]),
    default="classification",
    help="What the label is: 0/1, or a real number.",
)


noise_options = stacked(
    option(
        "--noise",
        metavar="FILE",
        help="The protected column is a noisy one, and this table tells how: rows of true, noisy (and label) "
        "with a count or a probability.",
    ),
    option(
        "--noise-columns",
        multiple=True,
        metavar="TRUE,NOISY[,LABEL]",
        callback=column_names,
        help="The noise file has a row per person instead, with both groups in these columns.",
    ),
    option(
        "--noise-probability",
        type=click.Choice(["joint", "true-given-noisy", "noisy-given-true"]),
        help="What its probabilities are.  [default: found from what sums to 1]",
    ),
    option(
        "--noise-keep",
        type=click.Choice(["true-given-noisy", "noisy-given-true"]),
        help="What of the table holds for the data, if their groups have other shares.",
    ),
    option(
        "--noise-radius",
        metavar="GROUP=NUMBER,...",
        help="Total variation between each true group and the group recorded as it.",
    ),
    option(
        "--noise-epsilon", type=float, metavar="NUMBER", help="Noise depends on outcomes by at most this."
    ),
    option(
        "--noise-class-conditional",
        is_flag=True,
        help="State that noise depends on nothing but the true group, and decisions not on the recorded one.",
    ),
)
"""What is known of a noisy protected column."""


def noise_of(given: Mapping[str, Any]) -> Noise | None:
    """Return what is said of noise; None where nothing is.

    Raises
    ------
    UsageError, DataError
        Options do not go with one another, or the file cannot be read.
    """
    extra = ("noise_columns", "noise_probability", "noise_keep", "noise_epsilon", "noise_class_conditional")
    if not given["noise"] and given["noise_radius"] is None:
        for name in extra:
            if given[name] not in (None, (), False):
                raise UsageError(f"--{name.replace('_', '-')} goes with --noise FILE")
        return None
    from fairfix.noisy.description import Noise, parse_radii

    table = _noise_table(given)
    radii = None if given["noise_radius"] is None else parse_radii(given["noise_radius"])
    return Noise(table, radii, given["noise_epsilon"], given["noise_class_conditional"], given["noise_keep"])


def _noise_table(given: Mapping[str, Any]) -> NoiseTable | None:
    """Return the table of --noise; None where there are radii alone."""
    from fairfix.data.files import open_source
    from fairfix.noisy.description import WORDS, read_noise, tabulate

    columns = given["noise_columns"]
    if not given["noise"]:
        if columns:
            raise UsageError("--noise-columns goes with --noise FILE")
        return None
    if not columns:
        table = read_noise(open_source(given["noise"]), given["noise_probability"])
        talk(given, f"{table.source} holds {WORDS[table.form]}")
        return table
    if len(columns) not in (2, 3):
        raise UsageError(
            f"--noise-columns {','.join(columns)}: name two or three columns, TRUE,NOISY[,LABEL]"
        )
    if given["noise_probability"]:
        raise UsageError("--noise-columns counts persons; leave out --noise-probability")
    return tabulate(open_source(given["noise"]), *columns)


def gate_options(what: str) -> Decorator[Any]:
    """Return the options of intervals and gates."""
    return stacked(
        option("--confidence", type=float, default=0.95, help="Of every interval."),
        option(
            "--fail-on",
            multiple=True,
            metavar="CHECK",
            help=f"Fail {what} on a condition such as 'dp.difference>0.1' or 'ks[race]>0.05'; repeatable.",
        ),
        option(
            "--gate-on",
            type=click.Choice(["interval", "point"]),
            default="interval",
            help="What has to hold the limits.",
        ),
        option(
            "--undecided",
            type=click.Choice(["exit3", "pass", "fail"]),
            default="exit3",
            help="What an undecided check does to the exit status.",
        ),
    )


def output_options() -> Decorator[Any]:
    """Return the options of formats and files."""
    from fairfix.report import FORMATS

    return stacked(
        option("--format", "format_", type=click.Choice(FORMATS), default="text", help="Format on stdout."),
        option(
            "--out",
            multiple=True,
            metavar="FORMAT=FILE",
            help="Also write this format to a file; repeatable.",
        ),
        option(
            "--detail",
            "--verbose",
            is_flag=True,
            help="Show every comparison, not only the usual ones; of a repair, also what the solver found.",
        ),
    )


def _configure(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """Make the configuration file the source of defaults, before any other option is read."""
    if ctx.resilient_parsing or ctx.meta.get("fairfix.no_config"):
        return value
    from fairfix.cli.config import find_config, load_config

    path = Path(value) if value else find_config(Path.cwd())
    if path is None:
        return None
    config = load_config(path, known_options(), method_names())
    params = {_key(param): param for param in ctx.command.get_params(click.Context(ctx.command))}
    ctx.default_map = {
        str(params[name].name): _fitting(params[name], content, path)
        for name, content in config.commands.get(ctx.command.name or "", {}).items()
    }
    ctx.meta["fairfix.methods"] = {
        method: {str(params[name].name): value for name, value in table.items() if name in params}
        for method, table in config.methods.items()
    }
    ctx.meta["fairfix.waivers"] = (path.name, config.waivers)
    return str(path)


def _fitting(option_: click.Parameter, content: Any, path: Path) -> Any:
    """Return a configured value in the shape of its option: repeatable options take a list or one value."""
    if isinstance(option_, click.Option) and option_.multiple:
        values = content if isinstance(content, list) else [content]
        return [str(value) for value in values]
    if isinstance(content, list):
        raise ConfigError(f"{path}: {_key(option_).replace('_', '-')!r} takes one value, not a list")
    return content


def _no_config(ctx: click.Context, param: click.Parameter, value: bool) -> bool:
    ctx.meta["fairfix.no_config"] = value
    return value


run_options = stacked(
    option(
        "--config",
        type=click.Path(),
        metavar="FILE",
        is_eager=True,
        callback=_configure,
        help="Configuration file.  [default: the nearest fairfix.toml, else [tool.fairfix] in pyproject.toml]",
    ),
    option(
        "--no-config", is_flag=True, is_eager=True, callback=_no_config, help="Read no configuration file."
    ),
    option("--show-settings", is_flag=True, help="Print every setting and where it comes from, and stop."),
    option("--threads", type=click.IntRange(1), help="Threads that read the data.  [default: up to 4]"),
    option("--quiet", "-q", is_flag=True, help="No talk on stderr, only errors."),
    option("--debug", is_flag=True, help="Show the traceback of an error."),
)
"""Options of how to run."""


def apply_method_table(ctx: click.Context) -> None:
    """Fill in what the configuration says of the chosen method, where neither flag nor environment speaks."""
    tables = ctx.meta.get("fairfix.methods", {})
    for name, value in tables.get(ctx.params.get("method"), {}).items():
        if ctx.get_parameter_source(name) in (None, ParameterSource.DEFAULT):
            ctx.params[name] = ",".join(map(str, value)) if isinstance(value, list) else value
            ctx.set_parameter_source(name, ParameterSource.DEFAULT_MAP)
    from fairfix.methods import available

    chosen = available().get(ctx.params.get("method") or "")
    for part in chosen.parameter_fields() if chosen else ():
        if ctx.params.get(part.name) is None:
            ctx.params[part.name] = str(part.default)


HIDDEN_SETTINGS = frozenset({"config", "no_config", "show_settings", "debug"})


def known_options() -> dict[str, frozenset[str]]:
    """Return the option names of every command that reads the configuration."""
    out = {}
    for name in ("audit", "repair", "compare", "predict"):
        command: click.Command = import_module(f"fairfix.cli.{name}").command
        params = command.get_params(click.Context(command))
        names = (_key(param) for param in params if param.expose_value and param.name not in HIDDEN_SETTINGS)
        out[name] = frozenset(names)
    return out


def _key(param: click.Parameter) -> str:
    """Return the name of an option as users write it, with underscores; ``format_`` is one of Python's words else."""
    return str(param.name).rstrip("_")


def method_names() -> frozenset[str]:
    """Return the names of the repair methods."""
    from fairfix.methods import available

    return frozenset(available())


def show_settings(ctx: click.Context) -> None:
    """Print the merged settings as TOML with their sources, and stop."""
    words = {
        ParameterSource.COMMANDLINE: "command line",
        ParameterSource.ENVIRONMENT: "environment",
        ParameterSource.DEFAULT_MAP: "configuration",
    }
    if ctx.params.get("config"):
        click.echo(f"# configuration: {Path(ctx.params['config']).name}")
    for param in ctx.command.get_params(ctx):
        if param.name in HIDDEN_SETTINGS or param.name not in ctx.params:
            continue
        source = ctx.get_parameter_source(str(param.name))
        where = words.get(source, "default") if source else "default"
        click.echo(f"{_key(param).replace('_', '-')} = {_toml(ctx.params[param.name])}  # {where}")
    ctx.exit(ExitStatus.OK)


def _toml(value: Any) -> str:
    if value is None:
        return '""'
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (tuple, list)):
        return "[" + ", ".join(_toml(v) for v in value) + "]"
    if isinstance(value, (int, float)):
        return str(value)
    return '"' + str(value).replace("\\", "\\\\").replace('"', '\\"') + '"'


def today() -> date:
    """Return the day by which waivers are judged: FAIRFIX_TODAY, that of SOURCE_DATE_EPOCH, or the clock's, in UTC.

    Raises
    ------
    UsageError
        A variable is set and holds no day.
    """
    import os
    from datetime import UTC, datetime

    named, epoch = os.environ.get("FAIRFIX_TODAY"), os.environ.get("SOURCE_DATE_EPOCH")
    try:
        if named:
            return date.fromisoformat(named)
        return datetime.fromtimestamp(int(epoch), UTC).date() if epoch else datetime.now(UTC).date()
    except (ValueError, OverflowError, OSError) as error:
        which = f"FAIRFIX_TODAY={named}" if named else f"SOURCE_DATE_EPOCH={epoch}"
        raise UsageError(f"the environment variable {which} is no day: {error}") from error


def waivers_of(ctx: click.Context) -> list[Waiver]:
    """Return the waivers of the configuration."""
    from fairfix.auditing.waivers import Waiver

    name, tables = ctx.meta.get("fairfix.waivers", ("", ()))
    return [Waiver.parse(table, name) for table in tables]


def apply_waivers(result: dict[str, Any], waivers: Sequence[Waiver], given: Mapping[str, Any]) -> None:
    """Add what the waivers do to a result; without any, nothing."""
    if not waivers:
        return
    from fairfix.auditing.waivers import apply, worst
    from fairfix.report.layout import STATES

    now = today()
    result["checks"], told = apply(result["checks"], waivers, now)
    result["verdict"] = worst(result["checks"])
    result["waivers"] = {"today": now.isoformat(), "waivers": told}
    for one in told:
        if one["state"] in ("expired", "matches nothing"):
            talk(given, f"the waiver of {one['check']!r} {STATES[one['state']]}")


INDEX_NAME = re.compile(r"__index_level_\d+__")
"""What pandas calls the index of a frame in a Parquet file; row numbers are no feature."""


def learned_features(
    given: Mapping[str, Any], source: Source, reading: Reading, model: ScoringModel | None
) -> tuple[str, ...] | None:
    """Return the feature columns that a method learns from; None for the model's score alone.

    Raises
    ------
    UsageError, ColumnError
        A column is not there, or has a role already, or there is no score to learn from.
    """
    asked = given["features"]
    if model is not None or asked == ("score",) or (not asked and reading.columns.score):
        if reading.columns.score is None:
            raise UsageError("--features score: there is no score column; name it with --score")
        return None
    free = [name for name in source.columns if name not in reading.columns.roles]
    usual = [name for name in free if not INDEX_NAME.fullmatch(name)]
    names = usual if asked in ((), ("all",)) else list(asked)
    source.require(names)
    for name in names:
        if name in reading.columns.protected:
            raise UsageError(
                f"--features {name}: a protected column is a feature by --protected-as-feature; leave it out here"
            )
        if name not in free:
            raise UsageError(f"--features {name}: the column has a role already; leave it out")
    if not names:
        raise UsageError("there are no feature columns to learn from; name some with --features")
    return tuple(names)


# ---------------------------------------------------------------------- from options to data


def talk(given: Mapping[str, Any], text: str) -> None:
    """Say something on stderr, unless asked to be quiet."""
    from fairfix.report.words import harmless

    if not given.get("quiet"):
        click.echo(harmless(f"fairfix: {text}"), err=True)


def open_data(
    given: Mapping[str, Any], *, score_needed: bool = True, protected_needed: bool = True
) -> tuple[Source, Reading, dict[str, str], ScoringModel | None]:
    """Return the source, how to read it, what was inferred, and the model that scores it, if any."""
    from fairfix.data.files import open_source
    from fairfix.data.naming import infer_columns
    from fairfix.data.reading import Reading

    columns = _columns(given, protected_needed=protected_needed)
    source = open_source(given["data"])
    model = None
    if given["model"]:
        source, columns, model = _scored(given, source, columns)
    inferred: dict[str, str] = {}
    columns, inferred = infer_columns(
        columns, source.schema, score_from_model=model is not None, score_needed=score_needed
    )
    for part, name in inferred.items():
        talk(given, f"{part} is column {name!r} (by its name)")
    reading = Reading(
        columns,
        task=given.get("task", "classification"),
        score_scale=given["score_scale"],
        thresholds=() if given["threshold"] is None else (given["threshold"],),
        positive_label=given["positive_label"],
        missing_group=given["missing_group"],
        missing_rows=given["missing"],
        max_groups=given["max_groups"],
    )
    if model is not None and model.score_scale == "raw":
        reading = replace(reading, score_scale="raw")
    reading.check(protected=protected_needed)
    return source, reading, inferred, model


def _columns(given: Mapping[str, Any], *, protected_needed: bool) -> Columns:
    from fairfix.data.reading import Columns

    if protected_needed and not given["protected"]:
        raise UsageError("name the protected column with --protected COLUMN")
    if given["model"] and (given["score"] or given["prediction"]):
        raise UsageError("--model makes the scores; leave out --score and --prediction")
    return Columns(
        given["protected"],
        label=given["label"],
        score=given["score"],
        prediction=given["prediction"],
        probability=given.get("probability"),
        weight=given["weight"],
        strata=given["strata"],
        id=given.get("id"),
    )


def _scored(
    given: Mapping[str, Any], source: Source, columns: Columns
) -> tuple[Source, Columns, ScoringModel]:
    from fairfix.models.scoring import MODEL_SCORE, ScoredSource
    from fairfix.models.user_file import load_model

    model = load_model(
        given["model"],
        trust=given["trust_model"],
        features=given["features"] or None,
        positive_label=given["positive_label"],
    )
    scored = ScoredSource(source, model)
    if model.score_scale == "decision":
        return scored, replace(columns, prediction=MODEL_SCORE), model
    return scored, replace(columns, score=MODEL_SCORE), model


def write_results(result: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    """Print the result in the chosen format and write the other formats to their files."""
    publish(result, given, *rendered(result, given))


def rendered(result: Mapping[str, Any], given: Mapping[str, Any]) -> tuple[str, list[tuple[str, str]]]:
    """Return what is to be printed, and (file, content) of what is to be written."""
    printed = render(given["format_"], result, detail=given["detail"], terminal=True)
    files = [_format_and_file(text) for text in given["out"]]
    return printed, [
        (path, render(name, result, detail=given["detail"], terminal=False)) for name, path in files
    ]


def publish(
    result: Mapping[str, Any], given: Mapping[str, Any], printed: str, files: Sequence[tuple[str, str]]
) -> None:
    """Write the files, print, and append to the step summary of a GitHub workflow."""
    from fairfix.data.files import write_text

    for path, content in files:
        write_text(path, content)
    click.echo(printed, nl=False)
    if "github" in (given["format_"], *(_format_and_file(text)[0] for text in given["out"])):
        _append_summary(result, given)


def _append_summary(result: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    """Append the Markdown report to the step summary of a GitHub workflow, where there is one."""
    import os

    path = os.environ.get("GITHUB_STEP_SUMMARY")
    if not path:
        return
    try:
        with Path(path).open("a", encoding="utf-8") as file:
            file.write(render("markdown", result, detail=given["detail"], terminal=False) + "\n")
    except OSError as error:
        talk(given, f"the step summary cannot be written: {error.strerror}")


def check_outputs(given: Mapping[str, Any], *, gated: bool = True) -> None:
    """Raise for an output that cannot be written, before the work is done; ``gated``: whether there are checks."""
    from fairfix.report import GATED, NO_CHECKS

    for name in (given["format_"], *(_format_and_file(text)[0] for text in given["out"])):
        if name in GATED and not gated:
            raise UsageError(NO_CHECKS.format(name=name))
    named = [(f"--out {text}", _format_and_file(text)[1]) for text in given["out"]]
    named += [
        (f"--{name.replace('_', '-')} {given[name]}", given[name])
        for name in ("output", "counts_out", "picture")
        if given.get(name)
    ]
    check_files(named, given)


READ = (
    "data",
    "result",
    "artifact",
    "model",
    "baseline",
    "baseline_data",
    "from_counts",
    "noise",
    "unlabelled",
    "pairs",
)
"""Options and arguments that name what is read."""


def check_files(written: Sequence[tuple[str, str]], given: Mapping[str, Any]) -> None:
    """Raise for a file that cannot be written, is written twice, or is read by the same run.

    Parameters
    ----------
    written
        (as the user said it, file) of every file to write.
    """
    seen = {Path(given[name]).resolve(): name for name in READ if given.get(name)}
    for said, path in written:
        place = Path(path).resolve()
        if not place.parent.is_dir():
            raise UsageError(f"{said}: the folder {Path(path).parent} does not exist")
        if place.exists() and not (place.is_file() or place.is_dir()):  # such as /dev/null
            continue
        if place in seen:
            raise UsageError(f"{said}: this file is also that of {_spoken(seen[place])}; name another one")
        seen[place] = said


def _spoken(name: str) -> str:
    """Return an argument or an option as users write it."""
    return (
        name if name.startswith("-") else name.upper() if name in ARGUMENTS else f"--{name.replace('_', '-')}"
    )


ARGUMENTS = frozenset(("data", "result", "artifact"))


def _format_and_file(text: str) -> tuple[str, str]:
    from fairfix.report import FORMATS

    name, sign, path = text.partition("=")
    if not sign or not path or name not in FORMATS:
        raise UsageError(f"--out {text!r}: write it as FORMAT=FILE with a format of {', '.join(FORMATS)}")
    return name, path


def render(name: str, result: Mapping[str, Any], *, detail: bool, terminal: bool) -> str:
    """Render a result, to the width and colours of the terminal where it goes to one."""
    from fairfix.report import renderer

    encoding = (sys.stdout.encoding or "ascii").lower().replace("-", "") if terminal else "utf8"
    ascii_only = not encoding.startswith("utf")
    if name != "text":
        settings = {"detail": detail} if name in ("markdown", "html") else {}
        text = _call(renderer(name), result, **settings)
        if ascii_only and name in (
            "html",
            "junit",
        ):  # a reference to a character reads the same in any encoding
            return text.encode("ascii", "xmlcharrefreplace").decode("ascii")
        return text
    import os
    import shutil

    colour = terminal and sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    width = shutil.get_terminal_size((160, 24)).columns if terminal and sys.stdout.isatty() else 160
    return _call(renderer(name), result, detail=detail, width=width, color=colour, ascii_only=ascii_only)


def _call(function: Callable[..., str], result: Mapping[str, Any], **settings: Any) -> str:
    return function(result, **settings)
