"""The five series of programs, each with its fault. A series runs in this order."""

from collections.abc import Callable
from dataclasses import dataclass

from validation.foreign_programs import allocation, copies, cpu, data, gpu, launch, synchronization
from validation.foreign_programs.parts import Step


@dataclass(frozen=True)
class Program:
    """A program with a planted fault; `make(fault)` builds its step with or without the fault."""

    planted: str  # the verdict that would be right
    make: Callable[[bool], Step]
    work_without: float = 1  # work of a step without the fault, in steps with the fault

    @property
    def name(self) -> str:
        return self.make.__name__


FIRST = (
    Program("data", data.resnet50_transforms),
    Program("data", data.vit_starved_workers),
    Program("data", data.resnet18_restarted_workers),
    Program("synchronization", synchronization.bert_grad_norms),
    Program("synchronization", synchronization.bert_boolean_index),
    Program("launch", launch.gpt2_generate),
    Program("launch", launch.mobilenet_small_batch, 512 / 4),
    Program("launch", launch.deit_looped_adam),
    Program("cpu", cpu.bert_python_metric),
    Program("cpu", cpu.vit_gc),
    Program("cpu", cpu.resnet26_sleeps),
    Program("copies", copies.convolution_pageable),
    Program("copies", copies.resnet18_pinned_full_link),
    Program("copies", copies.bert_logits_home),
    Program("allocation", allocation.resnet50_empty_cache),
    Program("allocation", allocation.vit_growing_shapes),
    Program("gpu_compute", gpu.vit_base_large_batch, 16 / 128),
    Program("gpu_compute", gpu.resnet152_float32),
    Program("gpu_memory", gpu.bert_attention_written_out),
    Program("gpu_memory", gpu.vit_unfused_gelu),
    Program("gpu_latency", gpu.resnet18_graph_of_one, 256),
)
SECOND = (
    Program("data", data.convnext_jpegs),
    Program("data", data.swin_one_worker),
    Program("data", data.bert_tokenised_in_collate),
    Program("data", data.resnet34_small_files),
    Program("synchronization", synchronization.vit_nan_checks),
    Program("synchronization", synchronization.vit_clipping_by_if),
    Program("synchronization", synchronization.mixer_synchronised_blocks),
    Program("launch", launch.efficientnet_few_images, 256 / 8),
    Program("launch", launch.lstm_by_cells),
    Program("launch", launch.t5_generates),
    Program("cpu", cpu.deit_json_log),
    Program("cpu", cpu.bert_checksum),
    Program("cpu", cpu.resnet18_spins),
    Program("copies", copies.vit_features_home_pinned),
    Program("copies", copies.bert_weights_streamed),
    Program("copies", copies.resnet18_double_arrays),
    Program("allocation", allocation.vit_empties_cache_in_layers),
    Program("allocation", allocation.resnet18_pins_each_batch),
    Program("gpu_compute", gpu.bert_large_float32),
    Program("gpu_compute", gpu.wide_convolutions),
    Program("gpu_memory", gpu.llama_norms_by_hand),
    Program("gpu_memory", gpu.gpt2_eager_attention),
    Program("gpu_latency", gpu.mobilenet_graph_of_one, 512),
)
THIRD = (
    Program("data", data.mobilenet_perspective_workers),
    Program("data", data.gpt2_parses_text),
    Program("synchronization", synchronization.resnet50_statistics_home),
    Program("synchronization", synchronization.vit_tolist_in_blocks),
    Program("launch", launch.regnet_few_images, 128 / 4),
    Program("launch", launch.densenet_looped_sgd),
    Program("cpu", cpu.bert_sorts_a_list),
    Program("cpu", cpu.mixer_deepcopies),
    Program("copies", copies.video_batches),
    Program("copies", copies.vit_saved_on_cpu),
    Program("allocation", allocation.bert_empties_cache_twice),
    Program("gpu_compute", gpu.vit_large_float32),
    Program("gpu_memory", gpu.mixer_norms_by_hand),
    Program("gpu_latency", gpu.gpt2_graph_of_one, 512 * 16),
)
FOURTH = (
    Program("data", data.regnet_inflates_photos),
    Program("data", data.bert_sorts_for_each_batch),
    Program("synchronization", synchronization.resnet18_losses_one_by_one),
    Program("synchronization", synchronization.resnet50_boxes_by_if),
    Program("launch", launch.resnet18_augments_one_by_one),
    Program("cpu", cpu.efficientnet_saves_pictures),
    Program("cpu", cpu.bert_keeps_beams_in_lists),
    Program("copies", copies.lraspp_masks_of_floats),
    Program("allocation", allocation.fcn_empties_cache_between_tiles),
    Program("gpu_compute", gpu.gpt2_scores_every_position),
    Program("gpu_memory", gpu.gpt2_loss_by_one_hot),
    Program("gpu_memory", gpu.bert_dense_table_gradients),
    Program("gpu_latency", gpu.mixer_trains_two_images_in_a_graph, 256 / 2),
)
FIFTH = (
    Program("data", data.whisper_extracts_features),
    Program("synchronization", synchronization.resnext_counts_confusions),
    Program("launch", launch.shufflenet_crops_one_by_one),
    Program("cpu", cpu.resnet18_spectrum_of_its_head),
    Program("copies", copies.deit_takes_weights_from_a_server),
    Program("copies", copies.wide_resnet_maps_home),
    Program("allocation", allocation.gpt2_empties_cache_between_chunks),
    Program("gpu_compute", gpu.vit_large_probed_with_gradients),
    Program("gpu_memory", gpu.deit_jitters_whole_pictures),
    Program("gpu_latency", gpu.vit_muon_matrix_by_matrix),
)
SERIES = {1: FIRST, 2: SECOND, 3: THIRD, 4: FOURTH, 5: FIFTH}
PROGRAMS = {program.name: program for programs in SERIES.values() for program in programs}
TIMES, RANGES = "times.json", "nsys/ranges.json"  # files that the passes write in OUT
