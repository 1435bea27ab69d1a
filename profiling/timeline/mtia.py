"""Reads the events of Meta's accelerators (MTIA) like those of a GPU. Called by chrome_json."""

import re

from profiling.timeline.chrome_events import Event

MARKERS = ("event_wait", "event_record")  # commands of a stream that are no work
COPIES = {
    "HOST_TO_DEVICE": "Memcpy HtoD",
    "DEVICE_TO_HOST": "Memcpy DtoH",
    "DEVICE_TO_DEVICE": "Memcpy DtoD",
}
# the calls among the events of mtia_runtime; the rest are spans around whole requests
CALLS = re.compile(r"runFunction|enqueueCommand|recordEvent|synchronize")


def move_to_gpu_categories(events: dict[str, list[Event]]) -> None:
    """Moves MTIA's events to the categories of kernels, copies and calls; `events` is by category.

    An accelerator's own events have its number as their process. Its half of a synchronisation is
    left out, as it is no call of the host.
    """
    for event in events.pop("mtia_ccp_events", ()):
        if event.args is None or event.name in MARKERS:
            continue
        event.args.device = event.pid
        if event.name == "dma_request":
            event.name = COPIES.get(str(event.args.direction), "Memcpy")
            event.args.bytes = event.args.size
            events["gpu_memcpy"].append(event)
        else:
            events["kernel"].append(event)
    for event in events.pop("mtia_runtime", ()):
        if event.args and event.args.device != event.pid and CALLS.match(event.name):
            events["cuda_runtime"].append(event)
