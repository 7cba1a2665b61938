"""The command line: `python -m engine`, the same engine as the pages have.

Exit status: 0 when a run gave TensorFlow's own answer, values or an error; 2 for what is not accepted (the message
names it, what was given and what is allowed); 3 when the run gave no answer (timeout, killed, runtime missing, not
recorded), or an installation did not come to its end.
"""

from __future__ import annotations

import argparse
import errno
import itertools
import os
import platform
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterable, Sequence

from engine.engine import Engine
from engine.experiments import EXPERIMENTS, CannotRunError, UnknownExperimentError, find_experiment
from engine.installer import InstallError, install
from engine.job import Ticket
from engine.program import notebook, render
from engine.recordings import NotRecordedError, RecordingError, Recordings, is_recorded_on, record
from engine.request import Request, check_runs_on
from engine.runtimes import (
    KERAS_LINE,
    Entry,
    RuntimeMissingError,
    UnknownVersionError,
    Wanted,
    catalogue_state,
    choose,
    find_runtimes,
    standard_set,
    wanted,
)
from engine.settings import Problem, SettingsError
from engine.warm import PARENT

ANSWERED, REFUSED, FAILED = 0, 2, 3


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what the arguments say. Returns the exit status."""
    parser = _parser()
    options, rest = parser.parse_known_args(arguments)
    # argparse takes no SETTING=VALUE after an option such as --tf.
    if any(word.startswith("-") for word in rest) or (rest and not hasattr(options, "settings")):
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    if rest:
        options.settings += rest
    if sys.stdout is None:  # closed by whoever started this
        print("there is no standard output to write to", file=sys.stderr)
        return FAILED
    try:
        status: int = options.do(options)
        sys.stdout.flush()
        return status
    except (UnknownExperimentError, UnknownVersionError, CannotRunError, SettingsError) as error:
        problems = error.problems if isinstance(error, SettingsError) else (error,)
        for problem in problems:
            print(problem, file=sys.stderr)
        return REFUSED
    except (RuntimeMissingError, NotRecordedError) as error:
        print(error, file=sys.stderr)
        return FAILED if _could_be_installed(options) else REFUSED
    except BrokenPipeError:  # the reader, such as `head`, has seen enough
        _say_no_more()
        return ANSWERED
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        _say_no_more()
        print(f"the output could not be written whole: {error.strerror}", file=sys.stderr)
        return FAILED
    except KeyboardInterrupt:
        return 130  # as a shell reports Ctrl-C


def _could_be_installed(options: argparse.Namespace) -> bool:
    """Whether the version that was asked for is one that exists for all that is known here."""
    try:
        wanted(options.tf or KERAS_LINE, options.keras)
    except UnknownVersionError:
        return False
    return True


def _say_no_more() -> None:
    """Standard output takes nothing any more, so what Python still holds for it must go elsewhere at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m engine", description="Run real TensorFlow, one choice at a time.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    listing = commands.add_parser("list", help="the experiments and their settings, with defaults and ranges")
    listing.set_defaults(do=_list)

    run = commands.add_parser("run", help="run one experiment and print its trace, as JSON lines")
    run.add_argument(
        "experiment",
        metavar="EXPERIMENT",
        help="its name; or - to read requests from standard input, one JSON object a line",
    )
    run.add_argument(
        "--recorded",
        action="store_true",
        help="run nothing: print the trace that is kept of just that, if there is one",
    )
    run.set_defaults(do=_run)

    script = commands.add_parser("script", help="print the program that `run` would run")
    script.add_argument("experiment", metavar="EXPERIMENT")
    script.add_argument("--notebook", action="store_true", help="as a Jupyter notebook")
    script.set_defaults(do=_script)

    for command in (run, script):
        command.add_argument("settings", metavar="SETTING=VALUE", nargs="*", help="see `list`")
        command.add_argument("--tf", metavar="VERSION", help="the TensorFlow version (default: the app's own)")
        command.add_argument(
            "--keras",
            metavar="VERSION",
            help="the Keras version (default: the one that TensorFlow came with)",
        )

    runtimes = commands.add_parser(
        "runtimes", help="the TensorFlow versions that are installed here, and those that could be"
    )
    runtimes.set_defaults(do=_runtimes)
    installing = runtimes.add_subparsers(metavar="install").add_parser("install", help="get further versions")
    installing.add_argument(
        "versions",
        metavar="VERSION",
        nargs="*",
        help=f"default: {', '.join(want.tensorflow for want in standard_set())}",
    )
    installing.add_argument("--keras", metavar="VERSION", help=f"another Keras 3, for TensorFlow {KERAS_LINE}")
    installing.set_defaults(do=_install)

    recording = commands.add_parser("recordings", help="record what the app shows where a version is not installed")
    recording.add_argument("experiments", metavar="EXPERIMENT", nargs="*", help="default: all")
    recording.add_argument(
        "--tf", metavar="VERSION", help="on this TensorFlow only (default: on all that are installed)"
    )
    recording.add_argument("--keras", metavar="VERSION", help="with this Keras")
    recording.set_defaults(do=_record)
    return parser


