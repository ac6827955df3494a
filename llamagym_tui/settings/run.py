"""Every setting of a run, frozen, with unit, range and default; validated once, by `from_dict`.

A field is the one place of a setting: its type, default, option on the command line, words for people, and whether it
may change while the run is under way. Nothing here knows torch.
"""

import math
from collections.abc import Mapping
from functools import cache
from pathlib import PurePath
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta, Struct, field

from llamagym_tui.errors import ConfigError
from llamagym_tui.settings.fields import (
    LARGEST_SEED,
    Count,
    Fraction,
    NonNegative,
    Number,
    Option,
    Positive,
    Value,
)
from llamagym_tui.settings.ppo import SCHEDULED, PPOConfig

Mode = Literal["train", "inference"]
"""``train`` collects episodes for PPO, ``inference`` only plays them."""
Device = Literal["auto", "cpu", "cuda", "mps"]
Dtype = Literal["float32", "bfloat16"]
"""Type in which a model's weights are held; an adapter and the value head are always float32."""
MAX_FAILURES = 32
"""Episodes in a row that may fail before a run ends, unless its settings say otherwise."""
ReadDepth = Literal["auto", "all"] | Annotated[int, Meta(ge=1, le=LARGEST_SEED)]
History = Literal["own", "all"] | Annotated[int, Meta(ge=0, le=LARGEST_SEED)]
"""Turns before the present one that a prompt has; ``own``: the agent's number, ``all``: the whole conversation."""
PolicyKind = Literal["generate", "score"]
"""``generate`` samples replies token by token, ``score`` chooses whole admissible replies by their scores."""
Tracker = Literal["tensorboard", "wandb"]
"""A program that shows the figures of runs, by the name of its extra."""
MOST_UNREAD = 0.5
"""Share of replies without an action from which a person is told of it: mostly the fallback plays then."""
Normalization = Literal["sum", "token", "word"]
"""Divisor of a reply's summed log-probability: none, its tokens, or its words."""


class GenerationConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Sampling of replies. There is no top-p or top-k: PPO scores the distribution that was sampled."""

    max_new_tokens: Annotated[
        Count,
        Option(
            title="longest reply",
            help="Most tokens of a reply. Drops the current batch.",
        ),
    ] = 32
    """The end-of-turn token included."""
    temperature: Annotated[
        Positive,
        Option(
            title="temperature",
            help="Divides the logits: above 1 is more random, below 1 more certain. Drops the current batch.",
        ),
    ] = 1.0
    """Divides scores too, in sampling and in the update alike."""
    policy: Annotated[
        PolicyKind,
        Option(
            title="free text or known replies",
            help="generate: free text, token by token. score: one of the agent's known replies. "
            "Drops the current batch.",
        ),
    ] = "generate"
    """``generate``: free text, token by token. ``score``: one of the canonical replies, by softmax over scores."""
    normalization: Annotated[
        Normalization,
        Option(
            title="normalisation of scores",
            help="What a reply's log-probability is divided by: nothing, its tokens or its words. "
            "Drops the current batch.",
        ),
    ] = "sum"
    """Divisor of a score: ``sum`` (GLAM) favours short replies, ``token`` and ``word`` (TWOSOME) do not. Unused
    where replies are sampled token by token."""


class SFTSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Supervised training on demonstrations, before PPO or between its updates."""

    epochs: Count = 3
    """Passes over the demonstrations, at least."""
    min_steps: Annotated[int, Meta(ge=0)] = 60
    """Optimizer steps at least: few demonstrations are passed over more often. 0: `epochs` alone counts."""
    batch_size: Count = 16
    """Conversations for one optimizer step; turns, where prompts leave out earlier ones."""
    lr: Positive = 1e-3
    """Adam's learning rate after `warmup`; it falls to 0 along a line."""
    warmup: Fraction = 0.1
    """Share of the steps in which the learning rate rises from 0."""
    max_examples: Count | None = None
    """Demonstrations used, drawn at random by the run's seed; all of them by default."""


