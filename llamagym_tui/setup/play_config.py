"""The settings by which a model plays and is not trained: a run's policy, another model, or one behind an endpoint."""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec

from llamagym_tui.errors import UsageError
from llamagym_tui.game.environment import opponent_of
from llamagym_tui.runs import model_registry, run_store
from llamagym_tui.runs.branch import UPDATE_DIR
from llamagym_tui.runs.model_registry import BUNDLED, is_endpoint
from llamagym_tui.settings import RunConfig, from_dict, in_sections
from llamagym_tui.settings.typed import merged
from llamagym_tui.setup import catalog
from llamagym_tui.setup.run_config import (
    checked_model,
    holds_adapter,
    names_actions,
    with_opponent,
    with_own_settings,
)

KEPT_SETTINGS = (
    "env",
    "observation_ranges",
    "system_prompt",
    "history",
    "max_turns",
    "wordings",
)
"""Settings that an evaluation takes from a run if it plays the same agent."""


def typed_evaluation(agent: str, given: Mapping[str, Any], *, weights: bool = True) -> RunConfig:
    """The settings of an evaluation from those that were typed, by their dotted names.

    Args:
        weights: False if the model's weights need not be there.
    Raises:
        UsageError: there is no such model, or an endpoint's opponent would be a policy.
    """
    given = in_sections(given, {})
    agent_class = catalog.find_agent(agent, given.get("env"))
    given["env"] = with_opponent(agent_class, given.get("env", {}))
    model = given.pop("model", BUNDLED)
    if is_endpoint(model):
        # At the top it would delay the first frame.
        from llamagym_tui.game.endpoint import require_address

        model = str(require_address(model))
        if opponent := opponent_of(agent_class):
            raise UsageError(
                f"An endpoint plays against a policy as its opponent alone: give {opponent} as --model, and "
                f"--env opponent={model}."
            )
    else:
        model = checked_model(model)
        if weights:
            model_registry.require_model(model)
    own = with_own_settings(agent_class, {})
    return evaluated_config(catalog.absolute_spec(agent), model, given, own=own)


def evaluated_config(
    agent_spec: str,
    model: str,
    given: Mapping[str, Any] = MappingProxyType({}),
    *,
    own: Mapping[str, Any] = MappingProxyType({}),
) -> RunConfig:
    """The settings by which a model is evaluated: those of its run, if it is the folder or model folder of one, else
    those of a new run.

    Nothing is trained, so no adapter is wanted; one that a run has trained is part of its model.

    Args:
        model: registry name, hub id, local path, run folder, or an endpoint's address.
        given: settings in sections, which come before those of the run.
        own: settings that the agent names for its runs, for a model of no run.
    """
    folder = Path(model).expanduser()
    is_model_dir = folder.name in (run_store.MODEL_DIR, run_store.GOOD_MODEL_DIR)
    if is_model_dir or folder.name.startswith(UPDATE_DIR):
        folder = folder.parent
    is_run = run_store.is_run(folder)
    defaults = model_registry.with_defaults({**own, "agent": agent_spec, "run_dir": ""}, model)
    trained = run_store.last_settings(folder) if is_run else from_dict(RunConfig, defaults)
    entry = model_registry.find(model)
    dtype = given.get("dtype") or trained.dtype or (entry.dtype if entry else "float32")
    sampling = msgspec.to_builtins(trained.generation)
    writes_actions = entry is not None and entry.full_finetuning
    is_said = is_run or "policy" in own.get("generation", {})
    if not (writes_actions or is_said):
        agent_class = catalog.find_agent(agent_spec, given.get("env"))
        if names_actions(agent_class):
            sampling["policy"] = "score"
    settings: dict[str, Any] = {"generation": sampling}
    if catalog.is_same_agent(trained.agent, agent_spec):
        settings |= {name: getattr(trained, name) for name in KEPT_SETTINGS}
    settings |= {
        "agent": agent_spec,
        "model": model,
        "run_dir": "",
        "mode": "inference",
        # No adapter is added to a whole model; one that the model has is a part of it.
        "full_finetuning": None if holds_adapter(model) or dtype != "float32" else True,
    }
    return from_dict(RunConfig, {**merged(settings, given), "dtype": dtype})
