"""Progress of a long task on standard error: a spinner, or a bar where the steps are known.

Shown on a terminal only and gone when the work is done, so that neither a pipe nor a log ever sees it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

PATIENCE = 0.8
"""Seconds that pass before anything is shown."""


Watchers = tuple[Callable[[int], None], Callable[[str], None]]
"""The first is called with how many steps are done in addition, the second with what is begun."""


def _nothing(_: Any) -> None:
    """Show nothing."""


@contextmanager
def working(given: Mapping[str, Any], what: str, total: int | None = None) -> Iterator[Watchers]:
    """Show what is being done while the block runs; yield what to call in it.

    Parameters
    ----------
    given
        The options of the command; ``quiet`` shows nothing.
    what
        In words, such as ``reading loans.parquet``.
    total
        Number of steps, where it is known.
    """
    if given.get("quiet") or not sys.stderr.isatty():
        yield _nothing, _nothing
        return
    from threading import Timer

    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    columns = [SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn()]
    if total is not None:
        columns.insert(2, TextColumn("{task.completed} of {task.total}"))
        columns += [TextColumn("left:"), TimeRemainingColumn(elapsed_when_finished=True)]
    shown = Progress(*columns, console=Console(stderr=True), transient=True)
    task = shown.add_task(what, total=total)
    timer = Timer(PATIENCE, shown.start)
    timer.daemon = True
    timer.start()
    try:
        yield (
            lambda steps: shown.advance(task, steps),
            lambda part: shown.update(task, description=f"{what}: {part}"),
        )
    finally:
        timer.cancel()
        timer.join()
        shown.stop()
