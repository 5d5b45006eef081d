"""The ramp beside what else computes it: time of fit and predict, and what is left of the gap on the fit's rows.

``python benchmarks/ramp_speed.py [--rows 10000 ...]`` prints Markdown.

Beside the authors' schedule (:mod:`authors`, published defaults) and holisticai for the ramp without labels; beside
Fairlearn and error-parity for the rules that use labels. All get the same arrays in one process, in an order drawn
anew for every round. Times are CPU seconds of the process per call; short calls are repeated until they add up to
``LEAST`` seconds. A ratio is taken within its round; shown are medians. A million rows run once.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np
from fairfix.data.table import Table
from fairfix.methods.problem import RepairProblem
from fairfix.methods.ramp import Ramp
from fairfix.solvers.ramp import Cell, RampSolution, solve

from authors import GAMMAS, RATES, Schedule, grid
from engine import Goal, table
from peers import Floats, Ints, Rows, Rule, error_parity, fairlearn, holisticai_ramp, installed

Job = Callable[[], object]

KINDS = ("smooth", "network", "kNN")
GROUPS = (2, 5)
WIDTHS = (0.1, 0.01)
LEAST = 0.05
"""CPU seconds that one timing adds up to."""

FIT_GOALS = {10_000: 1000.0, 100_000: 200.0, 1_000_000: 100.0}
PREDICT_GOAL, GRID_GOAL, WEIGHTED_GOAL = 80.0, 3000.0, 4.0
PARITY_GOALS = {"fairlearn": 70.0, "error-parity": 4.0}
SMALL_GOALS = {"fairlearn": 70.0, "error-parity": 150.0}
ODDS_GOALS = {"fairlearn": 100.0, "error-parity": 50.0}
ODDS_ROWS = 20_000
LOSS = -1e-12
"""Least difference of training accuracy, ours minus theirs, at equal violation."""


# --- data ----------------------------------------------------------------------------------------------


def draw(rows: int, groups: int, kind: str, *, weighted: bool = False, seed: int = 0) -> Rows:
    """Return labels and scores: calibrated and smooth, driven to the ends like a network's, or of 11 values.

    Group ``k`` has a share in proportion to ``1 / (k + 1)`` and a lower mean than the group before it.
    """
    rng = np.random.default_rng([seed, rows, groups])
    share = 1.0 / np.arange(1, groups + 1)
    group = rng.choice(groups, rows, p=share / share.sum())
    logit = rng.normal(0.2 - 0.8 * group / groups, 1.2)
    chance = 1.0 / (1.0 + np.exp(-logit))
    label = (rng.random(rows) < chance).astype(np.int64)
    score = {
        "smooth": lambda: chance,
        "network": lambda: 1.0 / (1.0 + np.exp(-8.0 * logit)),
        "kNN": lambda: rng.binomial(10, chance) / 10,
    }[kind]()
    return Rows(score, label, group, rng.random(rows) + 0.1 if weighted else None)


# --- measuring -----------------------------------------------------------------------------------------


def per_call(job: Job) -> float:
    """Return CPU seconds of one call, the mean of as many as take ``LEAST`` seconds."""
    begin, calls = time.process_time(), 0
    while True:
        job()
        calls += 1
        spent = time.process_time() - begin
        if spent >= LEAST:
            return spent / calls


def timed(jobs: Mapping[str, Job], rounds: int) -> dict[str, list[float]]:
    """Return CPU seconds per call of every job, one per round, in an order drawn anew."""
    rng = np.random.default_rng(0)
    times: dict[str, list[float]] = {name: [] for name in jobs}
    for _ in range(rounds):
        for name in rng.permutation(list(jobs)):
            times[name].append(per_call(jobs[name]))
    return times


def ratio(over: Sequence[float], under: Sequence[float]) -> float:
    """Return the median of the rounds' ratios."""
    return median(a / b for a, b in zip(over, under, strict=True))


def rounds_for(rows: int) -> int:
    """Return how often jobs of this size are repeated."""
    return 3 if rows <= 100_000 else 1


def span(values: Sequence[float], digits: int = 3) -> str:
    """Return the least and the greatest value."""
    low, high = (_short(value, digits) for value in (min(values), max(values)))
    return low if low == high else f"{low} to {high}"


