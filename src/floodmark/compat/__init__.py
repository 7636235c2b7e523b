"""The originals' names, one door each; nothing imports it."""
