"""``fairfix inspect``: shows the content of an artifact or a counts file, read as the commands that use it read it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import click
from msgspec import convert

from fairfix.cli.help import SectionedCommand
from fairfix.cli.options import format_option, option
from fairfix.errors import MALFORMED, ArtifactError
from fairfix.report.layout import exact, interval, titled
from fairfix.report.repairs import solution_facts
from fairfix.report.words import as_json, as_options, harmless, named, plain
from fairfix.schema.repair import Evaluations, Solution

Json = Mapping[str, Any]


@click.command("inspect", cls=SectionedCommand)
@click.argument("artifact", type=click.Path())
@format_option()
@option(
    "--detail", is_flag=True, help="Also show settings, arrays, versions and details of the solver (repair)."
)
def command(artifact: str, format_: str, detail: bool) -> int:
    """Show what a repaired predictor or a counts file contains.

    For a predictor, the command also checks that the rule reproduces its test vectors. It runs no code from the file.

    \b
    fairfix inspect repaired.fairfix
    fairfix inspect all.counts
    """
    from fairfix.auditing.countfile import CountFile
    from fairfix.data.container import COUNTS, fingerprint, kind_of, read
    from fairfix.tasks.predict import repaired_of

    digest = fingerprint(artifact)
    lines: Callable[[Json], Iterator[str]] = partial(_of_repair, detail=detail)
    if kind_of(artifact) == COUNTS:
        content, lines = {**CountFile.load(artifact).facts(), "sha256": digest}, partial(_of_counts, artifact)
    else:
        repaired_of(artifact)  # what could not be used is not shown as if it could
        manifest, arrays = (part := read(artifact)).manifest, part.arrays.items()
        shapes = {name: {"dtype": str(array.dtype), "shape": list(array.shape)} for name, array in arrays}
        content = {**manifest, "sha256": digest, "arrays": shapes}
    if fingerprint(artifact) != digest:
        raise ArtifactError(f"{artifact} has changed while it was read; inspect it again")
    if format_ == "json":
        click.echo(as_json(content))
        return 0
    try:
        shown = [harmless(plain(line)) for line in lines(content)]
    except MALFORMED as error:
        raise ArtifactError(
            f"{artifact}: its descriptive data were changed ({type(error).__name__}); 'fairfix inspect --format json' "
            "shows them unchanged"
        ) from error
    for line in shown:
        click.echo(line)
    return 0


def _of_counts(path: str, facts: Json) -> Iterator[str]:
    """Yield what was counted, and how."""
    from fairfix.data.numeric_groups import shown

    rows = facts["rows"]
    left_out = f"; left out: {_pairs(rows['excluded'])}" if rows["excluded"] else ""
    yield f"counts of         {', '.join(facts['sources'])}"
    yield f"rows              {rows['read']:,} read, {rows['used']:,} counted{left_out}"
    data_spec = {key: entry for key, entry in facts["data_spec"].items() if entry not in (None, "", [], {})}
    if "batches" in facts:
        from fairfix.tasks.command import command_of

        line = command_of("audit", path, {"always_valid": True})
        yield f"batches           {facts['batches']:,}, listed by: {line}"
    if "share" in facts:
        yield f"share             {facts['share']}"
    if "private" in facts:
        yield f"private           {facts['private']['says']}"
    yield f"read as           {_pairs({key: shown(entry) for key, entry in data_spec.items()})}"
    for column, levels in facts["levels"].items():
        yield f"levels            {column}: {', '.join(levels)}"
    if facts["model"]:
        yield f"scores from       {_pairs(facts['model'])}"
    yield f"versions          fairfix {', '.join(facts['fairfix'])}"
    yield f"file              {facts['sha256']}"


def _training_scores(manifest: Json) -> str:
    """Return how many scores of training rows an artifact can hold, and of how many rows each; empty if unknown."""
    kind, arrays = manifest["predictor"]["kind"], manifest["arrays"]
    if kind == "binned_tube":
        return "fractions of each group's rows up to every score bin, down to single rows"
    if kind == "group_tube":
        bins, rows = arrays["first"]["shape"][0], manifest["parameters"].get("bin_rows", 1)
        if rows > 1:
            return f"{bins:,} bins, each of at least {rows:g} rows or of all rows of a smaller group"
        return f"up to {bins:,} scores of single rows, with the fraction of their group up to each"
    if knots := sum(one["shape"][0] for name, one in arrays.items() if name.endswith("knots")):
        return f"up to {knots:,} scores of single rows, as knots of curves"
    return ""


def _of_repair(manifest: Json, *, detail: bool) -> Iterator[str]:
    """Yield what a repaired predictor does, for whom, what it needs and how good it is; with ``detail``, its parts."""
    from fairfix.data.numeric_groups import shown
    from fairfix.report.layout import merged_names

    requires, facts, parameters = manifest["requires"], manifest["facts"], manifest["parameters"]
    columns, base, policies = manifest["columns"], manifest["base"], manifest["policies"]
    limit = f", slack {parameters['slack']}" if "slack" in parameters else ""
    wanted = (
        f", {str(parameters['constraint']).replace('_', ' ')}{limit}" if "constraint" in parameters else limit
    )
    yield f"repair            {manifest['method']}{wanted}"
    if facts:
        data = facts["data"]
        yield f"fitted on         {data['source']}: {data['rows']['used']:,} rows"
        if where := facts["settings"].get("where"):
            yield f"rows where        {where}"
    if columns["protected"]:
        yield f"groups            by {', '.join(columns['protected'])}"
    if cut := {name: edges for name, edges in manifest["bands"].items() if edges}:
        yield f"bands             {shown(cut)}"
    if merge := manifest.get("merge"):
        yield f"merged names      {merged_names(merge)}"
    if names := manifest["predictor"]["settings"].get("names"):
        yield f"classes           {', '.join(names)}"
    where = {"file": base.get("sha256"), "column": "column", "features": "features"}[base["kind"]]
    yield f"scores from       {base['name'] if 'name' in base else ', '.join(base['names'])} ({where})"
    yield f"needs             {', '.join(requires['columns'])}"
    yield f"group needed      {'yes' if requires['protected_at_predict'] else 'no'}, at prediction time"
    if requires["protected_at_predict"]:
        yield f"unseen group      {policies['unseen']}"
    identity = {*manifest["randomization"]["identity"]}
    if columns["id"] is None and identity and identity <= {*requires["columns"]}:
        yield "row ID            none: all of these columns identify rows for randomization"
    elif columns["id"] is not None:
        yield f"row ID            {columns['id']}"
    if scores := _training_scores(manifest):
        yield f"training scores   {scores}"
    if facts:
        if "guarantee" in facts:
            yield f"guarantee         {as_options(facts['guarantee']['says'])}"
        proof = convert(facts["proof"], Evaluations)
        held = proof.holdout or proof.fit
        rows = "training rows, none held out" if proof.holdout is None else "held-out rows"
        yield f"evaluation        {held.rows:,} {rows}, {held.randomized:.2%} of the decisions randomized"
        yield from (
            f"  {titled(row.id, row.attribute)}: {interval(row.before)} -> {interval(row.after)}"
            for row in held.table
        )
        messages = sorted(facts.get("messages", ()), key=lambda one: one["severity"] == "note")
        yield from (f"{one['severity']:<18}{as_options(one['text'])}" for one in messages)
    if detail:
        yield from _parts(manifest)
    yield f"file              {manifest['sha256']}"


def _parts(manifest: Json) -> Iterator[str]:
    """Yield the parts of an artifact and how its solver ended."""
    facts, draw = manifest["facts"], manifest["randomization"]
    yield f"parameters        {_pairs(manifest['parameters'])}"
    yield f"predictor         {manifest['predictor']['kind']}"
    shapes = [f"{name} {array['dtype']}{array['shape']}" for name, array in manifest["arrays"].items()]
    yield f"arrays            {', '.join(shapes)}"
    yield f"policies          {_pairs(manifest['policies'])}"
    yield f"randomization     {draw['scheme']} over {', '.join(draw['identity'])}"
    if facts:
        yield f"fingerprint       {facts['data']['fingerprint']} of the data"
        if "solution" in facts:
            yield from _solution(convert(facts["solution"], Solution))
        if "vectors" in facts:
            many = len(facts["vectors"]["draws"])
            yield f"vectors           {many} synthetic rows with their results, to test a reader with"
    yield f"versions          {_pairs(manifest['versions'])}; seed {manifest['seed']}"


def _solution(solution: Solution) -> Iterator[str]:
    for i, line in enumerate(solution_facts(solution)):
        yield f"{'' if i else 'solution':<18}{line}"
    for one in solution.quantities:
        name = f"{one.name} of {named(one.group)}" if one.group else one.name
        yield f"  {name}: {exact(one.value)} ({one.meaning})"


def _pairs(facts: Json) -> str:
    return ", ".join(f"{name} {fact}" for name, fact in facts.items())
