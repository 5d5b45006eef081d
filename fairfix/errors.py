"""Everything fairfix can say no with, and the exit status each becomes.

::

    FairfixError                 2   did not run
    ├── UsageError               2   the question itself does not make sense
    │   ├── ConfigError          2   a config file says something fairfix does not know
    │   └── UnsentError          0   a dry run has come to the first question that it does not ask
    ├── DataError                2   the data cannot carry the question: names column, value, remedy
    │   ├── ColumnError          2   a column is missing or of the wrong type
    │   │   └── AmbiguousError   2   several columns could play a part
    │   ├── UnreadableError      2   a file is not of the kind it is read as, or damaged
    │   └── EntryError         2   an entry is none that its column may hold
    ├── ModelError               2   a model file is refused, unreadable or does not fit the data
    └── ArtifactError            2   a .fairfix file is damaged, hostile or from another format

    FairfixWarning                   something the reader must know; the run goes on
    └── ConvergenceWarning           a solver stopped before its tolerance

The library raises these and never exits; only :mod:`fairfix.cli` turns them into a status.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Self


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
    HUNG_UP = 129
    """The terminal was closed, or the connection to it (SIGHUP)."""
    INTERRUPTED = 130
    """Stopped by the user."""
    STOPPED = 143
    """Asked to stop (SIGTERM), as by a CI system whose time is over."""


class FairfixError(Exception):
    """Root of every error fairfix raises on purpose."""

    exit_status = ExitStatus.DID_NOT_RUN
    code = "usage"
    """By which programs know the class of problem; :data:`CODES` says what it means."""
    quotes = False
    """Whether the message may quote values of the data; then it is withheld where small groups are suppressed."""

    instead: Sequence[tuple[str, str]] = ()
    """(Text of a command, what to type in its place), one for each way to go on; an empty text adds NAME=VALUE."""
    before: str = ""
    """A command that has to run first, with the text of the command that is replaced as its last word."""

    def proposing(self, *instead: tuple[str, str], before: str = "") -> Self:
        """Return the error with what to type instead."""
        self.instead, self.before = instead, before
        return self

    def without_values(self) -> Self:
        """Return the error, whose message is known to quote none."""
        self.quotes = False
        return self


class UsageError(FairfixError):
    """The options contradict each other or ask for something that does not exist."""


class ConfigError(UsageError):
    """A configuration file cannot be read or holds an unknown key."""

    code = "config"


class UnsentError(UsageError):
    """A dry run ends where a database would be asked; ``statements`` are the questions, in SQL with comments."""

    exit_status = ExitStatus.OK

    def __init__(self, statements: str) -> None:
        super().__init__("`dry_run` asks nothing")
        self.statements = statements


class DataError(FairfixError):
    """The data cannot answer the question; the message names column, value and remedy."""

    code = "data"
    quotes = True


class UnreadableError(DataError):
    """A file cannot be read as the kind that its name says: it is damaged, or of another kind."""


class ColumnError(DataError):
    """A column is missing, ambiguous or of the wrong type; ``text`` leaves out the ``listing`` of what there is."""

    code = "column"

    def __init__(self, text: str, listing: str = "") -> None:
        super().__init__(text + listing)
        self.text, self.listing = text, listing


class AmbiguousError(ColumnError):
    """Several columns could play a part; ``choices`` has the parameters to give for each."""

    def __init__(self, text: str, listing: str, choices: Sequence[Mapping[str, str]]) -> None:
        super().__init__(text, listing)
        self.choices = choices


class EntryError(DataError):
    """An entry is none that its column may hold: ``place`` says which and where, ``part`` the role of ``column``."""

    def __init__(self, part: str, column: str, place: str, remedy: str) -> None:
        super().__init__(place + remedy)
        self.part, self.column, self.place = part, column, place


class ModelError(FairfixError):
    """A user's model file is refused, unreadable or does not fit the data."""

    code = "model"
    quotes = True


class ArtifactError(FairfixError):
    """A ``.fairfix`` file is damaged, hostile or of an unknown format."""

    code = "artifact"
    quotes = True


MALFORMED = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
"""What code raises that walks content of another form than it takes, such as a saved result that was changed."""


class FairfixWarning(UserWarning):
    """Something the reader of a result must know, with a code of :data:`CODES`."""

    def __init__(self, text: str, code: str) -> None:
        super().__init__(text, code)
        self.code = code

    def __str__(self) -> str:
        """Return the text, to which the command line adds the code."""
        return str(self.args[0])


class ConvergenceWarning(FairfixWarning):
    """A solver stopped before it reached its tolerance."""

    def __init__(self, text: str, code: str = "not_converged") -> None:
        super().__init__(text, code)


