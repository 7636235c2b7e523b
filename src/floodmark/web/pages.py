"""The live pages: one per question, rendered here from the store and the tables' logs, never from a JVM."""

from __future__ import annotations

import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import wraps
from inspect import iscoroutinefunction
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from floodmark.errors import ConfigError, FloodmarkError, RunNotFound
from floodmark.lineage import Point
from floodmark.web.access import COOKIE, HEADERS, SESSION_SECONDS, Gate, read_form
from floodmark.web.acts import ActKind, Acts, JobBusy
from floodmark.web.rendering import render, static_text

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from floodmark.jobs.diff import Diff
    from floodmark.stores.contract import MarkStore
    from floodmark.web.snapshot import JobView, Snapshot


FRESH_SECONDS = 2.0
"""A snapshot may be shown for so long: a page that is reloaded often must not become a load on the store."""
QUICK_SECONDS = 0.3
"""A look that takes no longer is waited for."""
OLD_SECONDS = 300.0
"""What was seen longer ago is not shown without another look."""
PAUSE_FACTOR = 10.0
"""A look that took long is taken again after so many times as long."""
RUNS_SHOWN = 200
HISTORY_SHOWN = 50
HOPS_SHOWN = 500
TYPES = {".js": "text/javascript", ".css": "text/css", ".txt": "text/plain"}


@dataclass(frozen=True)
class Look:
    """What was seen, when, and how long it took."""

    snapshot: Snapshot
    begun: float
    seconds: float
    acts_ended: int = 0
    """How many acts had ended when it began: a page never shows a job as it was before what was ordered there."""

    @property
    def age(self) -> float:
        """Seconds since it was over."""
        return time.monotonic() - self.begun - self.seconds


