"""A session: one run from loading to its end, steered by commands and told in events.

One thread does everything, in turn: obey what was asked since the last step, step all environments, and update when a
batch is full. So a command never meets a half-made step, but for one that waits for the person at the wheel, and what
an event says has already happened; what lasts long, an update or an evaluation, asks in between whether it is to end.
It knows neither torch nor gymnasium: its parts come from `Builders`, and what happens to the run is `Run`'s.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Sequence
from typing import Literal, assert_never

from llamagym_tui.config import RunConfig
from llamagym_tui.errors import DemoFileError, UsageError
from llamagym_tui.protocol import commands, events
from llamagym_tui.protocol.commands import AnyCommand
from llamagym_tui.run_store import RunStore
from llamagym_tui.trainer import event_builders
from llamagym_tui.trainer.builders import Builders
from llamagym_tui.trainer.checkpoints import Checkpoints
from llamagym_tui.trainer.event_sinks import Announcer, Sink, spaced
from llamagym_tui.trainer.inbox import CommandQueue, Inbox
from llamagym_tui.trainer.pace import Pace
from llamagym_tui.trainer.parts import load_parts
from llamagym_tui.trainer.phases import Phase, entered, is_over
from llamagym_tui.trainer.run import Run
from llamagym_tui.trainer.warm_start import warm_start

Unit = Literal["turn", "update"]
log = logging.getLogger(__name__)


class Session:
    """One run."""

    def __init__(
        self,
        config: RunConfig,
        store: RunStore,
        asked: CommandQueue,
        *,
        sinks: Sequence[Sink] = (),
        clock: Callable[[], float] = time.monotonic,
        builders: Builders | None = None,
    ) -> None:
        """A session that waits to `run`.

        Args:
            config: settings of the run.
            store: its folder, made; the session closes it.
            asked: commands, put by any thread.
            sinks: take every event, beside the folder.
            clock: seconds, monotonic.
            builders: make its parts; None: the real ones.
        """
        self.phase = Phase.LOADING
        self.error: Exception | None = None
        """What ended it, if it failed."""
        self._config, self._store, self._clock = config, store, clock
        self._inbox = Inbox(asked)
        self._builders = builders or Builders(config)
        self._run: Run | None = None
        self._tell = Announcer([store.append, *sinks], clock).tell
        self._pace = Pace(clock)
        self._until: Unit | None = None
        """What ends the step that was asked for; None: nothing was."""
        self._exits = contextlib.ExitStack()
        self._exits.callback(store.close)

    def run(self) -> Phase:
        """Load, play and train until something ends it; the phase in which it ended, stopped or failed."""
        try:
            run = self._load()
            if self._config.sft_warm_start and not self._config.resume:
                self._warm_start(run, self._config.sft_data)
            while not is_over(self.phase):
                self._obey_all(run)
                self._advance(run)
        except Exception as error:  # whatever it is, the UI gets a sentence and the log a traceback
            self._fail(error)
        finally:
            self._close()
        return self.phase

    def _load(self) -> Run:
        checkpoints = Checkpoints(self._builders, self._store.run_dir)
        parts = load_parts(self._builders, checkpoints, self._tell)
        self._exits.callback(parts.rollout.close)
        run = self._run = Run(self._config, parts, checkpoints, self._tell, self._clock)
        self._tell(event_builders.run_started(run.config, parts, run.prompt, run.prompt_version))
        run.mapping.lay_out()
        run.tell_changes()
        if not parts.policy.chat.keeps_history:
            run.warn(event_builders.HISTORY_WARNING)
        self._enter(Phase.ROLLING_OUT)
        return run

    def _advance(self, run: Run) -> None:
        match self.phase:
            case Phase.ROLLING_OUT:
                self._play(run)
            case Phase.PAUSED:
                run.weigh()
                run.map_policy(self._is_asked_to_stop, at_once=True)
                self._inbox.wait()
            case Phase.STOPPED | Phase.FAILED:
                pass
            case Phase.LOADING | Phase.WARM_STARTING | Phase.UPDATING | Phase.EVALUATING:
                raise AssertionError(f"between two steps a session is not {self.phase}")
            case _:
                assert_never(self.phase)

    def _play(self, run: Run) -> None:
        if run.is_limit_reached:
            self._stop(run)
            return
        if run.awaits_person:
            self._wait_for_person(run)
            return
        if self._is_read or run.is_driven:
            run.parts.rollout.begin_episodes()
            run.weigh()
        if self._until != "turn" and not run.is_driven and (left_s := self._pace.left_s):
            run.map_policy(self._is_asked_to_stop)
            self._inbox.wait(left_s)
            return
        began_at = self._clock()
        if run.step():
            self._pace.turn_made(began_at)
        ended = self._until == "turn" and not run.awaits_person
        if run.is_batch_full:
            self._update(run)
            ended = self._until is not None
        run.map_policy(self._is_asked_to_stop)
        if ended:
            self._pause(run)

    def _wait_for_person(self, run: Run) -> None:
        """Hold still until something is asked; that is neither playing nor training."""
        run.count()
        run.map_policy(self._is_asked_to_stop, at_once=True)
        run.stopwatch.run(False)
        self._inbox.wait()
        run.stopwatch.run(True)

    def _update(self, run: Run) -> None:
        run.count()
        self._enter(Phase.UPDATING)
        run.update(should_stop=lambda: self._is_update_to_end(run))
        self._enter(Phase.ROLLING_OUT)
        if self._is_read:
            run.weigh_again()
        run.look_after()

    @property
    def _is_read(self) -> bool:
        """Whether somebody has the time to read everything that is told."""
        return self._until is not None or self._pace.turn_s > 0

    def _is_update_to_end(self, run: Run) -> bool:
        """Whether the run is to stop; a pause waits for the end, so as to change nothing of what is learnt.

        What changes nothing of the run is obeyed meanwhile.
        """
        harmless = commands.Watch, commands.WatchNext, commands.SetPace, commands.DrawStates, commands.WatchPolicyMap
        while command := self._inbox.take_first(*harmless, commands.WeighActions, commands.TakeWheel, commands.LetGo):
            self._obey(command, run)
        return self._is_asked_to_stop()

    def _obey_all(self, run: Run) -> None:
        while not is_over(self.phase) and (command := self._inbox.take()) is not None:
            self._obey(command, run)
            if isinstance(command, commands.Step):
                return  # or a second one would be swallowed

    def _obey(self, command: AnyCommand, run: Run) -> None:
        match command:
            case commands.Pause():
                self._pause(run)
            case commands.Resume():
                self._until = None
                if self.phase is Phase.PAUSED:
                    self._enter(Phase.ROLLING_OUT)
            case commands.Step(unit=unit):
                self._step(unit, run)
            case commands.SetPace(turn_s=turn_s):
                self._pace.turn_s = turn_s
                self._tell(events.PaceChanged(turn_s=turn_s))
            case commands.Watch() | commands.WatchNext():
                run.watch(command)
            case commands.TakeWheel():
                self._take_wheel(run)
            case commands.Act():
                run.act(command)
            case commands.LetGo():
                run.let_go()
            case commands.InspectTurn():
                run.inspect(command)
            case commands.DrawStates(on=on):
                run.parts.rollout.set_drawing(on)
            case commands.WatchPolicyMap(on=on):
                run.mapping.watch(on=on)
            case commands.SetMode(mode=mode):
                run.set_mode(mode)
            case commands.SetSystemPrompt(system_prompt=prompt):
                run.set_prompt(prompt)
            case commands.ChangeSettings(changes=changes):
                run.change(changes)
            case commands.Evaluate():
                self._evaluate(command, run)
            case commands.CancelEvaluation():
                pass  # none is under way any more
            case commands.WeighActions():
                run.weigh_conversation(command)
            case commands.WarmStart(sft_data=sft_data):
                self._warm_start_or_warn(run, sft_data)
            case commands.CancelWarmStart():
                pass  # none is under way any more
            case commands.SaveCheckpoint():
                run.save_or_warn()
            case commands.RollBack():
                run.roll_back("asked for")
            case commands.Stop():
                self._stop(run)
            case commands.StartRun():
                run.warn("The run has begun already; start another trainer for another.")
            case _:
                assert_never(command)

    def _pause(self, run: Run) -> None:
        self._until = None
        if self.phase is Phase.ROLLING_OUT:
            run.count()
            self._enter(Phase.PAUSED)

    def _take_wheel(self, run: Run) -> None:
        """Let a person act; the run then stands still at each of their turns, so a pause or step ends."""
        if run.take_wheel():
            self._until = None
            if self.phase is Phase.PAUSED:
                self._enter(Phase.ROLLING_OUT)

    def _step(self, unit: Unit, run: Run) -> None:
        """Go on until a turn, or an update, is made."""
        if unit == "update" and run.parts.rollout.mode != "train":
            run.warn("Nothing is trained in inference mode, so no update comes.", refused="step")
            return
        self._until = unit
        detail = f"one {unit}, then a pause"
        if self.phase is Phase.PAUSED:
            self._enter(Phase.ROLLING_OUT, detail)
        else:
            self._tell(events.PhaseChanged(phase="rolling_out", detail=detail))

    def _evaluate(self, command: commands.Evaluate, run: Run) -> None:
        """Play apart from the run, then go on where it was; a stop or a cancel meanwhile leaves no result."""
        run.count()
        before = self.phase
        self._enter(Phase.EVALUATING, f"0 of {command.episodes} episodes")
        found = self._builders.evaluate(
            run.parts.agent,
            run.parts.policy,
            episodes=command.episodes,
            greedy=command.greedy,
            system_prompt=run.prompt,
            should_stop=lambda: self._is_evaluation_to_end(run),
            progress=self._evaluation_progress(command.episodes),
        )
        cancelled = self._inbox.take_first(commands.CancelEvaluation) is not None
        cancelled = cancelled or self._inbox.holds(commands.CancelWarmStart)
        if cancelled and found.episodes < command.episodes:
            self._tell(events.EvaluationCancelled(played=found.episodes, episodes=command.episodes))
        elif not self._is_asked_to_stop():
            self._tell(event_builders.evaluation_finished(found, greedy=command.greedy))
        self._enter(before)

    def _warm_start(self, run: Run, sft_data: str | None) -> None:
        """Train on demonstrations, then go on where the run was.

        Raises:
            UsageError: there is no such file.
            DemoFileError: it has a fault; nothing was trained.
        """
        run.count()
        before = self.phase
        self._enter(Phase.WARM_STARTING, "reading the demonstrations")
        try:
            warm_start(
                self._builders,
                run.parts,
                sft_data,
                system_prompt=run.prompt,
                tell=self._tell,
                clock=self._clock,
                should_stop=lambda: self._inbox.holds(commands.Stop, commands.CancelWarmStart),
            )
            run.taught()
            run.map_policy(self._is_asked_to_stop)  # before an evaluation is made, which takes longer
        finally:
            self._enter(before)

    def _warm_start_or_warn(self, run: Run, sft_data: str | None) -> None:
        try:
            self._warm_start(run, sft_data)
        except (UsageError, DemoFileError) as error:
            run.warn(f"No warm start: {error}", refused="warm_start")

    def _is_asked_to_stop(self) -> bool:
        return self._inbox.holds(commands.Stop)

    def _is_evaluation_to_end(self, run: Run) -> bool:
        """Whether somebody asked for it; a question about the policy is answered meanwhile."""
        while command := self._inbox.take_first(commands.WeighActions):
            self._obey(command, run)
        return self._inbox.holds(commands.Stop, commands.CancelEvaluation, commands.CancelWarmStart)

    def _evaluation_progress(self, episodes: int) -> Callable[[int], None]:
        tell = spaced(self._tell, self._clock)
        return lambda done: tell(events.PhaseChanged(phase="evaluating", detail=f"{done} of {episodes} episodes"))

    def _stop(self, run: Run) -> None:
        """End as asked: tell what is left, save what is new."""
        run.count()
        if run.mapping.is_cheap:
            run.map_policy(lambda: False, at_once=True)
        finished = run.finish()
        self._enter(Phase.STOPPED)
        self._tell(finished)

    def _fail(self, error: Exception) -> None:
        log.error("the session failed", exc_info=error)
        self.error = error
        if self._run is not None:
            self._run.parts.rollout.tell_corrections()
        if not is_over(self.phase):
            self._enter(Phase.FAILED)
        self._tell(event_builders.session_failed(error, self._store.log_path))

    def _close(self) -> None:
        try:
            self._exits.close()
        except Exception:
            log.exception("not closed cleanly")

    def _enter(self, phase: Phase, detail: str = "") -> None:
        self.phase = entered(self.phase, phase)
        if self._run is not None:
            self._run.stopwatch.run(phase in (Phase.WARM_STARTING, Phase.ROLLING_OUT, Phase.UPDATING))
        self._tell(events.PhaseChanged(phase=phase.value, detail=detail))
