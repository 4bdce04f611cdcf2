"""Differences of file trees, compared with those of unpacked layers."""

from __future__ import annotations

import io
import multiprocessing
import tracemalloc
from concurrent.futures import ProcessPoolExecutor

from containers.image.layers.file_tree import FileTree, differences
from containers.image.layers.layer import index
from tests.helpers.layers import archive
from tests.unit.containers.test_file_tree import file


def bytes_for_each(count: int) -> float:
    """Return what comparing so many files that all differ takes at most, for each."""
    folder = "opt/venv/lib/python3.12/site-packages"
    archives = [
        archive(file(f"{folder}/package{n // 20}/module{n}.py", f"{version} {n:0500}") for n in range(count))
        for version in (1, 2)
    ]
    tracemalloc.start()
    indexes = [index(io.BytesIO(each), "application/vnd.oci.image.layer.v1.tar") for each in archives]
    assert len(differences(*(FileTree([layer_index]) for layer_index in indexes))) == count
    return tracemalloc.get_traced_memory()[1] / count


def test_difference_takes_less_than_a_kilobyte() -> None:
    """Then 200,000 of them take less than 300 MB, with all of Python around them."""
    # In a process of its own: how Python's table of strings grows depends on what other tests have left in it.
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as alone:
        assert alone.submit(bytes_for_each, 5_000).result() < 1000
