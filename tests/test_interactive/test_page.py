"""The interactive page: what it holds, from every kind of data, what it refuses, and how it works in a browser."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import fairfix
import numpy as np
import pandas as pd
import pytest
from fairfix.cli import run

from tests.browsers import Firefox, assert_fits, browser, firefox
from tests.conftest import Call
from tests.data import people
from tests.test_interactive.test_arithmetic import content_of

__all__ = ["browser", "firefox"]  # fixtures

LIMIT = 1_500_000
"""Bytes of a page of 60 intersections."""


def tables_of(page: str) -> dict[str, Any]:
    """Return what a page holds but for the commands and the name of the data."""
    content = content_of(page)
    for own in content["attributes"]:
        for name in ("checks", "cuts", "repair"):
            own.pop(name, None)
    return {name: one for name, one in content.items() if name not in ("source", "audit", "call", "exponent")}


@pytest.mark.usefixtures("away")
def test_every_kind_of_data_gives_the_same_page(call: Call) -> None:
    """A frame, a file, a database, and counts, whose thresholds are edges of their own bins; rates are the same."""
    frame = people(500)[["race", "sex", "label", "p"]].rename(columns={"p": "score"})
    frame.to_csv("d.csv", index=False)
    with duckdb.connect("d.duckdb") as base:
        base.execute("CREATE TABLE data AS FROM frame")
    asked = ("--protected", "race,sex", "--config", "none")
    pages = [fairfix.explore(frame, protected=["race", "sex"]).html]
    for name in ("d.csv", "duckdb:///d.duckdb#data"):
        assert call("explore", name, *asked, "-o", "page.html")[0] == 0
        pages.append(Path("page.html").read_text(encoding="utf-8"))
    assert call("count", "d.csv", *asked, "-o", "d.counts")[0] == 0
    assert call("explore", "d.counts", "-o", "counts.html")[0] == 0
    counted = content_of(Path("counts.html").read_text(encoding="utf-8"))

    assert tables_of(pages[0]) == tables_of(pages[1]) == tables_of(pages[2])
    own = content_of(pages[0])
    assert own["edges"][own["edges"].index(0.5)] == counted["start"]
    assert np.sum(counted["rows"]) == np.sum(own["rows"]) == 500
    for content in (own, counted):  # above each threshold lie the rows whose score is not below it
        for place, edge in enumerate(content["edges"]):
            assert np.array(content["rows"])[:, :, place:].sum() == (frame["score"] >= edge).sum()


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (("--prediction", "yes"), "--score"),
        (("--score", "raw", "--score-scale", "raw"), "--threshold"),
        (("--strata", "town"), "--strata"),
        (("--task", "regression", "--label", "real"), "--task=regression"),
        (("--task", "multiclass"), "--task=multiclass"),
        (("--suppress-below", "400"), "--suppress-below=400"),
    ],
)
@pytest.mark.usefixtures("away")
def test_what_has_no_page_is_refused(more: tuple[str, ...], message: str, call: Call) -> None:
    """With status 2, the option to change, and no file."""
    people(300).drop(columns=["p"]).to_csv("d.csv", index=False)
    status, _, err = call(
        "explore", "d.csv", "--protected", "race", "--config", "none", *more, "-o", "page.html"
    )

    assert status == 2
    assert message.replace("=", " ") in err or message in err
    assert not Path("page.html").exists()


@pytest.mark.parametrize(
    "score", [{"score": "score"}, {"score": "raw", "score_scale": "raw", "threshold": 0.0}]
)
def test_nothing_of_a_small_group_is_in_the_bytes(score: dict[str, Any]) -> None:
    """Whatever rows it has, the page is the same, and as if it had none."""
    frame = people(800)
    large = frame[frame["race"] != "c"]

    def page(small: pd.DataFrame) -> str:
        return fairfix.explore(
            pd.concat([large, small]), protected=["race", "sex"], **score, suppress_below=30
        ).html

    few = frame[frame["race"] == "c"].head(5)
    pages = {
        page(few),
        page(few.assign(score=0.01, raw=1e9, label=1).head(2)),
        page(few.assign(race="secret")),
    }
    assert len(pages) == 1
    assert "secret" not in pages.pop()
    assert "secret" in page(pd.concat([few.assign(race="secret")] * 20))


def crossed(groups: int, rows: int) -> pd.DataFrame:
    """Return rows with weights of two columns of so many crossed groups."""
    rng = np.random.default_rng(0)
    group, score = rng.integers(0, groups, rows), rng.random(rows)
    label = (rng.random(rows) < score).astype(int)
    weight = rng.gamma(2.0, size=rows)
    one, other = (
        np.char.add(head, part.astype(str)) for head, part in (("a", group % 10), ("b", group // 10))
    )
    return pd.DataFrame({"race": one, "town": other, "score": score, "label": label, "weight": weight})


@pytest.mark.slow
def test_a_page_of_many_groups_is_small() -> None:
    """At 60 intersections with weights it has all thresholds; at 1,000 fewer; at 2,500 groups it is refused."""
    many = {"protected": ["race", "town"], "weight": "weight"}
    pages = {n: fairfix.explore(crossed(n, 20 * n), **many).html for n in (60, 1000)}
    edges = {n: len(content_of(page)["edges"]) for n, page in pages.items()}

    assert all(len(page.encode()) <= LIMIT for page in pages.values())
    assert edges[60] >= 99
    assert 5 <= edges[1000] < 60
    with pytest.raises(fairfix.DataError, match="protected"):
        fairfix.explore(crossed(2500, 25_000), **many)


def test_rare_scores_have_thresholds_among_them() -> None:
    """Where nearly all scores lie between two hundredths, quantiles are thresholds too."""
    rng = np.random.default_rng(0)
    frame = people(4000).assign(score=rng.beta(1, 400, 4000))
    edges = np.array(content_of(fairfix.explore(frame, protected="race", score="score").html)["edges"])

    assert ((edges > 0) & (edges < 0.01)).sum() >= 40
    assert len(edges) <= 200


def test_a_notebook_shows_it_in_a_frame_of_its_own(tmp_path: Path) -> None:
    explored = fairfix.explore(people(200), protected="sex", score="score")
    explored.save(tmp_path / "page.html")

    assert (tmp_path / "page.html").read_text(encoding="utf-8") == explored.html
    assert 'sandbox="allow-scripts"' in explored._repr_html_()
    assert "<script" not in explored._repr_html_()


# ---------------------------------------------------------------------- in a browser


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with rows, their counts and the pages of both; names have quotes and markup in them."""
    place = tmp_path_factory.mktemp("pages")
    frame = people(3000, shares=(0.5, 0.4, 0.1)).rename(columns={"race": "the 'race' of </script>"})
    frame.drop(columns=["p", "raw", "real", "yes"]).to_parquet(place / "d.parquet")
    asked = ("--protected", "the 'race' of </script>,sex", "--config", "none", "-q")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        assert run(["explore", "d.parquet", *asked, "-o", "rows.html"]) == 0
        assert run(["count", "d.parquet", *asked, "-o", "d.counts"]) == 0
        assert run(["explore", "d.counts", "--config", "none", "-q", "-o", "counts.html"]) == 0
        yield place


