"""A session: one run from loading to its end, driven by commands and reported in events.

One thread does everything in turn: handle commands, step all environments, update when a batch is full. So a command
never meets a half-made step, but for the person's at the wheel; what lasts long checks whether it should end.
"""

import contextlib
import logging
import math
import time
from collections.abc import Callable, Sequence
from typing import Literal, assert_never

from msgspec.structs import replace

from llamagym_tui.demos.training_data import TrainingData, doubts, training_data, training_facts
from llamagym_tui.engine.ranks import ALONE, GLOO
from llamagym_tui.errors import (
    ActionParseError,
    DemoFileError,
    EnvError,
    LlamaGymError,
    RunStoreError,
    UsageError,
    program_ended,
)
from llamagym_tui.protocol import commands, events
from llamagym_tui.protocol.commands import AnyCommand
from llamagym_tui.runs.run_store import RunStore
from llamagym_tui.settings import RunConfig
from llamagym_tui.trainer.builders import Builders
from llamagym_tui.trainer.checkpoints import RETRY_S, Checkpoints
from llamagym_tui.trainer.evaluations import Evaluations
from llamagym_tui.trainer.event_sinks import EventEmitter, Sink, session_failed
from llamagym_tui.trainer.inbox import CommandQueue, Inbox
from llamagym_tui.trainer.probes.map_policy import CHEAP_S
from llamagym_tui.trainer.ranks import started
from llamagym_tui.trainer.run import HISTORY_WARNING, Parts, Run, load_parts, run_started
from llamagym_tui.trainer.tracker import Tracker

ATTEMPTS = 120
"""Attempts to write a run's last checkpoint, `RETRY_S` apart."""
SLOW_S = 10.0
"""Seconds of a first batch from which on there is a checkpoint before the first update."""
Unit = Literal["turn", "update"]
_AFTER: dict[events.Phase, set[events.Phase]] = {
    "loading": {"rolling_out", "stopped", "failed"},
    "warm_starting": {"rolling_out", "paused", "failed"},
    "rolling_out": {"updating", "paused", "evaluating", "warm_starting", "stopped", "failed"},
    "updating": {"rolling_out", "failed"},
    "paused": {"rolling_out", "evaluating", "warm_starting", "stopped", "failed"},
    "evaluating": {"rolling_out", "paused", "failed"},
    "stopped": set(),  # by a command or a limit
    "failed": set(),  # by an error
}
"""Phases that may follow each phase."""
log = logging.getLogger(__name__)


class _ReadingEnded(Exception):
    """Prompts are not read to their end, because the run ends."""


