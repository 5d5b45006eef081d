"""Reports of a run that failed: every requested report says so, in its own format.

A report of an earlier run must not be taken for that of a run that failed. A file that is not there is written; one
that is there is replaced if it is a report of fairfix, and left alone else, since a line that cannot be read may name
anything. So is a file that the line, the environment or the configuration also name elsewhere, such as the baseline.
Before the work begins, every report that is there already says that its run did not finish, for a run that is killed.
"""

from __future__ import annotations

import os
import re
import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fairfix import __version__
from fairfix.data.urls import scheme_of, shown_argument
from fairfix.errors import FairfixError

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


class Asked:
    """Which reports a line asks for: at first as far as the line tells, later as the command has checked it."""

    def __init__(self, arguments: Sequence[str]) -> None:
        self.command = next((one for one in arguments if not one.startswith("-")), "")
        self._line = list(arguments)
        self.line = shlex.join(["fairfix", *map(shown_argument, arguments)]) if arguments else ""
        self._configured: Mapping[str, Any] | None = None
        self._checked: tuple[str, list[tuple[str, str]]] | None = None

    def configured(self, defaults: Mapping[str, Any]) -> None:
        """Learn what the configuration says."""
        self._configured = defaults

    def checked(self, printed: str, files: Sequence[tuple[str, str]]) -> None:
        """Learn what is printed, and (format, file) of what is yet to be written and does not harm the run.

        Existing reports are replaced by ones that say that the run did not finish. Others are not made yet: data may be
        a folder or a pattern that they would be part of.
        """
        self._checked = printed, list(files)
        there = [(name, path) for name, path in files if Path(path).exists()]
        unfinished = "the run did not finish: it was killed, or it is still running"
        self._replace(there, self._problem(KILLED, "interrupted", unfinished))

    def written(self) -> None:
        """Learn that all reports are written, after which nothing else is to be printed."""
        self._checked = "text", []

    def tell(self, status: int, code: str, message: str) -> None:
        """Write to every report that is asked for, and print where a format is, that the run did not happen."""
        from fairfix.cli.config import reach, unchecked
        from fairfix.report import FORMATS, unrun

        if self.command not in REPORTING:
            return
        if self._configured is None and (config := self._config()) is not None:
            with suppress(FairfixError):
                content = unchecked(config, self.command)
                beyond = () if self._named_config() else dict(reach(config, content, self.command))
                self._configured = {name: one for name, one in content.items() if name not in beyond}
        printed, files = self._checked or (self._printed(), list(self._files()))
        problem = self._problem(status, code, message)
        self._replace(files, problem)
        if printed in FORMATS and printed != "text":
            with suppress(OSError):
                click.echo(unrun(printed, problem), nl=False)
        if "github" in (printed, *dict(files)):
            with suppress(FairfixError):
                append_summary(unrun("markdown", problem))

    def _problem(self, status: int, code: str, message: str) -> Unrun:
        """Return the record of a run that has no result."""
        from msgspec import convert

        from fairfix.report.words import as_options
        from fairfix.schema import schema_id
        from fairfix.schema.unrun import Unrun

        fields = {
            "command": self.command,
            "status": int(status),
            "code": code,
            "message": as_options(message),
        }
        return convert({"schema": schema_id("unrun"), "fairfix": __version__, **fields}, Unrun)

    def _replace(self, files: Sequence[tuple[str, str]], problem: Unrun) -> None:
        """Write that the run has no result to files that may be replaced."""
        from fairfix.report import FORMATS, unrun

        for name, path in files:
            if name in FORMATS and not scheme_of(path) and _is_replaceable(Path(path)):
                with suppress(FairfixError, OSError):
                    _write(path, unrun(name, problem))

    def _said(self, option: str) -> list[str]:
        """Return the values of an option by line, environment or configuration, the first that has it."""
        flag, line = f"--{option}", self._line
        texts = [after for one, after in pairwise(line) if one == flag]
        texts += [one.partition("=")[2] for one in line if one.startswith(f"{flag}=")]
        table = self._configured or {}
        configured = table.get(option, table.get(f"{option}_", ()))
        configured = [configured] if isinstance(configured, str) else list(configured)
        return texts or os.environ.get(f"FAIRFIX_{option.upper()}", "").split() or configured

    def _named_config(self) -> str:
        """Return the configuration file that the line or the environment names, if they name one."""
        named = [after for one, after in pairwise(self._line) if one == "--config"]
        named += [one.partition("=")[2] for one in self._line if one.startswith("--config=")]
        return next(iter(named), "") or os.environ.get("FAIRFIX_CONFIG", "")

    def _config(self) -> Path | None:
        """Return the configuration file, if there is one to be read."""
        from fairfix.cli.config import NO_CONFIG, find_config

        if self._named_config() == NO_CONFIG:
            return None

        with suppress(FairfixError):
            return Path(named) if (named := self._named_config()) else find_config(Path.cwd())
        return None

    def _printed(self) -> str:
        return next(reversed(self._said("format")), "text")

    def _files(self) -> Iterator[tuple[str, str]]:
        """Yield (format, file) of the reports whose files nothing else names."""
        outs = [text.partition("=")[::2] for text in self._said("out")]
        times = Counter(os.path.realpath(path) for _, path in outs)
        others = self._others({f"{name}={path}" for name, path in outs})
        for name, path in outs:
            names = {
                Path(path).name,
                Path(os.path.realpath(path)).name,
            }  # it may be a link to what the run reads
            if path and times[os.path.realpath(path)] == 1 and not names & others:
                yield name, path

    def _others(self, outs: set[str]) -> set[str]:
        """Return the names, without folders, of all files that may be named in addition to the reports."""
        texts = [one for one in self._line if one not in outs and not one.startswith("--out=")]
        texts += [v for k, v in os.environ.items() if k.startswith("FAIRFIX_") and k != "FAIRFIX_OUT"]
        if self._configured is not None:
            texts += [str(v) for k, v in self._configured.items() if k != "out"]
        elif (path := self._config()) is not None:  # it cannot be read
            with suppress(OSError, ValueError):
                texts.append(path.read_text(encoding="utf-8"))
        return {word.rpartition("/")[2] for text in texts for word in re.split(r"[\s\"'=,()\[\]]+", text)}


def asked_of(ctx: click.Context) -> Asked:
    """Return what the line of a command asks for; of a command that is called without one, nothing."""
    return ctx.obj if isinstance(ctx.obj, Asked) else Asked(())


def _is_replaceable(path: Path) -> bool:
    """Return whether there is nothing by that name, or a file of fairfix."""
    from fairfix.data.targets import is_own

    try:
        return is_own(path) or not (path.exists() or path.is_symlink())
    except OSError:
        return False


def _write(path: str, text: str) -> None:
    from fairfix.data.files import write_text

    write_text(path, text)
