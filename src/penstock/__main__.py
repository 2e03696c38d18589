"""`python -m penstock` is the command line."""

import sys

from penstock.cli.main import main

sys.exit(main())
