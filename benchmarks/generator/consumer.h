/* A consumer that acknowledges with `multiple` and checks all it gets: delivery tags without a hole, header class, body
 * size, every octet of the filling, and how often each sequence was seen. A wrong octet ends the run. */
#ifndef CONSUMER_H
#define CONSUMER_H
#include "wire.h"

struct consumer {
  struct connection connection;
  int size, prefetch;
  u64 ack_every;
  const u8 *filling;
  enum { IDLE, WANT_HEADER, WANT_BODY } state;
  u64 tag, acked_tag, body_done;
  u64 sequence, sent_at; /* of the message being read */
  bool redelivered;
  u8 *seen;          /* deliveries by sequence, at most 255 */
  u64 next_sequence; /* one more than the highest seen */
  u64 count_delivered, count_distinct, count_duplicates, count_redelivered, count_out_of_order;
  u64 first_delivery, last_delivery, longest_gap; /* ns */
  struct histogram latency;                       /* from publisher_send to the end of the body */
};

void consumer_init(struct consumer *c, int size, int prefetch);
bool consumer_start(struct consumer *c, const char *address, const char *queue, int timeout_ms);
bool consumer_read(struct consumer *c);        /* handles what has arrived and acknowledges; false: connection lost */
void consumer_acknowledge(struct consumer *c); /* all that came, into the output buffer */
#endif
