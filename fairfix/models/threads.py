"""Threads: how many a fit takes, and the same bits whatever their number.

The sums of a matrix product depend on the number of threads, so those take one. Trees are grown feature by feature,
each by one thread, so that theirs do not. One thread is the default there too: those of a tree wait for one another at
each node, which on a busy machine takes ten times as long as one thread that waits for nobody.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from threadpoolctl import ThreadpoolController

_ASKED: ContextVar[int] = ContextVar("threads", default=1)


@contextmanager
def threads_of_fits(many: int | None) -> Iterator[None]:
    """Let trees that are fitted inside be grown by a number of threads; None for one."""
    token = _ASKED.set(many or 1)
    try:
        yield
    finally:
        _ASKED.reset(token)


@contextmanager
def limited() -> Iterator[None]:
    """Limit computations inside to the threads that were set.

    Only libraries that are loaded are limited: whoever needs another one than scipy's imports it before.
    """
    import scipy.linalg  # noqa: F401  brings a library of its own for matrices

    with _libraries(len(sys.modules)).limit(limits={"blas": 1, "openmp": _ASKED.get()}):
        yield


@lru_cache(maxsize=1)
def _libraries(modules: int) -> ThreadpoolController:
    """Return the libraries that are loaded; looking for them takes as long as a fit of 100,000 rows by a ramp.

    A library comes with a module, so nothing is new while there are as many ``modules``.
    """
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()
