"""Prices: what a response costs, whose price it has, and how tokens and dollars are booked by model."""

import builtins
import sys
from typing import Any

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from capfold.capabilities import (
    AssistantMessage,
    Capability,
    Json,
    Outside,
    RunState,
    Usage,
    UserMessage,
    call,
    hook,
)
from capfold.capabilities.frozen import FrozenDict
from capfold.runtime import (
    Agent,
    Approve,
    FunctionModel,
    LimitError,
    Limits,
    LocalPort,
    ModelError,
    ModelProfile,
    OpenAIModel,
    ScriptedModel,
)
from capfold.runtime.billing import Bill, bill_of, booked, models_in, sent_to, tariff_of
from capfold.runtime.codec import to_json
from capfold.runtime.fallback_model import Fallback
from capfold.runtime.prices import ListedPrice, Price, listed_price
from capfold.runtime.retry_model import Retry
from tests.runtime.desk import make

USAGE = Usage(input_tokens=1000, output_tokens=100, cached_tokens=400, reasoning_tokens=50)
CHEAP = ModelProfile(price=Price(input=1, output=10))
DEAR = ModelProfile(price=Price(input=10, output=100))


@pytest.mark.parametrize(
    ("price", "usage", "expected"),
    [
        (Price(input=2.5, output=10), USAGE, 0.0035),
        (Price(input=2.5, output=10, cached=1.25), USAGE, 0.003),
        (Price(input=2.5, output=10, cached=0), USAGE, 0.0025),
        # What the provider did not say of its cache is dear, never cheap; more than all cannot be cached.
        (Price(input=2.5, output=10, cached=0), evolve(USAGE, cached_tokens=None), 0.0035),
        (Price(input=2.5, output=10, cached=1), evolve(USAGE, cached_tokens=9999), 0.002),
        (Price(input=2.5, output=10), evolve(USAGE, input_tokens=None), None),
        (Price(input=2.5, output=10), evolve(USAGE, output_tokens=None), None),
        (Price(input=0, output=0), USAGE, 0.0),
    ],
)
def test_cost_of_a_response(price: Price, usage: Usage, expected: float | None) -> None:
    """Dollars per million tokens; cached ones at their price; reasoning tokens are output already."""
    assert expected == (None if price.cost(usage) is None else pytest.approx(price.cost(usage)))


@pytest.mark.parametrize(
    ("bad", "error"),
    [
        ({"input": -1, "output": 1}, ValueError), ({"input": 1, "output": float("nan")}, ValueError),
        ({"input": 1, "output": float("inf")}, ValueError), ({"input": 10**400, "output": 1}, ValueError),
        ({"input": "1", "output": 1}, TypeError),
        ({"input": True, "output": 1}, TypeError), ({"input": None, "output": 1}, TypeError),
        ({"input": 1, "output": 1, "cached": -1}, ValueError),
    ],
)  # fmt: skip
def test_bad_prices(bad: dict[str, Any], error: type[Exception]) -> None:
    """What is no amount of dollars is refused where it is written, by its name."""
    with pytest.raises(error, match=r"Price\.\w+ must be"):
        Price(**bad)


def test_a_profile_takes_a_price_only() -> None:
    """A number is no price: input and output differ."""
    with pytest.raises(TypeError, match="price"):
        ModelProfile(price=1.0)  # type: ignore[arg-type]  # that is the point


bills = st.builds(
    Bill,
    st.sampled_from(("a", "b", "c")),
    st.none() | st.builds(Usage, input_tokens=st.integers(0, 99), output_tokens=st.integers(0, 99)),
    st.none() | st.integers(0, 99).map(lambda cents: cents / 100),
)


