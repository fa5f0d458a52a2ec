"""Retrieve: what a search finds is shown with the request, seen by later capabilities, and not in the history."""

from typing import Any

import pytest
from attrs import evolve, frozen
from hypothesis import given
from hypothesis import strategies as st

from capfold.capabilities import (
    AssistantMessage,
    Capability,
    Message,
    Outside,
    Retrieve,
    RunState,
    SystemMessage,
    TrimMessages,
    UserMessage,
    call,
    fold,
    tool,
)
from capfold.capabilities.frozen import freeze
from capfold.capabilities.retrieve import Results
from capfold.capabilities.views import view_problem
from capfold.runtime import HookError, LimitError, Limits, ScriptedModel
from tests.capabilities.shaping_kit import check_laws, desk, reloaded
from tests.shapes import shaped_histories

BOOKS = ("Cats purr.", "Dogs bark.", "Dogs fetch.")


@tool
def look(n: int) -> str:
    """Look something up."""
    return f"saw {n}"


def books(query: str) -> list[str]:
    """Find what shares a word with a query."""
    asked = {word.strip("?.").lower() for word in query.split()}
    return [text for text in BOOKS if asked & {word.strip(".").lower() for word in text.split()}]


def plain(search: Any, **options: Any) -> Retrieve:  # Any: a search and fields of Retrieve, wrong ones too
    """Return the capability with the shortest frame."""
    return Retrieve(search, **{"frame": "Found: {results}", **options})


def shown(model: ScriptedModel, i: int = 0) -> list[object]:
    """Return the contents that a request showed."""
    return [message.content for message in model.requests[i].messages]


async def test_results_stand_before_the_task_in_every_request() -> None:
    """One message, numbered, best first; in each request of the run, and not in its history."""
    made, model = desk([call("look", {"n": 1}), "ok"], plain(books), tools=[look])
    result = await made.run("What do dogs do?", messages=[UserMessage("Hello."), AssistantMessage("Hi.")])
    found = "Found: 1. Dogs bark.\n\n2. Dogs fetch."
    assert ["Hello.", "Hi.", found, "What do dogs do?"] == shown(model)
    assert ["Hello.", "Hi.", found, "What do dogs do?", "", "saw 1"] == shown(model, 1)
    assert found not in [m.content for m in result.messages]
    assert [{"query": "What do dogs do?", "texts": list(BOOKS[1:])}, None] == [
        r.facts["fact"] for r in result.log if r.kind == "gathered"
    ]


async def test_searches_of_every_kind() -> None:
    """Sync or async, with `outside` for what is in `deps`, texts or JSON; at most `max_results`."""

    async def later(query: str) -> tuple[object, ...]:
        return ({"title": "Käse", "n": 1}, query, 5)

    async def index(query: str, outside: Outside) -> object:
        deps: Any = outside.deps
        return deps[query]

    class Index:
        def __call__(self, query: str, outside: Outside) -> list[str]:
            return [outside.idempotency_key.split(":")[-2]]

    for search, found in (
        (later, 'Found: 1. {"title": "Käse", "n": 1}\n\n2. go'),
        (index, "Found: 1. from deps"),
        (Index(), "Found: 1. Retrieve"),
        (lambda query, limit=2: [query] * limit, "Found: 1. go\n\n2. go"),
    ):
        made, model = desk(["ok"], plain(search, max_results=2), deps={"go": ["from deps"]})
        await made.run("go")
        assert [found, "go"] == shown(model)


async def test_nothing_found_changes_nothing() -> None:
    """No results, or nothing to search for: the view is the history, and the state has no slot."""
    for cap in (plain(books), plain(books, query=lambda state: None), plain(books, query=lambda state: " ")):
        made, model = desk(["ok"], cap)
        result = await made.run("And fish?")
        assert ["And fish?"] == shown(model)
        assert "Retrieve" not in result.state.slots


async def test_a_query_is_searched_for_once() -> None:
    """The same query again is shown from the slot; another one is searched for, and replaces what was shown."""
    asked: list[str] = []

    def search(query: str) -> list[str]:
        asked.append(query)
        return [] if query == "saw 2" else [f"about {query}"]

    def newest(state: RunState) -> str:
        return str(state.view[-1].content)

    calls = [call("look", {"n": n}) for n in (1, 1, 2)]
    made, model = desk([*calls, "ok"], plain(search, query=newest), tools=[look])
    await made.run("go")
    assert ["go", "saw 1", "saw 2"] == asked
    assert ["Found: 1. about go", "Found: 1. about saw 1", "Found: 1. about saw 1", "go"] == [
        shown(model, i)[0] for i in range(4)
    ]


@frozen
class Mask(Capability):
    """Masks dogs in the view."""

    def before_model_request(self, state: RunState) -> RunState:
        return state.map_view(masked)


def masked(message: Message) -> Message:
    """Return a message without dogs."""
    if isinstance(message, UserMessage) and "Dogs" in str(message.content):
        return evolve(message, content=str(message.content).replace("Dogs", "***"))
    return message


async def test_later_capabilities_see_the_results() -> None:
    """A redactor later in the list masks them like any message; a trimmer keeps the task after them."""
    made, model = desk(["ok"], plain(books), Mask())
    await made.run("Do dogs bark?")
    assert ["Found: 1. *** bark.\n\n2. *** fetch.", "Do dogs bark?"] == shown(model)
    made, model = desk(["ok"], plain(books), TrimMessages(1))
    await made.run("Do dogs bark?")
    assert "Do dogs bark?" == shown(model)[-1]


