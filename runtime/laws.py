"""Laws: what must hold of every capability, and the strategies to say more. Needs Hypothesis, the extra `testing`.

A capability is a handful of pure functions over records, so what it must not do can be said once for all of them and
sought by property-based testing. This module is the public one; its parts are in `laws_*`.
"""

from .laws_arguments import json_values
from .laws_check import check_capability
from .laws_lists import FINDINGS, Finding, Report, check_capabilities
from .laws_machine import RunMachine
from .laws_pytest import law_tests
from .laws_states import call_states, run_states
from .laws_table import LAWS, Law
from .laws_values import histories, responses, scripts, tools
from .laws_violation import LawViolation, check_law

__all__ = [
    "FINDINGS",
    "LAWS",
    "Finding",
    "Law",
    "LawViolation",
    "Report",
    "RunMachine",
    "call_states",
    "check_capabilities",
    "check_capability",
    "check_law",
    "histories",
    "json_values",
    "law_tests",
    "responses",
    "run_states",
    "scripts",
    "tools",
]
