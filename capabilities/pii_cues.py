"""Words that tell what a bare run of digits is: "tel 4155550132", "SSN: 123456789". Knows no kind of number."""

import re
from collections.abc import Callable

# How far before a number its cue is looked for, so that a text of any length costs a fixed amount per number.
_REACH = 48
# Between cue and number: "phone number is", "call me at", "tel. no. ", '"phone": "', "phone_2: ", and the keys of
# JSON below such a word, as in {"phones": [{"type": "home", "value": ...}]}; nothing else.
_BETWEEN = (
    r"(?:[ _-]?(?:numbers?|no|nr|num)(?![^\W\d_])\.?)?(?:[ _-]?[0-9]{1,2}(?![^\W_]))?"
    r"(?:\W{1,4}(?:is|was|at|on|us|me|him|her|them|to|the|my|our|number|no|nr"
    r"|home|work|office|business|private|personal|main|primary|secondary|value|raw)\b){0,3}"
    r"\W{0,4}\Z"
)


def cue_before(words: tuple[str, ...]) -> Callable[[str, int], bool]:
    """Return a function that tells whether one of the words, in any case, leads to a place in a text.

    A word begins where no letter is before it, or with a capital, as in `homePhone`.
    """
    listed = "|".join(words)
    start = r"(?:(?<![^\W\d_])|(?-i:(?<=[a-z])(?=[A-Z])))"
    cue = re.compile(rf"{start}(?:{listed}){_BETWEEN}", re.IGNORECASE)

    def leads_to(text: str, place: int) -> bool:
        return cue.search(text, max(0, place - _REACH), place) is not None

    return leads_to
