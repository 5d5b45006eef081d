"""Promises of the sentences that a report opens with: they are read as they are printed, and held against the truth."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pandas as pd
from fairfix.auditing.criteria import CRITERIA
from fairfix.report.comparisons import ORIGINAL
from fairfix.tasks.advice import REFUSED
from scipy import stats

from tests.promises.harness import NOT_SAID, Ran, Shell, Tried, judged, parts_of, promise
from tests.promises.of_repairs import HOW, RATES, chance_of, draw_people, largest_gap, smallest_ratio

SAMPLES = 4
"""Samples of new rows that are drawn for a check that is undecided."""

TEXT = ("--format", "text")
"""What is read here is what a user sees."""

NUMBER = r"([+-]?[\d,]*\.?\d+)"
PARITY = "selection_rate.difference.between_groups"
NEXT = "KS distance, to overall [race]"
"""Title of the second gap of a comparison, before which all is of parity."""


def text_of(ran: Ran) -> str:
    """Return what a command printed as one line."""
    return " ".join(ran.out.split())


def numbers(pattern: str, text: str) -> tuple[float, ...] | None:
    """Return the numbers of the first place where a pattern with ``#`` for each number fits; None where it does not."""
    found = re.search(pattern.replace("#", NUMBER), text)
    return None if found is None else tuple(float(one.replace(",", "")) for one in found.groups())


def near(said: float, true: float, text: str) -> bool:
    """Tell whether a number in percent is a share to its decimals, of which there are as many as in a text."""
    decimals = len(re.sub(r"^[^.]*\.?", "", text))
    return abs(said - 100 * true) <= 0.5001 * 10.0**-decimals


# ---------------------------------------------------------------------- an audit


def _selected(
    rng: np.random.Generator, least: int, *, weighted: bool
) -> tuple[pd.DataFrame, np.ndarray, Any]:
    """Return rows of groups, their rates, of which some or all may be one, and the sizes; a group may be missing."""
    k = int(rng.integers(2, 7))
    sizes = np.round(np.exp(rng.uniform(np.log(least), np.log(1500), k))).astype(int)
    some = rng.choice(np.round(rng.uniform(0.02, 0.98, int(rng.integers(1, 4))), 2), k)
    rate = np.clip(some + rng.choice([0.0, 0.05]) * rng.uniform(-1, 1, k), 0.01, 0.99)
    code = np.repeat(np.arange(k), sizes)
    frame = pd.DataFrame({"race": np.array([f"g{i}" for i in range(k)], dtype=object)[code]})
    frame["prediction"] = (rng.random(code.size) < rate[code]).astype(int)
    frame["weight"] = rng.gamma(2.0, size=code.size) + 0.01 if weighted else 1.0
    frame.loc[:1, "prediction"] = [0, 1]  # both answers are seen
    if rng.random() < 0.3:
        frame["race"] = frame["race"].where(code != 0, None)
    return frame, rate, sizes


@promise(level=0.0, quick=12, full=2000)
def opens_with_the_rows(rng: np.random.Generator, shell: Shell) -> Tried:
    """The first sentence of an audit has the correct groups, rates, difference or ratio, and confidence."""
    frame, _, _ = _selected(rng, 1, weighted=bool(rng.random() < 0.5))
    confidence = str(rng.choice(["0.9", "0.95", "0.999"]))
    ratio = bool(rng.random() < 0.5)
    words = ["--weight", "weight", "--prediction", "prediction", "--confidence", confidence]
    words += ["--missing", "race=group"]
    limit = float(rng.choice([0.05, 0.2, 0.8]))
    words += ["--check", f"dp.ratio>={limit}"] if ratio else []
    done = shell.run("audit", *TEXT, shell.write(frame), "--protected", "race", *words)
    text = text_of(done)
    inside = frame["prediction"] * frame["weight"]
    who = frame["race"].fillna("(missing)")
    rates = inside.groupby(who).sum() / frame["weight"].groupby(who).sum()
    if rates.max() == 0:
        return NOT_SAID
    shares = re.search(
        r"the selection rate is ([\d.]+)% for (.+?) and ([\d.]+)% for (.+?): "
        r"(a difference of|(.+?) divided by (.+?) is) ([\d.]+)(?: points?)? \(([\d.]+)% CI [^)]*\)",
        text,
    )
    told = f"{text[:400]}, {rates.to_dict()}"
    if shares is None:
        return judged(False, told)
    low, less, high, more, what, over, under, value, sure = shares.groups()
    holds = near(float(low), rates[less], low) and near(float(high), rates[more], high)
    holds &= bool(np.isclose(rates[less], rates.min()) and np.isclose(rates[more], rates.max()))
    holds &= float(sure) == 100 * float(confidence)
    if ratio:
        holds &= (over, under) == (less, more)
        holds &= abs(float(value) - rates.min() / rates.max()) < 0.0051
    else:
        holds &= what == "a difference of" and near(float(value), rates.max() - rates.min(), value)
    return judged(bool(holds), told)


