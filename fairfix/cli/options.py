"""Options: made from the fields of requests, with the configuration behind them, and back into requests."""

from __future__ import annotations

import logging
import os
import re
import shlex
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar, get_args

import click
from click.core import ParameterSource

from fairfix.cli.failure_report import reports_of
from fairfix.cli.help import complete_methods, completion
from fairfix.data.choices import Undecided
from fairfix.data.domain import Domain, parameters_of
from fairfix.data.names import nearest, split_names
from fairfix.data.urls import STANDARD, dry_run, hidden
from fairfix.errors import ConfigError, ExitStatus, UsageError
from fairfix.report.words import SETTINGS, as_json, as_options, plain
from fairfix.tasks.request import GateRequest, ReportRequest, Request

Command = TypeVar("Command", bound=Callable[..., Any])
Decorator = Callable[[Command], Command]
Made = TypeVar("Made", bound=Request)


class Once(click.Option):
    """An option with one value: where it stands twice, nobody can say which value is meant.

    A ``common`` one is in the short help of its command.
    """

    def __init__(self, *args: Any, common: bool = False, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.common = common

    def add_to_parser(self, parser: Any, ctx: click.Context) -> None:
        """Let the parser keep every value."""
        if self.multiple or self.is_flag:
            super().add_to_parser(parser, ctx)
        else:
            parser.add_option(self, self.opts, dest=self.name, action="append", nargs=self.nargs)

    def resolve_envvar_value(self, ctx: click.Context) -> str | None:
        """Return the value of the environment variable; a blank one of a list is as good as none."""
        value = super().resolve_envvar_value(ctx)
        return None if self.multiple and not (value or "").strip() else value

    def consume_value(self, ctx: click.Context, opts: Mapping[str, Any]) -> Any:
        """Return the one value; a usage error names them where there are more."""
        given = opts.get(str(self.name))
        if isinstance(given, list) and not self.multiple:
            if len(given) > 1:
                name, each = max(self.opts, key=len), " and ".join(map(str, given))
                raise click.UsageError(f"{name} is given {len(given)} times, with {each}; give it once", ctx)
            opts = {**opts, str(self.name): given[0]}
        return super().consume_value(ctx, opts)


class DataArgument(click.Argument):
    """DATA: one file or the like; or several files of ``counts``, where a command takes them."""

    def __init__(self, *args: Any, counts: bool, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.counts = counts

    def add_to_parser(self, parser: Any, ctx: click.Context) -> None:
        """Let the parser take every word."""
        parser.add_argument(self, dest=self.name, nargs=-1)

    def consume_value(self, ctx: click.Context, opts: Mapping[str, Any]) -> Any:
        """Return the one value, or all where there are several; of none, what else says it."""
        words = opts.get(str(self.name)) or ()
        if not isinstance(words, tuple) or not words:
            opts = {name: value for name, value in opts.items() if name != self.name}
        elif len(words) == 1:
            opts = {**opts, str(self.name): words[0]}
        return super().consume_value(ctx, opts)

    def type_cast_value(self, ctx: click.Context, value: Any) -> Any:
        """Return the value; a usage error where there are several, and none are counts."""
        if not isinstance(value, tuple):
            return super().type_cast_value(ctx, value)
        from fairfix.tasks.count import is_counts

        if not (self.counts and any(map(is_counts, value))):
            other = (
                ", or count each file by 'fairfix count' and give the files of counts" if self.counts else ""
            )
            raise click.UsageError(
                f"{' '.join(value)}: several files of rows are one DATA; give a folder, or a quoted pattern such as "
                f"'2024-*.csv'{other}",
                ctx,
            )
        return value


class FractionOrPath(click.Path):
    """The path of data, or a fraction of rows."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the value; the request reads the number."""
        return value if isinstance(value, float) else super().convert(value, param, ctx)


class Choice(click.Choice[str]):
    """One of some words; a word that is none is told the nearest."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the word."""
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter as error:
            if near := nearest(str(value), tuple(self.choices)):
                raise click.BadParameter(f"{error.message} Did you mean {near[0]!r}?", ctx, param) from None
            raise


def option(*names: str, **settings: Any) -> Decorator[Any]:
    """Return a click option that the environment variable ``FAIRFIX_NAME`` can set too."""
    long = next(name for name in names if name.startswith("--")).lstrip("-")
    settings.setdefault("envvar", "FAIRFIX_" + long.upper().replace("-", "_"))
    settings.setdefault(
        "show_default", settings.get("default") not in (None, ()) and not settings.get("is_flag")
    )
    return click.option(*names, **{"cls": Once, **settings})


def stacked(*decorators: Decorator[Any]) -> Decorator[Any]:
    """Return one decorator that adds the options in the order given."""

    def add(command: Any) -> Any:
        for decorator in reversed(decorators):
            command = decorator(command)
        return command

    return add


def column_names(ctx: click.Context, param: click.Parameter, texts: Sequence[str]) -> tuple[str, ...]:
    """Split ``a,b`` and drop repeats: ``--protected race,sex`` is ``--protected race --protected sex``.

    A name in double quotes is taken as it is, commas and blanks included: ``--protected '"race, self",sex'``.
    """
    names = (name for text in texts for name in split_names(text))
    return tuple(dict.fromkeys(name for name in names if name))


def _standard_input() -> str | None:
    """Return the name of standard input where a file stands behind it, as in ``fairfix audit < loans.csv``.

    A pipe is not read unasked: it may be one of a system that never writes to it.
    """
    try:
        return STANDARD if stat.S_ISREG(os.fstat(0).st_mode) else None
    except OSError:  # it is closed
        return None


SEVERAL = "  Repeat, or separate with commas."


def options_of(kind: type[Request], *, several: bool = False) -> Decorator[Any]:
    """Return the options of a request, in the order of its fields; ``several``: whether its data may be many files."""
    made: list[Decorator[Any]] = []
    for name, domain in parameters_of(kind).items():
        if domain.positional:
            more: dict[str, Any] = {}
            if name == "data":
                more = {"cls": DataArgument, "counts": several, "metavar": "DATA..." if several else "DATA"}
                more |= {"default": _standard_input, "envvar": "FAIRFIX_DATA"}
            made.append(click.argument(name, required=True, type=click.Path(), **more))
            continue
        settings: dict[str, Any] = {
            "help": as_options(domain.help),
            "default": domain.default,
            "type": _type(domain),
        }
        metavar = domain.metavar or ("NUMBER" if domain.kind in (int, float) else None)
        settings |= {"metavar": metavar, "is_flag": domain.kind is bool, "common": domain.common}
        if name in ("method", "methods"):
            settings["shell_complete"] = complete_methods
        if domain.many:
            texts = [f"{one:g}" for one in domain.default]
            settings |= {"multiple": True, "default": texts, "show_default": False}
            settings["help"] += f"  [default: {','.join(texts)}]" if texts else ""
        if domain.without is not None:
            settings |= {"is_flag": False, "flag_value": domain.without}
        if domain.listed:
            settings["callback"] = column_names
            settings["help"] += "" if "," in domain.metavar else SEVERAL
        elif domain.many:
            settings["help"] = settings["help"].removesuffix(".") + "; repeatable."
        long = "--" + name.replace("_", "-")
        either = (
            domain.kind is bool and domain.default is None
        )  # neither is the default, so that each can be said
        made.append(option(f"{long}/--no-{long[2:]}" if either else long, **settings))
    return stacked(*made)


class NumberOption(click.FloatRange):
    """A number, as the parameter of the request reads it; the help shows its range, if it has a least number."""

    def __init__(self, domain: Domain) -> None:
        super().__init__(domain.at_least, domain.below, max_open=domain.below is not None)
        self.domain = domain

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the number; a :class:`~fairfix.errors.UsageError` where it is none, or out of range."""
        return self.domain.one_of(f"`{param.name}`" if param else "", value)

    def _describe_range(self) -> str:
        return "" if self.min is None else super()._describe_range()


class Conditions(click.types.StringParamType):
    """Checks; an environment variable has several with blanks between them, and perhaps inside them."""

    def split_envvar_value(self, rv: str) -> list[str]:
        """Return the checks: ``dp.difference > 0.1 eo.difference>0.2`` are two."""
        subject = r"(?:[^\s\[<>=]|\[[^\]]*\])+"
        return re.findall(rf"{subject}\s*[<>]=?\s*[^\s<>=]+|\S+", rv)


class NumberOrText(click.types.StringParamType):
    """A number, or a text that the request reads."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the number, or the text."""
        try:
            return float(value)
        except ValueError:
            return super().convert(value, param, ctx)


class Specification(click.types.StringParamType):
    """A text that an environment variable has once, blanks and colons included."""

    def split_envvar_value(self, rv: str) -> list[str]:
        """Return the text, whole."""
        return [rv]


def _type(domain: Domain) -> Any:
    """Return the type of an option as click has it; texts that the request splits and reads stay texts."""
    if domain.many and domain.metavar.endswith("CHECK"):
        return Conditions()
    if domain.choices:
        return Choice(domain.choices)
    if domain.metavar == "SCORE":
        return NumberOrText()
    if domain.kind is object:
        if domain.many:
            return Specification()
        return click.Path() if domain.metavar != "FRACTION|DATA" else FractionOrPath()
    return NumberOption(domain) if domain.kind in (int, float) and not domain.many else None


def request_of(ctx: click.Context, kind: type[Made], **more: Any) -> Made:
    """Return the request that the options of a command make."""
    names = parameters_of(kind)
    unsaid = (None, ParameterSource.DEFAULT)
    sources = {name: ctx.get_parameter_source(name) for name in names}
    explicit = frozenset(name for name, source in sources.items() if source not in unsaid)
    shared = (ParameterSource.DEFAULT_MAP, ParameterSource.ENVIRONMENT)
    configured = frozenset(name for name, source in sources.items() if source in shared)
    if issubclass(kind, GateRequest):
        more |= _waivers(ctx)
    if issubclass(kind, ReportRequest) and (record := ctx.meta.get("fairfix.record")):
        more["record"] = {**record, "command": reports_of(ctx).line or ctx.command_path}
    more |= {"explicit": explicit, "configured": configured}
    words = tuple(_other_words(ctx, {*names, *more.get("parameters", ()), "set_"}))
    return kind(**{name: ctx.params[name] for name in names} | more, other_words=words)


def _other_words(ctx: click.Context, names: set[str]) -> Iterator[str]:
    """Yield the typed options without some names."""
    from fairfix.cli.config import NO_CONFIG

    for param in ctx.command.params:
        name = str(param.name)
        if name in {*ctx.params} - names and ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            value = ctx.params[name]
            for one in value if isinstance(value, tuple) else (value,):
                yield from (min(param.opts, key=len), *([] if one is True else [str(one or NO_CONFIG)]))


def _waivers(ctx: click.Context) -> dict[str, Any]:
    """Return the waivers of the configuration, and the day by which they are judged."""
    name, tables = ctx.meta.get("fairfix.waivers", ("", ()))
    if not tables:
        return {}
    from fairfix.auditing.waivers import Waiver

    return {"waivers": [Waiver.parse(table, name) for table in tables], "today": today()}


def today() -> date:
    """Return the day by which waivers are judged: FAIRFIX_TODAY, that of SOURCE_DATE_EPOCH, or the clock's, in UTC."""
    named, epoch = os.environ.get("FAIRFIX_TODAY"), os.environ.get("SOURCE_DATE_EPOCH")
    try:
        if named:
            return date.fromisoformat(named)
        return datetime.fromtimestamp(int(epoch), UTC).date() if epoch else datetime.now(UTC).date()
    except (ValueError, OverflowError, OSError) as error:
        which = f"FAIRFIX_TODAY={named}" if named else f"SOURCE_DATE_EPOCH={epoch}"
        raise UsageError(f"the environment variable {which} is not a date: {error}") from error


# ---------------------------------------------------------------------- options of the command line alone

undecided_option = option(
    "--undecided",
    type=Choice(get_args(Undecided)),
    default="exit3",
    help="Effect of an undecided check on the exit status.",
)


def format_option(formats: Sequence[str] = ("text", "json")) -> Decorator[Any]:
    """Return the option of what is printed."""
    return option(
        "--format",
        "format_",
        type=Choice(formats),
        default="text",
        common=True,
        help="Format printed to standard output.",
    )


def output_options(*, logs: bool = True) -> Decorator[Any]:
    """Return the options of formats and files, and that of a log where the command computes the result."""
    from fairfix.report import PRINTED

    log = option("--log", type=click.Choice(("mlflow",)), help="Also log the result as a run of MLflow.")
    return stacked(
        *((log,) if logs else ()),
        format_option(PRINTED),
        option(
            "--out",
            multiple=True,
            metavar="FORMAT=FILE",
            common=True,
            help="Also write a report to a file, such as html=report.html; pdf and xlsx too; repeatable.",
        ),
        option(
            "--detail",
            "--verbose",
            is_flag=True,
            callback=_verbose,
            help="Show all comparisons, details of the solver (repair), and bytes read from remote data.",
        ),
    )


LOG = logging.getLogger("fairfix")


def _verbose(ctx: click.Context, param: click.Parameter, value: bool) -> bool:
    if value:
        from fairfix.data.storage import traffic

        before = traffic()
        ctx.call_on_close(lambda: _tell_traffic(traffic() - before))
    return value


def _tell_traffic(came: Mapping[str, int]) -> None:
    """Say how much was read from elsewhere, by place."""
    for shown, size in sorted(came.items()):
        LOG.info("read %s bytes from %s", f"{size:,}", shown)


verbose_option = option(
    "--verbose",
    is_flag=True,
    expose_value=False,
    callback=_verbose,
    help="Print how many bytes were read from remote data.",
)


def _quiet(ctx: click.Context, param: click.Parameter, value: bool) -> bool:
    LOG.setLevel(logging.WARNING if value else logging.INFO)
    return value


quiet_option = option(
    "--quiet", "-q", is_flag=True, callback=_quiet, help="Print only errors to standard error."
)


def talk(text: str) -> None:
    """Say something on stderr, unless asked to be quiet."""
    LOG.info("%s", text)


def _configure(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """Make the configuration file the source of defaults, before any other option is read."""
    if ctx.resilient_parsing:
        return value
    from fairfix.cli.config import NO_CONFIG, find_config, load_config, reach

    if value == NO_CONFIG:
        return None

    path = Path(value) if value else find_config(Path.cwd())
    if path is None:
        return None
    try:
        config = load_config(path, known_options(), frozenset(completion()["methods"]))
    except ConfigError:  # a method that is newer than the list of methods may know the key
        from fairfix.methods import available

        config = load_config(path, known_options(methods=True), frozenset(available()))
    command = ctx.command.name or ""
    settings = config.commands.get(command, {})
    params: dict[str, click.Parameter] = {
        name: click.Option([f"--{name}"]) for name in SETTINGS if command == "repair"
    }
    params |= {_key(param): param for param in ctx.command.get_params(click.Context(ctx.command))}
    beyond = {} if value else dict(reach(path, settings, command))
    fitting = {
        str(params[name].name): _fitting(params[name], content, path) for name, content in settings.items()
    }
    reports_of(ctx).configured = {name: one for name, one in fitting.items() if name not in beyond}
    ctx.default_map = fitting
    ctx.meta["fairfix.found"] = None if value else path
    ctx.meta["fairfix.methods"] = {
        method: {
            str(params[name].name): _fitting(params[name], content, path, joined=True)
            for name, content in table.items()
            if name in params
        }
        for method, table in config.methods.items()
    }
    ctx.meta["fairfix.waivers"] = (path.name, config.waivers)
    ctx.meta["fairfix.record"] = config.record
    if config.shared.get("suppress_below"):
        ctx.meta["fairfix.suppressing"] = f"{path} says suppress-below"
    return str(path)


def _fitting(option_: click.Parameter, content: Any, path: Path, *, joined: bool = False) -> Any:
    """Return a configured value as the command line would give it: a text, some of an option that repeats, or a flag.

    ``joined`` is whether a list stands for its entries with commas between, as that of a parameter of a method does.
    """
    key = repr(_key(option_).replace("_", "-"))
    flag, multiple = getattr(option_, "is_flag", False), getattr(option_, "multiple", False)
    entries = content if isinstance(content, list) else [content]
    if isinstance(content, list) and not (multiple or joined):
        raise ConfigError(f"{path}: {key} takes one value, not a list")
    if any(isinstance(one, (list, dict)) for one in entries):
        raise ConfigError(f"{path}: {key} is a list or a table where a value is expected")
    if flag and not isinstance(content, (bool, str)):
        raise ConfigError(f"{path}: {key} is {content}; write true or false")
    if flag and isinstance(content, bool):
        return content
    texts = list(map(str, entries))
    return texts if multiple else ",".join(texts)


def _dry_run(ctx: click.Context, param: click.Parameter, value: bool) -> bool:
    if value:
        ctx.with_resource(dry_run())
    return value


run_options = stacked(
    option(
        "--config",
        type=click.Path(),
        metavar="FILE",
        is_eager=True,
        callback=_configure,
        help="Configuration file, or the word none.  [default: the nearest fairfix.toml, else [tool.fairfix] in "
        "pyproject.toml]",
    ),
    option(
        "--dry-run",
        is_flag=True,
        callback=_dry_run,
        help="Print all settings, where each comes from, and the SQL that a database would be sent, and stop. "
        "Connects only to look up columns.",
    ),
    quiet_option,
)
"""Options of how to run."""

HIDDEN_SETTINGS = frozenset({"config", "dry_run"})


def known_options(*, methods: bool = False) -> dict[str, frozenset[str]]:
    """Return the option names of every command that reads the configuration.

    Those of methods are of a list, or of the ``methods`` themselves, which take seconds to import.
    """
    out = {}
    for name in ("audit", "repair", "compare", "explore", "count", "predict"):
        command: click.Command = import_module(f"fairfix.cli.{name}").command
        params = command.get_params(click.Context(command, resilient_parsing=not methods))
        names = (_key(param) for param in params if param.expose_value and param.name not in HIDDEN_SETTINGS)
        out[name] = frozenset(names)
    return out


def _key(param: click.Parameter) -> str:
    """Return the name of an option as users write it, with underscores; ``format_`` is one of Python's words else."""
    return str(param.name).rstrip("_")


def require_unsuppressed(ctx: click.Context) -> None:
    """Raise a UsageError where small groups are to be hidden and the command hides none."""
    source = ctx.meta.get("fairfix.suppressing")
    if os.environ.get("FAIRFIX_SUPPRESS_BELOW", "0").strip() not in ("", "0"):
        source = "FAIRFIX_SUPPRESS_BELOW is set"
    if source:
        raise UsageError(
            f"{source}, and 'fairfix {ctx.command.name}' does not hide groups: its results and artifacts show "
            "all of them. "
            "Unset it, use --config none, or move it to [audit] if it is for audits only; to repair without small "
            "groups, repair counts of 'fairfix count --suppress-below N'"
        )


def settle(ctx: click.Context) -> None:
    """Before anything is done: refuse what a configuration that was found cannot say, where nothing else says it.

    In a dry run, print the merged settings as TOML with their sources, and stop where there is no database to ask.
    Before the SQL for a database, they are comments.
    """
    from fairfix.cli.config import reach

    if path := ctx.meta.get("fairfix.found"):
        configured = {
            name: setting
            for name, setting in ctx.params.items()
            if ctx.get_parameter_source(name) is ParameterSource.DEFAULT_MAP
        }
        for name, why in reach(path, configured, ctx.command.name or ""):
            raise ConfigError(
                f"{path} was found, not named, so it cannot set `{name}`: {why}. Set it on the command line, or name "
                f"the file if you trust whoever wrote it: --config {shlex.quote(os.path.relpath(path))}"
            )
    if not ctx.params["dry_run"]:
        return
    sends = _names_database(ctx.params)
    before = "-- " if sends else ""
    words: dict[Any, str] = {
        ParameterSource.COMMANDLINE: "command line",
        ParameterSource.ENVIRONMENT: "environment",
        ParameterSource.DEFAULT_MAP: "configuration",
    }
    if ctx.params.get("config"):
        click.echo(f"{before}# configuration: {plain(Path(ctx.params['config']).name)}")
    for param in ctx.command.get_params(ctx):
        if param.name not in HIDDEN_SETTINGS and param.name in ctx.params:
            where = words.get(ctx.get_parameter_source(param.name), "default")
            text = hidden(_toml(ctx.params[param.name]))
            click.echo(f"{before}{_key(param).replace('_', '-')} = {text}  # {where}")
    if not sends:
        ctx.exit(ExitStatus.OK)


def _names_database(given: Mapping[str, Any]) -> bool:
    """Tell whether anything that a command reads is a database."""
    from fairfix.cli.config import READ, files_named
    from fairfix.data.opening import names_database

    return any(names_database(one) for name in READ for one in files_named(name, given.get(name) or ()))


def _toml(value: Any) -> str:
    """Return a value as TOML has it: as JSON, but for infinity and what is not there."""
    if isinstance(value, float):
        return str(value)
    from fairfix.tasks.init_config import as_toml

    return '""' if value is None else as_toml(as_json(value, None))
