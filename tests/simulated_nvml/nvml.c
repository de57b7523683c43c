/* A simulated libnvidia-ml.so.1 with one GPU, GPU-simulated, read by the unmodified pynvml.
 *
 * Simulates, in real time (CLOCK_MONOTONIC) or under a virtual clock (virtual = 1, which only
 * simulated_advance moves):
 * - a queue of work: simulated_run(seconds, watts) starts when what was queued before is done;
 * - true power: relaxes exponentially (rise_s) to that of the work or to idle_w, is capped at
 *   power_cap_w, rises by thermal_w_per_k with a temperature that relaxes in turn (thermal_s), and
 *   fluctuates about it in independent steps of fluctuation_s with SD fluctuation_w;
 * - power readings: each refresh_s, the exact mean of true power over the window_s before (lag_s
 *   earlier), times gain, drifting by gain_drift_per_s, with independent relative noise; field 185
 *   and the plain reading average over average_window_s instead. A refresh may be skipped with
 *   probability skip; from stuck_at_s on there is none;
 * - an energy counter: true energy times counter_gain, in steps of counter_step_s; a read sooner
 *   than counter_loss_below_s after the one before loses counter_loss of the energy between them;
 * - clocks and their targets, ECC and persistence mode, the performance state, memory in use,
 *   temperature, utilisation, the power limit, cumulative throttle times (a share of the
 *   busy time until throttle_until_s), processes, MIG mode, refusals (fail_...) with an NVML error
 *   code, a GPU that is lost at lost_at_s, a library that crashes at its power reading number
 *   crash_at_reading or never returns from number hang_at_reading (0 is its initialisation). Built with -DOLD_DRIVER, newer functions do not exist.
 * - setters, refused with the code fail_setting: the power limit, power_limit_w by itself, between
 *   least_limit_w and most_limit_w; locked clocks, among the supported ones. What they set is kept in
 *   the file that SIMULATED_POINT names, which other processes see as well, else for this process.
 *   Work above the limit draws the limit and takes longer: its power above idle_w falls as time
 *   grows to the power of 1/slowing (a third by default, as if voltage followed the clock). With
 *   limiter_after_s, a burst of that length passes first, and then power is by turns above and below
 *   the limit (limiter_cycle_s, limiter_swing), as an H100's readings are. At a
 *   locked clock below sm_clock_mhz, time grows as the clock falls, and that power falls with its
 *   cube. always_w is work that another process keeps up, as far as readings are concerned;
 * Keys are set by simulated_set, or by the environment (SIMULATED_POWER_CAP_W=...). What is set
 * holds for what is queued or read afterwards.
 *
 * Does not simulate: sensors of more than one GPU, the time that a reading takes, clocks that answer to power
 * or temperature, what a locked memory clock does to time, correlated sensor noise. */
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#ifndef UUID
#define UUID "GPU-simulated"
#define SECOND_UUID "GPU-simulated-2"
#endif

enum { SUCCESS = 0, INVALID = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, SMALL = 7, LOST = 15 };
enum { SM = 1, MEMORY = 2 };

typedef struct { const char *name; double initial, value; } setting;