@promise(level=0.05, quick=12, full=2000, must_say=0.3)
def on_the_side_that_is_said(rng: np.random.Generator, shell: Shell) -> Tried:
    """If the whole interval is said to exceed or to meet the limit, so does the population value."""
    frame, rate, sizes = _selected(rng, 1, weighted=False)
    code = np.repeat(np.arange(sizes.size), sizes)
    overall = float(np.average(rate, weights=sizes))
    name, sign, true = [
        ("dp.difference", ">", rate.max() - rate.min()),
        ("dp.ratio", "<", rate.min() / rate.max()),
        ("dp.difference.to_overall", ">", np.abs(rate - overall).max()),
        ("selection_rate.min", "<", rate.min()),
    ][rng.integers(4)]
    # most limits lie so near the truth that chance alone decides on which side the value is
    limit = round(float(np.clip(true + rng.choice([0.0, 0.0, 0.02, 0.1]) * rng.normal(), 0.001, 0.999)), 4)
    frame["prediction"] = (rng.random(code.size) < rate[code]).astype(int)
    if frame["prediction"].nunique() < 2:
        return NOT_SAID
    op = "<=" if sign == ">" else ">="
    words = ["--protected", "race", "--missing", "race=group", "--prediction", "prediction"]
    done = shell.run("audit", *TEXT, shell.write(frame), *words, "--check", f"{name}{op}{limit}")
    text = text_of(done)
    said = re.search(r"The value and its whole interval (exceed|fall below|meet) your limit of", text)
    told = f"{text[:400]}, true {true:.4f}, limit {limit}, {sizes}"
    if said is None:
        return judged(True, told)
    beyond = true > limit + 1e-9 if sign == ">" else true < limit - 1e-9
    return judged(beyond if said[1] != "meet" else not beyond, told)


def _undecided(rng: np.random.Generator, shell: Shell) -> tuple[float, Any, Any] | None:
    """Return how many times the rows would decide a check, a function of new rows to whether it is decided, and words.

    None where the first rows decide, or say no number; new rows are drawn from the first, whose value is the true one.
    """
    k = int(rng.integers(2, 6))
    sizes = np.round(np.exp(rng.uniform(np.log(40), np.log(400), k))).astype(int)
    center, spread = rng.uniform(0.1, 0.9), rng.choice([0.1, 0.4])
    rate = np.clip(center + spread * rng.uniform(-1, 1, k), 0.03, 0.97)
    code = np.repeat(np.arange(k), sizes)
    frame = pd.DataFrame({"race": [f"g{i}" for i in code], "label": rng.integers(0, 2, code.size)})
    frame["prediction"] = (rng.random(code.size) < rate[code]).astype(int)
    name, sign = [
        ("dp.difference", "<="),
        ("dp.ratio", ">="),
        ("accuracy.min", ">="),
        ("tpr.difference", "<="),
        ("dp.difference.to_overall", "<="),
    ][rng.integers(5)]

    def of(rows: pd.DataFrame, limit: float) -> Ran:
        words = ["--protected", "race", "--prediction", "prediction", "--label", "label"]
        return shell.run("audit", *TEXT, shell.write(rows), *words, "--check", f"{name}{sign}{limit:.4f}")

    (first,) = of(frame, 0.5).result["checks"]
    if first["value"] is None:
        return None
    side = first["high"] if rng.random() < 0.5 else first["low"]
    limit = round(first["value"] + rng.uniform(0.3, 0.9) * (side - first["value"]), 4)
    text = text_of(of(frame, limit))
    said = numbers("about # rows would be needed to decide", text)
    if said is None or said[0] > 40_000:
        return None

    def decided_by(times: float) -> bool:
        parts = [
            rows.sample(
                max(1, round(times * len(rows))), replace=True, random_state=int(rng.integers(1 << 31))
            )
            for _, rows in frame.groupby("race")
        ]
        (again,) = of(pd.concat(parts), limit).result["checks"]
        return bool(again["verdict"] != "undecided")

    return said[0] / len(frame), decided_by, f"{name}{sign}{limit}, {said[0]:.0f} of {len(frame)}, {sizes}"


