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
#endif

static uint32_t (*crc32c_chosen)(uint32_t, const uint8_t *, size_t);

static void crc32c_init(void) {
  crc32c_make_table();
  crc32c_chosen = crc32c_soft;
#if defined(__x86_64__) && defined(__GNUC__)
  if (__builtin_cpu_supports("sse4.2")) crc32c_chosen = crc32c_sse42;
#endif
}

/* Chainable: crc32c_add(crc32c_add(0, a), b) is the checksum of a followed by b. */
static uint32_t crc32c_add(uint32_t crc, const uint8_t *p, size_t n) { return ~crc32c_chosen(~crc, p, n); }
#endif
