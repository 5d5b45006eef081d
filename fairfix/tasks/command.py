"""Command: the command line, or the call of the library, that makes a result."""

from __future__ import annotations

import math
import shlex
from collections.abc import Collection, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

from fairfix.data.choices import VALUED
from fairfix.data.domain import parameters_of
from fairfix.data.files import Source
from fairfix.data.names import ValuedColumn, joined_names, shell_line
from fairfix.data.urls import STANDARD, shown_argument
from fairfix.report.words import as_options, option_words
from fairfix.tasks.request import AuditRequest, CompareRequest, RepairRequest, Request

if TYPE_CHECKING:
    from fairfix.methods.base import Repairer

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
    refused = {"data", "threads"}
    refused |= set() if "noise" in repairer.uses else OF_NOISE
    refused |= set() if "features" in repairer.uses or request.model is not None else {"features"}
    refused |= set() if "features" in repairer.uses else {"exclude"}
    if repairer.membership:
        refused = (refused | OF_GROUPS) - {"noise"}
    settings = settings_for(RepairRequest, request, refused)
    if repairer.membership and "missing" in settings:
        settings["missing"] = [one for one in settings["missing"] if "=" not in one]
    if shared_ids:
        settings["duplicates"] = "share"
    settings["method"] = repairer.name
    for name, spec in repairer.domains().items():
        value = getattr(repairer, name)
        asked = name == "slack" and repairer.shared_slack is not None
        if (asked or value != spec.default) and name not in settings:
            settings[name] = value
    return command_of("repair", request.data, settings)


def settings_for(kind: type[Request], request: Request, refused: Collection[str] = ()) -> dict[str, Any]:
    """Return the parameters set by a request that another kind of request has too, as written; without ``refused``."""
    own, settings = parameters_of(kind), dict[str, Any]()
    for name, domain in parameters_of(type(request)).items():
        value = getattr(request, name)
        if name not in own or name in refused or value is None or value == domain.default:
            continue
        texts = domain.kind is not object or all(map(_is_text, value if domain.many else [value]))
        settings[name] = (list(value) if isinstance(value, tuple) else value) if texts else Name(name)
    return settings


LISTED = frozenset(
    name
    for kind in (AuditRequest, RepairRequest, CompareRequest)
    for name, domain in parameters_of(kind).items()
    if domain.listed
)
"""Parameters whose names the command line separates by commas."""


def command_of(task: str, data: Any, settings: Mapping[str, Any]) -> str:
    """Return the command line of a task with these settings, or the call of the library where data is in memory."""
    if not in_memory(data):
        return shell_line(map(shown_argument, _words_of(task, data, settings)))
    arrays = data.as_arrays if isinstance(data, Source) else {}
    alone = bool(arrays) and {*chain(*arrays.values())} == {*data.columns}  # no other data was given
    calls = dict[str, Any]()
    for name, value in settings.items():
        single = name in LISTED and isinstance(value, list) and len(value) == 1
        own = value[0] if single else "inf" if value == math.inf else value
        calls[name] = _as_array(name, own, arrays[name]) if name in arrays else own
    words = (*(() if alone else ("data",)), *(f"{name}={value!r}" for name, value in calls.items()))
    return f"fairfix.{task}({', '.join(words)})"


def _as_array(role: str, value: Any, names: Sequence[str]) -> Any:
    """Return the setting of a role whose columns were arrays with these names, as a call has it."""
    if role in VALUED:
        one = ValuedColumn.parse(value, names, role)
        own = Name(role if one == ValuedColumn(one.column) else f"{{{value!r}: {role}}}")
        return own if one.column in names else value
    return Name(role) if {*([value] if isinstance(value, str) else value)} == {*names} else value


def to_copy(task: str, data: Any, settings: Mapping[str, Any], more: Sequence[str] = ()) -> str:
    """Return what :func:`command_of` does, and ``more`` words; empty where a shell would not take it as shown."""
    line = command_of(task, data, settings)
    if in_memory(data):
        return line
    line = " ".join((line, *map(shell_line, ([shown_argument(one)] for one in more))))
    whole = shlex.split(line) == [*_words_of(task, data, settings), *more] and as_options(line) == line
    return (
        line
        if whole and line.isprintable() and not any(isinstance(v, Name) for v in settings.values())
        else ""
    )


def in_memory(data: Any) -> bool:
    """Whether data is in memory, so that no command line can name it."""
    several = isinstance(data, (list, tuple)) and bool(data) and all(isinstance(one, str) for one in data)
    return not (several or isinstance(data, str))


def _is_text(value: Any) -> bool:
    """Whether a value can be written into a call: text, or a mapping of text, and no data."""
    return isinstance(value, str) or (isinstance(value, Mapping) and all(map(_is_text, value.values())))


def _words_of(task: str, data: Any, settings: Mapping[str, Any]) -> list[str]:
    """Return the words of a command line."""
    named = (data,) if isinstance(data, str) else data
    words = [
        "fairfix",
        task,
        *(f"./{one}" if one.startswith("-") and one != STANDARD else one for one in named),
    ]
    for name, value in settings.items():
        if name in LISTED and isinstance(value, list):
            words += option_words(name, joined_names(map(str, value)))
            continue
        for one in value if isinstance(value, list) else (value,):
            words += option_words(name, one if isinstance(one, bool) else str(_shortest(one)))
    return words


def _shortest(value: Any) -> Any:
    """Return a number that is whole as such."""
    return int(value) if isinstance(value, float) and value.is_integer() else value
