"""The agents that ship: one file for each environment, each importing `llamagym_tui.agent` and nothing else of ours."""
