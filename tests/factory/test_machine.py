"""Jobs from cores and memory, and memory from cgroups in a made-up root."""

from __future__ import annotations

from pathlib import Path

import pytest

from wheelfab.errors import InfrastructureError
from wheelfab.machine import GIB, jobs_for, memory, require_disk


@pytest.mark.parametrize(
    ("cores", "memory_gib", "jobs"),
    [(96, 850, 96), (96, 64, 25), (2, 4, 1), (2, 8, 2), (8, 1, 1), (1, 1000, 1)],
)
def test_jobs_follow_memory_with_a_margin_and_are_capped_by_cores(
    cores: int, memory_gib: int, jobs: int
) -> None:
    assert jobs_for(cores, memory_gib * GIB) == jobs


def _root(tmp_path: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


def test_the_tightest_cgroup_above_us_counts(tmp_path: Path) -> None:
    root = _root(
        tmp_path,
        {
            "proc/meminfo": "MemTotal: 99 kB\nMemAvailable: 8388608 kB\n",
            "proc/self/cgroup": "0::/a/b\n",
            "sys/fs/cgroup/a/memory.max": str(3 * GIB),
            "sys/fs/cgroup/a/memory.current": str(GIB),
            "sys/fs/cgroup/a/b/memory.max": "max\n",
        },
    )
    assert memory(root) == 2 * GIB


def test_cgroup_version_1_is_read_and_no_limit_is_no_limit(tmp_path: Path) -> None:
    root = _root(
        tmp_path,
        {
            "proc/meminfo": "MemAvailable: 8388608 kB\n",
            "proc/self/cgroup": "4:memory:/job\n3:cpu:/job\n",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": str((1 << 63) - 4096),
            "sys/fs/cgroup/memory/job/memory.limit_in_bytes": str(GIB),
        },
    )
    assert memory(root) == GIB


@pytest.mark.parametrize(
    ("line", "files"),
    [
        (
            "0::/a\n",
            {
                "a/memory.max": 4 * GIB,
                "a/memory.current": 3 * GIB,
                "a/memory.stat": f"anon 7\ninactive_file {2 * GIB}\nactive_file {GIB}\n",
            },
        ),
        (
            "4:memory:/a\n",
            {
                "memory/a/memory.limit_in_bytes": 4 * GIB,
                "memory/a/memory.usage_in_bytes": 3 * GIB,
                "memory/a/memory.stat": f"inactive_file 7\ntotal_inactive_file {2 * GIB}\n",
            },
        ),
    ],
    ids=["version 2", "version 1"],
)
def test_what_files_left_in_memory_is_not_used(
    tmp_path: Path, line: str, files: dict[str, object]
) -> None:
    common = {"proc/meminfo": "MemAvailable: 8388608 kB\n", "proc/self/cgroup": line}
    groups = {f"sys/fs/cgroup/{name}": str(text) for name, text in files.items()}
    assert memory(_root(tmp_path, common | groups)) == 3 * GIB


def test_too_little_disk_names_folder_and_both_numbers(tmp_path: Path) -> None:
    with pytest.raises(InfrastructureError, match=r"GiB free, 1048576\.0 GiB needed") as caught:
        require_disk(tmp_path / "not" / "yet", 1 << 50)
    assert str(tmp_path) in str(caught.value)
