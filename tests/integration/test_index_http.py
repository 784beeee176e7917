"""Installing over HTTP with current pip and uv: the variant asked for, and torch left alone."""

from __future__ import annotations

import os
import shlex
import sys
import threading
import venv
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import distributions
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.factory.cellmaker import build_all, cells
from tests.factory.wheelmaker import flip, make_wheel
from wheelfab.index import Catalog, CellWheel, built_wheels, install_line, publish, write_index
from wheelfab.loops.cell import built_wheel
from wheelfab.matrix import load_matrix
from wheelfab.run import Completed, run
from wheelfab.variant import expand
from wheelfab.wheel import wheel_flaws

from .conftest import ROOT

ANY = "py3-none-any"
JSON = "application/vnd.pypi.simple.v1+json"
TOOLS = [
    pytest.param(
        tool,
        marks=pytest.mark.skipif(
            find_spec(tool) is None, reason=f"{tool} is not installed beside this Python"
        ),
    )
    for tool in ("pip", "uv")
]
TORCH_24, TORCH_213 = "2.4.1", "2.13.0"


class Handler(SimpleHTTPRequestHandler):
    """A static server; with ``api`` it maps content types as wheelfab.index says a server may."""

    api = False
    served: list[str]

    def send_head(self):  # type: ignore[no-untyped-def]  # noqa: ANN201
        """Serve ``index.json`` for a folder where the client prefers PEP 691."""
        page = Path(self.translate_path(self.path)) / "index.json"
        if self.api and JSON in self.headers.get("Accept", "") and page.is_file():
            self.path += "index.json"
        self.served.append(self.path)
        return super().send_head()

    def guess_type(self, path: str | os.PathLike[str]) -> str:
        """The content type of PEP 691 for its pages."""
        return JSON if str(path).endswith("index.json") else super().guess_type(path)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@dataclass(frozen=True, kw_only=True)
class Site:
    """A server of our index, of a second index with a higher plain version, and of torch alone."""

    root: Path
    url: str
    catalog: Catalog
    served: list[str] = field(default_factory=list)

    def line(self, cell: str) -> tuple[str, ...]:
        """The documented line for ``cell``, as arguments after ``pip install``."""
        item = next(item for item in self.catalog.files if item.cell == cell)
        pip, install, *rest = shlex.split(install_line(item, f"{self.url}/ours"))
        assert (pip, install) == ("pip", "install")
        return tuple(rest)


def simple(root: Path, name: str, projects: dict[str, list[Path]]) -> None:
    """A plain PEP 503 index ``name`` of wheels that lie in it."""
    for project, wheels in projects.items():
        page = root / name / project / "index.html"
        page.parent.mkdir(parents=True)
        links = "".join(f'<a href="{wheel.name}">{wheel.name}</a>' for wheel in wheels)
        page.write_text(f"<!DOCTYPE html><html><body>{links}</body></html>")
        for wheel in wheels:
            (page.parent / wheel.name).write_bytes(wheel.read_bytes())


def fake_torch(folder: Path, version: str) -> Path:
    """A distribution that is called torch."""
    return make_wheel(
        folder, name="torch", version=version, tag=ANY, requires_dist=(), files={"torch/x": b""}
    )


@pytest.fixture
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Site]:
    """The server; of HTML pages, or of JSON where a test asks for them."""
    api = getattr(request, "param", "html") == "json"
    build_all(tmp_path, tag=ANY)
    with served_site(tmp_path, built_wheels(tmp_path, cells()), api=api) as made:
        yield made
    ours = [path for path in made.served if path.startswith("/ours/") and "/freewheel/" in path]
    assert all(path.endswith("index.json") == api for path in ours)


