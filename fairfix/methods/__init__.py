"""The repair methods: every module of this folder is searched for subclasses of Repairer.

A sixth method is one new file here; the command line, the artifact loader, the docs table and the contract
tests find it by :func:`available`.
"""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

from fairfix.methods.base import Repairer
from fairfix.methods.problem import RepairProblem

__all__ = ["RepairProblem", "Repairer", "available"]


def available() -> dict[str, type[Repairer]]:
    """Return every method by its name, sorted."""
    methods: dict[str, type[Repairer]] = {}
    for info in iter_modules(__path__, prefix=f"{__name__}."):
        for member in vars(import_module(info.name)).values():
            if isinstance(member, type) and issubclass(member, Repairer) and "name" in vars(member):
                methods[member.name] = member
    return dict(sorted(methods.items()))
