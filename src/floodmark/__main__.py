"""`python -m floodmark` is the command line."""

from floodmark.cli import main

if __name__ == "__main__":
    main()
