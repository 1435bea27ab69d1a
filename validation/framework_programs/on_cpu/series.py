"""Programs that train on the CPU: what is planted in each, and what a report should say.

Written before any capture. `words` of a program are what evidence has to say, `advice` what is to
be done; both are regular expressions. A comment says why another verdict could be argued for.
"""

from dataclasses import replace

from validation.framework_programs.program import Program

PRODUCTS = r"aten::(mm|addmm|linear|bmm|matmul)\b"

FIRST: tuple[Program, ...] = (
    Program("on_cpu.data", "pictures_warped_one_by_one", "data", advice="num_workers"),
    Program("on_cpu.data", "samples_from_afar", "data", advice="num_workers"),
    Program("on_cpu.data", "one_worker_is_late", "data", advice="worker", settle=9),
    Program(
        "on_cpu.with_transformers", "hf_evaluates_each_third_step", "evaluation", advice="eval"
    ),
    Program(
        "on_cpu.with_lightning", "lightning_saves_each_third_step", "checkpoint", advice="sav"
    ),
    Program("on_cpu.host", "writes_each_sample_to_disk", "logging", "cpu_only", advice="log|writ"),
    # a metric on what was trained is no pass over other data; it is time without an operator
    Program(
        "on_cpu.with_accelerate",
        "accelerate_scores_by_sklearn",
        "evaluation",
        "cpu_only,logging",
        words="metric|evaluation|Python takes|without an operator",
        advice="metric|less often|evaluat|Python",
    ),
    # time in which nothing is computed, in these two: only what Python did could be named
    Program(
        "on_cpu.host",
        "collects_garbage_each_step",
        "cpu_only",
        "logging",
        words="garbage|gc|Python takes|without an operator",
        advice="garbage|gc|stack|Python",
    ),
    Program(
        "on_cpu.host",
        "waits_for_a_lock",
        "cpu_only",
        "logging",
        words="lock|wait|Python takes|without an operator",
        advice="lock|thread|wait|stack|Python",
    ),
    # a game is where the data comes from
    Program(
        "on_cpu.host",
        "plays_one_world",
        "cpu_only",
        "data",
        words="small operators|operators.*(many|short)|Python takes|calls per step",
        advice="batch|vector|Python|at once",
    ),
    Program("on_cpu.operators", "too_many_threads", "cpu_only", words="thread", advice="thread"),
    Program(
        "on_cpu.operators",
        "optimizer_goes_one_by_one",
        "cpu_only",
        words="longest phase is optimizer|optimizer takes",
        advice="fused|foreach",
    ),
    Program(
        "on_cpu.operators",
        "doubles_from_numpy",
        "cpu_only",
        words="float64|double",
        advice="float32|float64|double",
    ),
    Program(
        "on_cpu.operators",
        "copies_for_each_norm",
        "cpu_only",
        words=r"aten::(copy_|contiguous|clone)",
        advice="layout|channels_last|contiguous|cop(y|ies)",
    ),
    Program(
        "on_cpu.operators",
        "embeddings_with_dense_gradients",
        "cpu_only",
        words="longest phase is optimizer|optimizer takes|embedding",
        advice="sparse|fused|foreach",
    ),
    Program(
        "on_cpu.operators",
        "cells_in_a_loop",
        "cpu_only",
        words="small operators|operators.*(many|short)|Python takes|calls per step",
        advice="nn.LSTM|loop|at once|compile|fewer",
    ),
    Program(
        "on_cpu.with_transformers",
        "hf_attention_written_out",
        "cpu_only",
        words=r"softmax",
        advice="sdpa|scaled_dot_product|attention",
    ),
    Program(
        "on_cpu.with_lightning",
        "lightning_detects_anomalies",
        "cpu_only",
        words="anomal|Python takes",
        advice="anomal",
    ),
    Program("on_cpu.data", "loader_control", "cpu_only", words="conv", control=True, settle=9),
    Program(
        "on_cpu.operators", "convolutions_control", "cpu_only", words="conv|batch_norm",
        control=True,
    ),
    Program(
        "on_cpu.operators", "adversaries_control", "cpu_only", words=PRODUCTS + "|optimizer",
        control=True,
    ),
    Program(
        "on_cpu.operators", "lbfgs_control", "cpu_only", words=PRODUCTS + "|tanh", control=True
    ),
    Program(
        "on_cpu.with_transformers", "hf_control", "cpu_only", words=PRODUCTS + "|optimizer",
        control=True,
    ),
    Program(
        "on_cpu.with_transformers", "lora_llama_control", "cpu_only", words=PRODUCTS, control=True
    ),
)  # fmt: skip
# written while the first series ran, before a report or a rule was read
SECOND: tuple[Program, ...] = (
    Program("on_cpu.second", "texts_cut_into_words", "data", advice="num_workers"),
    # no DataLoader makes the batches, so only the time without an operator may be known
    Program(
        "on_cpu.second",
        "table_read_by_csv",
        "data",
        "cpu_only",
        advice="batch|data|DataLoader|stack|Python",
    ),
    Program("on_cpu.second", "validates_each_third_step", "evaluation", advice="eval"),
    Program("on_cpu.second", "saves_by_torch_each_third_step", "checkpoint", advice="sav"),
    Program(
        "on_cpu.second", "histograms_for_tensorboard", "logging", "cpu_only", advice="log|writ"
    ),
    Program(
        "on_cpu.second",
        "recomputes_each_block",
        "cpu_only",
        words="recomput|again|checkpoint",
        advice="recomput|checkpoint",
    ),
    Program(
        "on_cpu.second",
        "loss_by_one_hot",
        "cpu_only",
        words=r"one_hot|scatter|softmax|aten::(mul|log|add)\b",
        advice="cross_entropy|fus|one_hot|compile",
    ),
    # a metric, as that by scikit-learn
    Program(
        "on_cpu.second",
        "matrix_counted_cell_by_cell",
        "evaluation",
        "cpu_only,logging",
        words=r"metric|evaluation|Python takes|item|_local_scalar|small operators|calls per step",
        advice="metric|less often|evaluat|item|Python|at once",
    ),
    Program(
        "on_cpu.second",
        "pictures_of_doubles",
        "cpu_only",
        words="float64|double",
        advice="float32|float64|double",
    ),
    Program(
        "on_cpu.second", "encoder_control", "cpu_only", words=PRODUCTS + "|attention", control=True
    ),
)
# ten faults new in kind and two controls, written without a look at rules or advice; the table of
# what the first series was told had been read
THIRD: tuple[Program, ...] = (
    Program("on_cpu.third", "table_without_an_index", "data", advice="num_workers|index"),
    # no loader tokenizes, so only the time without an operator may be known
    Program(
        "on_cpu.with_transformers",
        "documents_tokenized_in_the_loop",
        "data",
        "cpu,cpu_only",
        words="tokeniz|Python|without an operator",
        advice="tokeniz|data|stack|Python",
        environ={"TOKENIZERS_PARALLELISM": "false"},
    ),
    # what is padding is not seen in operators; a right answer would have to say so
    Program(
        "on_cpu.with_transformers",
        "padded_to_the_longest_of_all",
        "cpu_only",
        words="pad",
        advice="pad|longest|bucket|length",
    ),
    # a text to look at is no pass over other data
    Program(
        "on_cpu.with_transformers",
        "hf_generates_each_step",
        "evaluation",
        "cpu_only,cpu,logging",
        words="generat|evaluation|without gradients|no_grad|small operators",
        advice="generat|less often|evaluat",
    ),
    # a wait outside all phases
    Program(
        "on_cpu.with_transformers",
        "hf_posts_each_loss",
        "logging",
        "cpu",
        words="wait|request|answer",
        advice="log|wait|thread",
    ),
    # a copy of weights that stays in memory is not what saves them
    Program(
        "on_cpu.third",
        "agent_copied_with_its_memory",
        "cpu",
        "cpu_only,checkpoint",
        words="deepcopy|clone|cop(y|ies)|without an operator",
        advice="deepcopy|cop(y|ies)|stack|Python",
    ),
    # nothing of PyTorch writes this file
    Program(
        "on_cpu.third",
        "weights_zipped_by_numpy",
        "checkpoint",
        "cpu,logging",
        words="sav|checkpoint|writ|compress|without an operator",
        advice="sav|checkpoint|writ|stack|Python",
    ),
    # Python in the forward, so in a phase
    Program(
        "on_cpu.third",
        "mask_written_in_python",
        "cpu_only",
        "cpu",
        words="Python.*forward|forward.*Python|without an operator",
        advice="stack|Python|mask|once",
    ),
    Program(
        "on_cpu.with_lightning",
        "lightning_averages_the_table",
        "cpu_only",
        words=r"aten::(mul|add)\b",
        advice="lerp|foreach|in place|less often|average",
    ),
    Program(
        "on_cpu.with_accelerate",
        "accelerate_accumulates_single_samples",
        "cpu_only",
        words="small operators|micro|accumul",
        advice="batch|accumul|at once|fewer",
    ),
    Program(
        "on_cpu.third", "distillation_control", "cpu_only", words=PRODUCTS + "|linear",
        control=True,
    ),
    Program(
        "on_cpu.third", "sparse_graph_control", "cpu_only", words=PRODUCTS + "|sparse",
        control=True,
    ),
)  # fmt: skip
# a smaller fault has no clear verdict
THIRD = tuple(replace(program, least_share=0.4) for program in THIRD)
# ten faults new in kind and two controls, written without a look at rules, advice or what the
# series before were told; `words` are of the cause itself, since general ones told nothing apart
FOURTH: tuple[Program, ...] = (
    Program(
        "on_cpu.fourth",
        "skeletons_parsed_from_json",
        "data",
        words="json|gzip|parse|skeletons_parsed|make|__getitem__|data set|dataset",
        advice="num_workers|worker",
    ),
    # the data set itself is free; a report that tells of samples instead of the collate is vague
    Program(
        "on_cpu.fourth",
        "paths_found_in_the_collate",
        "data",
        words="collate|hops|fourth.py",
        advice="num_workers|worker|collate",
    ),
    # there is a worker, and it computes without a pause: more of them, or less work
    Program(
        "on_cpu.with_accelerate",
        "accelerate_augments_with_one_worker",
        "data",
        words="worker",
        advice="num_workers|more workers|worker",
        settle=9,
    ),
    # no evaluation of Lightning's own; the model is in eval mode and has no gradients
    Program(
        "on_cpu.with_lightning",
        "lightning_asks_its_neighbours",
        "evaluation",
        "cpu_only",
        words="evaluat|validat|without gradients|no_grad|Neighbours",
        advice="evaluat|validat|less often",
    ),
    # norms are operators, and Lightning's log is Python: both are what the logging takes
    Program(
        "on_cpu.with_lightning",
        "lightning_logs_each_parameter",
        "logging",
        "cpu_only,cpu",
        words=r"log|CSV|Norms|on_before_optimizer_step|norm",
        advice="log.*less often|less often|every n|log_every|log",
    ),
    Program(
        "on_cpu.with_accelerate",
        "accelerate_saves_its_state",
        "checkpoint",
        words="sav|checkpoint|save_state",
        advice="sav|checkpoint|less often|background|async",
    ),
    # a loop of Python behind the optimizer, without an operator in it
    Program(
        "on_cpu.fourth",
        "priorities_updated_one_by_one",
        "cpu",
        "cpu_only",
        words="update|tree|fourth.py|without an operator",
        advice="vector|at once|NumPy|Python|stack|loop",
    ),
    # the same between forward and backward, so before the loss is known
    Program(
        "on_cpu.with_transformers",
        "peft_rewards_by_edits",
        "cpu",
        "cpu_only",
        words="edits|reward|with_transformers.py|without an operator",
        advice="vector|process|Python|stack|loop|compiled",
    ),
    # 384 x 384 x 64 numbers are written, squared, summed, and all again in the backward
    Program(
        "on_cpu.fourth",
        "pairs_by_broadcasting",
        "cpu_only",
        words=r"aten::(pow|sub|sum|mul)|elementwise|memory",
        advice="cdist|matmul|product|compile|fus|intermediate",
    ),
    # the processor has no fast products in float16: these are what should be named
    Program(
        "on_cpu.with_transformers",
        "bert_in_half_precision",
        "cpu_only",
        words="float16|half|autocast|precision",
        advice="bfloat16|float32|autocast|precision",
    ),
    Program(
        "on_cpu.with_transformers", "vit_control", "cpu_only", words=PRODUCTS + "|linear",
        control=True,
    ),
    # a finding of data, or advice of more workers, is a false alarm
    Program(
        "on_cpu.with_lightning", "lightning_loader_control", "cpu_only", words="conv",
        control=True, settle=9,
    ),
)  # fmt: skip
FOURTH = tuple(replace(program, least_share=0.45) for program in FOURTH)
SERIES = {1: FIRST, 2: SECOND, 3: THIRD, 4: FOURTH}
