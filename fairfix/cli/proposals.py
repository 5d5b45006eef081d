"""Proposals: whole lines to copy in place of a line that cannot be run, where its meaning is known.

The words of other tools are in :mod:`fairfix.tasks.synonyms`.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from difflib import get_close_matches
from os.path import commonprefix
from pathlib import Path

import click

from fairfix.data.names import joined_names, split_names, with_values
from fairfix.data.urls import STANDARD, hidden, is_database, scheme_of, shown_argument
from fairfix.errors import FairfixError
from fairfix.tasks.synonyms import COMMANDS, PARAMETERS, ours

OF_OUTPUTS = ("-o", "--output", "--report", "--report-file", "--out-file", "--output-file", "--save")
OF_TABLES = ("--table", "--table-name", "--sheet", "--sheet-name")
UNNEEDED = ("--metrics", "--metric", "--one-pass")
"""Options of other tools without a meaning here: a report has all metrics."""

MODELS = (".pkl", ".pickle", ".joblib", ".skops", ".onnx", ".ubj", ".cbm")
MOST = 3
"""Lines that an answer proposes at most."""

ALIKE = 0.8
"""Likeness of an option that is taken for a slip."""


class _Line:
    """Arguments of a line: its options in order, each with its value if it has one, and its other words."""

    def __init__(self, words: Sequence[str], flags: frozenset[str]) -> None:
        self.options: list[tuple[str, str | None]] = []
        self.others: list[str] = []
        rest = list(words)
        while rest:
            word = rest.pop(0)
            name, sign, value = word.partition("=")
            if not word.startswith("-") or word == STANDARD:
                self.others.append(word)
            elif sign and word.startswith("--"):
                self.options.append((name, value))
            elif name in flags or not rest or rest[0].startswith("--"):
                self.options.append((name, None))
            else:
                self.options.append((name, rest.pop(0)))

    def value(self, name: str) -> str | None:
        """Return the value of an option."""
        return next((value for one, value in self.options if one == name), None)

    def set(self, name: str, value: str) -> None:
        """Give an option another value, or add it."""
        if self.value(name) is None:
            self.options.append((name, value))
        else:
            self.options = [(one, value if one == name else old) for one, old in self.options]

    @property
    def words(self) -> list[str]:
        """The arguments."""
        out = list(self.others)
        for name, value in self.options:
            out += [name] if value is None else [name, value]
        return out


def instead_of(arguments: Sequence[str], group: click.Group) -> list[str]:
    """Return the lines to type in place of arguments that the command line refuses; none where none is known."""
    words = list(arguments)
    context = click.Context(group, resilient_parsing=True)
    names = group.list_commands(context)
    if not words:
        return []
    if words[0] not in names:
        words = _with_command(words, names)
    command = group.get_command(context, words[0]) if words else None
    if command is None:
        return []
    params = command.get_params(click.Context(command, resilient_parsing=True))
    flags = frozenset(
        name for one in params if getattr(one, "is_flag", False) for name in (*one.opts, *one.secondary_opts)
    )
    offered = {name for one in params for name in (*one.opts, *one.secondary_opts) if name.startswith("-")}
    line = _Line(words[1:], flags | {"-h", "--help"})
    if not (_rename(line, offered | {"-h", "--help"}) and _place(line, offered)):
        return []
    if words[0] == "repair" and "--method" not in {name for name, _ in line.options}:
        line.options.append(("--method", "ramp"))
    out = [words[0], *line.words]
    return _copied([out]) if out != list(arguments) and line.others else []


def _with_command(words: list[str], names: Sequence[str]) -> list[str]:
    """Return words that begin with a command; none where none is meant."""
    if of := ours(COMMANDS).get(words[0].lower()):
        return [of, *words[1:]]
    if slip := get_close_matches(words[0].lower(), names, 1, ALIKE):
        return [slip[0], *words[1:]]
    if later := next((one for one in words[1:] if one in names), ""):  # options came before it
        at = words.index(later)
        return [later, *words[:at], *words[at + 1 :]]
    is_data = words[0] == STANDARD or scheme_of(words[0]) or is_database(words[0]) or Path(words[0]).exists()
    return ["audit", *words] if is_data else []


def _rename(line: _Line, offered: set[str]) -> bool:
    """Give the options of other tools the names that they have here; return whether all of them are known now."""
    from fairfix.report import FORMATS, endings, format_of

    our_names = {f"--{other.replace('_', '-').lower()}": own for other, own in ours(PARAMETERS).items()}
    positive: list[tuple[str, str]] = []
    table = ""
    renamed, line.options = line.options, []
    for name, value in renamed:
        plain = name.lower().replace("_", "-")
        own = our_names.get(plain, "")
        option = "--" + own.partition("=")[0].replace("_", "-")
        if value and plain in OF_OUTPUTS and "--out" in offered and (format_ := format_of(value)):
            line.options.append(("--out", f"{format_}={value}"))
        elif name in offered:
            line.options.append((name, value))
        elif plain[2:] in FORMATS and "--out" in offered:
            file = f"report{endings(plain[2:])[0]}"
            if value is not None and format_of(value) == plain[2:]:
                file = value
            elif value is not None:  # the option is a flag before another word
                line.others.append(value)
            line.options.append(("--out", f"{plain[2:]}={file}"))
        elif plain in UNNEEDED:
            continue
        elif (form := own.partition("=")[2]) and not form.startswith("COLUMN"):
            if option not in offered or (value is None and "NUMBER" in form):
                return False
            line.others += [value] if value and "NUMBER" not in form else []
            line.options.append((option, form.replace("NUMBER", value or "")))
        elif value is not None and "=" in own:
            positive.append((option, value))
        elif plain in OF_TABLES and value:
            table = f"#{value}"
        elif own == "data" or plain in ("--file", "--input"):
            line.others[:0] = [] if value is None else [value]
        elif option in offered:
            if own == "check" and re.fullmatch(r"[\d.]+%?", value or ""):  # a limit of nothing
                return False
            line.options.append((_output(option, value), value))
        elif slip := get_close_matches(plain, offered, 1, ALIKE):
            line.options.append((slip[0], value))
        else:
            return False
    if table and (not line.others or "#" in line.others[0]):
        return False
    line.others[:1] = [one + table for one in line.others[:1]]
    for option, value in positive:
        column = line.value(option)
        if column is None or "=" in column:
            return False
        line.set(option, with_values(column, split_names(value)))
    return True


def _output(option: str, value: str | None) -> str:
    """Return ``--score`` in place of ``--prediction`` for a column whose name is that of scores."""
    from fairfix.data.data_spec import DECISIONS, SCORES, usual_name

    named = usual_name(value or "")
    return "--score" if option == "--prediction" and named in SCORES and named not in DECISIONS else option


def _place(line: _Line, offered: set[str]) -> bool:
    """Give words that are too many an option: a model, or protected columns; return whether one word is left."""
    for word in [one for one in line.others if Path(one).suffix.lower() in MODELS]:
        if len(line.others) > 1 and "--model" in offered and line.value("--model") is None:
            line.others.remove(word)
            line.options.append(("--model", word))
    extra = line.others[1:]
    if "-o" in offered and "--part" in offered and all(Path(one).exists() for one in line.others):
        return True  # several files of counts
    if extra and (pattern := _pattern(line.others)):
        line.others = [pattern]
        return True
    if extra and (
        "--protected" not in offered or any(Path(one).exists() or Path(one).suffix for one in extra)
    ):
        return False
    if extra:
        before = [line.value("--protected") or ""]
        listed = [name for text in (*before, *extra) for name in split_names(text) if name]
        line.set("--protected", joined_names(dict.fromkeys(listed)))
        del line.others[1:]
    return True


def _pattern(files: Sequence[str]) -> str:
    """Return a pattern that matches these files of one kind, and no others; empty where there is none."""
    paths = {Path(one) for one in files}
    first = commonprefix(files)  # noqa: RUF071  of characters
    last = commonprefix([one[len(first) :][::-1] for one in files])[::-1]  # noqa: RUF071  of characters
    pattern = Path(f"{first}*{last}")
    alike = len({(one.parent, one.suffix, one.is_file()) for one in paths}) == 1 and len(paths) == len(files)
    return str(pattern) if alike and {*pattern.parent.glob(pattern.name)} == paths else ""


def replaced_in(arguments: Sequence[str], error: FairfixError) -> list[str]:
    """Return the lines of arguments with what an error says is to be typed instead."""
    out = []
    for old, new in error.instead:
        if not old:
            name, _, value = new.partition("=")
            lines, first = [[*arguments, f"--{name.replace('_', '-')}", value]], ""
        else:
            whole = re.compile(rf"(?<![\w.-]){re.escape(old)}(?![\w-]|\.\w)")
            lines = [[_with_text(whole, new, word) for word in arguments]]
            typed = next((word for word in arguments if whole.search(word)), "")
            first = f"{error.before} {shlex.quote(typed)} && " if error.before else ""
        out += [first + line for line in _copied([one for one in lines if one != list(arguments)])]
    return out[:MOST]


def _with_text(whole: re.Pattern[str], new: str, word: str) -> str:
    """Return a word with a text, taken as it is, in place of what a pattern finds."""
    return whole.sub(lambda _: new, word)


def _copied(lines: Sequence[Sequence[str]]) -> list[str]:
    """Return lines as a shell takes them; none that holds a secret or a sign that cannot be printed."""
    out = []
    for words in lines:
        line = shlex.join(["fairfix", *words])
        if line.isprintable() and hidden(line) == line and [*map(shown_argument, words)] == [*words]:
            out.append(line)
    return out[:MOST]
