"""``fairfix explain``."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Sequence

import click

from fairfix.cli.options import debug_option, format_option
from fairfix.report.words import as_options


def _names(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Return the names that begin so, for the completion of the shell."""
    from fairfix.tasks.explain import code_names, names

    return [name for name in (*names(), *code_names()) if name.startswith(incomplete)]


@click.command("explain")
@click.argument("name", required=False, shell_complete=_names)
@format_option()
@debug_option
def command(name: str | None, format_: str, debug: bool) -> int:
    """Say what a metric, a comparison, a check or a code is.

    NAME is a metric or another name of it, a comparison, a kind or a scope of comparisons, a whole check, or the code
    of a message, which errors have in brackets. Without it, all names but the codes are listed.

    \b
    fairfix explain dp
    fairfix explain selection_rate.ratio.to_overall
    fairfix explain 'dp.difference[race]>0.1'
    """
    from fairfix.tasks.explain import explain, overview

    of = None if name is None else explain(name)
    parts = [(of.name, of.lines)] if of else overview()
    if format_ == "json":
        content = of.to_dict() if of else {as_options(title): dict(lines) for title, lines in parts}
        click.echo(json.dumps(as_options(content), indent=2, ensure_ascii=False))
        return 0
    for title, lines in parts:
        click.echo(as_options(title))
        _echo_table(lines)
        if not of:
            click.echo()
    if not of:
        click.echo("fairfix explain NAME says more of each.")
    elif "check" in dict(of.lines):
        click.echo("The limits of checks are examples; fairfix has none of its own.")
    return 0


def _echo_table(rows: Sequence[tuple[str, str]]) -> None:
    """Print words and texts in two columns, to the width of the terminal where there is one."""
    import textwrap

    width = shutil.get_terminal_size((110, 24)).columns if sys.stdout.isatty() else 110
    left = max(len(word) for word, _ in rows) + 4
    last = ""
    for word, text in rows:
        for line in textwrap.wrap(as_options(text), max(width - left, 30), break_long_words=False) or [""]:
            click.echo(f"{'' if word == last else '  ' + word:{left}}{line}")
            last = word
