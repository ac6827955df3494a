"""What the two processes say to each other: events (trainer to UI), commands (UI to trainer), and their wire."""
