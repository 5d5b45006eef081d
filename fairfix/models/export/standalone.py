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
from collections.abc import Iterable, Iterator, Mapping, Sequence
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
    drawn = any(step["operation"] == "draw" for step in program["steps"])
    decides = program["gives"] == "decision"
    for row in rows:
        draw = _draw(row, program["draw"], seen) if drawn else 0.0
        result = run(program["steps"], row, draw)[program["result"]]
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


def run(steps: Sequence[Mapping[str, Any]], row: Mapping[str, Any], draw: float) -> list[Any]:
    """Return what each step gives for a row."""
    out: list[Any] = []
    for step in steps:
        out.append(_step(step, [out[i] for i in step["of"]], row, draw))
    return out


def _step(step: Mapping[str, Any], of: list[Any], row: Mapping[str, Any], draw: float) -> Any:
    match step["operation"]:
        case "number":
            entry = row[step["column"]]
            return NAN if entry is None else float(entry)
        case "level":
            entry = row[step["column"]]
            text = (
                "(missing)" if entry is None or entry != entry else canonical(entry)
            )  # NaN differs from itself
            text = step.get("merged", {}).get(text, text)
            return float(step["levels"].index(text)) if text in step["levels"] else -1.0
        case "draw":
            return draw
        case "constant":
            return NAN if step["value"] is None else step["value"]
        case "dot":
            total = 0.0
            for x, weight in zip(of, step["weights"], strict=True):
                total += x * weight
            return total
        case "choose":
            return of[1] if of[0] else of[2]
        case "is_missing":
            return math.isnan(of[0])
        case "minimum" | "maximum":
            if math.isnan(of[0]) or math.isnan(of[1]):
                return NAN
            return min(of) if step["operation"] == "minimum" else max(of)
        case "search":
            side = bisect.bisect_right if step["right"] else bisect.bisect_left
            return float(len(step["grid"]) if math.isnan(of[0]) else side(step["grid"], of[0]))
        case "take":
            entry = step["numbers"][int(of[0])]
            return NAN if entry is None else entry
        case "trees":
            return _trees(step, of)
        case "exp" | "log":
            return getattr(math, step["operation"])(of[0])
        case other:
            return _OPERATORS[other](*of)


_OPERATORS = {
    "add": operator.add,
    "subtract": operator.sub,
    "multiply": operator.mul,
    "divide": operator.truediv,
    "below": operator.lt,
    "at_most": operator.le,
    "equal": operator.eq,
}


def _trees(step: Mapping[str, Any], of: list[Any]) -> float:
    total: float = step["start"]
    for root in step["roots"]:
        at = root
        while step["left"][at] != at:
            entry = of[step["feature"][at]]
            left = step["missing_left"][at] if math.isnan(entry) else entry <= step["threshold"][at]
            at = step["left"][at] if left else step["right"][at]
        total += step["value"][at]
    return total


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