class DPOSettings(SFTSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Learning from replies that a person replaced; what `SFTSettings` say of conversations holds for pairs."""

    lr: Positive = 3e-6
    """Adam's learning rate after `warmup`; far lower than SFT's, or the preferred action is taken everywhere."""
    beta: Positive = 0.1
    """Weight of changes from the policy before; higher keeps the policy nearer to it."""


class LoraConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Low-rank adapters through PEFT; the reference policy is the model with the adapter as it was at the start."""

    layers: Literal["all", "head"] = "all"
    """Where it is. ``head``: on the LM head alone, so that a prompt is read once a run; ``all``: in every layer."""
    r: Count | None = None
    """Rank; by default 16, or 64 on the head, where it is the number of directions that the adapter sees."""
    alpha: Positive | None = None
    """Scale: the adapter's output is multiplied by alpha / rank. By default twice the rank, or the rank on the head."""
    target_modules: str | list[str] = "all-linear"
    """Modules that get an adapter, as PEFT names them, where it is not on the head alone."""

    @property
    def rank(self) -> int:
        """The rank that it has."""
        if self.r is not None:
            return self.r
        return 64 if self.layers == "head" else 16

    @property
    def scale(self) -> float:
        """The alpha that it has."""
        if self.alpha is not None:
            return self.alpha
        return float(self.rank if self.layers == "head" else 2 * self.rank)


class RunConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One run: what plays what, how it is trained, and when it ends."""

    agent: str
    """Agent name, ``path.py[:Class]`` or Gymnasium id."""
    env: Annotated[
        dict[str, bool | int | float | str | None],
        Option(
            flag="--env",
            help="Argument of the environment, as --env size=8; may be repeated.",
        ),
    ] = field(default_factory=dict)
    """Keyword arguments of ``gymnasium.make``, on top of the agent's own."""
    observation_ranges: list[tuple[Number, Number]] | None = None
    """Least and largest number that the generic agent shows as 0 and 99, for each of an observation's numbers; the
    agent's by default."""
    model: Annotated[
        str,
        Option(
            flag="--model",
            help="Model name, hub id, local path, or a run's folder, name or RUN@UPDATE.",
        ),
    ] = "bundled"
    run_dir: Annotated[
        str, Option(flag="--run-dir", help="Folder of the run. Not given: a new one.")
    ]
    """Made if absent."""
    seed: Annotated[
        int, Meta(ge=0, le=LARGEST_SEED), Option(flag="--seed", help="Random seed.")
    ] = 0
    """Seeds environments, sampling and minibatches."""
    mode: Annotated[Mode, Option(flag="--mode", help="Train, or only play.")] = "train"
    """Mode at the start."""
    system_prompt: Annotated[
        str | None,
        Option(flag="--prompt-file", help="Text file that replaces the agent's system prompt."),
    ] = None
    history: Annotated[
        History,
        Option(
            flag="--history",
            title="earlier turns in the prompt",
            help="Earlier turns that a prompt includes: own (the agent's number), all, or a number.",
        ),
    ] = "own"
    """Turns before the present one that the prompts of an episode have; a change holds from the next reset on."""
    wordings: Annotated[
        bool,
        Option(
            flag="--wordings",
            help="Each training episode draws a wording of the agent's; evaluations have the last.",
        ),
    ] = False
    """Else all observations are in the agent's first wording."""
    read_depth: Annotated[
        ReadDepth,
        Option(
            flag="--read-depth",
            help="Layers of the model that an adapter on the LM head alone reads: auto (measured), all, or a number.",
        ),
    ] = "auto"
    """``auto`` becomes a number or ``all`` before the first batch; other ways of training read all layers."""
    reading: Literal["auto", "float32", "bfloat16"] = "auto"
    """Type in which the fixed trunk below an adapter on the LM head alone reads prompts, from weights in float32.
    ``auto`` is measured together with `read_depth`, unless `dtype` is given; where nothing is measured, float32."""
    n_envs: Annotated[
        Count,
        Option(
            flag="--envs",
            title="environments",
            help="Environments stepped together. A change drops the current batch.",
        ),
    ] = 128
    ranks: Annotated[
        int,
        Meta(ge=1, le=256),
        Option(
            flag="--ranks",
            help="Processes that play and train together, each with its share of the environments.",
        ),
    ] = 1
    max_turns: Count | None = None
    """Turns after which an episode is truncated; by default the environment's own limit, or 200."""
    max_failures: Annotated[int, Meta(ge=1, le=1000)] = MAX_FAILURES
    """Episodes in a row, by their numbers, that environment or agent may fail in before the run ends."""
    device: Annotated[Device, Option(flag="--device", help="Where the model runs.")] = "auto"
    """auto: cuda, then mps, then cpu."""
    threads: Annotated[
        Annotated[int, Meta(ge=1)] | None,
        Option(
            flag="--threads",
            help="Threads that compute. Not given: one for a small model, else all cores.",
        ),
    ] = None
    checkpoint_every_s: NonNegative = 60.0
    """Seconds of playing and training between two checkpoints, at least; each follows an update."""
    track: Annotated[
        Tracker | None,
        Option(
            flag="--track",
            help="Send the figures to a tracker too; needs the extra of that name.",
        ),
    ] = None
    keep_checkpoints: Annotated[int, Meta(ge=0, le=1000)] = 4
    """Checkpoints that are kept to branch off from: the first, the latest, and others far apart. 0: none more."""
    episodes: Annotated[
        Count | None, Option(flag="--episodes", help="End after this many episodes.")
    ] = None
    minutes: Annotated[
        Positive | None,
        Option(
            flag="--minutes",
            help="End after this many minutes of play and PPO; loading and warm start do not count.",
        ),
    ] = None
    final_episodes: Annotated[
        int,
        Meta(ge=0),
        Option(
            flag="--final-episodes",
            help="Episodes of the evaluation at the end; 0 skips it.",
        ),
    ] = 200
    """Sampled, on seeds that training does not see."""
    final_s: Positive = 30.0
    """Seconds after which that evaluation begins no further episode; where those under way take three times as long, it
    has no result."""
    full_finetuning: bool | None = None
    """Train all weights, or a LoRA adapter; by default the model's registry entry decides."""
    dtype: Annotated[
        Dtype | None,
        Option(flag="--dtype", help="Type of the weights; bfloat16 needs an adapter."),
    ] = None
    """By default the model's registry entry decides, else float32."""
    resume: Annotated[
        bool, Option(flag="--resume", help="Resume from the checkpoint in --run-dir.")
    ] = False
    parent: Annotated[
        str | None,
        Option(
            flag="--from",
            help="Branch off: a new run from a checkpoint, RUN or RUN@UPDATE; options that you give override its "
            "settings.",
        ),
    ] = None
    """FOLDER@UPDATE of the run that this one branched off from; None if it is no branch."""
    sft_warm_start: Annotated[
        bool,
        Option(flag="--sft-warm-start", help="Train on demonstrations before the first episode."),
    ] = False
    """Not again on `resume`."""
    sft_data: Annotated[
        str | None,
        Option(
            flag="--sft-data",
            help="File of demonstrations. Not given: the one that ships for the agent.",
        ),
    ] = None
    sft: SFTSettings = field(default_factory=SFTSettings)
    """Settings of every warm start of the run."""
    dpo: DPOSettings = field(default_factory=DPOSettings)
    """Settings of every training on preferences."""
    ppo: PPOConfig = field(default_factory=PPOConfig)
    """Settings of PPO."""
    generation: GenerationConfig = field(default_factory=GenerationConfig)
    """Settings of sampling."""
    lora: LoraConfig = field(default_factory=LoraConfig)
    """Settings of the adapter, used when `full_finetuning` is false."""
    measured: dict[str, str] = field(default_factory=dict)
    """Settings that follow from the first batch's episodes, by their dotted names, with the reason for their values; an
    empty one: not measured yet."""

    @property
    def trains_head_alone(self) -> bool:
        """Whether, by the settings, an adapter on the LM head alone is what is trained."""
        return self.lora.layers == "head" and not self.full_finetuning

    @property
    def origin(self) -> str:
        """Where the run comes from, for people; empty: it is no branch."""
        folder, _, update = (self.parent or "").rpartition("@")
        return f"branch of {PurePath(folder).name} at update {update}" if folder else ""

    @property
    def finds_history(self) -> bool:
        """True until the number of earlier turns that help is measured; until then prompts have none."""
        return self.history == "own" and self.measured.get("history") == ""

    @property
    def finds_depth(self) -> bool:
        """True until the layer is measured at which the game is seen."""
        return self.read_depth == "auto" and self.trains_head_alone and self.ranks == 1

    @property
    def cuts_episodes(self) -> bool:
        """True if batches end in the middle of episodes. The first, measured batch never does, and without a critic
        none does, as nothing predicts the rest of an episode."""
        may_cut = not self.ppo.whole_episodes and self.ppo.has_critic
        # The number of earlier turns may take several batches to find.
        return may_cut and all(why for name, why in self.measured.items() if name != "history")


C = TypeVar("C", bound=Struct)


def from_dict(kind: type[C], values: dict[str, Any]) -> C:
    """Settings of a kind from a plain dictionary.

    Raises:
        ConfigError: a name is unknown, a value outside its range, or a number not finite.
    """
    try:
        settings = msgspec.convert(values, kind)
    except msgspec.ValidationError as error:
        raise ConfigError(f"Setting refused in {kind.__name__}: {error}.") from error
    # JSON has no infinity: `config.json` would not be readable again.
    for name, value in flat(settings).items():
        if isinstance(value, float) and not math.isfinite(value):
            raise ConfigError(f"Setting refused in {kind.__name__}: {name} takes a finite number.")
    return settings


def flat(settings: Struct) -> dict[str, Any]:
    """Settings by their dotted names."""
    values: dict[str, Any] = {}
    for name, value in msgspec.structs.asdict(settings).items():
        if isinstance(value, Struct):
            values |= {f"{name}.{key}": each for key, each in flat(value).items()}
        else:
            values[name] = value
    return values


def value_of(config: RunConfig, name: str) -> Value:
    """The value of a setting by its dotted name."""
    value: Value = flat(config)[name]
    return value


def turns_kept(history: History, own: History | None) -> int | None:
    """Turns before the present one that a prompt has, None for all, by a run's setting and the agent's own number."""
    wanted = own if history == "own" else history
    # Where neither says so, a conversation is whole: what helps is known to a run that has played.
    return wanted if isinstance(wanted, int) else None


@cache
def setting_types(kind: type[Struct] = RunConfig) -> dict[str, Any]:
    """The type of each setting by its dotted name; not to be changed, as all callers share it."""
    types: dict[str, Any] = {}
    for each in msgspec.structs.fields(kind):
        if isinstance(each.type, type) and issubclass(each.type, Struct):
            types |= {
                f"{each.name}.{name}": inner for name, inner in setting_types(each.type).items()
            }
        else:
            types[each.name] = each.type
    return types


def in_sections(named: Mapping[str, Any], known: dict[str, Any]) -> dict[str, Any]:
    """`known` with settings by their dotted names put into its sections, which are made if they are not there."""
    for name, value in named.items():
        *path, key = name.split(".")
        section = known
        for part in path:
            section = section.setdefault(part, {})
        section[key] = value
    return known


MEASURED = (
    "ppo.gamma",
    "ppo.lam",
    "ppo.reward_scale",
    "ppo.batch_size",
    "ppo.whole_episodes",
    "n_envs",
)
"""Settings that a run's first batch decides, unless they are given."""


OPTIONS: dict[str, Option] = {
    name: mark
    for name, kind in setting_types().items()
    for mark in getattr(kind, "__metadata__", ())
    if isinstance(mark, Option)
}
"""The words of each setting that has some, by its dotted name."""

_SOUGHT = ("ppo.update_kl", "generation.temperature", "n_envs", "ppo.learner", "ppo.batch_size")
"""What people come to change."""
LIVE = {name: OPTIONS[name] for name in _SOUGHT} | {
    name: option for name, option in OPTIONS.items() if option.title
}
"""Settings that a person may change live, those that are sought first; all others stay for the whole run."""

FINAL = {f"ppo.{name}": f"ppo.{name}_final" for name in SCHEDULED}
"""Where a setting that moves along a line ends."""


class Change(Struct, frozen=True):
    """A setting that was changed live."""

    before: Value
    """As the run began with it."""
    after: Value
    """As it is now."""


def with_final_values(changes: Mapping[str, Value]) -> dict[str, Value]:
    """Changes, with the final values that follow from them."""
    finals = {FINAL[name]: value for name, value in changes.items() if name in FINAL}
    return {**finals, **changes}


def changed(config: RunConfig, changes: Mapping[str, Value]) -> RunConfig:
    """The settings after changes, all of them or none.

    Raises:
        ConfigError: a setting cannot change live, or its value is outside its range; the message names it.
    """
    for name in changes:
        if name not in LIVE:
            raise ConfigError(
                f"{name} cannot be changed while the run is under way; these can: {', '.join(LIVE)}."
            )
    return from_dict(RunConfig, in_sections(changes, msgspec.to_builtins(config)))


def changes_since(began: RunConfig, now: RunConfig) -> dict[str, Change]:
    """The differences between the settings at a run's beginning and now."""
    before = flat(began)
    after = flat(now)
    pairs = {name: Change(before[name], after[name]) for name in LIVE}
    return {name: change for name, change in pairs.items() if change.before != change.after}


def changes_to_restore(config: RunConfig, earlier: Mapping[str, Change]) -> dict[str, Value]:
    """Changes that a resumed run has to make again: those of settings that were not given anew."""
    given = flat(config)
    return {
        name: change.after
        for name, change in earlier.items()
        if name in LIVE and given[name] == change.before
    }


def with_measured(
    config: RunConfig, values: Mapping[str, Value], reasons: Mapping[str, str]
) -> RunConfig:
    """The settings with the values that were measured, and the reasons for all that ever were.

    No other ones are to be measured any more, but for the number of earlier turns; the depth comes before all others.
    """
    known = in_sections(values, msgspec.to_builtins(config))
    is_depth = "read_depth" in values
    measured = {
        name: why for name, why in config.measured.items() if why or name == "history" or is_depth
    }
    return from_dict(RunConfig, known | {"measured": {**measured, **reasons}})
