"""``fairfix audit``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from fairfix.cli.help import SectionedCommand
from fairfix.cli.options import options_of, output_options, request_of, run_options, settle, undecided_option
from fairfix.cli.outputs import check_outputs, located, write_results
from fairfix.cli.progress import working
from fairfix.tasks.request import AuditRequest

if TYPE_CHECKING:
    from fairfix.tasks.audit import AuditResult
    from fairfix.tasks.slices import SlicesResult


def _run(request: AuditRequest) -> AuditResult | SlicesResult:
    """Return the audit, or the search for slices where nothing is protected."""
    if request.slices and not request.protected and request.noise_spec.membership is None:
        from fairfix.tasks.slices import run_slices

        return run_slices(request)
    from fairfix.tasks.audit import run_audit

    return run_audit(request)


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
    fairfix audit loans.parquet --slices --check 'slices.accuracy.min>=0.6'
    fairfix audit north.counts south.counts --out html=audit.html

    DATA is a table file, a folder, a quoted file pattern, a URL, a database, or - for standard input. It may also be
    one or more files of 'fairfix count'; their counts are added. If a column name contains a comma, put the name into
    double quotes, and the whole value into single quotes: '"race, self",sex'. 'fairfix explain WORD' explains a check
    or a term.
    """
    settle(ctx)
    check_outputs(given)
    with working(given, "auditing"):
        request = request_of(ctx, AuditRequest)
        result = _run(request)
    write_results(located(result.content, ctx), given)
    return result.exit_status(given["undecided"])
