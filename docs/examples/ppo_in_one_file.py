"""PPO for an agent that is a language model, in one file, to be read from top to bottom.

The agent plays Blackjack in a conversation: the user's messages are observations, and its own replies name actions, as
`{"action": 1}` does. The model that ships with this project reads the cards and knows the format of a reply, but hits
or sticks with little regard to its chances. This file teaches it to play from nothing but the rewards of the game. It
needs torch, transformers and gymnasium, and imports nothing of ours.

    python docs/examples/ppo_in_one_file.py

With seed 0 the mean return of 4,096 sampled hands rose from -0.343 to -0.056, with a standard error of 0.015, in 60
updates of 128 hands each. That took 281 s of one core's time on an AMD EPYC, with one thread of torch 2.13.0, both
measurements included. Two more runs of the same settings ended at -0.097 and -0.076. For comparison: playing at random
returns -0.396 a hand, always sticking -0.186, hitting below 12 -0.106, and the best play that there is -0.047.

What is done otherwise than in the textbook (arXiv:1707.06347), and why:

- A step is a turn, not a token. The value of a turn is read once, at the last token of its prompt, and all tokens of
  its reply share one advantage: the environment rewards actions, and only a whole reply is an action.
- What the loss says of tokens is summed within a turn and averaged over turns. Most tokens of a reply only spell the
  format. In a mean over tokens they would dilute the one that decides.
- The entropy bonus is on the distribution over actions, at the token where the admissible replies part. Entropy over
  the vocabulary would reward replies that name no action.
- The KL to the reference, which is the model as it was at first, is a penalty in the reward and not a term of the loss.
  Its estimate is the plain one, k1: log(policy / reference) of the tokens that were sampled.
- The value head reads the last hidden states of the language model. Its last layer starts at zero, so an untrained
  critic predicts 0 and cannot misguide the first updates. The language model gets only a part of the critic's gradient.
- Advantages are whitened over the whole batch, so an advantage does not depend on the minibatch that it is drawn into.
- Tokens are drawn from the whole distribution: there is no top-p, no top-k and no dropout. So the distribution that was
  sampled is the one that is trained, and every ratio is 1 before the first step.
- Ids are kept as they were sampled. Text that is decoded and encoded again may become other tokens.

The engine of this project computes the same gradient, which tests/engine/learning/test_ppo_in_one_file.py checks. But
it computes what conversations share only once, and it knows more than is shown here: environments that cut episodes
off, models that are too large to be trained whole, replies chosen by their scores, a critic that learns alone at first.

Notation of shapes:

    B  episodes in one forward            K  turns
    T  columns: ids of the longest one    N  sampled tokens
    D  numbers in a hidden state          M  turns in which admissible replies part: all but odd ones
    V  ids in the vocabulary              A  actions
"""

import copy
import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
import torch
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, AutoTokenizer

MODEL = Path(__file__).resolve().parents[2] / "llamagym_tui" / "bundled_model"
SEED = 0
UPDATES = 60
EPISODES = 128  # of one update, played side by side
EPOCHS = 2  # passes of one update over its episodes
MINIBATCH = 128  # episodes for one step of the optimizer: here, all of them
FORWARD = 32  # episodes in one forward; it changes how long an update takes and nothing else
MAX_NEW_TOKENS = 8  # in a reply at most, its end included
LEARNING_RATE = 7e-4  # the language model's at the first update; it falls to 0 along a line
VALUE_LEARNING_RATE = 3e-3  # the value head's
CLIP = 0.2  # how far from 1 a ratio may go and still be followed
GAMMA = 1.0  # discount from one turn to the next: none, as episodes are short
LAMBDA = 1.0  # of generalised advantage estimation, from one turn to the next
VALUE_COEF = 0.5  # share of the value loss's gradient that reaches the language model
ENTROPY_COEF = 0.05  # weight of the entropy bonus at the first update; it falls to 0 along a line
KL_COEF = 0.01  # what a nat of KL to the reference costs, in units of the reward
NO_ACTION_PENALTY = 0.5  # what a reply that names no action costs, in units of the reward
MAX_GRAD_NORM = 1.0
HANDS = 4096  # played before the first update and after the last, to measure what was learnt


# 1. What there is: a policy, and the episodes that it plays ---------------------------------------


