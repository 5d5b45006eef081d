"""fairfix: audit tabular models for unfairness and repair them.

The public names are loaded when they are first used, so that ``import fairfix`` and the command line start
without numpy::

    import fairfix

    reading = fairfix.Reading(fairfix.Columns(protected=("race",), label="label", score="score"))
    report = fairfix.audit("loans.parquet", reading)
    table = fairfix.read_table("loans.parquet", reading)
    outcome = fairfix.repair_table(table, fairfix.methods()["ramp"](gamma=0.05))
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from fairfix.auditor import audit
    from fairfix.checks import Check
    from fairfix.engine import read_table
    from fairfix.errors import ArtifactError, DataError, FairfixError, ModelError, UsageError
    from fairfix.findings import AuditReport, Settings
    from fairfix.proof import Outcome, repair_table
    from fairfix.repair import Repairer, RepairProblem, methods
    from fairfix.repaired import Repaired
    from fairfix.table import Columns, Reading, Table

_HOME = {
    "ArtifactError": "errors",
    "AuditReport": "findings",
    "Check": "checks",
    "Columns": "table",
    "DataError": "errors",
    "FairfixError": "errors",
    "ModelError": "errors",
    "Outcome": "proof",
    "Reading": "table",
    "RepairProblem": "repair",
    "Repaired": "repaired",
    "Repairer": "repair",
    "Settings": "findings",
    "Table": "table",
    "UsageError": "errors",
    "audit": "auditor",
    "methods": "repair",
    "read_table": "engine",
    "repair_table": "proof",
}

__all__ = [
    "ArtifactError",
    "AuditReport",
    "Check",
    "Columns",
    "DataError",
    "FairfixError",
    "ModelError",
    "Outcome",
    "Reading",
    "RepairProblem",
    "Repaired",
    "Repairer",
    "Settings",
    "Table",
    "UsageError",
    "audit",
    "methods",
    "read_table",
    "repair_table",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'fairfix' has no attribute {name!r}")
    return getattr(import_module(f"fairfix.{_HOME[name]}"), name)
