"""Events of the trainer, on the wire and in ``events.jsonl`` alike: past-tense facts, frozen, one tagged union."""

from typing import Literal

from msgspec import Struct

from llamagym_tui.game.actions import How
from llamagym_tui.game.choices import OfferedAction
from llamagym_tui.protocol.inspected import (
    Decision,
    InspectedToken,
    PeerGroup,
    ScoredReply,
)
from llamagym_tui.protocol.map_layout import MapPanel
from llamagym_tui.settings import LearnerName, Mode, Value, WarmStartStats
from llamagym_tui.settings import UpdateStats as UpdateStats

PROTOCOL_VERSION = 2
"""Raised with every change that an older peer would misread."""

Phase = Literal[
    "loading",
    "warm_starting",
    "rolling_out",
    "updating",
    "paused",
    "evaluating",
    "stopped",
    "failed",
]
"""The lifecycle of a session; `llamagym_tui.trainer.session_base` owns the transition table."""
End = Literal["terminated", "truncated"]
Stage = Literal["under_way", "waiting", "trained", "inference"]
"""Where an episode stands; see `TurnInspected`."""
Refused = Literal["settings", "checkpoint", "roll_back", "step", "warm_start", "wheel"]


class Event(Struct, frozen=True, kw_only=True, tag_field="type", gc=False):
    """Base of all events; they hold no cycles, so the garbage collector need not look through those that are kept."""

    at_s: float = 0.0
    """Seconds since the session began, stamped by the session."""


class Hello(Event, frozen=True, kw_only=True):
    """The trainer process is up; always the first event on the wire."""

    protocol: int
    """`PROTOCOL_VERSION` of the sender."""


class PhaseChanged(Event, frozen=True, kw_only=True):
    """The session entered a phase."""

    phase: Phase
    detail: str = ""
    """The work under way, for people: ``loading the model``."""


class DepthMeasured(Event, frozen=True, kw_only=True):
    """Where in the model the game is seen."""

    layers: list[int]
    """Numbers of layers, ascending."""
    explained: list[list[float]]
    """For each of them, the share of each value's spread that is foretold from the state after it and the action."""
    values: list[str]
    """For people: ``reward``."""
    read: int
    """The number of layers that are read from now on."""


class Progressed(Event, frozen=True, kw_only=True):
    """Progress of something that takes seconds; over with the next phase or update.

    It is in no log.
    """

    doing: str
    """For people: ``reading prompts``."""
    done: int
    total: int
    left_s: float | None = None
    """Estimated seconds for the rest, once known."""


class RunStarted(Event, frozen=True, kw_only=True):
    """The model is loaded and the environments are made; sent once, before the first step."""

    agent: str
    model: str
    run_dir: str
    n_envs: int
    mode: Mode
    system_prompt: str
    prompt_version: int
    baselines: dict[str, float]
    """Published mean returns by name, for reference lines."""
    return_unit: str = ""
    """Unit of a return, as it is said after a figure; empty if there is none."""
    device: str = ""
    """The model's device, for the report."""
    draws: bool = False
    """True if the agent, or environments that render text, can draw states."""
    episodes: int
    """Episodes that the run had when this session took it up."""
    updates: int
    """Updates that it had by then."""
    trained: str = ""
    """The trained weights, in words: their number and place; empty if not known."""


class EpisodeStarted(Event, frozen=True, kw_only=True):
    """The watched environment was reset."""

    episode: int
    """Index from 0 since the run began, over all environments."""
    system_prompt: str
    prompt_version: int
    mode: Mode
    group: str = ""
    """Episodes before the same update that have the same group are compared with each other; empty: not known."""


class ObservationShown(Event, frozen=True, kw_only=True):
    """The watched agent got an observation: the user message of a turn."""

    episode: int
    turn: int
    """Index from 0 within the episode."""
    text: str
    left_out: int = 0
    """Oldest turns that are not in the prompt although the history would have them, as the model reads no more."""
    actions: list[str] | None = None
    """Names of the actions that are admissible now; None for those of every turn."""


class StateDrawn(Event, frozen=True, kw_only=True):
    """The state that the watched agent is about to observe, or the last one of its episode, was drawn for people.

    Emitted while somebody wants to see it."""

    episode: int
    turn: int
    """Turns of the episode before."""
    text: str
    """Some lines, as `llamagym_tui.game.drawing` bounds them."""
    grounds: list[tuple[int, int, str]] = []
    """Places that stand on a ground: the first character, the one after the last, and the ground's name."""


class ActionsProbed(Event, frozen=True, kw_only=True):
    """Probabilities of actions in the watched episode; emitted while there is time to read."""

    episode: int
    turn: int
    """Turn of which the reply has not come yet."""
    names: list[str]
    """The names of the actions."""
    shares: list[float]
    """Probability of each action's canonical reply; where replies are sampled, the rest to 1 are other replies."""


