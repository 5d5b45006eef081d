"""Configuration: a TOML file says what the flags would say.

The file is ``--config FILE``, else the nearest ``fairfix.toml`` from the working folder upwards, else the
table ``[tool.fairfix]`` of the nearest ``pyproject.toml``. Keys are the long options without dashes in
front (``gate-on`` or ``gate_on``). Keys at the top serve every command that has the option; a table named
after a command (``[audit]``) serves that command, ``[repair.ramp]`` the options of one method. A key that no
command knows is an error: a typo must not switch a gate off. ``[[waivers]]`` are tables of their own, which
:mod:`fairfix.auditing.waivers` reads. ``model``, ``owner``, ``purpose`` and ``date`` in ``[report]`` are kept with
results.

A file that was found, not named, may be a stranger's: it came with a clone, or lies in a parent folder that others
write to. So it has no key that reaches beyond the files beneath its own folder (:func:`reach`; docs/security.md).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from glob import has_magic
from pathlib import Path
from typing import Any

from fairfix.data.names import nearest
from fairfix.data.noise_spec import file_of, with_file
from fairfix.data.targets import refused_below
from fairfix.data.urls import STANDARD, scheme_of
from fairfix.errors import ConfigError, DataError
from fairfix.report.words import SETTINGS
from fairfix.tasks.request import (
    RECORD,
    AuditRequest,
    CompareRequest,
    CountRequest,
    ExploreRequest,
    PredictRequest,
    RepairRequest,
    paths_of,
)

FILE_NAME = "fairfix.toml"
NO_CONFIG = "none"
"""Named in place of a file so that none is read."""

PATHS = frozenset(("output",)).union(
    *map(
        paths_of, (AuditRequest, RepairRequest, CompareRequest, ExploreRequest, CountRequest, PredictRequest)
    )
)
"""Keys that name files; relative to the configuration file. So are the files of ``out`` and ``noise``."""

WRITTEN = ("output",)
"""Options that name a file to write; so do the entries of ``out``."""

GROWN = ("state",)
"""Options that name counts which are read and written again."""

CODE, DATABASE = "a model file can be code", "it queries a database with your credentials"
CLUSTER = "it starts processes, or uses remote ones, which run code with your permissions"
NAMED: Mapping[str, str] = {
    "model": CODE,
    "trust_model": CODE,
    "sql": DATABASE,
    "cluster": CLUSTER,
    "log": "it sends the result elsewhere, with your permissions",
}
"""Keys that only a file has which the user named, and why."""


def names_file(name: str, value: Any) -> bool:
    """Tell whether the value of an option names a file; that of ``holdout`` may be a fraction."""
    if name not in PATHS or value is None:
        return False
    try:
        return name != "holdout" or not math.isfinite(float(value))
    except (TypeError, ValueError):
        return True


READ = ("result", *sorted(PATHS.difference(WRITTEN)), "noise", "similar")
"""Options that may name what is read."""


def files_named(name: str, setting: Any) -> list[str]:
    """Return the files that an option of :data:`READ`, or one to write, names by its value."""
    texts = list(map(str, setting)) if isinstance(setting, (list, tuple)) else [str(setting)]
    if name == "noise":
        return list(filter(None, (file_of(text)[0] for text in texts)))
    if name == "similar":
        from fairfix.tasks.similar import files_in

        return files_in(texts)
    return texts if name == "result" or names_file(name, setting) else []


WAIVERS = "waivers"
"""Key of the tables of waivers."""


@dataclass(frozen=True)
class Config:
    """Content of a configuration file: options by command and by method, waivers, and the record kept with results.

    ``shared`` are the options at its top.
    """

    path: Path
    commands: Mapping[str, Mapping[str, Any]]
    methods: Mapping[str, Mapping[str, Any]]
    waivers: Sequence[Any] = ()
    record: Mapping[str, str] = field(default_factory=dict)
    shared: Mapping[str, Any] = field(default_factory=dict)


def find_config(start: Path) -> Path | None:
    """Return the nearest configuration file from a folder upwards, None when there is none."""
    for folder in (start, *start.parents):
        if (own := folder / FILE_NAME).is_file():
            return own
    for folder in (start, *start.parents):
        project = folder / "pyproject.toml"
        if project.is_file() and "fairfix" in _parse(project).get("tool", {}):
            return project
    return None


def load_config(path: Path, options: Mapping[str, frozenset[str]], methods: frozenset[str]) -> Config:
    """Read a configuration file.

    Parameters
    ----------
    options
        Option names (with underscores) of each command.
    methods
        Names of the repair methods, whose tables may stand inside those of commands.

    Raises
    ------
    ConfigError
        The file cannot be read, is not TOML, or holds an unknown key.
    """
    content = _content(path)
    waivers = content.pop(WAIVERS, [])
    if not isinstance(waivers, list):
        raise ConfigError(f"{path}: {WAIVERS!r} holds tables; write each as [[{WAIVERS}]]")
    tables = _taken(content, options)
    tables |= _taken(content, ["report"])
    shown = tables.get("report", {})
    record = {name: str(shown.pop(name)) for name in RECORD if name in shown}
    if shown and "report" not in options:
        raise ConfigError(
            f"{path}: unknown key {next(iter(shown))!r} in [report]; it has {', '.join(RECORD)}"
        )
    shared = _settings("", content, frozenset().union(*options.values()), path, options)
    commands, of_methods = {}, {}
    for command, own in options.items():
        table = tables.get(command, {})
        nested = _taken(table, methods)
        commands[command] = {name: value for name, value in shared.items() if name in own}
        commands[command] |= _settings(f"[{command}]", table, own, path, methods)
        for method, inner in nested.items():
            of_methods[method] = _settings(f"[{command}.{method}]", inner, own | SETTINGS, path)
    return Config(path, commands, of_methods, waivers, record, shared)


def reach(path: Path, settings: Mapping[str, Any], command: str) -> Iterator[tuple[str, str]]:
    """Yield (option, why) of what a file that was found cannot say; ``settings`` are those of the command that runs."""
    folder = path.resolve().parent
    for name, setting in settings.items():
        outs = [text.partition("=") for text in setting] if name == "out" else []
        places = [place for _, _, place in outs] or files_named(name, setting)
        if name in NAMED:
            yield name, NAMED[name]
        elif any(map(scheme_of, places)):
            yield name, "a URL is requested with your permissions"
        elif name in (*WRITTEN, *GROWN) or outs:
            kinds = [kind for kind, _, _ in outs] or ["count" if name in GROWN else command]
            each = zip(kinds, places, strict=True)
            refusals = (refused_below(folder, Path(to), _endings(name, kind)) for kind, to in each if to)
            if why := next(filter(None, refusals), ""):
                yield name, why
        elif outside := next((one for one in places if not _is_below(folder, one)), None):
            yield name, f"{outside!r} is outside {folder}, after following links"


def _is_there(folder: Path, text: str) -> bool:
    """Return whether a text names a file, a folder or a pattern, or a table of a file behind ``#``."""
    return has_magic(text) or any((folder / one).exists() for one in (text, text.rpartition("#")[0] or text))


