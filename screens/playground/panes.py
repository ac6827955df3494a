"""What of the playground is shown, as style classes of the screen: all figures or few, and a pane alone."""

ALL = "-all-figures"
"""All figures; without it, few."""
ZOOMS = ("lines", "curve", "map")
"""The panes that are shown alone, one after the other, each by a class ``-zoom-…``."""
