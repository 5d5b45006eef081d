"""``fairfix audit``."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

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
    task_option,
    write_results,
)
from fairfix.errors import UsageError


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
    settings = Settings(
        confidence=given["confidence"],
        intersect=given["intersect"],
        reference=dict(_reference(text, given["protected"]) for text in given["reference"]),
        exact=not given["one_pass"],
        threads=given["threads"],
        checks=tuple(Check.parse(text) for text in given["fail_on"]),
        gate_on=given["gate_on"],
    )
    source, reading, inferred, model = open_data(given)
    report = audit(source, reading, settings)
    require_two_groups(report)
    used = {"file": given["model"].rsplit("/", 1)[-1], "sha256": model.sha256} if model else {}
    write_results(audit_dict(replace(report, inferred=inferred, model=used)), given)
    return exit_status((result.verdict for result in report.checks), given["undecided"])


def _reference(text: str, protected: tuple[str, ...]) -> tuple[str, str]:
    """Read ``race=White``; the attribute may be left out when there is only one."""
    attribute, sign, group = text.partition("=")
    if sign:
        return attribute.strip(), group.strip()
    if len(protected) != 1:
        raise UsageError(f"--reference {text!r}: say of which attribute, as ATTRIBUTE=GROUP")
    return protected[0], text.strip()
