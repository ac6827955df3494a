"""The settings of a run: those that were given, then the agent's, the model's and the defaults, checked without torch.

A run that is resumed or branched off has the settings of the run that it goes on from, below those that are given.
"""

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import msgspec

from llamagym_tui.errors import UntrustedAgent, UsageError, require_library
from llamagym_tui.game.agent_base import AgentBase
from llamagym_tui.game.environment import OPPONENT, SELF, outside_opponents
from llamagym_tui.game.observed import names_by_turn
from llamagym_tui.runs import branch, model_registry, run_store
from llamagym_tui.runs.model_registry import BUNDLED, is_endpoint, with_defaults
from llamagym_tui.settings import (
    MEASURED,
    UNUSED_BY_HEAD,
    RunConfig,
    from_dict,
    in_sections,
    setting_types,
)
from llamagym_tui.settings.typed import OWN_OPTIONS, has, merged
from llamagym_tui.setup import catalog, trust
from llamagym_tui.user_files import HomelessError, file_text, runs_dir

SETTINGS_OF_HEAD: Mapping[str, Any] = {
    "ppo.entropy_coef": 0.03,
    "ppo.entropy_coef_final": 0.01,
    "ppo.novelty_coef": 0.3,
}
"""Defaults of an adapter on the LM head alone."""


def run_config(
    agent: str | None, given: Mapping[str, Any] = MappingProxyType({}), *, trust_agent: bool = False
) -> RunConfig:
    """Settings of a run.

    Args:
        agent: the spec as typed; None for the agent of the run that is resumed or branched off from.
        given: settings by their dotted names; ``parent`` is RUN[@UPDATE].
        trust_agent: agree to execute an agent file that only the folder of the run names.
    """
    given = in_sections(given, {})
    resume = given.pop("resume", False)
    branch_of = given.pop("parent", None)
    if resume and branch_of:
        raise UsageError(
            "--resume goes on with a run, and --from begins another one; leave one of them out."
        )
    if given.get("run_dir"):
        given["run_dir"] = str(Path(given["run_dir"]).expanduser().absolute())
    if "model" in given:
        given["model"] = checked_model(given["model"])
    wants_other_weights = "lora" in given or given.get("full_finetuning")
    if wants_other_weights and holds_adapter(given.get("model", BUNDLED)):
        raise UsageError(
            f"{given['model']} has an adapter, which is trained as it is: leave lora.* and full_finetuning out, or "
            "merge it first (llamagym-tui export RUN OUT --merge)."
        )
    if agent is not None:
        agent_class = catalog.find_agent(agent, given.get("env"))
        trust.remember_typed(agent)
        given["agent"] = catalog.absolute_spec(agent)
        ranges = getattr(agent_class, "observation_ranges", ())
        given["observation_ranges"] = list(ranges) or None
        if "env" in given:
            given["env"] = with_opponent(agent_class, given["env"])
    if resume:
        return _resumed(given, trust_agent=trust_agent)
    if branch_of:
        return _branch(branch_of, given, trust_agent=trust_agent)
    if agent is None:
        raise UsageError(
            "Name an agent, as in `llamagym-tui train blackjack`; `llamagym-tui agents` lists them."
        )
    return _new(agent_class, given)


