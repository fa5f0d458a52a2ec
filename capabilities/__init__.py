"""Capabilities and the records they shape: what should be. The runtime is what makes it so.

Everything public is listed here; a module below this package may change without notice.
A module is loaded when the first of its names is used.
"""

from typing import TYPE_CHECKING

from .late_names import late_names

# A new public name takes two lines: its module here, for the interpreter, and its import below, for type checkers.
_MODULE_OF = {
    "Annotations": "annotations",
    "AssistantMessage": "messages",
    "AudioPart": "messages",
    "CallNext": "capability",
    "CallState": "call_state",
    "Capability": "capability",
    "Content": "messages",
    "Description": "description",
    "Failure": "verdict",
    "FilePart": "messages",
    "FreezeError": "frozen",
    "FromCall": "injected",
    "FromContext": "injected",
    "FromDeps": "injected",
    "ImagePart": "messages",
    "Json": "frozen",
    "Message": "messages",
    "ModelRetry": "injected",
    "Outcome": "verdict",
    "Outside": "capability",
    "Part": "messages",
    "Problem": "verdict",
    "Projection": "views",
    "RefuseTools": "refuse_tools",
    "RequireApproval": "require_approval",
    "RunState": "state",
    "SaveNext": "capability",
    "Secret": "secret",
    "SelectTools": "select_tools",
    "Status": "messages",
    "SystemMessage": "messages",
    "TextPart": "messages",
    "Tool": "tool_record",
    "ToolBudget": "tool_budget",
    "ToolCall": "messages",
    "ToolContext": "injected",
    "ToolFailed": "injected",
    "ToolHook": "function_hooks",
    "ToolMessage": "messages",
    "ToolUnknown": "injected",
    "Toolkit": "tools",
    "TrimMessages": "trim_messages",
    "Usage": "messages",
    "UserMessage": "messages",
    "Verdict": "verdict",
    "Where": "tools",
    "call": "messages",
    "fold": "folding",
    "for_tools": "combinators",
    "freeze": "frozen",
    "group": "combinators",
    "hook": "function_hooks",
    "inherited": "combinators",
    "is_declared_destructive": "tools",
    "is_destructive": "tools",
    "is_idempotent": "tools",
    "is_read_only": "tools",
    "nested": "combinators",
    "tool": "tools",
    "when": "combinators",
}

if TYPE_CHECKING:
    from .annotations import Annotations as Annotations
    from .call_state import CallState as CallState
    from .capability import CallNext as CallNext
    from .capability import Capability as Capability
    from .capability import Outside as Outside
    from .capability import SaveNext as SaveNext
    from .combinators import for_tools as for_tools
    from .combinators import group as group
    from .combinators import inherited as inherited
    from .combinators import nested as nested
    from .combinators import when as when
    from .description import Description as Description
    from .folding import fold as fold
    from .frozen import FreezeError as FreezeError
    from .frozen import Json as Json
    from .frozen import freeze as freeze
    from .function_hooks import ToolHook as ToolHook
    from .function_hooks import hook as hook
    from .injected import FromCall as FromCall
    from .injected import FromContext as FromContext
    from .injected import FromDeps as FromDeps
    from .injected import ModelRetry as ModelRetry
    from .injected import ToolContext as ToolContext
    from .injected import ToolFailed as ToolFailed
    from .injected import ToolUnknown as ToolUnknown
    from .messages import AssistantMessage as AssistantMessage
    from .messages import AudioPart as AudioPart
    from .messages import Content as Content
    from .messages import FilePart as FilePart
    from .messages import ImagePart as ImagePart
    from .messages import Message as Message
    from .messages import Part as Part
    from .messages import Status as Status
    from .messages import SystemMessage as SystemMessage
    from .messages import TextPart as TextPart
    from .messages import ToolCall as ToolCall
    from .messages import ToolMessage as ToolMessage
    from .messages import Usage as Usage
    from .messages import UserMessage as UserMessage
    from .messages import call as call
    from .refuse_tools import RefuseTools as RefuseTools
    from .require_approval import RequireApproval as RequireApproval
    from .secret import Secret as Secret
    from .select_tools import SelectTools as SelectTools
    from .state import RunState as RunState
    from .tool_budget import ToolBudget as ToolBudget
    from .tool_record import Tool as Tool
    from .tools import Toolkit as Toolkit
    from .tools import Where as Where
    from .tools import is_declared_destructive as is_declared_destructive
    from .tools import is_destructive as is_destructive
    from .tools import is_idempotent as is_idempotent
    from .tools import is_read_only as is_read_only
    from .tools import tool as tool
    from .trim_messages import TrimMessages as TrimMessages
    from .verdict import Failure as Failure
    from .verdict import Outcome as Outcome
    from .verdict import Problem as Problem
    from .verdict import Verdict as Verdict
    from .views import Projection as Projection
else:  # unseen by type checkers: to them, `__getattr__` would make every misspelt name a good one
    __all__ = list(_MODULE_OF)
    __getattr__, __dir__ = late_names(__name__, _MODULE_OF)
