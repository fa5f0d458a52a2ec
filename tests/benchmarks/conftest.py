"""The benchmarks are in the tree, not in the wheel: where only the wheel is importable, skip these tests."""

from importlib.util import find_spec

collect_ignore_glob = [] if find_spec("benchmarks") else ["test_*.py"]
