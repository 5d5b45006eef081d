"""Write the generated parts of the docs anew, or check that they are in step.

``python docs/generate.py`` rewrites them; ``python docs/generate.py --check`` writes nothing and exits with 1 when a
file is out of step with the code. Generated text stands between ``<!-- generated: NAME -->`` and ``<!-- end -->``;
nothing else is ever touched, and what is generated does not depend on the terminal.

``--printed`` does the same for what commands print in a terminal of 80 columns: a block under ``<!-- printed: N -->``
has the first N lines of what the block of commands before it prints, without the digits of hashes. It also draws the
picture of the README. This takes minutes; files that are named behind it are the only ones.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from functools import partial
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory

import fairfix
from fairfix.auditing.comparisons import KINDS, MEANINGS
from fairfix.auditing.metrics import FLIP_SCOPES, MEANS, METRICS, RATES
from fairfix.cli import COMMANDS, cli
from fairfix.errors import CODES
from fairfix.methods import available
from fairfix.methods.learned import LearnerDomain
from fairfix.report import FORMATS, is_gated
from fairfix.report.words import SETTINGS, as_options, option_words
from fairfix.schema import RESULTS, json_schema
from fairfix.tasks.explain import INTERVALS, needs_of
from fairfix.tasks.glossary import GLOSSARY, STATUSES
from fairfix.tasks.repair import hyper_parameters
from fairfix.tasks.request import EXCLUDES, REQUIRES
from fairfix.tasks.synonyms import TERMS
from house import rooms_below
from snapshot import picture

ROOT = Path(__file__).resolve().parent.parent
FILES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
START = "<!-- generated: "
COMPLETION = Path(fairfix.__file__).parent / "cli" / "completion.json"
PICTURE = ROOT / "docs" / "report.svg"
SCHEMAS = ROOT / "docs" / "schemas"
PART = re.compile(rf"({START}([\w-]+) -->\n)(?:(?!{START}).)*?(<!-- end -->)", re.DOTALL)
PRINTED = re.compile(
    r"(```sh\n((?:(?!```).)*?)```\n\n(<!-- printed: (\d+) -->\n```text\n))(?:(?!```).)*?```\n", re.DOTALL
)
WIDTH = 80


def help_of(*command: str) -> str:
    """Return what --help-all prints of a command, or --help without one, at a fixed width."""
    out, asked = io.StringIO(), "--help-all" if command else "--help"
    with redirect_stdout(out):
        cli.main([*command, asked], prog_name="fairfix", standalone_mode=False, terminal_width=WIDTH)
    return out.getvalue()


def table(headings: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    """Return a Markdown table."""
    lines = [headings, tuple("---" for _ in headings), *rows]
    return "".join("| " + " | ".join(cell.replace("|", r"\|") for cell in row) + " |\n" for row in lines)


def commands() -> str:
    """Return the help of every command."""
    parts = [f"```text\n{help_of()}```\n"]
    of_methods = re.compile(r"^Parameters of the methods:\n.*?\n\n", re.DOTALL | re.MULTILINE)
    for name in COMMANDS:
        parts.append(f"## fairfix {name}\n\n```text\n{of_methods.sub('', help_of(name))}```\n")
        if name == "repair":  # each has its own part
            parts += [of_method(method) for method in available()]
    return "\n" + "\n".join(parts) + "\n"


def of_method(name: str) -> str:
    """Return the part of the help that is about one method alone."""
    own = help_of("repair", "--method", name).partition(f"Parameters of {name}:\n")[2].partition("\n\n")[0]
    return f"### fairfix repair --method {name}\n\n```text\n{own}\n```\n"


def completion() -> str:
    """Return what the shell completes of the methods, so that it need not import them."""
    own = hyper_parameters()
    rules = [pair for method in available().values() for pair in method.domains().items() if pair[0] in own]
    choices = {
        name.replace("_", "-"): sorted({c for one, rule in rules if one == name for c in rule.choices})
        for name, _ in rules
        if name not in SETTINGS
    }
    choices["constraint"] = sorted(
        {name for one in available().values() for name in one.grammar.criteria.values()}
    )
    return json.dumps({"methods": list(available()), "options": choices}, indent=1) + "\n"


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
    of_scopes = dict.fromkeys(FLIP_SCOPES, "decision_flips") | {"with_number": "decision_covariance"}
    rows += [
        (f"`{of_scopes.get(name, 'ks')}.{name}`", text)
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
        (f"`{shlex.join(option_words(one))}`", str(spec.default) or " ", as_options(spec.help))
        for one, spec in available()[name].domains().items()
    ]
    rules = [spec for spec in available()[name].domains().values() if isinstance(spec, LearnerDomain)]
    rows += [
        (f"`--learner '{learner}({one}={key.default})'`", str(key.default), as_options(key.help))
        for rule in rules
        for learner, form in rule.forms.items()
        for one, key in form.keys.items()
    ]
    return table(("option", "default", "meaning"), rows)


def glossary() -> str:
    """Return every word of the glossary, under its heading."""
    parts = [
        f"## {heading}\n\n"
        + table(("word", "means"), [(word, as_options(text)) for word, text in entries.items()])
        for heading, entries in GLOSSARY.items()
    ]
    return "\n" + "\n".join(parts) + "\n"


def synonyms() -> str:
    """Return what others call it, and what it is here."""
    rows = [(words, f"`{to}`", as_options(remark) or " ") for words, (to, remark) in TERMS.items()]
    return table(("others say", "here", "note"), rows)


def statuses() -> str:
    """Return every exit status with its meaning."""
    return table(("status", "meaning"), [(code, as_options(text)) for code, text in STATUSES.items()])


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
    "glossary": glossary,
    "synonyms": synonyms,
    "statuses": statuses,
    "codes": codes,
    "imports": imports,
}


def in_terminal(script: str, folder: Path) -> str:
    """Return what commands write to a terminal of 80 columns, without talk and colour."""
    import fcntl
    import struct
    import termios

    ours, theirs = os.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, WIDTH, 0, 0))
    clean = {name: text for name, text in os.environ.items() if not name.startswith(("FAIRFIX_", "COLUMNS"))}
    bin_, here = folder / "bin", Path(fairfix.__file__).parent.parent
    bin_.mkdir(exist_ok=True)
    (bin_ / "fairfix").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m fairfix "$@"\n')
    (bin_ / "fairfix").chmod(0o755)
    path = os.pathsep.join([str(bin_), clean.get("PATH", "")])
    process = subprocess.Popen(  # noqa: S603  the commands are those of our pages
        ["/bin/sh", "-c", script], cwd=folder, stdout=theirs, stderr=subprocess.DEVNULL,
        env={**clean, "PATH": path, "PYTHONPATH": str(here), "NO_COLOR": "1", "PYTHONIOENCODING": "utf-8"},
    )  # fmt: skip
    os.close(theirs)
    pieces = []
    with contextlib.suppress(OSError):  # Linux ends a terminal with an error
        while piece := os.read(ours, 65536):
            pieces.append(piece)
    os.close(ours)
    process.wait()
    text = b"".join(pieces).decode().replace("\r\n", "\n")
    return re.sub(r"(sha256:)[0-9a-f]{64}", r"\1...", text)  # which hangs on the versions of libraries


def printed(text: str) -> str:
    """Return the text with the blocks under ``<!-- printed: N -->`` as their commands print them now."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        shutil.copytree(ROOT / "sample_data", folder / "sample_data")

        def anew(match: re.Match[str]) -> str:
            lines = [line.rstrip() for line in in_terminal(match[2], folder).splitlines()]
            more = ["..."] if len(lines) > int(match[4]) else []
            return match[1] + "\n".join([*lines[: int(match[4])], *more]) + "\n```\n"

        return PRINTED.sub(anew, text)


