"""The runtime: what makes a capability list so, and writes down what it did.

Everything public is listed here; a module is loaded when the first of its names is used, so that a program
pays for what it uses.
"""

from typing import TYPE_CHECKING

from ..capabilities.late_names import late_names

# A new public name takes two lines: its module here, for the interpreter, and its import below, for type checkers.
_MODULE_OF = {
    "Agent": "agent",
    "AgentHooks": "agent_hooks",
    "AgentHooksHost": "agent_hooks_host",
    "Answer": "decisions",
    "ApprovalRequest": "decisions",
    "Approve": "decisions",
    "Approver": "decisions",
    "AuditRecord": "audit",
    "Backoff": "retry_model",
    "BlobStore": "blob_stores",
    "Blocked": "errors",
    "BlockedError": "errors",
    "CacheStore": "cache_stores",
    "CallSettled": "events",
    "CallStarted": "events",
    "Chunks": "replies",
    "CodecError": "errors",
    "Counter": "counter",
    "Decision": "decisions",
    "DecisionError": "errors",
    "Delta": "events",
    "Deny": "decisions",
    "Diff": "log_diff",
    "Difference": "log_diff",
    "Edit": "decisions",
    "Ended": "events",
    "Fallback": "fallback_model",
    "FolderBlobStore": "blob_stores",
    "FunctionModel": "scripted_model",
    "HookError": "errors",
    "HookFailed": "errors",
    "IllegalTransition": "errors",
    "IncompleteResponse": "errors",
    "InvalidResponse": "errors",
    "InvalidReturn": "errors",
    "InvalidSelection": "errors",
    "InvalidView": "errors",
    "JsonLines": "sinks",
    "Judged": "log_what_if",
    "LimitError": "errors",
    "LimitExceeded": "errors",
    "Limits": "limits",
    "LocalPort": "port",
    "Log": "log",
    "LogError": "errors",
    "McpHttp": "mcp_servers",
    "McpStdio": "mcp_servers",
    "MemoryBlobStore": "blob_stores",
    "MemoryCacheStore": "cache_stores",
    "MemoryStore": "memory_store",
    "MessageStore": "stores",
    "Meter": "models",
    "Model": "models",
    "ModelError": "models",
    "ModelFailed": "errors",
    "ModelProfile": "models",
    "ModelRequest": "models",
    "ModelRunError": "errors",
    "OpenAIModel": "openai_model",
    "OtelSpans": "otel",
    "OutputError": "errors",
    "OutputRetriesExhausted": "errors",
    "Permissions": "permissions",
    "Port": "port",
    "PortViolation": "port_laws",
    "PostgresLog": "sql_log",
    "PostgresStore": "postgres_store",
    "Price": "prices",
    "PromptSource": "prompts",
    "Reason": "errors",
    "ReplayError": "errors",
    "Replayed": "log_replay",
    "Restored": "errors",
    "Retry": "retry_model",
    "RunError": "errors",
    "RunEvent": "events",
    "RunHandle": "handle",
    "RunOptions": "runs",
    "RunResult": "result",
    "RunStream": "run_stream",
    "SQLiteCacheStore": "cache_stores",
    "SQLiteCounter": "sqlite_counter",
    "SQLiteLog": "sql_log",
    "SQLiteStore": "sqlite_store",
    "ScriptedModel": "scripted_model",
    "Settled": "events",
    "Sink": "sinks",
    "SinkFailed": "errors",
    "SnapshotClaimed": "stores",
    "StorageError": "errors",
    "StoreConflict": "stores",
    "StoreError": "stores",
    "StoreFailed": "errors",
    "StreamingModel": "models",
    "ToolError": "errors",
    "ToolRetriesExhausted": "errors",
    "Transition": "transitions",
    "UnselectedRetriesExhausted": "errors",
    "UsageUnknown": "errors",
    "Verified": "log",
    "WhatIf": "log_what_if",
    "Why": "log_why",
    "check_port": "port_laws",
    "checked_fold": "checked_folding",
    "diff": "log_diff",
    "dump_capabilities": "dump",
    "forbid_model_requests": "models",
    "load_capabilities": "dump",
    "machine": "machine",
    "mcp_toolkit": "mcp",
    "messages_from_openai": "openai_messages",
    "messages_to_openai": "openai_messages",
    "read_decisions": "decisions_json",
    "read_log": "log",
    "replay": "log_replay",
    "sent_to": "billing",
    "verify": "log",
    "what_if": "log_what_if",
    "why": "log_why",
    "write_requests": "decisions_json",
}