@dataclass
class Pages:
    """What the pages are made of: how to look, where marks and logs are, who may act.

    >>> from pathlib import Path
    >>> from floodmark.project import Project, Site
    >>> site, store = Site(Path(folder)), fm.stores.open("memory")
    >>> pages = Pages(lambda: take_snapshot(Project(), site, store, datetime.now(timezone.utc)), lambda: store)
    >>> pages.snapshot().namespace
    'default'
    """

    look: Callable[[], Snapshot]
    store: Callable[[], MarkStore]
    gate: Gate = field(default_factory=Gate)
    acts: Acts | None = None
    changes: Callable[[Snapshot], Diff | None] = lambda _snapshot: None
    """What the last run changed."""
    metrics: Callable[[], bytes] | None = None
    scrub: Callable[[str], str] = str
    """Takes secrets out of a page."""
    log_lines: Callable[[str, str], Sequence[str]] = lambda _job, _run: ()
    """The log of a run, by job and run id."""
    quick_seconds: float = QUICK_SECONDS
    _last: Look | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def snapshot(self) -> Snapshot:
        """The project as it was a moment ago; where a look takes long, as the last one saw it while the next goes on.

        Raises what a look raises: what cannot be read is not shown as it once was.
        """
        last = self._last
        if last is None or last.age > OLD_SECONDS or last.acts_ended != self._acts_ended():
            return self._look_again(last)
        if last.age > FRESH_SECONDS and last.seconds <= self.quick_seconds:
            return self._look_again(last)
        if last.age > max(FRESH_SECONDS, PAUSE_FACTOR * last.seconds) and not self._lock.locked():
            self.look_beside(last)
        return last.snapshot

    def prepare(self) -> threading.Thread:
        """Look and count in a thread before anybody asks: with a hundred thousand receipts, either takes a second."""

        def look_and_count() -> None:
            with suppress(FloodmarkError):  # whoever asks is told
                self.snapshot()
                if self.metrics is not None:
                    self.metrics()

        thread = threading.Thread(target=look_and_count, daemon=True)
        thread.start()
        return thread

    def look_beside(self, last: Look | None = None) -> threading.Thread:
        """Look in a thread; one at a time looks, the others take what it saw."""

        def look() -> None:
            try:
                self._look_again(last)
            except FloodmarkError:
                self._last = None  # whoever asks next looks, and is told

        thread = threading.Thread(target=look, daemon=True)
        thread.start()
        return thread

    def _look_again(self, last: Look | None) -> Snapshot:
        with self._lock:
            if self._last is None or self._last is last:
                begun, acts_ended = time.monotonic(), self._acts_ended()
                self._last = Look(self.look(), begun, time.monotonic() - begun, acts_ended)
            return self._last.snapshot

    def _acts_ended(self) -> int:
        return self.acts.count_ended() if self.acts else 0

    def close(self) -> None:
        """End what the pages started."""
        if self.acts is not None:
            self.acts.stop()

    def page(self, request: Request, template: str, status: int = 200, **values: object) -> Response:
        """A page with what every page has: the way to the others, and whether it may act."""
        from starlette.responses import HTMLResponse

        may_act = self.acts is not None and self.gate.may_act(request)
        key = self.gate.form_key(request) if may_act else ""
        here = request.url.path
        return HTMLResponse(self.scrub(render(template, may_act=may_act, key=key, here=here, **values)), status)

    def overview(self, request: Request) -> Response:
        snapshot = self.snapshot()
        return self.page(request, "overview.html", snapshot=snapshot)

    def job(self, request: Request) -> Response:
        """One job: its mark and where it has been, its runs, its neighbours, what it put aside."""
        view = self._job(request)
        if view is None:
            return self.missing(request, f"job '{request.path_params['name']}'")
        snapshot, store = self.snapshot(), self.store()
        return self.page(
            request,
            "job.html",
            job=view,
            taken=snapshot.taken,
            runs=tuple(store.runs(view.name, RUNS_SHOWN)),
            history=store.history(view.name, HISTORY_SHOWN),
            graph=snapshot.graph.around(view.name),
            asides=[each for each in snapshot.asides if each.job == view.name],
            acts=[act for act in self.acts.all() if act.job == view.name] if self.acts else [],
        )

    def runs(self, request: Request) -> Response:
        snapshot = self.snapshot()
        return self.page(request, "runs.html", snapshot=snapshot, changes=self.changes(snapshot))

    def run(self, request: Request) -> Response:
        """One run by its id: its receipt and its log."""
        from floodmark.jobs.diff import find_run

        try:
            receipt = find_run(self.store(), request.path_params["run"], request.query_params.get("job"))
        except RunNotFound as error:
            return self.missing(request, str(error))
        lines = self.log_lines(receipt.job, receipt.run)
        return self.page(request, "run.html", run=receipt, lines=lines)

    def lineage(self, request: Request) -> Response:
        """A table or a column: what it comes from, and what depends on it."""
        snapshot, asked = self.snapshot(), request.query_params.get("point", "")
        if not asked:
            return self.page(
                request, "lineage.html", snapshot=snapshot, point=None, columns=(), upstream=(), downstream=()
            )
        try:
            point = snapshot.lineage.point(asked)
        except ConfigError as error:
            return self.missing(request, str(error))
        upstream, downstream = snapshot.lineage.upstream(point), snapshot.lineage.downstream(point)
        return self.page(
            request,
            "lineage.html",
            snapshot=snapshot,
            point=point,
            columns=_columns(snapshot, point),
            upstream=upstream[:HOPS_SHOWN],
            downstream=downstream[:HOPS_SHOWN],
        )

    def aside(self, request: Request) -> Response:
        return self.page(request, "aside.html", snapshot=self.snapshot())

    def health(self, request: Request) -> Response:
        return self.page(request, "health.html", snapshot=self.snapshot())

    def act_page(self, request: Request) -> Response:
        """What an act has printed so far."""
        act = self.acts.find(request.path_params["id"]) if self.acts else None
        return self.page(request, "act.html", act=act) if act else self.missing(request, "this act")

    def state(self, request: Request) -> Response:
        """A word that changes with what the pages show, so that a page that is open can say so."""
        from starlette.responses import PlainTextResponse

        return PlainTextResponse(self.snapshot().state())

    def numbers(self, request: Request) -> Response:
        """For Prometheus."""
        from starlette.responses import Response

        if self.metrics is None:
            return self.missing(request, "a metrics page")
        return Response(self.metrics(), media_type="text/plain; version=0.0.4; charset=utf-8")

    def static(self, request: Request) -> Response:
        """A file of the package, of those that are known: a path from outside leads nowhere else."""
        from starlette.responses import Response

        from floodmark.web.rendering import SCRIPTS, STYLES

        name = request.path_params["path"]
        if name not in (*SCRIPTS, *STYLES, "vendor/LICENSES.txt"):
            return self.missing(request, "this file")
        caching = {"Cache-Control": "max-age=3600"}
        return Response(static_text(name), media_type=TYPES[Path(name).suffix], headers=caching)

    async def login(self, request: Request) -> Response:
        """The token becomes a cookie that no script and no other site can use."""
        from starlette.responses import RedirectResponse

        form = await read_form(request) if request.method == "POST" else {}
        if not form or not self.gate.is_token(form.get("token", "")):
            status = 200 if request.method == "GET" else 403
            return self.page(request, "login.html", status, wrong=request.method == "POST")
        answer = RedirectResponse("/", 303)
        answer.set_cookie(
            COOKIE, self.gate.open_session(), max_age=int(SESSION_SECONDS), httponly=True, samesite="strict",
            secure=request.url.scheme == "https",
        )  # fmt: skip
        return answer

    async def order(self, request: Request) -> Response:
        """Start an act for a job, if whoever asks may do so and asks from a page of ours."""
        from starlette.responses import RedirectResponse

        form = await read_form(request)
        if self.acts is None or not self.gate.may_act(request):
            return self.refused(request, "acts need a token: start the server with --token-file")
        if form is None or not self.gate.is_own_form(request, form):
            return self.refused(request, "this form does not come from a page of this server")
        view, kind = self._job(request), _kind(form)
        if view is None or kind is None:
            return self.missing(request, "such a job or act")
        try:
            act = self.acts.order(kind, view.name, *([form["value"]] if kind == "marks set" else []))
        except (JobBusy, KeyError):
            return self.page(
                request, "message.html", 409, message=f"an act for '{view.name}' is under way, or a value is missing."
            )
        return RedirectResponse(f"/acts/{act.id}", 303)

    def missing(self, request: Request, what: str) -> Response:
        return self.page(request, "message.html", 404, message=f"There is no {what}." if len(what) < 60 else what)

    def refused(self, request: Request, why: str) -> Response:
        return self.page(request, "message.html", 403, message=f"Refused: {why}.")

    def _job(self, request: Request) -> JobView | None:
        return self.snapshot().job(request.path_params["name"])


