"""``fairfix predict``."""

from __future__ import annotations

from typing import Any

import click

from fairfix.cli.help import SectionedCommand
from fairfix.cli.options import (
    dry_run_option,
    option,
    options_of,
    request_of,
    run_options,
    show_settings,
    talk,
)
from fairfix.cli.outputs import check_outputs
from fairfix.cli.progress import working
from fairfix.tasks.request import PredictRequest


@click.command("predict", cls=SectionedCommand)
@options_of(PredictRequest)
@option(
    "--output",
    "-o",
    type=click.Path(),
    required=True,
    help="Parquet, CSV or Arrow file to write: the rows, with the predictions.",
)
@dry_run_option
@run_options
@click.pass_context
def command(ctx: click.Context, /, **given: Any) -> int:
    """Apply a repaired predictor to new rows.

    \b
    fairfix predict repaired.fairfix new.parquet -o decided.parquet

    The rows come out in order with three columns more: p_positive, the exact probability of a positive decision;
    decision, 0 or 1; randomized, whether chance had a part in it. A method that repairs values writes prediction
    for p_positive, and for a regression no decision. What is drawn hangs on the row's identity alone, not on the batch
    or its order; without an id, equal rows are told apart by their order.
    """
    show_settings(ctx)
    check_outputs(given)
    from fairfix.data.files import atomic_output, table_writer
    from fairfix.tasks.predict import predictions_of

    predictions, rows = predictions_of(request_of(ctx, PredictRequest)), 0
    with (
        atomic_output(given["output"]) as file,
        working(given, "rows written", predictions.rows) as done,
        table_writer(file, given["output"], predictions.schema) as write,
    ):
        for batch in predictions.batches:
            write(batch)
            rows += batch.num_rows
            done(batch.num_rows)
    talk(f"wrote {rows:,} rows to {given['output']}")
    return 0