def _list(options: argparse.Namespace) -> int:
    for experiment in EXPERIMENTS.values():
        print(experiment.name)
        defaults = experiment.settings().to_words()
        width = max(len(name) for name in defaults)
        for setting in experiment.settings.declared():
            print(f"  {setting.name:{width}}  {defaults[setting.name]:12}  {setting.allowed}")
    return ANSWERED


def _run(options: argparse.Namespace) -> int:
    if options.experiment == "-":
        requests = [_request(number, line) for number, line in enumerate(sys.stdin, 1) if line.strip()]
    else:
        requests = [Request.of(options.experiment, _given(options), options.tf, options.keras)]
    if options.recorded:
        return _print_recorded(requests)
    status = ANSWERED
    with Engine() as engine:
        # Not all at once: what the engine holds in its queue is bounded.
        at_once = engine.limits.at_once
        waiting = deque(_submit(engine, request) for request in requests[:at_once])
        for request in [*requests[at_once:], *[None] * len(waiting)]:
            trace = waiting.popleft().result()
            if request is not None:
                waiting.append(_submit(engine, request))
            print(trace.to_jsonl(), end="", flush=True)
            if not trace.answered:
                print(f"{trace.status}: {trace.end['reason']}", trace.stderr, sep="\n", file=sys.stderr)
                status = FAILED
    return status


def _submit(engine: Engine, request: Request) -> Ticket:
    """Raises RuntimeMissingError, which says how to print the recording, where there is one."""
    try:
        return engine.submit(request)
    except RuntimeMissingError:
        if Recordings().find(request) is None:
            raise
        recorded = f"{request.command} --recorded"
        raise RuntimeMissingError(request.tensorflow, request.keras, engine.runtimes, recorded) from None


def _print_recorded(requests: Iterable[Request]) -> int:
    """The traces as they were, on standard output; where each came from, on standard error."""
    recordings = Recordings()
    for recording in [recordings.get(request) for request in requests]:
        print(recording.trace.to_jsonl(), end="", flush=True)
        made = recording.provenance
        versions = f"TensorFlow {made.tensorflow}, Keras {made.keras}, Python {made.python}, {made.platform}"
        print(f"recorded {made.date}: {versions}, by {made.made_by}", file=sys.stderr)
    return ANSWERED


def _request(number: int, line: str) -> Request:
    try:
        return Request.from_json(line)
    except SettingsError as error:
        raise SettingsError(
            [Problem(f"line {number}, {each.setting}", each.given, each.allowed) for each in error.problems]
        ) from None
    except (ValueError, RecursionError) as error:
        given = line.strip()[:80]
        raise SettingsError([Problem(f"line {number}", given, f"a request as JSON ({error})")]) from None


def _script(options: argparse.Namespace) -> int:
    experiment = find_experiment(options.experiment)
    settings = experiment.settings.parse(_given(options))
    runtimes = find_runtimes()
    runtime = choose(runtimes, options.tf, options.keras)
    check_runs_on(experiment, runtime, runtimes)
    program = render(experiment, settings, runtime.versions)
    print(notebook(program) if options.notebook else program, end="")
    return ANSWERED


