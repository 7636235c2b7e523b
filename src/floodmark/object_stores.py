"""Spark's settings of an object store, as readers without a JVM take them: `deltalake` and `pyarrow`.

Spark knows them by Hadoop's names (`fs.s3a.endpoint`), the others by names of their own. What nobody set is left out,
and each reader then finds it where it always looks: in the environment (`AWS_ACCESS_KEY_ID`, …) or a profile.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

S3_SCHEMES = ("s3", "s3a", "s3n")
SECRET_SETTING = re.compile(r"(?i)secret|passw|token|access[._-]?key|credential")
"""Settings whose values nobody may read, by their names; as Spark's own pages have it, and a little more."""
_PREFIX = re.compile("^(?:spark[.])?hadoop[.]")
_ANONYMOUS = "AnonymousAWSCredentialsProvider"


def is_secret(setting: str) -> bool:
    """Whether the value of a setting of Spark is nobody's business."""
    return SECRET_SETTING.search(setting) is not None


class HadoopSettings:
    """The settings of this process's Spark that speak of object stores: a process has one Spark, and so one of these.

    They are known before Spark starts: a look needs them, and starts none.
    """

    def __init__(self) -> None:
        self._known: dict[str, str] = {}
        self._later: Callable[[], Mapping[str, str]] | None = None
        self._lock = threading.Lock()

    def remember(self, settings: Mapping[str, str]) -> None:
        """Know these from now on; those that were known of the same names are forgotten."""
        own = {_PREFIX.sub("", name): str(value) for name, value in settings.items()}
        with self._lock:
            self._known = {**self._known, **{name: value for name, value in own.items() if name.startswith("fs.")}}

    def remember_later(self, settings: Callable[[], Mapping[str, str]]) -> None:
        """Ask for these when somebody needs them: a session is slow to tell, and most jobs never need to know."""
        self._later = settings

    def s3(self, where: str) -> S3Access | None:
        """How the bucket of this URL is reached; None for what is not on S3."""
        parts = urlsplit(where)
        if parts.scheme.lower() not in S3_SCHEMES:
            return None
        later, self._later = self._later, None
        if later is not None:
            self.remember(later())
        return S3Access.of(self._known, parts.netloc)


SETTINGS = HadoopSettings()


def delta_options(where: str) -> dict[str, str] | None:
    """`storage_options` of deltalake for a table at this place; None, where it needs none."""
    access = SETTINGS.s3(where)
    return access.delta_options() if access else None


@dataclass(frozen=True)
class S3Access:
    """How one bucket is reached; what is None is left to the environment. A secret is in no `repr`."""

    endpoint: str | None = None
    region: str | None = None
    access_key: str | None = None
    secret_key: str | None = None
    session_token: str | None = None
    is_path_style: bool | None = None
    is_anonymous: bool = False

    @classmethod
    def of(cls, settings: Mapping[str, str], bucket: str) -> S3Access:
        """By Hadoop's names; those of the bucket (`fs.s3a.bucket.NAME.endpoint`) win over those of all."""

        def value(name: str) -> str | None:
            return settings.get(f"fs.s3a.bucket.{bucket}.{name}", settings.get(f"fs.s3a.{name}")) or None

        style = value("path.style.access")
        return cls(
            endpoint=_with_scheme(value("endpoint"), value("connection.ssl.enabled")),
            region=value("endpoint.region"),
            access_key=value("access.key"),
            secret_key=value("secret.key"),
            session_token=value("session.token"),
            is_path_style=None if style is None else style.lower() == "true",
            is_anonymous=_ANONYMOUS in (value("aws.credentials.provider") or ""),
        )

    def delta_options(self) -> dict[str, str]:
        """As deltalake takes them. Of two commits of one number the store refuses the second."""
        is_plain = self.endpoint is not None and self.endpoint.startswith("http:")
        found = {
            "aws_endpoint": self.endpoint,
            "aws_allow_http": "true" if is_plain else None,
            "aws_region": self.region,
            "aws_access_key_id": self.access_key,
            "aws_secret_access_key": self.secret_key,
            "aws_session_token": self.session_token,
            "aws_virtual_hosted_style_request": None if self.is_path_style is None else _word(not self.is_path_style),
            "aws_skip_signature": "true" if self.is_anonymous else None,
            "aws_conditional_put": "etag",
        }
        return {name: value for name, value in found.items() if value is not None}

    def arrow_options(self) -> dict[str, str | bool]:
        """As pyarrow's S3FileSystem takes them."""
        parts = urlsplit(self.endpoint or "")
        found = {
            "endpoint_override": parts.netloc or None,
            "scheme": parts.scheme or None,
            "region": self.region,
            "access_key": self.access_key,
            "secret_key": self.secret_key,
            "session_token": self.session_token,
            "anonymous": True if self.is_anonymous else None,
            "force_virtual_addressing": None if self.is_path_style is None else not self.is_path_style,
        }
        return {name: value for name, value in found.items() if value is not None}

    def __repr__(self) -> str:
        return f"S3Access(endpoint={self.endpoint!r}, region={self.region!r})"


def _with_scheme(endpoint: str | None, is_encrypted: str | None) -> str | None:
    """Hadoop takes a bare host, and asks another setting how to speak to it."""
    if endpoint is None or "://" in endpoint:
        return endpoint
    return f"{'http' if (is_encrypted or 'true').lower() == 'false' else 'https'}://{endpoint}"


def _word(is_so: bool) -> str:
    return str(is_so).lower()
