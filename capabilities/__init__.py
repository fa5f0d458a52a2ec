"""Capabilities and the records they shape: what should be. The runtime is what makes it so.

Everything public is listed here; a module below this package may change without notice.
"""

from .annotations import Annotations
from .call_state import CallState
from .capability import CallNext, Capability, Outside, SaveNext
from .combinators import for_tools, group, inherited, nested, when
from .description import Description
from .folding import fold
from .frozen import FreezeError, Json, freeze
from .function_hooks import ToolHook, hook
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
from .refuse_tools import RefuseTools
from .require_approval import RequireApproval
from .secret import Secret
from .select_tools import SelectTools
from .state import RunState
from .tool_budget import ToolBudget
from .tool_record import Tool
from .tools import Toolkit, Where, is_declared_destructive, is_destructive, is_idempotent, is_read_only, tool
from .trim_messages import TrimMessages
from .verdict import Failure, Outcome, Problem, Verdict
from .views import Projection

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
