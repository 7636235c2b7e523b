"""`floodmark serve`: every page answers, nobody acts without the token, and no other site can make a browser act."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from urllib.parse import quote, urlencode

import pytest

from floodmark import stores
from floodmark.logs import get_logger
from floodmark.stores.run_logs import begin_log, keeping_log
from tests.web.conftest import TOKEN, Site, act_page, form_key, log_in, order, serving
from tests.web.prepared import HOSTILE, put_aside


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("/", "orders_silver"),
        ("/jobs/orders_bronze", "amount_positive"),
        ("/runs", "What the last run changed"),
        ("/runs/run3orders_bronze", "0.5 s"),
        ("/runs/run3orders_bronze", "sink has the batch sink=lake"),
        ("/runs/run2orders_bronze", "No log of this run is kept"),
        ("/lineage", "lake/gold/revenue"),
        ("/lineage?point=lake/silver/orders.cents", "job orders_silver, computed"),
        ("/aside", "2 open rows"),
        ("/health", "data freshness"),
    ],
)
def test_every_page_answers_with_what_it_is_asked(site: Site, path: str, words: str) -> None:
    """One page per question."""
    answer = site.get(path)
    assert (answer.status, words in answer.text) == (200, True)


@pytest.mark.parametrize("path", ["/jobs/nobody", "/runs/zzz", "/lineage?point=nothing", "/acts/7", "/nowhere"])
def test_what_is_not_there_is_a_404(site: Site, path: str) -> None:
    """And says so."""
    assert site.get(path).status == 404


@pytest.mark.parametrize(
    "path", ["/static/../pages.py", "/static/%2e%2e/pages.py", "/static//etc/passwd", "/static/floodmark.css/../x"]
)
def test_no_file_but_those_of_the_pages_is_served(site: Site, path: str) -> None:
    """A path from outside leads nowhere."""
    assert site.get(path).status == 404


def test_every_answer_forbids_what_the_pages_do_not_need(site: Site) -> None:
    """Also one that no page gave."""
    found, missing = site.get("/").headers, site.get("/nowhere").headers
    assert found["content-security-policy"].startswith("default-src 'none'; script-src 'self';")
    assert (found["x-frame-options"], missing["x-content-type-options"]) == ("DENY", "nosniff")


def test_html_in_a_row_is_shown_as_text(site: Site) -> None:
    """On the live pages as in the report."""
    assert HOSTILE not in site.get("/aside").text + site.get("/runs").text + site.get("/runs/run3orders_bronze").text


def test_html_in_the_name_of_a_job_is_shown_as_text(site: Site) -> None:
    """The page of such a stream, too, and it is found by its name."""
    page = site.get(f"/jobs/{quote(HOSTILE)}")
    assert (page.status, HOSTILE in page.text + site.get("/").text + site.get("/health").text) == (200, False)
    assert "&lt;img src=x onerror=alert(1)&gt;" in page.text


def test_a_dead_letter_of_ten_megabytes_is_cut_on_every_page(shop: Path) -> None:
    """A page stays a page, and a state a word."""
    shutil.rmtree(shop / "lake/aside/letters")
    put_aside(shop / "lake/aside/letters", "dead_letter", ["x" * 10_000_000])
    with serving(shop) as served:
        pages = [served.get(path) for path in ("/aside", "/jobs/orders_bronze", "/", "/state")]
    assert [(page.status, len(page.text) < 100_000) for page in pages] == [(200, True)] * 4
    assert "… (10,000,000 characters)" in pages[0].text


def test_a_long_log_ends_with_its_whole_last_line(shop: Path) -> None:
    """It has the traceback, whose end is the user's own code; what came before is folded, not lost."""
    frames = "\n".join(f"  File step{number}.py, line {number}" for number in range(200))
    store = stores.open("sqlite:///state/marks.db", folder=shop)
    with keeping_log(store, "orders_bronze", "run2orders_bronze"):
        begin_log()
        for number in range(400):
            get_logger("test").info(f"look {number}")
        get_logger("test").error("it failed", traceback=f"{frames}\nValueError: no column 'region'")
    store.close()
    with serving(shop) as served:
        page = served.get("/runs/run2orders_bronze").text
    folded = page[: page.index("</details>")]
    assert ("102 earlier lines" in folded, "look 101" in page[len(folded) :]) == (True, True)
    assert "step199.py, line 199\nValueError: no column &#39;region&#39;" in page[len(folded) :]


