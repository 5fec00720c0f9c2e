#ifndef OPTIONS_H
#define OPTIONS_H
#include "util.h"

struct options {
  char *address[16]; /* --address a,b,c: all but failover take the first */
  int addresses;
  const char *queue, *arguments; /* arguments of queue.declare, "key=value,..." */
  const char *messages;          /* a file of messages to publish, see publisher.h; goes with --no-consume */
  int size;                      /* body, octets */
  int window;                    /* messages without confirm, declarations without answer */
  int prefetch;
  u64 count; /* messages to publish, queues to declare, bindings to make; 0: as many as the time allows */
  double seconds;
  double rate; /* messages/s, 0: as fast as possible */
  bool publish, consume, persistent;
};

/* Each prints one JSON object and returns the exit status. */
int run_load(const struct options *o);
int run_failover(const struct options *o);
int run_declare(const struct options *o, bool bind);
int run_floor(const struct options *o);
#endif
