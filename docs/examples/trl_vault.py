"""A class that TRL's trainers take as `environment_factory`; played here as `docs/examples/trl_vault.py:Vault`."""

from typing import Literal


class Vault:
    """Methods are tools, and the reward comes at the end."""

    def reset(self, **kwargs) -> str:
        self.pressed = []
        return "A vault opens by three buttons, in the order of a traffic light that is about to let you go."

    def press(self, button: Literal["red", "yellow", "green"]) -> str:
        """Press a button.

        Args:
            button: Which one.

        Returns:
            What is pressed by now.
        """
        self.pressed.append(button)
        return f"Pressed: {', '.join(self.pressed)}."

    def get_reward(self) -> float:
        wanted = ["red", "yellow", "green"]
        return sum(a == b for a, b in zip(self.pressed, wanted, strict=False)) / 3