#define KEYS \
    X(virtual, 0) X(seed, 1) X(idle_w, 60) X(rise_s, 0) X(power_cap_w, 1e9) X(other_w, 0) \
    X(fluctuation_w, 0) X(fluctuation_s, 0.01) X(thermal_w_per_k, 0) X(thermal_s, 30) \
    X(kelvin_per_w, 0.1) X(ambient_c, 30) X(refresh_s, 0.1) X(phase_s, 0) X(window_s, 0.1) \
    X(average_window_s, 1) X(lag_s, 0) X(gain, 1) X(gain_drift_per_s, 0) X(noise, 0) \
    X(quantum_w, 0.001) X(skip, 0) X(stuck_at_s, 1e18) X(counter_gain, 1) X(counter_step_s, 0.1) \
    X(counter_loss, 0) X(counter_loss_below_s, 0.05) X(sw_thermal_share, 0) \
    X(hw_thermal_share, 0) X(brake_share, 0) X(throttle_until_s, 1e18) X(power_limit_w, 700) \
    X(sm_clock_mhz, 1980) X(memory_clock_mhz, 2619) X(ecc, 1) X(persistence, 1) \
    X(performance_state, 0) X(memory_used_bytes, 5e8) X(sm_clock_target_mhz, 1755) \
    X(memory_clock_target_mhz, 2619) X(gpus, 1) X(other_processes, 0) X(own_pid, 1) X(mig, 0) \
    X(lost_at_s, 1e18) X(crash_at_reading, -1) X(hang_at_reading, -1) X(fail_all, 0) X(fail_device, 0) X(fail_instant, 0) X(fail_average, 0) \
    X(fail_plain, 0) X(fail_counter, 0) X(fail_clocks, 0) X(fail_throttle, 0) X(fail_processes, 0) \
    X(fail_modes, 0) X(fail_memory, 0) X(fail_targets, 0) \
    X(least_limit_w, 200) X(most_limit_w, 700) X(fail_limits, 0) X(fail_setting, 0) \
    X(slowing, 1. / 3) X(always_w, 0) X(limiter_after_s, 0) X(limiter_cycle_s, 0.6) \
    X(limiter_swing, 0.1)

enum {
#define X(name, initial) K_##name,
    KEYS
#undef X
    KEY_COUNT
};

static setting settings[] = {
#define X(name, initial) {#name, initial, initial},
    KEYS
#undef X
};
#define GET(name) (settings[K_##name].value)

/* --- true power -------------------------------------------------------------------------- */

/* From `start` on, power and temperature relax to their targets; the rest is their state there. */
typedef struct {
    double start, target, watts, hot, celsius, joules, busy_s, capped_s;
    int busy, capped;
} segment;

static segment *history;
static int segments, room, readings;
static double virtual_now, real_start, busy_until, lost_joules, last_counter_read;
static double *walk; /* energy of the fluctuation after each step, joules */
static int steps, steps_room;

static double now(void) {
    if (GET(virtual)) return virtual_now;
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec - real_start;
}

static double uniform(uint64_t stream, uint64_t index) { /* splitmix64 */
    uint64_t z = (uint64_t)GET(seed) * 0x9E3779B97F4A7C15u + stream * 0xD1B54A32D192ED03u + index;
    for (int round = 0; round < 2; round++) {
        z += 0x9E3779B97F4A7C15u;
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
        z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
        z ^= z >> 31;
    }
    return ((double)(z >> 11) + 0.5) / 9007199254740992.0;
}

static double normal(uint64_t stream, uint64_t index) {
    double radius = sqrt(-2 * log(uniform(stream, 2 * index)));
    return radius * cos(6.283185307179586 * uniform(stream, 2 * index + 1));
}

/* Integral of exp(-x/tau) from 0 to t. */
static double relaxed(double t, double tau) { return tau > 0 ? tau * -expm1(-t / tau) : 0; }
static double remains(double t, double tau) { return tau > 0 ? exp(-t / tau) : 0; }

/* The state of a segment at time t, as the start of a segment that would follow it. */
static segment state_at(const segment *s, double t) {
    segment next = *s;
    double passed = t - s->start, slope = GET(thermal_w_per_k);
    next.start = t;
    next.watts = s->target + (s->watts - s->target) * remains(passed, GET(rise_s));
    next.celsius = s->hot + (s->celsius - s->hot) * remains(passed, GET(thermal_s));
    next.joules = s->joules + s->target * passed + (s->watts - s->target) * relaxed(passed, GET(rise_s))
        + slope * ((s->hot - GET(ambient_c)) * passed + (s->celsius - s->hot) * relaxed(passed, GET(thermal_s)));
    double counted = fmax(0, fmin(t, GET(throttle_until_s)) - s->start);
    next.busy_s += s->busy ? counted : 0;
    next.capped_s += s->capped ? passed : 0;
    return next;
}

