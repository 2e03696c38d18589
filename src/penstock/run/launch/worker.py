"""The program that a rank of a crew runs: `python -m penstock.run.launch.worker DESCRIPTOR`."""

import sys

from penstock import parent_process

if __name__ == "__main__":
    parent_process.hold()  # before torch is imported, which takes seconds

    from penstock.run.launch.serve import serve

    serve(int(sys.argv[1]))
