"""The report and the pages in a real browser: right numbers, no error, no request elsewhere, by keyboard alone too."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Literal
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from floodmark.cli.app import run
from tests.web.conftest import TOKEN, Site, chromium
from tests.web.prepared import HOSTILE

Scheme = Literal["light", "dark"]
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"]
FLAGS += ["--disable-component-update", "--disable-sync"]
pytestmark = pytest.mark.skipif(
    chromium() is None and os.environ.get("FLOODMARK_BROWSER") != "required",
    reason="the pages are not tested in a browser: no chromium on this machine; apt-get install chromium",
)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """The machine's own."""
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=chromium(), args=FLAGS)
        yield opened
        opened.close()


class Watched:
    """A page with what it complained of and asked for."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.complaints: list[str] = []
        self.requests: list[str] = []
        page.on("console", lambda message: self.complaints.append(message.text))
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("request", lambda request: self.requests.append(request.url))


@pytest.fixture
def watched(browser: Browser) -> Iterator[Watched]:
    """A desk."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    yield Watched(context.new_page())
    context.close()


@pytest.fixture
def phone(browser: Browser) -> Iterator[Watched]:
    """A phone at night."""
    context = browser.new_context(viewport={"width": 375, "height": 720}, color_scheme="dark")
    yield Watched(context.new_page())
    context.close()


@pytest.fixture(scope="module")
def report_url(shared_shop: Path) -> str:
    """The report of the shop that nobody changes."""
    path = shared_shop / "browser.html"
    assert run(["report", "--project", str(shared_shop / "floodmark.yaml"), "-o", str(path)]) == 0
    return path.as_uri()


def overflow(page: Page) -> int:
    """By how many pixels the page is wider than the window."""
    wide: int = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    return wide


def overflow_at(page: Page, url: str) -> int:
    page.goto(url)
    return overflow(page)


def test_the_report_draws_every_table_and_plot_and_asks_nobody(watched: Watched, report_url: str) -> None:
    """Four tables in their layers, two plots for each of three jobs; the policy lets its own scripts run."""
    watched.page.goto(report_url)
    assert watched.page.locator(".graph .node").count() == 4
    assert watched.page.locator(".graph .lane-name").all_text_contents() == ["SOURCE", "BRONZE", "SILVER", "GOLD"]
    watched.page.locator(".plots").last.scroll_into_view_if_needed()
    watched.page.locator(".plots").last.locator("canvas").first.wait_for()
    assert watched.page.locator(".plots canvas").count() == 6
    assert (watched.complaints, watched.requests) == ([], [report_url])


def test_the_report_fits_a_phone_in_the_dark(phone: Watched, report_url: str) -> None:
    """Rows of wide tables are cards there, and the colours follow the system."""
    phone.page.goto(report_url)
    assert overflow(phone.page) == 0
    assert phone.page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(17, 23, 27)"
    assert phone.page.locator("table.rows td").first.evaluate("cell => getComputedStyle(cell).display") == "block"
    assert phone.complaints == []


LENGTHEN_NAMES = """() => [...document.querySelectorAll("td.name, td.mark")]
  .forEach((each) => each.append("_timeline_of_all_task_runs"))"""
CUT_TABLES = """() => [...document.querySelectorAll(".scroll")]
  .filter((each) => each.scrollWidth > each.clientWidth).map((each) => each.textContent.slice(0, 40))"""


@pytest.mark.parametrize("width", [390, 1280])
def test_no_table_of_the_report_is_wider_than_its_place(browser: Browser, report_url: str, width: int) -> None:
    """However long names are: the last column says which tables a run changed, and nobody scrolls to find it."""
    context = browser.new_context(viewport={"width": width, "height": 800})
    page = context.new_page()
    page.goto(report_url)
    page.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true })")
    page.evaluate(LENGTHEN_NAMES)
    cut = page.evaluate(CUT_TABLES)
    context.close()
    assert cut == []


OVERLAPS = """() => [...document.querySelectorAll(".gantt")].flatMap(picture => {
  const texts = [...picture.querySelectorAll(".tick")];
  const boxes = texts.map(text => text.getBoundingClientRect()).filter(box => box.width);
  return boxes.slice(1).filter((box, place) => box.left < boxes[place].right).map(box => box.left);
})"""


