"""Help under headings, in 80 columns, of one method where one is named; and what the shell completes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import click
import fairfix
import pytest
from click.testing import CliRunner
from fairfix.cli import COMMANDS, cli
from fairfix.cli.compare import command as compare
from fairfix.cli.help import OTHERS, SectionedCommand, completion, in_sections
from fairfix.cli.repair import OF_SOME
from fairfix.data.data_spec import ColumnRoles, DataSpec
from fairfix.data.scan import read_table
from fairfix.errors import DataError, FairfixError, UsageError
from fairfix.methods import Repairer, RepairProblem, available
from fairfix.report.words import SETTINGS
from fairfix.tasks.repair import hyper_parameters

from tests.data import scored

METHODS = sorted(available())


def helped(*words: str) -> str:
    """Return what a line with ``--help`` prints."""
    done = CliRunner().invoke(cli, list(words), prog_name="fairfix", terminal_width=80)
    assert done.exit_code == 0, done.output
    return done.output


def listed(text: str) -> list[str]:
    """Return the options that have an entry in a help, as they are written."""
    return re.findall(r"^  (?:-\w, )?(--[\w-]+)", text, re.MULTILINE)


def options_of(name: str) -> set[str]:
    """Return the options of a command, each by its first long name."""
    command = cli.get_command(click.Context(cli), name)
    assert isinstance(command, SectionedCommand)
    params = command.get_params(click.Context(command))
    return {next(o for o in p.opts if o[:2] == "--") for p in params if p.opts[0][0] == "-"}


NAMES = [*([name] for name in COMMANDS), *(["repair", "--method", method] for method in METHODS)]
PAGES = [[*words, asked] for words in NAMES for asked in ("--help", "--help-all")]
SCREENS = 90
"""Lines of two screens."""


@pytest.mark.parametrize("words", PAGES, ids=" ".join)
def test_a_help_fits_into_80_columns_and_breaks_no_word(words: list[str]) -> None:
    """The same text at any width: no option, value or name is cut in two."""
    narrow, wide = (
        helped(*words),
        CliRunner().invoke(cli, words, prog_name="fairfix", terminal_width=400).output,
    )
    assert max(map(len, narrow.splitlines())) <= 80
    assert set(listed(narrow)) == set(listed(wide))
    _, options = re.split(r"^[A-Z][\w -]*:\n", narrow, maxsplit=1, flags=re.MULTILINE)
    assert set(options.split()) <= set(wide.split())


@pytest.mark.parametrize("words", [[], *NAMES], ids=" ".join)
def test_a_help_fits_two_screens_and_the_full_one_has_every_option(words: list[str]) -> None:
    """The short one says where the others are; each option stands once in either."""
    short = helped(*words, "--help")
    assert len(short.splitlines()) <= SCREENS
    assert len(listed(short)) == len(set(listed(short)))
    if not words:
        return
    full = listed(helped(*words, "--help-all"))
    assert "--help-all" in short
    assert set(listed(short)) <= set(full)
    assert len(full) == len(set(full))
    if len(words) == 1:
        assert set(full) == options_of(words[0])


@pytest.mark.parametrize("name", ["audit", "repair", "compare", "predict"])
def test_examples_come_first_and_every_option_has_a_heading(name: str) -> None:
    """Usage, one sentence, lines to copy; then headings, under which each option stands once."""
    text = helped(name, "--help-all")

    assert text.split("\n\n")[2].split()[:2] == ["fairfix", name]
    assert f"{OTHERS}:" not in text


def test_an_option_without_a_heading_is_still_shown() -> None:
    """Nothing is lost where somebody forgets the table."""
    sections = in_sections([*compare.params, click.Option(["--brand-new"])])

    assert [param.name for param in sections[OTHERS]] == ["brand_new"]


@pytest.mark.parametrize("method", METHODS)
def test_the_help_of_a_method_has_its_parameters_and_no_others(method: str) -> None:
    """In any order of the line, with its own default and the other options of the line in between."""
    text = helped("repair", "--method", method, "--help")
    own = text.partition(f"Parameters of {method}:\n")[2].partition("\n\n")[0]
    others = {f"--{one}" for one in completion()["options"]} - set(listed(own))

    names = available()[method].domains().keys() & hyper_parameters().keys() - SETTINGS
    names |= {name for name, knows in OF_SOME.items() if knows(available()[method])}
    assert set(listed(own)) == {f"--{name.replace('_', '-')}" for name in names}
    assert not others & set(listed(text))
    assert helped("repair", "--help", "--method", method) == text
    assert helped("repair", "x.csv", "--seed", "3", f"--method={method}", "--gamma", "1", "-h") == text
    assert helped("repair", "x.csv", "--help-all", "--method", method).startswith(
        text.partition("\nOptions of all")[0]
    )
    assert f"[default: {available()[method]().slack:g}]" in " ".join(own.split())
    assert not any(f"{other}:" in own for other in METHODS)


def test_the_help_without_a_method_lists_the_methods_before_the_common_options() -> None:
    """And of the parameters only the one that all have."""
    text = helped("repair", "--help")
    places = [text.index(f"\n  {method}") for method in METHODS]

    assert places == sorted(places)
    assert places[-1] < text.index("\nOptions:")
    assert {f"--{one}" for one in completion()["options"]} & set(listed(text)) == {"--slack"}
    assert all(
        set(listed(text)) <= set(listed(helped("repair", "--help-all", "--method", m))) for m in METHODS
    )


def test_a_method_that_is_not_there_is_named() -> None:
    done = CliRunner().invoke(cli, ["repair", "--help", "--method", "rmap"], prog_name="fairfix")

    assert isinstance(done.exception, UsageError)
    assert "`method=rmap`: unknown; did you mean 'ramp'? The methods are:" in str(done.exception)


@pytest.mark.parametrize("method", METHODS)
def test_what_the_help_of_a_method_leaves_out_is_refused_by_it(method: str) -> None:
    """Strata, pairs, copies and so on: shown where the method takes them."""
    rows, plain = scored(rows=80), ColumnRoles(("race",), label="label", score="score")
    problem = RepairProblem(read_table(rows, DataSpec(plain)))
    asked = {
        "strata": RepairProblem(read_table(rows, DataSpec(replace(plain, strata=("job",))))),
        "unlabelled": replace(problem, unlabelled=problem.table),
    }
    shown = set(listed(helped("repair", "--help-all", "--method", method)))
    assert set(asked) | {"noise", "assume", "similar"} == set(OF_SOME)
    kind = available()[method]
    solver = kind.domains().get("solver")
    variants = [kind(solver=one) for one in solver.choices] if solver else [kind()]
    for name, one in asked.items():
        refused = all(is_left_out(name, variant, one) for variant in variants)
        assert (f"--{name.replace('_', '-')}" in shown) != refused, name
    with pytest.raises(FairfixError) as error:
        fairfix.repair(rows, protected="race", method=method, similar="gone=1,2")
    assert ("--similar" in shown) == ("leave it out, or use `method=sensei`" not in str(error.value))


def is_left_out(name: str, method: Repairer, problem: RepairProblem) -> bool:
    """Whether a method says that a parameter is to be left out."""
    try:
        method._check(problem)
    except (UsageError, DataError) as error:
        return any(f"leave out `{one}`" in str(error) for one in (name, "features"))
    return False


# ---------------------------------------------------------------------- what the shell completes

COMPLETED = {
    "fairfix au": {"audit"},
    "fairfix repair --gam": {"--gamma"},
    "fairfix repair x.csv --gamma 0.1 --method r": {"ramp", "robust"},
    "fairfix repair --decisions r": {"randomized"},
    "fairfix compare --methods ramp,l": {"ramp,logloss"},
    "fairfix explain four-": {"four-fifths", "four-fifths-rule"},
    "fairfix explain fair-": {"fair-regression"},
    "fairfix predict --un": {"--unseen"},
}


@pytest.mark.parametrize("line", COMPLETED)
def test_the_shell_completes_without_numpy(line: str) -> None:
    """Commands, options, choices, methods and words: right, and before anything heavy is imported."""
    words = line.split()
    script = (
        "import sys\nfrom fairfix.cli import run\nrun([])\nprint('numpy' in sys.modules, file=sys.stderr)"
    )
    told = {"_FAIRFIX_COMPLETE": "zsh_complete", "COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)}
    done = subprocess.run(
        [sys.executable, "-c", script], env={**os.environ, **told}, capture_output=True, text=True, check=True
    )

    assert set(done.stdout.split("\n")[1::3]) == COMPLETED[line]
    assert done.stderr == "False\n"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_has_its_script(shell: str) -> None:
    """As docs/cli.md says it is made; it asks fairfix in that shell's own way."""
    script = CliRunner().invoke(cli, prog_name="fairfix", env={"_FAIRFIX_COMPLETE": f"{shell}_source"}).output

    assert f"_FAIRFIX_COMPLETE={shell}_complete" in script
    assert (
        f"_FAIRFIX_COMPLETE={shell}_source fairfix"
        in Path(__file__).parents[2].joinpath("docs/cli.md").read_text()
    )
