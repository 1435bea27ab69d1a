"""Programs of the thirteenth series: what is planted in each, and what may be said."""

from validation.framework_programs.program import Program

# a comment says why another verdict could be argued for
THIRTEENTH: tuple[Program, ...] = (
    # to start a process is the work of the system, on the host; a step is an epoch
    Program("thirteenth.plain_data", "plain_starts_workers_anew", "data", "cpu", steps=6),
    # the loop's own process draws
    Program("thirteenth.plain_data", "plain_weighs_all_samples", "data", "cpu", settle=12),
    Program("thirteenth.with_hf_trainer", "hf_renders_chats", "data", settle=12),
    # between two numbers Python writes them down, and launches small kernels
    Program(
        "thirteenth.plain_host",
        "plain_formats_for_debug",
        "synchronization",
        "launch,cpu",
        steps=6,
    ),
    # the next gradient's norm is launched late
    Program(
        "thirteenth.with_lightning",
        "lightning_clips_one_by_one",
        "synchronization",
        "launch",
        steps=6,
    ),
    # what follows each mask is launched late, by layers of Python
    Program(
        "thirteenth.with_geometric",
        "geometric_norms_each_time",
        "synchronization",
        "launch,cpu",
        steps=6,
    ),
    # the loop is Python, and each kernel is small, in these three
    Program(
        "thirteenth.with_lightning",
        "lightning_dice_class_by_class",
        "launch",
        "cpu,gpu_latency",
        steps=6,
    ),
    Program(
        "thirteenth.plain_host", "plain_keeps_spectral_norms", "launch", "cpu,gpu_latency", steps=6
    ),
    Program("thirteenth.with_jax", "jax_averages_eagerly", "launch", "cpu,gpu_latency", steps=6),
    # four pictures come to the host
    Program("thirteenth.with_lightning", "lightning_draws_figures", "cpu", "synchronization"),
    # numbers come to the host, and go back
    Program("thirteenth.with_jax", "jax_asks_scipy", "cpu", "synchronization,copies"),
    # what was drawn goes to the GPU
    Program("thirteenth.with_diffusers", "diffusers_draws_noise_on_host", "cpu", "copies"),
    # a copy home waits for the GPU, and what it goes to is made for it
    Program(
        "thirteenth.with_hf_trainer",
        "hf_predicts_all_logits",
        "copies",
        "synchronization,cpu",
        steps=6,
    ),
    # what is copied is a part of the batch, and a copy from pageable memory is waited for
    Program(
        "thirteenth.with_transformers", "lm_distills_all_words", "copies", "synchronization,data"
    ),
    # cudaFree waits for the GPU
    Program("thirteenth.with_hf_trainer", "hf_empties_cache", "allocation", "synchronization"),
    # norms, activations and sums of gradients read and write memory
    Program("thirteenth.with_timm", "timm_gradients_of_frozen", "gpu_compute", "gpu_memory"),
    Program("thirteenth.with_torchvision", "vision_blurs_in_squares", "gpu_compute"),
    Program("thirteenth.with_transformers", "lm_adds_entropy", "gpu_memory"),
    Program("thirteenth.with_jax", "jax_copies_buffer", "gpu_memory"),
    # what the 256 threads do is to read and write memory
    Program("thirteenth.plain_gpu", "plain_sums_phases_by_columns", "gpu_latency", "gpu_memory"),
    # estimated: products take 85 % of the kernels' time
    Program("thirteenth.with_hf_trainer", "hf_wide_control", "gpu_compute", control=True),
    # estimated: 85 %
    Program("thirteenth.with_flax", "flax_mixer_control", "gpu_compute", control=True),
    # estimated: kernels that move bytes take all of the kernels' time; the product, too, is bound
    # by the corpus that it reads once
    Program("thirteenth.with_lightning", "lightning_tables_control", "gpu_memory", control=True),
    Program(
        "thirteenth.with_sentences", "sentences_few_questions_control", "gpu_memory", control=True
    ),
    Program("thirteenth.with_numpyro", "numpyro_many_rows_control", "gpu_memory", control=True),
    # estimated: the GPU is idle for 80 % of the step, its kernels are small, and after each word
    # the host asks whether the text has ended
    Program(
        "thirteenth.with_transformers",
        "lm_writes_control",
        "launch",
        "cpu,synchronization,gpu_latency",
        control=True,
        steps=6,
    ),
)
