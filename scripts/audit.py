#!/usr/bin/env python3
"""Asks whether a weakness is known of any package in requirements.lock, through pip-audit in a folder of its own.

`make audit` asks, and fails where nobody answers. `make check` calls it with --quick: once a day for a lock file,
within seconds, and without an answer it says so and goes on. Packages that the registry knows nothing of count apart:
not asked is not the same as not found.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parent.parent
LOCK, HOME = ROOT / "requirements.lock", ROOT / ".audit"
DAY_SECONDS = 86_400
QUICK_SECONDS, PATIENT_SECONDS = 20.0, 300.0
UNANSWERED = "not audited: no registry answered for known weaknesses"


@dataclass(frozen=True)
class Audit:
    """What was found of the packages that could be asked for."""

    asked: int
    skipped: int
    weaknesses: tuple[str, ...] = field(default=())

    def __str__(self) -> str:
        if not self.asked:
            return f"{UNANSWERED} ({self.skipped} packages)"
        rest = f", {self.skipped} could not be asked for" if self.skipped else ""
        found = "".join(f"\n  {each}" for each in self.weaknesses) or "none"
        return f"known weaknesses of {self.asked} packages{rest}: {found}"


def read_report(report: str) -> Audit:
    """What pip-audit's JSON says."""
    packages = json.loads(report)["dependencies"]
    asked = [each for each in packages if "skip_reason" not in each]
    lines = tuple(
        f"{each['name']} {each['version']}: {found['id']}, fixed in {', '.join(found['fix_versions']) or 'no version'}"
        for each in asked
        for found in each["vulns"]
    )
    return Audit(len(asked), len(packages) - len(asked), lines)


def ask(seconds: float) -> Audit:
    """Run pip-audit within so many seconds; an empty audit where there is no answer."""
    program = HOME / "bin" / "pip-audit"
    until = time.monotonic() + seconds
    try:
        if not program.exists():
            run([sys.executable, "-m", "venv", str(HOME)], until)
            run([str(HOME / "bin" / "pip"), "install", "--quiet", "--retries", "1", "pip-audit"], until)
        options = ["--requirement", str(LOCK), "--no-deps", "--disable-pip", "--timeout", "5", "--format", "json"]
        return read_report(run([str(program), *options], until))
    except (OSError, ValueError, KeyError, subprocess.SubprocessError):
        return Audit(0, 0)


def run(command: list[str], until: float) -> str:
    """What it prints; pip-audit ends with 1 where it found something."""
    left = max(until - time.monotonic(), 0.1)
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=left)
    if done.returncode not in (0, 1):
        raise subprocess.SubprocessError(done.stderr[-500:])
    return done.stdout


def main() -> int:
    """Ask, print one line, and give the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="once a day, within seconds, never for lack of an answer")
    is_quick = parser.parse_args().quick
    stamp = HOME / f"{hashlib.sha256(LOCK.read_bytes()).hexdigest()[:16]}.txt"
    if is_quick and stamp.exists() and time.time() - stamp.stat().st_mtime < DAY_SECONDS:
        print(f"{stamp.read_text().strip()} (asked within the last day)")
        return 0
    audit = ask(QUICK_SECONDS if is_quick else PATIENT_SECONDS)
    print(audit)
    if audit.weaknesses:
        return 1
    if HOME.exists():
        stamp.write_text(str(audit))
    return 0 if audit.asked or is_quick else 1


if __name__ == "__main__":
    sys.exit(main())
