"""``fairfix inspect``: reads the manifest, builds and runs nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import click

from fairfix.cli.options import debug_option, option
from fairfix.errors import ArtifactError
from fairfix.report.words import as_options


@click.command("inspect")
@click.argument("artifact", type=click.Path())
@option("--format", "format_", type=click.Choice(["text", "json"]), default="text", help="Format on stdout.")
@debug_option
def command(artifact: str, format_: str, debug: bool) -> int:
    """Show what is in a repaired predictor, or in a file of counts; runs nothing.

    \b
    fairfix inspect repaired.fairfix
    fairfix inspect all.counts
    """
    from fairfix.data.container import COUNTS, fingerprint, kind_of, read

    if kind_of(artifact) == COUNTS:
        return _show_counts(artifact, format_)
    found = read(artifact)
    manifest = {**found.manifest, "sha256": fingerprint(artifact)}
    arrays = {name: {"dtype": str(a.dtype), "shape": list(a.shape)} for name, a in found.arrays.items()}
    if format_ == "json":
        click.echo(json.dumps({**manifest, "arrays": arrays}, indent=2, ensure_ascii=False))
        return 0
    try:
        for line in _lines(manifest, arrays):
            click.echo(line)
    except (KeyError, TypeError, AttributeError) as error:
        raise ArtifactError(f"{artifact}: the manifest is incomplete: {error!r}") from error
    return 0


def _show_counts(path: str, format_: str) -> int:
    """Print what was counted, and how."""
    from fairfix.auditing.countfile import CountFile
    from fairfix.data.container import fingerprint

    content = CountFile.load(path)
    facts = {**content.facts(), "sha256": fingerprint(path)}
    if format_ == "json":
        click.echo(json.dumps(facts, indent=2, ensure_ascii=False))
        return 0
    rows = facts["rows"]
    left_out = f"; left out: {_pairs(rows['excluded'])}" if rows["excluded"] else ""
    click.echo(f"counts of         {', '.join(facts['sources'])}")
    click.echo(f"rows              {rows['read']:,} read, {rows['used']:,} counted{left_out}")
    reading = {key: value for key, value in facts["reading"].items() if value not in (None, [])}
    plain = {key: ",".join(map(str, v)) if isinstance(v, list) else v for key, v in reading.items()}
    click.echo(f"read as           {_pairs(plain)}")
    for column, levels in facts["levels"].items():
        click.echo(f"levels            {column}: {', '.join(levels)}")
    if facts["model"]:
        click.echo(f"scores from       {_pairs(facts['model'])}")
    click.echo(f"versions          fairfix {', '.join(facts['fairfix'])}")
    click.echo(f"file              {facts['sha256']}")
    return 0


def _lines(manifest: Mapping[str, Any], arrays: Mapping[str, Any]) -> Iterator[str]:
    requires, policies, facts = manifest["requires"], manifest["policies"], manifest["facts"]
    yield f"method            {manifest['method']}"
    yield f"parameters        {_pairs(manifest['parameters'])}"
    yield f"predictor         {manifest['predictor']['kind']}"
    shapes = [f"{name} {array['dtype']}{array['shape']}" for name, array in arrays.items()]
    yield f"arrays            {', '.join(shapes)}"
    yield f"needs             {', '.join(requires['columns'])}"
    yield f"protected needed  {'yes' if requires['protected_at_predict'] else 'no'}, at predict time"
    base = manifest["base"]
    where = {"file": base.get("sha256"), "column": "column", "features": "features"}[base["kind"]]
    yield f"scores from       {base['name'] if 'name' in base else ', '.join(base['names'])} ({where})"
    yield f"policies          {_pairs(policies)}"
    draw = manifest["randomization"]
    yield f"randomisation     {draw['scheme']} over {', '.join(draw['identity'])}"
    if facts:
        data = facts["data"]
        yield f"fitted on         {data['source']}: {data['rows']['used']:,} rows, {data['fingerprint']}"
        if "solution" in facts:
            yield from _solution(facts["solution"])
        yield from _proof(facts["proof"]["holdout"])
        for kind in ("warning", "note"):
            yield from (f"{kind:<18}{as_options(text)}" for text in facts.get(f"{kind}s", ()))
    yield f"versions          {_pairs(manifest['versions'])}; seed {manifest['seed']}"
    yield f"file              {manifest['sha256']}"


def _proof(proof: Mapping[str, Any]) -> Iterator[str]:
    from fairfix.report.layout import interval

    yield f"proof             {proof['rows']:,} held-out rows, {proof['randomized']:.2%} of the decisions random"
    for row in proof["table"]:
        yield f"  {row['name']}: {interval(row['before'])} -> {interval(row['after'])}"


def _solution(solution: Mapping[str, Any]) -> Iterator[str]:
    from fairfix.report.layout import exact, solution_facts
    from fairfix.report.words import named

    for i, line in enumerate(solution_facts(solution)):
        yield f"{'' if i else 'solution':<18}{line}"
    for one in solution["quantities"]:
        name = f"{one['name']} of {named(one['group'])}" if "group" in one else one["name"]
        yield f"  {name}: {exact(one['value'])} ({one['meaning']})"


def _pairs(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in values.items())
