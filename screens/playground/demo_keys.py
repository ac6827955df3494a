"""The keys around demonstrations, for the screen from which a run is watched; the app acts on them."""

from __future__ import annotations

from textual.binding import BindingType

from llamagym_tui.screens.playground.watch_keys import extra

DEMO_KEYS: tuple[BindingType, ...] = (
    extra("d", "app.demonstrations", "Demonstrations", "Look at what was recorded, and sort it out.", "demonstrations"),
    extra("k", "app.keep_episode", "Keep", "Keep the watched episode that ended last as a demonstration.", "keep"),
    extra("K", "app.keep_rule", "Keep by rule", "Keep every watched episode from some return on.", "keep_rule"),
    extra("f", "app.warm_start", "Warm start", "Train the model on demonstrations.", "warm_start"),
)
