"""Runtimes: which there are, which one a version names, and which there could be."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from engine import pythons, runtimes
from engine.engine import Engine
from engine.experiments import CannotRunError
from engine.pythons import find_python
from engine.request import Request
from engine.runtimes import (
    CATALOGUE,
    KERAS_VERSIONS,
    MARKER,
    Runtime,
    RuntimeMissingError,
    UnknownVersionError,
    catalogue_state,
    choose,
    find_runtimes,
    standard_set,
    wanted,
)
from engine.versions import Versions
from tests.engine import stand_in

OWN = Runtime(Path(sys.executable), Versions("2.21.0", "3.15.1"))
OTHERS = [
    Runtime(Path("a"), Versions("2.4.1", "2.4.0")),
    Runtime(Path("b"), Versions("2.15.1", "2.15.0")),
    Runtime(Path("c"), Versions("2.15.10", "2.15.0")),
    Runtime(Path("d"), Versions("2.21.0", "3.4.1"), other_keras=True),
    Runtime(Path("e"), Versions("2.21.0", "3.10.0"), other_keras=True),
]
ALL = {runtime.name: runtime for runtime in [OWN, *OTHERS]}


def put(folder: Path, name: str, **changed: Any) -> None:
    """A folder that discovery takes for a runtime."""
    (folder / name / "bin").mkdir(parents=True)
    (folder / name / "bin" / "python").write_text("")
    marker = {"tensorflow": "2.4.1", "keras": "2.4.0", "tf_keras": None, "other_keras": False, "modules": 9}
    (folder / name / MARKER).write_text(json.dumps({**marker, **changed}))


@pytest.mark.parametrize(
    ("tensorflow", "keras", "name"),
    [
        (None, None, "2.21.0"),
        ("2.21.0", None, "2.21.0"),
        ("2.21", None, "2.21.0"),
        ("2", None, "2.21.0"),
        ("2.4", None, "2.4.1"),
        ("2.15", None, "2.15.10"),
        ("2.15.1", None, "2.15.1"),
        ("2.21", "3.4.1", "2.21.0+keras-3.4.1"),
        ("2.21.0", "3.10", "2.21.0+keras-3.10.0"),
        (None, "3.4", "2.21.0+keras-3.4.1"),
        ("2.21", "3.15", "2.21.0"),
        ("2.21", "3", "2.21.0"),
        ("2.21.0+keras-3.4.1", None, "2.21.0+keras-3.4.1"),
        ("2.15", "2.15.0", "2.15.10"),
    ],
)
def test_what_a_version_names(tensorflow: str | None, keras: str | None, name: str) -> None:
    assert choose(ALL, tensorflow, keras).name == name


@pytest.mark.parametrize(
    ("tensorflow", "keras", "asked", "remedy"),
    [
        ("2.5.0", None, "tf: '2.5.0' was given", "get it with: python -m engine runtimes install 2.5.0"),
        ("2.5", None, "tf: '2.5' was given", "get it with: python -m engine runtimes install 2.5.0"),
        (
            "2.21",
            "3.5.0",
            "tf: '2.21' and keras: '3.5.0' were given",
            "get it with: python -m engine runtimes install 2.21.0 --keras 3.5.0",
        ),
        (
            None,
            "3.5.0",
            "keras: '3.5.0' was given",
            "get it with: python -m engine runtimes install 2.21.0 --keras 3.5.0",
        ),
        ("2.4.1", "3.5.0", "tf: '2.4.1' and keras: '3.5.0' were given", "can be installed: none, as TensorFlow 2.4.1"),
        ("9.9", None, "tf: '9.9' was given", "can be installed: 1.15.5 or another 1.15, 2.4.1"),
        ("2.1", None, "tf: '2.1' was given", "can be installed: "),
        ("", None, "tf: '' was given", "can be installed: "),
        ("2.*", None, "tf: '2.*' was given", "can be installed: "),
    ],
)
def test_what_is_missing_says_what_was_asked_what_there_is_and_how_to_get_it(
    tensorflow: str | None, keras: str | None, asked: str, remedy: str
) -> None:
    with pytest.raises(RuntimeMissingError) as caught:
        choose(ALL, tensorflow, keras)
    parts = str(caught.value).split("; ")
    assert parts[0] == asked
    assert parts[1] == f"installed here: {', '.join(ALL)}"
    assert parts[2].startswith(remedy)


def test_without_any_runtime() -> None:
    with pytest.raises(RuntimeMissingError, match=r"no TensorFlow version was given; installed here: none; see README"):
        choose({}, None)


def test_discovery_trusts_only_the_marker(tmp_path: Path) -> None:
    put(tmp_path, "tf-2.4.1")
    put(tmp_path, "tf-2.21.0-keras-3.4.1", tensorflow="2.21.0", keras="3.4.1", other_keras=True)
    put(tmp_path, "tf-2.15.1", tensorflow="2.15.1", keras="2.15.0")
    put(tmp_path, "tf-2.5.0", tensorflow="2.5.0")
    (tmp_path / "tf-2.5.0" / MARKER).unlink()
    put(tmp_path, "tf-2.6.0", tensorflow="2.6.0")
    (tmp_path / "tf-2.6.0" / "bin" / "python").unlink()
    put(tmp_path, "tf-2.7.0", tensorflow="2.7.0")
    (tmp_path / "tf-2.7.0" / MARKER).write_text("{")
    put(tmp_path, ".tf-2.8.0.unfinished", tensorflow="2.8.0")
    (tmp_path / "tf-2.9.0").write_text("")
    found = find_runtimes(tmp_path)
    assert list(found)[1:] == ["2.4.1", "2.15.1", "2.21.0+keras-3.4.1"]
    assert found["2.4.1"] == Runtime(tmp_path / "tf-2.4.1/bin/python", Versions("2.4.1", "2.4.0"), modules=9)
    assert list(find_runtimes(tmp_path / "nowhere")) == list(found)[:1]


def test_the_apps_own_comes_first_and_knows_its_tf_keras(tmp_path: Path) -> None:
    own = choose(find_runtimes(tmp_path), None)
    assert own.python == Path(sys.executable)
    assert own.versions.tf_keras is not None
    put(tmp_path, "tf-own", tensorflow=own.versions.tensorflow)
    assert find_runtimes(tmp_path) == {own.name: own}


def test_what_can_be_wanted() -> None:
    own = choose(find_runtimes(Path("nowhere")), None).versions.tensorflow
    assert wanted("2.21").tensorflow == own
    assert [want.tensorflow for want in standard_set()] == ["1.15.5", "2.4.1", "2.5.0", "2.15.1"]
    assert wanted("1.15.0").tensorflow == "1.15.0"
    other = wanted("2.21", "3.4.1")
    assert (other.name, other.folder) == (f"{own}+keras-3.4.1", f"tf-{own}-keras-3.4.1")
    assert other.packages[-1] == "keras==3.4.1"
    for tensorflow, keras in [
        ("2.3", None),
        ("x", None),
        ("2.4.1.2", None),
        ("2.4", "3.4.1"),
        ("2.21", "2.15.0"),
        ("2.21", "x"),
    ]:
        with pytest.raises(UnknownVersionError, match="was given; allowed: "):
            wanted(tensorflow, keras)


def test_the_state_of_the_catalogue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path, "tf-2.4.1")
    put(tmp_path, "tf-1.15.0", tensorflow="1.15.0", keras="2.2.4-tf")
    monkeypatch.setattr(runtimes, "find_python", lambda minors: None if "3.7" in minors else OWN)
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    own = choose(find_runtimes(tmp_path), None)
    entries = {entry.name: entry for entry in catalogue_state(tmp_path)}
    assert list(entries)[:6] == ["1.15.0", "1.15.5", "2.4.1", "2.5.0", "2.15.1", own.name]
    assert list(entries)[6:] == [f"{own.name}+keras-{keras}" for keras in KERAS_VERSIONS]
    assert entries[own.name].runtime == own
    assert [name for name, entry in entries.items() if entry.standard] == [
        "1.15.5",
        "2.4.1",
        "2.5.0",
        "2.15.1",
        own.name,
    ]
    assert (entries["1.15.0"].missing, entries["1.15.0"].keras) == ("", "2.2.4-tf")
    assert (entries["1.15.5"].missing, entries["1.15.5"].pythons) == ("no python", ("3.7",))
    assert (entries["2.5.0"].missing, entries["2.5.0"].keras) == ("not installed", None)
    assert entries["2.5.0"].command == "python -m engine runtimes install 2.5.0"
    monkeypatch.setattr("platform.machine", lambda: "arm64")
    entries = {entry.name: entry for entry in catalogue_state(tmp_path)}
    assert (entries["2.5.0"].missing, entries["2.15.1"].missing) == ("no release", "not installed")
    assert entries["2.4.1"].missing == ""  # it is there, whatever the catalogue says


def test_a_python_is_found_by_running_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names that are on PATH but don't run, as pyenv's stand-ins, and those that lie, are passed over."""
    pythons._probe.cache_clear()
    for folder, text in (("shims", "exit 127"), ("liars", f'exec {sys.executable} "$@"'), ("empty", "")):
        python = tmp_path / folder / "python3.2"
        python.parent.mkdir()
        python.write_text(f"#!/bin/sh\n{text}\n")
        python.chmod(0o755)
    monkeypatch.setenv("PATH", ":".join(str(tmp_path / folder) for folder in ("shims", "liars", "empty", "nowhere")))
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path / "pyenv"))
    monkeypatch.setenv("UV_PYTHON_INSTALL_DIR", str(tmp_path / "uv"))
    assert find_python(["3.2"]) is None
    minor = f"{sys.version_info.major}.{sys.version_info.minor}"
    found = find_python(["3.2", minor])
    assert found is not None
    assert found.version.startswith(minor)
    newest = tmp_path / "pyenv" / "versions" / "3.2.10" / "bin" / "python3.2"
    for version in ("3.2.9", "3.2.10"):
        python = tmp_path / "pyenv" / "versions" / version / "bin" / "python3.2"
        python.parent.mkdir(parents=True)
        python.write_text(f'#!/bin/sh\necho \'["{version}", "{python}", true]\'\n')
        python.chmod(0o755)
    assert find_python(["3.2"]) == pythons.Python(newest, "3.2.10")


