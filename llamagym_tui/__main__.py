"""``python -m llamagym_tui``: the same as the command ``llamagym-tui``."""

from llamagym_tui.cli.start import main

if __name__ == "__main__":
    main()
