"""The workflow file: what is read, what is refused, what is only named."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from floodmark.errors import ConfigError, FieldInvalid
from floodmark.jobs.workflow import Workflow, read_workflow
from floodmark.jobs.workflow.document import downstream_of, require_an_order, upstream_of

DIAMOND = {"a": (), "b": ("a",), "c": ("a",), "d": ("b", "c"), "e": ()}


def read(folder: Path, document: object) -> Workflow:
    file = folder / "daily.json"
    file.write_text(json.dumps(document))
    return read_workflow(file)


def test_dependencies_are_names_or_objects(tmp_path: Path) -> None:
    """The seed writes names, Databricks writes objects."""
    found = read(
        tmp_path,
        {"tasks": [{"task_key": "a"}, {"task_key": "b", "depends_on": ["a", {"task_key": "a", "outcome": "true"}]}]},
    )
    assert found.needs() == {"a": (), "b": ("a", "a")}
    assert found.name == "daily"


def test_an_exported_job_is_read_from_its_settings(tmp_path: Path) -> None:
    """`databricks jobs get` wraps the job in `settings`."""
    found = read(tmp_path, {"job_id": 7, "settings": {"name": "nightly", "tasks": [{"task_key": "a"}]}})
    assert found.name == "nightly"


def test_fields_that_mean_nothing_here_are_named(tmp_path: Path) -> None:
    """The file runs as it is; a misspelt field does not pass unseen."""
    found = read(tmp_path, {"job_clusters": [], "tasks": [{"task_key": "a", "max_retry": 3, "libraries": []}]})
    assert found.unused_fields() == ["job_clusters", "a.max_retry (did you mean max_retries?)", "a.libraries"]


@pytest.mark.parametrize(
    ("document", "named"),
    [
        ({"tasks": [{"task_key": "a"}, {"task_key": "a"}]}, "two tasks are called 'a'"),
        ({"tasks": [{"task_key": "a", "depends_on": ["z"]}]}, "depends on 'z'"),
        (
            {"tasks": [{"task_key": "a", "depends_on": ["b"]}, {"task_key": "b", "depends_on": ["a"]}]},
            "a → b → a|b → a → b",
        ),
        ({"tasks": [{"task_key": "a"}], "schedule": {"quartz_cron_expression": "hourly"}}, "1 fields"),
    ],
)
def test_a_file_that_cannot_run_is_refused(tmp_path: Path, document: object, named: str) -> None:
    """Before any task has run."""
    with pytest.raises(ConfigError, match=named):
        read(tmp_path, document)


@pytest.mark.parametrize(
    ("document", "field"),
    [
        ({}, "tasks"),
        ({"tasks": []}, "tasks"),
        ({"tasks": [{"task_key": "a", "max_retries": "x"}]}, "tasks.0.max_retries"),
    ],
)
def test_a_field_that_is_wrong_is_named(tmp_path: Path, document: object, field: str) -> None:
    """With its place in the file."""
    with pytest.raises(FieldInvalid) as caught:
        read(tmp_path, document)
    assert caught.value.field == field


def test_a_file_that_is_not_json_is_told_with_its_line(tmp_path: Path) -> None:
    """A trailing comma is the usual one."""
    file = tmp_path / "daily.json"
    file.write_text('{"tasks": [\n{"task_key": "a"},\n]}')
    with pytest.raises(ConfigError, match=r"daily\.json:3 is not JSON"):
        read_workflow(file)


def test_upstream_and_downstream_go_all_the_way() -> None:
    """Not only to the neighbours, and never to a task beside."""
    assert upstream_of(DIAMOND, "d") == {"a", "b", "c"}
    assert downstream_of(DIAMOND, "a") == {"b", "c", "d"}


def test_the_order_puts_each_task_after_its_upstream() -> None:
    """A diamond has its top first and its foot last."""
    order = require_an_order({key: DIAMOND[key] for key in "abcd"}, "daily.json")
    assert (order[0], set(order[1:3]), order[3]) == ("a", {"b", "c"}, "d")
