"""One table of the ready-made capabilities, each as somebody might list it: laws, pairs and round trips run over it."""

from capfold.capabilities import (
    Backoff,
    CacheResponses,
    CacheTool,
    Compact,
    GateTools,
    Guard,
    Instructions,
    LimitToolOutput,
    NoPII,
    RedactPII,
    RefuseTools,
    RequireApproval,
    Retrieve,
    RetryTool,
    RunBudget,
    RunState,
    SelectModel,
    SelectTools,
    Shadow,
    SharedBudget,
    StopOnRepeat,
    StoreAttachments,
    ToolBudget,
    ToolSearch,
    TrimMessages,
    UseSettings,
    is_destructive,
    is_read_only,
)
from capfold.capabilities.capability import AnyCapability
from capfold.runtime import MemoryBlobStore, MemoryCacheStore


def find_a_book(query: str) -> list[str]:
    """Find one thing for any query."""
    return [f"A book about {query}."]


def no_other_model(state: RunState) -> None:
    """Choose no model: the agent's own answers."""


# Name of a case -> a capability. Keys differ, so any of them can stand in one list. Those with `deps` or stores too.
READY_MADE: dict[str, AnyCapability] = {
    "CacheResponses": CacheResponses(MemoryCacheStore(), ttl=60, vary=()),
    "CacheTool": CacheTool(vary=("user",)),
    "Compact": Compact(after=3, keep_last=2),
    "GateTools": GateTools({"pay": "search"}),
    "Guard": Guard(NoPII(["iban"]), on_fail="stop"),
    "GuardArguments": Guard(NoPII(["iban"]), at="tool_call", on_fail="note", key="GuardArguments"),
    "Instructions": Instructions("Be brief."),
    "LimitToolOutput": LimitToolOutput(1_100, preview_bytes=64),
    "RedactPII": RedactPII(),
    "RefuseTools": RefuseTools(is_destructive),
    "RequireApproval": RequireApproval({"pay"}),
    "Retrieve": Retrieve(find_a_book),
    "RetryTool": RetryTool(2, backoff=Backoff(initial=0.0)),
    "RunBudget": RunBudget(max_steps=4, max_tokens=10_000),
    "SelectModel": SelectModel(no_other_model),
    "SelectTools": SelectTools(is_read_only),
    "Shadow": Shadow(ToolBudget(1), RefuseTools(is_destructive)),
    "SharedBudget": SharedBudget("calls", 3),
    "StopOnRepeat": StopOnRepeat(2),
    "StoreAttachments": StoreAttachments(MemoryBlobStore()),
    "ToolBudget": ToolBudget(3),
    "ToolSearch": ToolSearch({"search"}, max_results=2, max_found=3),
    "TrimMessages": TrimMessages(keep_last=4),
    "UseSettings": UseSettings({"temperature": 0}),
}
