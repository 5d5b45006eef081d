"""Words: the glossary, other names that people come with, and what the exit statuses say.

``explain`` and the docs read them. A parameter stands in backquotes.
"""

from __future__ import annotations

from collections.abc import Mapping

GLOSSARY: Mapping[str, Mapping[str, str]] = {
    "People and groups": {
        "protected attribute": (
            "a column that must not decide how a person is treated, such as race or sex (`protected`)"
        ),
        "group": (
            "the people with one value of a protected attribute; with `intersect`, with one value of each"
        ),
        "cell": "a group inside one stratum: what the counts are kept by",
        "stratum": (
            "people who are compared only with one another, such as those who applied to one department "
            "(`strata`)"
        ),
        "recorded group, true group": (
            "the group in the data, and the one a person belongs to, where the first may be wrong"
        ),
        "weight": "how many people of the population a row stands for; not how often the row was seen",
        "count": "how many people a row of a table of frequencies is for: each of them was seen",
    },
    "Scores and decisions": {
        "score": (
            "the output of a model, a number per row; in [0, 1] it is read as the probability of label 1"
        ),
        "threshold": "the score from which on a decision is positive",
        "decision": "0 or 1; positive is the outcome that people want",
        "label": "what happened: 1 or 0, or a number in regression",
        "class": (
            "one of the values of a label that has many (`task=multiclass`); an audit compares each with all the "
            "others, the rest"
        ),
        "draw": (
            "a number in [0, 1) that belongs to a row's identity and settles a randomised decision the same "
            "way every time"
        ),
        "randomised rule": "a rule under which some rows are positive with a chance between 0 and 1",
    },
    "Measures": {
        "rate": "a share of a group: selection rate, true positive rate, false positive rate, ...",
        "comparison": (
            "one number from the values of several groups: a difference, a ratio, a covariance, a distance"
        ),
        "demographic parity": "selection rates are alike",
        "equal opportunity": "true positive rates are alike",
        "equalized odds": "true and false positive rates are alike",
        "KS distance": (
            "the largest difference of two distribution functions of the score: the largest gap in selection"
            " rates at any threshold"
        ),
        "calibration error": (
            "how far scores are, on average, from the share of label 1 among rows with about that score"
        ),
        "undefined": (
            "a value that the data do not give, such as a rate over no rows; null with a reason, never 0"
        ),
    },
    "Certainty": {
        "interval": (
            "limits that hold the population's value in 95 % of samples (`confidence`), for all groups at "
            "once"
        ),
        "bound": (
            "how far a number computed from score bins may be from the exact one; arithmetic, not chance"
        ),
        "check": "a condition that must hold, such as 'dp.difference<=0.1'",
        "verdict": (
            "pass: the whole interval is within the limit; fail: all of it is beyond; undecided: neither"
        ),
        "gate": "a check whose verdict decides the exit status",
        "waiver": "a failing check accepted in writing, up to a limit, until a day",
        "baseline": "a saved audit against which changes are judged",
    },
    "Repair": {
        "slack": "the largest gap that a repair may leave",
        "criterion": "the comparison that the slack bounds",
        "rows of the fit, held-out rows": (
            "the rows that a repair is fitted to, and those that only its proof sees"
        ),
        "proof": "the audit before and after the repair, on held-out rows",
        "certificate": (
            "a number that bounds how far the solution is from the best one, or that a constraint holds; "
            "never an estimate"
        ),
        "member": "a model that a repair has fitted and keeps as arrays",
        "artifact": "the file that a repair writes: data, without code",
        "frontier": "the repairs that no other beats in both accuracy and gap",
    },
    "Noise": {
        "noise table": "how often each true group is recorded as each group",
        "N0, N1, N2, N3, N4": (
            'assumptions about how groups were recorded, from "about alike" (N0) to "nothing to do with '
            'outcomes" (N4)'
        ),
        "worst case": "the largest value over all true groups that an assumption allows",
        "radius": "how far, in total variation, the rows of a true group may be from those recorded as it",
        "breakdown point": "the noise from which on a verdict could be another",
        "membership": "the probability that a row belongs to each group, where no group is recorded",
    },
    "Individual fairness": {
        "flip": (
            "a row with another protected value, or another value of a comparable column, and all else the "
            "same"
        ),
        "comparable values": "values of a column that must not count, such as two job titles (`comparable`)",
        "direct effect": "how much a score changes with the group alone, all other columns being equal",
        "proxy": "a column that tells of the group; what goes through it is no direct effect",
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
            "a rule of thumb of US guidelines: a group that is selected at less than 0.8 of the highest rate is "
            "looked into; as a check, 'dp.ratio<0.8'; `profile=ugesp` makes its table"
        ),
    ),
    "disparate impact, adverse impact, impact ratio, demographic parity ratio": (
        "dp.ratio",
        "of the lowest and the highest selection rate; of every group and one of them: dp.ratio.to_reference",
    ),
    "demographic parity difference, statistical parity difference, selection rate difference": (
        "dp.difference",
        "largest minus smallest, so it has no sign",
    ),
    "conditional statistical parity, conditional demographic parity": ("dp.difference.within_strata", ""),
    "equal opportunity difference": ("tpr.difference", ""),
    "equalised odds, equalized odds difference, disparate mistreatment": ("eo.difference", ""),
    "average odds difference": (
        "eo.difference",
        "the nearest: the larger of the two gaps, where the average of both lets gaps of opposite sign cancel",
    ),
    "predictive parity": ("ppv.difference", ""),
    "overall accuracy equality": ("accuracy.difference", ""),
    "worst group, minimax": ("accuracy.min", "of another metric in the same way: log_loss.max"),
    "counterfactual fairness, situation testing": (
        "decision_flips.under_flips",
        "of a model file: the group is changed and all else is kept; what the group itself has caused is not changed",
    ),
    "acceptance rate, approval rate, positive rate, predicted prevalence": ("selection_rate", ""),
    "prevalence": ("base_rate", ""),
    "sensitivity, hit rate": ("true_positive_rate", ""),
    "specificity": ("true_negative_rate", ""),
    "false alarm rate, type I error": ("false_positive_rate", ""),
    "miss rate, type II error": ("false_negative_rate", ""),
    "false discovery rate, fdr": ("positive_predictive_value", "1 minus it"),
    "false omission rate": ("negative_predictive_value", "1 minus it"),
    "calibration": ("calibration_error", "with a sign: calibration_gap"),
    "Kolmogorov-Smirnov": ("ks", ""),
    "mean squared error, mse": ("square_loss", ""),
    "mean absolute error, mae": ("absolute_loss", ""),
    "cross entropy": ("log_loss", ""),
}
"""Names that people come with -> what it is called here, and what is to be said of it."""

STATUSES: Mapping[str, str] = {
    "0": "ran to the end; every gated check passed, or nothing was gated",
    "1": "ran to the end; a gated check failed",
    "2": "did not run: usage, configuration, data, refused model file, bad artifact",
    "3": "ran; nothing failed, but a gated check is undecided",
    "70": "a bug in fairfix (`debug` shows the traceback)",
    "129": "the terminal was closed (SIGHUP)",
    "130": "interrupted (SIGINT), as by Ctrl-C",
    "141": "whoever read the output left before its end, as head does",
    "143": "asked to stop (SIGTERM)",
}
"""Exit status -> meaning."""


def keys_of(words: str) -> list[str]:
    """Return the forms under which the words of an entry are looked up."""
    return [key_of(word) for word in words.split(", ")]


def key_of(word: str) -> str:
    """Return a word as it is looked up: capitals, hyphens and blanks are no other names."""
    return word.strip().lower().replace("-", "_").replace(" ", "_")