def _short(value: float, digits: int) -> str:
    return f"{value:,.0f}" if value >= 10 ** (digits - 1) else f"{value:.{digits}g}"


def milliseconds(values: Sequence[float]) -> str:
    """Return a span of seconds in milliseconds."""
    return span([1e3 * value for value in values], 2)


# --- without labels ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Measured:
    """One data set and one width: CPU seconds by job, a value per round; and the gaps left by the fits."""

    rows: int
    groups: int
    kind: str
    gamma: float
    times: Mapping[str, Sequence[float]]
    gaps: Mapping[str, float]


def ramp_of(gamma: float, rho: str | float) -> Ramp:
    """Return the ramp that uses no labels."""
    return Ramp(gamma=gamma, rho=rho, calibrate="none")


def solve_arrays(f: Floats, group: Ints, gamma: float) -> RampSolution:
    """Return the optimum from arrays, at the mean score."""
    cells = [Cell.of(f[group == k]) for k in range(int(group.max()) + 1)]
    return solve(cells, gamma, 0.0, (float(np.mean(f)) + 1.0) / 2.0)


def measure(rows: int, groups: int, kind: str, gamma: float, *, holisticai: bool) -> Measured:
    """Time the fit and the prediction of all, at the authors' default ``rho``: the mean score."""
    data = draw(rows, groups, kind)
    given, f = data.table(), 2.0 * data.score - 1.0
    rng = np.random.default_rng(1)
    ours = ramp_of(gamma, "mean").fit(RepairProblem(given), rng=rng)
    theirs = Schedule(gamma).fit(f, data.group, rng=rng)
    jobs: dict[str, Job] = {
        "fit": lambda: ramp_of(gamma, "mean").fit(RepairProblem(given), rng=rng),
        "joint": lambda: ramp_of(gamma, "joint").fit(RepairProblem(given), rng=rng),
        "solver": lambda: solve_arrays(f, data.group, gamma),
        "authors": lambda: Schedule(gamma).fit(f, data.group, rng=rng),
        "predict": lambda: ours.predict(given),
        "by row": lambda: theirs.predict_by_row(f, data.group),
        "whole": lambda: theirs.predict(f, data.group),
    }
    gaps = {"fairfix": data.gap(ours.predict(given)), "authors": data.gap(theirs.predict(f, data.group))}
    if holisticai:
        np.random.seed(0)  # noqa: NPY002  it draws from the global state
        solver = holisticai_ramp(gamma)
        solver.fit(f, data.group)
        gaps["holisticai"] = data.gap(solver.predict(f, data.group))
        jobs["holisticai"] = lambda: holisticai_ramp(gamma).fit(f, data.group)
    return Measured(rows, groups, kind, gamma, timed(jobs, rounds_for(rows)), gaps)


def over(found: Sequence[Measured], theirs: str, ours: str) -> list[float]:
    """Return a job's time over another's for each of the measured, where both were run."""
    return [ratio(one.times[theirs], one.times[ours]) for one in found if theirs in one.times]


def seconds_of(found: Sequence[Measured], job: str) -> list[float]:
    """Return a job's median CPU seconds for each of the measured."""
    return [median(one.times[job]) for one in found]


def sizes_of(found: Sequence[Measured]) -> Iterator[tuple[int, list[str], list[Measured]]]:
    """Yield rows, the first cells of a line, and the measured of that line."""
    for rows, groups in dict.fromkeys((one.rows, one.groups) for one in found):
        some = [one for one in found if (one.rows, one.groups) == (rows, groups)]
        yield rows, [f"{rows:,}", str(groups)], some


