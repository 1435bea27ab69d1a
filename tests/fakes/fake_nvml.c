/* NVIDIA's management library for tests: two GPUs with known figures, no driver.

Environment, read at nvmlInit:
  FAKE_NVML_FAIL      the function of this name is refused, with
  FAKE_NVML_ERROR     this number (3: not supported)
  FAKE_NVML_LOST_MS   the second GPU is lost so many milliseconds later
  FAKE_NVML_NO_INIT   nvmlInit fails: no driver
Power is constant (500 and 250 W) and the energy counter runs with the clock. The first GPU has GPM
but no NVLink, the second GPU has no GPM. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef int Return;
typedef struct { int number; const char *uuid; unsigned watts; } Device;

enum { SUCCESS = 0, INVALID = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, NO_DRIVER = 9, LOST = 15 };

static Device devices[2] = {
    {0, "GPU-00000000-0000-0000-0000-00000000000a", 500},
    {1, "GPU-00000000-0000-0000-0000-00000000000b", 250},
};
static const char *fail;
static int fail_with;
static double lost_at;
int fake_nvml_open;    /* inits without a shutdown */
int fake_nvml_samples; /* GPM samples that were not freed */

static double now_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

static Return answer(const char *function, Device *device) {
    if (device->number == 1 && lost_at && now_s() > lost_at) return LOST;
    return fail && strcmp(fail, function) == 0 ? fail_with : SUCCESS;
}
#define ANSWER(device) do { Return r = answer(__func__, device); if (r) return r; } while (0)

Return nvmlInitWithFlags(unsigned flags) {
    const char *error = getenv("FAKE_NVML_ERROR"), *lost = getenv("FAKE_NVML_LOST_MS");
    if (getenv("FAKE_NVML_NO_INIT")) return NO_DRIVER;
    fail = getenv("FAKE_NVML_FAIL");
    fail_with = error ? atoi(error) : NOT_SUPPORTED;
    lost_at = lost ? now_s() + atof(lost) * 1e-3 : 0;
    fake_nvml_open++;
    return SUCCESS;
}
Return nvmlShutdown(void) { fake_nvml_open--; return SUCCESS; }
const char *nvmlErrorString(Return r) {
    return r == LOST ? "GPU is lost" : r == NOT_SUPPORTED ? "Not Supported" : "refused";
}

Return nvmlDeviceGetHandleByUUID(const char *uuid, Device **device) {
    for (int i = 0; i < 2; i++)
        if (strcmp(uuid, devices[i].uuid) == 0) { *device = &devices[i]; return SUCCESS; }
    return NOT_FOUND;
}
Return nvmlDeviceGetName(Device *d, char *name, unsigned length) {
    snprintf(name, length, "Fake %d", d->number);
    return SUCCESS;
}

Return nvmlDeviceGetUtilizationRates(Device *d, unsigned *rates) {
    ANSWER(d); rates[0] = 90 - d->number; rates[1] = 40; return SUCCESS;
}
Return nvmlDeviceGetMemoryInfo(Device *d, unsigned long long *total_free_used) {
    ANSWER(d); total_free_used[2] = 30000000000ull; return SUCCESS;
}
Return nvmlDeviceGetPowerUsage(Device *d, unsigned *milliwatts) {
    ANSWER(d); *milliwatts = d->watts * 1000; return SUCCESS;
}
Return nvmlDeviceGetTotalEnergyConsumption(Device *d, unsigned long long *millijoules) {
    ANSWER(d); *millijoules = (unsigned long long)(now_s() * d->watts * 1000); return SUCCESS;
}
Return nvmlDeviceGetTemperature(Device *d, int sensor, unsigned *celsius) {
    ANSWER(d); *celsius = sensor == 0 ? 55 : 0; return SUCCESS;
}
Return nvmlDeviceGetClockInfo(Device *d, int which, unsigned *mhz) {
    ANSWER(d); *mhz = which == 1 ? 1980 : which == 2 ? 3201 : 0; return SUCCESS;
}
Return nvmlDeviceGetCurrentClocksEventReasons(Device *d, unsigned long long *bits) {
    ANSWER(d); *bits = d->number == 0 ? 0x4 : 0; return SUCCESS; /* 4: the power cap */
}

typedef struct { unsigned id; Return result; double value; char *names[3]; } Metric;
typedef struct { unsigned version, count; void *a, *b; Metric metrics[]; } Request;

Return nvmlGpmQueryDeviceSupport(Device *d, unsigned *version_supported) {
    ANSWER(d); version_supported[1] = d->number == 0; return SUCCESS;
}
Return nvmlGpmSampleAlloc(double **sample) {
    fake_nvml_samples++; *sample = calloc(1, sizeof(double)); return SUCCESS;
}
Return nvmlGpmSampleFree(double *sample) { fake_nvml_samples--; free(sample); return SUCCESS; }
Return nvmlGpmSampleGet(Device *d, double *sample) { ANSWER(d); *sample = now_s(); return SUCCESS; }
Return nvmlGpmMetricsGet(Request *request) {
    if (request->version != 1 || *(double *)request->a >= *(double *)request->b) return INVALID;
    for (unsigned i = 0; i < request->count; i++) {
        Metric *metric = &request->metrics[i];
        metric->result = metric->id >= 60 ? NOT_SUPPORTED : SUCCESS; /* NVLink */
        metric->value = metric->id; /* 2 % of the SMs, ... */
    }
    return SUCCESS;
}
