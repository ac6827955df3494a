"""Records an agent's demonstrations: a person's games and corrections."""

from collections.abc import Callable
from datetime import datetime
from typing import Literal, NamedTuple

from llamagym_tui.demos.demonstration import Demonstration
from llamagym_tui.demos.files import DemoWriter
from llamagym_tui.demos.human_game import HumanGame
from llamagym_tui.demos.training_data import shipped, training_data, training_facts
from llamagym_tui.errors import LlamaGymError
from llamagym_tui.protocol.events import DemonstrationsRead, EpisodeCorrected
from llamagym_tui.screens.widgets.numbers import number
from llamagym_tui.setup.run_agent import RunAgent
from llamagym_tui.state.returns import counted

Method = Literal["sft", "dpo"]


class Offer(NamedTuple):
    """A file of demonstrations, and a way to train on it."""

    title: str
    facts: DemonstrationsRead | None
    """None if it cannot be trained on."""
    method: Method = "sft"
    """Imitate the replies, or prefer a person's over the model's."""
    fault: str = ""
    """The reason why it cannot be trained on; empty if it can."""


class DemoRecorder:
    """The recorder of one agent's demonstrations; it makes nothing before it is needed."""

    def __init__(
        self, agent: RunAgent, *, clock: Callable[[], datetime], next_seed: Callable[[], int]
    ) -> None:
        self._agent = agent
        self._clock = clock
        self._next_seed = next_seed
        self._writer: DemoWriter | None = None
        self.game: HumanGame | None = None

    @property
    def writer(self) -> DemoWriter:
        if self._writer is None:
            self._writer = DemoWriter(self._agent.demos_path())
        return self._writer

    @property
    def waiting(self) -> int:
        """Number of episodes that are not on disk."""
        return self._writer.waiting if self._writer is not None else 0

    def table(self, system_prompt: Callable[[], str], *, against_model: bool = False) -> HumanGame:
        """The person's game, as it was left; `against_model` is that of `HumanGame`."""
        if self.game is None:
            self.game = HumanGame(
                self._agent.agent,
                self._agent.name,
                self.writer,
                system_prompt=system_prompt,
                next_seed=self._next_seed,
                clock=self._clock,
                against_model=against_model,
            )
        return self.game

    def add(self, event: EpisodeCorrected, model: str) -> None:
        """Record an episode in which a person had the wheel; it waits to be saved."""
        agent = self._agent
        self.writer.add(
            Demonstration.of_correction(
                agent.agent, agent.name, event, model=model, recorded_at=self._clock()
            )
        )

    def offers(self, system_prompt: str) -> list[Offer]:
        """The files for a warm start, each checked as a whole; this may take a moment."""
        agent = self._agent.agent
        places = [
            (self._agent.demos_path(), "recorded by you"),
            (shipped(agent), "shipped with the agent"),
        ]
        offers = []
        for path, title in places:
            if path is None or not path.is_file():
                continue
            try:
                data = training_data(agent, path)
            except LlamaGymError as error:
                offers.append(Offer(title, None, fault=str(error)))
                continue
            facts = training_facts(data, agent, system_prompt)
            returns = [demo.episode_return for demo in data.demonstrations]
            mean = number(sum(returns) / len(returns), 3)
            episodes = f"{title}: {counted(facts.episodes, 'episode')}, mean return {mean}"
            offers.append(Offer(episodes, facts))
            if facts.preferences:
                pairs = f"{title}: {counted(facts.preferences, 'preference pair')}"
                offers.append(Offer(pairs, facts, "dpo"))
        return offers

    def close(self) -> None:
        """Close the game, and write the episodes that wait."""
        if self.waiting:
            self.writer.save()
        if self.game is not None:
            self.game.close()
