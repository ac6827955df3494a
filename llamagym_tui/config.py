"""Every setting of a run, frozen, with unit, range and default; validated once, by `from_dict`. And the figures of an
update, which the engine computes and every screen shows.

Knows nothing of torch: the UI process reads and shows these too. `msgspec` carries them over the wire and into
``config.json``.
"""

import math
from collections.abc import Mapping
from functools import cache
from pathlib import PurePath
from pkgutil import get_data
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta, Struct, field

from llamagym_tui.errors import ConfigError

Mode = Literal["train", "inference"]
"""Whether episodes are collected for PPO (``train``) or only played (``inference``)."""
Device = Literal["auto", "cpu", "cuda", "mps"]
Dtype = Literal["float32", "bfloat16"]
"""Type in which a model's weights are held; an adapter and the value head are always float32."""
Precision = Literal["fp32", "bf16"]
"""At which linear layers multiply; weights, attention, LM head, log-probabilities and values are fp32 in both."""
OnCollapse = Literal["warn", "rollback"]
Credit = Literal["turn", "token"]
"""What has a value and an advantage of its own: a turn, or each token of its reply."""
KlForm = Literal["reward", "loss"]
"""Where the KL to the reference is charged."""
ParallelEnvs = Literal["auto", "on", "off"]
"""Whether environments step at the same time, each in a process of its own; ``auto``: where a step takes over 5 ms."""

LARGEST = 1e30
"""Size of a number that is taken from a person: one that is much larger could not be read back from a run's log."""
Number = Annotated[float, Meta(ge=-LARGEST, le=LARGEST)]
NonNegative = Annotated[float, Meta(ge=0, le=LARGEST)]
Positive = Annotated[float, Meta(gt=0, le=LARGEST)]
Fraction = Annotated[float, Meta(ge=0, le=1)]
LARGEST_SEED = 2**62
"""Generators take no larger ones, and an evaluation's seed is the run's and some more."""
Count = Annotated[int, Meta(ge=1, le=LARGEST_SEED)]
MAX_FAILURES = 32
History = Literal["own", "all"] | Annotated[int, Meta(ge=0, le=LARGEST_SEED)]
"""Turns before the present one that a prompt has; ``own``: the agent's number, ``all``: the whole conversation."""
PolicyKind = Literal["generate", "score"]
"""Whether replies are sampled token by token, or chosen whole among the admissible ones by their scores."""
Normalization = Literal["sum", "token", "word"]
"""What the summed log-probability of a reply is divided by: nothing, its number of tokens, or of words."""


class GenerationConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How replies are sampled. There is no top-p or top-k: PPO scores the distribution that was sampled."""

    max_new_tokens: Count = 32
    """Tokens in a reply at most, the end-of-turn token included."""
    temperature: Positive = 1.0
    """Divides the logits, or the scores, in sampling and in the update alike."""
    policy: PolicyKind = "generate"
    """``generate``: free text, token by token. ``score``: one of the canonical replies, by softmax over scores."""
    normalization: Normalization = "sum"
    """Of scores: ``sum`` (GLAM) favours short replies, ``token`` and ``word`` (TWOSOME) do not; else unused."""
    server: str | None = None
    """Address of an OpenAI-compatible server that samples the replies, as ``http://localhost:8000/v1``, or
    ``generate_batch``: transformers' continuous batching, for large models on a GPU. None: the learner's own way."""


class PPOConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Proximal policy optimisation over turns. Source: arXiv:1707.06347."""

    batch_size: Count = 1024
    """Turns collected for an update, at least."""
    whole_episodes: bool = True
    """Whether episodes under way are finished before an update. False: they are cut off, completed by the value of
    their next observation, and go on in the next batch; only where prompts have no earlier turns (`history` 0)."""
    mini_batch_size: Count = 256
    """Turns, about, of a minibatch; episodes are kept whole."""
    gradient_accumulation_steps: Count = 1
    """Minibatches for one optimizer step, as if they were one."""
    epochs: Count = 2
    """Passes over a batch."""
    lr: Positive = 5e-4
    """Adam's learning rate of the policy at the first update."""
    lr_final: NonNegative = 1e-4
    """Learning rate after `decay_updates` updates, reached along a line and kept."""
    lr_warmup_updates: Annotated[int, Meta(ge=0)] = 0
    """Updates of the policy at first that are made at less than the scheduled rate, rising in equal steps."""
    value_lr: Positive = 3e-3
    """Learning rate of the value head."""
    decay_updates: Count = 100
    """Updates over which `lr`, `kl_coef` and `entropy_coef` move to their final values."""
    clip_range: Positive = 0.2
    """Bound on the ratio of new to old probability: 1 ± clip_range."""
    gamma: Fraction = 1.0
    """Discount per environment step, a turn unless its action takes several; between the tokens of a reply there is
    none."""
    lam: Fraction = 1.0
    """Lambda of GAE per turn; between the tokens of a reply it is 1."""
    credit: Credit = "turn"
    """What has a value and an advantage of its own: a turn, or each sampled token of its reply. A reply that is chosen
    whole, by score, is a single decision under both."""
    value_coef: Fraction = 0.5
    """Weight of the value loss in the model's own gradient; the value head always sees all of it. 0: detached."""
    kl_coef: NonNegative = 0.02
    """Nats to reward: weight of the KL to the reference, charged by `kl_form`."""
    kl_coef_final: NonNegative = 0.01
    """`kl_coef` after `decay_updates` updates."""
    kl_form: KlForm = "reward"
    """``reward``: log(policy/reference) when sampled (k1) is subtracted from the reward; ``loss``: the k3 estimate of
    KL(policy||reference) at the sampled tokens is added to the loss, and has a gradient."""
    kl_target: Positive | None = None
    """Nats per token at which the KL to the reference is held: `kl_coef` is where its weight begins, and each update
    adapts it. None: the weight goes from `kl_coef` to `kl_coef_final`, whatever the KL is."""
    kl_gain: Fraction = 0.1
    """Share of the KL's error, itself counted up to 20 %, by which an update adapts the weight."""
    entropy_coef: NonNegative = 0.1
    """Weight of the entropy of the *action* distribution: where admissible replies part, over those tokens."""
    entropy_coef_final: NonNegative = 0.02
    """`entropy_coef` after `decay_updates` updates."""
    reward_scale: Positive | None = 1.0
    """Factor on the environment's reward. None: one over the standard deviation of the discounted returns, from each
    turn on, of all episodes trained on so far. Penalties are not scaled."""
    parse_penalty: NonNegative = 0.5
    """Subtracted from the reward of a turn whose reply names no action."""
    max_grad_norm: Positive = 1.0
    """Gradients are scaled down to this norm."""
    target_kl: Positive | None = None
    """Nats; the epochs of an update end early once approximate KL passes it. None: never."""
    whiten_advantages: bool = True
    """Whether advantages get mean 0 and standard deviation 1 over the whole batch."""
    critic_warmup_updates: Annotated[int, Meta(ge=0)] = 1
    """Updates at the start that train the value head alone."""

    def __post_init__(self) -> None:
        """Refuse what no single setting shows.

        Raises:
            ConfigError: a KL is to be held at a target by a weight of 0, which no factor changes.
        """
        if self.kl_target is not None and not self.kl_coef:
            raise ConfigError(
                "kl_target needs a kl_coef above 0, from which the weight of the KL is adapted."
            )


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
    max_grad_norm: Positive = 1.0
    """Gradients are scaled down to this norm."""
    max_examples: Count | None = None
    """Demonstrations used, drawn at random by the run's seed. None: all of them."""


