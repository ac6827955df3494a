"""`AgentBase`: an agent without its model. All modules but `llamagym_tui.agent` know agents as this class."""

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Literal

from llamagym_tui.errors import MOST_WORDS, RAISED, ActionParseError, described
from llamagym_tui.game.actions import FAILED, ActionReading, json_index, plain_action, read_action
from llamagym_tui.game.pictures import Drawing, PolicyMap


class AgentBase(ABC):
    """The words of an agent: its prompt, its observations, and how its replies are read."""

    env_id: ClassVar[str] = ""
    """Gymnasium id of the environment that it plays."""
    more_ids: ClassVar[str] = ""
    """Regular expression for the beginning of other ids that this agent plays, too, when they are named on the command
    line; for agents that ship with this program."""
    opponents: ClassVar[tuple[str, ...]] = ()
    """Of a game for two: the opponents that its environment plays itself, by the names that its keyword argument
    ``opponent`` takes. Every other ``opponent`` is a policy: an earlier self, a run, an endpoint. For these the
    environment is made with ``opponent="policy"``, and asks for the moves of both: while its ``info`` says
    ``opponent_moves``, the observation is the other player's, and so is the action of the next step. Rewards are always
    those of the player that is trained. For `llamagym-tui match` it takes ``begins="player"`` and ``"opponent"``, too.
    Empty: it is no game for two."""
    extra: ClassVar[str] = ""
    """The extra of this program that brings what its environment needs; empty: none."""
    env_kwargs: ClassVar[Mapping[str, Any]] = {}
    """Keyword arguments of ``gymnasium.make``."""
    evaluation_kwargs: ClassVar[Mapping[str, Any]] = {}
    """More of them in evaluations, for maps or levels that training never meets: ``{"maps": "held out"}``."""
    title: ClassVar[str] = ""
    """Name for people; empty: the name of the class."""
    description: ClassVar[str] = ""
    """One line for people."""
    action_names: ClassVar[tuple[str, ...]] = ()
    """Names of the discrete actions, in the order of their indices; empty: found by the environment's action space."""
    action_keys: ClassVar[Mapping[str, int]] = {}
    """The keys on which a person takes an action, each with its index; an action without a key is on the digit of its
    index."""
    baselines: ClassVar[Mapping[str, float]] = {}
    """Published mean returns by name."""
    return_unit: ClassVar[str] = ""
    """The unit of a return, after the figure: ``steps``, ``chips a hand``; empty if it has none."""
    is_won_or_lost: ClassVar[bool] = False
    """True if a return above 0 is a win, one below 0 a loss, and 0 a draw."""
    counts_actions: ClassVar[bool] = False
    """True if an action is an index of `action_names` even if the environment counts its own from another number, or
    if they are combinations of several decisions. It always is where `extract_action` is not defined."""
    items: ClassVar[Sequence[str]] = ()
    """Texts that a person may judge instead of the environment, by ``--reward me``; empty: there are none."""
    history: ClassVar[int | Literal["all"] | None] = None
    """Turns before the present one in a prompt, unless a run sets another number. None: a run finds out in
    its first batch how many help. 0: system prompt and present observation, which is enough if an observation has the
    whole state. ``"all"``: the whole conversation."""
    action_repeat: ClassVar[int] = 1
    """Environment steps for which an action is repeated; their rewards are added up."""
    wordings: ClassVar[tuple[Callable[..., str], ...]] = ()
    """Other ways to word an observation than `format_observation`, each a function of it (and of `info`, if it takes
    one). In a run with ``--wordings`` each training episode draws one wording; the last one here is kept for
    evaluations. It is never played in training: some prompts are read in it, without their rewards."""
    run_settings: ClassVar[Mapping[str, Any]] = {}
    """Settings of training runs by their dotted names, as ``{"ppo.gamma": 0.99}``, unless a run sets others."""
    fallback_action: ClassVar[Any] = 0
    """The action that the environment gets if a reply names none."""

    decision_sizes: Sequence[int] = ()
    """The number of values of each decision of an action; empty until the agent's environment has been made."""
    reading_fault: str = ""
    """A sentence about the first error other than ``ActionParseError`` that `extract_action` raised; empty: none."""

    @abstractmethod
    def get_system_prompt(self) -> str:
        """The system message of every episode."""

    @abstractmethod
    def format_observation(self, observation: Any, *args: Any, **kwargs: Any) -> str:
        """The user message for an observation.

        Define it with ``(self, observation)`` or, to use what the environment adds, ``(self, observation, info)``.
        """

    def actions(self, observation: Any, *args: Any, **kwargs: Any) -> Sequence[str] | None:
        """Names of the actions that are admissible on an observation; None (the default): all of `action_names`.

        Define it with ``(self, observation, info)``: for a text game it is often enough to return what the game lists
        in its ``info``. A name that is not in `action_names` is the action itself. If you do not define it and
        ``info`` has an ``action_mask``, the actions that the mask rules out are not admissible.
        """
        return None

    def extract_action(self, response: str) -> Any:
        """The action that a reply names; by default one of `action_names`, found by `read_action`.

        Return an action, or an `ActionReading` as `read_action` does, which also says how the action was found. None,
        or raising ``ActionParseError``, means that the reply names no action.
        """
        return read_action(response, self.action_names)

    def wrap_env(self, env: Any) -> Any:
        """The environment as this agent plays it: unchanged (the default), or in Gymnasium's wrappers."""
        return env

    def format_action(self, action: Any) -> str:
        """The plainest reply that names an action; a person's choice is recorded as this reply."""
        return json.dumps({"action": plain_action(action)})

    def expert(self, observation: Any, *args: Any, **kwargs: Any) -> Any:
        """The action of a scripted expert on an observation; None (the default): there is no expert.

        ``demos generate`` records its play. Define it with ``(self, observation)``, ``(self, observation, info)`` or
        ``(self, observation, info, env)``; for the states of a policy map, `env` is None.
        """
        return None

    def draw(self, observation: Any, *args: Any, **kwargs: Any) -> Drawing:
        """A drawing of an observation for people; empty (the default): there is none.

        It is some lines of plain text or, to have fields of several colours, a list of lines, each a list of text and
        of `Piece` with the ground on which it stands. At most 12 lines of 120 characters are shown.

        Define it with ``(self, observation)``, ``(self, observation, info)`` or ``(self, observation, info, env)``;
        where no environment is in that state, as in an episode that is shown again, `env` is None. A last parameter
        ``player`` gets who plays: ``model`` or ``you``.
        """
        return ""

    def reveal(self, observation: Any, *args: Any, **kwargs: Any) -> Drawing:
        """The drawing of an episode's last state with what the game hid until then; empty (the default): nothing.

        It takes the place of the last drawing. Define it as `draw`; it is called where there is an environment.
        """
        return ""

    def describe_turn(self, observation: Any, action: Any, reward: float) -> str:
        """A turn in a few words for people: ``12 against 3``.

        In the list of turns the action's name and what it earned follow them. Empty (the default): the observation's
        first words stand there.
        """
        return ""

    def policy_map(self) -> PolicyMap | None:
        """States in which the policy is evaluated, laid out for people; None (the default): there is no map.

        The screen of the map (``g``) shows what the policy does in each state if an episode begins there, live, next
        to what is best. For an agent that plays Blackjack, hard hands only, with the probability of action 1::

            from llamagym_tui.agent import Agent, Panel, PolicyMap
            ...
            def policy_map(self):
                totals, dealer = range(21, 3, -1), [2, 3, 4, 5, 6, 7, 8, 9, 10, 1]
                states = [[(total, card, 0) for card in dealer] for total in totals]
                return PolicyMap([Panel("hard", [str(t) for t in totals], [str(c) for c in dealer], states)], action=1)

        Best is the action of `expert`, or each action that ``PolicyMap(best=…)`` names.
        """
        return None

    def mean_return(self, shares: Mapping[Any, Sequence[float]], turns: int) -> float | None:
        """The exact mean return of a policy that is sampled; None (the default): it is not known.

        It is computed, and not played. Define it where the transitions of the environment are known and the policy map
        has every state in which an action is taken. With Gymnasium's toy text, whose environments have a table ``P``,
        it is `exact_return`.

        Args:
            shares: probability of each action by the state of the policy map, which has to be hashable. Replies that
                name no action count as `fallback_action`.
            turns: after which an episode is cut off.
        """
        return None

    def read(self, reply: str) -> ActionReading:
        """The action that `extract_action` finds in a reply, and how it was found; a failure is a reading, too.

        A model may reply anything. So if a user's own code raises an exception (``int("hit")``), this means only that
        the reply names no action and does not end the run; `reading_fault` keeps the first such error.

        JSON counts first, also for an agent whose own code knows no JSON. LlamaGym's example, for one, reads 1 from
        ``Action: 1`` but not from ``{"action": 1}``. Such an agent is asked what it reads in ``Action: 1`` instead,
        unless the number is larger than every number in its prompt.
        """
        reading = self._extracted(reply)
        if reading.how == "json":
            return reading
        index = json_index(reply)
        if index is None:
            return reading
        if self._reads(f'{{"action": {index}}}', index):
            return reading  # the agent knows JSON, and has read this reply otherwise on purpose
        prompt_numbers = [int(digits) for digits in re.findall(r"\d+", self.get_system_prompt())]
        if prompt_numbers and index > max(prompt_numbers):
            return reading
        if self._reads(f"Action: {index}", index):
            return ActionReading(index, "json")
        return reading

    def _reads(self, reply: str, index: int) -> bool:
        """True if the agent reads this action in a made-up reply."""
        action = self._extracted(reply, is_reply=False).action
        return isinstance(action, int) and action == index

    def _extracted(self, reply: str, *, is_reply: bool = True) -> ActionReading:
        """The reading of the agent's own code; an error is kept in `reading_fault` if this `is_reply` of a model."""
        try:
            action = self.extract_action(reply)
        except ActionParseError:
            return FAILED
        except RAISED as error:  # a user's own code
            if is_reply and not self.reading_fault:
                self.reading_fault = (
                    f"{type(self).__name__}.extract_action failed on the reply {reply[:MOST_WORDS]!r}: "
                    f"{described(error)}; such replies count as naming no action."
                )
            return FAILED
        reading = action if isinstance(action, ActionReading) else ActionReading(action, "custom")
        if reading.action is None:
            return FAILED
        return reading._replace(action=plain_action(reading.action))

    def action_name(self, action: Any) -> str:
        """The name of an action, or its text if it has none."""
        action = plain_action(action)
        if isinstance(action, int) and 0 <= action < len(self.action_names):
            return self.action_names[action]
        return str(action)


def prompt_sha256(system_prompt: str) -> str:
    """Hexadecimal digest that stands for a system prompt in demonstrations and runs."""
    import hashlib  # an import at the top would delay the first frame

    return hashlib.sha256(system_prompt.encode()).hexdigest()
