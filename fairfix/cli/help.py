"""Help of commands: the common options, or all of them under headings; at most 80 columns wide."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from fairfix.tasks.synonyms import COMMANDS, ours

SECTIONS: Mapping[str, str] = {
    "Data": "label task where weight count id duplicates missing delimiter decimal encoding header sql part",
    "Groups": "protected bands merge intersect reference strata unseen suppress_below",
    "Model": "score score_scale threshold top prediction probability model trust_model features exclude",
    "Method": "method methods slack slacks quality group unlabelled set_ holdout validation guarantee",
    "Slices": "slices slice_metric min_rows",
    "Gaps": "explain_gap",
    "Checks": "check gate_on confidence always_valid state of undecided baseline profile",
    "Noise": "noise assume",
    "Individual": "similar",
    "Output": "to dialect output format_ out log detail",
    "Run": "seed cluster threads dry_run config quiet verbose help help_all",
}
"""Heading -> options under it in their order, separated by blanks; one that is not here stands under :data:`OTHERS`."""

OTHERS = "Others"

TERM = 24
"""Columns of the options; the text of a longer one begins on the next line."""


FEW = 16
"""Options up to which ``--help`` shows all of a command."""


class SectionedCommand(click.Command):
    """A command whose ``--help`` has the common options, and ``--help-all`` all of them under headings.

    An option is common where it is declared as such: ``parameter(..., common=True)`` or ``option(..., common=True)``.
    """

    def get_help_option_names(self, ctx: click.Context) -> list[str]:
        """Return the names of ``--help``, also in a context that does not come from the command line."""
        return ["-h", "--help"]

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return the parameters, and ``--help-all``."""
        return [*super().get_params(ctx), HELP_ALL]

    def own(self, ctx: click.Context) -> Mapping[str, Sequence[click.Parameter]]:
        """Return heading -> parameters that come first and are shown by both helps; here there are none."""
        return {}

    def others(self, ctx: click.Context) -> Sequence[click.Parameter]:
        """Return the other parameters; ``--help`` shows the common ones."""
        return self.get_params(ctx)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options, each heading with the same columns."""
        sections = {**self.own(ctx), **(in_sections(self.others(ctx)) if ctx.meta.get(FULL) else {})}
        for heading, params in sections.items():
            write_options(ctx, formatter, heading, params)
        if not ctx.meta.get(FULL):
            self.format_common(ctx, formatter)

    def format_common(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the common options in the order of their declaration, or all where they are few."""
        options = [param for param in self.others(ctx) if isinstance(param, click.Option)]
        common = options if len(options) <= FEW else [param for param in options if is_common(param)]
        write_options(ctx, formatter, "Options", common)


FULL = "fairfix.help_all"


def _show_all(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    """Print the help with every option, and stop."""
    if value and not ctx.resilient_parsing:
        ctx.meta[FULL] = True
        click.echo(ctx.get_help(), color=ctx.color)
        ctx.exit()


HELP_ALL = click.Option(
    ["--help-all"],
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_show_all,
    help="Show every option and exit.",
)


def is_common(param: click.Parameter) -> bool:
    """Return whether ``--help`` shows an option."""
    return getattr(param, "common", False) or "--help" in param.opts or param is HELP_ALL


def completion() -> dict[str, Any]:
    """Return the names of the methods and of their options with choices, for the shell; `make docs` writes the file."""
    content: dict[str, Any] = json.loads(
        Path(__file__).with_name("completion.json").read_text(encoding="utf-8")
    )
    return content


def complete_methods(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Return the methods that begin like the last of a list, behind the others of the list."""
    before, comma, last = incomplete.rpartition(",")
    return [f"{before}{comma}{name}" for name in completion()["methods"] if name.startswith(last)]


def in_sections(params: Sequence[click.Parameter]) -> dict[str, list[click.Parameter]]:
    """Return heading -> those of the parameters that stand under it; a heading without any is left out."""
    by_name = {"help" if "--help" in param.opts else str(param.name): param for param in params}
    out = {
        heading: [by_name.pop(n) for n in own.split() if n in by_name] for heading, own in SECTIONS.items()
    }
    out[OTHERS] = [param for param in by_name.values() if isinstance(param, click.Option)]
    return {heading: own for heading, own in out.items() if own}


def write_options(
    ctx: click.Context, formatter: click.HelpFormatter, heading: str, params: Sequence[click.Parameter]
) -> None:
    """Write options with their helps under a heading."""
    write_section(formatter, heading, [row for param in params if (row := param.get_help_record(ctx))])


def write_section(formatter: click.HelpFormatter, heading: str, rows: Sequence[tuple[str, str]]) -> None:
    """Write words and texts in two columns under a heading."""
    if rows:
        with formatter.section(heading):
            formatter.write("".join(f"{line}\n" for line in two_columns(rows, TERM + 4, formatter.width)))


def two_columns(rows: Sequence[tuple[str, str]], left: int, width: int) -> Iterator[str]:
    """Yield lines: words, each once, and behind them, from a column on, their texts; no word of a text is broken."""
    last = ""
    for word, text in rows:
        start = "" if word == last else f"  {word}"
        if len(start) > left - 2:
            yield start
            start = ""
        wide = max(width - left, 30)
        for line in textwrap.wrap(text, wide, break_long_words=False, break_on_hyphens=False) or [""]:
            yield f"{start:{left}}{line}".rstrip()
            start = ""
        last = word


@click.command("help", cls=SectionedCommand, context_settings={"allow_interspersed_args": False})
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="[COMMAND|WORD]")
@click.pass_context
def command(ctx: click.Context, words: tuple[str, ...]) -> Any:
    """Show the help of a command, or explain a word.

    \b
    fairfix help audit
    fairfix help repair --method ramp
    fairfix help audit --help-all
    fairfix help four-fifths rule
    """
    from fairfix.cli import cli as group

    own = [ours(COMMANDS).get(word, word) for word in words[:1]]
    is_of_command = not own or own[0] in group.list_commands(ctx)
    line = [*own, *words[1:], "--help"] if is_of_command else ["explain", *words]
    return group.main(line, prog_name="fairfix", standalone_mode=False, obj=ctx.obj)
