/* AMQP 0-9-1 as far as a load needs it: encoding, frames, a blocking handshake and blocking calls.
 * Every function that can fail for the peer's sake returns false (or -1) and leaves the reason in connection.error. */
#ifndef WIRE_H
#define WIRE_H
#include "util.h"

struct buffer {
  u8 *data;
  size_t start, end, capacity; /* octets [start, end) are waiting */
};
u8 *buffer_reserve(struct buffer *b, size_t size); /* room at the end; the caller advances b->end */
void put_raw(struct buffer *b, const void *data, size_t size);
void put8(struct buffer *b, u8 v);
void put16(struct buffer *b, u16 v);
void put32(struct buffer *b, u32 v);
void put64(struct buffer *b, u64 v);
void put_short_string(struct buffer *b, const char *s);
size_t begin_frame(struct buffer *b, u8 type, u16 channel); /* what it returns goes to end_frame */
size_t begin_method(struct buffer *b, u16 channel, u32 method);
void end_frame(struct buffer *b, size_t at);

static inline u16 get16(const u8 *p) { return (u16)(p[0] << 8 | p[1]); }
static inline u32 get32(const u8 *p) { return (u32)p[0] << 24 | (u32)p[1] << 16 | (u32)p[2] << 8 | p[3]; }
static inline u64 get64(const u8 *p) { return (u64)get32(p) << 32 | get32(p + 4); }

enum { FRAME_METHOD = 1, FRAME_HEADER = 2, FRAME_BODY = 3, FRAME_HEARTBEAT = 8, FRAME_END = 0xCE };
#define METHOD(class_id, method_id) ((u32)(class_id) << 16 | (method_id))
#define CONNECTION_CLOSE METHOD(10, 50)
#define CHANNEL_CLOSE METHOD(20, 40)
#define DECLARE_OK METHOD(50, 11)
#define BIND_OK METHOD(50, 21)
#define BASIC_CANCEL METHOD(60, 30)
#define BASIC_PUBLISH METHOD(60, 40)
#define BASIC_DELIVER METHOD(60, 60)
#define BASIC_ACK METHOD(60, 80)
#define BASIC_NACK METHOD(60, 120)

struct frame {
  u8 type;
  u16 channel;
  u32 size, method;  /* method is 0 unless type is FRAME_METHOD */
  const u8 *payload; /* valid until the next read */
};

struct connection {
  int fd; /* -1: closed */
  u32 frame_max;
  struct buffer in, out;
  char error[300];
};

/* Connects to "host:port", opens the virtual host "/" and channel 1. Blocking, at most timeout_ms for each step. */
bool connection_open(struct connection *c, const char *address, int timeout_ms);
bool connection_declare(struct connection *c, const char *queue, const char *arguments, bool passive, u32 *messages);
/* In two steps, so that more than one can be under way. */
bool connection_ask_declare(struct connection *c, const char *queue, const char *arguments);
bool connection_ask_bind(struct connection *c, const char *queue, const char *exchange, const char *key);
bool connection_answered(struct connection *c, u32 answer); /* DECLARE_OK or BIND_OK; writes first what still waits */
bool connection_confirm_select(struct connection *c);
bool connection_consume(struct connection *c, const char *queue, int prefetch);
bool connection_close(struct connection *c); /* with handshake, so that all before it was handled */
void connection_drop(struct connection *c);  /* without */

/* Non-blocking part. */
void connection_set_nonblocking(struct connection *c);
bool connection_flush(struct connection *c);                /* writes what the socket takes */
int connection_fill(struct connection *c);                  /* reads once: 1 something, 0 nothing there, -1 lost */
int connection_next(struct connection *c, struct frame *f); /* 1 a frame, 0 incomplete, -1 malformed */
/* Puts the reason of a close or an unforeseen method into c->error; always false. */
bool connection_refuse(struct connection *c, const struct frame *f);
static inline size_t connection_pending(const struct connection *c) { return c->out.end - c->out.start; }
#endif