class Policy(nn.Module):
    """A causal language model with a value head, and the replies that name an action."""

    def __init__(self, lm: Any, admissible: list[list[int]]) -> None:
        super().__init__()
        # In eval mode while it is trained, too: dropout would make the first ratios differ from 1.
        self.lm = lm.eval()
        self.admissible = admissible
        """Ids of the one reply that names each action, ends included. Any other reply names none."""
        self.end_id = admissible[0][-1]
        """Id that ends a reply."""
        self.parting = 0
        """Index of the token at which the admissible replies part: 0 or 1 in `{"action": 1}`."""
        while len({reply[self.parting] for reply in admissible}) == 1:
            self.parting += 1
        last_layer = nn.Linear(128, 1)
        nn.init.zeros_(last_layer.weight)
        nn.init.zeros_(last_layer.bias)
        self.value_head = nn.Sequential(
            nn.Linear(lm.config.hidden_size, 128), nn.Tanh(), last_layer
        )


@dataclass
class Turn:
    """One decision: a reply to an observation, and what came of it."""

    start: int
    """Column of the reply's first token, among the ids of its episode."""
    value: float
    """Value of the prompt, when the reply was sampled."""
    logprobs: list[float] = field(default_factory=list)
    """Log-probability of each token of the reply, when it was sampled."""
    names_action: bool = True
    reward: float = 0.0
    """What the environment gave for it."""
    kl: float = 0.0
    """Nats between policy and reference, estimated at the tokens of the reply."""
    advantage: float = 0.0
    """How much better than expected the turn went, whitened."""
    target: float = 0.0
    """What the value head should have said."""

    @property
    def end(self) -> int:
        """Column after the reply's last token."""
        return self.start + len(self.logprobs)


@dataclass
class Episode:
    """A conversation."""

    ids: list[int]
    """All prompts and replies, one after the other, as the model read and wrote them."""
    turns: list[Turn] = field(default_factory=list)


def turns_of(episodes: Sequence[Episode]) -> list[Turn]:
    return [turn for episode in episodes for turn in episode.turns]


# 2. The game in words -----------------------------------------------------------------------------

SYSTEM_PROMPT = (
    "You are playing Blackjack. Get closer to 21 than the dealer without going over. "
    'Reply with {"action": 0} to stick or {"action": 1} to hit.'
)
STICK = 0


def in_words(observation: tuple[int, int, int]) -> str:
    total, dealer, usable_ace = observation
    ace = "yes" if usable_ace else "no"
    shown = "ace" if dealer == 1 else dealer
    return f"Your total: {total}. Usable ace: {ace}. Dealer shows: {shown}."


def prompt_ids(tokenizer: Any, observation: tuple[int, int, int], *, is_first: bool) -> list[int]:
    """What the model reads before a reply: an observation, as the model's chat template writes it."""
    messages = [{"role": "user", "content": in_words(observation)}]
    if is_first:
        messages.insert(0, {"role": "system", "content": SYSTEM_PROMPT})
    # A later prompt is the text of its own message alone. It is appended to ids that stay as they are.
    text = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
    return list(tokenizer(text, add_special_tokens=False)["input_ids"])


def admissible_replies(tokenizer: Any) -> list[list[int]]:
    """Ids of the reply that names each action."""
    replies = [tokenizer(f'{{"action": {action}}}', add_special_tokens=False) for action in (0, 1)]
    return [[*reply["input_ids"], tokenizer.eos_token_id] for reply in replies]


# 3. Playing: sample replies, and keep log-probabilities and values --------------------------------


