"""Probes how probable each action is, by a forward of its own: only where somebody has time to read it."""

import logging

from llamagym_tui.engine.own_torch import own_torch
from llamagym_tui.engine.policy.decisions import probabilities_of_actions
from llamagym_tui.engine.policy.episode import prompt_after
from llamagym_tui.engine.policy.policy import Policy
from llamagym_tui.engine.tokens.tokenization import Opening
from llamagym_tui.errors import PromptTooLongError
from llamagym_tui.game.agent_base import AgentBase
from llamagym_tui.protocol.commands import ProbeActions
from llamagym_tui.protocol.events import ActionsProbed, ConversationProbed
from llamagym_tui.trainer.rollout.rollout import PendingPrompt

log = logging.getLogger(__name__)


class ActionProbes:
    """Probabilities of the actions, each prompt once under the same weights."""

    def __init__(self, agent: AgentBase, policy: Policy) -> None:
        self._policy = policy
        self._agent_names = list(agent.action_names) if policy.trie else []
        self._last: tuple[PendingPrompt, int] | None = None
        """The last prompt and the version of the policy. None: there is none."""

    def probe(self, where: PendingPrompt) -> ActionsProbed | None:
        """None if that was done already, or there are no actions to name."""
        about = (where, self._policy.version)
        names = self._names(where.actions)
        if not names or self._last == about:
            return None
        try:
            shares = self._shares(where.prompt, where.actions)
        except Exception:  # its forward is not the run's: memory may be short for it alone
            log.exception("no action probabilities")
            return None
        self._last = about
        return ActionsProbed(episode=where.episode, turn=where.turn, names=names, shares=shares)

    def probe_conversation(self, question: ProbeActions) -> ConversationProbed:
        """The actions after a conversation that a person plays, or why they are not known."""
        actions = tuple(question.messages[-1].get("actions", ())) or None
        names = self._names(actions)
        shares: list[float] = []
        why_not = ""
        try:
            if names:
                shares = self._shares(prompt_after(self._policy, question.messages), actions)
        except PromptTooLongError as error:
            why_not = f"{error}"
        except Exception as error:
            # A person may play on for longer than the model can read; the run does not.
            log.exception("no action probabilities for a conversation")
            why_not = f"the forward failed: {type(error).__name__}: {error}"
        return ConversationProbed(
            ticket=question.ticket,
            names=[] if why_not else names,
            shares=shares,
            why_not=why_not,
        )

    def _names(self, actions: tuple[str, ...] | None) -> list[str]:
        return self._agent_names if actions is None else list(actions)

    @own_torch()
    def _shares(self, prompt: Opening, actions: tuple[str, ...] | None) -> list[float]:
        return probabilities_of_actions(self._policy, [prompt], self._policy.trie_of(actions))[0]