def _new(agent_class: type[AgentBase], given: dict[str, Any]) -> RunConfig:
    """Settings of a new run, completed by those of the agent, the model and what is trained.

    Raises:
        UsageError: an adapter on the LM head alone is to write free text.
    """
    given = with_own_settings(agent_class, given)
    given.setdefault("run_dir", "")
    if given.get("sft_warm_start"):
        if given.get("wordings"):
            raise UsageError(
                "Demonstrations have one wording, and the first batch must have all: leave --wordings or "
                "--sft-warm-start out."
            )
        given["sft_data"] = sft_file(agent_class, given)
    given["measured"] = {name: "" for name in MEASURED if not has(given, name)}
    says_history = agent_class.history is not None or given.get("history", "own") != "own"
    if not says_history and _is_one_process(given) and not given.get("sft_warm_start"):
        given["measured"]["history"] = ""
    trains_head = _trains_head_alone(agent_class, given)
    if "lora" in given and not trains_head and _is_fully_trained(given):
        given.setdefault("full_finetuning", False)
    has_head_alone = trains_head or given.get("lora", {}).get("layers") == "head"
    if has_head_alone and given.get("generation", {}).get("policy") == "generate":
        raise UsageError(
            "An adapter on the LM head alone chooses among the legal replies: for free text add "
            "--set lora.layers=all or --set full_finetuning=true."
        )
    # The bundled model has learnt to write actions. Others answer in prose, and the fallback would play for them.
    chooses = has_head_alone or not _is_fully_trained(given)
    if chooses and names_actions(agent_class):
        given = merged({"generation": {"policy": "score"}}, given)
    completed = with_defaults(given, given.get("model", BUNDLED))
    if trains_head:
        completed["full_finetuning"] = False
        # The registry's ranks are for adapters in all layers.
        completed["lora"] = {"layers": "head", "r": None} | given.get("lora", {})
        own = {name: value for name, value in SETTINGS_OF_HEAD.items() if not has(given, name)}
        completed = in_sections(own, completed)
        if "ppo.novelty_coef" in own:
            completed["measured"]["ppo.novelty_coef"] = ""
    return from_dict(RunConfig, completed)


def holds_adapter(model: str) -> bool:
    """True for the folder of an adapter, or of a run that trained one."""
    folders = (Path(model), Path(model) / run_store.MODEL_DIR)
    return any((folder / "adapter_config.json").is_file() for folder in folders)


def _is_fully_trained(settings: Mapping[str, Any]) -> bool:
    """True if all weights are trained, by the settings or the registry's defaults."""
    chosen = settings.get("full_finetuning")
    if chosen is not None:
        return bool(chosen)
    entry = model_registry.find(settings.get("model", BUNDLED))
    return entry is not None and entry.full_finetuning


def _trains_head_alone(agent_class: type[AgentBase], given: Mapping[str, Any]) -> bool:
    """True if a run trains an adapter on the LM head alone.

    It chooses among replies that are known, is trained in one process, and imitates nothing. A model that could be
    trained whole is not, unless a setting is given that has no use otherwise.
    """
    says_otherwise = (
        given.get("full_finetuning")
        or has(given, "sft_data")
        or has(given, "lora.layers")
        or has(given, "lora.target_modules")
        or given.get("generation", {}).get("policy") == "generate"
        or not _is_one_process(given)
    )
    if says_otherwise:
        return False
    if _is_fully_trained(given) and any(has(given, f"ppo.{name}") for name in UNUSED_BY_HEAD):
        return False
    return names_actions(agent_class)


def _is_one_process(given: Mapping[str, Any]) -> bool:
    return given.get("ranks", 1) == 1 and not is_launched()


def names_actions(agent_class: type[AgentBase]) -> bool:
    """True if an agent lists actions, for all turns or for each turn."""
    return names_by_turn(agent_class) or bool(catalog.action_names(agent_class))


def with_own_settings(agent_class: type[AgentBase], given: dict[str, Any]) -> dict[str, Any]:
    """The given settings, completed by those that the agent sets for its runs.

    Raises:
        UsageError: the agent sets something that is no setting of a run.
    """
    for name in agent_class.run_settings:
        if name not in setting_types() or name in OWN_OPTIONS:
            raise UsageError(
                f"{agent_class.__name__}.run_settings has {name!r}, which is no setting of a run."
            )
    return merged(in_sections(agent_class.run_settings, {}), given)


