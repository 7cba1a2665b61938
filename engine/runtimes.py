"""Runtimes: one interpreter with one TensorFlow version in it; which there are, and which there could be."""

from __future__ import annotations

import importlib.metadata
import json
import platform
import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, Protocol, TypeVar

from engine.pythons import find_python
from engine.versions import Versions

# Further versions: .runtimes/tf-X.Y.Z, virtual environments that `python -m engine runtimes install` makes.
INSTALLED = Path(__file__).parent.parent / ".runtimes"
MARKER = "runtime.json"  # written last: a folder without it is not whole
COMMAND = "python -m engine runtimes install"


@dataclass(frozen=True)
class Release:
    """One line of TensorFlow releases that is known to install and to run here, and what that takes.

    `version` is the one that is got where only the line is named. `pythons` are in the order in which they are tried.
    `pins` stand beside TensorFlow's own requirements, which admit releases that came after it and broke it.
    `standard` ones make up the set that is installed where no version is named.
    """

    line: str
    version: str
    pythons: tuple[str, ...]
    pins: tuple[str, ...] = ()
    cpu_package: bool = True  # there is a tensorflow-cpu, for x86-64
    arm: bool = True  # there are releases for arm64 too
    standard: bool = True


# protobuf 3.21 refuses the descriptors that these TensorFlows were generated with ("Descriptors cannot be created
# directly"); they ask for protobuf>=3.6.1 or 3.9.2 only. NumPy needs no pin: 1.15.5 asks for <1.19, 2.4 and 2.5 for
# ~=1.19, 2.15.1 for <2.
OLD = ("protobuf<3.21",)
CATALOGUE = (
    # 1.15.5 is there for 3.7 only, and its `tensorflow` package is itself without CUDA; 1.15.0 has wheels for 3.6 too.
    Release("1.15", "1.15.5", ("3.7",), OLD, cpu_package=False, arm=False),
    Release("2.4", "2.4.1", ("3.8", "3.7"), OLD, arm=False),
    Release("2.5", "2.5.0", ("3.8", "3.9"), OLD, arm=False),
    Release("2.15", "2.15.1", ("3.11", "3.10", "3.9")),
    # The app's own line. It asks for keras>=3.12; an older one that is named is put in its place all the same.
    Release("2.21", "2.21.0", ("3.11", "3.12", "3.13"), standard=False),
)
KERAS_LINE = "2.21"  # whose Keras can be another
KERAS_VERSIONS = (
    "3.4.1",
    "3.5.0",
    "3.7.0",
    "3.8.0",
    "3.10.0",
)  # between two neighbours, what fit computes changed


class RuntimeMissingError(LookupError):
    """No interpreter with that TensorFlow version, and that Keras where one was named, was found.

    `recorded` is the command that prints a recording of what was to be run, where there is one.
    """

    def __init__(self, tensorflow: str | None, keras: str | None, known: Iterable[str], recorded: str = "") -> None:
        if tensorflow is None and keras is None:
            asked = "no TensorFlow version was given"
        else:
            asked = " and ".join(
                f"{name}: {version!r}"
                for name, version in (("tf", tensorflow), ("keras", keras))
                if version is not None
            )
            asked += " was given" if tensorflow is None or keras is None else " were given"
        message = f"{asked}; installed here: {', '.join(known) or 'none'}; {_remedy(tensorflow, keras)}"
        super().__init__(f"{message}; a recording of it is printed by: {recorded}" if recorded else message)


class UnknownVersionError(ValueError):
    """A version that there is no known way to install."""


@dataclass(frozen=True)
class Runtime:
    """One interpreter with TensorFlow, and the versions of what is in it."""

    python: Path
    versions: Versions
    other_keras: bool = False  # its Keras was named when it was installed, and is not the one TensorFlow comes with
    modules: int = 3600  # that are looked for while it is imported; only the progress bar depends on it

    @property
    def name(self) -> str:
        """What people call it by, and no other runtime: "2.4.1", "2.21.0+keras-3.4.1"."""
        return runtime_name(self.versions.tensorflow, self.versions.keras if self.other_keras else None)


def runtime_name(tensorflow: str, keras: str | None = None) -> str:
    """The name of the runtime with these versions; `keras` only where it is not the one TensorFlow comes with."""
    return f"{tensorflow}+keras-{keras}" if keras else tensorflow


