"""Outputs: results to stdout and files, in the formats asked for; files are checked before any work is done."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource

from fairfix.cli.config import READ, WRITTEN, files_named
from fairfix.cli.failure_report import append_summary, reports_of
from fairfix.data.urls import scheme_of
from fairfix.errors import DataError, UsageError
from fairfix.report.words import as_options

if TYPE_CHECKING:
    from fairfix.schema.common import CheckedResult, SavedResult

Gated = TypeVar("Gated", bound="CheckedResult")


def write_results(result: SavedResult, given: Mapping[str, Any]) -> None:
    """Write the result to its files in the formats asked for, and print it."""
    with publishing():
        printed = write_reports(result, given)
    print_report(result, given, printed)


@contextmanager
def publishing() -> Iterator[None]:
    """Let all files of a run that has reports take their places at the end of the block, or none of them."""
    from fairfix.data.atomic_write import together

    with together(reports_of(click.get_current_context()).written):
        yield


def write_reports(
    result: SavedResult, given: Mapping[str, Any], save: Callable[[str], object] | None = None
) -> str | bytes:
    """Write the result to its files and its log, while :func:`publishing`; return what is to be printed afterwards.

    ``save`` writes the artifact of a repair to a file.
    """
    from fairfix.data.files import write_content

    detail, files = given["detail"], [_format_and_file(text) for text in given["out"]]
    contents = [(path, render(name, result, detail=detail, terminal=False)) for name, path in files]
    printed = render(given["format_"], result, detail=detail, terminal=True)
    for path, content in contents:
        write_content(path, content)
    if given.get("log"):
        from fairfix.cli.tracking import log_run

        log_run(result, save)
    return printed


def print_report(result: SavedResult, given: Mapping[str, Any], printed: str | bytes) -> None:
    """Print what :func:`write_reports` returned, and append to the step summary of a GitHub workflow."""
    click.echo(printed, nl=False)
    if "github" in _formats(given):
        append_summary(str(render("markdown", result, detail=given["detail"], terminal=False)))


def _formats(given: Mapping[str, Any]) -> list[str]:
    """Return the formats that are printed or written; none of a command that has none."""
    return [given.get("format_", ""), *(_format_and_file(text)[0] for text in given.get("out", ()))]


def check_outputs(given: Mapping[str, Any], *, gated: bool = True) -> None:
    """Raise for a file that cannot be written, is written twice, or is read by the same run, before the work is done.

    ``gated`` is whether there are checks, which the formats of CI are made of.
    """
    from fairfix.data.atomic_write import check_writable
    from fairfix.data.files import descriptor, is_special
    from fairfix.data.targets import check_links
    from fairfix.report import NO_CHECKS, is_gated

    if given.get("log"):
        from fairfix.cli.tracking import check_installed

        check_installed()
    for name in _formats(given):
        if not gated and is_gated(name):
            raise UsageError(NO_CHECKS.format(name=name))
    written = [(f"--out {text}", _format_and_file(text)[1]) for text in given.get("out", ())]
    written += [(as_options(f"`{name}={given[name]}`"), given[name]) for name in WRITTEN if given.get(name)]
    read = [(name, one) for name in READ for one in files_named(name, given.get(name) or ())]
    seen = {Path(one).resolve(): as_options(f"`{name}`") for name, one in read}
    for text, path in written:
        if scheme_of(path):
            from fairfix.data.storage import check_target

            check_target(path)
            continue
        check_links(Path(path))
        _check_streams(text, Path(path), prints="format_" in given)
        if descriptor(path) is not None or (
            is_special(Path(path)) and not Path(path).is_dir()
        ):  # as /dev/null
            continue
        check_writable(Path(path))
        place = Path(path).resolve()
        if not place.parent.is_dir():
            raise UsageError(f"{text}: the folder {Path(path).parent} does not exist")
        if place in seen:
            raise UsageError(f"{text}: this file is also used by {seen[place]}; name another one")
        if place.exists() and (of := next((name for name, one in read if _is_among(place, one)), None)):
            raise UsageError(f"{text}: this file is also used by `{of}`; name another one")
        seen[place] = text
    if "out" in given:
        asked = reports_of(click.get_current_context())
        asked.checked(given["format_"], list(map(_format_and_file, given["out"])))


def _is_among(place: Path, read: str) -> bool:
    """Return whether a file is one of those that a folder or a pattern names."""
    from fairfix.data.opening import paths_of

    if scheme_of(read):
        return False
    try:
        return place in {path.resolve() for path in paths_of(read)}
    except DataError:  # there is none
        return False


def located(result: Gated, ctx: click.Context) -> Gated:
    """Return a result with the line of the configuration file that each check is written in, if it is from there."""
    if not ctx.params.get("config"):
        return result
    path = Path(ctx.params["config"])
    lines = path.read_text(encoding="utf-8").splitlines()
    if ctx.get_parameter_source("check") is not ParameterSource.DEFAULT_MAP:
        return result
    key = re.compile(r"\s*check\s*=")
    from msgspec.structs import replace

    from fairfix.schema.common import Written

    checks = list(result.checks)
    for i, check in enumerate(checks):
        text = check.check
        exact = (n for n, line in enumerate(lines, 1) if f'"{text}"' in line or f"'{text}'" in line)
        about = (n for n, line in enumerate(lines, 1) if key.match(line))
        if number := next(exact, next(about, 0)):
            written = Written(file=Path(os.path.relpath(path)).as_posix(), line=number)
            checks[i] = replace(check, written=written)
    return replace(result, checks=tuple(checks))


def _check_streams(text: str, path: Path, *, prints: bool) -> None:
    """Raise where a file to write is stdout, which a report goes to, or the file that stdout or stderr goes to."""
    from fairfix.data.files import descriptor

    for number, stream in ((1, "stdout"), (2, "stderr")):
        try:
            same = os.path.samestat(path.stat(), os.fstat(number))
        except OSError:  # not there, or closed
            continue
        if same and path.is_file() and descriptor(path) is None:
            raise UsageError(f"{text}: {stream} is redirected to this file; name another one")
        if same and number == 1 and prints and (path.is_file() or path.is_fifo() or os.isatty(number)):
            how = ", or print this format by --format" if text.startswith("--out ") else ""
            raise UsageError(f"{text}: the command prints to stdout; name a file{how}")


def _format_and_file(text: str) -> tuple[str, str]:
    from fairfix.report import FORMATS

    name, sign, path = text.partition("=")
    if not sign or not path or name not in FORMATS:
        raise UsageError(f"--out {text!r}: write it as FORMAT=FILE with a format of {', '.join(FORMATS)}")
    return name, path


PIPED = 80
"""Columns of a report that goes to a file, or to a pipe where ``COLUMNS`` is not set; logs show this many."""


def render(name: str, result: SavedResult, *, detail: bool, terminal: bool) -> str | bytes:
    """Render a result, to the width and colours of the terminal where it goes to one."""
    from fairfix.report import renderer

    make: Callable[..., str | bytes] = renderer(name)
    encoding = (sys.stdout.encoding or "ascii").lower().replace("-", "") if terminal else "utf8"
    ascii_only = not encoding.startswith("utf")
    shown = terminal and sys.stdout.isatty()
    asked = os.environ.get("COLUMNS", "") if terminal else ""
    width = int(asked) if asked.isdecimal() and int(asked) > 0 else PIPED
    settings = {
        "detail": detail,
        "width": shutil.get_terminal_size((PIPED, 24)).columns if shown else width,
        "color": shown and not os.environ.get("NO_COLOR"),
        "ascii_only": ascii_only,
    }
    taken = signature(make).parameters
    text = make(result, **{setting: value for setting, value in settings.items() if setting in taken})
    if isinstance(text, bytes):
        return text
    if ascii_only and text.startswith(
        "<"
    ):  # in HTML and XML a character reference reads alike in any encoding
        return text.encode("ascii", "xmlcharrefreplace").decode("ascii")
    return text
