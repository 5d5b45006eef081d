"""Guide: the columns of the data, what each may be by its name, and the command to copy; the end of a first error.

Nothing is read but the names and types of the columns, and nothing is decided by it: which groups matter is for people
to say.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

import pyarrow as pa

from fairfix.data.files import Source
from fairfix.data.names import joined_names, nearest
from fairfix.data.reading import DECISIONS, LABELS, SCORES
from fairfix.data.urls import shown_argument
from fairfix.tasks.request import DataRequest, parameters_of

GROUPS = frozenset(
    (
        *("race", "ethnicity", "ethnic", "sex", "gender", "age", "religion", "disability", "disabled"),
        *(
            "nationality",
            "citizenship",
            "marital",
            "veteran",
            "orientation",
            "pregnancy",
            "foreign",
            "origin",
        ),
    )
)
OUTCOMES = frozenset(
    (
        *("label", "outcome", "target", "class", "default", "defaulted", "approved", "hired", "repaid"),
        *("paid", "churn", "truth", "recid", "readmitted", "y"),
    )
)
OUTPUTS = frozenset(("score", "scores", "prob", "proba", "probability", "risk", "yhat", "pred", "predicted"))
"""Words in the names of protected columns, of labels and of a model's outputs."""

IDENTITY = re.compile(r"(^|_)(id|uuid|key)$")
SHOWN = 40
ROLES = ("protected", "label", "score", "prediction", "probability", "weight", "strata", "id")


def guide(request: DataRequest, source: Source) -> str:
    """Return the lines that follow an error about columns."""
    given = {role: names for role in ROLES if (names := _named(request, role, source.columns))}
    named = [name for names in given.values() for name in names]
    free = [name for name in source.columns if name not in named]
    roles = {**_guessed(request, source, free, given), **given}
    shown = {role: names for role, names in roles.items() if names}
    listed = {name for names in shown.values() for name in names}
    others = [name for name in source.columns if name not in listed]
    lines = [f"{source.name} has {len(source.columns)} columns:"]
    for role, names in shown.items():
        lines.append(f"  {'' if role in given else 'perhaps '}{role}: {_some(names)}")
    if others:
        lines.append(f"  others: {_some(others)}")
    return "\n".join((*lines, f"to copy: {_command(request, source, given, roles)}"))


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:SHOWN]) + (f" and {len(names) - SHOWN} more" if len(names) > SHOWN else "")


def _named(request: DataRequest, role: str, columns: Sequence[str]) -> list[str]:
    """Return the columns that are given to a role, with the nearest for a name that is not there."""
    value = getattr(request, role, None) or ()
    names = [value] if isinstance(value, str) else list(value)
    near = [[name] if name in columns else nearest(name, columns) for name in names]
    return list(dict.fromkeys(chain.from_iterable(near)))


def _words(name: str) -> set[str]:
    """Return the words of a name: ``ageBand`` and ``age_band`` have two."""
    return {word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name)}


def _guessed(
    request: DataRequest, source: Source, free: Sequence[str], given: Mapping[str, list[str]]
) -> dict[str, list[str]]:
    """Return what the free columns may be by their names."""
    numbers = {f.name for f in source.schema if pa.types.is_integer(f.type) or pa.types.is_floating(f.type)}
    label = [name for name in LABELS if name in free] or [name for name in free if _words(name) & OUTCOMES]
    score = [name for name in SCORES if name in free]
    score = score or [name for name in free if name in numbers and _words(name) & OUTPUTS]
    groups = [name for name in free if _words(name) & GROUPS and name not in (*label, *score)]
    groups.sort(key=lambda name: name in numbers)  # numbers make many groups, so they come last
    made = request.model is not None or any(role in given for role in ("score", "prediction", "probability"))
    ids = [name for name in free if IDENTITY.search(name.lower()) and name not in (*label, *score, *groups)]
    return {"protected": groups, "label": label, "score": [] if made else score, "id": ids}


def _command(
    request: DataRequest, source: Source, given: Mapping[str, list[str]], roles: Mapping[str, list[str]]
) -> str:
    """Return the command with what was asked for and what is guessed, or the call where the data are in memory."""
    settings: dict[str, Any] = {name: joined_names(names) for name, names in given.items()}
    if "protected" not in given and not getattr(request, "parameters", {}).get("protected_number"):
        kinds = {f.name: f.type for f in source.schema}
        numbers = [n for n, kind in kinds.items() if pa.types.is_floating(kind) or pa.types.is_integer(kind)]
        plain = [n for n in roles["protected"] if n not in numbers]
        settings["protected"] = joined_names(plain or roles["protected"][:1]) or "COLUMN"
    for role, usual in (("label", LABELS), ("score", SCORES)):
        names = () if role in given else roles[role]
        if names and sum(name in names for name in usual) != 1:
            decides = names[0] in DECISIONS and not pa.types.is_floating(source.schema.field(names[0]).type)
            settings["prediction" if decides else role] = names[0]
    for name, (default, domain) in parameters_of(type(request)).items():
        value = getattr(request, name)
        if name in request.explicit and name not in ROLES and not domain.positional and value != default:
            many = isinstance(value, tuple)
            settings[name] = joined_names(map(str, value)) if many and domain.listed else value
    defaults = _usual(getattr(request, "method", None))
    for name, value in getattr(request, "parameters", {}).items():
        if value is not None and str(value) != defaults.get(name):
            joined = isinstance(value, (list, tuple)) and isinstance(request.data, str)
            settings[name] = joined_names(map(str, value)) if joined else value
    task = type(request).__name__.removesuffix("Request").lower()
    if not isinstance(request.data, str):
        return f"fairfix.{task}({', '.join(('data', *_arguments(settings)))})"
    return " ".join((f"fairfix {task} {shlex.quote(shown_argument(request.data))}", *_options(settings)))


def _usual(method: str | None) -> dict[str, str]:
    """Return the parameters of a method with their defaults as texts, which the command line gives too."""
    from fairfix.methods import available  # an audit does without

    return {one.name: str(one.default) for one in available()[method].parameter_fields()} if method else {}


def _options(settings: Mapping[str, Any]) -> Iterator[str]:
    """Yield parameters, which the command line shows as options."""
    for name, value in settings.items():
        for one in value if isinstance(value, tuple) else (value,):
            yield f"`{name}`" if one is True else f"`{name}={one}`"


def _arguments(settings: Mapping[str, Any]) -> Iterator[str]:
    for name, value in settings.items():
        several = name in ("protected", "strata", "features") and isinstance(value, str) and "," in value
        yield f"{name}={value.split(',') if several else value!r}"
