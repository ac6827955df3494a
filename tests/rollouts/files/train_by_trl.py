"""Trains the bundled model by TRL's GRPO for two steps of eight completions, and logs them by TRL and by Trackio.

python tests/rollouts/files/train_by_trl.py FOLDER
"""

import os
import sys

folder = sys.argv[1]
os.environ["TRACKIO_DIR"] = f"{folder}/trackio"  # read when it is imported

import datasets  # noqa: E402
import trackio  # noqa: E402
from trl import GRPOConfig, GRPOTrainer  # noqa: E402

from llamagym_tui.engine.model.sources import bundled_model_path  # noqa: E402


def letters(completions, **_):
    return [float(len(each[0]["content"])) for each in completions]


def half(completions, **_):
    return [0.5 if at % 2 else None for at in range(len(completions))]


if __name__ == "__main__":
    args = GRPOConfig(
        output_dir=folder,
        max_steps=2,
        per_device_train_batch_size=8,
        num_generations=4,
        max_completion_length=6,
        logging_steps=1,
        log_completions=True,
        report_to="trackio",
        project="demo",
        save_strategy="no",
        use_cpu=True,
    )
    words = [{"prompt": [{"role": "user", "content": f"Say {word}."}]} for word in ("a", "b")]
    GRPOTrainer(
        str(bundled_model_path()),
        reward_funcs=[letters, half],
        args=args,
        train_dataset=datasets.Dataset.from_list(words),
    ).train()
    said = [{"role": "user", "content": "Say c."}, {"role": "assistant", "content": "c"}]
    trackio.init(project="traces", embed=False)
    trackio.log({"sample": trackio.Trace(said, {"reward": 0.5, "right": 1.0})}, step=3)
    trackio.finish()
