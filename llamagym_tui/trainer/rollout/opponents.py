"""The other player of a game for two where that is a policy: an earlier self, another model, or an endpoint.

Its turns are seats of their own: they have a conversation each, which is in no trajectory, and nothing of them is
trained. A reply that names no action is the fallback action, as for the player that is trained.
"""

import random
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from llamagym_tui.demos.demonstration import PlayedTurn, conversation
from llamagym_tui.engine.policy.earlier import EarlierSelf, SavedSelf
from llamagym_tui.engine.policy.episode import prompt_after
from llamagym_tui.engine.policy.policy import Policy
from llamagym_tui.engine.policy.sampler import Sampler
from llamagym_tui.game.chat import Conversation, user, with_actions
from llamagym_tui.game.observed import Observed
from llamagym_tui.trainer.rollout.endpoint_policy import EndpointPolicy, sampler_of

EVERY = 5
"""Updates between two selves that are kept."""
MOST_KEPT = 8
"""Selves that are kept; the oldest one is let go."""


class Seat(NamedTuple):
    """The situation of the other player when it is to move."""

    seed: int
    """Of the episode."""
    system_prompt: str
    """Of the player that is trained."""
    turns: Sequence[PlayedTurn]
    """Its turns of the episode so far."""
    shown: Observed

    def turn(self, reply: str, action: Any) -> PlayedTurn:
        """The turn that its reply makes of it."""
        return PlayedTurn(self.shown.text, self.shown.actions, reply, action, 0.0)


class Opponent:
    """The other player; as it is here, it does not change."""

    def replies(self, seats: Sequence[Seat], *, greedy: bool) -> Sequence[str]:
        """Its reply in each seat. Raises GeneratorError: there is none."""
        raise NotImplementedError

    def learnt(self, updates: int) -> None:
        """The trained policy has had this many updates."""

    def state(self) -> Any:
        """From which `restore` goes on. None: there is nothing to keep."""
        return None

    def restore(self, state: Any) -> None:
        """Raises ValueError: it is damaged, or of another version."""

    def begin_anew(self) -> None:
        """Begin with the present policy, as after a roll back."""


class ModelOpponent(Opponent):
    """Another model, here or behind an endpoint."""

    def __init__(self, policy: Policy, system_prompt: str) -> None:
        self.policy = policy
        self._system_prompt = system_prompt
        self._sampler = sampler_of(policy)

    def replies(self, seats: Sequence[Seat], *, greedy: bool) -> list[str]:
        own = [seat._replace(system_prompt=self._system_prompt) for seat in seats]
        return _replies(self.policy, self._sampler, own, greedy=greedy)


class EarlierSelves(Opponent):
    """Earlier selves of the policy that is trained, of which each game draws one, and anew where one is added."""

    def __init__(self, policy: Policy) -> None:
        """Keep the present policy as the first self."""
        self._policy = policy
        self._selves: list[tuple[EarlierSelf, Sampler]] = []
        self._keep(EarlierSelf.of(policy))

    def replies(self, seats: Sequence[Seat], *, greedy: bool) -> list[str]:
        found = [""] * len(seats)
        # A game's seed draws its opponent, so that a resumed run has the same one.
        drawn = [random.Random(seat.seed).randrange(len(self._selves)) for seat in seats]
        for index in sorted(set(drawn)):
            among = [at for at, each in enumerate(drawn) if each == index]
            earlier, sampler = self._selves[index]
            with earlier.in_place() as policy:
                replies = _replies(policy, sampler, [seats[at] for at in among], greedy=greedy)
            for at, reply in zip(among, replies, strict=True):
                found[at] = reply
        return found

    def learnt(self, updates: int) -> None:
        if updates % EVERY == 0:
            self._keep(EarlierSelf.of(self._policy))

    def state(self) -> list[SavedSelf]:
        return [earlier.saved for earlier, _ in self._selves]

    def restore(self, state: Any) -> None:
        kept = [
            EarlierSelf.restored(self._policy, saved)
            for saved in msgspec.convert(state, list[SavedSelf])
        ]
        self._selves = []
        for earlier in kept:
            self._keep(earlier)

    def begin_anew(self) -> None:
        self._selves = []
        self._keep(EarlierSelf.of(self._policy))

    def _keep(self, earlier: EarlierSelf) -> None:
        """Keep a self, with what it will read: its weights stay, so that a board is read once."""
        with earlier.in_place() as policy:
            sampler = Sampler(policy)
        self._selves = [*self._selves, (earlier, sampler)][-MOST_KEPT:]


def _replies(
    policy: Policy, sampler: Sampler | EndpointPolicy, seats: Sequence[Seat], *, greedy: bool
) -> list[str]:
    """What a policy replies in each seat. Its own random state stays as it was."""
    prompts = [prompt_after(policy, _conversation(seat, policy.history)) for seat in seats]
    # As what is drawn depends on no state, a resumed run has nothing to restore.
    seed = hash(tuple(map(_seed, seats))) % 2**63
    on_reading = policy.on_reading
    policy.on_reading = lambda done, total: None  # a turn that has begun comes to its end
    try:
        with policy.evaluation_seed(seed):
            tries = [policy.trie_of(seat.shown.actions) for seat in seats]
            replies = sampler.reply(prompts, tries, greedy=greedy)
    finally:
        policy.on_reading = on_reading
    return [policy.chat.reply(reply.ids) for reply in replies]


def _seed(seat: Seat) -> int:
    return seat.seed + len(seat.turns)


def _conversation(seat: Seat, history: int | None) -> Conversation:
    turns = seat.turns[0 if history is None else max(0, len(seat.turns) - history) :]
    messages = [*conversation(seat.system_prompt, turns), user(seat.shown.text)]
    return with_actions(messages, [*(turn.admissible for turn in turns), seat.shown.actions])