@given(st.lists(st.lists(bills, max_size=4), max_size=4))
def test_books_are_sums(rounds: list[list[Bill]]) -> None:
    """Bills in any portions come to the sums over all and over each model; an unknown makes its sums unknown."""
    run = RunState()
    for portion in rounds:
        usage, by_model, cost = booked(run, portion)
        run = evolve(run, usage=usage, usage_by_model=by_model, cost=cost)
    flat = [bill for portion in rounds for bill in portion]

    def total(some: list[Bill]) -> int | None:
        found = [None if bill.usage is None else bill.usage.total for bill in some]
        return None if None in found else sum(count for count in found if count is not None)

    assert total(flat) == run.usage.total
    expected = {
        name: total([bill for bill in flat if bill.model == name]) for name in {b.model for b in flat}
    }
    assert expected == {name: used.total for name, used in run.usage_by_model.items()}
    costs = [bill.cost for bill in flat]
    dollars = None if None in costs else sum(round(cost * 100) for cost in costs if cost is not None) / 100
    assert dollars == run.cost


def test_ten_cents_are_ten_times_one() -> None:
    """Sums of dollars are those of arithmetic at school: a limit is met when it is, not a step later."""
    _, _, cost = booked(RunState(), [Bill("a", USAGE, 0.01)] * 10)
    assert 0.1 == cost


def test_a_given_price_wins() -> None:
    """The list is asked for no model that has a price; and for none at all unless it is wanted."""
    priced = ScriptedModel([], name="gpt-4o", profile=CHEAP)
    assert CHEAP.price is tariff_of(priced, listed=True)
    assert tariff_of(ScriptedModel([], name="gpt-4o"), listed=False) is None


def test_the_list_knows_a_model_by_name_and_address() -> None:
    """By name alone, or at a provider it knows; the same name elsewhere has no price, nor has an unknown one."""
    pytest.importorskip("genai_prices")
    usage = Usage(input_tokens=1_000_000, output_tokens=0)
    by_name = tariff_of(ScriptedModel([], name="gpt-4o"), listed=True)
    assert by_name is not None
    dollars = by_name.cost(usage)
    assert dollars is not None
    assert dollars > 0
    half = by_name.cost(evolve(usage, cached_tokens=1_000_000))
    assert half is not None
    assert 0 < half < dollars
    assert by_name.cost(Usage()) is None
    assert by_name.cost(evolve(usage, cached_tokens=9_000_000)) == half
    assert listed_price("gpt-4o", "https://api.openai.com/v1") is not None
    assert listed_price("gpt-4o", "http://127.0.0.1:1/v1") is None
    assert listed_price("no such model", None) is None
    assert listed_price("gpt-4o", None) is listed_price("gpt-4o", None)


def test_where_an_openai_model_sends_its_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own base URL, else the environment's, else OpenAI's: by it the list knows whose model it is."""
    monkeypatch.setenv("OPENAI_API_KEY", "key")
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    assert "https://api.openai.com/v1" == OpenAIModel("gpt-4o").api_url
    assert "http://127.0.0.1:1/v1" == OpenAIModel("gpt-4o", base_url="http://127.0.0.1:1/v1").api_url
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:2/v1")
    assert "http://127.0.0.1:2/v1" == OpenAIModel("gpt-4o").api_url
    assert tariff_of(OpenAIModel("gpt-4o"), listed=True) is None


def test_without_the_list_there_is_no_listed_price(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not installed: no price. Installed and broken: its own error, not a silent None."""
    real = builtins.__import__
    missing = "genai_prices"

    def refuse(name: str, *args: Any, **options: Any) -> Any:  # Any: as `__import__` is typed
        if name.startswith("genai_prices"):
            raise ModuleNotFoundError(f"No module named {missing!r}", name=missing)
        return real(name, *args, **options)

    for loaded in [name for name in sys.modules if name.startswith("genai_prices")]:
        monkeypatch.delitem(sys.modules, loaded)
    monkeypatch.setattr(builtins, "__import__", refuse)
    listed_price.cache_clear()
    assert listed_price("gpt-4o", None) is None
    listed_price.cache_clear()
    missing = "pydantic"
    with pytest.raises(ModuleNotFoundError, match="pydantic"):
        listed_price("gpt-4o", None)
    monkeypatch.undo()
    listed_price.cache_clear()


