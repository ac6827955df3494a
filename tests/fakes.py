"""Scripted trainers: one in memory for the screens, one as a process that speaks the wire.

Both tell a small Blackjack run made of real events. Run as a program, ``python -m tests.fakes SCRIPT LOG`` stands in
for ``python -m llamagym_tui.trainer LOG``.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
import time
from collections.abc import AsyncGenerator, Callable, Iterator
from pathlib import Path
from typing import Any

from msgspec import structs

from llamagym_tui.errors import LlamaGymError
from llamagym_tui.protocol import wire
from llamagym_tui.protocol.commands import (
    AnyCommand,
    ChangeSettings,
    Pause,
    Resume,
    RollBack,
    SetMode,
    SetPace,
    SetSystemPrompt,
    Step,
    Stop,
    Watch,
)
from llamagym_tui.protocol.events import (
    PROTOCOL_VERSION,
    AnyEvent,
    EpisodeFinished,
    EpisodesCounted,
    EpisodeStarted,
    EvaluationFinished,
    Hello,
    ModeChanged,
    ObservationShown,
    PaceChanged,
    PhaseChanged,
    PromptChanged,
    RolledBack,
    RunFinished,
    RunStarted,
    SessionFailed,
    SettingsChanged,
    TokensStreamed,
    TurnFinished,
    UpdateFinished,
    UpdateStats,
    WatchChanged,
)
from llamagym_tui.settings import MEASURED, GenerationConfig, LoraConfig, PPOConfig, RunConfig

HEAD_ALONE: dict[str, Any] = {
    "full_finetuning": False,
    "lora": LoraConfig(layers="head"),
    "generation": GenerationConfig(policy="score"),
    "ppo": PPOConfig(entropy_coef=0.03, entropy_coef_final=0.01, novelty_coef=0.3),
}
"""Settings of a run of the bundled model if no others are given."""
MEASURED_OF_HEAD = dict.fromkeys([*MEASURED, "ppo.novelty_coef"], "")
"""What the first batch of such a run decides."""
PROMPT = (
    "You are playing Blackjack. Get closer to 21 than the dealer without going over. "
    'Reply with {"action": 0} to stick or {"action": 1} to hit.'
)
STATS = UpdateStats(
    mean_return=-0.284,
    return_std=0.948,
    policy_loss=-0.0132,
    value_loss=0.412,
    approx_kl=0.0041,
    kl_ref=0.0312,
    entropy=0.187,
    action_entropy=0.524,
    clip_fraction=0.083,
    explained_variance=0.214,
    first_ratio=0.0000012,
    grad_norm=0.871,
    parse_failure_rate=0.0026,
    episodes=540,
    turns=781,
    rollout_s=1.3,
    update_s=1.2,
    lr=0.0004,
    skipped_steps=0,
)


def config(run_dir: Path, **changes: object) -> RunConfig:
    """Settings of a run, of Blackjack unless changed."""
    settings: dict[str, Any] = {"agent": "blackjack", "seed": 1, **changes}
    return RunConfig(run_dir=str(run_dir), **settings)


def run_started(run_dir: str = "/runs/demo") -> RunStarted:
    """The start of a Blackjack run."""
    return RunStarted(
        agent="Blackjack",
        model="bundled",
        run_dir=run_dir,
        n_envs=128,
        mode="train",
        system_prompt=PROMPT,
        prompt_version=1,
        baselines={"random": -0.396, "optimal": -0.0466},
        episodes=0,
        updates=0,
    )


def hand(
    episode: int, turns: list[tuple[str, str, str]], final_reward: float, **start: object
) -> Iterator[AnyEvent]:
    """One watched hand.

    Args:
        episode: its index.
        turns: observation, reply and how it is read, turn by turn; the action follows from the reply's last digit.
        final_reward: reward of the last turn.
        start: fields of ``EpisodeStarted`` other than the default ones.
    """
    opening = {"system_prompt": PROMPT, "prompt_version": 1, "mode": "train", **start}
    yield EpisodeStarted(episode=episode, **opening)  # type: ignore[arg-type]
    for turn, (observation, reply, how) in enumerate(turns):
        yield ObservationShown(episode=episode, turn=turn, text=observation)
        for at in range(0, len(reply), 4):
            yield TokensStreamed(episode=episode, turn=turn, text=reply[at : at + 4])
        action = 1 if "1" in reply or "hit" in reply else 0
        yield TurnFinished(
            episode=episode,
            turn=turn,
            reply=reply,
            action=action,
            action_name=("stick", "hit")[action],
            how=how,  # type: ignore[arg-type]
            reward=final_reward if turn == len(turns) - 1 else 0.0,
        )
    yield EpisodeFinished(
        episode=episode, episode_return=final_reward, length=len(turns), end="terminated"
    )


def evaluation(mean_return: float, **changes: object) -> EvaluationFinished:
    """An evaluation of 300 greedy episodes."""
    found = EvaluationFinished(
        episodes=300,
        greedy=True,
        mean_return=mean_return,
        return_stderr=0.05,
        parse_failure_rate=0.0,
        elapsed_s=1.0,
    )
    return structs.replace(found, **changes)


def counted(returns: list[float], episodes: int, **changes: object) -> EpisodesCounted:
    """Episodes that ended in all environments."""
    fields = {"mode": "train", "prompt_version": 1, "episodes_per_s": 212.0, **changes}
    return EpisodesCounted(
        returns=returns,
        lengths=[1] * len(returns),
        episodes=episodes,
        env_steps=int(1.45 * episodes),
        **fields,  # type: ignore[arg-type]
    )


def learning(batches: int, size: int = 128) -> Iterator[AnyEvent]:
    """Episode counts of a run whose mean return rises from -0.40 to -0.06."""
    rng = random.Random(1)
    for batch in range(batches):
        lose = 0.67 - 0.17 * batch / batches
        returns = [-1.0 if rng.random() < lose else 0.94 for _ in range(size)]
        yield counted(returns, (batch + 1) * size)
        if batch % 4 == 3:
            yield UpdateFinished(update=batch // 4 + 1, episodes=(batch + 1) * size, stats=STATS)


def opening_events(run_dir: str = "/runs/demo") -> Iterator[AnyEvent]:
    """A trainer that comes up and begins to play."""
    yield Hello(protocol=PROTOCOL_VERSION)
    yield PhaseChanged(phase="loading", detail="loading the model")
    yield run_started(run_dir)
    yield PhaseChanged(phase="rolling_out")


def demo_run(run_dir: str = "/runs/demo", batches: int = 160) -> Iterator[AnyEvent]:
    """A whole run up to a moment in the middle of a hand."""
    yield from opening_events(run_dir)
    yield from learning(batches)
    at = batches * 128
    first = ("Your total: 12. Usable ace: no. Dealer shows: 10.", '{"action": 1}', "json")
    then = ("Your total: 19. Usable ace: no. Dealer shows: 10.", '{"action": 0}', "json")
    yield from hand(at, [first, then], 1.0)
    yield from hand(
        at + 3,
        [("Your total: 15. Usable ace: yes. Dealer shows: 7.", "I think it is fine", "failed")],
        -1.0,
    )
    yield from hand(
        at + 9,
        [("Your total: 20. Usable ace: no. Dealer shows: ace.", "Action: 0", "pattern")],
        0.0,
    )
    *under_way, _, _ = hand(at + 14, [first], -1.0)
    yield from under_way


class FakeClient:
    """A trainer in memory: tells `events`, confirms what it is asked, ends when the test says so.

    Without `events` it comes up and begins to play.
    """

    pauses: Callable[[int], dict[int, float]] = staticmethod(lambda events: {})
    """Of a number of events, before which there is a pause, and its seconds."""

    def __init__(self, events: Iterator[AnyEvent] | None = None, *, confirms: bool = True) -> None:
        self.log_path: Path | None = Path("/runs/demo/trainer.log")
        self.sent: list[AnyCommand] = []
        self.started: RunConfig | None = None
        self.stopped = False
        self.stop_takes_s = 0.0
        self.confirms = confirms
        self.prompt_version = 1
        self._queue: asyncio.Queue[AnyEvent | Exception | None] = asyncio.Queue()
        self.emit(*(opening_events() if events is None else events))
        self._pauses = self.pauses(self._queue.qsize())
        self._pausing = False

    @property
    def running(self) -> bool:
        return self.started is not None and not self.stopped

    async def start(self, config: RunConfig) -> None:
        self.started = config

    async def send(self, command: AnyCommand) -> None:
        self.sent.append(command)
        if self.confirms and (answer := self._answer(command)) is not None:
            self.emit(answer)

    async def events(self) -> AsyncGenerator[AnyEvent]:
        told = 0
        while (event := await self._queue.get()) is not None:
            if told in self._pauses:
                self._pausing = True
                await asyncio.sleep(self._pauses[told])
                self._pausing = False
            told += 1
            if isinstance(event, Exception):
                raise event
            yield event

    async def stop(self, timeout_s: float) -> bool:
        await asyncio.sleep(self.stop_takes_s)
        self.stopped = True
        self._queue.put_nowait(None)
        return True

    @property
    def heard_out(self) -> bool:
        """Whether the app has taken in all that was told."""
        return self._queue.empty() and not self._pausing

    def emit(self, *events: AnyEvent) -> None:
        for event in events:
            self._queue.put_nowait(event)

    def die(self, message: str) -> None:
        self._queue.put_nowait(LlamaGymError(message))

    def _answer(self, command: AnyCommand) -> AnyEvent | None:
        match command:
            case Pause():
                return PhaseChanged(phase="paused")
            case Resume():
                return PhaseChanged(phase="rolling_out")
            case Step():
                return PhaseChanged(phase="paused")
            case SetPace(turn_s=turn_s):
                return PaceChanged(turn_s=turn_s)
            case Watch(env=env):
                return WatchChanged(env=env)
            case SetMode():
                return ModeChanged(mode=command.mode)
            case SetSystemPrompt():
                self.prompt_version += 1
                return PromptChanged(
                    prompt_version=self.prompt_version, system_prompt=command.system_prompt
                )
            case ChangeSettings():
                return SettingsChanged(changes=command.changes)
            case RollBack():
                return RolledBack(update=0, reason="requested")
            case _:
                return None


def _tell(event: AnyEvent) -> None:
    sys.stdout.buffer.write(wire.framed(wire.encoded(event)))
    sys.stdout.buffer.flush()


def main(script: str, log: str) -> int:
    """Be a trainer that follows a script; the exit code."""
    Path(log).write_text(f"fake trainer: {script}\n")
    if script == "deaf":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    _tell(Hello(protocol=PROTOCOL_VERSION))
    wire.read_frame(sys.stdin.buffer)  # StartRun
    if script == "long-reply":
        _tell(TokensStreamed(episode=0, turn=0, text="x" * 3_000_000))
    if script == "nonsense":
        sys.stdout.buffer.write(b"Loading weights: 100%\n")
        sys.stdout.buffer.flush()
        time.sleep(60)
    if script == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if script == "fails":
        _tell(SessionFailed(message="The model is not there; name another one."))
        return 1
    if script == "deaf":
        time.sleep(600)
    if script in ("quiet", "slow-to-stop"):
        for event in opening_events():
            _tell(event)
    if script == "flood":
        for event in demo_run(batches=4000):
            _tell(event)
    while (payload := wire.read_frame(sys.stdin.buffer)) is not None:
        if isinstance(wire.decode_command(payload), Stop):
            break
    if script == "slow-to-stop":
        time.sleep(1.5)
    _tell(RunFinished(episodes=0, env_steps=0, updates=0, elapsed_s=0.0))
    if script == "lingers":
        time.sleep(600)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
