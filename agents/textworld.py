"""TextWorld: text games whose commands change from place to place, made offline by TextWorld itself.

This agent also plays any challenge of its maker (``tw-cooking``) and any game file (``my_game.z8``).
"""

from collections.abc import Mapping, Sequence
from typing import Any

from llamagym_tui.agent import Agent, answer

TELL_NOTHING = ("look", "inventory")
"""Commands that only show what each observation has anyway."""


class TextWorldAgent(Agent):
    """Plays a game of TextWorld; an observation is what the game wrote, and an action is a command."""

    history = 0
    run_settings = {"generation.policy": "score", "generation.normalization": "token"}
    """The policy chooses one of the commands. Their scores are means over their tokens, because by the sum it would
    only ever try short ones."""
    env_id = "tw-simple"
    env_kwargs = {"rewards": "dense", "goal": "brief", "seed": 1}
    more_ids = r"tw-|.+\.z[1-8]$"
    extra = "textworld"
    title = "TextWorld"
    description = "Find the food and cook it: a text game whose commands change; or any game of TextWorld's (.z8)."
    baselines = {"random": 4.9, "optimal": 8.0}
    """Mean scores within 50 turns; ``python -m benchmarks.world_baselines textworld`` measures them."""
    fallback_action = "look"

    def get_system_prompt(self) -> str:
        return "You are playing a text game. Reply with one of the commands that are listed, and nothing else."

    def format_observation(self, observation: str, info: Mapping[str, Any]) -> str:
        place = _lines(info.get("description") or observation)
        commands = self.actions(observation, info)
        # In the game that ships, the place shows what an action has done. In others the answer may say more, as what
        # is written in a book.
        says_more = self.env_id != TextWorldAgent.env_id or info.get("invalid_action")
        is_in_place = observation in place or place in observation
        answer = observation if says_more and not is_in_place else ""
        listed = f"Commands: {', '.join(commands)}." if commands else ""
        parts = (
            _lines(info.get("objective", "")),
            answer,
            place,
            _lines(info.get("inventory", "")),
            listed,
        )
        return "\n".join(part for part in parts if part)

    def actions(self, observation: str, info: Mapping[str, Any]) -> Sequence[str] | None:
        """The admissible commands without those that tell nothing new; None: there are none.

        In the game that ships, examining things tells nothing new either.
        """
        idle: tuple[str, ...] = TELL_NOTHING
        if self.env_id == TextWorldAgent.env_id:
            idle = (*TELL_NOTHING, "examine")
        admissible = info.get("admissible_commands", ())
        return [command for command in admissible if not command.startswith(idle)] or None

    def draw(self, observation: str, info: Mapping[str, Any]) -> str:
        """The place and its exits, what is carried, and the score."""
        admissible = info.get("admissible_commands", ())
        place = _lines(info.get("description", "")).split("\n")[0].strip("-= ")
        exits = [way for way in ("north", "west", "east", "south") if f"go {way}" in admissible]
        score = f"score {info['score']} of {info['max_score']}" if "score" in info else ""
        lines = (
            f"[ {place or '?'} ]",
            f"exits: {', '.join(exits) or 'none'}",
            "",
            _lines(info.get("inventory", ""))[:60],
            score,
        )
        return "\n".join(lines)

    def format_action(self, action: str) -> str:
        return action

    def extract_action(self, response: str) -> str | None:
        return " ".join(answer(response).split()).rstrip(".") or None

    def expert(self, observation: str, info: Mapping[str, Any]) -> str | None:
        """The next of the commands with which TextWorld knows the game is won; None: it has not made this game."""
        commands = info.get("policy_commands", ())
        return commands[0] if commands else None


def _lines(text: str) -> str:
    """A text without empty lines."""
    return "\n".join(line.strip() for line in text.splitlines() if line.strip())
