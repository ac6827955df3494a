"""Requests of the UI to the trainer: imperatives, frozen, one tagged union; an event confirms each."""

from typing import Annotated, Literal

from msgspec import Meta, Struct

from llamagym_tui.game.chat import ChatMessage
from llamagym_tui.settings import Mode, RunConfig, Value


class Command(Struct, frozen=True, kw_only=True, tag_field="type"):
    """Base of all commands."""


class StartRun(Command, frozen=True, kw_only=True):
    """Load the model and begin; the first command, once."""

    protocol: int
    config: RunConfig


class Pause(Command, frozen=True, kw_only=True):
    """Hold still between two steps; confirmed by ``PhaseChanged(paused)``."""


class Resume(Command, frozen=True, kw_only=True):
    """Go on after a pause."""


class Step(Command, frozen=True, kw_only=True):
    """Go on for so long, then hold still again; confirmed by ``PhaseChanged(rolling_out)``, then by
    ``PhaseChanged(paused)``. Refused by ``WarningRaised``: an update, where nothing is trained."""

    unit: Literal["turn", "update"] = "turn"
    """One turn in every environment, or until the policy was updated."""


class SetPace(Command, frozen=True, kw_only=True):
    """Show play at another pace; confirmed by ``PaceChanged``. The run itself goes on at full speed."""

    turn_s: Annotated[float, Meta(ge=0, le=60)]
    """Seconds between two turns that are shown, of one episode after the other; 0: all turns as they are played."""


class Watch(Command, frozen=True, kw_only=True):
    """Stream the conversation of an environment, its episode so far first; confirmed by ``WatchChanged``."""

    env: int
    """Index from 0; counted around in a circle."""


class InspectTurn(Command, frozen=True, kw_only=True):
    """Look at a reply token by token; answered by ``TurnInspected``, with the reason if it cannot be done."""

    episode: int
    turn: int
    """Index from 0 within the episode."""


class TakeWheel(Command, frozen=True, kw_only=True):
    """Let a person act in the watched environment from its next turn on; confirmed by ``WheelTaken``, refused by
    ``WarningRaised``. Ends a pause: the run stands still at each of the person's turns anyway."""


class Act(Command, frozen=True, kw_only=True):
    """Take the action of the person at the wheel; confirmed by ``TurnFinished``, refused by ``WarningRaised``."""

    episode: int
    turn: int
    """The turn of the ``ActionAwaited`` that it answers."""
    action: int | str
    """One of those on the person's keys."""


class LetGo(Command, frozen=True, kw_only=True):
    """Let the agent act again, also in the turn that waits; confirmed by ``WheelLetGo``."""


class DrawStates(Command, frozen=True, kw_only=True):
    """Draw the watched environment's states from now on, the present one first, or draw no more; ``StateDrawn``
    answers."""

    on: bool


class SetMode(Command, frozen=True, kw_only=True):
    """Switch between train and inference; confirmed by ``ModeChanged``."""

    mode: Mode


class SetSystemPrompt(Command, frozen=True, kw_only=True):
    """Use another system prompt from the next reset on; confirmed by ``PromptChanged``."""

    system_prompt: str


class Evaluate(Command, frozen=True, kw_only=True):
    """Play episodes with the present policy and prompt, apart from the run; confirmed by ``EvaluationFinished``."""

    episodes: int = 1000
    greedy: bool = True
    seed: int | None = None
    """Seed of the evaluation; None takes one that follows from the run's."""
    limit_s: float | None = None
    """Seconds after which no episode begins; None for no limit."""


class ComparePrompts(Command, frozen=True, kw_only=True):
    """Play two prompts, A and B, greedily on the same seeds with the present policy; confirmed by
    ``PromptsCompared``."""

    system_prompts: tuple[str, str]
    versions: tuple[int, int]
    half_width: float | None = None
    """Half the 95 % interval of the difference that is enough; by default a tenth of the way between baselines."""


class CancelEvaluation(Command, frozen=True, kw_only=True):
    """End the evaluation or comparison that is under way, without a result; confirmed by ``EvaluationCancelled``."""


class ProbeActions(Command, frozen=True, kw_only=True):
    """Report how probable each action is after a conversation that somebody else plays; answered by
    ``ConversationProbed``. Nothing of the run changes."""

    ticket: int
    """The number of the question; its answer has the same."""
    messages: list[ChatMessage]
    """The conversation as the agent would have it: a system message or none, then user and assistant in turn, a
    user's last."""


class WarmStart(Command, frozen=True, kw_only=True):
    """Train on demonstrations, drop the batch under way, and go on from there; confirmed by ``WarmStartFinished``,
    refused by ``WarningRaised``."""

    sft_data: str | None = None
    """File of demonstrations; None for the one that ships for the agent."""
    method: Literal["sft", "dpo"] = "sft"
    """Imitate the replies, or prefer a person's over those of the model that they replaced."""
    episodes: int = 0
    """Sampled episodes before and after, to compare; fewer where they take long. 0: none."""


class CancelWarmStart(Command, frozen=True, kw_only=True):
    """End the warm start that is under way or waits, and an evaluation before or after it; what was learnt so far
    stays."""


class SaveCheckpoint(Command, frozen=True, kw_only=True):
    """Write the policy to disk now; confirmed by ``CheckpointSaved``."""


class RollBack(Command, frozen=True, kw_only=True):
    """Go on from the last good checkpoint; confirmed by ``RolledBack``, refused by ``WarningRaised``."""


class ChangeSettings(Command, frozen=True, kw_only=True):
    """Change settings of the run from now on; confirmed by ``SettingsChanged``, refused, all or none, by
    ``WarningRaised``. A checkpoint is written before.

    What decides the distribution that is sampled (``generation.*``), and the number of environments, begin a new
    batch; the one under way is dropped, so that no batch is of two distributions.
    """

    changes: dict[str, Value]
    """Values by dotted names of `RunConfig`, of those in `llamagym_tui.settings.LIVE`."""


class Stop(Command, frozen=True, kw_only=True):
    """Write a checkpoint and end; confirmed by ``RunFinished``."""


AnyCommand = (
    StartRun
    | Pause
    | Resume
    | Step
    | SetPace
    | SetMode
    | SetSystemPrompt
    | ChangeSettings
    | Stop
    | Watch
    | DrawStates
    | InspectTurn
    | ProbeActions
    | TakeWheel
    | Act
    | LetGo
    | Evaluate
    | ComparePrompts
    | CancelEvaluation
    | WarmStart
    | CancelWarmStart
    | SaveCheckpoint
    | RollBack
)
