"""TextWorld: text games whose commands change with the place, made offline by TextWorld itself.

Any challenge of its maker (``tw-cooking``) and any game file (``my_game.z8``) goes to this agent, too.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from llamagym_tui.agent import Agent

TELL_NOTHING = ("look", "inventory")
"""Commands that show what each observation has."""


class TextWorldAgent(Agent):
    """Plays a game of TextWorld; an observation is what the game wrote, an action a command."""

    history = 0
    run_settings = {"generation.policy": "score", "generation.normalization": "token"}
    """To choose one of the commands; by the sum over their tokens, short ones would be all that is tried."""
    env_id = "tw-simple"
    env_kwargs = {"rewards": "dense", "goal": "brief", "seed": 1}
    more_ids = r"tw-|.+\.z[1-8]$"
    extra = "textworld"
    title = "TextWorld"
    description = "Find the food and cook it: a text game whose commands change; or any game of TextWorld's (.z8)."
    picture = "    north\n      |\nwest-[ ]-east\n      |"
    baselines = {"random": 4.9, "optimal": 8.0}
    """Mean scores within 50 turns; ``python -m benchmarks.world_baselines textworld`` measures them."""
    fallback_action = "look"

    def get_system_prompt(self) -> str:
        return "You are playing a text game. Reply with one of the commands that are listed, and nothing else."

    def format_observation(self, observation: str, info: Mapping[str, Any]) -> str:
        place, commands = (
            _lines(info.get("description") or observation),
            self.actions(observation, info),
        )
        # What was done in the game that ships can be seen in the place; elsewhere it may be what a book says.
        is_told = self.env_id != TextWorldAgent.env_id or info.get("invalid_action")
        told = (
            observation if is_told and observation not in place and place not in observation else ""
        )
        listed = f"Commands: {', '.join(commands)}." if commands else ""
        parts = (
            _lines(info.get("objective", "")),
            told,
            place,
            _lines(info.get("inventory", "")),
            listed,
        )
        return "\n".join(part for part in parts if part)

    def actions(self, observation: str, info: Mapping[str, Any]) -> Sequence[str] | None:
        """The admissible commands but for those that show what is shown; in the game that ships, to look at things."""
        idle = (*TELL_NOTHING, "examine") if self.env_id == TextWorldAgent.env_id else TELL_NOTHING
        return [
            command
            for command in info.get("admissible_commands", ())
            if not command.startswith(idle)
        ] or None

    def draw(self, observation: str, info: Mapping[str, Any]) -> str:
        """The place and its exits, what is carried, the score."""
        ways = {
            word: f"go {word}" in info.get("admissible_commands", ())
            for word in ("north", "west", "east", "south")
        }
        name = f"[ {_lines(info.get('description', '')).split(chr(10))[0].strip('-= ') or '?'} ]"
        west, east = "west -- " if ways["west"] else " " * 8, " -- east" if ways["east"] else ""
        middle = " " * (8 + len(name) // 2 - 2)
        lines = [f"{middle}north\n{middle}  |"] if ways["north"] else []
        lines.append(f"{west}{name}{east}")
        lines += [f"{middle}  |\n{middle}south"] if ways["south"] else []
        score = f"score {info['score']} of {info.get('max_score', '?')}" if "score" in info else ""
        return "\n".join([*lines, "", _lines(info.get("inventory", ""))[:60], score])

    def format_action(self, action: str) -> str:
        return action

    def extract_action(self, response: str) -> str | None:
        return " ".join(response.split()).rstrip(".") or None

    def expert(self, observation: str, info: Mapping[str, Any]) -> str | None:
        """The next of the commands that TextWorld knows to win; None: of a game that it has not made."""
        return next(iter(info.get("policy_commands", ())), None)


def _lines(text: str) -> str:
    """A text without empty lines."""
    return "\n".join(line.strip() for line in text.splitlines() if line.strip())
