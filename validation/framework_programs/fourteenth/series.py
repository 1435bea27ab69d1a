"""Programs of the fourteenth series: what is planted in each, and what may be said."""

from validation.framework_programs.program import Program

# a comment says why another verdict could be argued for
FOURTEENTH: tuple[Program, ...] = (
    Program("fourteenth.plain_data", "plain_parses_lines_of_others", "data", settle=12),
    # the loop's own process shuffles
    Program("fourteenth.plain_data", "plain_makes_new_iterators", "data", "cpu"),
    # the loop's own process draws, and the errors of the last batch come to it
    Program("fourteenth.with_lightning", "lightning_draws_by_tree", "data", "cpu,synchronization"),
    # what follows each read is launched late, in these three, and in the last two Python does more
    # between two reads
    Program(
        "fourteenth.with_lightning",
        "lightning_one_hot_asks_for_classes",
        "synchronization",
        "launch",
        steps=6,
    ),
    Program(
        "fourteenth.with_diffusers",
        "diffusers_looks_for_each_time",
        "synchronization",
        "launch,cpu",
        steps=6,
    ),
    Program(
        "fourteenth.plain_host",
        "plain_confuses_pair_by_pair",
        "synchronization",
        "launch,cpu",
        steps=6,
    ),
    # the loop is Python, and each kernel is small, in these three
    Program(
        "fourteenth.plain_host",
        "plain_cuts_patches_one_by_one",
        "launch",
        "cpu,gpu_latency",
        steps=6,
    ),
    Program(
        "fourteenth.with_lightning",
        "lightning_sums_penalties",
        "launch",
        "cpu,gpu_latency",
        steps=6,
    ),
    Program(
        "fourteenth.with_timm", "timm_averages_each_weight", "launch", "cpu,gpu_latency", steps=6
    ),
    # rewards come to the host, and their sums go back
    Program("fourteenth.plain_host", "plain_discounts_in_lists", "cpu", "synchronization,copies"),
    Program("fourteenth.with_hf_trainer", "hf_asks_nvidia_smi", "cpu"),
    Program("fourteenth.with_flax", "flax_clears_caches", "cpu", steps=6, settle=0),
    # what is copied is a part of the batch, and a copy from pageable memory is waited for
    Program(
        "fourteenth.with_transformers", "lm_moves_square_masks", "copies", "synchronization,data"
    ),
    # a copy home waits for the GPU, and NumPy looks at what came
    Program(
        "fourteenth.with_optax",
        "optax_looks_for_nans",
        "copies",
        "synchronization,cpu",
        environ={"JAX_DEBUG_NANS": "1"},
    ),
    # cudaFree waits for the GPU
    Program("fourteenth.plain_host", "plain_stream_of_each_step", "allocation", "synchronization"),
    # the logits of all words are written
    Program("fourteenth.with_transformers", "lm_scores_all_words", "gpu_compute", "gpu_memory"),
    Program("fourteenth.with_jax", "jax_makes_whole_hessians", "gpu_compute"),
    Program("fourteenth.with_transformers", "lm_casts_weights_each_time", "gpu_memory"),
    Program("fourteenth.plain_gpu", "plain_unfolds_windows", "gpu_memory"),
    # what the one block does is to read memory
    Program("fourteenth.plain_gpu", "plain_asks_all_for_threshold", "gpu_latency", "gpu_memory"),
    # estimated: products take 87 % of the kernels' time
    Program("fourteenth.with_lightning", "lightning_wide_control", "gpu_compute", control=True),
    # estimated: products and attention take 88 %
    Program("fourteenth.with_transformers", "lm_speech_control", "gpu_compute", control=True),
    # estimated: kernels that move bytes take all of the kernels' time; products with eight columns,
    # too, are bound by the matrix that they write
    Program("fourteenth.with_jax", "jax_lattice_control", "gpu_memory", control=True),
    Program("fourteenth.with_diffusers", "diffusers_noise_control", "gpu_memory", control=True),
    Program("fourteenth.with_peft", "peft_merges_control", "gpu_memory", control=True),
    # estimated: the GPU is idle for 80 % of the step, and its kernels are small
    Program(
        "fourteenth.with_accelerate",
        "accelerate_small_control",
        "launch",
        "cpu,gpu_latency",
        control=True,
        steps=6,
    ),
)
