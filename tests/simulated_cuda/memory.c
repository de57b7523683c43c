/* Memory: of limited size on each device, and holding what the host copied to it; pinned on the host. */
#define _GNU_SOURCE
#include "simulated.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define PINNED (-1)
typedef struct { char *start; size_t bytes; int device; } block; /* of a device, or PINNED */
static block *blocks;
static size_t block_count, room, used[MAX_GPUS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static size_t capacity(void) {
    double gib = GET(memory_gb) - GET(context_gb) - GET(other_memory_gb);
    return gib > 0 ? (size_t)(gib * 0x1p30) : 0;
}

static void add(void *start, size_t bytes, int device) {
    if (block_count >= room) blocks = realloc(blocks, sizeof *blocks * (room = 2 * room + 64));
    blocks[block_count++] = (block){start, bytes, device};
}

/* The block that an address is in, else NULL: it is in pageable memory of the host. */
static block *block_at(const void *address) {
    for (size_t i = 0; i < block_count; i++) {
        size_t offset = (size_t)((const char *)address - blocks[i].start);
        if ((const char *)address >= blocks[i].start && offset < blocks[i].bytes) return &blocks[i];
    }
    return NULL;
}

cudaError_t cudaMalloc(void **address, size_t bytes) {
    READY;
    size_t rounded = (bytes + 0x1fffff) & ~(size_t)0x1fffff;
    cudaError_t result = cudaErrorMemoryAllocation;
    pthread_mutex_lock(&lock);
    if (rounded >= bytes && rounded <= capacity() && used[current] <= capacity() - rounded) {
        int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
        *address = mmap(NULL, rounded, PROT_READ | PROT_WRITE, flags, -1, 0);
        if (*address != MAP_FAILED) {
            add(*address, rounded, current);
            used[current] += rounded;
            result = cudaSuccess;
        }
    }
    pthread_mutex_unlock(&lock);
    return result ? fail(result) : cudaSuccess;
}

cudaError_t cudaFree(void *address) {
    READY;
    pthread_mutex_lock(&lock);
    block *found = address ? block_at(address) : NULL;
    if (found) {
        wait_until(busy_until(found->device));
        munmap(found->start, found->bytes);
        used[found->device] -= found->bytes;
        *found = blocks[--block_count];
    }
    pthread_mutex_unlock(&lock);
    return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t *free, size_t *total) {
    READY;
    *total = (size_t)(GET(memory_gb) * 0x1p30);
    *free = capacity() > used[current] ? capacity() - used[current] : 0;
    return cudaSuccess;
}

cudaError_t cudaHostAlloc(void **address, size_t bytes, unsigned flags) {
    READY;
    *address = malloc(bytes);
    if (!*address) return fail(cudaErrorMemoryAllocation);
    pthread_mutex_lock(&lock);
    add(*address, bytes, PINNED);
    pthread_mutex_unlock(&lock);
    return cudaSuccess;
}

cudaError_t cudaMallocHost(void **address, size_t bytes) { return cudaHostAlloc(address, bytes, 0); }

cudaError_t cudaFreeHost(void *address) {
    pthread_mutex_lock(&lock);
    block *found = address ? block_at(address) : NULL;
    if (found) *found = blocks[--block_count];
    pthread_mutex_unlock(&lock);
    free(address);
    return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *attributes, const void *address) {
    pthread_mutex_lock(&lock);
    block *found = block_at(address);
    *attributes = (struct cudaPointerAttributes){.type = cudaMemoryTypeUnregistered, .hostPointer = (void *)address};
    if (found && found->device == PINNED)
        *attributes = (struct cudaPointerAttributes){
            .type = cudaMemoryTypeHost, .devicePointer = (void *)address, .hostPointer = (void *)address};
    else if (found)
        *attributes = (struct cudaPointerAttributes){
            .type = cudaMemoryTypeDevice, .device = found->device, .devicePointer = (void *)address};
    pthread_mutex_unlock(&lock);
    return cudaSuccess;
}

/* --- copies: bytes move between host and device, none within the device ------------------- */

static int device_of(const void *address, int otherwise) {
    pthread_mutex_lock(&lock);
    block *found = block_at(address);
    int device = found ? found->device : otherwise;
    pthread_mutex_unlock(&lock);
    return device;
}

static int on_device(const void *address) { return device_of(address, PINNED) != PINNED; }
static int is_pageable(const void *address) { return device_of(address, PINNED - 1) == PINNED - 1; }

/* The host waits for copies of pageable memory, and for no copy of pinned memory. */
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t on) {
    if (kind == cudaMemcpyDefault)
        kind = on_device(to) ? (on_device(from) ? cudaMemcpyDeviceToDevice : cudaMemcpyHostToDevice)
                             : (on_device(from) ? cudaMemcpyDeviceToHost : cudaMemcpyHostToHost);
    if (kind == cudaMemcpyDeviceToDevice) {
        double seconds = GET(kernel_us) * 1e-6 + memory_s(2.0 * (double)bytes);
        return run(on, "copy", seconds * GET(kernel_scale), GET(copy_w));
    }
    int to_device = kind == cudaMemcpyHostToDevice, pageable = is_pageable(to_device ? from : to);
    double gb_per_s = pageable ? GET(pageable_gb_per_s) : GET(host_link_gb_per_s);
    double seconds = GET(kernel_us) * 1e-6 + (double)bytes / (gb_per_s * 1e9);
    const char *name = to_device ? "copy to device" : "copy to host";
    cudaError_t status = run(on, name, seconds, GET(copy_w));
    if (status) return status;
    memcpy(to, from, bytes);
    if (pageable && !stream_of(on)->capture) wait_until(stream_of(on)->done_at);
    return cudaSuccess;
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind) {
    cudaError_t status = cudaMemcpyAsync(to, from, bytes, kind, NULL);
    return status ? status : cudaDeviceSynchronize();
}

cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t on) {
    if (bytes <= 4096) memset(to, value, bytes);
    return run(on, "set", (GET(kernel_us) * 1e-6 + memory_s((double)bytes)) * GET(kernel_scale), GET(copy_w));
}

cudaError_t cudaMemset(void *to, int value, size_t bytes) { return cudaMemsetAsync(to, value, bytes, NULL); }
