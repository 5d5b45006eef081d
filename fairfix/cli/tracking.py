"""``--log mlflow``: a result as a run of MLflow, with its numbers, verdicts, parameters and reports.

The tracking server is the one that ``MLFLOW_TRACKING_URI`` names, or else MLflow's own store in the working folder. No
configuration that was found can ask for it, and a store that was found must keep its artifacts in its folder. A number
that is undefined is a tag with the reason, never a metric.
"""

from __future__ import annotations

import hashlib
import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from fairfix.data.urls import hidden, shown_argument, shown_url
from fairfix.errors import DataError, FairfixError, UsageError, first_line

if TYPE_CHECKING:
    from fairfix.schema.common import Number, SavedCheck, SavedResult

QUIET = {
    "MLFLOW_DISABLE_TELEMETRY": "true",  # fairfix sends nothing to places that nobody named
    "MLFLOW_LOGGING_LEVEL": "WARNING",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
}
"""Variables of MLflow, where the user has not set them."""

SENDERS = (
    *("mlflow", "requests", "urllib3", "sqlalchemy", "sqlite3"),
    *("alembic", "botocore", "boto3", "google", "azure"),
)
"""Packages whose errors are those of MLflow, or of where it sends results to."""

SIGNS = re.compile(r"[^\w\-. ]")
LONGEST = 200
"""Characters of a key; MLflow takes 250."""

AT_ONCE = 100
"""Metrics, tags or parameters in one request, which MLflow limits."""

WORDS = {"<=": ".le.", ">=": ".ge.", "<": ".lt.", ">": ".gt."}
"""Operators as keys have them."""


def check_installed() -> None:
    """Raise a UsageError where the package is not installed."""
    if find_spec("mlflow") is None:
        raise UsageError(
            "`log=mlflow` needs the package mlflow, which is not installed: pip install 'fairfix[mlflow]'"
        )


def log_run(result: SavedResult, save: Callable[[str], object] | None = None) -> None:
    """Log a result; ``save`` writes the artifact of a repair to a file."""
    for name, setting in QUIET.items():
        os.environ.setdefault(name, setting)
    named = os.environ.get("MLFLOW_TRACKING_URI")
    where = f"MLflow at {shown_url(named)}" if named else "MLflow in this folder"
    with _asking(where):
        tracking: Any = import_module("mlflow.tracking")
        if not named:
            from fairfix.data.targets import check_links

            check_links(Path("mlflow.db"))
        client = tracking.MlflowClient()
        run = client.create_run(_experiment(client), run_name=f"fairfix {_command()}")
        ident, status = run.info.run_id, "FAILED"
        try:
            if not named:
                _check_local(run.info.artifact_uri)
            _fill(client, ident, result, save)
            status = "FINISHED"
        finally:
            client.set_terminated(ident, status)


def _command() -> str:
    return str(click.get_current_context().info_name)


@contextmanager
def _asking(where: str) -> Iterator[None]:
    """Turn an error of MLflow into one line that names the place and has no secret in it."""
    try:
        yield
    except FairfixError:
        raise
    except Exception as error:
        if (
            not isinstance(error, (OSError, ImportError))
            and type(error).__module__.partition(".")[0] not in SENDERS
        ):
            raise
        text = hidden(first_line(error))
        raise DataError(f"the result cannot be logged to {where}: {text[:300]}") from None


def _experiment(client: Any) -> str:
    """Return the experiment that the environment names as MLflow reads it, or MLflow's default."""
    if not (name := os.environ.get("MLFLOW_EXPERIMENT_NAME")):
        return os.environ.get("MLFLOW_EXPERIMENT_ID", "0")
    own = client.get_experiment_by_name(name)
    return str(client.create_experiment(name) if own is None else own.experiment_id)


def _check_local(uri: str) -> None:
    """Raise where a store that lies in the working folder sends artifacts elsewhere: a stranger may have made it."""
    place = Path(uri.removeprefix("file://")).resolve()
    if not place.is_relative_to(Path.cwd().resolve()):
        raise UsageError(
            f"the store of MLflow in this folder writes to {shown_url(uri)}; if you want that, name the store in "
            "MLFLOW_TRACKING_URI, such as sqlite:///mlflow.db"
        )


