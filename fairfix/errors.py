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

from collections.abc import Mapping
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
    STOPPED = 143
    """Asked to stop (SIGTERM), as by a CI system whose time is over."""


class FairfixError(Exception):
    """Root of every error fairfix raises on purpose."""

    exit_status = ExitStatus.DID_NOT_RUN
    code = "usage"
    """By which programs know the class of problem; :data:`CODES` says what it means."""


class UsageError(FairfixError):
    """The options contradict each other or ask for something that does not exist."""


class ConfigError(UsageError):
    """A configuration file cannot be read or holds an unknown key."""

    code = "config"


class DataError(FairfixError):
    """The data cannot answer the question; the message names column, value and remedy."""

    code = "data"


class ColumnError(DataError):
    """A column is missing, ambiguous or of the wrong type; ``text`` leaves out the ``listing`` of what there is."""

    code = "column"

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

    code = "model"


class ArtifactError(FairfixError):
    """A ``.fairfix`` file is damaged, hostile or of an unknown format."""

    code = "artifact"


class FairfixWarning(UserWarning):
    """Something the reader of a result must know."""

    code = "caution"


class ConvergenceWarning(FairfixWarning):
    """A solver stopped before it reached its tolerance."""

    code = "not_converged"


CODES: Mapping[str, Mapping[str, str]] = {
    "error": {
        "usage": "the question does not make sense: parameters contradict each other, or name what does not exist",
        "config": "the configuration file cannot be read, or holds a key or a waiver that fairfix does not know",
        "data": "the data cannot answer the question; the message names the column or value, and what to do",
        "column": "a column is missing, there twice, ambiguous or of the wrong type; name columns by parameters",
        "model": "a model file is refused, unreadable or does not fit the data",
        "artifact": "a file of a repair or of counts is damaged, changed or from another format",
        "output": "what was printed could not be written, such as to a full disk",
        "interrupted": "the run was stopped from outside before it ended",
        "bug": "fairfix did what it should not; `debug` shows the traceback, which belongs into a report of the bug",
    },
    "verdict": {
        "beyond_limit": "the whole interval, or the value with `gate_on=point`, is beyond the limit: fail",
        "within_limit": "all of it is within the limit: pass",
        "limit_inside": "the limit lies inside the interval: more rows would tell, or another limit",
        "within_error": "the value is nearer to the limit than its numerical error",
        "unchanged": "a number is the very one of the baseline, from a result with the same content: pass",
        "group_undefined": "a group has no value, such as a rate over no rows, so the check can fail but not pass",
        "value_undefined": "the data do not give the value",
        "not_computed": "the number was not computed: it needs a label, a score or an option that is not there",
        "fit_only": "a repair from counts was judged on the counts that it was made of; give others as `proof_counts`",
        "not_shown": "a group of the number is hidden by `suppress_below`",
        "not_comparable": "the baseline has not this number, or asks another question",
        "few_common_rows": "too few rows are in both files to say how the number has changed",
    },
    "note": {
        "note": "how the result was made; nothing to do",
        "caution": "something that the reader of the result must know",
        "not_converged": "a solver stopped before its tolerance: the result is usable, but not the best there is",
        "read_as": "how a file is written had to be found out, and how it was read; options say it for sure",
        "score_direction": "scores are lower for rows of label 1: the label or the score is another one than meant",
        "rounding": "deterministic decisions miss the slack or leave the gap; randomised ones hold it",
        "no_help": "nothing shows that the repair helped: the gap before was not certain, and it is not smaller after",
        "gap_before": "the gap before the repair may have been within the slack already",
        "gap_after": "the gap is not smaller on held-out rows",
        "levelled_down": "the repair raises the rate of no group, and lowers that of some group",
        "slack": "the rule misses its slack on the rows of the fit",
        "constant": "everybody has the same value, on held-out rows or on those of the fit",
        "selection": "everybody, or nearly everybody, is decided alike",
        "selection_moved": "many more are selected than before, or many fewer, which no slack bounds",
        "small_group": "groups of few rows make most of what the repair costs the others",
        "equal_rows": "rows whose result is drawn equal others in every column; name a column of identities with `id`",
        "nothing_proven": "a repair from counts has no others to prove it; all of its figures are of the fit",
        "held_out_unknown": "whether rows of the fit are among those of the proof is not known; count shares",
        "suppressed": "rows of small groups are hidden in the counts; certified rates allow for them",
        "shared_ids": "rows whose result is drawn share their id with another row, and so one draw",
    },
}
"""Code -> what it means and what to do, for errors, for the verdicts of checks, and for notes and warnings."""
