"""Reports: one file per format, all rendered from the JSON form.

Every format reads the JSON form of a result only, so a saved one can be rendered again later. A format is a module here
with ``render(result, ...) -> str``.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

from fairfix.report.words import as_options

FORMATS = ("text", "json", "markdown", "html", "junit", "github", "sarif")
"""Names of the formats; each is the module ``fairfix.report.NAME_``."""

GATED = ("junit", "github", "sarif")
"""Formats that tell of checks, for CI; a comparison has none."""

NO_CHECKS = (
    "a comparison of methods gates nothing, so it has no checks for {name}; take text, json, markdown or html"
)


def renderer(name: str) -> Callable[..., str]:
    """Return the function that renders a result's JSON form; all but JSON write parameters as options."""
    render: Callable[..., str] = import_module(f"fairfix.report.{name}_").render
    if name == "json":
        return render
    return lambda result, **settings: render(as_options(result), **settings)
