"""Readings of one GPU from NVIDIA's driver, through NVML. Called by profiling.recording.sampler.

NVML's numbering is not PyTorch's (CUDA_VISIBLE_DEVICES, order by speed), so a GPU is found by UUID.
https://docs.nvidia.com/deploy/nvml-api/
"""

import logging
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import combinations

import pynvml
from pynvml import NVMLError

log = logging.getLogger(__name__)

ENERGY = "energy_j"  # a counter since the driver was loaded; all others are momentary values
MEBIBYTE = 1 << 20
# NVML's id of a GPM metric -> our name, and the factor from its unit to ours
GPM_METRICS = {
    pynvml.NVML_GPM_METRIC_SM_UTIL: ("sm_active_percent", 1),
    pynvml.NVML_GPM_METRIC_SM_OCCUPANCY: ("sm_occupancy_percent", 1),
    pynvml.NVML_GPM_METRIC_ANY_TENSOR_UTIL: ("tensor_active_percent", 1),
    pynvml.NVML_GPM_METRIC_DRAM_BW_UTIL: ("dram_active_percent", 1),
    pynvml.NVML_GPM_METRIC_PCIE_TX_PER_SEC: ("pcie_tx_bytes_per_s", MEBIBYTE),
    pynvml.NVML_GPM_METRIC_PCIE_RX_PER_SEC: ("pcie_rx_bytes_per_s", MEBIBYTE),
    pynvml.NVML_GPM_METRIC_NVLINK_TOTAL_TX_PER_SEC: ("nvlink_tx_bytes_per_s", MEBIBYTE),
    pynvml.NVML_GPM_METRIC_NVLINK_TOTAL_RX_PER_SEC: ("nvlink_rx_bytes_per_s", MEBIBYTE),
}
# metric -> bits of NVML's clock-event reasons that hold the clock down
THROTTLES = {
    "throttle_power_percent": pynvml.nvmlClocksEventReasonSwPowerCap
    | pynvml.nvmlClocksEventReasonHwPowerBrakeSlowdown,
    "throttle_thermal_percent": pynvml.nvmlClocksEventReasonSwThermalSlowdown
    | pynvml.nvmlClocksEventReasonHwThermalSlowdown,
    "throttle_slowdown_percent": pynvml.nvmlClocksEventReasonHwSlowdown,
}
LOST = (
    pynvml.NVML_ERROR_GPU_IS_LOST,
    pynvml.NVML_ERROR_RESET_REQUIRED,
    pynvml.NVML_ERROR_GPU_NOT_FOUND,
    pynvml.NVML_ERROR_UNINITIALIZED,
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED,
)
Handle = object  # a c_nvmlDevice_t, opaque to us
Sample = object  # a c_nvmlGpmSample_t, opaque too
Reading = Callable[[Handle], float]


def throttle_reading(bits: int) -> Reading:
    """A reading that is 100 while the clock is held down for one of the reasons in `bits`, else 0.

    Its mean over samples is the share of time in per cent.
    """
    return lambda gpu: 100.0 * bool(pynvml.nvmlDeviceGetCurrentClocksEventReasons(gpu) & bits)


READINGS: dict[str, Reading] = {
    "util_percent": lambda gpu: pynvml.nvmlDeviceGetUtilizationRates(gpu).gpu,
    "memory_bytes": lambda gpu: pynvml.nvmlDeviceGetMemoryInfo(gpu).used,
    # on Ampere and newer the driver's own mean over a second: it lags behind a run's start
    "power_w": lambda gpu: pynvml.nvmlDeviceGetPowerUsage(gpu) / 1e3,
    ENERGY: lambda gpu: pynvml.nvmlDeviceGetTotalEnergyConsumption(gpu) / 1e3,
    "temperature_c": lambda gpu: pynvml.nvmlDeviceGetTemperature(gpu, pynvml.NVML_TEMPERATURE_GPU),
    "sm_clock_mhz": lambda gpu: pynvml.nvmlDeviceGetClockInfo(gpu, pynvml.NVML_CLOCK_SM),
    "memory_clock_mhz": lambda gpu: pynvml.nvmlDeviceGetClockInfo(gpu, pynvml.NVML_CLOCK_MEM),
    **{name: throttle_reading(bits) for name, bits in THROTTLES.items()},
}


def driver_version() -> str | None:
    """Version of NVIDIA's driver, or None if there is no driver or it does not say."""
    with suppress(NVMLError):
        pynvml.nvmlInit()
        try:
            return str(pynvml.nvmlSystemGetDriverVersion())
        finally:
            pynvml.nvmlShutdown()
    return None


