"""HTTP: pages, and files of which only the parts wanted are transferred where the server can."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, cast

import requests
from requests.exceptions import RequestException
from urllib3.exceptions import HTTPError

from wheelfab.atlas.index import ACCEPT, MOST_BYTES
from wheelfab.errors import InfrastructureError

if TYPE_CHECKING:
    from typing_extensions import Buffer

CHUNK = 1 << 20
_TIMEOUT = (20.0, 120.0)  # seconds to connect, and between two pieces
_TRIES = 5


class NoRangesError(Exception):
    """The server gives whole files only."""


class Line:
    """A connection to servers as the user's pip has it; counts the bytes that came."""

    def __init__(self, transport: Mapping[str, str]) -> None:
        self.session = requests.Session()
        if "PIP_CERT" in transport:
            self.session.verify = transport["PIP_CERT"]
        if "PIP_CLIENT_CERT" in transport:
            self.session.cert = transport["PIP_CLIENT_CERT"]
        if "PIP_PROXY" in transport:
            self.session.proxies = dict.fromkeys(("http", "https"), transport["PIP_PROXY"])
        self.received = 0

    def page(self, url: str) -> tuple[str, str]:
        """Text and content type of an index page; raises ``InfrastructureError``."""
        with self.get(url, {"Accept": ACCEPT}) as response:
            data = bytearray()
            for piece in response.iter_content(CHUNK):
                data += piece
                if len(data) > MOST_BYTES:
                    raise InfrastructureError(
                        f"a page of over {MOST_BYTES} bytes", where=_named(url)
                    )
            self.received += len(data)
            return data.decode("utf-8", "replace"), response.headers.get("Content-Type", "")

    def stream(self, url: str) -> Iterator[bytes]:
        """The whole file, piece by piece; raises ``InfrastructureError``."""
        with self.get(url, {}) as response:
            try:
                for piece in response.iter_content(CHUNK):
                    self.received += len(piece)
                    yield piece
            except RequestException as error:
                raise InfrastructureError(_why(error), where=_named(url)) from error

    def get(self, url: str, headers: Mapping[str, str]) -> requests.Response:
        """An open answer; raises ``InfrastructureError`` for one that is no success."""
        identity = {"Accept-Encoding": "identity", **headers}
        try:
            response = self.session.get(url, headers=identity, stream=True, timeout=_TIMEOUT)
            response.raise_for_status()
        except RequestException as error:
            raise InfrastructureError(
                _why(error), where=_named(url), next_step="check the index and the network"
            ) from error
        return response


class RemoteFile(io.RawIOBase):
    """A file on a server, read by ranges: one answer is read on for as long as nobody seeks.

    Raises ``NoRangesError`` when the server does not give ranges.
    """

    def __init__(self, line: Line, url: str) -> None:
        self.line, self.url, self.position = line, url, 0
        self._answer: requests.Response | None = None
        self._at = 0
        with line.get(url, {"Range": "bytes=0-0"}) as response:
            total = response.headers.get("Content-Range", "").rpartition("/")[2]
            if response.status_code != requests.codes.partial_content or not total.isdigit():
                raise NoRangesError
            self.size = int(total)

    def readable(self) -> bool:
        """It is."""
        return True

    def seekable(self) -> bool:
        """It is, at the price of another request."""
        return True

    def tell(self) -> int:
        """Where the next byte comes from."""
        return self.position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """As every file's; raises ``OSError`` for a place before the beginning."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self.position, io.SEEK_END: self.size}[whence]
        if base + offset < 0:
            raise OSError("before the beginning of the file")
        self.position = base + offset
        return self.position

    def readinto(self, buffer: Buffer) -> int:
        """Fill ``buffer`` with what comes next; raises ``InfrastructureError``."""
        view = memoryview(buffer).cast("B")
        most = max(0, min(len(view), self.size - self.position))
        piece = self._some(most) if most else b""
        view[: len(piece)] = piece
        self.position += len(piece)
        return len(piece)

    def close(self) -> None:
        """Let go of the server."""
        self._drop()
        super().close()

    def _some(self, most: int) -> bytes:
        """At least one byte from where we are; a line that breaks is taken up again."""
        reason = "the answer ended early"
        for _ in range(_TRIES):
            if self._answer is None or self._at != self.position:
                self._drop()
                self._answer = self.line.get(self.url, {"Range": f"bytes={self.position}-"})
                if self._answer.status_code != requests.codes.partial_content:
                    raise InfrastructureError("the server stopped giving ranges")
                self._at = self.position
            try:
                piece = cast("bytes", self._answer.raw.read(most))
            except (OSError, HTTPError) as error:
                reason, piece = _why(error), b""
            if piece:
                self._at += len(piece)
                self.line.received += len(piece)
                return piece
            self._drop()
        raise InfrastructureError(f"{_TRIES} times: {reason}", where=_named(self.url))

    def _drop(self) -> None:
        if self._answer is not None:
            self._answer.close()
            self._answer = None


def _named(url: str) -> str:
    """The file that an address ends in: addresses can hold passwords."""
    return url.rstrip("/").rpartition("/")[2]


def _why(error: Exception) -> str:
    response = getattr(error, "response", None)
    if response is not None:
        return f"{response.status_code} {response.reason}"
    return type(error).__name__
