"""Limits: how much of the machine the engine may use, from what the machine has, and from the environment."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Self

from pydantic import BaseModel, BeforeValidator, ByteSize, ConfigDict, Field, TypeAdapter, ValidationError

from engine.settings import Problem, SettingsError

PREFIX = "REPLICA_LAB_"
MEMORY_SHARE = 0.75  # of the memory that there is: the pages and the system need some, too
MIB = 1 << 20


def affinity() -> int:
    """The cores that the system lets this process run on."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


def physical_memory() -> int:
    """Bytes that this machine has."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def within_cpu_quota(cores: int, root: Path = Path("/")) -> int:
    """That many cores, or what the cgroup's quota (a container's --cpus) leaves of them: a fraction counts as a core.
    `root` is where /proc and /sys are."""
    quotas = []
    for folder in _cgroups(root, "cpu"):
        quotas.append(_words(folder / "cpu.max"))
        quotas.append([*_words(folder / "cpu.cfs_quota_us"), *_words(folder / "cpu.cfs_period_us")])
    # No quota is "max", in version 1 -1.
    shares = [int(words[0]) / int(words[1]) for words in quotas if len(words) == 2 and words[0].isdigit()]
    return max(1, math.ceil(min([cores, *shares])))


def within_memory_limit(memory: int, root: Path = Path("/")) -> int:
    """That many bytes, or what the cgroup's limit (a container's --memory) leaves of them."""
    limits = [memory]
    for folder in _cgroups(root, "memory"):
        words = [*_words(folder / "memory.max"), *_words(folder / "memory.limit_in_bytes")]
        limits += [int(word) for word in words if word.isdigit()]  # no limit is "max", in version 1 a huge number
    return min(limits)


def _cgroups(root: Path, controller: str) -> list[Path]:
    """The folders that say what this process's cgroup and those around it may use of something: of version 2, and of
    version 1. A container may see its own cgroup as the outermost one, whatever its name outside."""
    folders: list[Path] = []
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return []  # not Linux
    mounts = root / "sys/fs/cgroup"
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        mount = mounts / controllers if controllers else mounts
        if controllers and not mount.exists():
            mount = mounts / controller
        inner = mount / path.lstrip("/")
        folders += [folder for folder in (inner, *inner.parents) if folder.is_relative_to(mount) and folder.exists()]
    return folders


def _words(file: Path) -> list[str]:
    try:
        return file.read_text().split()
    except OSError:
        return []  # this cgroup, or the outermost one, has no such limit


Size = Annotated[int, BeforeValidator(TypeAdapter(ByteSize).validate_python)]


class Limits(BaseModel):
    """How much the engine may use. Sizes are bytes, or words such as "8GiB". README says what each is."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    slots: int = Field(
        default_factory=lambda: within_cpu_quota(affinity()), ge=1, le=1024, description="a whole number from 1 to 1024"
    )
    memory: Size = Field(
        default_factory=lambda: int(MEMORY_SHARE * within_memory_limit(physical_memory())),
        ge=1 << 30,
        description="a size of at least 1GiB, such as 12GiB",
    )
    run_memory: Size = Field(default=3 << 30, ge=256 * MIB, description="a size of at least 256MiB, such as 3GiB")
    run_output: Size = Field(default=4 << 20, ge=1000, description="a size of at least 1000, such as 4MiB")
    parents: int = Field(default=5, ge=1, le=100, description="a whole number from 1 to 100")
    idle: float = Field(default=600.0, ge=0.1, description="seconds, at least 0.1")
    waiting: int = Field(default=512, ge=1, description="a whole number of at least 1")
    session_waiting: int = Field(default=128, ge=1, description="a whole number of at least 1")

    @property
    def at_once(self) -> int:
        """How many runs one that has many may ask for at a time."""
        return min(64, self.waiting, self.session_waiting)

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Self:
        """What the environment says, by the names of these fields: REPLICA_LAB_SLOTS and so on; else the defaults.
        Raises SettingsError for a value that is not accepted."""
        names = {field: f"{PREFIX}{field.upper()}" for field in cls.model_fields}
        given = {field: environment[name] for field, name in names.items() if name in environment}
        try:
            return cls.model_validate(given)
        except ValidationError as error:
            refused = [str(each["loc"][0]) for each in error.errors()]
            allowed = {field: str(cls.model_fields[field].description) for field in refused}
            raise SettingsError([Problem(names[field], given[field], allowed[field]) for field in refused]) from None
