"""A repair as a script: rows in, results out, row by row. It needs nothing but Python 3.10.

As a module: ``predict(rows)``. As a command: ``python FILE < rows.jsonl > results.jsonl``, a JSON object per line;
``python FILE --check`` runs the rows that came with it and says whether the results are those of fairfix.
"""

from __future__ import annotations

import bisect
import hashlib
import json
import math
import operator
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

PROGRAM: Mapping[str, Any] = {}
NAN = math.nan


def predict(
    rows: Iterable[Mapping[str, Any]], program: Mapping[str, Any] = PROGRAM
) -> Iterator[dict[str, Any]]:
    """Yield the result of each row: ``p_positive`` and ``decision``, or ``prediction``.

    A row maps columns to texts, numbers or truth values; None is missing. A result is None where there is none: the
    score is missing, or the group was not there in the fit. Rows without an id must come all in one call, in the
    order of the file, since equal rows are told apart by their occurrence.
    """
    seen: dict[int, int] = {}
    steps = list(enumerate(compiled(program["steps"], _input)))
    drawn = any(step["operation"] == "draw" for step in program["steps"])
    decides = program["gives"] == "decision"
    for row in rows:
        draw = _draw(row, program["draw"], seen) if drawn else 0.0
        computed: Computed = {}
        for i, compute in steps:
            computed[i] = compute(computed, (row, draw))
        result = computed[program["result"]]
        if math.isnan(result):
            nothing = {"p_positive": None, "decision": None} if decides else {"prediction": None}
            yield nothing if decides or program["cut"] is None else {**nothing, "decision": None}
        elif decides:
            open_ = 0.0 < result < 1.0
            accepted = _draw(row, program["draw"], seen) < result if open_ else result >= 1.0
            yield {"p_positive": result, "decision": int(accepted)}
        elif program["cut"] is None:
            yield {"prediction": result}
        else:
            yield {"prediction": result, "decision": int(result >= program["cut"])}


# ---------------------------------------------------------------------- steps

Computed = dict[int, Any]
"""Values computed for a row so far: number of a step -> a number or a truth value."""
Computing = Callable[[Computed, Any], Any]
"""Computes a step for a row."""


def compiled(
    steps: Sequence[Mapping[str, Any]], inputs: Callable[[Mapping[str, Any]], Computing | None]
) -> list[Computing]:
    """Return what computes each step; ``inputs`` gives it for steps that look at the row, and None for others."""
    return [inputs(step) or _computing(step) for step in steps]


def _input(step: Mapping[str, Any]) -> Computing | None:
    column = step.get("column")
    match step["operation"]:
        case "number":
            return lambda _, given: NAN if given[0][column] is None else float(given[0][column])
        case "level":
            places = {level: float(i) for i, level in enumerate(step["levels"])}
            merged = step.get("merged", {})

            def level(_: Computed, given: Any) -> float:
                entry = given[0][column]
                gone = entry is None or entry != entry  # NaN differs from itself
                text = "(missing)" if gone else canonical(entry)
                return places.get(merged.get(text, text), -1.0)

            return level
        case "draw":
            return lambda _, given: given[1]
        case _:
            return None


def _computing(step: Mapping[str, Any]) -> Computing:
    operation, (i, j, k) = step["operation"], (*step["of"], -1, -1, -1)[:3]
    match operation:
        case "constant":
            value = NAN if step["value"] is None else step["value"]
            return lambda v, _: value
        case "dot":
            pairs = list(zip(step["of"], step["weights"], strict=True))

            def dot(v: Computed, _: Any) -> float:
                total = 0.0
                for place, weight in pairs:
                    total += v[place] * weight
                return total

            return dot
        case "choose":
            return lambda v, _: v[j] if v[i] else v[k]
        case "search":
            grid, side = step["grid"], bisect.bisect_right if step["right"] else bisect.bisect_left
            return lambda v, _: side(grid, v[i]) if v[i] == v[i] else len(grid)
        case "take":
            numbers = [NAN if one is None else one for one in step["numbers"]]
            return lambda v, _: numbers[int(v[i])]
        case "trees":
            trees = _nested(step)

            def walked(v: Computed, _: Any) -> float:
                entries = [v[one] for one in step["of"]]
                entries += [-math.inf if entry != entry else entry for entry in entries]
                total: float = step["start"]
                for root in trees:
                    node = root
                    while type(node) is tuple:
                        column, threshold, left, right = node
                        node = left if entries[column] <= threshold else right
                    total += node
                return total

            return walked
        case "exp" | "log" | "is_missing":
            function = {"exp": math.exp, "log": math.log, "is_missing": math.isnan}[operation]
            return lambda v, _: function(v[i])
        case _:
            of_two = _OPERATORS[operation]
            return lambda v, _: of_two(v[i], v[j])


