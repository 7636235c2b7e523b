"""Bronze, silver, gold: history by key, date keys, tags, dimensions, and facts that are rebuilt for touched dates only.

The tables with history themselves are sinks (`floodmark.sinks.Scd1`, `Scd2`), so that a project file can name them.
"""
