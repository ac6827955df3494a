"""`AgentBase`: an agent without its model, as all but `llamagym_tui.agent` knows agents."""

import json
import operator
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from llamagym_tui.errors import MOST_WORDS, ActionParseError, described
from llamagym_tui.game.actions import FAILED, ActionReading, json_index, read_action
from llamagym_tui.game.policy_map import PolicyMap


class AgentBase(ABC):
    """How an agent words its prompt and observations, and how its replies are read."""

    env_id: ClassVar[str] = ""
    """Gymnasium id of the environment that it plays."""
    more_ids: ClassVar[str] = ""
    """Pattern of other ids, at their beginning, that go to it on the command line; for agents that ship."""
    extra: ClassVar[str] = ""
    """The extra of this program that brings what its environment needs; empty: none."""
    env_kwargs: ClassVar[Mapping[str, Any]] = {}
    """Keyword arguments of ``gymnasium.make``."""
    title: ClassVar[str] = ""
    """Name for people; empty: the class's name."""
    description: ClassVar[str] = ""
    """One line for people."""
    picture: ClassVar[str] = ""
    """A small picture in characters for the list of agents, at most 4 rows of 14 cells; empty: none."""
    action_names: ClassVar[tuple[str, ...]] = ()
    """Names of discrete actions, by index; empty: found from the environment's action space."""
    action_keys: ClassVar[Mapping[str, int]] = {}
    """Key on which a person takes an action; empty: the digit of its index."""
    baselines: ClassVar[Mapping[str, float]] = {}
    """Published mean returns by name."""
    return_unit: ClassVar[str] = ""
    """What a return counts, as it is said after the figure: ``steps``, ``chips a hand``; empty: it has no unit."""
    counts_actions: ClassVar[bool] = False
    """Whether actions are indices of `action_names` whatever the environment's own are: counted from another number, or
    combinations of several decisions."""
    history: ClassVar[int | None] = None
    """Turns before the present one that a prompt has, if a run does not set another number. None: the whole
    conversation. 0: system prompt and present observation, which is enough where an observation has the whole state."""
    action_repeat: ClassVar[int] = 1
    """Environment steps that an action is held for, whose rewards are summed."""
    run_settings: ClassVar[Mapping[str, Any]] = {}
    """Settings of training runs by their dotted names, as ``{"ppo.gamma": 0.99}``, where a run does not set others."""
    fallback_action: ClassVar[Any] = 0
    """What the environment gets when a reply names no action."""

    reading_fault: str = ""
    """The first error that `extract_action` raised, other than ``ActionParseError``, as a sentence; empty: none."""

    @abstractmethod
    def get_system_prompt(self) -> str:
        """The system message of every episode."""

    @abstractmethod
    def format_observation(self, observation: Any, *args: Any, **kwargs: Any) -> str:
        """The user message for an observation.

        Define it with ``(self, observation)`` or, to use what the environment adds, ``(self, observation, info)``.
        """

    def actions(self, observation: Any, *args: Any, **kwargs: Any) -> Sequence[str] | None:
        """Names of the actions that are admissible on an observation; None (the default): those of `action_names`.

        Define it with ``(self, observation, info)``: what a text game lists in its ``info`` is often all there is to
        return. A name that is not in `action_names` is the action itself. Without this method, an ``action_mask`` in
        ``info`` leaves out what it masks.
        """
        return None

    def extract_action(self, response: str) -> Any:
        """The action that a reply names; by default one of `action_names`, by `read_action`.

        Returns an action, or an `ActionReading` (as `read_action` gives) to keep how it was read. None, or raising
        ``ActionParseError``, means that the reply names none.
        """
        return read_action(response, self.action_names)

    def wrap_env(self, env: Any) -> Any:
        """The environment as this agent plays it; as it is (the default), or in Gymnasium's wrappers."""
        return env

    def format_action(self, action: Any) -> str:
        """The canonical reply that names an action: what a person's choice is recorded as."""
        return json.dumps({"action": action})

    def expert(self, observation: Any, *args: Any, **kwargs: Any) -> Any:
        """The action of a scripted expert on an observation; None (the default): there is no expert.

        What ``demos generate`` records. Define it with ``(self, observation)``, ``(self, observation, info)`` or
        ``(self, observation, info, env)``; there is no environment (None) in the states of a policy map.
        """
        return None

    def draw(self, observation: Any, *args: Any, **kwargs: Any) -> str:
        """A drawing of an observation for people, some lines of plain text; empty (the default): there is none.

        Define it with ``(self, observation)`` or ``(self, observation, info)``.
        """
        return ""

    def reveal(self, observation: Any, *args: Any, **kwargs: Any) -> str:
        """What the game hid from the player, once an episode is over, in a line or some; empty (the default): nothing.

        A person's table shows it. Define it as `expert`: ``(self, observation, info, env)``, or the first of these.
        """
        return ""

    def describe_return(self, mean: float) -> str:
        """What a mean return is, for people who see it for the first time, with the baselines to compare it with.

        A clause without a subject, on one line: ``loses 6 chips in 100 hands (random 40, best 5)``.
        """
        known = ", ".join(f"{name} {_short(value)}" for name, value in self.baselines.items())
        return f"earns {_short(mean)} {self.return_unit or 'an episode'}{f' ({known})' if known else ''}"

    def policy_map(self) -> PolicyMap | None:
        """States in which the policy is evaluated, laid out for people; None (the default): there is no map.

        The screen of the map (``g``) shows what the policy does in each as the first turn of an episode, live, next to
        what is best. For an agent that plays Blackjack, hard hands only, with the probability of action 1::

            from llamagym_tui.agent import Agent, Panel, PolicyMap
            ...
            def policy_map(self):
                totals, dealer = range(21, 3, -1), [2, 3, 4, 5, 6, 7, 8, 9, 10, 1]
                states = [[(total, card, 0) for card in dealer] for total in totals]
                return PolicyMap([Panel("hard", [str(t) for t in totals], [str(c) for c in dealer], states)], action=1)

        Best is the action of `expert`, or all that ``PolicyMap(best=…)`` names.
        """
        return None

    def read(self, reply: str) -> ActionReading:
        """`extract_action`, with the way it was read and failures as data.

        A model may reply anything, so an exception of a user's own code (``int("hit")``) means a reply that names no
        action, and no reason to end a run; `reading_fault` keeps the first one. JSON counts first, for an agent that
        knows no JSON, too: one that, as LlamaGym's example, reads 1 from ``Action: 1`` but not from ``{"action": 1}``,
        is given the former, unless the number is larger than all that its prompt names.
        """
        reading = self._extracted(reply)
        index = json_index(reply) if reading.how != "json" else None
        if (
            index is None
            or _is_index(reading.action, index)
            or self._reads(f'{{"action": {index}}}', index)
        ):
            return reading
        is_named = index <= max(
            map(int, re.findall(r"\d+", self.get_system_prompt())), default=index
        )
        return (
            ActionReading(index, "json")
            if is_named and self._reads(f"Action: {index}", index)
            else reading
        )

    def _reads(self, reply: str, index: int) -> bool:
        return _is_index(self._extracted(reply, is_reply=False).action, index)

    def _extracted(self, reply: str, *, is_reply: bool = True) -> ActionReading:
        try:
            action = self.extract_action(reply)
        except ActionParseError:
            return FAILED
        except (Exception, SystemExit) as error:  # a user's own code
            if is_reply and not self.reading_fault:
                self.reading_fault = (
                    f"{type(self).__name__}.extract_action failed on the reply {reply[:MOST_WORDS]!r}: "
                    f"{described(error)}; such replies count as naming no action."
                )
            return FAILED
        if isinstance(action, ActionReading):
            return action
        return FAILED if action is None else ActionReading(action, "custom")

    def action_name(self, action: Any) -> str:
        """The name of an action, or its text if it has none."""
        if isinstance(action, int) and 0 <= action < len(self.action_names):
            return self.action_names[action]
        return str(action)


def _short(value: float) -> str:
    return (f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}").replace("-", "\N{MINUS SIGN}")


def _is_index(action: Any, index: int) -> bool:
    """Whether an action, of whatever kind, is that index."""
    try:
        return operator.index(action) == index
    except TypeError:
        return False


def prompt_sha256(system_prompt: str) -> str:
    """Hex digest that stands for a system prompt in demonstrations and runs."""
    import hashlib  # costs the first frame otherwise

    return hashlib.sha256(system_prompt.encode()).hexdigest()
