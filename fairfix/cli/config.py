"""Configuration: a TOML file says what the flags would say.

The file is ``--config FILE``, else the nearest ``fairfix.toml`` from the working folder upwards, else the
table ``[tool.fairfix]`` of the nearest ``pyproject.toml``. Keys are the long options without dashes in
front (``fail-on`` or ``fail_on``). Keys at the top serve every command that has the option; a table named
after a command (``[audit]``) serves that command, ``[repair.ramp]`` the options of one method. A key that no
command knows is an error: a typo must not switch a gate off. ``[[waivers]]`` are tables of their own, which
:mod:`fairfix.auditing.waivers` reads.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from fairfix.errors import ConfigError
from fairfix.tasks.request import AuditRequest, CompareRequest, PredictRequest, RepairRequest, paths_of

FILE_NAME = "fairfix.toml"
PATHS = frozenset(("output", "picture")).union(
    *map(paths_of, (AuditRequest, RepairRequest, CompareRequest, PredictRequest))
)
"""Keys that name files; relative to the configuration file. So are the files of ``out``."""

WAIVERS = "waivers"
"""Key of the tables of waivers."""


@dataclass(frozen=True)
class Config:
    """What a configuration file says: per command, and per repair method, option name -> value; and its waivers."""

    path: Path
    commands: Mapping[str, Mapping[str, Any]]
    methods: Mapping[str, Mapping[str, Any]]
    waivers: Sequence[Any] = ()


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


def load_config(
    path: Path, known: Mapping[str, frozenset[str]], methods: frozenset[str] = frozenset()
) -> Config:
    """Read a configuration file.

    Parameters
    ----------
    known
        Option names (with underscores) of each command.
    methods
        Names of the repair methods, whose tables may stand inside ``[repair]``.

    Raises
    ------
    ConfigError
        The file cannot be read, is not TOML, or holds an unknown key.
    """
    content = _parse(path)
    if path.name == "pyproject.toml":
        content = content.get("tool", {}).get("fairfix", {})
    waivers = content.pop(WAIVERS, [])
    if not isinstance(waivers, list):
        raise ConfigError(f"{path}: {WAIVERS!r} holds tables; write each as [[{WAIVERS}]]")
    commands: dict[str, dict[str, Any]] = {name: {} for name in known}
    shared = {key: value for key, value in content.items() if not (key in known and isinstance(value, dict))}
    for key, value in shared.items():
        name = _name(key)
        takers = [command for command, options in known.items() if name in options]
        if not takers:
            raise ConfigError(
                _unknown(key, "", path, {*known, *(o for options in known.values() for o in options)})
            )
        for command in takers:
            commands[command][name] = _value(name, value, path)
    of_methods: dict[str, dict[str, Any]] = {}
    for command, table in content.items():
        if command not in known or not isinstance(table, dict):
            continue
        plain = {
            key: value for key, value in table.items() if not (key in methods and isinstance(value, dict))
        }
        commands[command] |= _read_table(f"[{command}]", plain, known[command] | methods, path)
        for method in table.keys() - plain.keys():
            of_methods[method] = _read_table(f"[{command}.{method}]", table[method], known[command], path)
    return Config(path, commands, of_methods, waivers)


def _read_table(name: str, table: Mapping[str, Any], options: frozenset[str], path: Path) -> dict[str, Any]:
    """Return the values of a table by option name."""
    for key in table:
        if _name(key) not in options:
            raise ConfigError(_unknown(key, name, path, set(options)))
    return {_name(key): _value(_name(key), value, path) for key, value in table.items()}


def _parse(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ConfigError(f"the configuration file {path} does not exist") from error
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"the configuration file {path} cannot be read: {error}") from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path} is not valid TOML: {error}") from error


def _name(key: str) -> str:
    return key.replace("-", "_")


def _value(name: str, value: Any, path: Path) -> Any:
    """Return a value as the command line would hold it; file names become relative to the file's folder."""
    if name in PATHS and isinstance(value, str):
        return value if Path(value).is_absolute() else str(path.parent / value)
    if name == "out":
        return [_written(one, path) for one in (value if isinstance(value, list) else [value])]
    if isinstance(value, dict):
        raise ConfigError(f"{path}: {name!r} holds a table where a value is expected")
    return value


def _written(text: Any, path: Path) -> Any:
    """Return ``FORMAT=FILE`` with the file relative to the configuration's folder."""
    kind, sign, file = str(text).partition("=")
    return f"{kind}={path.parent / file}" if sign and file else text


def _unknown(key: str, table: str, path: Path, known: set[str]) -> str:
    near = get_close_matches(_name(key), known, 1)
    hint = f"; did you mean {near[0].replace('_', '-')!r}?" if near else ""
    return f"{path}: unknown key {key!r}" + (f" in {table}" if table else "") + hint
