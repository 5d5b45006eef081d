"""Synonyms: words of other tools and first guesses, and the words that fairfix has for them.

The command line, the library and ``explain`` answer with them. A new word goes into the table of its kind.
"""

from __future__ import annotations

from collections.abc import Mapping

COMMANDS: Mapping[str, str] = {
    "audit": "check test evaluate assess measure analyze analyse run metrics detect bias",
    "repair": "fix mitigate debias fit train correct adjust postprocess optimize",
    "predict": "apply score decide transform",
    "inspect": "show view info describe",
    "report": "render convert",
    "explain": "what glossary docs man",
    "init": "new setup configure",
    "compare": "benchmark tradeoff pareto frontier",
    "explore": "interactive dashboard whatif what-if sliders thresholds",
    "count": "merge sum add aggregate tally",
    "help": "usage",
}
"""Command -> other words for it, separated by blanks."""

PARAMETERS: Mapping[str, str] = {
    "data": "X df dataset frame dataframe input file path csv from_counts",
    "protected": "sensitive_features sensitive_feature sensitive_attribute sensitive_attributes attr_cols "
    "protected_attribute protected_attributes protected_attribute_names prot_attr groups sensitive sensitive_columns "
    "protected_columns protected_column protected_col attribute attributes attr group group_by groupby group_col "
    "group_column by sensitive_cols sensitive_attrs protected_class demographics",
    "label": "y_true labels target label_col label_names label_value true_col outcome truth ground_truth "
    "label_column target_column y response y_test actual actuals",
    "prediction": "y_pred pred preds predictions pred_col decision decisions prediction_column y_hat predicted "
    "preds_column",
    "score": "y_score y_prob y_proba proba scores scores_names score_col prob probs probabilities score_column "
    "scores_column",
    "count": "frequency frequencies freq freq_weight frequency_weight fweight",
    "weight": "sample_weight sample_weights weights instance_weights_name weights_col weight_column",
    "strata": "control_features control_feature",
    "label=COLUMN=VALUE": "positive_label pos_label favorable_label favorable_classes",
    "prediction=COLUMN=VALUE": "positive_prediction",
    "reference": ("ref_groups_dict privileged_groups reference_group privileged baseline_group"),
    "check": "limits limit require checks",
    "method": "mitigator algorithm technique approach",
    "constraint": "constraints criterion fairness_constraint",
    "constraint=dp.ratio>=NUMBER": "ratio_bound min_ratio",
    "constraint=covariance[NUMBER]": "protected_number",
    "constraint=bounded_group_loss<=NUMBER": "bound upper_bound",
    "quality=cost(NUMBER)": "cost costs",
    "slack": "difference_bound tol eps tolerance epsilon max_gap",
    "seed": "random_state random_seed",
    "learner": "base_learner base_model",
    "similar=flips": "individual individual_fairness flips",
    "similar=near(radius=NUMBER)": "radius",
    "similar": "comparable counterfactuals counterfactual copies pairs subspace directions",
    "where": "filter query",
    "exclude": "drop ignore drop_columns exclude_columns exclude_features",
    "features": "feature feature_columns columns",
    "model": "model_file model_path estimator",
    "confidence": "confidence_level ci level",
    "threshold": "cutoff cut_off decision_threshold",
    "delimiter": "sep separator",
    "baseline": "baseline_data against against_data compare_to",
    "unseen": "unseen_group unseen_groups",
    "duplicates": "duplicate_ids",
    "output": "output_file save artifact",
    "threads": "jobs n_jobs workers",
    "bands": "bins bin",
    "id": "id_column index",
    "part": "share fraction",
    "holdout": "proof_counts test_size test_data",
}
"""Parameter, or parameter with a text for VALUE -> other words for its keyword or option, separated by blanks."""

METHODS: Mapping[str, str] = {
    "ramp": "thresholdoptimizer thresholding postprocessing rejectoption rejectoptionclassification eqodds "
    "eqoddspostprocessing calibratedeqodds calibratedeqoddspostprocessing threshold",
    "logloss": "exponentiatedgradient exponentiatedgradientreduction gridsearch gridsearchreduction reductions "
    "reweighing adversarialdebiasing prejudiceremover metafairclassifier",
}
"""Method -> methods of other libraries that repair at the same stage, without hyphens and underscores."""

