"""``fairfix init``: a first configuration file."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import Any

import click

from fairfix.cli.config import FILE_NAME, reach
from fairfix.cli.help import SectionedCommand
from fairfix.cli.options import column_names, option, quiet_option, talk
from fairfix.cli.outputs import check_outputs
from fairfix.data.urls import STANDARD, scheme_of, shown_argument
from fairfix.errors import UsageError
from fairfix.report.words import as_escape, harmless


@click.command("init", cls=SectionedCommand)
@click.argument("data", type=click.Path())
@option(
    "--protected",
    multiple=True,
    metavar="COLUMN",
    callback=column_names,
    help="Protected column; repeat it, or separate names with commas.  [default: columns with usual names]",
)
@option(
    "--label",
    metavar="COLUMN[=VALUE,...]",
    help="Observed outcome: 0/1, or name the positive values.  [default: found by name]",
)
@option("--score", metavar="COLUMN", help="Model score.  [default: found by name]")
@option("--prediction", metavar="COLUMN", help="Decisions (0/1), instead of a score or in addition to it.")
@option("--count", metavar="COLUMN", help="Column with the number of people in each row.")
@option("--output", "-o", metavar="FILE", default="fairfix.toml", type=click.Path(), help="File to write.")
@option("--force", is_flag=True, help="Overwrite an existing file.")
@quiet_option
def command(data: str, **given: Any) -> int:
    """Write a starter fairfix.toml for a data file.

    'fairfix audit' reads its settings from this file. Comments in the file describe the data and list possible
    protected columns. You decide which of them matter and which checks apply: the file sets no limit.

    \b
    fairfix init loans.parquet
    fairfix init loans.csv --protected race --label repaid=yes
    """
    from fairfix.data.files import write_content
    from fairfix.data.streams import is_stream
    from fairfix.tasks.init_config import InitRequest, first_configuration

    target = Path(given["output"])
    check_outputs({**given, "data": data})
    streamed = is_stream(given["output"])
    if target.exists() and not given["force"] and not streamed:
        raise UsageError(f"{target} exists already; --force overwrites it, --output writes another file")
    local = data != STANDARD and not scheme_of(data) and not Path(data).is_absolute()
    folder = Path() if streamed else target.parent
    named = os.path.relpath(data, folder) if local else shown_argument(data)
    held = str(folder / named) if local else named
    finds = target.resolve() == Path(FILE_NAME).resolve() and not any(reach(target, {"data": held}, "audit"))
    line = "fairfix audit" if finds else f"fairfix audit --config {shlex.quote(str(target))}"
    roles = {
        name: given[name] for name in ("protected", "label", "score", "prediction", "count") if given[name]
    }
    text = first_configuration(InitRequest(data=data, **roles, explicit=frozenset(roles)), named, line)
    write_content(target, harmless(text, as_escape))
    if not streamed:
        talk(f"wrote {target}: read it, correct it, then run '{line}'")
    return 0
