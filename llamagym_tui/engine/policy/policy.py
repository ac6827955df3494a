"""The policy: a model with a value head that samples replies and scores them under one distribution.

Sampling and scoring use the same temperature, no dropout, and log-probabilities in fp32. There is no top-p or top-k:
PPO scores the distribution that was sampled. So the first ratio of an update is 1 up to rounding.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor

from llamagym_tui.engine.model.forward import FORWARD_TOKENS, Encoded
from llamagym_tui.engine.model.narrow import NarrowHead
from llamagym_tui.engine.model.rounded import Rounded
from llamagym_tui.engine.model.shape import context_of
from llamagym_tui.engine.model.value_head import AutoModelForCausalLMWithValueHead
from llamagym_tui.engine.own_torch import own_torch
from llamagym_tui.engine.policy.trajectory import Trajectory
from llamagym_tui.engine.tokens.token_tree import (
    NO_REPLIES,
    ActionTrie,
    ForwardLimits,
    TokenTree,
    grouped,
)
from llamagym_tui.engine.tokens.tokenization import ChatTokenizer, Opening
from llamagym_tui.errors import ConfigError, ModelLoadError, PromptTooLongError
from llamagym_tui.settings import GenerationConfig

SETS_KEPT = 1024
"""Sets of admissible actions whose tries are kept."""
REMEMBERED_OF_FIXED_TRUNK = 512 * 2**20
"""Bytes of what a trunk that is not trained said of prompts, at most."""
REPLIES_KEPT = 8192
"""Replies whose ids are kept."""
Replies = str | Sequence[str]
"""The canonical replies that name one action: one, or several."""
Key = tuple[TokenTree, Opening, int]
"""The tree of replies behind a prompt, the prompt, and the number of tokens whose logits a head adapter moves."""


def require_end(chat: ChatTokenizer) -> None:
    """Raises ModelLoadError if nothing ends a reply."""
    if not chat.end_ids:
        raise ModelLoadError(
            "Nothing ends a reply of this model: its chat template ends no turn with a token of its own, and neither "
            "its tokenizer nor its generation_config.json has an end of sequence; add eos_token_id there, or take an "
            "instruction-tuned model."
        )


def generation_config_of(lm: Any, sampling: GenerationConfig, ends: Sequence[int]) -> Any:
    """The sampling settings that a saved model gets: those of the run, and none of its base model's.

    Args:
        ends: ids that end a reply.
    """
    own = lm.generation_config
    return transformers.GenerationConfig(
        do_sample=True,
        temperature=sampling.temperature,
        top_k=0,  # the whole distribution, as in training
        top_p=1.0,
        max_new_tokens=sampling.max_new_tokens,
        eos_token_id=list(ends),
        pad_token_id=own.pad_token_id,
        bos_token_id=own.bos_token_id,
    )


class PromptMemory:
    """What the model said after a prompt, up to a number of bytes. A full memory is emptied.

    It holds for one version of the trained weights. Where only an adapter on the head is trained, that is for ever, so
    rollout, update, evaluation and policy map read each prompt once in a run.
    """

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._known: dict[Key, Encoded] = {}
        self._bytes = 0
        self._looked_up = 0
        self._found = 0

    def take_share(self) -> float:
        """Fraction of the prompts since the last call that needed no forward; 0 without any."""
        share = self._found / max(self._looked_up, 1)
        self._looked_up = 0
        self._found = 0
        return share

    def clear(self) -> None:
        self._known.clear()
        self._bytes = 0

    def take_over(self, other: "PromptMemory") -> None:
        """Know what another memory knows, and nothing else."""
        self._known = other._known
        self._bytes = other._bytes

    def rows(
        self, keys: Sequence[Key], read: Callable[[Sequence[Opening]], list[Encoded]]
    ) -> Encoded:
        """One row for each of B prompts; `read` gives those of prompts that are not known."""
        found = {key: self._known[key] for key in keys if key in self._known}
        new = list(dict.fromkeys(key for key in keys if key not in found))
        self._looked_up += len(keys)
        self._found += len(keys) - len(new)
        if new:
            made = dict(zip(new, read([prompt for _, prompt, _ in new]), strict=True))
            found |= made
            self._remember(made)
        return Encoded.stacked([found[key] for key in keys])

    def _remember(self, made: dict[Key, Encoded]) -> None:
        size = sum(row.bytes for row in made.values())
        if self._bytes + size > self._most_bytes:
            self.clear()
        if size <= self._most_bytes:
            self._known |= made
            self._bytes += size


class Policy:
    """A model that plays by the settings of a run."""

    @own_torch()
    def __init__(
        self,
        model: AutoModelForCausalLMWithValueHead,
        tokenizer: Any,
        generation: GenerationConfig,
        admissible_replies: Sequence[Replies] = (),
        seed: int = 0,
        *,
        replies_of: Callable[[str], Replies] = str,
        names_by_turn: bool = False,
    ) -> None:
        """A policy at version 0.

        Args:
            admissible_replies: the canonical replies of each discrete action.
            replies_of: those that name an action, where a turn has actions of its own.
            names_by_turn: True if turns have actions of their own, even where there are none for all turns.
        Raises:
            ModelLoadError: the tokenizer's template cannot be used, or nothing ends a reply.
        """
        # Always in eval mode, while training too: dropout would make the first ratio differ from 1.
        self.model = model.eval()
        self.chat = ChatTokenizer(tokenizer, model.causal_lm.generation_config)
        require_end(self.chat)
        self.narrow = NarrowHead(model.backbone.head) if model.has_narrow_head else None
        """The adapter on the head alone, where the trunk stays as it is. None: other weights are trained."""
        self.memory = PromptMemory(REMEMBERED_OF_FIXED_TRUNK)
        """States after prompts, for as long as the trunk is not trained."""
        self.on_reading: Callable[[int, int], None] = lambda done, total: None
        """Called while a fixed trunk reads prompts, with those read and all of them; what it raises ends that."""
        self.generation = generation
        """Settings of sampling."""
        ids = lru_cache(REPLIES_KEPT)(self.chat.reply_ids)

        def trie(replies_by_action: Sequence[Replies]) -> ActionTrie:
            replies: list[str] = []
            actions: list[int] = []
            for action, known in enumerate(replies_by_action):
                of_action = [known] if isinstance(known, str) else list(known)
                replies += of_action
                actions += [action] * len(of_action)
            made = ActionTrie(map(ids, replies), [len(reply.split()) for reply in replies], actions)
            if self.narrow is not None:
                self.narrow.include(made.tokens, made.parting_tokens)
            return made

        self.trie = trie(admissible_replies)
        """The admissible replies of turns that have no actions of their own."""
        self._trie_of = lru_cache(SETS_KEPT)(lambda actions: trie(list(map(replies_of, actions))))
        self.can_choose = bool(self.trie) or names_by_turn
        """True if there are replies to choose among, in every turn or in some."""
        self.require_playable(generation)
        self.generator = torch.Generator(device=model.backbone.device).manual_seed(seed)
        self.context = context_of(model.causal_lm.config)
        """Tokens that the model reads at most. None: no limit is known."""
        self.history: int | None = None
        """Turns before the present one that the prompts of episodes begun from now on have. None: all."""
        self.plays_at_random = False
        """True while the admissible replies are drawn as if all were as likely, and no prompt is read."""
        self.version = 0
        """Updates made so far, and roll backs: the same version is the same weights."""
        self.has_critic = True
        """True if the value head is used."""

    def read_from(self, layers: int) -> None:
        """Be the model's first layers alone, under a head of zeros: the admissible replies are as likely.

        Raises:
            ConfigError: more than an adapter on the head is trained, or the model has no such layers of its own.
        """
        if self.narrow is None:
            raise ConfigError(
                "Only an adapter on the LM head alone can read the states of an earlier layer: leave read_depth out, "
                "or set lora.layers=head."
            )
        self.model.keep_layers(layers)
        self.narrow.is_blank = True
        self.memory.clear()

    def read_rounded(self) -> None:
        """Read prompts in bfloat16 from now on, about what they have in common.

        Raises:
            ConfigError: more than an adapter on the head is trained, or the model is not read as a tree in float32.
        """
        backbone = self.model.backbone
        is_on_processor = backbone.device.type == "cpu" and backbone.dtype == torch.float32
        if self.narrow is None or not (backbone.is_lean and is_on_processor):
            raise ConfigError(
                "Prompts are read in bfloat16 only by the weights of a Llama-like model in float32, on a processor, "
                "below an adapter on the LM head alone: leave reading=bfloat16 out."
            )
        backbone.rounded = Rounded(backbone.decoder)

    def save_pretrained(self, folder: Path) -> None:
        """Write model, value head, tokenizer and sampling settings as a folder of transformers or PEFT."""
        self.model.save_pretrained(folder)
        lm = self.model.causal_lm
        generation_config_of(lm, self.generation, self.chat.end_ids).save_pretrained(folder)
        self.chat.tokenizer.save_pretrained(folder)

    def require_playable(self, generation: GenerationConfig) -> None:
        """Raises ConfigError if no reply can be chosen as these settings have it."""
        if generation.policy == "generate" and self.narrow is not None:
            raise ConfigError(
                "An adapter on the LM head alone chooses among the admissible replies (generation.policy=score): for "
                "free text train an adapter in all layers (lora.layers=all) or all weights (full_finetuning=true)."
            )
        if generation.policy == "score" and not self.can_choose:
            raise ConfigError(
                "The score policy chooses among replies, but this agent names no discrete actions."
            )

    def trie_of(self, actions: tuple[str, ...] | None) -> ActionTrie:
        """The admissible replies of a turn, by the names of its actions; None: it has none of its own."""
        return self.trie if actions is None else self._trie_of(actions)

    def fits(self, tokens: int, trie: ActionTrie) -> bool:
        """True if the model can read a prompt of this length with the longest reply."""
        return self.context is None or tokens + self._longest_reply(trie) <= self.context

    def require_fit(self, tokens: int, trie: ActionTrie) -> None:
        """Raises PromptTooLongError if a prompt of this length does not fit."""
        if not self.fits(tokens, trie):
            raise PromptTooLongError(
                f"a prompt of {tokens:,} tokens and a reply of up to {self._longest_reply(trie):,} are more than the "
                f"{self.context:,} that the model reads"
            )

    def _longest_reply(self, trie: ActionTrie) -> int:
        """Tokens of the longest reply that a turn may have."""
        if self.generation.policy == "generate":
            return self.generation.max_new_tokens
        return max(map(len, trie.replies), default=0)

    @property
    def is_finite(self) -> bool:
        """True if every trained weight is a finite number."""
        return all(
            bool(weight.isfinite().all())
            for weight in self.model.parameters()
            if weight.requires_grad
        )

    def reply_divisors(self, trie: ActionTrie) -> tuple[float, ...]:
        """The divisor of each admissible reply's summed log-probability; the result is its score."""
        # A head of zeros gives each token the same probability, so a sum would prefer short replies.
        normalization = "token" if self.model.read_depth else self.generation.normalization
        match normalization:
            case "sum":
                return (1.0,) * len(trie.replies)
            case "token":
                return tuple(float(len(reply)) for reply in trie.replies)
            case "word":
                return tuple(float(max(words, 1)) for words in trie.words)

    @contextmanager
    def evaluation_seed(self, seed: int) -> Iterator[None]:
        """Sample from another random stream for a while, so that an evaluation does not change the run."""
        kept = self.generator
        self.generator = torch.Generator(device=kept.device).manual_seed(seed)
        try:
            yield
        finally:
            self.generator = kept

    def values(self, states: Tensor) -> list[float]:
        """V of each of (N, D) hidden states; 0 without a critic."""
        return self.model.v_head(states).tolist() if self.has_critic else [0.0] * len(states)

    @own_torch()
    @torch.no_grad()
    def bootstrap_values(self, trajectories: Sequence[Trajectory]) -> list[float]:
        """Value after the last turn of each: V(final observation) if truncated and there is a critic, else 0."""
        values = [0.0] * len(trajectories)
        finals = {
            index: each.final_prompt
            for index, each in enumerate(trajectories)
            if self.has_critic and each.end == "truncated" and each.final_prompt is not None
        }
        if finals:
            trie = NO_REPLIES if self.narrow is None else self.trie
            states = states_of(self, list(finals.values()), trie)
            found = self.model.v_head(states.hidden[:, 0]).tolist()
            for index, value in zip(finals, found, strict=True):
                values[index] = value
        return values


