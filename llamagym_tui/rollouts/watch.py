"""`LlamaGymWatch`: somebody else's training, written as a run of ours, for ``replay --follow`` and ``serve --watch``.

It is a callback of transformers' trainers without being derived from theirs: handlers call ``on_…`` by name. Nothing
that fails in it stops a training; each fault is said once. Every rollout is kept. torch is not imported.
"""

import atexit
import logging
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any

from msgspec.structs import replace

from llamagym_tui.errors import LlamaGymError, described
from llamagym_tui.protocol import events
from llamagym_tui.protocol.inspected import Decision, InspectedToken, token_text
from llamagym_tui.rollouts.formats import READ, ill_typed, rollouts_of
from llamagym_tui.rollouts.overheard import Overheard, calling_trainer, harmless
from llamagym_tui.rollouts.rollout import Rollout, Token
from llamagym_tui.runs.run_store import RunStore
from llamagym_tui.settings import RunConfig
from llamagym_tui.settings.figures import FIGURES

log = logging.getLogger(__name__)

OF_TRL = {
    "policy_loss": "loss",
    "kl_ref": "kl",
    "entropy": "entropy",
    "clip_fraction": "clip_ratio/region_mean",
    "flat_groups": "frac_reward_zero_std",
    "grad_norm": "grad_norm",
    "lr": "learning_rate",
    "update_s": "step_time",
}
"""The names under which TRL logs figures of `UpdateStats`."""


OTHERS = {"truncated", "trajectory"}
"""Fields of a rollout beside those of `READ`."""


