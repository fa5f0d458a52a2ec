"""The runtime: what makes a capability list so, and writes down what it did.

Importing it loads neither openai nor hypothesis; some names are loaded when they are first used.
"""

from typing import TYPE_CHECKING

from . import machine
from .agent import Agent
from .audit import AuditRecord
from .checked_fold import checked_fold
from .decisions import Answer, ApprovalRequest, Approve, Approver, Decision, Deny, Edit
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
from .sinks import JsonLines, Sink
from .transitions import Transition

if TYPE_CHECKING:
    from .dump import dump_capabilities, load_capabilities
    from .openai_messages import messages_from_openai, messages_to_openai
    from .openai_model import OpenAIModel
    from .scripted_model import Chunks, FunctionModel, ScriptedModel

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

# For those who use them: the adapter of OpenAI is seven modules, 10 ms; what dumps lists needs the codec, 40 ms.
_LATE = {
    "Chunks": "scripted_model",
    "FunctionModel": "scripted_model",
    "OpenAIModel": "openai_model",
    "ScriptedModel": "scripted_model",
    "dump_capabilities": "dump",
    "load_capabilities": "dump",
    "messages_from_openai": "openai_messages",
    "messages_to_openai": "openai_messages",
}


def __getattr__(name: str) -> object:
    """Load what stands in `_LATE`."""
    if name not in _LATE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415  # as late as what it imports

    return getattr(import_module(f".{_LATE[name]}", __name__), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