async def test_on_request_they_stay_in_the_history() -> None:
    """Appended once for each query, at the end; later runs of the conversation have them."""
    made, model = desk([call("look", {"n": 1}), "ok"], plain(books, history=True), tools=[look])
    result = await made.run("Do dogs bark?")
    found = "Found: 1. Dogs bark.\n\n2. Dogs fetch."
    assert ["Do dogs bark?", found] == shown(model)
    assert ["Do dogs bark?", found, "", "saw 1"] == shown(model, 1)
    assert 1 == [m.content for m in result.messages].count(found)


async def test_a_search_that_raises() -> None:
    """It ends the run by name; with on_error="empty" the request goes without it, and a note says why."""

    def down(query: str) -> list[str]:
        raise OSError("the index is down")

    made, model = desk(["never"], plain(down))
    with pytest.raises(HookError, match=r"Retrieve.*the index is down"):
        await made.run("go")
    assert () == model.requests
    made, model = desk(["ok"], plain(down, on_error="empty"))
    result = await made.run("go")
    assert (["go"], "ok") == (shown(model), result.output)
    (note,) = result.state.notes
    assert "Retrieve goes on without its search, which raised OSError: the index is down" == note


@pytest.mark.parametrize("wrong", ["one text", b"bytes", None, 5, {"a": 1}])
async def test_what_is_no_list_of_results_is_an_error(wrong: object) -> None:
    """A single text would be shown letter by letter; a value that is no JSON is said to be none."""
    made, _ = desk(["never"], plain(lambda query: wrong))
    with pytest.raises(HookError, match="a search returns a list"):
        await made.run("go")
    made, _ = desk(["never"], plain(lambda query: [object()]))
    with pytest.raises(HookError, match="is not JSON"):
        await made.run("go")


async def test_a_limit_is_no_search_that_failed() -> None:
    """A search that asks a model and reaches a limit ends the run by the limit, also with on_error="empty"."""

    async def ask(query: str, outside: Outside) -> list[str]:
        for _ in range(3):
            await outside.request([UserMessage(query)])
        return ["never"]

    made, _ = desk(["a", "b", "c", "d"], plain(ask, on_error="empty"))
    with pytest.raises(LimitError):
        await made.run("go", limits=Limits(requests=2))


@given(shaped_histories(), st.integers(0, 9), st.integers(0, 4))
def test_the_view_stays_one_that_can_be_sent(messages: tuple[Message, ...], start: int, n: int) -> None:
    """Wherever the task stands, and whatever was trimmed before: balanced, task kept, one message more."""
    history = (*messages, UserMessage("and now?"))
    cap = plain(books)
    state = RunState(messages=history, history_start=min(start, len(history) - 1)).put(
        cap, Results("q", ("x",))
    )
    state = state.keep_last(n) if n else state
    made = fold([cap], "before_model_request", state)
    assert view_problem(made.view) is None
    assert made.task is state.task
    assert made.view[-1] is state.view[-1]
    place = next(i for i, m in enumerate(made.view) if m.content == "Found: 1. x")
    assert made.view[place + 1] is state.task
    assert list(state.view) == [*made.view[:place], *made.view[place + 1 :]]


def test_without_a_task_in_view_they_stand_first() -> None:
    """Where a projection dropped the task, results come before the first who speaks, after system messages."""
    cap = plain(books)
    history = (UserMessage("a"), AssistantMessage("b"), SystemMessage("s"), UserMessage("c"))
    state = RunState(messages=history).put(cap, Results("q", ("x",))).project(history[2:])
    made = fold([cap], "before_model_request", state)
    assert ["s", "Found: 1. x", "c"] == [m.content for m in made.view]


@pytest.mark.parametrize("fact", [None, 5, [], {"query": 1}, {"query": "a", "texts": "b"}, {"texts": ["x"]}])
def test_a_fact_of_another_shape_is_none(fact: object) -> None:
    """What no gatherer of this kind brought is ignored."""
    cap = plain(books)
    state = RunState(messages=(UserMessage("a"),), facts={cap.key: freeze(fact)})
    assert fold([cap], "before_model_request", state) is state


async def test_a_query_that_is_no_text_ends_the_run() -> None:
    """The error says what it must return."""
    wrong: Any = Retrieve(books, query=lambda state: 5)  # type: ignore[arg-type,return-value]  # what is under test
    with pytest.raises(HookError, match=r"Retrieve\.query must return a text or None, not 5"):
        await desk(["ok"], wrong)[0].run("go")


async def coroutine_query(state: RunState) -> str:
    """Wait, which a query must not."""
    return ""


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        ({"search": None}, TypeError, "a function of the query"),
        ({"search": dict}, TypeError, "a function of the query"),
        ({"search": lambda: ["x"]}, TypeError, r"called with \(query\), or with \(query, outside\)"),
        ({"search": lambda a, b, c: []}, TypeError, "called with"),
        ({"query": coroutine_query}, TypeError, "plain function of the state"),
        ({"query": "task"}, TypeError, "plain function of the state"),
        ({"max_results": 0}, ValueError, "the least is 1"),
        ({"max_results": True}, TypeError, "must be an integer"),
        ({"frame": "Found"}, ValueError, "must hold {results}"),
        ({"on_error": "ignore"}, ValueError, "'fail' or 'empty'"),
        ({"history": "yes"}, TypeError, "must be a bool"),
    ],
)
def test_wrong_parameters(
    options: dict[str, Any], error: type[Exception], said: str
) -> None:  # Any: under test
    """Each says what would be right."""
    with pytest.raises(error, match=said):
        Retrieve(**{"search": books, **options})


def test_laws_and_round_trip() -> None:
    """It keeps the laws whatever its gatherer brought; a named search makes its description whole."""
    for history in (False, True):
        check_laws(plain(books, history=history))
    assert Retrieve(books) == reloaded(Retrieve(books), books)
    assert not Retrieve(lambda query: []).describe().complete
