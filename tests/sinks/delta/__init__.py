"""Tests of the Delta sinks."""
