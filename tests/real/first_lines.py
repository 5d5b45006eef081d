"""Tries from a file to the first report: a person's first line, then nothing but what fairfix answers.

The person pastes a command that fairfix proposes; else takes the name after "did you mean"; else adds the one option
that the message names, with the value that this person knows.
"""

from __future__ import annotations

import io
import json
import os
import re
import shlex
from collections.abc import Iterator, Mapping
from contextlib import chdir, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click
import numpy as np
import pandas as pd
from fairfix.cli import cli, run

from tests.real.files import FILES, Real

MOST = 10
"""Tries after which a person leaves."""

STUCK = MOST + 1
"""Tries of a person to whom no answer led."""

COMMANDS = "audit|repair|compare|predict|export|inspect|report|init|explain|explore|count|merge"
PROPOSED = re.compile(
    rf"(?:^|[:;])\s*(?:[-*$] )?((?:fairfix (?:{COMMANDS})|python3? -c) .*\S)\s*$", re.MULTILINE
)
BLANK = (
    r"\b(COLUMN|NAME|VALUE|FILE|NUMBER|DATA|GROUP|METHOD|LABEL|SCORE|HASH|PATH|CHECK|CONDITION|SPEC|TABLE)\b"
)
"""A word that stands for what the person has to fill in."""

MEANT = re.compile(r"'([^']+)'[^';]*; did you mean '([^']+)'")
NO_OPTION = re.compile(r"No such option '(--[\w-]+)'. Did you mean '(--(?!help)[\w-]+)'")
OPTION = re.compile(
    r"(--(?!help)[a-z][\w-]+)"
    r"(?:[ =]((?:'[^']*'|\"[^\"]*\"|[^\s;,()'\"])+)(?=\s*(?:$|[;,.)]|or\b|and\b|--)))?",
    re.MULTILINE,
)
"""An option and its value, which is not the next word of a sentence."""
CODE = re.compile(r" \[[a-z_]+\]$", re.MULTILINE)
REPEATED = {"--bands", "--merge", "--where", "--reference", "--exclude"}


@dataclass
class Walk:
    """The lines that a person typed, and how it ended."""

    lines: list[str] = field(default_factory=list)
    answers: list[str] = field(default_factory=list)
    tries: int = STUCK
    wrong: str = ""
    """What a report had wrong though it was made, or why ``predict`` did not take the same file after a repair."""


def ran(line: str) -> tuple[int, str, str]:
    """Run a line of ``fairfix`` in this process; return its status, stdout and stderr."""
    out, err = io.TextIOWrapper(io.BytesIO(), "utf-8"), io.StringIO()
    before = os.environ.copy()
    with redirect_stdout(out), redirect_stderr(err):
        status = run(shlex.split(line)[1:])
    os.environ.clear()
    os.environ.update(before)
    out.seek(0)
    return status, out.read(), err.getvalue()


def proposed(text: str) -> list[str]:
    """Return the whole commands of an answer, those with a placeholder left out."""
    lines = [line for line in PROPOSED.findall(text) if balanced(line)]
    return [line for line in lines if not re.search(rf"{BLANK}|\.\.\.", line)]


def balanced(line: str) -> bool:
    """Tell whether a shell would take a line."""
    try:
        shlex.split(line)
    except ValueError:
        return False
    return True


def flags() -> set[str]:
    """Return the options that take no value."""
    context = click.Context(cli)
    commands = [cli.get_command(context, name) for name in ("audit", "repair")]
    return {
        name for one in commands if one for p in one.params if getattr(p, "is_flag", False) for name in p.opts
    }


def next_line(line: str, answer: str, knows: Mapping[str, tuple[str, ...]]) -> str | None:
    """Return what the person types next; None where the answer leads nowhere."""
    wishes = {value for values in knows.values() for value in values}
    if commands := [one for one in proposed(answer) if one != line and one.startswith("fairfix")]:
        return max(commands, key=lambda one: sum(wish in re.split(r"[\s,='\"]+", one) for wish in wishes))
    answer = answer[max(answer.rfind("fairfix: "), 0) :]  # what came before are notes
    if (renamed := NO_OPTION.search(answer)) or (renamed := MEANT.search(answer)):
        whole = rf"(?<![\w.-]){re.escape(renamed[1])}(?![\w.-])"
        words = [re.sub(whole, lambda _: renamed[2], word) for word in shlex.split(line)]
        if words != shlex.split(line):
            return shlex.join(words)
    return with_option(shlex.split(line), answer, knows)


