"""The JVM connectors: resolved once into the user's cache folder, then never again.

`python -m floodmark.spark.connectors` resolves them and says where they are.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import shutil
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from floodmark.errors import ConfigError, ConnectorsMissing, FloodmarkError
from floodmark.machine import replace_file
from floodmark.patience import doubling_pause
from floodmark.phases import phase
from floodmark.spark.java import alone, cache_folder, find_java

if TYPE_CHECKING:
    from collections.abc import Mapping

    from floodmark.spark.java import Java


SPARK = "4.2"
IVY_FILE = Path(__file__).with_name("connectors.ivy.xml")
S3_FILE = Path(__file__).with_name("s3.ivy.xml")
IVY_SETTINGS = Path(__file__).with_name("ivysettings.xml")
PACKAGES = """<?xml version="1.0" encoding="UTF-8"?>
<ivy-module version="2.0">
  <info organisation="floodmark" module="packages"/>
  <configurations>
    <conf name="default"/>
  </configurations>
  <dependencies defaultconf="default->default">
{dependencies}
  </dependencies>
</ivy-module>
"""
MANIFEST = "manifest.json"
ATTEMPTS = 5
PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 2.0, 60.0
_BUSY = re.compile(  # 401, 403 and 404 stay as they are however long one waits
    r"CLIENT ERROR: (?:Too Many Requests|Request Timeout)|SERVER ERROR: [^\n=]*(?= url=)"
    r"|Server access [Ee]rror|UnknownHostException|ConnectException|SocketException|SocketTimeoutException"
    r"|SSLException|NoRouteToHostException|Connection (?:reset|refused)"
)
_MODULE = re.compile(r"([\w.-]+):([\w.-]+):([\w.-]+)")
_NOT_FOUND = re.compile(r"^\s*:: ([^#\s]+)#([^;\s]+);(\S+?): not found", re.MULTILINE)

log = logging.getLogger(__name__)


def brings_connectors() -> bool:
    """Whether Floodmark brings the connectors; FLOODMARK_CONNECTORS=none says that the cluster has its own."""
    return os.environ.get("FLOODMARK_CONNECTORS", "").lower() != "none"


def asks_for_s3(settings: Mapping[str, str]) -> bool:
    """Whether the connector of s3a:// is wanted: FLOODMARK_CONNECTORS=s3, or settings of it (`fs.s3a.…`).

    Who names hadoop-aws among jars or packages has one already.
    """
    is_set = any(name.startswith("spark.hadoop.fs.s3a.") for name in settings)
    has_own = any("hadoop-aws" in value for value in settings.values())
    return (is_set and not has_own) or os.environ.get("FLOODMARK_CONNECTORS", "").lower() == "s3"


def s3_connectors(ivy_settings: str | None = None) -> tuple[Path, ...]:
    """The jars that s3a:// needs, fetched once, as connectors are. Raises ConnectorsMissing, JavaMissing."""
    folder = connectors_folder(S3_FILE)
    return cached_jars(folder) or _resolve(folder, _settings_file(ivy_settings), PAUSE_SECONDS, S3_FILE)


def connectors(ivy_settings: str | None = None, *, pause_seconds: float = PAUSE_SECONDS) -> tuple[Path, ...]:
    """The jars; the first call ever resolves them, later ones never touch the network.

    Raises ConnectorsMissing if they could not be resolved, JavaMissing if there is nothing to resolve them with.
    """
    check_spark_version(_spark_version())
    folder = connectors_folder()
    return cached_jars(folder) or _resolve(folder, _settings_file(ivy_settings), pause_seconds)


