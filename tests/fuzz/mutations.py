"""Valid files with changed contents, through all that read them.

A run takes a valid file, changes a few things in it, seals it again with hashes that fit, and gives it to a command.
What holds: exit status 2 with a message that names the file, or a sound result; never a bug, a hang, much memory, code
that runs, a file that is written although the command says no, or signs that steer a terminal.
"""

from __future__ import annotations

import ast
import csv
import io
import json
import os
import re
import shutil
import signal
import traceback
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from fairfix.auditing.metrics import METRICS
from fairfix.cli import run as command_line

from tests.fuzz.mutators import Sealed
from tests.fuzz.oracle import STEERING, of_form
from tests.fuzz.originals import Original, content_of, furnish, line_of, rows

SECONDS = 30
"""Of processor time, which no run on a few hundred rows needs."""

LONGEST = 2000
"""Signs of a message that somebody still reads."""

PARTS = re.compile(r"[0-9][0-9.,]*|`[^`]*`|\S*['/]\S*")
"""Parts of messages that differ from run to run."""

Paths = frozenset[str]


class HungError(BaseException):
    """The time of a run is over."""


@dataclass(frozen=True)
class Outcome:
    """What a run came to: status, what it printed, and what is wrong with that; nothing where ``fault`` is empty."""

    kind: str
    name: str
    command: str
    how: str
    """What was changed."""
    status: int
    out: str
    err: str
    fault: str = ""


