"""Everything fairfix can say no with, and the exit status each becomes.

::

    FairfixError                 2   did not run
    ├── UsageError               2   the question itself does not make sense
    │   └── ConfigError          2   a config file says something fairfix does not know
    ├── DataError                2   the data cannot carry the question: names column, value, remedy
    │   ├── ColumnError          2   a column is missing, ambiguous or of the wrong type
    │   └── EntryError         2   an entry is none that its column may hold
    ├── ModelError               2   a model file is refused, unreadable or does not fit the data
    └── ArtifactError            2   a .fairfix file is damaged, hostile or from another format

    FairfixWarning                   something the reader must know; the run goes on
    └── ConvergenceWarning           a solver stopped before its tolerance

The library raises these and never exits; only :mod:`fairfix.cli` turns them into a status.
"""

from __future__ import annotations

from enum import IntEnum


class ExitStatus(IntEnum):
    """What the process says to the shell; each value has one meaning."""

    OK = 0
    """Ran to the end; every gated check passed (or nothing was gated)."""
    FAILED = 1
    """Ran to the end; a gated check failed."""
    DID_NOT_RUN = 2
    """Usage, configuration, unreadable or inconsistent data, refused model file, bad artifact."""
    UNDECIDED = 3
    """Ran; nothing failed, but a gated check could not be decided."""
    BUG = 70
    """A bug in fairfix (``EX_SOFTWARE``)."""
    INTERRUPTED = 130
    """Stopped by the user."""


class FairfixError(Exception):
    """Root of every error fairfix raises on purpose."""

    exit_status = ExitStatus.DID_NOT_RUN


class UsageError(FairfixError):
    """The options contradict each other or ask for something that does not exist."""


class ConfigError(UsageError):
    """A configuration file cannot be read or holds an unknown key."""


class DataError(FairfixError):
    """The data cannot answer the question; the message names column, value and remedy."""


class ColumnError(DataError):
    """A column is missing, ambiguous or of the wrong type; ``text`` leaves out the ``listing`` of what there is."""

    def __init__(self, text: str, listing: str = "") -> None:
        super().__init__(text + listing)
        self.text, self.listing = text, listing


class EntryError(DataError):
    """An entry is none that its column may hold: ``place`` says which and where, ``part`` the role of ``column``."""

    def __init__(self, part: str, column: str, place: str, remedy: str) -> None:
        super().__init__(place + remedy)
        self.part, self.column, self.place = part, column, place


class ModelError(FairfixError):
    """A user's model file is refused, unreadable or does not fit the data."""


class ArtifactError(FairfixError):
    """A ``.fairfix`` file is damaged, hostile or of an unknown format."""


class FairfixWarning(UserWarning):
    """Something the reader of a result must know."""


class ConvergenceWarning(FairfixWarning):
    """A solver stopped before it reached its tolerance."""
