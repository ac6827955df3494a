"""Three made-up worlds that nothing is tuned on: neither the bundled model's recipe nor any default.

They were committed before the first tuning run on worlds, no lesson has a name of their actions or of what they show,
and they are reported last. A change that is chosen by how it does here makes them worthless: then new ones are needed.
Wanted in each, after ten minutes with the defaults, median of three seeds, greedy: `WANTED` of the way from random play
to optimal play. An agent file each; `exact` has random and optimal play.
"""

WANTED = 0.7
"""0: random play, 1: optimal play."""
