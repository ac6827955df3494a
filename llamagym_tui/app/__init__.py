"""The Textual app, and its side of the trainer process."""

import os

# Textual reads it when it is imported. After a painting it waits for one or two of these periods before the next one,
# and at 60 of them a second that was most of the time from a key to what it does.
os.environ.setdefault("TEXTUAL_FPS", "120")
