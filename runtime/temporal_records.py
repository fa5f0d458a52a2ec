"""What crosses between a run's workflow, its steps and its starters on Temporal: three records, written by the codec.

They hold keys and texts; what the texts say is nobody's business here. Knows nothing of workers or runs.
"""

import dataclasses
from typing import Any

from attrs import field, frozen, has
from temporalio.api.common.v1 import Payload
from temporalio.client import Client
from temporalio.converter import CompositePayloadConverter, DefaultPayloadConverter, EncodingPayloadConverter

from .codec import from_text, to_text

WORKFLOW = "capfold_run"
STEP = "capfold_step"
CHILD = "capfold_child"
MESSAGE = "capfold_message"
STOP = "capfold_stop"
STATUS = "capfold_status"  # of a run, in its memo
# Why a step was not recorded, as the type of the failure: its worker ended in good order, its worker could not begin
# it, or the run cannot go on at all.
LEFT, UNBEGUN, BROKEN = "capfold-left", "capfold-unbegun", "capfold-broken"


@frozen
class Start:
    """What a run begins with. `order`: its order, or where that is kept.

    `base`: what is recorded of the run that it is a fork of. `forked_from`: the id of that run. `lease`: seconds
    without a sign after which a worker counts as lost. `attempts`: how often a step is begun at most.
    """

    order: str
    lease: float
    attempts: int
    base: str | None = None
    forked_from: str | None = None


@frozen
class Todo:
    """One thing to do with a run: to perform the step of a key, or where that is empty to say what is next.

    `attempt`: from 1, how often the step was begun, this time included. `known`: how many steps are recorded.
    `epoch`: how often something was lost; what a worker has in memory from an earlier one may never have been recorded.
    `message`: a topic and what was sent to it. `wish`: the message that asks the run to end.
    """

    key: str
    attempt: int
    known: int
    epoch: int
    message: tuple[str, str] | None = None
    wish: str | None = None


@frozen
class Done:
    """What came of it. `text`: of the step; `next`: the keys of steps that can begin.

    `wait`: the topic that the run waits for, and what it asks. `end`: what the run came to, and `status` in a word.
    `home`: the task queue of the worker that has the run in memory now.
    """

    home: str = ""
    text: str | None = None
    next: tuple[str, ...] = field(default=())
    wait: tuple[str, str] | None = None
    end: str | None = None
    status: str | None = None


@frozen
class Below:
    """A run to be started below another one."""

    run_id: str
    order: str


class RecordPayloadConverter(EncodingPayloadConverter):
    """Writes attrs records by the codec, strictly, and reads them back by the type that is expected."""

    encoding = "json/capfold"

    def to_payload(self, value: Any) -> Payload | None:  # Any: as Temporal has it
        """Return the payload of a record; None for anything else. Raises CodecError for what cannot be carried."""
        if not has(type(value)):
            return None
        return Payload(metadata={"encoding": self.encoding.encode()}, data=to_text(value).encode())

    def from_payload(self, payload: Payload, type_hint: type | None = None) -> Any:  # Any: as Temporal has it
        """Return the record. Raises CodecError for what is none, TypeError where no type is expected."""
        if type_hint is None:
            raise TypeError("a record of capfold is read by the type that is expected, and none was given")
        return from_text(payload.data.decode(), type_hint)


class CapfoldPayloadConverter(CompositePayloadConverter):
    """Records of capfold by the codec, everything else as Temporal does by default."""

    def __init__(self) -> None:
        """Stand before the default."""
        super().__init__(
            RecordPayloadConverter(), *DefaultPayloadConverter.default_encoding_payload_converters
        )


def with_records(client: Client) -> Client:
    """Return the client with a converter that knows our records; its codec, as for encryption, stays.

    Raises ValueError for a client whose converter is one of the user's own and knows no records.
    """
    converter = client.data_converter
    if issubclass(converter.payload_converter_class, CapfoldPayloadConverter):
        return client
    if converter.payload_converter_class is not DefaultPayloadConverter:
        raise ValueError(
            f"the client converts payloads by {converter.payload_converter_class.__name__}: derive that from "
            "CapfoldPayloadConverter"
        )
    config = client.config()
    config["data_converter"] = dataclasses.replace(converter, payload_converter_class=CapfoldPayloadConverter)
    return Client(**config)
