"""Changing an app while it runs: an edited file in place of its own, or one failed flow again."""

from __future__ import annotations

from collections.abc import Sequence

from millpond.errors import BindError, FlowError, MillpondError, RunError, StateError
from millpond.plan.model import Plan
from millpond.runtime.figures.progress import FAILED, RUNNING
from millpond.runtime.flows.flow import Flow
from millpond.runtime.keeping.editing import Difference, FlowChange, difference
from millpond.runtime.preparing import is_held
from millpond.runtime.running import Running
from millpond.runtime.spark.jars import session_conf
from millpond.runtime.starting import Replan
from millpond.suggest import did_you_mean

# How long whoever asks waits for what is started to have caught up; it goes on after that.
WAIT_S = 60.0
# Settings that Spark is started with.
OF_THE_SESSION = ("master", "spark.ui", "time.zone")


def restart(running: Running, name: str) -> None:
    """Let a failed flow, by its name or its id, go on from its last finished batch. MP201 for a name that no flow has,
    MP713 for one that has not failed; raises what is wrong when it fails again."""
    with running.between_rounds():
        named = [f for f in running.flows if name.lower() in (f.plan.name.lower(), f.plan.id.lower())]
        if not named:
            hint = did_you_mean(name, [f.plan.name for f in running.flows]) or "SHOW FLOWS lists them."
            raise BindError("MP201", f"There is no flow '{name}'.", hint=hint)
        failed = [flow for flow in named if flow.state == FAILED]
        if not failed:
            hint = "Only a flow that has failed is restarted; an edited file is taken by 'millpond apply FILE'."
            raise RunError(
                "MP713", f"The flow '{named[0].plan.name}' has not failed: it is {named[0].state}.", hint=hint
            )
        begun = [running.start.begin_again(flow) for flow in failed]
    running.bring_up(WAIT_S)
    _raise_failures(begun)


def apply(running: Running, plan: Plan, replan: Replan, *, accept: bool) -> Difference:
    """Go on with another plan, under the rules of a start with it. Every flow ends its batch first; those whose
    statements are the same go on at once, what is new, changed or has failed is started as at a start. MP806, and
    nothing is changed, when rows would be lost and that is not accepted. Raises what failed in doing so."""
    with running.between_rounds():
        _require_same_app(running, plan)
        going = {f.plan.id for f in running.flows if f.goes_on and f.state == RUNNING}
        try:
            for flow in running.flows:
                flow.pause()
            found = difference(plan, running.context.store)
            if found.losses and not accept:
                raise StateError.of(found.losses)
            running.switch(plan, replan, accept=accept)
        except BaseException:
            for flow in running.flows:
                flow.resume()
            raise
        unchanged = [f.id for f, change in zip(plan.flows, found.flows, strict=False) if _is_same(change)]
        for flow in running.flows:
            if flow.plan.id in going and flow.plan.id in unchanged:
                _go_on(running, flow)
    running.bring_up(WAIT_S)
    _raise_failures([flow for flow in running.flows if flow.state == FAILED])
    return found


def _require_same_app(running: Running, plan: Plan) -> None:
    """MP802 for the file of another app, MP713 for what only a new start can change."""
    before = running.plan
    if plan.name != before.name:
        hint = f"Apply the file of the app that runs, {before.name}.sql, or choose another --state."
        raise StateError("MP802", f"The app that runs is '{before.name}', not '{plan.name}'.", hint=hint)
    hint = "Stop the app and run it with this file: it goes on where it was."
    other = [name for name in OF_THE_SESSION if plan.settings[name] != before.settings[name]]
    if plan.settings.starting("spark.conf.") != before.settings.starting("spark.conf."):
        other.append("spark.conf.*")
    if other:
        raise RunError("MP713", f"The setting '{other[0]}' takes effect when Spark is started.", hint=hint)
    if running.has_own_session and session_conf(plan).items() - session_conf(before).items():
        raise RunError("MP713", "The file reads or writes Kafka, which Spark was started without.", hint=hint)


def _is_same(change: FlowChange) -> bool:
    return change.batch >= 0 and not change.added and not change.removed


def _go_on(running: Running, flow: Flow) -> None:
    """A flow that ran goes on without being caught up first, unless what it reads has to be made first."""
    try:
        held = is_held(running.context, flow.plan) or not running.start.readiness.may_begin(flow.plan)
        if not held and flow.open() and not running.context.stopping.is_set():
            flow.start()
    except MillpondError as error:
        flow.fail(error)


def _raise_failures(flows: Sequence[Flow]) -> None:
    problems = [problem for flow in flows if flow.error is not None for problem in flow.error.problems]
    if problems:
        raise FlowError.of(problems)
