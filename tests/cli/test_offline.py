"""Commands that need no Spark: init, schema, lint, usage and configuration errors."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from floodmark.cli.app import COMMANDS, options_first
from tests.cli.conftest import CommandResult

Floodmark = Callable[..., CommandResult]


def test_help_lists_every_command(floodmark: Floodmark) -> None:
    """What is not listed is not found."""
    said = floodmark("--help")
    assert said.code == 0
    assert [name for name in COMMANDS if f" {name} " not in said.out] == []


@pytest.mark.parametrize("command", [*((name,) for name in COMMANDS), ("marks", "set"), ("marks", "import")])
def test_every_command_has_help(floodmark: Floodmark, command: tuple[str, ...]) -> None:
    """Loaded and described, each from its own file, and without the types of Python."""
    said = floodmark(*command, "--help")
    assert (said.code, "Usage: floodmark " + " ".join(command) in said.out) == (0, True)
    assert [word for word in ("<str>", "<bool>", "<int", "<path>", "list[") if word in said.out] == []


@pytest.mark.parametrize(
    ("command", "usage"),
    [
        (("marks", "set"), "floodmark marks set [OPTIONS] [JOB]... VALUE"),
        (("deadletters", "show"), "floodmark deadletters show [OPTIONS] [NAME] [LETTER]..."),
        (("init",), "floodmark init [OPTIONS] [DIR]"),
        (("show",), "floodmark show [OPTIONS] TABLE"),
    ],
)
def test_the_line_of_usage_has_an_argument_as_man_pages_have_it(
    floodmark: Floodmark, command: tuple[str, ...], usage: str
) -> None:
    """In brackets, if it may be left out; how large a number may be is said where one is refused."""
    said = floodmark(*command, "--help").out
    assert (f"Usage: {usage} " in said, "x>=" in said) == (True, False)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("rum",), "Error: No such command 'rum'. Did you mean 'run'?"),
        (("run", "--nope"), "Error: No such option: --nope"),
        (("marks", "set", "orders"), "Error: Missing argument 'VALUE'."),
        (("runs", "--last", "0"), "Error: Invalid value for '--last'"),
        (("runs", "--log-level", "loud"), "Error: unknown --log-level 'loud'."),
        (("runs", "--project", "nowhere.yaml"), "Error: there is no project file 'nowhere.yaml'."),
        (("runs", "--env-file", "nowhere"), "Error: env file nowhere cannot be read"),
    ],
)
def test_a_usage_error_is_two_lines_and_exit_2(floodmark: Floodmark, arguments: tuple[str, ...], error: str) -> None:
    """Nothing on stdout, so that a script's pipe stays clean."""
    said = floodmark(*arguments)
    first, second = said.err.splitlines()
    assert (said.code, said.out) == (2, "")
    assert first.startswith(error)
    assert second.startswith("Try: ")


@pytest.mark.parametrize("command", ["lint", "plan", "run", "runs"])
def test_without_a_project_every_command_says_how_to_get_one(floodmark: Floodmark, command: str) -> None:
    """The next step is one command."""
    said = floodmark(command)
    assert (said.code, said.err.splitlines()[1]) == (2, "Try: floodmark init writes one; --project FILE names one")


def test_global_options_may_stand_before_or_after_the_command() -> None:
    """Where people write them; what follows `--` is not touched."""
    assert options_first(["marks", "show", "--project", "x", "--json", "--target=dev", "--", "--project"]) == [
        "--project",
        "x",
        "--target=dev",
        "marks",
        "show",
        "--json",
        "--",
        "--project",
    ]


def test_init_writes_a_project_that_lint_accepts(floodmark: Floodmark, folder: Path) -> None:
    """And names the next command."""
    written = floodmark("init", "demo")
    linted = floodmark("lint", "--project", "demo/floodmark.yaml")
    assert written.out.splitlines()[-1] == "Next: cd demo && floodmark run"
    assert (written.code, linted.code, linted.out.splitlines()[-1]) == (0, 0, "0 errors, 0 warnings, 1 note")
    first = (folder / "demo" / "floodmark.yaml").read_text().splitlines()[0]
    assert first == "# yaml-language-server: $schema=.floodmark/schema.json"


def test_init_overwrites_nothing(floodmark: Floodmark, folder: Path) -> None:
    """One file of its own is there already: none is written."""
    (folder / "floodmark.yaml").write_text("mine")
    said = floodmark("init")
    assert (said.code, [path.name for path in folder.iterdir()]) == (2, ["floodmark.yaml"])


def test_the_schema_that_init_writes_is_the_one_that_schema_prints(floodmark: Floodmark, folder: Path) -> None:
    """And it knows the fields of the project beside it."""
    floodmark("init")
    printed = json.loads(floodmark("schema").out)
    project = yaml.safe_load((folder / "floodmark.yaml").read_text())
    assert json.loads((folder / ".floodmark" / "schema.json").read_text()) == printed
    assert set(project) <= set(printed["properties"])


def test_lint_prints_rule_place_and_guarantee(floodmark: Floodmark, folder: Path) -> None:
    """file:line first, as editors and people look for it; exit 2 on an error."""
    text = "jobs:\n  - name: a\n    source: {type: files, path: in}\n    sinks: [{type: delta, path: x, mode: merge}]\n"
    (folder / "floodmark.yaml").write_text(text)
    said = floodmark("lint")
    assert said.code == 2
    assert said.out.splitlines()[0].startswith("floodmark.yaml:4: error FM201 a: merge needs")
    assert "files → delta" in said.out


def test_lint_json_has_findings_and_guarantees(floodmark: Floodmark, folder: Path) -> None:
    """One document for a build server."""
    text = "jobs:\n  - name: a\n    source: {type: files, path: in}\n    sinks: [{type: console}]\n"
    (folder / "floodmark.yaml").write_text(text)
    document = json.loads(floodmark("lint", "--json").out)
    assert [(f["rule"], f["severity"], f["where"]) for f in document["findings"]] == [
        ("FM302", "note", "floodmark.yaml:4"),
        ("FM301", "note", "floodmark.yaml:2"),
    ]
    assert [(g["job"], g["sink"], g["guarantee"]) for g in document["guarantees"]] == [
        ("a", "console", "at least once")
    ]
