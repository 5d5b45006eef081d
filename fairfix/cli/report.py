"""``fairfix report``: renders a saved JSON result again, or the trend of several."""

from __future__ import annotations

from typing import Any

import click

from fairfix.cli.help import SectionedCommand
from fairfix.cli.options import output_options
from fairfix.cli.outputs import check_outputs, write_results


@click.command("report", cls=SectionedCommand)
@click.argument("result", type=click.Path(), nargs=-1, required=True)
@output_options(logs=False)
def command(result: tuple[str, ...], **given: Any) -> int:
    """Convert a saved result to another format, or show the trend of several audits.

    RESULT is a JSON file written by 'fairfix audit', 'fairfix repair' or 'fairfix compare'. Several audits of the same
    thing become one report of their numbers over time.

    \b
    fairfix report audit.json --format markdown
    fairfix report january.json february.json march.json
    """
    check_outputs({**given, "result": result}, gated=len(result) == 1)
    from fairfix.tasks.result import load_result

    if len(result) > 1:
        from fairfix.tasks.trends import trend_of

        write_results(trend_of(result), given)
    else:
        write_results(load_result(result[0]), given)
    return 0
