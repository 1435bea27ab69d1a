"""Second series of built programs, whose changes are all expected to buy nothing.

What a change takes away is hidden: behind a GPU or a loader that sets the pace, in the waiting for
another call, or it is too little to notice. Expected before any of them was measured.
"""

from functools import partial

from validation.pair_programs.built import Parts

encoder, perceptron = partial(Parts, "encoder"), partial(Parts, "perceptron")
convolutions = partial(Parts, "convolutions")
fed = partial(encoder, autocast=True, workers=2, batch_ms=2, reads_loss=True, logged=200)
late = partial(encoder, autocast=True, workers=1, batch_ms=60)
# program, with its size behind a minus -> its parts and its changes
HIDDEN: dict[str, tuple[Parts, str]] = {
    # the GPU is the bottleneck, in steps of 30 ms and more
    "texts_long-1024": (fed(1024, 6, 40, 512), "graphs- workers- pinned- no_log- no_item-"),
    "texts_long-1536": (fed(1536, 4, 32, 512), "graphs- workers- pinned- no_log- no_item-"),
    "texts_sent-768": (
        encoder(768, 6, 64, 512, autocast=True, sent=True, reads_loss=True, logged=400),
        "graphs- pinned- no_log- no_item-",
    ),
    "texts_cached-1024": (
        encoder(1024, 6, 40, 512, autocast=True, sent=True, scratch=8, logged=1000),
        "graphs- pinned- no_log- no_scratch-",
    ),
    "texts_floats-1024": (
        encoder(1024, 4, 32, 512, sent=True, reads_loss=True, logged=200),
        "graphs- pinned- no_log- no_item-",
    ),
    "images_long-128": (
        convolutions(128, 6, 192, 56, autocast=True, reads_loss=True, scratch=8, logged=200),
        "graphs- no_log- no_item- no_scratch-",
    ),
    "rows_long-4096": (
        perceptron(4096, 8, 16384, autocast=True, reads_loss=True, scratch=8, logged=200),
        "graphs- no_log- no_item- no_scratch-",
    ),
    "rows_doubles-2048": (
        perceptron(2048, 4, 24576, doubles=True, reads_loss=True, logged=400),
        "graphs- no_log- no_item-",
    ),
    # the loader is the bottleneck
    "texts_late-512": (
        late(512, 4, 8, 256, reads_loss=True, logged=2000),
        "graphs- pinned- no_log- no_item-",
    ),
    "checks_late-512": (
        late(512, 4, 8, 256, checks_layers=True, logged=2000),
        "no_checks- pinned- no_log-",
    ),
    "empties_late-512": (
        late(512, 4, 8, 256, empties_cache=True, reads_loss=True),
        "no_empty_cache- pinned- no_item-",
    ),
    "saves_late-256": (
        late(256, 4, 8, 128, saves=True, reads_loss=True, batch_ms=100),
        "no_save- pinned- no_item-",
    ),
    "rows_late-2048": (
        perceptron(2048, 4, 512, workers=2, batch_ms=80, reads_loss=True, scratch=8, logged=2000),
        "graphs- pinned- no_log- no_item- no_scratch-",
    ),
    "images_late-32": (
        convolutions(32, 4, 8, 28, workers=1, batch_ms=40, reads_loss=True, logged=1000),
        "graphs- pinned- no_log- no_item-",
    ),
    "rows_serial-1024": (
        perceptron(1024, 4, 256, workers=0, batch_ms=60, scratch=8, logged=200),
        "pinned- no_log- no_scratch-",
    ),
    # the host is the bottleneck, and nothing on it waits
    "texts_tiny-256": (
        encoder(
            256,
            6,
            8,
            128,
            workers=2,
            batch_ms=0.5,
            scratch=4,
            optimizer="looped",
            sent=True,
            reads_loss=True,
        ),
        "workers- pinned- no_item- no_scratch-",
    ),
    "rows_tiny-256": (
        perceptron(
            256, 24, 64, scratch=4, logged=20, optimizer="looped", sent=True, reads_loss=True
        ),
        "pinned- no_log- no_item- no_scratch-",
    ),
    "images_tiny-32": (
        convolutions(32, 8, 2, 28, logged=20, optimizer="looped", sent=True, reads_loss=True),
        "pinned- no_log- no_item-",
    ),
}
