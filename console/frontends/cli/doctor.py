"""`doctor`: whether this machine and this login are ready, on one page."""

from __future__ import annotations

import json
import shutil
import textwrap
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import asdict

from console.checks.doctor.model import Finding, Level
from console.checks.doctor.run import counts, in_order, iterate
from console.common.errors import Exit

SIGNS = {Level.OK: " ok ", Level.NOTE: "note", Level.WARNING: "WARN", Level.FAILED: "FAIL"}
WHAT = 14
DETAIL = 2 + 4 + 2 + WHAT + 2
HINT = 8
LEAST_WIDTH = 40


def doctor(args: Namespace) -> int:
    """Exit 0 when nothing failed, 5 when something did; findings are printed as they come."""
    width = max(LEAST_WIDTH, shutil.get_terminal_size().columns)
    findings: list[Finding] = []
    group = ""
    for answer in in_order(iterate(args.site)):
        for finding in answer.findings:
            if not args.json:
                if finding.group != group:
                    print(f"{chr(10) if group else ''}{finding.group}")
                    group = finding.group
                print("\n".join(lines(finding, width)), flush=True)
            findings.append(finding)
    failed, warnings = counts(findings)
    if args.json:
        rows = [{**asdict(finding), "group": finding.group} for finding in findings]
        print(json.dumps({"findings": rows, "failed": failed, "warnings": warnings}))
    else:
        print("\n" + "\n".join(textwrap.wrap(last_line(findings), width)))
    return int(Exit.FAILED if failed else Exit.OK)


def lines(finding: Finding, width: int) -> list[str]:
    """A finding as a person reads it: sign, what, detail; then the hint, further in."""
    head = f"  {SIGNS[finding.level]}  {finding.what:<{WHAT}}  "
    out = textwrap.wrap(
        finding.detail, width, initial_indent=head, subsequent_indent=" " * DETAIL,
        break_on_hyphens=False,
    )  # fmt: skip
    out = out or [head.rstrip()]
    lead = "-> "
    for text in finding.hint.splitlines():
        out += textwrap.wrap(
            text, width, initial_indent=" " * HINT + lead,
            subsequent_indent=" " * (HINT + 3), break_on_hyphens=False,
        )  # fmt: skip
        lead = "   "
    return out


def last_line(findings: Sequence[Finding]) -> str:
    """The sum, and what to do next."""
    failed, warnings = counts(findings)
    sums = f"{failed} failed, {warnings} warning{'' if warnings == 1 else 's'}."
    for level in (Level.FAILED, Level.WARNING):
        for finding in findings:
            if finding.level is level and finding.hint:
                return f"{sums} Next, {finding.what}: {finding.hint.splitlines()[0]}"
    if failed:
        return f"{sums} Next: omni-console doctor again when that is mended."
    demo = any(f.id == "baseline.demo" and f.level is Level.OK for f in findings)
    return f"{sums} Next: omni-console " + (
        "demo shows a whole run." if demo else "opens the console."
    )