def _is_below(folder: Path, text: str) -> bool:
    """Return whether a path is beneath a folder, and each file of the folder or pattern that it names.

    Links are followed: a pattern, and a link in a folder, can lead to files elsewhere. So is a table behind ``#``.
    """
    from fairfix.data.opening import paths_of as files_of

    named = {text, text.rpartition("#")[0] or text}
    files = [Path(one) for one in named]
    for one in named:
        with suppress(DataError):  # there is none
            files += files_of(one)
    return all(path.resolve().is_relative_to(folder) for path in files)


def _endings(name: str, kind: str) -> Sequence[str]:
    """Return how names of files end that an option writes, of a format or by a command."""
    if name == "out":
        from fairfix.report import endings

        return endings(kind)
    if name == "output" and kind == "predict":
        from fairfix.data.recognition import table_endings

        return table_endings()
    return {"count": (".counts",), "explore": (".html",)}.get(kind, (".fairfix",))


def unchecked(path: Path, command: str) -> dict[str, Any]:
    """Return what a configuration file says for a command, whatever keys it has: for a run that stops before."""
    content = _content(path)
    own = content.get(command)
    merged = {**content, **(own if isinstance(own, dict) else {})}
    paths = {"out": _value("out", merged["out"], path)} if "out" in merged else {}
    return {**{_name(key): value for key, value in merged.items()}, **paths}


