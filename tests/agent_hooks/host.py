"""The host that the conformance kit of agent-hooks judges: an agent of ours under its scripted interceptors."""

import copy
from typing import Any, ClassVar

from agent_hooks import (
    ApprovalResolver,
    BindingContext,
    CompositionConfig,
    EnforcementMode,
    HostRegistry,
    HostSurface,
    InterceptionEmitter,
    Interceptor,
)
from agent_hooks.ctk.harness import Capability, RunOutcome, RunRecord, Scenario, ToolSpec
from agent_hooks.ctk.scripted import redact_paths

from capfold.capabilities import AssistantMessage, Tool, ToolContext, ToolFailed, call
from capfold.runtime import Agent, AgentHooks, AgentHooksHost, BlockedError, ScriptedModel

# Any, here and below: the kit's own data are JSON objects of any shape.
Json = dict[str, Any]

DECLARATION: Json = {
    "declaration": "agent-hooks-declaration/1.0",
    "spec": "agent-hooks/0.1",
    "id": "capfold",
    "host": {"name": "capfold"},
    "configuration": {
        "mode": "enforce",
        "composition": {"profile": "sequential/first_deny", "on_approval": "stop"},
        "identity_provider": "jcs-sha256",
        "approval": {"resolver": None, "redactor": None},
        "posture": {"tool_seam_host_error": "continue"},
        "timeouts": {"interceptor_ms": 5000, "approval_resolver_ms": 5000},
        "records": {"max_buffered": None},
    },
    "surface": {
        "interception_points": [
            "agent_startup",
            "input",
            "pre_model_call",
            "post_model_call",
            "pre_tool_call",
            "post_tool_call",
            "output",
            "agent_shutdown",
        ],
        "capabilities": ["bigint_json", "host_declaration", "int64_json", "model_calls", "tool_calls"],
        "profiles": {
            "sequential/first_deny": {"on_approval": ["resume", "stop"]},
            "sequential/run_all": {},
            "parallel/strictest": {"on_transform_conflict": ["approval", "deny"]},
            "parallel/unanimous": {"on_disagreement": ["approval", "deny"]},
        },
        "buffered_output": True,
        "declaration_versions": ["agent-hooks-declaration/1.0"],
    },
    "bindings": [],
    "extensions": {},
}


class Harness:
    """What the kit asks of a host."""

    name = "capfold"
    capabilities: ClassVar[frozenset[Capability]] = frozenset(
        {
            Capability.MODEL_CALLS,
            Capability.TOOL_CALLS,
            Capability.INT64_JSON,
            Capability.BIGINT_JSON,
            Capability.HOST_DECLARATION,
        }
    )
    tool_seam_host_error = "continue"

    def __init__(self) -> None:
        """Nothing set up."""
        self._scenario: Scenario
        self._emitter: InterceptionEmitter
        self._invocations: list[Json] = []

    def host_surface(self) -> HostSurface:
        """Return what the code offers."""
        return HostSurface.from_capabilities(
            sorted(one.value for one in self.capabilities), self.tool_seam_host_error
        )

    def declaration(self) -> Json:
        """Return the declaration that a claim cites."""
        return copy.deepcopy(DECLARATION)

    def setup(  # noqa: PLR0917  # the kit's own signature, called by place
        self,
        scenario: Scenario,
        interceptors: list[Interceptor],
        resolver: ApprovalResolver | None,
        mode: EnforcementMode,
        composition: CompositionConfig | None = None,
        identity_provider: str | None = "jcs-sha256",
        redact_for_approval: list[str] | None = None,
    ) -> None:
        """Build the emitter from the declaration, with what this scenario asks for written into it."""
        document, registry = self.declaration(), HostRegistry.for_conformance(self.host_surface())
        settings = document["configuration"]
        settings["mode"] = mode.value
        settings["composition"] = (composition or CompositionConfig.default()).to_wire()
        settings["identity_provider"] = identity_provider
        if identity_provider == "ctk-fault":
            registry.identity_provider("ctk-fault", _broken_provider)
        if resolver is not None:
            registry.approval_resolver("scripted", resolver)
            settings["approval"]["resolver"] = "scripted"
        if redact_for_approval:
            registry.approval_redactor("redact", lambda context: redact_paths(context, redact_for_approval))
            settings["approval"]["redactor"] = "redact"

        def instance(config: Json, context: BindingContext) -> Interceptor:
            return interceptors[config["index"]]

        registry.kind("capfold.scripted", instance)
        document["bindings"] = [
            {"id": f"interceptor-{i}", "kind": "capfold.scripted", "config": {"index": i}}
            for i in range(len(interceptors))
        ]
        self.setup_declared(scenario, document, registry)

    def setup_declared(self, scenario: Scenario, document: Json, registry: HostRegistry) -> None:
        """Build the emitter from a document; a refusal is the kit's to see."""
        self._emitter = InterceptionEmitter.from_declaration_value(document, registry)
        self._scenario = scenario
        self._invocations = []

    async def run(self) -> RunRecord:
        """Run the scenario as any agent of ours runs."""
        scenario = self._scenario
        agent = Agent(
            "capfold",
            ScriptedModel(
                [
                    AssistantMessage(
                        said.content or "",
                        tool_calls=[call(one["name"], one["args"], id=one["id"]) for one in said.tool_calls],
                        finish_reason=said.finish_reason,  # type: ignore[arg-type]  # validated by the record
                    )
                    for said in scenario.model_script
                ]
            ),
            tools=[self._tool(spec) for spec in scenario.tools.values()],
            capabilities=[AgentHooks()],
        )
        outcome, output = RunOutcome.COMPLETED, None
        try:
            result = await agent.run(
                scenario.input["content"], deps={"agent_hooks": AgentHooksHost(self._emitter)}
            )
            output = result.output
        except BlockedError:
            outcome = RunOutcome.BLOCKED
        records = self._emitter.results
        return RunRecord(
            outcome=outcome,
            final_output=output,
            tool_invocations=list(self._invocations),
            identities=[(one.input_identity, one.enforced_identity) for one in records],
            records=[one.to_wire() for one in records],
        )

    def teardown(self) -> None:
        """Nothing is left open."""

    def _tool(self, spec: ToolSpec) -> Tool:
        async def body(arguments: Json, context: ToolContext) -> object:
            self._invocations.append({"name": spec.name, "args": arguments})
            value, is_error = spec.invoke(arguments)
            if is_error:
                raise ToolFailed(str(value))
            return value

        return Tool.from_schema(spec.name, "", {"type": "object"}, body)


def _broken_provider(context: Json) -> str:
    raise RuntimeError("the provider of this scenario fails")