@promise(level=0.5, quick=6, full=600, must_say=0.3)
def so_many_rows_decide(rng: np.random.Generator, shell: Shell) -> Tried:
    """About N rows decide a check in most samples, if the population value equals the estimate."""
    found = _undecided(rng, shell)
    if found is None:
        return NOT_SAID
    times, decided_by, told = found
    return sum((judged(decided_by(times), told) for _ in range(SAMPLES)), NOT_SAID)


@promise(level=0.3, quick=4, full=600, must_say=0.3)
def fewer_rows_do_not_decide(rng: np.random.Generator, shell: Shell) -> Tried:
    """A sixth of these rows rarely decides the check."""
    found = _undecided(rng, shell)
    if found is None:
        return NOT_SAID
    times, decided_by, told = found
    return sum((judged(not decided_by(times / 6), told) for _ in range(SAMPLES)), NOT_SAID)


# ---------------------------------------------------------------------- a repair


@promise(
    "statements that a repair shrinks or widens a gap, and that the gap meets or exceeds the slack "
    "or the ratio, are true",
    level=0.05,
    quick=3,
    full=1000,
)
def what_a_repair_says_of_the_gap(rng: np.random.Generator, shell: Shell) -> Tried:
    # from the hundreds, whose interval reaches beyond any slack, to thousands, whose interval lies on one side of it
    sizes = np.round(np.exp(rng.uniform(np.log(400), np.log(8000), int(rng.integers(2, 5))))).astype(int)
    shift = rng.choice([0.0, 0.5, 1.5], p=[0.1, 0.4, 0.5]) * rng.normal(size=sizes.size)
    frame, world = draw_people(rng, sizes, shift, 1.0), draw_people(rng, [10_000] * sizes.size, shift, 1.0)
    # ties, which decisions that are not drawn cannot split: the gap stays above the slack
    if rng.random() < 0.5:
        frame, world = (people.assign(score=people["score"].round(1)) for people in (frame, world))
    constraint = str(rng.choice(CRITERIA))
    slack = float(rng.choice([0.0, 0.02, 0.2, 0.4]))
    ratio = (
        float(rng.choice([0.6, 0.8, 0.9])) if constraint != "equalized_odds" and rng.random() < 0.4 else 0.0
    )
    words = ["--method", "ramp", "--constraint", f"{constraint}.ratio>={ratio}" if ratio else constraint]
    words += [] if ratio else ["--slack", slack]
    words += ["--decisions", str(rng.choice(["randomized", "deterministic"]))]
    done = shell.did("repair", *TEXT, shell.write(frame), "--protected", "race", *words, "-o", "r.fairfix")
    text = text_of(done)
    after = shell.predict("r.fairfix", shell.write(world, "world.parquet"))
    of = RATES[done.result["criterion"].replace("ratio", "difference")]
    gap = smallest_ratio if ratio else largest_gap
    was, now = gap(world, world["score"] >= 0.5, of), gap(world, chance_of(after), of)
    told, out = f"{words}: {was:.4f} to {now:.4f}, {text[:700]}", Tried(0)
    if way := re.search(r"It (shrinks|grows) \(change", text):
        out += judged((now < was) == (way[1] == "shrinks"), told)
    if "the whole interval meets the smallest allowed ratio" in text:
        out += judged(now >= ratio - 0.02, told)
    if "the whole interval falls below the smallest allowed ratio" in text:
        out += judged(now < ratio + 0.02, told)
    if "the whole interval meets the allowed gap" in text:
        out += judged(now <= slack + 0.01, told)
    if "the whole interval exceeds the allowed gap" in text:
        out += judged(now > slack - 0.01, told)
        fitted = next(
            row for row in done.result["proof"]["fit"]["table"] if row["id"] == done.result["criterion"]
        )
        if ("does not carry over from the training rows" in text) != (fitted["after"]["value"] <= slack):
            out += judged(False, told)
    return out


