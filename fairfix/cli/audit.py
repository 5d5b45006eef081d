"""``fairfix audit``."""

from __future__ import annotations

from typing import Any

import click

from fairfix.cli.help import SectionedCommand
from fairfix.cli.options import (
    options_of,
    output_options,
    request_of,
    run_options,
    settle,
    undecided_option,
)
from fairfix.cli.outputs import check_outputs, locate, write_results
from fairfix.cli.progress import working
from fairfix.tasks.request import AuditRequest


@click.command("audit", cls=SectionedCommand)
@options_of(AuditRequest, several=True)
@undecided_option
@output_options()
@run_options
@click.pass_context
def command(ctx: click.Context, /, **given: Any) -> int:
    """Measure how a model treats groups, and check it against limits.

    \b
    fairfix audit loans.parquet --protected race
    fairfix audit loans.parquet --protected race,sex --intersect
    fairfix audit loans.parquet --protected race --check 'dp.difference<=0.1'
    fairfix audit north.counts south.counts --out html=audit.html

    DATA is a table file, a folder, a quoted file pattern, a URL, a database, or - for standard input. It may also be
    one or more files of 'fairfix count'; their counts are added. If a column name contains a comma, put the name into
    double quotes, and the whole value into single quotes: '"race, self",sex'. 'fairfix explain WORD' explains a check
    or a term.
    """
    settle(ctx)
    check_outputs(given)
    from fairfix.tasks.audit import run_audit

    with working(given, "auditing"):
        request = request_of(ctx, AuditRequest)
        result = run_audit(request)
    locate(result.content, ctx)
    write_results(result.content, given)
    return result.exit_status(given["undecided"])
