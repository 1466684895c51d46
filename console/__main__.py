"""The program `omni-console`: what its command and `python -m console` start."""

import sys


def program() -> None:
    """Print help, if nothing else is asked for; else hand over to `console.cli`.

    A Ctrl-C while the program is still being loaded ends it as the shell expects, without a
    traceback: the command itself handles it from its first moment on.
    """
    try:
        from console.frontends.cli.commands.help import FLAGS, print_help

        if sys.argv[-1] in FLAGS and print_help(sys.argv[1:]):
            return
    except KeyboardInterrupt:
        sys.exit(130)
    import signal  # takes longer to load than the list of commands

    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # else: in the background
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from console.cli import program as run

    run()


if __name__ == "__main__":
    program()
