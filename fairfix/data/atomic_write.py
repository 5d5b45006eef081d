"""Files that take the place of others, whole, or in a set all at once.

What is written has no name before all of it is on the disk (``O_TMPFILE``), so a process that is killed leaves nothing
behind. A file without a name cannot replace another: for the blink of a rename it is called ``.NAME.0.part``. Where
there are no files without names (macOS, Windows, some network drives) it is called so from its first byte. Whoever
writes keeps it locked; what nobody holds is of a dead process, and the next who writes the same file removes it.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from importlib import import_module
from itertools import chain
from pathlib import Path
from secrets import token_hex
from typing import IO, Any, TypeVar

from fairfix.data.signals import uninterrupted
from fairfix.data.targets import check_links
from fairfix.errors import DataError

T = TypeVar("T")

fcntl: Any = import_module("fcntl") if os.name == "posix" else None
"""Locks; Windows needs none, where nobody can remove what another has open."""

AT_ONCE = 8
"""Number of names searched for leftovers of killed processes, and of processes that may write one file at once."""

LONGEST = 230
"""Bytes of a file's name kept in its temporary name; file systems take 255 in all."""

FULL = dict.fromkeys((errno.ENOSPC, errno.EDQUOT), "free some space, or name a file elsewhere") | {
    errno.EFBIG: "raise the limit (ulimit -f), or name a file elsewhere",
    errno.EIO: "check the disk, or name a file elsewhere",
}
"""Errors of a place that takes no more -> what helps."""


def check_writable(target: Path) -> None:
    """Raise a DataError where a file cannot be written or must not be replaced, as far as that can be known before."""
    check_links(target)
    if target.is_dir():
        raise DataError(f"{target} is a folder; name a file")
    place = target.parent.resolve() / target.name
    if place.exists() and not os.access(place, os.W_OK):
        raise DataError(f"cannot write {target}: it is read-only; make it writable, or name another file")
    if place.parent.is_dir() and not os.access(place.parent, os.W_OK | os.X_OK):
        raise DataError(
            f"cannot write {target}: no file can be created in {place.parent}, which is needed to replace it; "
            "name a file in another folder"
        )


@contextmanager
def written(target: Path, *, errors: Collection[int] | None = None) -> Iterator[None]:
    """Turn errors of the system, or those of some numbers, into a DataError that names the file and what helps."""
    try:
        yield
    except OSError as error:
        if errors is not None and error.errno not in errors:
            raise
        remedy = FULL.get(error.errno or 0, "name another file")
        raise DataError(f"cannot write {target}: {error.strerror or error}; {remedy}") from error


