"""law_tests: the laws as tests of a suite, one for each law. Needs pytest, which runs them."""

from collections.abc import Callable, Collection

import hypothesis

from ..capabilities.capability import AnyCapability
from .laws_check import check_capability
from .laws_states import NO_FACTS, Facts
from .laws_table import LAWS
from .laws_values import Tools
from .laws_violation import law_named


def law_tests(
    cap: AnyCapability,
    *,
    tools: Tools = None,
    facts: Facts = NO_FACTS,
    laws: Collection[str] | None = None,
    settings: hypothesis.settings | None = None,
) -> Callable[[str], None]:
    """Make one test of each law: what it returns is a test function with a case per law.

    `test_laws = law_tests(MyCap())` in a test file is all it takes. The case has the law's name, so that `-k pure` runs
    one and a report names it. Arguments as of `check_capability`; raises ValueError for a name that is no law.
    """
    import pytest  # noqa: PLC0415  # only who collects tests has it

    names = [law_named(name).name for name in (LAWS if laws is None else laws)]

    @pytest.mark.parametrize("law", names)
    def test_laws(law: str) -> None:
        check_capability(cap, tools=tools, facts=facts, laws=[law], settings=settings)

    test_laws.__doc__ = f"{cap.key} obeys the law."
    return test_laws