def fit_table(found: Sequence[Measured]) -> str:
    """Return times and ratios of the fit by rows and groups, the span over scores and widths."""
    shown = []
    for rows, first, some in sizes_of(found):
        whole, bare, others = (
            over(some, *pair) for pair in (("authors", "fit"), ("authors", "solver"), ("holisticai", "fit"))
        )
        goal = Goal(FIT_GOALS[rows], least=True) if rows in FIT_GOALS else None
        shown.append(
            [
                *first,
                *(milliseconds(seconds_of(some, job)) for job in ("fit", "joint", "solver")),
                span(seconds_of(some, "authors")),
                span(whole),
                goal.judge(min(whole)) if goal else "",
                span(bare),
                goal.judge(min(bare)) if goal else "",
                span(others) if others else "not measured",
            ]
        )
    head = (
        "rows",
        "groups",
        "fit, CPU ms",
        "joint rho, CPU ms",
        "solver alone, CPU ms",
        "authors, CPU s",
        "authors / fit",
        "goal for the least",
        "authors / solver alone",
        "goal for the least",
        "holisticai / fit",
    )
    return table(head, shown)


def predict_table(found: Sequence[Measured]) -> str:
    """Return times and ratios of prediction by rows and groups, the span over scores and widths."""
    shown = []
    for _, first, some in sizes_of(found):
        by_row = over(some, "by row", "predict")
        shown.append(
            [
                *first,
                milliseconds(seconds_of(some, "predict")),
                span(by_row),
                Goal(PREDICT_GOAL, least=True).judge(min(by_row)),
                span(over(some, "whole", "predict")),
            ]
        )
    head = (
        "rows",
        "groups",
        "fairfix, CPU ms",
        "authors by row / fairfix",
        "goal for the least",
        "on whole arrays",
    )
    return table(head, shown)


def gap_table(found: Sequence[Measured]) -> str:
    """Return the gaps left on the training rows, by scores and width, the span over rows and groups."""
    names = list(dict.fromkeys(name for one in found for name in one.gaps))
    shown = []
    for kind, gamma in dict.fromkeys((one.kind, one.gamma) for one in found):
        some = [one.gaps for one in found if (one.kind, one.gamma) == (kind, gamma)]
        shown.append([kind, f"{gamma:g}", *(gap_span([gaps[name] for gaps in some]) for name in names)])
    return table(("scores", "gamma", *names), shown)


def gap_span(values: Sequence[float]) -> str:
    """Return the least and the greatest gap."""
    low, high = f"{min(values):.1g}", f"{max(values):.1g}"
    return low if low == high else f"{low} to {high}"


def unlabelled_section(sizes: Sequence[int]) -> Iterator[str]:
    """Yield the ramp at the published default rate beside the authors' schedule and holisticai."""
    peers, said = installed(["holisticai"])
    found = [
        measure(rows, groups, kind, gamma, holisticai=bool(peers))
        for rows in sizes
        for groups in GROUPS
        for kind in KINDS
        for gamma in WIDTHS
    ]
    yield "### Without labels, slack 0, rate of the mean score"
    yield (
        f"Scores smooth, network-like (most at the ends) and kNN-like (11 values); gamma {WIDTHS[0]:g} and "
        f"{WIDTHS[1]:g}; spans over those six. The authors' schedule is our own writing of it, with their defaults. "
        f"`fit` is `Ramp.fit` on a table, with its checks and with sorting; the solver alone gets arrays, as the peers "
        f"do, and sorts as well. {said} holisticai's fit is that of its solver, without its wrapper."
    )
    yield fit_table(found)
    yield "Prediction. The published code goes row by row; the last column is the same rule on whole arrays."
    yield predict_table(found)
    yield "Largest difference of selection rates left on the training rows, span over the rows and groups above:"
    yield gap_table(found)


def grid_section(sizes: Sequence[int]) -> Iterator[str]:
    """Yield the choice of width and rate on as many validation rows."""
    yield f"### {len(GAMMAS)} widths x {len(RATES)} rates"
    yield (
        "Two groups, smooth scores, one problem for all fits. Choosing adds a prediction and the expected accuracy on "
        "as many validation rows for each pair; the authors' rule predicts on whole arrays here, not row by row."
    )
    shown = []
    for rows in sizes:
        data, check = draw(rows, 2, "smooth"), draw(rows, 2, "smooth", seed=1)
        ours, theirs = our_grid(data, check), their_grid(data, check)
        fits, whole = theirs[0] / ours[0], sum(theirs) / sum(ours)
        judged = Goal(GRID_GOAL, least=True).judge(fits)
        cells = [f"{1e3 * ours[0]:.3g}", f"{theirs[0]:.3g}", f"{fits:,.0f}", judged]
        shown.append([f"{rows:,}", *cells, f"{1e3 * sum(ours):.3g}", f"{whole:,.0f}"])
    head = ("rows", "65 fits, CPU ms", "authors, CPU s", "ratio", "goal", "fits and choice, CPU ms", "ratio")
    yield table(head, shown)


