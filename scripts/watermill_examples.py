#!/usr/bin/env python3
"""Runs watermill's own examples through the door, on a broker that is started for them, one of them over TLS.

    scripts/watermill_examples.py FOLDER              all of them
    scripts/watermill_examples.py FOLDER NAME …       these

FOLDER has the examples of watermill's sdist with their import lines changed; it is changed further: the broker's
address is put in, and `samples` is filled, which the sdist does not have. An example passes if it runs to its end: it
reads its own output up to the end of the stream. In an environment that has kafka-python and botox-di.
"""

from __future__ import annotations

import gc
import json
import os
import queue
import runpy
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from floodmark.testing.servers import Broker

ADDRESS = "kafka:9092"
SECONDS_FOR_ONE = 240
TIMES = range(0, 100, 10)
SAMPLES: Mapping[str, Sequence[Mapping[str, object]]] = {
    "goods.json": [{"title": f"item {n}", "quantity": n, "price": 100 * n} for n in (1, 3, 4)],
    "robot-locations.json": [{"time": time, "x": 3 * time, "y": 2 * time} for time in TIMES],
    "robot-speed.json": [{"time_from": time, "time_to": time + 10, "speed": 36.0} for time in TIMES],
}
OUTPUT_PARTS = Path("/tmp/.robot-speed.json.parts")  # noqa: S108 (the example says so)
"""Of what one of them writes; the mark of the next time would not know of them."""
PASSED, FAILED = "same   ", "differs"
"""As the other comparisons begin their lines: `doors.py` counts them."""


def main(folder: Path, names: Sequence[str]) -> int:
    """Run the examples, one line for each."""
    from floodmark.testing.servers import kafka_broker

    examples = [*names] or sorted(each.stem for each in folder.glob("*.py") if each.stem != "__init__")
    write_samples(folder / "samples")
    with tempfile.TemporaryDirectory() as home:
        certificates = make_certificates(Path(home, "tls"))
        with kafka_broker(Path(home, "kafka"), tls=certificates) as kafka:
            put_address(folder, kafka.bootstrap)
            failed = [report(*each) for each in run_all(folder, examples, kafka, Path(home))]
    return 1 if any(failed) else 0


def report(name: str, fault: str) -> bool:
    """A line for an example as soon as it has ended; whether it failed."""
    print(f"{FAILED if fault else PASSED}  {name}{f': {fault}' if fault else ''}", flush=True)
    return bool(fault)


def write_samples(folder: Path) -> None:
    """What the examples read; the first of them expects a sum of 8."""
    folder.mkdir(exist_ok=True)
    for name, rows in SAMPLES.items():
        (folder / name).write_text(json.dumps(rows))


def put_address(folder: Path, address: str) -> None:
    """Where the broker is: the one thing that is changed beside the import lines."""
    for file in folder.glob("*.py"):
        file.write_text(file.read_text().replace(ADDRESS, address))


def run_all(folder: Path, names: Sequence[str], kafka: Broker, home: Path) -> Iterator[tuple[str, str]]:
    """By name what went wrong, if anything. One program runs them all, and another the rest if one of them hangs."""
    waiting = list(names)
    while waiting:
        program, lines = start(folder, waiting, kafka, home)
        try:
            while waiting:
                name = waiting.pop(0)
                fault = result_of(lines)
                yield name, fault
                if fault.startswith(("no answer", "the program")):
                    break
        finally:
            program.kill()
            program.wait()


def start(
    folder: Path, names: Sequence[str], kafka: Broker, home: Path
) -> tuple[subprocess.Popen[str], queue.Queue[str]]:
    """A program that runs examples and says a line for each."""
    own = {
        "KAFKA_BROKER_URL": kafka.tls_bootstrap,
        **{f"SSL_{name}_FILE": str(home / "tls" / f"client.{name.lower()}") for name in ("CERT", "KEY")},
        "SSL_CA_FILE": str(home / "tls" / "ca.cert"),
    }
    command = [sys.executable, str(Path(__file__).resolve()), "--inside", str(folder), kafka.bootstrap, *names]
    program = subprocess.Popen(command, cwd=home, env={**os.environ, **own}, stdout=subprocess.PIPE, text=True)
    lines: queue.Queue[str] = queue.Queue()
    threading.Thread(target=collect, args=(program, lines), daemon=True).start()
    return program, lines


def collect(program: subprocess.Popen[str], lines: queue.Queue[str]) -> None:
    """What the program says about its examples; the rest is what they print."""
    for line in program.stdout or ():
        if line.startswith("example "):
            lines.put(line.removeprefix("example ").strip())
    lines.put("the program ended before its example did")


def result_of(lines: queue.Queue[str]) -> str:
    """Empty if the next example passed."""
    try:
        return lines.get(timeout=SECONDS_FOR_ONE)
    except queue.Empty:
        return f"no answer within {SECONDS_FOR_ONE} s"


def run_inside(folder: Path, bootstrap: str, names: Sequence[str]) -> None:
    """Each in a folder of its own, so that no mark of one is met by another; topics go with their example."""
    for name in names:
        remove_topics(bootstrap)
        shutil.rmtree(OUTPUT_PARTS, ignore_errors=True)
        with tempfile.TemporaryDirectory() as home:
            os.chdir(home)
            try:
                runpy.run_path(str(folder / f"{name}.py"), run_name="__main__")
            except BaseException as error:  # noqa: BLE001 (whatever an example meets)
                traceback.print_exc()
                print(f"\nexample {type(error).__name__}: {str(error).splitlines()[:1]}", flush=True)
            else:
                print("\nexample ", flush=True)
            os.chdir(folder)
        close_consumers()
    os._exit(0)


def close_consumers() -> None:
    """Those that an example leaves open stay in their group, and the next example waits for them."""
    from kafka import KafkaConsumer

    for each in gc.get_objects():
        if type(each) is KafkaConsumer:  # isinstance would ask a weak reference whose object is gone
            each.close(autocommit=False)


def remove_topics(bootstrap: str) -> None:
    """Of the example before, which makes its own: the examples wait a tenth of a second for that."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": bootstrap})
    while names := [name for name in admin.list_topics(timeout=10).topics if not name.startswith("__")]:
        for each in admin.delete_topics(names).values():
            with suppress(KafkaException):
                each.result(10)
        time.sleep(0.2)


def make_certificates(folder: Path) -> Path:
    """An authority, and what it signed for the broker and for a client."""
    folder.mkdir()
    openssl(folder, "req", "-x509", *NEW_KEY, "ca.key", "-out", "ca.cert", "-subj", "/CN=authority", "-days", "2")
    for name in ("broker", "client"):
        openssl(folder, "req", *NEW_KEY, f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}")
        signed = ("-CA", "ca.cert", "-CAkey", "ca.key", "-CAcreateserial", "-out", f"{name}.cert", "-days", "2")
        openssl(folder, "x509", "-req", "-in", f"{name}.csr", *signed)
    return folder


NEW_KEY = ("-newkey", "rsa:2048", "-nodes", "-keyout")


def openssl(folder: Path, *arguments: str) -> None:
    """Run it, and say what it says if it fails."""
    command = [shutil.which("openssl") or "openssl", *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"Error: openssl {arguments[0]} failed.\n{done.stderr}")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--inside"]:
        run_inside(Path(sys.argv[2]), sys.argv[3], sys.argv[4:])
    else:
        sys.exit(main(Path(sys.argv[1]).resolve(), sys.argv[2:]))