def _runtimes(options: argparse.Namespace) -> int:
    entries = catalogue_state()
    width = max(len(entry.name) for entry in entries)
    for entry in entries:
        print(f"{entry.name:{width}}  {_described(entry)}")
    reason = _network_refusal()
    print(f"Network of a run: {f'all that this machine reaches ({reason})' if reason else 'loopback only'}")
    return ANSWERED if any(entry.runtime for entry in entries) else FAILED


def _network_refusal() -> str:
    """Why a run has the network of the machine; "" where it has none but loopback. A process of its own tries it."""
    command = [sys.executable, "-m", "engine.parent"]
    return subprocess.run(command, cwd=PARENT.parents[1], stdout=subprocess.PIPE, text=True, check=True).stdout


def _described(entry: Entry) -> str:
    if entry.runtime is not None:
        versions = entry.runtime.versions
        beside = f", tf_keras {versions.tf_keras}" if versions.tf_keras else ""
        return f"Keras {versions.keras}{beside}, {entry.runtime.python}"
    if entry.missing == "no release":
        return (
            f"missing: TensorFlow {entry.tensorflow} was not released for this kind of machine ({platform.machine()})"
        )
    why = "missing: not installed yet"
    if entry.missing == "no python":
        why += f", and no Python {' or '.join(entry.pythons)} found for it (uv may be able to fetch one)"
    return f"{why}; get it with: {entry.command}"


def _install(options: argparse.Namespace) -> int:
    """Each of them, also where another one failed. What is said on the way goes to standard error, as uv's words do."""
    wants = [wanted(version, options.keras) for version in options.versions]
    if not wants:
        wants = [wanted(KERAS_LINE, options.keras)] if options.keras else standard_set()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # so that what is unfinished is removed
    failed = []
    for want in wants:
        try:
            _install_one(want)
        except InstallError as error:
            print(error, file=sys.stderr)
            failed.append(want.name)
        except KeyboardInterrupt:
            print(f"{want.name}: interrupted, and removed; the same command starts it afresh", file=sys.stderr)
            raise
    if failed:
        print(f"not installed: {', '.join(failed)}", file=sys.stderr)
    return FAILED if failed else ANSWERED


def _install_one(want: Wanted) -> None:
    # The Keras that is named may be the one that the app itself has.
    versions = (want.tensorflow, want.keras)
    present = next(
        (
            runtime
            for runtime in find_runtimes().values()
            if runtime.name == want.name or (runtime.versions.tensorflow, runtime.versions.keras) == versions
        ),
        None,
    )
    if present is not None:
        print(f"{want.name}: is there already, {present.python}")
        return
    install(want, lambda line: print(line, file=sys.stderr, flush=True))


def _record(options: argparse.Namespace) -> int:
    experiments = [find_experiment(name) for name in options.experiments or EXPERIMENTS]
    status = ANSWERED
    with Engine() as engine:
        only = choose(engine.runtimes, options.tf, options.keras) if options.tf or options.keras else None
        for experiment, runtime in itertools.product(experiments, engine.runtimes.values()):
            if not is_recorded_on(experiment, runtime) or only not in (None, runtime):
                continue
            began = time.monotonic()
            try:
                written = record(engine, experiment, runtime)
            except RecordingError as error:
                print(error, file=sys.stderr)
                status = FAILED
                continue
            said = "recorded anew" if written else "as recorded before"
            print(f"{experiment.name} on {runtime.name}: {said}, {time.monotonic() - began:.0f} s", flush=True)
    return status


def _given(options: argparse.Namespace) -> dict[str, str]:
    """The SETTING=VALUE words. Raises SettingsError for one that is not of this form, or is there twice."""
    given: dict[str, str] = {}
    for word in options.settings:
        name, equals, value = word.partition("=")
        if not (name and equals):
            raise SettingsError([Problem(word, word, "SETTING=VALUE, such as replicas=4")])
        if name in given:
            raise SettingsError([Problem(name, f"{given[name]} and {value}", "one value")])
        given[name] = value
    return given


if __name__ == "__main__":
    sys.exit(main())
