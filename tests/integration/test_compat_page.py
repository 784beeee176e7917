"""The compatibility page in a real browser, on the wheels in dist/ and what was seen of them."""

from __future__ import annotations

import dataclasses
import itertools
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from packaging.specifiers import SpecifierSet
from playwright.sync_api import Browser, Page

from tests.factory.compatmaker import check_row
from tests.integration.browser import chromium, opened, served
from tests.integration.conftest import ROOT, Wheelfab
from wheelfab.atlas import Verdict as Loads
from wheelfab.atlas import read_atlas
from wheelfab.atlas.wheels import ask
from wheelfab.compat import CompatTable, Picked, ask_both, offer, tabulate, verdict
from wheelfab.compat.record import Answer, By, WheelRow
from wheelfab.compat.verdict import Verdict
from wheelfab.matrix import load_matrix
from wheelfab.records import read_json, to_plain
from wheelfab.variant import expand
from wheelfab.wheel import read_wheel

URL = "https://example.org/wheels"
PHONE = {"viewport": {"width": 320, "height": 640}, "has_touch": True, "is_mobile": True}
# Below and above the floor of glibc; at each floor of a driver, below all, and none at all.
GLIBCS = ("2.17", "2.36")
DRIVERS = ("", "470.57.02", "525.60.13", "530.30.02", "580.65.06")


@pytest.fixture(scope="module")
def folder(wheelfab: Wheelfab) -> Path:
    """The folder of the page, written by the command that people type."""
    written = wheelfab.json("compat", "--index-url", URL)
    assert written["wheels"], "dist/ holds no wheel: run `wheelfab build` first"
    return ROOT / "build" / "compat"


@pytest.fixture(scope="module")
def table(folder: Path) -> CompatTable:
    """The same table as records; the file must hold exactly it."""
    matrix = load_matrix(ROOT / "matrix.toml")
    expansion = expand(matrix)
    sources = ask_both(read_atlas(), matrix.project)
    made = tabulate(ROOT, expansion.cells, expansion.excluded, index_url=URL, sources=sources)
    assert read_json(folder / "compat.json") == to_plain(made)
    return made


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


@pytest.fixture(scope="module")
def address(folder: Path) -> Iterator[str]:
    with served(folder) as url:
        yield f"{url}/compat.html"


def good(row: WheelRow) -> str:
    """A torch release that the wheel works with, or the newest that it allows."""
    works = [item.torch for item in row.torch if item.answer is Answer.WORKS]
    allowed = [item.torch for item in row.torch if item.answer is not Answer.NO]
    return (works or allowed)[-1]


def with_code(table: CompatTable) -> WheelRow:
    """The row of the CUDA wheel that has most to say."""
    rows = [row for row in table.wheels if row.cuda]
    return max(rows, key=lambda row: sum(item.answer is Answer.WORKS for item in row.torch))


Axes = dict[str, tuple[str, ...]]


def products(table: CompatTable) -> tuple[Axes, Axes, Axes]:
    """The whole cross product, and along its edges every glibc and every driver as well."""
    known = table.axes
    torch, python = (*known.torch, "9.9.9"), (*known.python, "2.7")
    gpu = (*table.capabilities, "none", "99.0")
    driver = (*(item.driver for item in known.driver), "570.26", "390.157", "no driver", "")
    every: Axes = {"torch": torch, "python": python, "gpu": gpu, "driver": DRIVERS}
    return (
        every | {"glibc": GLIBCS},
        every | {"glibc": (*known.glibc, "musl"), "gpu": ("none",), "driver": ("",)},
        every | {"glibc": ("2.36",), "python": ("3.11",), "driver": driver},
    )


def machines(axes: Axes) -> Iterator[dict[str, str]]:
    """Every combination, as the script in the page makes them."""
    names = ("torch", "python", "glibc", "gpu", "driver")
    for values in itertools.product(*(axes[name] for name in names)):
        yield dict(zip(names, values, strict=True))


def plain(found: Verdict) -> str:
    """A verdict as the script's JSON has it."""
    return json.dumps(
        {
            "answer": found.answer,
            "by": found.by,
            "reasons": [{"axis": item.axis, "text": item.text} for item in found.reasons],
            "computed": found.computed,
        },
        separators=(",", ":"),
        ensure_ascii=False,
    )


