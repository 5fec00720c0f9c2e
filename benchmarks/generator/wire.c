#define _GNU_SOURCE
#include "wire.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define CHANNEL 1
#define INPUT_SIZE (512u << 10)
#define LARGEST_FRAME (1u << 20)

/* ---------- encoding ---------- */
u8 *buffer_reserve(struct buffer *b, size_t size) {
  if (b->start == b->end) b->start = b->end = 0;
  if (b->end + size > b->capacity && b->start) {
    memmove(b->data, b->data + b->start, b->end - b->start);
    b->end -= b->start;
    b->start = 0;
  }
  while (b->end + size > b->capacity) {
    b->capacity = b->capacity ? b->capacity * 2 : 4096;
    b->data = realloc(b->data, b->capacity);
    if (!b->data) die("out of memory");
  }
  return b->data + b->end;
}
void put_raw(struct buffer *b, const void *data, size_t size) {
  memcpy(buffer_reserve(b, size), data, size);
  b->end += size;
}
void put8(struct buffer *b, u8 v) { put_raw(b, &v, 1); }
void put16(struct buffer *b, u16 v) { put_raw(b, (u8[]){v >> 8, v & 255}, 2); }
void put32(struct buffer *b, u32 v) {
  put16(b, v >> 16);
  put16(b, v & 0xffff);
}
void put64(struct buffer *b, u64 v) {
  put32(b, v >> 32);
  put32(b, (u32)v);
}
void put_short_string(struct buffer *b, const char *s) {
  put8(b, (u8)strlen(s));
  put_raw(b, s, strlen(s));
}
static void put_long_string(struct buffer *b, const char *s, size_t size) {
  put32(b, (u32)size);
  put_raw(b, s, size);
}
static void patch32(struct buffer *b, size_t at, u32 v) {
  u8 octets[4] = {v >> 24, v >> 16 & 255, v >> 8 & 255, v & 255};
  memcpy(b->data + b->start + at, octets, 4);
}
/* Offsets are relative to b->start, which a reserve may move. */
size_t begin_frame(struct buffer *b, u8 type, u16 channel) {
  put8(b, type);
  put16(b, channel);
  put32(b, 0);
  return b->end - b->start;
}
size_t begin_method(struct buffer *b, u16 channel, u32 method) {
  size_t at = begin_frame(b, FRAME_METHOD, channel);
  put32(b, method);
  return at;
}
void end_frame(struct buffer *b, size_t at) {
  patch32(b, at - 4, (u32)(b->end - b->start - at));
  put8(b, FRAME_END);
}

/* "key=value,key=value"; every value is a long string. */
static void put_table(struct buffer *b, const char *text) {
  put32(b, 0);
  size_t at = b->end - b->start;
  char *copy = strdup(text), *state = NULL;
  for (char *item = strtok_r(copy, ",", &state); item; item = strtok_r(NULL, ",", &state)) {
    char *value = strchr(item, '=');
    if (!value) die("argument %s has no value", item);
    *value++ = 0;
    put_short_string(b, item);
    put8(b, 'S');
    put_long_string(b, value, strlen(value));
  }
  free(copy);
  patch32(b, at - 4, (u32)(b->end - b->start - at));
}

/* ---------- input ---------- */
static bool fail(struct connection *c, const char *what, int number) {
  snprintf(c->error, sizeof c->error, "%s: %s", what, number ? strerror(number) : "closed by the peer");
  return false;
}

int connection_fill(struct connection *c) {
  struct buffer *b = &c->in;
  u8 *room = buffer_reserve(b, 64u << 10);
  ssize_t n;
  do n = recv(c->fd, room, b->capacity - b->end, 0);
  while (n < 0 && errno == EINTR);
  if (n > 0) {
    b->end += (size_t)n;
    return 1;
  }
  if (n < 0 && errno == EAGAIN) return 0;
  fail(c, "read", n < 0 ? errno : 0);
  return -1;
}

