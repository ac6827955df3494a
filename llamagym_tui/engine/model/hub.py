"""One short request finds out if the hub answers, for everything that is loaded.

If it does not answer in time, the hub's libraries are set offline. On their own they would wait for each file, which
is minutes of silence behind a firewall that drops packets. Models in the hub's cache still load.
"""

import threading
import time

import huggingface_hub
from huggingface_hub import constants

from llamagym_tui.errors import ModelLoadError
from llamagym_tui.runs import model_registry

ANSWER_S = 3.0
"""Seconds within which a hub has to answer: names, proxies and encryption included."""
HOLDS_S = 60.0
"""Seconds for which an answer holds, so that all steps of a loading share it."""
INSTEAD = "or use --model bundled"


class _Asked:
    """The last answer of the hub; this process has one network."""

    def __init__(self) -> None:
        self.at_s: float | None = None
        """By the monotonic clock. None: never asked."""
        self.answers = False


_last = _Asked()


def is_reachable(name: str) -> bool:
    """True if the hub answers; False at once if its libraries were set offline."""
    if constants.HF_HUB_OFFLINE and (_last.at_s is None or _last.answers):
        return False
    now = time.monotonic()
    if _last.at_s is None or now - _last.at_s >= HOLDS_S:
        constants.HF_HUB_OFFLINE = False
        _last.answers = _answers(name)
        _last.at_s = time.monotonic()
        constants.HF_HUB_OFFLINE = not _last.answers
    return _last.answers


def require_reachable(name: str) -> None:
    """Ask the hub, and fail at once where it does not answer and a hub model is not in its cache, or not whole.

    Raises:
        ModelLoadError: it is not here, and the hub does not answer.
    """
    if is_reachable(name) or model_registry.is_in_hub_cache(name):
        return
    begun = isinstance(huggingface_hub.try_to_load_from_cache(name, "config.json"), str)
    raise ModelLoadError(
        f"Model {name!r} is {'only in part' if begun else 'not'} on this machine and the hub cannot be reached: "
        f"check its name and the network, {INSTEAD}."
    )


def _answers(name: str) -> bool:
    """True if the hub answers a first request within `ANSWER_S`."""
    answered = threading.Event()

    def ask() -> None:
        try:
            url = huggingface_hub.hf_hub_url(name, "config.json")
            answer = huggingface_hub.get_session().head(
                url, timeout=ANSWER_S, follow_redirects=False
            )
        except Exception:  # of the hub's HTTP library, of a proxy, or a name that no hub can have
            return
        if answer.status_code < 500:  # a broken hub, or a proxy that does not reach it
            answered.set()

    # Looking up a host's name has no time limit, so the request is left behind when its time is over.
    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    asking.join(ANSWER_S)
    return answered.is_set()
