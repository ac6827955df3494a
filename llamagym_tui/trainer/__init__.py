"""The background process: environments, policy, learner; commands in, events out. Knows nothing of Textual."""
