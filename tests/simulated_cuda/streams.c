/* Streams, events, and CUDA graphs. */
#include "simulated.h"
#include <stdlib.h>
#include <string.h>

static stream defaults[MAX_GPUS], *created;

stream *streams(void) { return created; }

stream *stream_of(cudaStream_t handle) {
    /* 1 and 2 are cudaStreamLegacy and cudaStreamPerThread */
    if ((uintptr_t)handle > 2) return handle;
    defaults[current].device = current;
    return &defaults[current];
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *handle, unsigned flags, int priority) {
    READY;
    stream *next = calloc(1, sizeof *next);
    *next = (stream){.device = current, .priority = priority, .next = created};
    *handle = created = next;
    return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *handle, unsigned flags) {
    return cudaStreamCreateWithPriority(handle, flags, 0);
}

cudaError_t cudaStreamCreate(cudaStream_t *handle) { return cudaStreamCreateWithPriority(handle, 0, 0); }

cudaError_t cudaStreamDestroy(cudaStream_t handle) {
    for (stream **link = &created; *link; link = &(*link)->next) {
        if (*link != handle) continue;
        *link = handle->next;
        free(handle);
        break;
    }
    return cudaSuccess;
}

cudaError_t cudaStreamGetPriority(cudaStream_t handle, int *priority) {
    *priority = stream_of(handle)->priority;
    return cudaSuccess;
}

cudaError_t cudaStreamQuery(cudaStream_t handle) {
    READY;
    return stream_of(handle)->done_at > now() ? cudaErrorNotReady : cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
    READY;
    stream *on = stream_of(handle);
    if (on->capture) {
        on->capture->broken = 1;
        return fail(cudaErrorStreamCaptureUnsupported);
    }
    wait_until(on->done_at);
    return lost() ? fail(lost()) : cudaSuccess;
}

/* --- events ------------------------------------------------------------------------------- */

typedef struct CUevent_st { double time; int recorded, timed; graph *capture; } event;

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *handle, unsigned flags) {
    READY;
    *handle = calloc(1, sizeof(event));
    (*handle)->timed = !(flags & cudaEventDisableTiming);
    return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t *handle) { return cudaEventCreateWithFlags(handle, 0); }

cudaError_t cudaEventDestroy(cudaEvent_t handle) {
    free(handle);
    return cudaSuccess;
}

cudaError_t cudaEventRecordWithFlags(cudaEvent_t handle, cudaStream_t on, unsigned flags) {
    READY;
    handle->capture = stream_of(on)->capture;
    if (handle->capture) return cudaSuccess;
    handle->recorded = 1;
    return mark(stream_of(on), &handle->time);
}

cudaError_t cudaEventRecord(cudaEvent_t handle, cudaStream_t on) { return cudaEventRecordWithFlags(handle, on, 0); }

cudaError_t cudaEventQuery(cudaEvent_t handle) {
    READY;
    return handle->time > now() ? cudaErrorNotReady : cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t handle) {
    READY;
    wait_until(handle->time);
    return lost() ? fail(lost()) : cudaSuccess;
}

cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t start, cudaEvent_t end) {
    READY;
    if (!start->recorded || !end->recorded || !start->timed || !end->timed)
        return fail(cudaErrorInvalidResourceHandle);
    if (end->time > now() || start->time > now()) return fail(cudaErrorNotReady);
    *milliseconds = (float)(1e3 * (end->time - start->time));
    return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t handle, cudaEvent_t for_event, unsigned flags) {
    READY;
    stream *on = stream_of(handle);
    if (for_event->capture) on->capture = for_event->capture;
    else if (for_event->time > on->done_at) on->done_at = for_event->time;
    return cudaSuccess;
}

/* --- graphs: their kernels run back to back, for one launch ------------------------------- */

static uint64_t captures;

cudaError_t cudaStreamBeginCapture(cudaStream_t handle, enum cudaStreamCaptureMode mode) {
    READY;
    if ((uintptr_t)handle <= 2) return fail(cudaErrorStreamCaptureUnsupported);
    if (handle->capture) return fail(cudaErrorIllegalState);
    handle->capture = calloc(1, sizeof(graph));
    handle->capture->id = ++captures;
    return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t handle, cudaGraph_t *captured) {
    READY;
    graph *ended = stream_of(handle)->capture;
    if (!ended) return fail(cudaErrorIllegalState);
    for (stream *s = created; s; s = s->next)
        if (s->capture == ended) s->capture = NULL;
    *captured = ended->broken ? NULL : (cudaGraph_t)ended;
    return ended->broken ? fail(cudaErrorStreamCaptureInvalidated) : cudaSuccess;
}

cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *mode) { return cudaSuccess; }

cudaError_t cudaStreamIsCapturing(cudaStream_t handle, enum cudaStreamCaptureStatus *status) {
    graph *capture = stream_of(handle)->capture;
    *status = !capture ? cudaStreamCaptureStatusNone
        : capture->broken ? cudaStreamCaptureStatusInvalidated : cudaStreamCaptureStatusActive;
    return cudaSuccess;
}

cudaError_t cudaStreamGetCaptureInfo(
    cudaStream_t handle, enum cudaStreamCaptureStatus *status, unsigned long long *id, cudaGraph_t *into,
    const cudaGraphNode_t **dependencies, const cudaGraphEdgeData **edges, size_t *count) {
    graph *capture = stream_of(handle)->capture;
    if (id) *id = capture ? capture->id : 0;
    if (into) *into = (cudaGraph_t)capture;
    if (dependencies) *dependencies = NULL;
    if (edges) *edges = NULL;
    if (count) *count = 0;
    return cudaStreamIsCapturing(handle, status);
}

cudaError_t cudaGraphGetNodes(cudaGraph_t handle, cudaGraphNode_t *nodes, size_t *count) {
    graph *of = (graph *)handle;
    for (size_t i = 0; nodes && i < *count && i < of->count; i++) nodes[i] = (cudaGraphNode_t)&of->nodes[i];
    *count = of->count;
    return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *executable, cudaGraph_t handle, unsigned long long flags) {
    READY;
    graph *of = (graph *)handle, *copy = malloc(sizeof *copy);
    *copy = *of;
    copy->nodes = malloc(sizeof *copy->nodes * (of->count + 1));
    if (of->count) memcpy(copy->nodes, of->nodes, sizeof *copy->nodes * of->count);
    *executable = (cudaGraphExec_t)copy;
    return cudaSuccess;
}

cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t *executable, cudaGraph_t handle, unsigned long long flags) {
    return cudaGraphInstantiate(executable, handle, flags);
}

cudaError_t cudaGraphDestroy(cudaGraph_t handle) {
    graph *of = (graph *)handle;
    free(of->nodes);
    free(of);
    return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t handle) { return cudaGraphDestroy((cudaGraph_t)handle); }

cudaError_t cudaGraphLaunch(cudaGraphExec_t handle, cudaStream_t on) {
    READY;
    graph *of = (graph *)handle;
    note("cudaGraphLaunch");
    return launch(stream_of(on), of->nodes, of->count);
}