static const segment *segment_at(double t) {
    int low = 0, high = segments - 1;
    while (low < high) {
        int middle = (low + high + 1) / 2;
        if (history[middle].start <= t) low = middle; else high = middle - 1;
    }
    return &history[low];
}

static double fluctuation(double t) {
    if (GET(fluctuation_w) == 0) return 0;
    double position = t / GET(fluctuation_s);
    int index = (int)position;
    while (steps <= index + 1) {
        if (steps >= steps_room) walk = realloc(walk, sizeof *walk * (size_t)(steps_room = 2 * steps_room + 1024));
        double step = GET(fluctuation_w) * GET(fluctuation_s);
        walk[steps] = steps ? walk[steps - 1] + step * normal(99, (uint64_t)steps) : 0;
        steps++;
    }
    return walk[index] + (walk[index + 1] - walk[index]) * (position - index);
}

static double energy(double t) {
    if (t <= 0) return (history[0].watts) * t;
    return state_at(segment_at(t), t).joules + fluctuation(t);
}

/* Memory is touched in large steps: page faults would slow each launch to a device that idles. */
static void grow(void) {
    enum { STEP = 1 << 18 };
    history = realloc(history, sizeof *history * (size_t)(room + STEP));
    memset(history + room, 0, sizeof *history * STEP);
    room += STEP;
}

static void append(double start, double watts, int busy, int limited) {
    double total = watts + GET(other_w), target = fmin(total, GET(power_cap_w));
    while (segments && history[segments - 1].start >= start && segments > 1) segments--;
    segment *last = &history[segments - 1];
    if (last->target == target && last->busy == busy && last->capped == (limited || total > target)) return;
    segment next = state_at(last, start);
    next.target = target;
    next.hot = GET(ambient_c) + GET(kelvin_per_w) * target;
    next.busy = busy;
    next.capped = limited || total > target;
    if (segments >= room) grow();
    history[segments++] = next;
}

/* --- what is set by NVML ------------------------------------------------------------------- */

/* 0: as the card is by itself. Tests write the code with which NVML refuses everything. */
typedef struct { double limit_w, sm_mhz, memory_mhz, refused; } point;
static point own_point;

static point point_set(void) {
    const char *path = getenv("SIMULATED_POINT");
    if (!path) return own_point;
    point found = {0};
    int file = open(path, O_RDONLY);
    if (file < 0) return found;
    if (read(file, &found, sizeof found) != sizeof found) found = (point){0};
    close(file);
    return found;
}

static int keep_point(point set) {
    const char *path = getenv("SIMULATED_POINT");
    own_point = set;
    if (!path) return SUCCESS;
    int file = open(path, O_WRONLY | O_CREAT, 0644), kept = pwrite(file, &set, sizeof set, 0) == sizeof set;
    close(file);
    return kept ? SUCCESS : 999;
}

static double limit_w(point set) { return set.limit_w > 0 ? set.limit_w : GET(power_limit_w); }

/* Work at the present point: returns its seconds, and changes its watts. */
static double at_point(double seconds, double *watts, int *limited) {
    point set = point_set();
    double above = *watts - GET(idle_w), allowed = limit_w(set) - GET(idle_w);
    if (above <= 0) return seconds;
    double pace = set.sm_mhz > 0 ? fmin(1, set.sm_mhz / GET(sm_clock_mhz)) : 1;
    seconds /= pace;
    above *= pace * pace * pace;
    *limited = above > allowed;
    if (*limited) {
        seconds *= pow(above / allowed, GET(slowing));
        above = allowed;
    }
    *watts = GET(idle_w) + above;
    return seconds;
}

/* Lets the work that another process keeps up follow the limit that is set now. */
static void follow_point(void) {
    double watts = GET(always_w);
    int limited = 0;
    if (watts <= 0) return;
    at_point(1, &watts, &limited);
    append(now(), watts, 1, limited);
}

/* --- what tests call ---------------------------------------------------------------------- */

