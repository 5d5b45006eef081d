"""Commands that are killed, starved and cheated at every moment, and what must hold of their files afterwards.

A run is a fork of a process that has everything imported. Moments are lines of code, counted by a tracer: a run is the
same each time.
"""

from __future__ import annotations

import fcntl
import gc
import inspect
import io
import json
import os
import re
import resource
import select
import shutil
import signal
import sys
import time
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import chdir, contextmanager, redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import fairfix
import pandas as pd
from fairfix.cli import main

from tests.conftest import make_frame

HOUSE = str(Path(fairfix.__file__).parent)

WRITING = tuple(f"{HOUSE}/{name}" for name in ("data/atomic_write.py", "data/signals.py", "cli/outputs.py"))
"""Modules in which a file comes to its name: moments are their lines."""

READING = tuple(f"{HOUSE}/{name}" for name in ("data/storage.py", "data/sources", "data/files.py"))
"""Modules that read; for moments at which a file changes."""

LITTER = re.compile(r"\.(.+)\.\d\.part")
"""A name that a killed writer may leave until the next."""

UNRUN = re.compile("fairfix [a-z]+ (did not run|was interrupted)")
"""What the reports of a run that did not happen begin with."""

EACH = -1
"""Every moment."""

PATIENCE = 300.0
"""Seconds after which a run hangs, on a machine with much else to do."""

COMMON = ("--protected", "race", "--config", "none")


@dataclass(frozen=True)
class Command:
    """A line that works, with the files that it writes, in the order in which they appear, and those that it reads."""

    line: tuple[str, ...]
    targets: tuple[str, ...]
    inputs: tuple[str, ...] = ("d.parquet",)
    statuses: tuple[int, ...] = (0,)


def _outs(*formats: str) -> tuple[str, ...]:
    return tuple(part for name in formats for part in ("--out", f"{name}=o.{name}"))


COMMANDS = {
    "audit": Command(
        ("audit", "d.parquet", *COMMON, *_outs("json", "html", "junit")),
        ("o.json", "o.html", "o.junit"),
    ),
    "audit-csv": Command(
        ("audit", "d.csv", *COMMON, *_outs("sarif", "card")), ("o.sarif", "o.card"), ("d.csv",)
    ),
    "repair": Command(
        ("repair", "d.parquet", *COMMON, "--method", "ramp", "-o", "o.fairfix", *_outs("json", "markdown")),
        ("o.fairfix", "o.json", "o.markdown"),
        statuses=(0, 1, 3),
    ),
    "compare": Command(
        ("compare", "d.parquet", *COMMON, "--methods", "ramp", "--slacks", "0.1", *_outs("json", "html")),
        ("o.json", "o.html"),
    ),
    "predict": Command(
        ("predict", "r.fairfix", "d.parquet", "--config", "none", "-o", "o.parquet"),
        ("o.parquet",),
        ("d.parquet", "r.fairfix"),
    ),
    "predict-csv": Command(
        ("predict", "r.fairfix", "d.csv", "--config", "none", "-o", "o.csv.gz"),
        ("o.csv.gz",),
        ("d.csv", "r.fairfix"),
    ),
    "predict-many": Command(
        ("predict", "r.fairfix", "many", "--config", "none", "-o", "out/"),
        ("out/a.arrow", "out/b.arrow"),
        ("many/a.arrow", "many/b.arrow"),
    ),
    "export": Command(("export", "r.fairfix", "--to", "python", "-o", "o.py"), ("o.py",), ("r.fairfix",)),
    "report": Command(
        ("report", "r.json", *_outs("html", "markdown")), ("o.html", "o.markdown"), ("r.json",)
    ),
    "init": Command(("init", "d.parquet", "--force", "-o", "o.toml"), ("o.toml",)),
    "count": Command(("count", "d.parquet", *COMMON, "-o", "o.counts"), ("o.counts",)),
    "explore": Command(("explore", "d.parquet", *COMMON, "-o", "o.html"), ("o.html",)),
    "count-sum": Command(
        ("count", "a.counts", "b.counts", "-o", "o.counts"), ("o.counts",), ("a.counts", "b.counts")
    ),
}
"""Every command that writes; some in two kinds."""

