"""`python -m engine`: the same engine as the pages, with exit statuses and messages to rely on."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from contextlib import nullcontext
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.__main__ import main
from engine.engine import Engine
from engine.experiments import EXPERIMENTS
from engine.recordings import recorded_settings

ROOT = Path(__file__).parents[2]


def engine_command(*words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "engine", *words], cwd=ROOT, capture_output=True, text=True, input=stdin, timeout=120
    )


@pytest.fixture
def in_shared_engine(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """A command in this process, on the engine that is started already."""
    monkeypatch.setattr("engine.__main__.Engine", lambda: nullcontext(engine))


@pytest.mark.usefixtures("in_shared_engine")
@pytest.mark.parametrize(
    ("words", "copies"),
    [
        (["aggregation=MEAN", "replicas=2"], [1.15, 1.15]),
        (["aggregation=NONE"], [1.1, 1.2]),
        (["aggregation=SUM", "replicas=4"], [2.0] * 4),
        (["route=optimizer", "learning_rate=1", "aggregation=MEAN", "replicas=4"], [0.0] * 4),
    ],
)
def test_run(words: list[str], copies: list[float], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "aggregation", *words]) == 0
    events = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [event["value"] for event in events if event["event"] == "variable" and event["step"] == 1] == copies
    assert (events[0]["event"], events[0]["tensorflow"][:4]) == ("run", "2.21")
    assert (events[-1]["event"], events[-1]["status"]) == ("end", "ok")
    assert all("t" in event for event in events)


@pytest.mark.usefixtures("tensorflow")
def test_several_requests_in_one_started_engine() -> None:
    """2 replicas, then 4: their collectives would abort each other in one process."""
    requests = [json.dumps({"experiment": "aggregation", "settings": {"replicas": n}}) for n in (2, 4, 2)]
    done = engine_command("run", "-", stdin="\n".join(requests))
    assert done.returncode == 0, done.stderr
    events = [json.loads(line) for line in done.stdout.splitlines()]
    last = [before["value"] for before, event in pairwise(events) if event["event"] == "end"]
    assert [event["status"] for event in events if event["event"] == "end"] == ["ok"] * 3
    assert last == [1.1] * 3  # the cross-replica read of NONE is the first copy


@pytest.mark.usefixtures("tensorflow")
def test_an_error_of_tensorflow_is_an_answer() -> None:
    done = engine_command("run", "aggregation", "aggregation=SUM", "value=python")
    assert done.returncode == 0
    assert json.loads(done.stdout.splitlines()[-1])["status"] == "error"


@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        (["run", "aggregation", "replicas=99"], 2, "replicas: '99' was given; allowed: a whole number 1-8"),
        (["run", "nope"], 2, "experiment: 'nope' was given; allowed: aggregation"),
        (["run", "aggregation", "replicas"], 2, "replicas: 'replicas' was given; allowed: SETTING=VALUE"),
        (["run", "aggregation", "replicas=2", "replicas=3"], 2, "replicas: '2 and 3' was given; allowed: one value"),
        (["script", "aggregation", "steps=x"], 2, "steps: 'x' was given; allowed: a whole number 1-20"),
        (["run", "aggregation", "--tf", "9.9"], 2, "tf: '9.9' was given; installed here: 2."),
        (["script", "aggregation", "--tf", "*"], 2, "tf: '*' was given; installed here: 2."),
        # It can't run where it is not installed, and could be.
        (["run", "aggregation", "--keras", "3.0.0"], 3, "keras: '3.0.0' was given; installed here: 2."),
        (["runtimes", "install", "3.0"], 2, "tf: '3.0' was given; allowed: 1.15.5 or another 1.15, "),
        (["runtimes", "install", "2.15", "--keras", "3.4.1"], 2, "keras: '3.4.1' was given; allowed: none, as "),
    ],
)
def test_what_is_not_accepted(words: list[str], status: int, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == status
    printed = capsys.readouterr()
    assert printed.err.startswith(message)
    assert printed.out == ""


@pytest.mark.parametrize("words", [[], ["dance"], ["run"], ["list", "x"], ["run", "aggregation", "--bogus"]])
def test_what_is_no_command(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(words)
    assert caught.value.code == 2
    assert "usage: python -m engine" in capsys.readouterr().err


@given(st.lists(st.text(st.characters(blacklist_categories=["Cs"])), max_size=4))
def test_nonsense_on_the_command_line(words: list[str]) -> None:
    """It is refused with 2 or 3, without a traceback. (`script` validates as `run` does, and runs nothing.)"""
    try:
        status = main(["script", "aggregation", *words])
    except SystemExit as leaving:  # argparse has its own way: 2, or 0 after --help
        status = int(leaving.code or 0)
    assert status in ((0, 2, 3) if words else (0,))


def test_bad_lines_on_standard_input() -> None:
    for line in ("x", "[]", "{}", '{"experiment": "aggregation", "settings": {"replicas": 99}}'):
        done = engine_command("run", "-", stdin=line)
        assert (done.returncode, done.stdout) == (2, ""), line
        assert "was given; allowed" in done.stderr


RECORDED = ["run", "aggregation", "--recorded", "--tf", "2.4.1"]


def test_a_recording_is_printed_as_it_was(capsys: pytest.CaptureFixture[str]) -> None:
    """Its own events, first to last; where it came from is on standard error."""
    assert main([*RECORDED, "aggregation=MEAN", "replicas=4"]) == 0
    printed = capsys.readouterr()
    first, *events, last = (json.loads(line) for line in printed.out.splitlines())
    assert (first["event"], first["tensorflow"], first["settings"]["aggregation"]) == ("run", "2.4.1", "MEAN")
    moved = [event["value"] for event in events if event["event"] == "variable" and event["step"] == 1]
    assert moved == [1 + (0.1 + 0.2 + 0.3 + 0.4) / 4] * 4
    assert (last["event"], last["status"]) == ("end", "ok")
    assert re.fullmatch(
        r"recorded \d{4}-\d\d-\d\d: TensorFlow 2\.4\.1, Keras 2\.4\.0, Python 3\.8\.\d+, Linux x86_64, by .+\n",
        printed.err,
    )


def test_a_recorded_error_of_tensorflow_is_an_answer_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*RECORDED, "aggregation=SUM", "value=python"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["status"] == "error"


def test_recordings_of_requests_on_standard_input() -> None:
    """All are found before the first is printed."""
    lines = [json.dumps({"experiment": "fit", "settings": {"epochs": n}, "runtime": "2.5.0"}) for n in (1, 4)]
    done = engine_command("run", "-", "--recorded", stdin="\n".join(lines))
    events = [json.loads(line) for line in done.stdout.splitlines()]
    # A step multiplies the weight by 1 - 0.01 * 2 * (1 + 4 + 9 + 16) / 4 = 0.85; there is one an epoch.
    ends = [before for before, event in pairwise(events) if event["event"] == "end"]
    assert [event["value"] for event in ends] == pytest.approx([7.5, 7.5 * 0.85**6], abs=1e-4)  # each epoch's loss
    assert (done.returncode, done.stderr.count("recorded ")) == (0, 2)
    wrong = engine_command("run", "-", "--recorded", stdin="\n".join([*lines, lines[0].replace("2.5.0", "2.6.0")]))
    assert (wrong.returncode, wrong.stdout) == (3, "")


@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        (
            ["aggregation", "aggregation=MEAN", "replicas=7", "--tf", "2.4"],
            3,
            "not recorded: python -m engine run aggregation aggregation=MEAN replicas=7 --tf 2.4; of the {count} "
            "choices that are recorded on 2.4.1 the nearest is: python -m engine run aggregation "
            "aggregation=MEAN replicas=8 --tf 2.4 --recorded",
        ),
        (["aggregation", "--tf", "2.4.3"], 3, "aggregation is recorded on: 2.21.0, 2.15.1, 2.5.0, 2.4.1"),
        (["aggregation", "--tf", "9.9"], 2, "aggregation is recorded on: 2.21.0, 2.15.1, 2.5.0, 2.4.1"),
        (["sync_replicas"], 3, "sync_replicas is recorded on: none"),
        (["aggregation", "replicas=99"], 2, "replicas: '99' was given; allowed: a whole number 1-8"),
    ],
)
def test_what_is_not_recorded(words: list[str], status: int, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    """It is told what was asked for, and what is recorded."""
    assert main(["run", *words, "--recorded"]) == status
    printed = capsys.readouterr()
    assert printed.out == ""
    assert message.format(count=len(recorded_settings(EXPERIMENTS["aggregation"]))) in printed.err


def test_a_missing_runtime_says_that_there_is_a_recording(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command that the message ends with prints it; where there is none, nothing is said of one."""
    monkeypatch.setattr("engine.__main__.Engine", lambda: Engine({}))
    asked = ["run", "scope_placement", "model_scope=out", "--tf", "2.4.1"]
    assert main(asked) == 3
    message, _, command = (
        capsys.readouterr().err.strip().rpartition("; a recording of it is printed by: python -m engine ")
    )
    assert message == (
        "tf: '2.4.1' was given; installed here: none; get it with: python -m engine runtimes install 2.4.1"
    )
    assert main(shlex.split(command)) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[0])["settings"]["model_scope"] == "out"
    assert main([*asked, "replicas=5"]) == 3
    assert "recording" not in capsys.readouterr().err


