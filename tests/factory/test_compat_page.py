"""The page as text: safe, whole, the same each time; the schema and the install line."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from tests.factory.compatmaker import looped_table
from wheelfab.compat import CompatTable, checked_url, documents, tabulate
from wheelfab.compat.line import install_line
from wheelfab.compat.page import start, to_html
from wheelfab.errors import UsageError
from wheelfab.records import to_plain

DOCS = Path(__file__).parents[2] / "docs"
URL = "https://example.org/wheels"


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> CompatTable:
    return looped_table(tmp_path_factory.mktemp("project"), index_url=URL)


class Parts(HTMLParser):
    """Tags with their attributes, and the text of the scripts."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Keep it."""
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        """Keep what a script holds."""
        if self.get_starttag_text() and self.cdata_elem == "script":
            self.scripts.append(data)


def parts(text: str) -> Parts:
    """The page, parsed."""
    parser = Parts()
    parser.feed(text)
    parser.close()
    return parser


def test_nothing_is_fetched_and_nothing_runs_but_what_the_policy_names(table: CompatTable) -> None:
    page = parts(to_html(table))
    sources = [v for _, a in page.tags for k, v in a.items() if k in ("src", "href", "action")]
    assert sources == ["data:,"]
    assert not [k for _, a in page.tags for k in a if k == "style" or k.startswith("on")]
    policy = next(a["content"] for _, a in page.tags if a.get("http-equiv"))
    assert policy is not None
    assert policy.startswith("default-src 'none'")
    assert "unsafe" not in policy


def test_the_page_holds_the_whole_record(table: CompatTable) -> None:
    data, _ = parts(to_html(table)).scripts
    plain = json.loads(data)
    assert plain.pop("start") == to_plain(start(table))
    assert plain == to_plain(table)


def test_text_out_of_a_record_stays_text(table: CompatTable) -> None:
    evil = "</script><script>alert(1)</script><!--<b onclick='x'>&\u2028"
    first, *others = table.wheels
    entries = tuple(replace(entry, reason=evil) for entry in first.torch)
    bad = replace(table, project=evil, wheels=(replace(first, torch=entries), *others))
    page = parts(to_html(bad))
    assert [tag for tag, _ in page.tags].count("script") == 2
    assert "b" not in [tag for tag, _ in page.tags]
    assert json.loads(page.scripts[0])["wheels"][0]["torch"][0]["reason"] == evil


def test_it_opens_with_the_newest_place_that_was_seen(table: CompatTable, tmp_path: Path) -> None:
    assert (start(table).gpu, start(table).driver) == ("none", "")
    assert (start(table).torch, start(table).python) == ("2.15.0", "3.11")
    assert start(table).glibc == "2.36"
    empty = tabulate(tmp_path, (), ())
    assert start(empty).torch == empty.axes.torch[-1]
    assert parts(to_html(empty)).scripts


def test_the_same_table_gives_the_same_page(table: CompatTable) -> None:
    assert to_html(table) == to_html(table)


def test_a_placeholder_is_called_one(table: CompatTable) -> None:
    assert f"The index is served at {URL}." in to_html(table)
    without = to_html(replace(table, index_url=None))
    assert "stands for the address where the index is served: nobody said it" in without


@pytest.mark.parametrize("name", documents())
def test_the_schema_that_is_checked_in_is_the_one_generated(name: str) -> None:
    assert (DOCS / name).read_text(encoding="utf-8") == documents()[name]


def test_the_schema_names_the_keys_of_the_file(table: CompatTable) -> None:
    schema = json.loads(documents()["compat.schema.json"])
    plain = to_plain(table)
    assert sorted(schema["required"]) == sorted(plain)
    assert schema["additionalProperties"] is False
    definitions = schema["$defs"]
    assert sorted(definitions["WheelRow"]["required"]) == sorted(plain["wheels"][0])
    assert sorted(definitions["TorchEntry"]["required"]) == sorted(plain["wheels"][0]["torch"][0])
    assert definitions["Answer"]["enum"] == ["works", "no", "untested"]


def test_the_line_is_that_of_the_readme() -> None:
    readme = (DOCS.parent / "README.md").read_text(encoding="utf-8")
    lines = re.findall(r"^    ((?:uv )?pip install .*torch2\.4.*)$", readme, re.MULTILINE)
    made = [
        install_line("freewheel", "0.1.0+cu121.torch2.4", "cu121/torch2.4", "https://…", tool)
        for tool in ("pip", "uv pip")
    ]
    assert lines == made


def test_an_address_that_a_shell_would_read_is_refused() -> None:
    assert checked_url("https://example.org:8080/a_b/%20/") == "https://example.org:8080/a_b/%20"
    for bad in ("example.org", "https://x/$(id)", "https://x/ y", "https://x/'", "ftp://x/", "",
                "https://" + "x" * 3000, "https://x/;id", "https://x/\n"):  # fmt: skip
        with pytest.raises(UsageError, match="--index-url"):
            checked_url(bad)