@promise(level=0.0, quick=2, full=500)
def who_rises_and_who_falls(rng: np.random.Generator, shell: Shell) -> Tried:
    """The groups that are said to gain and to lose most do so; if every group loses, none is said to gain."""
    sizes = rng.integers(20, 500, int(rng.integers(2, 5)))
    frame = draw_people(rng, sizes, rng.choice([0.0, 1.0]) * rng.normal(size=sizes.size), 1.0)
    constraint = str(rng.choice(CRITERIA))
    words = ["--protected", "race", "--method", "ramp", "--constraint", constraint]
    words += ["--slack", rng.choice([0.0, 0.1, 0.5])]
    done = shell.did("repair", *TEXT, data := shell.write(frame), *words, "-o", "r.fairfix")
    _, held = parts_of(frame, data, HOW)
    after = chance_of(shell.predict("r.fairfix", shell.write(held, "held.parquet")))
    change = (after - (held["score"] >= 0.5)).groupby(held["race"]).mean()
    text, holds = text_of(done), True
    for verb, sign in (("gains", 1.0), ("loses", -1.0)):
        said = re.search(rf"(g\d) {verb} most: its selection rate", text)
        most = (sign * change).max()
        holds &= (said is not None) == (most > 1e-9)
        holds &= said is None or bool(np.isclose(sign * change[said[1]], most, atol=1e-9))
    holds &= all(text.count(f" {verb} most: its selection rate") <= 1 for verb in ("gains", "loses"))
    holds &= ("no group gains on these rows" in text) == bool((change < -1e-9).all())
    return judged(holds, f"{words}: {change.to_dict()}, {text[:900]}")


# ---------------------------------------------------------------------- methods compared


BOUNDS: dict[str, tuple[Any, ...]] = {
    "ramp": (),
    "ramp, equal opportunity": ("--constraint", "equal_opportunity"),
    "ramp, equalized odds": ("--constraint", "equalized_odds"),
    "ramp, four-fifths": ("--constraint", "dp.ratio>=0.8"),
}
"""Contenders, and the options that make each."""


@promise(level=0.05, quick=2, full=500, must_say=0.3)
def advice_holds_elsewhere(rng: np.random.Generator, shell: Shell) -> Tried:
    """On new rows, the gap and the cost of the advised candidate are in their intervals."""
    sizes = rng.integers(60, 900, int(rng.integers(2, 5)))
    shift = rng.choice([0.0, 0.3, 1.0]) * rng.normal(size=sizes.size)
    frame, world = draw_people(rng, sizes, shift, 1.0), draw_people(rng, [10_000] * sizes.size, shift, 1.0)
    seed, slacks = int(rng.integers(99)), (0.02, 0.1)
    common = ("--protected", "race", "--seed", seed)
    data = shell.write(frame)
    done = shell.did(
        "compare", *TEXT, data, *common, "--methods", "ramp", "--slacks", ",".join(map(str, slacks))
    )
    text = text_of(done).partition(NEXT)[0]
    base = world["score"] >= 0.5
    right = world["label"] == 1
    out = Tried(0)
    for said in re.finditer(
        rf"of at most {NUMBER} points?: ([a-z, -]+?)(?: with an allowed gap of {NUMBER})?\. Its gap is {NUMBER} points "
        rf"\({NUMBER} to {NUMBER}\)(.*?)\.(?= For| The)",
        text,
    ):
        at_most, name, slack, _, low, high, rest = said.groups()
        after: Any = base
        if name != ORIGINAL:
            words = (*BOUNDS[name], *(() if slack is None else ("--slack", slack)), "-o", "r.fairfix")
            shell.run("repair", data, *common, "--method", "ramp", *words)
            after = chance_of(shell.predict("r.fairfix", shell.write(world, "world.parquet")))
        now = 100 * largest_gap(world, after, RATES[PARITY])
        holds = (
            float(low) - 0.5 <= now <= float(high) + 0.5
        )  # the world is a sample too, and ends are rounded
        if "it may exceed that limit" not in rest:
            holds &= now <= float(at_most) + 0.5
        holds &= "no repair is needed" not in rest or now <= float(at_most) + 0.5
        if cost := numbers(r"accuracy changes by # points \(# to #\)", rest):
            change = 100 * float(np.where(right, after - 1.0 * base, 1.0 * base - after).mean())
            holds &= cost[1] - 0.3 <= change <= cost[2] + 0.3
        out += judged(holds, f"{said[0]}: the gap is {now:.2f} points")
    return Tried(1, out.false[:1]) if out.said else NOT_SAID  # they hold at once