void simulated_reset(void) {
    for (int key = 0; key < KEY_COUNT; key++) settings[key].value = settings[key].initial;
    if (!history) grow();
    real_start = 0;
    real_start = now();
    virtual_now = busy_until = lost_joules = 0;
    last_counter_read = -1e18;
    segments = 1;
    steps = readings = 0;
    own_point = (point){0};
    double hot = GET(ambient_c) + GET(kelvin_per_w) * GET(idle_w);
    history[0] = (segment){.target = GET(idle_w), .watts = GET(idle_w), .hot = hot, .celsius = hot};
}

int simulated_set(const char *name, double value) {
    for (int key = 0; key < KEY_COUNT; key++) {
        if (strcmp(settings[key].name, name) != 0) continue;
        settings[key].value = value;
        if (key == K_idle_w && segments == 1) {
            history[0].target = history[0].watts = value;
            history[0].hot = history[0].celsius = GET(ambient_c) + GET(kelvin_per_w) * value;
        }
        return 1;
    }
    return 0;
}

double simulated_now(void) { return now(); }
void simulated_advance(double seconds) { virtual_now += seconds; }
double simulated_true_energy_j(double t) { return energy(t); }
double simulated_steady_energy_j(double t) { return energy(t) - fluctuation(t); }

/* Work above the limit, of which a burst passes: returns when it is done. */
static double run_limited(double start, double seconds, double watts) {
    static double burst_began, last_end;
    double idle = GET(idle_w), limit = limit_w(point_set()), half = GET(limiter_cycle_s) / 2;
    if (start > last_end + 0.05 || start < burst_began) burst_began = start;
    while (seconds > 1e-12) {
        double since = start - burst_began - GET(limiter_after_s), allowed = watts, until = -since;
        if (since > -1e-9) {
            double turn = floor(since / half + 1e-9);
            allowed = fmin(watts, limit * (1 + (fmod(turn, 2) ? 1 : -1) * GET(limiter_swing)));
            until = (turn + 1) * half - since;
        }
        double slower = pow((watts - idle) / (allowed - idle), GET(slowing));
        double length = fmin(until, seconds * slower);
        append(start, allowed, 1, allowed < watts);
        start += length;
        seconds -= length / slower;
    }
    return last_end = start;
}

double simulated_run(double seconds, double watts) {
    double start = fmax(now(), busy_until);
    int limited = 0;
    if (GET(limiter_after_s) > 0 && watts > limit_w(point_set())) {
        busy_until = run_limited(start, seconds, watts);
        append(busy_until, GET(idle_w), 0, 0);
        return busy_until;
    }
    seconds = at_point(seconds, &watts, &limited);
    append(start, watts, 1, limited);
    busy_until = start + seconds;
    append(busy_until, GET(idle_w), 0, 0);
    return busy_until;
}

/* It draws so much when idle from now on. */
void simulated_idle(double watts) {
    settings[K_idle_w].value = watts;
    append(fmax(now(), busy_until), watts, 0, 0);
}

__attribute__((constructor)) static void begin(void) {
    simulated_reset();
    for (int key = 0; key < KEY_COUNT; key++) {
        char name[64] = "SIMULATED_";
        const char *from = settings[key].name;
        for (size_t i = 10; *from && i < 63; from++, i++) name[i] = *from >= 'a' && *from <= 'z' ? *from - 32 : *from;
        if (getenv(name)) simulated_set(settings[key].name, atof(getenv(name)));
    }
}

/* --- NVML --------------------------------------------------------------------------------- */

static int refusal(double specific) {
    if (now() >= GET(lost_at_s)) return LOST;
    if (point_set().refused) return (int)point_set().refused;
    return (int)(GET(fail_all) ? GET(fail_all) : specific);
}

static void fault(int number) {
    if (number == GET(crash_at_reading)) raise(SIGSEGV);
    while (number == GET(hang_at_reading)) pause();
}

static double boxcar(double end, double width) { return (energy(end) - energy(end - width)) / width; }

