"""Series of programs of many frameworks: what is planted in each, and what may be said."""

from dataclasses import replace

from validation.framework_programs.fifteenth.series import FIFTEENTH
from validation.framework_programs.fourteenth.series import FOURTEENTH
from validation.framework_programs.on_cpu.series import SERIES as ON_CPU
from validation.framework_programs.program import Program
from validation.framework_programs.thirteenth.series import THIRTEENTH
from validation.framework_programs.twelfth.series import TWELFTH

GPU = "gpu_compute,gpu_memory,gpu_latency"

SIXTH = (
    Program(
        "plain", "plain_blocks", "synchronization", "launch", environ={"CUDA_LAUNCH_BLOCKING": "1"}
    ),
    Program("plain", "plain_channels_first", "gpu_memory", "gpu_compute"),
    Program("plain", "plain_second_thread", "cpu", "launch"),
    Program("plain", "plain_gridworld", "cpu", "data"),
    Program("plain", "plain_control", "gpu_compute", GPU, control=True),
    Program("with_lightning", "lightning_spectrograms", "data", settle=12),
    Program("with_lightning", "lightning_checkpoints", "cpu", "copies,synchronization"),
    Program("with_lightning", "lightning_control", "gpu_compute", GPU, control=True),
    Program("with_hf_trainer", "hf_corrupts_spans", "data"),
    Program("with_hf_trainer", "hf_writes_statistics", "cpu"),
    Program("with_hf_trainer", "hf_float32", "gpu_compute"),
    Program("with_accelerate", "accelerate_collects_garbage", "cpu"),
    Program("with_accelerate", "accelerate_evaluates", "synchronization", "launch"),
    Program("with_geometric", "geometric_moves_graph", "copies"),
    Program("with_geometric", "geometric_control", "gpu_memory", GPU, control=True),
    Program("with_torchdiffeq", "ode_few_trajectories", "launch", "cpu", work_without=4096 / 16),
    Program("with_torchdiffeq", "ode_doubles", "gpu_compute"),
    Program("with_gpytorch", "gp_empties_cache", "allocation"),
    Program("with_gpytorch", "gp_control", "gpu_compute", GPU, control=True),
    Program("with_jax", "jax_reads_losses", "synchronization", "launch", steps=40),
    Program("with_jax", "jax_recompiles", "cpu", steps=6, settle=0),
    Program("with_jax", "jax_arrays_of_host", "copies", "data"),
    Program("with_jax", "jax_small_scan", "gpu_latency", "launch,gpu_gaps", work_without=128),
    Program("with_jax", "jax_without_jit", "launch", "cpu"),
    Program("with_jax", "jax_control", "gpu_compute", GPU, control=True),
    Program(
        "with_numpyro",
        "numpyro_doubles",
        "gpu_memory",
        "gpu_compute",
        environ={"JAX_ENABLE_X64": "1"},
    ),
    Program("with_cupy", "cupy_one_by_one", "gpu_memory"),
    Program("with_cupy", "cupy_checks_residual", "synchronization", "launch"),
    Program("with_cupy", "cupy_frees_pool", "allocation"),
    Program("with_cupy", "cupy_control", "gpu_compute", GPU, control=True),
)