SIGNALS = {signal.SIGTERM: 143, signal.SIGINT: 130, signal.SIGHUP: 129}
"""Signal -> the status that says so."""


@dataclass
class Run:
    """What became of a run; ``status`` is negative after a signal that killed it."""

    status: int
    out: str = ""
    err: str = ""
    moments: int = 0


Act = Callable[[], object]
"""What is done in the process of the run."""


@dataclass
class Fault:
    """What is done to a run: ``before`` it, and ``act`` at the moment ``at`` among the lines of ``modules``."""

    before: Act = lambda: None
    act: Act = lambda: None
    at: int = 0
    modules: tuple[str, ...] = ()
    wrap: Mapping[int, int] = field(default_factory=dict)
    """Number of a standard stream -> the descriptor that it is; -1: closed."""
    encoding: str = "utf-8"
    tracer: Any = None
    wrong: list[str] = field(default_factory=list)
    """What is wrong after the run."""


class Tracer:
    """Counts the lines of some modules and acts at one."""

    def __init__(self, fault: Fault) -> None:
        self.count, self._fault = 0, fault
        fault.tracer = self

    def __call__(self, frame: FrameType, event: str, _: Any) -> Any:
        """Trace the functions of the modules."""
        return self.line if frame.f_code.co_filename.startswith(self._fault.modules) else None

    def line(self, frame: FrameType, event: str, _: Any) -> Any:
        """Count a line, or the end of a function; a generator that yields has not ended."""
        if event == "line" or (event == "return" and not frame.f_code.co_flags & inspect.CO_GENERATOR):
            self.count += 1
            if self._fault.at in (self.count, EACH):
                self._fault.act()
        return self.line


def run(line: Sequence[str], folder: Path, fault: Fault | None = None, *, wait: bool = True) -> Any:
    """Run a command in a fork, in a folder, under a fault; return the Run, or what waits for it."""
    fault = fault or Fault()
    streams = {name: os.pipe() for name in ("out", "err", "moments")}
    child = os.fork()
    if not child:
        _child(line, folder, fault, {name: ends[1] for name, ends in streams.items()})
    for _, end in streams.values():
        os.close(end)
    waiting = partial(_parent, child, {name: ends[0] for name, ends in streams.items()})
    return waiting() if wait else waiting


def _child(line: Sequence[str], folder: Path, fault: Fault, streams: Mapping[str, int]) -> None:
    """Be the process of a run; never returns."""
    status = 99
    try:
        os.chdir(folder)
        signal.signal(signal.SIGINT, signal.default_int_handler)  # which jobs in the background ignore
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        for number, name in ((1, "out"), (2, "err")):
            os.dup2(
                fault.wrap.get(number, streams[name]) if fault.wrap.get(number) != -1 else streams[name],
                number,
            )
            os.close(streams[name])
        for number, target in fault.wrap.items():
            if target == -1:
                os.close(number)
        for number, name in ((1, "stdout"), (2, "stderr")):
            stream = None
            if fault.wrap.get(number) != -1:
                errors = "backslashreplace" if number == 2 else "strict"
                stream = io.TextIOWrapper(os.fdopen(number, "wb", closefd=False), fault.encoding, errors)
            setattr(sys, name, stream)
            setattr(sys, f"__{name}__", stream)
        tracer = Tracer(fault)
        fault.before()
        if fault.modules:
            sys.settrace(tracer)
        try:
            main(list(line))
        except SystemExit as end:
            status = int(end.code or 0)
        sys.settrace(None)
        gc.collect()  # as Python's end has it: generators that an exception left open are closed
        os.write(streams["moments"], str(tracer.count).encode())
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except OSError:
                status = 120  # as Python's end has it
    except BaseException:
        import traceback

        with suppress(BaseException):
            os.write(2, traceback.format_exc().encode())
        status = 98
    finally:
        os._exit(status)


