"""Programs of the fifteenth series: what is planted in each, and what may be said."""

from validation.framework_programs.program import Program

# a comment says why another verdict could be argued for
FIFTEENTH: tuple[Program, ...] = (
    Program("fifteenth.plain_data", "plain_shares_cache_by_manager", "data", settle=12),
    Program("fifteenth.with_lightning", "lightning_pops_from_buffer", "data", settle=12),
    # what follows the last read is launched late; numbers are put into the dictionary by Python
    Program(
        "fifteenth.plain_host",
        "plain_keeps_numbers_in_dictionary",
        "synchronization",
        "launch,cpu",
        steps=6,
    ),
    # each question is also two launches of small kernels, by a loop of Python
    Program(
        "fifteenth.with_lightning",
        "lightning_tosses_coins_on_gpu",
        "synchronization",
        "launch,cpu",
        steps=6,
    ),
    # the loop is Python, and each kernel is small
    Program(
        "fifteenth.with_timm", "timm_clips_by_each_weight", "launch", "cpu,gpu_latency", steps=6
    ),
    # the loss comes to the host before it is written
    Program("fifteenth.plain_host", "plain_writes_whole_history", "cpu", "synchronization"),
    # a copy home waits for the GPU, and what it goes to is made for it
    Program("fifteenth.plain_host", "plain_swaps_reference", "copies", "synchronization"),
    # cudaFree waits for the GPU
    Program(
        "fifteenth.plain_host", "plain_tries_whole_batch_first", "allocation", "synchronization"
    ),
    Program("fifteenth.with_geometric", "geometric_dense_gradients", "gpu_memory"),
    # what the 512 threads do is to read memory
    Program("fifteenth.plain_gpu", "plain_sums_long_histories", "gpu_latency", "gpu_memory"),
    # estimated: products and attention take 90 % of the kernels' time
    Program("fifteenth.with_torchvision", "vision_wide_control", "gpu_compute", control=True),
    # estimated: a kernel that moves bytes takes all of the kernels' time
    Program("fifteenth.with_triton", "triton_turns_control", "gpu_memory", control=True),
    # estimated: the GPU is idle for 80 % of the step, and its kernels are small
    Program(
        "fifteenth.with_lightning",
        "lightning_heat_control",
        "launch",
        "cpu,gpu_latency",
        control=True,
        steps=6,
    ),
    # norms, activations and attention between the products
    Program(
        "fifteenth.with_transformers",
        "lm_reads_question_for_each_answer",
        "gpu_compute",
        "gpu_memory",
    ),
    # what follows each read is launched late
    Program("fifteenth.with_equinox", "equinox_leaves_by_cond", "synchronization", "launch"),
    # the loop is Python, and each kernel is small
    Program("fifteenth.with_jax", "jax_splits_key_by_key", "launch", "cpu,gpu_latency", steps=6),
    Program("fifteenth.with_optax", "optax_looks_for_rates", "cpu"),
    Program("fifteenth.with_flax", "flax_attends_to_empty_cache", "gpu_memory"),
    # estimated: a kernel of one block, which goes through all answers, takes 85 % of the kernels'
    # time; the others read and write memory
    Program(
        "fifteenth.with_torchmetrics",
        "metrics_interpolates_control",
        "gpu_latency",
        "gpu_memory",
        control=True,
    ),
    Program("fifteenth.with_jax", "jax_maps_over_branches", "gpu_compute"),
    # the loop over slices is Python, and each kernel is small
    Program(
        "fifteenth.with_diffusers",
        "diffusers_attends_slice_by_slice",
        "launch",
        "cpu,gpu_latency",
        steps=6,
    ),
    # each weight goes to the GPU in a copy of its own, which is waited for
    Program(
        "fifteenth.with_peft", "peft_loads_adapters_each_time", "cpu", "copies,synchronization"
    ),
    Program("fifteenth.with_hf_trainer", "hf_counts_lines_to_each_text", "data", settle=12),
    # what is copied is a part of the batch, and a copy from pageable memory is waited for
    Program(
        "fifteenth.with_accelerate",
        "accelerate_moves_what_is_logged",
        "copies",
        "synchronization,data",
    ),
    # estimated: products and attention take 85 % of the kernels' time
    Program(
        "fifteenth.with_transformers_controls",
        "lm_preferences_control",
        "gpu_compute",
        control=True,
    ),
    # estimated: kernels that move bytes take all of the kernels' time
    Program(
        "fifteenth.with_transformers_controls", "lm_scores_control", "gpu_memory", control=True
    ),
)