class TokensStreamed(Event, frozen=True, kw_only=True):
    """The watched agent generated some more of its reply."""

    episode: int
    turn: int
    text: str
    """New text only; all pieces of a turn joined are its reply."""


class TurnFinished(Event, frozen=True, kw_only=True):
    """The watched environment was stepped."""

    episode: int
    turn: int
    reply: str
    """The whole reply, as sampled."""
    action: int | float | str | None
    """The action that the environment got."""
    action_name: str
    """The action's name, or its text if it has none."""
    how: How
    """The way in which the action was read; ``failed`` if the environment got the agent's fallback action."""
    reward: float
    """The environment's reward, without penalties."""
    replaced: str | None = None
    """The reply that the agent would have given, if a person acted in its place."""
    replaced_action: str = ""
    """Name of the action in that reply; empty: it names none, or the agent acted."""
    is_refused: bool = False
    """True if the environment refused the action (``invalid_action`` in its info)."""
    words: str = ""
    """The turn in the agent's words; empty: it has none."""
    probability: float | None = None
    """Of the action when it was sampled; None if a person acted or the reply is not the action's plainest."""

    @property
    def names_none(self) -> bool:
        """True if the reply counts as one that names no action."""
        return self.is_refused or self.how == "failed"


class EpisodeFinished(Event, frozen=True, kw_only=True):
    """The watched episode ended; sent once, after its last step."""

    episode: int
    episode_return: float
    """Undiscounted sum of the environment's rewards, no penalties."""
    length: int
    """The number of turns."""
    end: End
    advantage: float | None = None
    """The one advantage of all its turns, if somebody else's trainer has told it."""


class EpisodeDropped(Event, frozen=True, kw_only=True):
    """The watched episode was left out: its environment or agent raised, or a reward was no finite number."""

    episode: int
    reason: str


class TurnInspected(Event, frozen=True, kw_only=True):
    """A reply was looked at token by token, as requested; or a sentence why it cannot be."""

    episode: int
    turn: int
    why_not: str = ""
    """Why nothing is known of it; then all else is empty."""
    stage: Stage = "under_way"
    """Its episode has not ended; has, and its batch has not; was trained on by the last update; trains nothing."""
    turns: int = 0
    """Replies of the episode so far."""
    said_by_policy: bool = True
    """False: somebody else wrote it, so that it is not trained on."""
    sampled_by: int = 0
    """Policy version that played the episode."""
    policy: int = 0
    """Policy version now."""
    clip_range: float = 0.0
    """The clip range of that update; before it, that of the settings."""
    learner: LearnerName | None = None
    """Estimates the advantage, if it is known."""
    groups: list[PeerGroup] = []
    """The groups that it was compared with, if the learner compares."""
    temperature: float = 1.0
    tokens: list[InspectedToken] = []
    """The tokens of the reply, its end included if it was sampled."""
    choice: Decision | None = None
    """The one decision, where the reply was chosen whole by its score; its tokens are none then."""
    replies: list[ScoredReply] = []
    """Those it was chosen among, the most probable first."""


class WatchChanged(Event, frozen=True, kw_only=True):
    """Another environment is streamed from now on; its episode until now follows."""

    env: int
    """Index from 0."""


class WheelTaken(Event, frozen=True, kw_only=True):
    """A person acts in an environment in the agent's place, from its next turn on."""

    env: int
    """Index from 0."""
    choices: list[OfferedAction]
    """The person's choices, each on a key."""


class ActionAwaited(Event, frozen=True, kw_only=True):
    """The environment of the wheel waits for the person's action, and all others wait with it."""

    episode: int
    turn: int
    reply: str
    """The reply that the agent would give."""
    action_name: str
    """The action in it; empty: it names none, and the environment would get the fallback action."""
    choices: list[OfferedAction] = []
    """The person's choices in this turn; empty for those of ``WheelTaken``."""


class WheelLetGo(Event, frozen=True, kw_only=True):
    """The agent acts again."""

    reason: str = ""
    """Why, for people; empty: it was requested."""


class EpisodeCorrected(Event, frozen=True, kw_only=True):
    """An episode in which a person acted has ended, whole, so that it can be recorded whatever is watched by then; or
    it was dropped under way, and counts as truncated there."""

    started: EpisodeStarted
    observations: list[str]
    """The agent's observations, turn by turn."""
    admissible: list[list[str] | None] = []
    """Admissible actions by name, turn by turn; None for those of every turn. Empty if that holds throughout."""
    turns: list[TurnFinished]
    finished: EpisodeFinished