@torch.no_grad()
def add_replies(policy: Policy, episodes: Sequence[Episode]) -> None:
    """Add a turn to each of B episodes: sample a reply to its last prompt, token by token."""
    # Prompts are padded on the left, so that all replies begin in the same column.
    longest = max(len(episode.ids) for episode in episodes)
    padding = [longest - len(episode.ids) for episode in episodes]
    rows = [
        [policy.end_id] * pad + episode.ids for pad, episode in zip(padding, episodes, strict=True)
    ]
    ids = torch.tensor(rows)  # (B, T), and (B, 1) after the first token of the replies
    is_seen = (torch.arange(longest) >= torch.tensor(padding)[:, None]).long()  # (B, T)
    cache = None
    for number in range(MAX_NEW_TOKENS):
        positions = (is_seen.cumsum(1) - 1).clamp(min=0)  # (B, T)
        output = policy.lm.model(
            input_ids=ids,
            attention_mask=is_seen,
            position_ids=positions[:, -ids.shape[1] :],
            past_key_values=cache,
            use_cache=True,
        )
        cache = output.past_key_values
        hidden = output.last_hidden_state[:, -1]  # (B, D)
        if number == 0:
            values = policy.value_head(hidden).squeeze(1)  # (B,)
            for episode, value in zip(episodes, values.tolist(), strict=True):
                episode.turns.append(Turn(start=len(episode.ids), value=value))
        logprobs = policy.lm.lm_head(hidden).log_softmax(-1)  # (B, V)
        ids = torch.multinomial(logprobs.exp(), 1)  # (B, 1)
        chosen = logprobs.gather(1, ids)  # (B, 1)
        for row, episode in enumerate(episodes):
            if number == 0 or episode.ids[-1] != policy.end_id:
                episode.ids.append(int(ids[row]))
                episode.turns[-1].logprobs.append(float(chosen[row]))
        if all(episode.ids[-1] == policy.end_id for episode in episodes):
            break
        is_seen = torch.cat([is_seen, torch.ones_like(ids)], 1)  # (B, T + 1)


def play(policy: Policy, tokenizer: Any, environments: Sequence[Any]) -> list[Episode]:
    """One episode in each environment."""
    episodes = []
    for environment in environments:
        observation, _ = environment.reset()
        episodes.append(Episode(prompt_ids(tokenizer, observation, is_first=True)))
    under_way = list(zip(episodes, environments, strict=True))
    while under_way:
        add_replies(policy, [episode for episode, _ in under_way])
        going_on = []
        for episode, environment in under_way:
            turn = episode.turns[-1]
            reply_ids = episode.ids[turn.start : turn.end]
            if reply_ids in policy.admissible:
                action = policy.admissible.index(reply_ids)
            else:
                # The turn stays in the batch, so that its penalty is learnt from. The game needs some action.
                turn.names_action = False
                action = STICK
            # Blackjack has no time limit. Where one cuts an episode off, the value of its last observation must stand,
            # in step 5, for the rewards that would have followed.
            observation, reward, is_over, _, _ = environment.step(action)
            turn.reward = float(reward)
            if not is_over:
                if episode.ids[-1] != policy.end_id:  # the reply was too long to come to its end
                    episode.ids.append(policy.end_id)
                episode.ids += prompt_ids(tokenizer, observation, is_first=False)
                going_on.append((episode, environment))
        under_way = going_on
    return episodes


# 4. Scoring: the same tokens under the weights of now, with a gradient ----------------------------


class Masks(NamedTuple):
    """Which tokens of B episodes are what, each (B, T) bool."""

    sampled: Tensor
    """Tokens that the policy sampled. Only these have a loss: prompts are not the policy's doing."""
    first: Tensor
    """The first token of each reply."""
    parting: Tensor
    """The token of each reply at which admissible replies part, if the reply is one of them up to there."""


def masks_of(policy: Policy, episodes: Sequence[Episode]) -> Masks:
    """The masks of B episodes, padded on the right to the longest."""
    longest = max(len(episode.ids) for episode in episodes)
    sampled = torch.zeros(len(episodes), longest, dtype=torch.bool)  # (B, T)
    first = torch.zeros_like(sampled)
    parting = torch.zeros_like(sampled)
    beginnings = [reply[: policy.parting + 1] for reply in policy.admissible]
    for row, episode in enumerate(episodes):
        for turn in episode.turns:
            sampled[row, turn.start : turn.end] = True
            first[row, turn.start] = True
            reply_ids = episode.ids[turn.start : turn.end]
            if reply_ids[: policy.parting + 1] in beginnings:
                parting[row, turn.start + policy.parting] = True
    return Masks(sampled, first, parting)


class Scores(NamedTuple):
    logprobs: Tensor
    """(N,) log-probability of each sampled token, one turn after the other."""
    values: Tensor
    """(K,) value of each turn's prompt."""
    entropies: Tensor
    """(M,) nats of the distribution over actions."""


