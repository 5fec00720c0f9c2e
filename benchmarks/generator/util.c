#define _GNU_SOURCE
#include "util.h"

#include <stdarg.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>

u64 now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (u64)t.tv_sec * SECOND + t.tv_nsec;
}

double cpu_seconds(void) {
  struct rusage r;
  getrusage(RUSAGE_SELF, &r);
  return r.ru_utime.tv_sec + r.ru_stime.tv_sec + (r.ru_utime.tv_usec + r.ru_stime.tv_usec) / 1e6;
}

void sleep_ms(int milliseconds) {
  struct timespec t = {milliseconds / 1000, milliseconds % 1000 * 1000000l};
  nanosleep(&t, NULL);
}

void die(const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  fputs("amqp_load: ", stderr);
  vfprintf(stderr, format, arguments);
  fputc('\n', stderr);
  va_end(arguments);
  exit(2);
}

/* Below 64 a bucket a value; above, five bits after the leading one. */
void histogram_add(struct histogram *h, u64 value) {
  int index = (int)value;
  if (value >= 64) {
    int exponent = 63 - __builtin_clzll(value);
    index = exponent * 32 + (int)(value >> (exponent - 5) & 31);
  }
  h->bucket[index]++;
  h->count++;
  h->sum += (double)value;
  if (value > h->max) h->max = value;
}

static double quantile_ms(const struct histogram *h, double q) {
  u64 wanted = (u64)(q * (double)h->count), passed = 0;
  for (int i = 0; i < 64 * 32; i++) {
    passed += h->bucket[i];
    if (!h->bucket[i] || passed <= wanted) continue;
    if (i < 64) return i / 1e6;
    int exponent = i / 32;
    return ((double)(1ull << exponent) + (i % 32 + 0.5) * (double)(1ull << (exponent - 5))) / 1e6;
  }
  return (double)h->max / 1e6;
}

void histogram_json(const char *name, const struct histogram *h) {
  if (!h->count) {
    printf("\"%s\":null,", name);
    return;
  }
  printf("\"%s\":{\"mean\":%.4f,\"p50\":%.4f,\"p99\":%.4f,\"max\":%.4f},", name, h->sum / (double)h->count / 1e6,
         quantile_ms(h, .50), quantile_ms(h, .99), (double)h->max / 1e6);
}