class Replacement:
    """``file`` is written next to ``target`` and takes its place by :meth:`publish`, or is gone by :meth:`discard`.

    The name gets a new file, which other names of the old one do not see, and which nobody may run.
    """

    def __init__(self, target: Path) -> None:
        self.target = target
        self.place = place = target.parent.resolve() / target.name
        self._mode = place.lstat().st_mode & 0o666 if place.exists() else None
        self._name: Path | None = None
        self.file = self._without_name() or self._with_name()

    def finish(self) -> None:
        """Bring all that is written to the disk."""
        self.file.flush()
        os.fsync(self.file.fileno())

    def publish(self, *, new: bool = False) -> None:
        """Let the finished file take its place; whoever might read or write what was there may do so now.

        Of a ``new`` one, a FileExistsError where there is a file by now: another process has made it.
        """
        if self._mode is not None and fcntl is not None:
            os.fchmod(self.file.fileno(), self._mode)
        if self._name is None:
            self._give_name()
        assert self._name is not None
        if fcntl is None:
            self.file.close()  # Windows renames nothing that is open
        if new:
            self._name_new(self._name)
        else:
            self._name.replace(self.place)
        self._name = None
        self.file.close()

    def _name_new(self, name: Path) -> None:
        """Move the file to its place where nothing is there, of several processes in one alone."""
        try:
            self.place.hardlink_to(name)
        except FileExistsError:
            raise
        except OSError:  # a file system without links: another process could come between these two
            if self.place.exists():
                raise FileExistsError(errno.EEXIST, "it exists", str(self.place)) from None
            name.replace(self.place)
        else:
            name.unlink()

    def discard(self) -> None:
        """Let nothing remain of a file that has not taken its place."""
        with suppress(OSError):
            self.file.close()
        if self._name is not None:
            with suppress(OSError):
                self._name.unlink()

    def _without_name(self) -> IO[bytes] | None:
        """Return a file that has no name; None where there are none such."""
        if not hasattr(os, "O_TMPFILE") or not Path("/proc/self/fd").is_dir():
            return None
        try:
            handle = os.open(self.place.parent, os.O_TMPFILE | os.O_RDWR, self._mode or 0o666)
        except OSError:  # if the folder is at fault, the other way says so
            return None
        _locked(handle)
        return os.fdopen(handle, "wb")

    def _with_name(self) -> IO[bytes]:
        """Return a new file in the folder of the target."""

        def make(name: Path) -> int:
            while True:
                flags = os.O_CREAT | os.O_EXCL | os.O_RDWR | getattr(os, "O_BINARY", 0)
                handle = os.open(name, flags, self._mode or 0o666)
                self._name = name
                if not _locked(handle) or os.fstat(handle).st_nlink:
                    return handle
                os.close(handle)  # taken for that of a dead process, before it was locked

        return os.fdopen(self._beside(make), "wb")

    def _give_name(self) -> None:
        """Give the file a name in the folder of the target."""
        number = self.file.fileno()

        def link(name: Path) -> None:
            # the descriptor of a folder is not used, but makes Python call linkat, which alone follows the link
            os.link(f"/proc/self/fd/{number}", name, src_dir_fd=number, follow_symlinks=True)
            self._name = name

        try:
            self._beside(link)
        except OSError:  # rules of the system may forbid to link
            written, self.file = self.file, self._with_name()
            with written, os.fdopen(number, "rb", closefd=False) as content:
                content.seek(0)
                shutil.copyfileobj(content, self.file)
            self.finish()

    def _beside(self, make: Callable[[Path], T]) -> T:
        """Return what is made by the first free name, after what the dead have left is removed."""
        stem = os.fsdecode(os.fsencode(self.place.name)[:LONGEST])
        names = [self.place.with_name(f".{stem}.{i}.part") for i in range(AT_ONCE)]
        for name in names:
            _remove_abandoned(name)
        for name in chain(names, (self.place.with_name(f".{token_hex(8)}.part") for _ in range(AT_ONCE))):
            with suppress(FileExistsError):
                return make(name)
        raise FileExistsError(errno.EEXIST, "too many processes write it at once", str(self.place))


def _locked(handle: int) -> bool:
    """Lock a new file until it is closed, be it by death; return whether it could be."""
    if fcntl is None:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
    except OSError:  # no locks here: then nobody takes it for abandoned either
        return False
    return True


def _remove_abandoned(name: Path) -> None:
    """Remove the file of a process that was killed."""
    if fcntl is None:
        with suppress(OSError):
            name.unlink()  # fails while it is open
        return
    try:
        handle = os.open(name, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:  # there is none, or it is not ours
        return
    with suppress(OSError):  # it is being written
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(handle), name.lstat()):
            name.unlink()
    os.close(handle)


_STAGED: ContextVar[list[Replacement] | None] = ContextVar("staged", default=None)
"""Finished files that wait for the end of :func:`together`."""


@contextmanager
def together(then: Callable[[], object]) -> Iterator[None]:
    """Let the files that are written in the block take their places at its end: all, in this order, or none.

    Signals to stop wait until all have. A process that is killed between two renames leaves the earlier files new and
    the later ones old. ``then`` is called when all stand, before a signal comes through.
    """
    staged: list[Replacement] = []
    token = _STAGED.set(staged)
    try:
        yield
        with uninterrupted():
            for one in staged:
                with written(one.target):
                    one.publish()
            then()
    finally:
        _STAGED.reset(token)
        for one in staged:
            one.discard()


@contextmanager
def replacing(target: Path) -> Iterator[IO[bytes]]:
    """Yield a file that takes the place of another when the block ends well, or that around it of :func:`together`."""
    one, staged = None, _STAGED.get()
    try:
        with written(target), uninterrupted():
            one = Replacement(target)
        with written(target, errors=FULL):
            yield one.file
        with written(target), uninterrupted():
            one.finish()
            if staged is None:
                one.publish()
            else:
                staged.append(one)
    except BaseException:
        if one is not None:
            one.discard()
        raise


@contextmanager
def exclusively(target: Path) -> Iterator[None]:
    """Keep other processes that ask for the same file waiting, where the system has locks."""
    with written(target):
        handle = os.open(target, os.O_RDONLY)
    try:
        _locked(handle)
        yield
    finally:
        os.close(handle)


def created(target: Path, content: IO[bytes]) -> bool:
    """Write a file that is not there yet, whole; return whether it was not: else another process has made it."""
    with written(target):
        one = Replacement(target)
        try:
            with uninterrupted():
                shutil.copyfileobj(content, one.file)
                one.finish()
                one.publish(new=True)
        except FileExistsError:
            return False
        finally:
            one.discard()
    return True
