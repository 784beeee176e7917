"""The index: pages from the bytes served, one per variant and torch pin, and every change found."""

from __future__ import annotations

import hashlib
import json
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urljoin

import pytest
from packaging.version import Version

from tests.factory.cellmaker import build_all, build_cell, cells, record_cell
from tests.factory.wheelmaker import cut, flip
from wheelfab.errors import PublishError, WheelError
from wheelfab.index import (
    Catalog,
    IndexFlawKind,
    built_wheels,
    index_flaws,
    install_line,
    verify_index,
    write_index,
)
from wheelfab.wheel import read_wheel

K = IndexFlawKind
NAME = "freewheel-0.1.0+cu121.torch2.4-cp310-abi3-manylinux_2_28_x86_64.whl"
PAGE = "cu121/torch2.4/freewheel"


class Links(HTMLParser):
    """The links of a page with their attributes, as a client collects them."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.found: list[dict[str, str]] = []
        self.feed(path.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Keep the links."""
        if tag == "a":
            self.found.append({name: value or "" for name, value in attrs})


@pytest.fixture
def root(tmp_path: Path) -> Path:
    build_all(tmp_path)
    return tmp_path


def index(root: Path) -> tuple[Path, Catalog]:
    """Write the index of all cells under ``root``."""
    folder = root / "build" / "index"
    return folder, write_index(built_wheels(root, cells()), folder)


def kinds(folder: Path) -> set[IndexFlawKind]:
    """The kinds of flaws of an index."""
    return {flaw.kind for flaw in index_flaws(folder)}


def test_one_index_per_variant_and_pin_and_one_of_all(root: Path) -> None:
    folder, catalog = index(root)
    assert catalog.pages == (
        "all",
        "cpu/torch2.10",
        "cpu/torch2.4",
        "cu118/torch2.10",
        "cu118/torch2.4",
        "cu121/torch2.10",
        "cu121/torch2.4",
    )
    assert len(Links(folder / "all" / "freewheel" / "index.html").found) == 6
    assert not (folder / "cu121" / "index.html").exists()  # no page that mixes torch pins
    for page in catalog.pages[1:]:
        assert [link["href"] for link in Links(folder / page / "index.html").found] == [
            "freewheel/"
        ]
        (link,) = Links(folder / page / "freewheel" / "index.html").found
        assert page.replace("/", ".") in unquote(link["href"])


def test_a_link_of_pep_503_and_its_metadata_of_pep_658(root: Path) -> None:
    folder, _ = index(root)
    (link,) = Links(folder / PAGE / "index.html").found
    path = root / "dist" / NAME
    sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
    assert link["href"] == (
        "../../../files/freewheel-0.1.0%2Bcu121.torch2.4-cp310-abi3-manylinux_2_28_x86_64.whl"
        f"#sha256={sha256}"
    )
    assert link["data-requires-python"] == ">=3.10"
    assert 'data-requires-python="&gt;=3.10"' in (folder / PAGE / "index.html").read_text()
    served = urljoin(f"http://x/{PAGE}/", link["href"].partition("#")[0])
    assert unquote(served) == f"http://x/files/{NAME}"
    metadata = (folder / "files" / f"{NAME}.metadata").read_bytes()
    assert metadata == read_wheel(path).metadata
    assert link["data-core-metadata"] == f"sha256={hashlib.sha256(metadata).hexdigest()}"


def test_the_json_page_of_pep_691(root: Path) -> None:
    folder, _ = index(root)
    page = json.loads((folder / PAGE / "index.json").read_text())
    assert page["meta"] == {"api-version": "1.1"}
    assert (page["name"], page["versions"]) == ("freewheel", ["0.1.0+cu121.torch2.4"])
    (file,) = page["files"]
    path = folder / "files" / NAME
    assert file == {
        "filename": NAME,
        "url": f"../../../files/{NAME.replace('+', '%2B')}",
        "hashes": {"sha256": hashlib.sha256(path.read_bytes()).hexdigest()},
        "size": path.stat().st_size,
        "requires-python": ">=3.10",
        "core-metadata": {
            "sha256": hashlib.sha256(
                (folder / "files" / f"{NAME}.metadata").read_bytes()
            ).hexdigest()
        },
    }
    assert json.loads((folder / "cu121/torch2.4/index.json").read_text())["projects"] == [
        {"name": "freewheel"}
    ]


def test_names_are_normalised(tmp_path: Path) -> None:
    build_cell(tmp_path, "cpu-torch2.4", name="Free_Wheel.X")
    catalog = write_index(built_wheels(tmp_path, cells(["cpu-torch2.4"])), tmp_path / "index")
    assert [item.project for item in catalog.files] == ["free-wheel-x"]
    page = tmp_path / "index/cpu/torch2.4/free-wheel-x/index.html"
    assert "Free_Wheel.X-0.1.0%2Bcpu.torch2.4" in page.read_text()
    assert verify_index(tmp_path / "index") == catalog


def test_local_versions_sort_by_number(root: Path) -> None:
    _, catalog = index(root)
    versions = [item.version for item in catalog.files]
    assert versions == sorted(versions, key=Version)
    assert versions.index("0.1.0+cu121.torch2.10") == versions.index("0.1.0+cu121.torch2.4") + 1


def test_the_same_wheels_give_the_same_bytes(root: Path) -> None:
    folder, _ = index(root)
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    index(root)
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before
    assert [path.name for path in folder.parent.glob(".*")] == []


