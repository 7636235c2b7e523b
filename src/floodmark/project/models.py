"""The project file as values: what each field means, and what goes with what."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import BeforeValidator, Discriminator, Field, PrivateAttr, Tag, model_validator

from floodmark.errors import ConfigError
from floodmark.project.folder import DEFAULT_FILES
from floodmark.project.kinds import (
    Columns,
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
from floodmark.project.kinds.monitoring import Alerts, Health, OpenLineage
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


Setting = Annotated[str, BeforeValidator(_as_setting, json_schema_input_type=str | int | float | bool)]
Store = Text | tuple[Text, ...]
Tags = Annotated[
    tuple[Name, ...],
    BeforeValidator(
        lambda value: [value] if isinstance(value, str) else value, json_schema_input_type=Name | tuple[Name, ...]
    ),
]


class Transform(Model):
    """SQL over `source`, a Python function from DataFrame to DataFrame, or the members of a dimension."""

    sql: Text | None = None
    file: Text | None = Field(default=None, description="a file with the SQL, seen from the project's folder")
    python: PythonName | None = None
    dimension: DimensionMembers | None = None

    @model_validator(mode="after")
    def _one_of_them(self) -> Transform:
        text = self.file or self.sql  # the text of a file is read into `sql` before
        if [text, self.python, self.dimension].count(None) != len(("text", "python")):
            raise ValueError("give either sql, file or python, or dimension")
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
    tags: Tags = ()

    @property
    def has_batches(self) -> bool:
        """Whether it has tables and batches that a person may put back, repair or look into; a stream has not."""
        return True

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


class JobDefaults(Model):
    """What every job says that does not say otherwise; `{job}` in a path is the name of the job."""

    rules: tuple[RuleModel, ...] = ()
    quarantine: Quarantine | None = None
    on_schema_change: Literal["fail", "evolve", "ignore"] = "fail"
    dead_letters: DeadLetters | None = None
    every: Duration | None = None
    retries: Retries = Retries()
    spool: Text | None = None
    tags: Tags = ()

    @model_validator(mode="after")
    def _a_place_for_each(self) -> JobDefaults:
        for name in ("quarantine", "dead_letters"):
            path = getattr(getattr(self, name), "path", None)
            if path is not None and "{job}" not in path:
                raise ValueError(f"`{name}` of all jobs would be one table: write {{job}} in its path")
        return self


class PythonJobs(Model):
    """Jobs that are written in Python: a job, several, or a function that gives them."""

    python: PythonName = Field(description="module:name")
    tags: Tags = ()
    _jobs: tuple[JobModel, ...] = PrivateAttr(default=())

    @property
    def jobs(self) -> tuple[JobModel, ...]:
        """What was found there; nothing before anybody has looked."""
        return self._jobs

    def holding(self, jobs: Sequence[JobModel]) -> PythonJobs:
        """The same, once it was looked at."""
        copy = self.model_copy()
        copy._jobs = tuple(jobs)
        return copy


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


def _kind_of_item(item: object) -> str:
    is_python = isinstance(item, PythonJobs) or (isinstance(item, Mapping) and "python" in item)
    return "python" if is_python else "job"


JobItem = Annotated[
    Annotated[JobModel, Tag("job")] | Annotated[PythonJobs, Tag("python")], Discriminator(_kind_of_item)
]


def _as_list(value: object) -> object:
    return [value] if isinstance(value, Mapping) else value


JobItems = Annotated[
    tuple[JobItem, ...], BeforeValidator(_as_list, json_schema_input_type=tuple[JobItem, ...] | PythonJobs)
]


def _jobs_of(item: JobModel | PythonJobs) -> tuple[JobModel, ...]:
    return (item,) if isinstance(item, JobModel) else item.jobs


class Target(Model):
    """What `--target` puts over the fields of the file."""

    store: Store | None = None
    namespace: Text | None = None
    spark: Mapping[str, Setting] | None = None
    folder: Text | None = Field(default=None, description="the tables that jobs fill lie in here, by their own paths")
    schema_: Text | None = Field(default=None, alias="schema", description="of the tables that jobs fill by name")


class Project(Model):
    """A whole project file."""

    store: Store = PROJECT_STORE
    namespace: Text = "default"
    spark: Mapping[str, Setting] = {}
    include: Columns = Field(default=DEFAULT_FILES, description="files with jobs, as patterns")
    defaults: JobDefaults = JobDefaults()
    listed: JobItems = Field(default=(), alias="jobs")
    mills: tuple[MillModel, ...] = ()
    tasks: Mapping[Name, PythonName] = {}
    setup: PythonName | None = Field(
        default=None, description="a function that gets the Spark session once it has started: to register functions"
    )
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
    def jobs(self) -> tuple[JobModel, ...]:
        """Every job, also those that were given in Python."""
        return tuple(job for _, job in self.placed_jobs())

    def with_listed(self, listed: Iterable[JobModel | PythonJobs]) -> Project:
        """The project with other jobs. Raises ConfigError if two have one name."""
        changed = self.model_copy(update={"listed": tuple(listed)})
        twice = [name for name, times in Counter(job.name for job in changed.jobs).items() if times > 1]
        if twice:
            raise ConfigError(f"two jobs are called '{twice[0]}'.", hint="give each a name of its own")
        return changed

    def placed_jobs(self) -> list[tuple[int, JobModel]]:
        """Every job with its place in the list of the file."""
        return [(place, job) for place, item in enumerate(self.listed) for job in _jobs_of(item)]

    @property
    def master(self) -> str:
        """Where Spark runs: as the file says, else on this machine."""
        settings = self.spark_settings()
        return settings.get("spark.remote") or settings.get("spark.master", "local[*]")

    def spark_settings(self) -> dict[str, str]:
        """The settings with their full names: `master` is spark.master."""
        return {name if "." in name else f"spark.{name}": value for name, value in self.spark.items()}
