"""Conversations to learn the form of replies from: states of random play, and replies that name random actions."""

import random

from llamagym_tui.config import RunConfig, turns_kept
from llamagym_tui.errors import EnvError
from llamagym_tui.game.agent_base import AgentBase
from llamagym_tui.game.chat import ChatMessage, Conversation, assistant, opening, user
from llamagym_tui.game.observed import replies_of
from llamagym_tui.trainer.random_play import RandomTurn, random_episodes

SECONDS = 20.0
"""Seconds of random play, at most."""
PLAYED_FOR_ONE = 3
"""Turns that are played for each that becomes a lesson, so that lessons are of different states."""
LATEST = 8
"""Turn up to which lessons are taken from where prompts have all turns before it: later ones are long to read."""


def form_lessons(agent: AgentBase, config: RunConfig, count: int) -> list[Conversation]:
    """So many conversations in a random order, each of which ends with the reply that is to be learnt.

    They have the turns that a run's prompts have; replies before the last one have weight 0.

    Raises:
        EnvError: the environment cannot be made, or its play gave no turn with named actions.
    """
    prompt = agent.get_system_prompt() if config.system_prompt is None else config.system_prompt
    history = turns_kept(config.history, agent.history)
    play = random_episodes(agent, config, turns=PLAYED_FOR_ONE * count, seconds=SECONDS)
    found: list[list[RandomTurn]] = []
    for episode in play:
        for at, turn in enumerate(episode):
            if turn.action is None or (history is None and at >= LATEST):
                continue
            first = 0 if history is None else max(0, at - history)
            shown = episode[first : at + 1]
            if all(each.action is not None for each in shown):
                found.append(shown)
    if not found:
        raise EnvError(
            f"Random play of {agent.env_id} gave no turn to learn the form of replies on; leave out --form learn."
        )
    rng = random.Random(config.seed)
    rng.shuffle(found)
    while len(found) < count:  # few states: they come again
        found += found[: count - len(found)]
    lessons = []
    decks: dict[tuple[str, ...], list[str]] = {}
    for turns in found[:count]:
        # What is taught is drawn from a shuffled deck of the admissible actions, so that each comes as often.
        names = turns[-1].shown.actions or tuple(agent.action_names)
        deck = decks.setdefault(names, [])
        if not deck:
            deck += rng.sample(names, len(names))
        last = turns[-1]._replace(action=deck.pop())
        lessons.append(_conversation(agent, prompt, turns[:-1], last, rng))
    return lessons


def _conversation(
    agent: AgentBase,
    prompt: str,
    earlier: list[RandomTurn],
    last: RandomTurn,
    rng: random.Random,
) -> Conversation:
    messages: Conversation = opening(prompt)
    for turn in [*earlier, last]:
        assert turn.action is not None, "the caller has looked"
        asked: ChatMessage = user(turn.shown.text)
        if turn.shown.actions is not None:
            asked["actions"] = list(turn.shown.actions)
        reply = assistant(rng.choice(replies_of(agent, turn.action)))
        if turn is not last:
            reply["weight"] = 0
        messages += [asked, reply]
    return messages
