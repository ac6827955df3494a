"""Settings by which a model plays and is not trained: a run's policy or another model."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from llamagym_tui import model_registry, run_store
from llamagym_tui.config import Device, Dtype, RunConfig, from_dict
from llamagym_tui.setup import catalog
from llamagym_tui.setup.branch import UPDATE_DIR
from llamagym_tui.setup.run_config import holds_adapter, names_actions

KEPT_SETTINGS = (
    "env",
    "observation_ranges",
    "system_prompt",
    "history",
    "max_turns",
    "parallel_envs",
)
"""Settings that an evaluation takes from a run if it plays the same agent."""


def evaluated_config(
    agent_spec: str,
    model: str,
    *,
    env: dict[str, Any] | None = None,
    own: dict[str, Any] | None = None,
    assigned: Mapping[str, Any] | None = None,
    temperature: float | None = None,
    base: str | None = None,
    system_prompt: str | None = None,
    history: str | int | None = None,
    n_envs: int | None = None,
    seed: int | None = None,
    device: Device | None = None,
    dtype: Dtype | None = None,
    threads: int | None = None,
) -> RunConfig:
    """The settings by which a model is evaluated: those of its run, if it is the folder or model folder of one, else
    those of a new run.

    Nothing is trained, so no adapter is wanted; one that a run has trained is part of its model.

    Args:
        model: registry name, hub id, local path, run folder, or an endpoint's address.
        env: keyword arguments of the environment, on top of those of a run folder that has the same agent.
        own: settings that the agent names for its runs, where the model is of no run.
        assigned: further settings, in sections, which come before those of the run and after the arguments below.
        temperature: of sampling. None: a run's, or the model's.
        base: where the base model of an adapter is. None: where its folder says.
        system_prompt: None: that of a run folder at its end, if it has the same agent; else the agent's.
        history: turns before the present one that a prompt has. None: as with the system prompt.
        n_envs: environments stepped together. None: the default of a run; so it is with the device and the threads.
        dtype: of the weights. None: a run's, or the model's.
        seed: no training run with the same seed sees the same environments. None: the default of a run.
    """
    folder = Path(model).expanduser()
    is_model_dir = folder.name in (run_store.MODEL_DIR, run_store.GOOD_MODEL_DIR)
    if is_model_dir or folder.name.startswith(UPDATE_DIR):
        folder = folder.parent
    is_run = run_store.is_run(folder)
    defaults = model_registry.with_defaults(
        {**(own or {}), "agent": agent_spec, "run_dir": ""}, model
    )
    trained = run_store.last_settings(folder) if is_run else from_dict(RunConfig, defaults)
    entry = model_registry.find(model)
    dtype = dtype or trained.dtype or (entry.dtype if entry else "float32")
    assigned = dict(assigned or {})
    kept: dict[str, Any] = {}
    if catalog.is_same_agent(trained.agent, agent_spec):
        kept = {name: getattr(trained, name) for name in KEPT_SETTINGS}
    sampling = msgspec.to_builtins(trained.generation)
    writes_actions = entry is not None and entry.full_finetuning
    is_said = is_run or "policy" in (own or {}).get("generation", {})
    if not (writes_actions or is_said) and names_actions(catalog.find_agent(agent_spec, env)):
        sampling["policy"] = "score"
    sampling |= assigned.pop("generation", {})
    if temperature is not None:
        sampling["temperature"] = temperature
    given = {
        "base": base,
        "system_prompt": system_prompt,
        "history": history,
        "n_envs": n_envs,
        "seed": seed,
        "device": device,
        "threads": threads,
    }
    settings = {
        **kept,
        "agent": agent_spec,
        "model": model,
        "run_dir": "",
        "mode": "inference",
        "generation": sampling,
        "dtype": dtype,
        # No adapter is added to a whole model; one that the model has is a part of it.
        "full_finetuning": None if holds_adapter(model) or dtype != "float32" else True,
        "env": {**kept.get("env", {}), **(env or {})},
        **assigned,
    }
    settings |= {name: value for name, value in given.items() if value is not None}
    return from_dict(RunConfig, settings)
