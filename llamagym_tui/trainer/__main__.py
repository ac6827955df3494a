"""The trainer process: ``python -m llamagym_tui.trainer LOG_PATH``, commands on stdin, events on stdout.

Nothing heavy is imported before ``Hello`` is sent. The process ends by a command, when its commands end (its
parent is gone), or by an error; within `GRACE_S` of the end of its commands, so it is never an orphan.
Exit codes: 0 stopped, 1 failed, 2 wrong usage.
"""

import faulthandler
import logging
import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from llamagym_tui.errors import LlamaGymError, WireError
from llamagym_tui.protocol.commands import AnyCommand, StartRun, Stop
from llamagym_tui.protocol.events import PROTOCOL_VERSION, Event, Hello, SessionFailed
from llamagym_tui.protocol.wire import decode_command, read_frame
from llamagym_tui.settings import RunConfig
from llamagym_tui.trainer.pipes import EventPipe, take_over_wire

GRACE_S = 20.0
"""Seconds that a step or update under way has to end, and a checkpoint to be written, once the parent is gone."""
PACE_S = 0.5
"""Seconds of a turn that a screen shows at first: eyes follow it, and its batch is still there to be inspected."""
log = logging.getLogger("llamagym_tui.trainer")


def main(arguments: list[str]) -> int:
    """Run one session; the exit code."""
    if len(arguments) != 1:
        print(
            "Usage: python -m llamagym_tui.trainer LOG_PATH; llamagym-tui starts it by itself.",
            file=sys.stderr,
        )
        return 2
    wire = take_over_wire(Path(arguments[0]))
    faulthandler.enable()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s: %(message)s")
    command_queue: queue.SimpleQueue[AnyCommand] = queue.SimpleQueue()
    _handle_signals(command_queue)
    pipe = EventPipe(wire.events, on_gone=lambda: command_queue.put(Stop()))
    pipe.send(Hello(protocol=PROTOCOL_VERSION))
    is_imported = threading.Event()
    threading.Thread(
        target=listen,
        args=(wire.commands, command_queue, is_imported),
        name="commands",
        daemon=True,
    ).start()
    try:
        return _session(command_queue, pipe.send, is_imported)
    except LlamaGymError as error:  # before there is a session that could report it
        log.exception("no session")
        pipe.send(SessionFailed(message=str(error)))
        return 1
    finally:
        pipe.close()


def listen(
    commands: BinaryIO,
    command_queue: queue.SimpleQueue[AnyCommand],
    is_imported: threading.Event,
) -> None:
    """Queue commands until there are no more; then request a stop, and enforce it.

    Before the libraries are imported nothing has begun that could be saved, so that a stop ends the process at once.
    """
    try:
        while (payload := read_frame(commands)) is not None:
            command = decode_command(payload)
            if isinstance(command, Stop) and not is_imported.is_set():
                os._exit(0)
            command_queue.put(command)
        log.info("the commands have ended")
    except (OSError, WireError):
        log.exception("the commands cannot be read any more")
    command_queue.put(Stop())
    time.sleep(GRACE_S)  # a process that ends in time takes this daemon thread with it
    log.error(
        "still busy %.0f s after the commands have ended: leaving without a checkpoint", GRACE_S
    )
    logging.shutdown()
    os._exit(1)


def _session(
    command_queue: queue.SimpleQueue[AnyCommand],
    send: Callable[[Event], None],
    is_imported: threading.Event,
) -> int:
    first = command_queue.get()
    if isinstance(first, Stop):
        return 0
    if not isinstance(first, StartRun):
        raise WireError(
            f"The first command was {type(first).__name__}, not StartRun; this is a fault of the program."
        )
    if first.protocol != PROTOCOL_VERSION:
        raise WireError(
            f"The user interface has version {first.protocol} of the protocol and the trainer version "
            f"{PROTOCOL_VERSION}; install one version of llamagym-tui and start it again."
        )
    from llamagym_tui.runs.run_store import RunStore

    store = RunStore.create(first.config)  # refused before heavy libraries are imported
    for event in map_to_come(first.config):
        send(event)
    from llamagym_tui.trainer.session import Session

    is_imported.set()
    session = Session(first.config, store, command_queue, sinks=[send], turn_s=PACE_S)
    return 0 if session.run() == "stopped" else 1


def map_to_come(config: RunConfig) -> list[Event]:
    """The layout of the policy map of an agent that ships, by which a screen shows the best play while libraries load.

    The session lays it out again, and says what is wrong with it; code of a user's own is run there alone.
    """
    from llamagym_tui.setup.catalog import agent_of, code_of, made
    from llamagym_tui.trainer.map_layout import lay_out

    try:
        agent = None if code_of(config.agent) else made(agent_of(config))
        policy_map = None if agent is None else agent.policy_map()
        return [] if agent is None or policy_map is None else [lay_out(agent, policy_map)]
    except (LlamaGymError, ValueError):
        log.exception("no map to come")
        return []


def _handle_signals(command_queue: queue.SimpleQueue[AnyCommand]) -> None:
    """The first signal requests a stop, the second one ends the process; ctrl+c belongs to the user interface."""

    def stop(number: int, frame: object) -> None:
        signal.signal(number, signal.SIG_DFL)
        command_queue.put(Stop())

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, stop)
    if hasattr(signal, "SIGHUP"):
        signal.signal(signal.SIGHUP, stop)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