# ---------------------------------------------------------------------------------------------------- what there is


def find_runtimes(installed: Path = INSTALLED) -> dict[str, Runtime]:
    """Every runtime on this machine by its name; the app's own comes first, as the default, then from old to new."""
    own = _own()
    runtimes = {own.name: own} if own else {}
    for runtime in sorted(_installed(installed), key=lambda runtime: version_key(runtime.name)):
        runtimes.setdefault(runtime.name, runtime)
    return runtimes


@lru_cache(maxsize=1)
def _own() -> Runtime | None:
    """The interpreter that the app itself runs on, if TensorFlow is in it. Reads metadata: nothing is imported."""
    found = {}
    for distribution in importlib.metadata.distributions():
        found[distribution.metadata["Name"].lower().replace("_", "-")] = distribution.version
    tensorflow = found.get("tensorflow") or found.get("tensorflow-cpu")
    if tensorflow is None or "keras" not in found:
        return None
    versions = Versions(tensorflow, found["keras"], found.get("tf-keras"), found.get("plotly"))
    return Runtime(Path(sys.executable), versions)


def _installed(folder: Path) -> Iterable[Runtime]:
    for place in folder.glob("tf-*"):
        runtime = read_marker(place)
        if runtime is not None:
            yield runtime


def read_marker(place: Path) -> Runtime | None:
    """The runtime in that folder. None where it isn't whole, or the Python below it has gone."""
    python = place / "bin" / "python"
    try:
        marker: dict[str, Any] = json.loads((place / MARKER).read_text(encoding="utf-8"))
        versions = Versions(marker["tensorflow"], marker["keras"], marker["tf_keras"])
        runtime = Runtime(python, versions, marker["other_keras"], marker["modules"])
    except (OSError, ValueError, KeyError):
        return None
    return runtime if python.exists() else None


def version_key(name: str) -> list[int]:
    """For sorting names by their numbers: 2.4.1 before 2.15.1, and both before 2.21.0+keras-3.4.1."""
    return [int(number) for number in re.findall(r"\d+", name)]


class Versioned(Protocol):
    """What has versions as a runtime has: a runtime, or what was made with one."""

    @property
    def name(self) -> str: ...
    @property
    def versions(self) -> Versions: ...
    @property
    def other_keras(self) -> bool: ...


V = TypeVar("V", bound=Versioned)


def choose(runtimes: Mapping[str, V], tensorflow: str | None, keras: str | None = None) -> V:
    """The runtime with these versions: all of one ("2.21.0"), or its beginning ("2.21"); a runtime's name will do too.

    Without `keras` it is the one with TensorFlow's usual Keras, without `tensorflow` the app's own TensorFlow. The
    app's own comes before others that fit, then the newest. Raises RuntimeMissingError, which says what there is.
    """
    if tensorflow is not None and tensorflow in runtimes and keras is None:
        return runtimes[tensorflow]
    own = next(iter(runtimes.values()), None)
    if own is not None:
        if tensorflow is None and keras is None:
            return own
        version = own.versions.tensorflow if tensorflow is None else tensorflow
        others = sorted(runtimes.values(), key=lambda runtime: version_key(runtime.name), reverse=True)
        for runtime in (own, *others):
            fits = _begins(runtime.versions.tensorflow, version)
            if fits and (_begins(runtime.versions.keras, keras) if keras else not runtime.other_keras):
                return runtime
    raise RuntimeMissingError(tensorflow, keras, runtimes)


def _begins(version: str, wanted: str) -> bool:
    return version == wanted or version.startswith(f"{wanted}.")


# ---------------------------------------------------------------------------------------------- what there could be


@dataclass(frozen=True)
class Wanted:
    """A runtime that could be installed: its versions, and what it takes. `keras` only where another one is named."""

    tensorflow: str
    keras: str | None
    release: Release

    @property
    def name(self) -> str:
        return runtime_name(self.tensorflow, self.keras)

    @property
    def folder(self) -> str:
        """The name of its folder in .runtimes."""
        return "tf-" + runtime_name(self.tensorflow, self.keras).replace("+", "-")

    @property
    def released(self) -> bool:
        """True where there is a release for this kind of machine."""
        return self.release.arm or _is_x86()

    @property
    def command(self) -> str:
        """How a person gets it."""
        return f"{COMMAND} {self.tensorflow}" + (f" --keras {self.keras}" if self.keras else "")

    @property
    def packages(self) -> tuple[str, ...]:
        """What is to be installed, as requirements. tensorflow-cpu keeps it small, but is there for x86-64 only."""
        small = self.release.cpu_package and _is_x86() and sys.platform != "darwin"
        packages = (f"tensorflow{'-cpu' if small else ''}=={self.tensorflow}", *self.release.pins)
        return (*packages, f"keras=={self.keras}") if self.keras else packages


