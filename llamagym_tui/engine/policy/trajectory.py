"""Trajectories: the data of an episode that an update trains on, exactly as it was sampled.

Ids, log-probabilities and turn ends are kept from sampling; nothing is decoded and encoded again, which could give
other tokens. An episode is one segment of ids; where a template rewrites history, it is one segment a turn. Advantages
run over turns, across segments.
"""

from dataclasses import dataclass, field
from typing import Literal

from llamagym_tui.engine.tokens.token_tree import Branch
from llamagym_tui.engine.tokens.tokenization import Opening

End = Literal["terminated", "truncated"]


@dataclass(frozen=True, slots=True)
class Choice:
    """A reply that was chosen whole among admissible ones, by their scores."""

    chosen: int
    """Index into `replies`."""
    logprob: float
    """Log-probability of the choice: its share of the softmax over the scores, temperature applied."""
    replies: tuple[tuple[int, ...], ...]
    """Ids of the admissible replies, ends included."""
    divisors: tuple[float, ...]
    """The divisor of each reply's summed log-probability; the result is its score."""


@dataclass(frozen=True, slots=True)
class Turn:
    """One decision: a reply, and the reward that it earned."""

    start: int
    """Index, in the segment's ids, of the reply's first token."""
    end: int
    """Index after the reply's last sampled token."""
    logprobs: tuple[float, ...]
    """Log-probability of each sampled token, under the policy and temperature that sampled it; length end - start."""
    value: float
    """V at the prompt's last token, when the reply was sampled."""
    reward: float
    """The environment's, unscaled, without penalties."""
    parse_failed: bool = False
    """True if the reply named no action."""
    refused: bool = False
    """True if the environment refused the named action."""
    is_trained: bool = True
    """False where someone else chose (a person, a repair): the turn earns rewards but has no loss."""
    branches: tuple[Branch, ...] = ()
    """Places at which admissible replies part, counted from `start`."""
    choice: Choice | None = None
    """The choice by score. None: the reply was sampled token by token."""
    observation: str = ""
    """The user message before it."""
    actions: tuple[str, ...] | None = None
    """Names of the actions that were admissible. None: those of every turn."""
    steps: int = 1
    """Environment steps that its action took; later rewards are discounted once for each."""
    wording: int = 0
    """The number of the wording of the observations before it."""
    kept_back: Opening | None = None
    """Its prompt in the wording that is kept for evaluations, which is only read. None: it is not to be."""

    @property
    def decision_logprobs(self) -> tuple[float, ...]:
        """Log-probability of each decision: of the sampled tokens, or of the one choice; 0 where someone else chose."""
        if not self.is_trained:
            return (0.0,)
        return self.logprobs if self.choice is None else (self.choice.logprob,)


@dataclass(slots=True)
class Segment:
    """Ids that are computed in one row."""

    prefix: tuple[int, ...]
    """Ids that rows share; no token of it is sampled."""
    ids: list[int] = field(default_factory=list)
    """Ids behind the prefix: user messages, replies, template."""
    turns: list[Turn] = field(default_factory=list)
    """Replies within `ids`, in order."""

    @property
    def mask(self) -> list[bool]:
        """For each of `ids`, True if the policy sampled it and is trained on it."""
        mask = [False] * len(self.ids)
        for turn in self.turns:
            mask[turn.start : turn.end] = [turn.is_trained] * (turn.end - turn.start)
        return mask


@dataclass(slots=True)
class Trajectory:
    """An episode, or what was played of it since it was last cut off."""

    segments: list[Segment]
    end: End
    """A truncated episode is bootstrapped."""
    final_prompt: Opening | None = None
    """The true final observation as a prompt without reply; needed when truncated."""
    policy_version: int = 0
    """The version of the policy when it began."""
    episode: int | None = None
    """Index from 0 since the run began; None: it is of no run."""
    group: int | None = None
    """The same number where environments were reset to the same seed. None: nothing is known of it."""
    earlier: list[Turn] = field(default_factory=list)
    """Turns of the same episode that were in earlier batches."""
    goes_on: bool = False
    """True if it was cut off for an update, and the episode goes on in the next batch."""

    @property
    def turns(self) -> list[Turn]:
        return [turn for segment in self.segments for turn in segment.turns]

    @property
    def own_turns(self) -> int:
        """Turns that the policy chose."""
        return sum(turn.is_trained for turn in self.turns)

    @property
    def is_own(self) -> bool:
        """True at the end of an episode that the policy played alone. Only these returns measure its play."""
        return not self.goes_on and all(turn.is_trained for turn in (*self.earlier, *self.turns))

    @property
    def episode_return(self) -> float:
        """Undiscounted sum of the environment's rewards since the episode began."""
        return sum(turn.reward for turn in (*self.earlier, *self.turns))
