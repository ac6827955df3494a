"""Measuring the bundled model: does it follow prompts, does it play the default one badly, does it know its state?

Hands are new ones, from a seed that training never used. Returns are exact, by dynamic programming.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

from benchmarks.exact_blackjack import STATES, State, expected_return
from benchmarks.hit_probabilities import AGENT, hit_probabilities, load_policy
from llamagym_tui.engine.policy.decisions import reply_logprobs
from llamagym_tui.engine.policy.policy import Policy, states_of
from llamagym_tui.engine.tokens.token_tree import NO_REPLIES, ActionTrie
from scripts.bundled_model import blackjack
from scripts.bundled_model.check_play import report_play
from scripts.bundled_model.check_worlds import report_worlds, report_worlds_seen
from scripts.bundled_model.lessons import Chance

REPLIES = blackjack.REPLIES
CHECK_SEED = 20_000_003


def following(policy: Policy, families: int = 15) -> dict[str, float]:
    """Share of states in which the greedy action is the prompt's, by kind of instruction, under the default prompt."""
    rng = Chance(CHECK_SEED)
    kinds = {
        "hit below n": blackjack._below,
        "by dealer": blackjack._by_dealer,
        "by ace": blackjack._by_ace,
        "exactly": blackjack._exactly,
        "manner": blackjack._manner,
    }
    shares: dict[str, float] = {}
    for kind, make in kinds.items():
        right = 0
        for _ in range(families):
            text, rule = make(rng)
            chosen = hit_probabilities(policy, f"{AGENT.get_system_prompt()} {text}")
            right += sum((p > 0.5) == rule(state) for state, p in chosen.items())
        shares[kind] = right / (families * len(STATES))
    return shares


def followed_on_hands(policy: Policy, text: str, rule: blackjack.Rule, hands: int = 120) -> float:
    """Share of decisions in new hands, later turns included, in which the greedy reply is the prompt's."""
    rng = Chance(CHECK_SEED + 1)
    prompt = f"{AGENT.get_system_prompt()} {text}"
    by_prefix: dict[tuple[int, ...], list] = defaultdict(list)
    wanted: list[bool] = []
    for _ in range(hands):
        for opening, hit in _prompts_of_hand(policy, prompt, blackjack.hand(rng, rule)):
            by_prefix[opening.prefix].append(opening)
            wanted.append(hit)
    (openings,) = by_prefix.values()
    ids = [policy.chat.reply_ids(reply) for reply in REPLIES]
    chosen = reply_logprobs(policy, openings, ActionTrie(ids)).argmax(-1).bool().tolist()
    return sum(a == b for a, b in zip(chosen, wanted, strict=True)) / len(wanted)


def _prompts_of_hand(policy: Policy, prompt: str, exchanges: list) -> list[tuple]:
    chat, found = policy.chat, []
    first = chat.opening(prompt, exchanges[0].observation)
    rest = first.rest
    for turn, exchange in enumerate(exchanges):
        if turn:
            rest = (*rest, *chat.continuation(exchange.observation, ended=True))
        found.append((first._replace(rest=rest), exchange.reply == REPLIES[1]))
        rest = (*rest, *chat.reply_ids(exchange.reply))
    return found


def probe(policy: Policy) -> dict[str, float]:
    """Accuracy of linear readers of the state at the last prompt token, on states that they were not fitted on."""
    states = list(STATES)
    Chance(CHECK_SEED).shuffle(states)
    cut = int(0.75 * len(states))
    hidden = _hidden(policy, states)
    accuracy = {}
    for name, part in (("player total", 0), ("dealer card", 1), ("usable ace", 2)):
        labels = torch.tensor([state[part] for state in states])
        accuracy[name] = _fit(hidden[:cut], labels[:cut], hidden[cut:], labels[cut:])
    return accuracy


@torch.no_grad()
def _hidden(policy: Policy, states: Sequence[State]) -> Tensor:
    prompts = [
        policy.chat.opening(AGENT.get_system_prompt(), AGENT.format_observation(state))
        for state in states
    ]
    encoded = states_of(policy, prompts, NO_REPLIES)
    return encoded.hidden[:, 0]


def _fit(hidden: Tensor, labels: Tensor, new_hidden: Tensor, new_labels: Tensor) -> float:
    torch.manual_seed(0)
    reader = nn.Linear(hidden.shape[1], int(labels.max()) + 1)
    optimizer = torch.optim.Adam(reader.parameters(), lr=0.05, weight_decay=1e-4)
    mean, std = hidden.mean(0), hidden.std(0) + 1e-6
    for _ in range(500):
        optimizer.zero_grad()
        nn.functional.cross_entropy(reader((hidden - mean) / std), labels).backward()
        optimizer.step()
    with torch.no_grad():
        return float((reader((new_hidden - mean) / std).argmax(-1) == new_labels).float().mean())


def report_seen(path: Path) -> dict[str, float]:
    """What a model reads and follows in the lessons' own wordings and names."""
    return report_worlds_seen(load_policy(str(path)))


def report(path: Path) -> dict[str, float]:
    """Every figure of the model card, by name."""
    policy = load_policy(path)
    default = hit_probabilities(policy, AGENT.get_system_prompt())
    cautious = hit_probabilities(policy, f"{AGENT.get_system_prompt()} Be cautious.")
    bold = hit_probabilities(policy, f"{AGENT.get_system_prompt()} Be bold.")
    count = len(STATES)
    figures = {
        "parameters": float(sum(p.numel() for p in policy.model.causal_lm.parameters())),
        "bytes on disk": float(
            sum(file.stat().st_size for file in path.iterdir() if file.is_file())
        ),
        "default prompt, sampled: exact return of its first-turn play": expected_return(
            default.__getitem__
        ),
        "default prompt, greedy: exact return": expected_return(
            lambda state: float(default[state] > 0.5)
        ),
        "hit rate, cautious": sum(cautious.values()) / count,
        "hit rate, bold": sum(bold.values()) / count,
    }
    figures |= {f"follows, {kind}": share for kind, share in following(policy).items()}
    hands = {
        "Hit below 13.": blackjack.below(13),
        "If the dealer shows 7 or more hit below 16, else hit below 12.": blackjack.by_dealer(
            7, 16, 12
        ),
    }
    figures |= {
        f"new hands, {text}": followed_on_hands(policy, text, rule) for text, rule in hands.items()
    }
    return (
        figures
        | {f"linear probe, {name}": share for name, share in probe(policy).items()}
        | report_worlds(policy)
        | report_play(path)
    )
