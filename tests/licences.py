"""Licences with which tests end what they started themselves."""

from __future__ import annotations

from console.host.licence import Licence, Reason

CANDIDATE = Licence(Reason.CANDIDATE, "a-test")