CODES: Mapping[str, Mapping[str, str]] = {
    "error": {
        "usage": "the question does not make sense: parameters contradict each other, or name what does not exist",
        "config": "the configuration file cannot be read, or holds a key or a waiver that fairfix does not know",
        "data": "the data cannot answer the question; the message names the column or value, and what to do",
        "column": "a column is missing, there twice, ambiguous or of the wrong type; name columns by parameters",
        "model": "a model file is refused, unreadable or does not fit the data",
        "artifact": "a file of a repair or of counts is damaged, changed or from another format",
        "output": "what was printed could not be written, such as to a full disk",
        "memory": "there is not memory enough for the run; give it more, or fewer rows and columns",
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
        "not_proven": "the proof of a repair lacks a group, by its rule or held-out rows, or counts hide rows: no pass",
        "not_shown": "a group of the number is hidden by `suppress_below`",
        "not_comparable": "the baseline has not this number, or asks another question",
        "few_common_rows": "too few rows are in both files to say how the number has changed",
    },
    "note": {
        "unused": "a parameter was given that changes nothing beside the others",
        "not_converged": "a solver stopped before its tolerance: the result is usable, but not the best there is",
        "read_as": "how a file is written had to be found out, and how it was read; options say it for sure",
        "leak": "columns predict the label, or are recorded after it: they are left out, or were asked for",
        "left_out": "columns are not learned from, each for the reason in the report; `features` names what to use",
        "score_direction": "scores are lower for rows of label 1: the label or the score is another one than meant",
        "decision_direction": "positive decisions are rarer for rows of label 1: another label or value is meant",
        "unpaired": "changes are undecided, with old and new taken as independent samples: rows of both decide more",
        "weights_or_counts": "weights look like numbers of people, for which there is `count`",
        "alike_groups": "names of groups differ only in case or blanks, and are taken for groups of their own: `merge`",
        "missing_marks": "names of groups look like marks of missing values; make them missing, or keep them: `merge`",
        "where_unmatched": "`where` names a value that no row has; check how it is written",
        "other_rows": "the baseline was made with another `where`, so a change may come from other rows",
        "merged_nothing": "`merge` names a group that no row has; check how it is written",
        "unseen_groups": "rows are of groups that the fit has not seen, which the repair does not decide",
        "unknown_classes": "classes are predicted that are no row's label, such as ones that are spelt in another way",
        "guarantee": "what `guarantee` made of the slack, or that rows are too few for what it asked to promise",
        "rounding": "deterministic decisions miss the slack or leave the gap; randomised ones hold it",
        "no_help": "nothing shows that the repair helped: the gap before was not certain, and it is not smaller after",
        "gap_before": "the gap before the repair may have been within the slack already",
        "gap_after": "the gap is not smaller, or the worst group no better off, on held-out rows",
        "levelled_down": "the repair raises the rate of no group, and lowers that of some group",
        "slack": "the rule misses its slack on the rows of the fit",
        "constant": "everybody has the same value, on held-out rows or on those of the fit",
        "selection": "everybody, or nearly everybody, is decided alike",
        "selection_moved": "many more are selected than before, or many fewer, which no slack bounds",
        "small_group": "groups of few rows make most of what the repair costs the others",
        "equal_rows": "rows whose result is randomized equal others in all columns that the rule reads; name an `id`",
        "nothing_proven": "a repair from counts has no others to prove it; all of its figures are of the fit",
        "held_out_unknown": "whether rows of the fit are among those of the proof is not known; count shares",
        "suppressed": "rows of small groups are hidden in the counts; certified rates allow for them",
        "shared_ids": "rows whose result is drawn share their id with another row, and so one draw",
        "waiver": "a waiver has expired, matches no check, or is used and ends soon: mend the model, or renew it",
        "same_counts": "two files of counts are equal, so the same rows may be counted twice",
        "model_version": "a model file was saved by another version of its library, so its scores may differ",
        "unweighted": "an estimator takes no weights, so only the repair is weighted",
        "unproven": "held-out rows lack a group, or the rows of the fit do, so nothing is proven for it",
        "rounded": "what deterministic decisions cost against the randomised rule that they were rounded from",
        "drawn": "the result is drawn by the row's identity, and the slack holds in expectation over the draws",
        "averaged": "the average of several models, or of scores over flips, is taken, and what follows from that",
        "uncalibrated": "scores are off the share of label 1 inside groups, or were made probabilities by labels",
        "threshold": "how the threshold of the base decisions enters the repair, or that it does not",
        "chosen": "the value of a parameter that was left open, and how it was found",
        "binding": "groups whose bound limits the fit, and what a larger bound would save",
        "moved_values": "only with values moved into [0, 1] do the bounds hold, so a better model may exist",
        "loss": "the loss that was minimised, on held-out rows, where an audit has no such metric",
        "reached": "what the rule reaches on the rows of the fit",
        "cost": "what the repair gives away of what the features tell",
        "uses_group": "decisions use the protected or recorded group, and how to do without",
        "alarm": "equal rates are bought with decisions that change with a column that stands for the group",
        "proposed": "comparable values that the data suggest; whether their difference counts is yours to say",
        "subspace": "along how many given directions the score does not change",
        "pairs": "how many comparable pairs the fit could use",
        "copies": "how many counterfactual copies the fit could use, and of whom",
        "unknown_copies": "counterfactual copies are of people whom no row that is used has",
        "no_flips": "no column that must not count is looked at, so there is nothing to hold",
        "regularizer": "limits of the regularizer on rows that the model was not fitted to",
        "moves": "how many decisions any move of people within the radius changes, by held-out rows",
        "infeasible": "no rule that was met holds the constraint: this one misses it by the least",
        "search": "which rules were searched, and whether the best of them was found",
        "one_side": "groups are only kept from being worse off than everybody",
        "assumption": "what the result relies on and the data cannot show",
        "worst_case": "how far the worst true group may be away, by what is assumed of the noise",
        "breakdown": "how much noise may depend on outcomes before the slack need not hold",
        "no_guarantee": "the description of the noise guarantees a group nothing",
        "recorded_groups": "tables are by recorded group, but for those named true_groups",
        "unknown_recorded": "the noise table names a recorded group that no row has",
        "numbers": "how a protected number is counted, and how decisions go with it on held-out rows",
        "claim": "what held-out rows say of the true groups, under the assumption of the repair",
    },
}
"""Code -> what it means and what to do, for errors, for the verdicts of checks, and for notes and warnings."""
