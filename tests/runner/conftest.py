"""Fixtures of scripted runs and of real ones alike; `world` is theirs."""

from tests.runner.scenes import hub, omni, outage

__all__ = ["hub", "omni", "outage"]
