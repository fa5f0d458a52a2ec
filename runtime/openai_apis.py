"""The two APIs of OpenAI as OpenAIModel sees them: where a request goes, and what makes and reads its bytes.

Pure, and imports no openai. A third API is a third row.
"""

from collections.abc import Callable, Mapping
from typing import TypeAlias

from attrs import frozen

from ..capabilities.messages import AssistantMessage
from .models import ModelProfile, ModelRequest
from .openai_chunks import ChatChunks
from .openai_output import OutputForm
from .openai_response import decode_response
from .openai_responses_events import ResponseEvents
from .openai_responses_response import decode_responses_response
from .openai_responses_wire import check_settings as check_responses_settings
from .openai_responses_wire import encode_responses_request
from .openai_stream import Assembler
from .openai_wire import Encoded, check_settings, encode_request

Encoder: TypeAlias = Callable[[ModelRequest, str, ModelProfile, Mapping[str, object]], Encoded]
Decoder: TypeAlias = Callable[[bytes, OutputForm | None], AssistantMessage]
Assembling: TypeAlias = Callable[[OutputForm | None], Assembler]


@frozen
class Api:
    """One API. `check` raises ValueError for settings that it has not, `encode` `Unsendable`, `decode` ModelError.

    For a response in pieces: `streaming` is what stands in the body besides, `assembler` what reads them.
    """

    path: str
    check: Callable[[Mapping[str, object]], None]
    encode: Encoder
    decode: Decoder
    streaming: bytes
    assembler: Assembling


APIS: dict[str, Api] = {
    "chat": Api(
        "/chat/completions",
        check_settings,
        encode_request,
        decode_response,
        b'"stream":true,"stream_options":{"include_usage":true}',
        ChatChunks,
    ),
    "responses": Api(
        "/responses",
        check_responses_settings,
        encode_responses_request,
        decode_responses_response,
        b'"stream":true',
        ResponseEvents,
    ),
}