class PolicyMapLaidOut(Event, frozen=True, kw_only=True):
    """The agent's policy map is laid out; sent once, after ``RunStarted``, if the agent has one, and again without
    panels if the policy cannot be evaluated after all."""

    why_not: str = ""
    """Why there is no map after all; then all else is empty."""
    panels: list[MapPanel] = []
    action_names: list[str] = []
    signs: list[str] = []
    """A character for each action."""
    action: int | None = None
    """The action whose probability is a heat map; None shows the most probable action."""
    best_is_experts: bool = False
    """True if the best actions of the cells are only the expert's, which need not be optimal."""
    like: str = ""
    """Who plays so, for people; empty: the expert, or optimal play."""
    noun: str = ""
    """The noun for a state, for people; empty for "states"."""
    shows_one: bool = False
    """True if people see one panel at a time."""


class PolicyMapped(Event, frozen=True, kw_only=True):
    """The policy was evaluated in the states of its map, each as the first turn of an episode.

    The first map under a prompt comes in parts: each event has the states of the one before it and more."""

    update: int
    """Updates made so far."""
    prompt_version: int
    shares: list[list[float]]
    """For each state once, panel by panel and row by row, the probability of each action's canonical reply; where
    replies are sampled, the rest to 1 are other replies."""
    value: float | None = None
    """Exact mean return of this policy when it is sampled, in the unit of a return. None: it cannot be computed."""


class PaceChanged(Event, frozen=True, kw_only=True):
    """Play is shown at another pace."""

    turn_s: float
    """As of ``SetPace``."""


class EpisodesCounted(Event, frozen=True, kw_only=True):
    """Episodes of all environments ended since the last such event, the watched one included."""

    returns: list[float]
    """Episode returns, in order of their end."""
    lengths: list[int]
    """Turns of each."""
    mode: Mode
    prompt_version: int
    episodes: int
    """Episodes since the run began, these included, and those in which a person acted: they count in no mean."""
    env_steps: int
    """Environment steps since the run began."""
    dropped: int = 0
    """Episodes since the run began that failed, by their environment or agent, and count in nothing else."""
    episodes_per_s: float
    """Over about the last ten seconds, updates included."""


class UpdateFinished(Event, frozen=True, kw_only=True):
    """PPO changed the policy."""

    update: int
    """Count from 1 since the run began."""
    episodes: int
    """Episodes since the run began."""
    stats: UpdateStats


class PromptChanged(Event, frozen=True, kw_only=True):
    """The trainer took a new system prompt; episodes that begin from now on have it."""

    prompt_version: int
    system_prompt: str


class ModeChanged(Event, frozen=True, kw_only=True):
    """The trainer switched between train and inference."""

    mode: Mode


class EvaluationFinished(Event, frozen=True, kw_only=True):
    """An evaluation ended; its episodes count in nothing else."""

    episodes: int
    greedy: bool
    mean_return: float
    return_stderr: float
    parse_failure_rate: float
    """Share of turns whose reply named no action."""
    refusal_rate: float = 0.0
    """Share of turns whose reply named an action that the environment refused."""
    elapsed_s: float
    truncated: int = 0
    """Episodes among them that a limit cut off."""
    dropped: int = 0
    """Episodes that failed, and others were played in their place."""
    update: int | None = None
    """Updates that the policy had; None apart from a run, where the next ones are empty too."""
    prompt_version: int | None = None
    system_prompt: str = ""
    outdated: str = ""
    """Why it is not of the present policy, for people; only the UI fills it in."""


class MatchPlayed(Struct, frozen=True, kw_only=True):
    """A policy's part of a match against the seats of a class."""

    seed: int
    """The seed from which those of the episodes follow."""
    returns: list[float | None]
    """The return of each episode, in the order of their numbers; None: it failed, and another one was played in its
    place."""
    played: EvaluationFinished
    """The evaluation that the episodes make up."""


class PromptsCompared(Event, frozen=True, kw_only=True):
    """Two prompts, A and B, have played the same seeds under one policy, apart from the run."""

    a: EvaluationFinished
    b: EvaluationFinished
    pairs: int
    """The number of pairs of episodes."""
    difference: float
    """By how much B earns more, on average over the pairs."""
    difference_stderr: float
    enough: float
    """Half the 95 % interval that was wanted."""
    maps: list[PolicyMapped] = []
    """The policy under A and under B; empty: the agent has no map."""


class EvaluationCancelled(Event, frozen=True, kw_only=True):
    """An evaluation or comparison was cancelled, or failed, and has no result."""

    why: str = ""
    """Why it failed, as a sentence; empty: it was cancelled."""
    played: int
    """Episodes that had ended."""
    episodes: int
    """Episodes that were to be played."""


