"""Cheap looks at a source or a sink with its native driver: positions, bounds, counts; never with Spark."""