if TYPE_CHECKING:
    from . import machine as machine
    from .agent import Agent as Agent
    from .agent_hooks import AgentHooks as AgentHooks
    from .agent_hooks_host import AgentHooksHost as AgentHooksHost
    from .audit import AuditRecord as AuditRecord
    from .billing import sent_to as sent_to
    from .blob_stores import BlobStore as BlobStore
    from .blob_stores import FolderBlobStore as FolderBlobStore
    from .blob_stores import MemoryBlobStore as MemoryBlobStore
    from .cache_stores import CacheStore as CacheStore
    from .cache_stores import MemoryCacheStore as MemoryCacheStore
    from .cache_stores import SQLiteCacheStore as SQLiteCacheStore
    from .checked_folding import checked_fold as checked_fold
    from .counter import Counter as Counter
    from .decisions import Answer as Answer
    from .decisions import ApprovalRequest as ApprovalRequest
    from .decisions import Approve as Approve
    from .decisions import Approver as Approver
    from .decisions import Decision as Decision
    from .decisions import Deny as Deny
    from .decisions import Edit as Edit
    from .decisions_json import read_decisions as read_decisions
    from .decisions_json import write_requests as write_requests
    from .dump import dump_capabilities as dump_capabilities
    from .dump import load_capabilities as load_capabilities
    from .errors import Blocked as Blocked
    from .errors import BlockedError as BlockedError
    from .errors import CodecError as CodecError
    from .errors import DecisionError as DecisionError
    from .errors import HookError as HookError
    from .errors import HookFailed as HookFailed
    from .errors import IllegalTransition as IllegalTransition
    from .errors import IncompleteResponse as IncompleteResponse
    from .errors import InvalidResponse as InvalidResponse
    from .errors import InvalidReturn as InvalidReturn
    from .errors import InvalidSelection as InvalidSelection
    from .errors import InvalidView as InvalidView
    from .errors import LimitError as LimitError
    from .errors import LimitExceeded as LimitExceeded
    from .errors import LogError as LogError
    from .errors import ModelFailed as ModelFailed
    from .errors import ModelRunError as ModelRunError
    from .errors import OutputError as OutputError
    from .errors import OutputRetriesExhausted as OutputRetriesExhausted
    from .errors import Reason as Reason
    from .errors import ReplayError as ReplayError
    from .errors import Restored as Restored
    from .errors import RunError as RunError
    from .errors import SinkFailed as SinkFailed
    from .errors import StorageError as StorageError
    from .errors import StoreFailed as StoreFailed
    from .errors import ToolError as ToolError
    from .errors import ToolRetriesExhausted as ToolRetriesExhausted
    from .errors import UnselectedRetriesExhausted as UnselectedRetriesExhausted
    from .errors import UsageUnknown as UsageUnknown
    from .events import CallSettled as CallSettled
    from .events import CallStarted as CallStarted
    from .events import Delta as Delta
    from .events import Ended as Ended
    from .events import RunEvent as RunEvent
    from .events import Settled as Settled
    from .fallback_model import Fallback as Fallback
    from .handle import RunHandle as RunHandle
    from .limits import Limits as Limits
    from .log import Log as Log
    from .log import Verified as Verified
    from .log import read_log as read_log
    from .log import verify as verify
    from .log_diff import Diff as Diff
    from .log_diff import Difference as Difference
    from .log_diff import diff as diff
    from .log_replay import Replayed as Replayed
    from .log_replay import replay as replay
    from .log_what_if import Judged as Judged
    from .log_what_if import WhatIf as WhatIf
    from .log_what_if import what_if as what_if
    from .log_why import Why as Why
    from .log_why import why as why
    from .mcp import mcp_toolkit as mcp_toolkit
    from .mcp_servers import McpHttp as McpHttp
    from .mcp_servers import McpStdio as McpStdio
    from .memory_store import MemoryStore as MemoryStore
    from .models import Meter as Meter
    from .models import Model as Model
    from .models import ModelError as ModelError
    from .models import ModelProfile as ModelProfile
    from .models import ModelRequest as ModelRequest
    from .models import StreamingModel as StreamingModel
    from .models import forbid_model_requests as forbid_model_requests
    from .openai_messages import messages_from_openai as messages_from_openai
    from .openai_messages import messages_to_openai as messages_to_openai
    from .openai_model import OpenAIModel as OpenAIModel
    from .otel import OtelSpans as OtelSpans
    from .permissions import Permissions as Permissions
    from .port import LocalPort as LocalPort
    from .port import Port as Port
    from .port_laws import PortViolation as PortViolation
    from .port_laws import check_port as check_port
    from .postgres_store import PostgresStore as PostgresStore
    from .prices import Price as Price
    from .prompts import PromptSource as PromptSource
    from .replies import Chunks as Chunks
    from .result import RunResult as RunResult
    from .retry_model import Backoff as Backoff
    from .retry_model import Retry as Retry
    from .run_stream import RunStream as RunStream
    from .runs import RunOptions as RunOptions
    from .scripted_model import FunctionModel as FunctionModel
    from .scripted_model import ScriptedModel as ScriptedModel
    from .sinks import JsonLines as JsonLines
    from .sinks import Sink as Sink
    from .sql_log import PostgresLog as PostgresLog
    from .sql_log import SQLiteLog as SQLiteLog
    from .sqlite_counter import SQLiteCounter as SQLiteCounter
    from .sqlite_store import SQLiteStore as SQLiteStore
    from .stores import MessageStore as MessageStore
    from .stores import SnapshotClaimed as SnapshotClaimed
    from .stores import StoreConflict as StoreConflict
    from .stores import StoreError as StoreError
    from .transitions import Transition as Transition
else:  # unseen by type checkers: to them, `__getattr__` would make every misspelt name a good one
    __all__ = list(_MODULE_OF)
    __getattr__, __dir__ = late_names(__name__, _MODULE_OF)
