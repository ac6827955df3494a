"""The agent of a run in the UI process, its prompting without a model; looked up when it is needed."""

from pathlib import Path

from llamagym_tui.config import RunConfig
from llamagym_tui.errors import AgentFileError, UsageError, described
from llamagym_tui.game.agent_base import AgentBase
from llamagym_tui.setup.catalog import agent_name, agent_of, find_agent
from llamagym_tui.setup.trust import code_of


class RunAgent:
    def __init__(
        self, spec: str, *, config: RunConfig | None = None, may_run_code: bool = True
    ) -> None:
        """An agent by its spec; not looked up yet.

        Args:
            config: of the run that it plays in. None: of none.
            may_run_code: whether a file or module that `spec` names may be executed; not for a recorded run.
        """
        self.spec = spec
        self._config = config
        self._may_run_code = may_run_code
        self._agent: AgentBase | None = None

    @property
    def name(self) -> str:
        return agent_name(self.spec)

    @property
    def title(self) -> str:
        return type(self.agent).title or type(self.agent).__name__

    @property
    def agent(self) -> AgentBase:
        """The agent, without a model.

        Raises:
            UsageError: there is none of that name, or its code may not run.
            AgentFileError: its file does not load, or it cannot be made.
        """
        if self._agent is None:
            if not self._may_run_code and (code := code_of(self.spec)):
                raise UsageError(
                    f"A replay executes no code, and the agent of this run is {code}; resume the run."
                )
            agent_class = agent_of(self._config) if self._config else find_agent(self.spec)
            try:
                self._agent = agent_class()
            except Exception as error:  # a user's own code
                raise AgentFileError(
                    f"{agent_class.__name__} cannot be made without a model: {error}."
                ) from error
        return self._agent

    def own_prompt(self) -> str:
        """The system prompt that the agent brings."""
        agent = self.agent
        try:
            return agent.get_system_prompt()
        except Exception as error:
            raise AgentFileError(
                f"{type(agent).__name__}.get_system_prompt failed: {described(error)}."
            ) from error

    def demos_path(self) -> Path:
        from llamagym_tui.demos.files import default_path

        return default_path(self.name)
