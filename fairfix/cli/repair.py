"""``fairfix repair``: the options of every method come from its fields."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from fairfix.cli.help import FULL, HELP_ALL, SectionedCommand, completion, is_common, write_section
from fairfix.cli.options import (
    Once,
    option,
    options_of,
    output_options,
    request_of,
    require_unsuppressed,
    run_options,
    settle,
    talk,
    undecided_option,
)
from fairfix.cli.outputs import check_outputs, located, print_report, publishing, write_reports
from fairfix.cli.progress import working
from fairfix.data.names import did_you_mean
from fairfix.errors import UsageError
from fairfix.report.words import SETTINGS, as_options
from fairfix.tasks.request import RepairRequest

if TYPE_CHECKING:
    from fairfix.data.domain import Domain
    from fairfix.methods.base import Repairer

LONG = 40
"""Columns of a list of choices above which it stands in the text of an option, where it can be broken."""


OF_SOME: Mapping[str, Callable[[type[Repairer]], bool]] = {
    "strata": lambda method: "strata" in method.uses,
    "unlabelled": lambda method: "unlabelled" in method.uses,
    "similar": lambda method: "similar" in method.domains(),
    "noise": lambda method: "noise" in method.uses or "noise" in method.domains(),
    "assume": lambda method: "noise" in method.uses,
}
"""Options that not all methods know: whether one does."""


class RepairCommand(SectionedCommand):
    """A command that gets an option for every hyper-parameter of every method, when it is used."""

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return the fixed options and those of the methods."""
        fixed = super().get_params(ctx)
        at = next(i for i, param in enumerate(fixed) if param.name == "method") + 1
        own = completed_options() if ctx.resilient_parsing else method_options()
        return [*fixed[:at], *own, *fixed[at:]]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Keep the method that the line names anywhere, for a help that is printed before the line is read.

        A setting that is written as an option gets the line to type instead.
        """
        if {*ctx.help_option_names, *HELP_ALL.opts}.intersection(args):
            lenient = click.Context(self, ctx.parent, resilient_parsing=True, ignore_unknown_options=True)
            named = self.make_parser(lenient).parse_args(list(args))[0].get("method")
            ctx.meta["fairfix.method"] = named[-1] if isinstance(named, list) else named
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            name = error.option_name.lstrip("-").replace("-", "_")
            typed = f"--set {name}=VALUE" if name in SETTINGS else _as_learner(name, "VALUE")
            if not typed:
                raise
            raise click.UsageError(f"{error.message} Type {typed}.", ctx) from None

    def own(self, ctx: click.Context) -> Mapping[str, Sequence[click.Parameter]]:
        """Return the parameters of the method that the line names, or with ``--help-all`` those of every method.

        Options that the method knows and others do not, such as ``--noise``, are among them.
        """
        if not (method := _method_of_help(ctx)):
            return {"Parameters of the methods": method_options()} if ctx.meta.get(FULL) else {}
        of_some = [one for one in self.params if one.name in OF_SOME and OF_SOME[one.name](method)]
        return {f"Parameters of {method.name}": [*method_options(method.name), *of_some]}

    def others(self, ctx: click.Context) -> Sequence[click.Parameter]:
        """Return the options that :meth:`own` has not, but for those that the named method does not know."""
        method, own = _method_of_help(ctx), [one.name for params in self.own(ctx).values() for one in params]
        of_methods = {one.name for one in method_options() if method or not is_common(one)}

        def belongs(param: click.Parameter) -> bool:
            knows = OF_SOME.get(str(param.name))
            return param.name not in (*own, *of_methods) and (
                method is None or knows is None or knows(method)
            )

        return [param for param in self.get_params(ctx) if belongs(param)]

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write about the command and its methods, or about the one method that the line names."""
        from fairfix.methods import available

        if not (named := _method_of_help(ctx)):
            super().format_help_text(ctx, formatter)
            summaries = [(method.name, method.summary) for method in available().values()]
            write_section(formatter, "Methods", summaries)
            formatter.write("\n  'fairfix repair --method NAME --help' shows the options of a method.\n")
            return
        has_settings = any(name in SETTINGS for name in named.domains())
        more = f" For the settings of --set, run 'fairfix explain {named.name}'." * has_settings
        formatter.write_paragraph()
        with formatter.indentation():
            formatter.write_text(f"Repair with the method {named.name}.{more}")
        formatter.write_paragraph()
        with formatter.indentation():
            formatter.write_text(f"{named.summary[0].upper()}{named.summary[1:]}.")

    def format_common(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the common options; of a method, only their names, which leaves room for its own."""
        if not _method_of_help(ctx):
            super().format_common(ctx, formatter)
            return
        helps = {*ctx.help_option_names, *HELP_ALL.opts}
        names = [max(one.opts, key=len) for one in self.others(ctx) if is_common(one)]
        listed = ", ".join(name for name in names if name not in helps)
        rows = [("fairfix repair --help", f"Show the help for {listed}."), ("--help-all", str(HELP_ALL.help))]
        write_section(formatter, "Options of all methods", rows)


def _method_of_help(ctx: click.Context) -> type[Repairer] | None:
    """Return the method that the command line names next to ``--help``; UsageError where no method has this name."""
    from fairfix.tasks.repair import chosen_method

    name = ctx.meta.get("fairfix.method")
    return type(chosen_method(name, {})[0]) if name else None


ABOUT = {
    "constraint": "Fairness constraint; the choice",
    "group": "Use of the protected group in predictions; the choice",
    "solver": "Algorithm of the fit; the choice",
    "decisions": "Randomized or deterministic decisions; the effect",
    "learner": "Model to learn; the choice",
}
"""Parameter of several methods -> the start of its help, where each method has its own."""

FORMS = {"constraint": "NAME|CONDITION", "noise": "SPEC", "similar": "SPEC"}
"""Parameter of methods -> its form in the help, where it is a text with a grammar."""


@cache
def method_options(only: str = "") -> tuple[click.Option, ...]:
    """Return one option per hyper-parameter, of one method or of all; methods that share a name share the option."""
    from fairfix.methods import available
    from fairfix.tasks.repair import hyper_parameters

    methods = {only: available()[only]} if only else available()
    out = list[click.Option]()
    for name in hyper_parameters():
        users = {user: method.domains()[name] for user, method in methods.items() if name in method.domains()}
        if not users or name in SETTINGS:
            continue
        rules = list(users.values())
        defaults = {_shown(part.default) for part in users.values()}
        common = len(users) == len(available())
        metavar, text = _metavar(rules, FORMS.get(name, "TEXT")), f"{rules[0].help}."
        if text.partition(":")[0] not in rules[0].choices:  # else it begins with a value
            text = text[0].upper() + text[1:]
        if not (only or common):
            whose = f"({', '.join(users)})."
            is_shared = len({rule.help for rule in rules}) == 1
            text = (
                f"{text[:-1]} {whose}"
                if is_shared
                else f"{ABOUT.get(name, 'Setting that')} depends on the method {whose}"
            )
        if len(metavar) > LONG:
            text += f"  One of {metavar.replace('|', ', ')}." if only else ""
            metavar = "CHOICE"
        default = defaults.pop() if len(defaults) == 1 else "by method"
        out.append(
            Once(
                ["--" + name.replace("_", "-")],
                metavar=metavar,
                common=common,
                envvar="FAIRFIX_" + name.upper(),
                help=as_options(text) + (f"  [default: {default}]" if default else ""),
            )
        )
    return tuple(out)


def settings_of(texts: Sequence[str], method: str) -> dict[str, str]:
    """Return the settings of a method that ``--set NAME=VALUE`` gives, by name.

    Raises
    ------
    UsageError
        A text is no ``NAME=VALUE``, a name is given twice, or the method has no such setting.
    """
    from fairfix.methods import available

    out: dict[str, str] = {}
    own = (
        [name for name in available()[method].domains() if name in SETTINGS] if method in available() else []
    )
    for text in texts:
        name, equals, value = text.partition("=")
        name = name.strip().replace("-", "_")
        if not equals:
            raise UsageError(f"--set {text}: write NAME=VALUE, such as --set {(*own, name)[0]}=VALUE")
        if name in out:
            raise UsageError(f"--set {name}: given twice, as {out[name]!r} and {value!r}; give it once")
        if own and name not in own:
            typed = _as_learner(name, value, method)
            hint = f"; type {typed}" if typed else did_you_mean(name, own)
            hint = hint or f"; its settings are {', '.join(own)}"
            raise UsageError(f"--set {name}: not a setting of {method}{hint}")
        out[name] = value
    return out


def _as_learner(name: str, value: str, only: str = "") -> str:
    """Return the option that sets a key of a learner, of one method or of any; empty where none has the key."""
    from fairfix.methods import available

    for method in [available()[only]] if only else available().values():
        rule: Any = method.domains().get("learner")
        for learner, form in rule.forms.items() if rule else ():
            if name in form.keys:
                return f"--learner '{learner}({name}={value})'"
    return ""


def completed_options() -> list[click.Option]:
    """Return the options of the methods for the completion of the shell, which has no time to import them."""
    return [
        click.Option([f"--{name}"], type=click.Choice(choices) if choices else None)
        for name, choices in completion()["options"].items()
    ]


def _shown(default: object) -> str:
    """Return a default as a person writes it."""
    return f"{default:g}" if isinstance(default, float) else str(default)


def _metavar(rules: Sequence[Domain], text: str) -> str:
    """Return how a hyper-parameter is written in the help, for all methods that have it."""
    words = [
        word for rule in rules for word in rule.choices or (*rule.words, text if rule.text else "NUMBER")
    ]
    one = "|".join(dict.fromkeys(words))
    return f"{one}[,...]" if any(rule.selectable for rule in rules) else one


def _apply_method_table(ctx: click.Context) -> None:
    """Fill in what the configuration says of the chosen method, where neither flag nor environment speaks."""
    from fairfix.methods import available

    name = ctx.params.get("method") or ""
    params = {str(param.name): param for param in ctx.command.get_params(ctx)}
    settings: dict[str, str] = {}
    for key, text in ctx.meta.get("fairfix.methods", {}).get(name, {}).items():
        if key in SETTINGS:
            settings[key] = text
            continue
        if ctx.get_parameter_source(key) in (None, ParameterSource.DEFAULT):
            ctx.params[key] = params[key].process_value(ctx, text)
            ctx.set_parameter_source(key, ParameterSource.DEFAULT_MAP)
    chosen = available().get(name)
    settings |= settings_of(ctx.params["set_"], name)
    ctx.params |= {**settings, "set_": tuple(f"{key}={value}" for key, value in settings.items())}
    for name, spec in chosen.domains().items() if chosen else ():
        if name not in RepairRequest.__dataclass_fields__ and ctx.params.get(name) is None:
            ctx.params[name] = str(spec.default)


def _is_given(ctx: click.Context, name: str, constraint: str | None) -> bool:
    """Tell whether something says the slack; a limit on the command line has precedence over the configuration."""
    from fairfix.auditing.grammar import read

    sources = [ctx.get_parameter_source(one) for one in (name, "constraint")]
    if sources[0] is ParameterSource.DEFAULT_MAP and sources[1] is not ParameterSource.DEFAULT_MAP:
        return not any(one.operator for one in read(constraint or ""))
    return sources[0] not in (None, ParameterSource.DEFAULT)


@click.command("repair", cls=RepairCommand)
@options_of(RepairRequest, several=True)
@option(
    "--set",
    "set_",
    multiple=True,
    metavar="NAME=VALUE",
    help="Setting of the method's solver; repeatable.  'fairfix explain METHOD' lists them.",
)
@option(
    "--output",
    "-o",
    type=click.Path(),
    common=True,
    default="repaired.fairfix",
    help="File to write the repaired predictor to.",
)
@undecided_option
@output_options()
@run_options
@click.pass_context
def command(ctx: click.Context, /, **_: Any) -> int:
    """Fit a repaired predictor and evaluate it on held-out rows.

    \b
    fairfix repair loans.parquet --method ramp --protected race --id applicant_id
    fairfix repair loans.parquet --method ramp --protected race,sex --slack 0.02
    fairfix repair loans.parquet --method robust --protected race --noise n.csv
    fairfix repair a.counts --method ramp --holdout b.counts

    The repair is one file, which 'fairfix predict' applies to new rows. With several protected columns, it aims at
    parity between their intersections. Checks apply to the repaired decisions on held-out rows.
    """
    from fairfix.report import format_of

    _apply_method_table(ctx)
    settle(ctx)
    require_unsuppressed(ctx)
    given = dict(ctx.params)
    if format_of(given["output"]):
        raise click.UsageError(f"-o {given['output']}: names the repaired predictor, not a report", ctx)
    check_outputs(given)
    from fairfix.tasks.repair import hyper_parameters, run_repair

    parameters = {name: given[name] for name in hyper_parameters() if name in given}
    if not _is_given(ctx, "slack", parameters.get("constraint")):
        parameters.pop("slack")
    if ":" in (parameters.get("learner") or ""):  # a file that was found may have said it
        raise UsageError(
            f"`learner={parameters['learner']}` would run the code that it names, which the command line never does; "
            "use a learner by its name, or call fairfix.repair(..., learner=...) in Python"
        )
    with publishing():
        with working(given, f"repairing by {given['method']}"):
            request = request_of(ctx, RepairRequest, parameters=parameters, output=given["output"])
            result = run_repair(request)
        content = located(result.content, ctx)
        printed = write_reports(content, given, result.repaired.save)
    talk(f"wrote {given['output']}")
    print_report(content, given, printed)
    return result.exit_status(given["undecided"])
