/* Devices: which there are, what they are, their initialisation, and errors. */
#define _GNU_SOURCE
#include "simulated.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

_Thread_local int current;
static _Thread_local cudaError_t last_error;
static int initialised, has_context, forked;
static int visible[MAX_GPUS]; /* CUDA_VISIBLE_DEVICES: the device behind each index */
static int visible_count;

/* --- errors: their texts are the real library's ------------------------------------------- */

cudaError_t fail(cudaError_t error) { return last_error = error; }

cudaError_t cudaPeekAtLastError(void) { return last_error; }

cudaError_t cudaGetLastError(void) {
    cudaError_t error = last_error;
    last_error = lost();
    return error;
}

/* --- initialisation ----------------------------------------------------------------------- */

/* After a fork, a process has no GPU if the one that it comes from had initialised CUDA. */
static void in_fork(void) { forked = initialised; }

static void find_visible(void) {
    const char *list = getenv("CUDA_VISIBLE_DEVICES");
    int gpus = (int)GET(gpus);
    if (!list)
        for (; visible_count < gpus; visible_count++) visible[visible_count] = visible_count;
    for (; list && *list; list = strchr(list, ',') ? strchr(list, ',') + 1 : "") {
        int number = strncmp(list, "GPU-", 4) == 0 ? (int)strtol(list + strlen(list) - 1, NULL, 16) - 1 : atoi(list);
        if (number < 0 || number >= gpus || visible_count >= MAX_GPUS) break; /* as CUDA: the rest is hidden */
        visible[visible_count++] = number;
    }
}

static cudaError_t initialise(void) {
    if (forked) return cudaErrorInitializationError;
    if (GET(driver_version) < CUDART_VERSION / 1000 * 1000) return cudaErrorInsufficientDriver;
    if (initialised) return visible_count ? cudaSuccess : cudaErrorNoDevice;
    initialised = 1;
    pthread_atfork(NULL, NULL, in_fork);
    find_visible();
    note("cuInit");
    wait_until(now() + GET(initialisation_s));
    return visible_count ? cudaSuccess : cudaErrorNoDevice;
}

cudaError_t ready(void) {
    cudaError_t state = initialise();
    if (state || has_context) return state ? state : lost();
    has_context = 1;
    note("context");
    wait_until(now() + GET(context_s));
    forget_queue();
    return lost();
}

/* --- which devices there are -------------------------------------------------------------- */

cudaError_t cudaGetDeviceCount(int *count) {
    cudaError_t state = initialise();
    *count = state ? 0 : visible_count;
    return state ? fail(state) : cudaSuccess;
}

cudaError_t cudaGetDevice(int *number) {
    *number = current;
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int number) {
    READY;
    if (number < 0 || number >= visible_count) return fail(cudaErrorInvalidDevice);
    current = number;
    return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int *version) {
    *version = (int)GET(driver_version);
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *version) {
    *version = CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize(void) {
    READY;
    for (stream *s = streams(); s; s = s->next) {
        if (!s->capture) continue;
        s->capture->broken = 1;
        return fail(cudaErrorStreamCaptureUnsupported);
    }
    wait_until(busy_until(current));
    return lost() ? fail(lost()) : cudaSuccess;
}

/* --- what they are: the sizes of an H100 -------------------------------------------------- */

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *properties, int number) {
    cudaError_t state = initialise();
    if (state) return fail(state);
    *properties = (struct cudaDeviceProp){
        .name = "NVIDIA Simulated GPU", .totalGlobalMem = (size_t)(GET(memory_gb) * 0x1p30),
        .major = (int)GET(compute_capability) / 10, .minor = (int)GET(compute_capability) % 10,
        .multiProcessorCount = 132, .l2CacheSize = 50 << 20, .memoryBusWidth = 5120, .warpSize = 32,
        .maxThreadsPerBlock = 1024, .maxThreadsDim = {1024, 1024, 64}, .maxThreadsPerMultiProcessor = 2048,
        .maxGridSize = {2147483647, 65535, 65535}, .maxBlocksPerMultiProcessor = 32,
        .sharedMemPerBlock = 49152, .sharedMemPerBlockOptin = 232448, .sharedMemPerMultiprocessor = 233472,
        .regsPerBlock = 65536, .regsPerMultiprocessor = 65536, .totalConstMem = 65536,
        .memPitch = 2147483647, .textureAlignment = 512, .canMapHostMemory = 1, .concurrentKernels = 1,
        .unifiedAddressing = 1, .cooperativeLaunch = 1, .asyncEngineCount = 3,
        .pciBusID = 1 + visible[number]};
    properties->uuid.bytes[15] = (char)(visible[number] + 1);
    return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int number) {
    struct cudaDeviceProp properties;
    cudaError_t state = cudaGetDeviceProperties(&properties, number);
    if (state) return state;
    switch (attribute) {
    case cudaDevAttrMultiProcessorCount: *value = properties.multiProcessorCount; break;
    case cudaDevAttrComputeCapabilityMajor: *value = properties.major; break;
    case cudaDevAttrComputeCapabilityMinor: *value = properties.minor; break;
    case cudaDevAttrWarpSize: *value = properties.warpSize; break;
    case cudaDevAttrMaxThreadsPerBlock: *value = properties.maxThreadsPerBlock; break;
    case cudaDevAttrMaxThreadsPerMultiProcessor: *value = properties.maxThreadsPerMultiProcessor; break;
    case cudaDevAttrMaxGridDimX: *value = properties.maxGridSize[0]; break;
    case cudaDevAttrMaxGridDimY: *value = properties.maxGridSize[1]; break;
    case cudaDevAttrMaxGridDimZ: *value = properties.maxGridSize[2]; break;
    case cudaDevAttrMaxSharedMemoryPerBlock: *value = (int)properties.sharedMemPerBlock; break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = (int)properties.sharedMemPerBlockOptin; break;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor: *value = (int)properties.sharedMemPerMultiprocessor; break;
    case cudaDevAttrL2CacheSize: *value = properties.l2CacheSize; break;
    case cudaDevAttrClockRate: *value = (int)(GET(sm_clock_mhz) * 1e3); break;
    default: *value = 0;
    }
    return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char *text, int length, int number) {
    snprintf(text, (size_t)length, "0000:%02x:00.0", 1 + visible[number]);
    return cudaSuccess;
}

cudaError_t cudaDeviceCanAccessPeer(int *can, int from, int to) {
    *can = 0;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest) {
    *least = 0;
    *greatest = -5;
    return cudaSuccess;
}