class Session:
    def __init__(
        self,
        config: RunConfig,
        store: RunStore,
        command_queue: CommandQueue,
        *,
        sinks: Sequence[Sink] = (),
        clock: Callable[[], float] = time.monotonic,
        builders: Builders | None = None,
        evaluates_end: bool = False,
        is_attended: bool = True,
    ) -> None:
        """A session that waits to `run`, with a run's folder, made, which receives every event and is closed.

        Args:
            sinks: receive every event too.
            clock: seconds, monotonic.
            is_attended: whether a person is there to whom something can be proposed.
            evaluates_end: evaluate the policy that it ends with, unless it is stopped before its limit.
        """
        self.phase: events.Phase = "loading"
        self.error: Exception | None = None
        """The error that ended it, if it failed."""
        self.inbox = Inbox(command_queue)
        self.active_run: Run | None = None
        """None: still loading."""
        self._config = config
        self._store = store
        self._clock = clock
        self._builders = builders or Builders(config)
        self._ranks = ALONE
        self._evaluates_end = evaluates_end and config.final_episodes > 0
        self._is_attended = is_attended
        taken_by = [store.append, *sinks]
        self._exits = contextlib.ExitStack()
        if config.track is not None:
            tracker = Tracker(config)
            taken_by.append(tracker.take)
            self._exits.callback(tracker.close)
        self._emitter = EventEmitter(taken_by, clock, began_s=store.last_at_s)
        self._emit = self._emitter.emit
        self._turn_s = 0.0
        """Seconds between two turns of the watched environment; 0: full speed."""
        self._turn_began_at = -math.inf
        """When the watched environment's last turn began, by the clock."""
        self._step_unit: Unit | None = None
        """The unit of the `Step` under way; None if there is none."""
        self._pauses_after_wheel = False
        """The run pauses again once the person lets the agent act."""
        self._collecting = self._emitter.progress("collecting turns")
        """Reports how full the batch under way is."""
        self._reading = self._emitter.progress("reading prompts")
        """Reports how many of the prompts that a fixed trunk reads at once are read."""
        self._exits.callback(store.close)

    def run(self) -> events.Phase:
        """Load, play and train until something ends it; the phase in which it ended, stopped or failed."""
        try:
            run = self._load()
            if self._config.sft_warm_start and (not self._config.resume or run.awaits_warm_start):
                run.awaits_warm_start = True
                self._warm_start(run, training_data(run.agent, self._config.sft_data))
            with self._ranks.explained(GLOO):
                while not is_over(self.phase):
                    self._handle_commands(run)
                    self._advance(run)
        except Exception as error:  # whatever it is, the UI gets a sentence and the log a traceback
            self._fail(error)
        except SystemExit as error:
            self._fail(program_ended(error))
        finally:
            try:
                self._exits.close()
            except Exception:
                log.exception("not closed cleanly")
            self._discard_unbegun()
        return self.phase

    def _discard_unbegun(self) -> None:
        """Leave no run behind if this one has failed before it began."""
        config = self._config
        is_new = not (config.resume or config.parent)
        if self.phase == "failed" and self.active_run is None and is_new:
            is_explained = isinstance(self.error, LlamaGymError)
            self._store.discard_unbegun(keeps_log=not is_explained)

    def _load(self) -> Run:
        ranks = self._exits.enter_context(started(self._config))
        self._ranks = ranks
        if ranks.size > 1:
            self._config = replace(self._config, ranks=ranks.size)
            self._builders = Builders(self._config, ranks)
        self._exits.callback(self._builders.close)
        checkpoints = Checkpoints(self._builders, self._store.run_dir)
        parts = load_parts(self._builders, checkpoints, self._emitter)
        self._exits.callback(parts.rollout.close)
        self._keep_found(parts)
        run = Run(self._config, parts, checkpoints, self._emitter, self._clock)
        self.active_run = run
        parts.policy.on_reading = self._on_reading
        trained = self._builders.trained(parts.policy)
        self._emit(run_started(run.config, parts, trained))
        run.policy_map.lay_out()
        run.emit_restored_changes()
        if not parts.policy.chat.keeps_history:
            self._emitter.warn(HISTORY_WARNING)
        run.take_up(parts.start)
        if run.limit_reached:
            again = "go on with it with a larger limit (--minutes, --episodes)"
            self._emitter.warn(
                f"This run has played {run.limit_reached}, so it ends here; {again}."
            )
        self._enter("rolling_out")
        return run

    def _keep_found(self, parts: Parts) -> None:
        """Write what the machine and the agent have decided into the run's settings: a resumed run does the same."""
        config = self._config
        history = config.history
        if config.finds_history:
            parts.policy.history = 0
        else:
            history = "all" if parts.policy.history is None else parts.policy.history
        prompt = parts.rollout.system_prompt
        self._keep(
            replace(
                config,
                history=history,
                system_prompt=None if prompt == parts.agent.get_system_prompt() else prompt,
            )
        )

    def _keep(self, config: RunConfig) -> None:
        self._config = config
        with contextlib.suppress(OSError):  # then a resumed run finds it again
            self._store.write_config(self._config)

    def _advance(self, run: Run) -> None:
        if self._pauses_after_wheel and run.rollout.wheel.env is None:
            self._pauses_after_wheel = False
            self._pause(run)
        if self.phase == "rolling_out":
            try:
                self._play(run)
            except _ReadingEnded:
                # What asked for the end is still there, and is met next; an update that it broke off changed nothing.
                self._leave_update()
        elif self.phase == "paused":
            self._probe_actions(run)
            self._map_policy(run, at_once=True)
            self.inbox.wait()

    def _play(self, run: Run) -> None:
        rollout = run.rollout
        if run.limit_reached:
            self._stop(run, evaluates=self._evaluates_end)
            return
        if rollout.awaits_person:
            self._wait_for_person(run)
            return
        is_driven = rollout.wheel.env is not None
        if self._is_followed or is_driven:
            rollout.begin_episodes()
            self._probe_actions(run)
        began_at = self._clock()
        left_s = self._turn_began_at + self._turn_s - began_at
        if self._step_unit != "turn" and not is_driven and left_s > 0:
            self._map_policy(run)
            self.inbox.wait(left_s)
            return
        if run.step():
            self._turn_began_at = began_at
        if rollout.mode == "train":
            self._collecting(*rollout.batch_progress)
        ended = self._step_unit == "turn" and not rollout.awaits_person
        if rollout.mode == "train" and rollout.batch_ready:
            self._update(run)
            ended = self._step_unit is not None
        self._map_policy(run)
        if ended:
            self._pause(run)

    def _leave_update(self) -> None:
        if self.phase == "updating":
            self._enter("rolling_out")

    def _on_reading(self, done: int, total: int) -> None:
        """Report how many prompts are read. Raises _ReadingEnded: the run is to end, and others are left."""
        run = self.active_run
        if run is None or run.policy_map.go_on():
            return
        if done == 0:
            self._reading = self._emitter.progress("reading prompts")
        self._reading(done, total)
        is_playing = self.phase in ("rolling_out", "updating")
        is_to_end = self._is_stop_requested() or bool(run.limit_reached)
        if is_playing and done < total and is_to_end:
            raise _ReadingEnded

    def _wait_for_person(self, run: Run) -> None:
        """Wait for a command; that is neither playing nor training, so the stopwatch stops."""
        run.report_episodes()
        self._map_policy(run, at_once=True)
        run.stopwatch.run(False)
        self.inbox.wait()
        run.stopwatch.run(True)

    def _update(self, run: Run) -> None:
        run.report_episodes()
        if not run.learner.updates and run.stopwatch.elapsed_s >= SLOW_S:
            # The update of a large model takes long, too: whoever leaves during it finds the run again.
            run.save_or_warn(requested=False)
        self._enter("updating")
        verdict = run.update(should_stop=lambda: self._should_end_update(run))
        if run.given is not self._config:
            self._keep(run.given)  # with what its first batch has decided
        self._enter("rolling_out")
        self._collecting = self._emitter.progress("collecting turns")
        run.react_to_update(verdict)

    @property
    def _is_followed(self) -> bool:
        """The run is slow enough for a person to read every event."""
        return self._step_unit is not None or self._turn_s > 0

    def _should_end_update(self, run: Run) -> bool:
        """True if the run should stop; a pause waits for the end of the update.

        Commands that change nothing of the run are handled at once.
        """
        while command := self.inbox.take(
            commands.Watch,
            commands.SetPace,
            commands.DrawStates,
            commands.WatchPolicyMap,
            commands.ProbeActions,
            commands.TakeWheel,
            commands.LetGo,
        ):
            self._handle(command, run)
        return self._is_stop_requested()

    def _handle_commands(self, run: Run) -> None:
        while not is_over(self.phase) and (command := self.inbox.take()) is not None:
            self._handle(command, run)
            if isinstance(command, commands.Step):
                return  # or a second one would be swallowed

    def _handle(self, command: AnyCommand, run: Run) -> None:
        rollout = run.rollout
        refusing = self._emitter.refusing
        match command:
            case commands.Pause():
                self._pause(run)
            case commands.Resume():
                self._step_unit = None
                self._pauses_after_wheel = False
                self._leave_pause()
            case commands.Step(unit=unit):
                self._step(unit, run)
            case commands.SetPace(turn_s=turn_s):
                self._turn_s = turn_s
                self._emit(events.PaceChanged(turn_s=turn_s))
            case commands.Watch(env=env):
                rollout.watch(env)
            case commands.TakeWheel():
                with refusing("wheel", UsageError, EnvError):
                    rollout.take_wheel()
                    # The run waits at each turn of the person, so a step ends, and a pause until they let go.
                    self._step_unit = None
                    self._pauses_after_wheel |= self.phase == "paused"
                    self._leave_pause()
            case commands.Act():
                with refusing("wheel", UsageError, ActionParseError):
                    rollout.act(command.episode, command.turn, command.action)
            case commands.LetGo():
                rollout.wheel.let_go()
            case commands.InspectTurn(episode=episode, turn=turn):
                self._emit(run.inspector.inspect(episode, turn))
            case commands.DrawStates(on=on):
                rollout.set_drawing(on)
            case commands.WatchPolicyMap(on=on):
                run.policy_map.watch(on=on)
            case commands.SetMode(mode=mode):
                run.set_mode(mode)
            case commands.SetSystemPrompt(system_prompt=prompt):
                self._set_prompt(prompt, run)
            case commands.ChangeSettings(changes=changes):
                run.change(changes)
            case commands.Evaluate():
                self._evaluations(run).evaluate(command)
            case commands.ComparePrompts():
                self._evaluations(run).compare(command)
            case commands.ProbeActions():
                self._emit(run.action_probes.probe_conversation(command))
            case commands.WarmStart():
                self._requested_warm_start(command, run)
            case commands.CancelEvaluation() | commands.CancelWarmStart() | commands.StartRun():
                pass  # none is under way any more, or one is already
            case commands.SaveCheckpoint():
                run.save_or_warn()
            case commands.RollBack():
                run.roll_back("requested")
            case commands.Stop():
                self._stop(run)
            case _:
                assert_never(command)

    def _pause(self, run: Run) -> None:
        self._step_unit = None
        if self.phase == "rolling_out":
            run.report_episodes()
            self._enter("paused")

    def _leave_pause(self) -> None:
        if self.phase == "paused":
            self._enter("rolling_out")

    def _step(self, unit: Unit, run: Run) -> None:
        if unit == "update" and run.rollout.mode != "train":
            self._emitter.warn(
                "Nothing is trained in inference mode, so no update comes.", refused="step"
            )
            return
        self._step_unit = unit
        detail = f"one {unit}, then a pause"
        if self.phase == "paused":
            self._enter("rolling_out", detail)
        else:
            self._emit(events.PhaseChanged(phase="rolling_out", detail=detail))

    def _set_prompt(self, prompt: str, run: Run) -> None:
        """Use another prompt, with a map before it and one after it, both of the same weights."""
        if run.policy_map.is_known_as_cheap:
            self._map_policy(run, at_once=True)
        run.set_prompt(prompt)
        self._map_policy(run, at_once=True)

    def _probe_actions(self, run: Run) -> None:
        """Emit how probable each action is where the watched episode waits for a reply."""
        waiting = run.rollout.pending_prompt()
        if waiting is not None and (probed := run.action_probes.probe(waiting)) is not None:
            run.rollout.spectator.observe(waiting.env, probed)

    def _map_policy(
        self, run: Run, *, at_once: bool = False, should_stop: Callable[[], bool] | None = None
    ) -> None:
        run.policy_map.map(
            run.rollout.system_prompt,
            run.rollout.prompt_version,
            run.learner.updates,
            should_stop=should_stop or self._should_end_map,
            at_once=at_once,
        )

    def _should_end_map(self) -> bool:
        """The run is to end, or somebody has opened or closed the map."""
        return self.inbox.holds(commands.Stop, commands.WatchPolicyMap)

    def _evaluations(self, run: Run) -> Evaluations:
        return Evaluations(
            run=run,
            builders=self._builders,
            emitter=self._emitter,
            inbox=self.inbox,
            clock=self._clock,
            log_path=self._store.log_path,
            enter=self._enter,
            should_stop=lambda: self._should_end_evaluation(run),
        )

    def _requested_warm_start(self, command: commands.WarmStart, run: Run) -> None:
        try:
            data = training_data(run.agent, command.sft_data, command.method)
        except (UsageError, DemoFileError) as error:
            self._emitter.warn(f"No warm start: {error}", refused="warm_start")
        else:
            self._warm_start(run, data, command.episodes)

    def _warm_start(self, run: Run, data: TrainingData, episodes: int = 0) -> None:
        """Train on demonstrations, then go on where the run was; evaluate with `episodes` before and after."""
        facts = training_facts(data, run.agent, run.rollout.system_prompt)
        self._emit(facts)
        for doubt in doubts(facts, data.method):
            self._emitter.warn(doubt)
        evaluations = self._evaluations(run)
        played_before = evaluations.around_warm_start(episodes) if episodes else None
        if self._is_warm_start_cancelled():
            self._emitter.warn(
                "The warm start was cancelled; nothing was trained.", refused="warm_start"
            )
            return
        run.report_episodes()
        detail = "loading TRL, which takes some seconds" if run.policy.narrow is None else ""
        before = self._enter("warm_starting", detail)
        try:
            try:
                run.warm_start(data, self._builders, self._is_warm_start_cancelled)
            except UsageError as error:  # there is too little memory, and nothing was changed
                if not self._is_attended:
                    raise
                self._emitter.warn(f"No warm start: {error}", refused="warm_start")
                return
            self._map_policy(run)  # before an evaluation is made, which takes longer
        finally:
            self._enter(before)
        if played_before is None or self._is_warm_start_cancelled():
            return
        played_after = evaluations.around_warm_start(episodes)
        if played_after is not None:
            self._emit(events.WarmStartEvaluated(before=played_before, after=played_after))

    def _is_warm_start_cancelled(self) -> bool:
        return self.inbox.holds(commands.Stop, commands.CancelWarmStart)

    def _is_stop_requested(self) -> bool:
        return self.inbox.holds(commands.Stop)

    def _should_end_evaluation(self, run: Run) -> bool:
        # A person at the table waits for the answer.
        while command := self.inbox.take(commands.ProbeActions):
            self._handle(command, run)
        return self.inbox.holds(commands.Stop, commands.CancelEvaluation, commands.CancelWarmStart)

    def _stop(self, run: Run, *, evaluates: bool = False) -> None:
        run.report_episodes()
        if run.policy_map.is_known_as_cheap:
            until = self._clock() + CHEAP_S
            self._map_policy(run, at_once=True, should_stop=lambda: self._clock() >= until)
        finished = self._finished(run)
        if evaluates:  # the policy that the run ends with
            config = self._config
            final = commands.Evaluate(
                episodes=config.final_episodes, greedy=False, limit_s=config.final_s
            )
            self._evaluations(run).evaluate(final)
        self._enter("stopped")
        self._emit(finished)

    def _finished(self, run: Run) -> events.RunFinished:
        """The end of the run, after its last checkpoint; a full disk is waited for.

        Raises:
            RunStoreError: `ATTEMPTS` failed, or a second stop was requested.
        """
        waits = ATTEMPTS
        while True:
            try:
                return run.finish()
            except RunStoreError as error:
                if not waits:
                    raise RunStoreError(
                        f"{error} What was learnt since the checkpoint before it is lost."
                    ) from error
                if waits == ATTEMPTS:
                    waited = "The last checkpoint waits for space; stop again to end without it."
                    self._emitter.warn(f"{error} {waited}", refused="checkpoint", unwritten=True)
                self.inbox.wait(RETRY_S)
                waits -= 1
                if isinstance(self.inbox.take(), commands.Stop):
                    waits = 0

    def _fail(self, error: Exception) -> None:
        log.error("the session failed", exc_info=error)
        self.error = error
        run = self.active_run
        if run is not None:
            for save in (run.rollout.emit_corrections, run.rescue):
                try:
                    save()
                except Exception:  # a device that is lost answers no more
                    log.exception("not all was saved")
        if not is_over(self.phase):
            self._enter("failed")
        self._emit(session_failed(error, self._store.log_path))

    def _enter(self, phase: events.Phase, detail: str = "") -> events.Phase:
        """Enter a phase; returns the one before it."""
        before = self.phase
        self.phase = entered(self.phase, phase)
        if self.active_run is not None:
            self.active_run.stopwatch.run(phase in ("rolling_out", "updating"))
        self._emit(events.PhaseChanged(phase=phase, detail=detail))
        return before


def entered(now: events.Phase, then: events.Phase) -> events.Phase:
    """The phase `then`, if it may follow `now`. Raises LlamaGymError: it may not, and the session tried to."""
    if then not in _AFTER[now]:
        raise LlamaGymError(
            f"A session cannot go from {now} to {then}; this is a fault of the program: report it."
        )
    return then


def is_over(phase: events.Phase) -> bool:
    """True if nothing can follow a phase."""
    return not _AFTER[phase]