def _parent(child: int, streams: Mapping[str, int]) -> Run:
    """Read what a run says until it ends."""
    texts = dict.fromkeys(streams.values(), b"")
    ends, hangs = time.monotonic() + PATIENCE, False
    open_ = set(texts)
    while open_:
        ready, _, _ = select.select(list(open_), [], [], max(0.0, ends - time.monotonic()))
        if not ready:
            os.kill(child, signal.SIGKILL)
            hangs = True
            break
        for number in ready:
            piece = os.read(number, 1 << 16)
            texts[number] += piece
            if not piece:
                open_.discard(number)
    _, code = os.waitpid(child, 0)
    for number in texts:
        os.close(number)
    out, err, moments = (
        texts[streams[name]].decode("utf-8", "replace") for name in ("out", "err", "moments")
    )
    return Run(-999 if hangs else os.waitstatus_to_exitcode(code), out, err, int(moments or 0))


# ---------------------------------------------------------------------- the world


class World:
    """A folder with rows, a repair, counts and a report; and what each command makes of them when nothing is wrong."""

    def __init__(self, folder: Path) -> None:
        self.base, self._made = folder / "base", 0
        self.base.mkdir()
        self._folder = folder
        frame = make_frame(400).replace({"race": {"r1": "gr\u00f6\u00dfer \u2192 \u202e"}})
        frame.to_parquet(self.base / "d.parquet")
        make_frame(300, seed=1).to_parquet(self.base / "e.parquet")
        frame.to_csv(self.base / "d.csv", index=False)
        (self.base / "many").mkdir()
        for name in "ab":
            frame.to_feather(self.base / "many" / f"{name}.arrow")
        for line in (
            ("audit", "d.parquet", *COMMON, "--out", "json=r.json"),
            ("count", "d.parquet", *COMMON, "-o", "a.counts"),
            ("count", "e.parquet", *COMMON, "-o", "b.counts"),
            ("repair", "d.parquet", *COMMON, "--method", "ramp", "-o", "r.fairfix"),
        ):
            self._warm(line)
        self._new: dict[str, dict[str, bytes]] = {}

    def new(self, name: str) -> dict[str, bytes]:
        """Return the content of each file that a command writes, when nothing is wrong."""
        if name not in self._new:
            with self.folder(name, old=False) as place:
                self._warm(COMMANDS[name].line, place)
                self._new[name] = content_of(place, COMMANDS[name].targets)
            assert len(self._new[name]) == len(COMMANDS[name].targets), name
        return self._new[name]

    def _warm(self, line: Sequence[str], place: Path | None = None) -> None:
        """Run a command in this process, so that its forks have imported all."""
        from fairfix.cli import run as run_here

        spoken = io.StringIO()
        with chdir(place or self.base), redirect_stdout(io.StringIO()), redirect_stderr(spoken):
            assert run_here([*line]) in (0, 1, 3), (line, spoken.getvalue())

    @contextmanager
    def folder(self, name: str, *, old: bool = True) -> Iterator[Path]:
        """Yield a folder of its own to run a command in, in which the files that it writes are there already."""
        self._made += 1
        place = self._folder / f"{name}-{self._made}"
        shutil.copytree(self.base, place)
        for target in COMMANDS[name].targets:
            (place / target).parent.mkdir(exist_ok=True)
            if old:
                (place / target).write_bytes(old_of(target))
        place.chmod(0o777)
        yield place
        shutil.rmtree(place)


def old_of(target: str) -> bytes:
    """Return what stands in a file before a run: a report of fairfix, where it is one."""
    return f"old fairfix {target}\n".encode()


def content_of(place: Path, targets: Sequence[str]) -> dict[str, bytes]:
    """Return the content of those files that are there."""
    return {name: (place / name).read_bytes() for name in targets if (place / name).is_file()}


def litter_of(place: Path, world: World, command: Command) -> set[str]:
    """Return the names in a folder that are neither inputs nor targets."""
    names = {str(path.relative_to(place)) for path in place.rglob("*") if not path.is_dir()}
    return (
        names - {str(path.relative_to(world.base)) for path in world.base.rglob("*")} - set(command.targets)
    )


# ---------------------------------------------------------------------- what must hold


