"""The wire between the two processes: a length of four bytes, big-endian, then one event or command as msgpack.

A peer gets a whole message or a `WireError`, never half of one, and nonsense allocates no more than a frame may.
"""

import asyncio
from typing import BinaryIO, TypeVar

import msgspec

from llamagym_tui.errors import WireError
from llamagym_tui.protocol.commands import AnyCommand, Command
from llamagym_tui.protocol.events import AnyEvent, Event

MAX_FRAME_BYTES = 16 * 1024 * 1024
"""Longest payload that is sent or accepted."""
HEADER_BYTES = 4
"""Length of the length."""

_encoder = msgspec.msgpack.Encoder()
_events: msgspec.msgpack.Decoder[AnyEvent] = msgspec.msgpack.Decoder(AnyEvent)
_commands: msgspec.msgpack.Decoder[AnyCommand] = msgspec.msgpack.Decoder(AnyCommand)
M = TypeVar("M")


def encoded(message: Event | Command) -> bytes:
    """The payload of a frame."""
    return _encoder.encode(message)


def decode_event(payload: bytes) -> AnyEvent:
    """The event in a payload; raises WireError if it is none of this protocol."""
    return _decode(_events, payload, "event", "trainer")


def decode_command(payload: bytes) -> AnyCommand:
    """The command in a payload; raises WireError if it is none of this protocol."""
    return _decode(_commands, payload, "command", "user interface")


def framed(payload: bytes) -> bytes:
    """A payload with its length before it; raises WireError if it is longer than a peer accepts."""
    _check_length(len(payload))
    return len(payload).to_bytes(HEADER_BYTES, "big") + payload


def read_frame(stream: BinaryIO) -> bytes | None:
    """The next payload of a blocking stream; None at its end.

    Raises:
        WireError: the stream ended within a frame, or what it holds is no frame.
    """
    if not (header := _read_up_to(stream, HEADER_BYTES)):
        return None
    length = _length(header)
    return _whole(_read_up_to(stream, length), length)


async def read_frame_async(reader: asyncio.StreamReader) -> bytes | None:
    """The next payload of an asyncio stream, as `read_frame`."""

    async def read_up_to(length: int) -> bytes:
        try:
            return await reader.readexactly(length)
        except asyncio.IncompleteReadError as ended:
            return ended.partial

    if not (header := await read_up_to(HEADER_BYTES)):
        return None
    length = _length(header)
    return _whole(await read_up_to(length), length)


def _read_up_to(stream: BinaryIO, length: int) -> bytes:
    """Bytes of a stream, fewer only at its end; a raw stream gives them in pieces."""
    pieces: list[bytes] = []
    missing = length
    while missing and (piece := stream.read(missing)):
        pieces.append(piece)
        missing -= len(piece)
    return b"".join(pieces)


def _length(header: bytes) -> int:
    length = int.from_bytes(_whole(header, HEADER_BYTES), "big")
    _check_length(length)
    return length


def _check_length(length: int) -> None:
    if length > MAX_FRAME_BYTES:
        raise WireError(
            f"A frame of {length} bytes is longer than the {MAX_FRAME_BYTES} that the wire carries; "
            "something other than the protocol was written to the pipe: look into the run's log."
        )


def _whole(content: bytes, length: int) -> bytes:
    if len(content) < length:
        raise WireError(
            f"The pipe ended within a frame, after {len(content)} of {length} bytes; "
            "the other process died while it was writing: look into the run's log."
        )
    return content


def _decode(decoder: msgspec.msgpack.Decoder[M], payload: bytes, noun: str, sender: str) -> M:
    try:
        return decoder.decode(payload)
    except (ValueError, RecursionError) as error:  # msgspec's and Unicode's errors are ValueErrors
        raise WireError(
            f"A frame of {len(payload)} bytes is no {noun} of this protocol ({error}); "
            f"start the {sender} from the same version of llamagym-tui."
        ) from error
