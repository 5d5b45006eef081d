"""``fairfix audit``."""

from __future__ import annotations

from typing import Any

import click

from fairfix.cli.help import SectionedCommand
from fairfix.cli.options import (
    dry_run_option,
    options_of,
    output_options,
    request_of,
    run_options,
    settle,
    talk,
    undecided_option,
    without_data,
)
from fairfix.cli.outputs import check_outputs, locate, print_report, publishing, write_reports
from fairfix.cli.progress import working
from fairfix.errors import DataError
from fairfix.tasks.request import AuditRequest


@click.command("audit", cls=SectionedCommand)
@options_of(AuditRequest, data_required=False)
@undecided_option
@output_options()
@dry_run_option
@run_options
@click.pass_context
def command(ctx: click.Context, /, **given: Any) -> int:
    """Measure how a model treats groups, and check it against limits.

    \b
    fairfix audit loans.parquet --protected race
    fairfix audit loans.parquet --protected race,sex --intersect
    fairfix audit loans.parquet --protected race --check 'dp.difference<=0.1'
    fairfix audit --from-counts all.counts --out html=audit.html

    DATA is a file with a table, compressed or not, a folder, a quoted pattern, a URL, a database, or - for standard
    input. Put a column name that contains a comma into double quotes, inside the quotes of the shell. 'fairfix explain
    WORD' explains a check or a term.
    """
    settle(ctx)
    check_outputs(given)
    unused = without_data(ctx)
    from fairfix.tasks.audit import run_audit, save_counts

    with working(given, "auditing"):
        request = request_of(ctx, AuditRequest, **unused)
        result = run_audit(request)
    if not result.content:
        if given["out"]:
            raise DataError(result.no_report)
        talk(save_counts(result, request))
        talk(f"the counts are saved, but there is no report: {result.no_report}")
        return 0
    locate(result.content, ctx)
    with publishing():  # late: a run that ends with an error leaves no file
        saved = save_counts(result, request)
        printed = write_reports(result.content, given)
    if saved:
        talk(saved)
    print_report(result.content, given, printed)
    return result.exit_status(given["undecided"])
