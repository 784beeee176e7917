"""An index is verified where it is served: all of it is downloaded, and every change is named."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.factory.cellmaker import build_all, cells
from tests.factory.wheelmaker import flip
from wheelfab.__main__ import main
from wheelfab.errors import InfrastructureError, PublishError, UsageError
from wheelfab.index import Catalog, built_wheels, verify_served, write_index
from wheelfab.toolchain import pip

CELLS = ("cpu-torch2.4", "cu121-torch2.4")
NAME = "freewheel-0.1.0+cu121.torch2.4-cp310-abi3-manylinux_2_28_x86_64.whl"
PAGE = "cu121/torch2.4/freewheel"


class Handler(SimpleHTTPRequestHandler):
    """A static server that remembers what was asked of it."""

    asked: list[str]

    def do_GET(self) -> None:
        """As the base class does."""
        self.asked.append(self.path)
        super().do_GET()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@dataclass(frozen=True, kw_only=True)
class Site:
    """An index folder, where it is served, and what was asked for there."""

    folder: Path
    url: str
    catalog: Catalog
    asked: list[str] = field(default_factory=list)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """The index of two cells, on a server of this machine."""
    monkeypatch.setattr(pip, "transport_settings", dict)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    build_all(tmp_path, CELLS)
    folder, asked = tmp_path / "www" / "wheels", list[str]()
    catalog = write_index(built_wheels(tmp_path, cells(CELLS)), folder)
    handler = type("Here", (Handler,), {"asked": asked})
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(handler, directory=str(folder.parent)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    url = f"http://127.0.0.1:{server.server_address[1]}/wheels"
    yield Site(folder=folder, url=url, catalog=catalog, asked=asked)
    server.shutdown()
    thread.join()
    server.server_close()


def lines(site: Site) -> list[str]:
    """What is said of the index as it is served now, a line a flaw."""
    with pytest.raises(PublishError) as caught:
        verify_served(site.url)
    assert caught.value.where == site.url
    first, *flaws = caught.value.what.splitlines()
    assert first == "what is served is not sound:"
    return [line.strip() for line in flaws]


def test_b55_what_is_served_is_downloaded_and_compared(site: Site) -> None:
    assert verify_served(site.url, published=site.catalog) == site.catalog
    files = {path.relative_to(site.folder).as_posix() for path in site.folder.rglob("*.*")}
    files = {file for file in files if (site.folder / file).is_file()}
    served = [path.removeprefix("/wheels/").replace("%2B", "+") for path in site.asked]
    assert sorted(served) == sorted(file.removesuffix("index.html") for file in files)


def test_b55_a_byte_changed_on_the_server_is_named(site: Site) -> None:
    flip(site.folder / "files" / NAME, 100)
    (item,) = (item for item in site.catalog.files if item.file == NAME)
    (first, *links) = lines(site)
    assert first.startswith(f"{NAME}: has SHA-256 ")
    assert first.endswith(f", was published with {item.sha256}")
    assert {line.partition(": ")[0] for line in links} == {
        f"{folder}/{page}"
        for folder in ("all/freewheel", PAGE)
        for page in ("index.html", "index.json")
    }


def test_what_is_missing_or_too_long_is_named_with_the_reason(site: Site) -> None:
    (site.folder / "files" / f"{NAME}.metadata").unlink()
    (other,) = (item for item in site.catalog.files if item.file != NAME)
    with (site.folder / "files" / other.file).open("ab") as file:
        file.write(b"x")
    found = lines(site)
    assert f"{NAME}.metadata: is not served: 404 File not found" in found
    assert f"{other.file}: is not served: over {other.size:,} bytes long" in found


def test_an_old_page_is_no_page_of_these_files(site: Site) -> None:
    page = site.folder / PAGE / "index.html"
    (item,) = (item for item in site.catalog.files if item.file == NAME)
    page.write_text(page.read_text().replace(item.sha256, "0" * 64))
    assert lines(site) == [f"{PAGE}/index.html: {NAME}: the hash is not that of the file"]


def test_another_index_than_the_one_published_is_named(site: Site, tmp_path: Path) -> None:
    root = tmp_path / "newer"
    build_all(root, (*CELLS, "cu118-torch2.4"))
    names = (*CELLS, "cu118-torch2.4")
    newer = write_index(built_wheels(root, cells(names)), root / "index")
    with pytest.raises(PublishError, match=r"catalog\.json: is not what was published: "):
        verify_served(site.url, published=newer)


def test_where_no_index_is_nothing_was_verified(site: Site) -> None:
    with pytest.raises(InfrastructureError) as caught:
        verify_served(f"{site.url}/nowhere")
    assert str(caught.value).startswith(f"{site.url}/nowhere/catalog.json: 404 File not found; ")
    (site.folder / "catalog.json").write_text('{"schema": 1, "files": []}')
    with pytest.raises(PublishError, match="lists no wheel"):
        verify_served(site.url)


def test_the_command_needs_no_matrix(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--matrix", "nowhere.toml", "publish", "--verify", f"{site.url}/"]) == 0
    assert capsys.readouterr().out == f"2 wheels at {site.url}, each as its pages promise\n"
    flip(site.folder / "files" / NAME, 100)
    assert main(["publish", "--verify", site.url]) == PublishError.exit_code
    assert main(["publish"]) == UsageError.exit_code
    assert capsys.readouterr().err.endswith(
        "error: nothing to do; name a folder, or --verify URL\n"
    )
