"""National ids, by the validators of `python-stdnum` from the extra `pii`: "stdnum:es.nif" is `stdnum.es.nif`.

A validator judges a candidate and finds none, so candidates are made here: windows of a few tokens.
"""

import re
from collections.abc import Callable, Iterator
from importlib import import_module
from importlib.util import find_spec

PREFIX = "stdnum:"
_NAME = re.compile(r"stdnum:([a-z][a-z0-9_]*(?:\.[a-z][a-z0-9_]*)?)")
_TOKEN = re.compile(r"[0-9A-Za-z]+")
_JOINTS = frozenset(" \u00a0-./")
_MOST_TOKENS = 5
_SIGNS = range(5, 25)
_LEAST_DIGITS = 4


def national_finder(entity: str) -> Callable[[str], Iterator[tuple[int, int]]]:
    """Return the finder for an entity such as "stdnum:es.nif".

    Raises ModuleNotFoundError where the extra `pii` is missing, ValueError for a number that stdnum does not know.
    """
    name = _NAME.fullmatch(entity)
    if name is None:
        raise ValueError(f"{entity!r} is no number of stdnum: write 'stdnum:es.nif' for stdnum.es.nif")
    if find_spec("stdnum") is None:
        raise ModuleNotFoundError(
            f"{entity!r} needs python-stdnum, of the extra `pii`: pip install 'capfold[pii]'", name="stdnum"
        )
    try:
        module = import_module(f"stdnum.{name[1]}")
        is_valid: Callable[[str], bool] = module.is_valid
    except (ModuleNotFoundError, AttributeError) as error:
        raise ValueError(f"{entity!r}: python-stdnum has no validator stdnum.{name[1]}") from error

    def find(text: str) -> Iterator[tuple[int, int]]:
        tokens = [found.span() for found in _TOKEN.finditer(text)]
        for i, (start, _) in enumerate(tokens):
            signs, last = 0, start - 1
            for begin, finish in tokens[i : i + _MOST_TOKENS]:
                if signs and not (begin == last + 1 and text[last] in _JOINTS):
                    break
                signs, last = signs + finish - begin, finish
                if signs not in _SIGNS:
                    if signs >= _SIGNS.stop:
                        break
                    continue
                candidate = text[start:finish]
                if sum(map(str.isdigit, candidate)) >= _LEAST_DIGITS and is_valid(candidate):
                    yield start, finish

    return find
