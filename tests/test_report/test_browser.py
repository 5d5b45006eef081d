"""The HTML report in a real browser: drawn at two widths, checked by axe, silent, alone, and no wider than its screen.

Asks for Chromium and for the extra ``browser``; skips where either is missing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import fairfix
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fairfix.cli import run
from fairfix.report.svg import COLOURS, INK, QUIET

from tests.browsers import assert_fits, browser
from tests.results import rendered

axe = pytest.importorskip(
    "axe_playwright_python.sync_playwright", reason="the extra 'browser' is not installed"
)

LOANS = str(Path(__file__).parents[2] / "sample_data" / "loans.parquet")
GATES = ("--check", "dp.difference<=0.1", "--check", "eo.difference<=0.2", "--check", "ks<=0.9")
OTHER = str(Path(LOANS).with_suffix(".csv"))
REPORTS = {
    "audit": ("audit", LOANS, "--protected", "race", *GATES),
    "intersection": ("audit", LOANS, "--protected", "race,sex", "--intersect", "--suppress-below", "100"),
    "profile": ("audit", LOANS, "--protected", "race", "--profile", "ugesp"),
    "noise": ("audit", LOANS, "--protected", "sex", "--noise", "noise.csv", "--assume", "eps=0.02"),
    "many": ("audit", "many.parquet", "--protected", "a group", "--reference", "a group=2_1e5", *GATES),
    "repair": ("repair", LOANS, "--protected", "race", "--method", "ramp", *GATES),
    "repair of many": ("repair", "many.parquet", "--protected", "a group", "--method", "ramp"),
    "models": ("compare", LOANS, "--protected", "race", "--id", "applicant_id", "--baseline", OTHER),
    "compare": ("compare", LOANS, "--protected", "race", "--methods", "ramp", "--slacks", "0.05,inf"),
}
"""A report of every kind; ``many`` has 40 groups with long and hostile names."""
WIDTHS = (1280, 390)
__all__ = ["browser"]  # a fixture


def many_groups() -> pa.Table:
    """Return few rows in 40 groups whose names are long words, markup, numbers and other scripts."""
    rng = np.random.default_rng(0)
    names = [f"{i}_" + ("x" * 60, "<b>&", "1e5", "群体 ✔", "a b" * 20)[i % 5] for i in range(40)]
    label = rng.integers(0, 2, 2000)
    score = np.clip(0.3 * label + 0.7 * rng.random(2000), 0, 1)
    return pa.table({"a group": rng.choice(names, 2000), "label": label, "score": score})


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return a function that writes a report and gives its place."""
    folder = tmp_path_factory.mktemp("pages")
    pq.write_table(many_groups(), folder / "many.parquet")
    (folder / "noise.csv").write_text(
        "true,noisy,count\nmale,male,900\nmale,female,40\nfemale,male,60\nfemale,female,900\n"
    )

    def made(name: str) -> Path:
        page = folder / f"{name}.html"
        if not page.exists():
            arguments = [str(folder / part) if (folder / part).is_file() else part for part in REPORTS[name]]
            more = ["-o", str(folder / "r.fairfix")] if REPORTS[name][0] == "repair" else []
            saved = folder / f"{name}.json"
            status = run([*arguments, *more, "--config", "none", "--quiet", "--out", f"json={saved}"])
            assert status in (0, 1, 3)
            page.write_text(rendered("html", json.loads(saved.read_text(encoding="utf-8"))), encoding="utf-8")
        return page

    return made


@pytest.mark.slow
@pytest.mark.parametrize("name", REPORTS)
def test_a_browser_shows_it(name: str, pages: Callable[[str], Path], browser: Any) -> None:
    """Nothing is fetched or complained about, nothing is cut off, and axe finds no fault in it."""
    page = browser.new_page(viewport={"width": 1280, "height": 900}, bypass_csp=True)  # axe is a script
    said: list[str] = []
    fetched: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("request", lambda request: fetched.append(request.url))
    page.goto(pages(name).as_uri())
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 900})
        assert_fits(page, width)
        shot = page.screenshot(full_page=True)
        assert shot.startswith(b"\x89PNG")
        assert len(shot) > 50_000
    page.evaluate("[...document.querySelectorAll('details')].slice(0, 2).forEach(one => { one.open = true })")
    faults = axe.Axe().run(page).response["violations"]
    page.evaluate("document.querySelectorAll('details').forEach(one => { one.open = true })")
    assert_fits(page, WIDTHS[-1])
    page.close()

    assert [(one["id"], one["nodes"][0]["html"][:200]) for one in faults] == []
    assert fetched == [pages(name).as_uri()]
    assert said == []


def test_the_page_forbids_what_it_does_not_need(pages: Callable[[str], Path], browser: Any) -> None:
    """A script that found its way into the page would not run, and could not fetch."""
    text = pages("audit").read_text(encoding="utf-8")
    bad = pages("audit").with_name("bad.html")
    bad.write_text(text.replace("<main>", "<main><script>document.title = 'ran'</script><img src='x.png'>"))
    page = browser.new_page()
    page.goto(bad.as_uri())

    assert page.title() != "ran"
    page.close()