def test_script_and_list_and_runtimes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["script", "aggregation", "aggregation=MEAN"]) == 0
    assert "aggregation=tf.VariableAggregation.MEAN" in capsys.readouterr().out
    assert main(["script", "aggregation", "--notebook"]) == 0
    assert json.loads(capsys.readouterr().out)["nbformat"] == 4
    assert main(["list"]) == 0
    printed = capsys.readouterr().out
    assert "a whole number 1-8" in printed
    assert "NONE, SUM, MEAN, ONLY_FIRST_REPLICA" in printed
    assert main(["runtimes"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any(line.endswith(sys.executable) for line in lines)
    for version in ("1.15.5", "2.4.1", "2.5.0", "2.15.1"):
        (line,) = (line for line in lines if line.split()[0] == version)
        assert line.split()[1] in ("Keras", "missing:")
    own = "Network of a run: loopback only"
    assert lines[-1] == own or lines[-1].startswith("Network of a run: all that this machine reaches ([Errno ")


def test_a_reader_that_leaves_early_is_no_error() -> None:
    done = subprocess.run(
        f"{sys.executable} -m engine list | head -1", shell=True, cwd=ROOT, capture_output=True, text=True
    )
    assert (done.stdout, done.stderr) == ("aggregation\n", "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has a device that is always full")
def test_output_that_has_no_room_is_told() -> None:
    done = subprocess.run(f"{sys.executable} -m engine list > /dev/full", shell=True, cwd=ROOT, stderr=-1, text=True)
    assert done.returncode == 3
    assert done.stderr == "the output could not be written whole: No space left on device\n"