def our_grid(data: Rows, check: Rows) -> tuple[float, float]:
    """Return CPU seconds of all fits and of all evaluations, median of five."""
    given, target, rng = data.table(), check.table(), np.random.default_rng(0)
    spent = []
    for _ in range(5):
        problem, begin = RepairProblem(given, many_fits=True), time.process_time()
        rules = [ramp_of(gamma, rho).fit(problem, rng=rng) for gamma, rho in grid(data.label)]
        middle = time.process_time()
        max(check.accuracy(rule.predict(target)) for rule in rules)
        spent.append((middle - begin, time.process_time() - middle))
    return median(fit for fit, _ in spent), median(choice for _, choice in spent)


def their_grid(data: Rows, check: Rows) -> tuple[float, float]:
    """Return CPU seconds of all fits and of all evaluations of the authors' schedule, once."""
    f, target, rng = 2.0 * data.score - 1.0, 2.0 * check.score - 1.0, np.random.default_rng(0)
    begin = time.process_time()
    rules = [Schedule(gamma, rho=rho).fit(f, data.group, rng=rng) for gamma, rho in grid(data.label)]
    middle = time.process_time()
    max(check.accuracy(rule.predict(target, check.group)) for rule in rules)
    return middle - begin, time.process_time() - middle


def weight_section(sizes: Sequence[int]) -> Iterator[str]:
    """Yield a weighted fit over an unweighted one."""
    yield "### Weights"
    shown = []
    for rows in sizes:
        for groups in GROUPS:
            plain, heavy = draw(rows, groups, "smooth"), draw(rows, groups, "smooth", weighted=True)
            jobs = {
                name: fitting(data.table(), ramp_of(0.05, "joint"))
                for name, data in (("plain", plain), ("heavy", heavy))
            }
            times = timed(jobs, 7)
            value = ratio(times["heavy"], times["plain"])
            cells = [milliseconds([median(times[name])]) for name in ("plain", "heavy")]
            shown.append([f"{rows:,}", str(groups), *cells, f"{value:.2g}", Goal(WEIGHTED_GOAL).judge(value)])
    yield table(
        ("rows", "groups", "unweighted, CPU ms", "weighted, CPU ms", "weighted / unweighted", "goal"), shown
    )


def fitting(given: Table, repairer: Ramp) -> Job:
    """Return the job of one fit from a table."""
    rng = np.random.default_rng(0)
    return lambda: repairer.fit(RepairProblem(given), rng=rng)


# --- with labels ---------------------------------------------------------------------------------------

PEERS: Mapping[str, Callable[[Rows, str], Rule]] = {"fairlearn": fairlearn, "error-parity": error_parity}
EXACT = {
    "demographic_parity": Ramp(gamma=0.0, calibrate="isotonic"),
    "equalized_odds": Ramp(gamma=0.0, calibrate="isotonic", constraint="equalized_odds"),
}


@dataclass(frozen=True)
class Beside:
    """A peer beside the exact rule on one data set; differences of training accuracy are ours minus theirs."""

    rows: int
    groups: int
    peer: str
    ours: float
    ratio: float
    more: float
    gap: float
    our_gap: float


def beside(rows: int, groups: int, kind: str, constraint: str, peers: Sequence[str]) -> Iterator[Beside]:
    """Yield the peers beside the exact rule."""
    data = draw(rows, groups, kind)
    given = data.table()
    gap: Callable[[Floats], float] = data.gap if constraint == "demographic_parity" else data.odds_gap
    jobs = {"fairfix": fitting(given, EXACT[constraint])}
    jobs |= {name: peer_job(PEERS[name], data, constraint) for name in peers}
    jobs["fairfix"]()
    times = timed(jobs, rounds_for(rows))
    mine = EXACT[constraint].fit(RepairProblem(given), rng=np.random.default_rng(0)).predict(given)
    for name in peers:
        theirs = PEERS[name](data, constraint)(data.score, data.group)
        yield Beside(
            rows,
            groups,
            name,
            median(times["fairfix"]),
            ratio(times[name], times["fairfix"]),
            data.accuracy(mine) - data.accuracy(theirs),
            gap(theirs),
            gap(mine),
        )


