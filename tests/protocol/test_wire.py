"""The wire carries every message whole, or says that it did not."""

from __future__ import annotations

import asyncio
import io
from typing import Any, get_args

import msgspec
import pytest

from llamagym_tui.errors import WireError
from llamagym_tui.protocol import wire
from llamagym_tui.protocol.commands import (
    AnyCommand,
    Command,
    Evaluate,
    SetSystemPrompt,
)
from llamagym_tui.protocol.events import (
    AnyEvent,
    Event,
    PhaseChanged,
)

EVENTS = get_args(AnyEvent)
COMMANDS = get_args(AnyCommand)


def example(kind: Any) -> Any:
    """A value of a type, made from its annotations, different from every default."""
    info = msgspec.inspect.type_info(kind) if isinstance(kind, type) else kind
    match info:
        case msgspec.inspect.StructType():
            return info.cls(**{field.name: example(field.type) for field in info.fields})
        case msgspec.inspect.LiteralType():
            return info.values[-1]
        case msgspec.inspect.UnionType():
            return example(info.types[0])
        case msgspec.inspect.TypedDictType():
            return {field.name: example(field.type) for field in info.fields}
        case msgspec.inspect.NamedTupleType():
            return info.cls(*(example(field.type) for field in info.fields))
        case msgspec.inspect.ListType():
            return [example(info.item_type), example(info.item_type)]
        case msgspec.inspect.TupleType():
            return tuple(example(item) for item in info.item_types)
        case msgspec.inspect.DictType():
            return {"größe": example(info.value_type)}
        case msgspec.inspect.BoolType():
            return True
        case msgspec.inspect.IntType():
            return 41
        case msgspec.inspect.FloatType():
            return 0.625
        case msgspec.inspect.StrType():
            return "zwölf 🂡\n\x00"
    raise AssertionError(f"no example of {info}; add one here")


def named(kind: type) -> str:
    return kind.__name__


def subclasses(kind: type) -> set[type]:
    return {inner for outer in kind.__subclasses__() for inner in {outer} | subclasses(outer)}


@pytest.mark.parametrize("kind", EVENTS, ids=named)
def test_every_event_arrives_as_it_was_sent(kind: type[Event]) -> None:
    event = example(kind)
    pipe = io.BytesIO()
    pipe.write(wire.framed(wire.encoded(event)))
    pipe.seek(0)
    arrived = wire.decode_event(wire.read_frame(pipe) or b"")
    assert type(arrived) is kind
    assert arrived == event


@pytest.mark.parametrize("kind", COMMANDS, ids=named)
def test_every_command_arrives_as_it_was_sent(kind: type[Command]) -> None:
    command = example(kind)
    pipe = io.BytesIO()
    pipe.write(wire.framed(wire.encoded(command)))
    pipe.seek(0)
    arrived = wire.decode_command(wire.read_frame(pipe) or b"")
    assert type(arrived) is kind
    assert arrived == command


def test_no_event_and_no_command_is_left_out_of_its_union() -> None:
    assert subclasses(Event) == set(EVENTS)
    assert subclasses(Command) == set(COMMANDS)


def test_a_frame_is_a_big_endian_length_and_the_payload() -> None:
    assert wire.framed(b"abc") == b"\x00\x00\x00\x03abc"


@pytest.mark.parametrize("kept", [1, 3, 4, 6])
def test_end_of_file_within_a_frame_is_an_error(kept: int) -> None:
    torn = wire.framed(b"abc")[:kept]
    with pytest.raises(WireError, match="ended within a frame"):
        wire.read_frame(io.BytesIO(torn))
    with pytest.raises(WireError, match="ended within a frame"):
        asyncio.run(read_async(torn))


def test_a_length_over_the_cap_is_refused_before_anything_is_read() -> None:
    header = (wire.MAX_FRAME_BYTES + 1).to_bytes(4, "big")
    with pytest.raises(WireError, match="longer than"):
        wire.read_frame(io.BytesIO(header))
    with pytest.raises(WireError, match="longer than"):
        asyncio.run(read_async(header))


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\xff\xfe garbage",
        msgspec.msgpack.encode([1, 2]),
        msgspec.msgpack.encode({"type": "Nonsense"}),
        msgspec.msgpack.encode({"type": "PhaseChanged", "phase": "dancing"}),
        msgspec.msgpack.encode({"type": "PhaseChanged"}),
        wire.encoded(PhaseChanged(phase="loading"))[:-1],
        wire.encoded(PhaseChanged(phase="loading")) + b"\x00",
        b"\x82\xa4type\xacPhaseChanged\xa5phase\xa2\xc3\x28",  # not UTF-8
        b"\x82\xa4type\xacPhaseChanged\xa1x" + b"\x91" * 100_000,  # a nest without a floor
    ],
)
def test_a_payload_of_nonsense_is_an_error(payload: bytes) -> None:
    with pytest.raises(WireError, match="no event of this protocol"):
        wire.decode_event(payload)


def test_asyncio_reads_the_same_frames() -> None:
    payloads = [
        wire.encoded(SetSystemPrompt(system_prompt="x" * 200_000)),
        wire.encoded(Evaluate()),
    ]
    assert asyncio.run(read_async(b"".join(map(wire.framed, payloads)))) == payloads


async def read_async(content: bytes) -> list[bytes]:
    reader = asyncio.StreamReader()
    reader.feed_data(content)
    reader.feed_eof()
    payloads = []
    while (payload := await wire.read_frame_async(reader)) is not None:
        payloads.append(payload)
    return payloads