def with_run_dir(config: RunConfig) -> RunConfig:
    """Settings with a folder: the one that was named, else a new one, made at once in the user's data folder.

    What no run can begin with is refused before a folder is made and heavy libraries are loaded.

    Raises:
        UsageError: it cannot have as many ranks.
        ModelLoadError: there is no such model.
        RunStoreError: the run in the folder and the settings do not go together, or a branch cannot be made.
    """
    if ranks_of(config) > 1 and config.trains_head_alone:
        raise UsageError(
            "An adapter on the LM head alone is trained by one process: "
            "leave out --ranks, or add --set lora.layers=all."
        )
    if not config.resume:
        model_registry.require_model(config.model)
    if config.track is not None:
        require_library(config.track, config.track)
    if not config.run_dir:
        folder = run_store.new_run_dir(catalog.agent_name(config.agent))
        config = msgspec.structs.replace(config, run_dir=str(folder.absolute()))
    elif not (is_launched() and os.environ["RANK"] != "0"):
        run_store.RunStore(config.run_dir).check(config)
    if config.parent and not config.resume:
        return branch.begun(config)
    return config


def is_launched() -> bool:
    """True if torchrun started this process together with others."""
    return "TORCHELASTIC_RUN_ID" in os.environ


def ranks_of(config: RunConfig) -> int:
    """The number of processes of a run; raises UsageError if there are fewer environments."""
    size = int(os.environ["WORLD_SIZE"]) if is_launched() else config.ranks
    if config.n_envs < size:
        raise UsageError(f"{size} ranks need an environment each; set --envs to {size} or more.")
    return size


def sft_file(
    agent_class: type[AgentBase], given: Mapping[str, Any], method: Literal["sft", "dpo"] = "sft"
) -> str:
    """The absolute path of the file to train an agent on, which has been checked."""
    from llamagym_tui.demos.training_data import training_data

    data = training_data(catalog.made(agent_class), given.get("sft_data"), method)
    return str(data.path.absolute())


def env_kwargs(assignments: Sequence[str]) -> dict[str, Any]:
    """The keyword arguments that ``--env NAME=VALUE`` gives.

    Numbers, true, false and none are read as such; other words are texts.
    """
    found: dict[str, Any] = {}
    for assignment in assignments:
        name, has_value, text = assignment.partition("=")
        if not has_value or not name.isidentifier():
            raise UsageError(f"--env takes NAME=VALUE, as in --env size=8, not {assignment!r}.")
        word = {"none": "null", "true": "true", "false": "false"}.get(text.lower(), text)
        found[name] = text
        with suppress(ValueError):
            found[name] = msgspec.json.decode(word, type=bool | int | float | None)
    return found


def read_prompt(path: Path) -> str:
    """The prompt in a file, without white space around it. Raises UsageError: it cannot be read as text."""
    try:
        return file_text(path.expanduser()).strip()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"The prompt file {path} cannot be read: {error}.") from error


def checked_model(name: str) -> str:
    """A model's name as the trainer takes it: the absolute path of a local folder or file, or a name of the hub.

    A short name of the registry becomes the hub's. RUN@UPDATE, and the name of a run, become the path of the folder
    that has the model. If a model of the registry, or one of a hub that is on this machine, has the same name as a run,
    the model is meant.

    Raises:
        UsageError: it is the address of an endpoint, whose weights are not here, or no model is there.
    """
    if is_endpoint(name):
        raise UsageError(
            f"{name} is an endpoint, whose weights are not here: it can play, as --model of `eval` and `compare`, "
            "but neither learn nor be watched."
        )
    if model_registry.full_name(name) != name or name == BUNDLED:
        return model_registry.full_name(name)
    path = Path(name).expanduser()
    if path.exists():
        return str(path.absolute())
    _, at, update = name.rpartition("@")
    if at and update.isdecimal():  # no hub id has an @
        run, _, update = branch.branch_point(name).rpartition("@")
        return str(Path(run, f"{branch.UPDATE_DIR}{update}"))
    if _looks_local(name):
        raise UsageError(
            f"There is no model folder {name}; check the path, or see `llamagym-tui models`."
        )
    with suppress(HomelessError):  # without a home there are no runs
        run_dir = runs_dir() / name
        is_known = model_registry.find(name) is not None or model_registry.is_here(name)
        if run_store.is_run(run_dir) and not is_known:
            return str(run_dir.absolute())
    return name


