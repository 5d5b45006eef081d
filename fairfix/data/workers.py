"""Workers on the parts of a source: threads of this process, or processes of a Dask cluster.

Parts are independent and what is made of them is added as a tree whose shape depends on their number alone: with + for
sums, ``((0 + 1) + (2 + 3)) + 4``. So the result is the same to the last bit whoever does the work, and however many
they are. A cluster adds where the parts were counted; one table comes back.
"""

from __future__ import annotations

import logging
import operator
import os
import platform
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import reduce
from importlib import import_module
from itertools import islice
from typing import Any, TypeVar

from fairfix.errors import DataError, UsageError

PATIENCE = 30
"""Seconds until a scheduler that does not answer is taken to be away."""

AHEAD = 8
"""Pieces whose results Dask's own scheduler makes at once where they are wanted one by one."""

SAME = ("fairfix", "numpy", "pyarrow")
"""Packages that workers must have in the version of this process, since bytes depend on them."""


SAFE_PATH = "PYTHONSAFEPATH"
"""Variable that keeps the folder in which a Python starts out of its path, be it there for ``-c`` or for ``-m``."""


@contextmanager
def started_safely() -> Iterator[None]:
    """Let no Python that starts in the block import from the working folder, whose modules may be a stranger's.

    Also those that libraries start to watch over others, and those that take the place of one that died. What is on
    the path of this process by the will of whoever started it stays on theirs.
    """
    before = os.environ.get(SAFE_PATH)
    os.environ[SAFE_PATH] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[SAFE_PATH]
        else:
            os.environ[SAFE_PATH] = before


Some = TypeVar("Some")
Made = TypeVar("Made")


class Workers(ABC):
    """Workers on pieces."""

    @abstractmethod
    def each(self, pieces: Sequence[Some], work: Callable[[Some], Made]) -> Iterator[Made]:
        """Yield ``work(piece)`` in the order of the pieces, a few of them ahead."""

    def total(self, pieces: Sequence[Some], work: Callable[[Some], Made]) -> Made | None:
        """Return the sum of ``work(piece)`` over all pieces, added as a tree; None where there is no piece."""
        return added(self.each(pieces, work))

    def replaced_by(self, workers: Workers) -> Workers:
        """Return the workers where others were asked for: those."""
        return workers


def added(sums: Iterable[Made]) -> Made | None:
    """Return the sum of all, added as a tree; None of nothing."""
    whole: list[tuple[int, Any]] = []  # sums of 2^height neighbours each, the heights falling
    for one in sums:
        height, grown = 0, one
        while whole and whole[-1][0] == height:
            grown = whole.pop()[1] + grown
            height += 1
        whole.append((height, grown))
    trees = [tree for _, tree in reversed(whole)]
    return reduce(lambda last, before: before + last, trees) if trees else None


@dataclass(frozen=True)
class Threads(Workers):
    """Threads of this process."""

    many: int | None = None
    """None for up to four, since reading is bound by memory."""

    def each(self, pieces: Sequence[Some], work: Callable[[Some], Made]) -> Iterator[Made]:
        """Yield ``work(piece)`` in the order of the pieces, a few of them ahead in threads."""
        many = min(self.many or min(4, os.cpu_count() or 1), len(pieces))
        if many <= 1:
            yield from map(work, pieces)
            return
        with ThreadPoolExecutor(many) as pool:
            ahead: deque[Future[Made]] = deque()
            try:
                for piece in pieces:
                    ahead.append(pool.submit(work, piece))
                    if len(ahead) > many:
                        yield ahead.popleft().result()
                while ahead:
                    yield ahead.popleft().result()
            finally:
                for future in ahead:
                    future.cancel()


LOADED: ContextVar[Mapping[str, Any]] = ContextVar("LOADED", default={})  # noqa: B039  never changed
"""Key -> rows that Dask has computed, while a task works on what is made of them."""


