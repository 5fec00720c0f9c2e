/* What passing on the octets of a replicated message costs without a broker: plain C, the same sockets, no AMQP.
 *
 *     publisher -- message --> primary -- message --> two backups, each of which answers with what it has
 *     publisher <-- confirm -- primary, when both have it, -- message --> consumer -- acknowledgement --> primary
 *                              primary -- acknowledgement --> both backups, which answer
 *
 * Each is a process that blocks; it reads as much as there is, and answers once for that.  Nothing is parsed, checked,
 * stored or routed.  The processor time of the primary and the backups is the least for this way of replication on this
 * machine, at this moment. */
#include <inttypes.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "options.h"

#define READ (256 * 1024)  /* octets of one read, as the brokers */
#define NOTE 48            /* octets that tell a backup what was acknowledged */
#define BATCH 64           /* messages that the publisher writes at once */
#define MARKS (1 << 16)    /* a power of two */

enum peer { PUBLISHER, BACKUP, OTHER_BACKUP, CONSUMER, PEERS };

struct primary {
  int fd[PEERS];
  u64 size, room;
  u8 *ring;                       /* messages that not everybody has, `room` octets */
  u64 taken, delivered;           /* octets from the publisher, to the consumer */
  u64 sent, has[PEERS];           /* octets to each backup, and what it has */
  struct { u64 end, messages; } mark[MARKS]; /* after `end` octets a backup has so many messages */
  u64 first_mark, marks, confirmed, acknowledged;
};

static void put(int fd, const void *octets, size_t n) {
  for (const u8 *p = octets; n;) {
    ssize_t went = send(fd, p, n, MSG_NOSIGNAL);
    if (went <= 0) die("floor: a peer has gone");
    p += went, n -= (size_t)went;
  }
}

static size_t get(int fd, void *octets, size_t n) {
  ssize_t got = recv(fd, octets, n, 0);
  if (got < 0) die("floor: a peer has gone");
  return (size_t)got;
}

static u64 last_number(int fd) { /* the newest; all are written whole, and read whole on loopback */
  u64 numbers[512];
  size_t got = get(fd, numbers, sizeof numbers);
  if (!got || got % sizeof *numbers) die("floor: half a number");
  return numbers[got / sizeof *numbers - 1];
}