def test_no_run_imports_the_list_by_itself() -> None:
    """A price that was given is all that a cost needs."""
    assert isinstance(bill_of(ScriptedModel([], profile=CHEAP), USAGE, listed=True).cost, float)
    assert not isinstance(tariff_of(ScriptedModel([], profile=CHEAP), listed=True), ListedPrice)


async def test_a_run_books_by_the_configured_name() -> None:
    """Whatever dated name the provider gives: tokens and dollars stand under the model's own."""
    reply = AssistantMessage("done", usage=USAGE, model="cheap-2026-01-01")
    result = await make(model=ScriptedModel([reply], name="cheap", profile=CHEAP)).run("go")
    assert (FrozenDict({"cheap": USAGE}), 0.002) == (result.usage_by_model, result.cost)
    (record,) = [record for record in result.log if record.kind == "model_responded"]
    assert ("cheap", 0.002) == (record.facts["model"], record.facts["cost"])


async def test_a_run_without_a_price_has_no_cost() -> None:
    """Unknown is None, never 0; a run that asked nothing cost nothing."""
    result = await make(["done"]).run("go")
    assert (None, ["scripted"]) == (result.cost, list(result.usage_by_model))
    answers = hook.wrap_model_request(_made_up)
    made_up = await make(["done"], capabilities=[answers]).run("go")
    assert (0.0, {}) == (made_up.cost, made_up.usage_by_model)


async def _made_up(call_next: object, state: RunState) -> RunState:
    return state.respond(AssistantMessage("made up", usage=USAGE))


async def test_each_response_has_the_price_of_its_model() -> None:
    """A step's own model, a wrapper's choice, a dropped response, a gatherer's request: each under its name."""
    dear = ScriptedModel(["x", "done"], name="dear", usage=USAGE, profile=DEAR)
    judge = ScriptedModel(["a", "b"], name="judge", usage=USAGE, profile=CHEAP)

    class Asks(Capability):
        async def gather_before_model_request(self, state: RunState, outside: Outside) -> Json:
            return (await outside.request([UserMessage("ok?")], model=judge)).text

        def before_model_request(self, state: RunState) -> RunState:
            return state.with_model(dear) if state.run_step > 1 else state

    async def twice(call_next: Any, state: RunState) -> RunState:
        """Ask twice in the second step, and take the second answer."""
        if state.run_step > 1:
            await call_next(state)
        found: RunState = await call_next(state)
        return found

    cheap = ScriptedModel([call("look", {"n": 1})], name="cheap", usage=USAGE, profile=CHEAP)
    result = await make(model=cheap, capabilities=[Asks(), hook.wrap_model_request(twice)]).run("go")
    assert {"cheap": USAGE, "dear": USAGE + USAGE, "judge": USAGE + USAGE} == result.usage_by_model
    assert (5, 5 * 1100) == (result.requests, result.usage.total)
    assert pytest.approx(0.002 * 3 + 0.02 * 2) == result.cost


async def test_requests_of_gatherers_are_booked_in_their_order() -> None:
    """Whichever is answered first: equal runs have equal digests."""
    heads = set()
    for waits in ((0.0, 0.01), (0.01, 0.0)):

        def slow(name: str, seconds: float) -> Capability:
            class Asks(Capability):
                async def gather_before_model_request(self, state: RunState, outside: Outside) -> Json:
                    await outside.sleep(seconds)
                    model = ScriptedModel(["x"], name=name, usage=USAGE, profile=CHEAP)
                    return (await outside.request([UserMessage("ok?")], model=model)).text

            return Asks(key=name)

        caps = [slow("a", waits[0]), slow("b", waits[1])]
        result = await make(["done"], capabilities=caps).run("go")
        assert ["a", "b", "scripted"] == list(result.usage_by_model)
        heads.add(result.log.head)
    assert 1 == len(heads)


