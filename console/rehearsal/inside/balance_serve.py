"""Stands in for sched_ext, a C++ extension that KTransformers' server imports and no wheel has."""

from __future__ import annotations

from console.rehearsal.inside.settings import settings

if settings().fault == "no-sched-ext":
    raise ModuleNotFoundError("No module named 'sched_ext'", name="sched_ext")
