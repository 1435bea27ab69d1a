"""Starts the hook in each Python process of a program that `profiling run -- COMMAND` starts.

This folder stands first on PYTHONPATH of such a program. It is taken off sys.path again, and then
the sitecustomize that the program would have had runs. Python 3.8 and the standard library only:
this runs in the program's own interpreter.
"""

import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))


def start_hook():
    try:
        from _profiling_attach import watch_torch

        watch_torch.start()
    except Exception as error:  # the program must not notice
        if os.environ.get("PROFILING_ATTACH_DEBUG"):
            sys.stderr.write(f"profiling: the hook did not start: {error!r}\n")


def run_next_sitecustomize():
    """Runs the next sitecustomize on sys.path. Its errors reach `site`, as without this one."""
    from importlib.machinery import PathFinder
    from importlib.util import module_from_spec

    spec = PathFinder.find_spec("sitecustomize", sys.path)
    if spec is None or spec.loader is None:
        # `site` takes this for an absent module, and leaves no trace of it in sys.modules
        raise ImportError("no other sitecustomize", name="sitecustomize")
    module = module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


start_hook()
sys.path[:] = [path for path in sys.path if os.path.abspath(path) != HERE]
sys.path_importer_cache.pop(HERE, None)
run_next_sitecustomize()