@contextmanager
def served_site(tmp_path: Path, wheels: Sequence[CellWheel], *, api: bool) -> Iterator[Site]:
    """A server of the index of ``wheels``, and of the two others beside it."""
    root = tmp_path / "www"
    catalog = write_index(wheels, root / "ours")
    plain = make_wheel(tmp_path / "made", version="9.9", tag=ANY, requires_dist=("torch",))
    torches = [fake_torch(tmp_path / "made", version) for version in (TORCH_24, TORCH_213)]
    simple(root, "second", {"freewheel": [plain], "torch": torches})
    simple(root, "torch-only", {"torch": torches})
    served: list[str] = []
    kind = type("_", (Handler,), {"api": api, "served": served})
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(kind, directory=str(root)))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    url = f"http://127.0.0.1:{server.server_address[1]}"
    yield Site(root=root, url=url, catalog=catalog, served=served)
    server.shutdown()
    server.server_close()
    thread.join()


@dataclass(frozen=True, kw_only=True)
class Environment:
    """A virtual environment without pip, and the tool that installs into it."""

    folder: Path
    tool: str

    @property
    def site_packages(self) -> Path:
        """Where packages are installed."""
        (found,) = self.folder.glob("lib/python*/site-packages")
        return found

    @property
    def installed(self) -> dict[str, str]:
        """The versions of what is installed."""
        found = distributions(path=[str(self.site_packages)])
        return {one.metadata["Name"]: one.version for one in found}

    def install(self, *arguments: str) -> Completed:
        """Install as a user would, with nothing of this machine's configuration."""
        env = {"PATH": os.defpath, "HOME": str(self.folder), "PIP_CONFIG_FILE": os.devnull}
        return run([*self._command(), *arguments], env=env, timeout=120)

    def _command(self) -> Sequence[str]:
        python = str(self.folder / "bin" / "python")
        if self.tool == "uv":
            flags = ("--no-config", "--no-cache", "--no-python-downloads", "--python", python)
            return (sys.executable, "-m", "uv", "pip", "install", *flags)
        flags = ("--python", python, "--isolated", "--no-cache-dir", "--disable-pip-version-check")
        return (sys.executable, "-m", "pip", *flags, "install")


@pytest.fixture(params=TOOLS)
def clean(request: pytest.FixtureRequest, tmp_path: Path, site: Site) -> Environment:
    """A clean environment with torch 2.4.1, for either tool."""
    return environment(tmp_path / "venv", request.param, site, TORCH_24)


def environment(folder: Path, tool: str, site: Site, torch: str) -> Environment:
    """A new environment in ``folder`` with that torch."""
    venv.create(folder, with_pip=False)
    made = Environment(folder=folder, tool=tool)
    with zipfile.ZipFile(site.root / "torch-only" / "torch" / f"torch-{torch}-{ANY}.whl") as wheel:
        wheel.extractall(made.site_packages)
    assert made.installed == {"torch": torch}
    return made


EITHER_PAGE = pytest.mark.parametrize("site", ["html", "json"], indirect=True)


@EITHER_PAGE
def test_the_documented_line_beside_an_index_with_a_higher_version(
    clean: Environment, site: Site
) -> None:
    done = clean.install(*site.line("cu121-torch2.4"), "--index-url", f"{site.url}/second/")
    assert done.ok, done.stderr
    assert clean.installed == {"freewheel": "0.1.0+cu121.torch2.4", "torch": TORCH_24}
    assert [path for path in site.served if path.endswith(".whl.metadata")]  # PEP 658 is used


def test_the_documented_line_gives_each_variant_and_the_stable_pin(
    clean: Environment, site: Site, tmp_path: Path
) -> None:
    second = ("--index-url", f"{site.url}/second/")
    done = clean.install(*site.line("cu118-torch2.4"), *second)
    assert done.ok, done.stderr
    assert clean.installed == {"freewheel": "0.1.0+cu118.torch2.4", "torch": TORCH_24}
    newer = environment(tmp_path / "newer", clean.tool, site, TORCH_213)
    done = newer.install(*site.line("cpu-torch2.10"), *second)
    assert done.ok, done.stderr
    assert newer.installed == {"freewheel": "0.1.0+cpu.torch2.10", "torch": TORCH_213}


def test_another_order_of_indexes_gives_the_same_or_is_refused(
    clean: Environment, site: Site
) -> None:
    """Extra indexes are looked at by uv in their order, up to the first that has the project."""
    second = ("--extra-index-url", f"{site.url}/second/")
    done = clean.install(*second, *site.line("cu121-torch2.4"))
    right = {"freewheel": "0.1.0+cu121.torch2.4", "torch": TORCH_24}
    assert clean.installed == (right if done.ok else {"torch": TORCH_24})
    assert done.ok or clean.tool == "uv"