def _divided(x: float, y: float) -> float:
    if y == 0.0:
        return math.copysign(math.inf, x) * math.copysign(1.0, y) if x else NAN
    return x / y


_OPERATORS: Mapping[str, Callable[[float, float], Any]] = {
    "add": operator.add,
    "subtract": operator.sub,
    "multiply": operator.mul,
    "divide": _divided,
    "minimum": lambda x, y: x if x <= y or x != x else y,
    "maximum": lambda x, y: x if x >= y or x != x else y,
    "below": operator.lt,
    "at_most": operator.le,
    "equal": operator.eq,
}


def _nested(step: Mapping[str, Any]) -> list[Any]:
    """Return each tree's root: a leaf is its value, an inner node has column, threshold, left and right node.

    A node that sends missing numbers left looks at a second copy of the columns, which has minus infinity for them.
    """
    left, right, made, width = step["left"], step["right"], list(step["value"]), len(step["of"])
    levels = [[at for at in step["roots"] if left[at] != at]]
    while levels[-1]:
        below = (child for at in levels[-1] for child in (left[at], right[at]))
        levels.append([child for child in below if left[child] != child])
    for level in reversed(levels):
        for at in level:
            column = step["feature"][at] + width * step["missing_left"][at]
            made[at] = (column, step["threshold"][at], made[left[at]], made[right[at]])
    return [made[root] for root in step["roots"]]


# ---------------------------------------------------------------------- the draw of a row


def _draw(row: Mapping[str, Any], how: Mapping[str, Any], seen: dict[int, int]) -> float:
    """Return the row's draw in [0, 1): a keyed hash of what identifies it; equal rows without ids are told apart."""
    identity = b"\x1f".join(_canonical(row[name]) for name in how["identity"])
    digest = hashlib.blake2b(identity, digest_size=8, key=bytes.fromhex(how["key"])).digest()
    start = int.from_bytes(digest, "big") >> 11
    if how["by_id"]:
        return start * 2.0**-53
    before = seen.get(start, 0)
    seen[start] = before + 1
    return (start + int(f"{before:053b}"[::-1], 2)) % 2**53 * 2.0**-53


def _canonical(entry: Any) -> bytes:
    return b"\x00" if entry is None or entry != entry else canonical(entry).encode()


# ---------------------------------------------------------------------- the one text of a name


_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)\.[0-9]*")
_TIME = re.compile(r"([0-9]{4}-[0-9]{2}-[0-9]{2})[ T]([0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]+)?)")


def canonical(entry: Any) -> str:
    """Return the one text of a value that is not missing: 1, 1.0 and "1.00" are "1", and true is "True"."""
    if isinstance(entry, float):
        return str(int(entry)) if entry.is_integer() and abs(entry) < 2**53 else float.__repr__(entry)
    text = str(entry)
    if "." in text and _NUMBER.fullmatch(text):
        text = text.rstrip("0").rstrip(".")
    elif len(text) in (4, 5):
        text = {"true": "True", "false": "False"}.get(text.lower(), text)
    elif len(text) >= 19 and (time := _TIME.fullmatch(text)):
        day, rest = time.groups()
        rest = rest.rstrip("0").rstrip(".") if "." in rest else rest
        text = day if rest == "00:00:00" else f"{day} {rest}"
    return "0" if text == "-0" else text


# ---------------------------------------------------------------------- as a command


def failures(program: Mapping[str, Any] = PROGRAM) -> list[str]:
    """Return what differs between the results of the rows that came with the program and those of fairfix."""
    rows, results = program["vectors"]["rows"], program["vectors"]["results"]
    inputs = [dict(zip(rows, entries, strict=True)) for entries in zip(*rows.values(), strict=True)]
    wrong = []
    for i, got in enumerate(predict(inputs, program)):
        for name, entries in results.items():
            mine, theirs = got[name], entries[i]
            if (mine is None) != (theirs is None) or (mine is not None and abs(mine - theirs) > 1e-9):
                wrong.append(f"row {i + 1}: {name} is {mine}, and should be {theirs}")
    return wrong


def main() -> int:
    """Run as a command."""
    if sys.argv[1:] == ["--check"]:
        wrong = failures()
        sys.stdout.write(("\n".join(wrong) or "all results equal those of fairfix") + "\n")
        return 1 if wrong else 0
    for result in predict(json.loads(line) for line in sys.stdin if line.strip()):
        sys.stdout.write(json.dumps(result) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
