"""The wheel: in which environment a person acts instead of the agent, and what was chosen."""

from collections.abc import Callable, Sequence

from llamagym_tui.errors import UsageError
from llamagym_tui.game.agent_base import AgentBase
from llamagym_tui.game.choices import OfferedAction, worded
from llamagym_tui.protocol import events


class Wheel:
    """The wheel of one rollout; nobody has it at first."""

    def __init__(self, agent: AgentBase, emit: Callable[[events.Event], None]) -> None:
        self._agent = agent
        self._emit = emit
        self.env: int | None = None
        """Environment in which a person acts; None: nobody has the wheel."""
        self.reply: str | None = None
        """The person's reply in the turn that waits; None: they have not chosen yet."""
        self.choices: tuple[OfferedAction, ...] = ()
        """The person's choices in the turn that waits."""

    def take(self, env: int, choices: tuple[OfferedAction, ...]) -> None:
        """Let a person act in an environment from now on; who has it already keeps it, and what they chose."""
        if self.env is None:
            self.env = env
            self.choices = choices
            self.reply = None
        self._emit(events.WheelTaken(env=env, choices=list(choices)))

    def let_go(self, reason: str = "") -> None:
        """Let the agent act again, by its reply if a turn waits; a choice that was not used yet is dropped.

        The reason is for people; empty: it was requested.
        """
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
    """An episode in which a person acted, from its events, first to last; an observation without a reply is left
    out."""
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
