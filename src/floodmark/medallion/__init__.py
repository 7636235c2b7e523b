"""Bronze, silver, gold: date keys, tags, dimensions, facts that are rebuilt for touched dates only, upkeep of tables.

The tables with history themselves are sinks (`floodmark.sinks.Scd1`, `Scd2`), so that a project file can name them.
"""