def _beside(text: str, path: Path) -> str:
    """Return a text of ``similar`` with its file, if one is there, relative to the configuration's folder."""
    name, sign, rest = text.partition("(directions=")
    there = path.parent / name
    return f"{there}{sign}{rest}" if not Path(name).is_absolute() and there.exists() else text


def _taken(table: dict[str, Any], names: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Take the tables of these names out of a table."""
    return {name: table.pop(name) for name in names if isinstance(table.get(name), dict)}


def _settings(
    where: str, table: Mapping[str, Any], options: frozenset[str], path: Path, tables: Iterable[str] = ()
) -> dict[str, Any]:
    """Return the values of a table by option name; ``tables`` are the names that tables inside it may have."""
    for key in table:
        if _name(key) not in options:
            near = nearest(_name(key), sorted({*options, *tables}))
            hint = f"; did you mean {near[0].replace('_', '-')!r}?" if near else ""
            hint = "; write it into [repair.METHOD]" if _name(key) in SETTINGS else hint
            raise ConfigError(f"{path}: unknown key {key!r}{f' in {where}' if where else ''}{hint}")
    return {_name(key): _value(_name(key), value, path) for key, value in table.items()}


def _content(path: Path) -> dict[str, Any]:
    """Return what a file says of fairfix."""
    content = _parse(path)
    return content if path.name != "pyproject.toml" else content.get("tool", {}).get("fairfix", {})


def _parse(path: Path) -> dict[str, Any]:
    import tomllib

    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
        _check_numbers(content)
    except FileNotFoundError as error:
        raise ConfigError(f"the configuration file {path} does not exist") from error
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"the configuration file {path} cannot be read: {error}") from error
    except RecursionError as error:
        raise ConfigError(f"{path} is not valid TOML: it is nested too deeply") from error
    except ValueError as error:  # a number of more digits than Python reads is no TOMLDecodeError
        raise ConfigError(f"{path} is not valid TOML: {error}") from error
    return content


def _check_numbers(content: Any) -> None:
    """Raise a ValueError for a whole number that is too large for what computes with it."""
    for entry in content.values() if isinstance(content, dict) else content:
        if isinstance(entry, (dict, list)):
            _check_numbers(entry)
        elif isinstance(entry, int) and abs(entry) >= 1 << 64:
            raise ValueError("it contains a whole number of 2^64 or more")


def _name(key: str) -> str:
    return key.replace("-", "_")


def _beneath(folder: Path, file: str) -> str:
    """Return a file name relative to a folder, unless it is no relative one."""
    kept = file == STANDARD or scheme_of(file) or Path(file).is_absolute()
    return file if kept else str(folder / file)


def _value(name: str, value: Any, path: Path) -> Any:
    """Return a value as the command line would hold it; file names become relative to the file's folder."""
    if names_file(name, value) and not isinstance(
        value, (str, list)
    ):  # a list is refused as of all that take one value
        raise ConfigError(
            f"{path}: {name.replace('_', '-')!r} is {value}; write the name of the file as a text"
        )
    if names_file(name, value) and isinstance(value, str):
        column = name == "baseline" and not _is_there(path.parent, value)
        return value if column else _beneath(path.parent, value)
    texts = list(map(str, value if isinstance(value, list) else [value]))
    if name == "noise":
        return [with_file(text, partial(_beneath, path.parent)) for text in texts]
    if name == "similar":  # forms, values of columns, and files
        return [_beside(text, path) for text in texts]
    if name == "out":  # FORMAT=FILE
        written = [text.partition("=") for text in texts]
        return [
            f"{kind}={file if scheme_of(file) else path.parent / file}" if file else kind + sign
            for kind, sign, file in written
        ]
    if isinstance(value, dict):
        raise ConfigError(f"{path}: {name!r} holds a table where a value is expected")
    return value
