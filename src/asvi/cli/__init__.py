"""Takes a command line; gives fits, reports and tables: the ``asvi`` command."""

from asvi.cli.app import main

__all__ = ["main"]
