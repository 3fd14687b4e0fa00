"""Changes to a running app: applying an edited file, and restarting a failed flow."""

from __future__ import annotations

from collections.abc import Sequence

from millpond.app.edits import Difference, FlowChange, difference, statements_of
from millpond.app.prepare_tables import is_held
from millpond.app.running_plan import Running
from millpond.app.start import Replan
from millpond.engine.flow import Flow
from millpond.engine.progress import FAILED, RUNNING
from millpond.engine.spark.java import session_conf
from millpond.engine.spark.spark_errors import translate
from millpond.errors import BindError, FlowError, MillpondError, RunError, StateError, did_you_mean
from millpond.plan.model import Plan

# How long a caller waits until the started flows have caught up; they continue after that.
WAIT_S = 60.0
# Settings that take effect only when Spark is started.
OF_THE_SESSION = ("master", "spark.ui", "time.zone")


def restart(running: Running, name: str) -> None:
    """Restart a failed flow, by its name or id, from its last committed batch. MP201 if there is no such flow, MP713 if
    it has not failed; raises its error if it fails again."""
    with running.between_rounds():
        named = [f for f in running.flows if name.lower() in (f.plan.name.lower(), f.plan.id.lower())]
        if not named:
            hint = did_you_mean(name, [f.plan.name for f in running.flows]) or "SHOW FLOWS lists them."
            raise BindError("MP201", f"There is no flow '{name}'.", hint=hint)
        failed = [flow for flow in named if flow.state == FAILED]
        if not failed:
            hint = "Only a failed flow can be restarted; to apply an edited file, run 'millpond apply FILE'."
            raise RunError(
                "MP713", f"The flow '{named[0].plan.name}' has not failed: it is {named[0].state}.", hint=hint
            )
        begun = [running.start.begin_again(flow) for flow in failed]
    running.bring_up(WAIT_S)
    _raise_failures(begun)


def apply(running: Running, plan: Plan, replan: Replan, *, accept: bool) -> Difference:
    """Switch to another plan, by the rules of a start with it. Every flow finishes its batch first; those whose
    statements are the same continue at once; what is new, changed or failed is started as at a start. MP806, with
    nothing changed, if rows would be lost and that was not accepted. Raises the failures of what it started."""
    with running.between_rounds():
        _require_same_app(running, plan)
        found = _switch(running, plan, replan, accept=accept)
    running.bring_up(WAIT_S)
    _raise_failures([flow for flow in running.flows if flow.state == FAILED])
    return found


def extend(running: Running, plan: Plan, replan: Replan, *, accept: bool) -> None:
    """Continue with a plan that has other definitions added to those of the same file, or, if the app was not started,
    create their tables. A flow that has failed before stays failed, unless its statements have changed. Definitions
    that cannot be computed, or that make a flow fail, are undone, and the error is raised."""
    if not running.is_begun:
        _extend_unstarted(running, plan, replan, accept=accept)
        return
    before, before_replan = running.plan, running.replan
    had = {flow.id: statements_of(flow) for flow in before.flows}
    others = {flow.id for flow in plan.flows if statements_of(flow) != had.get(flow.id)}
    with running.between_rounds():
        _require_same_app(running, plan)
        failed = {flow.plan.id: flow.error for flow in running.flows if flow.state == FAILED and flow.error}
        _switch(running, plan, replan, accept=accept)
        for flow in running.flows:
            if flow.plan.id not in others and (error := failed.get(flow.plan.id)) is not None:
                flow.fail(error)
    try:
        running.bring_up(WAIT_S)
    except MillpondError:
        with running.between_rounds():
            _switch(running, before, before_replan, accept=True)
        running.bring_up(WAIT_S)
        raise
    _raise_failures([flow for flow in running.flows if flow.state == FAILED and flow.plan.id in others])


def _extend_unstarted(running: Running, plan: Plan, replan: Replan, *, accept: bool) -> None:
    before, before_replan = running.plan, running.replan
    running.switch(plan, replan, accept=accept)
    try:
        running.fill_views()
    except Exception as error:
        running.switch(before, before_replan, accept=True)
        raise translate(error) from error


def _switch(running: Running, plan: Plan, replan: Replan, *, accept: bool) -> Difference:
    """Replace the plan; unchanged flows continue. Returns what was changed. MP806, with nothing changed, if rows would
    be lost."""
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
    unchanged = {f.id for f, change in zip(plan.flows, found.flows, strict=False) if _is_same(change)}
    for flow in running.flows:
        if flow.plan.id in going and flow.plan.id in unchanged:
            _go_on(running, flow)
    return found


def _require_same_app(running: Running, plan: Plan) -> None:
    """MP802 for the file of another app, MP713 for changes that require a restart."""
    before = running.plan
    if plan.name != before.name:
        hint = f"Apply the file of the running app, {before.name}.sql, or choose another --state."
        raise StateError("MP802", f"The running app is '{before.name}', not '{plan.name}'.", hint=hint)
    hint = "Stop the app and run it with this file: it continues where it was."
    other = [name for name in OF_THE_SESSION if plan.settings[name] != before.settings[name]]
    if plan.settings.starting("spark.conf.") != before.settings.starting("spark.conf."):
        other.append("spark.conf.*")
    if other:
        raise RunError("MP713", f"The setting '{other[0]}' takes effect only when Spark is started.", hint=hint)
    if running.has_own_session and session_conf(plan).items() - session_conf(before).items():
        raise RunError("MP713", "The file uses Kafka, but Spark was started without the Kafka connector.", hint=hint)


def _is_same(change: FlowChange) -> bool:
    return change.batch >= 0 and not change.added and not change.removed


def _go_on(running: Running, flow: Flow) -> None:
    """Continue a flow that ran, without catching up first, unless what it reads must be created first."""
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
