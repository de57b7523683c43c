/* cuBLAS and cuBLASLt: matrix products by a roofline, and nothing else. */
#include "simulated.h"
#include <cublasLt.h>
#include <cublas_v2.h>
#include <stdlib.h>
#include <string.h>

struct cublasContext { cudaStream_t on; cublasMath_t math; cublasPointerMode_t pointers; };

cublasStatus_t cublasCreate_v2(cublasHandle_t *handle) {
    if (ready()) return CUBLAS_STATUS_NOT_INITIALIZED;
    *handle = calloc(1, sizeof **handle);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasDestroy_v2(cublasHandle_t handle) {
    free(handle);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetStream_v2(cublasHandle_t handle, cudaStream_t on) {
    handle->on = on;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetWorkspace_v2(cublasHandle_t handle, void *workspace, size_t bytes) {
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetMathMode(cublasHandle_t handle, cublasMath_t math) {
    handle->math = math;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasGetMathMode(cublasHandle_t handle, cublasMath_t *math) {
    *math = handle->math;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetPointerMode_v2(cublasHandle_t handle, cublasPointerMode_t mode) {
    handle->pointers = mode;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasGetPointerMode_v2(cublasHandle_t handle, cublasPointerMode_t *mode) {
    *mode = handle->pointers;
    return CUBLAS_STATUS_SUCCESS;
}

/* --- matrix products ---------------------------------------------------------------------- */

static double bytes_of(cudaDataType type) {
    switch (type) {
    case CUDA_R_64F: return 8;
    case CUDA_R_32F: return 4;
    case CUDA_R_16F: case CUDA_R_16BF: return 2;
    default: return 1;
    }
}

static cublasStatus_t product(
    cudaStream_t on, const char *name, double m, double n, double k, double batch, cudaDataType type, int tensor32) {
    double elements = m * k + k * n + m * n;
    arithmetic how = type == CUDA_R_64F ? FLOAT64 : type != CUDA_R_32F ? TENSOR16 : tensor32 ? TENSOR32 : FLOAT32;
    cudaError_t status = roofline(on, name, 2 * m * n * k * batch, elements * batch * bytes_of(type), how);
    return status ? CUBLAS_STATUS_EXECUTION_FAILED : CUBLAS_STATUS_SUCCESS;
}

static int tensor32(cublasHandle_t handle) { return handle->math & CUBLAS_TF32_TENSOR_OP_MATH; }

cublasStatus_t cublasSgemm_v2(
    cublasHandle_t h, cublasOperation_t ta, cublasOperation_t tb, int m, int n, int k, const float *alpha,
    const float *A, int lda, const float *B, int ldb, const float *beta, float *C, int ldc) {
    return product(h->on, "cublasSgemm", m, n, k, 1, CUDA_R_32F, tensor32(h));
}

cublasStatus_t cublasDgemm_v2(
    cublasHandle_t h, cublasOperation_t ta, cublasOperation_t tb, int m, int n, int k, const double *alpha,
    const double *A, int lda, const double *B, int ldb, const double *beta, double *C, int ldc) {
    return product(h->on, "cublasDgemm", m, n, k, 1, CUDA_R_64F, 0);
}

cublasStatus_t cublasSgemv_v2(
    cublasHandle_t h, cublasOperation_t ta, int m, int n, const float *alpha, const float *A, int lda,
    const float *x, int incx, const float *beta, float *y, int incy) {
    return product(h->on, "cublasSgemv", m, 1, n, 1, CUDA_R_32F, 0);
}

cublasStatus_t cublasSgemmStridedBatched(
    cublasHandle_t h, cublasOperation_t ta, cublasOperation_t tb, int m, int n, int k, const float *alpha,
    const float *A, int lda, long long sa, const float *B, int ldb, long long sb, const float *beta, float *C,
    int ldc, long long sc, int batch) {
    return product(h->on, "cublasSgemmStridedBatched", m, n, k, batch, CUDA_R_32F, tensor32(h));
}

cublasStatus_t cublasGemmEx(
    cublasHandle_t h, cublasOperation_t ta, cublasOperation_t tb, int m, int n, int k, const void *alpha,
    const void *A, cudaDataType type, int lda, const void *B, cudaDataType type_b, int ldb, const void *beta,
    void *C, cudaDataType type_c, int ldc, cublasComputeType_t compute, cublasGemmAlgo_t algorithm) {
    return product(h->on, "cublasGemmEx", m, n, k, 1, type, tensor32(h));
}

cublasStatus_t cublasGemmStridedBatchedEx(
    cublasHandle_t h, cublasOperation_t ta, cublasOperation_t tb, int m, int n, int k, const void *alpha,
    const void *A, cudaDataType type, int lda, long long sa, const void *B, cudaDataType type_b, int ldb,
    long long sb, const void *beta, void *C, cudaDataType type_c, int ldc, long long sc, int batch,
    cublasComputeType_t compute, cublasGemmAlgo_t algorithm) {
    return product(h->on, "cublasGemmStridedBatchedEx", m, n, k, batch, type, tensor32(h));
}

/* --- cuBLASLt: descriptors hold what was set ---------------------------------------------- */

typedef struct { cublasComputeType_t compute; int32_t transposed; } operation;
typedef struct { cudaDataType type; double rows, columns; int32_t batch; } layout;

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *made, cublasComputeType_t compute, cudaDataType scale) {
    operation *next = calloc(1, sizeof(cublasLtMatmulDescOpaque_t));
    next->compute = compute;
    *made = (cublasLtMatmulDesc_t)next;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(
    cublasLtMatmulDesc_t of, cublasLtMatmulDescAttributes_t attribute, const void *value, size_t size) {
    if (attribute == CUBLASLT_MATMUL_DESC_TRANSA) memcpy(&((operation *)of)->transposed, value, sizeof(int32_t));
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutCreate(
    cublasLtMatrixLayout_t *made, cudaDataType type, uint64_t rows, uint64_t columns, int64_t leading) {
    layout *next = calloc(1, sizeof(cublasLtMatrixLayoutOpaque_t));
    *next = (layout){type, (double)rows, (double)columns, 1};
    *made = (cublasLtMatrixLayout_t)next;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutSetAttribute(
    cublasLtMatrixLayout_t of, cublasLtMatrixLayoutAttribute_t attribute, const void *value, size_t size) {
    if (attribute == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT) memcpy(&((layout *)of)->batch, value, sizeof(int32_t));
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *made) {
    *made = calloc(1, sizeof **made);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(
    cublasLtMatmulPreference_t of, cublasLtMatmulPreferenceAttributes_t attribute, const void *value, size_t size) {
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t discard(void *made) {
    free(made);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t made) { return discard(made); }
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t made) { return discard(made); }
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t made) { return discard(made); }

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(
    cublasLtHandle_t h, cublasLtMatmulDesc_t of, cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
    cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d, cublasLtMatmulPreference_t preference, int wanted,
    cublasLtMatmulHeuristicResult_t results[], int *found) {
    *found = wanted > 0;
    if (*found) memset(results, 0, sizeof *results);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(
    cublasLtHandle_t h, cublasLtMatmulDesc_t of, const void *alpha, const void *A, cublasLtMatrixLayout_t a,
    const void *B, cublasLtMatrixLayout_t b, const void *beta, const void *C, cublasLtMatrixLayout_t c, void *D,
    cublasLtMatrixLayout_t d, const cublasLtMatmulAlgo_t *algorithm, void *workspace, size_t bytes, cudaStream_t on) {
    const layout *first = (const layout *)a, *result = (const layout *)d;
    const operation *how = (const operation *)of;
    double inner = how->transposed ? first->rows : first->columns;
    int fast = how->compute == CUBLAS_COMPUTE_32F_FAST_TF32;
    return product(on, "cublasLtMatmul", result->rows, result->columns, inner, result->batch, first->type, fast);
}
