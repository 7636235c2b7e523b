"""The JVM connectors: resolved once into the user's cache folder, then never again.

`python -m floodmark.spark.connectors` resolves them and says where they are.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from floodmark.errors import ConnectorsMissing, FloodmarkError
from floodmark.spark.cache import alone, cache_folder
from floodmark.spark.java import find_java

if TYPE_CHECKING:
    from tenacity.wait import WaitBaseT

SPARK = "4.2"
IVY_FILE = Path(__file__).with_name("connectors.ivy.xml")
IVY_SETTINGS = Path(__file__).with_name("ivysettings.xml")
MANIFEST = "manifest.json"


def wanted() -> bool:
    """Whether Floodmark brings the connectors; FLOODMARK_CONNECTORS=none says that the cluster has its own."""
    return os.environ.get("FLOODMARK_CONNECTORS", "").lower() != "none"


def connectors(ivy_settings: str | None = None, *, pauses: WaitBaseT | None = None) -> tuple[Path, ...]:
    """The jars; the first call ever resolves them, later ones never touch the network.

    Raises ConnectorsMissing if they could not be resolved, JavaMissing if there is nothing to resolve them with.
    """
    check_spark_version(_spark_version())
    folder = connectors_folder()
    return kept(folder) or _resolved(folder, _settings_file(ivy_settings), pauses)


def _resolved(folder: Path, settings: Path, pauses: WaitBaseT | None) -> tuple[Path, ...]:
    from floodmark.spark.ivy import PAUSES, Resolution

    java = find_java()
    with alone(folder.with_suffix(".lock")):
        found = kept(folder)  # another process may have resolved them while this one waited
        if found:
            return found
        Resolution(IVY_FILE, settings, folder, java).run(pauses or PAUSES)
        _write_manifest(folder)
    return kept(folder)


def check_spark_version(found: str) -> None:
    """Refuse a Spark that these connectors were not built for, before it fails in some stranger way."""
    if not found.startswith(f"{SPARK}."):
        raise ConnectorsMissing(
            missing=(f"connectors for Spark {found}",), reason=f"those of this Floodmark are for Spark {SPARK}"
        )


def _spark_version() -> str:
    from importlib.metadata import version

    return version("pyspark")


def connectors_folder() -> Path:
    """The folder of this very list of connectors: another list has another folder."""
    key = hashlib.sha256(IVY_FILE.read_bytes()).hexdigest()[:16]
    return cache_folder() / "connectors" / key


def kept(folder: Path) -> tuple[Path, ...]:
    """The jars in the folder if it is complete: the manifest is there and every jar has its size; else nothing."""
    try:
        sizes = json.loads((folder / MANIFEST).read_text())
        jars = tuple(folder / "jars" / name for name in sorted(sizes))
        return jars if all(jar.stat().st_size == sizes[jar.name] for jar in jars) else ()
    except (OSError, ValueError):
        return ()


def _settings_file(named: str | None) -> Path:
    return Path(os.environ.get("FLOODMARK_IVY_SETTINGS") or named or IVY_SETTINGS).expanduser()


def _write_manifest(folder: Path) -> None:
    sizes = {jar.name: jar.stat().st_size for jar in (folder / "jars").glob("*.jar")}
    if not sizes:
        raise ConnectorsMissing(missing=(IVY_FILE.name,), reason="Ivy reported success and brought no jar")
    arriving = folder / f"{MANIFEST}.{os.getpid()}"
    with arriving.open("w") as file:
        json.dump(sizes, file, indent=1, sort_keys=True)
        file.flush()
        os.fsync(file.fileno())
    arriving.replace(folder / MANIFEST)  # last: without it the folder does not count


def main() -> int:
    """Resolve the connectors and say in one line where they are."""
    try:
        jars = connectors() if wanted() else ()
    except FloodmarkError as error:
        print(f"Error: {error.message}\nTry: {error.hint}", file=sys.stderr)
        return error.exit_code
    print(f"{len(jars)} connectors in {connectors_folder()}" if jars else "connectors are switched off")
    return 0


if __name__ == "__main__":
    sys.exit(main())
