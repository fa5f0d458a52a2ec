"""One function: the kit's plugin makes a test of it for each of its vectors. Run by `test_conformance.py` alone."""


def test_conformance(agent_hooks_assert: None) -> None:
    """The host does what the vector expects."""
