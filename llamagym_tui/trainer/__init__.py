"""The background process: environments, policy, PPO; commands in, events out. Knows nothing of Textual."""
