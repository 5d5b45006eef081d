"""``fairfix repair``: the options of every method come from its fields."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from fairfix.cli.options import (
    option,
    options_of,
    output_options,
    request_of,
    run_options,
    show_settings,
    undecided_option,
)
from fairfix.cli.outputs import check_outputs, locate, write_results
from fairfix.cli.progress import working
from fairfix.report.words import as_options
from fairfix.tasks.request import RepairRequest

if TYPE_CHECKING:
    from fairfix.methods.base import Rule


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
    from fairfix.tasks.repair import hyper_parameters

    methods, out = available(), []
    for name, text in hyper_parameters().items():
        users = {
            user: part
            for user, method in methods.items()
            for part in method.parameter_fields()
            if part.name == name
        }
        default = _default({user: str(part.default) for user, part in users.items()})
        out.append(
            click.Option(
                ["--" + name.replace("_", "-")],
                metavar=_metavar([part.metadata["rule"] for part in users.values()]),
                envvar="FAIRFIX_" + name.upper(),
                help=f"{as_options(text)}." + (f"  [default: {default}]" if default else ""),
            )
        )
    return out


def _default(defaults: Mapping[str, str]) -> str:
    """Return the default of a hyper-parameter, by method where methods differ."""
    if len(set(defaults.values())) == 1:
        return next(iter(defaults.values()))
    return ", ".join(f"{value} for {name}" for name, value in defaults.items())


def _metavar(rules: Sequence[Rule]) -> str:
    """Return how a hyper-parameter is written in the help, for all methods that have it."""
    words = [
        word for rule in rules for word in rule.choices or (*rule.words, "TEXT" if rule.text else "NUMBER")
    ]
    one = "|".join(dict.fromkeys(words))
    return f"{one}[,...]" if any(rule.selectable for rule in rules) else one


def _apply_method_table(ctx: click.Context) -> None:
    """Fill in what the configuration says of the chosen method, where neither flag nor environment speaks."""
    from fairfix.methods import available

    name = ctx.params.get("method") or ""
    for key, value in ctx.meta.get("fairfix.methods", {}).get(name, {}).items():
        if ctx.get_parameter_source(key) in (None, ParameterSource.DEFAULT):
            ctx.params[key] = ",".join(map(str, value)) if isinstance(value, list) else value
            ctx.set_parameter_source(key, ParameterSource.DEFAULT_MAP)
    chosen = available().get(name)
    for part in chosen.parameter_fields() if chosen else ():
        if ctx.params.get(part.name) is None:
            ctx.params[part.name] = str(part.default)


@click.command("repair", cls=RepairCommand)
@options_of(RepairRequest)
@option(
    "--output",
    "-o",
    type=click.Path(),
    default="repaired.fairfix",
    help="Where to write the repaired predictor.",
)
@undecided_option
@output_options()
@run_options
@click.pass_context
def command(ctx: click.Context, /, **_: Any) -> int:
    """Fit a repaired predictor and prove it on held-out rows.

    Writes one file that 'fairfix predict' applies to new rows. Several protected columns are repaired together:
    parity among their cells. Checks are about the repaired model, on held-out rows.

    \b
    fairfix repair loans.parquet --method ramp --protected race --id applicant_id
    fairfix repair loans.parquet --method ramp --protected race,sex --slack 0.02 --gamma 0.02,0.05,0.1
    """
    _apply_method_table(ctx)
    show_settings(ctx)
    given = dict(ctx.params)
    check_outputs(given)
    from fairfix.tasks.repair import hyper_parameters, run_repair

    parameters = {name: given[name] for name in hyper_parameters() if name in given}
    with working(given, f"repairing by {given['method']}"):
        request = request_of(ctx, RepairRequest, parameters=parameters, output=given["output"])
        result = run_repair(request)
    locate(result.content, ctx)
    write_results(result.content, given)
    return result.exit_status(given["undecided"])
