"""Servers on this machine for data from elsewhere, with faults: of files by HTTP, and before the store of moto.

A fault is a word that is taken by the next request that it fits: ``503`` and ``403`` are statuses, ``cut`` closes the
connection in the middle of the content, ``drop`` before anything is done, ``silent`` never answers, ``slow`` late.
"""

from __future__ import annotations

import http.client
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple

Answer = tuple[int, Mapping[str, str], bytes]
"""Status, headers and content."""

MOTO = """
import sys
from moto.server import ThreadedMotoServer
server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
server.start()
print(server.get_host_and_port()[1], flush=True)
sys.stdin.read()
"""


class Asked(NamedTuple):
    """A request as a server sees it."""

    method: str
    path: str
    headers: Mapping[str, str]
    content: bytes


class Server:
    """A server whose requests are kept in ``log``, and which has ``faults`` for those that ``fits``."""

    def __init__(self, answer: Callable[[Asked], Answer]) -> None:
        self.answer = answer
        self.faults: list[str] = []
        self.fits: Callable[[Asked], bool] = lambda asked: asked.method == "GET"
        self.before: Callable[[Asked], None] = lambda asked: None
        self.log: list[Asked] = []
        self.over = threading.Event()
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: object) -> None:
                pass

            def serve(self) -> None:
                if self.headers.get("Expect"):
                    self.send_response_only(100)
                    self.end_headers()
                headers = {name.lower(): value for name, value in self.headers.items()}
                asked = Asked(self.command, self.path, headers, self.taken(headers))
                server.log.append(asked)
                server.before(asked)
                fault = server.faults.pop(0) if server.faults and server.fits(asked) else ""
                if fault in ("silent", "drop"):
                    server.over.wait(20 if fault == "silent" else 0)
                    self.close_connection = True
                    return
                time.sleep(0.3 if fault == "slow" else 0)
                status, given, content = (int(fault), {}, b"") if fault.isdigit() else server.answer(asked)
                self.send_response(status)
                for name, value in given.items():
                    if name.lower() not in (
                        "connection",
                        "transfer-encoding",
                        "date",
                        "server",
                        "content-length",
                    ):
                        self.send_header(name, value)
                length = len(content) if asked.method != "HEAD" else int(given.get("Content-Length", 0))
                self.send_header("Content-Length", str(length))
                self.end_headers()
                if asked.method != "HEAD":
                    self.wfile.write(content[: len(content) // 2] if fault == "cut" else content)
                if fault == "cut":
                    self.wfile.flush()
                    self.close_connection = True

            def taken(self, headers: dict[str, str]) -> bytes:
                """Return the content of a request, put together from its chunks if it comes in such."""
                if headers.pop("transfer-encoding", "") != "chunked":
                    return self.rfile.read(int(headers.get("content-length") or 0))
                content = b""
                while size := int(self.rfile.readline().partition(b";")[0], 16):
                    content += self.rfile.read(size)
                    self.rfile.readline()
                while self.rfile.readline().strip():
                    pass
                return content

        for method in ("GET", "HEAD", "PUT", "POST", "DELETE"):
            setattr(Handler, f"do_{method}", Handler.serve)

        class Quiet(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *_: object) -> None:
                pass

        self._server = Quiet(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def close(self) -> None:
        """Stop to listen."""
        self.over.set()
        self._server.shutdown()
        self._server.server_close()


def before(url: str) -> Callable[[Asked], Answer]:
    """Return what hands requests on to another server."""
    host = url.removeprefix("http://")

    def answer(asked: Asked) -> Answer:
        other = http.client.HTTPConnection(host, timeout=20)
        try:
            other.request(asked.method, asked.path, asked.content, dict(asked.headers))
            response = other.getresponse()
            return response.status, dict(response.getheaders()), response.read()
        finally:
            other.close()

    return answer


def files(contents: dict[str, bytes], *, ranges: bool = True) -> Callable[[Asked], Answer]:
    """Return what serves contents by path, in ranges or only as a whole; ``contents`` may change meanwhile."""

    def answer(asked: Asked) -> Answer:
        content = contents.get(asked.path.partition("?")[0])
        if content is None:
            return 404, {}, b"no"
        headers = {"ETag": f'"{hash(content)}"', "Last-Modified": formatdate(0, usegmt=True)}
        span = asked.headers.get("range", "")
        if not ranges or not span:
            return 200, headers, content
        first, _, last = span.removeprefix("bytes=").partition("-")
        begin, end = int(first), min(int(last), len(content) - 1)
        if begin >= len(content):
            return 416, {**headers, "Content-Range": f"bytes */{len(content)}"}, b""
        headers["Content-Range"] = f"bytes {begin}-{end}/{len(content)}"
        return 206, headers, content[begin : end + 1]

    return answer


@contextmanager
def moto() -> Iterator[str]:
    """Yield the URL of a server of the S3 protocol, in a process of its own."""
    quiet = {**os.environ, "PYTHONWARNINGS": "ignore"}
    with subprocess.Popen(
        [sys.executable, "-c", MOTO],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=quiet,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.kill()
