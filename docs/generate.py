"""Write the generated parts of the docs anew, or check that they are in step.

``python docs/generate.py`` rewrites; ``python docs/generate.py --check`` writes nothing and exits with 1 when a file
is out of step with the code. Generated text stands between ``<!-- generated: NAME -->`` and ``<!-- end -->``.
"""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path

from fairfix.cli import COMMANDS, run
from fairfix.metrics import ALIASES, MEANS, RATES
from fairfix.repair import methods
from fairfix.report.json_ import OTHER_FORMULAS, SCOPES

ROOT = Path(__file__).resolve().parent.parent
FILES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
PART = re.compile(r"(<!-- generated: ([\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def help_of(*arguments: str) -> str:
    """Return what --help prints, at a fixed width."""
    out = io.StringIO()
    with redirect_stdout(out):
        run([*arguments, "--help"])
    return out.getvalue()


def table(headings: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    """Return a Markdown table."""
    lines = [headings, tuple("---" for _ in headings), *rows]
    return (
        "\n".join("| " + " | ".join(cell.replace("|", r"\|") for cell in row) + " |" for row in lines) + "\n"
    )


def cli() -> str:
    """Return the help of every command."""
    parts = [f"```text\n{help_of()}```\n"]
    parts += [f"## fairfix {name}\n\n```text\n{help_of(name)}```\n" for name in COMMANDS]
    return "\n" + "\n".join(parts) + "\n"


def metrics() -> str:
    """Return every metric with formula, needs and when it is undefined."""
    other = {
        name: [alias for alias, target in ALIASES.items() if target == name] for name in (*RATES, *MEANS)
    }
    rows = [
        (
            f"`{m.name}`",
            m.formula,
            ", ".join(sorted(m.needs)),
            m.undefined,
            ", ".join(f"`{a}`" for a in other[m.name]),
        )
        for m in (*RATES.values(), *MEANS.values())
        if m.name != "square_loss_real"
    ]
    rows += [
        (f"`{name}`", text, "", "", "`eo`" if name == "equalized_odds" else "")
        for name, text in OTHER_FORMULAS.items()
    ]
    return table(("metric", "definition", "needs", "undefined when", "also called"), rows)


def comparisons() -> str:
    """Return every kind and scope of comparison."""
    return table(("comparison", "definition"), [(f"`{name}`", text) for name, text in SCOPES.items()])


def parameters() -> str:
    """Return the hyper-parameters of every method."""
    rows = []
    for name, method in methods().items():
        rows += [
            (f"`{name}`", f"`--{part.name.replace('_', '-')}`", str(part.default), part.metadata["rule"].help)
            for part in method.parameter_fields()
        ]
    return table(("method", "option", "default", "meaning"), rows)


def available() -> str:
    """Return the methods there are."""
    return table(
        ("`--method`", "does"), [(f"`{name}`", method.summary) for name, method in methods().items()]
    )


MAKERS: dict[str, Callable[[], str]] = {
    "cli": cli,
    "metrics": metrics,
    "comparisons": comparisons,
    "parameters": parameters,
    "methods": available,
}


def renewed(text: str) -> str:
    """Return the text with its generated parts made anew."""
    return PART.sub(lambda match: match[1] + MAKERS[match[2]]() + match[3], text)


def main(check: bool) -> int:
    """Rewrite or check all files; return the exit status."""
    stale = []
    for path in FILES:
        text = path.read_text(encoding="utf-8")
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