TERMS: Mapping[str, tuple[str, str]] = {
    "multiclass, multi-class": (
        "class",
        (
            "`task=multiclass` audits such a label and its predictions, and `method=sensei` repairs them; "
            "`prediction=COLUMN` is the predicted class"
        ),
    ),
    "confidence interval, ci, confidence limits, uncertainty, margin of error, error bar": ("interval", ""),
    "significance, statistical significance, p-value": (
        "verdict",
        "reports have intervals instead of p-values: a gap is significant if its interval excludes 0",
    ),
    "group fairness, algorithmic fairness, discrimination, unfairness, algorithmic bias": ("fairness", ""),
    "parity, fairness metric, disparities": ("disparity", ""),
    "mitigation, bias mitigation, debiasing, post-processing": ("repair", ""),
    "sensitive attribute, sensitive feature, protected class, protected characteristic, protected column": (
        "protected attribute",
        "",
    ),
    "privileged group, reference class": ("reference group", ""),
    "ground truth, target, outcome, true label": ("label", ""),
    "positive label, favorable label, favorable outcome, positive class": (
        "label",
        "name the positive values with the column: `label=outcome=good`",
    ),
    "tolerance, allowed gap": ("slack", ""),
    "class-conditional, class-conditional noise, group noise, noise assumption": ("N4", "`assume` states it"),
    "independence criterion, independence": ("dp.difference", "decisions are independent of the group"),
    "separation criterion, separation": (
        "eo.difference",
        "decisions are independent of the group, given the label",
    ),
    "sufficiency criterion, sufficiency": (
        "ppv.difference",
        "the label is independent of the group, given the decision",
    ),
    "false positive rate parity, fpr parity, false positive rate difference": ("fpr.difference", ""),
    "fpr disparity, false positive rate disparity": ("fpr.ratio.to_reference", ""),
    "fnr disparity, false negative rate disparity": ("fnr.ratio.to_reference", ""),
    "tpr disparity, true positive rate disparity": ("tpr.ratio.to_reference", ""),
    "predicted positive rate, ppr, pprev": ("selection_rate", ""),
    "individual fairness": (
        "decision_flips.under_flips",
        "`similar=flips` measures it; `method=sensei` repairs it",
    ),
    "four-fifths rule, four-fifths, 80% rule, 4/5 rule": (
        "dp.ratio",
        (
            "a rule of thumb of US guidelines: a group whose selection rate is below 0.8 of the highest rate is "
            "investigated; as a check, 'dp.ratio>=0.8'; `profile=ugesp` prints its table"
        ),
    ),
    "disparate impact, disparate impact ratio, adverse impact, impact ratio, di": (
        "dp.ratio",
        (
            "compares the lowest with the highest selection rate; to compare every group with one of them: "
            "dp.ratio.to_reference"
        ),
    ),
    "demographic parity difference, statistical parity difference, selection rate difference, spd": (
        "dp.difference",
        "largest minus smallest value, so it has no sign",
    ),
    "equal opportunity difference, eod": (
        "tpr.difference",
        "largest minus smallest value, so it has no sign",
    ),
    "conditional statistical parity, conditional demographic parity": ("dp.difference.within_strata", ""),
    "equalised odds, disparate mistreatment": ("eo.difference", ""),
    "average odds difference, aod": (
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
    "balanced error rate, ber": ("balanced_accuracy", "1 minus it"),
    "F-score, F-measure, Dice coefficient": ("f1", ""),
    "Matthews correlation coefficient, phi coefficient": ("mcc", ""),
    "calibration": ("calibration_error", "signed version: calibration_gap"),
    "Kolmogorov-Smirnov": ("ks", ""),
    "mean squared error, mse": ("square_loss", ""),
    "mean absolute error, mae": ("absolute_loss", ""),
    "cross entropy": ("log_loss", ""),
}
"""Other words, separated by commas -> our term, and a remark."""


def ours(table: Mapping[str, str]) -> dict[str, str]:
    """Return other word -> our word, of :data:`COMMANDS`, :data:`PARAMETERS` or :data:`METHODS`."""
    return {other: own for own, others in table.items() for other in others.split()}
