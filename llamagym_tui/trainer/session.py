"""A session: one run from loading to its end, driven by commands and reported in events.

One thread does everything in turn: it handles commands, steps all environments, and updates when a batch is full. So a
command never meets a half-made step, except a person's at the wheel; whatever lasts long asks if it should end.
Updates and changes of settings are in `training`, episodes apart from the run in `evaluations`.
"""

import logging
import math
from typing import Literal, assert_never

from msgspec.structs import replace

from llamagym_tui.demos.training_data import TrainingData, doubts, training_data, training_facts
from llamagym_tui.engine.learning.measured_settings import SMALLEST_BATCH
from llamagym_tui.engine.learning.read_depth import can_look
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
from llamagym_tui.settings import Mode, changed, changes_since, changes_to_restore
from llamagym_tui.setup import catalog
from llamagym_tui.trainer import evaluations, training
from llamagym_tui.trainer.builders import Builders
from llamagym_tui.trainer.checkpoints import RETRY_S, Checkpoints, Counters
from llamagym_tui.trainer.collapse import CollapseMonitor
from llamagym_tui.trainer.event_sinks import session_failed
from llamagym_tui.trainer.probes.inspect_reply import ActionProbes, ReplyInspector
from llamagym_tui.trainer.probes.map_policy import PolicyMapper
from llamagym_tui.trainer.ranks import started
from llamagym_tui.trainer.rollout.episode_counts import EpisodeCounter, Stopwatch
from llamagym_tui.trainer.rollout.rollout import PendingPrompt
from llamagym_tui.trainer.session_base import SessionBase, is_over

ATTEMPTS = 120
"""Attempts to write a run's last checkpoint, `RETRY_S` apart."""
SLOW_S = 10.0
"""Seconds of a first batch from which on there is a checkpoint before the first update."""
FIRST_BATCH_S = 45.0
"""Seconds of play after which a run's first batch ends, if its size is not given."""
LAST_MAP_S = 20.0
"""Seconds that the map of a run's last policy may take."""
HISTORY_WARNING = (
    "The model's chat template rewrites earlier turns, so every turn is computed again from its beginning: "
    "long episodes take much longer than with other models."
)
Unit = Literal["turn", "update"]
log = logging.getLogger(__name__)


class _ReadingEnded(BaseException):
    """The run ends while prompts are read. Nobody who tolerates an Exception swallows it."""