int connection_next(struct connection *c, struct frame *f) {
  struct buffer *b = &c->in;
  const u8 *p = b->data + b->start;
  size_t available = b->end - b->start;
  if (available < 7) return 0;
  u32 size = get32(p + 3);
  if (size > LARGEST_FRAME) {
    snprintf(c->error, sizeof c->error, "frame of %u octets", size);
    return -1;
  }
  if (available < (size_t)size + 8) return 0;
  if (p[7 + size] != FRAME_END) {
    snprintf(c->error, sizeof c->error, "frame does not end in 0xCE");
    return -1;
  }
  *f = (struct frame){.type = p[0], .channel = get16(p + 1), .size = size, .payload = p + 7};
  if (f->type == FRAME_METHOD && size >= 4) f->method = get32(f->payload);
  b->start += (size_t)size + 8;
  return 1;
}

bool connection_refuse(struct connection *c, const struct frame *f) {
  bool close = f->method == CONNECTION_CLOSE || f->method == CHANNEL_CLOSE;
  if (close && f->size >= 7 && f->size >= 7u + f->payload[6])
    snprintf(c->error, sizeof c->error, "closed %d %.*s", get16(f->payload + 4), f->payload[6], f->payload + 7);
  else
    snprintf(c->error, sizeof c->error, "unexpected method %u.%u, frame type %d", f->method >> 16, f->method & 0xffff,
             f->type);
  return false;
}

/* ---------- blocking calls ---------- */
static bool expect(struct connection *c, u32 method, struct frame *f) {
  for (;;) {
    int got = connection_next(c, f);
    if (got < 0) return false;
    if (got) {
      if (f->type == FRAME_HEARTBEAT) continue;
      return f->method == method || connection_refuse(c, f);
    }
    got = connection_fill(c);
    if (got < 0) return false;
    if (!got) return fail(c, "read", ETIMEDOUT);
  }
}
static bool call(struct connection *c, u32 answer, struct frame *f) {
  return connection_flush(c) && (!connection_pending(c) || fail(c, "write", ETIMEDOUT)) && expect(c, answer, f);
}

static int tcp_connect(struct connection *c, const char *address, int timeout_ms) {
  char host[256];
  snprintf(host, sizeof host, "%s", address);
  char *colon = strrchr(host, ':');
  if (!colon) die("address %s is not host:port", address);
  *colon = 0;
  struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((u16)atoi(colon + 1))};
  if (inet_pton(AF_INET, host, &to.sin_addr) != 1) die("%s is not an IPv4 address", host);
  int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;
  struct timeval limit = {timeout_ms / 1000, timeout_ms % 1000 * 1000l};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  if (!connect(fd, (struct sockaddr *)&to, sizeof to)) return fd;
  fail(c, "connect", errno);
  close(fd);
  return -1;
}

static void put_start_ok(struct buffer *b) {
  static const char sasl[] = "\0guest\0guest";
  size_t at = begin_method(b, 0, METHOD(10, 11));
  size_t table = b->end - b->start;
  put32(b, 0);
  put_short_string(b, "product");
  put8(b, 'S');
  put_long_string(b, "amqp_load", 9);
  put_short_string(b, "capabilities");
  put8(b, 'F');
  put32(b, 21 + 13); /* octets of the two entries */
  put_short_string(b, "publisher_confirms");
  put_raw(b, "t\1", 2);
  put_short_string(b, "basic.nack");
  put_raw(b, "t\1", 2);
  patch32(b, table, (u32)(b->end - b->start - table - 4));
  put_short_string(b, "PLAIN");
  put_long_string(b, sasl, sizeof sasl - 1);
  put_short_string(b, "en_US");
  end_frame(b, at);
}

static bool handshake(struct connection *c) {
  struct buffer *b = &c->out;
  struct frame f;
  put_raw(b, "AMQP\0\0\x09\x01", 8);
  if (!call(c, METHOD(10, 10), &f)) return false;
  put_start_ok(b);
  if (!call(c, METHOD(10, 30), &f)) return false;
  u16 channel_max = get16(f.payload + 4);
  c->frame_max = get32(f.payload + 6);
  if (!c->frame_max || c->frame_max > 131072) c->frame_max = 131072;
  size_t at = begin_method(b, 0, METHOD(10, 31));
  put16(b, channel_max);
  put32(b, c->frame_max);
  put16(b, 0); /* no heartbeats */
  end_frame(b, at);
  at = begin_method(b, 0, METHOD(10, 40));
  put_short_string(b, "/");
  put_short_string(b, "");
  put8(b, 0);
  end_frame(b, at);
  if (!call(c, METHOD(10, 41), &f)) return false;
  at = begin_method(b, CHANNEL, METHOD(20, 10));
  put_short_string(b, "");
  end_frame(b, at);
  return call(c, METHOD(20, 11), &f);
}

