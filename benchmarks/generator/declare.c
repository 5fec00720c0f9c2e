/* Declares `count` queues NAME.0, NAME.1, ..., or binds queue NAME with that many keys, over one connection: at most
 * `window` of them wait for their answer. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "options.h"
#include "wire.h"

#define TIMEOUT_MS 120000

static bool ask(struct connection *c, const struct options *o, bool bind, u64 number) {
  char name[256];
  snprintf(name, sizeof name, "%s.%" PRIu64, o->queue, number);
  return bind ? connection_ask_bind(c, o->queue, "amq.direct", name) : connection_ask_declare(c, name, o->arguments);
}

int run_declare(const struct options *o, bool bind) {
  static struct histogram each;
  struct connection c = {.fd = -1};
  u64 window = (u64)o->window, asked = 0, *since = calloc(window, sizeof *since);
  if (!since) die("no memory for a window of %" PRIu64, window);
  if (!connection_open(&c, o->address[0], TIMEOUT_MS)) die("%s", c.error);
  if (bind && !connection_declare(&c, o->queue, o->arguments, false, NULL)) die("%s: %s", o->queue, c.error);
  u64 start = now_ns();
  for (u64 answered = 0; answered < o->count; answered++) {
    for (; asked < o->count && asked < answered + window; asked++) {
      since[asked % window] = now_ns();
      if (!ask(&c, o, bind, asked)) die("number %" PRIu64 ": %s", asked, c.error);
    }
    if (!connection_answered(&c, bind ? BIND_OK : DECLARE_OK)) die("number %" PRIu64 ": %s", answered, c.error);
    histogram_add(&each, now_ns() - since[answered % window]);
  }
  double seconds = (double)(now_ns() - start) / 1e9;
  if (!connection_close(&c)) die("close: %s", c.error);
  printf("{\"%s\":%" PRIu64 ",", bind ? "bindings" : "queues", o->count);
  histogram_json("each_ms", &each);
  printf("\"seconds\":%.6f}\n", seconds);
  free(since);
  return 0;
}
