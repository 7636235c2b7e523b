"""Tests of the tables with history."""
