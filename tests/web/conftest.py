"""A prepared shop, its pages on a real port, and the browser that is on the machine."""

from __future__ import annotations

import re
import shutil
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from urllib.parse import urlencode

import pytest
import uvicorn

from floodmark.cli.invocation import Invocation
from floodmark.cli.pages import pages_of
from floodmark.web.access import Gate
from floodmark.web.pages import application
from tests.web.prepared import prepare_shop

TOKEN = "0123456789abcdef0123456789abcdef"


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """Its folder, for a test that changes it."""
    folder = tmp_path / "shop"
    folder.mkdir()
    return prepare_shop(folder)


@pytest.fixture(scope="session")
def shared_shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Its folder, for tests that only look."""
    return prepare_shop(tmp_path_factory.mktemp("shop"))


@dataclass(frozen=True)
class Reply:
    """What a server answered."""

    status: int
    headers: dict[str, str]
    text: str


@dataclass(frozen=True)
class Site:
    """Pages that are being served."""

    port: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def get(self, path: str, **headers: str) -> Reply:
        return self.ask("GET", path, None, headers)

    def post(self, path: str, body: str, **headers: str) -> Reply:
        return self.ask("POST", path, body, {"Content-Type": "application/x-www-form-urlencoded", **headers})

    def ask(self, method: str, path: str, body: str | None, headers: dict[str, str]) -> Reply:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=30)
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, body, named)
        answer: HTTPResponse = connection.getresponse()
        text = answer.read().decode()
        connection.close()
        return Reply(answer.status, {name.lower(): value for name, value in answer.getheaders()}, text)


@contextmanager
def serving(shop: Path, token: str | None = None) -> Iterator[Site]:
    """The shop's pages on a free port."""
    invocation = Invocation(project=shop / "floodmark.yaml")
    taken = socket.create_server(("127.0.0.1", 0))
    pages = pages_of(invocation, Gate(token, frozenset({"127.0.0.1"})))
    server = uvicorn.Server(uvicorn.Config(application(pages), log_level="warning"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [taken]}, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    yield Site(taken.getsockname()[1])
    server.should_exit = True
    thread.join(10)
    pages.close()
    invocation.close()


@pytest.fixture(scope="session")
def site(shared_shop: Path) -> Iterator[Site]:
    """Pages that anybody on this machine may look at."""
    with serving(shared_shop) as served:
        yield served


@pytest.fixture(scope="session")
def locked_site(shared_shop: Path) -> Iterator[Site]:
    """Pages that need the token, and may act."""
    with serving(shared_shop, TOKEN) as served:
        yield served


def log_in(site: Site) -> str:
    """The cookie of a session."""
    answer = site.post("/login", urlencode({"token": TOKEN}))
    assert "HttpOnly" in answer.headers["set-cookie"]
    assert "samesite=strict" in answer.headers["set-cookie"].lower()
    return answer.headers["set-cookie"].partition(";")[0]


def form_key(site: Site, cookie: str, job: str = "orders_bronze") -> str:
    """What the forms of a job's page carry."""
    page = site.get(f"/jobs/{job}", cookie=cookie).text
    return re.findall(r'name="key" value="(\w+)"', page)[0]


def order(site: Site, cookie: str, job: str = "orders_bronze", **fields: str) -> Reply:
    """Send a form of a job's page."""
    key = form_key(site, cookie, job)
    return site.post(f"/jobs/{job}/acts", urlencode({"key": key, **fields}), cookie=cookie)


def act_page(site: Site, cookie: str, path: str, seconds: float = 60) -> str:
    """What it says once the child has ended."""
    text, until = "", time.monotonic() + seconds
    while time.monotonic() < until and "ended with" not in text:
        text = site.get(path, cookie=cookie).text
        time.sleep(0.2)
    return text


def chromium() -> str | None:
    """The browser of this machine, if it has one."""
    return next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
