"""PDF: the HTML report on A4, printed by the Chromium of this machine, or by WeasyPrint."""

from __future__ import annotations

import os
import re
from importlib import import_module
from typing import Any

from fairfix.data.confined import made_by_program, program_of
from fairfix.errors import DataError, UsageError
from fairfix.report import headline, html_
from fairfix.report.words import plain
from fairfix.schema.common import SavedResult
from fairfix.schema.unrun import Unrun

BROWSERS = (
    *("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome"),
    *("chrome-headless-shell", "msedge", "microsoft-edge"),
)
"""Programs that print pages, by the names of their files."""

ALONE = (
    *("--headless", "--disable-gpu", "--no-first-run", "--no-default-browser-check", "--disable-extensions"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-quic"),
    *(
        "--proxy-server=127.0.0.1:9",
        "--proxy-bypass-list=<-loopback>",
        "--host-resolver-rules=MAP * ~NOTFOUND",
    ),
    *("--user-data-dir={folder}/profile", "--no-pdf-header-footer"),
)
"""Arguments of a browser that reaches no network and keeps nothing; the page itself forbids scripts."""

SECONDS = 120
"""Time that printing may take."""

MISSING = (
    "a PDF needs a browser or WeasyPrint, and neither is installed; install Chromium or Chrome, run "
    "pip install 'fairfix[pdf]', or write html=FILE and print it from a browser"
)

TIME = re.compile(rb"D:\d{14}")
"""Time in a PDF, which is left out: the same result gives the same bytes."""


OWN = b"\n%fairfix\n"
"""Comment at the end of a PDF, by which fairfix knows its own."""


def render(result: SavedResult, *, detail: bool = False) -> bytes:
    """Return the HTML report as PDF."""
    page = html_.render(result, detail=detail)
    browser = program_of(BROWSERS)
    return TIME.sub(b"D:19800101000000", _printed(browser, page) if browser else _typeset(page)) + OWN


def _printed(browser: str, page: str) -> bytes:
    """Return a page as a browser prints it."""
    as_root = ["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []  # it refuses root else
    files = ["--print-to-pdf={folder}/report.pdf", "{folder}/report.html"]
    command = [browser, *ALONE, *as_root, *files]
    made = made_by_program(command, page.encode("utf-8"), ("report.html", "report.pdf"), SECONDS)
    if not made.startswith(b"%PDF-"):
        raise DataError(
            f"{browser} did not print the report as PDF; write html=FILE and print it from a browser"
        )
    return made


def _typeset(page: str) -> bytes:
    """Return a page as WeasyPrint sets it, which may fetch nothing."""
    try:
        weasyprint: Any = import_module("weasyprint")
    except (ImportError, OSError):  # it is there and its libraries are not
        raise UsageError(MISSING) from None

    def refuse(url: str, *_: Any, **__: Any) -> Any:
        raise ValueError(url)

    made: bytes = weasyprint.HTML(string=page, url_fetcher=refuse).write_pdf()
    return made


LINE = 90
"""Characters in a line of a page without a report."""


def unrun(problem: Unrun) -> bytes:
    """Return a page with the message, written without a browser."""
    from textwrap import wrap

    lines = [headline(problem), "", *wrap(f"{plain(problem.message)} ({problem.code})", LINE)]
    shown = (re.sub(r"([\\()])", r"\\\1", line).encode("latin-1", "replace") for line in lines)
    text = b"BT /F1 11 Tf 14 TL 50 790 Td " + b" ".join(b"(%b) Tj T*" % line for line in shown) + b" ET"
    objects = [
        b"<</Type /Catalog /Pages 2 0 R>>",
        b"<</Type /Pages /Kids [3 0 R] /Count 1>>",
        b"<</Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] /Resources <</Font <</F1 4 0 R>>>> /Contents 5 0 R>>",
        b"<</Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding>>",
        b"<</Length %d>>\nstream\n%b\nendstream" % (len(text), text),
    ]
    out, places = b"%PDF-1.4\n", []
    for i, content in enumerate(objects, 1):
        places.append(len(out))
        out += b"%d 0 obj\n%b\nendobj\n" % (i, content)
    size, start = len(objects) + 1, len(out)
    out += b"xref\n0 %d\n0000000000 65535 f \n" % size + b"".join(
        b"%010d 00000 n \n" % place for place in places
    )
    return out + b"trailer\n<</Size %d /Root 1 0 R>>\nstartxref\n%d\n%%%%EOF" % (size, start) + OWN