def are_linked(uuids: Sequence[str]) -> bool:
    """Whether NVLink connects each of these GPUs with all others; False if NVML does not say."""
    nvlink = pynvml.NVML_P2P_CAPS_INDEX_NVLINK
    with suppress(NVMLError):
        pynvml.nvmlInit()
        try:
            pairs = combinations(map(handle_of, uuids), 2)
            states = [pynvml.nvmlDeviceGetP2PStatus(*pair, nvlink) for pair in pairs]
            return all(state == pynvml.NVML_P2P_STATUS_OK for state in states)
        finally:
            pynvml.nvmlShutdown()
    return False


class Activity:
    """Activity of the chip's parts since the last sample, by NVML's GPM: Hopper and newer.

    Calling it gives metric -> value, nothing at the first call. Raises NVMLError on older GPUs.
    """

    def __init__(self) -> None:
        self.request = pynvml.c_nvmlGpmMetricsGet_t(version=pynvml.NVML_GPM_METRICS_GET_VERSION)
        self.request.numMetrics = len(GPM_METRICS)
        for slot, metric in zip(self.request.metrics, GPM_METRICS, strict=False):
            slot.metricId = metric
        self.before: Sample | None = None
        self.now: Sample | None = None
        self.refused: set[str] = set()

    def __call__(self, gpu: Handle) -> dict[str, float]:
        if self.now is None:
            if not pynvml.nvmlGpmQueryDeviceSupport(gpu).isSupportedDevice:
                raise NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
            self.before, self.now = pynvml.nvmlGpmSampleAlloc(), pynvml.nvmlGpmSampleAlloc()
            pynvml.nvmlGpmSampleGet(gpu, self.now)
            return {}
        self.before, self.now = self.now, self.before
        pynvml.nvmlGpmSampleGet(gpu, self.now)
        self.request.sample1, self.request.sample2 = self.before, self.now
        pynvml.nvmlGpmMetricsGet(self.request)
        values = {}
        for slot, (name, unit) in zip(self.request.metrics, GPM_METRICS.values(), strict=False):
            if slot.nvmlReturn == pynvml.NVML_SUCCESS and not math.isnan(slot.value):
                values[name] = slot.value * unit
            elif slot.nvmlReturn != pynvml.NVML_SUCCESS and name not in self.refused:
                self.refused.add(name)
                log.info("gpu_metrics: no %s", name)
        return values

    def close(self) -> None:
        for sample in (self.before, self.now):
            if sample is not None:
                pynvml.nvmlGpmSampleFree(sample)


class Gpu:
    """One GPU. A reading that its driver refuses is left out of a sample, and logged once."""

    def __init__(self, uuid: str):
        """Open the GPU. Raises NVMLError if NVML does not know the UUID."""
        self.handle = handle_of(uuid)
        self.name = pynvml.nvmlDeviceGetName(self.handle)
        self.activity = Activity()
        self.refused: set[str] = set()
        self.lost = False

    def sample(self) -> dict[str, float]:
        """Metric -> value for all that can be read now; empty once the GPU is lost.

        Units are in the names, which lack the prefix `gpu/`.
        """
        values: dict[str, float] = {}
        if self.lost:
            return values
        for name, reading in READINGS.items():
            with self.log_refusal(name):
                values[name] = reading(self.handle)
        with self.log_refusal("activity"):
            values |= self.activity(self.handle)
        return {} if self.lost else values

    @contextmanager
    def log_refusal(self, what: str) -> Iterator[None]:
        """Catch NVML's errors within the block, and log the first one for each reading `what`.

        A reading that was refused is tried again for the next sample: the answer may be another.
        """
        try:
            yield
        except NVMLError as error:
            if error.value in LOST and not self.lost:
                self.lost = True
                log.warning(
                    "gpu_metrics: %s no longer answers (%s); its metrics end here", self.name, error
                )
            elif not self.lost and what not in self.refused:
                self.refused.add(what)
                log.info(
                    "gpu_metrics: for %s the driver does not report %s (%s)", self.name, what, error
                )

    def close(self) -> None:
        with suppress(NVMLError):
            self.activity.close()


def handle_of(uuid: str) -> Handle:
    """NVML's handle of a GPU, or of a slice of one. `uuid` is as PyTorch writes it, without NVML's
    prefix. Raises NVMLError if NVML does not know it."""
    try:
        return pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid}")
    except pynvml.NVMLError_NotFound:
        return pynvml.nvmlDeviceGetHandleByUUID(f"MIG-{uuid}")  # a slice of a GPU
