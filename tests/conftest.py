"""What every test starts from, whatever shell or job runner started it."""

import os
import signal

# A job in a shell's background inherits an ignored SIGINT and SIGQUIT, one under nohup an ignored
# SIGHUP, and every child of it would too: a test that presses Ctrl-C or hangs up would wait for
# ever.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
for number in (signal.SIGHUP, signal.SIGQUIT):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, signal.SIG_DFL)

# The first two change what a screen looks like, before Textual is imported; the third has a child
# write a line and its newline apart, so that lines of two processes mix in one pipe.
for name in ("NO_COLOR", "TEXTUAL_THEME", "PYTHONUNBUFFERED"):
    os.environ.pop(name, None)


def pytest_configure() -> None:
    """Examples that take long, to run or to make, on a machine that is busy are no failure."""
    from hypothesis import HealthCheck, settings

    slow = [HealthCheck.too_slow]
    settings.register_profile("omni", deadline=None, suppress_health_check=slow)
    settings.load_profile("omni")
