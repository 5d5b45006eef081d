"""``fairfix count``: rows as additive counts, and sums of counts."""

from __future__ import annotations

from typing import Any

import click

from fairfix.cli.help import SectionedCommand
from fairfix.cli.options import option, options_of, request_of, run_options, settle, talk
from fairfix.cli.outputs import check_outputs
from fairfix.cli.progress import working
from fairfix.tasks.request import CountRequest


@click.command("count", cls=SectionedCommand)
@options_of(CountRequest, several=True)
@option(
    "--output", "-o", required=True, metavar="FILE", type=click.Path(), help="File to write.", common=True
)
@run_options
@click.pass_context
def command(ctx: click.Context, /, **given: Any) -> int:
    """Save counts of rows, to audit or repair without the rows themselves.

    \b
    fairfix count north.parquet --protected race -o north.counts
    fairfix count south.parquet --protected race -o south.counts
    fairfix audit north.counts south.counts
    fairfix count north.counts south.counts -o all.counts

    The file is small and contains no rows. 'fairfix audit' and 'fairfix repair' accept it in place of rows. They add
    the counts of several files, which must have the same columns, threshold and policies.
    """
    settle(ctx)
    check_outputs(given)
    from fairfix.tasks.count import run_count

    with working(given, "counting"):
        request = request_of(ctx, CountRequest)
        counts = run_count(request)
        counts.save(given["output"])
    hidden = request.suppress_below or counts.private is not None
    read = "" if hidden else f"{counts.read:,} rows read, "
    talk(f"wrote {given['output']}: {read}{counts.used:,} counted")
    if counts.privacy:
        talk(f"private: {counts.privacy}")
    return 0