static void tcp_pair(int pair[2]) {
  struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t n = sizeof at;
  int one = 1, listening = socket(AF_INET, SOCK_STREAM, 0);
  if (bind(listening, (void *)&at, n) || listen(listening, 1) || getsockname(listening, (void *)&at, &n))
    die("floor: cannot listen");
  pair[0] = socket(AF_INET, SOCK_STREAM, 0);
  if (connect(pair[0], (void *)&at, n) || (pair[1] = accept(listening, NULL, NULL)) < 0) die("floor: cannot connect");
  for (int i = 0; i < 2; i++) setsockopt(pair[i], IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  close(listening);
}

static void backup(int fd) {
  u8 *octets = malloc(READ);
  u64 has = 0;
  for (size_t got; (got = get(fd, octets, READ));) {
    has += got;
    put(fd, &has, sizeof has);
  }
}

static void consumer(int fd, u64 size) {
  u8 *octets = malloc(READ);
  u64 has = 0, told = 0;
  for (size_t got; (got = get(fd, octets, READ));) {
    has += got;
    if (has / size == told) continue;
    told = has / size;
    put(fd, &told, sizeof told);
  }
}

static void replicate(struct primary *p, const void *octets, size_t n) {
  put(p->fd[BACKUP], octets, n);
  put(p->fd[OTHER_BACKUP], octets, n);
  p->sent += n;
}

static void take(struct primary *p) {
  u64 at = p->taken % p->room, n = p->room - at;
  size_t got = get(p->fd[PUBLISHER], p->ring + at, n < READ ? n : READ);
  replicate(p, p->ring + at, got);
  p->taken += got;
  if (p->marks - p->first_mark == MARKS) die("floor: too many reads under way");
  p->mark[p->marks % MARKS].end = p->sent;
  p->mark[p->marks++ % MARKS].messages = p->taken / p->size;
}

static void heard(struct primary *p, enum peer backup) {
  u64 before = p->confirmed;
  p->has[backup] = last_number(p->fd[backup]);
  u64 least = p->has[BACKUP] < p->has[OTHER_BACKUP] ? p->has[BACKUP] : p->has[OTHER_BACKUP];
  for (; p->first_mark < p->marks && p->mark[p->first_mark % MARKS].end <= least; p->first_mark++)
    p->confirmed = p->mark[p->first_mark % MARKS].messages;
  if (p->confirmed == before) return;
  put(p->fd[PUBLISHER], &p->confirmed, sizeof p->confirmed);
  while (p->delivered < p->confirmed * p->size) {
    u64 at = p->delivered % p->room, n = p->confirmed * p->size - p->delivered;
    if (n > p->room - at) n = p->room - at;
    put(p->fd[CONSUMER], p->ring + at, n);
    p->delivered += n;
  }
}

static void primary(struct primary *p) {
  int epoll = epoll_create1(0);
  for (int peer = 0; peer < PEERS; peer++) {
    struct epoll_event event = {.events = EPOLLIN, .data.u32 = (u32)peer};
    epoll_ctl(epoll, EPOLL_CTL_ADD, p->fd[peer], &event);
  }
  static const u8 note[NOTE];
  for (struct epoll_event ready[PEERS];;) {
    int n = epoll_wait(epoll, ready, PEERS, -1);
    for (int i = 0; i < n; i++) {
      enum peer peer = ready[i].data.u32;
      if (peer == PUBLISHER) take(p);
      else if (peer == CONSUMER) p->acknowledged = last_number(p->fd[CONSUMER]), replicate(p, note, NOTE);
      else heard(p, peer);
    }
  }
}

static u64 publish(const struct options *o, int fd, struct histogram *latency) {
  u64 sent = 0, confirmed = 0, begun = now_ns(), window = (u64)o->window, *at = malloc(sizeof *at * window);
  u8 *octets = calloc(BATCH, (size_t)o->size);
  while (confirmed < o->count) {
    while (sent < o->count && sent - confirmed < window) {
      u64 n = window - (sent - confirmed), now = now_ns();
      if (n > BATCH) n = BATCH;
      if (n > o->count - sent) n = o->count - sent;
      for (u64 i = 0; i < n; i++) at[(sent + i) % window] = now;
      put(fd, octets, n * (size_t)o->size);
      sent += n;
    }
    u64 newest = last_number(fd), now = now_ns();
    for (; confirmed < newest; confirmed++) histogram_add(latency, now - at[confirmed % window]);
  }
  return now_ns() - begun;
}

static int (*pair)[2]; /* of each peer: the primary's end first */

static void play(int role, struct primary *p) {
  if (role == PEERS) primary(p);
  else if (role == CONSUMER) consumer(pair[CONSUMER][1], p->size);
  else backup(pair[role][1]);
}

static double end(pid_t pid) { /* seconds of processor time */
  struct rusage used;
  kill(pid, SIGKILL);
  if (wait4(pid, NULL, 0, &used) != pid) die("floor: a peer has gone");
  return (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
         (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6;
}

int run_floor(const struct options *o) {
  struct primary *p = calloc(1, sizeof *p);
  pid_t pids[PEERS + 1] = {0};
  static struct histogram latency;
  pair = calloc(PEERS, sizeof *pair);
  for (int peer = 0; peer < PEERS; peer++) tcp_pair(pair[peer]), p->fd[peer] = pair[peer][0];
  p->size = (u64)o->size;
  p->room = p->size * (u64)o->window + READ;
  p->ring = malloc(p->room);
  for (int role = BACKUP; role <= PEERS; role++)
    if (!(pids[role] = fork())) play(role, p), exit(0);
  double nanoseconds = (double)publish(o, pair[PUBLISHER][1], &latency), cpu = 0;
  for (int role = PEERS; role >= BACKUP; role--) {
    double used = end(pids[role]);
    cpu += role == CONSUMER ? 0 : used;
  }
  printf("{");
  histogram_json("confirm_ms", &latency);
  printf("\"messages\":%" PRIu64 ",\"rate\":%.1f,\"cpu_us\":%.4f}\n", o->count,
         (double)o->count / nanoseconds * 1e9, cpu / (double)o->count * 1e6);
  return 0;
}
