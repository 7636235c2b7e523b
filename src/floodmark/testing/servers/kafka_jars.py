"""The jars of the Kafka broker: resolved once into the user's cache folder, as the connectors are."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

from floodmark.spark.cache import alone, cache_folder
from floodmark.spark.connectors import IVY_SETTINGS, MANIFEST, kept
from floodmark.spark.ivy import Resolution
from floodmark.spark.java import Java

IVY_FILE = Path(__file__).with_name("kafka.ivy.xml")


def kafka_jars(java: Java) -> tuple[Path, ...]:
    """The jars; the first call ever fetches them (about 40 MB), later ones never touch the network.

    Raises ConnectorsMissing if they could not be resolved.
    """
    key = hashlib.sha256(IVY_FILE.read_bytes()).hexdigest()[:16]
    folder = cache_folder() / "kafka" / key
    return kept(folder) or _resolved(folder, java)


def _resolved(folder: Path, java: Java) -> tuple[Path, ...]:
    with alone(folder.with_suffix(".lock")):
        if not kept(folder):  # another process may have resolved them while this one waited
            settings = Path(os.environ.get("FLOODMARK_IVY_SETTINGS") or IVY_SETTINGS).expanduser()
            Resolution(IVY_FILE, settings, folder, java).run()
            sizes = {jar.name: jar.stat().st_size for jar in (folder / "jars").glob("*.jar")}
            arriving = folder / f"{MANIFEST}.{os.getpid()}"
            arriving.write_text(json.dumps(sizes, indent=1, sort_keys=True))
            arriving.replace(folder / MANIFEST)  # last: without it the folder does not count
    return kept(folder)
