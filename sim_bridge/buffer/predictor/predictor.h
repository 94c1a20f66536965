/* SPDX-License-Identifier: MIT-0 */
/* Predictor ABI, version 1 (C99 and C++): what a drop predictor library exports and what the simulators load.
 *
 * x holds n_features integers in the order of feature_names, each in [0, 2^24). A library is reentrant and its strings
 * live as long as it is loaded. feature_params[i] is the arithmetic of feature i ("cell_bytes=256,average_shift=15"):
 * a loader refuses, by name, a library whose version, features or parameters are not its own. */
#ifndef FORETAIL_PREDICTOR_H
#define FORETAIL_PREDICTOR_H

#include <stddef.h>
#include <stdint.h>

#define FORETAIL_PREDICTOR_ABI_VERSION 1u

#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
    uint32_t abi_version, n_features;
    const char *const *feature_names, *const *feature_params;
    int64_t default_tau;
    const char* ir_sha256;
} foretail_predictor_info_t;

const foretail_predictor_info_t* foretail_predictor_info(void);
int64_t foretail_predictor_score(const int64_t* x); /* drop iff score > tau */
void foretail_predictor_score_batch(const int64_t* x, size_t rows, int64_t* out);

#ifdef __cplusplus
}
#endif

#endif
