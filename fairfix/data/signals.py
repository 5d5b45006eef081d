"""Signals that ask a process to stop, and blocks that they wait for."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from threading import current_thread, main_thread
from typing import Any

STOPPING = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))
"""Signals that ask a process to stop; Windows has no SIGHUP."""


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Let signals to stop wait until the block has ended; they come to the main thread alone."""
    if current_thread() is not main_thread():
        yield
        return
    came: list[int] = []
    kept: dict[int, Any] = {}
    try:
        for number in STOPPING:
            kept[number] = signal.signal(number, lambda number, _: came.append(number))
        yield
    finally:
        for number, handler in kept.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        for first in came[:1]:
            signal.raise_signal(first)
