"""The rollout: the model's replies are judged one after another, the last one too."""

from __future__ import annotations

import asyncio

import verifiers.v1 as vf

from torchstone.errors import InfrastructureError
from torchstone.gym import Rollout
from torchstone_kernels.evaluators import close_evaluator, evaluator_of
from torchstone_kernels.taskset import TURNS, KernelTask, KernelTaskset


class KernelEnvConfig(vf.SingleAgentEnvConfig):
    """One model that chats. It runs no code of its own, so its program may run on this machine."""

    agent: vf.AgentConfig = vf.AgentConfig(harness=vf.HarnessConfig(id="null"), runtime=vf.SubprocessConfig())


class KernelEnv(vf.Env[KernelEnvConfig]):
    """Reply, verdict, feedback, next reply, until `num_turns` or `feedback_loop` end it."""

    taskset: KernelTaskset

    async def run(self, task: vf.Task, agents: vf.Agents) -> None:
        assert isinstance(task, KernelTask)
        rollout = await asyncio.to_thread(_rollout, task)  # finding the tasks takes seconds, once
        async with agents.agent.interaction(task) as interaction:
            turns = interaction.trace.info.setdefault(TURNS, [])
            reply = await interaction.turn()
            while not reply.terminated:
                result = await rollout.answer(reply.last_reply)
                turns.append(result.to_dict())
                if not result.judged:
                    raise InfrastructureError(result.feedback)
                if rollout.is_done:
                    return
                reply = await interaction.turn(result.feedback)

    async def stop(self) -> None:
        await asyncio.to_thread(close_evaluator, self.taskset.config.evaluator_config())


def _rollout(task: KernelTask) -> Rollout:
    return Rollout(evaluator_of(task.evaluator_config), task.data.operator)
