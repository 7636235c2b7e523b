"""Streams whose mark follows what really succeeded: sources, steps and healing."""
