"""``fairfix init``: a first configuration file."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import Any

import click

from fairfix.cli.config import FILE_NAME, reach
from fairfix.cli.options import column_names, debug_option, option, quiet_option, talk
from fairfix.cli.outputs import check_outputs
from fairfix.data.urls import scheme_of, shown_argument
from fairfix.errors import UsageError
from fairfix.report.words import as_escape, harmless


@click.command("init")
@click.argument("data", type=click.Path())
@option(
    "--protected",
    multiple=True,
    metavar="COLUMN",
    callback=column_names,
    help="Column whose groups are compared; several by commas or repeated.  [default: those with usual names]",
)
@option("--label", metavar="COLUMN", help="Observed outcome.  [default: label, y, y_true or target]")
@option(
    "--score",
    metavar="COLUMN",
    help="The model's score.  [default: score, y_score, proba, prediction or y_pred]",
)
@option("--prediction", metavar="COLUMN", help="Hard decisions, 0/1, instead of or beside a score.")
@option("--count", metavar="COLUMN", help="Number of people that a row is for, in a table of frequencies.")
@option("--positive-label", metavar="VALUE", help="The positive value of labels that are not 0/1.")
@option(
    "--output", "-o", metavar="FILE", default="fairfix.toml", type=click.Path(), help="Where to write it."
)
@option("--force", is_flag=True, help="Overwrite the file if it is there.")
@quiet_option
@debug_option
def command(data: str, **given: Any) -> int:
    """Write a first fairfix.toml from a data file.

    It says what was found in the data, in comments, and 'fairfix audit' runs with it. Candidates for protected
    columns are listed; which ones matter, and which limits hold, is for you to say: no limit is written.

    \b
    fairfix init loans.parquet
    fairfix init loans.csv --protected race --label repaid --positive-label yes
    """
    from fairfix.data.files import open_source, write_text
    from fairfix.data.people import PeopleSource
    from fairfix.data.reading import Columns
    from fairfix.tasks.starter import first_configuration

    target = Path(given["output"])
    check_outputs({**given, "data": data})
    if target.exists() and not given["force"]:
        raise UsageError(f"{target} is there already; --force overwrites it, --output writes another file")
    roles = {name: given[name] for name in ("label", "score", "prediction", "count")}
    columns, source = Columns(given["protected"], **roles), open_source(data)
    if given["count"]:
        source = PeopleSource(source, given["count"])
    local = not scheme_of(data) and not Path(data).is_absolute()
    named = os.path.relpath(data, target.parent) if local else shown_argument(data)
    held = str(target.parent / named) if local else named
    finds = target.resolve() == Path(FILE_NAME).resolve() and not any(reach(target, {"data": held}, "audit"))
    line = "fairfix audit" if finds else f"fairfix audit --config {shlex.quote(str(target))}"
    text = first_configuration(
        source, named, columns, positive_label=given["positive_label"], line=line, typed=data
    )
    write_text(target, harmless(text, as_escape))
    talk(f"wrote {target}: read it, correct it, then run '{line}'")
    return 0
