"""An environment in a process of its own: slow ones step at the same time, and one that dies is made again alone.

It ends with the trainer, however that ends. Whether environments are slow is measured once, by `ParallelMaker`.
"""

import atexit
import multiprocessing
import os
import pickle
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from multiprocessing.connection import Connection
from operator import methodcaller
from typing import Any

import gymnasium
import psutil

from llamagym_tui.config import ParallelEnvs
from llamagym_tui.errors import RAISED, EnvError
from llamagym_tui.game.environment import EnvMaker, agent_env
from llamagym_tui.game.observations import Range
from llamagym_tui.setup.catalog import find_agent, made
from llamagym_tui.trainer.generators import Generators
from llamagym_tui.trainer.rollout.environments import close
from llamagym_tui.trainer.rollout.failures import EpisodeFault

SLOW_S = 0.005
"""Seconds of a step from which on a process is worth what it costs: its start, and some 0.1 ms a step."""
STEPS = 3
"""Steps that are measured, at most: a first one may be slow alone."""
LONG_S = 1.0
"""Seconds after which no further step is measured."""
END_S = 2.0
"""Seconds that an environment has to close."""
MEMORY = 0.5
"""Share of the free memory that processes which nobody asked for may take."""
FILES = 10_240
"""Open files that are enough: a process takes 3 (macOS allows 256 in all)."""
OFF = "--set parallel_envs=off steps it in the trainer's own process"


def agent_env_of(
    spec: str, env: Mapping[str, Any], ranges: Sequence[Range] | None, more: Mapping[str, Any]
) -> gymnasium.Env[Any, Any]:
    """The environment of an agent that is known by what can be sent to another process."""
    return agent_env(made(find_agent(spec, env, ranges)), more=more)


class EnvProcess:
    """What an `EnvSlot` needs of an environment, from one in another process; begins to be made at once."""

    def __init__(
        self, make: Callable[[], gymnasium.Env[Any, Any]], like: gymnasium.Env[Any, Any]
    ) -> None:
        """`make` can be pickled, and makes an environment with the spaces of `like`.

        Raises:
            EnvError: the system allows no more processes.
        """
        self.action_space = like.action_space
        self.spec = like.spec
        self.render_mode = like.render_mode
        self.unwrapped = like.unwrapped  # closed, and as it was made
        self._is_sent = False
        """Whether a result is on its way."""
        self._unsent: EpisodeFault | None = None
        """Why a call could not be sent."""
        # A fork of the trainer would have its locks, not its threads.
        kind = "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"
        context: Any = multiprocessing.get_context(kind)
        context.set_forkserver_preload(["gymnasium", __name__])
        try:
            ours, theirs = context.Pipe()
            self._connection = ours
            # A daemon could start no process of its own.
            self._process = context.Process(target=_serve, args=(theirs, make), daemon=False)
            self._process.start()
        except OSError as error:
            raise EnvError(
                f"No process can be started for an environment: {error}; {OFF}."
            ) from error
        theirs.close()
        atexit.register(self._process.kill)  # multiprocessing would wait for it

    def send(self, function: Callable[..., Any], *args: Any) -> None:
        """Begin a call, which the next `call` is the end of."""
        self._is_sent = True
        try:
            self._connection.send((function, args))
        except OSError:
            self._unsent = self._death()
        except Exception as error:  # of pickling, whatever it comes upon
            self._unsent = EpisodeFault(
                f"its action cannot be sent to another process ({OFF})", error
            )

    def call(self, function: Callable[..., Any], *args: Any) -> Any:
        """What a function of the environment returns there, called now if it was not sent before.

        Raises:
            EpisodeFault: the function failed there, or the process has ended.
        """
        if not self._is_sent:
            self.send(function, *args)
        unsent = self._unsent
        self._is_sent = False
        self._unsent = None
        if unsent is not None:
            raise unsent
        try:
            result = self._connection.recv()
        except (EOFError, OSError) as error:
            raise self._death() from error
        except Exception as error:  # of unpickling
            raise EpisodeFault(
                f"its observation or info cannot be read here ({OFF})", error
            ) from error
        if isinstance(result, EpisodeFault):
            raise result
        return result

    def render(self) -> Any:
        return self.call(methodcaller("render"))

    def close(self) -> None:
        self._connection.close()
        self._process.join(0 if self._is_sent else END_S)
        self._process.kill()
        self._process.join()
        atexit.unregister(self._process.kill)

    def _death(self) -> EpisodeFault:
        self._process.join(END_S)
        code = self._process.exitcode or 0
        how = f"ended with exit code {code}"
        if code < 0:
            how = f"was ended by {signal.Signals(-code).name}"
        return EpisodeFault(f"the process of the environment {how}")


