"""Words: the glossary, other names that people come with, and what the exit statuses say.

``explain`` and the docs read them. A parameter stands in backquotes.
"""

from __future__ import annotations

from collections.abc import Mapping

GLOSSARY: Mapping[str, Mapping[str, str]] = {
    "People and groups": {
        "protected attribute": (
            "a column that must not determine how a person is treated, such as race or sex (`protected`)"
        ),
        "group": (
            "the people with one value of a protected attribute; with `intersect`, with one value of each"
        ),
        "intersection, cell": "a group within one stratum, or one value of each of several columns; counts are "
        "kept by it",
        "stratum": (
            "people who are compared only with one another, such as those who applied to one department "
            "(`strata`)"
        ),
        "recorded group, true group": (
            "the group in the data, and the group that a person belongs to; the first may be wrong"
        ),
        "weight": "the number of people in the population that a row represents; not how often the row was observed",
        "count": "the number of people in a row of a frequency table; each of them was observed",
    },
    "Scores and decisions": {
        "score": (
            "the output of a model, one number per row; in [0, 1] it is read as the probability of label 1"
        ),
        "threshold": "the decision threshold: a score at or above it is a positive decision",
        "decision": "0 or 1; positive is the outcome that people want",
        "label": "the observed outcome: 1 or 0, or a number in regression",
        "class": (
            "one value of a label that has several (`task=multiclass`); an audit compares each class with all the "
            "others, the rest"
        ),
        "draw": (
            "a number in [0, 1) that is computed from the row ID; it settles a randomized decision the same "
            "way every time"
        ),
        "randomized rule": "a rule that decides positively for some rows with a probability between 0 and 1",
    },
    "Measures": {
        "rate": "a fraction of a group: selection rate, true positive rate, false positive rate, ...",
        "comparison": (
            "one number from the values of several groups: a difference, a ratio, a covariance, a distance"
        ),
        "demographic parity": "selection rates are equal",
        "equal opportunity": "true positive rates are equal",
        "equalized odds": "true and false positive rates are equal",
        "KS distance": (
            "the largest difference between two distribution functions of the score: the largest gap in selection"
            " rates at any threshold"
        ),
        "calibration error": (
            "the average distance of scores from the rate of label 1 among rows with a similar score"
        ),
        "undefined": (
            "a value that cannot be computed from the data, such as a rate over no rows; null with a reason, never 0"
        ),
    },
    "Certainty": {
        "interval": (
            "limits that contain the population value in 95% of samples (`confidence`), for all groups at "
            "once"
        ),
        "bound": (
            "the largest error of a number computed from score bins; it is arithmetic, not sampling error"
        ),
        "check": "a condition on a metric or a comparison, such as 'dp.difference<=0.1'",
        "verdict": (
            "pass: the whole interval is within the limit; fail: all of it is beyond the limit; undecided: neither"
        ),
        "gate": "a check whose verdict determines the exit status",
        "waiver": "a written acceptance of a failing check, up to a limit and until a date",
        "baseline": "a saved audit that changes are measured from",
    },
    "Repair": {
        "slack": "the largest gap allowed after a repair",
        "criterion": "the comparison that the slack limits",
        "training rows, held-out rows": (
            "the rows that a repair is fitted to, and the rows that are used only to evaluate it"
        ),
        "evaluation, proof": "the audit before and after the repair, on held-out rows",
        "certificate": (
            "a number that proves a bound on the distance to the best solution, or that a constraint holds; "
            "never an estimate"
        ),
        "component, member": "a model that a repair has fitted and stores as arrays",
        "artifact": "the data-only file that a repair writes",
        "frontier": "the repairs that no other repair beats in both accuracy and gap",
    },
    "Noise": {
        "noise table": "the probability that each true group is recorded as each group",
        "N0, N1, N2, N3, N4": (
            'assumptions about how groups were recorded, from "about alike" (N0) to "independent of '
            'outcomes" (N4)'
        ),
        "worst case": "the largest value over all true groups that an assumption allows",
        "radius": "the largest total variation distance between the rows of a true group and the rows recorded as it",
        "breakdown point": "the smallest noise that could change a verdict",
        "membership": "the probability that a row belongs to each group; used where no group is recorded",
    },
    "Individual fairness": {
        "flip": (
            "a copy of a row with another protected value, or another value of a comparable column, and all else the "
            "same"
        ),
        "comparable values": "values of a column that must not count, such as two job titles (`comparable`)",
        "direct effect": "the change of a score with the group alone, all other columns being equal",
        "proxy": "a column that predicts the group; an effect through it is not a direct effect",
    },
}
"""Heading -> word, or words, -> what it means."""


