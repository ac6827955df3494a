"""Search settings at random: python docs/examples/sweep.py blackjack --minutes 2 --trials 8.

Each trial is a `train` with each of two seeds; its score is the mean return of the evaluations that the runs end with.
"""

import argparse
import json
import random
import subprocess
import sys

SEEDS = (1, 2)


def drawn_settings(rng: random.Random) -> dict[str, object]:
    """One point of the space to search; write yours here."""
    return {
        "ppo.gamma": rng.choice([0.9, 0.99, 1.0]),
        "ppo.update_kl": round(10 ** rng.uniform(-2.5, -1), 4),
        "ppo.batch_size": rng.choice([512, 1024, 2048]),
    }


def final_return(agent: str, minutes: float, seed: int, settings: dict[str, object]) -> float:
    """The mean return that one run ends with."""
    command = [sys.executable, "-m", "llamagym_tui", "train", agent, "--json"]
    command += ["--minutes", str(minutes), "--seed", str(seed), "--set", "final_episodes=2000"]
    for name, value in settings.items():
        command += ["--set", f"{name}={value}"]
    finished = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    return json.loads(finished.stdout)["evaluation"]["mean_return"]


def main() -> None:
    """Make the trials, print each, and the best one at the end."""
    parser = argparse.ArgumentParser()
    parser.add_argument("agent")
    parser.add_argument("--minutes", type=float, default=2.0)
    parser.add_argument("--trials", type=int, default=8)
    options = parser.parse_args()
    rng = random.Random(0)
    trials = [{}] + [drawn_settings(rng) for _ in range(options.trials - 1)]  # the defaults first
    scores = []
    for settings in trials:
        returns = [final_return(options.agent, options.minutes, seed, settings) for seed in SEEDS]
        scores.append(sum(returns) / len(returns))
        print(f"{scores[-1]:+.4f}  {settings or 'defaults'}", flush=True)
    best = max(range(len(trials)), key=scores.__getitem__)
    print(f"best: {scores[best]:+.4f}  {trials[best] or 'defaults'}")


if __name__ == "__main__":
    main()