def test_the_front_page_shows_the_line_that_installs(root: Path) -> None:
    folder, catalog = index(root)
    item = next(item for item in catalog.files if item.file == NAME)
    line = install_line(item, "https://wheels.example/fw/")
    assert line == (
        'pip install "freewheel==0.1.0+cu121.torch2.4"'
        " --extra-index-url https://wheels.example/fw/cu121/torch2.4/"
    )
    assert '"freewheel==0.1.0+cu121.torch2.4"' in Texts(folder / "index.html").text


class Texts(HTMLParser):
    """The text of a page."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.text = ""
        self.feed(path.read_text())

    def handle_data(self, data: str) -> None:
        """Keep the text."""
        self.text += data


def test_b55_a_byte_changed_after_the_pages_were_made(root: Path) -> None:
    folder, _ = index(root)
    flip(folder / "files" / NAME)
    assert kinds(folder) == {K.FILE, K.LINK}
    with pytest.raises(PublishError, match="was published with"):
        verify_index(folder)


def test_b55_a_line_appended_to_a_metadata_file(root: Path) -> None:
    folder, _ = index(root)
    with (folder / "files" / f"{NAME}.metadata").open("a") as file:
        file.write("X-Added: 1\n")
    assert kinds(folder) == {K.METADATA, K.LINK}


def test_b55_a_metadata_hash_taken_for_the_files(root: Path) -> None:
    folder, catalog = index(root)
    item = next(item for item in catalog.files if item.file == NAME)
    page = folder / PAGE / "index.html"
    page.write_text(page.read_text().replace(item.sha256, item.metadata_sha256))
    assert kinds(folder) == {K.LINK}


@pytest.mark.parametrize(
    ("path", "old", "new", "expected"),
    [
        (f"{PAGE}/index.html", "%2B", "+", {K.LINK}),
        (f"{PAGE}/index.html", "../../../files", "https://elsewhere.example", {K.LINK}),
        (f"{PAGE}/index.html", "../../../files", "../../../../files", {K.LINK}),
        (f"{PAGE}/index.html", "&gt;=3.10", "&gt;=3.9", {K.LINK}),
        (f"{PAGE}/index.html", "<a ", "<b ", {K.PAGE}),
        (f"{PAGE}/index.json", "%2Bcu121.torch2.4", "%2Bcu121.torch2.10", {K.LINK}),
        (f"{PAGE}/index.json", "sha256", "md5", {K.PAGE}),
        (f"{PAGE}/index.json", "{", "", {K.PAGE}),
        ("cu121/torch2.4/index.html", "</body>", '<a href="torch/">torch</a>', {K.PAGE}),
        ("cu121/torch2.4/index.json", "freewheel", "torch", {K.PAGE}),
        ("catalog.json", '"size"', '"length"', {K.CATALOG}),
        ("catalog.json", '"page": "cu121/torch2.4"', '"page": "../x"', {K.CATALOG}),
        ("catalog.json", '"requires_python": ">=3.10"', '"requires_python": null',
         {K.CATALOG, K.LINK}),
    ],
)  # fmt: skip
def test_a_changed_page_is_found(
    root: Path, path: str, old: str, new: str, expected: set[IndexFlawKind]
) -> None:
    folder, _ = index(root)
    page = folder / path
    assert old in page.read_text()
    page.write_text(page.read_text().replace(old, new))
    assert kinds(folder) == expected


def test_missing_and_stray_files_are_found(root: Path) -> None:
    folder, _ = index(root)
    (folder / "files" / f"{NAME}.metadata").unlink()
    assert K.ABSENT in kinds(folder)
    folder, _ = index(root)
    (folder / "files" / NAME).unlink()
    assert K.ABSENT in kinds(folder)
    folder, _ = index(root)
    (folder / "cu121" / "index.html").write_text("")
    assert kinds(folder) == {K.STRAY}
    (folder / "cu121" / "index.html").unlink()
    (folder / PAGE / "index.html").unlink()
    assert kinds(folder) == {K.ABSENT, K.PAGE}


def test_row_19_twins_are_built_beside_and_no_index_takes_one(root: Path) -> None:
    before = built_wheels(root, cells())
    build_all(root, [f"{cell.id}-debug" for cell in cells()])
    assert built_wheels(root, cells()) == before
    twins = built_wheels(root, cells(["cu121-torch2.4-debug"]))
    assert [item.wheel.path.parent for item in twins if item.wheel] == [root / "dist" / "debug"]
    with pytest.raises(PublishError, match=r"cu121-torch2\.4-debug: freewheel-\S+ is a debug twin"):
        write_index((*before, *twins), root / "index")
    assert not (root / "index").exists()


def test_a_wheel_that_is_not_sound_is_not_listed(root: Path) -> None:
    wheels = built_wheels(root, cells())
    cut(root / "dist" / NAME)
    with pytest.raises(WheelError, match="cut off after"):
        write_index(wheels, root / "index")
    assert not (root / "index").exists()


def test_a_partial_build_gives_a_partial_index_and_says_so(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record_cell(root, "cu118-torch2.4", "failed", reason="x.cu(3): error")
    _, catalog = index(root)
    assert "cu118/torch2.4" not in catalog.pages
    assert "not in the index: cu118-torch2.4: failed (x.cu(3): error)" in capsys.readouterr().err


def test_nothing_to_list_and_a_folder_that_is_no_index(root: Path, tmp_path: Path) -> None:
    with pytest.raises(PublishError, match="no wheel to list"):
        write_index((), tmp_path / "new")
    with pytest.raises(PublishError, match="exists and is not an index"):
        write_index(built_wheels(root, cells()), root / "dist")
    assert len(list((root / "dist").iterdir())) == 6
