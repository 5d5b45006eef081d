"""fairfix: audit tabular models for unfairness and repair them.

The public names are loaded when they are first used, so that ``import fairfix`` and the command line start
without numpy::

    import fairfix

    result = fairfix.audit("loans.parquet", protected="race", check="dp.difference<=0.1")
    repair = fairfix.repair("loans.parquet", protected="race", method="ramp", slack=0.02)
    decided = fairfix.predict(repair, "new.parquet").to_pandas()
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from fairfix import methods
    from fairfix.auditing.checks import Check
    from fairfix.auditing.countfile import CountFile
    from fairfix.auditing.results import Settings
    from fairfix.data.data_spec import ColumnRoles, DataSpec
    from fairfix.data.scan import read_table
    from fairfix.data.table import Table
    from fairfix.errors import ArtifactError, DataError, FairfixError, ModelError, UsageError
    from fairfix.methods.base import Repairer
    from fairfix.methods.problem import RepairProblem
    from fairfix.models.repaired import Repaired
    from fairfix.tasks.audit import AuditResult, audit
    from fairfix.tasks.compare import CompareResult, compare
    from fairfix.tasks.count import count
    from fairfix.tasks.explore import Explored, explore
    from fairfix.tasks.export import export
    from fairfix.tasks.fit_and_evaluate import Outcome, repair_table
    from fairfix.tasks.predict import load, predict
    from fairfix.tasks.repair import RepairResult, repair
    from fairfix.tasks.slices import SlicesResult, slices

_HOMES = {
    "auditing.checks": "Check",
    "auditing.countfile": "CountFile",
    "auditing.results": "Settings",
    "data.data_spec": "ColumnRoles DataSpec",
    "data.scan": "read_table",
    "data.table": "Table",
    "errors": "ArtifactError DataError FairfixError ModelError UsageError",
    "methods": "RepairProblem Repairer methods",
    "models.repaired": "Repaired",
    "tasks.audit": "AuditResult audit",
    "tasks.compare": "CompareResult compare",
    "tasks.count": "count",
    "tasks.explore": "Explored explore",
    "tasks.export": "export",
    "tasks.fit_and_evaluate": "Outcome repair_table",
    "tasks.predict": "load predict",
    "tasks.repair": "RepairResult repair",
    "tasks.slices": "SlicesResult slices",
}
_HOME = {name: module for module, names in _HOMES.items() for name in names.split()}

__all__ = [
    "ArtifactError",
    "AuditResult",
    "Check",
    "ColumnRoles",
    "CompareResult",
    "CountFile",
    "DataError",
    "DataSpec",
    "Explored",
    "FairfixError",
    "ModelError",
    "Outcome",
    "RepairProblem",
    "RepairResult",
    "Repaired",
    "Repairer",
    "Settings",
    "SlicesResult",
    "Table",
    "UsageError",
    "audit",
    "compare",
    "count",
    "explore",
    "export",
    "load",
    "methods",
    "predict",
    "read_table",
    "repair",
    "repair_table",
    "slices",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'fairfix' has no attribute {name!r}")
    module = import_module(f"fairfix.{_HOME[name]}")
    return module if name == "methods" else getattr(module, name)
