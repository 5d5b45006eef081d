"""Whatever ends a run, each of its files is old or new, nothing else stays, and status and words say what happened."""

from __future__ import annotations

import random
import signal
import sys
from collections.abc import Iterator

import pytest

from tests.fuzz.faults import (
    AIMS,
    CHANGES,
    COMMANDS,
    HOUSE,
    PLACES,
    READING,
    SIGNALS,
    WRITING,
    World,
    aimed,
    cheated,
    contended,
    killed,
    limited,
    moments_of,
    mute,
    starved,
    stopped,
    surrounded,
    watched,
)
from tests.strategies import SEED, examples

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="forks, /proc and /dev/full")

QUICK = ("predict", "predict-csv", "predict-many", "export", "init", "count-sum")
"""Commands that take the fewest milliseconds."""


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """The files that commands read, where everybody may look at them."""
    folder = tmp_path_factory.mktemp("faults")
    for one in (folder, *folder.parents[:2]):
        one.chmod(0o755)
    return World(folder)


@pytest.mark.slow
@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("name", [*QUICK, "report", "audit"])
def test_what_a_kill_leaves_is_old_or_new(name: str, named: bool, world: World) -> None:
    """At each moment of the writing, with files without names and without such; what has one, the next run removes."""
    if named and name in ("audit", "report"):
        return
    wrong, moments = watched(world, name, named=named)
    assert wrong == []
    assert moments
    if name in QUICK:
        for at in {moments[0], moments[len(moments) // 2], moments[-1]}:
            assert killed(world, name, at, named=named) == []


def test_without_a_name_next_to_nothing_can_stay(world: World) -> None:
    """A file has a name beside its place for the few lines of its renaming, and else from its beginning."""
    assert len(watched(world, "predict")[1]) < 15 < len(watched(world, "predict", named=True)[1])


@pytest.mark.slow
@pytest.mark.parametrize("number", SIGNALS)
@pytest.mark.parametrize("name", ["predict", "count-sum", "report"])
def test_a_run_that_is_asked_to_stop_leaves_all_or_nothing(
    name: str, number: signal.Signals, world: World
) -> None:
    """With the status of the signal, be it sent once or twice."""
    moments = moments_of(world, name, WRITING)
    for times, named in ((1, False), (2, True)):
        at = random.Random(f"{name} {number} {times}").randint(1, moments)
        assert stopped(world, name, number, at, named=named, times=times) == [], at


@pytest.mark.slow
@pytest.mark.parametrize("name", COMMANDS)
def test_a_run_may_be_ended_at_any_line(name: str, world: World) -> None:
    """Also outside of the modules that write: killed, and asked to stop."""
    moments, draw = moments_of(world, name, (HOUSE,)), random.Random(f"{name} {SEED}")
    for _ in range(examples(30)):
        at = draw.randint(1, moments)
        assert killed(world, name, at, modules=(HOUSE,)) == [], at
        assert stopped(world, name, draw.choice([*SIGNALS]), at, modules=(HOUSE,)) == [], at


@pytest.mark.parametrize("name", [*QUICK, "report"])
def test_a_full_disk_changes_nothing(name: str, world: World) -> None:
    sizes = sorted(map(len, world.new(name).values()))
    for size in {sizes[0] // 2, sizes[-1] - 1}:
        assert limited(world, name, size) == [], size


@pytest.mark.parametrize("spare", [1 << 20, 16 << 20])
@pytest.mark.parametrize("name", ["audit-csv", "predict", "count-sum"])
def test_want_of_memory_is_said(name: str, spare: int, world: World) -> None:
    assert starved(world, name, spare) == []


@pytest.mark.slow
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("name", ["predict", "predict-csv", "predict-many"])
def test_a_file_that_changes_while_it_is_read_is_refused(name: str, change: str, world: World) -> None:
    """Or has been read already."""
    moments = moments_of(world, name, READING)
    for part in (0.4, 0.7):
        assert cheated(world, name, change, int(part * moments)) == [], part


@pytest.mark.slow
@pytest.mark.parametrize("name", ["report", "predict"])
@pytest.mark.parametrize("number", [1, 2])
@pytest.mark.parametrize("way", ["full", "pipe", "closed"])
def test_a_stream_that_takes_nothing_harms_no_file(name: str, number: int, way: str, world: World) -> None:
    assert mute(world, name, number, way) == []


@pytest.mark.slow
@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("name", ["predict", "count-sum", "report"])
def test_writers_at_once_leave_whole_files(name: str, named: bool, world: World) -> None:
    assert contended(world, name, 3, named=named) == []


@pytest.mark.slow
@pytest.mark.parametrize("aim", AIMS)
@pytest.mark.parametrize("name", ["report", "predict"])
def test_odd_targets(name: str, aim: str, world: World) -> None:
    """Pipes get all of it, and what must not be replaced is named before the work is done."""
    assert aimed(world, name, aim) == []


@pytest.mark.slow
@pytest.mark.parametrize("where", PLACES)
@pytest.mark.parametrize("name", ["report", "predict"])
def test_odd_surroundings(name: str, where: str, world: World) -> None:
    assert surrounded(world, name, where) == []


def test_every_command_that_writes_is_tried(world: World) -> None:
    from tests.test_cli.test_outputs import RUNS

    assert {name.partition("-")[0] for name in COMMANDS} == set(RUNS)
