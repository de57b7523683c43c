/* cuDNN, as PyTorch calls it with TORCH_CUDNN_V8_API_DISABLED=1: convolution, batch normalisation and
 * pooling, forward and backward, by a roofline. */
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
    cudnnGetConvolutionForwardAlgorithm_v7(h, x, w, of, y, wanted, found, results);
    results->algo = CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnGetConvolutionForwardWorkspaceSize(
    cudnnHandle_t h, cudnnTensorDescriptor_t x, cudnnFilterDescriptor_t w, cudnnConvolutionDescriptor_t of,
    cudnnTensorDescriptor_t y, cudnnConvolutionFwdAlgo_t algorithm, size_t *size) {
    *size = 1 << 20;
    return CUDNN_STATUS_SUCCESS;
}

/* Forward and both halves of backward take as many products: y has an element for each use of w. */
static cudnnStatus_t convolve(
    cudnnHandle_t h, const char *name, cudnnTensorDescriptor_t x, cudnnFilterDescriptor_t w,
    cudnnConvolutionDescriptor_t of, cudnnTensorDescriptor_t y) {
    cudnnDataType_t type = ((tensor *)x)->type;
    double each = elements(w) / ((tensor *)w)->sizes[0]; /* products for one element of y */
    arithmetic how = type == CUDNN_DATA_DOUBLE ? FLOAT64 : type != CUDNN_DATA_FLOAT ? TENSOR16
        : ((convolution *)of)->math == CUDNN_FMA_MATH ? FLOAT32 : TENSOR32;
    double moved = bytes(x) + bytes(w) + bytes(y);
    return status_of(roofline(h->on, name, 2 * elements(y) * each, moved, how));
}

cudnnStatus_t cudnnConvolutionForward(
    cudnnHandle_t h, const void *alpha, cudnnTensorDescriptor_t x, const void *X, cudnnFilterDescriptor_t w,
    const void *W, cudnnConvolutionDescriptor_t of, cudnnConvolutionFwdAlgo_t algorithm, void *workspace,
    size_t size, const void *beta, cudnnTensorDescriptor_t y, void *Y) {
    int tried = algorithm == CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD;
    return convolve(h, tried ? "cudnnConvolutionForward, tried" : "cudnnConvolutionForward", x, w, of, y);
}

