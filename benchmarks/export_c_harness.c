/* Times predictor libraries in one process, one after the other in every round, by the thread's CPU clock.
 *
 *   export_c_harness FOLDER ROUNDS ROWS LIBRARY:TYPE ...
 *
 * TYPE is what a library reads: i int64, d double, f float, four to a row. A library has
 *   int64_t single(const void *row)                              0 or 1: drop
 *   void batch(const void *rows, size_t count, int64_t *out)
 * Prints, per library, call and input: name call input median minimum wrong tied (nanoseconds per row; decisions that are
 * not those of FOLDER/INPUT.truth, and those of them that FOLDER/INPUT.ties marks). */
#define _POSIX_C_SOURCE 200809L
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MAX_LIBRARIES = 32, MAX_ROUNDS = 1000, WIDTH = 4 };

typedef int64_t single_t(const void *);
typedef void batch_t(const void *, size_t, int64_t *);

static const char *const inputs[2] = {"trace", "cells"};
static double times[2][2][MAX_LIBRARIES][MAX_ROUNDS];
static size_t wrong[2][2][MAX_LIBRARIES], tied[2][2][MAX_LIBRARIES];

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static int by_size(const void *a, const void *b) {
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static int64_t *read_file(const char *folder, const char *name, const char *kind, size_t count) {
  char path[4096];
  int64_t *values = malloc(count * sizeof *values);
  FILE *file;
  snprintf(path, sizeof path, "%s/%s.%s", folder, name, kind);
  file = fopen(path, "rb");
  if (!values || !file || fread(values, sizeof *values, count, file) != count) {
    fprintf(stderr, "cannot read %s\n", path);
    exit(1);
  }
  fclose(file);
  return values;
}

int main(int argc, char **argv) {
  const char *const folder = argv[1];
  const int rounds = atoi(argv[2]), libraries = argc - 4;
  const size_t rows = (size_t)atol(argv[3]);
  single_t *single[MAX_LIBRARIES];
  batch_t *batch[MAX_LIBRARIES];
  const void *data[2][MAX_LIBRARIES];
  size_t size[MAX_LIBRARIES];
  int64_t *truth[2], *ties[2], *const out = malloc(rows * sizeof *out);
  int round, input, call, at;
  size_t i;
  if (libraries > MAX_LIBRARIES || rounds > MAX_ROUNDS || !out) return 1;
  for (input = 0; input < 2; ++input) {
    int64_t *const whole = read_file(folder, inputs[input], "rows", rows * WIDTH);
    double *const doubles = malloc(rows * WIDTH * sizeof *doubles);
    float *const floats = malloc(rows * WIDTH * sizeof *floats);
    if (!doubles || !floats) return 1;
    for (i = 0; i < rows * WIDTH; ++i) {
      doubles[i] = (double)whole[i];
      floats[i] = (float)whole[i];
    }
    truth[input] = read_file(folder, inputs[input], "truth", rows);
    ties[input] = read_file(folder, inputs[input], "ties", rows);
    for (at = 0; at < libraries; ++at) {
      const char type = argv[4 + at][strlen(argv[4 + at]) - 1];
      data[input][at] = type == 'i' ? (const void *)whole : type == 'd' ? (const void *)doubles : (const void *)floats;
      size[at] = WIDTH * (type == 'f' ? sizeof(float) : sizeof(double));
    }
  }
  for (at = 0; at < libraries; ++at) {
    char path[4096];
    void *library;
    argv[4 + at][strlen(argv[4 + at]) - 2] = 0;
    snprintf(path, sizeof path, "%s/%s.so", folder, argv[4 + at]);
    library = dlopen(path, RTLD_NOW);
    if (!library) {
      fprintf(stderr, "%s\n", dlerror());
      return 1;
    }
    *(void **)&single[at] = dlsym(library, "single");
    *(void **)&batch[at] = dlsym(library, "batch");
  }
  for (round = 0; round < rounds; ++round) {
    for (input = 0; input < 2; ++input) {
      for (at = 0; at < libraries; ++at) {
        for (call = 0; call < 2; ++call) {
          const char *const base = data[input][at];
          const double start = now();
          if (call == 0) {
            for (i = 0; i < rows; ++i) out[i] = single[at](base + i * size[at]);
          } else {
            batch[at](base, rows, out);
          }
          times[call][input][at][round] = (now() - start) / (double)rows;
          if (round == 0) {
            for (i = 0; i < rows; ++i) {
              wrong[call][input][at] += out[i] != truth[input][i];
              tied[call][input][at] += out[i] != truth[input][i] && ties[input][i];
            }
          }
        }
      }
    }
  }
  for (at = 0; at < libraries; ++at) {
    for (call = 0; call < 2; ++call) {
      for (input = 0; input < 2; ++input) {
        double *const spent = times[call][input][at];
        qsort(spent, (size_t)rounds, sizeof *spent, by_size);
        printf("%s %s %s %.4f %.4f %zu %zu\n", argv[4 + at], call ? "batch" : "single", inputs[input],
               spent[rounds / 2], spent[0], wrong[call][input][at], tied[call][input][at]);
      }
    }
  }
  return 0;
}
