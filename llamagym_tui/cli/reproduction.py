"""What was done in a run, and the command that does it again: by PPO, with or without a warm start, by `sft` or `dpo`.

What was changed or taught while a run was under way no command repeats; that is said beside it.
"""

import shlex
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

import msgspec

from llamagym_tui.config import RunConfig, flat
from llamagym_tui.model_registry import with_defaults
from llamagym_tui.protocol.events import WarmStartFinished
from llamagym_tui.setup.run_config import trains_an_adapter_of_its_own
from llamagym_tui.state.reduce import warm_start_text
from llamagym_tui.state.run import RunState
from llamagym_tui.state.run_summary import differences

BY_OPTIONS = ("sft_warm_start", "sft_data", "parent", "observation_ranges", "measured_threads")
"""Settings that the command has as options, or that follow from the others."""


def usual_config(config: RunConfig) -> RunConfig:
    """The defaults of a run with the same agent and model."""
    given = {"agent": config.agent, "model": config.model, "run_dir": config.run_dir}
    return msgspec.convert(with_defaults(given, config.model), RunConfig)


def is_taught(config: RunConfig) -> bool:
    """Whether a run was begun by `sft` or `dpo`, and not by `train`."""
    return config.sft_data is not None and not config.sft_warm_start


def methods(state: RunState, warm_starts: Sequence[WarmStartFinished]) -> str:
    """How the model of a run was trained, in words."""
    words = {
        "sft": "supervised training on demonstrations (SFT)",
        "dpo": "preferences from a person's corrections (DPO)",
    }
    found = [words[each.method] for each in warm_starts]
    if state.updates or not found:
        found.append("reinforcement learning (PPO)")
    return ", then by ".join(dict.fromkeys(found))


def warm_start_lines(state: RunState, warm_starts: Sequence[WarmStartFinished]) -> list[str]:
    """What the policy was taught, in lines; those that the command does not repeat say so."""
    repeated = 1 if state.config.sft_warm_start or is_taught(state.config) else 0
    lines = [warm_start_text(each) for each in warm_starts]
    more = "; made while the run was under way, so the command does not repeat it"
    return [*lines[:repeated], *(f"{line}{more}" for line in lines[repeated:])]


def command(state: RunState, warm_starts: Sequence[WarmStartFinished]) -> str:
    """The command that does again what a run did; what was changed while it was under way, it does not repeat.

    Args:
        warm_starts: those of the run, in order.
    """
    config = state.config
    if not is_taught(config):
        settings = _settings(config, "sft" if config.sft_warm_start else "")
        if config.sft_warm_start:
            settings += ["--sft-warm-start", *_demonstrations(config)]
        if config.parent is not None:
            settings += ["--from", config.parent]
        return shlex.join(["llamagym-tui", "train", *settings, *_limit(state)])
    method = warm_starts[0].method if warm_starts else "sft"
    evaluated = next((each.episodes for each in state.evaluations if each.greedy), 0)
    settings = [*_settings(config, method), *_demonstrations(config), "--episodes", str(evaluated)]
    if not state.updates:
        return shlex.join(["llamagym-tui", method, *settings])
    folder = ["--run-dir", Path(config.run_dir).name]
    first = shlex.join(["llamagym-tui", method, *settings, *folder])
    then = shlex.join(["llamagym-tui", "train", "--resume", *folder, *_limit(state)])
    return f"{first} && {then}"


def _settings(config: RunConfig, method: str) -> list[str]:
    """Agent, model, and every setting that is not as usual; `method` of a training on demonstrations, if it has one."""
    words = [config.agent, "--model", config.model]
    own = differences([config, usual_config(config)], [{}, {}]).keys() - config.measured.keys()
    own -= {*BY_OPTIONS}
    if trains_an_adapter_of_its_own(config):
        # Its default depends on the agent, whose file may not be here any more.
        own |= {"lora.layers"}
    else:
        own -= {name for name in flat(config) if name.startswith("lora.")}
    if is_taught(config):
        own -= {"episodes", "minutes"}  # of what came after
    used = {method} if method else set()
    for section in {"sft", "dpo"} - used:
        own -= {name for name in flat(config) if name.startswith(f"{section}.")}
    for name, value in flat(config).items():
        if name == "env":
            for key, each in value.items():
                words += ["--env", f"{key}={each}"]
        elif name == "system_prompt" and value is not None:
            words += ["--prompt-file", "prompt.txt"]
        elif name in own:
            text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
            words += ["--set", f"{name}={text}"]
    return words


def _limit(state: RunState) -> list[str]:
    """As many episodes as were played, where the run has no limit of its own."""
    config = state.config
    if config.episodes is None and config.minutes is None:
        return ["--episodes", str(max(1, state.episodes))]
    if not is_taught(config):
        return []  # it stands among its settings
    if config.episodes is not None:
        return ["--episodes", str(config.episodes)]
    return ["--minutes", f"{config.minutes:g}"]


def _demonstrations(config: RunConfig) -> list[str]:
    """The option that names the file of demonstrations; none for the one that ships for the agent."""
    if config.sft_data is None or Path(config.sft_data).parent == Path(
        str(files("llamagym_tui.sft_data"))
    ):
        return []
    return ["--sft-data", config.sft_data]
