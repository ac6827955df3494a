"""Exact mean returns of optimal play in Blackjack and of two rules that everybody knows.

python -m benchmarks.exact_blackjack
"""

from llamagym_tui.agents._exact_blackjack import expected_return, greedy, optimal_policy


def main() -> None:
    best = optimal_policy()
    print(f"optimal       {expected_return(greedy(best)):+.5f}")
    print(f"hit below 17  {expected_return(lambda state: float(state[0] < 17)):+.5f}")
    print(f"at random     {expected_return(lambda state: 0.5):+.5f}")


if __name__ == "__main__":
    main()
