"""``fairfix merge``: adds saved counts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from fairfix.cli.options import check_files, option, talk
from fairfix.errors import UsageError


@click.command("merge")
@click.argument("counts", nargs=-1, required=True, type=click.Path())
@option("--output", "-o", required=True, metavar="FILE", type=click.Path(), help="Where to write the sum.")
@option("--name", metavar="TEXT", help="What reports call the data.  [default: the names of its files]")
@option("--quiet", "-q", is_flag=True, help="No talk on stderr, only errors.")
@option("--debug", is_flag=True, help="Show the traceback of an error.")
def command(counts: tuple[str, ...], **given: Any) -> int:
    """Add up saved counts, for one audit of many files.

    COUNTS are files written by 'fairfix audit --counts-out', or by this command. They must have been taken with the
    same columns, threshold and policies. The report from the sum is that of the files together, in the order given.

    \b
    fairfix audit part-1.parquet --protected race --counts-out part-1.counts
    fairfix audit part-2.parquet --protected race --counts-out part-2.counts
    fairfix merge part-1.counts part-2.counts -o all.counts
    fairfix audit --from-counts all.counts
    """
    from fairfix.auditing.countfile import CountFile, merged, repeated

    check_files([(f"--output {given['output']}", given["output"])], {})
    seen: dict[Path, str] = {}
    for path in counts:
        if (where := Path(path).resolve()) in seen:
            raise UsageError(f"{path} is named twice; its rows would be counted twice")
        seen[where] = path
    files = [(path, CountFile.load(path)) for path in counts]
    if twins := repeated(files):
        click.echo(
            f"fairfix: warning: {' and '.join(twins)} hold the very same counts; were the same rows counted twice?",
            err=True,
        )
    total = merged(files, given["name"])
    total.save(given["output"])
    talk(
        given,
        f"wrote {given['output']}: {total.read:,} rows read, {total.used:,} counted, from {len(files)} files",
    )
    return 0
