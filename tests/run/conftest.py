"""Fixtures of scripted runs and of real ones alike; `world` is theirs."""

from tests.run.scenes import hub, omni, outage

__all__ = ["hub", "omni", "outage"]