class DPOSettings(SFTSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Learning from replies that a person replaced; what `SFTSettings` say of conversations holds for pairs."""

    lr: Positive = 3e-6
    """Adam's learning rate after `warmup`; far lower than SFT's, or the preferred action is taken everywhere."""
    beta: Positive = 0.1
    """How much a change from the policy before counts: the higher, the nearer to it the policy stays."""


class LoraConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Low-rank adapters through PEFT; the reference policy is the model with the adapter disabled."""

    r: Count = 16
    """Rank."""
    alpha: Positive = 32.0
    """Scale: the adapter's output is multiplied by alpha / r."""
    target_modules: str | list[str] = "all-linear"
    """Modules that get an adapter, as PEFT names them."""


class RunConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One run: what plays what, how it is trained, and when it ends."""

    agent: str
    """Agent name, ``path.py[:Class]`` or Gymnasium id."""
    env: dict[str, bool | int | float | str | None] = field(default_factory=dict)
    """Keyword arguments of ``gymnasium.make``, on top of the agent's own."""
    observation_ranges: list[tuple[Number, Number]] | None = None
    """Least and largest number that the generic agent shows as 0 and 99, for each of an observation's numbers. None: as
    the agent has them."""
    model: str = "bundled"
    """Registry name, hub id or local path."""
    run_dir: str
    """Folder of the run; made if absent."""
    seed: Annotated[int, Meta(ge=0, le=LARGEST_SEED)] = 0
    """Seeds environments, sampling and minibatches."""
    mode: Mode = "train"
    """Mode at the start."""
    system_prompt: str | None = None
    """Replaces the agent's own system prompt. None: the agent's own."""
    history: History = "own"
    """Turns before the present one that the prompts of an episode have; a change holds from the next reset on."""
    n_envs: Count = 128
    """Environments stepped together."""
    ranks: Annotated[int, Meta(ge=1, le=256)] = 1
    """Processes that play and train together, each with its share of the environments."""
    shard: bool = False
    """Whether each rank keeps only its part of the weights, for models that do not fit into one process."""
    parallel_envs: ParallelEnvs = "auto"
    """Whether each has a process of its own, so that slow ones step at the same time; else they step in a row."""
    max_turns: Count | None = None
    """Turns after which an episode is truncated. None: the environment's own limit, or 200 where it has none."""
    max_failures: Annotated[int, Meta(ge=1, le=1000)] = MAX_FAILURES
    """Episodes in a row, by their numbers, that environment or agent may fail in before the run ends."""
    device: Device = "auto"
    """Where the model runs. auto: cuda, then mps, then cpu."""
    threads: Annotated[int, Meta(ge=1)] | None = None
    """That compute: of a small model a part of each batch each, of a larger one each operation. None: measured."""
    measured_threads: Annotated[int, Meta(ge=1)] | None = None
    """What that measurement chose, so that a resumed run computes as before; on fewer cores it is made again."""
    checkpoint_every_s: NonNegative = 60.0
    """Seconds of playing and training between two checkpoints, at least; each follows an update."""
    keep_checkpoints: Annotated[int, Meta(ge=0, le=1000)] = 4
    """Checkpoints that are kept to branch off from: the first, the latest, and others far apart. 0: none more."""
    episodes: Count | None = None
    """The run ends after this many episodes. None: no limit."""
    minutes: Positive | None = None
    """The run ends after this many minutes of playing and training, loading excluded. None: no limit."""
    final_episodes: Annotated[int, Meta(ge=0)] = 200
    """Sampled episodes, on seeds that training does not see, of the evaluation that `train` ends with. 0: none."""
    final_s: Positive = 30.0
    """Seconds after which it begins no further episode; where those under way take three times as long, it has no
    result."""
    full_finetuning: bool | None = None
    """True: all weights are trained; False: a LoRA adapter. None: the model's registry entry decides."""
    dtype: Dtype | None = None
    """Type of the weights; bfloat16 wants an adapter. None: the model's registry entry decides, else float32."""
    precision: Precision = "fp32"
    """Of products: ``bf16`` saves time on processors that multiply it in hardware, and rounds."""
    on_collapse: OnCollapse = "warn"
    """What happens when the policy has collapsed: only a warning, or a roll back to the last good checkpoint, at most
    three times in a run."""
    resume: bool = False
    """Whether to go on from the checkpoint in `run_dir`."""
    parent: str | None = None
    """FOLDER@UPDATE of the run that it branched off from, and where. None: it is no branch."""
    sft_warm_start: bool = False
    """Whether the policy is trained on demonstrations before its first episode; not again on `resume`."""
    sft_data: str | None = None
    """File of demonstrations for it. None: the one that ships for the agent."""
    sft: SFTSettings = field(default_factory=SFTSettings)
    """Settings of every warm start of the run."""
    dpo: DPOSettings = field(default_factory=DPOSettings)
    """Settings of those that learn from preferences."""
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
    def origin(self) -> str:
        """Where the run comes from, for people; empty: it is no branch."""
        folder, _, update = (self.parent or "").rpartition("@")
        return f"branch of {PurePath(folder).name} at update {update}" if folder else ""

    @property
    def cuts_episodes(self) -> bool:
        """Whether batches end in the middle of episodes; the first one that is measured never does."""
        return not self.ppo.whole_episodes and all(self.measured.values())


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
        inner = flat(value).items() if isinstance(value, Struct) else None
        values |= {name: value} if inner is None else {f"{name}.{key}": each for key, each in inner}
    return values


Value = bool | int | float | str | None
"""What a setting can be changed to."""

MEASURED = ("ppo.gamma", "ppo.lam", "ppo.reward_scale", "ppo.batch_size", "ppo.whole_episodes")
"""Settings that a run's first batch decides, unless they are given."""


class LiveSetting(Struct, frozen=True):
    """What a setting that may change live is, in words."""

    title: str
    meaning: str


LIVE = msgspec.json.decode(
    get_data("llamagym_tui", "live_settings.json") or b"", type=dict[str, LiveSetting]
)
"""Settings that may change live, the most used first; all others stay for the whole run."""

FINAL = {name: f"{name}_final" for name in ("ppo.lr", "ppo.kl_coef", "ppo.entropy_coef")}
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
    now = from_dict(RunConfig, in_sections(changes, msgspec.to_builtins(config)))
    if "ppo.kl_coef" in changes and now.ppo.kl_target is not None:
        raise ConfigError(
            "ppo.kl_coef is adapted by itself while there is a ppo.kl_target; change that, or set it to None."
        )
    return now


def value_of(config: RunConfig, name: str) -> Value:
    """The value of a setting by its dotted name."""
    value: Value = flat(config)[name]
    return value


def changes_since(began: RunConfig, now: RunConfig) -> dict[str, Change]:
    """What differs between the settings at a run's beginning and those of now."""
    pairs = {name: Change(value_of(began, name), value_of(now, name)) for name in LIVE}
    return {name: change for name, change in pairs.items() if change.before != change.after}


def changes_to_restore(config: RunConfig, earlier: Mapping[str, Change]) -> dict[str, Value]:
    """Changes that a resumed run has to make again: those of settings that were not given again meanwhile."""
    known = {name: change for name, change in earlier.items() if name in LIVE}
    return {
        name: change.after
        for name, change in known.items()
        if value_of(config, name) == change.before
    }


def with_measured(
    config: RunConfig, values: Mapping[str, Value], reasons: Mapping[str, str]
) -> RunConfig:
    """The settings with the values that were measured; no other ones are to be measured any more."""
    known = in_sections(values, msgspec.to_builtins(config))
    return from_dict(RunConfig, known | {"measured": dict(reasons)})


def turns_kept(history: History, own: int | None) -> int | None:
    """Turns before the present one that a prompt has, None for all, by a run's setting and the agent's own number."""
    return {"own": own, "all": None}[history] if isinstance(history, str) else history


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


FIGURES_OF_A_RUN = ("known_prompts", "tokens_per_s", "episodes_per_s", "rollout_s")
"""Those of the rollout before an update, which only a run knows."""


class UpdateStats(Struct, frozen=True, kw_only=True):
    """Figures of one PPO update; `docs/METRICS.md` has formula and healthy range of each.

    Those with a default are of the rollout before it: the run adds them to what the learner has found.
    """

    mean_return: float
    """Mean undiscounted return of the batch's episodes, without penalties. NaN: none was the policy's own."""
    return_std: float
    """Standard deviation of the same returns."""
    policy_loss: float
    value_loss: float
    approx_kl: float
    """Nats per token between old and new policy (k3)."""
    kl_ref: float
    """Nats per token between policy and reference (k1), before the update."""
    entropy: float
    """Nats per token of the sampling distribution."""
    action_entropy: float
    """Nats per action where admissible replies part; 0 if no reply was of the canonical form."""
    clip_fraction: float
    explained_variance: float
    first_ratio: float
    """Largest |ratio - 1| in the first minibatch; 0 up to rounding, or something is broken."""
    grad_norm: float
    """Mean norm before clipping."""
    parse_failure_rate: float
    """Share of the batch's turns whose reply named no action."""
    episodes: int
    """Episodes in the batch."""
    turns: int
    """Turns in the batch."""
    shortened: int
    """Turns in the batch whose prompt left out older ones, as the model reads no more."""
    known_prompts: float = 0.0
    """Share of the prompts that begin conversations, or follow known ones, that needed no forward of their own."""
    tokens: int
    """Sampled tokens in the batch."""
    tokens_per_s: float = 0.0
    """Sampled tokens over rollout time."""
    episodes_per_s: float = 0.0
    """Episodes over rollout and update time."""
    rollout_s: float = 0.0
    update_s: float
    epochs: float
    """Passes made, one that a stop ended by its share; fewer than configured if target KL stopped
    them."""
    lr: float
    kl_coef: float
    entropy_coef: float
    reward_scale: float
    """Factor on the environment's reward."""
    importance_weight: float
    """Mean over the batch's sampled tokens of their weight in the policy's loss; 1 without a server that samples."""
    skipped_steps: int
    """Optimizer steps skipped because of a non-finite loss or gradient."""


class MovedEpisode(Struct, frozen=True, kw_only=True):
    """The episode that an update moved most, and its turn that was moved most; figures: `docs/METRICS.md`."""

    episode: int | None
    """Index from 0 since the run began. None: it is of no run."""
    episode_return: float
    moved: float
    """Sum over its decisions in the batch of |advantage x (ratio - 1)|."""
    of_batch: float
    """The same over all episodes of the batch."""
    turn: int
    observation: str
    reply: str
    advantage: float
    before: float
    """Probability of the reply when it was sampled."""
    after: float


class WarmStartStats(Struct, frozen=True, kw_only=True):
    """Figures of one training on demonstrations or preferences; see `docs/METRICS.md`."""

    demonstrations: int
    """Conversations, or preference pairs."""
    tokens: int
    """Tokens of the demonstrated or preferred replies, ends included."""
    steps: int
    """Optimizer steps made."""
    first_loss: float
    last_loss: float
    elapsed_s: float
    """TRL's import included."""
    cancelled: bool
    """Whether it was cancelled; what was learnt until then stays."""
