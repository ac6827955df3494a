"""The ranks of a run: rank 0, which is the session's process, starts the others or meets those of torchrun.

Another rank, started by torch.multiprocessing or as ``train`` under torchrun, plays its share and learns with rank 0,
whose orders it carries out. It prints to the run's log, leaves signals to rank 0, and ends with it.
"""

import logging
import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from msgspec.structs import replace

from llamagym_tui.config import RunConfig
from llamagym_tui.engine.ranks import ALONE, Ranks
from llamagym_tui.errors import RankLost, UsageError
from llamagym_tui.protocol.events import Event, WarningRaised
from llamagym_tui.trainer.builders import Builders
from llamagym_tui.trainer.descriptors import quiet_libraries

GRACE_S = 10.0
"""Seconds for another rank to end by itself."""
HOST = "127.0.0.1"
log = logging.getLogger(__name__)


@contextmanager
def started(config: RunConfig) -> Iterator[Ranks]:
    """Rank 0 of a run, the others at work; when it ends, they end.

    Raises:
        UsageError: there are more ranks than environments.
        RankLost: the others do not come.
    """
    is_launched = "TORCHELASTIC_RUN_ID" in os.environ
    size = int(os.environ["WORLD_SIZE"]) if is_launched else config.ranks
    if size == 1:
        yield ALONE
        return
    if config.n_envs < size:
        raise UsageError(f"{size} ranks need an environment each; set --envs to {size} or more.")
    import torch.distributed as distributed
    from torch.distributed import TCPStore  # type: ignore[attr-defined]
    from torch.multiprocessing.spawn import start_processes

    with ExitStack() as ended:
        store: Any = None
        children: Any = None
        if not is_launched:
            store = TCPStore(HOST, 0, size, is_master=True, wait_for_workers=False)
            children = start_processes(follow, (size, store.port), size - 1, join=False)
            for process in children.processes:
                ended.callback(process.kill)
                ended.callback(process.join, GRACE_S)
        ranks = Ranks(0, size, store, lambda: _first_to_end(children))
        ended.callback(distributed.destroy_process_group)
        ranks.first(replace(config, ranks=size))
        yield ranks
        if not ranks.under_way:
            ranks.order("end")


def _first_to_end(children: Any) -> str:
    """Which rank has ended, and how; empty: that is not known."""
    from torch.multiprocessing.spawn import ProcessException

    try:
        for _ in children.processes if children else ():
            children.join(timeout=2.0, grace_period=GRACE_S)
    except ProcessException as error:
        log.error("%s", error)
        how = getattr(error, "signal_name", None) or error.msg.strip().splitlines()[-1]
        return f"Rank {error.error_index + 1} has ended ({how})"
    return ""


def follow(index: int, size: int, port: int | None = None) -> None:
    """Be the rank after `index` to the run's end, by a port of this machine or, without one, by torchrun."""
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

    quiet_libraries()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s: %(message)s")
    for name in {"SIGINT", "SIGTERM", "SIGHUP"} & set(signal.Signals.__members__):
        signal.signal(signal.Signals[name], signal.SIG_IGN)
    try:
        store = port and TCPStore(HOST, port, size, wait_for_workers=False)
        _carry_out(Ranks(index + 1, size, store))
    except RankLost as error:
        log.info("%s", error)


def _log_warning(event: Event) -> None:
    if isinstance(event, WarningRaised):
        log.warning("%s", event.message)


def _carry_out(ranks: Ranks) -> None:
    """Play and learn by the orders of rank 0, to the last one."""
    config: Any = ranks.first(None)
    builders = Builders(config, ranks)
    agent, loaded = builders.agent(), builders.model()
    policy = builders.policy(agent, loaded)
    ppo = builders.ppo(policy)
    rollout: Any = builders.rollout(agent, policy, seed=config.seed, emit=_log_warning)
    builders.threads(policy, loaded)
    while (order := ranks.order())[0] != "end":
        name, plan, arguments = order
        rollout.follow(plan)
        if name == "update":
            ppo.update(rollout.take_batch())
        else:
            ranks.report(getattr(rollout, name)(*arguments))
        if name != "play":
            rollout.forget_caches()