def score(policy: Policy, episodes: Sequence[Episode]) -> Scores:
    """What a policy says of B episodes that were played before, by one forward over whole conversations."""
    masks = masks_of(policy, episodes)
    longest = masks.sampled.shape[1]
    rows = [episode.ids + [policy.end_id] * (longest - len(episode.ids)) for episode in episodes]
    ids = torch.tensor(rows)  # (B, T)
    # No attention mask is needed: padding is on the right, and a token sees only what is on its left.
    hidden = policy.lm.model(input_ids=ids, use_cache=False).last_hidden_state  # (B, T, D)
    # The hidden state of a column predicts the token in the next one. So the last column predicts nothing, nothing
    # predicts the first, and without these a hidden state and the token that it predicts have the same index.
    hidden = hidden[:, :-1]  # (B, T - 1, D)
    next_ids = ids[:, 1:]  # (B, T - 1)
    is_sampled = masks.sampled[:, 1:]  # (B, T - 1)
    is_first = masks.first[:, 1:]  # (B, T - 1)
    is_parting = masks.parting[:, 1:]  # (B, T - 1)

    vocabulary_logprobs = policy.lm.lm_head(hidden[is_sampled]).log_softmax(-1)  # (N, V)
    logprobs = vocabulary_logprobs.gather(1, next_ids[is_sampled][:, None]).squeeze(1)  # (N,)

    # What predicts the first token of a reply stands at the last token of its prompt. The value head gets all of the
    # gradient, the language model a part of it.
    prompts = hidden[is_first]  # (K, D)
    seen = VALUE_COEF * prompts + (1 - VALUE_COEF) * prompts.detach()  # (K, D)
    values = policy.value_head(seen).squeeze(1)  # (K,)

    # Where the admissible replies part, the probabilities of the tokens by which they differ, made to sum to 1, are
    # the probabilities of the actions.
    naming_ids = [reply[policy.parting] for reply in policy.admissible]
    naming_logprobs = vocabulary_logprobs[is_parting[is_sampled]][:, naming_ids]  # (M, A)
    action_logprobs = naming_logprobs.log_softmax(-1)  # (M, A)
    entropies = -(action_logprobs.exp() * action_logprobs).sum(-1)  # (M,)
    return Scores(logprobs, values, entropies)


def in_forwards(episodes: Sequence[Episode]) -> Iterator[list[Episode]]:
    """Episodes of similar length together, so that there is little padding."""
    by_length = sorted(episodes, key=lambda episode: len(episode.ids))
    for start in range(0, len(by_length), FORWARD):
        yield by_length[start : start + FORWARD]


# 5. Targets: from rewards to advantages, once for each update -------------------------------------


@torch.no_grad()
def measure_kl(reference: Policy, episodes: Sequence[Episode]) -> None:
    """Set how far each turn is away from the reference."""
    for part in in_forwards(episodes):
        turns = turns_of(part)
        reference_logprobs = score(reference, part).logprobs  # (N,)
        of_turns = reference_logprobs.split([turn.end - turn.start for turn in turns])
        for turn, logprobs in zip(turns, of_turns, strict=True):
            # k1 = log(policy / reference), of the whole reply. It may be negative; its mean is the KL.
            turn.kl = sum(turn.logprobs) - float(logprobs.sum())


def set_targets(episodes: Sequence[Episode]) -> None:
    """Set the advantage of each turn, and what its value should have been."""
    for episode in episodes:
        # After the last turn there is nothing more to be had.
        next_value = 0.0
        next_advantage = 0.0
        for turn in reversed(episode.turns):
            reward = turn.reward - KL_COEF * turn.kl
            if not turn.names_action:
                reward -= NO_ACTION_PENALTY
            # delta_t = r_t + gamma V_{t+1} - V_t;  A_t = delta_t + gamma lambda A_{t+1}
            delta = reward + GAMMA * next_value - turn.value
            turn.advantage = delta + GAMMA * LAMBDA * next_advantage
            turn.target = turn.advantage + turn.value
            next_value = turn.value
            next_advantage = turn.advantage
    turns = turns_of(episodes)
    advantages = torch.tensor([turn.advantage for turn in turns])  # (K,)
    whitened = (advantages - advantages.mean()) / (advantages.std(unbiased=False) + 1e-6)  # (K,)
    for turn, advantage in zip(turns, whitened.tolist(), strict=True):
        turn.advantage = advantage


# 6. The loss, and the update ----------------------------------------------------------------------


