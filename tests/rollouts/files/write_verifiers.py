"""Writes ``verifiers.jsonl`` by verifiers' own records. Run where verifiers 0.4 is installed; it is not among ours.

python tests/rollouts/files/write_verifiers.py
"""

import json
from pathlib import Path

from verifiers.v1.configs.agent import WireAgentConfig
from verifiers.v1.episode import (
    EnvInfo,
    GroupInfo,
    PolicySpan,
    TrainRunInfo,
    TrainWorkInfo,
    WireEpisode,
)
from verifiers.v1.graph import MessageNode
from verifiers.v1.task import WireTaskData
from verifiers.v1.trace import AgentInfo, Reward, TraceTask, WireTrace
from verifiers.v1.types import AssistantMessage, SystemMessage, ToolCall, ToolMessage, UserMessage

TASK = TraceTask(type="Sum", data=WireTaskData(id="7", prompt="What is 2 plus 3?"), key="sum-7")


def episode(answer: str, score: float, advantage: float) -> WireEpisode:
    """Two turns: a call of a tool, then the answer."""
    call = ToolCall(id="1", name="add", arguments='{"a": 2, "b": 3}')
    nodes = [
        MessageNode(
            message=SystemMessage(content="You may add."), token_ids=[1, 2], mask=[False] * 2
        ),
        MessageNode(parent=0, message=UserMessage(content="What is 2 plus 3?"), token_ids=[3]),
        MessageNode(
            parent=1,
            message=AssistantMessage(reasoning_content="I add them.", tool_calls=[call]),
            sampled=True,
            token_ids=[4, 10, 11],
            mask=[False, True, True],
            logprobs=[-0.25, -1.5],
            reference_logprobs=[-0.5, -1.25],
            advantages=[advantage, advantage],
        ),
        MessageNode(parent=2, message=ToolMessage(tool_call_id="1", content="5"), token_ids=[5]),
        MessageNode(
            parent=3,
            message=AssistantMessage(content=answer),
            sampled=True,
            token_ids=[4, 12],
            mask=[False, True],
            logprobs=[-0.125],
            reference_logprobs=[-0.125],
            advantages=[advantage],
        ),
    ]
    trace = WireTrace(
        task=TASK,
        agent=AgentInfo(config=WireAgentConfig()),
        nodes=nodes,
        rewards={
            "right": Reward(score=score, weight=2.0),
            "short": Reward(score=0.5),
            "late": None,
        },
        metrics={"turns": 2.0},
        is_completed=True,
        ok=True,
        stop_condition="done",
    )
    found = WireEpisode(
        env=EnvInfo(id="sum"), task=TASK, group=GroupInfo(id="g1"), traces=[trace], ok=True
    )
    work = TrainWorkInfo(step=3, policy=PolicySpan(start=2, end=3))
    found.record_run(TrainRunInfo(id="r1", work=work))
    return found


if __name__ == "__main__":
    lines = [episode("5", 1.0, 1.0), episode("It is 6.", 0.0, -1.0)]
    text = "".join(json.dumps(each.to_record()) + "\n" for each in lines)
    (Path(__file__).parent / "verifiers.jsonl").write_text(text)
