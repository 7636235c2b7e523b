"""What a page can order, to its end: a child `floodmark` does it, and the pages show what has become of the job."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from urllib.parse import urlencode

import pytest

from floodmark import stores
from floodmark.hwm import ColumnIntHWM
from floodmark.stores.lease import hold
from floodmark.stores.record import JobRecord
from tests.web.conftest import TOKEN, Site, act_page, form_key, log_in, order, serving

PROJECT = """\
store: sqlite:///marks.db
openlineage: {file: events.jsonl}
jobs:
  - name: orders
    source: {type: files, path: incoming, format: jsonl, schema: "id long, amount double"}
    sinks: [{name: out, type: files, path: out, format: jsonl}]
    dead_letters: {path: letters}
  - name: numbers
    source: {type: sqlite, path: shop.db, table: numbers, key: [n], cursor: {column: n}}
    sinks: [{name: out, type: files, path: numbers, format: jsonl}]
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Orders, of which one has no valid id, and numbers up to 3, of which all were read."""
    (tmp_path / "floodmark.yaml").write_text(PROJECT)
    (tmp_path / "incoming").mkdir()
    (tmp_path / "incoming" / "day1.jsonl").write_text('{"id": 1, "amount": 2.5}\n{"id": "seven", "amount": 1.0}\n')
    shop = sqlite3.connect(tmp_path / "shop.db")
    shop.execute("create table numbers (n integer primary key)")
    shop.close()
    store = stores.open("sqlite:///marks.db", folder=tmp_path)
    with hold(store, "numbers") as held:
        marks = {"sqlite": ColumnIntHWM(name="n", value=3)}
        store.commit(
            JobRecord("numbers", 1, marks, modified_time=datetime.now(timezone.utc)), expected=0, lease=held.lease
        )
    store.close()
    return tmp_path


@pytest.fixture
def acting(folder: Path) -> Iterator[Site]:
    """Its pages, which may act."""
    with serving(folder, TOKEN) as served:
        yield served


def marks_shown(site: Site, cookie: str) -> list[str]:
    """Where the page of the job numbers says that its mark has been, the newest first."""
    page = site.get("/jobs/numbers", cookie=cookie).text
    return re.findall(r'data-label="Mark"><span>(?:<code>)?(\w+)', page)


def done(site: Site, cookie: str, job: str, **fields: str) -> str:
    """What the act's page says once it has ended."""
    answer = order(site, cookie, job, **fields)
    assert answer.status == 303, answer.text
    return act_page(site, cookie, answer.headers["location"], seconds=240)


def test_a_mark_that_is_set_from_the_page_is_set(acting: Site) -> None:
    """And the page says so, with where it has been."""
    cookie = log_in(acting)
    assert "Mark of sqlite</span><b>3</b>" in acting.get("/jobs/numbers", cookie=cookie).text
    said = done(acting, cookie, "numbers", act="marks set", value="2")
    assert ("ended with 0" in said, "numbers: mark 2" in said) == (True, True)
    assert marks_shown(acting, cookie) == ["2", "3"]
    assert "Mark of sqlite</span><b>2</b>" in acting.get("/jobs/numbers", cookie=cookie).text


def test_a_mark_that_is_forgotten_from_the_page_is_gone(acting: Site) -> None:
    """The next run reads everything."""
    cookie = log_in(acting)
    said = done(acting, cookie, "numbers", act="marks reset")
    assert ("ended with 0" in said, "numbers: no mark" in said) == (True, True)
    assert marks_shown(acting, cookie) == ["none", "3"]


@pytest.mark.parametrize("headers", [{}, {"authorization": "Bearer wrong"}, {"cookie": "floodmark_session=wrong"}])
def test_without_the_token_no_mark_is_set(acting: Site, headers: dict[str, str]) -> None:
    """Even by somebody who knows the key of a form."""
    cookie = log_in(acting)
    body = urlencode({"act": "marks set", "value": "2", "key": form_key(acting, cookie, "numbers")})
    assert acting.post("/jobs/numbers/acts", body, **headers).status == 401
    assert_nothing_happened(acting, cookie)


@pytest.mark.parametrize("headers", [{"origin": "http://evil.example"}, {"sec_fetch_site": "cross-site"}])
def test_another_site_sets_no_mark(acting: Site, headers: dict[str, str]) -> None:
    """Whatever the browser of somebody who is logged in sends along."""
    cookie = log_in(acting)
    body = urlencode({"act": "marks set", "value": "2", "key": form_key(acting, cookie, "numbers")})
    assert acting.post("/jobs/numbers/acts", body, cookie=cookie, **headers).status == 403
    assert_nothing_happened(acting, cookie)


def assert_nothing_happened(site: Site, cookie: str) -> None:
    """The mark is where it was, and no child was started."""
    assert marks_shown(site, cookie) == ["3"]
    assert "Ordered here" not in site.get("/jobs/numbers", cookie=cookie).text


@pytest.mark.spark
def test_a_job_that_is_run_from_the_page_and_its_dead_letter_that_is_replayed(acting: Site, folder: Path) -> None:
    """The letter is replayed once the project takes its record; the pages show the run, the letter, and its end."""
    cookie = log_in(acting)
    said = done(acting, cookie, "orders", act="run")
    assert ("ended with 0" in said, "1 dead, written: out 1" in said) == (True, True)
    assert "1 open row" in acting.get("/jobs/orders", cookie=cookie).text
    assert written(folder) == ['{"id":1,"amount":2.5}']
    (folder / "floodmark.yaml").write_text(PROJECT.replace("id long", "id string"))
    assert "orders: 1 replayed" in done(acting, cookie, "orders", act="deadletters replay")
    assert "1 open row" not in acting.get("/jobs/orders", cookie=cookie).text
    assert written(folder) == ['{"id":"seven","amount":1.0}', '{"id":1,"amount":2.5}']

    events = [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]
    assert [event["eventType"] for event in events] == ["START", "COMPLETE"] * 2


def written(folder: Path) -> list[str]:
    """The rows in the files of the sink, sorted."""
    return sorted(line for file in folder.glob("out/*/part*") for line in file.read_text().splitlines())