IN_THE_PAGE = """([cell, axes]) => {
  const row = table.wheels.find((item) => item.cell === cell);
  const texts = new Map();
  const codes = [];
  for (const torch of axes.torch) for (const python of axes.python) for (const glibc of axes.glibc)
    for (const gpu of axes.gpu) for (const driver of axes.driver) {
      const text = JSON.stringify(verdict(row, torch, python, glibc, gpu, driver));
      if (!texts.has(text)) texts.set(text, texts.size);
      codes.push(texts.get(text));
    }
  return [[...texts.keys()], codes.join()];
}"""


def test_the_script_gives_the_verdicts_of_the_record_over_the_whole_cross_product(
    browser: Browser, address: str, table: CompatTable
) -> None:
    with opened(browser, address) as (page, _):
        for row, axes in itertools.product(table.wheels, products(table)):
            texts: dict[Verdict, int] = {}
            codes = [
                texts.setdefault(verdict(row, **machine), len(texts)) for machine in machines(axes)
            ]
            theirs = page.evaluate(IN_THE_PAGE, [row.cell, axes])
            assert theirs[0] == [plain(item) for item in texts]
            assert theirs[1] == ",".join(map(str, codes))


def test_the_script_offers_what_the_record_offers(
    browser: Browser, address: str, table: CompatTable
) -> None:
    choice = random.Random(4)
    axes = table.axes
    picks = [
        Picked(
            torch=choice.choice(axes.torch),
            python=choice.choice(axes.python),
            glibc=choice.choice(axes.glibc),
            gpu=choice.choice([*table.capabilities, "none"]),
            driver=choice.choice([*DRIVERS, *(item.driver for item in axes.driver)]),
        )
        for _ in range(25)
    ]
    with opened(browser, address) as (page, _):
        theirs = page.evaluate(
            "(picks) => picks.map((picked) => offer(table, picked))",
            [dataclasses.asdict(item) for item in picks],
        )
    ours = [json.loads(json.dumps(to_plain(offer(table, item)))) for item in picks]
    for picked, one, other in zip(picks, ours, theirs, strict=True):
        assert one == other, picked


def test_the_line_of_each_wheel_is_given_where_it_works(
    browser: Browser, address: str, table: CompatTable
) -> None:
    """For every wheel one machine, asked as a person does; the line is that wheel's own."""
    with opened(browser, address) as (page, heard):
        for row in table.wheels:
            page.select_option("#torch", good(row))
            page.select_option("#gpu", "H100" if row.cuda else "none")
            if row.cuda:
                page.fill("#driver", "470.57.02" if row.cuda.startswith("11") else "580.65.06")
            picked = page.evaluate("picked()")
            given = offer(table, Picked(**picked))
            line = page.locator("#line")
            if given.verdict is None or given.verdict.answer is Answer.NO:
                assert line.count() == 0
                assert "No wheel for this machine" in page.inner_text("#answer")
                continue
            chosen = next(item for item in table.wheels if item.cell == given.cell)
            assert line.inner_text() == chosen.install
            assert f"--extra-index-url {URL}/{chosen.page}/" in chosen.install
            assert f"=={chosen.version}" in chosen.install
        assert heard.complaints == []


def test_an_old_gpu_is_refused_with_the_reason_and_the_nearest(
    browser: Browser, address: str, table: CompatTable
) -> None:
    row = with_code(table)
    with opened(browser, address) as (page, _):
        page.select_option("#torch", good(row))
        page.select_option("#gpu", "Tesla T4")
        page.fill("#driver", "580.65.06")
        text = page.inner_text("#answer")
        assert "No wheel for this machine" in text
        assert "no image for compute capability 7.5, only 8.0, 8.6, 8.9, 9.0, 9.0+PTX" in text
        page.select_option("#gpu", "H100")
        page.fill("#driver", "390.157")
        text = page.inner_text("#answer")
        assert "needs driver" in text
        page.get_by_role("button", name="driver ").first.click()
        assert page.input_value("#driver") != "390.157"
        assert "No wheel" not in page.inner_text("#answer")


def test_with_the_keyboard_alone(browser: Browser, address: str, table: CompatTable) -> None:
    row = with_code(table)
    torch = good(row)
    with opened(browser, address) as (page, _):
        page.keyboard.press("Tab")
        assert focused(page) == "python"
        page.keyboard.type("3.11")
        page.keyboard.press("Tab")
        page.keyboard.type(torch)
        page.keyboard.press("Tab")
        page.keyboard.type("H100")
        page.keyboard.press("Tab")
        assert focused(page) == "driver"
        page.keyboard.type("580.65.06")
        outline = "getComputedStyle(document.activeElement).outlineStyle"
        assert page.evaluate(outline) == "solid"
        assert page.evaluate("picked()") == {
            "torch": torch, "python": "3.11", "gpu": "9.0", "driver": "580.65.06",
            "glibc": page.input_value("#glibc"),
        }  # fmt: skip
        assert page.inner_text("#line").startswith("pip install")
        page.keyboard.press("Tab")
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.textContent") == "Copy"
        page.keyboard.press("Enter")
        page.wait_for_function("document.activeElement.textContent !== 'Copy'")
        page.keyboard.press("Tab")
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.tagName") == "SUMMARY"
        page.keyboard.press("Enter")
        assert page.evaluate("document.querySelector('details').open")


