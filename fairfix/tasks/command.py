"""Command: how to make one of the repairs that a comparison shows, as a command line or as a call of the library."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from fairfix.data.names import joined_names, shell_line
from fairfix.data.urls import shown_argument
from fairfix.methods.base import Repairer
from fairfix.report.words import option_words
from fairfix.tasks.request import CompareRequest, RepairRequest, parameters_of

OF_NOISE = frozenset(("noise", "assume"))
OF_GROUPS = frozenset(("protected", "bands"))


class Name(str):
    """A value that stands for what is in memory: shown without quotes."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def repair_command(request: CompareRequest, repairer: Repairer, *, shared_ids: bool = False) -> str:
    """Return the command, or the call, that makes a compared repair from the same data with the same draws.

    ``shared_ids``: whether ids repeat, which ``repair`` has to be told.
    """
    own, settings = parameters_of(RepairRequest), {}
    refused = {"data", "threads"}
    refused |= set() if "noise" in repairer.uses else OF_NOISE
    refused |= set() if "features" in repairer.uses or request.model is not None else {"features"}
    refused |= set() if "features" in repairer.uses else {"exclude"}
    if repairer.membership:
        refused = (refused | OF_GROUPS) - {"noise"}
    for name, (default, domain) in parameters_of(CompareRequest).items():
        value = getattr(request, name)
        if name not in own or name in refused or value is None or value == default:
            continue
        if name == "missing" and repairer.membership:
            value = tuple(one for one in value if "=" not in one)
        settings[name] = list(value) if isinstance(value, tuple) else value
        if isinstance(value, tuple) and domain.listed and isinstance(request.data, str):
            settings[name] = joined_names(map(str, value))
        elif domain.kind is object and not all(map(_is_text, value if domain.many else [value])):
            settings[name] = Name(name)
    if shared_ids:
        settings["duplicates"] = "share"
    settings["method"] = repairer.name
    for name, spec in repairer.specs().items():
        value = getattr(repairer, name)
        asked = name == "slack" and repairer.shared_slack is not None
        if (asked or value != spec.default) and name not in settings:
            settings[name] = value
    if not isinstance(request.data, str):
        calls = {name: "inf" if value == math.inf else value for name, value in settings.items()}
        return (
            f"fairfix.repair({', '.join(('data', *(f'{name}={value!r}' for name, value in calls.items())))})"
        )
    return " ".join((f"fairfix repair {shlex.quote(shown_argument(request.data))}", *_options(settings)))


def _is_text(value: Any) -> bool:
    """Whether a value can be written into a call: text, or a mapping of text, and no data."""
    return isinstance(value, str) or (isinstance(value, Mapping) and all(map(_is_text, value.values())))


def _options(settings: Mapping[str, Any]) -> Iterator[str]:
    for name, value in settings.items():
        for one in value if isinstance(value, list) else (value,):
            yield shell_line(
                option_words(name, one if isinstance(one, bool) else shown_argument(str(_shortest(one))))
            )


def _shortest(value: Any) -> Any:
    """Return a number that is whole as such."""
    return int(value) if isinstance(value, float) and value.is_integer() else value