def test_the_catalogue_is_in_order() -> None:
    assert [release.line for release in CATALOGUE] == ["1.15", "2.4", "2.5", "2.15", "2.21"]
    for release in CATALOGUE:
        assert release.version.startswith(f"{release.line}.")


# ------------------------------------------------------------------------------------------------ in a running engine


def aggregation(tensorflow: str | None = None, keras: str | None = None) -> Request:
    return Request.of("aggregation", {}, tensorflow, keras)


def test_requests_carry_their_runtime_as_json() -> None:
    for request in (aggregation(), aggregation("2.4.1"), aggregation("2.21", "3.4.1")):
        assert Request.from_json(request.to_json()) == request
    line = '{"experiment": "aggregation", "runtime": %s}'
    assert Request.from_json(line % '"2.4.1"') == aggregation("2.4.1")
    assert Request.from_json(line % "null") == aggregation()
    assert Request.from_json(line % '{"keras": "3.4.1"}') == aggregation(None, "3.4.1")
    for runtime in ("[]", "1", '{"tensorflow": 2}'):
        with pytest.raises(ValueError, match="a runtime is"):
            Request.from_json(line % runtime)


def test_a_running_engine_notices_what_is_installed_and_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.engine.find_runtimes", lambda: find_runtimes(tmp_path))
    with Engine() as engine:
        with pytest.raises(RuntimeMissingError):
            engine.runtime("2.4")
        put(tmp_path, "tf-2.4.1")
        assert engine.runtime("2.4").name == "2.4.1"
        (tmp_path / "tf-2.4.1" / "bin" / "python").unlink()
        with pytest.raises(RuntimeMissingError):
            engine.runtime("2.4")


