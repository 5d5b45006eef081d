"""Modules that other libraries import and nobody here uses: a run of the command line loads them when one does.

:mod:`scipy.special` takes whatever numpy has, so it imports the wrapper of Fortran and the tools for tests: half of
what it costs.
"""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import LazyLoader
from typing import Any

UNUSED = frozenset(("numpy.f2py", "numpy.testing"))


class _Later:
    """Finds the unused modules, and has each run when something of it is asked for."""

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """Return how a module is loaded; None where it is not one of ours."""
        spec = PathFinder.find_spec(fullname, path) if fullname in UNUSED else None
        if spec is not None and spec.loader is not None:
            spec.loader = LazyLoader(spec.loader)
        return spec


def load_unused_later() -> None:
    """Change how the unused modules are imported, in this process."""
    sys.meta_path.insert(0, _Later())
