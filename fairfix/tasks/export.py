"""Export: a repaired predictor for other systems."""

from __future__ import annotations

from fairfix.errors import UsageError
from fairfix.models.export import export as exported
from fairfix.tasks.predict import repaired_of
from fairfix.tasks.request import ExportRequest, function_of


def export_of(request: ExportRequest) -> str | bytes:
    """Turn a repaired predictor into SQL, ONNX, a Python script or JSON, which need no fairfix where they run.

    Returns
    -------
    Text; bytes of an ONNX model.

    Raises
    ------
    UsageError, ArtifactError
        The artifact is damaged, or the form cannot hold its rule.
    """
    if request.artifact is None:
        raise UsageError("name the `artifact`")
    repaired = repaired_of(request.artifact)
    try:
        return exported(repaired, request.to, dialect=request.dialect, table=request.table)
    except UsageError as error:
        if not isinstance(request.artifact, str):
            raise
        raise UsageError(f"{request.artifact}: {error}") from None


export = function_of("export", ExportRequest, export_of)
