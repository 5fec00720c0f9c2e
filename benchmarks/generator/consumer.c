#include "consumer.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "publisher.h"

void consumer_init(struct consumer *c, int size, int prefetch) {
  memset(c, 0, sizeof *c);
  c->connection.fd = -1;
  c->size = size;
  c->prefetch = prefetch;
  c->ack_every = prefetch / 10 ? (u64)prefetch / 10 : 1;
  c->filling = filling(size);
  c->seen = calloc(MAX_MESSAGES, 1);
}

bool consumer_start(struct consumer *c, const char *address, const char *queue, int timeout_ms) {
  if (!connection_open(&c->connection, address, timeout_ms)) return false;
  if (!connection_consume(&c->connection, queue, c->prefetch)) {
    connection_drop(&c->connection);
    return false;
  }
  c->state = IDLE;
  c->tag = c->acked_tag = 0;
  connection_set_nonblocking(&c->connection);
  if (consumer_read(c)) return true; /* deliveries may have come together with consume-ok */
  connection_drop(&c->connection);
  return false;
}

void consumer_acknowledge(struct consumer *c) {
  if (c->acked_tag == c->tag) return;
  struct buffer *b = &c->connection.out;
  size_t at = begin_method(b, 1, BASIC_ACK);
  put64(b, c->tag);
  put8(b, 1);
  end_frame(b, at);
  c->acked_tag = c->tag;
}

static void message_complete(struct consumer *c, u64 now) {
  c->state = IDLE;
  if (c->sequence >= MAX_MESSAGES) die("sequence %" PRIu64 " was never sent", c->sequence);
  c->count_delivered++;
  if (c->redelivered) c->count_redelivered++;
  u8 *seen = &c->seen[c->sequence];
  if (*seen) c->count_duplicates++;
  else c->count_distinct++;
  if (*seen < 255) ++*seen;
  if (c->sequence + 1 > c->next_sequence) c->next_sequence = c->sequence + 1;
  else if (*seen == 1) c->count_out_of_order++;
  if (!c->first_delivery) c->first_delivery = now;
  else if (now - c->last_delivery > c->longest_gap) c->longest_gap = now - c->last_delivery;
  c->last_delivery = now;
  histogram_add(&c->latency, now - c->sent_at);
  if (c->tag - c->acked_tag >= c->ack_every) consumer_acknowledge(c);
}

static void handle_deliver(struct consumer *c, const struct frame *f) {
  u32 tag_length = f->size > 4 ? f->payload[4] : 255;
  if (c->state != IDLE || f->size < 14 + tag_length) die("basic.deliver out of place or too short");
  u64 tag = get64(f->payload + 5 + tag_length);
  if (tag != c->tag + 1) die("delivery tag %" PRIu64 " after %" PRIu64, tag, c->tag);
  c->tag = tag;
  c->redelivered = f->payload[13 + tag_length] & 1;
  c->state = WANT_HEADER;
}

static void handle_header(struct consumer *c, const struct frame *f) {
  if (c->state != WANT_HEADER || f->size < 14 || get16(f->payload) != 60) die("content header out of place");
  u64 size = get64(f->payload + 4);
  if (size != (u64)c->size) die("body of %" PRIu64 " octets, sent were %d", size, c->size);
  c->body_done = 0;
  c->state = WANT_BODY;
}

static void handle_body(struct consumer *c, const struct frame *f, u64 now) {
  if (c->state != WANT_BODY || c->body_done + f->size > (u64)c->size) die("content body out of place or too long");
  u32 skip = 0;
  if (!c->body_done) {
    if (f->size < MIN_BODY) die("first body frame of %u octets", f->size);
    memcpy(&c->sequence, f->payload, 8);
    memcpy(&c->sent_at, f->payload + 8, 8);
    skip = MIN_BODY;
  }
  if (memcmp(f->payload + skip, c->filling + c->body_done + skip, f->size - skip))
    die("body of sequence %" PRIu64 " was changed", c->sequence);
  c->body_done += f->size;
  if (c->body_done == (u64)c->size) message_complete(c, now);
}

bool consumer_read(struct consumer *c) {
  int got = connection_fill(&c->connection);
  u64 now = now_ns();
  struct frame f;
  while (got >= 0 && (got = connection_next(&c->connection, &f)) > 0) {
    if (f.type == FRAME_BODY) handle_body(c, &f, now);
    else if (f.type == FRAME_HEADER) handle_header(c, &f);
    else if (f.method == BASIC_DELIVER) handle_deliver(c, &f);
    else if (f.type != FRAME_HEARTBEAT) return connection_refuse(&c->connection, &f);
  }
  return got >= 0 && connection_flush(&c->connection);
}