@dataclass(frozen=True)
class Cluster(Workers):
    """The workers of a Dask cluster, which see the data by the same names as this process.

    Where pieces have rows that Dask computes first, ``loaded_by`` has their key and how; see
    :mod:`fairfix.data.dask_frames`.
    """

    client: Any = None
    """A ``distributed.Client``; None for Dask's own scheduler."""
    partitions: bool = False
    """Whether the data is a frame of Dask. Pieces that are none of its partitions are worked on here then."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Travel as threads: what goes to a worker brings no cluster along."""
        return Threads, ()

    def replaced_by(self, workers: Workers) -> Workers:
        """Return the workers for a frame of Dask where others were asked for: a cluster's client, or Dask's own."""
        return replace(self, client=workers.client) if isinstance(workers, Cluster) else self

    def each(self, pieces: Sequence[Some], work: Callable[[Some], Made]) -> Iterator[Made]:
        """Yield ``work(piece)`` in the order of the pieces, a few of them for each worker ahead."""
        if self._works_here(pieces):
            yield from map(work, pieces)
            return
        leaves = iter(self._leaves(pieces, work))
        ahead = AHEAD if self.client is None else 4 * sum(self.client.nthreads().values())
        while few := list(islice(leaves, ahead)):
            with self._errors(pieces):
                made = self.computed(few)
            yield from made

    def total(self, pieces: Sequence[Some], work: Callable[[Some], Made]) -> Made | None:
        """Return the sum of ``work(piece)`` over all pieces, added as a tree by the workers, who keep no leaf."""
        if not pieces or self._works_here(pieces):
            return super().total(pieces, work)
        level, add = self._leaves(pieces, work), import_module("dask").delayed(operator.add)
        while len(level) > 1:
            pairs = [add(*level[i : i + 2]) for i in range(0, len(level) - 1, 2)]
            level = pairs + level[len(level) - len(level) % 2 :]
        with self._errors(pieces):
            made: Made = self.computed(level)[0]
            return made

    def _works_here(self, pieces: Sequence[Any]) -> bool:
        return self.partitions and not all(getattr(piece, "loaded_by", None) for piece in pieces)

    def _leaves(self, pieces: Sequence[Any], work: Callable[[Any], Any]) -> list[Any]:
        worked, run = import_module("dask").delayed(_worked, pure=False, traverse=False), os.urandom(8).hex()
        return [
            worked(work, *apart(piece), dask_key_name=f"fairfix-{run}-{number}")
            for number, piece in enumerate(pieces)
        ]

    def computed(self, leaves: Sequence[Any]) -> list[Any]:
        """Return the results of delayed work."""
        if self.client is None:
            return list(import_module("dask").compute(*leaves))
        return [future.result() for future in self.client.compute(list(leaves))]

    @contextmanager
    def _errors(self, pieces: Sequence[Any]) -> Iterator[None]:
        """Turn what Dask says of workers that are gone, and of rows of its own, into an error of the data."""
        from fairfix.data.frames import fetched

        try:
            with fetched("Dask frame") if self.partitions else nullcontext():
                yield
        except Exception as error:
            dask = None if self.client is None else _dask()
            if dask and isinstance(error, dask.KilledWorker):
                # Dask blames whatever the workers had to do when they died, which need not be what killed them
                number = str(error.task).rpartition("-")[2]
                where = pieces[int(number)].where if number.isdecimal() else "the addition of parts"
                raise DataError(
                    f"the workers of the cluster died, {error.allowed_failures + 1} one after another, with {where} "
                    "among what was their task; check their logs and their memory"
                ) from error
            if dask and isinstance(error, (dask.CancelledError, OSError, TimeoutError)):
                raise DataError(f"the cluster stopped, or a worker cannot read its part: {error}") from error
            raise


def apart(piece: Any) -> tuple[Any, str, Any]:
    """Return a piece without the rows that Dask computes for it, and their key and how they are computed."""
    loaded = getattr(piece, "loaded_by", None)
    if loaded is None:
        return piece, "", None
    return replace(piece, loaded_by=None), loaded.key, loaded.partition