class Session(SessionBase):
    error: Exception | None = None
    """The error that ended it, if it failed."""
    _ranks = ALONE
    _is_ending = False
    _step_unit: Unit | None = None
    """The unit of the `Step` under way; None if there is none."""
    _pauses_after_wheel = False
    """The run pauses again once the person lets the agent act."""
    _action_probes: ActionProbes
    _inspector: ReplyInspector

    def run(self) -> events.Phase:
        """Load, play and train until something ends it; the phase in which it ended, stopped or failed."""
        try:
            self._load()
            if self.given.sft_warm_start and (not self.given.resume or self.awaits_warm_start):
                self.awaits_warm_start = True
                self._warm_start(training_data(self.agent, self.given.sft_data))
            with self._ranks.explained(GLOO):
                while not is_over(self.phase):
                    try:
                        self._handle_commands()
                        self._advance()
                    except _ReadingEnded:
                        # What asked for the end is met next; an update that it broke off changed nothing.
                        if self.phase == "updating":
                            self.enter("rolling_out")
        except Exception as error:  # whatever it is, the UI gets a sentence and the log a traceback
            self._fail(error)
        except SystemExit as error:
            self._fail(program_ended(error))
        finally:
            try:
                self._exits.close()
            except Exception:
                log.exception("not closed cleanly")
            is_new = not (self.given.resume or self.given.parent)
            if self.phase == "failed" and not self._is_loaded and is_new:
                is_explained = isinstance(self.error, LlamaGymError)
                self._store.discard_unbegun(keeps_log=not is_explained)
        return self.phase

    # Loading

    def _load(self) -> None:
        """Load all parts of the run, put them where its checkpoint left them, and describe the run."""
        self._ranks = self._exits.enter_context(started(self.given))
        if self._ranks.size > 1:
            self.given = replace(self.given, ranks=self._ranks.size)
            self.builders = Builders(self.given, self._ranks)
        builders = self.builders
        self._loading("loading the model")
        self.agent = builders.agent()
        builders.fetch_model(self._loading)
        builders.require_memory()
        loaded = builders.model()
        if loaded.warning:
            self.emitter.warn(loaded.warning)
        self.policy = builders.policy(self.agent, loaded)
        if self.given.resume:
            builders.checkpoint_files().load_start(self._store.run_dir, self.policy)
        self.learner = builders.learner(self.policy)
        self.checkpoints = Checkpoints(builders, self._store.run_dir, self.policy, self.learner)
        start = self._start()
        self.learner.use_prompt(start.system_prompt)
        if start.seed != self.given.seed:  # other random numbers and episodes from here on
            self.policy.generator.manual_seed(self.given.seed)
            self.learner.random.seed(self.given.seed)
        self._loading("making the environments")
        self.rollout = builders.rollout(
            self.agent, self.policy, seed=self.given.seed, emit=self.showing.emit
        )
        self._exits.callback(self.rollout.close)
        self.rollout.mode = self.given.mode
        self.rollout.set_counters(
            started=start.started,
            episodes=start.episodes,
            env_steps=start.env_steps,
            dropped=start.dropped,
        )
        self.rollout.set_system_prompt(start.system_prompt, start.prompt_version)
        builders.threads(self.policy, loaded)
        self._keep_found()
        self._take_up(start)
        self._is_loaded = True
        self._describe(start, loaded.name, str(loaded.device))
        self.enter("rolling_out")

    def _loading(self, words: str) -> None:
        self.emit(events.PhaseChanged(phase="loading", detail=words))

    def _start(self) -> Counters:
        """Where the run stands: as its checkpoint says, or at its beginning."""
        if self.given.resume:
            start = self.checkpoints.restore()
            if self.checkpoints.note:
                self.emitter.warn(self.checkpoints.note)
        else:
            start = Counters(seed=self.given.seed, system_prompt=self.agent.get_system_prompt())
        return start.with_prompt(self.given.system_prompt)

    def _keep_found(self) -> None:
        """Write what the machine and the agent have decided into the run's settings: a resumed run does the same."""
        history = self.given.history
        if self.given.finds_history:
            self.policy.history = 0
        else:
            history = "all" if self.policy.history is None else self.policy.history
        prompt = self.rollout.system_prompt
        self.keep(
            replace(
                self.given,
                history=history,
                system_prompt=None if prompt == self.agent.get_system_prompt() else prompt,
            )
        )
        self.config = self.given

    def _take_up(self, start: Counters) -> None:
        """Make the probes and counters, and live changes of an earlier session again.

        Raises:
            RunStoreError: the opponent cannot be what it was.
        """
        self.stopwatch = Stopwatch(self.clock, start.elapsed_s)
        self._collecting = self.emitter.progress("playing")
        """Reports how full the batch under way is."""
        self._reading = self.emitter.progress("reading prompts")
        """Reports how many of the prompts that a fixed trunk reads at once are read."""
        self.policy.on_reading = self._on_reading
        turns = None if self.config.wordings else self.rollout.max_turns
        self.policy_map = PolicyMapper(self.agent, self.policy, self.emit, self.clock, turns=turns)
        self._action_probes = ActionProbes(self.agent, self.policy)
        self._inspector = ReplyInspector(self.policy, self.learner, self.rollout)
        self._episode_counter = EpisodeCounter(self.stopwatch, self.clock, start.episodes)
        self.awaits_warm_start = start.awaits_warm_start
        self.is_first_batch = self.learner.updates == 0
        restored = changed(self.given, changes_to_restore(self.given, start.changed))
        if restored.n_envs != self.given.n_envs:
            self.rollout.resize(restored.n_envs)
        training.apply(self, restored)
        self.policy.plays_at_random = self.given.finds_depth and can_look(self.policy)
        self.begin_batch()
        if start.generation == self.config.generation:
            self.monitor = start.seen or self.monitor
        if start.opponent is not None and self.rollout.opponent is not None:
            try:
                self.rollout.opponent.restore(start.opponent)
            except ValueError as error:
                run_dir = self.given.run_dir
                raise RunStoreError(
                    f"The earlier selves in the checkpoint of {run_dir!r} cannot be read ({error}): begin another run "
                    f"with its weights, by --model {run_dir}."
                ) from error

    def _describe(self, start: Counters, model: str, device: str) -> None:
        """Emit what the run is, where it stands, and what may surprise."""
        self.emit(
            events.RunStarted(
                agent=catalog.agent_name(self.config.agent),
                model=model,
                run_dir=self.config.run_dir,
                n_envs=self.config.n_envs,
                mode=self.config.mode,
                system_prompt=self.rollout.system_prompt,
                prompt_version=self.rollout.prompt_version,
                baselines=dict(self.agent.baselines),
                return_unit=self.agent.return_unit,
                device=device,
                draws=self.rollout.draws,
                episodes=start.episodes,
                updates=self.learner.updates,
                trained=self.builders.trained(self.policy),
            )
        )
        if self.showing.turn_s:
            self.emit(events.PaceChanged(turn_s=self.showing.turn_s))
        self.policy_map.lay_out()
        restored = changes_since(self.given, self.config)
        if restored:
            changes = {name: change.after for name, change in restored.items()}
            self.emit(events.SettingsChanged(changes=changes))
        if not self.policy.chat.keeps_history:
            self.emitter.warn(HISTORY_WARNING)
        if self.limit_reached:
            self.emitter.warn(
                f"This run has played {self.limit_reached}, so it ends here; resume it with a larger limit "
                "(--minutes, --episodes)."
            )

    # Playing

    @property
    def limit_reached(self) -> str:
        """The limit that the run has reached, in words; empty if it has reached none."""
        limits = {
            "s": (self.stopwatch.elapsed_s, self.config.minutes and self.config.minutes * 60),
            "episodes": (self.rollout.episodes, self.config.episodes),
        }
        for unit, (played, limit) in limits.items():
            if limit is not None and played >= limit:
                return f"{played:,.0f} of {limit:,.0f} {unit}"
        return ""

    def _advance(self) -> None:
        """Go on until commands can be handled again."""
        if self._pauses_after_wheel and self.rollout.wheel.env is None:
            self._pauses_after_wheel = False
            self._pause()
        if self.phase == "rolling_out":
            self._play()
        elif self.phase == "paused":
            self._probe_actions()
            self._map_policy(at_once=True)
            self.inbox.wait()

    def _play(self) -> None:
        """One turn in every environment, and an update if that has filled the batch."""
        rollout = self.rollout
        if self.limit_reached:
            self._stop(at_limit=True)
            return
        if rollout.awaits_person:
            self._wait_for_person()
            return
        is_driven = rollout.wheel.env is not None
        self.showing.is_live = is_driven or self._step_unit == "turn"
        self.showing.go_on()
        waiting: PendingPrompt | None = None
        if is_driven or self._step_unit is not None:
            rollout.begin_episodes()
            self._probe_actions()
        elif self.showing.turn_s:
            rollout.begin_episodes()
            waiting = rollout.pending_prompt()
        self._episode_counter.add(rollout.step())
        if waiting is not None and waiting.episode == self.showing.episode:
            # Only now: a prompt that is read alone, before the others, would change a seeded run's rounding.
            self._probe_actions(waiting)
        self._end_slow_first_batch()
        if self._episode_counter.is_due:
            self.report_episodes()
        ended = self._step_unit == "turn" and not rollout.awaits_person
        if rollout.mode == "train":
            self._collecting(*rollout.batch_progress)
            if rollout.batch_ready:
                self._update()
                ended = self._step_unit is not None
        self._map_policy()
        if ended:
            self._pause()

    def _end_slow_first_batch(self) -> None:
        """Let a first batch that is played slowly end with the turns that it has, or a person waits for minutes."""
        is_sized = bool(self.config.measured.get("ppo.batch_size", "given"))
        played_s = self.stopwatch.elapsed_s - self.batch_began_s
        if is_sized or not self.is_first_batch or played_s < FIRST_BATCH_S:
            return
        turns, wanted = self.rollout.batch_progress
        self.rollout.batch_turns = min(max(turns, SMALLEST_BATCH), wanted)
        self.rollout.cuts_episodes = self.config.ppo.has_critic

    def _wait_for_person(self) -> None:
        """Wait for a command; that is neither playing nor training, so the stopwatch stops."""
        self.report_episodes()
        self._map_policy(at_once=True)
        self.stopwatch.run(False)
        self.inbox.wait()
        self.stopwatch.run(True)

    def _update(self) -> None:
        self.report_episodes()
        if not self.learner.updates and self.stopwatch.elapsed_s >= SLOW_S:
            # The update of a large model takes long, too: whoever leaves during it finds the run again.
            self.save_or_warn(requested=False)
        self.enter("updating")
        verdict = training.update(self)
        self.enter("rolling_out")
        self._collecting = self.emitter.progress("playing")
        training.react(self, verdict)

    def _on_reading(self, done: int, total: int) -> None:
        """Report how many prompts are read. Raises _ReadingEnded: the run is to end, and others are left."""
        if done == 0:
            self._reading = self.emitter.progress("reading prompts")
        self._reading(done, total)
        is_playing = self.phase in ("rolling_out", "updating") and not self._is_ending
        is_to_end = self.inbox.holds(commands.Stop) or bool(self.limit_reached)
        if is_playing and done < total and is_to_end:
            raise _ReadingEnded

    def _probe_actions(self, waiting: PendingPrompt | None = None) -> None:
        """Emit how probable each action is at a prompt, or where the watched episode waits for a reply."""
        waiting = waiting or self.rollout.pending_prompt()
        if waiting is not None and (probed := self._action_probes.probe(waiting)) is not None:
            self.rollout.spectator.observe(waiting.env, probed)

    def _show_live(self) -> None:
        """Show the watched episode as far as it is played, instead of one that is shown at a pace."""
        if not self.showing.is_direct:
            spectator = self.rollout.spectator
            self.showing.go_live(spectator.events_of(spectator.env))
            self.rollout.set_drawing(self.rollout.is_drawing)

    def _map_policy(self, *, at_once: bool = False, longest_s: float = math.inf) -> None:
        """Go on with the policy map, unless a command waits, or it is not known yet which layers are read."""
        if self.policy.plays_at_random:
            return
        until = self.clock() + longest_s
        self.policy_map.map(
            self.rollout.system_prompt,
            self.rollout.prompt_version,
            self.learner.updates,
            should_stop=lambda: self.inbox.holds() or self.clock() >= until,
            at_once=at_once,
        )

    # Commands

    def _handle_commands(self) -> None:
        while not is_over(self.phase) and (command := self.inbox.take()) is not None:
            self.handle(command)
            if isinstance(command, commands.Step):
                return  # or a second one would be swallowed

    def handle(self, command: AnyCommand) -> None:
        rollout = self.rollout
        refusing = self.emitter.refusing
        match command:
            case commands.Pause():
                self._pause()
            case commands.Resume():
                self._pauses_after_wheel = False
                self._leave_pause()
            case commands.Step(unit=unit):
                self._step(unit)
            case commands.SetPace(turn_s=turn_s):
                self._show_live()
                self.showing.turn_s = turn_s
                self.emit(events.PaceChanged(turn_s=turn_s))
            case commands.Watch(env=env):
                rollout.watch(env)
            case commands.TakeWheel():
                with refusing("wheel", UsageError, EnvError):
                    self._show_live()
                    rollout.take_wheel()
                    # The run waits at each turn of the person, so a step ends, and a pause until they let go.
                    self._pauses_after_wheel |= self.phase == "paused"
                    self._leave_pause()
            case commands.Act():
                with refusing("wheel", UsageError, ActionParseError):
                    rollout.act(command.episode, command.turn, command.action)
            case commands.LetGo():
                rollout.wheel.let_go()
            case commands.InspectTurn(episode=episode, turn=turn):
                self.emit(self._inspector.inspect(episode, turn))
            case commands.DrawStates(on=on):
                rollout.set_drawing(on)
            case commands.SetMode(mode=mode):
                self._set_mode(mode)
            case commands.SetSystemPrompt(system_prompt=prompt):
                self._set_prompt(prompt)
            case commands.ChangeSettings(changes=changes):
                training.change(self, changes)
            case commands.Evaluate():
                evaluations.evaluate(self, command)
            case commands.ComparePrompts():
                evaluations.compare(self, command)
            case commands.ProbeActions():
                self.emit(self._action_probes.probe_conversation(command))
            case commands.WarmStart():
                with refusing("warm_start", UsageError, DemoFileError):
                    data = training_data(self.agent, command.sft_data, command.method)
                    self._warm_start(data, command.episodes)
            case commands.CancelEvaluation() | commands.CancelWarmStart() | commands.StartRun():
                pass  # none is under way any more, or one is already
            case commands.SaveCheckpoint():
                self.save_or_warn()
            case commands.RollBack():
                training.roll_back(self)
            case commands.Stop():
                self._stop()
            case _:
                assert_never(command)

    def _pause(self) -> None:
        self._step_unit = None
        if self.phase == "rolling_out":
            self.report_episodes()
            self.enter("paused")

    def _leave_pause(self) -> None:
        self._step_unit = None
        if self.phase == "paused":
            self.enter("rolling_out")

    def _step(self, unit: Unit) -> None:
        if unit == "update" and self.rollout.mode != "train":
            self.emitter.warn(
                "Nothing is trained in inference mode, so no update comes.", refused="step"
            )
            return
        if unit == "turn":
            self._show_live()
        self._step_unit = unit
        detail = f"one {unit}, then a pause"
        if self.phase == "paused":
            self.enter("rolling_out", detail)
        else:
            self.emit(events.PhaseChanged(phase="rolling_out", detail=detail))

    def _set_mode(self, mode: Mode) -> None:
        if mode == "train" and self.rollout.mode != "train":
            self.begin_batch()  # playing in between was not for the batch
        self.rollout.mode = mode
        self.emit(events.ModeChanged(mode=mode))

    def _set_prompt(self, prompt: str) -> None:
        """Use another prompt from the next reset on, with a map before it and one after it of the same weights."""
        if self.policy_map.is_cheap:
            self._map_policy(at_once=True)
        version = self.rollout.prompt_version + 1
        self.rollout.set_system_prompt(prompt, version)
        self.monitor = CollapseMonitor()
        self.emit(events.PromptChanged(prompt_version=version, system_prompt=prompt))
        if self.learner.use_prompt(prompt):
            self.opponent_begins_anew()
            self.restart()
        self._map_policy(at_once=self.policy_map.reads_fast)

    def _warm_start(self, data: TrainingData, episodes: int = 0) -> None:
        """Train on demonstrations, then go on where the run was; evaluate with `episodes` before and after.

        Raises:
            UsageError: there is too little memory; nothing was changed.
        """
        facts = training_facts(data, self.agent, self.rollout.system_prompt)
        self.emit(facts)
        for doubt in doubts(facts, data.method):
            self.emitter.warn(doubt)
        before = evaluations.around_warm_start(self, episodes)
        if self.should_end_warm_start():
            self.emitter.warn(
                "The warm start was cancelled; nothing was trained.", refused="warm_start"
            )
            return
        self.report_episodes()
        detail = "loading TRL, which takes some seconds" if self.policy.narrow is None else ""
        phase = self.enter("warm_starting", detail)
        try:
            training.warm_start(self, data)
            self._map_policy()  # before an evaluation is made, which takes longer
        finally:
            self.enter(phase)
        if before is None or self.should_end_warm_start():
            return
        after = evaluations.around_warm_start(self, episodes)
        if after is not None:
            self.emit(events.WarmStartEvaluated(before=before, after=after))

    # Checkpoints and the end

    def _stop(self, *, at_limit: bool = False) -> None:
        """End the run with a map, a checkpoint and, at its limit, an evaluation of its last policy."""
        self._is_ending = True
        self.report_episodes()
        if at_limit or self.policy_map.is_cheap:
            self._map_policy(at_once=True, longest_s=LAST_MAP_S)
        self.rollout.emit_corrections()
        self._save_last()
        counters = self._counters()
        if at_limit and self._evaluates_end:
            config = self.given
            final = commands.Evaluate(
                episodes=config.final_episodes, greedy=False, limit_s=config.final_s
            )
            evaluations.evaluate(self, final)
        self.enter("stopped")
        self.emit(
            events.RunFinished(
                episodes=counters.episodes,
                env_steps=counters.env_steps,
                updates=self.learner.updates,
                elapsed_s=counters.elapsed_s,
            )
        )

    def _save_last(self) -> None:
        """Write the last checkpoint, if there is anything new; a full disk is waited for.

        Raises:
            RunStoreError: `ATTEMPTS` failed, or a second stop was requested.
        """
        for attempt in range(ATTEMPTS + 1):
            if not self.has_news:
                return
            try:
                self.save()
            except RunStoreError as error:
                if attempt == 0:
                    waited = "The last checkpoint waits for space; stop again to end without it."
                    self.emitter.warn(f"{error} {waited}", refused="checkpoint", unwritten=True)
                self.inbox.wait(RETRY_S)
                is_last = attempt == ATTEMPTS or isinstance(self.inbox.take(), commands.Stop)
                if is_last:
                    raise RunStoreError(
                        f"{error} What was learnt since the checkpoint before it is lost."
                    ) from error

    def _fail(self, error: Exception) -> None:
        log.error("the session failed", exc_info=error)
        self.error = error
        if self._is_loaded:
            for save in (self.rollout.emit_corrections, self._rescue):
                try:
                    save()
                except Exception:  # a device that is lost answers no more
                    log.exception("not all was saved")
        if not is_over(self.phase):
            self.enter("failed")
        self.emit(session_failed(error, self._store.log_path))

    def _rescue(self) -> None:
        """Write a checkpoint before the run ends by a failure, unless that would keep weights that are not finite."""
        self.report_episodes()
        if self.has_news and self.policy.is_finite:
            self.save_or_warn(
                requested=False, then="What was learnt since the one before it is lost."
            )