def luminance(colour: str) -> float:
    """Return the relative luminance of WCAG 2.1."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [x / 12.92 if x <= 0.04045 else ((x + 0.055) / 1.055) ** 2.4 for x in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("colour", [*COLOURS, INK, QUIET])
def test_names_in_pictures_have_contrast(colour: str) -> None:
    """Axe does not look into pictures: every colour of a text in one has 4.5 to 1 against white."""
    assert 1.05 / (luminance(colour) + 0.05) >= 4.5


TEXTS_APART = """width => {
  const all = [], bad = []
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT)
  for (let node = walk.nextNode(), i = 0; node; node = walk.nextNode(), i++) {
    const parent = node.parentElement, svg = parent.closest('svg')
    if (!node.data.trim() || !parent.checkVisibility() || (svg && parent.tagName !== 'text')) continue
    const range = document.createRange()
    range.selectNodeContents(node)
    const frame = svg ? svg.getBoundingClientRect() : {left: 0, right: width, top: -1e9, bottom: 1e9}
    for (const box of svg ? [parent.getBoundingClientRect()] : range.getClientRects()) {
      if (box.width < 1 || box.height < 1) continue
      all.push([i, box, node.data.trim().slice(0, 60)])
      const outside = box.left < frame.left - 1 || box.right > Math.min(frame.right, width) + 1
      if (outside || box.top < frame.top - 1 || box.bottom > frame.bottom + 1) bad.push(['cut', node.data.trim()])
    }
  }
  all.sort((a, b) => a[1].top - b[1].top)
  all.forEach(([i, one, text], at) => {
    for (let k = at + 1; k < all.length && all[k][1].top < one.bottom - 3; k++) {
      const [j, other, second] = all[k]
      const wide = Math.min(one.right, other.right) - Math.max(one.left, other.left)
      if (i !== j && wide > 1.5 && Math.min(one.bottom, other.bottom) - other.top > 3) bad.push([text, second])
    }
  })
  return [all.length, bad.slice(0, 20)]
}"""
"""Texts of a page that overlap, or are outside of their picture or of the sheet."""

WORDS = (
    "Native American",
    "W" * 30,
    "i" * 70,
    "群体" * 20,
    "<b>&",
    "1e5",
    "\ufdfd" * 3,
    "ab " * 20,
    "👩🏽‍🚀" * 5,
    "=1",
    "ÄÖÜ & Co",
)


def drawn(seed: int, columns: int) -> pa.Table:
    """Return rows by some columns whose values have names of all kinds; some groups are small, or of one label."""
    rng = np.random.default_rng(seed)
    n = 3000
    sizes, named = (5, 2, 4, 3)[:columns], {}
    for i, size in enumerate(sizes):
        words = [f"{word} {i}" for word in rng.permutation(WORDS)[:size]]
        named[f"{'a long column name ' * (i % 2)}{i}"] = rng.choice(
            words, n, p=rng.dirichlet(np.full(size, 2.0))
        ).tolist()
    score = rng.random(n) ** rng.uniform(0.3, 3)
    label = (rng.random(n) < score).astype(int)
    return pa.table({**named, "label": label, "score": score, "region": rng.choice(["n", "s"], n)})


@pytest.mark.slow
@pytest.mark.parametrize("columns", [1, 2, 3, 4])
def test_paper_holds_everything_and_no_text_hides_another(columns: int, tmp_path: Path, browser: Any) -> None:
    """On A4 every table, row count and setting is there, no two texts overlap, and none is cut.

    The intersections of three columns are 40 groups.
    """
    data = drawn(columns, columns)
    names = [name for name in data.column_names if name not in ("label", "score", "region")]
    told: dict[str, Any] = {"protected": names, "label": "label", "score": "score"}
    more: dict[str, Any] = {"intersect": True} if columns in (2, 3) else {}
    more |= {"strata": "region"} if columns == 2 else {}
    audit = fairfix.audit(data, **told, **more, check=["dp.difference<=0.1", "eo.ratio>=0.8"])
    (tmp_path / "a.html").write_text(audit.to_html(), encoding="utf-8")
    with on_paper(browser, tmp_path / "a.html") as page:
        many, bad = page.evaluate(TEXTS_APART, 688)
        hidden = page.evaluate(
            "[...document.querySelectorAll('table')].filter(one => !one.checkVisibility()).length"
        )
        text = page.inner_text("body")

    assert many > 200
    assert bad == []
    assert hidden == 0
    for wanted in ("3,000 rows read", "score >= 0.5", "95% intervals", "E[-log P(y)]"):
        assert wanted in text


PICTURES = """() => [...document.querySelectorAll('figure')]
  .filter(one => one.getClientRects().length)
  .map(one => {
    const around = []
    for (let at = one; at; at = at.parentElement) { around.push(getComputedStyle(at).display) }
    return [one.getBoundingClientRect().height, around]
  })"""
"""Heights of pictures, and how what is around them is laid out."""


@contextmanager
def on_paper(browser: Any, page: Path) -> Iterator[Any]:
    """Open a page as a sheet of A4 with its margins shows it: 182 mm at 96 to the inch."""
    opened = browser.new_page(viewport={"width": 688, "height": 900})
    opened.goto(page.as_uri())
    opened.emulate_media(media="print")
    yield opened
    opened.close()


@pytest.mark.slow
@pytest.mark.parametrize("name", REPORTS)
def test_paper_shows_what_the_screen_shows(name: str, pages: Callable[[str], Path], browser: Any) -> None:
    """No text hides another; no table is cut; a picture is lower than a sheet, and in no row of a grid.

    What is taller there is drawn over what follows it.
    """
    with on_paper(browser, pages(name)) as page:
        assert page.evaluate(TEXTS_APART, 688)[1] == []
        wide, pictures = page.evaluate("document.documentElement.scrollWidth"), page.evaluate(PICTURES)

    assert name not in ("audit", "profile", "repair", "models", "compare") or wide <= 688
    assert pictures or name in ("profile", "models")
    for height, around in pictures if name not in ("profile", "models", "compare") else ():
        assert height < 1001 - 90  # 265 mm, and a heading
        assert not {"grid", "inline-grid", "flex", "inline-flex"} & set(around)
