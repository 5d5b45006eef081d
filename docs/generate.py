"""Write the generated parts of the docs anew, or check that they are in step.

``python docs/generate.py`` rewrites them; ``python docs/generate.py --check`` writes nothing and exits with 1 when a
file is out of step with the code. Generated text stands between ``<!-- generated: NAME -->`` and ``<!-- end -->``;
nothing else is ever touched, and what is generated does not depend on the terminal.
"""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from functools import partial
from importlib import import_module
from pathlib import Path

import fairfix
from fairfix.auditing.comparisons import KINDS, MEANINGS
from fairfix.auditing.metrics import FLIP_SCOPES, MEANS, METRICS, RATES
from fairfix.cli import COMMANDS, cli
from fairfix.errors import CODES
from fairfix.methods import available
from fairfix.report import FORMATS, is_gated
from fairfix.report.words import as_options
from fairfix.tasks.explain import INTERVALS, needs_of
from fairfix.tasks.request import EXCLUDES, REQUIRES
from house import rooms_below

ROOT = Path(__file__).resolve().parent.parent
FILES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
START = "<!-- generated: "
PART = re.compile(rf"({START}([\w-]+) -->\n)(?:(?!{START}).)*?(<!-- end -->)", re.DOTALL)
WIDTH = 100


def help_of(*command: str) -> str:
    """Return what --help prints, at a fixed width."""
    out = io.StringIO()
    with redirect_stdout(out):
        cli.main([*command, "--help"], prog_name="fairfix", standalone_mode=False, terminal_width=WIDTH)
    return out.getvalue()


def table(headings: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    """Return a Markdown table."""
    lines = [headings, tuple("---" for _ in headings), *rows]
    return "".join("| " + " | ".join(cell.replace("|", r"\|") for cell in row) + " |\n" for row in lines)


def commands() -> str:
    """Return the help of every command."""
    parts = [f"```text\n{help_of()}```\n"]
    parts += [f"## fairfix {name}\n\n```text\n{help_of(name)}```\n" for name in COMMANDS]
    return "\n" + "\n".join(parts) + "\n"


def together() -> str:
    """Return which options need or exclude which others."""

    def named(names: tuple[str, ...], word: str) -> str:
        return f" {word} ".join(f"`{as_options(f'`{name}`')}`" for name in names)

    rows = [
        (named((name,), ""), f"needs {named(others, 'or')}", why or " ") for name, others, why in REQUIRES
    ]
    rows += [(named((name,), ""), f"not with {named(others, 'or')}", why) for name, others, why in EXCLUDES]
    return table(("option", "goes", "why"), [(one, goes, as_options(why)) for one, goes, why in rows])


def metrics() -> str:
    """Return every metric with formula, needs and when it is undefined."""
    rows = [
        (
            f"`{m.name}`",
            m.formula,
            ", ".join(m.needs),
            m.undefined,
            ", ".join(f"`{alias}`" for alias in m.aliases) or " ",
        )
        for m in (*RATES.values(), *MEANS.values())
    ]
    return table(("metric", "definition", "needs", "undefined when", "also called"), rows)


def other_metrics() -> str:
    """Return the metrics that are neither a plain rate nor a plain mean."""
    rows = [
        (f"`{m.name}`", m.formula, as_options(needs_of(m)), m.undefined or " ")
        for m in METRICS.values()
        if m.name not in (*RATES, *MEANS)
    ]
    return table(("metric", "definition", "needs", "undefined when"), rows)


def comparisons() -> str:
    """Return every kind and scope of comparison; those of distances and flips have a scope only."""
    plain = {name: text for name, text in MEANINGS.items() if "." in name or name in KINDS}
    rows = [(f"`metric.{name}`", text) for name, text in plain.items()]
    rows += [
        (f"`{'decision_flips' if name in FLIP_SCOPES else 'ks'}.{name}`", text)
        for name, text in MEANINGS.items()
        if name not in plain
    ]
    return table(("comparison", "definition"), rows)


def intervals() -> str:
    """Return how the interval of what is made."""
    return table(("what", "how"), list(INTERVALS.items()))


def parameters(name: str) -> str:
    """Return the hyper-parameters of a method."""
    rows = [
        (
            f"`--{part.name.replace('_', '-')}`",
            str(part.default) or " ",
            as_options(part.metadata["rule"].help),
        )
        for part in available()[name].parameter_fields()
    ]
    return table(("option", "default", "meaning"), rows)


def repairs() -> str:
    """Return every method with its summary."""
    return table(("`--method`", "does"), [(f"`{name}`", one.summary) for name, one in available().items()])


def formats() -> str:
    """Return every format with what its module says of itself, and of which results it tells."""
    rows = []
    for name in FORMATS:
        doc = (import_module(f"fairfix.report.{name}_").__doc__ or "").partition("\n")[0]
        told = doc.partition(": ")[2].partition(". ")[0].rstrip(".")
        rows.append((f"`{name}`", told, "audit, repair" if is_gated(name) else "audit, repair, compare"))
    return table(("format", "is", "of"), rows)


def codes() -> str:
    """Return every code of a message."""
    rows = [
        (f"`{code}`", kind, as_options(text)) for kind, texts in CODES.items() for code, text in texts.items()
    ]
    return table(("code", "of", "means"), rows)


def imports() -> str:
    """Return which room imports which, those with the fewest floors below them first."""
    below = rooms_below(Path(fairfix.__file__).parent)
    width = max(map(len, below))
    lines = [f"{room:{width}}  {' '.join(sorted(others))}".rstrip() for room, others in below.items()]
    return "```text\n" + "\n".join(lines) + "\n```\n"


MAKERS: dict[str, Callable[[], str]] = {
    "cli": commands,
    "together": together,
    "metrics": metrics,
    "other-metrics": other_metrics,
    "comparisons": comparisons,
    "intervals": intervals,
    **{f"parameters-{name}": partial(parameters, name) for name in available()},
    "methods": repairs,
    "formats": formats,
    "codes": codes,
    "imports": imports,
}


def renewed(text: str) -> str:
    """Return the text with its generated parts made anew."""
    return PART.sub(lambda match: match[1] + MAKERS[match[2]]() + match[3], text)


def main(check: bool) -> int:
    """Rewrite or check all files; return the exit status."""
    stale = []
    for path in FILES:
        text = path.read_text(encoding="utf-8")
        if text.count(START) != len(PART.findall(text)):
            print(f"{path.relative_to(ROOT)} has a generated part without an end")
            return 1
        new = renewed(text)
        if new != text:
            stale.append(path.relative_to(ROOT))
            if not check:
                path.write_text(new, encoding="utf-8")
    for path in stale:
        print(f"{path} {'is out of step: run `make docs`' if check else 'rewritten'}")
    return int(check and bool(stale))


if __name__ == "__main__":
    sys.exit(main("--check" in sys.argv[1:]))
