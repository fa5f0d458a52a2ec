"""The runtime: what makes a capability list so, and writes down what it did.

Importing it loads neither openai nor hypothesis; adapters import what they need when they are used.
"""

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
from .openai_messages import messages_from_openai, messages_to_openai
from .openai_model import OpenAIModel
from .permissions import Permissions
from .port import LocalPort, Port
from .result import RunResult
from .scripted_model import Chunks, FunctionModel, ScriptedModel
from .sinks import JsonLines, Sink
from .transitions import Transition

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
    "forbid_model_requests",
    "machine",
    "messages_from_openai",
    "messages_to_openai",
    "read_log",
    "verify",
]
