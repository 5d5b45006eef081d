"""Files of web servers, through fsspec: by name, in ranges where the server has them, else as a whole."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import quote

import pyarrow as pa

from fairfix.data import storage
from fairfix.data.spool import free_for_copies, mapped, no_room, temporary_file
from fairfix.data.storage import FileLocation, FileVersion, Remote, answering, count_bytes, refusal
from fairfix.data.urls import hidden, name_of, shown_url, split
from fairfix.errors import DataError

REDIRECTS = frozenset((301, 302, 303, 307, 308))
"""Statuses of a server that sends elsewhere."""

HOPS = 5
"""Requests for one range at most: a first one, and redirects within its origin."""

WHOLE = 600.0
"""Seconds that a request may take in all."""

PAUSE = 0.25
"""Seconds before the second try over HTTP; twice as many before each further one."""

AGAIN = frozenset((429, 500, 502, 503, 504))
"""Statuses of a server that may answer later."""


class HttpStore(Remote):
    """A web server of files."""

    def __init__(self) -> None:
        try:
            import aiohttp
            from fsspec.implementations.http import HTTPFileSystem
        except ImportError:
            raise DataError(
                "https:// and http:// need fsspec and aiohttp, which are not installed: pip install 'fairfix[remote]'"
            ) from None
        waits = {"sock_connect": storage.CONNECTING, "sock_read": storage.SILENCE}
        limits = aiohttp.ClientTimeout(total=WHOLE, **waits)
        # proxies and netrc of the environment; bytes as they are stored, so that ranges mean what they say
        client = {"timeout": limits, "trust_env": True, "auto_decompress": False}
        self._http = HTTPFileSystem(encoded=True, skip_instance_cache=True, client_kwargs=client)
        self._copies: dict[str, pa.NativeFile] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        """Let another process make connections of its own."""
        return HttpStore, ()

    def look(self, path: str, shown: str) -> FileVersion:
        """Return what the server says of a file, asked for one byte: signed URLs allow no HEAD."""
        status, headers, _ = self._ask(path, shown, "bytes=0-0")
        return _headed(status, headers)

    def ranges(self, place: FileLocation) -> tuple[FileVersion, Callable[[int, int], bytes]]:
        """Return what reads ranges; where the server has none, of a copy that is made once."""
        stamp = self.look(place.path, place.shown)

        def read_at(size: int, offset: int) -> bytes:
            span = f"bytes={offset}-{offset + size - 1}"
            _, _, data = self._ask(place.path, place.shown, span, place=place, size=size)
            count_bytes(place, len(data))
            return data

        if not stamp["ranges"]:
            copy = self._copies.get(place.path) or self._copied(place)
            self._copies[place.path] = copy
            return {**stamp, "size": copy.size()}, copy.read_at
        return stamp, read_at

    def _ask(
        self,
        url: str,
        shown: str,
        span: str,
        *,
        place: FileLocation | None = None,
        size: int = 0,
        file: Any = None,
    ) -> tuple[int, Mapping[str, str], bytes]:
        """Return status, headers and content of a range, of ``size`` bytes of a place; the whole goes to a ``file``."""
        import aiohttp
        from fsspec.asyn import sync

        async def get() -> tuple[int, Mapping[str, str], bytes]:
            session, wanted = await self._http.set_session(), {"Accept-Encoding": "identity"}
            wanted |= {"Range": span} if span else {}
            target = self._http.encode_url(url)
            for _ in range(HOPS):
                async with session.get(target, headers=wanted, allow_redirects=False) as response:
                    if response.status in REDIRECTS:
                        target = _redirected(response.url, response.headers.get("Location", ""), shown)
                        continue
                    empty = response.status == 416 and response.headers.get("Content-Range") == "bytes */0"
                    if not empty:
                        response.raise_for_status()
                    if file is not None:
                        await _saved(response, file, shown)
                    data = await _read(response, size or 1) if response.status == 206 else b""
                    if place is not None:
                        place.hold(_headed(response.status, response.headers))
                    if size and (response.status != 206 or len(data) != size):
                        raise aiohttp.ClientPayloadError("the server returns other bytes than requested")
                    return response.status, dict(response.headers), data
            raise DataError(f"{shown}: the server redirects more than {HOPS} times; give the final URL")

        with answering(shown, "reading"):
            for pause in (*(PAUSE * 2**i for i in range(storage.TRIES - 1)), None):
                try:
                    answer: tuple[int, Mapping[str, str], bytes] = sync(self._http.loop, get)
                except (aiohttp.ClientError, OSError) as error:
                    status = getattr(error, "status", None)
                    if (status is None or status in AGAIN) and pause is not None:
                        if file is not None:
                            file.seek(0)
                            file.truncate()
                        time.sleep(pause)
                        continue
                    raise _gave_up(error, shown) from None
                return answer
        raise AssertionError

    def _copied(self, place: FileLocation) -> pa.NativeFile:
        """Return a copy of a whole file, which is gone with the process."""
        with temporary_file(f"reading {place.shown} failed") as file:
            _, headers, _ = self._ask(place.path, place.shown, "", file=file)
            content = mapped(file)
            count_bytes(place, content.size)
            place.hold({**_headed(200, headers), "size": content.size})
            return pa.BufferReader(content)

    def find(self, url: str) -> list[FileLocation]:
        """Return the one file that a URL names."""
        shown = shown_url(url)
        if "*" in split(url)[2]:
            raise DataError(
                f"{shown}: a web server cannot list files, so patterns do not work; name one file"
            )
        path = quote(url, safe="%/:?#[]@!$&'()*+,;=~")  # blanks and the like; a signed URL stays as it is
        return [FileLocation(name_of(url), shown, path, self, self.look(path, shown))]


def _redirected(url: Any, location: str, shown: str) -> Any:
    """Return where a redirect leads; a DataError for another origin, which would get this machine's requests.

    The same host by https in place of http is no other.
    """
    target = url.join(type(url)(location, encoded=True))
    default_ports = url.is_default_port() and target.is_default_port()
    upgraded = (url.scheme, target.scheme) == ("http", "https") and default_ports
    if target.host == url.host and (upgraded or (target.scheme, target.port) == (url.scheme, url.port)):
        return target
    raise DataError(
        f"{shown}: the server redirects to {target.scheme}://{target.raw_authority}, which was not named; "
        "give the file's own URL there, if you trust that server"
    )


async def _saved(response: Any, file: Any, shown: str) -> None:
    """Write what comes to a file; a DataError where it would fill the disk."""
    room, full = free_for_copies(), no_room(shown, ", or use a server that supports range requests")
    if (response.content_length or 0) > room:
        raise full
    async for chunk in response.content.iter_chunked(1 << 20):
        if (room := room - len(chunk)) < 0:
            raise full
        file.write(chunk)


async def _read(response: Any, most: int) -> bytes:
    """Return the response, read up to one byte more than was requested."""
    parts, left = [], most + 1
    while left > 0 and (part := await response.content.read(left)):
        parts.append(part)
        left -= len(part)
    return b"".join(parts)


def _gave_up(error: Exception, shown: str) -> DataError:
    """Return the error of a request, or of the last try of it."""
    status = getattr(error, "status", None)
    if status is not None and status not in AGAIN:
        message = getattr(error, "message", "")
        if status in (401, 403, 404, 416):
            return DataError(refusal(error, shown, "reading"))
        return DataError(f"reading {shown} failed: the server returns {status} {hidden(message)}".rstrip())
    text = f"the server returns {status}" if status else hidden(str(error)) or "no answer in time"
    return DataError(f"reading {shown} failed after {storage.TRIES} tries: {' '.join(text.split())[:300]}")


def _headed(status: int, headers: Mapping[str, str]) -> FileVersion:
    """Return what the headers of an answer say of a file."""
    plain = {name.lower(): value for name, value in headers.items()}
    ranges = status in (206, 416)
    total = plain.get("content-range", "").rpartition("/")[2] if ranges else plain.get("content-length", "")
    size = int(total) if total.isdigit() else None
    tag = plain.get("etag")
    stamp = {"ranges": ranges, "modified": plain.get("last-modified"), "tag": tag, "size": size}
    return {key: value for key, value in stamp.items() if value is not None}
