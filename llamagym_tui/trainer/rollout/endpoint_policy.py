"""A model behind an endpoint in the place of a policy: it plays by text alone, and learns nothing.

An episode has whole messages where that of a model here has tokens, so that both are played and evaluated alike.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from msgspec.structs import replace

from llamagym_tui.engine.policy.policy import Policy
from llamagym_tui.engine.policy.sampler import Reply, Sampler
from llamagym_tui.engine.policy.weightless import WeightlessPolicy
from llamagym_tui.engine.tokens.token_tree import ActionTrie
from llamagym_tui.engine.tokens.tokenization import Opening
from llamagym_tui.game.chat import ChatMessage, Conversation, assistant, opening, user
from llamagym_tui.game.endpoint import LARGEST_SEED, Endpoint
from llamagym_tui.settings import GenerationConfig


class Messages:
    """Messages by numbers, which stand where a tokenizer has ids."""

    keeps_history = True
    end_ids = (-1,)
    """Nothing ends a message but itself."""

    def __init__(self) -> None:
        self._messages: list[ChatMessage] = []
        self._numbers: dict[tuple[str, str], int] = {}

    def opening(self, system_prompt: str, observation: str) -> Opening:
        messages = [*opening(system_prompt), user(observation)]
        return Opening((), tuple(map(self._number, messages)))

    def continuation(self, observation: str, *, ended: bool) -> list[int]:
        return [self._number(user(observation))]

    def reply_ids(self, text: str) -> list[int]:
        return [self._number(assistant(text))]

    def text(self, numbers: Sequence[int]) -> str:
        return "".join(message["content"] for message in self.conversation(numbers))

    reply = text

    def conversation(self, numbers: Sequence[int]) -> Conversation:
        return [self._messages[number] for number in numbers]

    def _number(self, message: ChatMessage) -> int:
        key = (message["role"], message["content"])
        if key not in self._numbers:
            self._numbers[key] = len(self._messages)
            self._messages.append(message)
        return self._numbers[key]


class EndpointPolicy(WeightlessPolicy):
    """A policy that is its own sampler: the server reads prompts of any length, and knows no trie."""

    def __init__(
        self, endpoint: Endpoint, generation: GenerationConfig, history: int | None
    ) -> None:
        """`history` is how many turns before the present one it sees. None: all."""
        super().__init__(Messages(), history)
        self.generation = replace(generation, policy="sample")
        self.on_reading = lambda done, total: None
        self._endpoint = endpoint
        self._seeds = random.Random(0)

    @contextmanager
    def evaluation_seed(self, seed: int) -> Iterator[None]:
        self._seeds.seed(seed)
        yield

    def forget(self) -> None:
        """Nothing was computed here."""

    def reply(
        self,
        prompts: Sequence[Opening],
        tries: Sequence[ActionTrie] | None = None,
        *,
        greedy: bool = False,
        on_token: Callable[[int, int], None] = lambda index, token: None,
    ) -> list[Reply]:
        """Reply to each of the prompts, as `Sampler.reply`. Raises GeneratorError: a reply does not come."""
        texts = self._endpoint.replies(
            [self.chat.conversation((*prompt.prefix, *prompt.rest)) for prompt in prompts],
            [self._seeds.randrange(LARGEST_SEED) for _ in prompts],
            max_tokens=self.generation.max_new_tokens,
            temperature=0.0 if greedy else self.generation.temperature,
        )
        return [Reply(ids=self.chat.reply_ids(text), ended=True) for text in texts]


def sampler_of(policy: Policy) -> Sampler | EndpointPolicy:
    """What finds a policy's replies to prompts."""
    return policy if isinstance(policy, EndpointPolicy) else Sampler(policy)
