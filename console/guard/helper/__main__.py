"""Runs the root helper; see `console.recovery.guard.kill.root_helper`."""

import sys

from console.recovery.guard.kill.root_helper import main

if __name__ == "__main__":
    sys.exit(main())
