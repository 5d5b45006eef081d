"""Scripts of the project as modules, for tests of what they compute."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]


def script(path: str) -> ModuleType:
    """Return the module of a script, by its path in the project."""
    name = "script_" + path.removesuffix(".py").replace("/", "_")
    spec = importlib.util.spec_from_file_location(name, ROOT / path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str((ROOT / path).parent))  # scripts import those beside them by their names
        spec.loader.exec_module(module)
    return module