@contextmanager
def bounded(seconds: float) -> Iterator[None]:
    """Break off what takes more processor time."""

    def over(*_: object) -> None:
        raise HungError

    before = signal.signal(signal.SIGPROF, over)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def called(line: Sequence[str]) -> tuple[int, str, str]:
    """Run a command in this process; return status, stdout, stderr."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err), warnings.catch_warnings(), bounded(SECONDS):
        status = command_line(list(line))
    return status, out.getvalue(), err.getvalue()


class Workshop:
    """A folder with the originals, and one inside it in which changed files are read."""

    def __init__(self, root: Path) -> None:
        self.root, self.bench = root, root / "bench"
        furnish(root)
        self.beside = self._files()

    def _files(self) -> Paths:
        return frozenset(str(path.relative_to(self.root)) for path in self.root.rglob("*") if path.is_file())

    def run(self, original: Original, seed: int, number: int) -> Outcome:
        """Change an original and let one of its commands read it: the same numbers, the same run."""
        rng = np.random.default_rng([seed, number])
        changed, how = original.change(rng, content_of(original, self.root))
        command = original.commands[int(rng.integers(len(original.commands)))]
        return self.read(original, command, changed, how)

    def read(self, original: Original, command: Sequence[str], changed: bytes, how: str) -> Outcome:
        """Let a command read a changed file, and judge what comes of it."""
        shutil.rmtree(self.bench, ignore_errors=True)
        self.bench.mkdir()
        path = self.bench / original.file
        path.write_bytes(changed)
        line = line_of(command, path)
        before, home = self._files(), Path.cwd()
        os.chdir(self.bench)
        try:
            shown = " ".join(word for word in command if not word.startswith(("../", "out.", "FILE")))
            outcome = Outcome(original.kind, original.name, shown, how, -1, "", "")
            try:
                status, out, err = called(line)
            except HungError as error:
                where = traceback.extract_tb(error.__traceback__)
                own = [one for one in where if "fairfix/" in one.filename] or where
                return replace(
                    outcome, fault=f"hangs in {own[-1].filename.rpartition('/')[2]}:{own[-1].lineno}"
                )
            outcome = replace(outcome, status=status, out=out, err=err)
            new = self._files() - before
            fault = fault_of(original, outcome, line, path, new)
            return replace(outcome, fault=fault)
        finally:
            os.chdir(home)
            for stray in self._files() - before - {f"bench/{original.file}"}:
                (self.root / stray).unlink()


def fault_of(original: Original, outcome: Outcome, line: Sequence[str], path: Path, new: Paths) -> str:
    """Return what is wrong with a run; nothing where all is well."""
    status, out, err = outcome.status, outcome.out, outcome.err
    if any(name.endswith("ran") for name in new):
        return "code in the file ran"
    if status == 70:
        return _bug(line)
    if status not in ((0, 1, 2, 3) if line[0] == "audit" else (0, 2)):
        return f"status {status}"
    if "Traceback" in err:
        return "a traceback"
    if signs := STEERING.search(err):
        return f"stderr holds {signs[0]!r}"
    text = line[0] in ("inspect", "report", "audit") and not {"html", "junit", "sarif"} & {*line}
    if text and "json" not in line and (signs := STEERING.search(out)):
        return f"stdout holds {signs[0]!r}"
    if status == 2:
        return _refusal_fault(original, outcome, line, path, new)
    try:
        return _result_fault(original, outcome, line, path)
    except Exception as error:  # the result cannot be read as what it says that it is
        return f"the result cannot be read: {type(error).__name__}: {str(error)[:120]}"


def _bug(line: Sequence[str]) -> str:
    """Return where a bug is: the last line of fairfix in the traceback."""
    os.environ["FAIRFIX_DEBUG"] = "1"
    try:
        _, _, err = called(line)
    finally:
        del os.environ["FAIRFIX_DEBUG"]
    lines = re.findall(r'File "[^"]*/(fairfix/[^"]+)", line (\d+)', err)
    name = re.findall(r"^([A-Za-z_.]+(?:Error|Exception|Warning)?)\b.*$", err, re.MULTILINE)
    last = next((one for one in reversed(name) if "Error" in one), "?")
    inner = [one for one in lines if "/cli/" not in one[0]] or lines
    return f"bug: {last} at {':'.join(inner[-1]) if inner else '?'}"


def _refusal_fault(original: Original, outcome: Outcome, line: Sequence[str], path: Path, new: Paths) -> str:
    if new and "--out" not in outcome.command:  # where a report says that its run did not happen
        return f"says no, and writes {sorted(new)}"
    lines = [one for one in outcome.err.splitlines() if one.startswith("fairfix: ") and one.endswith("]")]
    if not lines:
        return "status 2 without a message"
    message = outcome.err
    if len(message) > LONGEST and "[artifact]" in message:
        return f"a message of more than {LONGEST:,} signs"
    read = {Path(word).name for word in line if word.startswith("../")} | {path.name}
    # or a column of the data, which is at fault where a sound file asks for another one
    if not any(name in message for name in (*read, " column ")):
        return f"the message does not name the file: {PARTS.sub('~', lines[-1])[9:60]}"
    return ""


# ---------------------------------------------------------------------- results


def _result_fault(original: Original, outcome: Outcome, line: Sequence[str], path: Path) -> str:
    """Return what is wrong with a result."""
    match line[0]:
        case "predict":
            return _prediction_fault(Path(line[1]))
        case "export":
            return _export_fault(Path(line[-1]))
        case "audit" | "inspect" | "report" if "json" in line:
            content = json.loads(outcome.out, parse_constant=_no_constant)
            return _audit_fault(content) if line[0] == "audit" else ""
        case "count":
            merged = Path("out.counts").read_bytes()
            return "" if Sealed.of(merged).manifest["pieces"] is not None else "nothing merged"
        case "repair":
            again = "predict out.fairfix ../data.parquet -o out.parquet --unseen abstain"
            status, _, err = called(again.split())
            return (
                f"a repair that cannot predict: {err[:80]}"
                if status
                else _prediction_fault(Path("out.fairfix"))
            )
    return "" if outcome.out or "--out" in line else "nothing is printed"


def _no_constant(text: str) -> None:
    raise ValueError(text)


def _prediction_fault(artifact: Path) -> str:
    """Return what is wrong with written predictions: each is a number, a probability where it says so, or missing."""
    if Path("out.parquet").exists():
        table = pq.read_table("out.parquet")
    else:
        with Path("out.csv").open(encoding="utf-8", newline="") as file:
            lines = list(csv.DictReader(file))
        name = "p_positive" if "p_positive" in lines[0] else "prediction"
        parts = {
            key: [float(one[key]) if one[key] else None for one in lines]
            for key in (name, "decision")
            if key in lines[0]
        }
        table = pa.table(parts)
    name = "p_positive" if "p_positive" in table.column_names else "prediction"
    entries = np.array([np.nan if one is None else one for one in table[name].to_pylist()])
    gone = np.array([one is None for one in table[name].to_pylist()])
    if len(entries) != len(rows()):
        return "rows are lost"
    if not np.isfinite(entries[~gone]).all():
        return "a prediction that is not finite"
    if name == "p_positive" and not ((entries[~gone] >= 0) & (entries[~gone] <= 1)).all():
        return "a probability outside [0, 1]"
    if "decision" in table.column_names:
        decided = table["decision"].to_pylist()
        if any((one is None) != bool(none) for one, none in zip(decided, gone, strict=True)):
            return "a decision without a number"
        if not {one for one in decided if one is not None} <= {0, 1}:
            return "a decision that is neither 0 nor 1"
    manifest = Sealed.of(artifact.read_bytes()).manifest
    settings = manifest["predictor"]["settings"]
    if gone.any() and not settings.get("columns"):
        return "rows without a prediction, although no group is looked at"
    if (
        gone.any()
        and manifest["columns"]["protected"] == settings["columns"]
        and not manifest.get("bands", {}).get("p")
    ):
        groups = list(rows()[settings["columns"]].astype(str).itertuples(index=False, name=None))
        if any(none and list(group) in settings["levels"] for none, group in zip(gone, groups, strict=True)):
            return "rows without a prediction, although their group is that of a rule"
    return ""


@cache
def _skeleton(source: str) -> str:
    """Return a script as a tree, without the text of its rule."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.AnnAssign) and getattr(node.target, "id", "") == "PROGRAM":
            node.value = ast.Constant("")
    return ast.dump(tree)


