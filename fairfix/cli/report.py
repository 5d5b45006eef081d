"""``fairfix report``: renders a saved JSON result again."""

from __future__ import annotations

from typing import Any

import click

from fairfix.cli.help import SectionedCommand
from fairfix.cli.options import output_options
from fairfix.cli.outputs import check_outputs, print_report, publishing, render, write_reports
from fairfix.errors import MALFORMED, DataError


@click.command("report", cls=SectionedCommand)
@click.argument("result", type=click.Path())
@output_options()
def command(result: str, **given: Any) -> int:
    """Convert a saved result to another format.

    RESULT is a JSON file written by 'fairfix audit', 'fairfix repair' or 'fairfix compare'.

    \b
    fairfix report audit.json --format markdown
    """
    from fairfix.auditing.saved_results import check_saved
    from fairfix.data.codec import LONGEST_FAULT, shortened

    check_outputs({**given, "result": result})
    content = _loaded(result)
    try:
        check_saved(content)
        render("text", content, detail=False, terminal=False)  # whatever is asked for: is all there?
        with publishing():
            printed = write_reports(content, given)
    except MALFORMED as error:
        fault = str(error) if type(error) is ValueError else repr(error)
        raise DataError(
            f"{result}: the result is incomplete or was changed: {shortened(fault, LONGEST_FAULT)}; make it again, or "
            "use an unchanged copy"
        ) from error
    print_report(content, given, printed)
    return 0


def _loaded(path: str) -> dict[str, Any]:
    from fairfix.data.files import read_json
    from fairfix.schema import RESULTS, schema_id

    supported = [schema_id(name) for name in RESULTS if name != "unrun"]
    content = read_json(path)
    schema = content.get("schema") if isinstance(content, dict) else None
    if schema not in supported:
        raise DataError(
            f"{path} is not a result of fairfix (schema {schema!r}); supported schemas are {', '.join(supported)}; "
            "make one: fairfix audit DATA --protected COLUMN --format json > audit.json"
        )
    return dict(content)
