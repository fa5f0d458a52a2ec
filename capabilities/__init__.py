"""Capabilities and the records they shape: what should be. The runtime is what makes it so.

Everything public is listed here; a module below this package may change without notice.
"""

from typing import TYPE_CHECKING

from .annotations import Annotations
from .call_state import CallState
from .capability import CallNext, Capability, Outside, SaveNext
from .combinators import for_tools, group, inherited, nested, when
from .description import Description
from .folding import fold
from .frozen import FreezeError, Json, freeze
from .injected import FromCall, FromContext, FromDeps, ModelRetry, ToolContext, ToolFailed
from .messages import (
    AssistantMessage,
    AudioPart,
    Content,
    FilePart,
    ImagePart,
    Message,
    Part,
    Status,
    SystemMessage,
    TextPart,
    ToolCall,
    ToolMessage,
    Usage,
    UserMessage,
    call,
)
from .secret import Secret
from .state import RunState
from .tool_record import Tool
from .tools import Toolkit, Where, is_declared_destructive, is_destructive, is_idempotent, is_read_only, tool
from .verdict import Failure, Outcome, Problem, Verdict
from .views import Projection

if TYPE_CHECKING:
    from .function_hooks import ToolHook, hook
    from .refuse_tools import RefuseTools
    from .require_approval import RequireApproval
    from .select_tools import SelectTools
    from .tool_budget import ToolBudget
    from .trim_messages import TrimMessages

__all__ = [
    "Annotations",
    "AssistantMessage",
    "AudioPart",
    "CallNext",
    "CallState",
    "Capability",
    "Content",
    "Description",
    "Failure",
    "FilePart",
    "FreezeError",
    "FromCall",
    "FromContext",
    "FromDeps",
    "ImagePart",
    "Json",
    "Message",
    "ModelRetry",
    "Outcome",
    "Outside",
    "Part",
    "Problem",
    "Projection",
    "RefuseTools",
    "RequireApproval",
    "RunState",
    "SaveNext",
    "Secret",
    "SelectTools",
    "Status",
    "SystemMessage",
    "TextPart",
    "Tool",
    "ToolBudget",
    "ToolCall",
    "ToolContext",
    "ToolFailed",
    "ToolHook",
    "ToolMessage",
    "Toolkit",
    "TrimMessages",
    "Usage",
    "UserMessage",
    "Verdict",
    "Where",
    "call",
    "fold",
    "for_tools",
    "freeze",
    "group",
    "hook",
    "inherited",
    "is_declared_destructive",
    "is_destructive",
    "is_idempotent",
    "is_read_only",
    "nested",
    "tool",
    "when",
]

# What not everybody uses: function hooks and ready-made capabilities, of which each costs 1 ms or more.
_LATE = {
    "ToolHook": "function_hooks",
    "hook": "function_hooks",
    "RefuseTools": "refuse_tools",
    "RequireApproval": "require_approval",
    "SelectTools": "select_tools",
    "ToolBudget": "tool_budget",
    "TrimMessages": "trim_messages",
}


def __getattr__(name: str) -> object:
    """Load what stands in `_LATE`."""
    if name not in _LATE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415  # as late as what it imports

    return getattr(import_module(f".{_LATE[name]}", __name__), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
