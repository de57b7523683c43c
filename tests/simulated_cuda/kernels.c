/* Kernels: their names, as the wheel registers them, and what they cost. */
#define _GNU_SOURCE
#include "simulated.h"
#include <dlfcn.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* --- registration ------------------------------------------------------------------------- */

typedef struct { const void *function; const char *name; int spins; } kernel;
static kernel *kernels; /* a hash table of functions */
static size_t kernel_count, room;

static kernel *slot(kernel *table, size_t size, const void *function) {
    size_t i = ((uintptr_t)function * 0x9E3779B97F4A7C15u >> 20) % size;
    while (table[i].function && table[i].function != function) i = (i + 1) % size;
    return &table[i];
}

static void grow(void) {
    size_t larger = 2 * room + 16384;
    kernel *table = calloc(larger, sizeof *table);
    for (size_t i = 0; i < room; i++)
        if (kernels[i].function) *slot(table, larger, kernels[i].function) = kernels[i];
    free(kernels);
    kernels = table;
    room = larger;
}

void __cudaRegisterFunction(
    void **binary, const char *function, char *device_function, const char *name, int limit, void *thread,
    void *block, void *block_size, void *grid_size, int *warp) {
    if (2 * kernel_count >= room) grow();
    kernel *found = slot(kernels, room, function);
    if (!found->function) kernel_count++;
    *found = (kernel){function, name, strstr(name, "spin_kernel") != NULL};
}

void **__cudaRegisterFatBinary(void *binary) {
    static void *handle;
    return &handle;
}

void __cudaRegisterFatBinaryEnd(void **binary) { (void)binary; }
void __cudaUnregisterFatBinary(void **binary) { (void)binary; }
void __cudaRegisterVar(void) {}

cudaError_t __cudaGetKernel(void **found, const void *function) {
    *found = (void *)function;
    return cudaSuccess;
}

/* --- what work costs ---------------------------------------------------------------------- */

double memory_s(double bytes) { return bytes / (GET(memory_tb_per_s) * 1e12); }

/* Unless SIMULATED_KERNELS says otherwise. */
static cudaError_t timed(cudaStream_t on, const char *name, double seconds, double watts) {
    rule set = rule_of(name);
    if (set.seconds >= 0) seconds = set.seconds, watts = set.watts;
    return run(on, name, seconds * GET(kernel_scale), watts);
}

cudaError_t roofline(cudaStream_t on, const char *name, double flops, double bytes, arithmetic how) {
    static const double relative[] = {[FLOAT64] = 0.5, [FLOAT32] = 1, [TENSOR32] = 0.5, [TENSOR16] = 1};
    double tflops = relative[how] * (how >= TENSOR32 ? GET(tensor_tflops) : GET(float32_tflops));
    double seconds = GET(kernel_us) * 1e-6 + fmax(flops / (tflops * 1e12), memory_s(bytes));
    return timed(on, name, seconds, GET(matrix_w));
}

/* --- launches ----------------------------------------------------------------------------- */

static _Thread_local struct { dim3 grid, block; size_t shared; cudaStream_t on; } configuration;

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, struct CUstream_st *on) {
    configuration.grid = grid;
    configuration.block = block;
    configuration.shared = shared;
    configuration.on = on;
    return 0;
}

cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared, void *on) {
    *grid = configuration.grid;
    *block = configuration.block;
    *shared = configuration.shared;
    *(cudaStream_t *)on = configuration.on;
    return cudaSuccess;
}

cudaError_t cudaLaunchKernel(
    const void *function, dim3 grid, dim3 block, void **arguments, size_t shared, cudaStream_t on) {
    static const kernel unknown = {NULL, "unknown kernel", 0};
    READY;
    if (GET(compute_capability) < GET(oldest_architecture)) return fail(cudaErrorNoKernelImageForDevice);
    const kernel *found = room ? slot(kernels, room, function) : &unknown;
    if (!found->function) found = &unknown;
    if (found->spins) { /* torch.cuda._sleep(cycles) */
        double cycles = (double)*(const long long *)arguments[0];
        return run(on, found->name, cycles / (GET(sm_clock_mhz) * 1e6), GET(spin_w));
    }
    double threads = (double)grid.x * grid.y * grid.z * block.x * block.y * block.z;
    double seconds = GET(kernel_us) * 1e-6 + threads * GET(thread_ps) * 1e-12;
    return timed(on, found->name, seconds, GET(kernel_w));
}

cudaError_t __cudaLaunchKernel(
    void *function, dim3 grid, dim3 block, void **arguments, size_t shared, cudaStream_t on) {
    return cudaLaunchKernel(function, grid, block, arguments, shared, on);
}

cudaError_t cudaLaunchCooperativeKernel(
    const void *function, dim3 grid, dim3 block, void **arguments, size_t shared, cudaStream_t on) {
    return cudaLaunchKernel(function, grid, block, arguments, shared, on);
}

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t *how, const void *function, void **arguments) {
    return cudaLaunchKernel(function, how->gridDim, how->blockDim, arguments, how->dynamicSmemBytes, how->stream);
}

/* --- what is asked of kernels ------------------------------------------------------------- */

cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *attributes, const void *function) {
    READY;
    if (GET(compute_capability) < GET(oldest_architecture)) return fail(cudaErrorNoKernelImageForDevice);
    int version = (int)GET(compute_capability);
    *attributes = (struct cudaFuncAttributes){
        .maxThreadsPerBlock = 1024, .numRegs = 32, .binaryVersion = version, .ptxVersion = version};
    return cudaSuccess;
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
    int *blocks, const void *function, int threads, size_t shared, unsigned flags) {
    *blocks = threads > 0 && threads <= 1024 ? 2048 / threads : 2;
    return cudaSuccess;
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(
    int *blocks, const void *function, int threads, size_t shared) {
    return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, function, threads, shared, 0);
}

cudaError_t cudaFuncSetAttribute(const void *function, enum cudaFuncAttribute attribute, int value) {
    return cudaSuccess;
}

cudaError_t cudaGetSymbolAddress(void **address, const void *symbol) {
    static char space[1 << 16];
    *address = space;
    return cudaSuccess;
}

static int unknown_driver_function(void) { return stub("not simulated: a function of the driver"); }

cudaError_t cudaGetDriverEntryPointByVersion(
    const char *symbol, void **function, unsigned version, unsigned long long flags,
    enum cudaDriverEntryPointQueryResult *result) {
    *function = dlsym(RTLD_DEFAULT, symbol);
    if (!*function) *function = (void *)unknown_driver_function;
    if (result) *result = cudaDriverEntryPointSuccess;
    return cudaSuccess;
}

/* --- the driver --------------------------------------------------------------------------- */

int cuDevicePrimaryCtxGetState(int number, unsigned *flags, int *active) {
    *flags = 0;
    *active = 1;
    return 0;
}

int cuCtxGetCurrent(void **context) {
    static int one;
    *context = &one;
    return 0;
}

int cuLogsRegisterCallback(void) { return 0; } /* the driver has nothing to log */
int cuLogsUnregisterCallback(void) { return 0; }

int cuGetErrorString(int error, const char **text) {
    *text = cudaGetErrorString((cudaError_t)error);
    return 0;
}
