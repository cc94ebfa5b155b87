"""
example:
  torusrun plan examples/digits.yaml --set grid=4x1
  torusrun plan run.yaml --hosts hosts.txt
  torusrun plan run.yaml --check
"""

from __future__ import annotations

import argparse
import json
import textwrap
from typing import TYPE_CHECKING

from torusrun.orchestrator.base.errors import DONE, USER_MISTAKE, UserError
from torusrun.orchestrator.cli.verbs import shared_arguments
from torusrun.training.counted import counted
from torusrun.training.schedule import Course, phases_of

WIDTH = 100  # of the text beside a name

if TYPE_CHECKING:
    from torusrun.orchestrator.base.shown.table import Table
    from torusrun.orchestrator.forecast.by_size import ProgramForecast
    from torusrun.orchestrator.forecast.forecast import Forecast
    from torusrun.orchestrator.run.plan.plan import Plan
    from torusrun.orchestrator.schedulers.topology import ExpectedHosts
    from torusrun.orchestrator.show.role_table import RoleRow
    from torusrun.training.recipe.train import Train


def arguments(parser: argparse.ArgumentParser) -> None:
    shared_arguments.run_file(parser)
    shared_arguments.keys(parser)
    shared_arguments.sweep(parser)
    parser.add_argument("--json", action="store_true", help="as JSON, with every default filled in")
    shared_arguments.hosts_file(parser, "place the ranks on these hosts")
    parser.add_argument("--check", action="store_true", help="also compare the run, its image and its site")


def run(args: argparse.Namespace) -> int:
    from torusrun.orchestrator.cli import image_fits
    from torusrun.orchestrator.keys.load import is_sweep
    from torusrun.orchestrator.predict.words import attempts_needed, cost_line, program_line
    from torusrun.orchestrator.run.plan import all_reduces
    from torusrun.orchestrator.run.plan.auto_grid import with_expected_grid
    from torusrun.orchestrator.run.plan.plan import plan
    from torusrun.orchestrator.show.placement import outlook

    if args.sweep or is_sweep(args.file, args.site, args.settings):
        return _sweep(args)
    planned = plan(args.file, site=args.site, settings=args.settings)
    if args.check and planned.site.host:
        return _check_on_login_node(args, planned)
    placed = outlook(planned, shared_arguments.hosts(args.hosts)) if args.hosts else None
    planned = placed.plan if placed else with_expected_grid(planned)
    forecast, unknown = _forecast(planned, placed.hosts if placed else None)
    of_command = _of_command(planned)
    known = forecast or of_command
    total_s = known and known.total_s
    fits = image_fits.of(planned) if args.check else []
    if args.json:
        parts = {"placement": placed.as_json() if placed else None, "prediction": known and known.as_json()}
        cost = {"attempts": attempts_needed(planned, total_s) if total_s else None}
        checked = {"check": fits[0].as_json(), "check_of_services": [fit.as_json() for fit in fits[1:]]} if fits else {}
        roles = {"roles": _roles(planned).as_json()} if planned.run.roles else {}
        reduced = {} if planned.run.command else {"all_reduce": all_reduces.words(planned)}
        print(json.dumps({**planned.as_json(), **parts, **cost, **checked, **roles, **reduced}, indent=1))
    else:
        print(_words(planned))
        print(f"\n{placed.text()}\n" if placed else _later(planned))
        of_other = program_line(of_command) if of_command else unknown
        print(f"{'prediction':12}{_predicted(forecast) if forecast else of_other}")
        print(f"{'cost':12}{cost_line(planned, total_s)}\n" if total_s else "", end="")
        print(_checkpoints(planned, forecast), end="")
        for fit in fits:
            print("\n".join(["", *fit.lines()]))
    return USER_MISTAKE if any(fit.refused for fit in fits) else DONE


def _check_on_login_node(args: argparse.Namespace, planned: Plan) -> int:
    """The same verb on the login node, which has the image and the runtime."""
    from torusrun.orchestrator.cli.elsewhere import shown
    from torusrun.orchestrator.remote import of_file

    if args.hosts:
        raise UserError("--hosts places the ranks here, and --check examines the image there: give one of them")
    options = [option for option in ("--check", "--json") if getattr(args, option.strip("-"))]
    return shown(of_file.run("plan", planned, args.file, options, site=args.site, settings=args.settings))


