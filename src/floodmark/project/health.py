"""What health watches and who hears of its alerts, as the project file says."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from floodmark.health.alerts import AlertFile, AlertLog, Email, Subscription, Webhook, recall
from floodmark.health.checks import examine
from floodmark.health.report import JobWatch, Limits, TableWatch, Watch
from floodmark.health.tables import TableLooks
from floodmark.hwm.parsing import seconds_in
from floodmark.project.kinds.monitoring import MAIL_SCHEMES

if TYPE_CHECKING:
    from datetime import datetime

    from floodmark.health.alerts import Channel, HealthMemory
    from floodmark.health.report import Report
    from floodmark.project.kinds import DeltaSink, Site
    from floodmark.project.kinds.monitoring import Alerts, TableHealth
    from floodmark.project.models import JobModel, Project
    from floodmark.stores.contract import MarkStore


PATIENCE_SECONDS = 3.0
"""A source that takes longer to say how many rows it has is left out, a sink is UNKNOWN: health has more to tell."""


def watch_of(project: Project, site: Site) -> Watch:
    """Every job, the Delta tables that they fill, and the tables that `health` names."""
    limits = Limits(
        seconds_in(project.health.freshness, field="health.freshness"),
        seconds_in(project.health.lag, field="health.lag"),
        project.health.min_rows,
        _share(project.health.count_change),
    )
    places = {name: where for name, sink in tables_of(project, site).items() if (where := sink.place(site))}
    named = project.health.tables
    places |= {name: site.path(own.path) for name, own in named.items() if own.path}
    tables = [TableWatch(name, where, _own(limits, named.get(name))) for name, where in places.items()]
    jobs = [JobWatch(job.name, limits, _keeps_rows(job)) for job in project.jobs]
    mills = [JobWatch(mill.name, limits) for mill in project.mills]
    return Watch(tuple(tables), (*jobs, *mills), limits)


def examine_project(
    project: Project,
    site: Site,
    store: MarkStore,
    now: datetime,
    tables: TableLooks | None = None,
    *,
    asks_sources: bool = True,
) -> tuple[Report, HealthMemory]:
    """Look at everything once, sinks and sources too, and what the last examination left. Raises StoreUnreachable."""
    from floodmark.project.backlog import rows_behind, sinks_behind

    watch = watch_of(project, site)
    if asks_sources:
        tables = tables or TableLooks()
        tables.look_at_all(watch.tables)  # first: through these looks sinks and sources are asked
    memory, lost = recall(store), sinks_behind(project.jobs, site, store, PATIENCE_SECONDS, tables)
    behind = rows_behind(project.jobs, site, store, PATIENCE_SECONDS, tables) if asks_sources else {}
    return examine(watch, store, now, memory.counts, lost, behind, tables), memory


def subscriptions_of(project: Project, site: Site) -> list[Subscription]:
    """Who hears of alerts."""
    return [Subscription(_channel(each, site), each.on, each.min_severity) for each in project.alerts]


def tables_of(project: Project, site: Site) -> dict[str, DeltaSink]:
    """The tables that jobs fill, each once: by catalog name or folder; where two share that, by the job's as well."""
    from floodmark.project.kinds import DeltaSink

    sinks = [(job.name, sink) for job in project.jobs for sink in job.sinks if isinstance(sink, DeltaSink)]
    found = {sink.table or str(sink.place(site)).rstrip("/"): (job, sink) for job, sink in sinks}
    short = {where: where if sink.table else where.rpartition("/")[2] for where, (_, sink) in found.items()}
    times = Counter(short.values())
    names = {where: name if times[name] == 1 else f"{found[where][0]}.{name}" for where, name in short.items()}
    return {names[where]: sink for where, (_, sink) in found.items()}


def _keeps_rows(job: JobModel) -> bool:
    """Whether its sinks have every row that it read, and no other."""
    from floodmark.project.kinds import DeltaSink
    from floodmark.project.kinds.servers import PostgresSink

    tables = [sink for sink in job.sinks if isinstance(sink, DeltaSink | PostgresSink)]
    return job.transform is None and all(table.mode == "append" for table in tables)


def _own(limits: Limits, own: TableHealth | None) -> Limits:
    if own is None:
        return limits
    changed: dict[str, float | int] = {}
    if own.freshness is not None:
        changed["freshness_seconds"] = seconds_in(own.freshness, field="freshness")
    if own.min_rows is not None:
        changed["min_rows"] = own.min_rows
    if own.count_change is not None:
        changed["count_change"] = _share(own.count_change)
    return replace(limits, **changed)  # type: ignore[arg-type]


def _share(text: str) -> float:
    return float(text.rstrip("%")) / 100


def _channel(alerts: Alerts, site: Site) -> Channel:
    if alerts.to == "webhook":
        return Webhook(alerts.url or "", alerts.format)
    if alerts.to == "email":
        return _email(alerts)
    return AlertFile(site.path(alerts.path or "")) if alerts.to == "file" else AlertLog()


def _email(alerts: Alerts) -> Email:
    server = urlsplit(alerts.url or "")
    user = unquote(server.username) if server.username else None
    password = unquote(server.password) if server.password else None
    security, default_port = MAIL_SCHEMES[server.scheme]
    port, host = server.port or default_port, server.hostname or "localhost"
    return Email(alerts.address, alerts.sender or "", host, port, user, password, security)
