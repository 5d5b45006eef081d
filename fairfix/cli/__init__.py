"""The command line: the only room that prints, reads the environment and exits.

Commands are loaded when they are called, so ``fairfix --help`` starts without numpy. Every error becomes one line
on stderr and a status of :class:`~fairfix.errors.ExitStatus`.
"""

from __future__ import annotations

import errno
import logging
import math
import os
import signal
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from importlib.machinery import ExtensionFileLoader, ModuleSpec, PathFinder
from importlib.util import LazyLoader
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

import click

from fairfix import __version__
from fairfix.cli.failure_report import RequestedReports
from fairfix.data.names import nearest
from fairfix.data.signals import STOPPING
from fairfix.data.urls import closing_connections, hidden
from fairfix.errors import ExitStatus, FairfixError, FairfixWarning, UnsentError
from fairfix.report.words import as_options, harmless, visible
from fairfix.tasks.glossary import STATUSES

COMMANDS = {
    "audit": "Measure how a model treats groups, and check it against limits.",
    "repair": "Fit a repaired predictor and evaluate it on held-out rows.",
    "compare": "Compare repair methods over a range of allowed gaps, or two models.",
    "explore": "Write an interactive page to try thresholds, allowed gaps and costs.",
    "count": "Save counts of rows, to audit or repair without the rows themselves.",
    "predict": "Apply a repaired predictor to new rows.",
    "export": "Export a repaired predictor to SQL, ONNX, Python or JSON.",
    "inspect": "Show what a repaired predictor or a counts file contains.",
    "report": "Convert a saved result to another format.",
    "init": "Write a starter fairfix.toml for a data file.",
    "explain": "Explain a metric, a check, a method, an option or a term.",
    "help": "Show the help of a command, or explain a word.",
    "version": "Show the version of fairfix.",
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
@click.version_option(__version__, "-V", "--version", prog_name="fairfix")
def cli() -> None:
    """Audit tabular models for unfairness and repair them.

    \b
    fairfix audit data.parquet --protected race
    fairfix repair data.parquet --method ramp --protected race -o repaired.fairfix
    """
    from fairfix.cli.options import today

    today()  # before libraries are loaded, some of which break at a SOURCE_DATE_EPOCH that is no day


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and exit with its status."""
    sys.meta_path.insert(0, _Later())
    os.environ["PYTHONSAFEPATH"] = (
        "1"  # no process that a library starts imports from the working folder either
    )
    _open_streams()
    _STOP.begin()
    try:
        status = run(arguments)
        _STOP.end()
    except (KeyboardInterrupt, _Stopped) as error:  # a second time, while it was said why the run ended
        status = int(_status_of(error))
        _STOP.end()
    sys.exit(status)


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
    debug, asked = os.environ.get("FAIRFIX_DEBUG", "0") not in ("", "0"), RequestedReports(line)
    warnings.simplefilter("ignore")
    warnings.simplefilter("always", FairfixWarning)
    warnings.showwarning = _show_warning  # type: ignore[assignment]  # takes the rest as *_

    def ended(status: ExitStatus, code: str, message: str, hint: str = "") -> int:
        if _STOP.error is not None:  # whatever has become of it on its way up
            status, code, hint = _status_of(_STOP.error), "interrupted", ""
            message = STOPS[status]
        message = hidden(message)
        first, line, rest = message.partition("\n")  # the code stands before lines that are there to copy
        _echo(f"{first} [{code}]{line}{rest}")
        if hint:
            _to_stderr(hint)
        with suppress(MemoryError, OSError, ImportError):
            asked.tell(status, code, message)
        return int(status)

    def bug(error: Exception) -> int:
        if debug:
            _trace(error)
        more = "" if debug else "run again with FAIRFIX_DEBUG=1 in the environment for the traceback"
        return ended(
            ExitStatus.BUG, "bug", f"this is a bug in fairfix: {type(error).__name__}: {error}", more
        )

    if short := _short_of_memory():
        return ended(ExitStatus.DID_NOT_RUN, "memory", short)
    try:
        with closing_connections():
            status = cli.main(line, prog_name="fairfix", standalone_mode=False, obj=asked)
        sys.stdout.flush()
        return int(status or 0)
    except click.exceptions.Exit as stop:
        return int(stop.exit_code)
    except click.UsageError as error:
        from fairfix.cli.proposals import instead_of

        message = error.format_message()
        lines = [f"\n  {one}" for one in instead_of(line, cli)]
        hint = f"Try '{error.ctx.command_path} --help' for help." if error.ctx and not lines else ""
        return ended(ExitStatus.DID_NOT_RUN, "usage", message + "".join(lines), hint)
    except click.ClickException as error:  # click would exit with 1, which means a failed check here
        return ended(ExitStatus.DID_NOT_RUN, "usage", error.format_message())
    except (click.Abort, KeyboardInterrupt, _Stopped) as error:
        status = _status_of(error)
        return ended(status, "interrupted", STOPS[status])
    except (BrokenPipeError, SystemExit):  # click exits with 1 at a broken pipe, which means a failed check
        _silence(sys.stdout)  # whoever read our output has left: say nothing more
        return 141
    except UnsentError as end:
        click.echo(harmless(visible(end.statements)))
        return int(end.exit_status)
    except FairfixError as error:
        if debug:
            _trace(error)
        text = "; ".join([str(error), *getattr(error, "__notes__", ())])
        if error.instead:
            from fairfix.cli.proposals import replaced_in

            text += "".join(f"\n  {one}" for one in replaced_in(line, error))
        return ended(error.exit_status, error.code, text)
    except Exception as error:  # the last gate: everything else is our fault
        if isinstance(error, OSError) and error.errno in FULL and error.filename is None:
            _silence(sys.stdout)
            return ended(ExitStatus.DID_NOT_RUN, "output", f"cannot write to stdout: {error.strerror}")
        if isinstance(error, FileNotFoundError) and not _stands_somewhere():
            message = "the working folder no longer exists; change to another one"
            return ended(ExitStatus.DID_NOT_RUN, "usage", message)
        if isinstance(error, OSError) and error.filename is not None and error.errno in UNREACHABLE:
            text = f"{os.fspath(error.filename)}: {error.strerror}; {UNREACHABLE[error.errno]}"
            return ended(ExitStatus.DID_NOT_RUN, "data", text)
        if _lacks_memory(error):
            return ended(ExitStatus.DID_NOT_RUN, "memory", MEMORY)
        return bug(error)


UNUSED = frozenset(("numpy.f2py", "numpy.testing"))
"""Modules that other libraries import and nobody here uses.

:mod:`scipy.special` takes whatever numpy has, so it imports the wrapper of Fortran and the tools for tests: half of its
cost.
"""


class _Later:
    """Finds the unused modules, and has each run when something of it is asked for."""

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """Return how a module is loaded; None where it is not one of ours."""
        spec = PathFinder.find_spec(fullname, path) if fullname in UNUSED else None
        if spec is not None and spec.loader is not None:
            spec.loader = LazyLoader(spec.loader)
        return spec


class _Stopped(BaseException):
    """Somebody asked the process to stop."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


DEAF = 8.0
"""Seconds that a call into a library may go on after a signal; whoever stops a run waits ten."""

BURST = 3.0
"""Seconds in which further signals mean the first: `timeout` sends two, a terminal one to each process."""


class _Stop:
    """Handler of a signal: the run ends by an exception, so that it can clean up."""

    def __init__(self) -> None:
        self._last = -math.inf
        self.error: BaseException | None = None
        """The exception that was raised; libraries may turn it into another error."""
        self._woken: int | None = None
        """Where the numbers of signals arrive at once, whatever Python is at."""

    def begin(self) -> None:
        """Listen to signals from here on, but for those that are to be ignored, as under nohup."""
        self._last, self.error = -math.inf, None
        for number in STOPPING:
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self)
        if os.name == "posix" and self._woken is None:
            self._woken, wake = os.pipe()
            os.set_blocking(wake, False)
            signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
            with suppress(RuntimeError):  # no memory for a thread, of which the run says more
                threading.Thread(target=self._watch, args=(self._woken,), daemon=True).start()
            self._die_while_loading()

    def _watch(self, woken: int) -> None:
        """End the process where a signal came and no line of Python ran since: a library does not come back."""
        while byte := os.read(woken, 1):
            number, until = byte[0], time.monotonic() + DEAF
            while self.error is None and (who := signal.getsignal(number)) not in (
                signal.SIG_DFL,
                signal.SIG_IGN,
            ):
                if who is self and time.monotonic() > until:  # else a block that nothing may interrupt
                    os._exit(128 + number)
                time.sleep(0.1)

    def _die_while_loading(self) -> None:
        """Let signals end the process at once while a library is loaded, which holds Python's lock all the time.

        OpenBLAS asks for memory again and again there where the process may have no more.
        """
        create, stop = ExtensionFileLoader.create_module, self

        def create_module(self: ExtensionFileLoader, spec: ModuleSpec) -> ModuleType:
            main = threading.current_thread() is threading.main_thread()
            ours = [number for number in STOPPING if main and signal.getsignal(number) is stop]
            try:
                for number in ours:
                    signal.signal(number, signal.SIG_DFL)
                return create(self, spec)
            finally:
                for number in ours:
                    signal.signal(number, stop)

        ExtensionFileLoader.create_module = create_module  # type: ignore[method-assign]  # for all that load a library

    def __call__(self, number: int, _: object) -> None:
        """End the run, once in a burst."""
        if time.monotonic() < self._last + BURST:
            return
        self._last = time.monotonic()
        self.error = KeyboardInterrupt() if number == signal.SIGINT else _Stopped(number)
        raise self.error

    def end(self) -> None:
        """Let signals end the process at once, which has nothing left to put in order."""
        self.error = None
        for number in STOPPING:
            if signal.getsignal(number) is self:
                signal.signal(number, signal.SIG_DFL)


