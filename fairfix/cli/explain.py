"""``fairfix explain``."""

from __future__ import annotations

import shutil
import sys

import click

from fairfix.cli import COMMANDS
from fairfix.cli.help import SectionedCommand, completion, two_columns
from fairfix.cli.options import format_option
from fairfix.errors import UsageError
from fairfix.report.words import as_json, as_options, harmless, plain

WIDEST = 34
"""Columns of a word above which its text begins on the next line."""


def _names(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Return the names that begin so, for the completion of the shell."""
    from fairfix.tasks.explain import code_names, names

    every = [name.replace("_", "-") if "-" in incomplete else name for name in names()]
    return [name for name in (*every, *code_names(), *completion()["methods"]) if name.startswith(incomplete)]


@click.command("explain", cls=SectionedCommand, context_settings={"ignore_unknown_options": True})
@click.argument("name", nargs=-1, shell_complete=_names)
@format_option()
def command(name: tuple[str, ...], format_: str) -> int:
    """Explain a metric, a check, a method, an option or a term.

    \b
    fairfix explain dp
    fairfix explain four-fifths rule
    fairfix explain selection_rate.ratio.to_overall
    fairfix explain 'dp.difference[race]<=0.1'
    fairfix explain ramp

    NAME is a metric, a comparison, a check, a method, an option, an exit status, the code of a message, a word of the
    glossary, or another tool's name for one of these. Without NAME, lists all of them.
    """
    from fairfix.tasks.explain import Explanation, explain, overview

    asked = " ".join(name)
    try:
        of = explain(asked) if name else None
    except UsageError:
        if asked not in COMMANDS:
            raise
        of = Explanation(asked, (("command", COMMANDS[asked]), ("help", f"fairfix {asked} --help")))
    parts = [(of.name, of.lines)] if of else overview()
    if format_ == "json":
        content = of.to_dict() if of else {as_options(title): dict(lines) for title, lines in parts}
        click.echo(as_json(as_options(content)))
        return 0
    for title, lines in parts:
        click.echo(harmless(plain(as_options(title))))
        width = shutil.get_terminal_size((110, 24)).columns if sys.stdout.isatty() else 110
        left = min(max(len(word) for word, _ in lines), WIDEST) + 4
        for line in two_columns([(word, as_options(text)) for word, text in lines], left, width):
            click.echo(harmless(plain(line)))
        if not of:
            click.echo()
    if not of:
        click.echo("Run 'fairfix explain NAME' for details.")
    elif "check" in dict(of.lines):
        click.echo("The limits of checks are examples; fairfix has no default limits.")
    return 0
