/* A simulated libnvidia-ml.so.1 with one GPU, to be read by the unmodified pynvml.
 *
 * Simulates: instantaneous power (field 186) that refreshes every 100 ms and alternates between
 * 99 % and 101 % of SIMULATED_POWER_W; an energy counter that steps with it, times
 * SIMULATED_COUNTER_GAIN. SIMULATED_FAULT may be no_device, no_field, no_counter or no_permission.
 * Does not simulate: averaging windows, rise times, clocks, temperature. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { SUCCESS = 0, NOT_SUPPORTED = 3, NO_PERMISSION = 4, NOT_FOUND = 6, POWER_INSTANT = 186 };

typedef struct {
    unsigned field, scope;
    long long timestamp, latency;
    unsigned type, status;
    union { double d; unsigned ui; unsigned long long ull; } value;
} field_value;

static int fault(const char *name) {
    const char *set = getenv("SIMULATED_FAULT");
    return set && strcmp(set, name) == 0;
}

static double number(const char *name, double otherwise) {
    const char *set = getenv(name);
    return set ? atof(set) : otherwise;
}

static long long refresh(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 10LL + now.tv_nsec / 100000000LL;
}

int nvmlInitWithFlags(unsigned flags) { (void)flags; return SUCCESS; }

int nvmlShutdown(void) { return SUCCESS; }

const char *nvmlErrorString(int status) {
    switch (status) {
    case NOT_SUPPORTED: return "Not Supported";
    case NO_PERMISSION: return "Insufficient Permissions";
    case NOT_FOUND: return "Not Found";
    default: return "Unknown Error";
    }
}

int nvmlDeviceGetHandleByUUID(const char *uuid, void **device) {
    if (fault("no_device") || strcmp(uuid, "GPU-simulated") != 0) return NOT_FOUND;
    *device = (void *)1;
    return SUCCESS;
}

int nvmlDeviceGetFieldValues(void *device, int count, field_value *values) {
    (void)device;
    if (fault("no_permission")) return NO_PERMISSION;
    for (int i = 0; i < count; i++) {
        if (values[i].field != POWER_INSTANT || fault("no_field")) {
            values[i].status = NOT_SUPPORTED;
            continue;
        }
        double side = refresh() % 2 ? 1.01 : 0.99;
        values[i].status = SUCCESS;
        values[i].value.ui = (unsigned)(number("SIMULATED_POWER_W", 300) * side * 1e3 + 0.5);
    }
    return SUCCESS;
}

int nvmlDeviceGetTotalEnergyConsumption(void *device, unsigned long long *millijoules) {
    (void)device;
    if (fault("no_counter")) return NOT_SUPPORTED;
    double joules = number("SIMULATED_POWER_W", 300) * number("SIMULATED_COUNTER_GAIN", 1) * 0.1;
    *millijoules = (unsigned long long)(joules * (double)refresh() * 1e3);
    return SUCCESS;
}
