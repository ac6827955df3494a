"""Demonstrations as Minari's data sets, and back. There, observations and actions are the environment's own, not texts.

Minari comes with the extra ``minari`` and is only imported when it is needed. It decides where its data sets are kept.
"""

import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from gymnasium.vector.utils import batch_space, concatenate, create_empty_array, iterate

from llamagym_tui.demos import files as demo_files
from llamagym_tui.demos.demonstration import Demonstration, PlayedTurn
from llamagym_tui.errors import DemoFileError, UsageError, require_library
from llamagym_tui.game.agent_base import AgentBase
from llamagym_tui.game.environment import Env, agent_env
from llamagym_tui.game.observed import observed


def to_set(source: Path, name: str, agent: AgentBase, agent_name: str) -> int:
    """Play the episodes of a file again, by their seeds and actions, into a new data set; returns how many.

    Raises:
        UsageError: the name has no version, or an episode was played by another agent.
        DemoFileError: an episode has no seed or gets other rewards than when it was recorded, or Minari refuses the
            data set.
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
        observation_space: Any = env.observation_space
        action_space: Any = env.action_space
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it recommends to name an author, and more
            minari.create_dataset_from_buffers(
                name,
                buffers,
                env=env.unwrapped.spec,  # a wrapper may have none that can be written
                data_format="hdf5",
                observation_space=observation_space,
                action_space=action_space,
            )
    # Minari has no errors of its own.
    except (ValueError, TypeError, AssertionError, NotImplementedError) as error:
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
    env_id = getattr(data.env_spec, "id", None)
    if env_id != agent.env_id.rpartition(":")[2]:
        raise UsageError(
            f"{name} is of {env_id}, and {type(agent).__name__} plays {agent.env_id}; name its agent."
        )
    prompt = agent.get_system_prompt()
    all_metadata = data.storage.get_episode_metadata(data.episode_indices)
    for episode, metadata in zip(data.iterate_episodes(), all_metadata, strict=True):
        turns = []
        space = batch_space(data.observation_space, len(episode.rewards) + 1)
        # There is one observation more than actions: the one after the last action.
        observations = iterate(space, episode.observations)
        for observation, action, reward in zip(
            observations, episode.actions.tolist(), episode.rewards, strict=False
        ):
            shown = observed(agent, observation, {})
            reply = agent.format_action(action)
            turns.append(PlayedTurn(shown.text, shown.actions, reply, action, float(reward)))
        seed = metadata.get("seed")
        yield Demonstration.of(
            agent,
            agent_name,
            prompt,
            turns,
            end="terminated" if episode.terminations[-1] else "truncated",
            source="expert",
            recorded_at=clock(),
            seed=None if seed is None else int(seed),
        )


def _replayed(source: Path, demo: Demonstration, env: Env) -> Any:
    """An episode as Minari takes it, from playing it again."""
    observation, _ = env.reset(seed=demo.seed)
    observations = [observation]
    rewards = []
    terminations = []
    for action in demo.actions:
        observation, reward, terminated, _, _ = env.step(action)
        observations.append(observation)
        rewards.append(float(reward))
        terminations.append(terminated)
    ends_as_recorded = terminations[-1] == (demo.end == "terminated")
    if demo.seed is None or rewards != demo.rewards or not ends_as_recorded:
        raise DemoFileError(
            f"An episode of {source} has no seed, or goes differently when it is played again from seed {demo.seed}: "
            f"rewards {rewards} instead of {demo.rewards}; nothing was written."
        )
    from minari.data_collector import EpisodeBuffer

    truncations = [False for _ in terminations]
    truncations[-1] = not terminations[-1]
    return EpisodeBuffer(
        seed=demo.seed,
        observations=_batch(env.observation_space, observations),
        actions=_batch(env.action_space, demo.actions),
        rewards=rewards,
        terminations=terminations,
        truncations=truncations,
    )


def _batch(space: Any, values: Sequence[Any]) -> Any:
    """Some values of a space, together as Gymnasium holds a batch."""
    empty: Any = create_empty_array(space, len(values))
    return concatenate(space, values, empty)