bool connection_open(struct connection *c, const char *address, int timeout_ms) {
  c->in.start = c->in.end = c->out.start = c->out.end = 0;
  c->error[0] = 0;
  buffer_reserve(&c->in, INPUT_SIZE);
  c->fd = tcp_connect(c, address, timeout_ms);
  if (c->fd < 0) return false;
  if (handshake(c)) return true;
  connection_drop(c);
  return false;
}

static void put_declare(struct connection *c, const char *queue, const char *arguments, bool passive) {
  enum { PASSIVE = 1, DURABLE = 2 };
  size_t at = begin_method(&c->out, CHANNEL, METHOD(50, 10));
  put16(&c->out, 0);
  put_short_string(&c->out, queue);
  put8(&c->out, DURABLE | (passive ? PASSIVE : 0));
  put_table(&c->out, arguments);
  end_frame(&c->out, at);
}

bool connection_declare(struct connection *c, const char *queue, const char *arguments, bool passive, u32 *messages) {
  struct frame f;
  put_declare(c, queue, arguments, passive);
  if (!call(c, METHOD(50, 11), &f)) return false;
  if (messages) *messages = get32(f.payload + 5 + f.payload[4]);
  return true;
}

bool connection_ask_declare(struct connection *c, const char *queue, const char *arguments) {
  put_declare(c, queue, arguments, false);
  return connection_flush(c);
}

bool connection_ask_bind(struct connection *c, const char *queue, const char *exchange, const char *key) {
  size_t at = begin_method(&c->out, CHANNEL, METHOD(50, 20));
  put16(&c->out, 0);
  put_short_string(&c->out, queue);
  put_short_string(&c->out, exchange);
  put_short_string(&c->out, key);
  put8(&c->out, 0);
  put32(&c->out, 0);
  end_frame(&c->out, at);
  return connection_flush(c);
}

bool connection_answered(struct connection *c, u32 answer) {
  struct frame f;
  return call(c, answer, &f);
}

bool connection_confirm_select(struct connection *c) {
  struct frame f;
  size_t at = begin_method(&c->out, CHANNEL, METHOD(85, 10));
  put8(&c->out, 0);
  end_frame(&c->out, at);
  return call(c, METHOD(85, 11), &f);
}

bool connection_consume(struct connection *c, const char *queue, int prefetch) {
  struct frame f;
  size_t at = begin_method(&c->out, CHANNEL, METHOD(60, 10));
  put32(&c->out, 0);
  put16(&c->out, (u16)prefetch);
  put8(&c->out, 0);
  end_frame(&c->out, at);
  if (!call(c, METHOD(60, 11), &f)) return false;
  at = begin_method(&c->out, CHANNEL, METHOD(60, 20));
  put16(&c->out, 0);
  put_short_string(&c->out, queue);
  put_short_string(&c->out, "consumer");
  put8(&c->out, 0);
  put32(&c->out, 0);
  end_frame(&c->out, at);
  return call(c, METHOD(60, 21), &f);
}

/* ---------- output and end ---------- */
bool connection_flush(struct connection *c) {
  struct buffer *b = &c->out;
  while (b->start < b->end) {
    ssize_t n = send(c->fd, b->data + b->start, b->end - b->start, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno == EAGAIN || fail(c, "write", errno);
    b->start += (size_t)n;
  }
  b->start = b->end = 0;
  return true;
}

void connection_set_nonblocking(struct connection *c) { fcntl(c->fd, F_SETFL, fcntl(c->fd, F_GETFL) | O_NONBLOCK); }

void connection_drop(struct connection *c) {
  if (c->fd >= 0) close(c->fd);
  c->fd = -1;
}

bool connection_close(struct connection *c) {
  struct frame f;
  fcntl(c->fd, F_SETFL, fcntl(c->fd, F_GETFL) & ~O_NONBLOCK);
  size_t at = begin_method(&c->out, 0, CONNECTION_CLOSE);
  put16(&c->out, 200);
  put_short_string(&c->out, "");
  put32(&c->out, 0);
  end_frame(&c->out, at);
  bool done = call(c, METHOD(10, 51), &f);
  connection_drop(c);
  return done;
}
