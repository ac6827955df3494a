"""`lessons NAME --check`: trains what a lesson names, as `train` does, and prints whether its checks hold."""

from pathlib import Path

from llamagym_tui.cli import headless
from llamagym_tui.cli.report import story_of
from llamagym_tui.config import UpdateStats
from llamagym_tui.protocol.literal import echo
from llamagym_tui.setup.lessons import Lesson, begun


def check(name: str, lesson: Lesson, *, debug: bool = False) -> int:
    """Run a lesson, and its control run where a check compares with it; returns the exit code, 0 if all checks hold."""
    run = _trained(name, lesson, control=False, debug=debug)
    control_run = run
    if any(each.less_control for each in lesson.checks):
        control_run = _trained(name, lesson, control=True, debug=debug)
    code = 0
    for each in lesson.checks:
        figure = each.measured(run, control_run)
        if each.is_true(figure):
            outcome = "holds"
        else:
            outcome = "does not hold"
            code = 1
        echo(f"{outcome}: {each.statement}: {figure:.4g}")
    return code


def _trained(name: str, lesson: Lesson, *, control: bool, debug: bool) -> list[UpdateStats]:
    """The figures of all updates of a new run of a lesson."""
    config = begun(name, control=control, episodes=lesson.episodes, final_episodes=0)
    headless.train(config, debug=debug)
    return [update.stats for update in story_of(Path(config.run_dir)).updates]
