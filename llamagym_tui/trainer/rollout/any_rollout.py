"""What a session, its run and its probes use of a rollout; a test gives them another one that has the same."""

from typing import Any, Protocol

from llamagym_tui.config import Mode
from llamagym_tui.engine.policy.trajectory import Trajectory
from llamagym_tui.protocol.events import Stage
from llamagym_tui.trainer.rollout.env_slot import PendingPrompt
from llamagym_tui.trainer.rollout.episode_counts import EpisodeCounts
from llamagym_tui.trainer.rollout.failures import Failures
from llamagym_tui.trainer.rollout.opponents import Opponent
from llamagym_tui.trainer.rollout.spectator import Spectator
from llamagym_tui.trainer.rollout.wheel import Wheel


class AnyRollout(Protocol):
    """Many environments and one batch; `Rollout` says what each member means."""

    mode: Mode
    batch_turns: int
    cuts_episodes: bool
    group_size: int
    episodes: int
    env_steps: int
    last_reply: str
    system_prompt: str
    prompt_version: int
    failures: Failures
    spectator: Spectator
    wheel: Wheel
    opponent: Opponent | None

    @property
    def draws(self) -> bool: ...

    @property
    def live(self) -> int: ...

    @property
    def batch_ready(self) -> bool: ...

    @property
    def batch_progress(self) -> tuple[int, int]: ...

    @property
    def awaits_person(self) -> bool: ...

    def set_counters(self, *, episodes: int, env_steps: int, dropped: int = 0) -> None: ...

    def set_system_prompt(self, text: str, version: int) -> None: ...

    def set_drawing(self, on: bool) -> None: ...

    def begin_episodes(self) -> None: ...

    def step(self) -> list[EpisodeCounts]: ...

    def take_batch(self) -> list[Trajectory]: ...

    def take_known_prompts(self) -> float: ...

    def pending_prompt(self) -> PendingPrompt | None: ...

    def recall(self, episode: int) -> tuple[Trajectory, Stage] | None: ...

    def take_wheel(self) -> None: ...

    def act(self, episode: int, turn: int, action: int | str, reasoning: str = "") -> None: ...

    def keep_wheel_in_view(self) -> None: ...

    def emit_corrections(self) -> None: ...

    def restart(self) -> None: ...

    def resize(self, n_envs: int) -> None: ...

    def forget_caches(self) -> None: ...

    def state(self) -> Any: ...

    def restore(self, state: Any) -> int: ...

    def close(self) -> None: ...