def test_a_page_that_is_open_can_ask_whether_something_has_changed(shop: Path) -> None:
    """By one word, which stays the same as long as the pages do."""
    with serving(shop) as served:
        first, again = served.get("/state").text, served.get("/state").text
        on_the_page = re.findall(r'data-state="(\w+)"', served.get("/").text)
        put_aside(shop / "lake/aside/orders2", "quarantine", ['{"id": 8}'])
    project = (shop / "floodmark.yaml").read_text().replace("lake/aside/orders}", "lake/aside/orders2}")
    (shop / "floodmark.yaml").write_text(project)
    with serving(shop) as served:
        assert (first == again, on_the_page, served.get("/state").text != first) == (True, [first], True)


def test_without_a_token_nobody_acts(site: Site) -> None:
    """Read-only is the default."""
    assert site.post("/jobs/orders_bronze/acts", "act=run&key=").status == 403
    assert "Read-only" in site.get("/").text
    assert "<form" not in site.get("/jobs/orders_bronze").text


def test_with_a_token_nobody_looks_before_he_logs_in(locked_site: Site) -> None:
    """A person is sent to the login, a program is told what is missing."""
    person = locked_site.get("/", accept="text/html")
    assert (person.status, person.headers["location"]) == (303, "/login")
    assert locked_site.get("/").status == 401


def test_a_wrong_token_is_refused(locked_site: Site) -> None:
    """And no cookie is given."""
    answer = locked_site.post("/login", urlencode({"token": "wrong"}))
    assert (answer.status, "set-cookie" in answer.headers) == (403, False)


def test_a_program_may_carry_the_token_itself(locked_site: Site) -> None:
    """As a scraper does."""
    assert locked_site.get("/", authorization=f"Bearer {TOKEN}").status == 200
    assert locked_site.get("/", authorization="Bearer wrong").status == 401


def test_an_act_is_a_child_of_the_command_line_and_its_output_is_shown(locked_site: Site) -> None:
    """A mark that cannot be set says why, as the command does."""
    cookie = log_in(locked_site)
    answer = order(locked_site, cookie, act="marks set", value="--help")
    assert answer.status == 303
    assert "Error:" in act_page(locked_site, cookie, answer.headers["location"])


def test_a_post_without_the_forms_key_is_refused(locked_site: Site) -> None:
    """A page elsewhere does not know it."""
    assert locked_site.post("/jobs/orders_bronze/acts", "act=run", cookie=log_in(locked_site)).status == 403


@pytest.mark.parametrize("header", [{"origin": "http://evil.example"}, {"sec_fetch_site": "cross-site"}])
def test_a_post_from_another_site_is_refused(locked_site: Site, header: dict[str, str]) -> None:
    """Whatever it carries."""
    cookie = log_in(locked_site)
    body = urlencode({"key": form_key(locked_site, cookie), "act": "run"})
    assert locked_site.post("/jobs/orders_bronze/acts", body, cookie=cookie, **header).status == 403


def test_an_act_that_is_not_known_is_refused(locked_site: Site) -> None:
    """What a form says never becomes a word of a command."""
    assert order(locked_site, log_in(locked_site), act="init --force").status == 404


def test_a_form_that_is_too_long_is_refused(locked_site: Site) -> None:
    """It is not read to its end."""
    assert (
        locked_site.post("/jobs/orders_bronze/acts", "value=" + "x" * 100_000, cookie=log_in(locked_site)).status == 403
    )


def test_a_name_that_is_not_ours_is_refused(site: Site) -> None:
    """A page elsewhere cannot reach us through a name of its own that leads to this address."""
    assert site.get("/", host="evil.example").status == 421


def serve_command(shop: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "floodmark", "serve", *options]
    return subprocess.run(command, cwd=shop, capture_output=True, text=True, check=False, timeout=60)


def test_an_address_that_others_can_reach_needs_a_token(shared_shop: Path) -> None:
    """And the hint says how to make one."""
    done = serve_command(shared_shop, "--host", "0.0.0.0")  # noqa: S104 - it is refused
    assert done.returncode == 2
    assert "there is no token" in done.stderr


def test_a_token_that_can_be_guessed_is_refused(shop: Path) -> None:
    """A token of four characters is none."""
    (shop / "token").write_text("1234\n")
    done = serve_command(shop, "--token-file", "token")
    assert (done.returncode, "fewer than 16" in done.stderr) == (2, True)
