"""What lies on disk: the folders of runs, their event logs, and models."""
