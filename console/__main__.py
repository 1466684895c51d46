"""The program `omni-console`: what its command and `python -m console` start.

A Ctrl-C while the program is still being loaded ends it as the shell expects, without a traceback:
the command itself handles it from its first moment on.
"""

import signal

if (
    signal.getsignal(signal.SIGINT) is signal.default_int_handler
):  # a job in the background has none
    signal.signal(signal.SIGINT, signal.SIG_DFL)

from console.cli import program

if __name__ == "__main__":
    program()
