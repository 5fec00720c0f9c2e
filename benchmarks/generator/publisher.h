/* A publisher with confirms: at most `window` messages without an answer.
 *
 * A message is a number (its sequence), sent in the first 8 octets of the body; the next 8 are the clock. The rest is a
 * fixed filling that the consumer compares. confirmed[sequence] is set by the broker's answer, once: an answer for a
 * tag that is not in flight ends the run. */
#ifndef PUBLISHER_H
#define PUBLISHER_H
#include "wire.h"

#define MAX_MESSAGES (1ull << 26) /* sequences in one run */
#define MIN_BODY 16

struct publisher {
  struct connection connection;
  struct buffer message; /* the three frames, ready to copy; with --messages all that the file holds */
  size_t stamp;          /* where sequence and clock stand in them */
  u64 *begin, kinds;     /* of the messages of the file: where each begins, and in the end where the last one ends */
  int size;
  u64 window, batch, mask;
  u64 next_tag, oldest, in_flight; /* tags [oldest, next_tag) may be without answer */
  u64 *sent_at, *sequence;         /* by tag & mask; sent_at 0 = answered */
  u8 *confirmed;                   /* by sequence */
  u64 count_confirmed;
  u64 *refused, count_refused;     /* sequences of basic.nack since the caller last set count_refused to 0 */
  u64 last_confirm, longest_stall; /* the longest time from one confirm to the next, ns */
  struct histogram latency;
};

void publisher_init(struct publisher *p, int size, int window);
/* What is sent in turn in place of one message; each is preceded by its length (4 octets, big endian). */
void publisher_read_messages(struct publisher *p, const char *file);
bool publisher_start(struct publisher *p, const char *address, const char *queue, bool persistent, int timeout_ms);
bool publisher_has_room(const struct publisher *p);
void publisher_send(struct publisher *p, u64 sequence, u64 now);
bool publisher_read(struct publisher *p); /* handles what has arrived; false: connection lost */
/* Sequences without answer, in order, into `out` (room for window); the connection may be gone. Returns their number.
 */
u64 publisher_unanswered(const struct publisher *p, u64 *out);
u8 *filling(int size); /* what the body holds after its first 16 octets, from offset 0 */
#endif