def _export_fault(path: Path) -> str:
    """Return what is wrong with an export."""
    if path.suffix == ".json":
        json.loads(path.read_text(encoding="utf-8"), parse_constant=_no_constant)
    elif path.suffix == ".py":
        own = resources.files("fairfix.models").joinpath("standalone.py").read_text(encoding="utf-8")
        if _skeleton(path.read_text(encoding="utf-8")) != _skeleton(own):
            return "the script is another one"
    elif path.suffix == ".onnx":
        import onnx

        onnx.checker.check_model(onnx.load(path))
    elif path.suffix == ".sql":
        import duckdb

        connection = duckdb.connect()
        connection.register("data", rows().assign(fairfix_draw=0.5, **{"model score": rows()["score"]}))
        if len(connection.extract_statements(path.read_text(encoding="utf-8"))) != 1:
            return "the query is more than one"
        with suppress(duckdb.BinderException):  # it names a column that the rows have not
            connection.execute("EXPLAIN " + path.read_text(encoding="utf-8"))
    return ""


SHARES = frozenset(name for name, metric in METRICS.items() if metric.scale == "share")


def _audit_fault(content: Any) -> str:
    """Return what is wrong with an audit: its form, or rates that are no rates."""
    for fault in of_form(content):
        return fault
    for block in content["attributes"]:
        for group in block["groups"]:
            for name, one in group["metrics"].items():
                ends = [one[part] for part in ("low", "value", "high") if one[part] is not None]
                if ends != sorted(ends) or (name in SHARES and ends and not 0 <= ends[0] <= ends[-1] <= 1):
                    return f"a {name} that is none"
    return ""
