"""`python -m floodmark.cli` is `floodmark`."""

from floodmark.cli import main

main()
