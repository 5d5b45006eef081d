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
    talk,
    task_option,
    write_results,
)
from fairfix.errors import UsageError

if TYPE_CHECKING:
    from fairfix.findings import ComparisonReport
    from fairfix.io import Source
    from fairfix.models import ScoringModel
    from fairfix.table import Reading


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
@option(
    "--radius",
    type=click.FloatRange(0.0),
    metavar="NUMBER",
    help="With --individual and a model: also SenSeI's transport regularizer, rows moving by so much (mean square).",
)
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
    for name in ("comparable", "radius"):
        if given[name] not in ((), None) and not given["individual"]:
            raise UsageError(f"--{name} goes with --individual")
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
    report = audit(source, reading, settings, more)
    require_two_groups(report)
    used = {"file": given["model"].rsplit("/", 1)[-1], "sha256": model.sha256} if model else {}
    write_results(audit_dict(replace(report, inferred=inferred, model=used)), given)
    return exit_status((result.verdict for result in report.checks), given["undecided"])


def _individual(
    source: Source,
    reading: Reading,
    model: ScoringModel | None,
    confidence: float,
    given: Mapping[str, Any],
) -> dict[str, list[ComparisonReport]]:
    """Return what is found of individual fairness, by attribute; what is proposed is only said."""
    from fairfix.flips import parse_comparable, proxies
    from fairfix.individual import of_model, of_scores, readable_table

    comparable = parse_comparable(";".join(given["comparable"]))
    names = given["features"] or None if model is None else model.feature_names
    table = readable_table(source, reading, names)
    declared = {name for name, _ in comparable}
    for proposal in proxies(table, reading.columns.protected):
        if proposal.partition("=")[0] not in declared:
            talk(given, f"comparable values to think about, not used: {proposal}; say so with --comparable")
    if model is None:
        if given["radius"] is not None:
            raise UsageError("--radius moves rows and scores them again, which needs a model file (--model)")
        if comparable:
            raise UsageError(
                "--comparable changes rows and scores them again, which needs a model file (--model)"
            )
        found, aside = of_scores(table, confidence)
        if aside:
            talk(given, f"left aside, since nothing is learned from them: {', '.join(aside)}")
        return found
    return of_model(table, model, comparable, confidence, given["radius"])


def _reference(text: str, protected: tuple[str, ...]) -> tuple[str, str]:
    """Read ``race=White``; the attribute may be left out when there is only one."""
    attribute, sign, group = text.partition("=")
    if sign:
        return attribute.strip(), group.strip()
    if len(protected) != 1:
        raise UsageError(f"--reference {text!r}: say of which attribute, as ATTRIBUTE=GROUP")
    return protected[0], text.strip()
