"""`lessons NAME --check`: trains what a lesson names as `train` does, and prints whether its checks hold."""

from pathlib import Path

from llamagym_tui.cli import headless
from llamagym_tui.cli.report import story_of
from llamagym_tui.config import UpdateStats
from llamagym_tui.protocol.literal import echo
from llamagym_tui.setup.lessons import Lesson, begun


def check(name: str, lesson: Lesson, *, debug: bool = False) -> int:
    """Run a lesson, and its control run where a check compares with it; the exit code, 0 if all checks hold."""
    runs, compares = list[list[UpdateStats]](), any(each.less_control for each in lesson.checks)
    for control in (False, True)[: 1 + compares]:
        config = begun(name, control=control, episodes=lesson.episodes, final_episodes=0)
        headless.train(config, debug=debug)
        runs.append([update.stats for update in story_of(Path(config.run_dir)).updates])
    measured = [(each, each.measured(runs[0], runs[-1])) for each in lesson.checks]
    for each, figure in measured:
        echo(
            f"{'holds' if each.is_true(figure) else 'does not hold'}: {each.statement}: {figure:.4g}"
        )
    return 0 if all(each.is_true(figure) for each, figure in measured) else 1
