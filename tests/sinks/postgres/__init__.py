"""Tests of the PostgreSQL sink."""