def with_opponent(agent: type[AgentBase], env: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Keyword arguments of an environment, in which an opponent that is a policy has its place: a run's folder, or that
    of a checkpoint.

    Raises:
        UsageError: there is no such opponent, or several policies are named.
    """
    if not env or OPPONENT not in env:
        return None if env is None else dict(env)
    names = str(env[OPPONENT]).split("+")
    outside = outside_opponents(agent, str(env[OPPONENT]))
    if len(outside) > 1:
        raise UsageError(
            f"{', '.join(outside)} are several policies, and one of them can be the opponent: name one."
        )
    places = [_place(agent, name) if name in outside else name for name in names]
    return {**env, OPPONENT: "+".join(places)}


def _place(agent: type[AgentBase], name: str) -> str:
    if name == SELF:
        return name
    if is_endpoint(name):
        from llamagym_tui.game.endpoint import require_address

        require_address(name)
        return name
    place = checked_model(name) if name else ""
    if not place or (model_registry.find(place) is None and not Path(place).exists()):
        raise UsageError(
            f"opponent is one of {', '.join(agent.opponents)}, {SELF}, a run (RUN or RUN@UPDATE), a model, or the "
            f"address of an endpoint, not {name!r}."
        )
    return place


def _looks_local(name: str) -> bool:
    """True for a name that can only be a path; a hub id is ``name`` or ``owner/name``."""
    return (
        name.startswith((".", "/", "~"))
        or "\\" in name
        or name.count("/") > 1
        or Path(name).is_absolute()
    )


def _resumed(given: dict[str, Any], *, trust_agent: bool) -> RunConfig:
    """Settings with which a run goes on."""
    if not given.get("run_dir"):
        raise UsageError(
            "--resume needs --run-dir RUN, the folder of the run; `llamagym-tui runs` lists them."
        )
    folder = Path(given["run_dir"])
    if not run_store.is_run(folder):
        raise UsageError(f"There is no run in {folder} to resume; `llamagym-tui runs` lists them.")
    # None: the prompt of the checkpoint, which may have been changed live.
    now = {"resume": True, "system_prompt": given.get("system_prompt")}
    return _going_on(folder, given | now, trust_agent=trust_agent)


def _branch(spec: str, given: dict[str, Any], *, trust_agent: bool) -> RunConfig:
    """Settings of a new run that goes on from another one's checkpoint."""
    parent = branch.branch_point(spec)
    of_its_own = {
        "run_dir": given.get("run_dir", ""),
        "resume": False,
        "parent": parent,
        "system_prompt": given.get("system_prompt"),
    }
    origin = Path(parent.rpartition("@")[0])
    config = _going_on(origin, given | of_its_own, trust_agent=trust_agent)
    run_store.require_same_policy(config, origin)
    return config


def _going_on(folder: Path, given: dict[str, Any], *, trust_agent: bool) -> RunConfig:
    """The settings of the run in a folder, overridden by those that are given."""
    earlier = run_store.read_config(folder)
    if "agent" not in given:
        try:
            trust.require_trusted(earlier.agent)
        except UntrustedAgent as untrusted:
            if not trust_agent:
                raise
            trust.trust(untrusted)
    elif given["agent"] == earlier.agent:
        del given["observation_ranges"]  # the policy goes on to read numbers as it has learnt to
    settings = merged(msgspec.to_builtins(earlier), given)
    place = settings["model"]
    if _looks_local(place) and not Path(place).expanduser().exists():
        raise UsageError(
            f"The run in {folder} has its model in {place}, where there is none any more; "
            "say where it is now with --model."
        )
    settings["measured"] = {
        name: why for name, why in earlier.measured.items() if not has(given, name)
    }
    return from_dict(RunConfig, settings)
