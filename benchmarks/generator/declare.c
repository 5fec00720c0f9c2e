/* Declares `count` queues NAME.0, NAME.1, ... over one connection, each after the answer to the one before. */
#include <inttypes.h>
#include <stdio.h>

#include "options.h"
#include "wire.h"

#define TIMEOUT_MS 120000

int run_declare(const struct options *o) {
  static struct histogram each;
  struct connection c = {.fd = -1};
  char name[256];
  if (!connection_open(&c, o->address[0], TIMEOUT_MS)) die("%s", c.error);
  u64 start = now_ns();
  for (u64 i = 0; i < o->count; i++) {
    u64 before = now_ns();
    snprintf(name, sizeof name, "%s.%" PRIu64, o->queue, i);
    if (!connection_declare(&c, name, o->arguments, false, NULL)) die("%s: %s", name, c.error);
    histogram_add(&each, now_ns() - before);
  }
  double seconds = (double)(now_ns() - start) / 1e9;
  if (!connection_close(&c)) die("close: %s", c.error);
  printf("{\"queues\":%" PRIu64 ",", o->count);
  histogram_json("each_ms", &each);
  printf("\"seconds\":%.6f}\n", seconds);
  return 0;
}
