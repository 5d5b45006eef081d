"""The repair methods: every module of this folder is searched for subclasses of Repairer.

A sixth method is one new file here; the command line, the artifact loader, the docs table and the contract
tests find it by :func:`available`.
"""

from __future__ import annotations

from importlib import import_module
from inspect import isabstract
from pkgutil import iter_modules

from fairfix.methods.base import Repairer, RepairProblem

__all__ = ["RepairProblem", "Repairer", "available"]


def available() -> dict[str, type[Repairer]]:
    """Return every method by its name, sorted."""
    found: dict[str, type[Repairer]] = {}
    for info in iter_modules(__path__, prefix=f"{__name__}."):
        module = import_module(info.name)
        for thing in vars(module).values():
            if isinstance(thing, type) and issubclass(thing, Repairer) and not isabstract(thing):
                found[thing.name] = thing
    return dict(sorted(found.items()))
