"""Every case of the reference systems is tested here, or stands in `later` with its reason; none in both."""

import ast
import re
from pathlib import Path

from tests.conformance.later import IN_PART, LATER

# The numbers of all cases, by the letter of the system they come from.
CASES = {
    "H": (
        "01 02 04 05 06 08 09 10 12 13 14 16 17 18 20 21 22 24 25 26 28 29 30 32 33 34 36 37 38 40 41 42 "
        "44 45 46 48 49"
    ),
    "A": (
        "01 02 04 05 06 08 09 10 12 13 14 16 17 18 20 21 22 24 25 26 28 29 30 32 33 34 36 37 38 40 41 42 "
        "44 45 46 48 49 50 52 53 54"
    ),
    "F": (
        "01 02 04 05 06 08 09 10 12 13 14 16 17 18 20 21 22 24 25 26 28 29 30 32 33 34 36 37 38 40 41 42 "
        "44 45 46 48 49 50 52 53 54 56 57 58 60 61 62 64 65 66 68 69 70 72 73 74 76 77 78 80 81 82"
    ),
    "E": (
        "01 02 04 05 06 08 09 10 12 13 14 16 17 18 20 21 22 24 25 26 28 29 30 32 33 34 36 37 38 40 41 42 44"
    ),
}
FILES = {"H": "test_hastekit", "A": "test_ag2", "F": "test_fastaiagent", "E": "test_exagent"}
HERE = Path(__file__).parent
_NAME = re.compile(r"test_([hafe])(\d\d)_")


def ids_in(letter: str) -> set[str]:
    """Return the ids that the test functions of a file are named by; another file's letter is an error."""
    tree = ast.parse((HERE / f"{FILES[letter]}.py").read_text(encoding="utf-8"))
    found: set[str] = set()
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            match = _NAME.match(node.name)
            assert match is not None, f"{node.name} is named by no case"
            assert letter.lower() == match[1], f"{node.name} stands in the wrong file"
            found.add(f"{letter}-{match[2]}")
    return found


def test_each_case_is_tested_or_left_for_later() -> None:
    """The ids of tests and of `LATER` together are exactly the cases, and no id is in both."""
    cases = {f"{letter}-{number}" for letter, numbers in CASES.items() for number in numbers.split()}
    done = set().union(*(ids_in(letter) for letter in FILES))
    assert cases == done | set(LATER)
    assert set() == done & set(LATER)


def test_what_is_tested_in_part_is_tested() -> None:
    """Each id that says what is still missing has a test, and each reason is a sentence of one line."""
    done = set().union(*(ids_in(letter) for letter in FILES))
    assert set() == set(IN_PART) - done
    reasons = [*LATER.values(), *IN_PART.values()]
    assert [] == [reason for reason in reasons if not reason.strip() or "\n" in reason]
