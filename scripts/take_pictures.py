"""Takes the pictures of the documents from the app itself, on live runs of the real trainer.

``python -m scripts.take_pictures`` writes ``docs/pictures``: a film of the first minute, stills of a run that has
trained for `--live` seconds, one of a file that is sorted, and two of a training by TRL's GRPO, which takes five
minutes. ``python -m scripts.take_pictures film`` takes only one of the four. Keys are named by their bindings, so that
they may move.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import tempfile
from collections.abc import Callable
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from textual.pilot import Pilot
from trl import GRPOConfig, GRPOTrainer

from benchmarks.judging import SHELVES
from llamagym_tui import LlamaGymWatch
from llamagym_tui.app.app import LlamaGymApp, ScreenApp, SortingApp
from llamagym_tui.engine.model.loading import load_model_and_tokenizer
from llamagym_tui.engine.sorter import Reader, Sorter
from llamagym_tui.rollouts.index import Rollouts
from llamagym_tui.screens.rollouts.screen import RolloutsScreen
from llamagym_tui.setup.run_config import run_config
from scripts.moving_picture import Frame, picture

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "pictures"
WIDE, USUAL, LOW = (100, 30), (80, 24), (80, 16)
"""Columns and lines: of the film, of most stills, and of screens that have little to show."""
ROOMY, WIDE_LOW = (120, 30), (120, 16)
"""Columns and lines of lists beside a text, and of columns beside each other."""
GRPO_STEPS = 12
"""Steps of TRL's training; each takes some 20 s."""
NOTICE_S = 11.0
"""Seconds until a notice is gone."""
SETTLED_S = 3.0
"""Seconds in which a screen is drawn and the trainer answers it."""
START_S = 180.0
"""Seconds in which something that is waited for must have happened."""
LOOKED_AT = (0, 1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 18, 22, 26)
"""Updates after which the film has a frame."""
ORDER = "Always hit."
"""What the film tells the model; three letters a frame."""
STICK = "s"
"""The key of that action at the table."""
JUDGEMENTS = 60
Taking = Pilot[Any]


async def until(pilot: Taking, happened: Callable[[], bool]) -> None:
    """Wait until something has happened; end the program with the reason if it does not."""
    for _ in range(int(START_S / 0.1)):
        if happened():
            return
        state = pilot.app.run_state
        if state is not None and state.failure:
            raise SystemExit(f"No picture: {state.failure}")
        await pilot.pause(0.1)
    raise SystemExit(f"No picture: what was waited for did not happen within {START_S:.0f} s.")


async def press(pilot: Taking, *names: str, settled_s: float = SETTLED_S) -> None:
    """Press the keys of bindings, which are known by their names on the screen that is open."""
    for name in names:
        bindings = [active.binding for active in pilot.app.screen.active_bindings.values()]
        keys = [binding.key for binding in bindings if binding.id == name]
        if not keys:
            raise SystemExit(f"No picture: no key of {pilot.app.screen} is named {name}.")
        await pilot.press(keys[0])
        await pilot.pause(settled_s)


def screen(pilot: Taking, seconds: float = 0.5) -> Frame:
    return Frame(pilot.app.export_screenshot(), seconds)


def save(pilot: Taking, name: str, *frames: Frame) -> None:
    """Write frames, or the screen as it is, as a picture of that name."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    size = pilot.app.size
    svg = picture(frames or [screen(pilot)], size.width, size.height)
    (FOLDER / f"{name}.svg").write_text(svg, encoding="utf-8")
    print(f"docs/pictures/{name}.svg, {len(svg) / 1000:,.0f} kB")


def blackjack(model: str, name: str) -> LlamaGymApp:
    seeds = count(11)
    return LlamaGymApp(
        run_config("blackjack", {"run_dir": f"data/{name}", "seed": 1, "model": model}),
        next_seed=lambda: next(seeds),
    )


async def end(pilot: Taking) -> None:
    await press(pilot, "quit")
    await pilot.press("y")
    await pilot.pause(SETTLED_S)


async def film(model: str, live_s: float) -> None:
    """The first minute: it learns, is told something else, and follows."""
    app = blackjack(model, "film")
    async with app.run_test(size=WIDE) as pilot:
        await until(pilot, lambda: app.run_state is not None and app.run_state.mapped is not None)
        frames = []
        for updates in LOOKED_AT:
            await until(pilot, lambda least=updates: app.run_state.updates >= least)  # type: ignore[misc]
            frames.append(screen(pilot))
        await press(pilot, "prompt", settled_s=1.0)
        frames.append(screen(pilot, 0.8))
        await pilot.press("ctrl+end", "space")
        for letter, typed in enumerate(ORDER, start=1):
            await pilot.press(typed)
            if letter % 3 == 0:
                await pilot.pause(0.1)
                frames.append(screen(pilot, 0.3))
        frames.append(screen(pilot, 0.8))
        await press(pilot, "prompt.apply", settled_s=0.5)
        for _ in range(8):
            frames.append(screen(pilot))
            await pilot.pause(1.0)
        frames.append(screen(pilot, 1.5))
        save(pilot, "film", *frames)
        await end(pilot)


async def stills(model: str, live_s: float) -> None:
    """What can be done with a run that has trained for a while."""
    app = blackjack(model, "run")
    async with app.run_test(size=USUAL) as pilot:
        await until(pilot, lambda: app.run_state is not None and app.run_state.updates > 0)
        await pilot.pause(live_s)
        save(pilot, "playground")
        await press(pilot, "policy_map")
        save(pilot, "policy-map")
        await pilot.resize_terminal(*LOW)
        await press(pilot, "map.back", "pause", "turn.before", "inspect")
        save(pilot, "inspector")
        await pilot.resize_terminal(*USUAL)
        await press(pilot, "inspector.back", "turn.unmark", "pause", "table")
        await pilot.press(STICK)
        await pilot.pause(SETTLED_S)
        save(pilot, "table")
        await press(pilot, "table.leave", "prompt")
        await pilot.press("ctrl+end", "space", *ORDER)
        await press(pilot, "prompt.apply")
        await pilot.pause(2 * SETTLED_S)
        save(pilot, "prompt")
        await end(pilot)


class ReadWords:
    """The words of the benchmark, read before the screen opens."""

    notice = ""
    failure = ""

    def __init__(self, model: str) -> None:
        self.right = {word: shelf for shelf, words in SHELVES.items() for word in words.split()}
        self.path = Path("things.txt")
        self.actions = list(SHELVES)
        self.prompt = (
            f"You sort a list of things. Name the right shelf for each: {', '.join(SHELVES)}."
        )
        self.sorter = Sorter(sorted(self.right, key=lambda word: word[::-1]), self.actions)
        with torch.no_grad():
            self.sorter.read_all(Reader(load_model_and_tokenizer(model, "cpu"), self.prompt).states)

    @property
    def is_right(self) -> bool:
        """Whether the action that is shown is that of the word's shelf."""
        shown = self.sorter.shown
        assert shown is not None
        return self.right[self.sorter.items[shown.item]] == self.actions[shown.action]


