"""Side by side with the bare thing it stands on: `python -m tests.benchmarks [name…]`.

Start-up against an empty interpreter, the journal against a bare SQLite commit, a rollback of
real containers against the bare engine calls. No part of the ordinary tests.
"""
