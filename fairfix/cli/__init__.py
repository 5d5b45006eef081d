"""The command line: the only room that prints, reads the environment and exits.

Commands are loaded when they are called, so ``fairfix --help`` starts without numpy. Every error becomes one line
on stderr and a status of :class:`~fairfix.errors.ExitStatus`.
"""

from __future__ import annotations

import errno
import logging
import os
import signal
import sys
import traceback
import warnings
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

import click

from fairfix import __version__
from fairfix.cli.unrun import Asked
from fairfix.data.names import nearest
from fairfix.data.urls import hidden
from fairfix.errors import ExitStatus, FairfixError, FairfixWarning, UnsentError
from fairfix.report.words import as_options, harmless, plain_lines
from fairfix.tasks.glossary import STATUSES

COMMANDS = {
    "audit": "Measure how a model treats groups, and gate on it.",
    "repair": "Fit a repaired predictor and prove it on held-out rows.",
    "compare": "Show what each method costs over a range of slack.",
    "predict": "Apply a repaired predictor to new rows.",
    "export": "Turn a repaired predictor into SQL, ONNX, Python or JSON.",
    "inspect": "Show what is in a repaired predictor or a file of counts; runs nothing.",
    "report": "Render a saved result in another format.",
    "init": "Write a first fairfix.toml from a data file.",
    "merge": "Add up saved counts, for one audit of many files.",
    "explain": "Say what a metric, a check, a method or a word is.",
}
"""Commands with their one-line help, in the order of ``--help``; each is the module ``fairfix.cli.NAME``."""

EPILOG = "\b\nExit status:\n" + "\n".join(
    f"  {code:3}  {as_options(text)}" for code, text in STATUSES.items()
)


class LazyGroup(click.Group):
    """A group that imports a command only when it is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in their natural order."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command's module."""
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = import_module(f"fairfix.cli.{cmd_name}").command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that a line names; of one that is none, the error says the nearest."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            if near := nearest(args[0], tuple(COMMANDS)):
                raise click.UsageError(f"{error.message} Did you mean {near[0]!r}?", ctx) from None
            raise

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(cls=LazyGroup, epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="fairfix")
def cli() -> None:
    """Audit tabular models for unfairness and repair them.

    \b
    fairfix audit data.parquet --protected race
    fairfix repair data.parquet --method ramp --protected race -o repaired.fairfix
    """


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and exit with its status."""
    signal.signal(signal.SIGTERM, _stop)
    sys.exit(run(arguments))


def run(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its status."""
    # before Arrow is imported: its own allocator keeps some 40 MB more than the system's, and is no faster here
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by the caller
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115  until the end
    log = logging.getLogger("fairfix")
    log.handlers, log.propagate = [_Talk()], False
    log.setLevel(logging.INFO)
    line = list(sys.argv[1:] if arguments is None else arguments)
    debug, asked = "--debug" in line, Asked(line)
    warnings.simplefilter("ignore")
    warnings.simplefilter("always", FairfixWarning)
    warnings.showwarning = _show_warning  # type: ignore[assignment]  # takes the rest as *_

    def ended(status: ExitStatus, code: str, message: str, hint: str = "") -> int:
        message = hidden(message)
        first, line, rest = message.partition("\n")  # the code stands before lines that are there to copy
        _echo(f"{first} [{code}]{line}{rest}")
        if hint:
            click.echo(hint, err=True)
        asked.tell(status, code, message)
        return int(status)

    def bug(error: Exception) -> int:
        if debug:
            _trace(error)
        more = "" if debug else "run again with --debug for the traceback"
        return ended(
            ExitStatus.BUG, "bug", f"this is a bug in fairfix: {type(error).__name__}: {error}", more
        )

    try:
        status = cli.main(line, prog_name="fairfix", standalone_mode=False, obj=asked)
        sys.stdout.flush()
        return int(status or 0)
    except click.exceptions.Exit as stop:
        return int(stop.exit_code)
    except click.UsageError as error:
        hint = f"Try '{error.ctx.command_path} --help' for help." if error.ctx else ""
        return ended(ExitStatus.DID_NOT_RUN, "usage", error.format_message(), hint)
    except click.ClickException as error:  # click would exit with 1, which means a failed check here
        return ended(ExitStatus.DID_NOT_RUN, "usage", error.format_message())
    except (click.Abort, KeyboardInterrupt):
        return ended(ExitStatus.INTERRUPTED, "interrupted", "interrupted")
    except _Stopped:
        return ended(ExitStatus.STOPPED, "interrupted", "asked to stop")
    except (BrokenPipeError, SystemExit):  # click exits with 1 at a broken pipe, which means a failed check
        return _closed_pipe()
    except UnsentError as end:
        click.echo(end.statements)
        return int(end.exit_status)
    except FairfixError as error:
        if debug:
            _trace(error)
        return ended(error.exit_status, error.code, str(error))
    except OSError as error:
        if error.errno not in FULL:
            return bug(error)
        _closed_pipe()
        return ended(ExitStatus.DID_NOT_RUN, "output", f"cannot write to stdout: {error.strerror}")
    except Exception as error:  # the last gate: everything else is our fault
        return bug(error)


class _Stopped(BaseException):
    """Somebody asked the process to stop."""


def _stop(*_: Any) -> NoReturn:
    raise _Stopped


FULL = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EBADF))
"""Errors of an output that takes no more."""


def _closed_pipe() -> int:
    """Whoever read our output has left: say nothing more, with the shell's status for a broken pipe."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 141


def _trace(error: Exception) -> None:
    """Write a traceback to stderr, without the secrets of URLs in it."""
    click.echo(plain_lines(hidden("".join(traceback.format_exception(error)))), err=True, nl=False)


def _show_warning(message: Any, *_: Any) -> None:
    if isinstance(message, FairfixWarning):
        _echo(f"warning: {message} [{message.code}]")


def _echo(message: str) -> None:
    """Write a line of the library to stderr, with its parameters as options."""
    click.echo(harmless(plain_lines(f"fairfix: {as_options(hidden(message))}")), err=True)


class _Talk(logging.Handler):
    """Shows on stderr what the library logs."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write a line."""
        _echo(record.getMessage())
