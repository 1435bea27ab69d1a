"""Bottlenecks of a run without a GPU: rows of profiling.shared.causes.VERDICTS."""

from dataclasses import replace

from profiling.shared.advice import (
    FIND_PAUSES,
    FOREIGN_TORCH,
    FUSED_ATTENTION,
    NAME_PAUSES,
    Advice,
    Verdict,
)

NO_ANOMALY_MODE = Advice(
    pytorch="Switch autograd's anomaly mode off: it keeps a traceback of each operator and checks "
    "each gradient for NaN. torch.autograd.set_detect_anomaly(False).",
    lightning="Switch autograd's anomaly mode off: it keeps a traceback of each operator and "
    "checks each gradient for NaN. Trainer(detect_anomaly=False).",
    only=FOREIGN_TORCH,
    needs="anomaly_mode",
)

CPU_VERDICTS = (
    Verdict(  # this and the next two: parts of a step
        "evaluation",
        "evaluation",
        "the step waits for an evaluation",
        waiting="an evaluation ran",
        host=True,
        advice=(
            Advice(
                "Evaluate less often, or on fewer batches.",
                trainer="Evaluate less often, or on fewer batches: eval_interval, eval_iters.",
            ),
            Advice(
                "Evaluate in larger batches: nothing is kept for a backward.",
                pytorch="Evaluate in larger batches and under torch.inference_mode(): nothing is "
                "kept for a backward.",
            ),
        ),
    ),
    Verdict(
        "checkpoint",
        "checkpoints",
        "the step waits for a checkpoint",
        waiting="a checkpoint was saved",
        host=True,
        advice=(
            Advice("Save less often, or only what changed."),
            Advice(
                "Copy the state and write it in a thread or process of its own, so that training "
                "goes on.",
                pytorch="Copy the state and write it in a thread or process of its own, so that "
                "training goes on: torch.distributed.checkpoint.async_save.",
            ),
        ),
    ),
    Verdict(
        "logging",
        "logging and metrics",
        "the step waits for logging or metrics",
        waiting="the CPU was logging or computing metrics",
        host=True,
        advice=(
            Advice("Log and compute metrics only once every many steps."),
            Advice("Keep values as tensors until they are logged, and write files in a thread."),
        ),
    ),
    Verdict(  # no GPU took part, so that no part of the step can be idle
        "cpu_only",
        "the CPU",
        "the run has no GPU",
        advice=(
            Advice(
                "Let PyTorch split an operator over no more threads than there are cores: "
                "torch.set_num_threads({cpu_cores}). It uses {compute_threads} now.",
                needs="too_many_threads",
            ),
            NO_ANOMALY_MODE,
            Advice(
                "Compute in float32: the model's inputs are float64, often from NumPy arrays: "
                "model.float(), batch.float().",
                needs="float64_inputs",
            ),
            Advice(
                "Give an embedding sparse gradients, so that only the rows of a batch are updated: "
                "nn.Embedding(..., sparse=True) with SparseAdam or SGD.",
                only=FOREIGN_TORCH,
                needs="dense_embedding",
            ),
            replace(FIND_PAUSES, needs="quiet_phase"),
            replace(NAME_PAUSES, needs="quiet_phase"),
            Advice(
                "Run what is between the phases less often, or in place and for all weights at "
                "once: torch._foreach_lerp_ for an average, no metric in each step.",
                only=FOREIGN_TORCH,
                needs="work_between",
            ),
            Advice(
                "Sum gradients over fewer and larger batches: each pass has a fixed cost, and its "
                "operators are small.",
                only=FOREIGN_TORCH,
                needs="small_passes",
            ),
            Advice(
                "Run forwards without gradients (generation, evaluation, metrics) less often, or "
                "as one batch.",
                only=FOREIGN_TORCH,
                needs="untrained_forwards",
            ),
            replace(FUSED_ATTENTION, only=FOREIGN_TORCH, needs="no_dropout"),
            Advice(
                pytorch="Update all parameters in one operator: an optimizer with fused=True, "
                "which Adam, AdamW, SGD and Adagrad have on a CPU, too.",
                huggingface='Update all parameters in one operator: optim="adamw_torch_fused".',
                only=FOREIGN_TORCH,
                needs="slow_optimizer",
            ),
            Advice(
                "Join small operators: a batch instead of a loop over samples or prompts, nn.LSTM "
                "instead of a cell for each word.",
                only=FOREIGN_TORCH,
                needs="small_operators",
            ),
            Advice(
                "Copy less: keep one memory layout (channels_last for pictures) and one type, "
                "without contiguous() and clone() in each step.",
                only=FOREIGN_TORCH,
                needs="layout_copies",
            ),
            Advice(
                "Compute on all cores: OMP_NUM_THREADS={cpu_cores}. PyTorch uses "
                "{compute_threads} threads now.",
                needs="cores_to_spare",
            ),
            Advice(
                trainer="Fuse operators into C++ loops: compile=true, which takes about a minute "
                "to compile.",
                pytorch="Fuse operators into C++ loops: torch.compile(model), which takes about a "
                "minute to compile.",
                unless=("compile", "quiet_phase", "work_between"),
            ),
            Advice(
                trainer="Use PyTorch's fused attention, which supports no dropout on a CPU: "
                "dropout=0 attention=flash.",
                unless=("no_dropout",),
            ),
            replace(FUSED_ATTENTION, only=("trainer",), needs="no_dropout"),
            Advice(
                "Give each operator more work: a larger batch.",
                trainer="Give each operator more work: a larger batch_size.",
            ),
        ),
    ),
)
