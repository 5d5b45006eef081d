"""The sections of a repair: what it is, checks, the proof on held-out rows, how the fit went."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from fairfix.report.layout import (
    Columns,
    Grid,
    Json,
    Section,
    exact,
    interval,
    judgements,
    pairs,
    read_and_used,
    show,
    signed,
)

READINGS = {
    "drawn": "decisions drawn with the probability, as expected",
    "rounded": "decisions rounded at the threshold",
}
"""The two ways to decide with a probability."""

BESIDE = {"delivered": "as drawn", "expected": "expected"}
"""What stands beside numbers of drawn results: decisions as they are drawn, or what is expected of drawn values."""


QUANTITIES: Columns = {
    "group": lambda one: one.get("group", ""),
    "number": "name",
    "value": lambda one: exact(one["value"]),
    "what it is": "meaning",
}

CANDIDATES: Columns = {
    "parameters": "parameters",
    "score": lambda one: show(one["score"]),
    "": lambda one: "chosen" if one["chosen"] else "",
}


def sections(result: Json, *, detail: bool) -> Iterator[Section]:
    """Yield the sections of a repair's JSON form."""
    facts = tuple(_repair_facts(result))
    yield Section(f"fairfix repair of {result['data']['source']} by {result['method']}", facts)
    yield from judgements(result)
    for part, title in (("holdout", "Proof on held-out rows"), ("fit", "On the rows it was fitted on")):
        if result["proof"].get(part):
            yield from _proof(result["proof"][part], title)
    if detail and "solution" in result:
        quantities = result["solution"]["quantities"]
        grids = (Grid.of(QUANTITIES, quantities, 4, "Numbers of the fit", 1),) if quantities else ()
        yield Section("How the fit went", tuple(solution_facts(result["solution"])), grids)
    if result["selection"]:
        grid = Grid.of(CANDIDATES, result["selection"], 1, "Candidates")
        yield Section("Selection on the validation part", (), (grid,))


def _repair_facts(result: Json) -> Iterator[str]:
    split, requires = result["split"], result["requires"]
    yield (
        f"{read_and_used(result)}: {split['fit']:,} to fit, "
        f"{split['validation']:,} to select, {split['holdout']:,} held out (seed {result['seed']})"
    )
    yield f"parameters: {pairs(result['parameters'])}"
    if result.get("does_not_count"):
        yield f"what does not count: {result['does_not_count']}"
    yield "needed at predict time: " + ", ".join(requires["columns"])
    if requires["protected_at_predict"]:
        yield "the protected attribute is needed at predict time; whether the law allows that is for you to find out"
    if result.get("artifact"):
        yield f"written to {result['artifact']['file']} ({result['artifact']['sha256']})"
    yield from (f"warning: {warning}" for warning in result["warnings"])
    yield from (f"note: {note}" for note in result.get("notes", ()))


def _proof(proof: Json, title: str) -> Iterator[Section]:
    """Yield numbers before and after, and those of the other way to decide with a probability."""
    lines = [f"{proof['rows']:,} rows; {proof['randomized']:.2%} of the results hang on chance"]
    lines += [  # chance alone makes so much, and no repair can go below it on so many rows
        f"ks.to_overall [{one['attribute']}]: {show(one['mean'])} on average, up to {show(one['upper'])} in 19 of "
        "20 samples of so many rows, if the groups were exactly alike"
        for one in proof.get("noise", ())
    ]
    lines += [
        f"{row['name']}: {row['after']['reason']}" for row in proof["table"] if row["after"].get("reason")
    ]
    reading = f": {READINGS[proof['reading']]}" if "other" in proof else ""
    yield Section(title + reading, tuple(lines), (_before_and_after(proof["table"]),), "proof", proof)
    if "other" in proof:
        other = "rounded" if proof["reading"] == "drawn" else "drawn"
        yield Section(f"{title}: {READINGS[other]} instead", (), (_before_and_after(proof["other"]),))


def _before_and_after(table: Sequence[Json]) -> Grid:
    def beside(key: str) -> Callable[[Json], str]:
        return lambda row: f"{row[key]:.4f}" if key in row else "–"

    columns: Columns = {
        "metric": "name",
        "before": lambda row: interval(row["before"]),
        "after": lambda row: interval(row["after"]),
        "change": _change,
        **{title: beside(key) for key, title in BESIDE.items() if any(key in row for row in table)},
    }
    return Grid.of(columns, table, 1, "Before and after")


def _change(row: Json) -> str:
    before, after, change = row["before"]["value"], row["after"]["value"], row.get("change")
    if before is None or after is None:
        return "–"
    if change is None or (change["low"] is None and change["high"] is None):
        return f"{after - before:+.4f}"
    return signed(change, 4)


def solution_facts(solution: Json) -> Iterator[str]:
    """Yield how a solver stopped, and what is proven of what it left."""
    how = "reached its tolerance" if solution["converged"] else "stopped before its tolerance"
    yield f"the solver {how} ({solution['iterations']:,} steps); objective {exact(solution['objective'])}"
    if solution["certificates"]:
        yield from (f"certified: {one['says']}" for one in solution["certificates"])
    elif solution["gap"] is not None:
        yield f"gap of the objective, as the solver has it: {exact(solution['gap'])}"
    else:
        yield "no bound on the least objective is known, so nothing is certified"