def peer_job(fit: Callable[[Rows, str], Rule], data: Rows, constraint: str) -> Job:
    """Return the job of a peer's fit."""
    return lambda: fit(data, constraint)


def beside_table(found: Sequence[Beside], goals: Callable[[int, str], float]) -> str:
    """Return ratios by kind of scores, and the span of differences over the kinds."""
    shown = []
    for rows, groups, peer in dict.fromkeys((one.rows, one.groups, one.peer) for one in found):
        some = [one for one in found if (one.rows, one.groups, one.peer) == (rows, groups, peer)]
        more = [one.more for one in some]
        kept = all(one.more >= LOSS - one.gap for one in some)
        shown.append(
            [
                f"{rows:,}",
                str(groups),
                peer,
                milliseconds([one.ours for one in some]),
                *(span([one.ratio]) for one in some),
                Goal(goals(rows, peer), least=True).judge(min(one.ratio for one in some)),
                f"{min(more):+.1e} to {max(more):+.1e}",
                "met" if kept else "**missed**",
                gap_span([one.our_gap for one in some]),
                gap_span([one.gap for one in some]),
            ]
        )
    head = (
        "rows",
        "groups",
        "peer",
        "fairfix, CPU ms",
        *(f"peer / fairfix, {kind}" for kind in KINDS),
        "goal for the least",
        "training accuracy, fairfix - peer",
        "never below",
        "violation, fairfix",
        "violation, peer",
    )
    return table(head, shown)


def labelled_section(sizes: Sequence[int]) -> Iterator[str]:
    """Yield the exact rules from labels next to Fairlearn and error-parity."""
    peers, said = installed(list(PEERS))
    yield "### With labels"
    yield (
        f"{said} Fairlearn gets probabilities and its default grid of 1,000; error-parity its default of 1,000 ROC "
        "ticks and tolerance 0. Accuracy and violation are expectations on the training rows, spans over the kinds "
        f"of scores. `Never below` is met if ours is at least theirs - {-LOSS:g} - their violation: a rule that may "
        "break the constraint by v may gain up to v."
    )
    if not peers:
        return
    yield 'Demographic parity, `Ramp(gamma=0, calibrate="isotonic")`:'
    parity = [
        one
        for rows in sizes
        for groups in GROUPS
        for kind in KINDS
        for one in beside(rows, groups, kind, "demographic_parity", peers)
    ]
    yield beside_table(parity, lambda rows, peer: (SMALL_GOALS if rows <= 10_000 else PARITY_GOALS)[peer])
    yield 'Equalized odds, `Ramp(gamma=0, constraint="equalized_odds", calibrate="isotonic")`:'
    odds = [
        one
        for groups in GROUPS
        for kind in KINDS
        for one in beside(ODDS_ROWS, groups, kind, "equalized_odds", peers)
    ]
    yield beside_table(odds, lambda rows, peer: ODDS_GOALS[peer])


def report(sizes: Sequence[int], sections: Sequence[str]) -> Iterator[str]:
    """Yield the paragraphs of the report."""
    parts: dict[str, Callable[[], Iterator[str]]] = {
        "unlabelled": lambda: unlabelled_section(sizes),
        "grid": lambda: grid_section([rows for rows in sizes if rows <= 100_000]),
        "weights": lambda: weight_section(sizes),
        "labelled": lambda: labelled_section(sizes),
    }
    yield "## Ramp next to its peers: time and exactness"
    for name in sections:
        yield from parts[name]()


SECTIONS = ("unlabelled", "grid", "weights", "labelled")


def main() -> None:
    """Print the report."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, nargs="+", default=sorted(FIT_GOALS), help="sizes to measure")
    parser.add_argument("--sections", nargs="+", choices=SECTIONS, default=SECTIONS)
    given = parser.parse_args()
    for paragraph in report(given.rows, given.sections):
        print(paragraph, end="\n\n", flush=True)


if __name__ == "__main__":
    main()