def _serve(connection: Connection, make: Callable[[], gymnasium.Env[Any, Any]]) -> None:
    # These signals are the trainer's matter; what this process starts does not inherit that.
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):
        signal.signal(getattr(signal, name, signal.SIGINT), lambda number, frame: None)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    env = _result(make)
    with suppress(EOFError, OSError):  # the trainer needs it no more
        while True:
            function, args = connection.recv()
            result = env if isinstance(env, EpisodeFault) else _result(function, env, *args)
            try:
                connection.send(result)
            except OSError:
                raise
            except Exception as error:  # of pickling
                what = f"its observation or info cannot be sent to another process ({OFF})"
                connection.send(EpisodeFault(what, error))
    if not isinstance(env, EpisodeFault):
        close(env, 0)


def _result(function: Callable[..., Any], *args: Any) -> Any:
    try:
        return function(*args)
    except EpisodeFault as fault:
        return fault
    except RAISED as error:
        return EpisodeFault("a call failed in the environment's process", error)


def _end_with_parent() -> None:
    """The trainer may be killed in the middle of a step of this environment."""
    if (parent := multiprocessing.parent_process()) is not None:
        parent.join()
    os._exit(1)


class ParallelMaker:
    """Makes a rollout's environments, as `EnvMaker` does or each in a process of its own; the first one is measured."""

    def __init__(
        self,
        here: EnvMaker,
        there: Callable[..., gymnasium.Env[Any, Any]],
        when: ParallelEnvs,
        count: int,
    ) -> None:
        """Makes so many environments.

        Args:
            there: makes an environment with more keyword arguments, in a mapping; it can be pickled.
        """
        self._here = here
        self._there = there
        self._when = when
        self._count = count
        self._like: gymnasium.Env[Any, Any] | None = None
        """What environments in processes are like. None: they are in this one."""
        self.notice = ""
        """Where the measurement found slow steps: how slow they are, and what follows from it."""

    def __call__(self) -> gymnasium.Env[Any, Any] | EnvProcess:
        if self._like is not None:
            return self._apart(self._like)
        env = self._here()
        when = self._when
        self._when = "off"  # whatever this one shows holds for all
        if when == "off" or (when == "auto" and not self._pays(env)):
            return env
        self._like = env
        _allow_files()
        close(env, 0)
        return self._apart(env)

    def _apart(self, like: gymnasium.Env[Any, Any]) -> EnvProcess:
        return EnvProcess(partial(self._there, self._here.more or {}), like)

    def _pays(self, env: gymnasium.Env[Any, Any]) -> bool:
        """Whether steps are slow, and there is memory for processes; of slow steps the notice has what was found."""
        step_s = _measured_step(env)
        if step_s <= SLOW_S:
            return False
        took = f"takes {1e3 * step_s:,.0f} ms a step"
        if needed := self._too_much(env):
            self.notice = (
                f"{took}, and {self._count:,} environments step one after another, as in processes of their own they "
                f"would take {needed}: fewer of them (--envs) step at the same time."
            )
            return False
        self.notice = f"{took}: {self._count:,} environments step at the same time."
        return True

    def _too_much(self, env: gymnasium.Env[Any, Any]) -> str:
        """The memory of all processes, by that of one, if it is more than they may take; else empty."""
        # Here alone: the process from which those of environments are forked imports this module, and needs no torch.
        from llamagym_tui.engine.memory import as_gib, host_free

        trial = self._apart(env)
        try:
            needed = self._count * trial.call(_own_memory)
        except EpisodeFault:
            return ""  # it cannot be made there, which the first episode reports
        finally:
            trial.close()
        return as_gib(needed) if needed > MEMORY * host_free() else ""


def _own_memory(env: object) -> int:
    """Bytes that this process shares with no other one."""
    found: int = psutil.Process().memory_full_info().uss
    return found


def _allow_files() -> None:
    """Let this process have as many files open as its environments need, where the system allows it."""
    with suppress(ImportError, OSError, ValueError):
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if 0 < soft < FILES:  # no limit is -1, or very large
            wanted = min(FILES, hard) if hard > 0 else FILES
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _measured_step(env: gymnasium.Env[Any, Any]) -> float:
    """Seconds of a step, the least of some, on random actions; 0: it fails, or shows what cannot be sent."""
    least = float("inf")
    began = time.perf_counter()
    generators = Generators.now()
    try:
        env.action_space.seed(0)
        env.reset(seed=0)
        for _ in range(STEPS):
            action = env.action_space.sample()
            at = time.perf_counter()
            observation, _, terminated, truncated, info = env.step(action)
            least = min(least, time.perf_counter() - at)
            if least <= SLOW_S or time.perf_counter() - began > LONG_S:
                break
            if terminated or truncated:
                env.reset()
        pickle.loads(pickle.dumps((observation, info)))
    except RAISED:
        return 0.0
    finally:
        generators.restore()
    return least