def _worked(work: Callable[[Any], Any], piece: Any, key: str, rows: Any) -> Any:
    """Work on a piece, in a task of Dask."""
    token = LOADED.set({**LOADED.get(), key: rows})
    try:
        return work(piece)
    finally:
        LOADED.reset(token)


def _dask() -> Any:
    """Return Dask's package for clusters, which has no types."""
    try:
        return import_module("distributed")
    except ImportError as error:
        raise UsageError("`cluster` needs Dask: install it with pip install 'fairfix[dask]'") from error


@contextmanager
def workers_of(cluster: Any, threads: int | None = None) -> Iterator[Workers]:
    """Yield the workers: threads of this process, or those of a Dask cluster.

    ``cluster`` is the scheduler's address, ``local:N`` for N processes on this machine while the block lasts, or a
    ``distributed.Client``, which stays open. A UsageError where nobody answers, or the workers have other versions of
    what bytes depend on.
    """
    if cluster is None:
        yield Threads(threads)
        return
    dask = _dask()
    if not isinstance(cluster, str):
        yield Cluster(_checked_client(cluster, dask))
        return
    with ExitStack() as stack:
        kind, _, rest = cluster.partition(":")
        address: Any = cluster
        if kind == "local":
            if not rest.isdecimal() or not int(rest):
                raise UsageError(f"`cluster={cluster}`: give the number of processes, as in local:4")
            stack.enter_context(started_safely())
            address = stack.enter_context(
                dask.LocalCluster(
                    n_workers=int(rest),
                    threads_per_worker=1,
                    dashboard_address="127.0.0.1:0",
                    silence_logs=logging.CRITICAL,
                )
            )
        elif "://" not in cluster:
            raise UsageError(
                f"`cluster={cluster}`: give the scheduler's address, as tcp://HOST:8786, or local:N for N processes "
                "here"
            )
        try:
            client = stack.enter_context(dask.Client(address, timeout=PATIENCE, set_as_default=False))
        except (OSError, ValueError, TimeoutError) as error:
            raise UsageError(f"`cluster={cluster}`: no scheduler answers there: {error}") from error
        _check_versions(client, cluster)
        yield Cluster(client)


def _checked_client(client: Any, dask: Any) -> Any:
    """Return a client that is given; a UsageError where it is none, or its cluster cannot work."""
    if not isinstance(client, dask.Client):
        raise UsageError(
            f"`cluster`: {type(client).__name__} is not a client; give a distributed.Client, such as "
            "Client(cluster), the scheduler's address, or local:4"
        )
    if client.asynchronous or client.status != "running":
        state = "is asynchronous" if client.asynchronous else f"is {client.status}"
        raise UsageError(f"`cluster`: the client {state}; give a running client, made with Client(...)")
    _check_versions(client, client.scheduler.address)
    return client


def _check_versions(client: Any, cluster: str) -> None:
    """Raise a UsageError where there is no worker, or one has other versions."""
    own = _versions()
    try:
        client.wait_for_workers(1, timeout=PATIENCE)
        by_worker = client.run(_versions)
    except TimeoutError as error:
        raise UsageError(f"`cluster={cluster}`: the scheduler has no workers") from error
    except ModuleNotFoundError as error:
        raise UsageError(f"`cluster={cluster}`: the workers do not have fairfix: {error}") from error
    for worker, versions in sorted(by_worker.items()):
        for name, here in own.items():
            if versions[name] != here:
                raise UsageError(
                    f"`cluster={cluster}`: the worker {worker} has {name} {versions[name]}, this process has {here}; "
                    "install the same versions, so results are the same"
                )


def _versions() -> dict[str, str]:
    """Return the versions that results depend on."""
    from importlib.metadata import version

    return {"python": platform.python_version(), **{name: version(name) for name in SAME}}
