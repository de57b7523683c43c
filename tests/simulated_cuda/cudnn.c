/* cuDNN, as PyTorch calls it with TORCH_CUDNN_V8_API_DISABLED=1: forward convolution, batch
 * normalisation and pooling by a roofline. */
#include "simulated.h"
#include <cudnn.h>
#include <stdlib.h>
#include <string.h>

struct cudnnContext { cudaStream_t on; };
typedef struct { cudnnDataType_t type; int count, sizes[8]; } tensor;
typedef struct { cudnnMathType_t math; } convolution;

static cudnnStatus_t make(void *made, size_t size) {
    *(void **)made = calloc(1, size);
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t discard(void *made) {
    free(made);
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t status_of(cudaError_t error) {
    return error ? CUDNN_STATUS_EXECUTION_FAILED : CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnCreate(cudnnHandle_t *h) { return ready() ? CUDNN_STATUS_NOT_INITIALIZED : make(h, sizeof **h); }
cudnnStatus_t cudnnDestroy(cudnnHandle_t h) { return discard(h); }

cudnnStatus_t cudnnSetStream(cudnnHandle_t h, cudaStream_t on) {
    h->on = on;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnGetStream(cudnnHandle_t h, cudaStream_t *on) {
    *on = h->on;
    return CUDNN_STATUS_SUCCESS;
}

/* --- descriptors -------------------------------------------------------------------------- */

cudnnStatus_t cudnnCreateTensorDescriptor(cudnnTensorDescriptor_t *made) { return make(made, sizeof(tensor)); }
cudnnStatus_t cudnnCreateFilterDescriptor(cudnnFilterDescriptor_t *made) { return make(made, sizeof(tensor)); }
cudnnStatus_t cudnnCreateConvolutionDescriptor(cudnnConvolutionDescriptor_t *made) {
    return make(made, sizeof(convolution));
}
cudnnStatus_t cudnnCreateActivationDescriptor(cudnnActivationDescriptor_t *made) { return make(made, 1); }
cudnnStatus_t cudnnCreatePoolingDescriptor(cudnnPoolingDescriptor_t *made) { return make(made, 1); }
cudnnStatus_t cudnnDestroyTensorDescriptor(cudnnTensorDescriptor_t made) { return discard(made); }
cudnnStatus_t cudnnDestroyFilterDescriptor(cudnnFilterDescriptor_t made) { return discard(made); }
cudnnStatus_t cudnnDestroyConvolutionDescriptor(cudnnConvolutionDescriptor_t made) { return discard(made); }
cudnnStatus_t cudnnDestroyActivationDescriptor(cudnnActivationDescriptor_t made) { return discard(made); }

static cudnnStatus_t set(void *described, cudnnDataType_t type, int count, const int sizes[]) {
    tensor *t = described;
    if (count > 8) return CUDNN_STATUS_NOT_SUPPORTED;
    t->type = type;
    t->count = count;
    memcpy(t->sizes, sizes, sizeof *sizes * (size_t)count);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetTensorNdDescriptor(
    cudnnTensorDescriptor_t t, cudnnDataType_t type, int count, const int sizes[], const int strides[]) {
    return set(t, type, count, sizes);
}

cudnnStatus_t cudnnSetFilterNdDescriptor(
    cudnnFilterDescriptor_t t, cudnnDataType_t type, cudnnTensorFormat_t format, int count, const int sizes[]) {
    return set(t, type, count, sizes);
}

cudnnStatus_t cudnnSetConvolutionMathType(cudnnConvolutionDescriptor_t of, cudnnMathType_t math) {
    ((convolution *)of)->math = math;
    return CUDNN_STATUS_SUCCESS;
}

/* The sizes of the result say enough. */
cudnnStatus_t cudnnSetConvolutionGroupCount(cudnnConvolutionDescriptor_t of, int groups) {
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetConvolutionNdDescriptor(
    cudnnConvolutionDescriptor_t of, int count, const int padding[], const int strides[], const int dilation[],
    cudnnConvolutionMode_t mode, cudnnDataType_t type) {
    return CUDNN_STATUS_SUCCESS;
}

static double elements(const void *described) {
    const tensor *t = described;
    double product = 1;
    for (int i = 0; i < t->count; i++) product *= t->sizes[i];
    return product;
}

static double bytes(const void *described) {
    cudnnDataType_t type = ((const tensor *)described)->type;
    double size = type == CUDNN_DATA_DOUBLE ? 8 : type == CUDNN_DATA_FLOAT ? 4 : 2;
    return size * elements(described);
}

/* --- convolution -------------------------------------------------------------------------- */

cudnnStatus_t cudnnGetConvolutionForwardAlgorithm_v7(
    cudnnHandle_t h, cudnnTensorDescriptor_t x, cudnnFilterDescriptor_t w, cudnnConvolutionDescriptor_t of,
    cudnnTensorDescriptor_t y, int wanted, int *found, cudnnConvolutionFwdAlgoPerf_t *results) {
    *results = (cudnnConvolutionFwdAlgoPerf_t){
        .algo = CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM, .mathType = ((convolution *)of)->math};
    *found = 1;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnFindConvolutionForwardAlgorithmEx(
    cudnnHandle_t h, cudnnTensorDescriptor_t x, const void *X, cudnnFilterDescriptor_t w, const void *W,
    cudnnConvolutionDescriptor_t of, cudnnTensorDescriptor_t y, void *Y, int wanted, int *found,
    cudnnConvolutionFwdAlgoPerf_t *results, void *workspace, size_t size) {
    return cudnnGetConvolutionForwardAlgorithm_v7(h, x, w, of, y, wanted, found, results);
}

cudnnStatus_t cudnnGetConvolutionForwardWorkspaceSize(
    cudnnHandle_t h, cudnnTensorDescriptor_t x, cudnnFilterDescriptor_t w, cudnnConvolutionDescriptor_t of,
    cudnnTensorDescriptor_t y, cudnnConvolutionFwdAlgo_t algorithm, size_t *size) {
    *size = 1 << 20;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnConvolutionForward(
    cudnnHandle_t h, const void *alpha, cudnnTensorDescriptor_t x, const void *X, cudnnFilterDescriptor_t w,
    const void *W, cudnnConvolutionDescriptor_t of, cudnnConvolutionFwdAlgo_t algorithm, void *workspace,
    size_t size, const void *beta, cudnnTensorDescriptor_t y, void *Y) {
    cudnnDataType_t type = ((tensor *)x)->type;
    double each = elements(w) / ((tensor *)w)->sizes[0]; /* products for one element of y */
    arithmetic how = type == CUDNN_DATA_DOUBLE ? FLOAT64 : type != CUDNN_DATA_FLOAT ? TENSOR16
        : ((convolution *)of)->math == CUDNN_FMA_MATH ? FLOAT32 : TENSOR32;
    double moved = bytes(x) + bytes(w) + bytes(y);
    return status_of(roofline(h->on, "cudnnConvolutionForward", 2 * elements(y) * each, moved, how));
}

/* --- others ------------------------------------------------------------------------------- */

cudnnStatus_t cudnnBatchNormalizationForwardInference(
    cudnnHandle_t h, cudnnBatchNormMode_t mode, const void *alpha, const void *beta, cudnnTensorDescriptor_t x,
    const void *X, cudnnTensorDescriptor_t y, void *Y, cudnnTensorDescriptor_t d, const void *scale,
    const void *bias, const void *mean, const void *variance, double epsilon) {
    return status_of(roofline(h->on, "cudnnBatchNormalizationForwardInference", 0, bytes(x) + bytes(y), FLOAT32));
}

cudnnStatus_t cudnnPoolingForward(
    cudnnHandle_t h, cudnnPoolingDescriptor_t of, const void *alpha, cudnnTensorDescriptor_t x, const void *X,
    const void *beta, cudnnTensorDescriptor_t y, void *Y) {
    return status_of(roofline(h->on, "cudnnPoolingForward", 0, bytes(x) + bytes(y), FLOAT32));
}
