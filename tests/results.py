"""Results for tests: as dictionaries, to look into and to change, and rendered from these."""

from __future__ import annotations

from typing import Any

from fairfix.report import renderer
from fairfix.schema import checked
from fairfix.schema.audit import Audit
from fairfix.schema.common import SavedResult
from fairfix.schema.written import to_dict


def struct(result: Any) -> SavedResult:
    """A result, also given as a dictionary."""
    made = result if isinstance(result, SavedResult) else checked(result)
    assert isinstance(made, SavedResult)
    return made


def rendered(name: str, result: Any, **settings: Any) -> str:
    """A report of a result, also of one given as a dictionary."""
    return renderer(name)(struct(result), **settings)


def audit_dict(result: Audit) -> dict[str, Any]:
    """The result of an audit as a dictionary."""
    return to_dict(result)


def texts_of(result: dict[str, Any], severity: str = "") -> list[str]:
    """The texts of the messages of a result, or of those of a severity."""
    return [one["text"] for one in result["messages"] if severity in ("", one["severity"])]
