"""Demonstrations as Minari's data sets, and back: observations and actions are the environment's own, not texts.

Minari comes with the extra ``minari`` and is imported only then; its data sets lie where it keeps them.
"""

import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from gymnasium.vector.utils import batch_space, concatenate, create_empty_array, iterate

from llamagym_tui.demos import files as demo_files
from llamagym_tui.demos.demonstration import Demonstration, Turn
from llamagym_tui.errors import DemoFileError, UsageError, require_library
from llamagym_tui.game.agent_base import AgentBase
from llamagym_tui.game.environment import Env, agent_env
from llamagym_tui.game.observed import observed


def to_set(source: Path, name: str, agent: AgentBase, agent_name: str) -> int:
    """Play the episodes of a file again, from their seeds and actions, into a new data set; returns how many.

    Raises:
        UsageError: the name has no version, or an episode is of another agent.
        DemoFileError: an episode has no seed, or other rewards than when it was recorded, or Minari refuses the set.
    """
    require_library("minari", "minari")
    import minari

    if re.search(r"-v\d+$", name) is None:
        raise UsageError(
            f"Minari's data sets have a version in their names, as {agent_name}/mine-v0; {name} has none."
        )
    demos = demo_files.read(source)
    if others := {demo.agent for demo in demos} - {agent_name}:
        raise UsageError(
            f"{source} has episodes of {', '.join(sorted(others))}, not of {agent_name}; name that agent."
        )
    env = agent_env(agent)
    try:
        buffers = [_replayed(source, demo, env) for demo in demos]
        spaces: Any = {"observation_space": env.observation_space, "action_space": env.action_space}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it recommends to name an author, and more
            minari.create_dataset_from_buffers(
                name, buffers, env=env.spec, data_format="hdf5", **spaces
            )
    except (
        ValueError,
        TypeError,
        AssertionError,
        NotImplementedError,
    ) as error:  # Minari has no errors of its own
        raise DemoFileError(f"Minari does not take {source} as {name}: {error}") from error
    finally:
        env.close()
    return len(buffers)


def from_set(
    name: str, agent: AgentBase, agent_name: str, *, clock: Callable[[], datetime]
) -> Iterator[Demonstration]:
    """The episodes of a data set as an agent would show them and reply; no environment is made.

    Raises:
        UsageError: there is no such data set here, or it is of another environment.
    """
    require_library("minari", "minari")
    import minari

    try:
        data = minari.load_dataset(name)
    except (OSError, ValueError) as error:
        raise UsageError(
            f"Minari has no data set {name} here; `minari list local` shows those that are."
        ) from error
    played, prompt = getattr(data.env_spec, "id", None), agent.get_system_prompt()
    if played != agent.env_id.rpartition(":")[2]:
        raise UsageError(
            f"{name} is of {played}, and {type(agent).__name__} plays {agent.env_id}; name its agent."
        )
    kept = data.storage.get_episode_metadata(data.episode_indices)
    for episode, metadata in zip(data.iterate_episodes(), kept, strict=True):
        turns = []
        space = batch_space(data.observation_space, len(episode.rewards) + 1)
        observations = iterate(space, episode.observations)
        for observation, action, reward in zip(
            observations, episode.actions.tolist(), episode.rewards, strict=False
        ):
            now = observed(agent, observation, {})
            turns.append(Turn(*now, agent.format_action(action), action, float(reward)))
        end, seed = "terminated" if episode.terminations[-1] else "truncated", metadata.get("seed")
        known: Any = {"end": end, "seed": None if seed is None else int(seed)}
        yield Demonstration.of(
            agent, agent_name, prompt, turns, source="expert", recorded_at=clock(), **known
        )


def _replayed(source: Path, demo: Demonstration, env: Env) -> Any:
    observations, rewards, ends = [env.reset(seed=demo.seed)[0]], [], []
    for action in demo.actions:
        observation, reward, terminated, _, _ = env.step(action)
        observations.append(observation)
        rewards.append(float(reward))
        ends.append(bool(terminated))
    if demo.seed is None or rewards != demo.rewards or ends[-1] != (demo.end == "terminated"):
        raise DemoFileError(
            f"An episode of {source} has no seed, or goes otherwise when it is played again from seed {demo.seed}: "
            f"rewards {rewards} instead of {demo.rewards}; nothing was written."
        )
    from minari.data_collector import EpisodeBuffer

    return EpisodeBuffer(
        seed=demo.seed,
        observations=_batch(env.observation_space, observations),
        actions=_batch(env.action_space, demo.actions),
        rewards=rewards,
        terminations=ends,
        truncations=[*[False] * (len(ends) - 1), not ends[-1]],
    )


def _batch(space: Any, values: Sequence[Any]) -> Any:
    empty: Any = create_empty_array(space, len(values))
    return concatenate(space, values, empty)