SEVENTH = (
    Program("seventh.plain_host", "plain_table_rows", "data", "cpu"),
    Program("seventh.plain_host", "plain_replay", "cpu", "data"),
    Program("seventh.plain_host", "plain_experts", "synchronization", "launch", steps=6),
    Program("seventh.plain_host", "plain_saves_on_cpu", "copies", "synchronization"),
    Program(
        "seventh.plain_host",
        "plain_no_caching",
        "allocation",
        "synchronization",
        environ={"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"},
    ),
    Program("seventh.plain_host", "plain_physics", "launch", "cpu,gpu_latency", control=True),
    Program("seventh.plain_gpu", "plain_formulas", "gpu_memory", "gpu_compute"),
    Program("seventh.plain_gpu", "plain_lstm", "gpu_latency", "launch,gpu_gaps", work_without=64),
    Program("seventh.plain_gpu", "plain_graph", "gpu_latency", "launch,gpu_gaps", work_without=256),
    Program("seventh.plain_gpu", "plain_decode", "gpu_memory", control=True),
    Program("seventh.with_torchvision", "vision_decodes", "data", settle=12),
    Program("seventh.with_torchvision", "vision_floats", "copies", "data"),
    Program("seventh.with_torchvision", "vision_reproducible", "gpu_compute", "gpu_memory"),
    Program("seventh.with_timm", "timm_checks_numbers", "synchronization", "launch"),
    Program("seventh.with_timm", "timm_control", "gpu_compute", "gpu_memory", control=True),
    Program("seventh.with_transformers", "lm_eager_attention", "gpu_memory", "gpu_compute"),
    Program("seventh.with_transformers", "lm_without_cache", "gpu_compute", "gpu_memory", steps=6),
    Program("seventh.with_transformers", "lm_one_by_one", "launch", "cpu,gpu_latency"),
    Program("seventh.with_peft", "lora_apart", "launch", "cpu,gpu_latency"),
    Program("seventh.with_peft", "lora_control", "gpu_compute", "gpu_memory", control=True),
    Program("seventh.with_sentences", "sentences_tokenized", "data", "cpu"),
    Program("seventh.with_sentences", "sentences_home", "copies", "synchronization"),
    Program("seventh.with_sentences", "sentences_padded", "gpu_compute", "gpu_memory"),
    Program("seventh.with_torchaudio", "audio_character_errors", "cpu", "synchronization"),
    Program("seventh.with_botorch", "botorch_candidates", "launch", "cpu,gpu_latency"),
    Program("seventh.with_e3nn", "e3nn_control", "gpu_memory", "gpu_compute", control=True),
    Program("seventh.with_triton", "triton_few_blocks", "gpu_latency", "gpu_memory"),
    Program("seventh.with_flax", "flax_waits", "synchronization", "launch", steps=40),
    Program("seventh.with_flax", "flax_histograms", "cpu", "copies,synchronization"),
    Program(
        "seventh.with_flax",
        "flax_platform_allocator",
        "allocation",
        "synchronization",
        environ={"XLA_PYTHON_CLIENT_ALLOCATOR": "platform"},
    ),
    Program("seventh.with_equinox", "equinox_recompiles", "cpu", steps=6, settle=0),
    Program("seventh.with_equinox", "diffrax_control", "gpu_compute", "gpu_memory", control=True),
    Program("seventh.with_cupy", "cupy_conjugate_gradients", "synchronization", "launch"),
    Program("seventh.with_cupy", "cupy_without_pool", "allocation", "synchronization"),
)

# a comment says why another verdict could be argued for
EIGHTH = (
    # the variable: the process compiles by itself, and leaves no others behind
    Program(
        "eighth.plain_host",
        "plain_recompiles",
        "cpu",
        steps=4,
        settle=0,
        environ={"TORCHINDUCTOR_COMPILE_THREADS": "1"},
    ),
    # cudaFree waits for the GPU
    Program(
        "eighth.plain_host",
        "plain_nearly_full",
        "allocation",
        "synchronization",
        environ={"PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:128"},
    ),
    # the launches are made by a loop of Python, and each kernel is small
    Program("eighth.plain_host", "plain_advantages", "launch", "cpu,gpu_latency", steps=6),
    # what the one block does is to read memory
    Program("eighth.plain_gpu", "plain_particles", "gpu_latency", "gpu_memory"),
    Program("eighth.plain_gpu", "plain_unpacks", "gpu_memory"),
    # the products of int8 are quick beside the rounding of what comes out
    Program("eighth.plain_gpu", "plain_int8", "gpu_compute", "gpu_memory", control=True),
    Program("eighth.plain_gpu", "plain_recommender", "gpu_memory", control=True),
    # each copy waits for the GPU, and the host computes the average itself
    Program("eighth.diffusion", "diffusion_average", "copies", "synchronization,cpu"),
    # norms and activations of the half that is not needed read and write memory
    Program("eighth.diffusion", "diffusion_guidance", "gpu_compute", "gpu_memory"),
    Program("eighth.diffusion", "diffusion_control", "gpu_compute", "gpu_memory", control=True),
    Program("eighth.with_h5py", "hdf5_frames", "data", settle=12),
    Program("eighth.with_lightning", "lightning_negatives", "data", settle=12),
    # stacks are written down on the host; the looks for a NaN are syncs and small kernels
    Program("eighth.with_lightning", "lightning_anomalies", "cpu", "synchronization,launch"),
    Program("eighth.with_torchaudio", "audio_resamples", "data", settle=12),
    # each slice is also a launch of a small kernel
    Program("eighth.with_torchaudio", "audio_masks", "synchronization", "launch"),
    # norms, activations and dropout between the products
    Program("eighth.with_torchaudio", "audio_control", "gpu_compute", "gpu_memory", control=True),
    # embeddings come to the host and scores go back
    Program("eighth.with_onnxruntime", "onnx_on_cpu", "cpu", "copies,synchronization"),
    # each copy is tiny: the time is that of asking for it and waiting
    Program("eighth.with_torchvision", "vision_targets", "copies", "synchronization,cpu"),
    # each text's words are asked for from the GPU
    Program("eighth.with_transformers", "lm_bans_ngrams", "cpu", "synchronization,launch", steps=6),
    # what follows each count is launched late
    Program("eighth.with_geometric", "geometric_counts_graphs", "synchronization", "launch"),
    Program("eighth.with_jax", "jax_sinkhorn", "synchronization", "launch", steps=24),
    # Fourier transforms can be called arithmetic
    Program("eighth.with_jax", "jax_turbulence", "gpu_memory", "gpu_compute", control=True),
    Program("eighth.with_accelerate", "accelerate_offloads", "copies"),
    # the pool is trimmed where the host waits
    Program("eighth.with_cupy", "cupy_trims_pool", "allocation", "synchronization"),
    # dispatching an operator of JAX is work of the host
    Program("eighth.with_optax", "optax_outside_jit", "launch", "cpu"),
    Program("eighth.with_sentences", "sentences_broadcast", "gpu_memory"),
    # the weights of each edge are a product in float64
    Program("eighth.with_e3nn", "e3nn_doubles", "gpu_memory", "gpu_compute"),
    Program("eighth.with_peft", "peft_recomputes", "gpu_compute", "gpu_memory"),
    # the kernel's matrix is written and read, and parts of the factorization are small
    Program("eighth.with_gpytorch", "gp_forgets_factor", "gpu_compute", "gpu_memory,gpu_latency"),
    Program("eighth.with_numba", "numba_soft_dtw", "gpu_latency", work_without=256 / 4),
    # a kernel of a loop on the GPU ends before the next begins
    Program(
        "eighth.with_numpyro",
        "numpyro_one_chain",
        "gpu_latency",
        "launch,gpu_gaps",
        work_without=512,
    ),
    # SciPy's steps are the host's, each is asked for a number, and each kernel is small
    Program(
        "eighth.with_botorch",
        "botorch_control",
        "launch",
        "cpu,synchronization,gpu_latency",
        control=True,
        steps=6,
    ),
)