def wrongs_of(world: World, name: str, place: Path, ended: Run) -> list[str]:
    """Return what is wrong with files and words after a run, whatever was done to it.

    Each file is old or new; a report may also say that its run did not happen, or has not finished.
    """
    command, wrong = COMMANDS[name], []
    now = content_of(place, command.targets)
    for target in command.targets:
        content = now.get(target)
        unrun = content is not None and says_unrun(target, content)
        if content not in (old_of(target), world.new(name)[target]) and not unrun:
            wrong.append(f"{target} is broken: {content[:60] if content is not None else None!r}")
    for sign in ("Traceback", "Exception ignored", "bug in fairfix"):
        if sign in ended.err:
            wrong.append(f"stderr: {ended.err[-600:]}")
            break
    if ended.status in (70, 98, 99, 120, -999, -signal.SIGSEGV, -signal.SIGBUS, -signal.SIGABRT):
        wrong.append(f"status {ended.status}: {ended.err[-600:]}")
    return wrong


def says_unrun(target: str, content: bytes) -> bool:
    """Return whether a whole report says that its run did not happen."""
    text = content.decode("utf-8", "replace")
    try:
        match Path(target).suffix:
            case ".json":
                return bool(json.loads(text)["schema"] == "fairfix.unrun/1")
            case ".sarif":
                return not json.loads(text)["runs"][0]["invocations"][0]["executionSuccessful"]
            case ".junit":
                return ET.fromstring(text).attrib["errors"] == "1"  # noqa: S314  our own XML
            case ".html":
                return bool(UNRUN.search(text)) and text.rstrip().endswith("</html>")
            case ".markdown" | ".card":
                return bool(UNRUN.search(text)) and text.endswith("\n")
    except (ValueError, KeyError, ET.ParseError):
        pass
    return False


def states_of(world: World, name: str, place: Path) -> str:
    """Return for each target, in the order of their writing, ``n`` where it is new, ``o`` where old, ``u`` else."""
    now = content_of(place, COMMANDS[name].targets)
    return "".join(
        "n" if now.get(one) == world.new(name)[one] else "o" if now.get(one) == old_of(one) else "u"
        for one in COMMANDS[name].targets
    )


def moments_of(world: World, name: str, modules: tuple[str, ...]) -> int:
    """Return how many lines of some modules a command goes through."""
    with world.folder(name) as place:
        ended = run(COMMANDS[name].line, place, Fault(modules=modules))
        assert ended.status in COMMANDS[name].statuses, (name, ended)
        assert states_of(world, name, place) == "n" * len(COMMANDS[name].targets), (
            name,
            states_of(world, name, place),
        )
        assert not litter_of(place, world, COMMANDS[name])
        return int(ended.moments)


def without_tmpfile() -> None:
    """Have a system on which every file has a name."""
    if hasattr(os, "O_TMPFILE"):
        del os.O_TMPFILE  # type: ignore[misc]  # a constant to the types, which some systems have not


def end_at_once() -> None:
    """End this process by a signal that it cannot handle; who calls it is the fork of a run."""
    os.kill(os.getpid(), signal.SIGKILL)


def killed(
    world: World, name: str, at: int, *, modules: tuple[str, ...] = WRITING, named: bool = False
) -> list[str]:
    """Kill a run outright; return what is wrong afterwards, and after the next run."""
    command = COMMANDS[name]
    with world.folder(name) as place:
        before = without_tmpfile if named else lambda: None
        ended = run(command.line, place, Fault(before, end_at_once, at, modules))
        wrong = wrongs_of(world, name, place, ended)
        if ended.status != -signal.SIGKILL and not 0 < ended.moments < at:
            wrong.append(f"status {ended.status} after kill -9")
        states = states_of(world, name, place)
        if not re.fullmatch("n*[ou]*", states):
            wrong.append(f"order: {states}")
        litter = litter_of(place, world, command)
        wrong += [f"left {one}" for one in litter if not LITTER.fullmatch(Path(one).name)]
        if litter:
            again = run(command.line, place, Fault(before))
            wrong += [f"left after the next run: {one}" for one in litter_of(place, world, command)]
            wrong += [] if again.status in command.statuses else [f"the next run: {again}"]
        return wrong


