"""The originals' names, one door each: a program written for one of them runs with its import line changed."""
