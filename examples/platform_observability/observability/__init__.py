"""Platform observability: what a Databricks account costs and how its jobs run, from ten system tables."""
