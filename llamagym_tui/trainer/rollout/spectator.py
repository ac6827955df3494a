"""People at a rollout: they watch one environment's episode, and may act in it instead of the agent.

The events of every episode under way are kept, so that another environment can be watched from its episode's beginning.
"""

from collections.abc import Callable, Sequence

from llamagym_tui.errors import UsageError
from llamagym_tui.game.agent_base import AgentBase
from llamagym_tui.game.choices import OfferedAction, worded
from llamagym_tui.protocol import events


class Spectator:
    """Observes every environment and emits the events of the watched one, at first the first."""

    def __init__(self, emit: Callable[[events.Event], None]) -> None:
        self.env = 0
        """The watched environment."""
        self._emit = emit
        self._events: list[list[events.Event]] = []
        """By environment: its episode so far or, until the next one begins, to its end."""

    def events_of(self, env: int) -> list[events.Event]:
        """The events of an environment's episode, so far or, until the next one begins, to its end."""
        return list(self._events[env])

    def reset(self, n_envs: int) -> None:
        """Drop the episodes under way; there are `n_envs` environments now."""
        self._events = [[] for _ in range(n_envs)]
        if self.env >= n_envs:
            self.watch(0)

    def observe(self, env: int, event: events.Event) -> None:
        """Keep an event of an environment, and emit it if that is watched."""
        if isinstance(event, events.EpisodeStarted):
            self._events[env] = []
        self._events[env].append(event)
        if env == self.env:
            self._emit(event)

    def watch(self, env: int) -> None:
        """Stream an environment from now on, its episode so far first; environments are counted in a circle."""
        self.env = env % len(self._events)
        self._emit(events.WatchChanged(env=self.env))
        for event in self._events[self.env]:
            self._emit(event)


class Wheel:
    """The environment in which a person acts instead of the agent, and the person's choice; none at first."""

    def __init__(self, agent: AgentBase, emit: Callable[[events.Event], None]) -> None:
        self._agent = agent
        self._emit = emit
        self.env: int | None = None
        """Environment in which a person acts. None: nobody has the wheel."""
        self.reply: str | None = None
        """The person's reply in the turn that waits. None: they have not chosen yet."""
        self.choices: tuple[OfferedAction, ...] = ()
        """The person's choices in the turn that waits."""

    def take(self, env: int, choices: tuple[OfferedAction, ...]) -> None:
        """Let a person act in an environment; who has it already keeps it, and the choice that was made."""
        if self.env is None:
            self.env = env
            self.choices = choices
            self.reply = None
        self._emit(events.WheelTaken(env=env, choices=list(choices)))

    def let_go(self, reason: str = "") -> None:
        """Let the agent act again, also in a turn that waits; the reason is for people."""
        self.env = None
        self.reply = None
        self._emit(events.WheelLetGo(reason=reason))

    def choose(self, action: int | str) -> None:
        """Word the person's action as the agent would.

        Raises:
            UsageError: there is no such action.
            ActionParseError: the agent cannot word it.
        """
        if action not in {choice.action for choice in self.choices}:
            raise UsageError(
                f"There is no action {action} in {self._agent.env_id}; choose one of those shown."
            )
        self.reply = worded(self._agent, action)

    def take_reply(self) -> str:
        """The reply that was chosen, for this turn."""
        reply = self.reply
        assert reply is not None, "the step waits for it"
        self.reply = None
        return reply


def episode_corrected(history: Sequence[events.Event]) -> events.EpisodeCorrected:
    """An episode in which a person acted, from its events; an observation without a reply is left out."""
    started = history[0]
    finished = history[-1]
    assert isinstance(started, events.EpisodeStarted)
    assert isinstance(finished, events.EpisodeFinished)
    turns = [event for event in history if isinstance(event, events.TurnFinished)]
    shown = [event for event in history if isinstance(event, events.ObservationShown)][: len(turns)]
    admissible = [event.actions for event in shown]
    return events.EpisodeCorrected(
        started=started,
        observations=[event.text for event in shown],
        admissible=admissible if any(admissible) else [],
        turns=turns,
        finished=finished,
    )
