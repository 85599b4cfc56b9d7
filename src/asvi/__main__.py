"""Takes a command line; ``python -m asvi`` is the ``asvi`` command."""

from asvi.cli.app import main

if __name__ == "__main__":
    main()
