"""``fairfix predict``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from fairfix.cli.help import SectionedCommand
from fairfix.cli.options import (
    dry_run_option,
    option,
    options_of,
    request_of,
    run_options,
    settle,
    talk,
    verbose_option,
)
from fairfix.cli.outputs import check_outputs
from fairfix.cli.progress import working
from fairfix.errors import UsageError
from fairfix.tasks.request import PredictRequest


@click.command("predict", cls=SectionedCommand)
@options_of(PredictRequest)
@option(
    "--output",
    "-o",
    type=click.Path(),
    required=True,
    help="Parquet, CSV or Arrow file to write: the rows, with the predictions. A folder gets a file for each file of "
    "data.",
)
@option(
    "--cluster",
    metavar="ADDRESS",
    help="Let the workers of a Dask cluster write the files of a folder; local:4 starts 4 processes here.",
)
@dry_run_option
@verbose_option
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

    \b
    fairfix predict repaired.fairfix 'parts/*.parquet' -o decided/

    writes a file for each file, as if each were data of its own.
    """
    settle(ctx)
    output, request = given["output"], request_of(ctx, PredictRequest)
    if output.endswith("/") or Path(output).is_dir():
        return _many(request, given)
    if given["cluster"] is not None:
        raise UsageError(f"`cluster` writes a file for each file of data: let `output={output}` be a folder")
    check_outputs(given)
    from fairfix.data.files import atomic_output, table_writer
    from fairfix.tasks.predict import predictions_of

    predictions, rows = predictions_of(request), 0
    with (
        atomic_output(output) as file,
        working(given, "rows written", predictions.rows) as done,
        table_writer(file, output, predictions.schema) as write,
    ):
        for batch in predictions.batches:
            write(batch)
            rows += batch.num_rows
            done(batch.num_rows)
    talk(f"wrote {rows:,} rows to {output}")
    return 0


def _many(request: PredictRequest, given: Mapping[str, Any]) -> int:
    """Write a file for each file of the data."""
    from fairfix.tasks.predict import predict_files

    files = rows = 0
    with working(given, "files written") as done:
        for _, written in predict_files(request, given["output"], given["cluster"]):
            files, rows = files + 1, rows + written
            done(1)
    talk(f"wrote {rows:,} rows to {files:,} file{'s' * (files != 1)} in {given['output']}")
    return 0
