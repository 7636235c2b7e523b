"""Bronze, silver, gold: history, dimensions, facts, and the upkeep of their tables."""
