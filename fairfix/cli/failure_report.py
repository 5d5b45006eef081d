"""Reports of a run that failed: every requested report says so, in its own format.

A report of an earlier run must not be taken for that of a run that failed. A file that is not there is written; one
that is there is replaced if it is a report of fairfix, and left alone else, since a line that cannot be read may name
anything. So is a file that the line, the environment or the configuration also name elsewhere, such as the baseline.
Before the work begins, every report that is there already says that its run did not finish, for a run that is killed;
one in a store does so only once the run has failed.
"""

from __future__ import annotations

import os
import re
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fairfix import __version__
from fairfix.data.urls import scheme_of, shown_argument
from fairfix.errors import DataError, FairfixError

if TYPE_CHECKING:
    from fairfix.schema.unrun import Unrun

REPORTING = ("audit", "repair", "compare", "report")
"""Commands that write reports."""

KILLED = 137
"""Status of a process that was killed; that of a run which has not ended."""


def append_summary(text: str) -> None:
    """Append Markdown to the job summary of GitHub, if there is one; a failure to write is a warning."""
    path = os.environ.get("GITHUB_STEP_SUMMARY")
    if not path:
        return
    from fairfix.cli.options import talk
    from fairfix.data.targets import check_links

    check_links(Path(path))
    try:
        with Path(path).open("a", encoding="utf-8") as file:
            file.write(text + "\n")
    except OSError as error:
        talk(f"the step summary cannot be written: {error.strerror}")


class RequestedReports:
    """The reports that a line asks for: as the command has checked them, or else as far as the line tells."""

    def __init__(self, arguments: Sequence[str]) -> None:
        self.command = next((one for one in arguments if not one.startswith("-")), "")
        self.line = shlex.join(["fairfix", *map(shown_argument, arguments)]) if arguments else ""
        self.configured: Mapping[str, Any] | None = None
        """Settings of the configuration, once it is read."""
        self._arguments = list(arguments)
        self._checked: tuple[str, list[tuple[str, str]]] | None = None

    def checked(self, printed: str, files: Sequence[tuple[str, str]]) -> None:
        """Learn what is printed, and (format, file) of what is yet to be written and does not harm the run.

        Existing reports are replaced by ones that say that the run did not finish. Others are not made yet: data may be
        a folder or a pattern that they would be part of.
        """
        self._checked = printed, list(files)
        there = [(name, path) for name, path in files if Path(path).exists()]
        unfinished = "the run did not finish: it was killed, or it is still running"
        _replace(there, self._problem(KILLED, "interrupted", unfinished))

    def written(self) -> None:
        """Learn that all reports are written, after which nothing else is to be printed."""
        self._checked = "text", []

    def tell(self, status: int, code: str, message: str) -> None:
        """Write to every report that is asked for, and print where a format is, that the run did not happen."""
        from fairfix.report import PRINTED, unrun

        if self.command not in REPORTING:
            return
        printed, files = self._checked or self._read()
        problem = self._problem(status, code, message)
        _replace(files, problem)
        if printed in PRINTED and printed != "text":
            with suppress(OSError):
                click.echo(unrun(printed, problem), nl=False)
        if "github" in (printed, *dict(files)):
            with suppress(FairfixError):
                append_summary(unrun("markdown", problem))

    def _problem(self, status: int, code: str, message: str) -> Unrun:
        """Return the record of a run that has no result."""
        from fairfix.report.words import as_options
        from fairfix.schema.unrun import Unrun

        fields: Any = {"command": self.command, "status": int(status), "code": code}
        return Unrun(fairfix=__version__, message=as_options(message), **fields)

    def _read(self) -> tuple[str, list[tuple[str, str]]]:
        """Return what is printed, and (format, file) of reports that nothing else names; of a line that was refused."""
        context = OUTPUTS.make_context("fairfix", list(self._arguments), obj=self, resilient_parsing=True)
        texts = [*context.args, *map(str, context.meta["others"])]
        texts += [v for k, v in os.environ.items() if k.startswith("FAIRFIX_") and k != "FAIRFIX_OUT"]
        others = {word.rpartition("/")[2] for text in texts for word in re.split(r"[\s\"'=,()\[\]]+", text)}
        outs = [text.partition("=")[::2] for text in context.params["out"]]
        times = Counter(os.path.realpath(path) for _, path in outs)

        def is_alone(path: str) -> bool:
            real = os.path.realpath(path)  # it may be a link to what the run reads
            return bool(path) and times[real] == 1 and not {Path(path).name, Path(real).name} & others

        return context.params["format"], [(name, path) for name, path in outs if is_alone(path)]


def _configure(ctx: click.Context, param: click.Parameter, named: str | None) -> None:
    """Take defaults from the configuration, as far as it can be read; keep what else it names."""
    from fairfix.cli.config import NO_CONFIG, find_config, reach, unchecked

    content: Mapping[str, Any] = ctx.obj.configured or {}
    others: list[Any] = []
    if ctx.obj.configured is None and named != NO_CONFIG:
        path = None
        with suppress(FairfixError, OSError, ValueError):
            if path := Path(named) if named else find_config(Path.cwd()):
                others.append(path.read_text(encoding="utf-8"))
                content = unchecked(path, ctx.obj.command)
                others.clear()
                beyond = () if named else dict(reach(path, content, ctx.obj.command))
                content = {name: one for name, one in content.items() if name not in beyond}
    outs, printed = content.get("out", ()), content.get("format", content.get("format_"))
    ctx.default_map = {"out": [outs] if isinstance(outs, str) else outs, "format": printed}
    ctx.meta["others"] = [*others, *(one for name, one in content.items() if name != "out")]


OUTPUTS = click.Command(
    "fairfix",
    params=[
        click.Option(["--config"], envvar="FAIRFIX_CONFIG", is_eager=True, callback=_configure),
        click.Option(["--format"], envvar="FAIRFIX_FORMAT", default="text"),
        click.Option(["--out"], envvar="FAIRFIX_OUT", multiple=True),
    ],
    context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
    add_help_option=False,
)
"""The options of reports alone, to be read from a line that its command refuses."""


def reports_of(ctx: click.Context) -> RequestedReports:
    """Return what the line of a command asks for; of a command that is called without one, nothing."""
    return ctx.obj if isinstance(ctx.obj, RequestedReports) else RequestedReports(())


def _replace(files: Sequence[tuple[str, str]], problem: Unrun) -> None:
    """Write that the run has no result to files that may be replaced."""
    from fairfix.data.files import write_content
    from fairfix.report import FORMATS, unrun

    for name, path in files:
        if name in FORMATS and (
            _is_replaceable_there(path) if scheme_of(path) else _is_replaceable(Path(path))
        ):
            with suppress(FairfixError, OSError):
                write_content(path, unrun(name, problem))


def _is_replaceable_there(url: str) -> bool:
    """Return whether a store has nothing by that name, or a file of fairfix; not if it does not let us look."""
    from fairfix.data.storage import find
    from fairfix.data.targets import is_own_content

    try:
        (place,) = find(url, lambda _: True)
        with place.opened() as file:
            return is_own_content(file)
    except DataError as error:
        return str(error).endswith(" does not exist")
    except (ValueError, OSError):  # a pattern or a folder
        return False


def _is_replaceable(path: Path) -> bool:
    """Return whether there is nothing by that name, or a file of fairfix."""
    from fairfix.data.targets import is_own

    try:
        return is_own(path) or not (path.exists() or path.is_symlink())
    except OSError:
        return False
