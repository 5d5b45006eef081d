"""``fairfix report``: renders a saved JSON result again."""

from __future__ import annotations

from typing import Any

import click

from fairfix.cli.help import SectionedCommand
from fairfix.cli.options import output_options
from fairfix.cli.outputs import check_outputs, write_results


@click.command("report", cls=SectionedCommand)
@click.argument("result", type=click.Path())
@output_options()
def command(result: str, **given: Any) -> int:
    """Convert a saved result to another format.

    RESULT is a JSON file written by 'fairfix audit', 'fairfix repair' or 'fairfix compare'.

    \b
    fairfix report audit.json --format markdown
    """
    check_outputs({**given, "result": result})
    from fairfix.tasks.result import load_result

    write_results(load_result(result), given)
    return 0
