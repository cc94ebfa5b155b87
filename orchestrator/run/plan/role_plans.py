"""The plans of a run's services, each as if it were a run of its own: what it starts, and in which image."""

from __future__ import annotations

from dataclasses import replace

from torusrun.orchestrator.keys.main_role import image_of, services
from torusrun.orchestrator.keys.roles import Role
from torusrun.orchestrator.keys.run import ExitCodes
from torusrun.orchestrator.keys.shared import Env, secret
from torusrun.orchestrator.run.plan.plan import Plan


def of_service(plan: Plan, role: Role) -> Plan:
    """The plan of a run that is this service alone."""
    env: Env = {**secret(plan.run.env), **role.env}
    run = replace(plan.run, command=role.command, env=dict(env), stop=role.stop, image=image_of(plan.run, role))
    return replace(plan, run=replace(run, exit_codes=ExitCodes(), metrics=role.metrics))


def of_images(plan: Plan) -> dict[str, Plan]:
    """For each image of a run's roles, by its name, the plan of the first role in it; the run itself comes first."""
    plans = [plan, *(of_service(plan, role) for role in services(plan.run).values())]
    first_in: dict[str, Plan] = {}
    for role in plans:
        if role.run.image:
            first_in.setdefault(role.run.image, role)
    return first_in