def opened(browser: Any, path: Path, said: list[str], width: int = 1280) -> Any:
    """Return a page, and what its console says and what it fetches in a list."""
    page = browser.new_page(viewport={"width": width, "height": 900})
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("request", lambda request: said.append(request.url))
    page.goto(path.as_uri())
    assert said.pop(0) == path.as_uri()
    return page


def made_by(command: str, capfd: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """Return the result of a command as the page prints it, pasted into a shell."""
    words = shlex.split(command)
    assert words.pop(0) == "fairfix"
    capfd.readouterr()
    assert run([*words, "--config", "none", "-q", "--format", "json"]) in (0, 1, 3)
    result: dict[str, Any] = json.loads(capfd.readouterr().out)
    return result


@pytest.mark.slow
@pytest.mark.parametrize("name", ["rows", "counts"])
def test_keys_move_a_threshold_and_the_command_makes_what_is_shown(
    name: str, folder: Path, browser: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    """By keyboard alone: the audit of the printed command has the rates, the gap and the limit that the page shows."""
    said: list[str] = []
    page = opened(browser, folder / f"{name}.html", said)
    before = page.inner_text("#answer")
    assert page.is_hidden("#looked")
    page.focus("#threshold")
    for _ in range(3):
        page.keyboard.press("ArrowRight")
    page.focus("#gap")
    page.keyboard.press("Home")
    page.keyboard.press("ArrowRight")
    shown = page.inner_text("#answer")
    rates = re.findall(r"([\d.]+)%", shown)[:2]
    result = made_by(page.inner_text("#command"), capfd)
    block = result["attributes"][0]

    assert shown != before
    assert page.is_visible("#looked")
    assert "0.5 points" in page.inner_text("#gap-text")
    own = {group["group"]: group["metrics"]["selection_rate"]["value"] for group in block["groups"]}
    assert rates == [f"{100 * pick(own.values()):.1f}" for pick in (max, min)]
    assert result["checks"][0]["limit"] == 0.005
    assert f"{100 * result['checks'][0]['value']:.1f} points apart" in shown
    assert said == []
    page.close()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["rows", "counts"])
def test_the_best_thresholds_have_a_command_that_finds_them(
    name: str, folder: Path, browser: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    """The repair runs; of counts, whose fit is to all rows as the page's is, with the rates that the page shows."""
    said: list[str] = []
    page = opened(browser, folder / f"{name}.html", said)
    page.select_option("#metric", "true_positive_rate")
    page.fill("#fn", "3")
    page.check('input[value="best"]')
    page.focus("#gap")
    page.keyboard.press("Home")
    for _ in range(4):
        page.keyboard.press("ArrowRight")
    result = made_by(page.inner_text("#command").replace("repaired.fairfix", f"{name}.fairfix"), capfd)
    points = float(re.search(r"([\d.]+) points apart", page.inner_text("#answer"))[1])  # type: ignore[index]  # it is there

    assert points == 2.0
    assert result["method"] == "ramp"
    if name == "counts":
        (row,) = (
            one for one in result["proof"]["fit"]["table"] if one["id"].startswith("true_positive_rate.diff")
        )
        assert row["after"]["value"] == pytest.approx(0.02, abs=1e-6)
    page.check('input[value="each"]')
    assert page.inner_text("#command").startswith("fairfix audit")
    page.focus("#groups tbody tr:nth-child(2) input")
    page.keyboard.press("ArrowLeft")
    audited = made_by(page.inner_text("#command"), capfd)
    (own,) = audited["settings"]["group_thresholds"].values()
    assert len({*own.values()}) == 2
    assert f"{100 * audited['checks'][0]['value']:.1f} points apart" in page.inner_text("#answer")
    page.select_option("#attribute", "2")
    page.focus("#groups tbody tr:nth-child(2) input")
    page.keyboard.press("ArrowLeft")
    assert page.inner_text("#command").startswith("fairfix repair")
    assert said == []
    page.close()


@pytest.mark.slow
def test_it_fits_screens_and_paper_and_axe_finds_no_fault(folder: Path, browser: Any) -> None:
    """At two widths and in print, for every mode."""
    axe = pytest.importorskip(
        "axe_playwright_python.sync_playwright", reason="the extra 'browser' is not installed"
    )
    page = browser.new_page(viewport={"width": 1280, "height": 900}, bypass_csp=True)  # axe is a script
    page.goto((folder / "rows.html").as_uri())
    page.select_option("#attribute", index=2)
    page.select_option("#metric", "equalized_odds")
    faults = []
    for mode in ("one", "each", "best"):
        page.check(f'input[value="{mode}"]')
        faults += axe.Axe().run(page).response["violations"]
        for width in (1280, 390):
            page.set_viewport_size({"width": width, "height": 900})
            assert_fits(page, width)
    page.set_viewport_size({"width": 688, "height": 900})
    page.emulate_media(media="print")
    assert_fits(page, 688)
    assert page.is_visible("#settings")
    assert page.is_hidden("#controls")
    page.close()

    assert [(one["id"], one["nodes"][0]["html"][:200]) for one in faults] == []


ALL_CONTROLS = """() => {
    const seen = new Set(), at = (id) => document.getElementById(id)
    const set = (id, to, event) => { at(id).value = to; at(id).dispatchEvent(new Event(event)) }
    for (const attribute of at('attribute').options) {
        set('attribute', attribute.value, 'change')
        for (const metric of at('metric').options) {
            set('metric', metric.value, 'change')
            for (const mode of document.querySelectorAll('input[name="mode"]:enabled')) {
                mode.click()
                for (const [gap, fp, fn, place] of [[0, 1, 3, 'min'], [3, 0, 1, 'max'], [61, 0, 0, 'min']]) {
                    set('gap', gap, 'input')
                    set('fp', fp, 'input')
                    set('fn', fn, 'input')
                    for (const slider of [at('threshold'), document.querySelector('#groups input')]) {
                        slider.value = slider[place]
                        slider.dispatchEvent(new Event('input'))
                    }
                }
                seen.add(document.querySelector('main').textContent.match(/NaN|undefined%|Infinity|\\[object/)?.[0])
            }
        }
    }
    at('restore').click()
    return [...seen].filter(Boolean)
}"""
"""Goes through the controls, and returns what is no number or text for a reader; at last back to where it began."""


ALL_TEXTS = """async () => {
    const texts = [], at = (id) => document.getElementById(id)
    const set = (id, to, event) => { at(id).value = to; at(id).dispatchEvent(new Event(event)) }
    for (const attribute of at('attribute').options) {
        set('attribute', attribute.value, 'change')
        for (const mode of document.querySelectorAll('input[name="mode"]:enabled')) {
            mode.click()
            for (const [metric, gap, place] of [['selection_rate', 4, 0.3], ['equalized_odds', 20, 0.7]]) {
                set('metric', metric, 'change')
                set('gap', gap, 'input')
                at('threshold').value = Math.round(place * at('threshold').max)
                at('threshold').dispatchEvent(new Event('input'))
                const main = document.querySelector('main').cloneNode(true)
                main.querySelector('#frontier').remove()  // which is drawn when the hand rests
                texts.push(main.textContent)
            }
        }
    }
    await new Promise((resolve) => setTimeout(resolve, 500))
    texts.push(at('frontier').textContent)
    at('restore').click()
    return [texts, document.documentElement.scrollWidth]
}"""
"""Goes through controls, and returns all that the page says, and how wide it is."""


@pytest.mark.slow
@pytest.mark.parametrize("name", ["rows", "counts"])
def test_firefox_shows_what_chromium_shows(name: str, folder: Path, browser: Any, firefox: Firefox) -> None:
    """To the letter, at every setting; it fetches nothing, its console is silent, and it fits two screens."""
    said: list[str] = []
    page = opened(browser, folder / f"{name}.html", said)
    shown, _ = page.evaluate(ALL_TEXTS)
    page.close()

    assert len(set(shown)) == len(shown) > 10
    for width in (1280, 390):
        firefox.open(folder / f"{name}.html", width)
        texts, needed = firefox.evaluate(ALL_TEXTS)
        assert texts == shown
        assert needed <= width
    assert firefox.said == said == []


@pytest.mark.slow
@pytest.mark.parametrize("odd", ["two rows", "one score", "no labels"])
def test_controls_do_no_harm_on_odd_rows(odd: str, folder: Path, browser: Any) -> None:
    """Whatever is undefined in them: the console is silent, no number is none, and the way back leads to the start."""
    frame = people(2 if odd == "two rows" else 60).assign(race=lambda own: [*"ab"] * (len(own) // 2))
    if odd == "no labels":
        explored = fairfix.explore(frame.drop(columns="label"), protected=["race", "town"], score="score")
    elif odd == "one score":
        frame = frame.assign(score=0.5)
        explored = fairfix.explore(frame, protected=["race", "town"], score="score", weight="weight")
    else:
        explored = fairfix.explore(frame.assign(label=1), protected="race", score="score")
    explored.save(folder / "odd.html")
    said: list[str] = []
    page = opened(browser, folder / "odd.html", said)
    before = page.inner_text("body")

    assert page.evaluate(ALL_CONTROLS) == []
    page.wait_for_timeout(100)  # the frontier is drawn when the controls rest
    assert page.inner_text("body") == before
    assert said == []
    page.close()


@pytest.mark.slow
def test_no_other_script_runs_in_it(folder: Path, browser: Any) -> None:
    """What found its way into the page neither runs nor fetches."""
    text = (folder / "rows.html").read_text(encoding="utf-8")
    (folder / "bad.html").write_text(
        text.replace(
            "<main>",
            "<main><script>document.title = 'ran'</script><img src='x.png' onerror='document.title=1'>",
        )
    )
    page = browser.new_page()
    page.goto((folder / "bad.html").as_uri())
    assert page.title() == "Explore d.parquet"
    assert page.inner_text("#answer")
    page.close()
