"""Export: a repaired predictor for other systems."""

from __future__ import annotations

from fairfix.errors import UsageError
from fairfix.models.export import export as exported
from fairfix.models.repaired import Repaired
from fairfix.tasks.request import ExportRequest, function_of


def export_of(request: ExportRequest) -> str | bytes:
    """Return what a request asks for.

    Raises
    ------
    UsageError, ArtifactError
        The artifact is damaged, or the form cannot hold its rule.
    """
    if request.artifact is None:
        raise UsageError("name the `artifact`")
    artifact = getattr(request.artifact, "repaired", request.artifact)
    repaired = artifact if isinstance(artifact, Repaired) else Repaired.load(artifact)
    return exported(repaired, request.to, dialect=request.dialect, table=request.table)


def _export(request: ExportRequest) -> str | bytes:
    """Turn a repaired predictor into SQL, ONNX, a Python script or JSON, which need no fairfix where they run.

    Returns
    -------
    Text; bytes of an ONNX model.

    Raises
    ------
    UsageError, ArtifactError
        The artifact is damaged, or the form cannot hold its rule.
    """
    return export_of(request)


export = function_of("export", ExportRequest, _export)
