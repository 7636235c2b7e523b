"""Sinks are loaded when they are asked for."""

from __future__ import annotations

import subprocess
import sys

import pytest

import floodmark.sinks


def test_no_sink_loads_pyspark() -> None:
    """The command line shows marks without a JVM's weight."""
    code = "import sys; from floodmark.sinks import Console, Delta, Files; Delta('t'); print('pyspark' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_an_unknown_name_is_an_attribute_error() -> None:
    """As of any other module."""
    with pytest.raises(AttributeError):
        _ = floodmark.sinks.Carrier