def _kind(form: dict[str, str]) -> ActKind | None:
    return next((kind for kind in get_args(ActKind) if kind == form.get("act")), None)


def _columns(snapshot: Snapshot, point: Point) -> list[str]:
    node = next((node for node in snapshot.graph.nodes if node.id == str(point.dataset)), None)
    return list(node.columns) if node else []


def application(pages: Pages) -> Starlette:
    """The pages as an ASGI application.

    >>> from pathlib import Path
    >>> from floodmark.project import Project, Site
    >>> site, store = Site(Path(folder)), fm.stores.open("memory")
    >>> pages = Pages(lambda: take_snapshot(Project(), site, store, datetime.now(timezone.utc)), lambda: store)
    >>> app = application(pages)  # for uvicorn, or another server of ASGI
    """
    from starlette.applications import Starlette
    from starlette.middleware import Middleware
    from starlette.routing import Route

    def at(path: str, answer: Callable[[Request], Any], *methods: str, open_to_all: bool = False) -> Route:
        return Route(path, _guarded(pages, answer, open_to_all=open_to_all), methods=list(methods) or ["GET"])

    return Starlette(
        routes=[
            at("/", pages.overview),
            at("/jobs/{name:path}/acts", pages.order, "POST"),
            at("/jobs/{name:path}", pages.job),
            at("/runs", pages.runs),
            at("/runs/{run:path}", pages.run),
            at("/lineage", pages.lineage),
            at("/aside", pages.aside),
            at("/health", pages.health),
            at("/acts/{id:int}", pages.act_page),
            at("/metrics", pages.numbers),
            at("/state", pages.state),
            at("/login", pages.login, "GET", "POST", open_to_all=True),
            at("/static/{path:path}", pages.static, open_to_all=True),
        ],
        middleware=[Middleware(SafeHeaders)],
    )


def _guarded(
    pages: Pages, answer: Callable[[Request], Any], *, open_to_all: bool
) -> Callable[[Request], Awaitable[Response]]:
    """The answer, for those who may have it; a failure of ours is a page too."""
    from starlette.concurrency import run_in_threadpool
    from starlette.responses import PlainTextResponse, RedirectResponse

    @wraps(answer)
    async def respond(request: Request) -> Response:
        if not pages.gate.knows_host(request):
            return PlainTextResponse("this server has another name\n", 421)
        if not open_to_all and not pages.gate.may_look(request):
            is_person = "text/html" in request.headers.get("accept", "")
            return RedirectResponse("/login", 303) if is_person else PlainTextResponse("a token is needed\n", 401)
        try:
            made = answer(request) if iscoroutinefunction(answer) else run_in_threadpool(answer, request)
            return await made  # type: ignore[no-any-return]
        except FloodmarkError as error:
            return pages.page(request, "message.html", 503, message=f"{error.message} Try: {error.hint}")

    return respond


class SafeHeaders:
    """Puts what every answer tells the browser on every answer, also on one that no page gave."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        from starlette.datastructures import MutableHeaders

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        await self.app(scope, receive, send_with_headers)
