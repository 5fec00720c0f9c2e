#include "publisher.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

u8 *filling(int size) {
  u8 *body = malloc((size_t)size);
  for (int i = 0; i < size; i++) body[i] = (u8)(i * 7 + (i >> 8));
  return body;
}

void publisher_init(struct publisher *p, int size, int window) {
  memset(p, 0, sizeof *p);
  p->connection.fd = -1;
  p->size = size;
  p->window = (u64)window;
  /* answers come in bursts: sending one message for one answer would cost a system call each */
  p->batch = p->window / 8 ? p->window / 8 : 1;
  u64 slots = 1;
  while (slots < p->window) slots <<= 1;
  p->mask = slots - 1;
  p->sent_at = calloc(slots, sizeof *p->sent_at);
  p->sequence = calloc(slots, sizeof *p->sequence);
  p->refused = calloc(slots, sizeof *p->refused);
  p->confirmed = calloc(MAX_MESSAGES, 1);
}

void publisher_read_messages(struct publisher *p, const char *file) {
  FILE *in = fopen(file, "rb");
  if (!in) die("%s: %s", file, strerror(errno));
  u8 length[4];
  struct buffer *b = &p->message;
  while (fread(length, 1, 4, in) == 4) {
    u32 size = get32(length);
    p->begin = realloc(p->begin, (p->kinds + 2) * sizeof *p->begin);
    p->begin[p->kinds++] = b->end;
    if (fread(buffer_reserve(b, size), 1, size, in) != size) die("%s: a message is cut", file);
    b->end += size;
    p->begin[p->kinds] = b->end;
  }
  fclose(in);
  if (!p->kinds) die("%s: no messages", file);
}

static void encode_message(struct publisher *p, const char *queue, bool persistent) {
  struct buffer *b = &p->message;
  b->start = b->end = 0;
  size_t at = begin_method(b, 1, BASIC_PUBLISH);
  put16(b, 0);
  put_short_string(b, "");
  put_short_string(b, queue);
  put8(b, 0);
  end_frame(b, at);
  at = begin_frame(b, FRAME_HEADER, 1);
  put32(b, 60u << 16);
  put64(b, (u64)p->size);
  put16(b, 0x1000); /* delivery-mode only */
  put8(b, persistent ? 2 : 1);
  end_frame(b, at);
  u8 *body = filling(p->size);
  u32 limit = p->connection.frame_max - 8;
  for (u32 offset = 0; offset < (u32)p->size; offset += limit) {
    u32 part = (u32)p->size - offset < limit ? (u32)p->size - offset : limit;
    at = begin_frame(b, FRAME_BODY, 1);
    if (!offset) p->stamp = at;
    put_raw(b, body + offset, part);
    end_frame(b, at);
  }
  free(body);
}

bool publisher_start(struct publisher *p, const char *address, const char *queue, bool persistent, int timeout_ms) {
  if (!connection_open(&p->connection, address, timeout_ms)) return false;
  if (!connection_confirm_select(&p->connection)) {
    connection_drop(&p->connection);
    return false;
  }
  if (!p->kinds) encode_message(p, queue, persistent);
  memset(p->sent_at, 0, (p->mask + 1) * sizeof *p->sent_at);
  p->next_tag = p->oldest = 1;
  p->in_flight = 0;
  connection_set_nonblocking(&p->connection);
  return true;
}

bool publisher_has_room(const struct publisher *p) {
  return p->next_tag - p->oldest < p->window && connection_pending(&p->connection) < (512u << 10);
}

void publisher_send(struct publisher *p, u64 sequence, u64 now) {
  u64 kind = p->kinds ? sequence % p->kinds : 0;
  size_t from = p->kinds ? p->begin[kind] : 0, size = (p->kinds ? p->begin[kind + 1] : p->message.end) - from;
  u8 *to = buffer_reserve(&p->connection.out, size);
  memcpy(to, p->message.data + from, size);
  if (!p->kinds) {
    memcpy(to + p->stamp, &sequence, 8);
    memcpy(to + p->stamp + 8, &now, 8);
  }
  p->connection.out.end += size;
  u64 slot = p->next_tag++ & p->mask;
  p->sent_at[slot] = now;
  p->sequence[slot] = sequence;
  p->in_flight++;
}

static void answered(struct publisher *p, u64 tag, bool ok, u64 now) {
  u64 slot = tag & p->mask;
  if (ok) {
    histogram_add(&p->latency, now - p->sent_at[slot]);
    p->confirmed[p->sequence[slot]] = 1;
    p->count_confirmed++;
  } else {
    p->refused[p->count_refused++] = p->sequence[slot];
  }
  p->sent_at[slot] = 0;
  p->in_flight--;
}

static void handle_answer(struct publisher *p, const struct frame *f, u64 now) {
  if (f->size != 13) die("basic.ack of %u octets", f->size);
  u64 tag = get64(f->payload + 4);
  bool multiple = f->payload[12] & 1, ok = f->method == BASIC_ACK;
  if (tag < p->oldest || tag >= p->next_tag || !p->sent_at[tag & p->mask])
    die("answer for tag %" PRIu64 " (multiple %d), which is not in flight (%" PRIu64 "..%" PRIu64 ")", tag, multiple,
        p->oldest, p->next_tag - 1);
  for (u64 t = multiple ? p->oldest : tag; t <= tag; t++)
    if (p->sent_at[t & p->mask]) answered(p, t, ok, now);
  while (p->oldest < p->next_tag && !p->sent_at[p->oldest & p->mask]) p->oldest++;
  if (!ok) return;
  if (p->last_confirm && now - p->last_confirm > p->longest_stall) p->longest_stall = now - p->last_confirm;
  p->last_confirm = now;
}

bool publisher_read(struct publisher *p) {
  int got = connection_fill(&p->connection);
  u64 now = now_ns();
  struct frame f;
  while (got > 0 && (got = connection_next(&p->connection, &f)) > 0) {
    if (f.method == BASIC_ACK || f.method == BASIC_NACK) handle_answer(p, &f, now);
    else if (f.type != FRAME_HEARTBEAT) return connection_refuse(&p->connection, &f);
  }
  return got >= 0;
}

u64 publisher_unanswered(const struct publisher *p, u64 *out) {
  u64 n = 0;
  for (u64 tag = p->oldest; tag < p->next_tag; tag++)
    if (p->sent_at[tag & p->mask]) out[n++] = p->sequence[tag & p->mask];
  return n;
}
