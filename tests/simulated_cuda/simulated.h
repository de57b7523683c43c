/* What the parts of the simulated CUDA share. README.md says what is simulated. */
#ifndef SIMULATED_H
#define SIMULATED_H
#include <cuda_runtime_api.h>
#include <stdint.h>

/* --- settings.c: the environment variable of `kernel_us` is SIMULATED_KERNEL_US ------------- */

#define KEYS \
    X(gpus, 1) X(driver_version, CUDART_VERSION) X(compute_capability, 90) X(oldest_architecture, 75) \
    X(memory_gb, 80) X(context_gb, 0.5) X(other_memory_gb, 0) X(initialisation_s, 0) X(context_s, 0) \
    X(queue_length, 1024) X(latency_us, 2) X(host_us, 0) X(kernel_scale, 1) X(kernel_us, 2) \
    X(thread_ps, 20) X(float32_tflops, 50) X(tensor_tflops, 400) X(memory_tb_per_s, 2.8) \
    X(host_link_gb_per_s, 25) X(pageable_gb_per_s, 10) X(sm_clock_mhz, 1980) X(kernel_w, 300) \
    X(matrix_w, 550) X(copy_w, 250) X(spin_w, 120) X(context_w, 90) X(lost_at_s, 1e18) X(lost_after_launches, 1e18) X(trace_stubs, 0)

enum {
#define X(name, initial) K_##name,
    KEYS
#undef X
    KEY_COUNT
};
extern double settings[KEY_COUNT];
#define GET(name) (settings[K_##name])

/* What SIMULATED_KERNELS says of a kernel; `seconds` is negative where it says nothing. */
typedef struct { double seconds, watts; } rule;
rule rule_of(const char *kernel);

/* --- record.c: what really ran -------------------------------------------------------------- */

/* One line of the record: launches of `name` that took `seconds` and drew `watts` each. */
typedef struct {
    char name[224];
    double seconds, watts;
    uint64_t count;
    const char *key; /* the caller's own pointer to the name: what lines are found by */
} line;
line *line_of(const char *name, double seconds, double watts);
void note(const char *event); /* counts something that takes no time on the device */
int stub(const char *call); /* counts a call of a function that is not simulated; returns 0 */

/* --- device.c: devices, initialisation, errors ---------------------------------------------- */

#define MAX_GPUS 8
extern _Thread_local int current; /* device of this thread */
cudaError_t fail(cudaError_t error); /* remembers it for cudaGetLastError */
cudaError_t ready(void); /* creates the context, if need be; else says what is wrong with the GPU */
#define READY do { cudaError_t state = ready(); if (state) return fail(state); } while (0)

/* --- clock.c: the clock and the launch queue ------------------------------------------------ */

typedef struct { line *line; } node;
typedef struct { node *nodes; size_t count, room; int broken; uint64_t id; } graph;
typedef struct CUstream_st {
    int device, priority;
    double done_at; /* when what was put into it so far will be done */
    graph *capture; /* what it is captured into */
    struct CUstream_st *next;
} stream;
stream *stream_of(cudaStream_t handle); /* the default stream of the current device, if it is 0 */
stream *streams(void); /* all of them, linked by `next` */

double now(void);
void wait_until(double time);
cudaError_t lost(void); /* the error of a device that is lost, else success */
/* A launch: one place of the queue, for the sequence of its kernels. */
cudaError_t launch(stream *on, const node *nodes, size_t count);
cudaError_t run(cudaStream_t on, const char *name, double seconds, double watts);
cudaError_t mark(stream *on, double *time); /* the time at which the device comes to it */
double busy_until(int device);
void forget_queue(void);

/* --- kernels.c: what work costs -------------------------------------------------------------- */

typedef enum { FLOAT64, FLOAT32, TENSOR32, TENSOR16 } arithmetic;
/* A kernel of cuBLAS or cuDNN, by a roofline. */
cudaError_t roofline(cudaStream_t on, const char *name, double flops, double bytes, arithmetic how);
double memory_s(double bytes);

#endif
