"""The originals' own words, through the doors."""
