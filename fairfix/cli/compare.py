"""``fairfix compare``: every method over a range of slack, on one split."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from fairfix.cli.options import (
    check_outputs,
    data_options,
    learned_features,
    noise_of,
    noise_options,
    open_data,
    option,
    output_options,
    run_options,
    show_settings,
    talk,
    task_option,
    write_results,
)
from fairfix.cli.progress import working
from fairfix.errors import UsageError

if TYPE_CHECKING:
    from fairfix.data.reading import Reading
    from fairfix.noisy.description import Noise
    from fairfix.tasks.compare import Contender


@click.command("compare")
@data_options
@task_option
@option(
    "--protected-as-feature",
    is_flag=True,
    help="Methods that learn see the protected columns too, and need them at predict time.",
)
@noise_options
@option("--methods", metavar="NAME[,...]", help="The methods to compare.  [default: all that fit the data]")
@option(
    "--slacks",
    default="0,0.01,0.02,0.05,0.1,0.2,inf",
    metavar="NUMBER[,...]",
    help="Allowed gaps to try, each in the method's own criterion; inf leaves them.",
)
@option("--seed", type=click.IntRange(0), default=0, help="Of the split and the fits.")
@option("--holdout", type=float, default=0.3, help="Share of the rows kept to judge by.")
@option("--confidence", type=float, default=0.95, help="Of every interval.")
@option(
    "--picture",
    type=click.Path(),
    metavar="FILE",
    help="Also draw the frontier, as .png or .svg; needs the extra fairfix[plot].",
)
@output_options()
@run_options
@click.pass_context
def command(ctx: click.Context, /, **given: Any) -> int:
    """Show what each method costs over a range of slack.

    All repairs are fitted on the same rows and judged on the same others. Nothing is gated and no artifact is written:
    take the method and the slack you choose to 'fairfix repair'.

    \b
    fairfix compare loans.parquet --protected race
    fairfix compare loans.parquet --protected race --slacks 0.01,0.05 --picture frontier.svg
    """
    if given["show_settings"]:
        show_settings(ctx)
    from fairfix.data.scan import read_table
    from fairfix.tasks.as_json import compare_dict
    from fairfix.tasks.compare import compare_table, fits
    from fairfix.tasks.proof import RowCounts

    check_outputs(given, gated=False)
    kind = _picture_kind(given["picture"])
    slacks = _numbers(given["slacks"])
    source, reading, inferred, model = open_data(given, score_needed=False)
    if reading.columns.label is None:
        raise UsageError("a comparison needs labels to judge by; name the column with --label")
    if reading.columns.prediction:
        raise UsageError("a comparison needs scores or features, not decisions; leave out --prediction")
    features = learned_features(given, source, reading, model)
    noise = noise_of(given)
    contenders = chosen(given["methods"], reading, learned=features is not None, noise=noise)
    if given["protected_as_feature"]:  # then a method chooses by itself what sees the group
        contenders = [one for one in contenders if not one.repairer.sees_groups]
    talk(given, f"comparing {', '.join(dict.fromkeys(one.title for one in contenders))}")
    with working(given, "comparing", len(fits(contenders, slacks))) as done:
        table = read_table(source, reading)
        outcome = compare_table(
            table,
            contenders,
            slacks=slacks,
            confidence=given["confidence"],
            seed=given["seed"],
            holdout=given["holdout"],
            features=features,
            protected_as_feature=given["protected_as_feature"],
            noise=noise,
            seen_by_model=model.feature_names if model else (),
            done=done,
        )
    rows = RowCounts(table.rows.read, len(table), table.rows.excluded)
    settings = _settings(features, noise, given)
    result = compare_dict(outcome, source.name, rows, inferred, settings, outcome.reading)
    if kind:
        _draw(result, given["picture"], kind)
        talk(given, f"wrote {given['picture']}")
    write_results(result, given)
    return 0


def _settings(
    features: Sequence[str] | None, noise: Noise | None, given: Mapping[str, Any]
) -> dict[str, Any]:
    """Return what was asked for, as the result has it."""
    settings: dict[str, Any] = {
        "confidence": given["confidence"],
        "seed": given["seed"],
        "features": "score" if features is None else list(features),
        "protected_as_feature": given["protected_as_feature"],
    }
    if noise is not None and noise.table is not None:
        settings["noise"] = {
            "table": noise.table.source,
            "assumption": "N2" if noise.table.by_label else "N1",
        }
    return settings


def chosen(
    asked: str | None, reading: Reading, *, learned: bool, noise: Noise | None = None
) -> list[Contender]:
    """Return the contenders of the methods asked for; of all that fit the data where none is named.

    Raises
    ------
    UsageError
        A method is unknown or does not fit the data, or none does.
    """
    from fairfix.methods import available
    from fairfix.tasks.compare import Contender

    known = available()
    names = [name.strip() for name in asked.split(",")] if asked else list(known)
    out = []
    for name in names:
        if name not in known:
            raise UsageError(f"--methods {name}: unknown; choose among {', '.join(known)}")
        method = known[name]
        why = _unfit(method, reading, learned=learned, noise=noise)
        if why and asked:
            raise UsageError(f"--methods {name}: {why}")
        if not why:
            found = method.contenders(reading)
            if noise is not None and method.knows_noise:
                found = method.noisy_contenders(reading, noise)
            out += [Contender(title, repairer) for title, repairer in found]
    if not out:
        raise UsageError("no method fits these data; name features to learn from, or a score column")
    return out


def _unfit(method: Any, reading: Reading, *, learned: bool, noise: Noise | None) -> str:
    """Return why a method does not fit the data; empty if it does."""
    if reading.task not in method.tasks:
        return f"it repairs {' and '.join(method.tasks)}, not {reading.task}"
    if learned and not method.learns and not reading.columns.score:
        return "it works on scores; name a score column with --score"
    if method.knows_noise and noise is None:
        return "it needs to know the noise of the groups; give a table with --noise"
    return ""


def _numbers(text: str) -> tuple[float, ...]:
    try:
        slacks = tuple(dict.fromkeys(float(part) for part in text.split(",")))
    except ValueError:
        raise UsageError(f"--slacks {text!r}: write numbers with commas, such as 0.01,0.05,0.1") from None
    if any(math.isnan(slack) or slack < 0 for slack in slacks):
        raise UsageError(f"--slacks {text!r}: a slack is an allowed gap, which cannot be negative")
    return slacks


def _picture_kind(path: str | None) -> str:
    """Return the format of the picture; empty if none is asked for."""
    if not path:
        return ""
    from pathlib import Path

    from fairfix.report.picture import FORMATS

    kind = Path(path).suffix.lower().removeprefix(".")
    if kind not in FORMATS:
        raise UsageError(
            f"--picture {path}: the name must end in {' or '.join('.' + name for name in FORMATS)}"
        )
    return kind


def _draw(result: Mapping[str, Any], path: str, kind: str) -> None:
    from fairfix.data.files import atomic_output
    from fairfix.report.picture import draw

    content = draw(result, kind)
    with atomic_output(path) as file:
        file.write(content)