async def sorting(model: str, live_s: float) -> None:
    """A file whose lines are sorted while somebody says right or wrong."""
    reading = ReadWords(model)
    app = SortingApp(reading, run_config("sorting", {"model": model}), lambda: None)
    async with app.run_test(size=LOW) as pilot:
        await pilot.pause(SETTLED_S)
        for _ in range(JUDGEMENTS):
            name = "judge.right" if reading.is_right else "judge.wrong"
            await press(pilot, name, settled_s=0.05)
        await pilot.pause(SETTLED_S)
        save(pilot, "sorting")


def commas(completions: list[list[dict[str, str]]], **_: object) -> list[float]:
    """A reward that is easy to see: the number of commas, four at most."""
    return [float(min(each[0]["content"].count(","), 4)) for each in completions]


def train_by_trl(model: str, folder: str) -> None:
    """Train a model by TRL's GRPO for some steps, watched into a run folder."""
    loaded = load_model_and_tokenizer(model, "cpu", full_finetuning=True)
    things = ("the sea", "a dog", "winter", "bread", "the moon", "a train", "music", "rain")
    prompts = [
        {"prompt": [{"role": "user", "content": f"Write one sentence about {thing}."}]}
        for thing in things
    ]
    GRPOTrainer(
        loaded.model.pretrained_model,
        processing_class=loaded.tokenizer,
        reward_funcs=commas,
        args=GRPOConfig(
            output_dir="out",
            max_steps=GRPO_STEPS,
            per_device_train_batch_size=16,
            num_generations=8,
            max_completion_length=40,
            learning_rate=2e-5,
            beta=0.02,
            logging_steps=1,
            report_to="none",
            save_strategy="no",
            use_cpu=True,
        ),
        train_dataset=Dataset.from_list(prompts),
        callbacks=[LlamaGymWatch(folder)],
    ).train()


async def rollouts(model: str, live_s: float) -> None:
    """What somebody else's trainer has sampled: tokens against the reference, and a group side by side."""
    train_by_trl(model, "runs/commas")
    found = Rollouts("runs/commas")
    app = ScreenApp(partial(RolloutsScreen, found))
    async with app.run_test(size=ROOMY) as pilot:
        await pilot.pause(2 * SETTLED_S)
        await press(pilot, "view.order", "view.tokens", "view.tokens")
        await pilot.press(*["right"] * 4)
        await pilot.pause(NOTICE_S)
        save(pilot, "rollouts")
        await pilot.resize_terminal(*WIDE_LOW)
        await press(pilot, "view.side_by_side")
        save(pilot, "side-by-side")


PARTS = {
    "film": (film, "bundled"),
    "stills": (stills, "bundled"),
    "sorting": (sorting, "smollm2"),
    "rollouts": (rollouts, "smollm2"),
}
"""What can be taken, with the model that it is taken of."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    parser.add_argument(
        "--live", type=float, default=60.0, metavar="SECONDS", help="training before the stills"
    )
    parser.add_argument("--model", help="of all parts; it is on this machine")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        # The pictures show a relative path instead of a folder of this machine.
        os.chdir(folder)
        # Nor do their colours depend on the terminal in which they are taken.
        os.environ |= {"TERM": "xterm-256color", "COLORTERM": "truecolor"}
        os.environ["LLAMAGYM_TUI_DATA"] = "data"
        os.environ["LLAMAGYM_TUI_CONFIG"] = "config"
        for name in options.parts or PARTS:
            take, usual = PARTS[name]
            asyncio.run(take(options.model or usual, options.live))


if __name__ == "__main__":
    main()