def focused(page: Page) -> str:
    """The identifier of what has the focus."""
    return str(page.evaluate("document.activeElement.id"))


@pytest.mark.parametrize(
    "context",
    [{}, {"color_scheme": "dark"}, PHONE, {**PHONE, "color_scheme": "dark"}],
    ids=["light", "dark", "phone", "dark phone"],
)
@pytest.mark.parametrize("gpu", ["none", "H100", "Tesla T4"])
def test_it_is_accessible_and_fits(
    browser: Browser, address: str, context: dict[str, Any], gpu: str
) -> None:
    """By axe: names of fields, contrast, structure; nothing is wider than the screen."""
    with opened(browser, address, **context) as (page, heard):
        page.select_option("#gpu", gpu)
        page.evaluate(
            "document.querySelectorAll('details').forEach((item) => { item.open = true })"
        )
        found = Axe().run(page)
        assert found.violations_count == 0, found.generate_report()
        widths = "[document.documentElement.scrollWidth, document.documentElement.clientWidth]"
        assert page.evaluate(widths)[0] <= page.evaluate(widths)[1]
        background = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (background == "rgb(255, 255, 255)") is ("color_scheme" not in context)
        assert heard.complaints == []
        assert heard.requests == [address]


def test_its_policy_lets_nothing_else_run(browser: Browser, address: str) -> None:
    with opened(browser, address) as (page, heard):
        page.evaluate(
            """() => {
              const made = document.createElement("script");
              made.textContent = "window.ran = true";
              document.body.append(made);
              new Image().src = "http://127.0.0.1:9/x.png";
            }"""
        )
        assert page.evaluate("window.ran") is None
        assert heard.answers == [address]
        assert len(heard.complaints) == 2
        assert all("Content Security Policy" in words for words in heard.complaints)


def test_what_is_picked_stands_in_the_address_and_nonsense_there_is_harmless(
    browser: Browser, address: str
) -> None:
    with opened(browser, address) as (page, _):
        page.select_option("#gpu", "B200")
        page.fill("#driver", "570.26")
        shared, wanted = page.evaluate("location.href"), page.inner_text("#answer")
    with opened(browser, shared) as (page, _):
        assert page.inner_text("#answer") == wanted
    evil = "#torch=<img src=x>&gpu=__proto__&driver=%3Cscript%3E&constructor=1&python="
    with opened(browser, address + evil) as (page, heard):
        assert page.input_value("#gpu") == "none"
        assert page.locator("img").count() == 0
        assert heard.complaints == []


def test_without_scripts_the_lines_are_there(
    browser: Browser, address: str, table: CompatTable
) -> None:
    with opened(browser, address, java_script_enabled=False) as (page, _):
        text = page.text_content("body") or ""
    for row in table.wheels:
        assert row.install in text
    assert "Without scripts, take the line" in text


def test_row_42_the_table_is_what_was_tested_then_what_the_atlas_says(table: CompatTable) -> None:
    atlas = read_atlas()
    for row in table.wheels:
        answers = ask(atlas, ROOT / "dist" / row.file).answers
        said = {str(item.release.version): item.verdict for item in answers}
        assert len(said) >= 20
        for entry in row.torch:
            allowed = SpecifierSet(row.requires_torch).contains(entry.torch)
            assert (entry.by is By.METADATA) is not allowed
            if entry.by is By.LOOP or not allowed:
                continue
            wanted = {
                Loads.LOADS: Answer.WORKS,
                Loads.FAILS: Answer.NO,
                Loads.UNKNOWN: Answer.UNTESTED,
            }
            assert entry.answer is wanted[said[entry.torch]]
        assert row.audit is not None
        assert row.audit.verdict in ("pass", "unchecked"), row.audit.errors


def test_row_42_each_row_is_what_its_wheel_says_of_itself(table: CompatTable) -> None:
    """``freewheel.build()`` is the record inside the wheel."""
    for row in table.wheels:
        record = read_wheel(ROOT / "dist" / row.file).build
        assert record is not None
        check_row(row, record)
