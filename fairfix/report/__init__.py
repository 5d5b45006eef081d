"""Reports: one module per format, all rendered from the struct of a result.

Every format reads the struct only, so a saved one can be rendered again later. The format ``NAME`` is
the module ``NAME_`` here, with ``render(result, ...)``, which returns a text or bytes; it is found by its name. The
command line gives the settings that ``render`` has a parameter for: ``detail``, ``width``, ``color``,
``ascii_only``. A module with ``GATED = True`` tells of checks only; ``ENDING`` is that of its files, by default
``.NAME``. A run that did not happen has no result; ``unrun(problem)`` of a module says so in its format, and a module
without it is served by a line of text.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from importlib import import_module
from pathlib import PurePath
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Any

from fairfix.report.words import as_options, plain

if TYPE_CHECKING:
    from fairfix.schema.common import SavedResult
    from fairfix.schema.unrun import Unrun

FIRST = ("text", "json")
"""Formats that lists begin with; the others follow by name."""

FORMATS = (
    *FIRST,
    *sorted({one.name[:-1] for one in iter_modules(__path__) if one.name.endswith("_")} - {*FIRST}),
)
"""Names of the formats."""

PRINTED = tuple(name for name in FORMATS if name not in ("pdf", "xlsx"))
"""Those that are texts, which can be printed; the others are written to files."""

NO_CHECKS = (
    "the format {name} shows checks, and this command or result has none; use text, json, markdown or html"
)


def is_gated(name: str) -> bool:
    """Return whether a format tells of checks only, for CI; a comparison has none."""
    return getattr(import_module(f"fairfix.report.{name}_"), "GATED", False)


def endings(name: str) -> tuple[str, ...]:
    """Return how names of a format's files end: in its ``ENDING``, or in the name of the format."""
    module = import_module(f"fairfix.report.{name}_") if name in FORMATS else None
    return tuple(dict.fromkeys((str(getattr(module, "ENDING", f".{name}")), f".{name}")))


OTHER_ENDINGS = {".htm": "html", ".md": "markdown", ".txt": "text"}
"""Endings of files in common use -> format, besides those of :func:`endings`."""


def format_of(file: str) -> str:
    """Return the format that the ending of a file's name stands for; empty if it stands for none."""
    suffix = PurePath(file).suffix.lower()
    own = next((name for name in FORMATS if suffix in endings(name)), "")
    return OTHER_ENDINGS.get(suffix, own)


def renderer(name: str) -> Callable[..., Any]:
    """Return the function that renders a result; all but JSON write parameters as options."""
    render: Callable[..., Any] = import_module(f"fairfix.report.{name}_").render
    if name == "json":
        return render

    def rendered(result: SavedResult, **settings: Any) -> Any:
        from fairfix.auditing.custom_metrics import added

        with added(getattr(result, "own_metrics", ())):
            return render(as_options(result), **settings)

    return wraps(render)(rendered)


def unrun(name: str, problem: Unrun) -> Any:
    """Return what a format says of a run that did not happen."""
    module = import_module(f"fairfix.report.{name}_")
    if hasattr(module, "unrun"):
        return module.unrun(problem)
    return f"{headline(problem)}: {plain(problem.message)}\n"


def headline(problem: Unrun) -> str:
    """Return which command did not run to its end, and in what way."""
    ways = {"bug": "was ended by a bug", "interrupted": "was interrupted"}
    return f"fairfix {problem.command} {ways.get(problem.code, 'did not run')}"
