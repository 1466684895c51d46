"""Runs the relay; see `console.runtime.proxy`."""

import sys

from console.runtime.proxy import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