class ConversationProbed(Event, frozen=True, kw_only=True):
    """Probabilities of actions after a conversation that somebody else plays, as requested."""

    ticket: int
    """The number of the question."""
    names: list[str]
    """The names of the actions; empty: the agent names none, so there is nothing to probe."""
    shares: list[float]
    """Probability of each action's canonical reply; where replies are sampled, the rest to 1 are other replies."""
    why_not: str = ""
    """Why they could not be probed; then there are no names."""


class DemonstrationsRead(Event, frozen=True, kw_only=True):
    """Demonstrations were read and checked; a warm start trains on them next."""

    path: str
    episodes: int
    turns: int
    """Replies that are trained on."""
    actions: dict[str, int]
    """Turns in which each action was taken, by its name."""
    under_present_prompt: int
    """Episodes under the run's present prompt."""
    preferences: int = 0
    """Replies that a person replaced by another: pairs to learn preferences from."""


class WarmStartProgressed(Event, frozen=True, kw_only=True):
    """Training on demonstrations has come so far."""

    step: int
    """Optimizer steps made."""
    steps: int
    """Steps in all."""
    loss: float
    """In this step's batch: nats per token of the demonstrated replies, or DPO's loss of a pair."""
    left_s: float | None = None
    """As of `Progressed`."""


class WarmStartFinished(Event, frozen=True, kw_only=True):
    """The policy was trained on demonstrations and is PPO's reference from now on."""

    method: Literal["sft", "dpo"]
    stats: WarmStartStats


class WarmStartEvaluated(Event, frozen=True, kw_only=True):
    """The policies before and after a warm start have played on the same evaluation seeds."""

    before: EvaluationFinished
    after: EvaluationFinished


class CheckpointSaved(Event, frozen=True, kw_only=True):
    """The policy stands on disk."""

    update: int


class RolledBack(Event, frozen=True, kw_only=True):
    """Weights and learner are those of the last good checkpoint again; the batch under way was dropped."""

    update: int
    """Updates that the policy has behind it now."""
    reason: str
    """Why, for people."""


class SettingsChanged(Event, frozen=True, kw_only=True):
    """The trainer goes by other settings from now on."""

    changes: dict[str, Value]
    """New values by dotted names of `RunConfig`; of a setting that moves along a line, the final value too."""


class SettingsMeasured(Event, frozen=True, kw_only=True):
    """Settings follow from the episodes of the run's first batch, and hold from its update on."""

    values: dict[str, Value]
    """By dotted names of `RunConfig`."""
    reasons: dict[str, str]
    """For people, one for each, with its value."""


class WarningRaised(Event, frozen=True, kw_only=True):
    """Something that the person should know, and the run goes on."""

    message: str
    refused: Refused | None = None
    """The request that is refused, if any, so that nobody waits for it."""
    collapsed: bool = False
    """True if the policy has collapsed."""
    unwritten: bool = False
    """True if something of the run cannot be written, which holds until a checkpoint is."""


class EventsLeftOut(Event, frozen=True, kw_only=True):
    """Events of conversations are missing here, as the screen did not read them in time; the run did not wait."""

    count: int


class SessionFailed(Event, frozen=True, kw_only=True):
    """The session ended by an error; the log has the traceback."""

    message: str
    """One sentence on what to do."""


class RunFinished(Event, frozen=True, kw_only=True):
    """The session ended as requested; always the last event of a run that ended well."""

    episodes: int
    env_steps: int
    updates: int
    elapsed_s: float
    """Seconds of playing and training, loading excluded."""


WatchedEvent = (
    EpisodeStarted
    | StateDrawn
    | ObservationShown
    | ActionsProbed
    | TokensStreamed
    | TurnFinished
    | EpisodeFinished
    | EpisodeDropped
)
"""Events of the watched environment; left out first if not everything has room."""
AnyEvent = (
    WatchedEvent
    | Hello
    | PhaseChanged
    | Progressed
    | RunStarted
    | WarningRaised
    | EventsLeftOut
    | SessionFailed
    | RunFinished
    | WatchChanged
    | PaceChanged
    | PromptChanged
    | ModeChanged
    | SettingsChanged
    | SettingsMeasured
    | DepthMeasured
    | TurnInspected
    | PolicyMapLaidOut
    | PolicyMapped
    | ConversationProbed
    | WheelTaken
    | ActionAwaited
    | WheelLetGo
    | EpisodeCorrected
    | EpisodesCounted
    | UpdateFinished
    | CheckpointSaved
    | RolledBack
    | EvaluationFinished
    | PromptsCompared
    | EvaluationCancelled
    | DemonstrationsRead
    | WarmStartProgressed
    | WarmStartFinished
    | WarmStartEvaluated
)
