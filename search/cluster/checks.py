"""The result of one check of `bitfront doctor`. The checks themselves are in doctor.py (this
machine) and node_checks.py (a cluster)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Check:
    """What was checked, the verdict (PASS, WARN or FAIL), what is there, and what to do."""

    name: str
    verdict: str
    found: str
    advice: str = ""
