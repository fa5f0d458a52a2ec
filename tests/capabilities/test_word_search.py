"""The ranking of tools by words: deterministic, and what it promises of names, plurals and order."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capfold.capabilities import Tool
from capfold.capabilities.word_search import rank, words

WORDS = ("pay", "invoice", "room", "book", "mail", "send")


def made(name: str, description: str = "", **properties: object) -> Tool:
    """Return a tool."""
    return Tool(name, description, {"type": "object", "properties": properties})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("getInvoice_v2", ["get", "invoice", "v2"]),
        ("Pay all INVOICES, now!", ["pay", "all", "invoice", "now"]),
        ("gas class bus", ["gas", "class", "bus"]),
        ("Größe ändern", ["grösse", "ändern"]),
        ("", []),
    ],
)
def test_words(text: str, expected: list[str]) -> None:
    """Compound names are split, case and a plural s are no difference."""
    assert expected == words(text)


def test_the_formula() -> None:
    """The score is BM25's: of two tools, each with the word, the one in which it weighs more comes first."""
    short, long = made("pay"), made("send", "pay mail room book invoice pay")
    # By hand: N = 2, both have the word, k1 = 1.2, b = 0.75; lengths 3 and 9, mean 6.
    idf = math.log(1 + 0.5 / 2.5)
    scores = [idf * n * 2.2 / (n + 1.2 * (0.25 + 0.75 * length / 6)) for n, length in ((3, 3), (2, 9))]
    assert scores[0] > scores[1]
    assert [short, long] == rank("pay", [long, short])


def test_what_counts() -> None:
    """Names, descriptions, parameters, their descriptions and choices are searched; other words find nothing."""
    tools = [
        made("a", "Books a room."),
        made("b", invoice={"type": "string"}),
        made("c", x={"type": "string", "description": "the mail to send"}),
        made("d", x={"enum": ["pay", "refund", 3]}),
        made("e", x={"type": "array", "items": {"anyOf": [{"const": "cancel"}, {"type": "null"}]}}),
    ]
    found = [
        [tool.name for tool in rank(query, tools)]
        for query in ("booking rooms", "invoices", "MAIL", "refunds", "cancel", "object", "")
    ]
    assert [["a"], ["b"], ["c"], ["d"], ["e"], [], []] == found
    assert [] == rank("pay", [])


def test_the_length_of_a_query_is_not_multiplied_by_the_tools() -> None:
    """A model may ask at any length: words that no tool has are put aside at once, else this took minutes."""
    tools = [made(f"tool_{i}", "pay") for i in range(300)]
    query = " ".join(f"word{i}" for i in range(100_000))
    assert [] == rank(query, tools)
    assert tools == rank(f"{query} pay", tools)


inventories = st.lists(
    st.tuples(st.sampled_from(WORDS), st.lists(st.sampled_from(WORDS), max_size=6)), max_size=6
).map(lambda drawn: [made(f"{name}_{i}", " ".join(said)) for i, (name, said) in enumerate(drawn)])


@given(inventories, st.lists(st.sampled_from(WORDS), max_size=4))
def test_found_is_what_shares_a_word(tools: list[Tool], query: list[str]) -> None:
    """Exactly the tools with a word of the query, each once; said twice, a word asks for nothing else."""
    found = rank(" ".join(query), tools)
    having = [tool for tool in tools if set(query) & {*words(tool.name), *words(tool.description)}]
    assert {tool.name for tool in having} == {tool.name for tool in found}
    assert len(having) == len(found)
    assert found == rank(" ".join([*query, *query]), tools)


@given(inventories)
def test_of_equals_the_first_comes_first(tools: list[Tool]) -> None:
    """Tools of the same words keep the order in which they are listed."""
    same = [made(f"x{i}", "pay") for i in range(3)]
    found = [tool.name for tool in rank("pay", [*same, *tools]) if tool.name.startswith("x")]
    assert ["x0", "x1", "x2"] == found
