"""Words: the glossary, and the meaning of the exit statuses.

``explain`` and the docs read them. A parameter stands in backquotes.
"""

from __future__ import annotations

from collections.abc import Mapping

GLOSSARY: Mapping[str, Mapping[str, str]] = {
    "People and groups": {
        "protected attribute": "a column that must not determine how a person is treated, such as race or sex "
        "(`protected`)",
        "group": "the people with one value of a protected attribute; with `intersect`, with one value of each",
        "intersection, cell": "a group within one stratum, or one value of each of several columns; counts are "
        "stored for each of them",
        "reference group, reference": "the group that every other group is compared with (`reference`); others call "
        "it the privileged group",
        "stratum": "people who are compared only with one another, such as those who applied to one department "
        "(`strata`)",
        "recorded group, true group": "the group in the data, and the group that a person belongs to; the first may "
        "be wrong",
        "slice": "the people who meet up to three conditions on columns, such as `age < 25 and product == 'car'` "
        "(`slices`)",
        "weight": "the number of people in the population that a row represents; not how often the row was observed",
        "count": "the number of people in a row of a frequency table; each of them was observed",
    },
    "Scores and decisions": {
        "score": "the output of a model, one number per row; in [0, 1] it is read as the probability of label 1",
        "threshold": "the decision threshold: a score at or above it is a positive decision; a model may have one "
        "for each group (`threshold`), or the one that selects a number of rows (`top`)",
        "decision": "0 or 1; positive is the outcome that people want",
        "label": "the observed outcome: 1 or 0, or a number in regression",
        "class": "one value of a label that has several (`task=multiclass`); an audit compares each class with all "
        "the others, the rest",
        "draw": "a number in [0, 1) that is computed from the row ID; it settles a randomized decision the same way "
        "every time",
        "randomized rule": "a rule that decides positively for some rows with a probability between 0 and 1",
    },
    "Measures": {
        "fairness, bias": "fairness has several definitions, which can rarely all hold; an audit measures the gap "
        "between groups for each: dp.difference (selection rates), tpr.difference and fpr.difference (error rates), "
        "and others",
        "gap, disparity": "the difference between groups in one rate: the largest minus the smallest, such as "
        "dp.difference; or their ratio, such as dp.ratio",
        "part of a gap, unexplained": "how much of the gap between two groups a column accounts for, by a regression "
        "of the rows or by the model; what no column accounts for is unexplained (`explain_gap`)",
        "rate": "a fraction of a group: selection rate, true positive rate, false positive rate, ...",
        "comparison": "one number from the values of several groups: a difference, a ratio, a covariance, a distance",
        "demographic parity": "selection rates are equal",
        "equal opportunity": "true positive rates are equal",
        "equalized odds": "true and false positive rates are equal",
        "KS distance": "the largest difference between two distribution functions of the score: the largest gap in "
        "selection rates at any threshold",
        "calibration error": "the average distance of scores from the rate of label 1 among rows with a similar score",
        "undefined": "a value that cannot be computed from the data, such as a rate over no rows; null with a "
        "reason, never 0",
    },
    "Certainty": {
        "interval": "limits that contain the population value in 95% of samples (`confidence`), for all groups at "
        "once",
        "always-valid interval": "an interval that holds for any number of looks at growing data at once "
        "(`always_valid`)",
        "state": "a file of counts to which each audit adds a batch of rows (`state`)",
        "bound": "the largest error of a number computed from score bins; it is arithmetic, not sampling error",
        "check": "a condition on a metric or a comparison, such as 'dp.difference<=0.1'",
        "verdict": "pass: the whole interval is within the limit; fail: all of it is beyond the limit; undecided: "
        "neither",
        "gate": "a check whose verdict determines the exit status",
        "waiver": "a written acceptance of a failing check, up to a limit and until a date",
        "baseline": "the earlier model that changes are measured from: a saved audit, data or a column",
    },
    "Repair": {
        "repair": "a new decision rule, fitted to training rows, whose gap between groups stays within the allowed gap",
        "slack": "the largest gap allowed after a repair",
        "criterion": "the comparison that the slack limits",
        "training rows, held-out rows": "the rows that a repair is fitted to, and the rows that are used only to "
        "evaluate it",
        "evaluation, proof": "the audit before and after the repair, on held-out rows",
        "certificate": "a number that proves a bound on the distance to the best solution, or that a constraint "
        "holds; never an estimate",
        "component, member": "a model that a repair has fitted and stores as arrays",
        "artifact": "the data-only file that a repair writes",
        "frontier": "the repairs that no other repair beats in both accuracy and gap",
    },
    "Noise": {
        "noise table": "the probability that each true group is recorded as each group",
        "N0, N1, N2, N3, N4": "assumptions about the noise, from weak to strong. N0: each true group resembles a "
        "recorded group, except for a fraction of its people; N1: a noise table holds; N2: a noise table by label "
        "holds; N3: as N1 or N2, and noise depends on outcomes by at most eps; N4: noise depends only on the true "
        "group, and decisions do not use the recorded group",
        "worst case": "the largest value over all true groups that an assumption allows",
        "radius": "the largest total variation distance between the rows of a true group and the rows recorded as it",
        "breakdown point": "the smallest noise that could change a verdict",
        "membership": "the probability that a row belongs to each group; used where no group is recorded",
    },
    "Individual fairness": {
        "flip": "a copy of a row with another protected value, or another value of a comparable column, and all else "
        "the same",
        "comparable values": "values of a column that must not count, such as two job titles (`similar`)",
        "direct effect": "the change of a score with the group alone, all other columns being equal",
        "proxy": "a column that predicts the group; an effect through it is not a direct effect",
    },
}
"""Heading -> word, or words, -> what it means."""

STATUSES: Mapping[str, str] = {
    "0": "finished: every check passed, or none was set",
    "1": "finished: a check failed",
    "2": "did not run: invalid usage, configuration, data, model file or artifact",
    "3": "finished: no check failed, but at least one is undecided",
    "70": "a bug in fairfix (FAIRFIX_DEBUG=1 shows the traceback)",
    "129": "the terminal was closed (SIGHUP)",
    "130": "interrupted (SIGINT), for example by Ctrl-C",
    "141": "output pipe closed early (SIGPIPE), for example by head",
    "143": "terminated (SIGTERM)",
}
"""Exit status -> meaning."""


def keys_of(words: str) -> list[str]:
    """Return the forms under which the words of an entry are looked up."""
    return [key_of(word) for word in words.split(", ")]


def key_of(word: str) -> str:
    """Return a word as it is looked up: capitals, hyphens and blanks are no other names."""
    return word.strip().lower().replace("-", "_").replace(" ", "_")