class LlamaGymWatch:
    """A run folder for somebody else's training: a callback of TRL's trainers, or told by hand.

    The folder is made with the first rollout or figure, by the main process alone.
    """

    def __init__(
        self, folder: str | Path, *, tokenizer: Any = None, most_tokens: int = 16_384
    ) -> None:
        """Name a folder; nothing is written yet.

        Args:
            folder: a new one.
            tokenizer: makes texts of token ids; a trainer's own by default.
            most_tokens: tokens of a trainer's step that are kept one by one, some 100 bytes each. Rollouts after that
                have their texts alone.
        """
        self._config = RunConfig(agent="training", model="", run_dir=str(folder))
        self._tokenizer = tokenizer
        self._text = cache(lambda token: token_text(self._tokenizer, token))
        self._most_tokens = most_tokens
        self._store: RunStore | None = None
        self._is_off = False
        """True if nothing is written any more, or by another process."""
        self._said: set[str] = set()
        self._began_s = time.monotonic()
        self._episodes = self._turns = self._updates = 0
        self._finished: list[events.EpisodeFinished] = []
        """The rollouts since the last update that have a reward."""
        self._overheard: Overheard | None = None

    @harmless
    def rollout(self, **record: Any) -> None:
        """Write a rollout, with the fields of a line that `llamagym-tui view` reads.

        These are ``messages``, or ``prompt`` and ``completion``; ``reward``, or one in each message; ``advantage``;
        ``group``; ``truncated``; ``token_ids`` or ``tokens``, ``logprobs``, ``ref_logprobs`` and ``advantages`` of the
        last reply, or of each in its message. Tokens are kept if they have log-probabilities. A tensor is as good as a
        list.
        """
        if not self._is_open():
            return
        for name in record.keys() - READ - OTHERS:
            self._say(f"A rollout has no field {name}; it is left out.")
        plain = {
            name: value.tolist() if hasattr(value, "tolist") else value
            for name, value in record.items()
        }
        for name in ill_typed(plain):
            self._say(f"The {name} of a rollout was no number; it is left out.")
        found = rollouts_of(plain, self._texts_of)
        if not found:
            self._say("A rollout had neither messages nor a completion; it is left out.")
        for rollout in found:
            for event in self._events_of(rollout, is_cut=bool(record.get("truncated"))):
                self._write(event)

    @harmless
    def update(self, *, step: int | None = None, **figures: Any) -> None:
        """Write that the policy has learnt from the rollouts since the last update.

        Args:
            step: the update's number; by default the next one.
            figures: by the names of `UpdateStats`: ``policy_loss``, ``kl_ref``, ``entropy``, ``clip_fraction``, ``lr``.
        """
        if not self._is_open():
            return
        self._updates = self._updates + 1 if step is None else step
        finished, self._finished = self._finished, []
        returns = [each.episode_return for each in finished]
        lengths = [each.length for each in finished]
        found: dict[str, Any] = dict.fromkeys((*FIGURES, "return_std"), math.nan)
        found |= {"episodes": len(returns), "turns": sum(lengths), "skipped_steps": 0}
        if returns:
            found |= {"mean_return": fmean(returns), "return_std": pstdev(returns)}
            self._write(
                events.EpisodesCounted(
                    returns=returns,
                    lengths=lengths,
                    mode="train",
                    prompt_version=1,
                    episodes=self._episodes,
                    env_steps=self._turns,
                    episodes_per_s=self._episodes / max(self._elapsed_s, 1e-3),
                )
            )
        for name, value in figures.items():
            if name not in found:
                self._say(f"There is no figure {name}; it is left out. METRICS names all.")
            elif value is not None:
                found[name] = float(value)
        stats = events.UpdateStats(**found)
        self._write(
            events.UpdateFinished(update=self._updates, episodes=self._episodes, stats=stats)
        )
        self._say(self._store.flush() if self._store else "")

    @harmless
    def close(self) -> None:
        """Write that the training has ended, and give the folder free."""
        if self._store is not None and not self._is_off:
            self._write(
                events.RunFinished(
                    episodes=self._episodes,
                    env_steps=self._turns,
                    updates=self._updates,
                    elapsed_s=self._elapsed_s,
                )
            )
            self._is_off = True
            self._store.close()

    @property
    def _elapsed_s(self) -> float:
        return time.monotonic() - self._began_s

    def _is_open(self) -> bool:
        """True if there is a folder to write to."""
        if self._store is not None or self._is_off:
            return not self._is_off
        config = self._config
        try:
            self._store = RunStore.create(config, every_episode=True)
        except LlamaGymError as error:
            self._is_off = True
            # The rest of the sentence is about options of our own commands.
            why = str(error).partition(";")[0]
            self._say(f"Nothing is written, and the training goes on: {why}. Name a new folder.")
            return False
        atexit.register(self._store.close)
        self._write(
            events.RunStarted(
                agent=config.agent,
                model=config.model,
                run_dir=config.run_dir,
                n_envs=1,
                mode="train",
                system_prompt="",
                prompt_version=1,
                baselines={},
                episodes=0,
                updates=self._updates,
            )
        )
        self._write(events.PhaseChanged(phase="rolling_out"))
        return True

    def _texts_of(self, ids: Sequence[int]) -> list[str]:
        """Texts of tokens; without a tokenizer their ids."""
        return list(map(self._text if self._tokenizer else str, ids))

    def _events_of(self, rollout: Rollout, *, is_cut: bool) -> Iterator[events.Event]:
        """The next episode."""
        episode = self._episodes
        replies = [each for each in rollout.messages if each.role == "assistant"]
        rewards = [each.reward or 0.0 for each in replies]
        if replies and not any(rewards):
            rewards[-1] = rollout.reward or 0.0
        system = [each.text for each in rollout.messages if each.role == "system"]
        yield events.EpisodeStarted(
            episode=episode,
            system_prompt="\n".join(system),
            prompt_version=1,
            mode="train",
            group=rollout.group,
        )
        turn = 0
        for said in rollout.messages:
            if said.role == "assistant":
                yield events.TurnFinished(
                    episode=episode,
                    turn=turn,
                    reply=said.whole,
                    action=None,
                    action_name=said.whole[-80:],
                    how="custom",
                    reward=rewards[turn],
                )
                if tokens := [
                    _inspected(each, rollout) for each in said.tokens if each.logprob is not None
                ]:
                    yield events.TurnInspected(
                        episode=episode,
                        turn=turn,
                        stage="trained",
                        turns=len(replies),
                        sampled_by=self._updates,
                        policy=self._updates,
                        tokens=tokens,
                    )
                turn += 1
            elif said.role != "system":
                yield events.ObservationShown(episode=episode, turn=turn, text=said.text)
        finished = events.EpisodeFinished(
            episode=episode,
            episode_return=math.nan if rollout.reward is None else rollout.reward,
            length=turn,
            end="truncated" if is_cut else "terminated",
            advantage=rollout.advantage,
        )
        yield finished
        self._episodes += 1
        self._turns += turn
        if rollout.reward is not None:
            self._finished.append(finished)

    def _write(self, event: events.Event) -> None:
        assert self._store is not None
        self._say(self._store.append(replace(event, at_s=round(self._elapsed_s, 3))))

    def told(self, error: Exception) -> None:
        """Say what was left out."""
        self._say(f"Something was left out, and the training goes on: {described(error)}.")

    def _say(self, sentence: str) -> None:
        """Say something once, in the log too if there is one; nothing if it is empty."""
        if sentence in self._said or not sentence:
            return
        self._said.add(sentence)
        log.warning("LlamaGymWatch: %s", sentence)  # a warning of Python's may be made an error
        if self._store is not None:
            self._write(events.WarningRaised(message=sentence))

    # What the handlers of transformers' trainers call

    @harmless
    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Begin; only the main process writes."""
        if not state.is_world_process_zero:
            self._is_off = True
            return
        trainer = calling_trainer(self)
        model = getattr(trainer.model, "config", None)
        self._updates = state.global_step
        self._tokenizer = self._tokenizer or trainer.processing_class
        self._config = replace(
            self._config,
            agent=type(trainer).__name__,
            model=getattr(model, "name_or_path", ""),
        )
        if self._overheard is not None:  # an earlier training of the trainer has not ended well
            self._overheard.leave()
        try:
            self._overheard = Overheard(trainer, self.told) if self._is_open() else None
        except AttributeError:
            self._say(
                "The trainer has no rollouts where they are looked for; only figures are written."
            )

    @harmless
    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Write a step: its rollouts, and now or with what is logged of it the update."""
        if self._overheard is not None:
            for record in self._overheard.records(self._most_tokens):
                self.rollout(**record)
        if not control.should_log:
            self.update(step=state.global_step)

    @harmless
    def on_log(
        self, args: Any, state: Any, control: Any, logs: Mapping[str, Any], **_: Any
    ) -> None:
        """Write the figures of a step; what is logged after it is of an evaluation or of all."""
        if state.global_step != self._updates:
            found = {name: logs.get(each) for name, each in OF_TRL.items()}
            self.update(step=state.global_step, **found)

    @harmless
    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Write the end."""
        if self._overheard is not None:
            self._overheard.leave()
        self.close()

    def __getattr__(self, name: str) -> Callable[..., None]:
        """A callback that does nothing, for what else handlers call."""
        if not name.startswith("on_"):
            raise AttributeError(f"LlamaGymWatch has no {name}")
        return lambda *_, **__: None


def _inspected(token: Token, rollout: Rollout) -> InspectedToken:
    """A token, with log-probabilities to four decimals, which are enough for people."""
    old = round(token.logprob or 0.0, 4)
    decision = Decision(
        old=old,
        new=old,  # the update has not been made yet
        ref=None if token.reference is None else round(token.reference, 4),
        advantage=rollout.advantage if token.advantage is None else token.advantage,
    )
    return InspectedToken(token=-1, text=token.text, decision=decision)