def _sweep(args: argparse.Namespace) -> int:
    """Print the first member in full, then all members and what they cost."""
    from torusrun.orchestrator.run.plan.auto_grid import with_expected_grid
    from torusrun.orchestrator.sweeps import preview
    from torusrun.orchestrator.sweeps.plans import SweepOptions, plan_sweep

    if args.hosts or args.check:
        raise UserError("--hosts and --check are for one run: leave out the sweep, as in --set sweep=null")
    asked = SweepOptions(tuple(args.sweep))
    sweep = plan_sweep(args.file, site=args.site, settings=args.settings, asked=asked)
    if args.json:
        print(json.dumps(preview.as_json(sweep, preview.cost(sweep)), indent=1))
        return DONE
    print(_words(with_expected_grid(sweep.members[0].plan)))
    print("\n" + "\n".join(preview.lines(sweep, preview.cost(sweep))))
    return DONE


def _forecast(planned: Plan, hosts: ExpectedHosts | None) -> tuple[Forecast | None, str]:
    """The prediction of a training, or why it has none."""
    from torusrun.orchestrator.run.plan.command_runs import NOTHING
    from torusrun.orchestrator.run.plan.forecast import forecast_of

    if planned.run.command:
        return None, NOTHING
    try:
        return forecast_of(planned, hosts), ""
    except UserError as error:
        return None, str(error)


def _of_command(planned: Plan) -> ProgramForecast | None:
    """The prediction of a command by its finished runs; None without any."""
    from torusrun.orchestrator.forecast.by_size import forecast
    from torusrun.orchestrator.run.plan.command_runs import measured_runs

    runs = measured_runs(planned) if planned.run.command else []
    return forecast(runs, planned.ranks) if runs else None


def _predicted(forecast: Forecast) -> str:
    from torusrun.orchestrator.base.shown.numbers import between, duration, ms, thousands

    interval = between(forecast.intervals["total_s"], duration)
    rate = f"{thousands(forecast.images_per_s)} images/s"
    steps = f"{counted(forecast.steps, 'step')} of {ms(forecast.step_s)} ms"
    reading = f", input {ms(forecast.input_s)} ms" if forecast.input_s else ""
    waits = f"the slowest rank {ms(forecast.stragglers_s)} ms and the all-reduce {ms(forecast.exposed_s)} ms{reading}"
    return f"{duration(forecast.total_s)} (90 %: {interval}), {rate}: {steps}, of which {waits}; more: torusrun predict"


def _checkpoints(planned: Plan, forecast: Forecast | None) -> str:
    """A line about what checkpoints cost; none if nothing is known."""
    from torusrun.orchestrator.predict.words import checkpoints_line, checkpoints_line_without_rate
    from torusrun.orchestrator.run.plan.rates import saving_of

    if forecast:
        return f"{'checkpoints':12}{checkpoints_line(forecast.checkpoints)}\n"
    saving = saving_of(planned)
    return f"{'checkpoints':12}{checkpoints_line_without_rate(saving)}\n" if saving else ""


def _later(planned: Plan) -> str:
    if planned.site.topology is None:
        return "placement   in the scheduler's order: the site has no topology"
    return "placement   ordered by the network when the job knows its hosts; --hosts FILE shows it for given hosts"


def _words(planned: Plan) -> str:
    from torusrun.orchestrator.run.plan.plan import notes

    run, site, grid = planned.run, planned.site, planned.grid
    words = site.request.words()
    why = textwrap.wrap(planned.chosen.reason, WIDTH) if planned.chosen else []
    rows = {
        "run": planned.run_id,
        "site": f"{run.site} ({site.scheduler}, ranks started by {site.launcher})",
        "nodes": _nodes(planned),
        **({"request": ", ".join(f"{key} {text}" for key, text in words.items())} if words else {}),
        "grid": f"\n{'':12}".join([f"{grid}: {grid.words}", *why]),
        "time limit": f"{run.time_s:g} s, with a checkpoint {planned.stop_before_s:g} s before it",
        **({"keeps going": _keeps_going(planned)} if planned.keeps_going else {}),
        **(_command(planned) if run.command else _training(planned)),
        **({"roles": f"\n{'':12}".join(_roles(planned).lines())} if run.roles else {}),
        **({"image": f"\n{'':12}".join(images)} if (images := _images(planned)) else {}),
        **_bad_nodes(planned),
        **({"note": f"\n{'':12}".join(lines)} if (lines := notes(planned)) else {}),
        "folder": str(planned.folder),
    }
    return "\n".join(f"{name:12}{value}" for name, value in rows.items())


