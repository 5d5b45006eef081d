"""Checks of saved results: of their form by :mod:`fairfix.schema`, and of numbers that contradict each other."""

from __future__ import annotations

import ast
import math
import re
import shlex
from collections.abc import Iterator
from typing import Any

from fairfix.auditing.checks import OPERATORS, worst
from fairfix.auditing.comparisons import Comparison
from fairfix.auditing.metrics import METRICS
from fairfix.data.names import shell_line
from fairfix.schema import checked
from fairfix.schema.audit import Audit
from fairfix.schema.common import ROUNDED, Columns, Estimate, Part, SavedCheck, SavedResult
from fairfix.schema.repair import Repair

SETTLED = {"beyond_limit": "fail", "within_limit": "pass", "unchanged": "pass"}
"""Code of a check -> its verdict; those of other codes are undecided."""


VALUES = (
    *(ast.Attribute, ast.Name, ast.Load, ast.keyword, ast.Constant),
    *(ast.List, ast.Tuple, ast.Dict, ast.UnaryOp, ast.USub),
)
"""Parts of a call of the library with values alone; the one attribute is its name."""

NAMING, BY_METRIC = ("metric", "criterion", "quality", "comparison", "id"), ("metrics", "qualities", "costs")
"""Fields that hold a metric or a comparison of it, and those with one for each metric."""


def checked_result(content: Any) -> SavedResult:
    """Return a result that was read from JSON; a result as it was made stays as it is.

    A ValueError where it is not as fairfix writes it. Beyond its form, every metric that it names is one of fairfix or
    its own, the verdict of every check is that of its interval and its limit, the verdict of the result is the worst of
    those, rates lie between 0 and 1, and commands to copy are of fairfix.
    """
    if isinstance(content, SavedResult):
        return content
    result = checked(content)
    if not isinstance(result, SavedResult):
        raise ValueError("its run failed, so there is no result")  # noqa: TRY004  as all that is wrong with a file
    steps = [] if result.next_step is None else [result.next_step]
    for command in filter(None, (one.command for one in (*steps, *getattr(result, "points", ())))):
        if not _is_own(command):
            raise ValueError(f"{command!r} is not a command of fairfix")
    own = {one.metric for one in getattr(result, "own_metrics", ())}
    for name in sorted(set(_named(result))):
        if (metric := re.split(r"[.[(]", name)[0]) not in METRICS and metric not in own:
            raise ValueError(f"{metric!r} is not a metric")
    if isinstance(result, Audit | Repair):
        for check in result.checks:
            _require_ruling(check)
        right = worst(check.verdict for check in result.checks)
        if result.checks and result.verdict != right:
            raise ValueError(f"the verdict is {result.verdict!r}, but that of the checks is {right!r}")
    if isinstance(result, Audit):
        for _, block in result.blocks:
            for group in block.groups:
                for name, estimate in group.metrics.items():
                    _require_range(name, estimate)
            for comparison in block.comparisons:
                _require_range(comparison.id, comparison)
    return result


def _is_own(command: str) -> bool:
    """Return whether a command to copy calls fairfix, and nothing else: by words of a shell, or in Python by values."""
    try:
        if command.startswith("fairfix "):
            return shell_line(shlex.split(command)) == command
        call, *nodes = ast.walk(ast.parse(command, mode="eval").body)
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return False
    own = isinstance(call, ast.Call) and re.match(r"fairfix\.[a-z_]+$", ast.unparse(call.func))
    return (
        bool(own)
        and sum(isinstance(one, ast.Attribute) for one in nodes) == 1
        and all(isinstance(one, VALUES) for one in nodes)
    )


def _named(node: Any) -> Iterator[str]:
    """Yield the comparisons and metrics that are named anywhere in a result."""
    if type(node) is Estimate:  # most of a large result, and without a name
        return
    if isinstance(node, Part) and not isinstance(node, Columns):  # whose id is a column
        node = {name: getattr(node, name) for name in node.__struct_fields__}
        yield from (node[name] for name in NAMING if node.get(name))
        for name in BY_METRIC:
            if isinstance(by_metric := node.get(name), dict):
                yield from by_metric
    if isinstance(node, dict):
        node = tuple(node.values())
    if isinstance(node, tuple):
        for one in node:
            yield from _named(one)


def _require_range(name: str, estimate: Estimate) -> None:
    """Raise a ValueError where a rate is not in [0, 1], or a difference of rates not in [-1, 1]."""
    of = Comparison.parse(name)
    metric = METRICS.get(of.metric)
    if metric is None or metric.scale != "share" or of.kind == "ratio":
        return
    least = -1.0 if of.part else 0.0
    for end in (estimate.low, estimate.value, estimate.high):
        if end is not None and not least - ROUNDED <= end <= 1.0 + ROUNDED:
            raise ValueError(f"{name} is {end}, which is not from {least:g} to 1")


def _require_ruling(check: SavedCheck) -> None:
    """Raise a ValueError where the verdict of a check is not that of its code, or the code not that of its interval."""
    if check.verdict == "waived":
        return
    if check.verdict != SETTLED.get(check.code, "undecided"):
        raise ValueError(f"a check is {check.verdict!r} where its code is {check.code!r}")
    if check.code not in ("beyond_limit", "within_limit", "limit_inside"):
        return
    ends = check.low, check.high
    if check.gate_on == "point" and check.value is not None:
        off = check.bound or 0.0
        ends = check.value - off, check.value + off
    low, high = (end if one is None else one for one, end in zip(ends, (-math.inf, math.inf), strict=True))
    beyond = [not OPERATORS[check.operator](end, check.limit) for end in (low, high)]
    right = "beyond_limit" if all(beyond) else "limit_inside" if any(beyond) else "within_limit"
    if check.code != right:
        raise ValueError(f"a check is {check.verdict!r} at {low} to {high}, where its limit is {check.limit}")