# a comment says why another verdict could be argued for
NINTH: tuple[Program, ...] = (
    Program("ninth.with_geometric", "geometric_walks_again", "data", settle=12),
    # the loop's own process makes the tensors
    Program("ninth.with_lightning", "lightning_lists", "data", "cpu"),
    # the next layer is launched late, by hooks of Python
    Program("ninth.with_timm", "timm_times_layers", "synchronization", "launch,cpu"),
    # what follows each question is launched late
    Program("ninth.with_triton", "triton_parts_of_picture", "synchronization", "launch"),
    Program("ninth.with_numpyro", "numpyro_accepts_on_host", "synchronization", "launch", steps=24),
    # the launches are made by a loop of Python, and each kernel is small
    Program("ninth.plain_host", "plain_private_gradients", "launch", "cpu,gpu_latency", steps=6),
    # dispatching an operator of JAX is work of the host, and what it does is to load a batch
    Program("ninth.with_jax", "jax_stacks_rows", "launch", "cpu,data", steps=6),
    # CuPy's operators are Python, and each kernel is small
    Program("ninth.with_cupy", "cupy_group_by_group", "launch", "cpu,gpu_latency", steps=6),
    # the costs come to the host
    Program("ninth.plain_host", "plain_matches_boxes", "cpu", "synchronization,copies"),
    Program("ninth.with_e3nn", "e3nn_makes_products", "cpu", steps=6, settle=2),
    # the words come to the host
    Program("ninth.with_torchmetrics", "metrics_scores_texts", "cpu", "synchronization"),
    # a copy home waits for the GPU
    Program("ninth.with_transformers", "lm_offloads_cache", "copies", "synchronization"),
    Program("ninth.plain_host", "plain_bias_left_behind", "copies"),
    # the host waits for each array, and makes the memory that it comes to
    Program("ninth.with_flax", "flax_keeps_state_on_host", "copies", "synchronization,cpu"),
    # cudaFree waits for the GPU
    Program("ninth.plain_host", "plain_pool_of_each_step", "allocation", "synchronization"),
    Program("ninth.with_torchaudio", "audio_fourier_matrix", "gpu_compute"),
    # norms and activations of the passages read and write memory
    Program("ninth.with_sentences", "sentences_embeds_again", "gpu_compute", "gpu_memory"),
    Program("ninth.with_geometric", "geometric_messages", "gpu_memory"),
    Program("ninth.plain_gpu", "plain_classes_at_full_size", "gpu_memory"),
    # what the one block does is to read memory
    Program("ninth.with_torchaudio", "audio_separates_one", "gpu_latency", "gpu_memory"),
    # estimated: products take 90 % of the kernels' time
    Program("ninth.with_equinox", "equinox_control", "gpu_compute", control=True),
    # estimated: 90 %
    Program("ninth.with_transformers", "lm_prompts_control", "gpu_compute", control=True),
    # estimated: 80 %; the rest are norms, activations and AdamW
    Program("ninth.plain_gpu", "plain_wide_control", "gpu_compute", "gpu_memory", control=True),
    # estimated: kernels that move bytes take all of the kernels' time
    Program("ninth.plain_gpu", "plain_reaction_control", "gpu_memory", control=True),
    Program("ninth.with_cupy", "cupy_frames_control", "gpu_memory", control=True),
    # estimated: the GPU is idle for 80 % of the step, and its kernels are small
    Program(
        "ninth.with_torchdiffeq",
        "ode_small_control",
        "launch",
        "cpu,gpu_latency",
        control=True,
        steps=6,
    ),
)
# a comment says why another verdict could be argued for
TENTH: tuple[Program, ...] = (
    Program("tenth.with_lightning", "lightning_columns_of_rows", "data", "cpu"),
    Program("tenth.with_accelerate", "accelerate_sample_by_sample", "data", settle=12),
    # the optimizer's update is launched late
    Program("tenth.plain_host", "plain_adam_counts_on_gpu", "synchronization", "launch"),
    # the next graph is launched late, and its kernels are small
    Program("tenth.plain_host", "plain_asks_after_tokens", "synchronization", "launch,gpu_latency"),
    # the next step is dispatched late
    Program("tenth.with_flax", "flax_reads_norms", "synchronization", "launch", steps=24),
    # the launches are made by a loop of Python, and each kernel is small
    Program("tenth.plain_host", "plain_tree_node_by_node", "launch", "cpu,gpu_latency", steps=6),
    # Equinox's own Python stands before each dispatch
    Program("tenth.with_equinox", "equinox_members_one_by_one", "launch", "cpu", steps=6),
    # torch-geometric's layers are Python, and each kernel is small
    Program("tenth.with_geometric", "geometric_relation_by_relation", "launch", "cpu,gpu_latency"),
    Program("tenth.with_cupy", "cupy_compiles_constants", "cpu", steps=6, settle=2),
    # each text's words come to the host, and those allowed go back
    Program("tenth.with_transformers", "lm_allows_words", "cpu", "synchronization,copies"),
    Program("tenth.with_h5py", "hdf5_compresses_paths", "cpu"),
    # a copy home waits for the GPU, in these three, and what it goes to is made for it
    Program("tenth.with_cupy", "cupy_hands_over_by_numpy", "copies", "synchronization"),
    Program("tenth.with_numpyro", "numpyro_draws_home", "copies", "synchronization"),
    Program("tenth.with_diffusers", "diffusers_pictures_of_floats", "copies", "synchronization"),
    # emptying the cache waits for the GPU
    Program(
        "tenth.plain_host",
        "plain_unmaps_segments",
        "allocation",
        "synchronization",
        environ={"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"},
    ),
    Program("tenth.plain_gpu", "plain_attends_to_all", "gpu_compute"),
    Program("tenth.with_jax", "jax_raises_matrix", "gpu_compute"),
    Program("tenth.plain_gpu", "plain_shifts_cache", "gpu_memory"),
    Program("tenth.with_sentences", "sentences_sorts_all_scores", "gpu_memory"),
    # what the four blocks do is to read memory
    Program(
        "tenth.with_torchaudio",
        "audio_long_clips",
        "gpu_latency",
        "gpu_memory",
        work_without=64 / 4,
    ),
    # estimated: convolutions take 90 % of the kernels' time
    Program("tenth.with_flax", "flax_convolutions_control", "gpu_compute", control=True),
    # estimated: products take 90 %
    Program("tenth.with_sentences", "sentences_wide_control", "gpu_compute", control=True),
    # estimated: kernels that move bytes take all of the kernels' time
    Program("tenth.with_optax", "optax_tables_control", "gpu_memory", control=True),
    Program("tenth.with_torchvision", "vision_augments_control", "gpu_memory", control=True),
    Program("tenth.with_torchdiffeq", "ode_heat_control", "gpu_memory", control=True),
    # estimated: the GPU is idle for 80 % of the step, its kernels are small, and the time of each
    # denoising goes to it in a copy that is waited for
    Program(
        "tenth.with_diffusers",
        "diffusers_small_control",
        "launch",
        "cpu,synchronization,gpu_latency",
        control=True,
        steps=6,
    ),
)
# a comment says why another verdict could be argued for
ELEVENTH: tuple[Program, ...] = (
    Program("eleventh.with_torchvision", "vision_warps_elastically", "data", settle=12),
    Program("eleventh.with_h5py", "hdf5_rows_by_list", "data", settle=12),
    Program("eleventh.with_accelerate", "accelerate_opens_archives", "data", settle=12),
    # what follows each read is launched late, in these three
    Program("eleventh.plain_host", "plain_bounds_on_gpu", "synchronization", "launch"),
    Program("eleventh.plain_host", "plain_checks_distributions", "synchronization", "launch"),
    Program("eleventh.with_jax", "jax_searches_line", "synchronization", "launch"),
    # AdamW's work for each group is Python's, and each kernel is small
    Program(
        "eleventh.with_lightning",
        "lightning_group_for_each_parameter",
        "launch",
        "cpu,gpu_latency",
        steps=6,
    ),
    # torchaudio's modules are Python, and each kernel is small
    Program(
        "eleventh.with_torchaudio",
        "audio_features_one_by_one",
        "launch",
        "cpu,gpu_latency",
        steps=6,
    ),
    # the loop is Python, and each kernel is small
    Program("eleventh.with_jax", "jax_orbits_step_by_step", "launch", "cpu,gpu_latency", steps=6),
    # what is asked comes to the host, and answers go back, in these three
    Program("eleventh.with_geometric", "geometric_asks_networkx", "cpu", "synchronization"),
    Program("eleventh.with_sentences", "sentences_links_on_host", "cpu", "synchronization,copies"),
    Program("eleventh.with_torchvision", "vision_suppresses_by_numpy", "cpu", "synchronization"),
    Program("eleventh.with_sentences", "sentences_corpus_on_host", "copies", "synchronization"),
    Program("eleventh.with_cupy", "cupy_uploads_filter", "copies", "synchronization"),
    # a copy home waits for the GPU, and what it goes to is made for it
    Program("eleventh.with_gpytorch", "gp_covariance_home", "copies", "synchronization"),
    # memory goes back where the host waits for the step's result
    Program("eleventh.with_cupy", "cupy_maps_lists_anew", "allocation", "synchronization"),
    Program("eleventh.plain_gpu", "plain_scores_all_pairs", "gpu_compute"),
    # activations and sums between the products
    Program("eleventh.plain_gpu", "plain_all_experts", "gpu_compute", "gpu_memory"),
    Program("eleventh.with_transformers", "lm_repeats_heads", "gpu_memory"),
    # what the four threads do is to read and write memory
    Program("eleventh.with_torchaudio", "audio_filters_by_recursion", "gpu_latency", "gpu_memory"),
    # estimated: attention and products take 93 % of the kernels' time
    Program("eleventh.with_timm", "timm_large_pictures_control", "gpu_compute", control=True),
    # estimated: products take 86 %
    Program("eleventh.with_accelerate", "accelerate_wide_control", "gpu_compute", control=True),
    # estimated: kernels that move bytes take all of the kernels' time
    Program("eleventh.with_jax", "jax_waves_control", "gpu_memory", control=True),
    Program("eleventh.with_torchmetrics", "metrics_pictures_control", "gpu_memory", control=True),
    Program("eleventh.with_triton", "triton_norms_control", "gpu_memory", control=True),
    # estimated: the GPU is idle for 80 % of the step, and its kernels are small
    Program(
        "eleventh.with_peft",
        "peft_small_control",
        "launch",
        "cpu,gpu_latency",
        control=True,
        steps=6,
    ),
)
# A rule of the ninth series and those after it, made before any capture: a smaller fault has no
# clear verdict.
LEAST_SHARE = 0.25
NINTH, TENTH, ELEVENTH, TWELFTH, THIRTEENTH, FOURTEENTH, FIFTEENTH = (
    tuple(replace(program, least_share=LEAST_SHARE) for program in series)
    for series in (NINTH, TENTH, ELEVENTH, TWELFTH, THIRTEENTH, FOURTEENTH, FIFTEENTH)
)
SERIES = dict(
    enumerate(
        (
            SIXTH,
            SEVENTH,
            EIGHTH,
            NINTH,
            TENTH,
            ELEVENTH,
            TWELFTH,
            THIRTEENTH,
            FOURTEENTH,
            FIFTEENTH,
        ),
        start=6,
    )
)
PROGRAMS = tuple(program for series in (*SERIES.values(), *ON_CPU.values()) for program in series)
