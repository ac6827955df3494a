"""What a model's tokens tell without its weights: the ids of its conversations, and the prompts of episodes."""

from typing import Any

from transformers import GenerationConfig

from llamagym_tui.engine.model.loading import reading, tokenizer_of
from llamagym_tui.engine.model.shape import read_config
from llamagym_tui.engine.model.sources import is_local
from llamagym_tui.engine.policy.policy import Policy, require_end
from llamagym_tui.engine.tokens.token_tree import NO_REPLIES, ActionTrie
from llamagym_tui.engine.tokens.tokenization import ChatTokenizer
from llamagym_tui.runs import model_registry
from llamagym_tui.runs.model_registry import ModelEntry


class WeightlessPolicy(Policy):
    """A policy that computes nothing: it has prompts of any length, and knows no trie."""

    trie = NO_REPLIES
    version = 0

    def __init__(self, chat: object, history: int | None) -> None:
        """`history` is how many turns before the present one a prompt has. None: all."""
        self.chat: Any = chat
        self.history = history

    def trie_of(self, actions: tuple[str, ...] | None) -> ActionTrie:
        return NO_REPLIES

    def fits(self, tokens: int, trie: ActionTrie) -> bool:
        return True

    def require_fit(self, tokens: int, trie: ActionTrie) -> None:
        pass


def load_chat(name: str) -> ChatTokenizer:
    """The tokenizer and template of a model, as a policy has them; its weights need not be there.

    Raises:
        ModelLoadError: the model is not there, is not a causal LM, or nothing ends its replies.
    """
    name = model_registry.full_name(name)
    entry = model_registry.find(name) or ModelEntry(name, short=name)
    with reading(name, weights=False) as source:
        tokenizer = tokenizer_of(source, entry)
        try:
            sampling = GenerationConfig.from_pretrained(source, local_files_only=is_local(source))
        except OSError:  # it has none
            sampling = GenerationConfig.from_model_config(read_config(source))
    chat = ChatTokenizer(tokenizer, sampling)
    require_end(chat)
    return chat
