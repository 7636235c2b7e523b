"""Tests of the Kafka sink."""
