"""Choices: parameters that are one of a few words, which requests offer and the rooms below them act on.

This module imports nothing, since every ``--help`` needs it.
"""

from __future__ import annotations

from typing import Literal

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
