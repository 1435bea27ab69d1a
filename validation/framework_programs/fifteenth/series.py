"""Programs of the fifteenth series: what is planted in each, and what may be said."""

from validation.framework_programs.program import Program

# a comment says why another verdict could be argued for
FIFTEENTH: tuple[Program, ...] = (
    # norms, activations and attention between the products
    Program(
        "fifteenth.with_transformers",
        "lm_reads_question_for_each_answer",
        "gpu_compute",
        "gpu_memory",
    ),
    Program("fifteenth.with_jax", "jax_maps_over_branches", "gpu_compute"),
)
