"""``fairfix explain``."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Sequence

import click

from fairfix.cli.options import debug_option, option
from fairfix.report.words import as_options


def _names(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Return the names that begin so, for the completion of the shell."""
    from fairfix.tasks.explain import names

    return [name for name in names() if name.startswith(incomplete)]


@click.command("explain")
@click.argument("name", required=False, shell_complete=_names)
@option("--format", "format_", type=click.Choice(["text", "json"]), default="text", help="Format on stdout.")
@debug_option
def command(name: str | None, format_: str, debug: bool) -> int:
    """Say what a metric, a comparison or a check is.

    NAME is a metric or another name of it, a comparison, a kind or a scope of comparisons, or a whole check. Without
    it, all names are listed.

    \b
    fairfix explain dp
    fairfix explain selection_rate.ratio.to_overall
    fairfix explain 'dp.difference[race]>0.1'
    """
    from fairfix.tasks.explain import explain, overview

    if name is None:
        listed = overview()
        if format_ == "json":
            _echo_json({heading: dict(entries) for heading, entries in listed})
            return 0
        for heading, entries in listed:
            click.echo(heading)
            _echo_table([(f"  {word}", text) for word, text in entries])
            click.echo()
        click.echo("fairfix explain NAME says more of each.")
        return 0
    found = explain(name)
    if format_ == "json":
        _echo_json(found.to_dict())
        return 0
    click.echo(found.name)
    _echo_table([(f"  {word}", text) for word, text in found.lines])
    if any(word == "check" for word, _ in found.lines):
        click.echo("The limits of checks are examples; fairfix has none of its own.")
    return 0


def _echo_json(content: object) -> None:
    click.echo(json.dumps(as_options(content), indent=2, ensure_ascii=False))


def _echo_table(rows: Sequence[tuple[str, str]]) -> None:
    """Print words and texts in two columns, to the width of the terminal where there is one."""
    import textwrap

    width = shutil.get_terminal_size((110, 24)).columns if sys.stdout.isatty() else 110
    left = max(len(word) for word, _ in rows) + 2
    last = ""
    for word, text in rows:
        lines = textwrap.wrap(as_options(text), max(width - left, 30), break_long_words=False) or [""]
        for line in lines:
            click.echo(f"{'' if word == last else word:{left}}{line}")
            last = word
