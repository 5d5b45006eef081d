"""What must hold of every run: its status, what it printed and wrote, and the numbers in its report.

The rates and the verdicts are computed here once more, from the table or from the numbers in the report, without
fairfix.
"""

from __future__ import annotations

import json
import math
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pyarrow as pa
from fairfix.schema import RESULTS, json_schema

STEERING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""What moves the cursor, colours, rings or turns the direction of a terminal; a line break and a tab do not."""

CPU, CPU_OF_ROW = 30.0, 0.02
"""Seconds of processor that a run may take: boosted trees, matplotlib and its fonts take some 10 on a busy machine."""

MEMORY, MEMORY_OF_BYTE = 600e6, 500
"""Bytes that a run may need beside those of the imports, and for each byte of its data.

Libraries that are loaded late have their share; a text is in every number of its group, in a report several times.
"""

STATUSES = (0, 1, 2, 3)


@dataclass(frozen=True)
class Ran:
    """What a run left behind."""

    command: str
    words: Sequence[str]
    status: int
    out: str
    err: str
    seconds: float
    """Of processor time."""
    memory: float
    """Bytes at the peak beyond those at the start."""
    rows: int
    size: int
    """Of the data, in bytes."""
    before: Mapping[str, bytes]
    """Files of the folder by name before the run, with a hash of each."""
    after: Mapping[str, bytes]
    folder: Path


def problems(ran: Ran, table: pa.Table | None = None) -> Iterator[str]:
    """Yield what is wrong with a run, each as a short text that is the same for the same fault."""
    yield from _status(ran)
    yield from _streams(ran)
    yield from _files(ran)
    for content in _results(ran):
        if isinstance(content, str):
            yield content
            continue
        yield from of_form(content)
        if content.get("schema", "").startswith("fairfix.unrun"):
            if content["status"] != ran.status:
                yield "the report of a run that did not happen has another status"
            continue
        yield from _verdicts(content, ran)
        if table is not None and content.get("schema", "").startswith("fairfix.audit"):
            yield from _rates(content, table)


# ---------------------------------------------------------------------- status, streams, files


def _status(ran: Ran) -> Iterator[str]:
    if ran.status not in STATUSES:
        bug = re.search(r"this is a bug in fairfix: ([\w.:<>]* \w+)", ran.err)
        yield f"status {ran.status}: {bug[1] if bug else ''}"
    if ran.command not in ("audit", "repair") and ran.status in (1, 3):
        yield f"status {ran.status} of a command that gates nothing"
    if ran.seconds > CPU + CPU_OF_ROW * ran.rows:
        yield "too many seconds"
    if ran.memory > MEMORY + MEMORY_OF_BYTE * ran.size:
        yield "too much memory"
    if ran.status == 2 and "fairfix: " not in ran.err and not re.search(r'"message"|did not run', ran.out):
        yield "status 2 without a message"


def _streams(ran: Ran) -> Iterator[str]:
    for name, text in (("stdout", ran.out), ("stderr", ran.err)):
        if "Traceback (most recent call last)" in text:
            yield f"a traceback on {name}"
        exact = (
            name == "stdout" and ran.command == "export" and "sql" in " ".join(ran.words)
        )  # it has no escapes
        if (odd := STEERING.search(text)) and not exact:
            yield f"the character {odd[0]!r} on {name} as {_format(ran)}"
        if re.search(r"Warning: |<frozen ", text):
            yield f"a warning of Python on {name}"
        if (
            "%0A::error" not in text
            and re.search(r"^\s*::error::x", text, re.MULTILINE)
            and _format(ran) != "github"
        ):
            yield f"a line that is a command to CI on {name}"


def _format(ran: Ran) -> str:
    match = re.search(r"--format[= ](\w+)", " ".join(ran.words))
    return match[1] if match else "text"


def _outs(ran: Ran) -> set[str]:
    """Return the names of files that are asked for as reports, by the line or by a configuration that it reads."""
    entries = [
        word.removeprefix("--out=") if word.startswith("--out=") else after
        for word, after in pairwise([*ran.words, ""])
        if word == "--out" or word.startswith("--out=")
    ]
    for name in {"settings.toml", "fairfix.toml"} & {*ran.before}:
        with suppress(tomllib.TOMLDecodeError):
            own = tomllib.loads((ran.folder / name).read_text(encoding="utf-8")).get(ran.command, {})
            entries += [own["out"]] if isinstance(own.get("out"), str) else own.get("out", [])
    return {entry.partition("=")[2] for entry in entries}


def _files(ran: Ran) -> Iterator[str]:
    changed = {name for name in ran.after if ran.after[name] != ran.before.get(name)}
    if gone := set(ran.before) - set(ran.after):
        yield f"files are gone: {sorted(gone)[0][-12:]}"
    whole = re.search(r"; files completed before the error: (\d+) \[", ran.err)
    if ran.status == 2 and whole and ran.command == "predict":
        if len(changed) != int(whole[1]):
            yield "status 2 and the number of files that are whole is wrong"
    elif ran.status == 2:
        # a report of a run that did not happen says so
        left = {name for name in changed - _outs(ran) if (ran.folder / name).is_file()}
        if left:
            yield f"status 2 and a file is written: {Path(min(left)).suffix or min(left)}"
    if any(".tmp" in name or name.rpartition("/")[2].startswith(".") for name in changed):
        yield "a temporary file is left"


# ---------------------------------------------------------------------- results


def _results(ran: Ran) -> Iterator[Any]:
    """Yield every JSON result of the run, or what is wrong with one."""
    results = ("audit", "repair", "compare", "report")
    asks_else = {"--dry-run", "--help-all"} & {*ran.words}
    printed = _format(ran) == "json" and ran.command in results and not asks_else
    texts = [ran.out] if printed and ran.out else []
    named = set(re.findall(r"json=([^ ]+)", " ".join(ran.words)))
    written = (name for name in named if name in ran.after and ran.after[name] != ran.before.get(name))
    texts += [(ran.folder / name).read_text(encoding="utf-8") for name in written]
    for text in texts:
        try:
            yield json.loads(text, parse_constant=_refuse)
        except ValueError:
            yield "JSON that is none"


def _refuse(constant: str) -> None:
    raise ValueError(constant)


@cache
def _validator(kind: str) -> Any:
    return jsonschema.Draft202012Validator(json_schema(kind))


def of_form(content: Mapping[str, Any]) -> Iterator[str]:
    """Yield what is wrong with the form of a result: its schema, nulls without a reason, rows that do not add up."""
    yield from _schema(content)
    if not content.get("schema", "").startswith("fairfix.unrun"):
        yield from _reasons(content)
        yield from _rows(content)


def _schema(content: Mapping[str, Any]) -> Iterator[str]:
    kind = str(content.get("schema", "")).partition("/")[0].removeprefix("fairfix.")
    if kind not in RESULTS:
        yield f"a result of no known schema: {kind}"
        return
    for error in _validator(kind).iter_errors(content):
        where = "/".join(str(one) for one in error.absolute_path if not isinstance(one, int))
        yield f"against the schema of {kind} at {where[:80]}: {error.validator}"
        return


def _reasons(value: Any, path: str = "") -> Iterator[str]:
    """Yield where a number is null and nothing says why."""
    if isinstance(value, dict):
        if value.get("value", 0) is None and not value.get("reason"):
            yield f"a null without a reason at {path}"
            return
        for key, part in value.items():
            yield from _reasons(
                part, path if key == "per_group" or path.endswith("per_group") else f"{path}.{key}"[-60:]
            )
    elif isinstance(value, list):
        for part in value:
            yield from _reasons(part, path)


def _rows(content: Mapping[str, Any]) -> Iterator[str]:
    rows = (content.get("data") or {}).get("rows") if isinstance(content.get("data"), dict) else None
    if not isinstance(rows, dict) or "read" not in rows:
        return
    excluded = sum(one["rows"] for one in rows.get("excluded", ()))
    if rows["used"] + excluded != rows["read"]:
        yield "rows that are used and excluded are not those read"
    for block in content.get("attributes", ()):
        sizes = [group.get("rows") for group in block.get("groups", ())]
        if sizes and all(isinstance(one, int) for one in sizes) and sum(sizes) > rows["used"]:
            yield "groups have more rows than are used"


def _verdicts(content: Mapping[str, Any], ran: Ran) -> Iterator[str]:
    """Judge each check by the numbers printed beside it, and the run by its checks."""
    checks = content.get("checks", ())
    for check in checks:
        if check["verdict"] == "waived" or check.get("of") != "value" or check.get("value") is None:
            continue
        sign, limit = check["operator"], check["limit"]
        at_point = check["gate_on"] == "point"
        low, high = (check["value"],) * 2 if at_point else (check.get("low"), check.get("high"))
        low = -math.inf if low is None else low
        high = math.inf if high is None else high
        met = [
            {">": one > limit, ">=": one >= limit, "<": one < limit, "<=": one <= limit}[sign]
            for one in (low, high)
        ]
        verdict = (
            "fail" if not any(met) else "pass" if all(met) and check.get("complete", True) else "undecided"
        )
        if check["verdict"] not in (verdict, "undecided") or (
            check["verdict"] == "undecided" and check["code"] == "limit_inside" and verdict != "undecided"
        ):
            yield f"a verdict {check['verdict']} where the numbers say {verdict}"
    if ran.command in ("audit", "repair"):
        seen = {check["verdict"] for check in checks}
        if not content.get("guarantee", {}).get("holds", True):
            seen.add("undecided")  # what cannot be promised
        how = re.search(r"--undecided[= ](\w+)", " ".join(ran.words))
        undecided = {"pass": 0, "fail": 1}.get(how[1] if how else "", 3)
        expected = 1 if "fail" in seen else undecided if "undecided" in seen else 0
        if ran.status != expected and "settings.toml" not in ran.words and ran.status != 2:
            yield f"status {ran.status} with checks of {expected}"


# ---------------------------------------------------------------------- rates


def _column(table: pa.Table, name: str) -> list[Any] | None:
    """Return the entries of a column that has no gap and a plain type; else None."""
    if table.column_names.count(name) != 1:
        return None
    column = table.column(table.column_names.index(name))
    if column.null_count or not (
        pa.types.is_string(column.type)
        or pa.types.is_integer(column.type)
        or pa.types.is_boolean(column.type)
        or pa.types.is_float64(column.type)
    ):
        return None
    return list(column.to_pylist())


def _rates(content: Mapping[str, Any], table: pa.Table) -> Iterator[str]:
    """Compute rates of groups from the table, where all is simple, and compare them with those of the report."""
    columns, settings, rows = content["data"]["columns"], content["settings"], content["data"]["rows"]
    if (
        rows["used"] != table.num_rows
        or set(columns) - {"protected", "label", "score", "weight"}
        or content["data"]["model"]
    ):
        return
    if (
        settings["task"] != "classification"
        or settings["score_scale"] != "probability"
        or settings.get("bands")
    ):
        return
    label, score = _column(table, columns.get("label", "")), _column(table, columns.get("score", ""))
    weight = _column(table, columns["weight"]) if "weight" in columns else [1.0] * table.num_rows
    if label is None or score is None or weight is None or not set(label) <= {0, 1}:
        return
    if any(isinstance(one, str) for one in (*score, *weight)):
        return
    (positive, *more) = settings.get("positive_label", ["1"])
    if more or positive not in ("0", "1"):
        return
    y, w = (np.array(label, dtype=float) == int(positive)).astype(float), np.array(weight, dtype=float)
    d = np.array(score, dtype=float) >= settings["threshold"]
    for block in content["attributes"]:
        names = block.get("columns", [block["attribute"]])
        entries = _column(table, names[0]) if len(names) == 1 else None
        if entries is None or not all(isinstance(one, str) for one in entries):
            continue
        merged = settings.get("merge", {}).get(names[0], {})
        entries = [merged.get(one, one) for one in entries]
        shown = {seen["group"] for seen in block["groups"]}
        entries = [
            one if one in shown else one.replace("\x00", "") for one in entries
        ]  # as a file of text says it
        strange = [name for name in shown if name not in entries]
        if any(name.endswith(("\x00", '"')) for name in strange):  # the writer of CSV has put it there
            continue
        group = np.array(entries, dtype=object)
        for seen in block["groups"]:
            here = group == seen["group"]
            if "metrics" not in seen or seen.get("rows") != int(here.sum()):
                if "metrics" in seen and "rows" in seen:
                    yield "a group has another number of rows than the table"
                continue
            for metric, success, among in (
                ("base_rate", y == 1, here),
                ("selection_rate", d, here),
                ("true_positive_rate", d, here & (y == 1)),
                ("false_positive_rate", d, here & (y == 0)),
                ("positive_predictive_value", y == 1, here & d),
                ("accuracy", d == (y == 1), here),
            ):
                printed = seen["metrics"].get(metric, {}).get("value")
                mass = w[among].sum()
                expected = float(w[among & success].sum() / mass) if mass > 0 else None
                if (printed is None) != (expected is None) or (
                    printed is not None and expected is not None and abs(printed - expected) > 1e-9
                ):
                    yield f"another {metric} than the table's"