@torch.no_grad()
def states_of(
    policy: Policy,
    prompts: Sequence[Opening],
    trie: ActionTrie,
    memory: PromptMemory | None = None,
) -> Encoded:
    """B rows of 1 + M columns: a prompt's last token, then the nodes of the tree of admissible replies.

    Args:
        policy: its `on_reading` is told the number of prompts that have been read.
        prompts: all ids before a reply.
        trie: the admissible replies.
        memory: of the weights as they are. None: the policy's own where only an adapter on the head is trained, else
            nothing is remembered.
    """
    narrow = policy.narrow
    if memory is None:
        memory = policy.memory if narrow is not None else PromptMemory(0)
    moved = 0 if narrow is None else len(narrow.ids)
    keys = [(trie.tree, prompt, moved) for prompt in prompts]
    return memory.rows(keys, lambda new: _read(policy, new, trie))


def _read(policy: Policy, prompts: Sequence[Opening], trie: ActionTrie) -> list[Encoded]:
    """The row of each of some distinct prompts."""
    backbone = policy.model.backbone
    found: dict[Opening, Encoded] = {}
    policy.on_reading(0, len(prompts))
    limits = ForwardLimits(FORWARD_TOKENS, flat=backbone.is_lean)

    def insert(tree: TokenTree, prompt: Opening) -> list[int]:
        return _insert(tree, prompt, trie)

    for tree, members in grouped(sorted(prompts), insert, limits):
        columns = [each for _, each in members]
        whole = backbone.encode_tree(tree, [column for each in columns for column in each])
        at = torch.tensor(columns, device=whole.hidden.device)
        encoded = whole.picked(torch.zeros_like(at), at)
        if policy.narrow is not None:
            encoded = policy.narrow.kept(encoded)
        found |= zip([prompt for prompt, _ in members], encoded.rows(), strict=True)
        policy.on_reading(len(found), len(prompts))
    return [found[prompt] for prompt in prompts]


def _insert(tree: TokenTree, prompt: Opening, trie: ActionTrie) -> list[int]:
    """Add a prompt with the replies behind it; the columns of its last token and of the replies' nodes."""
    last = tree.insert([*prompt.prefix, *prompt.rest])[-1]
    columns = [last] * (1 + len(trie.tree))
    for reply, nodes in zip(trie.replies, trie.paths, strict=True):
        path = tree.insert(reply[:-1], after=last)
        for node, column in zip(nodes, path, strict=True):
            columns[1 + node] = column
    return columns
