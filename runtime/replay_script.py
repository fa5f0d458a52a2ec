"""The script of a log: what models answered in a run, as replies that a scripted model gives again.

Knows nothing of how the run went on.
"""

from collections.abc import Iterable, Sequence
from typing import cast

from ..capabilities.messages import AssistantMessage
from .audit import AuditRecord
from .errors import ModelFailed, ReplayError
from .models import ModelError, ModelErrorKind
from .replay_facts import broken_of, response_of
from .replay_tape import is_foreign

LOST = "the request brought no response in the run on record"


def script_of(
    records: Iterable[AuditRecord], run: str | None
) -> tuple[str, Sequence[AssistantMessage | Exception]]:
    """Return the model's name and the replies of a run, the first one in the log if None is named.

    A request that brought no response is a ModelError: the one that ended the run, or one of kind "connection" that
    may be tried again, before the responses of its step. Raises ReplayError for a log without the run, or without
    its contents.
    """
    own = [record for record in records if not is_foreign(record)]
    run = own[0].run if run is None and own else run
    own = [record for record in own if record.run == run]
    if not own or own[0].kind != "run_started":
        raise ReplayError(
            f"the log does not hold the beginning of run {run!r}" if own else "the log is empty"
        )
    bare = next((record for record in own if record.content != "full"), None)
    if bare is not None:
        raise ReplayError(f"{bare.kind} {bare.seq} of run {run!r} was stored without its contents")
    replies: list[AssistantMessage | Exception] = []
    for step in sorted({record.step for record in own}):
        replies += of_step([record for record in own if record.step == step])
    return str(own[0].facts["model"]), replies


def of_step(records: Sequence[AuditRecord]) -> Sequence[AssistantMessage | Exception]:
    """Return the replies of one step, failures in their places."""
    came = [record for record in records if record.kind == "model_responded"]
    sent = [response_of(record.facts["response"], record) for record in came]
    lost = sum(
        cast(int, one.facts.get("requests_without_response", 0)) for one in records if one.kind == "note"
    )
    failed = broken_of(one for one in records if one.facts.get("broken") == "requesting")
    errors: list[Exception] = [ModelError("connection", LOST, retryable=True)] * max(0, lost)
    if failed is not None and isinstance(failed.reason, ModelFailed) and not errors:
        errors = [_error(failed.reason)]  # a model that failed before it charged anything
    elif failed is not None and isinstance(failed.reason, ModelFailed):
        return [*errors[:-1], *sent, _error(failed.reason)]
    return [*errors, *sent]


def _error(reason: ModelFailed) -> ModelError:
    message = reason.message.removeprefix("the model failed: ")
    kind = cast(ModelErrorKind, reason.kind)
    return ModelError(kind, message, retryable=reason.retryable, status=reason.status)
