/* Steady load on one queue: a publisher, a consumer, or both, on one thread. */
#include <inttypes.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "consumer.h"
#include "options.h"
#include "publisher.h"

#define CONNECT_TIMEOUT_MS 10000
#define SILENCE_LIMIT (30 * SECOND) /* nothing comes any more although something is missing */

struct load {
  const struct options *o;
  struct publisher publisher;
  struct consumer consumer;
  u64 start, published, published_until; /* published_until 0: still publishing */
  u32 depth;                             /* messages in the queue before the start */
};

static void set_up(struct load *l) {
  const struct options *o = l->o;
  struct connection c = {.fd = -1};
  if (!o->messages && (!connection_open(&c, o->address[0], CONNECT_TIMEOUT_MS) ||
                       !connection_declare(&c, o->queue, o->arguments, false, &l->depth) || !connection_close(&c)))
    die("declare %s: %s", o->queue, c.error);
  publisher_init(&l->publisher, o->size, o->window);
  if (o->messages) publisher_read_messages(&l->publisher, o->messages);
  consumer_init(&l->consumer, o->size, o->prefetch);
  l->start = now_ns(); /* a consumer that finds messages is at work before it is set up */
  if (o->consume && !consumer_start(&l->consumer, o->address[0], o->queue, CONNECT_TIMEOUT_MS))
    die("consumer: %s", l->consumer.connection.error);
  if (o->publish && !publisher_start(&l->publisher, o->address[0], o->queue, o->persistent, CONNECT_TIMEOUT_MS))
    die("publisher: %s", l->publisher.connection.error);
  if (o->publish) l->start = now_ns();
}

static u64 message_limit(const struct options *o) { return o->count ? o->count : MAX_MESSAGES; }

static void publish_some(struct load *l, u64 now) {
  struct publisher *p = &l->publisher;
  const struct options *o = l->o;
  u64 due = message_limit(o);
  if (o->rate > 0) {
    u64 by_clock = (u64)((double)(now - l->start) / 1e9 * o->rate) + 1;
    if (by_clock < due) due = by_clock;
  }
  if (p->in_flight && p->in_flight + p->batch > p->window) return;
  while (l->published < due && publisher_has_room(p)) publisher_send(p, l->published++, now);
}

static bool publishing_over(const struct load *l, u64 now) {
  return l->published >= message_limit(l->o) || (l->o->seconds > 0 && now >= l->start + (u64)(l->o->seconds * 1e9));
}

static bool finished(const struct load *l) {
  const struct options *o = l->o;
  if (o->publish && (!l->published_until || l->publisher.in_flight || connection_pending(&l->publisher.connection)))
    return false;
  u64 expected = o->publish ? l->published : l->depth;
  return !o->consume || l->consumer.count_distinct >= expected;
}

static void wait_and_read(struct load *l) {
  struct connection *p = &l->publisher.connection, *c = &l->consumer.connection;
  struct pollfd fds[2] = {{p->fd, (short)(POLLIN | (connection_pending(p) ? POLLOUT : 0)), 0},
                          {c->fd, (short)(POLLIN | (connection_pending(c) ? POLLOUT : 0)), 0}};
  poll(fds, 2, l->o->rate > 0 ? 1 : 20);
  if (fds[0].revents & ~POLLOUT && !publisher_read(&l->publisher)) die("publisher lost: %s", p->error);
  if (fds[1].revents && !consumer_read(&l->consumer)) die("consumer lost: %s", c->error);
  if (l->publisher.count_refused) die("a message was refused (basic.nack)");
}

static void run(struct load *l) {
  while (!finished(l)) {
    u64 now = now_ns(), last = l->start;
    if (l->o->publish && !l->published_until) {
      if (publishing_over(l, now)) l->published_until = now;
      else publish_some(l, now);
    }
    if (l->o->publish && !connection_flush(&l->publisher.connection))
      die("publisher lost: %s", l->publisher.connection.error);
    wait_and_read(l);
    if (l->publisher.last_confirm > last) last = l->publisher.last_confirm;
    if (l->consumer.last_delivery > last) last = l->consumer.last_delivery;
    if (now > last + SILENCE_LIMIT)
      die("silence: %" PRIu64 " sent, %" PRIu64 " confirmed, %" PRIu64 " delivered", l->published,
          l->publisher.count_confirmed, l->consumer.count_distinct);
  }
}

/* After the closing handshakes the queue must hold exactly what nobody consumed. Some brokers count late. */
static void check_depth(const struct load *l) {
  u32 wanted = l->depth + (u32)(l->published - l->consumer.count_delivered), found = 0;
  struct connection c = {.fd = -1};
  for (u64 end = now_ns() + 3 * SECOND; now_ns() < end; sleep_ms(50)) {
    if (!connection_open(&c, l->o->address[0], CONNECT_TIMEOUT_MS) ||
        !connection_declare(&c, l->o->queue, "", true, &found) || !connection_close(&c))
      die("depth of %s: %s", l->o->queue, c.error);
    if (found == wanted) return;
  }
  die("the queue holds %u messages, it should hold %u", found, wanted);
}

static void check_and_close(struct load *l) {
  struct consumer *c = &l->consumer;
  if (l->o->publish && !connection_close(&l->publisher.connection)) die("close: %s", l->publisher.connection.error);
  if (l->o->consume) {
    consumer_acknowledge(c);
    if (!connection_close(&c->connection)) die("close: %s", c->connection.error);
    if (c->count_duplicates) die("%" PRIu64 " messages came twice", c->count_duplicates);
  }
  if (!l->o->messages) check_depth(l); /* those of a file go where their keys say */
}

int run_load(const struct options *o) {
  static struct load l; /* too large for the stack */
  l.o = o;
  set_up(&l);
  double cpu = cpu_seconds();
  run(&l);
  cpu = cpu_seconds() - cpu;
  check_and_close(&l);
  const struct publisher *p = &l.publisher;
  const struct consumer *c = &l.consumer;
  u64 end = p->last_confirm > c->last_delivery ? p->last_confirm : c->last_delivery;
  u64 messages = o->publish ? l.published : c->count_distinct;
  printf("{\"messages\":%" PRIu64 ",\"seconds\":%.6f,\"rate\":%.1f,", messages, (double)(end - l.start) / 1e9,
         (double)messages / ((double)(end - l.start) / 1e9));
  printf("\"confirmed\":%" PRIu64 ",\"delivered\":%" PRIu64 ",\"redelivered\":%" PRIu64 ",\"out_of_order\":%" PRIu64
         ",",
         p->count_confirmed, c->count_delivered, c->count_redelivered, c->count_out_of_order);
  histogram_json("confirm_ms", &p->latency);
  histogram_json("delivery_ms", &c->latency);
  printf("\"longest_stall_ms\":%.3f,\"generator_cpu_seconds\":%.3f}\n", (double)p->longest_stall / 1e6, cpu);
  return 0;
}