def _fill(client: Any, ident: str, result: SavedResult, save: Callable[[str], object] | None) -> None:
    """Send metrics, tags, parameters and files of a result."""
    from fairfix.cli.outputs import render

    entities: Any = import_module("mlflow.entities")
    when, tags = int(time.time() * 1000), dict(_tags(result))
    metrics = list[Any]()
    for key, number in _numbers(result).items():
        ends = {"": number.value, ".lower": number.low, ".upper": number.high}
        if number.value is None:
            tags[f"undefined.{_safe(key)}"] = number.reason or "undefined"
            continue
        metrics += [
            entities.Metric(_safe(key) + end, value, when, 0)
            for end, value in ends.items()
            if value is not None
        ]
    params = [entities.Param(_safe(name), text) for name, text in _parameters().items()]
    lists = {"metrics": metrics, "tags": [entities.RunTag(*one) for one in tags.items()], "params": params}
    for kind, entries in lists.items():
        for i in range(0, len(entries), AT_ONCE):
            client.log_batch(ident, **{kind: entries[i : i + AT_ONCE]})
    for name, file in (("json", "result.json"), ("html", "report.html"), ("card", "card.md")):
        client.log_text(ident, str(render(name, result, detail=False, terminal=False)), file)
    if save is not None:
        from fairfix.data.atomic_write import together

        with TemporaryDirectory() as folder:
            path = Path(folder) / "repaired.fairfix"
            with together(dict):  # while the other files of the run still wait
                save(str(path))
            client.log_artifact(ident, str(path))


def _safe(key: str) -> str:
    """Return a key that MLflow takes; one that has to be changed ends in a hash, so that keys stay different."""
    text = SIGNS.sub("_", key)[:LONGEST]
    return text if text == key else f"{text}.{hashlib.sha256(key.encode('utf-8', 'replace')).hexdigest()[:8]}"


def _parameters() -> dict[str, str]:
    """Return the parameters that the line, the environment or the configuration set, without secrets."""
    from fairfix.report.words import shortened

    ctx = click.get_current_context()
    asked = {
        name: setting
        for name, setting in ctx.params.items()
        if ctx.get_parameter_source(name) not in (None, ParameterSource.DEFAULT)
    }
    texts = {
        name: ", ".join(map(shown_argument, map(str, one if isinstance(one, (tuple, list)) else (one,))))
        for name, one in asked.items()
    }
    return {name.strip("_"): shortened(text) for name, text in texts.items()}


def _tags(result: SavedResult) -> Iterator[tuple[str, str]]:
    """Yield the verdicts and where the numbers are from."""
    from fairfix.schema.common import CheckedResult

    yield "fairfix.version", result.fairfix
    yield "fairfix.data", result.data.source
    yield (
        "fairfix.warnings",
        ", ".join(dict.fromkeys(one.code for one in result.messages if one.severity == "warning")),
    )
    if not isinstance(result, CheckedResult):
        return
    yield "fairfix.verdict", result.verdict or "no checks"
    for check in result.checks:
        key = f"check.{_key_of(check)}{WORDS[check.operator]}{check.limit:g}"
        yield _safe(key), check.verdict


def _key_of(check: SavedCheck) -> str:
    change = "change" if check.of == "change" else ""
    of_class = f"class {check.of_class}" if check.of_class else ""
    key = _key(check.comparison, check.attribute, check.group, of_class)
    return ".".join(filter(None, (change, key)))


def _numbers(result: SavedResult) -> dict[str, Number]:
    """Return the numbers of a result by their keys, such as ``dp.difference.race``."""
    from fairfix.schema.audit import Audit
    from fairfix.schema.common import CheckedResult
    from fairfix.schema.compare import Compare, Models
    from fairfix.schema.repair import Repair

    out: dict[str, Number] = {}
    if isinstance(result, CheckedResult) and not isinstance(result, Repair):
        out |= {_key_of(one): one for one in result.checks}
    if isinstance(result, Audit):
        for name, block in result.blocks:
            whose = block.attribute, block.stratum, f"class {name}" if name else ""
            out |= {_key(one.id, *whose): one for one in block.comparisons}
        out |= {_key(name, "overall"): one for name, one in result.overall.metrics.items()}
    elif isinstance(result, Repair) and result.proof.holdout is not None:
        for row in result.proof.holdout.table:
            key = _key(row.id, row.attribute or "overall")
            out |= {f"before.{key}": row.before, key: row.after}
            out |= {f"change.{key}": row.change} if row.change is not None else {}
    elif isinstance(result, Models):
        for change in (*result.qualities, *result.changes):
            key = _key(change.comparison or change.id, change.attribute or "overall", change.group)
            out |= {f"before.{key}": change.old, key: change.new, f"change.{key}": change}
    elif isinstance(result, Compare):
        for place, point in enumerate(result.points):
            own = ".".join(filter(None, (point.title, "" if point.slack is None else f"{point.slack:g}")))
            own = f"{own}.{place}" if any(key.startswith(f"{own}.") for key in out) else own
            out |= {f"{own}.{_key(one.gap.comparison, one.gap.attribute)}": one for one in point.gaps}
            out |= {f"{own}.{_key(name)}": one for name, one in point.qualities.items()}
    return out


def _key(identifier: str, *names: str) -> str:
    """Return the key of a number: its short name, and what it is about."""
    from fairfix.auditing.comparisons import Comparison

    one = Comparison.parse(identifier)
    short = min((one.metric, *reversed(one.entry.aliases)), key=len) if one.part else one.metric
    return ".".join(filter(None, (short, one.short_part, *names)))