def watched(world: World, name: str, *, named: bool = False) -> tuple[list[str], list[int]]:
    """Look at the folder at every moment of a run, which is what a kill would leave.

    Return what is wrong, and the moments at which a file has a name that would stay.
    """
    command, new = COMMANDS[name], world.new(name)
    with world.folder(name) as place:
        kept, seen = {str(path.relative_to(place)) for path in place.rglob("*")}, set[str]()
        whole: dict[tuple[str, int, int, int], str] = {}

        def look() -> None:
            states = ""
            for target in command.targets:
                status = Path(target).stat()
                key = target, status.st_ino, status.st_size, status.st_mtime_ns
                if key not in whole:
                    content = Path(target).read_bytes()
                    old = content == old_of(target) or says_unrun(target, content)
                    whole[key] = "n" if content == new[target] else "o" if old else "b"
                states += whole[key]
            if not re.fullmatch("n*o*", states):
                seen.add(f"states {states}")
            for folder in {str(Path(target).parent) for target in command.targets}:
                for one in (path.name for path in Path(folder).iterdir()):
                    if LITTER.fullmatch(one):
                        os.write(2, b"%d\n" % fault.tracer.count)
                    elif os.path.normpath(f"{folder}/{one}") not in kept:
                        seen.add(f"left {one}")

        def each() -> None:
            count = len(seen)
            look()
            if len(seen) > count:
                os.write(2, f"Traceback of a kill: {seen}\n".encode())

        fault = Fault(without_tmpfile if named else lambda: None, each, EACH, WRITING)
        ended = run(command.line, place, fault)
        wrong = wrongs_of(world, name, place, ended)
        wrong += [] if ended.status in command.statuses and ended.moments else [f"{ended}"]
        return wrong, [int(line) for line in ended.err.splitlines() if line.isdecimal()]


@contextmanager
def tried(
    world: World, name: str, fault: Fault, *besides: str
) -> Iterator[tuple[Run, str, Callable[[bool, object], None]]]:
    """Run a command under a fault; yield how it ended, the states of its files, and what notes where that is wrong.

    Nothing is left afterwards but files that are named. The faults are in ``fault.wrong``.
    """
    with world.folder(name) as place:
        ended = run(COMMANDS[name].line, place, fault)
        fault.wrong += wrongs_of(world, name, place, ended)
        yield ended, states_of(world, name, place), lambda bad, text: fault.wrong.extend([f"{text}"] * bad)
        fault.wrong += [f"left {one}" for one in litter_of(place, world, COMMANDS[name]) - {*besides}]


def stopped(
    world: World,
    name: str,
    number: signal.Signals,
    at: int,
    *,
    modules: tuple[str, ...] = WRITING,
    named: bool = False,
    times: int = 1,
) -> list[str]:
    """Ask a run to stop; return what is wrong afterwards."""

    def act() -> None:
        for _ in range(times):
            os.kill(os.getpid(), number)

    fault = Fault(without_tmpfile if named else lambda: None, act, at, modules)
    with tried(world, name, fault) as (ended, states, note):
        if 0 < ended.moments < at:  # it has fewer
            return fault.wrong
        wanted = (SIGNALS[number], -number)  # the latter behind the last line of the run
        note(ended.status not in wanted, f"status {ended.status} after {number.name}")
        mixed = "n" in states and states != "n" * len(states)
        note(name != "predict-many" and mixed, f"some are new, some are not: {states}")
    return fault.wrong


# ---------------------------------------------------------------------- other faults


def limited(world: World, name: str, size: int) -> list[str]:
    """Let no file grow beyond a size; return what is wrong afterwards."""
    command = COMMANDS[name]

    def before() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

    fault = Fault(before)
    with tried(world, name, fault) as (ended, states, note):
        if ended.status in command.statuses:
            note("o" in states, f"status {ended.status}, but {states}")
        else:
            named = any(f"cannot write {one}: File too large" in ended.err for one in command.targets)
            told = ended.status == 2 and (named or "out/" in ended.err)
            note(not told, f"status {ended.status}: {ended.err[-300:]}")
            note("n" in states and name != "predict-many", f"status {ended.status}, but {states}")
    return fault.wrong


