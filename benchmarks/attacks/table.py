"""The attacks, by the id of the corruption case that each is an instance of. What each does, as it is run."""

from collections.abc import Mapping

ATTACKS: Mapping[str, str] = {
    "C03": "a hook before the request sets the count of requests back to 0, under a limit of 3",
    "C06": "a hook after the request zeroes what the response says of its tokens",
    "C07": "a wrapper runs the tool twice, under a limit of one tool call",
    "C14": "the model calls a tool that a hook has hidden from this request",
    "C15": "a later hook brings back a tool that an earlier one has hidden, and the model calls it",
    "C17": "a hook adds a tool call to the model's response",
    "C18": "a hook offers a tool that needs approval without that mark",
    "C19": "two tools of one name",
    "C22": "a gate names a tool that nobody has: a typing mistake",
    "C23": "the model fills a parameter that is injected and hidden from it",
    "C26": "a hook turns a call of `look` into one of `pay`",
    "C27": "a wrapper returns a result for a tool that failed",
    "C29": 'the model sends "12" for an integer',
    "C30": "two calls of one response have one id",
    "C31": "a person approves 10, and a hook makes it 1000 afterwards",
    "C34": "one decision is used twice, resuming as the docs do where state is stored",
    "C41": "a hook edits a message in place that the caller passed in",
    "C42": "a hook drops all messages but the last from the history",
    "C43": "a trimmer cuts between a call and its result",
    "C50": "of two calls at once one pays and one raises: is it known that one was paid?",
    "C53": "a hook writes the state of another capability",
    "C57": "a hook forgets to return what it was given",
    "C58": "a hook is misspelt",
    "C62": "a cache answers a call that a gate would refuse, cache first",
    "C63": "a wrapper answers in place of the tool: does the redactor behind it see the answer?",
}
