"""A saved repair for other systems: a query of SQL, an ONNX model, a Python script, or JSON for readers of one's own.

All of them are the rule's own :mod:`program <fairfix.models.program>`, of the simple steps to which
:mod:`fairfix.models.export.lowering` brings it. None needs fairfix where it runs.
"""

from __future__ import annotations

import json
from importlib import resources
from typing import Any

from fairfix import __version__
from fairfix.data.choices import Database, ExportTarget
from fairfix.errors import UsageError
from fairfix.models.export.lowering import Exported, exported
from fairfix.models.export.vectors import vectors
from fairfix.models.repaired import SCHEME, Repaired

FORMAT = "fairfix.program/1"


def document(repaired: Repaired, program: Exported) -> dict[str, Any]:
    """Return the JSON form: the program, how rows are drawn, and vectors to test a reader with."""
    data_spec, predictor = repaired.data_spec, repaired.predictor
    cut = data_spec.cut if predictor.gives == "value" and data_spec.thresholds else None
    return {
        "format": FORMAT,
        "fairfix": __version__,
        "method": repaired.method,
        "gives": predictor.gives,
        "cut": cut,
        "inputs": dict(program.inputs),
        "steps": [one.plain for one in program.steps],
        "result": program.result,
        "draw": {
            "scheme": SCHEME,
            "key": repaired.key.hex(),
            "identity": dict(repaired.identity),
            "by_id": data_spec.columns.id is not None,
        },
        "vectors": vectors(repaired, program),
    }


def export(
    repaired: Repaired, to: ExportTarget, *, dialect: Database = "duckdb", table: str = "data"
) -> str | bytes:
    """Return a repair in another form. Only ONNX gives bytes.

    Parameters
    ----------
    dialect, table
        Of a query: the database, and the table that it reads.

    Raises
    ------
    UsageError
        The form cannot hold the rule, or needs a package that is not installed.
    """
    program = exported(repaired)
    name = repaired.output.names[0]
    if to == "onnx":
        from fairfix.models.export.onnx_ import model

        return model(program.steps, program.result, name, program.inputs, drawn=program.drawn)
    if to == "sql":
        return _query(repaired, program, name, dialect, table)
    whole = document(repaired, program)
    if to == "json":
        return json.dumps(whole, allow_nan=False) + "\n"
    source = resources.files("fairfix.models").joinpath("standalone.py").read_text(encoding="utf-8")
    text = json.dumps(json.dumps(whole, allow_nan=False))  # a text of ASCII that Python reads as it is
    return source.replace(
        "PROGRAM: Mapping[str, Any] = {}", f"PROGRAM: Mapping[str, Any] = json.loads({text})"
    )


def _query(repaired: Repaired, program: Exported, name: str, dialect: Database, table: str) -> str:
    from fairfix.models.export.sql import query

    taken = [one for one in repaired.required if one.lower().startswith("fairfix_") or one == name]
    if taken:
        raise UsageError(
            f"column {taken[0]!r} has a name that the query needs for itself; rename it and repair again"
        )
    beside = dict.fromkeys(
        (*([repaired.data_spec.columns.id] if repaired.data_spec.columns.id else ()), *program.inputs)
    )
    head = [f"-- fairfix {__version__}: {name} of a repair by {repaired.method}, for {dialect}"]
    if program.drawn:
        head.append("-- fairfix_draw: the draw of each row, see docs/export.md")
    return "\n".join((*head, query(program.steps, {name: program.result}, tuple(beside), table, dialect)))
