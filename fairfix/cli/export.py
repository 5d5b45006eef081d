"""``fairfix export``."""

from __future__ import annotations

from typing import Any

import click

from fairfix.cli.help import SectionedCommand
from fairfix.cli.options import option, options_of, request_of, run_options, settle, talk
from fairfix.cli.outputs import check_outputs
from fairfix.errors import UsageError
from fairfix.report.words import harmless, visible
from fairfix.tasks.request import ExportRequest


@click.command("export", cls=SectionedCommand)
@options_of(ExportRequest)
@option("--output", "-o", type=click.Path(), help="File to write.  [default: print it]")
@run_options
@click.pass_context
def command(ctx: click.Context, /, **given: Any) -> int:
    """Export a repaired predictor to SQL, ONNX, Python or JSON.

    \b
    fairfix export repaired.fairfix --to sql --dialect postgresql
    fairfix export repaired.fairfix --to python -o rule.py

    The result runs without fairfix and agrees with 'fairfix predict'. SQL and ONNX return the probability. Python
    also returns the decision. JSON includes test rows with their results, to test your own implementation.
    """
    settle(ctx)
    check_outputs(given)
    from fairfix.data.files import atomic_output, write_content
    from fairfix.tasks.export import export_of

    if given["to"] == "onnx" and not given["output"]:
        raise UsageError("an ONNX model is not text; name the file with `output=FILE`")
    content, path = export_of(request_of(ctx, ExportRequest)), given["output"]
    if path is None:
        if harmless(visible(str(content))) != content:
            raise UsageError(
                "a name in it is a terminal or CI command; write it to a file with `output=FILE`"
            )
        click.echo(content, nl=False)
        return 0
    if isinstance(content, str):
        write_content(path, content)
    else:
        with atomic_output(path) as file:
            file.write(content)
    talk(f"wrote {path}")
    return 0
