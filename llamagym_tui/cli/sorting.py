"""The command that sorts a text file by a person's judgements: it loads the model beside the screen, in a thread.

This is the one screen whose process computes: a judgement changes the next choice in milliseconds.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING

from llamagym_tui.demos import judged_items
from llamagym_tui.demos.files import file_errors
from llamagym_tui.errors import LlamaGymError, UsageError, described
from llamagym_tui.protocol.literal import echo
from llamagym_tui.runs.model_registry import is_endpoint
from llamagym_tui.settings import RunConfig
from llamagym_tui.setup import catalog
from llamagym_tui.user_files import data_dir, replace_file

if TYPE_CHECKING:
    from llamagym_tui.engine.sorter import Sorter

PATIENCE_S = 10.0
"""Seconds that a batch under way may take when the person leaves."""


class ReadingThread(Thread):
    """Loads a model and reads items; what it has found is looked at from outside."""

    def __init__(self, path: Path, actions: str, prompt: str, config: RunConfig) -> None:
        """Nothing is loaded before `start`.

        Args:
            path: of the items.
            actions: names with commas between.
            prompt: the system prompt; empty for our own one.
            config: names the model, the device and the threads.
        Raises:
            UsageError: the file, the actions or the model cannot be used.
        """
        super().__init__(daemon=True)
        if is_endpoint(config.model):
            raise UsageError("Sorting reads a model's states: name a model that is loaded here.")
        self.path = path
        self.actions = judged_items.actions_of(actions)
        self.prompt = prompt or judged_items.own_prompt(self.actions)
        items, repeated = judged_items.read_items(path)
        judgements = judged_items.judgements_path(path)
        self._judged, notice = judged_items.read_judgements(judgements, items, self.actions)
        if self._judged:
            notice = f"{len(self._judged):,} judgements of before count. {notice}"
        if repeated:
            notice += f" {repeated:,} line(s) repeat another one, and are sorted once."
        self.notice = notice.strip()
        judged = [each.item for each in self._judged]
        rest = sorted(set(items) - set(judged))
        random.Random(0).shuffle(rest)
        self._items = [*judged, *rest]
        self.config = config
        self.sorter: Sorter | None = None
        self.failure = ""

    def run(self) -> None:
        try:
            self._read()
        except LlamaGymError as error:
            self.failure = str(error)
        except Exception as error:
            self.failure = f"Reading has ended: {described(error)}."

    def _read(self) -> None:
        import torch

        from llamagym_tui.engine.learning.judgements import Judgement
        from llamagym_tui.engine.model.loading import load_model_and_tokenizer, require_memory
        from llamagym_tui.engine.own_torch import cores, set_threads
        from llamagym_tui.engine.sorter import Reader, Sorter

        config = self.config
        set_threads(config.threads or max(1, cores() - 1))
        require_memory(config, learns=False)
        with torch.no_grad():
            reader = Reader(load_model_and_tokenizer(config.model, config.device), self.prompt)
        sorter = Sorter(self._items, self.actions)
        for item, judged in enumerate(self._judged):
            shown = self.actions.index(judged.shown)
            label = None if judged.label is None else self.actions.index(judged.label)
            sorter.judgements.append(Judgement(item, shown, label))
        self.sorter = sorter

        def states(texts: Sequence[str]) -> torch.Tensor:
            return reader.states([judged_items.shown_to_model(text) for text in texts])

        sorter.read_all(states)

    def end(self) -> None:
        """End the reading."""
        if self.sorter is not None:
            self.sorter.stop()
            self.join(PATIENCE_S)


def reading_of_agent(spec: str, prompt: str, config: RunConfig) -> ReadingThread:
    """The items and actions of an agent; its words are written to a file in the user's data folder.

    Args:
        spec: of the agent, as typed.
        prompt: the system prompt; empty for the agent's.
        config: as of `ReadingThread`.
    Raises:
        UsageError: there is no such agent, or it has no items.
    """
    agent = catalog.player(catalog.find_agent(spec))
    name = catalog.agent_name(spec)
    if not agent.items:
        raise UsageError(
            f"{name} has no items that a person could judge. `sorting` has some, and so has a text file of yours: "
            "llamagym-tui ./things.txt --actions keep,later,bin."
        )
    path = data_dir() / "judged" / f"{name}.txt"
    with file_errors(f"The items of {name} were not written to {path}"):
        replace_file(path, "".join(f"{item}\n" for item in agent.items).encode())
    names = ",".join(agent.action_names)
    return ReadingThread(path, names, prompt or agent.get_system_prompt(), config)


def sort(reading: ReadingThread) -> int:
    """Sort a file's items on a screen; returns the exit code."""
    from llamagym_tui.app.app import SortingApp, run_app

    app = SortingApp(reading, reading.config, reading.start)
    try:
        code = run_app(app)
    finally:
        reading.end()
    for sentence in app.outcome:
        echo(sentence)
    if reading.failure:
        raise LlamaGymError(reading.failure)
    return code