static unsigned reading(uint64_t stream, double width) {
    fault(++readings);
    follow_point();
    double t = fmin(now(), GET(stuck_at_s));
    int64_t index = (int64_t)floor((t - GET(phase_s)) / GET(refresh_s) + 1e-9);
    while (GET(skip) > 0 && uniform(stream + 50, (uint64_t)index) < GET(skip)) index--;
    double refreshed = (double)index * GET(refresh_s) + GET(phase_s);
    double watts = boxcar(refreshed - GET(lag_s), width) * GET(gain);
    watts *= 1 + GET(gain_drift_per_s) * refreshed;
    watts *= 1 + GET(noise) * normal(stream, (uint64_t)index);
    return (unsigned)(fmax(0, round(watts / GET(quantum_w)) * GET(quantum_w)) * 1e3 + 0.5);
}

int nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    fault(0);
    return SUCCESS;
}

int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }

int nvmlShutdown(void) { return SUCCESS; }

const char *nvmlErrorString(int status) {
    switch (status) {
    case NOT_SUPPORTED: return "Not Supported";
    case 4: return "Insufficient Permissions";
    case NOT_FOUND: return "Not Found";
    case LOST: return "GPU is lost";
    default: return "Unknown Error";
    }
}

int nvmlSystemGetDriverVersion(char *version, unsigned length) {
    snprintf(version, length, "simulated");
    return SUCCESS;
}

int nvmlDeviceGetCount_v2(unsigned *count) {
    *count = (unsigned)GET(gpus);
    return refusal(0);
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) {
    *device = (void *)(uintptr_t)(index + 1);
    return index < GET(gpus) ? refusal(0) : INVALID;
}

int nvmlDeviceGetUUID(void *device, char *uuid, unsigned length) {
    snprintf(uuid, length, "%s", device == (void *)1 ? UUID : SECOND_UUID);
    return refusal(0);
}

int nvmlDeviceGetSerial(void *device, char *serial, unsigned length) {
    snprintf(serial, length, "%d", device == (void *)1 ? 1650523 : 1650524);
    return refusal(0);
}

int nvmlDeviceGetHandleByUUID(const char *uuid, void **device) {
    if (strcmp(uuid, UUID) != 0) return NOT_FOUND;
    *device = (void *)1;
    return refusal(GET(fail_device));
}

int nvmlDeviceGetArchitecture(void *device, unsigned *architecture) {
    (void)device;
    *architecture = 9;  /* Hopper */
    return SUCCESS;
}

int nvmlDeviceGetMigMode(void *device, unsigned *current, unsigned *pending) {
    (void)device;
    *current = *pending = (unsigned)GET(mig);
    return refusal(0);
}

int nvmlDeviceGetPowerUsage(void *device, unsigned *milliwatts) {
    (void)device;
    int status = refusal(GET(fail_plain));
    if (status == SUCCESS) *milliwatts = reading(2, GET(average_window_s));
    return status;
}

int nvmlDeviceGetClockInfo(void *device, unsigned type, unsigned *mhz) {
    (void)device;
    point set = point_set();
    double sm = set.sm_mhz ? set.sm_mhz : GET(sm_clock_mhz);
    *mhz = (unsigned)(type == SM ? sm : set.memory_mhz ? set.memory_mhz : GET(memory_clock_mhz));
    return refusal(GET(fail_clocks));
}

int nvmlDeviceGetClock(void *device, unsigned type, unsigned id, unsigned *mhz) {
    (void)device;
    if (id != 1) return NOT_SUPPORTED; /* NVML_CLOCK_ID_APP_CLOCK_TARGET */
    *mhz = (unsigned)(type == SM ? GET(sm_clock_target_mhz) : GET(memory_clock_target_mhz));
    return refusal(GET(fail_targets));
}

int nvmlDeviceGetEccMode(void *device, unsigned *current, unsigned *pending) {
    (void)device;
    *current = *pending = (unsigned)GET(ecc);
    return refusal(GET(fail_modes));
}

int nvmlDeviceGetPersistenceMode(void *device, unsigned *mode) {
    (void)device;
    *mode = (unsigned)GET(persistence);
    return refusal(GET(fail_modes));
}

