"""``fairfix merge``: adds saved counts."""

from __future__ import annotations

from typing import Any

import click

from fairfix.cli.help import SectionedCommand
from fairfix.cli.options import debug_option, option, quiet_option, talk
from fairfix.cli.outputs import check_outputs


@click.command("merge", cls=SectionedCommand)
@click.argument("counts", nargs=-1, required=True, type=click.Path())
@option("--output", "-o", required=True, metavar="FILE", type=click.Path(), help="File to write.")
@option("--name", metavar="TEXT", help="Name of the data in reports.  [default: the names of its files]")
@quiet_option
@debug_option
def command(counts: tuple[str, ...], **given: Any) -> int:
    """Add saved counts, to audit many files as one.

    COUNTS are files written by 'fairfix audit --counts-out', or by this command. They must have been taken with the
    same columns, threshold and policies. The report from the sum is that of the files together, in the order given.

    \b
    fairfix audit part-1.parquet --protected race --counts-out part-1.counts
    fairfix audit part-2.parquet --protected race --counts-out part-2.counts
    fairfix merge part-1.counts part-2.counts -o all.counts
    fairfix audit --from-counts all.counts
    """
    from fairfix.tasks.merge import merge

    check_outputs(given)
    total = merge(counts, given["name"])
    total.save(given["output"])
    talk(
        f"wrote {given['output']}: {total.read:,} rows read, {total.used:,} counted, from {len(counts)} files"
    )
    return 0
