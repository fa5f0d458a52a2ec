"""Capabilities and the records they shape: what should be. The runtime is what makes it so.

Everything public is listed here; a module below this package may change without notice.
A module is loaded when the first of its names is used.
"""

from typing import TYPE_CHECKING

from .late_names import late_names

# A new public name takes two lines: its module here, for the interpreter, and its import below, for type checkers.
_MODULE_OF = {
    "ENTITIES": "pii",
    "Annotations": "annotations",
    "AssistantMessage": "messages",
    "AudioPart": "messages",
    "Backoff": "backoff",
    "BlobStore": "outside_stores",
    "CacheResponses": "cache_responses",
    "CacheStore": "outside_stores",
    "CacheTool": "cache_tool",
    "CallNext": "capability",
    "CallState": "call_state",
    "Capability": "capability",
    "Compact": "compact",
    "Content": "messages",
    "Description": "description",
    "Failure": "verdict",
    "FilePart": "messages",
    "FreezeError": "frozen",
    "FromCall": "injected",
    "FromContext": "injected",
    "FromDeps": "injected",
    "FrozenDict": "frozen",
    "FrozenList": "frozen",
    "GateTools": "gate_tools",
    "Guard": "guard",
    "ImagePart": "messages",
    "Instructions": "add_instructions",
    "Json": "frozen",
    "LimitToolOutput": "limit_tool_output",
    "Message": "messages",
    "ModelRetry": "injected",
    "NoPII": "pii_check",
    "Outcome": "verdict",
    "Outside": "capability",
    "Part": "messages",
    "Problem": "verdict",
    "Projection": "views",
    "RedactPII": "redact_pii",
    "RefuseTools": "refuse_tools",
    "RequireApproval": "require_approval",
    "Retrieve": "retrieve",
    "RetryTool": "retry_tool",
    "RunBudget": "run_budget",
    "RunState": "state",
    "SaveNext": "capability",
    "Secret": "secret",
    "SelectModel": "select_model",
    "SelectTools": "select_tools",
    "Shadow": "shadow",
    "SharedBudget": "shared_budget",
    "Span": "pii",
    "Status": "messages",
    "StopOnRepeat": "stop_on_repeat",
    "StoreAttachments": "store_attachments",
    "SystemMessage": "messages",
    "TextPart": "messages",
    "Tool": "tool_record",
    "ToolBudget": "tool_budget",
    "ToolCall": "messages",
    "ToolContext": "injected",
    "ToolFailed": "injected",
    "ToolHook": "function_hooks",
    "ToolMessage": "messages",
    "ToolSearch": "tool_search",
    "ToolUnknown": "injected",
    "Toolkit": "tools",
    "TrimMessages": "trim_messages",
    "Usage": "messages",
    "UseSettings": "use_settings",
    "UserMessage": "messages",
    "Verdict": "verdict",
    "Where": "tools",
    "call": "messages",
    "detect": "pii",
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
    from .add_instructions import Instructions as Instructions
    from .annotations import Annotations as Annotations
    from .backoff import Backoff as Backoff
    from .cache_responses import CacheResponses as CacheResponses
    from .cache_tool import CacheTool as CacheTool
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
    from .compact import Compact as Compact
    from .description import Description as Description
    from .folding import fold as fold
    from .frozen import FreezeError as FreezeError
    from .frozen import FrozenDict as FrozenDict
    from .frozen import FrozenList as FrozenList
    from .frozen import Json as Json
    from .frozen import freeze as freeze
    from .function_hooks import ToolHook as ToolHook
    from .function_hooks import hook as hook
    from .gate_tools import GateTools as GateTools
    from .guard import Guard as Guard
    from .injected import FromCall as FromCall
    from .injected import FromContext as FromContext
    from .injected import FromDeps as FromDeps
    from .injected import ModelRetry as ModelRetry
    from .injected import ToolContext as ToolContext
    from .injected import ToolFailed as ToolFailed
    from .injected import ToolUnknown as ToolUnknown
    from .limit_tool_output import LimitToolOutput as LimitToolOutput
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
    from .outside_stores import BlobStore as BlobStore
    from .outside_stores import CacheStore as CacheStore
    from .pii import ENTITIES as ENTITIES
    from .pii import Span as Span
    from .pii import detect as detect
    from .pii_check import NoPII as NoPII
    from .redact_pii import RedactPII as RedactPII
    from .refuse_tools import RefuseTools as RefuseTools
    from .require_approval import RequireApproval as RequireApproval
    from .retrieve import Retrieve as Retrieve
    from .retry_tool import RetryTool as RetryTool
    from .run_budget import RunBudget as RunBudget
    from .secret import Secret as Secret
    from .select_model import SelectModel as SelectModel
    from .select_tools import SelectTools as SelectTools
    from .shadow import Shadow as Shadow
    from .shared_budget import SharedBudget as SharedBudget
    from .state import RunState as RunState
    from .stop_on_repeat import StopOnRepeat as StopOnRepeat
    from .store_attachments import StoreAttachments as StoreAttachments
    from .tool_budget import ToolBudget as ToolBudget
    from .tool_record import Tool as Tool
    from .tool_search import ToolSearch as ToolSearch
    from .tools import Toolkit as Toolkit
    from .tools import Where as Where
    from .tools import is_declared_destructive as is_declared_destructive
    from .tools import is_destructive as is_destructive
    from .tools import is_idempotent as is_idempotent
    from .tools import is_read_only as is_read_only
    from .tools import tool as tool
    from .trim_messages import TrimMessages as TrimMessages
    from .use_settings import UseSettings as UseSettings
    from .verdict import Failure as Failure
    from .verdict import Outcome as Outcome
    from .verdict import Problem as Problem
    from .verdict import Verdict as Verdict
    from .views import Projection as Projection
else:  # unseen by type checkers: to them, `__getattr__` would make every misspelt name a good one
    __all__ = list(_MODULE_OF)
    __getattr__, __dir__ = late_names(__name__, _MODULE_OF)
