"""Choices: one of a few words, in parameters of requests and in results that are saved.

This module imports nothing, since every ``--help`` needs it.
"""

from __future__ import annotations

from typing import Literal

SEVERAL = ("protected", "strata")
ROLES = (*SEVERAL, "label", "score", "prediction", "probability", "weight", "count", "id")
"""Roles that a user gives to columns, those of several columns first; a column has one role."""

VALUED = ("label", "prediction")
"""Roles of columns whose positive values may be named."""

Task = Literal["classification", "regression"]
Asked = Literal[Task, "multiclass"]
ScoreScale = Literal["probability", "percent", "margin", "logit", "raw"]
MissingGroup = Literal["error", "group", "drop"]
MissingRows = Literal["error", "drop"]
GroupUse = Literal["used", "unused"]
GateOn = Literal["interval", "point"]
Undecided = Literal["exit3", "pass", "fail"]
Unseen = Literal["error", "original", "abstain"]
MissingScore = Literal["error", "abstain"]
Duplicates = Literal["error", "share"]
Probabilities = Literal["joint", "true-given-noisy", "noisy-given-true"]
Form = Literal["count", Probabilities]
Keep = Literal["true-given-noisy", "noisy-given-true"]
ExportTarget = Literal["sql", "onnx", "python", "json"]
Database = Literal["duckdb", "postgresql", "sqlite", "snowflake", "bigquery", "spark"]
# fmt: off
LeftOutReason = Literal[
    "excluded", "repeated", "type", "date", "constant", "leak", "after",
    "group", "score", "output", "index", "id", "text", "numbers",
]
# fmt: on
"""Why a column is no feature."""

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

Operator = Literal["<", "<=", ">", ">="]
"""Comparison of a value with its limit in a check."""

Level = Literal["N0", "N1", "N2", "N3", "N4"]
"""Assumptions about noise in the groups, from the weakest to the strongest."""