SYNONYMS: Mapping[str, tuple[str, str]] = {
    "multiclass, multi-class": (
        "class",
        (
            "`task=multiclass` audits such a label and its predictions, and `method=sensei` repairs them; "
            "`prediction=COLUMN` is the predicted class"
        ),
    ),
    "four-fifths rule, four-fifths, 80% rule, 4/5 rule": (
        "dp.ratio",
        (
            "a rule of thumb of US guidelines: a group whose selection rate is below 0.8 of the highest rate is "
            "investigated; as a check, 'dp.ratio>=0.8'; `profile=ugesp` prints its table"
        ),
    ),
    "disparate impact, adverse impact, impact ratio, demographic parity ratio": (
        "dp.ratio",
        (
            "compares the lowest with the highest selection rate; to compare every group with one of them: "
            "dp.ratio.to_reference"
        ),
    ),
    "demographic parity difference, statistical parity difference, selection rate difference": (
        "dp.difference",
        "largest minus smallest value, so it has no sign",
    ),
    "conditional statistical parity, conditional demographic parity": ("dp.difference.within_strata", ""),
    "equal opportunity difference": ("tpr.difference", ""),
    "equalised odds, equalized odds difference, disparate mistreatment": ("eo.difference", ""),
    "average odds difference": (
        "eo.difference",
        "the nearest metric: it takes the larger of the two gaps; in their average, gaps of opposite sign cancel",
    ),
    "predictive parity": ("ppv.difference", ""),
    "overall accuracy equality": ("accuracy.difference", ""),
    "worst group, minimax": ("accuracy.min", "other metrics work the same way: log_loss.max"),
    "counterfactual fairness, situation testing": (
        "decision_flips.under_flips",
        "needs a model file: it changes the group and keeps all else, including what the group itself has caused",
    ),
    "acceptance rate, approval rate, positive rate, predicted prevalence": ("selection_rate", ""),
    "prevalence": ("base_rate", ""),
    "sensitivity, hit rate": ("true_positive_rate", ""),
    "specificity": ("true_negative_rate", ""),
    "false alarm rate, type I error": ("false_positive_rate", ""),
    "miss rate, type II error": ("false_negative_rate", ""),
    "false discovery rate, fdr": ("positive_predictive_value", "1 minus it"),
    "false omission rate": ("negative_predictive_value", "1 minus it"),
    "calibration": ("calibration_error", "signed version: calibration_gap"),
    "Kolmogorov-Smirnov": ("ks", ""),
    "mean squared error, mse": ("square_loss", ""),
    "mean absolute error, mae": ("absolute_loss", ""),
    "cross entropy": ("log_loss", ""),
}
"""Names that people come with -> what it is called here, and what is to be said of it."""

STATUSES: Mapping[str, str] = {
    "0": "finished; every gated check passed, or no checks were gated",
    "1": "finished; a gated check failed",
    "2": "did not run: usage, configuration, data, refused model file, bad artifact",
    "3": "finished; nothing failed, but a gated check is undecided",
    "70": "a bug in fairfix (`debug` shows the traceback)",
    "129": "the terminal was closed (SIGHUP)",
    "130": "interrupted (SIGINT), as by Ctrl-C",
    "141": "output pipe closed early (SIGPIPE), as by head",
    "143": "asked to stop (SIGTERM)",
}
"""Exit status -> meaning."""


def keys_of(words: str) -> list[str]:
    """Return the forms under which the words of an entry are looked up."""
    return [key_of(word) for word in words.split(", ")]


def key_of(word: str) -> str:
    """Return a word as it is looked up: capitals, hyphens and blanks are no other names."""
    return word.strip().lower().replace("-", "_").replace(" ", "_")