cudnnStatus_t cudnnGetConvolutionBackwardDataAlgorithm_v7(
    cudnnHandle_t h, cudnnFilterDescriptor_t w, cudnnTensorDescriptor_t dy, cudnnConvolutionDescriptor_t of,
    cudnnTensorDescriptor_t dx, int wanted, int *found, cudnnConvolutionBwdDataAlgoPerf_t *results) {
    *results = (cudnnConvolutionBwdDataAlgoPerf_t){
        .algo = CUDNN_CONVOLUTION_BWD_DATA_ALGO_1, .mathType = ((convolution *)of)->math};
    *found = 1;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnGetConvolutionBackwardFilterAlgorithm_v7(
    cudnnHandle_t h, cudnnTensorDescriptor_t x, cudnnTensorDescriptor_t dy, cudnnConvolutionDescriptor_t of,
    cudnnFilterDescriptor_t dw, int wanted, int *found, cudnnConvolutionBwdFilterAlgoPerf_t *results) {
    *results = (cudnnConvolutionBwdFilterAlgoPerf_t){
        .algo = CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1, .mathType = ((convolution *)of)->math};
    *found = 1;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnGetConvolutionBackwardDataWorkspaceSize(
    cudnnHandle_t h, cudnnFilterDescriptor_t w, cudnnTensorDescriptor_t dy, cudnnConvolutionDescriptor_t of,
    cudnnTensorDescriptor_t dx, cudnnConvolutionBwdDataAlgo_t algorithm, size_t *size) {
    *size = 1 << 20;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnGetConvolutionBackwardFilterWorkspaceSize(
    cudnnHandle_t h, cudnnTensorDescriptor_t x, cudnnTensorDescriptor_t dy, cudnnConvolutionDescriptor_t of,
    cudnnFilterDescriptor_t dw, cudnnConvolutionBwdFilterAlgo_t algorithm, size_t *size) {
    *size = 1 << 20;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnConvolutionBackwardData(
    cudnnHandle_t h, const void *alpha, cudnnFilterDescriptor_t w, const void *W, cudnnTensorDescriptor_t dy,
    const void *DY, cudnnConvolutionDescriptor_t of, cudnnConvolutionBwdDataAlgo_t algorithm, void *workspace,
    size_t size, const void *beta, cudnnTensorDescriptor_t dx, void *DX) {
    return convolve(h, "cudnnConvolutionBackwardData", dx, w, of, dy);
}

cudnnStatus_t cudnnConvolutionBackwardFilter(
    cudnnHandle_t h, const void *alpha, cudnnTensorDescriptor_t x, const void *X, cudnnTensorDescriptor_t dy,
    const void *DY, cudnnConvolutionDescriptor_t of, cudnnConvolutionBwdFilterAlgo_t algorithm, void *workspace,
    size_t size, const void *beta, cudnnFilterDescriptor_t dw, void *DW) {
    return convolve(h, "cudnnConvolutionBackwardFilter", x, dw, of, dy);
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

/* Statistics are found in one pass and used in another. */
cudnnStatus_t cudnnBatchNormalizationForwardTrainingEx(
    cudnnHandle_t h, cudnnBatchNormMode_t mode, cudnnBatchNormOps_t operations, const void *alpha, const void *beta,
    cudnnTensorDescriptor_t x, const void *X, cudnnTensorDescriptor_t z, const void *Z, cudnnTensorDescriptor_t y,
    void *Y, cudnnTensorDescriptor_t d, const void *scale, const void *bias, double factor, void *mean,
    void *variance, double epsilon, void *saved_mean, void *saved_variance, cudnnActivationDescriptor_t activation,
    void *workspace, size_t size, void *reserve, size_t reserve_size) {
    return status_of(roofline(h->on, "cudnnBatchNormalizationForwardTraining", 0, 2 * bytes(x) + bytes(y), FLOAT32));
}

cudnnStatus_t cudnnBatchNormalizationBackwardEx(
    cudnnHandle_t h, cudnnBatchNormMode_t mode, cudnnBatchNormOps_t operations, const void *alpha, const void *beta,
    const void *alpha_w, const void *beta_w, cudnnTensorDescriptor_t x, const void *X, cudnnTensorDescriptor_t y,
    const void *Y, cudnnTensorDescriptor_t dy, const void *DY, cudnnTensorDescriptor_t dz, void *DZ,
    cudnnTensorDescriptor_t dx, void *DX, cudnnTensorDescriptor_t d, const void *scale, const void *bias,
    void *d_scale, void *d_bias, double epsilon, const void *saved_mean, const void *saved_variance,
    cudnnActivationDescriptor_t activation, void *workspace, size_t size, void *reserve, size_t reserve_size) {
    double moved = 2 * (bytes(x) + bytes(dy)) + bytes(dx);
    return status_of(roofline(h->on, "cudnnBatchNormalizationBackward", 0, moved, FLOAT32));
}

cudnnStatus_t cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize(
    cudnnHandle_t h, cudnnBatchNormMode_t mode, cudnnBatchNormOps_t operations, cudnnTensorDescriptor_t x,
    cudnnTensorDescriptor_t z, cudnnTensorDescriptor_t y, cudnnTensorDescriptor_t d,
    cudnnActivationDescriptor_t activation, size_t *size) {
    *size = 1 << 10;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnGetBatchNormalizationBackwardExWorkspaceSize(
    cudnnHandle_t h, cudnnBatchNormMode_t mode, cudnnBatchNormOps_t operations, cudnnTensorDescriptor_t x,
    cudnnTensorDescriptor_t y, cudnnTensorDescriptor_t dy, cudnnTensorDescriptor_t dz, cudnnTensorDescriptor_t dx,
    cudnnTensorDescriptor_t d, cudnnActivationDescriptor_t activation, size_t *size) {
    *size = 1 << 10;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnGetBatchNormalizationTrainingExReserveSpaceSize(
    cudnnHandle_t h, cudnnBatchNormMode_t mode, cudnnBatchNormOps_t operations,
    cudnnActivationDescriptor_t activation, cudnnTensorDescriptor_t x, size_t *size) {
    *size = 1 << 10;
    return CUDNN_STATUS_SUCCESS;
}