def test_the_times_below_a_timeline_stand_apart_on_a_phone(phone: Watched, report_url: str) -> None:
    """The first is a time of day, and longer than the others."""
    phone.page.goto(report_url)
    assert phone.page.locator(".gantt .tick").count() == 10
    assert phone.page.evaluate(OVERLAPS) == []


FAINT_TEXTS = """() => {
  const canvas = Object.assign(document.createElement("canvas"), {width: 1, height: 1});
  const pen = canvas.getContext("2d", {willReadFrequently: true});
  const pixel = () => [...pen.getImageData(0, 0, 1, 1).data].slice(0, 3);
  const paint = (colour) => { pen.fillStyle = colour; pen.fillRect(0, 0, 1, 1); return pixel(); };
  const linear = (part) => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
  const light = ([r, g, b]) => 0.2126 * linear(r / 255) + 0.7152 * linear(g / 255) + 0.0722 * linear(b / 255);
  const ways = (element) => element ? [...ways(element.parentElement), element] : [];
  const contrast = (element) => {
    ways(element).forEach((each) => paint(getComputedStyle(each).backgroundColor));
    const below = light(pixel()), above = light(paint(getComputedStyle(element).color));
    return (Math.max(below, above) + 0.05) / (Math.min(below, above) + 0.05);
  };
  const says = (element) => [...element.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
  const texts = [...document.querySelectorAll("main *, header *, footer *")]
    .filter((each) => each.clientWidth && !each.closest("svg") && says(each));
  return texts.filter((each) => contrast(each) < 4.5).map((each) => `${each.className} ${each.textContent}`);
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_of_the_report_can_be_read(browser: Browser, report_url: str, scheme: Scheme) -> None:
    """A contrast of 4.5 at least, as WCAG asks, in both schemes."""
    context = browser.new_context(color_scheme=scheme)
    page = context.new_page()
    page.goto(report_url)
    assert page.evaluate(FAINT_TEXTS) == []
    context.close()


def test_a_table_of_the_graph_is_chosen_by_keyboard(watched: Watched, report_url: str) -> None:
    """Tab gets there, Enter chooses, and the focus stays on it."""
    watched.page.goto(report_url)
    node = watched.page.locator(".graph .node", has_text="lake/gold/revenue")
    node.focus()
    watched.page.keyboard.press("Enter")
    focused = "document.activeElement.getAttribute('aria-label')"
    assert watched.page.evaluate(focused) == "lake/gold/revenue, gold, HEALTHY"
    assert watched.page.locator(".graph .node.focus").get_attribute("aria-label") == "lake/gold/revenue, gold, HEALTHY"


def test_a_column_of_the_report_shows_where_it_comes_from(watched: Watched, report_url: str) -> None:
    """Choose a table, choose a column: every step back to the source, without a server."""
    watched.page.goto(report_url)
    watched.page.locator(".graph .node", has_text="lake/gold/revenue").click()
    watched.page.get_by_role("button", name="cents", exact=True).click()
    told = watched.page.locator("[data-columns] div").inner_text()
    assert "cents of lake/silver/orders (aggregated, job revenue_gold)" in told
    assert "amount of lake/bronze/orders (computed, job orders_silver)" in told
    assert watched.page.locator(".graph .node.lit").count() == 4
    assert watched.complaints == []


def test_every_live_page_is_without_complaint_and_asks_its_own_server_alone(watched: Watched, site: Site) -> None:
    """The strict policy holds for what the pages do."""
    paths = ["/", "/jobs/orders_bronze", f"/jobs/{quote(HOSTILE)}", "/runs", "/runs/run3orders_bronze"]
    paths += ["/lineage", "/lineage?point=lake/silver/orders.cents", "/aside", "/health"]
    visited = [watched.page.goto(site.url + path) for path in paths]
    assert [answer.status for answer in visited if answer] == [200] * len(paths)
    assert watched.complaints == []
    assert {url.split("/")[2] for url in watched.requests} == {site.url.split("/")[2]}


def test_a_column_leads_to_what_it_is_made_of(watched: Watched, site: Site) -> None:
    """Click a table, click a column, see where it comes from."""
    watched.page.goto(f"{site.url}/lineage")
    watched.page.get_by_role("link", name="lake/silver/orders").click()
    watched.page.get_by_role("link", name="cents", exact=True).click()
    assert "amount" in watched.page.locator("main").inner_text()


def test_a_live_page_fits_a_phone(phone: Watched, site: Site) -> None:
    """The overview, and jobs: one that failed once, and one with a name that nobody can break."""
    paths = ["/", "/jobs/orders_silver", f"/jobs/{quote(HOSTILE)}", "/runs", "/lineage", "/aside", "/health"]
    assert [overflow_at(phone.page, site.url + path) for path in paths] == [0] * len(paths)


def test_a_person_without_a_mouse_gets_from_the_overview_to_a_run(watched: Watched, site: Site) -> None:
    """Tab and Enter alone: skip to the content, a job, a run of it."""
    watched.page.goto(site.url)
    press_until(watched.page, "Skip to the content")
    assert watched.page.evaluate("location.hash") == "#main"
    press_until(watched.page, "revenue_gold")
    watched.page.wait_for_url("**/jobs/revenue_gold")
    press_until(watched.page, " UTC")
    watched.page.wait_for_url("**/runs/run3revenue_gold*")
    assert watched.complaints == []


def press_until(page: Page, words: str) -> None:
    """Tab to the next element that ends with these words, and Enter."""
    for _ in range(60):
        page.keyboard.press("Tab")
        if str(page.evaluate("document.activeElement.textContent")).strip().endswith(words):
            page.keyboard.press("Enter")
            return
    raise AssertionError(f"Tab does not get to {words}")


def test_a_person_logs_in_and_orders_an_act(watched: Watched, locked_site: Site) -> None:
    """From the login to what the child printed, without a complaint of the browser."""
    watched.page.goto(locked_site.url)
    watched.page.get_by_label("Token").fill(TOKEN)
    watched.page.get_by_role("button", name="Log in").click()
    watched.page.goto(f"{locked_site.url}/jobs/revenue_gold")
    watched.page.get_by_text("Set or forget its mark").click()
    watched.page.get_by_label("New value of the mark").fill("no number")
    watched.page.get_by_role("button", name="Set the mark").click()
    assert "marks set revenue_gold" in watched.page.locator("h1").inner_text()
    assert watched.complaints == []


def test_a_graph_of_five_hundred_tables_begins_with_a_neighbourhood(watched: Watched, tmp_path: Path) -> None:
    """And is widened by hand, or all at once."""
    jobs = [
        f"  - {{name: j{n}, source: {{type: delta, path: lake/t{n // 2}}}, sinks: [{{type: delta, path: lake/t{n}}}]}}"
        for n in range(1, 501)
    ]
    (tmp_path / "floodmark.yaml").write_text("\n".join(["store: sqlite:///marks.db", "jobs:", *jobs]))
    out = tmp_path / "report.html"
    assert run(["report", "--project", str(tmp_path / "floodmark.yaml"), "-o", str(out)]) == 0
    watched.page.goto(out.as_uri())
    first = watched.page.locator(".graph .node").count()
    watched.page.get_by_role("button", name="Show all 501").click()
    assert (first < 60, watched.page.locator(".graph .node").count()) == (True, 501)
    assert watched.complaints == []


WIDE_LABELS = """() => [...document.querySelectorAll(".graph .node")].filter((node) => {
  const box = node.querySelector(".box").getBBox();
  return [...node.querySelectorAll("text")].some((text) => text.getBBox().x + text.getBBox().width > box.width);
}).map((node) => node.textContent)"""


def test_a_long_name_stays_within_its_box_in_the_graph(watched: Watched, tmp_path: Path) -> None:
    """In wide letters and in narrow ones: the end of the name is what tells tables apart."""
    sinks = [f"lake/{letter * 12}/{letter * 40}_{letter}" for letter in "Wi"]
    jobs = "".join(
        f"  - {{name: j{place}, source: {{type: files, path: in}}, sinks: [{{type: delta, path: {path}}}]}}\n"
        for place, path in enumerate(sinks)
    )
    (tmp_path / "floodmark.yaml").write_text(f"store: memory\njobs:\n{jobs}")
    path = tmp_path / "report.html"
    assert run(["report", "--project", str(tmp_path / "floodmark.yaml"), "-o", str(path)]) == 0
    watched.page.goto(path.as_uri())
    assert watched.page.locator(".graph .node").count() == 3
    assert watched.page.evaluate(WIDE_LABELS) == []
    assert watched.page.locator(".graph .node", has_text="WWW_W").count() == 1
