"""The exchange of the two processes: events (trainer to UI), commands (UI to trainer), and their wire."""
