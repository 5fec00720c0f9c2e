/* CRC-32C (Castagnoli), with the processor's instruction where it has one and a table where not.
 * The choice is made once at run time: a wheel is built for any x86-64. */
#ifndef QPIDD_CRC32C_H
#define QPIDD_CRC32C_H
#include <stddef.h>
#include <stdint.h>
#include <string.h>

static uint32_t crc32c_table[256];

static void crc32c_make_table(void) {
  for (uint32_t i = 0; i < 256; i++) {
    uint32_t c = i;
    for (int k = 0; k < 8; k++) c = c & 1 ? 0x82F63B78u ^ (c >> 1) : c >> 1;
    crc32c_table[i] = c;
  }
}

static uint32_t crc32c_soft(uint32_t crc, const uint8_t *p, size_t n) {
  for (size_t i = 0; i < n; i++) crc = crc32c_table[(crc ^ p[i]) & 0xFF] ^ (crc >> 8);
  return crc;
}

#if defined(__x86_64__) && defined(__GNUC__)
__attribute__((target("sse4.2"))) static uint32_t crc32c_sse42(uint32_t crc, const uint8_t *p, size_t n) {
  uint64_t c = crc, word;
  for (; n >= 8; n -= 8, p += 8) {
    memcpy(&word, p, 8);
    c = __builtin_ia32_crc32di(c, word);
  }
  uint32_t d = (uint32_t)c;
  for (; n; n--, p++) d = __builtin_ia32_crc32qi(d, *p);
  return d;
}

/* The instruction takes three cycles, and a new one can begin in each: three lanes next to each other, joined by
 * shift(c) = the checksum c followed by as many zeros as a lane is long, which is linear in c. */
enum { CRC32C_SHORT = 256, CRC32C_LONG = 8192 };
typedef uint32_t crc32c_shift[4][256];
static crc32c_shift crc32c_short_shift, crc32c_long_shift;

static void crc32c_make_shift(crc32c_shift shift, size_t lane) {
  static const uint8_t zeros[CRC32C_SHORT];
  for (int i = 0; i < 32; i++) {
    uint32_t c = 1u << i;
    for (size_t k = 0; k < lane; k += sizeof zeros) c = crc32c_sse42(c, zeros, sizeof zeros);
    for (int b = 0; b < 256; b++)
      if (b >> (i & 7) & 1) shift[i >> 3][b] ^= c;
  }
}

static inline uint32_t crc32c_shifted(crc32c_shift shift, uint32_t c) {
  return shift[0][c & 0xFF] ^ shift[1][c >> 8 & 0xFF] ^ shift[2][c >> 16 & 0xFF] ^ shift[3][c >> 24];
}

__attribute__((target("sse4.2"))) static inline uint32_t crc32c_three(
    uint32_t crc, const uint8_t *p, size_t lane, crc32c_shift shift) {
  uint64_t a = crc, b = 0, c = 0, x, y, z;
  for (const uint8_t *end = p + lane; p < end; p += 8) {
    memcpy(&x, p, 8);
    memcpy(&y, p + lane, 8);
    memcpy(&z, p + 2 * lane, 8);
    a = __builtin_ia32_crc32di(a, x);
    b = __builtin_ia32_crc32di(b, y);
    c = __builtin_ia32_crc32di(c, z);
  }
  return crc32c_shifted(shift, crc32c_shifted(shift, (uint32_t)a) ^ (uint32_t)b) ^ (uint32_t)c;
}

__attribute__((target("sse4.2"))) static uint32_t crc32c_lanes(uint32_t crc, const uint8_t *p, size_t n) {
  for (; n >= 3 * CRC32C_LONG; n -= 3 * CRC32C_LONG, p += 3 * CRC32C_LONG)
    crc = crc32c_three(crc, p, CRC32C_LONG, crc32c_long_shift);
  for (; n >= 3 * CRC32C_SHORT; n -= 3 * CRC32C_SHORT, p += 3 * CRC32C_SHORT)
    crc = crc32c_three(crc, p, CRC32C_SHORT, crc32c_short_shift);
  return crc32c_sse42(crc, p, n);
}
#endif

static uint32_t (*crc32c_chosen)(uint32_t, const uint8_t *, size_t);

static void crc32c_init(void) {
  crc32c_make_table();
  crc32c_chosen = crc32c_soft;
#if defined(__x86_64__) && defined(__GNUC__)
  if (__builtin_cpu_supports("sse4.2")) {
    memset(crc32c_short_shift, 0, sizeof crc32c_short_shift);
    memset(crc32c_long_shift, 0, sizeof crc32c_long_shift);
    crc32c_make_shift(crc32c_short_shift, CRC32C_SHORT);
    crc32c_make_shift(crc32c_long_shift, CRC32C_LONG);
    crc32c_chosen = crc32c_lanes;
  }
#endif
}

/* Chainable: crc32c_add(crc32c_add(0, a), b) is the checksum of a followed by b. */
static uint32_t crc32c_add(uint32_t crc, const uint8_t *p, size_t n) { return ~crc32c_chosen(~crc, p, n); }
#endif
