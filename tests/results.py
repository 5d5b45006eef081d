"""Results for tests: as dictionaries, to look into and to change, and rendered from these."""

from __future__ import annotations

from io import BytesIO
from typing import Any
from zipfile import ZipFile

from fairfix.report import FORMATS, renderer
from fairfix.schema import checked, to_dict
from fairfix.schema.audit import Audit
from fairfix.schema.common import SavedResult


def struct(result: Any) -> SavedResult:
    """A result, also given as a dictionary."""
    made = result if isinstance(result, SavedResult) else checked(result)
    assert isinstance(made, SavedResult)
    return made


FILES = tuple(name for name in FORMATS if name != "pdf")
"""Formats that need no browser."""


def text_of(made: str | bytes) -> str:
    """The texts of a report in any format: of a workbook its parts, of a PDF what is not packed."""
    if isinstance(made, str):
        return made
    if not made.startswith(b"PK"):
        return made.decode("latin-1" if made.startswith(b"%PDF") else "utf-8")
    with ZipFile(BytesIO(made)) as file:
        return "".join(file.read(name).decode("utf-8") for name in file.namelist())


def rendered(name: str, result: Any, **settings: Any) -> str:
    """A report of a result, also of one given as a dictionary."""
    return text_of(renderer(name)(struct(result), **settings))


def audit_dict(result: Audit) -> dict[str, Any]:
    """The result of an audit as a dictionary."""
    return to_dict(result)


def texts_of(result: dict[str, Any], severity: str = "") -> list[str]:
    """The texts of the messages of a result, or of those of a severity."""
    return [one["text"] for one in result["messages"] if severity in ("", one["severity"])]