def package_jars(packages: str, ivy_settings: str | None = None) -> tuple[Path, ...]:
    """The jars of what `spark.jars.packages` names (`org:name:version`, with commas): fetched once, as connectors are.

    A driver is asked for so: its own jar, and whatever it needs. Raises ConfigError, ConnectorsMissing, JavaMissing.
    """
    modules = tuple(sorted({each.strip() for each in packages.split(",") if each.strip()}))
    dependencies = "\n".join(_dependency(module) for module in modules)
    if not modules:
        return ()
    folder = cache_folder() / "packages" / hashlib.sha256(dependencies.encode()).hexdigest()[:16]
    found = cached_jars(folder)
    if found:
        return found
    folder.mkdir(parents=True, exist_ok=True)
    listed = folder / "packages.ivy.xml"
    replace_file(listed, PACKAGES.format(dependencies=dependencies))
    return _resolve(folder, _settings_file(ivy_settings), PAUSE_SECONDS, listed)


def _dependency(module: str) -> str:
    match = _MODULE.fullmatch(module)
    if match is None:
        raise ConfigError(
            f"spark.jars.packages: {module!r} is not the name of a package.", hint="org:name:version, with commas"
        )
    return '    <dependency org="{}" name="{}" rev="{}"/>'.format(*match.groups())


def _resolve(folder: Path, settings: Path, pause_seconds: float, modules: Path = IVY_FILE) -> tuple[Path, ...]:
    java = find_java()
    with alone(folder.with_suffix(".lock")):
        found = cached_jars(folder)  # another process may have resolved them while this one waited
        if found:
            return found
        resolution = Resolution(modules, settings, folder, java)
        with phase("fetching connectors", amount=resolution.fetched):
            resolution.run(pause_seconds)
        write_manifest(folder)
    return cached_jars(folder)


def check_spark_version(found: str) -> None:
    """Refuse a Spark that these connectors were not built for, before it fails in some stranger way."""
    if not found.startswith(f"{SPARK}."):
        raise ConnectorsMissing(
            missing=(f"connectors for Spark {found}",), reason=f"those of this Floodmark are for Spark {SPARK}"
        )


def _spark_version() -> str:
    from importlib.metadata import version

    return version("pyspark")


def connectors_folder(modules: Path = IVY_FILE) -> Path:
    """The folder of this very list of connectors: another list has another folder."""
    key = hashlib.sha256(modules.read_bytes()).hexdigest()[:16]
    return cache_folder() / "connectors" / key


def cached_jars(folder: Path) -> tuple[Path, ...]:
    """The jars in the folder if it is complete: the manifest is there and every jar has its size; else nothing."""
    try:
        sizes = json.loads((folder / MANIFEST).read_text())
        jars = tuple(folder / "jars" / name for name in sorted(sizes))
        return jars if all(jar.stat().st_size == sizes[jar.name] for jar in jars) else ()
    except (OSError, ValueError):
        return ()


def _settings_file(path: str | None) -> Path:
    return Path(os.environ.get("FLOODMARK_IVY_SETTINGS") or path or IVY_SETTINGS).expanduser()


def write_manifest(folder: Path) -> None:
    """Say that the folder is complete; last, for without it the folder does not count. Raises ConnectorsMissing."""
    sizes = {jar.name: jar.stat().st_size for jar in (folder / "jars").glob("*.jar")}
    if not sizes:
        raise ConnectorsMissing(missing=(IVY_FILE.name,), reason="Ivy reported success and brought no jar")
    replace_file(folder / MANIFEST, json.dumps(sizes, indent=1, sort_keys=True))


class TryAgain(Exception):
    """The registry was busy or out of reach: worth another attempt after a pause."""

    def __init__(self, missing: tuple[str, ...], reason: str) -> None:
        super().__init__(reason)
        self.missing, self.reason = missing, reason