@promise(
    "if compare says that no candidate reaches a gap, is better within it, or beats the candidates "
    "shown, none does",
    level=0.0,
    quick=2,
    full=500,
)
def nothing_does_it(rng: np.random.Generator, shell: Shell) -> Tried:
    sizes = rng.integers(40, 400, int(rng.integers(2, 4)))
    frame = draw_people(rng, sizes, rng.choice([0.0, 0.3, 1.5]) * rng.normal(size=sizes.size), 1.0)
    words = ("--protected", "race", "--methods", "ramp", "--slacks", "0.05,0.2")
    done = shell.did("compare", *TEXT, shell.write(frame), *words)
    out = Tried(0)
    text = text_of(done).partition(NEXT)[0]
    places = {
        (point["title"], point["slack"]): (
            one["value"],
            point["qualities"]["accuracy"]["value"],
        )
        for point in done.result["points"]
        for one in ([] if "failure" in point else point["gaps"])
        if one["gap"] == {"comparison": PARITY, "attribute": "race"}
    }
    barred = {
        (point["title"], point["slack"])
        for point in done.result["points"]
        if REFUSED & {one["code"] for one in point["messages"] if one["severity"] == "warning"}
    }
    methods = {of: place for of, place in places.items() if of[0] != "constant"}
    for one in re.finditer(rf"of at most {NUMBER} points?: none of the methods tried", text):
        out += judged(all(100 * gap > float(one[1]) for gap, _ in methods.values()), f"{one[0]}: {places}")
    for one in re.finditer(
        rf"of at most {NUMBER} points?: original model\. (?:(?! For a gap).)*?"
        r"no repair within that gap( that can be recommended)? has a better accuracy",
        text,
    ):
        within = [
            quality
            for of, (gap, quality) in methods.items()
            if 100 * gap <= float(one[1]) and not (one[2] and of in barred)
        ]
        out += judged(max(within) <= places[ORIGINAL, None][1], f"{one[0]}: {places}")
    shown = [
        place
        for place in places.values()
        if not any(o != place and o[0] <= place[0] and o[1] >= place[1] for o in places.values())
    ]
    if left := numbers(r"# dominated candidates? hidden", text):
        parity = {"comparison": PARITY, "attribute": "race"}
        named = {one["point"] for one in done.result["advice"] if one["gap"] == parity} - {None}
        points = [done.result["points"][i] for i in named]
        also = {(point["title"], point["slack"]) for point in points} | {(ORIGINAL, None)}
        best = len(
            set(shown)
        )  # one of equal points is shown, and the recommended ones with the model as it is
        out += judged(
            len(places) - best - len(also) <= left[0] <= len(places) - best, f"{text[:600]}: {places}"
        )
    return out if out.said else judged(True, text)


# ---------------------------------------------------------------------- two models


@promise(
    "a gap or an accuracy that is said to be better or worse with the other model is so, and its "
    "change is in the interval",
    level=0.05,
    quick=3,
    full=1000,
)
def which_model_is_fairer(rng: np.random.Generator, shell: Shell) -> Tried:
    sizes = np.round(np.exp(rng.uniform(np.log(5), np.log(3000), int(rng.integers(2, 6))))).astype(int)
    shift, other = (rng.choice([0.0, 1.0], p=[0.3, 0.7]) * rng.normal(size=sizes.size) for _ in range(2))
    noise = float(rng.choice([0.1, 2.0]))

    frame = draw_people(rng, sizes, shift, 1.0)
    z = np.log(frame["score"] / (1 - frame["score"])) + noise * rng.normal(size=len(frame))
    frame["old"] = 1 / (1 + np.exp(-(z + np.repeat(other, sizes))))
    if frame["label"].nunique() < 2:
        return NOT_SAID
    words = ("--protected", "race", "--label", "label", "--score", "score", "--baseline", "old")
    done = shell.run("compare", *TEXT, shell.write(frame), *words)
    text, out = text_of(done), Tried(0)
    at = (
        stats.norm.ppf((np.arange(2000) + 0.5) / 2000) + shift[:, None]
    )  # scores of each group, by their quantiles
    was, now = stats.norm.cdf((at + other[:, None]) / noise), at >= 0
    hit = ((now - was) * (2 / (1 + np.exp(-at)) - 1)).mean(axis=1)
    truths = {
        "By race, the demographic parity difference": (
            np.ptp(now.mean(axis=1)) - np.ptp(was.mean(axis=1)),
            "worse",
        ),
        "Accuracy": (float(np.average(hit, weights=sizes)), "better"),
    }
    for title, (true, larger) in truths.items():
        part = re.split(rf"{title} (?:rises|falls|stays)", text)[-1]
        ends = numbers(r"^.*?\(change \S+ points, 95% CI # to #\)", part)
        if ends is None or part == text:
            continue
        said = re.match(r"[^(]*It gets (better|worse) \(", part)
        holds = ends[0] - 0.1 <= 100 * true <= ends[1] + 0.1
        if said:
            holds &= (true > 0) == (said[1] == larger)
        out += judged(holds, f"{title}: {100 * true:.2f}, {part[:160]}, {sizes}")
    return out if out.said else NOT_SAID