def with_option(words: list[str], answer: str, knows: Mapping[str, tuple[str, ...]]) -> str | None:
    """Return the line with an option that the answer names, or one more of them that the person can fill."""
    fits: list[tuple[int, list[str]]] = []
    for name, raw in OPTION.findall(re.sub(r"No such option.*", "", answer)):
        quoted = raw.rstrip(".:")
        value = shlex.split(quoted)[0] if quoted and balanced(quoted) else ""
        known = knows.get(name.removeprefix("--"), ())
        if name in flags():
            option = [name]
        elif not value or re.search(rf"{BLANK}|\.\.\.", value) or value in ("or", "and"):
            if not known:
                continue
            option = [name, known[0]]
        else:
            option = [name, value]
        part = option[-1].rpartition("=")[2].split(",")[0]
        fits.append((known.index(part) if part in known else len(known), option))
    for _, (name, *value) in sorted(fits, key=lambda fit: fit[0]):
        new = list(words)
        if name in new and value and name not in REPEATED:
            new[new.index(name) + 1] = value[0]
        elif name not in new or (name in REPEATED and value[0] not in new):
            new += [name, *value]
        if new != words:
            return shlex.join(new)
    return None


def known_of(real: Real) -> dict[str, tuple[str, ...]]:
    """Return what the person knows of a file, by the option that asks for it."""
    own = {option: (value,) for option, value in real.knows.items()}
    labels = (real.label, *(f"{real.label}={one}" for one in real.positives))
    last = str(len(real.drawn[0]) + 1) if real.label.isdecimal() else "score"
    return {
        "protected": (real.protected,), "label": labels, "score": (real.score or last,), "positive": real.positives,
        "missing": ("drop",), "method": ("logloss",), **own,
    }  # fmt: skip


def first_line(real: Real, task: str) -> str:
    """Return what the person types first: ``task`` is audit, or the method of a repair."""
    scored = task in ("audit", "ramp")
    file = real.path(Path(), scored=scored).name
    score = ""
    if scored and real.label.isdecimal():
        score = f" --score {len(real.drawn[0]) + 1}"
    elif scored and real.score and real.name != "compas":
        score = f" --score {real.score}"
    command = "audit" if task == "audit" else f"repair --method {task}"
    word, _, rest = command.partition(" ")
    return " ".join(f"fairfix {word} {file} {rest} {real.asks}{score}".split())


def fault(real: Real, result: Mapping[str, Any]) -> str:
    """Return what a result has wrong: rows that were lost or made, another label, another positive value."""
    data, overall, settings = result["data"], result.get("overall"), result["settings"]
    read, rate, label = data["rows"]["read"], None, data["columns"].get("label")
    if read != real.rows:
        return f"{read} rows read of {real.rows}"
    if not label or not (real.label.isdecimal() or label.startswith(real.label)):
        return f"the label is {label}, not {real.label}"
    positive = settings.get("positive_label") or real.positives
    if (real.real and positive is not real.positives) or not set(np.atleast_1d(positive)) <= set(
        real.positives
    ):
        return f"the positive label is {positive}, not {'at least ' * real.real}{' or '.join(real.positives)}"
    if result.get("method") == "logloss" and (learned := real.leaks & set(result["requires"]["columns"])):
        return f"it learned from {', '.join(sorted(learned))}, which say the outcome"
    if overall and settings.get("task") == "classification":
        rate = overall["metrics"].get("base_rate", {}).get("value")
    if rate is not None and not any(abs(rate - one) < 0.03 for one in real.base_rates()):
        return f"{rate:.3f} positive labels, not {' or '.join(f'{one:.3f}' for one in real.base_rates())}"
    return ""


def walk(line: str, knows: Mapping[str, tuple[str, ...]], real: Real | None = None, most: int = MOST) -> Walk:
    """Type a line and follow the answers, until a report is made, nothing leads on or ``most`` lines were typed."""
    done = Walk()
    following: str | None = line
    while following is not None and len(done.lines) < most and following not in done.lines:
        line = following
        done.lines.append(line)
        Path("result.json").unlink(missing_ok=True)
        status, out, err = ran(f"{line} --out json=result.json" if real and "--out" not in line else line)
        done.answers.append(f"[{status}] {err.strip()[-3000:]}")
        if status in (0, 1, 3) and out.strip():
            if real:
                done.wrong = fault(real, json.loads(Path("result.json").read_text(encoding="utf-8")))
            done.tries = STUCK if done.wrong else len(done.lines)
            break
        following = next_line(line, CODE.sub("", err), knows)
    return done


def cases() -> Iterator[tuple[str, Real, str]]:
    """Yield each file with each task, and a name for both."""
    for real in FILES:
        for task in ("audit", *real.repairs):
            yield f"{real.file} {task}", real, task


def measured(real: Real, task: str, folder: Path) -> Walk:
    """Return the walk from a file to a report, in a folder."""
    real.write(folder, scored=task in ("audit", "ramp"))
    with chdir(folder):
        done = walk(first_line(real, task), known_of(real), real)
        if task != "audit" and done.tries < STUCK:
            file = shlex.split(done.lines[-1])[2]
            status, _, done.wrong = ran(f"fairfix predict repaired.fairfix {file} -o predicted.parquet -q")
            if not status:
                rows = len(pd.read_parquet("predicted.parquet"))
                done.wrong = "" if rows == real.rows else f"{rows} rows predicted of {real.rows}"
            done.tries = STUCK if done.wrong else done.tries
        return done
