"""The project file as values: what each field means, and what goes with what."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Literal
from urllib.parse import urlsplit

from pydantic import BeforeValidator, Field, StringConstraints, model_validator

from floodmark.project.kinds import (
    ConsoleSink,
    DeltaSink,
    DeltaSource,
    Duration,
    FilesSink,
    FilesSource,
    Model,
    Name,
    PythonName,
    PythonSource,
    Text,
)
from floodmark.project.kinds.medallion import DimensionMembers, FactSource
from floodmark.project.kinds.rules import RuleModel
from floodmark.project.kinds.servers import (
    CatalogSource,
    JdbcSource,
    KafkaSink,
    KafkaSource,
    PostgresSink,
    PostgresSource,
    SqliteSource,
)
from floodmark.project.mills import MillModel
from floodmark.stores.opening import PROJECT_STORE

if TYPE_CHECKING:
    from floodmark.jobs.retention import Retention as StoreRetention


AnySource = Annotated[
    FilesSource
    | DeltaSource
    | CatalogSource
    | FactSource
    | KafkaSource
    | PostgresSource
    | JdbcSource
    | SqliteSource
    | PythonSource,
    Field(discriminator="type"),
]
AnySink = Annotated[DeltaSink | KafkaSink | PostgresSink | FilesSink | ConsoleSink, Field(discriminator="type")]


def _as_setting(value: object) -> object:
    """Spark takes its settings as text, people write numbers and true."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int | float) else value


Setting = Annotated[str, BeforeValidator(_as_setting)]
Store = Text | tuple[Text, ...]
Share = Annotated[str, StringConstraints(pattern=r"^\d+(\.\d+)?%$")]
AlertKind = Literal[
    "lag",
    "stale",
    "quality",
    "failed_run",
    "slow_run",
    "count",
    "stuck",
    "dead_letters",
    "run_started",
    "run_succeeded",
    "summary",
]


class Transform(Model):
    """SQL over `source`, a Python function from DataFrame to DataFrame, or the members of a dimension."""

    sql: Text | None = None
    python: PythonName | None = None
    dimension: DimensionMembers | None = None

    @model_validator(mode="after")
    def _one_of_them(self) -> Transform:
        if [self.sql, self.python, self.dimension].count(None) != len(("sql", "python")):
            raise ValueError("give either sql or python, or dimension")
        return self


class Quarantine(Model):
    """Where rows that broke a rule are put aside."""

    path: Text


class DeadLetters(Model):
    """Where records that cannot be parsed are put aside: in `state/dead_letters/<job>`, if no path is given."""

    path: Text | None = None


class Retries(Model):
    """How often a failed run is tried again, with a pause that doubles each time."""

    attempts: int = Field(default=1, ge=1)
    backoff: Duration = "2s"


class JobModel(Model):
    """One job: a source, what happens to its rows, and the sinks in the order they are written."""

    name: Name
    source: AnySource
    transform: Transform | None = None
    rules: tuple[RuleModel, ...] = ()
    quarantine: Quarantine | None = None
    on_schema_change: Literal["fail", "evolve", "ignore"] = "fail"
    sinks: tuple[AnySink, ...] = Field(json_schema_extra={"minItems": 1})
    dead_letters: DeadLetters | None = None
    every: Duration | None = None
    retries: Retries = Retries()
    spool: Text = Field(default="state/spool", description="folder where a batch is frozen if its rows might change")

    def places_aside(self) -> dict[str, str]:
        """The paths for rows that are put aside, as they are written or by default, by the names of their tables."""
        places = {"quarantine": self.quarantine.path if self.quarantine else f"state/quarantine/{self.name}"}
        if self.dead_letters is not None:
            places["dead_letters"] = self.dead_letters.path or f"state/dead_letters/{self.name}"
        return places

    @model_validator(mode="after")
    def _sinks_have_names_of_their_own(self) -> JobModel:
        if not self.sinks:
            raise ValueError("a job needs at least one sink")
        twice = [name for name, times in Counter(sink.ledger_name() for sink in self.sinks).items() if times > 1]
        if twice:
            raise ValueError(f"two sinks are called '{twice[0]}': give each a name of its own")
        return self

    @model_validator(mode="after")
    def _a_fact_is_whole(self) -> JobModel:
        is_fact = isinstance(self.source, FactSource)
        by_date = [sink for sink in self.sinks if isinstance(sink, DeltaSink) and sink.mode == "dates"]
        if by_date and not is_fact:
            raise ValueError("a sink with `mode: dates` takes what a source of `type: fact` tells it to build")
        if is_fact and (len(by_date) != len(self.sinks) or self.transform is None):
            raise ValueError("a fact needs a transform that builds it, and sinks with `mode: dates`")
        return self

    @model_validator(mode="after")
    def _a_dimension_is_whole(self) -> JobModel:
        members = self.transform.dimension if self.transform else None
        tables = [sink for sink in self.sinks if isinstance(sink, DeltaSink) and sink.mode == "dimension"]
        if tables and members is None:
            raise ValueError("a sink with `mode: dimension` takes what `transform: {dimension: …}` makes")
        if members is None:
            return self
        is_feed = isinstance(self.source, DeltaSource) and self.source.changes == "feed"
        if len(tables) != len(self.sinks) or not is_feed:
            raise ValueError("a dimension needs a Delta source with `changes: feed`, and sinks with `mode: dimension`")
        if any(sink.key != (members.key,) for sink in tables):
            raise ValueError(f"the sinks of this dimension need `key: {members.key}`")
        return self


