"""A process that is asked to stop ends, whatever library it is in; one without memory says so and ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="locks and limits of Linux")

LOCKED = (
    "import ctypes; m = ctypes.create_string_buffer(64); f = ctypes.{kind}(None).pthread_mutex_lock; f(m); "
)
"""A second `f(m)` never comes back, and no signal ends it: with Python's lock (PyDLL), or without (CDLL)."""

BEGIN = "import sys; from fairfix import cli; cli.DEAF = {deaf}; "


def stopped(program: str, number: signal.Signals, *, deaf: float = 0.5) -> int:
    """Run a program until it has printed, send a signal, return its status."""
    line = [sys.executable, "-c", BEGIN.format(deaf=deaf) + program]
    with subprocess.Popen(line, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            time.sleep(0.5)
            process.send_signal(number)
            status = process.wait(timeout=60)
        finally:
            process.kill()
    return 128 - status if status < 0 else status


@pytest.mark.slow
@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_library_that_does_not_come_back_does_not_make_deaf(number: signal.Signals, status: int) -> None:
    """Nobody hears the signal in Python, so the process ends without."""
    lock = LOCKED.format(kind="CDLL")
    assert stopped(f"{lock}cli._STOP.begin(); print(flush=True); f(m)", number) == status


def test_a_library_that_is_loaded_for_ever_does_not_make_deaf() -> None:
    """Loading holds Python's lock, so no thread of Python could end the process."""
    lock = LOCKED.format(kind="PyDLL")
    hang = "lambda loader, spec: (print(flush=True), f(m))"
    load = "from importlib.machinery import ExtensionFileLoader as L, ModuleSpec; "
    start = f"L.create_module = {hang}; cli._STOP.begin(); L('x', 'x').create_module(ModuleSpec('x', None))"
    assert stopped(lock + load + start, signal.SIGTERM) == 143


@pytest.mark.slow
def test_putting_in_order_takes_its_time() -> None:
    """A run that heard the signal may take longer than a library may, as may a block that nothing interrupts."""
    slow = (
        "import time\ncli._STOP.begin()\n{head}\n    print(flush=True); time.sleep({first})\nfinally: {last}"
    )
    heard = slow.format(head="try:", first=30, last="time.sleep(1.5); import os; os._exit(7)")
    assert stopped(heard, signal.SIGTERM, deaf=0.1) == 7
    block = "import time; from fairfix.data.signals import uninterrupted\ncli._STOP.begin()\nwith uninterrupted():\n"
    block += "    print(flush=True); time.sleep(1.5); import os; os._exit(7)"
    assert stopped(block, signal.SIGTERM, deaf=0.1) == 7


@pytest.mark.parametrize("kilobytes", [150_000, 400_000, 600_000])
def test_too_little_memory_is_refused(tmp_path: Path, kilobytes: int) -> None:
    """With status 2, before a library is loaded that asks for more for ever."""
    data = tmp_path / "d.csv"
    data.write_text("g,label,score\n" + "a,1,.5\nb,0,.4\n" * 20)
    line = f'ulimit -v {kilobytes}; exec "$@"'
    command = [sys.executable, "-m", "fairfix", "audit", str(data), "--protected", "g", "--config", "none"]
    free = {name: value for name, value in os.environ.items() if not name.endswith("_NUM_THREADS")}
    done = subprocess.run(
        ["bash", "-c", line, "bash", *command],
        capture_output=True,
        text=True,
        timeout=60,
        env=free,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    assert "[memory]" in done.stderr
