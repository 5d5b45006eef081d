"""``fairfix compare``: every method over a range of slack, on one split."""

from __future__ import annotations

from contextlib import chdir, suppress
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click

from fairfix.cli.help import SectionedCommand
from fairfix.cli.options import (
    dry_run_option,
    option,
    options_of,
    output_options,
    request_of,
    require_unsuppressed,
    run_options,
    settle,
    talk,
)
from fairfix.cli.outputs import check_outputs, print_report, publishing, write_reports, write_results
from fairfix.cli.progress import working
from fairfix.errors import UsageError
from fairfix.tasks.request import CompareRequest


@click.command("compare", cls=SectionedCommand)
@options_of(CompareRequest)
@option(
    "--picture",
    type=click.Path(),
    metavar="FILE",
    help="Also draw the frontier as .png or .svg (needs fairfix[plot]).",
)
@output_options()
@dry_run_option
@run_options
@click.pass_context
def command(ctx: click.Context, /, **given: Any) -> int:
    """Compare repair methods over a range of allowed gaps, or two models.

    \b
    fairfix compare loans.parquet --protected race
    fairfix compare loans.parquet --protected race --methods ramp,logloss
    fairfix compare loans.parquet --protected race --slacks 0.01,0.05
    fairfix compare loans.parquet --protected race --score new --baseline old

    All repairs are fitted on the same rows and judged on the same others. Nothing is gated and no artifact is written:
    take the method and the slack you choose to 'fairfix repair'.

    With --baseline two models are compared on the same people, and nothing is fitted.
    """
    settle(ctx)
    require_unsuppressed(ctx)
    from fairfix.data.files import atomic_output
    from fairfix.report.picture import FORMATS, draw
    from fairfix.tasks.compare import plan_of, settled
    from fairfix.tasks.two_models import compare_models

    check_outputs(given, gated=False)
    picture = given["picture"]
    kind = Path(picture or "").suffix.lower().removeprefix(".")
    if picture and kind not in FORMATS:
        ends = " or ".join(f".{one}" for one in FORMATS)
        raise UsageError(f"--picture {picture}: the name must end in {ends}")
    if picture:
        _import_matplotlib()
    request = settled(request_of(ctx, CompareRequest))
    if request.baseline is not None:
        if picture:
            raise UsageError(
                "--picture shows the frontier of methods; leave it out when comparing two models"
            )
        with working(given, "comparing two models"):
            write_results(compare_models(request).content, given)
        return 0
    plan = plan_of(request)
    with working(given, "comparing", len(plan.fits)) as done:
        result = plan.run(done, done.begin)
    with publishing():
        if picture:
            with atomic_output(picture) as file:
                file.write(draw(result.content, kind))
        printed = write_reports(result.content, given)
    if picture:
        talk(f"wrote {picture}")
    print_report(result.content, given, printed)
    return 0


def _import_matplotlib() -> None:
    """Import matplotlib from an empty folder: it obeys a `matplotlibrc` of the folder in which it is imported."""
    with TemporaryDirectory() as empty, chdir(empty), suppress(ImportError):
        import_module("matplotlib")