def test_control_without_a_version_the_second_index_wins(clean: Environment, site: Site) -> None:
    indexes = ("--index-url", f"{site.url}/ours/cu121/torch2.4/")
    done = clean.install("freewheel", *indexes, "--extra-index-url", f"{site.url}/second/")
    assert done.ok, done.stderr
    assert clean.installed["freewheel"] == "9.9"


def test_control_both_torch_pins_in_one_index_replace_torch(clean: Environment, site: Site) -> None:
    torch = ("--extra-index-url", f"{site.url}/torch-only/")
    done = clean.install("freewheel", "--index-url", f"{site.url}/ours/all/", *torch)
    assert done.ok, done.stderr
    assert clean.installed == {"freewheel": "0.1.0+cu121.torch2.10", "torch": TORCH_213}


def test_the_wrong_torch_is_refused_rather_than_replaced(clean: Environment, site: Site) -> None:
    """With our index alone there is no torch to fetch: a wheel of another pin cannot get in."""
    done = clean.install("freewheel", "--index-url", f"{site.url}/ours/cu121/torch2.10/")
    assert not done.ok
    assert clean.installed == {"torch": TORCH_24}


@EITHER_PAGE
def test_a_byte_changed_after_the_page_was_made_is_refused(clean: Environment, site: Site) -> None:
    wheel = next(item.file for item in site.catalog.files if item.cell == "cu121-torch2.4")
    path = site.root / "ours" / "files" / wheel
    flip(path, offset=10)  # the time of the first member: the archive stays sound
    assert wheel_flaws(path) == ()
    done = clean.install(*site.line("cu121-torch2.4"), "--index-url", f"{site.url}/torch-only/")
    assert not done.ok
    assert "hash" in done.stderr.lower()
    assert clean.installed == {"torch": TORCH_24}


def test_our_index_alone_served_through_the_link_needs_no_version(
    clean: Environment, site: Site, tmp_path: Path
) -> None:
    publish(built_wheels(tmp_path, cells()), site.root / "public", expected=cells())
    page = f"{site.url}/public/current/cu121/torch2.4/"
    done = clean.install("freewheel", "--index-url", page)
    assert done.ok, done.stderr
    assert clean.installed == {"freewheel": "0.1.0+cu121.torch2.4", "torch": TORCH_24}


@pytest.mark.parametrize("tool", TOOLS)
def test_the_wheel_that_was_built_comes_by_the_documented_line(tool: str, tmp_path: Path) -> None:
    """The real wheels of ``dist/``, with libraries and metadata; torch is a stand-in of a name."""
    built = expand(load_matrix(ROOT / "matrix.toml")).cells
    with served_site(tmp_path, built_wheels(ROOT, built), api=False) as site:
        clean = environment(tmp_path / "venv", tool, site, TORCH_24)
        line = site.line("cu121-torch2.4")
        done = clean.install(*line, "--index-url", f"{site.url}/second/")
    assert done.ok, done.stderr
    assert line[0] == "freewheel==0.1.0+cu121.torch2.4"
    assert clean.installed == {"freewheel": "0.1.0+cu121.torch2.4", "torch": TORCH_24}
    (cell,) = (cell for cell in built if cell.id == "cu121-torch2.4")
    with zipfile.ZipFile(built_wheel(ROOT, cell).path) as wheel:
        for name in ("_kernels.so", "_torch.so", "_C.abi3.so", "_probe"):
            installed = clean.site_packages / "freewheel" / name
            assert installed.read_bytes() == wheel.read(f"freewheel/{name}")
            assert os.access(installed, os.X_OK) or name != "_probe"
    code = "import freewheel, freewheel._C as c; print(freewheel.__version__, c.kernels()['archs'])"
    said = run([str(clean.folder / "bin" / "python"), "-I", "-c", code], env={}, timeout=60)
    assert said.stdout.strip() == "0.1.0+cu121.torch2.4 8.0 8.6 8.9 9.0 9.0+PTX"
