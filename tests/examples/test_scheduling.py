"""The files for schedulers: each is read by what it is for, where that is on this machine, and calls what exists."""

from __future__ import annotations

import ast
import configparser
import json
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from floodmark.cli.app import load_command
from tests.docs.test_commands import inner_command, without_global_options

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "examples" / "scheduling"
UNITS = ("floodmark-loop.service", "floodmark-run.service", "floodmark-run.timer")


def require_call(words: list[str]) -> None:
    """The program takes these words."""
    name, *rest = without_global_options(words)
    command, rest = inner_command(load_command(name), rest)
    command.make_context(name, rest).close()


def unit(name: str) -> configparser.ConfigParser:
    parsed = configparser.ConfigParser(interpolation=None, strict=False)
    parsed.optionxform = str  # type: ignore[assignment,method-assign] # systemd's names have capitals
    parsed.read(FOLDER / name)
    return parsed


def test_every_line_of_the_crontab_calls_what_exists() -> None:
    """Five fields of time, then a command."""
    lines = [line for line in (FOLDER / "crontab").read_text().splitlines() if re.match(r"[\d*]", line)]
    calls = [re.search(r"\$FLOODMARK (.*?) >>", line) for line in lines]
    assert len(lines) == 2
    [require_call(shlex.split(call[1])) for call in calls if call]  # type: ignore[func-returns-value]


@pytest.mark.parametrize("name", ["floodmark-loop.service", "floodmark-run.service"])
def test_a_unit_of_systemd_calls_what_exists(name: str) -> None:
    """And gives a batch time to end."""
    service = unit(name)["Service"]
    require_call(shlex.split(service["ExecStart"])[1:])
    assert {"TimeoutStopSec", "TimeoutStartSec"} & set(service)
    assert service["KillMode"] == "mixed"  # else the JVM gets SIGTERM too, and the batch cannot end


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd on this machine")
def test_systemd_takes_the_units(tmp_path: Path) -> None:
    """As its own checker says; the program and the user of the example are put in place first."""
    for name in UNITS:
        text = (FOLDER / name).read_text().replace("/opt/shop/.venv/bin/floodmark", "/bin/true")
        (tmp_path / name).write_text(text.replace("User=floodmark", "User=root"))
    checked = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *[str(tmp_path / name) for name in UNITS]],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    complaints = [
        line for line in checked.stderr.splitlines() if "floodmark" in line and "Failed to connect" not in line
    ]
    assert complaints == []


def test_the_kubernetes_file_calls_what_exists_as_a_user_that_is_not_root() -> None:
    """A loop, its volume, and a job for health."""
    loop, volume, health = yaml.safe_load_all((FOLDER / "kubernetes.yaml").read_text())
    pod = loop["spec"]["template"]["spec"]
    [container] = pod["containers"]
    require_call(container["args"])
    require_call(health["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"][0]["args"])
    assert (loop["kind"], volume["kind"], health["kind"]) == ("Deployment", "PersistentVolumeClaim", "CronJob")
    assert (pod["securityContext"]["runAsNonRoot"], loop["spec"]["replicas"]) == (True, 1)


@pytest.mark.parametrize("name", ["airflow_dag.py", "dagster_definitions.py"])
def test_the_python_of_a_scheduler_compiles_and_calls_what_exists(name: str) -> None:
    """Its own package is not asked for here: `make test-schedulers` runs both in environments of their own."""
    tree = ast.parse((FOLDER / name).read_text())
    words = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    assert {"run", "--select"} <= words
    require_call(["run", "--select", "orders_bronze", "--json"])
    require_call(["health"])


def test_the_dockerfile_is_small_not_root_and_brings_its_connectors() -> None:
    """Two stages, a user of its own, signals handed on, nothing fetched at the start."""
    text = (ROOT / "Dockerfile").read_text()
    steps = re.findall(r"^(FROM|USER|ENTRYPOINT|CMD|RUN|COPY|WORKDIR|ENV) (.*)", text, re.MULTILINE)
    words = [word for word, _ in steps]
    assert words.count("FROM") == 2
    user = dict(steps)["USER"].split(":")[0]
    assert int(user) > 0  # Kubernetes believes a number alone
    assert f"useradd --uid {user} " in text
    assert f"runAsUser: {user}" in (FOLDER / "kubernetes.yaml").read_text()
    assert json.loads(dict(steps)["ENTRYPOINT"]) == ["tini", "--", "floodmark"]
    connectors = next(place for place, (word, rest) in enumerate(steps) if word == "RUN" and "connectors" in rest)
    assert connectors > words.index("USER")


def test_what_the_dockerfile_copies_is_there() -> None:
    """And is all that an install needs."""
    copied = re.findall(r"^COPY (?!--)(.*) \S+$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    assert [name for line in copied for name in line.split() if not (ROOT / name).exists()] == []


def test_the_databricks_file_is_one_that_we_run() -> None:
    """The page names it."""
    job: dict[str, Any] = json.loads(
        (ROOT / "examples/platform_observability/jobs/daily_observability_workflow.json").read_text()
    )
    assert job["tasks"]
