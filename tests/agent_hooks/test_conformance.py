"""The conformance kit of agent-hooks runs against our host, in a pytest of its own: its options are not ours."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("agent_hooks", reason="agent-hooks-sdk is not installed: the extra agent-hooks")

ROOT = Path(__file__).parents[2]


def test_the_kit_passes_but_for_what_is_not_declared() -> None:
    """71 vectors pass; 4 are skipped, all of incremental streaming, which the host does not declare."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-rs",
        "-p",
        "no:cacheprovider",
        "tests/agent_hooks/kit.py",
    ]
    command.append("--agent-hooks-harness=tests.agent_hooks.host:Harness")
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=300)
    told = done.stdout + done.stderr
    assert 0 == done.returncode, told
    last = done.stdout.strip().splitlines()[-1]
    assert {"passed": 71, "skipped": 4} == {
        word: int(n) for n, word in re.findall(r"(\d+) ([a-z]+)", last)
    }, told
    assert "SKIPPED [4]" in told
    assert 'missing capabilities: ["incremental_output"]' in told
