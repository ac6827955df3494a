"""The layer at which a game is seen: the first one whose states foretell what comes as well as any.

A pre-trained model knows more in its middle than at its end, where a state serves the next token alone. So before the
first batch, episodes are played at random, and their prompts are read once. For a handful of layers, a kernel ridge on
the states after a layer, and on the action, foretells the reward, the return and the next observation of prompts that
were kept back. Before a warm start the prompts are those of the demonstrations, and their actions are foretold from the
states alone. Notation: L numbers of layers, P distinct prompts, D hidden size, N turns.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from llamagym_tui.engine.learning import foretelling
from llamagym_tui.engine.model.value_head import AutoModelForCausalLMWithValueHead
from llamagym_tui.engine.policy.episode import prompt_after
from llamagym_tui.engine.policy.policy import Policy
from llamagym_tui.engine.policy.trajectory import Trajectory
from llamagym_tui.engine.tokens.tokenization import Opening
from llamagym_tui.game.chat import Conversation

FEWEST_LAYERS = 12
"""Layers of a model below which all of them are read: there is little to gain."""
SHARES = (0.4, 0.5, 0.6, 0.7, 0.8, 1.0)
"""Of a model's layers, the numbers that are compared. Fewer were never seen to learn as well."""
MOST_PROMPTS = 128
"""Distinct prompts that are read, at most."""
MOST_TURNS = 600
"""Turns that are looked at, at most."""
NAMES_ACTIONS = 0.5
"""Probability that a reply of the model's own begins with an action, from which on its last layers are needed."""
FORETOLD = 0.05
"""Share of a value's spread that the best layer must explain for the value to count; and half of that of the value
that is foretold best, as what is hardly foretold is mostly chance."""
AS_WELL = 0.9
"""Share of what the best layer explains that counts as explaining as well."""
NEXT_COMPONENTS = 4
"""Principal components of the next observation that are foretold."""
VALUES = ("reward", "return", "next observation")
DEMONSTRATED = ("demonstrated action",)
"""What is foretold of demonstrations, in place of `VALUES`."""


class Seen(NamedTuple):
    """A number of layers, and what the states after them tell."""

    layers: int
    explained: tuple[float, ...]
    """Share of the spread of each value that is foretold from the state and the action."""


class Depth(NamedTuple):
    layers: int | None
    """The number of layers to read. None: all."""
    reason: str
    """For people."""
    seen: tuple[Seen, ...]
    """What each number of layers tells; none if nothing was compared."""
    values: tuple[str, ...] = VALUES
    """Which values these are."""


class Turns(NamedTuple):
    """Turns that were played at random."""

    prompts: list[Opening]
    """P distinct prompts."""
    prompt: Tensor
    """(N,) the prompt of each turn."""
    after: Tensor
    """(N,) the prompt of the turn after it; -1: the episode has no more, or it is not looked at."""
    action: Tensor
    """(N,) a number for each action."""
    reward: Tensor
    """(N,)."""
    to_come: Tensor
    """(N,) undiscounted return from it on."""


class Shown(NamedTuple):
    """Turns that were demonstrated."""

    prompts: list[Opening]
    """P distinct prompts."""
    prompt: Tensor
    """(N,) the prompt of each turn."""
    action: Tensor
    """(N,) a number for each action."""


def is_deep(model: AutoModelForCausalLMWithValueHead) -> bool:
    """True for a whole model with layers to leave out, of a family that is read as a tree."""
    if not model.backbone.is_lean or model.read_depth:
        return False
    return len(model.causal_lm.get_decoder().layers) >= FEWEST_LAYERS


def can_look(policy: Policy) -> bool:
    """True for an adapter on the head of a deep model."""
    return policy.narrow is not None and is_deep(policy.model)


@torch.no_grad()
def depth_that_tells(policy: Policy, turns: Turns | Shown) -> Depth:
    """The number of layers to read, from turns that were played at random, or demonstrated."""
    every = len(policy.model.causal_lm.get_decoder().layers)
    layers = sorted({max(1, round(share * every)) for share in SHARES})
    backbone = policy.model.backbone
    states = backbone.last_states(turns.prompts, layers, policy.on_reading)
    named = _names_actions(policy, states[-1])
    if named >= NAMES_ACTIONS:
        reason = f"all {every} layers are read: the model names actions by itself ({named:.0%})"
        return Depth(None, reason, ())
    if isinstance(turns, Shown):
        seen = demonstrated_by_layer(layers, states, turns)
        return depth_of(seen, rewards_vary=False, values=DEMONSTRATED)
    seen = explained_by_layer(layers, states, turns)
    return depth_of(seen, rewards_vary=float(turns.reward.std()) > 0)


def depth_of(
    seen: tuple[Seen, ...], *, rewards_vary: bool, values: tuple[str, ...] = VALUES
) -> Depth:
    """The number of layers to read, from what each number tells; the last one is all of them."""
    every = seen[-1].layers
    best = [max(each.explained[at] for each in seen) for at in range(len(values))]

    def all_layers(why: str) -> Depth:
        return Depth(None, f"all {every} layers are read: {why}", seen, values)

    # Returns and observations are foretold by what an episode is like, rewards by what an action is worth.
    if rewards_vary and best[values.index("reward")] < FORETOLD:
        return all_layers("no layer foretells the reward")
    least = max(FORETOLD, max(best) / 2)
    telling = [at for at, share in enumerate(best) if share >= least]
    if not telling:
        return all_layers("no layer foretells what comes")

    def tells_as_much(each: Seen) -> bool:
        return all(each.explained[at] >= AS_WELL * best[at] for at in telling)

    found = next((each for each in seen if tells_as_much(each)), seen[-1])
    if found.layers == every:
        return all_layers("no fewer tell as much")
    told = ", ".join(f"{found.explained[at]:.0%} of the {values[at]}" for at in telling)
    last = ", ".join(f"{seen[-1].explained[at]:.0%}" for at in telling)
    reason = f"the first {found.layers} of {every} layers are read: they explain {told} (all layers: {last})"
    return Depth(found.layers, reason, seen, values)