class Retention(Model):
    """How long old records, receipts and logs of runs are kept; a run that did something drops what is older."""

    history: Duration = "90d"
    keep_at_least: int = Field(default=20, ge=1)
    runs: Duration = "180d"
    logs: Duration = "30d"

    def build(self) -> StoreRetention:
        """The limits as the store is cleaned by them."""
        from floodmark.jobs.retention import Retention as StoreRetention

        return StoreRetention(**self.model_dump())


class TableHealth(Model):
    """A table that health looks at, or other limits for one that a job fills."""

    path: Text | None = None
    freshness: Duration | None = None
    min_rows: int | None = Field(default=None, ge=0)
    count_change: Share | None = None


class Health(Model):
    """From when on tables and jobs are not well."""

    freshness: Duration = "24h"
    lag: Duration = "72h"
    min_rows: int = Field(default=1, ge=0)
    count_change: Share = "50%"
    tables: Mapping[str, TableHealth] = {}


MAIL_SCHEMES: Mapping[str, tuple[Literal["none", "tls", "starttls"], int]] = {
    "smtp": ("none", 25),
    "smtps": ("tls", 465),
    "smtp+starttls": ("starttls", 587),
}
"""How the URL of a mail server is spelled, with how it is secured and its usual port."""


class Alerts(Model):
    """Somewhere alerts go, and which of them."""

    to: Literal["webhook", "email", "file", "log"]
    on: tuple[AlertKind, ...] = ()
    min_severity: Literal["warning", "critical"] = "warning"
    url: Text | None = Field(default=None, description="of the webhook; smtp, smtps or smtp+starttls://… for email")
    format: Literal["json", "slack"] = Field(default="json", description="of what a webhook is sent")
    address: tuple[Text, ...] = Field(default=(), description="who gets the mail")
    sender: Text | None = Field(default=None, description="who the mail is from")
    path: Text | None = Field(default=None, description="of the file")

    @model_validator(mode="after")
    def _has_a_place(self) -> Alerts:
        needed = {"webhook": ("url",), "email": ("url", "address", "sender"), "file": ("path",), "log": ()}[self.to]
        for name in needed:
            if not getattr(self, name):
                raise ValueError(f"alerts to {self.to} need `{name}`")
        return self

    @model_validator(mode="after")
    def _mail_is_safe(self) -> Alerts:
        if self.to != "email":
            return self
        server = urlsplit(self.url or "")
        if server.scheme not in MAIL_SCHEMES:
            raise ValueError("the url of a mail server begins with smtp://, smtps:// or smtp+starttls://")
        if server.username and server.scheme == "smtp":
            raise ValueError("a login would go in the clear: use smtps:// (TLS at once) or smtp+starttls://")
        return self


class OpenLineage(Model):
    """Where the events of runs go, for tools that collect lineage."""

    file: Text | None = Field(default=None, description="one event per line")
    url: Text | None = Field(default=None, description="of the collector, such as https://host/api/v1/lineage")
    api_key: Text | None = Field(default=None, description="sent to the url as a bearer token")

    @model_validator(mode="after")
    def _has_one_place(self) -> OpenLineage:
        if bool(self.file) == bool(self.url):
            raise ValueError("events go to one place: give `file` or `url`")
        if self.api_key and not (self.url or "").startswith(("https://", "http://localhost", "http://127.0.0.1")):
            raise ValueError("a key would go in the clear: use https://")
        return self


class Target(Model):
    """What `--target` puts over the fields of the file."""

    store: Store | None = None
    namespace: Text | None = None
    spark: Mapping[str, Setting] | None = None


class Project(Model):
    """A whole project file."""

    store: Store = PROJECT_STORE
    namespace: Text = "default"
    spark: Mapping[str, Setting] = {}
    jobs: tuple[JobModel, ...] = ()
    mills: tuple[MillModel, ...] = ()
    tasks: Mapping[Name, PythonName] = {}
    health: Health = Health()
    alerts: tuple[Alerts, ...] = ()
    retention: Retention = Retention()
    openlineage: OpenLineage | None = None
    targets: Mapping[str, Target] = {}

    @model_validator(mode="after")
    def _jobs_have_names_of_their_own(self) -> Project:
        twice = [name for name, times in Counter(job.name for job in self.jobs).items() if times > 1]
        if twice:
            raise ValueError(f"two jobs are called '{twice[0]}'")
        return self

    @model_validator(mode="after")
    def _mills_have_names_of_their_own(self) -> Project:
        names = Counter([*(job.name for job in self.jobs), *(mill.name for mill in self.mills)])
        twice = [mill.name for mill in self.mills if names[mill.name] > 1]
        if twice:
            raise ValueError(f"a mill and another mill or a job are called '{twice[0]}'")
        return self

    @property
    def master(self) -> str:
        """Where Spark runs: as the file says, else on this machine."""
        settings = self.spark_settings()
        return settings.get("spark.remote") or settings.get("spark.master", "local[*]")

    def spark_settings(self) -> dict[str, str]:
        """The settings with their full names: `master` is spark.master."""
        return {name if "." in name else f"spark.{name}": value for name, value in self.spark.items()}
