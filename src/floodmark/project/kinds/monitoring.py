"""What watches the jobs of a project, as its file says: limits of health, where alerts go, and events of lineage."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import Field, StringConstraints, model_validator

from floodmark.project.kinds import Duration, Model, Text

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
    "sink_behind",
    "run_started",
    "run_succeeded",
    "summary",
]


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
