"""Finding a Java that Spark can run on; standard library only, so that it works before anything is installed.

`python -m floodmark.spark.java` prints the home of the one that will be used; with `install` it fetches one first.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from floodmark.errors import FloodmarkError, JavaMissing, SparkUnavailable
from floodmark.machine import file_lock

if TYPE_CHECKING:
    from collections.abc import Iterator


SUPPORTED = (17, 21)
FETCHED = "21"
PLACES = (
    "/usr/lib/jvm/*",
    "/Library/Java/JavaVirtualMachines/*/Contents/Home",
    "/opt/homebrew/opt/openjdk@*",  # Homebrew's are not put on PATH
    "/usr/local/opt/openjdk@*",
)


@dataclass(frozen=True)
class Java:
    """An installed Java: where it lives and its main version."""

    home: Path
    version: int

    @property
    def program(self) -> Path:
        """The `java` program itself."""
        return self.home / "bin" / "java"

    def __str__(self) -> str:
        return f"Java {self.version} in {self.home}"


def find_java() -> Java:
    """The first Java 17 or 21 of: JAVA_HOME, PATH, the cache folder, the usual places.

    Raises JavaMissing, with the version that was found instead, if any.
    """
    unfit: Java | None = None
    for program in _programs():
        java = ask(program)
        if java and java.version in SUPPORTED:
            return java
        unfit = unfit or java
    raise JavaMissing(found=str(unfit) if unfit else None, command=install_command())


def _programs() -> Iterator[Path]:
    home = os.environ.get("JAVA_HOME")
    if home:
        yield Path(home) / "bin" / "java"
    on_path = shutil.which("java")
    if on_path:
        yield Path(on_path)
    fetched = jdk_folder()
    yield from sorted([*fetched.glob("[!.]*/bin/java"), *fetched.glob("[!.]*/Contents/Home/bin/java")])
    for place in PLACES:
        root, _, pattern = place.partition("*")
        folder, prefix = (Path(root), "") if root.endswith("/") else (Path(root).parent, Path(root).name)
        yield from sorted(folder.glob(f"{prefix}*{pattern}/bin/java"))


def ask(program: Path) -> Java | None:
    """What the program says it is; None if it does not run (macOS has a `java` that only asks to be installed)."""
    return _description(program) or _answer(program)


def _description(program: Path) -> Java | None:
    """By the file that a JDK carries: reading it costs nothing, and asking the program a whole JVM."""
    try:
        home = program.resolve(strict=True).parent.parent
        version = re.search(r'^JAVA_VERSION="(?:1\.)?(\d+)', (home / "release").read_text(), re.MULTILINE)
    except (OSError, ValueError):
        return None
    return Java(home, int(version[1])) if version and os.access(home / "bin" / "java", os.X_OK) else None


def _answer(program: Path) -> Java | None:
    try:
        answer = subprocess.run(
            [program, "-XshowSettings:properties", "-version"], capture_output=True, text=True, timeout=60, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    home = re.search(r"java\.home = (.+)", answer.stderr)
    version = re.search(r"java\.specification\.version = (?:1\.)?(\d+)", answer.stderr)
    return Java(Path(home[1].strip()), int(version[1])) if home and version else None


def install_command() -> str:
    """How to get a Java: with the platform's package manager, or without."""
    return f"{native_command()}; or, without an administrator, `floodmark java --install` (`make java` in a checkout)"


def native_command() -> str:
    """How this platform installs a Java."""
    ways = {
        "apt-get": "sudo apt-get install openjdk-21-jre-headless (or openjdk-17-jre-headless, on Debian 12)",
        "dnf": "sudo dnf install java-21-openjdk-headless",
        "brew": "brew install openjdk@21",
    }
    return next((way for program, way in ways.items() if shutil.which(program)), "install a JDK 21")


def jdk_folder() -> Path:
    """Where `floodmark java --install` and `make java` put what they fetch."""
    return cache_folder() / "jdk"


def install() -> Java:
    """Fetch a JDK into the cache folder; a fetch that was cut short leaves nothing that would be found."""
    arriving = jdk_folder() / ".arriving"
    shutil.rmtree(arriving, ignore_errors=True)
    arriving.mkdir(parents=True)
    unpacked = _fetch(arriving)
    home = jdk_folder() / unpacked.name
    shutil.rmtree(home, ignore_errors=True)
    unpacked.rename(home)
    shutil.rmtree(arriving)
    return find_java()


def _fetch(folder: Path) -> Path:
    try:
        import jdk
    except ImportError as error:
        raise SparkUnavailable(
            "what fetches a JDK is not installed.", hint=f"pip install 'floodmark[java]'; or {native_command()}"
        ) from error
    try:
        return Path(jdk.install(FETCHED, path=str(folder)))
    except Exception as error:  # the downloader wraps some failures, and lets those of the network through
        raise SparkUnavailable(
            f"no JDK could be fetched: {error}.", hint=f"{native_command()}; or again, with a network"
        ) from error


def cache_folder() -> Path:
    """What was fetched once and may be deleted: FLOODMARK_CACHE, else `floodmark` among this user's caches."""
    named = os.environ.get("FLOODMARK_CACHE")
    if named:
        return Path(named).expanduser().absolute()
    caches = os.environ.get("XDG_CACHE_HOME")
    return (Path(caches) if caches else Path.home() / ".cache").absolute() / "floodmark"


@contextmanager
def alone(lock: Path) -> Iterator[None]:
    """Hold the lock file: other processes that want it wait; a killed holder lets go by itself."""
    lock.parent.mkdir(parents=True, exist_ok=True)
    # on Windows two processes may fetch at once: wasteful, and the last rename wins
    with file_lock(lock) if sys.platform != "win32" else nullcontext():
        yield


def main(arguments: list[str]) -> int:
    """Print the Java that will be used, or what to do to get one."""
    try:
        print(install() if arguments == ["install"] else find_java())
    except FloodmarkError as error:
        print(f"Error: {error.message}\nTry: {error.hint}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
