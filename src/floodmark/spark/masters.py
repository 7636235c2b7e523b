"""Where Spark runs: whether that can be meant, and whether it answers, before a JVM is started to find out."""

from __future__ import annotations

import re
import socket
from dataclasses import dataclass
from urllib.parse import urlsplit

from floodmark.errors import ConfigError, SparkUnavailable
from floodmark.errors.configuration import did_you_mean, nearest_names

LOCAL = re.compile(r"local(\[(\*|\d+)(\s*,\s*\d+)?\])?")
CLUSTER = re.compile(r"local-cluster\[\s*\d+\s*,\s*\d+\s*,\s*\d+\s*\]")
KINDS = ("local", "local[*]", "yarn", "spark://", "k8s://", "sc://")
PORTS = {"spark": 7077, "k8s": 443, "sc": 15002}
ANSWER_SECONDS = 5.0
HINT = "write `master: local[*]` under `spark:` to run on this machine"


def master_mistake(master: str) -> ConfigError | None:
    """What is wrong with a master as it is written; None if it can be meant."""
    scheme, _, rest = master.partition("://")
    if LOCAL.fullmatch(master) or CLUSTER.fullmatch(master) or master == "yarn" or (scheme in PORTS and rest):
        return None
    near = did_you_mean(nearest_names(master.partition("[")[0], KINDS))
    return ConfigError(
        f"spark.master '{master}' is none that Spark knows.", hint=near or f"{HINT}, or {', '.join(KINDS[2:])}…"
    )


def require_answer(master: str) -> None:
    """Raise SparkUnavailable if none of the hosts that a master names takes a connection; of yarn nothing is known."""
    wrong = master_mistake(master)
    if wrong is not None:
        raise wrong
    hosts = hosts_of(master)
    refusals = [refusal for host in hosts if (refusal := host.refusal())]
    if hosts and len(refusals) == len(hosts):
        raise SparkUnavailable(
            f"Spark at {master} cannot be reached: {'; '.join(refusals)}.",
            hint=f"start it, or fix `{'remote' if master.startswith('sc://') else 'master'}:`; {HINT}",
        )


@dataclass(frozen=True)
class MasterHost:
    """A host and a port that a master listens at."""

    name: str
    port: int

    def refusal(self) -> str | None:
        """Why it does not answer; None if it does."""
        try:
            socket.create_connection((self.name, self.port), ANSWER_SECONDS).close()
        except socket.gaierror:
            return f"there is no host '{self.name}'"
        except OSError as error:
            reason = error.strerror or "it does not answer"
            return f"{self.name}:{self.port}: {reason}"
        return None


def hosts_of(master: str) -> list[MasterHost]:
    """The hosts of `spark://one:7077,two:7077`, `k8s://https://host:6443` or `sc://host:15002`."""
    scheme, _, rest = master.partition("://")
    if scheme not in PORTS:
        return []
    places = [urlsplit(each if "://" in each else f"//{each}") for each in rest.split(",")]
    return [MasterHost(place.hostname, place.port or PORTS[scheme]) for place in places if place.hostname]
