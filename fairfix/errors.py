"""All exceptions of fairfix, and the exit status that each becomes.

::

    FairfixError                 2   did not run
    ├── UsageError               2   the question itself does not make sense
    │   ├── ConfigError          2   a config file says something fairfix does not know
    │   ├── ThresholdError       2   a threshold is not on the scale of the scores
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
    """Exit status of the process; each value has one meaning."""

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


class ThresholdError(UsageError):
    """A threshold is not on the scale of the scores in ``column``; ``place`` says which."""

    part = "score"

    def __init__(self, column: str, place: str, remedy: str) -> None:
        super().__init__(place + remedy)
        self.column, self.place = column, place


class UnsentError(UsageError):
    """A dry run ends where a database would be asked; ``statements`` are the questions, in SQL with comments."""

    exit_status = ExitStatus.OK

    def __init__(self, statements: str) -> None:
        super().__init__("`dry_run` runs no query")
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
    classes: Sequence[str] = ()
    """Classes of the model, where its positive one has to be named."""


class ArtifactError(FairfixError):
    """A ``.fairfix`` file is damaged, hostile or of an unknown format."""

    code = "artifact"
    quotes = True


MALFORMED = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
"""Exceptions of code that reads content of an unexpected form, such as a changed saved result."""


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
        "usage": "the parameters contradict each other, or name something that does not exist",
        "config": "the configuration file cannot be read, or contains an unknown key or waiver",
        "data": "the data cannot be used for this run; the message names the column or value, and what to do",
        "column": "a column is missing, duplicated, ambiguous or of the wrong type; name columns by parameters",
        "model": "a model file is refused, unreadable or does not fit the data",
        "artifact": "a file of a repair or of counts is damaged, changed or from another format",
        "output": "the output could not be written, for example because the disk is full",
        "memory": "not enough memory; use a larger machine, or fewer rows and columns",
        "interrupted": "the run was stopped from outside before it ended",
        "bug": "a bug in fairfix; FAIRFIX_DEBUG=1 shows the traceback, which belongs in the bug report",
    },
    "verdict": {
        "beyond_limit": "the whole interval, or the value with `gate_on=point`, is beyond the limit: fail",
        "within_limit": "the whole interval, or the value with `gate_on=point`, is within the limit: pass",
        "limit_inside": "the limit lies inside the interval: use more rows, or another limit",
        "within_error": "the value is closer to the limit than its numerical error",
        "unchanged": "a number equals that of the baseline, from a result with the same content: pass",
        "group_undefined": "a group has no value, such as a rate over no rows, so the check can fail but not pass",
        "value_undefined": "the value cannot be computed from the data",
        "not_computed": "the number was not computed: it needs a label, a score or an option that is missing",
        "fit_only": "a repair from counts was checked on its training counts; give other counts as `holdout`",
        "not_proven": "the evaluation of a repair does not cover a group, or counts hide rows: the check "
        "cannot pass",
        "not_shown": "a group of this number is hidden by `suppress_below`",
        "not_comparable": "the baseline does not have this number, or was made with other settings",
        "few_common_rows": "too few rows are in both files to estimate the change",
    },
    "note": {
        "unused": "a parameter has no effect with the others that were given",
        "not_converged": "a solver stopped before its tolerance: the result is usable, but may not be the best "
        "possible",
        "read_as": "the format of a file was detected, and how it was read; options set it explicitly",
        "leak": "columns predict the label, or are recorded after it; they are left out unless requested",
        "left_out": "columns are not used as features; the report gives each reason, and `features` names "
        "columns to use",
        "score_direction": "scores are lower for rows of label 1: the label or the score may be the wrong one",
        "decision_direction": "positive decisions are rarer for rows of label 1: the label or its value may be "
        "the wrong one",
        "not_checked": "checks of changes in the configuration or the environment have no `baseline`",
        "unpaired": "changes are undecided because old and new are treated as independent samples; pair the rows",
        "weights_or_counts": "weights look like numbers of people; `count` reads such a column",
        "alike_groups": "names of groups differ only in case, blanks or Unicode form, and are separate groups; "
        "`merge` makes them one",
        "one_look": "counts that grow by batches were audited with intervals for a single look",
        "missing_marks": "names of groups look like missing values; make them missing or keep them with `merge`",
        "where_unmatched": "`where` names a value that no row has; check how it is written",
        "other_rows": "the baseline was made with another `where`, so a change may come from other rows",
        "missing_labels": "rows without a label are left out of every number, so selection rates may be too high",
        "merged_nothing": "`merge` names a group that no row has; check how it is written",
        "unseen_groups": "rows belong to groups that the training rows lack; the repair does not decide them",
        "unseen_features": "feature values that no training row has: missing where none was, or a new category",
        "unknown_classes": "predicted classes are the label of no row, such as classes with another spelling",
        "guarantee": "the slack used to meet `guarantee`, or too few rows to meet it",
        "rounding": "deterministic decisions exceed the slack or leave the gap; randomized ones meet it",
        "no_help": "no evidence that the repair helped: the gap was uncertain or small before, and is not smaller",
        "gap_before": "the gap before the repair may already have been within the slack",
        "gap_after": "the gap is not smaller, or the worst group no better off, on held-out rows",
        "levelled_down": "the repair raises the rate of no group, and lowers the rate of some group",
        "slack": "the rule exceeds its slack on the training rows",
        "constant": "all rows get the same value, on held-out rows or on training rows",
        "selection": "all rows, or nearly all, get the same decision",
        "selection_moved": "many more or many fewer rows are selected than before, which no slack limits",
        "small_group": "groups with few rows cause most of the cost of the repair for the others",
        "equal_rows": "rows with a randomized result equal others in all columns that the rule reads; name an `id`",
        "nothing_proven": "a repair from counts has no held-out counts; all of its numbers come from the "
        "training counts",
        "held_out_unknown": "it is unknown whether training rows are among the held-out rows; count by `part`",
        "suppressed": "rows of small groups are hidden in the counts; certified rates account for them",
        "shared_ids": "rows with a randomized result share their row ID with another row, and therefore one draw",
        "waiver": "a waiver has expired, matches no check, or is used and ends soon: fix the model, or renew the "
        "waiver",
        "same_counts": "two files of counts are equal, so the same rows may be counted twice",
        "private_counts": "counts have noise that hides single rows: its budget, and what it does not protect",
        "model_version": "a model file was saved by another version of its library, so its scores may differ",
        "unweighted": "an estimator takes no weights, so only the repair is weighted",
        "unproven": "held-out rows or training rows lack a group, so nothing was evaluated for it",
        "rounded": "the cost of deterministic decisions, compared with the randomized rule that they were rounded from",
        "drawn": "the result is randomized by the row ID, and the slack holds in expectation over the draws",
        "averaged": "the result is an average of several models, or of scores over flips, and what follows from that",
        "uncalibrated": "scores are not calibrated (differ from the rate of label 1), or were calibrated with labels",
        "top": "the threshold that `top` sets, the rows that it selects, and a tie at its edge",
        "threshold": "whether and how the threshold of the original decisions enters the repair",
        "chosen": "the value of a parameter that was not given, and how it was chosen",
        "binding": "groups whose bound restricts the fit, and the gain from a larger bound",
        "moved_values": "the bounds hold only with values moved into [0, 1], so a better model may exist",
        "loss": "the loss that was minimized, on held-out rows, where an audit has no such metric",
        "reached": "the result of the rule on the training rows",
        "cost": "the cost of the repair: information in the features that it does not use",
        "uses_group": "decisions use the protected or recorded group, and how to avoid it",
        "alarm": "equal rates are reached by decisions that change with a column that is a proxy for the group",
        "proposed": "comparable values that the data suggest; decide yourself whether their difference counts",
        "subspace": "the number of given directions along which the score does not change",
        "pairs": "the number of comparable pairs that the fit could use",
        "copies": "the number of counterfactual copies that the fit could use, and their rows",
        "unknown_copies": "counterfactual copies belong to no row that is used",
        "no_flips": "the model uses no column that must not count, so there is nothing to constrain",
        "regularizer": "limits for the regularizer on rows that the model was not fitted to",
        "moves": "the number of decisions that any move within the radius changes, on held-out rows",
        "infeasible": "no rule that was found meets the constraint: this one exceeds it by the least",
        "search": "the rules that were searched, and whether the best of them was found",
        "one_side": "only one direction is constrained: groups may be better off than all rows together",
        "assumption": "an assumption that the result relies on and the data cannot show",
        "worst_case": "the largest gap of a true group, under the assumption on the noise",
        "breakdown": "the dependence of noise on outcomes beyond which the slack need not hold",
        "no_guarantee": "the description of the noise gives no guarantee for a group",
        "recorded_groups": "tables are by recorded group, except those named true_groups",
        "unknown_recorded": "the noise table names a recorded group that no row has",
        "numbers": "the treatment of a protected number, and the dependence of decisions on it on held-out rows",
        "claim": "what held-out rows show about the true groups, under the assumption of the repair",
    },
}
"""Code -> what it means and what to do, for errors, for the verdicts of checks, and for notes and warnings."""


def first_line(error: BaseException) -> str:
    """Return the first line of an exception's text, or its name where it has none."""
    return [*str(error).strip().splitlines(), type(error).__name__][0]
