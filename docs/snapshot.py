"""Draw the picture of a report: its title, its answer and one or two figures of its page, as one SVG."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from textwrap import wrap

WIDTH, MARGIN, LINE = 820, 24, 21
FIGURE = re.compile(r'<svg viewBox="0 0 (\d+) (\d+)"[^>]*font-size="(\d+)">(.*?)</svg>', re.DOTALL)
STYLE = ".halo { paint-order: stroke; stroke: #fff; stroke-width: 3px; stroke-linejoin: round; }"


def plain(markup: str) -> str:
    """Return the text of a piece of HTML, ready for an SVG."""
    return html.escape(html.unescape(re.sub(r"<[^>]+>", "", markup)), quote=False)


def figures_of(page: str, titles: Sequence[str]) -> list[tuple[int, int, str, str]]:
    """Return width, height, font size and content of the figures with these titles, or of the first two."""
    found = [(int(w), int(h), size, content) for w, h, size, content in FIGURE.findall(page)]
    named = {re.sub(r"<.*?>", "", one[3].partition("</title>")[0]).strip(): one for one in reversed(found)}
    return [named[title] for title in titles] if titles else found[:2]


def picture(page: str, titles: Sequence[str] = (), answers: int = 2) -> str:
    """Return the picture of an HTML report, with that many paragraphs of its answer.

    Raises
    ------
    KeyError
        No figure of the page has one of the titles.
    """
    title = re.search(r"<h1[^>]*>(.*?)</h1>", page, re.DOTALL)
    verdict = re.search(r'<strong class="mark (\w+)">(.*?)</strong>', page)
    paragraphs = re.findall(r'<p class="answer[^>]*>(?:<strong.*?</strong>)?(.*?)</p>', page, re.DOTALL)[
        :answers
    ]
    heading, out, y = plain(title[1] if title else ""), [], MARGIN + 20
    size = min(23, 1300 // max(len(heading), 1))
    out.append(f'<text x="{MARGIN}" y="{y}" font-size="{size}" font-weight="bold">{heading}</text>')
    if verdict:
        ground, ink = {"fail": ("#a3081e", "#fff"), "pass": ("#eef8f1", "#0b5d2a")}.get(
            verdict[1], ("#fff8e1", "#5a4500")
        )
        out.append(f'<rect x="{WIDTH - 124}" y="{y - 23}" width="100" height="30" rx="5" fill="{ground}"/>')
        out.append(
            f'<text x="{WIDTH - 74}" y="{y - 2}" text-anchor="middle" fill="{ink}" font-weight="bold">'
            f"{plain(verdict[2])}</text>"
        )
    y += 14
    for paragraph in paragraphs:
        for line in wrap(" ".join(plain(paragraph).split()), 104, break_on_hyphens=False):
            y += LINE
            out.append(f'<text x="{MARGIN}" y="{y}">{line}</text>')
        y += 8
    top, each = y + 12, figures_of(page, titles)
    across = (WIDTH - 3 * MARGIN) // 2
    tallest = 0
    for place, (width, height, size, figure) in enumerate(each):
        shown = round(height * across / width)
        tallest = max(tallest, shown)
        heading = plain(figure.partition("<title")[2].partition(">")[2].partition("</title>")[0])
        x = MARGIN + place * (across + MARGIN)
        content = re.sub(r"<(title|desc)\b.*?</\1>", "", figure, flags=re.DOTALL).strip()
        out.append(f'<text x="{x}" y="{top + 10}" font-weight="bold">{heading}</text>')
        out.append(
            f'<svg x="{x}" y="{top + 18}" width="{across}" height="{shown}" viewBox="0 0 {width} {height}" '
            f'font-size="{size}">{content}</svg>'
        )
    tall = top + (18 + tallest if each else 0) + MARGIN
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {tall}" width="{WIDTH}" height="{tall}" '
        'font-family="system-ui, -apple-system, Segoe UI, Roboto, Liberation Sans, sans-serif" font-size="14" '
        f'fill="#1a1a1a">\n<style>{STYLE}</style>\n'
        f'<rect width="{WIDTH}" height="{tall}" fill="#fff" stroke="#d0d0d0"/>\n'
        + "\n".join(out)
        + "\n</svg>\n"
    )
