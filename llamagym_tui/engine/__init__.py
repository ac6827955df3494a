"""Everything that needs torch: models, policy, trajectories, PPO. Knows neither gymnasium nor the protocol."""
