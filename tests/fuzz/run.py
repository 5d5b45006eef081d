"""Runs cases, shrinks those that fail, and prints a table: ``python -m tests.fuzz.run 1000 --seed 7``.

Each command runs in a forked process with a folder, a memory limit and a time limit of its own.
"""

from __future__ import annotations

import argparse
import gc
import hashlib
import json
import os
import re
import resource
import select
import shlex
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

from tests.fuzz.commands import Case, case, smaller
from tests.fuzz.oracle import CPU, CPU_OF_ROW, Ran, problems

MEMORY_DISK = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # noqa: S108  folders in it are made by mkdtemp
"""Where the folders of cases are: files are synced to disk as they are written, which takes a tenth of a run."""

WALL = 900
"""Seconds after which a case is ended, as one that hangs; the processor's time is judged by the oracle."""

WARM = range(10)
"""Cases that are run once to learn which modules runs load."""

SHRINKS = 80
"""Smaller cases that are tried for one that fails."""


@dataclass
class Tally:
    """What the runs came to."""

    statuses: dict[str, Counter[int]] = field(default_factory=lambda: defaultdict(Counter))
    """Command -> status -> runs."""
    failures: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    """What went wrong -> the numbers of the cases."""
    cases: int = 0

    @property
    def runs(self) -> int:
        """Runs of all commands."""
        return sum(counter.total() for counter in self.statuses.values())

    def add(self, number: int, ended: list[tuple[str, int]], faults: Iterable[str]) -> None:
        """Add a case."""
        self.cases += 1
        for command, status in ended:
            self.statuses[command][status] += 1
        for one in faults:
            self.failures[one].append(number)

    def table(self) -> str:
        """Return the runs by command and status, as Markdown."""
        seen = sorted({status for counter in self.statuses.values() for status in counter})
        lines = [
            "| command | runs | ran to the end | " + " | ".join(map(str, seen)) + " |",
            "|---|" + "---:|" * (len(seen) + 2),
        ]
        every: Counter[int] = Counter()
        for command, counter in [*sorted(self.statuses.items()), ("all", every)]:
            if counter is not every:
                every += counter
            lines.append(
                f"| {command} | {counter.total():,} | {1 - counter[2] / max(counter.total(), 1):.0%} | "
                + " | ".join(f"{counter[status]:,}" for status in seen)
                + " |"
            )
        return "\n".join(lines)