def summed_loss(policy: Policy, episodes: Sequence[Episode], entropy_coef: float) -> Tensor:
    """() loss of some episodes, summed over their turns."""
    turns = turns_of(episodes)
    scores = score(policy, episodes)
    lengths = torch.tensor([turn.end - turn.start for turn in turns])  # (K,)
    advantages = torch.tensor([turn.advantage for turn in turns])  # (K,)
    advantages = advantages.repeat_interleave(lengths)  # (N,) each token has that of its turn
    old_logprobs = torch.tensor([each for turn in turns for each in turn.logprobs])  # (N,)
    targets = torch.tensor([turn.target for turn in turns])  # (K,)

    # L = -min(r A, clip(r, 1 - eps, 1 + eps) A), with the ratio r = policy / policy that sampled
    ratios = (scores.logprobs - old_logprobs).exp()  # (N,)
    clipped_ratios = ratios.clamp(1 - CLIP, 1 + CLIP)  # (N,)
    gains = torch.minimum(ratios * advantages, clipped_ratios * advantages)  # (N,)
    errors = 0.5 * (scores.values - targets).square()  # (K,)
    return errors.sum() - gains.sum() - entropy_coef * scores.entropies.sum()


def add_gradients(policy: Policy, minibatch: Sequence[Episode], entropy_coef: float) -> None:
    """Add the gradient of a minibatch's loss: the mean over all of its turns."""
    count = len(turns_of(minibatch))
    for part in in_forwards(minibatch):
        loss = summed_loss(policy, part, entropy_coef) / count  # ()
        loss.backward()


def update(
    policy: Policy, optimizer: torch.optim.Optimizer, batch: list[Episode], entropy_coef: float
) -> None:
    """Change the policy by one batch of episodes, whose targets are set."""
    for _ in range(EPOCHS):
        random.shuffle(batch)
        for start in range(0, len(batch), MINIBATCH):
            optimizer.zero_grad()
            add_gradients(policy, batch[start : start + MINIBATCH], entropy_coef)
            # Each on its own: the critic's gradient is often much larger, and would shrink the policy's step.
            nn.utils.clip_grad_norm_(policy.lm.parameters(), MAX_GRAD_NORM)
            nn.utils.clip_grad_norm_(policy.value_head.parameters(), MAX_GRAD_NORM)
            optimizer.step()


def returns_of(episodes: Sequence[Episode]) -> Tensor:
    """(number of episodes,) the sum of the environment's rewards in each."""
    return torch.tensor([sum(turn.reward for turn in episode.turns) for episode in episodes])


def print_mean_return(policy: Policy, tokenizer: Any, environments: Sequence[Any]) -> None:
    """Play some hands without learning from them."""
    episodes: list[Episode] = []
    while len(episodes) < HANDS:
        episodes += play(policy, tokenizer, environments)
    returns = returns_of(episodes)
    standard_error = returns.std() / len(returns) ** 0.5
    print(f"mean return of {len(returns)} hands: {returns.mean():.3f} ± {standard_error:.3f}")


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(SEED)
    random.seed(SEED)
    tokenizer = AutoTokenizer.from_pretrained(MODEL)
    lm = AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.float32)
    policy = Policy(lm, admissible_replies(tokenizer))
    reference = copy.deepcopy(policy)
    optimizer = torch.optim.AdamW(
        [
            {"params": policy.lm.parameters(), "lr": LEARNING_RATE},
            {"params": policy.value_head.parameters(), "lr": VALUE_LEARNING_RATE},
        ],
        betas=(0.9, 0.95),
        weight_decay=0.0,
    )
    environments = [
        gymnasium.make("Blackjack-v1", natural=False, sab=False) for _ in range(EPISODES)
    ]
    for number, environment in enumerate(environments):
        environment.reset(seed=SEED + number)

    print_mean_return(policy, tokenizer, environments)
    began = time.perf_counter()
    for number in range(UPDATES):
        remaining = 1 - number / UPDATES
        optimizer.param_groups[0]["lr"] = LEARNING_RATE * remaining
        batch = play(policy, tokenizer, environments)
        measure_kl(reference, batch)
        set_targets(batch)
        update(policy, optimizer, batch, ENTROPY_COEF * remaining)
        turns = turns_of(batch)
        kl = sum(turn.kl for turn in turns) / len(turns)
        unread = sum(not turn.names_action for turn in turns)
        print(
            f"update {number + 1:3}  mean return {returns_of(batch).mean():6.3f}  "
            f"KL to the reference {kl:.3f} nats a turn  replies that name no action {unread}  "
            f"{time.perf_counter() - began:.0f} s",
            flush=True,
        )
    print_mean_return(policy, tokenizer, environments)


if __name__ == "__main__":
    main()
