"""A net for the language of docs/style.md: long sentences, words of a dialect, texts that begin with their scope.

Finds patterns alone, so a page that passes may still be hard to read.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import click
import pytest
from fairfix.cli import COMMANDS, cli

from tests.scripts import script

ROOT = Path(__file__).parents[1]
TUTORIALS = ("docs/quickstart.md", "docs/first-repair.md", "docs/first-gate.md", "docs/first-python.md")
SHORT = ("README.md", *TUTORIALS, "docs/choosing.md")
APART = {"changelog.md", "style.md", "methods/noise.md"}
"""Pages whose language is not checked: one quotes the words, and two are not rewritten."""
PLAIN = (
    "README.md",
    *(
        f"docs/{name}"
        for page in sorted((ROOT / "docs").rglob("*.md"))
        if (name := page.relative_to(ROOT / "docs").as_posix()) not in APART
        and not name.startswith(("benchmarks/", "papers/"))
    ),
)
LONGEST = 30
DIALECT = {
    r"h[au]ngs? (on|together)": "depends on; relates to",
    r"heed(s|ed)?": "uses; applies",
    r"mend(s|ed)?": "corrects",
    r"everybody": "overall; everyone",
    r"\d+ %": "46%, without a blank",
    r"beside": "next to; in addition to",
    r"for want of": "without",
    r"in force": "stated",
    r"surer": "more certain",
    r"so many": "the number",
    r"of which": "a new sentence",
    r"by lot": "at random",
    r"rows of the fit": "training rows",
    r"proven on": "evaluated on",
    r"fares? (worst|worse|best)": "is worst off",
    r"no talk": "only errors",
    r"the fit has (not )?seen": "training rows",
    r"goes? with it": "depends on it",
    r"likeliest": "most probable",
    r"dear": "expensive",
    r"for you to (find out|say)": "an imperative",
    r"from (which|now|\d+) on": "at least; starting at",
}
"""What docs/style.md forbids, as patterns of whole words, and what to write."""


def prose(text: str) -> str:
    """Return Markdown without generated parts, blocks of code, comments, code in lines and addresses of links."""
    text = re.sub(r"^<!-- generated: .*?^<!-- end -->$", "", text, flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"^```.*?^```$", "\n\n", text, flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL)
    text = re.sub(r"`[^`]*`", "CODE", text)
    return re.sub(r"\]\([^)]*\)", "]", text)


def sentences(text: str) -> Iterator[str]:
    """Yield the sentences of a page; items of lists, headings and cells of tables are sentences of their own."""
    for block in re.split(r"\n\s*\n|^\s*[-*] |^\s*\d+\. |^#+ |\|", prose(text), flags=re.MULTILINE):
        yield from filter(None, re.split(r"(?<=[.!?])[*_)\]\"]*\s+", " ".join(block.split())))


def long_sentences(text: str) -> list[str]:
    """Return the sentences of a page with more words than allowed."""
    return [one for one in sentences(text) if len(re.findall(r"\S*\w\S*", one)) > LONGEST]


def dialect(text: str) -> list[tuple[str, str]]:
    """Return the forbidden words of a text, each with what to write."""
    flat = " ".join(text.split())
    return [
        (found[0], better)
        for pattern, better in DIALECT.items()
        for found in re.finditer(rf"(?<!\w){pattern}(?!\w)", flat, re.IGNORECASE)
    ]


def helps() -> Iterator[tuple[str, str]]:
    """Yield the help of every command and of its options, with a name."""
    context = click.Context(cli)
    yield "fairfix", cli.help or ""
    for name in COMMANDS:
        command = cli.get_command(context, name)
        assert command is not None
        yield name, command.help or ""
        for option in command.params:
            yield f"{name} --{option.name}", getattr(option, "help", None) or ""


@pytest.mark.parametrize("page", SHORT)
def test_sentences_are_short(page: str) -> None:
    """At most 30 words, where 25 are the aim."""
    assert long_sentences((ROOT / page).read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("page", PLAIN)
def test_pages_are_in_plain_english(page: str) -> None:
    """Without the words that only their authors understood."""
    assert dialect(prose((ROOT / page).read_text(encoding="utf-8"))) == []


def test_helps_are_in_plain_english() -> None:
    """Those of commands and options."""
    assert {name: found for name, text in helps() if (found := dialect(text))} == {}


def test_helps_begin_with_a_noun_or_a_verb() -> None:
    """The scope of an option comes last, as in "(databases)"."""
    begins = re.compile(r"(?:\A|\n\s*\n)\s*(?:Of|What) ")
    assert begins.search("Plain.\n\n    Of databases: the table.")
    assert [name for name, text in helps() if begins.search(text)] == []


@cache
def docstrings() -> list[tuple[str, str]]:
    """Return every docstring of the package with its place, those of fields and constants included, without code."""
    out = []
    for path in sorted((ROOT / "fairfix").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if (
                isinstance(node, ast.Expr)
                and isinstance(node.value, ast.Constant)
                and isinstance(node.value.value, str)
            ):
                place = f"{path.relative_to(ROOT)}:{node.lineno}"
                out.append((place, re.sub(r"``[^`]*``|`[^`]*`", "CODE", node.value.value)))
    return out


def test_docstrings_are_in_plain_english() -> None:
    """Without the words of the dialect."""
    assert {place: found for place, text in docstrings() if (found := dialect(text))} == {}


def test_docstrings_begin_with_a_noun_or_a_verb() -> None:
    """So that each can be read alone."""
    begins = re.compile(r"\s*(?:What|That|How|Whose|Who|Of)\b")
    assert [place for place, text in docstrings() if begins.match(text)] == []


def test_printed_sentences_are_in_plain_english() -> None:
    """Those of messages and reports: without the words of the dialect, and short; a semicolon ends a sentence."""
    printed = script("docs/sentences.py").places()
    parts = {where[0]: text.replace(";", ".") for text, where in printed.items()}

    assert len(printed) > 1000
    assert {where: found for where, text in parts.items() if (found := dialect(prose(text)))} == {}
    assert {where: found for where, text in parts.items() if (found := long_sentences(text))} == {}


def test_the_net_finds_what_it_should() -> None:
    """A long sentence in each kind of place, and each word; code, links and what is generated are let through."""
    words = " ".join(["word"] * (LONGEST + 1))
    for page in (words, f"- {words}", f"Short. {words}.", f"| a | {words} |", f"**{words}.** Short."):
        assert len(long_sentences(page)) == 1, page
    for page in (
        f"```sh\n{words}\n```",
        f"`{words}`",
        f"<!-- generated: x -->\n{words}\n<!-- end -->\n",
        "a.\n\nb",
    ):
        assert long_sentences(page) == [], page

    found = dialect("It hangs\non 95 % and mends Everybody; recommend besides, 95%, hanging, dearly")
    assert sorted(word for word, _ in found) == ["95 %", "Everybody", "hangs on", "mends"]
    assert dialect(prose("[all](beside.md) `everybody`")) == []
