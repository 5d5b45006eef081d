"""Counts what a person has to know of the command line: ``python docs/surface.py``.

Options of each command, without its arguments and helps, settings of methods apart, and the pairs of options that
exclude or require each other.
"""

from __future__ import annotations

import sys
from importlib import import_module
from itertools import chain

import click
from fairfix.cli import COMMANDS
from fairfix.report.words import SETTINGS
from fairfix.tasks.request import EXCLUDES, REQUIRES


def options(name: str) -> list[str]:
    """Return the options of a command."""
    command: click.Command = import_module(f"fairfix.cli.{name}").command
    params = command.get_params(click.Context(command))
    return [
        str(param.name)
        for param in params
        if isinstance(param, click.Option) and not {"--help", "--help-all"}.intersection(param.opts)
    ]


def pairs() -> int:
    """Return the number of pairs that exclude or require each other."""
    return sum(len(others) for _, others, _ in chain(EXCLUDES, REQUIRES))


def main() -> int:
    """Print a line for each command, and the sums; options that commands share count once among the different ones."""
    names = {name: options(name) for name in COMMANDS}
    for name, own in names.items():
        print(f"{name:10}{len(own):4}")
    print(f"options   {sum(map(len, names.values())):4}")
    print(f"different {len(set(chain(*names.values()))):4}")
    print(f"settings  {len(SETTINGS):4}")
    print(f"pairs     {pairs():4}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
