"""``fairfix version``."""

from __future__ import annotations

import click

from fairfix import __version__
from fairfix.cli.help import SectionedCommand


@click.command("version", cls=SectionedCommand)
def command() -> int:
    """Show the version of fairfix.

    \b
    fairfix version
    """
    click.echo(f"fairfix, version {__version__}")
    return 0
