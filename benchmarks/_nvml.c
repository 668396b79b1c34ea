/* A library with the names of NVML, of one GPU that answers from a table and takes as long as a driver does.

   Each call and each field takes CALL_US of the processor, the energy counter ENERGY_US: the dearest that were measured
   on an H200 with driver 580.159 (docs/lab/h200.md, 2026-11-27). Layouts: NVML API reference. */

#include <stdio.h>
#include <string.h>
#include <time.h>

enum { CALL_US = 7, ENERGY_US = 4500, MEMORY_TEMPERATURE = 82, ENERGY = 83, NOT_SUPPORTED = 3, UNSIGNED = 1, LONG = 3 };

struct field {
    unsigned id, scope;
    long long timestamp_us, latency_us;
    int type, code;
    union { unsigned whole; unsigned long long longer; } value;
};

static double now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return 1e6 * now.tv_sec + 1e-3 * now.tv_nsec;
}

static int taking(double us)
{
    for (double begin = now_us(); now_us() - begin < us;) {}
    return 0;
}

static int given(unsigned *out, unsigned value) { *out = value; return taking(CALL_US); }
static int named(char *out, unsigned size, const char *name) { snprintf(out, size, "%s", name); return 0; }

int nvmlInitWithFlags(unsigned flags) { (void)flags; return 0; }
int nvmlShutdown(void) { return 0; }
const char *nvmlErrorString(int code) { return code ? "Not Supported" : "Success"; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = 1; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **handle) { *handle = (void *)(1UL + index); return 0; }
int nvmlDeviceGetName(void *gpu, char *out, unsigned size) { (void)gpu; return named(out, size, "H200"); }
int nvmlDeviceGetUUID(void *gpu, char *out, unsigned size) { (void)gpu; return named(out, size, "GPU-0"); }
int nvmlDeviceGetClockInfo(void *gpu, int kind, unsigned *out) { (void)gpu; (void)kind; return given(out, 1980); }
int nvmlDeviceGetTemperature(void *gpu, int kind, unsigned *out) { (void)gpu; (void)kind; return given(out, 54); }
int nvmlDeviceGetEnforcedPowerLimit(void *gpu, unsigned *out) { (void)gpu; return given(out, 700000); }
int nvmlDeviceGetPowerUsage(void *gpu, unsigned *out) { (void)gpu; return given(out, 402000); }

int nvmlDeviceGetCurrentClocksEventReasons(void *gpu, unsigned long long *out)
{
    (void)gpu;
    *out = 4;
    return taking(CALL_US);
}

int nvmlDeviceGetUtilizationRates(void *gpu, unsigned out[2])
{
    (void)gpu;
    out[0] = 97;
    out[1] = 43;
    return taking(CALL_US);
}

int nvmlDeviceGetMemoryInfo(void *gpu, unsigned long long out[3])
{
    (void)gpu;
    out[0] = 141ULL << 30;
    out[2] = 1ULL << 30;
    out[1] = out[0] - out[2];
    return taking(CALL_US);
}

int nvmlDeviceGetFieldValues(void *gpu, int count, struct field *fields)
{
    (void)gpu;
    for (struct field *one = fields; one < fields + count; one++) {
        one->code = one->scope ? NOT_SUPPORTED : 0; /* a card without a module around it */
        one->type = one->id == ENERGY ? LONG : UNSIGNED;
        if (one->id == ENERGY)
            one->value.longer = (unsigned long long)(0.4 * now_us()); /* 400 W */
        else
            one->value.whole = one->id == MEMORY_TEMPERATURE ? 61 : 402000;
        taking(one->id == ENERGY ? ENERGY_US : CALL_US);
    }
    return 0;
}
