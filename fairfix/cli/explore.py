"""``fairfix explore``: counts as an interactive page."""

from __future__ import annotations

from typing import Any

import click

from fairfix.cli.help import SectionedCommand
from fairfix.cli.options import option, options_of, request_of, run_options, settle, talk
from fairfix.cli.outputs import check_outputs
from fairfix.cli.progress import working
from fairfix.tasks.request import ExploreRequest


@click.command("explore", cls=SectionedCommand)
@options_of(ExploreRequest, several=True)
@option(
    "--output", "-o", required=True, metavar="FILE", type=click.Path(), help="File to write.", common=True
)
@run_options
@click.pass_context
def command(ctx: click.Context, /, **given: Any) -> int:
    """Write an interactive page to try thresholds, allowed gaps and costs.

    \b
    fairfix explore loans.parquet --protected race -o page.html
    fairfix explore loans.parquet --protected race,sex -o page.html
    fairfix explore north.counts south.counts -o page.html

    The page is one HTML file that works offline. At any threshold it shows the rates of every group with intervals,
    gaps, accuracy and cost. It finds the best thresholds for an allowed gap, and shows the command for each result. It
    contains counts and no rows.
    """
    settle(ctx)
    check_outputs(given)
    from fairfix.tasks.explore import run_explore

    with working(given, "counting"):
        page = run_explore(request_of(ctx, ExploreRequest))
        page.save(given["output"])
    talk(f"wrote {given['output']}")
    return 0
