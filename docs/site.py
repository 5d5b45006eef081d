"""Make the site: the pages of docs/, a gallery of reports, and executed notebooks, with search.

``python docs/site.py`` writes ``site/``; it needs the extra ``site``. Pages keep their places; files of the checkout
that they link to come along. The order of the navigation is that of docs/index.md, and a page that is not in it is an
error. The reports of the gallery are made from sample_data/. The notebooks of docs/notebooks/ run on public data in
``PUBLIC_DATA``, ``../shared/data`` by default, and are left out where it is not. Nothing is fetched from elsewhere.
"""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import fairfix
from snapshot import picture

ROOT = Path(__file__).resolve().parents[1]
SITE = ROOT / "site"
LINK = re.compile(r"\[([^\]]+)\]\(([^)#\s]+\.md)(?:#[\w-]+)?\)")
BESIDE = (
    *("README.md", "CONTRIBUTING.md", "SECURITY.md", "benchmarks/README.md", "sample_data/README.md"),
    "benchmarks/published.csv",
)
"""Files outside docs/ that pages link to."""

LOANS = "sample_data/loans.parquet"
ELSEWHERE = re.compile(r"""<(?:script|link|img|iframe)[^>]+(?:src|href)=["']?(?:https?:)?//[^"'\s>]+""")

STYLE = "site.css"
STYLES = """\
/* cells of tables break their lines, so that no column hides beside the page */
.rst-content .wy-table-responsive table td, .rst-content .wy-table-responsive table th { white-space: normal; }
/* the theme scrolls the list of pages to the one that is shown; the search stays in sight */
.wy-side-nav-search { position: sticky; top: 0; z-index: 1; }
"""
"""What is added to the theme."""

NOTEBOOKS = {
    "census": "Audit of a census file",
    "repair": "A repair and its proof",
    "noisy": "Groups that are recorded wrongly",
}


def gallery() -> Iterator[tuple[str, str, str, Any, dict[str, Any]]]:
    """Yield the name of a report, what it shows, its command, the result, and how its picture is drawn."""
    yield (
        "audit",
        "An audit by race with a limit: who is worst off, by how much, and how sure that is.",
        "fairfix audit sample_data/loans.parquet --protected race --check 'dp.difference<=0.1'",
        fairfix.audit(LOANS, protected="race", check="dp.difference<=0.1"),
        {"titles": ["selection rate by race", "TPR by race"]},
    )
    yield (
        "repair",
        "A repair, evaluated on held-out rows: who gains, who loses, and what it costs.",
        "fairfix repair sample_data/loans.parquet --method ramp --protected race --id applicant_id",
        fairfix.repair(LOANS, protected="race", method="ramp", id="applicant_id"),
        {"answers": 3},
    )
    yield (
        "compare",
        "Repairs for several allowed gaps: the trade-off between accuracy and gap.",
        "fairfix compare sample_data/loans.parquet --protected sex --methods ramp --slacks 0,0.02 --id applicant_id",
        fairfix.compare(LOANS, protected="sex", methods=["ramp"], slacks=[0.0, 0.02], id="applicant_id"),
        {"titles": ["accuracy against demographic parity difference [sex]"]},
    )
    old = "sample_data/old_model.parquet"
    yield (
        "two-models",
        "Two models on the same people: is the new one fairer, and what does that cost?",
        f"fairfix compare sample_data/loans.parquet --protected race --id applicant_id --baseline {old}",
        fairfix.compare(LOANS, protected="race", id="applicant_id", baseline=old),
        {"answers": 4},
    )


