"""Objects by `module:attribute`, for the command line. Imports what its user names, from the present folder first."""

import importlib
import sys
from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from ..capabilities.capability import AnyCapability, Capability
from .agent import Agent


class CannotLoad(Exception):
    """What was named cannot be had; the message says what was asked for, and what would be right."""


def load_object(target: str) -> object:
    """Return what a text such as `package.module:name` stands for; dots after the colon are attributes.

    Raises CannotLoad for a text of another form, a module that is not there or fails, a name that it does not have.
    """
    module_name, colon, path = target.partition(":")
    if not (module_name and colon and path):
        raise CannotLoad(f"{target!r} is no MODULE:ATTRIBUTE, such as desk.agents:payments")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        found: object = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        who = "it" if error.name == module_name else f"{error.name!r}, which it imports,"
        raise CannotLoad(f"cannot import {module_name!r}: {who} is nowhere on the path") from error
    except Exception as error:
        raise CannotLoad(f"importing {module_name!r} raised {type(error).__name__}: {error}") from error
    for name in path.split("."):
        if not hasattr(found, name):
            near = get_close_matches(name, dir(found), 1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise CannotLoad(f"{target}: there is no {name!r}{hint}")
        found = getattr(found, name)
    return found


def load_agent(target: str) -> Agent[Any]:  # Any: its output may be of any type
    """Return the agent that a text stands for. Raises CannotLoad."""
    found = load_object(target)
    if not isinstance(found, Agent):
        raise CannotLoad(f"{target} is no Agent, but {type(found).__name__}")
    return found


def load_list(target: str) -> tuple[AnyCapability, ...]:
    """Return the capabilities that a text stands for: a list of them, one, or those of an agent. Raises CannotLoad."""
    found = load_object(target)
    if isinstance(found, Agent):
        return found.capabilities
    members: Iterable[object] = [found] if isinstance(found, Capability) else ()
    if isinstance(found, list | tuple):
        members = found
    listed = tuple(one for one in members if isinstance(one, Capability))
    if len(listed) != len(tuple(members)) or not isinstance(found, list | tuple | Capability):
        raise CannotLoad(f"{target} is no list of capabilities, but {type(found).__name__}")
    return listed


def is_agent(target: str) -> bool:
    """Tell whether a text stands for an agent. Raises CannotLoad."""
    return isinstance(load_object(target), Agent)
