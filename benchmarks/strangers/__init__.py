"""Three worlds as strangers write them: an agent in one file, which says nothing of prompts, learners or settings.

They differ in kind: a number to hold, things to fetch, prices to follow. The tank and the stall decided when rarely
tried actions get a bonus, so they are not held out.
"""
