"""``fairfix predict``."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import click

from fairfix.cli.help import SectionedCommand
from fairfix.cli.options import option, options_of, request_of, run_options, settle, talk, verbose_option
from fairfix.cli.outputs import check_outputs
from fairfix.cli.progress import working
from fairfix.data.urls import STANDARD, close_connections, is_database, is_folder, shown_argument
from fairfix.errors import FairfixError, UsageError
from fairfix.tasks.request import PredictRequest

if TYPE_CHECKING:
    from fairfix.data.files import Write
    from fairfix.tasks.predict import Predictions


@click.command("predict", cls=SectionedCommand)
@options_of(PredictRequest)
@option(
    "--output",
    "-o",
    type=click.Path(),
    common=True,
    help="Parquet, CSV or Arrow file for the rows and their predictions. A folder gets one file for each file of "
    "data; duckdb:///FILE#TABLE and postgresql://HOST/DATABASE#TABLE are new tables.  [default: -, CSV to standard "
    "output]",
)
@option(
    "--cluster",
    metavar="ADDRESS",
    help="Address of a Dask scheduler whose workers write the files of a folder; local:4 starts 4 processes on this "
    "machine.",
)
@verbose_option
@run_options
@click.pass_context
def command(ctx: click.Context, /, **given: Any) -> int:
    """Apply a repaired predictor to new rows.

    \b
    fairfix predict repaired.fairfix new.parquet -o decided.parquet

    Rows keep their order and get three columns: p_positive, the probability of a positive decision; decision, 0 or 1;
    and randomized, whether the decision was drawn at random. Methods that repair values write prediction instead of
    p_positive. For regression, they write no decision. A random draw depends only on the row ID, not on the other rows
    or their order. Without an ID, identical rows get separate draws, by their order.

    \b
    fairfix predict repaired.fairfix 'parts/*.parquet' -o decided/

    writes one file for each input file, as if each were separate data.

    \b
    fairfix predict repaired.fairfix duckdb:///b.db#new -o duckdb:///b.db#decided

    creates a new table. If that fails, no table remains. An existing table is never changed.

    \b
    fairfix predict repaired.fairfix new.csv | head

    writes CSV to standard output. Messages go to standard error.
    """
    settle(ctx)
    request, output = request_of(ctx, PredictRequest), given["output"]
    if output == STANDARD:
        output = given["output"] = None
    elif output is not None and "#" in output:
        from fairfix.data.opening import database_url, with_table

        output = given["output"] = database_url(*with_table(output)) or output
    if output is not None and (is_folder(output) or Path(output).is_dir()):
        return _many(request, given)
    if given["cluster"] is not None:
        raise UsageError("`cluster` writes a file for each file of data: name a folder with `output`")
    if output is not None and is_database(output):  # what is there already is said before the work is done
        from fairfix.data.new_table import check_new_table

        check_new_table(output)
    else:
        check_outputs(given)
    from fairfix.tasks.predict import predictions_of

    predictions, rows = predictions_of(request), 0
    with (
        working(given, "rows written", predictions.rows) as (done, _),
        _appending(output, predictions) as write,
    ):
        for batch in predictions.batches:
            write(batch)
            rows += batch.num_rows
            done(batch.num_rows)
    if output is not None:
        talk(f"wrote {rows:,} rows to {'a new table of ' * is_database(output)}{shown_argument(output)}")
    return 0


@contextmanager
def _appending(output: str | None, predictions: Predictions) -> Iterator[Write]:
    """Yield what appends batches to a file or a new table, which is there at the end, or not at all.

    Without an output, it appends CSV to standard output.
    """
    if output is not None and is_database(output):
        from fairfix.data.new_table import new_table

        with new_table(output, predictions.schema, close_connections) as write:
            yield write
        return
    from fairfix.data.files import atomic_output, table_writer

    with ExitStack() as stack:
        file = stack.enter_context(_printed() if output is None else atomic_output(output))
        yield stack.enter_context(table_writer(file, output or "stdout.csv", predictions.schema))


@contextmanager
def _printed() -> Iterator[IO[bytes]]:
    """Yield standard output, also where a program has replaced it by one that takes texts alone."""
    if (bytes_ := getattr(sys.stdout, "buffer", None)) is not None:
        yield bytes_
        return
    with io.BytesIO() as file:
        yield file
        sys.stdout.write(file.getvalue().decode("utf-8"))


def _many(request: PredictRequest, given: Mapping[str, Any]) -> int:
    """Write a file for each file of the data."""
    from fairfix.tasks.predict import predict_files

    files = rows = 0
    try:
        with working(given, "files written") as (done, _):
            for _, written in predict_files(request, given["output"], given["cluster"]):
                files, rows = files + 1, rows + written
                done(1)
    except FairfixError as error:
        if files:
            error.add_note(f"files completed before the error: {files:,}")
        raise
    talk(f"wrote {rows:,} rows to {files:,} file{'s' * (files != 1)} in {given['output']}")
    return 0
