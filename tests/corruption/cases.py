"""The corruption cases: what is tried, in a sentence each, and in which of the allowed ways it may end. A table.

A test of a case is named by its id: `test_c01_...` for C01. `test_cases.py` sees that each has one.
The three ways: the write takes effect and is on record; it is restored and on record; or the run ends, or never
begins, by a typed error. A fourth, silence, does not exist.
"""

from collections.abc import Mapping, Sequence
from typing import Literal, TypeAlias, get_args

from attrs import frozen

Way: TypeAlias = Literal["recorded", "restored", "error"]
WAYS: tuple[Way, ...] = get_args(Way)


@frozen
class Case:
    """One attack. `ways`: all in which its runs end; those that show that nothing happened aside."""

    id: str
    says: str
    ways: frozenset[Way]


def _case(id: str, ways: str, says: str) -> Case:
    marks: Mapping[str, Way] = {"r": "recorded", "k": "restored", "e": "error"}
    return Case(id, says, frozenset(marks[mark] for mark in ways))


# In the column of ways: r = takes effect, on record; k = the confirmed value is kept, on record; e = an error.
GROUPS: Mapping[str, Sequence[Case]] = {
    "Counters and accounts": (
        _case("C01", "ke", "any hook writes a field that the runtime counts"),
        _case("C02", "ke", "a hook clears the count of failed calls between failures"),
        _case("C03", "ke", "a hook sets the step back to 0 and the most steps to 100"),
        _case("C04", "ke", "a hook sets the count of tool calls to 0"),
        _case("C05", "ke", "a hook refills the retries of the output"),
        _case("C06", "rke", "a hook or wrapper zeroes or inflates the usage"),
        _case("C07", "re", "a tool wrapper runs the body again and again, and swallows the limit"),
        _case("C09", "re", "a run is suspended and resumed to get a fresh limit"),
        _case("C10", "re", "a model wrapper asks again past the limit on requests"),
        _case("C11", "re", "a sub-agent, or two at once, spend what the parent has left"),
        _case("C13", "e", "two retrying tool calls race for the one call that is left"),
    ),
    "Tools and admission": (
        _case("C14", "re", "the model calls a tool that was deselected for the request"),
        _case("C15", "e", "a selection is widened: late, in a wrapper, or by a later capability"),
        _case("C17", "re", "a hook adds a tool call to the response"),
        _case("C18", "re", "a tuned tool drops its gate, its annotations or its function"),
        _case("C19", "e", "two tools have one name, from any two sources"),
        _case("C21", "r", "a gate stands on a toolkit, the tool is nested, made of a schema, or an agent"),
        _case("C22", "e", "a gate, budget or selector names a tool that nobody has"),
        _case("C23", "r", "the model fills a parameter that is injected and hidden from it"),
        _case("C25", "re", "a hook rewrites the arguments of a call before it is judged"),
        _case("C26", "re", "a hook renames a call, or changes its id, kind or metadata"),
        _case("C27", "rke", "an after hook changes status, usage or error"),
        _case(
            "C29", "r", "the model sends arguments of nearly the right type, too many, twice, or no number"
        ),
        _case("C30", "re", "call ids are equal, empty, or those of an earlier response"),
    ),
    "Approval": (
        _case("C31", "re", "another amount is paid than the one that was approved"),
        _case("C33", "r", "an approver approves all, and a capability refuses"),
        _case("C34", "re", "one decision is used three times"),
        _case("C35", "re", "a decision is for another call, run or digest, forged or malformed"),
        _case("C37", "r", "a standing approval is stretched to other arguments, or to a twin of the tool"),
        _case("C38", "re", "the approver is missing, raises or never comes back"),
    ),
    "History": (
        _case("C39", "r", "the history is trimmed, at every window and every cut"),
        _case("C41", "re", "a hook edits a nested part of a record in place"),
        _case("C42", "re", "a hook drops, edits, reorders or forges messages of the history"),
        _case("C43", "e", "a view has an orphan result, an open call, a stranger in between, two results"),
        _case("C45", "re", "a batch of three is cut short, at every point and in every way"),
        _case("C46", "e", "a hook raises after the response has come"),
        _case("C47", "e", "a hook raises after the tool has run"),
        _case("C49", "re", "input that a guard blocked is found in the store, or in the next run"),
        _case("C50", "e", "a tool has run when a guard trips"),
        _case("C51", "re", "a secret that was redacted is brought back by trimming, stopping, another order"),
    ),
    "State and composition": (
        _case("C53", "re", "a hook writes another's slot, or into its own what can change or be no snapshot"),
        _case("C54", "re", "two capabilities have one key, or the list is another one on resume"),
        _case("C55", "r", "1, True and 1.0 are swapped"),
        _case("C57", "e", "a hook returns None, a coroutine, another record, a subclass, raises or hangs"),
        _case(
            "C58", "e", "a hook is misspelt, async where it must not be, a field is no value or hides another"
        ),
        _case("C59", "r", "twenty runs of one agent go on at once"),
        _case("C61", "e", "a list in context, settings or metadata carries something to the next run"),
        _case("C62", "re", "one capability denies a call, another answers it, in both orders"),
        _case("C63", "r", "a wrapper answers without asking inward, past redaction and budget"),
        _case("C65", "re", "a sub-agent uses a tool that is denied to its parent"),
    ),
    "Audit": (
        _case("C66", "re", "a byte of the log is flipped, a record deleted, moved, doubled or cut off"),
        _case("C67", "ke", "a run is done again in another process, hash seed or event loop"),
        _case("C69", "re", "a capability reads the clock or rolls dice"),
        _case("C70", "re", "a sink raises or fills its disk, a last line is torn"),
        _case("C71", "re", "the final state holds a change that no record explains"),
        _case("C72", "r", "a malformed call reaches a gate, or ends the run"),
        _case("C73", "re", "text from outside slips past a later redactor, facts of one are read by another"),
        _case("C74", "r", "two of three parallel reads fail, in every order"),
        _case("C75", "re", "a sub-agent's own calls slip past the parent's approval and redactor"),
    ),
}
CASES: Mapping[str, Case] = {case.id: case for group in GROUPS.values() for case in group}
