"""Programs of the twelfth series: what is planted in each, and what may be said."""

from validation.framework_programs.program import Program

# a comment says why another verdict could be argued for
TWELFTH: tuple[Program, ...] = (
    Program("twelfth.with_pandas", "pandas_filters_in_collate", "data", settle=12),
    # the loop's own process decodes
    Program("twelfth.with_opencv", "opencv_decodes_in_loop", "data", "cpu"),
    Program("twelfth.with_pyarrow", "arrow_words_by_lists", "data", settle=12),
    # each question is also two launches of small kernels, by a loop of Python
    Program(
        "twelfth.with_transformers",
        "lm_stops_word_by_word",
        "synchronization",
        "launch,cpu",
        steps=6,
    ),
    # the next kernel is launched late
    Program("twelfth.with_cuda_core", "core_waits_for_each_kernel", "synchronization", "launch"),
    # what XLA's thread waits for is a function of Python, and the next kernel is launched late
    Program("twelfth.with_jax", "jax_reports_in_scan", "synchronization", "launch,cpu"),
    # the loop is Python, and each kernel is small, in these three
    Program(
        "twelfth.plain_host", "plain_jacobian_row_by_row", "launch", "cpu,gpu_latency", steps=6
    ),
    Program(
        "twelfth.with_lightning", "lightning_cell_by_cell", "launch", "cpu,gpu_latency", steps=6
    ),
    Program("twelfth.with_timm", "timm_loops_over_weights", "launch", "cpu,gpu_latency", steps=6),
    # pictures come to the host
    Program("twelfth.with_skimage", "skimage_scores_each_step", "cpu", "synchronization,copies"),
    # chances come to the host, and what was chosen goes back
    Program("twelfth.with_transformers", "lm_beams_on_host", "cpu", "synchronization,copies"),
    # Flax's own Python stands before each dispatch
    Program("twelfth.with_flax", "flax_walks_through_modules", "cpu", "launch"),
    # a copy home is waited for, and Numba maps memory for each call
    Program(
        "twelfth.with_numba", "numba_passes_host_arrays", "copies", "synchronization,allocation"
    ),
    # a copy home waits for the GPU, and NumPy looks at what came
    Program("twelfth.with_chex", "chex_checks_on_host", "copies", "synchronization,cpu"),
    # to lock pages is the work of the system, on the host
    Program("twelfth.with_numba", "numba_pins_each_batch", "allocation", "cpu"),
    # the one-hot rows are written and read
    Program("twelfth.with_equinox", "equinox_embeds_by_one_hot", "gpu_compute", "gpu_memory"),
    Program("twelfth.with_geometric", "geometric_dense_neighbours", "gpu_compute"),
    Program("twelfth.plain_gpu", "plain_permutes_for_norms", "gpu_memory"),
    Program("twelfth.with_torchmetrics", "metrics_one_hot_pixels", "gpu_memory"),
    # the loop on the GPU launches kernel after kernel
    Program("twelfth.with_numpyro", "numpyro_predicts_in_turn", "gpu_latency", "launch,gpu_gaps"),
    # estimated: products and attention take 87 % of the kernels' time
    Program("twelfth.with_diffusers", "diffusers_wide_control", "gpu_compute", control=True),
    # estimated: products take 88 %
    Program("twelfth.with_optax", "optax_muon_control", "gpu_compute", control=True),
    # estimated: kernels that move bytes take all of the kernels' time
    Program("twelfth.plain_gpu", "plain_optimizer_control", "gpu_memory", control=True),
    Program("twelfth.with_equinox", "equinox_norms_control", "gpu_memory", control=True),
    Program("twelfth.with_cupy", "cupy_sorts_control", "gpu_memory", control=True),
    # estimated: the GPU is idle for 80 % of the step, and its kernels are small
    Program(
        "twelfth.with_e3nn",
        "e3nn_small_control",
        "launch",
        "cpu,gpu_latency",
        control=True,
        steps=6,
    ),
)
