"""``python -m llamagym_tui``: the same as the command ``llamagym-tui``."""

from llamagym_tui.cli import app

if __name__ == "__main__":
    app(prog_name="llamagym-tui")
