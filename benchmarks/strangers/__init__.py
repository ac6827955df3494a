"""Three worlds as strangers write them: an agent in one file, which says nothing of prompts, learners or settings.

They differ in kind: a number to hold, things to fetch, prices to follow. Two of them, the tank and the stall, decided
that the bonus for what is seldom tried depends on the first batch's rewards, so they are no held-out worlds any more.
"""

WANTED = 0.9
"""Of the way from random play to optimal play, after three minutes of a core."""