int nvmlDeviceGetPerformanceState(void *device, unsigned *state) {
    (void)device;
    *state = (unsigned)GET(performance_state);
    return refusal(GET(fail_modes));
}

int nvmlDeviceGetMemoryInfo(void *device, unsigned long long *memory) {
    (void)device;
    memory[0] = 80ull << 30; /* total, free, used */
    memory[2] = (unsigned long long)GET(memory_used_bytes);
    memory[1] = memory[0] - memory[2];
    return refusal(GET(fail_memory));
}

int nvmlDeviceGetTemperature(void *device, unsigned sensor, unsigned *celsius) {
    (void)device; (void)sensor;
    follow_point();
    *celsius = (unsigned)state_at(segment_at(now()), now()).celsius;
    return refusal(0);
}

int nvmlDeviceGetUtilizationRates(void *device, unsigned *rates) {
    (void)device;
    rates[0] = rates[1] = segment_at(now())->busy ? 100 : 0;
    return refusal(0);
}

int nvmlDeviceGetEnforcedPowerLimit(void *device, unsigned *milliwatts) {
    (void)device;
    *milliwatts = (unsigned)(fmin(limit_w(point_set()), GET(power_cap_w)) * 1e3);
    return refusal(GET(fail_limits));
}

int nvmlDeviceGetPowerManagementLimit(void *device, unsigned *milliwatts) {
    (void)device;
    *milliwatts = (unsigned)round(limit_w(point_set()) * 1e3);
    return refusal(GET(fail_limits));
}

int nvmlDeviceGetPowerManagementDefaultLimit(void *device, unsigned *milliwatts) {
    (void)device;
    *milliwatts = (unsigned)(GET(power_limit_w) * 1e3);
    return refusal(GET(fail_limits));
}

int nvmlDeviceGetPowerManagementLimitConstraints(void *device, unsigned *least, unsigned *most) {
    (void)device;
    *least = (unsigned)(GET(least_limit_w) * 1e3);
    *most = (unsigned)(GET(most_limit_w) * 1e3);
    return refusal(GET(fail_limits));
}

int nvmlDeviceSetPowerManagementLimit(void *device, unsigned milliwatts) {
    (void)device;
    int status = refusal(GET(fail_setting));
    if (status != SUCCESS) return status;
    if (milliwatts < GET(least_limit_w) * 1e3 || milliwatts > GET(most_limit_w) * 1e3) return INVALID;
    point set = point_set();
    set.limit_w = milliwatts / 1e3;
    return keep_point(set);
}

/* The highest first: of the memory its clock and half of it, of the multiprocessors steps of 15 MHz. */
static int clocks(unsigned *count, unsigned *found, unsigned most, unsigned step, unsigned length) {
    int status = refusal(GET(fail_clocks));
    if (status != SUCCESS) return status;
    if (*count < length || !found) { *count = length; return SMALL; }
    for (unsigned i = 0; i < length; i++) found[i] = most - i * step;
    *count = length;
    return SUCCESS;
}

int nvmlDeviceGetSupportedMemoryClocks(void *device, unsigned *count, unsigned *found) {
    (void)device;
    unsigned most = (unsigned)GET(memory_clock_mhz);
    return clocks(count, found, most, most / 2, 2);
}

int nvmlDeviceGetSupportedGraphicsClocks(void *device, unsigned memory, unsigned *count, unsigned *found) {
    (void)device; (void)memory;
    return clocks(count, found, (unsigned)GET(sm_clock_mhz), 15, 100);
}

/* Locks a clock; 0 releases it. */
static int lock_clock(int type, unsigned mhz) {
    int status = refusal(GET(fail_setting));
    if (status != SUCCESS) return status;
    point set = point_set();
    if (type == SM) set.sm_mhz = mhz; else set.memory_mhz = mhz;
    return keep_point(set);
}

int nvmlDeviceSetGpuLockedClocks(void *device, unsigned least, unsigned most) {
    (void)device;
    return least <= most ? lock_clock(SM, most) : INVALID;
}

