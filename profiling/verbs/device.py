"""\
Measures this device: memory bandwidth, rate of matrix products, time of an empty launch, and the
ridge point of the roofline, compared with the data sheet if it is known.

{flags}

examples
  python -m profiling device
  python -m profiling device --json | jq .bandwidth.measured
"""

from cli.parser import Parser, flag
from profiling.lab.arguments import add_shared
from profiling.report.lab.documents import device_document
from profiling.shared.json_records import to_json
from profiling.verbs.progress import progress_line
from profiling.verbs.results import show


def main(argv: list[str]) -> int:
    """Measure and print; return the exit code. Raises ValueError for bad flags."""
    parser = Parser("device", __doc__)
    add_shared(parser, max_s=0.5)
    flag(parser, "--json", "as JSON, on stdout")
    flags = parser.parse_args(argv)
    from profiling.lab.device import DTYPES, lab_device, measure_device  # here: it brings torch

    device = lab_device(flags.device)
    measured = 1 + len(DTYPES[device.type])  # the copy, and a product in each
    with progress_line("measuring", measured, ticking=False) as say:
        results = measure_device(device, flags.max_s, say)
    if flags.json:
        print(to_json(results), end="")
    else:
        show(device_document(results))
    return 0