_STOP = _Stop()
"""Signal handlers of the command line as a process; a caller of :func:`run` keeps its own."""

STOPS = {
    ExitStatus.INTERRUPTED: "interrupted",
    ExitStatus.STOPPED: "terminated",
    ExitStatus.HUNG_UP: "the terminal was closed",
}
"""Status after a signal -> what is said of it."""


def _status_of(error: BaseException) -> ExitStatus:
    """Return the status of a run that a signal ended."""
    return ExitStatus(128 + error.number) if isinstance(error, _Stopped) else ExitStatus.INTERRUPTED


def _open_streams() -> None:
    """Let nothing that is opened later take the number of a standard stream that the caller has closed."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free


FULL = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EBADF, errno.EIO))
"""Errors of an output that takes no more; a terminal that is gone has the last."""

UNREACHABLE = {
    errno.EACCES: "get the permission, or name another file",
    errno.EPERM: "get the permission, or name another file",
    errno.ENAMETOOLONG: "use a shorter name",
    errno.ELOOP: "its symbolic links form a loop",
    errno.ENOENT: "a file was removed during the run; run again",
    errno.ENOTDIR: "a file was moved during the run; run again",
    errno.EISDIR: "name a file",
    errno.EIO: "check the disk",
    errno.ESTALE: "run again",
    errno.EMFILE: "raise the limit of open files (ulimit -n)",
}
"""Errors of a file that the system does not let us reach, or no more -> what helps."""

MEMORY = "not enough memory; use a larger machine, or fewer rows, columns or `threads`"

FLOOR = 768 << 20
"""Bytes of addresses that libraries and the threads of a small audit take, with a quarter to spare."""

A_THREAD = 128 << 20
"""Bytes of addresses of one thread more of OpenBLAS, which tries for ever to get them."""

NO_MEMORY = ("cannot allocate memory", "can't start new thread", "failed to map segment")
"""Messages of systems and libraries that raise no MemoryError."""


def _short_of_memory() -> str:
    """Return what is wrong where this process may not have the memory that libraries take to be loaded."""
    try:
        from resource import RLIM_INFINITY, RLIMIT_AS, getrlimit
    except ImportError:  # Windows has no such limits
        return ""
    limit = getrlimit(RLIMIT_AS)[0]
    if limit == RLIM_INFINITY:
        return ""
    named = os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    least = FLOOR + A_THREAD * (min(int(named), os.cpu_count() or 1) - 1 if named.isdecimal() else 0)
    if limit >= least:
        return ""
    return f"this process may use {limit >> 20:,} MB of memory (ulimit -v), and needs {least >> 20:,} MB to start"


def _lacks_memory(error: Exception) -> bool:
    """Return whether an error, or one that it came of, is that memory was short."""
    chain: BaseException | None = error
    while chain is not None:
        if isinstance(chain, MemoryError) or any(words in str(chain).lower() for words in NO_MEMORY):
            return True
        chain = chain.__cause__ or chain.__context__
    return False


def _stands_somewhere() -> bool:
    """Return whether the working folder is still there."""
    try:
        Path.cwd()
    except OSError:
        return False
    return True


def _silence(stream: Any) -> None:
    """Let what a stream still holds go nowhere, or Python would complain of it at the end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _trace(error: Exception) -> None:
    """Write a traceback to stderr, without the secrets of URLs in it."""
    _to_stderr(harmless(visible(hidden("".join(traceback.format_exception(error))).rstrip("\n"))))


def _show_warning(message: Any, *_: Any) -> None:
    if isinstance(message, FairfixWarning):
        _echo(f"warning: {message} [{message.code}]")


def _echo(message: str) -> None:
    """Write a line of the library to stderr, with its parameters as options."""
    _to_stderr(harmless(visible(f"fairfix: {as_options(hidden(message))}")))


def _to_stderr(text: str) -> None:
    """Write a line to stderr; where nobody takes it, the run goes on."""
    try:
        click.echo(text, err=True)
    except OSError:
        _silence(sys.stderr)


class _Talk(logging.Handler):
    """Shows on stderr what the library logs."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write a line."""
        _echo(record.getMessage())
