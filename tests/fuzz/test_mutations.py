"""Changed files are refused with a message or read as what they are, and small ones do not fill the memory."""

from __future__ import annotations

import copy
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from tests.fuzz import mutations, mutators
from tests.fuzz.mutations import Workshop
from tests.fuzz.originals import ORIGINALS, Original, content_of
from tests.strategies import SEED, examples

RUNS = {"artifact": 550, "counts": 300, "noise": 300, "model": 300, "result": 500}
"""Runs of each kind; a fifth of them in a pull request, some 15 s of one processor in all."""


@pytest.fixture(scope="module")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Workshop:
    return Workshop(tmp_path_factory.mktemp("workshop"))


def of_kind(kind: str) -> list[Original]:
    return [one for one in ORIGINALS if one.kind == kind]


@pytest.mark.slow
@pytest.mark.parametrize("kind", RUNS)
def test_a_changed_file_is_refused_or_read_as_what_it_is(kind: str, workshop: Workshop) -> None:
    """No bug, no traceback, no hang, nothing written with a no, no number that cannot be, no code that runs."""
    originals = of_kind(kind)
    runs = [workshop.run(originals[at % len(originals)], int(SEED), at) for at in range(examples(RUNS[kind]))]

    assert [(at, one.name, one.command, one.how, one.fault) for at, one in enumerate(runs) if one.fault] == []
    assert {one.status for one in runs} >= {0, 2}


@pytest.mark.slow
def test_small_files_do_not_fill_the_memory() -> None:
    """Each is refused by a process that may have 400 MiB more than it has."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.fuzz.bombs"],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parents[2],
    )

    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]


@pytest.mark.parametrize(
    ("status", "out", "err", "fault"),
    [
        (2, "", "fairfix: changed.fairfix is not sound [artifact]", ""),
        (2, "", "fairfix: something is not sound [artifact]", "does not name the file"),
        (2, "", "", "without a message"),
        (2, "", "fairfix: changed.fairfix \x1b[31m [artifact]", "stderr holds"),
        (2, "", f"fairfix: changed.fairfix {'x' * 5000} [artifact]", "more than"),
        (0, "", "", "nothing is printed"),
        (0, "method \u202e", "", "stdout holds"),
        (0, "method ramp", "Traceback (most recent call last)", "a traceback"),
        (1, "method ramp", "", "status 1"),
    ],
)
def test_the_oracle_sees_what_is_wrong(
    status: int, out: str, err: str, fault: str, workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mutations, "called", lambda _: (status, out, err))
    original = of_kind("artifact")[0]
    one = workshop.read(original, original.commands[0], b"x", "all")

    assert fault in one.fault
    assert bool(fault) == bool(one.fault)


def test_the_oracle_sees_files_hangs_and_code(workshop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    original, own = of_kind("artifact")[0], mutations.called

    def after(action: Callable[[], object]) -> str:
        def acting(line: Sequence[str]) -> tuple[int, str, str]:
            action()
            return own(line)

        monkeypatch.setattr(mutations, "called", acting)
        return workshop.read(original, original.commands[0], b"x", "all").fault

    def hang() -> None:
        with mutations.bounded(0.05):
            while True:
                pass

    assert after(lambda: Path("ran").touch()) == "code in the file ran"
    assert "writes ['bench/more']" in after(lambda: Path("more").touch())
    assert "hangs" in after(hang)
    assert after(lambda: None) == ""


@pytest.mark.parametrize("kind", RUNS)
def test_what_changes_nothing_is_read(kind: str, workshop: Workshop) -> None:
    """Taken apart and put together again, every file is valid: what is refused later is refused for its change."""
    for original in of_kind(kind)[:2]:
        content = content_of(original, workshop.root)
        whole = mutators.Sealed.of(content).sealed() if original.change is mutators.change_sealed else content
        one = workshop.read(original, original.commands[0], whole, "nothing")

        assert (one.fault, one.status != 2) == ("", True), (original.name, one.err)


def test_every_place_of_a_tree_is_changed() -> None:
    tree = {"list": [1, {"name": "a", "on": True}], "table": {"x": 0.5, "none": None}, "text": "b"}
    rng = np.random.default_rng(0)
    hows = {mutators.change_tree(rng, copy.deepcopy(tree)) for _ in range(300)}

    assert hows == {"/".join(map(str, path)) for path in mutators.places(tree)}
