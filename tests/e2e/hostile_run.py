"""A stranger's run folder and demonstrations, of which every text is hostile and has a number of its own."""

from __future__ import annotations

import json
import random
import typing
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from llamagym_tui.config import RunConfig
from llamagym_tui.protocol.events import (
    ActionsProbed,
    AnyEvent,
    CheckpointSaved,
    Event,
    PhaseChanged,
    PolicyMapLaidOut,
    PolicyMapped,
    PromptChanged,
    RolledBack,
    SessionFailed,
    StateDrawn,
    WarningRaised,
)
from llamagym_tui.protocol.inspected import ScoredReply
from llamagym_tui.protocol.map_layout import MapCell, MapPanel
from tests import fakes
from tests.screens.inspected import scored, told

STEER = (
    *(
        "\x1b]52;c;{0}\x07",
        "\x1b]0;{0}\x1b\\",
        "\x1b]8;;http://{0}\x1b\\x",
        "\x1bP{0}\x1b\\",
        "\x1b_{0}\x1b\\",
        "\x1bc{0}",
    ),
    *(
        "\x1b[{0}m",
        "\x1b[2J{0}",
        "\x1b[?1049l{0}",
        "\x1b[?1000h{0}",
        "\x1b[{0};1H",
        "\x1b[6n{0}",
        "\x1b[{0};1r",
    ),
    *(
        "\x9b{0}m",
        "\x9d52;c;{0}\x9c",
        "\x90{0}\x9c",
        "\x84{0}\x85",
        "{0}\x07\x08\x0e\x0f\x00\x7f",
        "{0}\r\x0b\x0c{0}",
    ),
    *(
        "{0}\u202e\u2066\u200f\u061c",
        "{0}\u2028\u2029",
        "{0}\u200b\ufeff\u00ad\u2060",
        "{0}\U000e0041\u3164\n\t",
    ),
    *(
        "[#010203 on #040506]{0}[/]",
        "[@click=app.quit]{0}[/]",
        "[link='http://x']{0}[/link]",
        "[/]{0}[$error]",
        "[b {0}",
    ),
)
"""What a text can be, around its number."""


class Texts:
    """Makes texts, no two with the same number."""

    def __init__(self, seed: int, first: int = 0) -> None:
        self.count = first
        self._rng = random.Random(seed)

    def next(self) -> str:
        rng, self.count = self._rng, self.count + 1
        number = f"9{self.count:05d}"
        chosen = [rng.choice(STEER).format(number) for _ in range(rng.randrange(1, 4))]
        noise = "".join(map(chr, self._codes(rng.randrange(12))))
        tail = "x" * 20_000 if rng.random() < 0.005 else ""
        return f"{number}{noise}{''.join(chosen)}{tail}"

    def _codes(self, count: int) -> Iterator[int]:
        """Of C0 and DEL, of C1, of all others; no surrogate, which stands in no file of JSON that is read."""
        rng = self._rng
        for _ in range(count):
            code = rng.choice(
                (rng.randrange(0x20), rng.randrange(0x7F, 0xA0), rng.randrange(0x20, 0x11000))
            )
            yield code if not 0xD800 <= code < 0xE000 else 0x1B

    def instead(self, value: Any, kind: Any = None) -> Any:
        """The same value with a hostile text for each text in it, words of a fixed list left as they are."""
        if isinstance(value, Struct):
            kinds = _kinds(type(value))
            changes = {
                name: self.instead(getattr(value, name), kind) for name, kind in kinds.items()
            }
            return msgspec.structs.replace(value, **changes)
        if isinstance(value, list):
            return [self.instead(each, (typing.get_args(kind) or (None,))[0]) for each in value]
        if isinstance(value, dict):
            return {self.next(): each for each in value.values()}
        return self.next() if isinstance(value, str) and kind in (str, str | None) else value


@cache
def _kinds(struct: type[Struct]) -> dict[str, Any]:
    return typing.get_type_hints(struct)


def events(texts: Texts, until: int) -> Iterator[AnyEvent]:
    """A run in which everything happens, as long as it takes to have so many texts."""
    cell = MapCell(words="w", best=[1])
    panel = MapPanel(
        title="t",
        row_name="r",
        column_name="c",
        rows=["1", "2"],
        columns=["1"],
        cells=[[cell], [cell]],
    )
    yield from fakes.opening_events()
    yield from fakes.learning(12)
    yield PolicyMapLaidOut(panels=[panel], action_names=["a", "b"], signs=["a", "b"])
    yield PolicyMapped(update=1, prompt_version=1, shares=[[0.7, 0.3]] * 2)
    episode = 0
    while texts.count < until:
        episode += 1
        start, observation, *rest = fakes.hand(
            episode, [("o", "r1", "json"), ("o", "r", "failed")], 1.0
        )
        yield from (start, StateDrawn(episode=episode, turn=0, text="drawn"), observation)
        yield ActionsProbed(
            episode=episode, turn=0, names=["a", "b"], shares=[0.5, 0.5], before=[0.4, 0.6]
        )
        yield from rest
        yield WarningRaised(message="m")
        if episode % 10 == 1:
            yield PromptChanged(prompt_version=episode, system_prompt="s")
            yield CheckpointSaved(update=1)
            yield RolledBack(update=1, reason="r")
            yield PhaseChanged(phase="updating", detail="d")
            told_of = told(episode, 0)
            yield told_of
            yield msgspec.structs.replace(
                scored(told_of),
                replies=[ScoredReply(text="t", score=-1.0, probability=1.0, chosen=True)],
            )
    yield SessionFailed(message="m")


def write_run(folder: Path, texts: Texts, until: int, **settings: Any) -> Path:
    """A run folder of a stranger, of which even the name is hostile; it has texts up to a number."""
    folder.mkdir(parents=True)
    config = msgspec.to_builtins(RunConfig(agent="a", model="m", run_dir="r", system_prompt="s"))
    hostile = {name: texts.next() for name in ("agent", "model", "run_dir", "system_prompt")}
    (folder / "config.json").write_text(json.dumps(config | hostile | settings), "utf-8")
    with (folder / "events.jsonl").open("w", encoding="utf-8") as file:
        for number, event in enumerate(events(texts, until)):
            timed: Event = msgspec.structs.replace(texts.instead(event), at_s=number / 100)
            file.write(json.dumps(msgspec.to_builtins(timed)) + "\n")
    return folder


def write_demonstrations(path: Path, texts: Texts, episodes: int) -> None:
    """Demonstrations of a stranger: some whose every text is hostile, some that are no demonstrations."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8") as file:
        for _ in range(episodes):
            messages = [
                {"role": role, "content": texts.next()} for role in ("system", "user", "assistant")
            ]
            known = {
                "actions": [0],
                "rewards": [1.0],
                "episode_return": 1.0,
                "length": 1,
                "end": "terminated",
            }
            names = ("agent", "env_id", "source", "model", "prompt_sha256", "recorded_at")
            rest = {"env_kwargs": {texts.next(): texts.next()}, "seed": 1, "schema": 1}
            line = {"messages": messages, **known, **{name: texts.next() for name in names}, **rest}
            file.write(json.dumps(line) + "\n" + json.dumps({texts.next(): 1}) + "\n")