@dataclass(frozen=True)
class Resolution:
    """Runs Ivy, the resolver that PySpark ships, and again after a pause where that may help.

    It takes a list of modules, where they are looked for, and the folder that their jars go into.
    """

    modules: Path
    settings: Path
    folder: Path
    java: Java

    def run(self, pause_seconds: float = PAUSE_SECONDS) -> None:
        """Bring all jars. Raises ConnectorsMissing; what was fetched until then is kept for the next attempt."""
        log.info("resolving the JVM connectors, once, into %s", self.folder)
        for number in range(1, ATTEMPTS + 1):
            try:
                self.attempt()
                break
            except TryAgain as busy:
                if number == ATTEMPTS:
                    raise ConnectorsMissing(missing=busy.missing, reason=busy.reason) from busy
                pause = doubling_pause(pause_seconds, number, LONGEST_PAUSE_SECONDS)
                log.warning("connectors: %s; attempt %d of %d in %.0f s", busy, number + 1, ATTEMPTS, pause)
                time.sleep(pause)
        shutil.rmtree(self._ivy_cache, ignore_errors=True)

    def attempt(self) -> None:
        """One call of Ivy. Raises TryAgain where waiting may help, else ConnectorsMissing."""
        shutil.rmtree(self.jars, ignore_errors=True)
        command: list[str | Path] = [self.java.program, "-jar", ivy_jar(), *self._options()]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        trouble = judge(done.returncode, done.stdout + done.stderr)
        if trouble and done.returncode == 0:  # a refused POM may be remembered as a module without dependencies
            shutil.rmtree(self._ivy_cache, ignore_errors=True)
        if trouble:
            raise trouble

    def fetched(self) -> str:
        """How much has been fetched so far, for whoever waits."""
        files = [file for file in self._ivy_cache.rglob("*") if file.suffix in (".jar", ".part")]
        with suppress(OSError):  # a part is renamed when it is whole
            return f"{sum(file.stat().st_size for file in files) / 1_000_000:.1f} MB"
        return ""

    @property
    def jars(self) -> Path:
        """The folder of the jars themselves."""
        return self.folder / "jars"

    @property
    def _ivy_cache(self) -> Path:
        return self.folder / "ivy"

    def _options(self) -> list[str]:
        pattern = f"{self.jars}/[artifact]-[revision](-[classifier]).[ext]"
        places = {"-settings": self.settings, "-cache": self._ivy_cache, "-ivy": self.modules}
        named = [text for option, place in places.items() for text in (option, str(place))]
        return [*named, "-types", "jar", "bundle", "-retrieve", pattern, "-verbose"]  # else refusals are not shown


def judge(code: int, output: str) -> TryAgain | ConnectorsMissing | None:
    """What Ivy's ending means; success among refused requests is none."""
    busy = _BUSY.search(output)
    missing = tuple(":".join(part) for part in dict.fromkeys(_NOT_FOUND.findall(output))) or ("the JVM connectors",)
    if busy:
        return TryAgain(missing, f'the registry answered "{busy[0]}"')
    return ConnectorsMissing(missing=missing, reason=_telling_line(output)) if code else None


def _telling_line(output: str) -> str:
    lines = [line.strip() for line in output.splitlines() if line.strip()] or ["Ivy said nothing"]
    return next(
        (line for line in lines if re.search("CLIENT ERROR: (?!Not Found)|Exception|module not found", line)), lines[-1]
    )


def ivy_jar() -> Path:
    """The Ivy that PySpark ships."""
    spec = find_spec("pyspark")
    places = spec.submodule_search_locations if spec else None
    found = sorted(Path(places[0], "jars").glob("ivy-*.jar")) if places else []
    if not found:
        raise ConnectorsMissing(missing=("the JVM connectors",), reason="PySpark with its jars is not installed")
    return found[-1]


def main() -> int:
    """Resolve the connectors and say in one line where they are."""
    try:
        jars = connectors() if brings_connectors() else ()
    except FloodmarkError as error:
        print(f"Error: {error.message}\nTry: {error.hint}", file=sys.stderr)
        return error.exit_code
    print(f"{len(jars)} connectors in {connectors_folder()}" if jars else "connectors are switched off")
    return 0


if __name__ == "__main__":
    sys.exit(main())
