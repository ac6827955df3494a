"""The ranks of a run: rank 0, which is the session's process, starts the others or meets those of torchrun.

Another rank, started by torch.multiprocessing or as ``train`` under torchrun, plays its share and learns with rank 0.
It prints to the run's log, leaves signals to rank 0, and ends when rank 0 has left.
"""

import logging
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from multiprocessing import resource_tracker
from typing import Any

import torch
from msgspec.structs import replace
from torch import distributed
from torch.multiprocessing.spawn import ProcessException, start_processes

from llamagym_tui.engine.ranks import ALONE, GLOO, Ranks, backend_for
from llamagym_tui.errors import RankLost
from llamagym_tui.protocol.events import Event, WarningRaised
from llamagym_tui.settings import RunConfig
from llamagym_tui.setup.run_config import is_launched, ranks_of
from llamagym_tui.trainer.builders import Builders

GRACE_S = 10.0
"""Seconds for another rank to end by itself."""
POLL_S = 0.1
HOST = "127.0.0.1"
log = logging.getLogger(__name__)


@contextmanager
def started(config: RunConfig) -> Iterator[Ranks]:
    """Rank 0 of a run, with the others at work until it leaves.

    Raises:
        UsageError: the run cannot have this many.
        RankLost: the others do not come.
    """
    if (size := ranks_of(config)) == 1:
        yield ALONE
        return
    with ExitStack() as ended:
        store = None
        children = None
        if not is_launched():
            store = distributed.TCPStore(HOST, 0, size, is_master=True, wait_for_workers=False)  # type: ignore[attr-defined]
            children = _start_others(size, store.port)
            for process in children.processes:
                ended.callback(process.kill)
                ended.callback(process.join, GRACE_S)
            others = [f"{rank}" for rank in range(1, size)]
            while not store.check(others):  # to meet them, nothing would interrupt
                if why := _first_to_end(children, POLL_S):
                    raise RankLost(f"{why} before the run began; its log may have more.")
        why_lost = partial(_first_to_end, children, GRACE_S)
        ranks = Ranks(0, size, store, why_lost, backend_for(size))
        ended.callback(ranks.leave)
        ranks.first(replace(config, ranks=size))
        yield ranks


def _start_others(size: int, port: int) -> Any:
    """Processes that `follow`; ctrl+c in the terminal, which reaches them too, is rank 0's matter from the first on."""
    if sys.platform == "win32":
        return start_processes(follow, (size, port), size - 1, join=False)
    resource_tracker.ensure_running()  # as else the first of them does, which then unblocks it
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        return start_processes(follow, (size, port), size - 1, join=False)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _first_to_end(children: Any, seconds: float) -> str:
    """Which rank has ended within a time, and how; empty: that is not known."""
    try:
        if children:
            children.join(timeout=seconds, grace_period=GRACE_S)
    except ProcessException as error:
        log.error("%s", error)
        how = getattr(error, "signal_name", None) or error.msg.strip().splitlines()[-1]
        return f"Rank {error.error_index + 1} has ended ({how})"
    return ""


def follow(index: int, size: int, port: int | None = None) -> None:
    """Be the rank after `index` to the run's end, by a port of this machine or, without one, by torchrun."""
    backend = backend_for(size)
    _see_one_gpu(int(os.environ.get("LOCAL_RANK", index + 1)))
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s: %(message)s")
    for name in {"SIGINT", "SIGTERM", "SIGHUP"} & set(signal.Signals.__members__):
        signal.signal(signal.Signals[name], signal.SIG_IGN)
    with suppress(RankLost), ExitStack() as ended:  # rank 0 has left, or ends with all
        store = port and distributed.TCPStore(HOST, port, size, wait_for_workers=False)  # type: ignore[attr-defined]
        if store:
            store.set(f"{index + 1}", "is here")
        ranks = Ranks(index + 1, size, store, backend=backend)
        ended.enter_context(ranks.explained(GLOO))
        config = ranks.first()
        builders = Builders(config, ranks)
        agent = builders.agent()
        loaded = builders.model()
        policy = builders.policy(agent, loaded)
        learner = builders.learner(policy)
        builders.threads(policy, loaded)
        rollout: Any = builders.rollout(agent, policy, seed=config.seed, emit=_log_warning)
        ended.callback(rollout.close)
        share = None
        while True:
            match ranks.first(patient=True):
                case ("play", plan):
                    rollout.follow(plan)
                    share = rollout.play_share()
                case ("gather", None):
                    ranks.gather(share)
                case _:
                    learner.update(rollout.take_batch())
                    rollout.forget_caches()


def _see_one_gpu(rank: int) -> None:
    """Let this process see only the GPU of its rank on this node, before any is used; the first rank has the first one.

    So all ranks call theirs by one name, and tensors of others that are gathered lie on it.
    """
    names = os.environ.get("CUDA_VISIBLE_DEVICES") or ",".join(
        map(str, range(torch.cuda.device_count()))
    )
    if names:
        there = names.split(",")
        os.environ["CUDA_VISIBLE_DEVICES"] = there[rank % len(there)]


def _log_warning(event: Event) -> None:
    if isinstance(event, WarningRaised):
        log.warning("%s", event.message)
