"""The runtime: what makes a capability list so, and writes down what it did.

Importing it loads neither openai nor hypothesis; the adapter of OpenAI is loaded when its name is first used.
"""

from typing import TYPE_CHECKING

from . import machine
from .agent import Agent
from .audit import AuditRecord
from .checked_fold import checked_fold
from .decisions import Answer, ApprovalRequest, Approve, Approver, Decision, Deny, Edit
from .dump import dump_capabilities, load_capabilities
from .errors import (
    Blocked,
    BlockedError,
    CodecError,
    DecisionError,
    HookError,
    HookFailed,
    IllegalTransition,
    IncompleteResponse,
    InvalidResponse,
    InvalidReturn,
    InvalidSelection,
    InvalidView,
    LimitError,
    LimitExceeded,
    LogError,
    ModelFailed,
    ModelRunError,
    OutputError,
    OutputRetriesExhausted,
    Reason,
    Restored,
    RunError,
    SinkFailed,
    StorageError,
    StoreFailed,
    ToolError,
    ToolRetriesExhausted,
    UnselectedRetriesExhausted,
    UsageUnknown,
)
from .limits import Limits
from .log import Log, Verified, read_log, verify
from .models import Meter, Model, ModelError, ModelProfile, ModelRequest, forbid_model_requests
from .permissions import Permissions
from .port import LocalPort, Port
from .result import RunResult
from .scripted_model import Chunks, FunctionModel, ScriptedModel
from .sinks import JsonLines, Sink
from .transitions import Transition

if TYPE_CHECKING:
    from .openai_messages import messages_from_openai, messages_to_openai
    from .openai_model import OpenAIModel

__all__ = [
    "Agent",
    "Answer",
    "ApprovalRequest",
    "Approve",
    "Approver",
    "AuditRecord",
    "Blocked",
    "BlockedError",
    "Chunks",
    "CodecError",
    "Decision",
    "DecisionError",
    "Deny",
    "Edit",
    "FunctionModel",
    "HookError",
    "HookFailed",
    "IllegalTransition",
    "IncompleteResponse",
    "InvalidResponse",
    "InvalidReturn",
    "InvalidSelection",
    "InvalidView",
    "JsonLines",
    "LimitError",
    "LimitExceeded",
    "Limits",
    "LocalPort",
    "Log",
    "LogError",
    "Meter",
    "Model",
    "ModelError",
    "ModelFailed",
    "ModelProfile",
    "ModelRequest",
    "ModelRunError",
    "OpenAIModel",
    "OutputError",
    "OutputRetriesExhausted",
    "Permissions",
    "Port",
    "Reason",
    "Restored",
    "RunError",
    "RunResult",
    "ScriptedModel",
    "Sink",
    "SinkFailed",
    "StorageError",
    "StoreFailed",
    "ToolError",
    "ToolRetriesExhausted",
    "Transition",
    "UnselectedRetriesExhausted",
    "UsageUnknown",
    "Verified",
    "checked_fold",
    "dump_capabilities",
    "forbid_model_requests",
    "load_capabilities",
    "machine",
    "messages_from_openai",
    "messages_to_openai",
    "read_log",
    "verify",
]

# Seven modules, 10 ms: for those who use them.
_LATE = {
    "OpenAIModel": "openai_model",
    "messages_from_openai": "openai_messages",
    "messages_to_openai": "openai_messages",
}


def __getattr__(name: str) -> object:
    """Load an adapter by the first use of its name."""
    if name not in _LATE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415  # as late as what it imports

    return getattr(import_module(f".{_LATE[name]}", __name__), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
