"""What datasets are called: by OpenLineage's rules for names, and never with a login in them."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from urllib.parse import urlsplit

from floodmark.lineage.columns import Dataset
from floodmark.probes.places import local_path, native_uri
from floodmark.sources.table_jdbc_probe import without_login

CONTAINER_FIRST = ("abfss", "az")
"""Schemes in which a container stands before the @, where others have a login."""


def folder(path: str) -> Dataset:
    """Files, or a Delta table that is known by its path."""
    local = local_path(path)
    if local is not None:
        return Dataset("file", str(local).rstrip("/"))
    parts = urlsplit(native_uri(path))
    authority = parts.netloc if parts.scheme in CONTAINER_FIRST else parts.netloc.rpartition("@")[2]
    return Dataset(f"{parts.scheme}://{authority}", parts.path.strip("/"))


def delta(path: str | None, table: str | None) -> Dataset:
    """A Delta table; which catalog knows its name is only known to a session."""
    return folder(path) if path is not None else Dataset("catalog", str(table))


def topic(bootstrap: str | Sequence[str], name: str) -> Dataset:
    """A topic, by the first of its brokers."""
    brokers = bootstrap if isinstance(bootstrap, str) else ",".join(bootstrap)
    return Dataset(f"kafka://{brokers.split(',')[0].strip()}", name)


def postgres(url: str, table: str) -> Dataset:
    """A table of PostgreSQL: a URL, or `host=… dbname=…`."""
    if "://" in url:
        parts = urlsplit(url.removeprefix("jdbc:"))
        host, database = parts.netloc.rpartition("@")[2], parts.path.strip("/")
    else:
        given = dict(part.split("=", 1) for part in shlex.split(url) if "=" in part)
        host, database = f"{given.get('host', 'localhost')}:{given.get('port', '5432')}", given.get("dbname", "")
    authority = host if ":" in host else f"{host or 'localhost'}:5432"
    qualified = table if "." in table else f"public.{table}"
    return Dataset(f"postgres://{authority}", f"{database}.{qualified}" if database else qualified)


def jdbc(url: str, table: str) -> Dataset:
    """A table behind a JDBC driver."""
    if url.startswith("jdbc:postgresql:"):
        return postgres(url, table)
    kind, _, rest = without_login(url).removeprefix("jdbc:").partition(":")
    authority, _, database = rest.removeprefix("//").partition("/")
    return Dataset(f"{kind}://{authority}", f"{database}.{table}" if database else table)


def sqlite(path: str, table: str) -> Dataset:
    """A table of a SQLite file."""
    return Dataset(f"sqlite://{local_path(path)}", table)