def explained_by_layer(layers: Sequence[int], states: Tensor, turns: Turns) -> tuple[Seen, ...]:
    """What is foretold from the states after each number of layers.

    Args:
        layers: L numbers of layers.
        states: (L, P, D) after each.
        turns: what was played.
    """
    of_layers = [foretelling.components(each.double()) for each in states]
    alike = (1 + (turns.action[:, None] == turns.action[None]).double()) / 2  # (N, N)
    # What comes next is foretold in one form for all layers, or their errors could not be compared.
    observed = foretelling.components(torch.cat(of_layers, dim=1))[:, :NEXT_COMPONENTS]  # (P, M)
    goes_on = turns.after >= 0
    paid = torch.stack([turns.reward, turns.to_come], dim=1).double()  # (N, 2)
    fold = turns.prompt % foretelling.FOLDS  # all turns at a prompt are kept back together
    found: list[Seen] = []
    for number, components in zip(layers, of_layers, strict=True):
        similar = foretelling.similar(components)[turns.prompt][:, turns.prompt]
        kernel = alike * (similar + 1)
        everywhere = torch.ones_like(goes_on)
        errors = foretelling.errors(kernel, paid, everywhere, fold).mean(0).tolist()
        after = foretelling.errors(kernel, observed[turns.after], goes_on, fold)
        errors.append(float(after[goes_on].mean()) if goes_on.any() else 1.0)
        varies = [*(paid.std(0) > 0).tolist(), bool(goes_on.any())]
        reward, to_come, observation = (
            max(0.0, 1 - error) if does else 0.0 for error, does in zip(errors, varies, strict=True)
        )
        found.append(Seen(number, (reward, to_come, observation)))
    return tuple(found)


def demonstrated_by_layer(layers: Sequence[int], states: Tensor, shown: Shown) -> tuple[Seen, ...]:
    """How well the demonstrated actions are foretold from the states after each number of layers.

    Args:
        layers: L numbers of layers.
        states: (L, P, D) after each.
        shown: what was demonstrated.
    """
    chosen = torch.nn.functional.one_hot(shown.action).double()  # (N, A)
    spread = chosen.var(0)
    everywhere = torch.ones(len(chosen), dtype=torch.bool)
    fold = shown.prompt % foretelling.FOLDS
    found: list[Seen] = []
    for number, of_layer in zip(layers, states, strict=True):
        similar = foretelling.similar(foretelling.components(of_layer.double()))
        kernel = similar[shown.prompt][:, shown.prompt] + 1
        errors = foretelling.errors(kernel, chosen, everywhere, fold).mean(0)
        error = float((errors * spread).sum() / spread.sum().clamp(min=1e-9))
        found.append(Seen(number, (max(0.0, 1 - error) if spread.any() else 0.0,)))
    return tuple(found)


def demonstrated_turns(policy: Policy, conversations: Sequence[Conversation]) -> Shown:
    """Turns of the first conversations, up to the limits; an action is the reply that names it."""
    places: dict[Opening, int] = {}
    numbers: dict[str, int] = {}
    rows: list[tuple[int, int]] = []
    for conversation in conversations:
        for index, message in enumerate(conversation):
            if message["role"] != "assistant" or len(rows) >= MOST_TURNS:
                continue
            prompt = prompt_after(policy, conversation[:index])
            if prompt in places or len(places) < MOST_PROMPTS:
                place = places.setdefault(prompt, len(places))
                rows.append((place, numbers.setdefault(message["content"], len(numbers))))
    prompt_of, action = torch.tensor(rows).T
    return Shown(list(places), prompt_of, action)


def turns_at_prompts(trajectories: Sequence[Trajectory]) -> Turns:
    """Turns of the first episodes, up to the limits; those at prompts beyond them are left out."""
    places: dict[Opening, int] = {}
    numbers: dict[tuple[int, ...], int] = {}  # of actions, by the reply
    rows: list[tuple[float, ...]] = []  # prompt, action, reward, return
    after: list[int] = []
    for trajectory in trajectories:
        to_come = trajectory.episode_return
        before: int | None = None  # the row of the turn before
        for segment in trajectory.segments:
            for turn in segment.turns:
                prompt = Opening(segment.prefix, tuple(segment.ids[: turn.start]))
                is_new = prompt not in places
                if len(rows) >= MOST_TURNS or (is_new and len(places) >= MOST_PROMPTS):
                    before = None
                else:
                    place = places.setdefault(prompt, len(places))
                    if before is not None:
                        after[before] = place
                    before = len(rows)
                    reply = tuple(segment.ids[turn.start : turn.end])
                    action = numbers.setdefault(reply, len(numbers))
                    rows.append((place, action, turn.reward, to_come))
                    after.append(-1)
                to_come -= turn.reward
    prompt, action, reward, returns = torch.tensor(rows, dtype=torch.float64).T
    of_prompts = list(places)
    return Turns(of_prompts, prompt.long(), torch.tensor(after), action.long(), reward, returns)


def _names_actions(policy: Policy, states: Tensor) -> float:
    """Mean probability that the model's own reply begins as an admissible one, at (P, D) states after all layers."""
    begins = sorted({reply[0] for reply in policy.trie.replies})
    head = policy.model.backbone.head
    shares = head(states.to(policy.model.backbone.device)).float().softmax(-1)
    return float(shares[:, begins].sum(-1).mean()) if begins else 0.0