def renewed(text: str) -> str:
    """Return the text with its generated parts made anew."""
    return PART.sub(lambda match: match[1] + MAKERS[match[2]]() + match[3], text)


def schema(name: str) -> str:
    """Return the JSON Schema of a result."""
    return json.dumps(json_schema(name)) + "\n"


def report() -> str:
    """Return the picture of the first audit of the README."""
    audit = fairfix.audit(
        ROOT / "sample_data" / "loans.parquet", protected="race", check="dp.difference<=0.1"
    )
    return picture(audit.to_html(), ["selection rate by race", "TPR by race"])


def main(check: bool, terminal: bool, names: Sequence[str] = ()) -> int:
    """Rewrite or check all files, with what is printed in a ``terminal`` if asked; return the exit status.

    Where files are named, by their paths from the root, only these.
    """
    stale = []
    makers = {COMPLETION: completion} | ({PICTURE: report} if terminal else {})
    makers |= {SCHEMAS / f"{name}.json": partial(schema, name) for name in RESULTS}
    for path in (*FILES, *makers):
        if names and path.relative_to(ROOT).as_posix() not in names:
            continue
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        if text.count(START) != len(PART.findall(text)):
            print(f"{path.relative_to(ROOT)} has a generated part without an end")
            return 1
        new = makers[path]() if path in makers else renewed(text)
        new = printed(new) if terminal and PRINTED.search(new) else new
        if new != text:
            stale.append(path)
            if not check:
                path.write_text(new, encoding="utf-8")
    for path in stale:
        print(f"{os.path.relpath(path, ROOT)} {'is out of step: run `make docs`' if check else 'rewritten'}")
    return int(check and bool(stale))


if __name__ == "__main__":
    named = [word for word in sys.argv[1:] if not word.startswith("--")]
    sys.exit(main("--check" in sys.argv[1:], "--printed" in sys.argv[1:], named))
