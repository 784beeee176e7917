"""`wheelfab atlas update` on a real server: with ranges, without, killed in between, damaged."""

from __future__ import annotations

import hashlib
import http.server
import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.factory.atlasmaker import torch_members, zipped
from wheelfab.atlas import Checked, read_atlas

from .conftest import ROOT, Wheelfab

NAME = "torch-{}-cp311-cp311-manylinux_2_28_x86_64.whl"
RELEASES = ("2.4.1", "2.5.0")


@dataclass
class Site:
    """A package index with torch wheels, and what was asked of it."""

    ranges: bool
    files: dict[str, bytes] = field(default_factory=dict)
    slow: float = 0.0
    asked: list[tuple[str, str]] = field(default_factory=list)
    url: str = ""
    page: str = ""

    def sent(self, name: str) -> int:
        """How often a file was asked for."""
        return sum(path.endswith(name) for path, _ in self.asked)


def handler(site: Site) -> type[http.server.BaseHTTPRequestHandler]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            name = self.path.rpartition("/")[2]
            wanted = self.headers.get("Range", "")
            site.asked.append((self.path, wanted))
            data, status = site.files.get(name), 200
            if self.path.endswith("/torch/"):
                data = (site.page or page(site)).encode()
            if data is None:
                self.send_error(404)
                return
            total = len(data)
            if wanted and site.ranges:
                first, _, last = wanted.removeprefix("bytes=").partition("-")
                data, status = data[int(first) : int(last) + 1 if last else None], 206
            self.send_response(status)
            if status == 206:
                self.send_header("Content-Range", f"bytes {first}-{total - 1}/{total}")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            try:
                if site.slow and int(first if status == 206 else 0) == 0 and len(data) > 1:
                    self.wfile.write(data[:200])
                    time.sleep(site.slow)
                    data = data[200:]
                self.wfile.write(data)
            except OSError:
                self.close_connection = True

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
            """Say nothing."""

    return Handler


def page(site: Site) -> str:
    rows = (
        f'<a href="../files/{name}#sha256={hashlib.sha256(data).hexdigest()}">{name}</a>'
        for name, data in site.files.items()
    )
    return f"<html>{''.join(rows)}</html>"


@contextmanager
def serving(site: Site) -> Iterator[Site]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler(site))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    site.url = f"http://127.0.0.1:{server.server_address[1]}/simple"
    try:
        yield site
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def wheels() -> dict[str, bytes]:
    return {NAME.format(release): zipped(torch_members(release)) for release in RELEASES}


@pytest.fixture
def update(tmp_path: Path) -> Callable[..., Any]:
    """Run the command; its exit code, and the steps."""

    def run(site: Site, *more: str) -> tuple[int, Any]:
        argv = ("atlas", "update", "--index", site.url, "--into", str(tmp_path / "a"), "--json")
        done = Wheelfab(ROOT).run(*argv, *more, WHEELFAB_STORE=str(tmp_path / "store"))
        return done.returncode, json.loads(done.stdout) if done.stdout else done.stderr

    return run


@pytest.mark.parametrize("ranges", [True, False])
def test_two_releases_by_ranges_or_whole(
    tmp_path: Path,
    update: Callable[..., Any],
    ranges: bool,
) -> None:
    with serving(Site(ranges=ranges, files=wheels())) as site:
        code, steps = update(site)
        assert (code, [step["origin"] for step in steps]) == (0, ["read", "read"])
        read = read_atlas(tmp_path / "a")
        assert [str(item.version) for item in read.releases] == list(RELEASES)
        expected = Checked.MEMBERS if ranges else Checked.WHEEL
        assert {item.checked for item in read.releases} == {expected}
        whole = {NAME.format(item.version): item.size for item in read.releases}
        assert whole == {name: len(data) for name, data in site.files.items()}
        first = (tmp_path / "a").read_bytes()
        read_atlas.cache_clear()
        code, steps = update(site)
        assert (code, [step["origin"] for step in steps]) == (0, ["store", "store"])
        assert [step["received"] for step in steps] == [0, 0]
        assert (tmp_path / "a").read_bytes() == first


def test_killed_it_leaves_what_was_finished(tmp_path: Path, update: Callable[..., Any]) -> None:
    site = Site(ranges=True, files=wheels())
    with serving(site):
        assert update(site, "--release", RELEASES[0])[0] == 0
        before = (tmp_path / "a").read_bytes()
        site.slow = 60.0
        argv = ("atlas", "update", "--index", site.url, "--into", str(tmp_path / "a"))
        process = Wheelfab(ROOT).start(*argv, WHEELFAB_STORE=str(tmp_path / "store"))
        deadline = time.monotonic() + 120
        while not site.sent(NAME.format(RELEASES[1])) and time.monotonic() < deadline:
            time.sleep(0.05)
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        assert (tmp_path / "a").read_bytes() == before
        site.slow, site.asked = 0.0, []
        code, steps = update(site)
    assert (code, [step["origin"] for step in steps]) == (0, ["store", "read"])
    assert site.sent(NAME.format(RELEASES[0])) == 0


def test_a_damaged_wheel_is_a_reason_and_the_others_are_read(
    tmp_path: Path, update: Callable[..., Any]
) -> None:
    files = wheels()
    files[NAME.format(RELEASES[0])] = files[NAME.format(RELEASES[0])][:-40]
    with serving(Site(ranges=True, files=files)) as site:
        code, steps = update(site)
    assert code == 7
    assert [step["origin"] for step in steps] == ["failed", "read"]
    assert "zip archive" in steps[0]["notes"][0]
    assert [str(item.version) for item in read_atlas(tmp_path / "a").releases] == [RELEASES[1]]


def test_a_wheel_that_is_not_the_indexs(update: Callable[..., Any]) -> None:
    """Without ranges the whole is read, and its SHA-256 must be the one that the page gives."""
    site = Site(ranges=False, files=wheels())
    with serving(site):
        site.page = page(site)
        name = NAME.format(RELEASES[0])
        site.files[name] = zipped({**torch_members(RELEASES[0]), "more": b""})
        code, steps = update(site)
    assert code == 7
    assert "not the index's" in steps[0]["notes"][0]


def test_an_index_without_the_release(update: Callable[..., Any]) -> None:
    with serving(Site(ranges=True, files=wheels())) as site:
        code, error = update(site, "--release", "2.4.1", "9.9.9")
        assert code == 2
        assert "no wheel of torch 9.9.9" in error
        site.files = {}
        assert update(site, "--platform", "linux-aarch64")[0] == 2
    code, error = update(site)
    assert code == 7
    assert "check the index and the network" in error