def starved(world: World, name: str, spare: int) -> list[str]:
    """Leave a run so many bytes of address space; return what is wrong afterwards."""

    def before() -> None:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
        limit = pages * resource.getpagesize() + spare
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))

    fault = Fault(before)
    with tried(world, name, fault) as (ended, _, note):
        note(ended.status not in (2, *COMMANDS[name].statuses), f"status {ended.status}: {ended.err[-300:]}")
        note(ended.status == 2 and "[memory]" not in ended.err, f"says nothing of memory: {ended.err[-300:]}")
    return fault.wrong


def rewritten(path: Path, change: Callable[[pd.DataFrame], pd.DataFrame]) -> None:
    """Put other rows of the same kind into a file's place, whole, as another run of whoever makes it does."""
    if path.suffix not in (".csv", ".parquet"):
        path.write_bytes(b"something else")
        return
    beside, rows = path.with_name("zz"), change(make_frame(40))
    rows.to_csv(beside, index=False) if path.suffix == ".csv" else rows.to_parquet(beside)
    beside.replace(path)


CHANGES: Mapping[str, Callable[[Path], object]] = {
    "shrinks": lambda path: os.truncate(path, path.stat().st_size // 2),
    "is emptied": lambda path: os.truncate(path, 0),
    "vanishes": lambda path: path.unlink(),
    "grows": lambda path: path.open("ab").write(b"\n1,2,3\n" * 9),
    "is replaced": lambda path: (
        path.with_name("zz").write_bytes(b"something else"),
        path.with_name("zz").replace(path),
    ),
    "becomes a folder": lambda path: (path.unlink(), path.mkdir()),
    "has other columns": lambda path: rewritten(path, lambda rows: rows[["x"]].rename(columns={"x": "z"})),
    "has other types": lambda path: rewritten(path, lambda rows: rows.astype("string")),
    "has other rows": lambda path: rewritten(path, lambda rows: rows.assign(race="z", score=0.5)),
}
"""What may happen to a file that is being read."""


def cheated(world: World, name: str, change: str, at: int) -> list[str]:
    """Change the first input while it is read; return what is wrong afterwards."""
    command = COMMANDS[name]
    victim = command.inputs[0]
    fault = Fault(act=lambda: CHANGES[change](Path(victim)), at=at, modules=READING)
    with tried(world, name, fault, victim, "many/zz", "zz") as (ended, states, note):
        note(ended.status not in (2, *command.statuses), f"status {ended.status}: {ended.err[-300:]}")
        half = "n" in states and name != "predict-many"
        note(half if ended.status == 2 else {*states} != {"n"}, f"status {ended.status}, but {states}")
    return fault.wrong


def mute(world: World, name: str, number: int, way: str) -> list[str]:
    """Let a standard stream take nothing: ``full``, a ``pipe`` nobody reads, or ``closed``; return what is wrong."""
    read, write = os.pipe()
    full = os.open("/dev/full", os.O_WRONLY)
    os.close(read)
    fault = Fault(wrap={number: {"full": full, "pipe": write, "closed": -1}[way]})
    prints = number == 1 and way != "closed" and name.startswith(("audit", "repair", "compare", "report"))
    expected = ((141,) if way == "pipe" else (2,)) if prints else COMMANDS[name].statuses
    with tried(world, name, fault) as (ended, states, note):
        note(ended.status not in expected, f"status {ended.status}, not {expected}: {ended.err[-300:]}")
        note({*states} != {"n"}, f"files: {states}")
    os.close(write)
    os.close(full)
    return fault.wrong


def contended(world: World, name: str, writers: int = 2, *, named: bool = False) -> list[str]:
    """Let several runs write the same files at once; return what is wrong afterwards."""
    command, wrong = COMMANDS[name], []
    with world.folder(name) as place:
        before = without_tmpfile if named else lambda: None
        for wait in [run(command.line, place, Fault(before), wait=False) for _ in range(writers)]:
            ended = wait()
            wrong += wrongs_of(world, name, place, ended)
            if ended.status not in command.statuses:
                wrong.append(f"status {ended.status}: {ended.err[-300:]}")
        states = states_of(world, name, place)
        wrong += [states] * ({*states} != {"n"})
        return wrong + [f"left {one}" for one in litter_of(place, world, command)]


AIMS = {
    "a folder": 2,
    "a second name of the input": 0,
    "the input": 2,
    "a pipe": 0,
    "a read-only file": 2,
    "in a read-only folder": 2,
    "in no folder": 2,
}
"""What the first file of a command may be -> 2 where the run must not happen."""

ALLOWED = {("predict", "a folder"), ("predict-csv", "a folder")}  # into which each file of the data gets one
"""Command and aim that go together."""


def aimed(world: World, name: str, aim: str) -> list[str]:
    """Let the first file that a command writes be something else; return what is wrong afterwards."""
    command, wrong = COMMANDS[name], []
    target, source = command.targets[0], command.inputs[0]
    line, before, data_spec = list(command.line), lambda: None, None
    with world.folder(name) as place:
        path = place / target
        input_before = (place / source).read_bytes()
        if aim in ("in no folder", "the input"):
            new = "none/" + target if aim == "in no folder" else source
            line = [re.sub(rf"(^|=){re.escape(target)}$", rf"\g<1>{new}", part) for part in line]
            if line == list(command.line):  # the files have their names from the data
                return []
            if aim == "the input":
                path = place / source
        elif aim.startswith(("a second", "a folder", "a pipe")):
            path.unlink()
        match aim:
            case "a folder":
                path.mkdir()
            case "a second name of the input":
                path.hardlink_to(place / source)
            case "a pipe":
                os.mkfifo(path)
                data_spec = os.open(path, os.O_RDWR | os.O_NONBLOCK)
                fcntl.fcntl(data_spec, fcntl.F_SETPIPE_SZ, 1 << 20)
            case "a read-only file":
                path.chmod(0o444)
                before = become_nobody
            case "in a read-only folder":
                place.chmod(0o555)
                before = become_nobody
        ended = run(line, place, Fault(before))
        place.chmod(0o777)
        wrong = [
            one for one in wrongs_of(world, name, place, ended) if not one.startswith(f"{target} is broken")
        ]
        refused = AIMS[aim] == 2 and (name, aim) not in ALLOWED
        expected = (2,) if refused else command.statuses
        if ended.status not in expected:
            wrong.append(f"status {ended.status}, not {expected}: {ended.err[-300:]}")
        if refused and not any(Path(one).name in ended.err for one in (*command.targets, source)):
            wrong.append(f"names no file: {ended.err[-300:]}")
        if refused != (AIMS[aim] == 2):
            return []
        if (place / source).read_bytes() != input_before:
            wrong.append("the input has changed")
        if data_spec is not None and os.read(data_spec, 1 << 20) != world.new(name)[target]:
            wrong.append("through the pipe came something else")
        wrong += [f"left {one}" for one in litter_of(place, world, command)]
        return wrong


def become_nobody() -> None:
    """Lose the rights of root, to whom nothing is read-only."""
    if os.getuid() == 0:
        os.setgroups([])
        os.setresgid(65534, 65534, 65534)
        os.setresuid(65534, 65534, 65534)


PLACES: Mapping[str, Fault] = {
    "no HOME": Fault(lambda: os.environ.pop("HOME", None)),
    "no TMPDIR": Fault(lambda: os.environ.update(TMPDIR="/nowhere")),
    "no stdin": Fault(wrap={0: -1}),
    "no stream at all": Fault(wrap={0: -1, 1: -1, 2: -1}),
    "ascii": Fault(encoding="ascii"),
    "an old clock": Fault(lambda: os.environ.update(SOURCE_DATE_EPOCH="-1")),
    "a clock that is none": Fault(lambda: os.environ.update(SOURCE_DATE_EPOCH="99999999999999999")),
    "no working folder": Fault(lambda: (Path("gone").mkdir(), os.chdir("gone"), Path("../gone").rmdir())),
}
"""Surroundings of a run."""


def surrounded(world: World, name: str, where: str) -> list[str]:
    """Run a command in odd surroundings; return what is wrong afterwards."""
    fault = replace(PLACES[where], wrong=[])
    with tried(world, name, fault) as (ended, states, note):
        if where in ("a clock that is none", "no working folder"):
            sound = ended.status == 2 and "n" not in states
        else:
            sound = ended.status in COMMANDS[name].statuses and {*states} == {"n"}
        note(not sound, f"{ended.status} {states} {ended.err[-300:]}")
    return fault.wrong
