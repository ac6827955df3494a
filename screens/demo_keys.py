"""The keys around demonstrations, for every screen from which a run is watched; the app acts on them."""

from __future__ import annotations

from textual.binding import Binding, BindingType

DEMO_KEYS: tuple[BindingType, ...] = (
    Binding(
        "k",
        "app.keep_episode",
        "Keep",
        tooltip="Keep the watched episode that ended last as a demonstration.",
        show=False,
        id="keep",
    ),
)
"""Keys of the playground."""
