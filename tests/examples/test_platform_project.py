"""The platform example as a project: its Python jobs are known to the command line, without Spark."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from floodmark.cli.app import run
from floodmark.cli.invocation import LazySession, Tools
from tests.examples.story import PLATFORM

Document: TypeAlias = "Callable[..., Any]"
TOOLS = Tools(session=lambda _settings: LazySession(lambda: pytest.fail("no session is needed")))


@pytest.fixture
def said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Document:
    """Call a command on a copy of the project whose home is empty; gives its document."""
    monkeypatch.setenv("PLATFORM_HOME", str(tmp_path / "home"))
    (tmp_path / "floodmark.yaml").write_text((PLATFORM / "floodmark.yaml").read_text())
    monkeypatch.syspath_prepend(str(PLATFORM))
    monkeypatch.chdir(tmp_path)

    def call(*words: str) -> Any:  # noqa: ANN401 - whatever document the command prints
        run([*words, "--json"], TOOLS)
        return json.loads(capsys.readouterr().out)

    return call


def test_lint_knows_every_job_of_the_three_layers(said: Document) -> None:
    """And finds no error in them."""
    report = said("lint")
    layers = {str(each["job"]).partition("_")[0] for each in report["guarantees"]}
    assert (layers, [each for each in report["findings"] if each["severity"] == "error"]) == (
        {"bronze", "silver", "gold"},
        [],
    )


def test_lineage_follows_a_fact_to_the_system_tables(said: Document) -> None:
    """Through dimensions, silver and bronze, in Python all of them."""
    events = said("lineage", "+gold_fact_billing_usage")["events"]
    names = [each["job"]["name"] for each in events]
    assert {"bronze_billing_usage", "silver_usage_txn", "gold_dim_entity_jobs", "gold_fact_billing_usage"} <= set(names)
    assert "gold_fact_run_cost" not in names


def test_health_watches_its_tables(said: Document, tmp_path: Path) -> None:
    """Those that are not there yet are said to be missing; all that is kept of it lies in the home."""
    subjects = said("health")["checks"]["data_freshness"]["subjects"]
    assert {"brz_billing_usage", "usage_txn", "fact_billing_usage"} <= set(subjects)
    assert (tmp_path / "home" / "marks.db").exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["floodmark.yaml", "home"]