int nvmlDeviceResetGpuLockedClocks(void *device) {
    (void)device;
    return lock_clock(SM, 0);
}

int nvmlDeviceSetMemoryLockedClocks(void *device, unsigned least, unsigned most) {
    (void)device;
    return least <= most ? lock_clock(MEMORY, most) : INVALID;
}

int nvmlDeviceResetMemoryLockedClocks(void *device) {
    (void)device;
    return lock_clock(MEMORY, 0);
}

typedef struct { unsigned pid; unsigned long long bytes; unsigned gpu, compute; } process;

int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *count, process *found) {
    (void)device;
    int status = refusal(GET(fail_processes));
    unsigned all = 1 + (unsigned)GET(other_processes);
    if (status != SUCCESS) return status;
    if (*count < all) { *count = all; return SMALL; }
    for (unsigned i = 0; i < all; i++) found[i] = (process){.pid = i || !GET(own_pid) ? i + 1 : (unsigned)getpid()};
    *count = all;
    return SUCCESS;
}

/* --- what only PyTorch asks, for its message when memory runs out ----------------------------- */

int nvmlSystemGetCudaDriverVersion_v2(int *version) {
    *version = 13020;
    return SUCCESS;
}

int nvmlDeviceGetHandleByPciBusId_v2(const char *bus, void **device) {
    (void)bus;
    return nvmlDeviceGetHandleByIndex_v2(0, device);
}

int nvmlDeviceGetComputeRunningProcesses(void *device, unsigned *count, process *found) {
    return nvmlDeviceGetComputeRunningProcesses_v3(device, count, found);
}

int nvmlDeviceGetNvLinkRemoteDeviceType(void) { return NOT_SUPPORTED; }
int nvmlDeviceGetNvLinkRemotePciInfo_v2(void) { return NOT_SUPPORTED; }

#ifndef OLD_DRIVER
typedef struct {
    unsigned field, scope;
    long long timestamp, latency;
    unsigned type, status;
    union { double d; unsigned ui; unsigned long long ull; } value;
} field_value;

static void field(field_value *f) {
    segment s = state_at(segment_at(now()), now());
    f->status = (unsigned)refusal(0);
    switch (f->field) {
    case 186: f->status = (unsigned)refusal(GET(fail_instant)); f->value.ui = reading(1, GET(window_s)); return;
    case 185: f->status = (unsigned)refusal(GET(fail_average)); f->value.ui = reading(2, GET(average_window_s)); return;
    case 74: f->value.ull = (unsigned long long)(s.capped_s * 1e9); break;
    case 269: f->value.ull = (unsigned long long)(s.busy_s * GET(sw_thermal_share) * 1e9); break;
    case 270: f->value.ull = (unsigned long long)(s.busy_s * GET(hw_thermal_share) * 1e9); break;
    case 271: f->value.ull = (unsigned long long)(s.busy_s * GET(brake_share) * 1e9); break;
    default: f->status = NOT_SUPPORTED; return;
    }
    f->type = 3;
    f->status = (unsigned)refusal(GET(fail_throttle));
}

int nvmlDeviceGetFieldValues(void *device, int count, field_value *values) {
    (void)device;
    int status = refusal(0);
    for (int i = 0; status == SUCCESS && i < count; i++) field(&values[i]);
    return status;
}

int nvmlDeviceGetTotalEnergyConsumption(void *device, unsigned long long *millijoules) {
    (void)device;
    int status = refusal(GET(fail_counter));
    if (status != SUCCESS) return status;
    follow_point();
    double t = now(), since = t - last_counter_read;
    if (since < GET(counter_loss_below_s)) lost_joules += GET(counter_loss) * (energy(t) - energy(t - since));
    last_counter_read = t;
    double stepped = floor(t / GET(counter_step_s) + 1e-9) * GET(counter_step_s);
    double joules = 1e6 + GET(counter_gain) * energy(stepped) - lost_joules;
    *millijoules = (unsigned long long)(joules * 1e3);
    return SUCCESS;
}
#endif
