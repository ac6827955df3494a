"""What the two processes exchange: events (trainer to UI), commands (UI to trainer), and their wire."""
