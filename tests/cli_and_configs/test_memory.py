"""cli.malloc: freed memory is used again, without asking the system."""

import subprocess
import sys

import pytest

from tests.paths import PROJECT

COLUMNS = """
import gc, resource
import numpy as np
from cli.malloc import keep_freed_memory

def pages_cleared():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(5):
        columns = [np.ones(250_000) for _ in range(20)]  # 2 MB each
        del columns
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

keep_freed_memory()
pages_cleared()
print(pages_cleared(), gc.isenabled())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="options of glibc's malloc")
def test_columns_lie_where_freed_ones_lay():
    told = subprocess.check_output([sys.executable, "-c", COLUMNS], cwd=PROJECT, text=True)
    cleared, collects = told.split()
    assert int(cleared) < 1000  # else tens of thousands
    assert collects == "False"
