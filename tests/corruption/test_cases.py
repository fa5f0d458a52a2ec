"""The table of corruption cases, its tests, and what was seen of them: no case without a test, nothing copied."""

import ast
from pathlib import Path

from attrs import evolve

from capfold.capabilities import CallState, Capability, call, hook
from tests.corruption.builders import Bodies, agent, at
from tests.corruption.cases import CASES, GROUPS
from tests.corruption.matrix import problems, read, row_of, totals
from tests.corruption.observing import Observed, Observer, case_of, end_of

HERE = Path(__file__).parent


def functions() -> dict[str, set[str]]:
    """Return case -> names of its test functions, read from the sources."""
    found: dict[str, set[str]] = {}
    for path in HERE.glob("test_*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and (case := case_of(node.name)):
                found.setdefault(case, set()).add(node.name)
    return found


def test_each_case_has_a_test() -> None:
    """Every id of the table is tested, and every test that has an id has one of the table."""
    assert set(CASES) == set(functions())
    assert len(CASES) == sum(map(len, GROUPS.values()))


def test_what_was_seen_is_of_these_tests() -> None:
    """Who adds a test runs `make corruption`: what README and docs say was seen is of all tests there are."""
    assert functions() == {case: set(row["functions"]) for case, row in read().items()}


def test_what_was_seen_is_as_the_table_says() -> None:
    """The committed observation contradicts nothing, and its sums can be written out."""
    for case, row in read().items():
        seen = {way for way in ("recorded", "restored", "error") if row[way]}
        assert CASES[case].ways == seen | ({"error"} if row["refused"] else set())
        assert row["tests"]
    assert totals(read()).startswith(f"{len(CASES)} cases in ")


def test_a_test_belongs_to_a_case_by_its_name() -> None:
    """A letter after the number, for a part of a case, is no other case."""
    assert ["C01", "C21", None] == [
        case_of("test_c01_some_thing"),
        case_of("test_c21b_x"),
        case_of("test_counts"),
    ]


async def test_a_run_is_seen_by_its_log() -> None:
    """A control is untouched, a write recorded, a forgery restored, by what stands on the log."""
    forge = at("before_model_request", lambda state: evolve(state, requests=99), "forger")
    write = at("before_model_request", lambda state: state.note("seen"), "writer")
    lists: list[list[Capability]] = [[], [write], [write, forge]]
    seen = [end_of(await agent(["done"], capabilities=listed).run("go")) for listed in lists]
    assert [("untouched", "completed"), ("recorded", "completed"), ("restored", "completed")] == seen


async def test_a_call_that_was_denied_is_on_record() -> None:
    """Also where the capability wrote nothing but a verdict, or the runtime refused by itself."""

    async def deny(call_next: object, record: CallState) -> CallState:
        return record.refuse("no")

    made = agent(
        [call("pay", {"amount": 1}), "done"],
        tools=[Bodies().pay()],
        capabilities=[hook.wrap_tool_execute(deny)],
    )
    assert ("recorded", "completed") == end_of(await made.run("go"))


def test_the_matrix_says_what_contradicts_the_table() -> None:
    """A missing test, a failed one, another way than the table's, an unknown case: each is named."""
    observer = Observer()
    observer.cases = {
        "C02": Observed(functions={"test_c02_x"}, tests=1),
        "C99": Observed(functions={"test_c99_x"}, tests=1),
    }
    observer.cases["C02"].ends["untouched", "completed"] += 1
    observer.cases["C02"].failed.append("there::test_c02_x")
    found = problems(observer)
    assert "C01: no test" in found
    assert "C02: failed: there::test_c02_x" in found
    assert "C02: ended in no way; the table says error, restored" in found
    assert "C99: is not in the table" in found
    assert 1 == row_of(observer.cases["C02"])["untouched"]
