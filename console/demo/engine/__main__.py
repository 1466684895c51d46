"""Runs the demo's engine; see `console.rehearsal.demo.engine`."""

import sys

from console.rehearsal.demo.engine import main

if __name__ == "__main__":
    sys.exit(main())
