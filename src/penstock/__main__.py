"""`python -m penstock` is the command line."""

import sys

from penstock import parent_process

if __name__ == "__main__":
    parent_process.hold()  # before the command line is imported, which takes seconds

    from penstock.cli.main import main

    sys.exit(main())
