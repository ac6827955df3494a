"""A recorded conversation, played back through the `Episode` that a rollout builds: its ids are those of a rollout."""

from collections.abc import Sequence

from llamagym_tui.engine.policy.episode import Episode
from llamagym_tui.engine.policy.policy import Policy
from llamagym_tui.engine.policy.sampler import Reply
from llamagym_tui.engine.tokens.tokenization import Opening
from llamagym_tui.game.chat import ChatMessage


def replayed(policy: Policy, conversation: Sequence[ChatMessage]) -> Episode:
    """An episode with all messages of a conversation; a reply of weight 0 is not trained on."""
    turns = list(conversation)
    system_prompt = turns.pop(0)["content"] if turns and turns[0]["role"] == "system" else ""
    episode = Episode(policy, system_prompt)
    for message in turns:
        if message["role"] == "user":
            episode.observe(message["content"], _actions(message))
        elif message.get("weight") == 0:
            episode.add_untrained_reply(message["content"])
        else:
            ids = list(policy.chat.reply_ids(message["content"]))
            episode.reply(Reply(ids=ids, logprobs=[0.0] * len(ids), ended=True))
    return episode


def prompt_after(policy: Policy, conversation: Sequence[ChatMessage]) -> Opening:
    """All ids before the reply to a conversation's last message, which is a user's."""
    *before, last = conversation
    return replayed(policy, before).prompt_for(last["content"], _actions(last))


def _actions(message: ChatMessage) -> tuple[str, ...] | None:
    actions = message.get("actions")
    return None if actions is None else tuple(actions)
