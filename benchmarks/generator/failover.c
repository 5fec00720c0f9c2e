/* A publisher and a consumer that know the addresses of all brokers and reconnect, each on a thread of its own, so that
 * a broker that is slow to answer one does not hold up the other. What was not confirmed is sent again. At the end
 * every confirmed message must have been delivered. */
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "consumer.h"
#include "options.h"
#include "publisher.h"

#define CONNECT_TIMEOUT_MS 1000
#define RETRY_MS 2
#define SETTLE (30 * SECOND) /* for the last confirms and deliveries, after publishing has ended */

struct side {
  const struct options *o;
  int current; /* index of the address in use */
  u64 losses, attempts;
  char reason[300]; /* of the last loss */
};
static struct side publishing, consuming;
static struct publisher publisher;
static struct consumer consumer;
static atomic_bool all_published;
static u64 published, resent, nacked, end_of_publishing;

static void next_address(struct side *s) { s->current = (s->current + 1) % s->o->addresses; }

static void lost(struct side *s, struct connection *c) {
  s->losses++;
  memcpy(s->reason, c->error, sizeof s->reason);
  connection_drop(c);
  next_address(s);
}

/* One try at the current address; on failure the next one is due. */
static bool attempt(struct side *s, bool ok) {
  s->attempts++;
  if (ok) return true;
  next_address(s);
  sleep_ms(RETRY_MS);
  return false;
}

static bool poll_one(struct connection *c) {
  struct pollfd fd = {c->fd, (short)(POLLIN | (connection_pending(c) ? POLLOUT : 0)), 0};
  return poll(&fd, 1, 1) > 0;
}

/* ---------- publisher ---------- */
struct backlog {
  u64 *sequence, begin, end;
}; /* to be sent again */

/* What was refused or has no answer, before what already waits. */
static void take_back(struct backlog *again) {
  u64 rest = again->end - again->begin, n = publisher.count_refused;
  u64 *merged = calloc(n + publisher.window + rest + 1, sizeof *merged);
  memcpy(merged, publisher.refused, n * sizeof *merged);
  publisher.count_refused = 0;
  n += publisher_unanswered(&publisher, merged + n);
  if (rest) memcpy(merged + n, again->sequence + again->begin, rest * sizeof *merged);
  free(again->sequence);
  *again = (struct backlog){merged, 0, n + rest};
}

static void send_some(struct backlog *again, u64 start, u64 now) {
  const struct options *o = publishing.o;
  u64 due = now < end_of_publishing ? (u64)((double)(now - start) / 1e9 * o->rate) : 0;
  while (publisher_has_room(&publisher)) {
    if (again->begin < again->end) {
      publisher_send(&publisher, again->sequence[again->begin++], now);
      resent++;
    } else if (published < due) {
      publisher_send(&publisher, published++, now);
    } else {
      return;
    }
  }
}

static void *publish(void *unused) {
  struct connection *c = &publisher.connection;
  struct backlog again = {0};
  u64 start = now_ns();
  end_of_publishing = start + (u64)(publishing.o->seconds * 1e9);
  for (u64 now = start; now < end_of_publishing + SETTLE; now = now_ns()) {
    if (c->fd < 0) {
      const char *address = publishing.o->address[publishing.current];
      attempt(&publishing,
              publisher_start(&publisher, address, publishing.o->queue, publishing.o->persistent, CONNECT_TIMEOUT_MS));
      continue;
    }
    send_some(&again, start, now);
    if (now >= end_of_publishing && !publisher.in_flight && again.begin == again.end) break;
    if (!connection_flush(c) || (poll_one(c) && !publisher_read(&publisher))) {
      take_back(&again);
      lost(&publishing, c);
    } else if (publisher.count_refused) { /* a channel that was refused once may be refused for ever: take a new one */
      nacked += publisher.count_refused;
      take_back(&again);
      connection_drop(c);
      sleep_ms(RETRY_MS);
    }
  }
  atomic_store(&all_published, true);
  return unused;
}

/* ---------- consumer ---------- */
static u64 undelivered(void) {
  u64 n = 0;
  for (u64 s = 0; s < published; s++) n += publisher.confirmed[s] && !consumer.seen[s];
  return n;
}

/* Looked at only now and then: it walks over all messages. */
static bool consumed_all(u64 now) {
  static u64 checked;
  if (!atomic_load(&all_published) || now - checked < 100 * MILLISECOND) return false;
  checked = now;
  return !undelivered();
}

static void *consume(void *unused) {
  struct connection *c = &consumer.connection;
  for (u64 now = now_ns(), end = now + (u64)(consuming.o->seconds * 1e9) + 2 * SETTLE; now < end && !consumed_all(now);
       now = now_ns()) {
    if (c->fd < 0) {
      attempt(&consuming, consumer_start(&consumer, consuming.o->address[consuming.current], consuming.o->queue,
                                         CONNECT_TIMEOUT_MS));
      continue;
    }
    if (!poll_one(c)) consumer_acknowledge(&consumer);
    else if (!consumer_read(&consumer)) lost(&consuming, c);
    if (c->fd >= 0 && !connection_flush(c)) lost(&consuming, c);
  }
  return unused;
}

static void declare_queue(const struct options *o) {
  struct connection c = {.fd = -1};
  for (int i = 0; i < o->addresses; i++) {
    if (!connection_open(&c, o->address[i], CONNECT_TIMEOUT_MS)) continue;
    if (!connection_declare(&c, o->queue, o->arguments, false, NULL) || !connection_close(&c))
      die("declare: %s", c.error);
    publishing.current = consuming.current = i;
    return;
  }
  die("no broker of the list takes a client: %s", c.error);
}

static void print_text(const char *name, const char *text) {
  printf("\"%s\":\"", name);
  for (; *text; text++) putchar(*text == '"' || *text == '\\' || (u8)*text < 32 ? ' ' : *text);
  printf("\",");
}

int run_failover(const struct options *o) {
  pthread_t threads[2];
  publishing.o = consuming.o = o;
  declare_queue(o);
  publisher_init(&publisher, o->size, o->window);
  consumer_init(&consumer, o->size, o->prefetch);
  pthread_create(&threads[0], NULL, consume, NULL);
  pthread_create(&threads[1], NULL, publish, NULL);
  for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
  u64 missing = undelivered();
  printf("{\"published\":%" PRIu64 ",\"confirmed\":%" PRIu64 ",\"resent\":%" PRIu64 ",\"nacked\":%" PRIu64
         ",\"delivered\":%" PRIu64 ",",
         published, publisher.count_confirmed, resent, nacked, consumer.count_delivered);
  printf("\"lost\":%" PRIu64 ",\"duplicates\":%" PRIu64 ",", missing, consumer.count_duplicates);
  printf("\"outage_ms\":%.3f,\"delivery_gap_ms\":%.3f,", (double)publisher.longest_stall / 1e6,
         (double)consumer.longest_gap / 1e6);
  printf("\"publisher_losses\":%" PRIu64 ",\"consumer_losses\":%" PRIu64 ",\"attempts\":%" PRIu64 ",",
         publishing.losses, consuming.losses, publishing.attempts + consuming.attempts);
  print_text("reason", publishing.reason);
  histogram_json("confirm_ms", &publisher.latency);
  printf("\"rate\":%.0f}\n", o->rate);
  return missing ? 1 : 0;
}