def _state(folder: Path) -> dict[str, bytes]:
    """Return a hash of every file in a folder, by name."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).digest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def _peak() -> float:
    """Return the most memory that the process had, in bytes."""
    with Path("/proc/self/status").open(encoding="ascii") as file:
        return next((float(line.split()[1]) * 1024 for line in file if line.startswith("VmHWM")), 0.0)


def _reset_peak() -> None:
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


def attempt(one: Case, folder: Path) -> tuple[list[tuple[str, int]], list[str]]:
    """Run the commands of a case in this process; return (command, status) of each, and what went wrong."""
    from fairfix.cli import run

    lines = one.written(folder)
    os.chdir(folder)
    ended: list[tuple[str, int]] = []
    faults: list[str] = []
    for words in lines:
        before, start = _state(folder), time.process_time()
        out, err = folder.parent / "out", folder.parent / "err"
        _reset_peak()
        peak = _peak()
        with out.open("w", encoding="utf-8") as sys.stdout, err.open("w", encoding="utf-8") as sys.stderr:
            status = run(words)
            sys.stdout.flush()
        sys.stdout, sys.stderr = sys.__stdout__, sys.__stderr__
        ran = Ran(
            words[0],
            words,
            status,
            out.read_bytes().decode(errors="replace"),
            err.read_bytes().decode(errors="replace"),
            time.process_time() - start,
            _peak() - peak,
            one.frame.table.num_rows,
            one.frame.table.nbytes,
            before,
            _state(folder),
            folder,
        )
        ended.append((words[0], status))
        plain = next(iter(one.files), "") == "data" and all("more" not in key for key in one.files)
        faults += [
            f"{ran.command}: {text}"
            for text in problems(ran, one.frame.table if plain and len(lines) == 1 else None)
        ]
        if status not in (0, 1, 3):
            break
    return ended, faults


def _place(error: BaseException) -> str:
    """Return the last line of fairfix that an error went through."""
    frames = [one for one in traceback.extract_tb(error.__traceback__) if "/fairfix/" in one.filename]
    return f"{Path(frames[-1].filename).name}:{frames[-1].name}" if frames else ""


def forked(one: Case, keep: Path | None = None) -> tuple[list[tuple[str, int]], list[str]]:
    """Do what :func:`attempt` does in a process of its own, which is ended when it hangs; keep its folder if asked."""
    place = Path(tempfile.mkdtemp(prefix="fuzz-", dir=MEMORY_DISK))
    folder = place / "case"
    folder.mkdir()
    read, write = os.pipe()
    child = os.fork()
    if not child:
        os.close(read)
        code = 0
        try:
            limit = int(CPU + CPU_OF_ROW * one.frame.table.num_rows) * 3
            resource.setrlimit(resource.RLIMIT_CPU, (limit, limit))
            _trace_bugs()
            answer: Any = attempt(one, folder)
        except BaseException as error:  # of the fuzzer itself, or one that fairfix lets through
            answer = (
                [],
                [
                    f"{one.steps[0][0][0]}: {type(error).__name__} let through at {_place(error)}: {error}"[
                        :200
                    ]
                ],
            )
            if not _place(error):
                answer = [], ["the fuzzer itself: " + "".join(traceback.format_exception(error)[-4:])]
        os.write(write, json.dumps(answer).encode())
        os._exit(code)
    os.close(write)
    content = b""
    end = time.monotonic() + WALL
    while (left := end - time.monotonic()) > 0:
        if not select.select([read], [], [], left)[0]:
            break
        piece = os.read(read, 65_536)
        if not piece:
            break
        content += piece
    else:
        left = 0
    os.close(read)
    if not content:
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    if keep is not None:
        shutil.copytree(folder, keep, dirs_exist_ok=True)
    shutil.rmtree(place, ignore_errors=True)
    if not content:
        how = "hangs" if left <= 0 else f"ended by signal {os.waitstatus_to_exitcode(status)}"
        return [], [f"{one.steps[-1][0][0]}: {how}"]
    ended, faults = json.loads(content)
    return [tuple(each) for each in ended], faults


def _trace_bugs() -> None:
    """Let the message of a bug name the place where it was raised, which makes it known again."""
    from fairfix import cli

    original = cli._echo

    def echo(message: str) -> None:
        error = sys.exc_info()[1]
        if error and "this is a bug in fairfix" in message:
            message = message.replace("in fairfix: ", f"in fairfix: {_place(error)} ", 1)
        original(message)

    cli._echo = echo


def shrunk(one: Case, fault: str, most: int = SHRINKS) -> Case:
    """Return a smaller case with the same fault."""
    tried = 0
    while tried < most:
        for less in smaller(one):
            tried += 1
            if fault in forked(less)[1]:
                one = less
                break
            if tried >= most:
                break
        else:
            return one
    return one


def described(one: Case) -> str:
    """Return a case for a reader: the lines and the table."""
    table = one.frame.table
    lines = [shlex.join(["fairfix", *(word for part in step for word in part)]) for step in one.steps]
    columns = []
    for name, column in zip(table.column_names, table.columns, strict=True):
        from tests.fuzz.files import as_text

        columns.append(
            f"    {name[:60]!r}: {column.type} {[as_text(entry)[:30] for entry in column.slice(0, 5)]}"
        )
    return "\n".join([*(f"  {line[:600]}" for line in lines), f"  {table.num_rows} rows", *columns])


def numbers(seed: int, many: int) -> Iterator[int]:
    """Yield the numbers of the cases of a seed: a million of its own."""
    yield from range(seed * 1_000_000, seed * 1_000_000 + many)


def preload() -> None:
    """Load what runs load, once, before processes are forked: only modules, since threads do not survive a fork."""
    read, write = os.pipe()
    if not (child := os.fork()):
        place = Path(tempfile.mkdtemp(prefix="fuzz-", dir=MEMORY_DISK))
        sys.stdout = sys.stderr = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115  until the end
        for number in WARM:
            (place / str(number) / "case").mkdir(parents=True)
            try:
                attempt(case(number), place / str(number) / "case")
            except BaseException:  # noqa: S112  told when it is run in earnest
                continue
        shutil.rmtree(place)
        with os.fdopen(write, "w") as file:
            file.write("\n".join(sys.modules))
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as file:
        names = file.read().splitlines()
    os.waitpid(child, 0)
    for name in names:
        with suppress(Exception):
            import_module(name)
    gc.freeze()  # what is loaded is not looked through in every fork, which would copy it


def fuzz(
    cases: Iterable[int],
    *,
    seconds: float = float("inf"),
    say: Callable[[str], None] = lambda text: None,
    shrinks: int = SHRINKS,
    keep: Path | None = None,
    runs: float = float("inf"),
) -> Tally:
    """Run cases; each new fault is shrunk and described."""
    preload()
    tally, start = Tally(), time.monotonic()
    for number in cases:
        if time.monotonic() - start > seconds or tally.runs >= runs:
            break
        one = case(number)
        ended, faults = forked(one)
        for fault in faults:
            if fault not in tally.failures:
                say(f"FAULT {fault}\n  case {number}: python -m tests.fuzz.run --case {number}")
                less = shrunk(one, fault, shrinks) if shrinks else one
                if keep:
                    forked(less, keep / re.sub(r"\W+", "-", fault)[:80])
                say(described(less))
        tally.add(number, ended, faults)
        if tally.cases % 100 == 0:
            seconds_so_far = time.monotonic() - start
            say(
                f"{tally.cases} cases, {tally.runs} runs, {len(tally.failures)} faults, {seconds_so_far:.0f} s"
            )
    return tally


def main() -> int:
    """Run the fuzzer from the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.run", description=__doc__)
    parser.add_argument("runs", nargs="?", type=int, default=1000, help="runs of commands to make")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--case", type=int, help="run the case of this number alone")
    parser.add_argument("--keep", type=Path, help="keep the files of shrunk cases in this folder")
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--shrinks", type=int, default=SHRINKS)
    given = parser.parse_args()
    chosen = numbers(given.seed, 1_000_000) if given.case is None else [given.case]
    tally = fuzz(
        chosen,
        seconds=given.seconds,
        say=lambda text: print(text, flush=True),
        shrinks=given.shrinks,
        keep=given.keep,
        runs=given.runs,
    )
    print(f"\n{tally.runs:,} runs in {tally.cases:,} cases of seed {given.seed}\n\n{tally.table()}\n")
    for fault, cases in sorted(tally.failures.items(), key=lambda item: -len(item[1])):
        print(f"{len(cases):6}  {fault}  (case {cases[0]})")
    return int(bool(tally.failures))


if __name__ == "__main__":
    sys.exit(main())