def _is_x86() -> bool:
    return platform.machine() in ("x86_64", "AMD64")


def wanted(tensorflow: str, keras: str | None = None) -> Wanted:
    """What "2.4.1", or only "2.4", stands for. Raises UnknownVersionError, which says what is allowed."""
    for release in CATALOGUE:
        if not _begins(tensorflow, release.line) or not re.fullmatch(r"\d+\.\d+(\.\d+)?", tensorflow):
            continue
        own = _own()
        version = tensorflow
        if tensorflow == release.line:
            # The line of the app's own TensorFlow means that very version.
            version = (
                own.versions.tensorflow if own and _begins(own.versions.tensorflow, release.line) else release.version
            )
        if keras is None:
            return Wanted(version, None, release)
        if release.line != KERAS_LINE:
            raise UnknownVersionError(
                f"keras: {keras!r} was given; allowed: none, as TensorFlow {version} has a Keras of its own"
            )
        if not re.fullmatch(r"3\.\d+\.\d+", keras):
            raise UnknownVersionError(
                f"keras: {keras!r} was given; allowed: a release of Keras 3, such as {', '.join(KERAS_VERSIONS)}"
            )
        return Wanted(version, keras, release)
    lines = ", ".join(f"{release.version} or another {release.line}" for release in CATALOGUE)
    raise UnknownVersionError(f"tf: {tensorflow!r} was given; allowed: {lines}")


def standard_set() -> list[Wanted]:
    """What `make runtimes` gets."""
    return [wanted(release.version) for release in CATALOGUE if release.standard]


def _remedy(tensorflow: str | None, keras: str | None) -> str:
    if tensorflow is None and keras is None:
        return "see README.md for how the app is set up"
    try:
        return f"get it with: {wanted(KERAS_LINE if tensorflow is None else tensorflow, keras).command}"
    except UnknownVersionError as error:
        return str(error).partition("; ")[2].replace("allowed", "can be installed", 1)


@dataclass(frozen=True)
class Entry:
    """One runtime that is here or could be.

    `keras` is None where it is not known, because the runtime is missing and any would do. `missing` says why it is:
    "not installed" where `command` gets it, "no python" where that needs a Python (one of `pythons`) which is not on
    this machine either, and which uv may or may not be able to fetch, "no release" where TensorFlow has none of that
    version for this kind of machine.
    """

    name: str
    tensorflow: str
    keras: str | None
    standard: bool  # of the set that is installed where no version is named, or the app's own
    runtime: Runtime | None
    missing: Literal["", "not installed", "no python", "no release"] = ""
    pythons: tuple[str, ...] = ()
    command: str = ""


def catalogue_state(installed: Path = INSTALLED) -> list[Entry]:
    """Every runtime that is here, and every one of the catalogue that is not and why, from old to new."""
    runtimes = find_runtimes(installed)
    standard = {want.name for want in standard_set()}
    entries = [
        Entry(name, runtime.versions.tensorflow, runtime.versions.keras, name in standard or runtime == _own(), runtime)
        for name, runtime in runtimes.items()
    ]
    known = [wanted(release.line if release.line == KERAS_LINE else release.version) for release in CATALOGUE]
    known += [wanted(KERAS_LINE, keras) for keras in KERAS_VERSIONS]
    entries += [_missing(want, want.name in standard) for want in known if want.name not in runtimes]
    return sorted(entries, key=lambda entry: version_key(entry.name))


def _missing(want: Wanted, standard: bool) -> Entry:
    why: Literal["not installed", "no python", "no release"] = "not installed"
    if not want.released:
        why = "no release"
    elif find_python(want.release.pythons) is None:
        why = "no python"
    pythons = want.release.pythons
    return Entry(want.name, want.tensorflow, want.keras, standard, None, why, pythons, want.command)
