"""Every key of the playground, in the order of the bottom row and of help.

Its actions are methods of `playground.py`, `steer_actions.py` and `watch_actions.py`; those that begin with ``app.``
are the app's.
"""

from textual.binding import Binding, BindingType

from llamagym_tui.screens.widgets.key_bar import extra

POLICY_MAP = "What the policy does in each state, and what is best."
ROLL_BACK = "Back to the last good checkpoint; asks first."
FIGURES = "All figures next to the curve, or three; so it stays in later runs."
INSPECT = "The reply you look at, token by token: ratio, clip, alternatives."

HELP_GROUPS = {
    "The run": "pause mode restart checkpoint roll_back advance.turn advance.update pace.slower pace.faster quit",
    "Change it": "prompt settings warm_start warm_start.undo",
    "Look": "metrics figures policy_map changes evaluate view inspect runs help",
    "Watch": "watch.next watch.previous watch.failure watch.best watch.worst",
    "Play": "table wheel demonstrations keep keep_rule",
}
"""In which help has the keys, by their ids."""


KEYS: list[BindingType] = [
    Binding("space", "pause", "Pause", tooltip="Pause after the current step.", id="pause"),
    Binding("space", "resume", "Resume", tooltip="Resume playing and training.", id="pause"),
    Binding("t", "mode('inference')", "Inference", tooltip="Only play: nothing is trained.", id="mode"),
    Binding("t", "mode('train')", "Train", tooltip="Train the model on what it plays.", id="mode"),
    Binding("r", "app.restart", "Restart", tooltip="Start again from the last checkpoint.", id="restart"),
    Binding("p", "app.edit_prompt", "Prompt", tooltip="Edit the system prompt of the next episodes.", id="prompt"),
    Binding("h", "app.human_table", "Play yourself", tooltip="Play at a table of your own.", id="table"),
    Binding("m", "metrics", "Metrics", tooltip="Charts of every figure, and what is healthy.", id="metrics"),
    Binding("g", "policy_map", "Policy map", tooltip=POLICY_MAP, id="policy_map"),
    Binding("s", "settings", "Settings", tooltip="Change learning rate, KL and more, live.", id="settings"),
    Binding("e", "evaluate", "Evaluate", tooltip="Play episodes apart from the run.", id="evaluate"),
    Binding("c", "checkpoint", "Checkpoint", tooltip="Write the policy to disk now.", id="checkpoint"),
    Binding("ctrl+r", "roll_back", "Roll back", tooltip=ROLL_BACK, id="roll_back"),
    extra("full_stop", "advance('turn')", "One turn", "One turn in every environment, then a pause.", "advance.turn"),
    extra("u", "advance('update')", "One update", "Go on until the next update, then pause.", "advance.update"),
    extra("U", "changes", "What changed", "What the last update did: in which states, by which episode.", "changes"),
    extra("minus", "pace('slower')", "Slower", "More seconds for each turn that is watched.", "pace.slower"),
    extra("plus,equals_sign", "pace('faster')", "Faster", "Fewer seconds a turn; at last full speed.", "pace.faster"),
    extra("right_square_bracket", "watch(1)", "Next environment", "Watch the next environment.", "watch.next"),
    extra("left_square_bracket", "watch(-1)", "Previous environment", "Watch the one before.", "watch.previous"),
    extra("v", "view", "Drawing", "Show the drawing of the watched state, or hide it.", "view"),
    extra("a", "figures", "All figures, or three", FIGURES, "figures"),
    extra("x", "watch_next('failure')", "Next failure", "Watch the next reply that names no action.", "watch.failure"),
    extra("i", "inspect", "Inspect tokens", INSPECT, "inspect"),
    extra("b", "watch_next('best')", "Best episode", "Watch the best episode of the last batch.", "watch.best"),
    extra("B", "watch_next('worst')", "Worst episode", "Watch the worst episode of the last batch.", "watch.worst"),
    extra("w", "take_wheel", "Take the wheel", "Act in the agent's place in the watched environment.", "wheel"),
    extra("d", "app.demonstrations", "Demonstrations", "Browse, edit and delete recorded episodes.", "demonstrations"),
    extra("k", "app.keep_episode", "Keep", "Keep the watched episode that ended last as a demonstration.", "keep"),
    extra("K", "app.keep_rule", "Keep by rule", "Keep every watched episode with a given return or more.", "keep_rule"),
    extra("f", "app.warm_start", "Warm start", "Train the model on demonstrations.", "warm_start"),
    extra("F", "app.undo_warm_start", "Take back", "Take the last warm start back.", "warm_start.undo"),
    extra("o", "app.runs", "Past runs", "Look at past runs, compare two.", "runs"),
    Binding("question_mark", "app.help", "Help", tooltip="What the keys and figures mean.", id="help"),
    Binding("q", "app.quit", "Quit", tooltip="Write a checkpoint and leave.", id="quit"),
]
