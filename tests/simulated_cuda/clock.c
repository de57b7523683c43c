/* The clock: each device works off what is launched, in order, behind a queue of limited length.
 *
 * A launch reaches the device `latency_us` after the call, and blocks while the queue is full. */
#define _GNU_SOURCE
#include "simulated.h"
#include <dlfcn.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { LONGEST_QUEUE = 65536 };
typedef struct {
    double busy_until;
    double done[LONGEST_QUEUE]; /* when the last commands will be done: a ring of queue_length */
    unsigned long commands;
} device;

static device devices[MAX_GPUS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned long launches;
static int blocking, is_lost;
static double loaded_at;
static double (*nvml_run)(double, double);
static int (*nvml_set)(const char *, double);

double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

void wait_until(double time) {
    for (double left; (left = time - now()) > 0;)
        if (left > 3e-4) usleep((useconds_t)((left - 2e-4) * 1e6));
}

double busy_until(int device) { return devices[device].busy_until; }

__attribute__((constructor(103))) static void begin(void) {
    loaded_at = now();
    blocking = getenv("CUDA_LAUNCH_BLOCKING") && atoi(getenv("CUDA_LAUNCH_BLOCKING"));
    if (GET(queue_length) > LONGEST_QUEUE) abort();
}

/* The first device is the card of the simulated NVML, if that is there. */
static void find_card(void) {
    static int looked;
    if (looked++) return;
    void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    if (!library) return;
    nvml_run = (double (*)(double, double))dlsym(library, "simulated_run");
    nvml_set = (int (*)(const char *, double))dlsym(library, "simulated_set");
    void (*idle)(double) = (void (*)(double))dlsym(library, "simulated_idle");
    if (idle) idle(GET(context_w));
}

void forget_queue(void) {
    find_card();
    for (int i = 0; i < MAX_GPUS; i++) devices[i].busy_until = 0;
}

cudaError_t lost(void) {
    if (!is_lost && now() - loaded_at >= GET(lost_at_s)) is_lost = 1;
    if (!is_lost && (double)launches > GET(lost_after_launches)) {
        is_lost = 1;
        if (nvml_set) nvml_set("lost_at_s", 0);
    }
    return is_lost ? cudaErrorLaunchFailure : cudaSuccess;
}

/* Where the device's next command is put; waits for one, if need be. */
static double *place(device *on) {
    double *done = &on->done[on->commands++ % (unsigned long)GET(queue_length)];
    if (*done > now()) {
        note("queue full");
        wait_until(*done);
    }
    return done;
}

static void work(const node *nodes, size_t count, int on_card, double *seconds) {
    double joules = 0;
    *seconds = 0;
    for (size_t i = 0; i < count; i++) {
        line *ran = nodes[i].line;
        ran->count++;
        *seconds += ran->seconds;
        joules += ran->seconds * ran->watts;
    }
    if (on_card && nvml_run && *seconds > 0) nvml_run(*seconds, joules / *seconds);
}

cudaError_t launch(stream *on, const node *nodes, size_t count) {
    if (lost()) return fail(lost());
    for (double until = now() + GET(host_us) * 1e-6; now() < until;) {}
    pthread_mutex_lock(&lock);
    device *d = &devices[on->device];
    double *done = place(d), seconds;
    double start = fmax(now() + GET(latency_us) * 1e-6, fmax(d->busy_until, on->done_at));
    launches++;
    work(nodes, count, on->device == 0, &seconds);
    *done = d->busy_until = on->done_at = start + seconds;
    pthread_mutex_unlock(&lock);
    if (blocking) wait_until(start + seconds);
    return cudaSuccess;
}

cudaError_t mark(stream *on, double *time) {
    if (lost()) return fail(lost());
    pthread_mutex_lock(&lock);
    double *done = place(&devices[on->device]);
    *time = *done = on->done_at = fmax(now() + GET(latency_us) * 1e-6, on->done_at);
    pthread_mutex_unlock(&lock);
    return cudaSuccess;
}

static void add(graph *to, node next) {
    if (to->count >= to->room) to->nodes = realloc(to->nodes, sizeof next * (to->room = 2 * to->room + 64));
    to->nodes[to->count++] = next;
}

cudaError_t run(cudaStream_t handle, const char *name, double seconds, double watts) {
    READY;
    stream *on = stream_of(handle);
    node next = {line_of(name, seconds, watts)};
    if (!on->capture) return launch(on, &next, 1);
    add(on->capture, next);
    return cudaSuccess;
}
