"""`scripts/audit.py`: what could not be asked for is never counted as free of weaknesses."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).parents[1] / "scripts" / "audit.py"
KNOWN = {"name": "b", "version": "2", "vulns": [{"id": "CVE-1", "fix_versions": ["2.1"]}]}


@pytest.fixture(scope="module")
def audit() -> ModuleType:
    """The script as a module."""
    spec = importlib.util.spec_from_file_location("audit", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["audit"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def test_packages_that_nobody_knows_are_counted_apart(audit: ModuleType) -> None:
    """Not asked is not the same as not found."""
    report = json.dumps({"dependencies": [{"name": "a", "skip_reason": "not found"}, KNOWN], "fixes": []})
    found = audit.read_report(report)
    assert (found.asked, found.skipped, found.weaknesses) == (1, 1, ("b 2: CVE-1, fixed in 2.1",))
    assert str(found) == "known weaknesses of 1 packages, 1 could not be asked for: \n  b 2: CVE-1, fixed in 2.1"


def test_no_answer_at_all_is_said(audit: ModuleType) -> None:
    """A registry without such answers skips every package."""
    found = audit.read_report(json.dumps({"dependencies": [{"name": "a", "skip_reason": "not found"}]}))
    assert str(found) == "not audited: no registry answered for known weaknesses (1 packages)"
