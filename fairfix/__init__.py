"""fairfix: audit tabular models for unfairness and repair them.

The public names are loaded when they are first used, so that ``import fairfix`` and the command line start
without numpy::

    import fairfix

    reading = fairfix.Reading(fairfix.Columns(protected=("race",), label="label", score="score"))
    report = fairfix.audit("loans.parquet", reading)
    table = fairfix.read_table("loans.parquet", reading)
    outcome = fairfix.repair_table(table, fairfix.methods.available()["ramp"](gamma=0.05))
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from fairfix import methods
    from fairfix.auditing.audit import audit
    from fairfix.auditing.checks import Check
    from fairfix.auditing.results import AuditReport, Settings
    from fairfix.data.reading import Columns, Reading
    from fairfix.data.scan import read_table
    from fairfix.data.table import Table
    from fairfix.errors import ArtifactError, DataError, FairfixError, ModelError, UsageError
    from fairfix.methods.base import Repairer, RepairProblem
    from fairfix.models.repaired import Repaired
    from fairfix.tasks.proof import Outcome, repair_table

_HOME = {
    "ArtifactError": "errors",
    "AuditReport": "auditing.results",
    "Check": "auditing.checks",
    "Columns": "data.reading",
    "DataError": "errors",
    "FairfixError": "errors",
    "ModelError": "errors",
    "Outcome": "tasks.proof",
    "Reading": "data.reading",
    "RepairProblem": "methods",
    "Repaired": "models.repaired",
    "Repairer": "methods",
    "Settings": "auditing.results",
    "Table": "data.table",
    "UsageError": "errors",
    "audit": "auditing.audit",
    "methods": "methods",
    "read_table": "data.scan",
    "repair_table": "tasks.proof",
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
    module = import_module(f"fairfix.{_HOME[name]}")
    return module if name == "methods" else getattr(module, name)
