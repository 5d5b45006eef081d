"""Exported programs run on columns: the array interpreter, with columns in the place of a table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from fairfix.data.canonical import canonical
from fairfix.data.merging import MISSING
from fairfix.models.array_interpreter import Block, run
from fairfix.models.program import Rule, Step


def run_program(
    program: Rule, columns: Mapping[str, npt.NDArray[Any]], draws: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    """Return what a program gives rows: column -> floats with NaN for missing, or texts, and the draws, (n,) each."""

    def inputs(step: Step, block: Block) -> Any:
        own = step.settings
        if step.operation == "draw":
            return draws[block]
        entries = columns[own["column"]][block]
        if step.operation == "number":
            return entries.astype(np.float64)
        assert step.operation == "level", "an operation that no reader knows"
        place, merged = {level: i for i, level in enumerate(own["levels"])}, own.get("merged", {})
        texts = (MISSING if one is None or one != one else canonical(one) for one in entries.tolist())
        return np.array([place.get(merged.get(text, text), -1) for text in texts], dtype=float)

    return run(program, inputs, draws.size)