def _nodes(planned: Plan) -> str:
    run, services = planned.run, planned.service_nodes
    each = f"{counted(planned.ranks_per_node, 'rank')} and {counted(planned.site.gpus, 'GPU')} on each"
    return (
        f"{planned.all_nodes}: {run.nodes} of the main role, {each}; {services} of services"
        if run.roles
        else f"{run.nodes}, {each}"
    )


def _roles(planned: Plan) -> Table[RoleRow]:
    from torusrun.orchestrator.show.role_table import table

    return table(planned)


def _keeps_going(planned: Plan) -> str:
    settings = planned.run.keep_going
    jobs = f"over {counted(planned.jobs, 'job')}" if planned.jobs > 1 else "within its job"
    fewest = f", on {counted(settings.min_nodes, 'node')} or more" if settings.min_nodes else ""
    spares = f", with {counted(settings.spares, 'spare node')}" if settings.spares else ""
    vain = counted(settings.without_progress, "attempt")
    return f"{jobs}{spares}{fewest}, until {vain} in a row made no new checkpoint"


def _bad_nodes(planned: Plan) -> dict[str, str]:
    """The hosts that the first attempt would leave out. The login node of a site has its own memory."""
    if planned.site.host:
        return {}
    from torusrun.orchestrator.run.plan import attempt_plan
    from torusrun.orchestrator.run.plan.job_request import without_bad_nodes

    lines = without_bad_nodes(attempt_plan.first(planned)).left_out.lines
    return {"bad nodes": f"\n{'':12}".join(lines)} if lines else {}


def _images(planned: Plan) -> list[str]:
    """The images, each with the command that builds it if it comes from an image file and is not built yet."""
    from torusrun.orchestrator.run.plan.role_plans import of_images

    return [_image(of_image, name) for name, of_image in of_images(planned).items()]


def _image(planned: Plan, text: str) -> str:
    from torusrun.orchestrator.images import source
    from torusrun.orchestrator.run.image import run_image

    named = source.parse(text)
    if planned.site.host or named.kind != "image file" or run_image.newest(named, planned.site):
        return text
    return f"{text}, not ready for this site: `{run_image.build_command(planned)}`"


def _command(planned: Plan) -> dict[str, str]:
    import shlex

    code = f"{planned.code}, copied at submit" if planned.code else "none"
    return {"command": shlex.join(planned.run.command), "code": code}


def _training(planned: Plan) -> dict[str, str]:
    from torusrun.orchestrator.run.plan import all_reduces

    train = planned.run.train
    batches = dict.fromkeys(phase.batch for phase in phases_of(train, 1))
    batch = ", then ".join(f"{batch} ({batch // planned.ranks} per rank)" for batch in batches)
    rate = "by phases" if train.phases and train.phases[0].lr else f"{train.optimizer.lr:g}"
    what = f"{train.model.name} on {train.data.name}, {counted(train.epochs, 'epoch')}"
    reduced = f"\n{'':12}".join(textwrap.wrap(all_reduces.words(planned), WIDTH))
    rows = {"training": f"{what}, batch {batch}, lr {rate}", "all-reduce": reduced}
    rows |= {**_compiled(planned), **_without_steps(train)}
    return {"recipe": _recipe(planned), **rows} if train.recipe else rows


def _compiled(planned: Plan) -> dict[str, str]:
    """That the first step takes longer, if the network is compiled."""
    from torusrun.orchestrator.keys.as_asked import uses_gpus
    from torusrun.training.recipe.facts import compiles

    train = planned.run.train
    if not uses_gpus(planned.run, planned.site) or not compiles(train, gpu=True):
        return {}
    least = " (train.compile: false starts sooner)" if train.compile is None else ""
    return {"compiled": f"the first step takes about a minute, in later attempts some seconds{least}"}


def _without_steps(train: Train) -> dict[str, str]:
    """The phases that train no step, and so make no member of an ensemble either."""
    from torusrun.training.recipe.facts import data_facts

    data = data_facts(train) if train.phases else None
    if data is None:
        return {}
    numbers = [phase.number for phase, steps in Course(train, data.train_samples).steps_to_come() if not steps]
    listed = ", ".join(f"train.phases[{number}]" for number in numbers)
    return {"no step": f"{listed}: the previous batch continues past the end"} if numbers else {}


def _recipe(planned: Plan) -> str:
    name = planned.run.train.recipe
    changes = map(str, planned.recipe_changes)
    lines = [line for change in changes for line in textwrap.wrap(change, WIDTH, subsequent_indent="  ")]
    return f"\n{'':14}".join([f"{name}, more: torusrun recipes show {name}", *lines])
