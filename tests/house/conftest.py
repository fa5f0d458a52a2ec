"""Where the house stands: the checkout, and the source folders where there are any."""

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def root() -> Path:
    """Return the folder that holds pyproject.toml."""
    return ROOT


@pytest.fixture
def source_root() -> Path:
    """Return the same folder, for tests that compare with the source folders; CI also tests without them."""
    if not (ROOT / "capabilities").is_dir():
        pytest.skip("an installed wheel is under test: the source folders are not here to compare with")
    return ROOT