def test_an_interpreter_that_can_not_be_started_is_told(tmp_path: Path) -> None:
    broken = Runtime(tmp_path / "python", Versions("2.4.1", "2.4.0"))
    with Engine({"2.4.1": broken}) as engine:
        trace = engine.run(aggregation())
        assert trace.status == "killed"
        assert trace.end["reason"].startswith(
            "TensorFlow could not be started (TensorFlow 2.4.1: [Errno 2] No such file"
        )
        assert engine.state().name == "failed"


def test_an_experiment_is_refused_where_it_can_not_run(tmp_path: Path) -> None:
    old = Runtime(tmp_path / "python", Versions("1.15.5", "2.2.4-tf"))
    with Engine({"2.21.0": OWN, "1.15.5": old}) as engine, pytest.raises(CannotRunError) as caught:
        engine.submit(aggregation("1.15"))
    assert str(caught.value) == (
        "tf: '1.15.5' was given, on which aggregation can't run; allowed, of what is installed here: 2.21.0"
    )


def test_where_files_lie_is_not_told(tmp_path: Path) -> None:
    """Error messages name TensorFlow's files; a trace has them without the folder they are installed in."""
    python = stand_in.environment(tmp_path, "2.4.1")
    text = (
        f'File "{tmp_path}/lib/python3.8/site-packages/tensorflow/a.py", line 1; {tmp_path}/lib; /lab/run-x/script.py'
    )
    from engine.ending import without_folders  # noqa: PLC0415

    runtime = Runtime(python, Versions("2.4.1", "2.4.0"))
    assert without_folders(text, runtime, Path("/lab")) == f'File "tensorflow/a.py", line 1; {tmp_path}/lib; script.py'


def test_the_frames_of_the_parent_are_not_told(tmp_path: Path) -> None:
    """Nor the lines of code that some versions of TensorFlow tell with them."""
    from engine.ending import without_folders  # noqa: PLC0415
    from engine.warm import PARENT  # noqa: PLC0415

    runtime = Runtime(stand_in.environment(tmp_path, "2.4.1"), Versions("2.4.1", "2.4.0"))
    mine = '  File "script.py", line 54, in <module>\n    var1 = tf.get_variable(\n'
    frames = f'  File "{PARENT}", line 509, in run_script\n    exec(code, main.__dict__)\n' * 2
    bare = f'  File "{PARENT}", line 509, in run_script\n\n' * 2
    assert without_folders(f"{mine}{frames}end", runtime, tmp_path) == f"{mine}end"
    assert without_folders(f"{mine}{bare}end", runtime, tmp_path) == f"{mine}end"
