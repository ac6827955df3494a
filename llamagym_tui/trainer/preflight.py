"""Estimates whether a run fits into memory, before its weights are loaded.

Conversations are measured by a few episodes of random actions; those of a trained policy may be longer.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from llamagym_tui.config import RunConfig, turns_kept
from llamagym_tui.engine.memory import (
    MemoryEstimate,
    as_gib,
    estimate_memory,
    free_memory,
    held_memory,
    workload_of,
)
from llamagym_tui.engine.model.loading import (
    held_as,
    resolve_device,
    tokenizer_of,
)
from llamagym_tui.engine.model.shape import context_of, counted_shape, read_config
from llamagym_tui.engine.model.sources import base_place, model_folder
from llamagym_tui.engine.tokens.tokenization import ChatTokenizer
from llamagym_tui.errors import PromptTooLongError, UsageError
from llamagym_tui.game.agent_base import AgentBase
from llamagym_tui.game.observed import Observed, replies_of
from llamagym_tui.trainer.random_play import random_episodes

LATER = 50 * 2**20
"""Bytes of the host that the process takes after the preflight for code and small things."""
WARN_FROM = 0.8
"""Share of the free memory from which on a run that fits is warned of."""
SECONDS = 0.5
"""Seconds of random play, at most; it ends with as many turns as a minibatch has."""
FEW_ENVS = 16
"""Environments that are proposed to those who have more."""
SHORT_REPLY = 16
"""Tokens of a reply that are proposed to those who have more."""


@dataclass(frozen=True, slots=True)
class Preflight:
    """What a run needs, and what there is."""

    parameters: int
    """The number of parameters of the causal LM."""
    estimate: MemoryEstimate
    there: int
    """Bytes that the process may hold in all."""
    device: str

    @property
    def fits(self) -> bool:
        return self.estimate.total <= self.there

    @property
    def warning(self) -> str | None:
        """For a run that fits, but only just."""
        if self.estimate.total < WARN_FROM * self.there:
            return None
        return (
            f"This run will take about {as_gib(self.estimate.total)} of the {as_gib(self.there)} that are free on "
            f"{self.device}; long episodes may take more."
        )


def preflight(config: RunConfig, agent: AgentBase, *, learns: bool = True) -> Preflight | None:
    """Estimate a run by its model's configuration; None if that cannot be read, which loading will explain.

    Raises:
        PromptTooLongError: the model cannot even read a first prompt.
        UsageError: it does not fit; the message names what would.
        ModelLoadError: the device or the model's folder is not there.
        EnvError: the environment cannot be made.
    """
    device = resolve_device(config.device)
    path = model_folder(config.model)
    below = base_place(config.base)
    there = free_memory(device)
    try:
        source = str(path or config.model)
        read, is_adapted = read_config(source, local=path is not None, base=below)
        shape = counted_shape(read)
        chat = ChatTokenizer(tokenizer_of(source, below))
    except Exception:
        return None
    turns = config.ppo.mini_batch_size
    episodes_played = random_episodes(agent, config, turns=turns, seconds=SECONDS)
    play = [[turn.shown for turn in episode] for episode in episodes_played]
    texts = [[shown.text for shown in episode] for episode in play]
    prefix, episodes = conversations(agent, config, chat, texts)
    shortest = prefix + min(prompts[0] for prompts in episodes)
    context = context_of(read)
    if context is not None and shortest > context:
        raise PromptTooLongError(
            f"The system prompt and one observation of {agent.env_id} are {shortest:,} tokens, more than the "
            f"{context:,} that the model reads; shorten them, or take a model with a longer context."
        )
    choices: list[int] = []
    if config.generation.policy == "score":
        choices = _longest_choices(agent, chat, play)
    base = held_memory(device)
    on_host = device == "cpu"

    def of(settings: RunConfig) -> Preflight:
        full, dtype_bytes = held_as(settings, shape, is_adapted=is_adapted)
        estimate = estimate_memory(
            shape,
            settings,
            workload_of(prefix, episodes, settings.generation.max_new_tokens, choices),
            full=full,
            dtype_bytes=dtype_bytes,
            base=base + LATER if on_host else base,
            learns=learns,
            on_host=on_host,
        )
        # The host's free memory leaves out what this process holds, the estimate has it in.
        return Preflight(shape.parameters, estimate, there + base, device)

    found = of(config)
    if not found.fits:
        fitting = ", or ".join(would_fit(config, lambda settings: of(settings).fits, learns=learns))
        advice = "no single setting makes it fit: take a smaller model, or change several"
        if fitting:
            advice = f"what would fit: {fitting}"
        raise UsageError(
            f"Model {config.model!r} would take about {as_gib(found.estimate.total)}, and {as_gib(there + base)} are "
            f"there on {device}; {advice}."
        )
    return found


def _longest_choices(
    agent: AgentBase, chat: ChatTokenizer, play: Sequence[Sequence[Observed]]
) -> list[int]:
    """Tokens of the replies that are scored in a turn, where they are longest together."""
    names = {tuple(agent.action_names)}
    for episode in play:
        for shown in episode:
            if shown.actions:
                names.add(shown.actions)
    lengths = [
        [len(chat.reply_ids(reply)) for name in each for reply in replies_of(agent, name)]
        for each in names
    ]
    return max(lengths, key=sum)


def conversations(
    agent: AgentBase, config: RunConfig, chat: ChatTokenizer, play: Sequence[Sequence[str]]
) -> tuple[int, list[list[int]]]:
    """Tokens of the system prompt, and of every prompt after it in episodes of these observations.

    Where prompts leave out earlier turns, each turn counts as an episode of its own: so it is computed.
    """
    system = agent.get_system_prompt() if config.system_prompt is None else config.system_prompt
    # A run that is to find how many earlier turns help begins without any.
    history = 0 if config.finds_history else turns_kept(config.history, agent.history)
    reply = config.generation.max_new_tokens
    prefix = 0
    episodes: list[list[int]] = []
    for observations in play:
        # Where prompts have all earlier turns, only the first one opens a conversation.
        opening_texts = observations[:1] if history is None else observations
        openings = [chat.opening(system, text) for text in opening_texts]
        prefix = len(openings[0].prefix)
        first = [len(opening.rest) for opening in openings]
        later = [len(chat.continuation(text, ended=False)) for text in observations]
        if history is None:
            episodes.append([first[0], *later[1:]])
            continue
        for at in range(len(observations)):
            begin = max(0, at - history)
            between = sum(reply + prompt for prompt in later[begin + 1 : at + 1])
            episodes.append([first[begin] + between])
    return prefix, episodes or [[1]]


def would_fit(
    config: RunConfig, fits: Callable[[RunConfig], bool], *, learns: bool = True
) -> list[str]:
    """Changes of a run that does not fit, each of which is enough alone; one that changes nothing is not."""
    adapter = replace(config, full_finetuning=False)
    coarse = replace(config, dtype="bfloat16", full_finetuning=False)
    few = replace(config, n_envs=min(FEW_ENVS, config.n_envs))
    reply = min(SHORT_REPLY, config.generation.max_new_tokens)
    short = replace(config, generation=replace(config.generation, max_new_tokens=reply))
    changes = []
    if learns:
        changes.append(
            ("a LoRA adapter instead of all weights (--set full_finetuning=false)", adapter)
        )
    changes.append((f"{FEW_ENVS} environments (--envs {FEW_ENVS})", few))
    changes.append(
        (
            f"replies of {SHORT_REPLY} tokens (--set generation.max_new_tokens={SHORT_REPLY})",
            short,
        )
    )
    if learns:
        changes.append(
            (
                "bf16 weights under a LoRA adapter (--dtype bfloat16 --set full_finetuning=false)",
                coarse,
            )
        )
    return [text for text, changed in changes if fits(changed)]
