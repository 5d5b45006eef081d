"""Words for the outcome of a check, which the audit gives and a saved result holds."""

from __future__ import annotations

from typing import Literal

Code = Literal[
    "beyond_limit",
    "within_limit",
    "limit_inside",
    "within_error",
    "unchanged",
    "group_undefined",
    "value_undefined",
    "not_computed",
    "not_shown",
    "not_comparable",
    "few_common_rows",
    "fit_only",
    "not_proven",
]
"""Why a check has its verdict."""

Severity = Literal["error", "warning", "note", "none"]
"""Level of a verdict."""
