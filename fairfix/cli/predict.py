"""``fairfix predict``."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from fairfix.cli.options import check_files, option, run_options, show_settings, talk
from fairfix.cli.progress import working
from fairfix.errors import ModelError, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fairfix.data.files import Source
    from fairfix.models.repaired import Repaired


@click.command("predict")
@click.argument("artifact", type=click.Path())
@click.argument("data", envvar="FAIRFIX_DATA")
@option(
    "--output",
    "-o",
    type=click.Path(),
    required=True,
    help="Parquet or CSV file to write: the rows, with the predictions.",
)
@option(
    "--model",
    type=click.Path(),
    metavar="FILE",
    help="The model file that scored the rows of the repair; same hash.",
)
@option(
    "--trust-model",
    metavar="sha256:HASH",
    help="Load a pickle-family model file, which runs its code, if it has this hash.",
)
@option(
    "--unseen-group",
    type=click.Choice(["error", "base", "abstain"]),
    help="Rows of a group the fit has not seen.  [default: as the artifact says]",
)
@option(
    "--missing", type=click.Choice(["error", "abstain"]), default="error", help="Rows whose score is missing."
)
@option(
    "--duplicate-ids",
    type=click.Choice(["error", "share"]),
    default="error",
    help="Rows with one id: an error, or they share one draw.",
)
@run_options
@click.pass_context
def command(ctx: click.Context, /, **given: Any) -> int:
    """Apply a repaired predictor to new rows.

    The rows come out in order with three columns more: p_positive, the exact probability of a positive decision;
    decision, 0 or 1; randomized, whether chance had a part in it. A method that repairs values writes prediction
    for p_positive, and for a regression no decision. What is drawn hangs on the row's identity alone, not on the batch
    or its order; without an id, equal rows are told apart by their order.

    \b
    fairfix predict repaired.fairfix new.parquet -o decided.parquet
    """
    if given["show_settings"]:
        show_settings(ctx)
    check_files([(f"--output {given['output']}", given["output"])], given)
    from fairfix.data.files import TableWriter, atomic_output, open_source
    from fairfix.models.repaired import Repaired

    repaired = Repaired.load(given["artifact"])
    if given["unseen_group"]:
        repaired = replace(repaired, unseen_group=given["unseen_group"])
    source = _scored(open_source(given["data"]), repaired, given)
    if repaired.predictor.needs_protected:
        names = ", ".join(repaired.reading.columns.protected)
        what = "decisions" if repaired.predictor.gives == "decision" else "values"
        talk(given, f"{what} use the protected attribute ({names})")
    rows = 0
    with atomic_output(given["output"]) as file, working(given, "rows written", source.rows) as done:
        batches = repaired.predict_source(
            source, missing_score=given["missing"], duplicate_ids=given["duplicate_ids"] == "share"
        )
        with TableWriter(file, given["output"], repaired.output_schema(source)) as writer:
            for batch in batches:
                writer.write(batch)
                rows += batch.num_rows
                done(batch.num_rows)
    talk(given, f"wrote {rows:,} rows to {given['output']}")
    return 0


def _scored(source: Source, repaired: Repaired, given: Mapping[str, Any]) -> Source:
    """Return the source with the scores of the model file that the artifact was fitted on."""
    if repaired.base["kind"] != "file":
        if given["model"]:
            where = (
                "features" if repaired.base["kind"] == "features" else f"the column {repaired.base['name']!r}"
            )
            raise UsageError(f"this artifact takes its scores from {where}; leave out --model")
        return source
    if not given["model"]:
        raise UsageError(
            f"this artifact needs the scores of {repaired.base['name']}; give that file with --model"
        )
    from fairfix.models.scoring import Averaged, ScoredSource
    from fairfix.models.user_file import file_hash, load_model

    if file_hash(given["model"]) != repaired.base["sha256"]:
        raise ModelError(
            f"{given['model']} is not the model this artifact was fitted on ({repaired.base['sha256']})"
        )
    model = load_model(
        given["model"],
        trust=given["trust_model"],
        features=repaired.base["features"],
        positive_label=repaired.base.get("positive_label"),
    )
    average = repaired.base.get("average")
    return ScoredSource(source, model if average is None else Averaged.from_state(model, average))