def write_gallery(pages: Path) -> None:
    """Write the reports, their pictures, and the page that leads to them."""
    (pages / "gallery").mkdir()
    lines = [
        "# Gallery of reports",
        "",
        "Four reports on the [sample data](sample_data/README.md). Each report is one HTML file: add",
        "`--out html=FILE` to a command. Select a picture to open the report.",
        "",
    ]
    for name, about, command, result, how in gallery():
        page = result.to_html()
        (pages / "gallery" / f"{name}.html").write_text(page, encoding="utf-8")
        (pages / "gallery" / f"{name}.svg").write_text(picture(page, **how), encoding="utf-8")
        shown = f"[![{about}](gallery/{name}.svg)](gallery/{name}.html)"
        lines += [
            f"## {name.replace('-', ' ').capitalize()}",
            *("", about, "", "```sh", command, "```", "", shown, ""),
        ]
    (pages / "gallery.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


def write_notebooks(pages: Path, data: Path) -> None:
    """Run the notebooks and write each as a page with what its cells show."""
    import jupytext
    from nbclient import NotebookClient
    from nbconvert import MarkdownExporter

    os.environ["PUBLIC_DATA"] = str(data)
    for name in NOTEBOOKS:
        notebook = jupytext.read(ROOT / "docs" / "notebooks" / f"{name}.py")
        NotebookClient(notebook, timeout=600, kernel_name="python3").execute()
        for cell in notebook.cells:
            for output in cell.get("outputs", ()):
                shown = output.get("data", {})
                if "text/html" in shown:  # one line each: an empty line would end the element in Markdown
                    shown["text/html"] = re.sub(
                        r"\n\s*", "&#10;" if "<iframe" in shown["text/html"] else "", shown["text/html"]
                    )
        text, resources = MarkdownExporter().from_notebook_node(
            notebook, resources={"unique_key": name, "output_files_dir": f"{name}_files"}
        )
        (pages / "notebooks" / f"{name}.md").write_text(text, encoding="utf-8")
        for file, content in resources["outputs"].items():
            (pages / "notebooks" / file).parent.mkdir(exist_ok=True)
            (pages / "notebooks" / file).write_bytes(content)


def collect(pages: Path) -> None:
    """Copy the pages, and files beside docs/ that they link to."""
    shutil.copytree(ROOT / "docs", pages, ignore=shutil.ignore_patterns("*.py", "__pycache__"))
    (pages / "notebooks").mkdir(exist_ok=True)
    for name in BESIDE:
        target = pages / name.replace("README.md", "about.md" if name == "README.md" else "README.md")
        target.parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, target)
    for page in pages.rglob("*.md"):
        up = "../" * (len(page.relative_to(pages).parts) - 1)
        text = page.read_text(encoding="utf-8")
        text = re.sub(rf"\]\({re.escape(up)}\.\./README\.md", f"]({up}about.md", text)
        text = re.sub(rf"\]\({re.escape(up)}\.\./", f"]({up}", text)
        if page.relative_to(pages).as_posix() in ("about.md", *BESIDE):  # these stood beside docs/
            text = re.sub(r"\]\((\.\./)?docs/", r"](\1", text).replace("](README.md", "](about.md")
        page.write_text(text, encoding="utf-8")


def navigation(pages: Path, notebooks: bool) -> list[Any]:
    """Return the pages in the order of docs/index.md, by its headings; an error where one is missing."""
    index = (pages / "index.md").read_text(encoding="utf-8")
    out: list[Any] = [{"Home": "index.md"}]
    placed = {"index.md"}
    for title, text in re.findall(r"^## ([^\n]*)\n(.*?)(?=^## |\Z)", index, re.DOTALL | re.MULTILINE):
        links = {page: name.replace("\n", " ") for name, page in reversed(LINK.findall(text))}
        entries = [
            {name[0].upper() + name[1:]: page} for page, name in reversed(links.items()) if page not in placed
        ]
        placed |= links.keys()
        out += [{title: entries}]
    there = {page.relative_to(pages).as_posix() for page in pages.rglob("*.md")}
    there -= {"gallery.md", "about.md", *BESIDE, *(f"notebooks/{name}.md" for name in NOTEBOOKS)}
    if lost := sorted(there - placed):
        sys.exit(f"docs/index.md leads to no {', '.join(lost)}")
    seen = [{title: f"notebooks/{name}.md"} for name, title in NOTEBOOKS.items()] if notebooks else []
    return [*out[:2], {"Examples": [{"Gallery of reports": "gallery.md"}, *seen]}, *out[2:]]


def build(pages: Path, nav: list[Any]) -> None:
    """Build the site, with every warning an error."""
    from mkdocs.commands.build import build as mkdocs_build
    from mkdocs.config import load_config

    settings = {
        "site_name": "fairfix",
        "docs_dir": str(pages),
        "site_dir": str(SITE),
        "use_directory_urls": False,
        "theme": {"name": "readthedocs", "highlightjs": False, "navigation_depth": 3},
        "extra_css": [STYLE],
        "plugins": ["search"],
        "markdown_extensions": ["tables", "fenced_code", "codehilite", "toc", "sane_lists", "md_in_html"],
        "nav": nav,
        "strict": True,
    }
    (pages / STYLE).write_text(STYLES, encoding="utf-8")
    file = pages.parent / "mkdocs.yml"
    file.write_text(json.dumps(settings), encoding="utf-8")  # JSON is YAML
    config = load_config(str(file))
    config.plugins.on_startup(command="build", dirty=False)
    logging.basicConfig(level=logging.WARNING, format="%(message)s")  # a warning ends the build: show it
    mkdocs_build(config)
    config.plugins.on_shutdown()
    fetched = {
        found
        for page in SITE.rglob("*.html")
        for found in ELSEWHERE.findall(page.read_text(encoding="utf-8"))
    }
    if fetched:
        sys.exit(f"the site would fetch {', '.join(sorted(fetched))}")


def main() -> None:
    """Write the site."""
    os.chdir(ROOT)
    data = Path(os.environ.get("PUBLIC_DATA", ROOT.parent / "shared" / "data")).resolve()
    with TemporaryDirectory() as room:
        pages = Path(room) / "docs"
        collect(pages)
        write_gallery(pages)
        if notebooks := data.is_dir():
            write_notebooks(pages, data)
        else:
            print(f"the notebooks are left out: there is no {data}")
        build(pages, navigation(pages, notebooks))
    print(f"wrote {SITE}; python -m http.server -d {SITE.name} shows it, search included")


if __name__ == "__main__":
    main()
