"""``fairfix audit``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from fairfix.cli.options import (
    check_outputs,
    data_options,
    gate_options,
    open_data,
    option,
    output_options,
    run_options,
    show_settings,
    split_names,
    stacked,
    talk,
    task_option,
    write_results,
)
from fairfix.errors import UsageError

if TYPE_CHECKING:
    from fairfix.findings import ComparisonReport
    from fairfix.io import Source
    from fairfix.models import ScoringModel
    from fairfix.noise import Noise
    from fairfix.table import Reading


noise_options = stacked(
    option(
        "--noise",
        metavar="FILE",
        help="The protected column is a noisy one, and this table tells how: rows of true, noisy (and label) "
        "with a count or a probability.",
    ),
    option(
        "--noise-columns",
        multiple=True,
        metavar="TRUE,NOISY[,LABEL]",
        callback=split_names,
        help="The noise file has a row per person instead, with both groups in these columns.",
    ),
    option(
        "--noise-probability",
        type=click.Choice(["joint", "true-given-noisy", "noisy-given-true"]),
        help="What its probabilities are.  [default: found from what sums to 1]",
    ),
    option(
        "--noise-keep",
        type=click.Choice(["true-given-noisy", "noisy-given-true"]),
        help="What of the table holds for the data, if their groups have other shares.",
    ),
    option(
        "--noise-radius",
        metavar="GROUP=NUMBER,...",
        help="Total variation between each true group and the group recorded as it.",
    ),
    option(
        "--noise-epsilon", type=float, metavar="NUMBER", help="Noise depends on outcomes by at most this."
    ),
    option(
        "--noise-class-conditional",
        is_flag=True,
        help="State that noise depends on nothing but the true group, and decisions not on the recorded one.",
    ),
    option("--seed", type=click.IntRange(0), default=0, help="Of the resampling that noise asks for."),
)
"""What is known of a noisy protected column."""


@click.command("audit")
@data_options
@option(
    "--probability",
    metavar="COLUMN",
    help="Probability of a positive decision of a randomised rule (p_positive).",
)
@task_option
@option("--intersect", is_flag=True, help="Also audit the cells of all protected columns together.")
@option(
    "--reference",
    multiple=True,
    metavar="ATTRIBUTE=GROUP",
    help="Also compare every group with this one; repeatable.",
)
@option(
    "--individual",
    is_flag=True,
    help="Also ask what happens to a person who is changed in the protected columns alone: with a model file by doing "
    "so, else by what the scores tell.",
)
@option(
    "--comparable",
    multiple=True,
    metavar="COLUMN=VALUE,VALUE",
    help="Values of a feature column whose difference does not count, for --individual; repeatable.",
)
@noise_options
@option("--one-pass", is_flag=True, help="Read the data once: KS and AUC from bins, with certified bounds.")
@gate_options("the audit")
@output_options()
@run_options
@click.pass_context
def command(ctx: click.Context, /, **given: Any) -> int:
    """Measure how a model treats groups, and gate on it.

    DATA is a Parquet or CSV file, a folder of them, or a quoted pattern.

    \b
    fairfix audit loans.parquet --protected race
    fairfix audit loans.parquet --protected race,sex --intersect --fail-on 'dp.difference>0.1'
    """
    if given["show_settings"]:
        show_settings(ctx)
    from fairfix.auditor import audit, require_two_groups
    from fairfix.checks import Check, exit_status
    from fairfix.findings import Settings
    from fairfix.report.json_ import audit_dict

    check_outputs(given)
    if given["comparable"] and not given["individual"]:
        raise UsageError("--comparable goes with --individual")
    settings = Settings(
        confidence=given["confidence"],
        intersect=given["intersect"] or (given["individual"] and len(given["protected"]) > 1),
        reference=dict(_reference(text, given["protected"]) for text in given["reference"]),
        exact=not given["one_pass"],
        threads=given["threads"],
        checks=tuple(Check.parse(text) for text in given["fail_on"]),
        gate_on=given["gate_on"],
    )
    source, reading, inferred, model = open_data(given)
    more = _individual(source, reading, model, settings.confidence, given) if given["individual"] else None
    noise = _noise(reading, model, given)
    if noise is None:
        report = audit(source, reading, settings, more)
    else:
        from fairfix.true_groups import audit_noisy

        report = audit_noisy(source, reading, noise, settings, seed=given["seed"], more=more)
        for check in settings.checks:
            if check.comparison.endswith(".between_groups") and check.attribute in (
                None,
                *given["protected"],
            ):
                talk(
                    given,
                    f"check {check.text!r} is about the recorded groups; of the true ones: {check.true_groups}",
                )
    require_two_groups(report)
    used = {"file": given["model"].rsplit("/", 1)[-1], "sha256": model.sha256} if model else {}
    write_results(audit_dict(replace(report, inferred=inferred, model=used)), given)
    return exit_status((result.verdict for result in report.checks), given["undecided"])


def _noise(reading: Reading, model: ScoringModel | None, given: Mapping[str, Any]) -> Noise | None:
    """Return what is said of noise; None where nothing is."""
    extra = ("noise_columns", "noise_probability", "noise_keep", "noise_epsilon", "noise_class_conditional")
    if not given["noise"] and given["noise_radius"] is None:
        for name in extra:
            if given[name] not in (None, (), False):
                raise UsageError(f"--{name.replace('_', '-')} goes with --noise FILE")
        return None
    from fairfix.io import open_source
    from fairfix.noise import WORDS, Noise, parse_radii, read_noise, tabulate

    table = None
    columns = given["noise_columns"]
    if columns and not given["noise"]:
        raise UsageError("--noise-columns goes with --noise FILE")
    if given["noise"] and columns:
        if len(columns) not in (2, 3):
            raise UsageError(
                f"--noise-columns {','.join(columns)}: name two or three columns, TRUE,NOISY[,LABEL]"
            )
        if given["noise_probability"]:
            raise UsageError("--noise-columns counts persons; leave out --noise-probability")
        table = tabulate(open_source(given["noise"]), *columns)
    elif given["noise"]:
        table = read_noise(open_source(given["noise"]), given["noise_probability"])
    if table is not None and not columns:
        talk(given, f"{table.source} holds {WORDS[table.form]}")
    used = set(reading.columns.protected) & set(model.feature_names if model else ())
    if used and (given["noise_class_conditional"] or given["noise_epsilon"] is not None):
        raise UsageError(
            f"the model looks at {', '.join(sorted(used))}, so noise comes into its decisions: leave out "
            "--noise-class-conditional and --noise-epsilon, or drop the column from the model"
        )
    radii = None if given["noise_radius"] is None else parse_radii(given["noise_radius"])
    return Noise(table, radii, given["noise_epsilon"], given["noise_class_conditional"], given["noise_keep"])


def _individual(
    source: Source,
    reading: Reading,
    model: ScoringModel | None,
    confidence: float,
    given: Mapping[str, Any],
) -> dict[str, list[ComparisonReport]]:
    """Return what is found of individual fairness, by attribute; what is proposed is only said."""
    from fairfix.flips import parse_comparable, proxies
    from fairfix.individual import of_model, readable_table

    comparable = parse_comparable(";".join(given["comparable"]))
    table = readable_table(source, reading, None if model is None else model.feature_names)
    declared = {name for name, _ in comparable}
    for proposal in proxies(table, reading.columns.protected):
        if proposal.partition("=")[0] not in declared:
            talk(given, f"comparable values to think about, not used: {proposal}; say so with --comparable")
    if model is None:
        if comparable:
            raise UsageError(
                "--comparable changes rows and scores them again, which needs a model file (--model)"
            )
        raise UsageError(
            "--individual changes rows and scores them again, which needs a model file (--model)"
        )
    return of_model(table, model, comparable, confidence)


def _reference(text: str, protected: tuple[str, ...]) -> tuple[str, str]:
    """Read ``race=White``; the attribute may be left out when there is only one."""
    attribute, sign, group = text.partition("=")
    if sign:
        return attribute.strip(), group.strip()
    if len(protected) != 1:
        raise UsageError(f"--reference {text!r}: say of which attribute, as ATTRIBUTE=GROUP")
    return protected[0], text.strip()
