"""``fairfix compare``: every method over a range of slack, on one split."""

from __future__ import annotations

from typing import Any

import click

from fairfix.cli.help import SectionedCommand
from fairfix.cli.options import (
    options_of,
    output_options,
    request_of,
    require_unsuppressed,
    run_options,
    settle,
)
from fairfix.cli.outputs import check_outputs, write_results
from fairfix.cli.progress import working
from fairfix.tasks.request import CompareRequest


@click.command("compare", cls=SectionedCommand)
@options_of(CompareRequest)
@output_options()
@run_options
@click.pass_context
def command(ctx: click.Context, /, **given: Any) -> int:
    """Compare repair methods over a range of allowed gaps, or two models.

    \b
    fairfix compare loans.parquet --protected race
    fairfix compare loans.parquet --protected race --methods ramp,logloss
    fairfix compare loans.parquet --protected race --slacks 0.01,0.05
    fairfix compare loans.parquet --protected race --score new --baseline old

    All repairs are fitted on the same rows and evaluated on the same held-out rows. The command checks no limits and
    writes no artifact. Run 'fairfix repair' with the method and the slack that you choose.

    With --baseline, the command compares two models on the same people and fits nothing.
    """
    settle(ctx)
    require_unsuppressed(ctx)
    from fairfix.tasks.compare import plan_of, settled
    from fairfix.tasks.compare_models import compare_models

    check_outputs(given, gated=False)
    request, second = settled(request_of(ctx, CompareRequest))
    if second is not None:
        with working(given, "comparing two models"):
            write_results(compare_models(request, second).content, given)
        return 0
    plan = plan_of(request)
    with working(given, "comparing", len(plan.fits)) as watchers:
        result = plan.run(*watchers)
    write_results(result.content, given)
    return 0
