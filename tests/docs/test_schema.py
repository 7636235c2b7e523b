"""The JSON Schema that editors get takes every YAML that a page or an example shows."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import jsonschema
import pytest

from floodmark.project.file import parse
from floodmark.project.loading import job_file_schema, project_schema
from floodmark.project.models import JobModel
from tests.docs.pages import ROOT, Block, all_blocks
from tests.docs.test_projects import AROUND

EXAMPLES = sorted(ROOT.glob("examples/*/floodmark.yaml"))


@cache
def schema() -> jsonschema.Draft202012Validator:
    return jsonschema.Draft202012Validator(project_schema())


def mistakes(values: object) -> list[str]:
    return [f"{'.'.join(map(str, each.path))}: {each.message[:200]}" for each in schema().iter_errors(values)]


@pytest.mark.parametrize("block", all_blocks("yaml"), ids=str)
def test_a_project_on_a_page_is_valid_in_an_editor(block: Block) -> None:
    """What the docs write must not be underlined in red."""
    values, _ = parse(block.text, block.page.name)
    assert isinstance(values, dict)
    is_part = values.keys() <= JobModel.model_fields.keys()
    assert mistakes({"jobs": [{**AROUND, **values}]} if is_part else values) == []


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.parent.name)
def test_the_project_of_an_example_is_valid_in_an_editor(file: Path) -> None:
    """They are what people copy."""
    assert mistakes(parse(file.read_text(), file.name)[0]) == []


@pytest.mark.parametrize(
    "source",
    [
        {"type": "postgres", "url": "${PG}", "table": "t", "cursor": "updated_at", "key": "id"},
        {"type": "postgres", "url": "${PG}", "table": "t", "cursor": ["updated_at", "id"]},
        {"type": "kafka", "bootstrap": "${KAFKA}", "topic": "orders"},
        {"type": "files", "path": "in", "settle": 0, "read": {"max_rows": "${ROWS}"}},
    ],
)
def test_short_forms_and_variables_are_valid_in_an_editor(source: dict[str, object]) -> None:
    """A name for a list of one, a number for seconds, a variable for anything."""
    assert mistakes({"jobs": [{**AROUND, "source": source, "every": "${EVERY:5s}", "tags": "nightly"}]}) == []


def test_jobs_of_python_are_valid_in_an_editor() -> None:
    """Alone, and between others."""
    assert mistakes({"jobs": {"python": "shop.jobs:all_jobs"}}) == []
    assert mistakes({"jobs": [{"python": "shop.jobs:all_jobs", "tags": ["py"]}, AROUND]}) == []


@pytest.mark.parametrize(
    "values",
    [
        {name: value for name, value in AROUND.items() if name != "name"},
        [AROUND, {"python": "shop.jobs:all_jobs"}],
        {"jobs": [AROUND], "defaults": {"every": "5s"}},
    ],
)
def test_a_file_in_the_folder_jobs_is_valid_in_an_editor(values: object) -> None:
    """A job without a name, a list, or jobs with defaults; and not whatever else."""
    validator = jsonschema.Draft202012Validator(job_file_schema())
    assert list(validator.iter_errors(values)) == []
    assert not validator.is_valid({"jobs": [], "store": "memory"})


def test_a_misspelt_field_is_not_valid() -> None:
    """The schema is no rubber stamp."""
    assert mistakes({"jobs": [{**AROUND, "sorce": {}}]}) != []
    assert mistakes({"jbs": []}) != []
