/* Clock, fatal errors and latency histograms. */
#ifndef UTIL_H
#define UTIL_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;

#define MILLISECOND 1000000ull
#define SECOND 1000000000ull

u64 now_ns(void);         /* CLOCK_MONOTONIC */
double cpu_seconds(void); /* user and kernel time of this process */
void sleep_ms(int milliseconds);
/* Ends the process with status 2: the run is void. */
__attribute__((noreturn, format(printf, 1, 2))) void die(const char *format, ...);

/* Log-linear: 32 buckets an octave, so 3 % of resolution. Values in ns. */
struct histogram {
  u64 bucket[64 * 32];
  u64 count, max;
  double sum;
};
void histogram_add(struct histogram *h, u64 nanoseconds);
void histogram_json(const char *name, const struct histogram *h);
#endif
