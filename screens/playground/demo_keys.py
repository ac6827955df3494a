"""The keys around demonstrations, for the screen from which a run is watched; the app acts on them."""

from __future__ import annotations

from textual.binding import Binding, BindingType

DEMO_KEYS: tuple[BindingType, ...] = (
    Binding(
        "d",
        "app.demonstrations",
        "Demonstrations",
        tooltip="Look at what was recorded, and sort it out.",
        show=False,
        id="demonstrations",
    ),
    Binding(
        "k",
        "app.keep_episode",
        "Keep",
        tooltip="Keep the watched episode that ended last as a demonstration.",
        show=False,
        id="keep",
    ),
    Binding(
        "K",
        "app.keep_rule",
        "Keep by rule",
        tooltip="Keep every watched episode from some return on.",
        show=False,
        id="keep_rule",
    ),
    Binding(
        "f",
        "app.warm_start",
        "Warm start",
        tooltip="Train the model on demonstrations.",
        show=False,
        id="warm_start",
    ),
)
"""Keys of the playground."""
