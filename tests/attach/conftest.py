"""The hook's modules are importable in these tests, as they are in a program that is hooked."""

import sys

from tests.paths import PROJECT

HOOK = PROJECT / "profiling" / "attach" / "hook"

sys.path.append(str(HOOK))