class Around:
    """A model around models: the first that does not fail."""

    name = "around"
    profile = ModelProfile()

    def __init__(self, *models: Any, tells: bool = True) -> None:
        self.models = models
        self.tells = tells

    async def request(self, request: Any, meter: Any) -> AssistantMessage:
        for model in self.models:
            if self.tells:
                sent_to(meter, model)
            try:
                answer: AssistantMessage = await model.request(request, meter)
            except ModelError:
                continue
            return answer
        raise ModelError("server", "none of them answers", retryable=False)


async def test_a_model_around_models_says_whom_it_asked() -> None:
    """The one that answered is booked, by its name and price; one that does not say is booked as itself."""
    failing = ScriptedModel([ModelError("server", "down", retryable=True)], name="down", profile=CHEAP)
    answering = ScriptedModel(["done"], name="up", usage=USAGE, profile=DEAR)
    result = await make(model=Around(failing, answering)).run("go")
    assert ({"up": USAGE}, 0.02, 2) == (result.usage_by_model, result.cost, result.requests)
    silent = await make(model=Around(ScriptedModel(["done"], usage=USAGE, profile=DEAR), tells=False)).run(
        "go"
    )
    assert ({"around": USAGE}, None) == (silent.usage_by_model, silent.cost)
    assert [failing, answering] == models_in(Around(Around(failing), answering))
    assert (failing,) == models_in(failing)


async def test_retry_and_fallback_are_booked_as_the_model_that_answered() -> None:
    """Under a limit on cost too: each model inside has a price, and the one around needs none."""
    down = ScriptedModel([ModelError("server", "down", retryable=False)], name="down", profile=CHEAP)
    up = ScriptedModel(["done"], name="up", usage=USAGE, profile=DEAR)
    result = await make(model=Fallback([Retry(down), Retry(up)]), limits=Limits(cost=1)).run("go")
    assert ({"up": USAGE}, 0.02) == (result.usage_by_model, result.cost)
    unpriced = Fallback([up, ScriptedModel(["done"], name="free")])
    with pytest.raises(LimitError, match="'free' has no known price"):
        await make(model=unpriced, limits=Limits(cost=1)).run("go")


async def test_usage_and_cost_survive_a_snapshot() -> None:
    """What was booked before a run was suspended stands in it afterwards."""

    def build(*replies: Any) -> Agent[str]:
        asks = hook.admit_tool_execute(lambda call: call.require_approval("ok?"))
        model = ScriptedModel(replies, name="cheap", usage=USAGE, profile=CHEAP)
        return make(model=model, capabilities=[asks])

    waiting = await build(call("look", {"n": 1})).run("go")
    assert ("suspended", 0.002) == (waiting.status, waiting.cost)
    done = await build("done").resume(waiting.snapshot(), {waiting.pending[0].digest: Approve()})
    assert ({"cheap": USAGE + USAGE}, 0.004) == (done.usage_by_model, done.cost)


async def test_a_cut_off_request_of_a_gatherer_is_booked_and_on_record() -> None:
    """The response of a request that came back before the deadline is in the run's books and in the log."""

    class Hangs(Capability):
        async def gather_before_model_request(self, state: RunState, outside: Outside) -> Json:
            model = FunctionModel(lambda request: "x", name="judge", usage=USAGE, profile=CHEAP)
            await outside.request([UserMessage("ok?")], model=model)
            await outside.sleep(60)
            return None

    agent = make(["done"], capabilities=[Hangs()], limits=Limits(deadline=0.05), port=LocalPort())
    with pytest.raises(LimitError) as caught:
        await agent.run("go")
    found = caught.value.partial
    assert found is not None
    assert ({"judge": USAGE}, 0.002, 1) == (found.usage_by_model, found.cost, found.requests)
    (note,) = [record.facts for record in found.log if record.kind == "note" and "bills" in record.facts]
    bill = {"model": "judge", "usage": to_json(USAGE), "cost": 0.002}
    assert {"requests": 1, "bills": [bill]} == note
