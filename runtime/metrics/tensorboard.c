// SPDX-License-Identifier: MIT
// Events of TensorBoard (event.proto, summary.proto), written byte by byte.
#include "metrics/tensorboard.h"

#include <stdint.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "base/open_input.h"
#include "formats/crc32c.h"

// An event, and its numbers; excess bytes are dropped.
struct bytes {
  unsigned char at[4096];
  size_t count;
};
static struct bytes event, summary;

// ---- protocol buffers --------------------------------------------------------------------------

static void put_byte(struct bytes *b, unsigned x)
{
  if (b->count < sizeof b->at) b->at[b->count++] = (unsigned char)x;
}

static void put_little(struct bytes *b, uint64_t x, int bytes)
{
  for (int i = 0; i < bytes; i++) put_byte(b, (unsigned)(x >> 8 * i & 0xff));
}

static void put_varint(struct bytes *b, uint64_t x)
{
  for (; x > 0x7f; x >>= 7) put_byte(b, (unsigned)(x & 0x7f) | 0x80);
  put_byte(b, (unsigned)x);
}

enum wire { VARINT, OF_8_BYTES, OF_LENGTH, OF_4_BYTES = 5 };

static void put_field(struct bytes *b, unsigned number, enum wire wire)
{
  put_varint(b, number << 3 | (unsigned)wire);
}

static void put_text(struct bytes *b, unsigned number, const void *text, size_t length)
{
  put_field(b, number, OF_LENGTH);
  put_varint(b, length);
  for (size_t i = 0; i < length; i++) put_byte(b, ((const unsigned char *)text)[i]);
}

// ---- records -----------------------------------------------------------------------------------

// TensorBoard's masked checksum, for bytes that may contain checksums.
static uint32_t masked(const unsigned char *bytes, size_t count)
{
  const uint32_t crc = crc32c(bytes, count);
  return (crc >> 15 | crc << 17) + 0xa282ead8;
}

static void write_record(FILE *file, const struct bytes *data)
{
  struct bytes head = {.count = 0}, tail = {.count = 0};
  put_little(&head, data->count, 8);
  put_little(&head, masked(head.at, 8), 4);
  put_little(&tail, masked(data->at, data->count), 4);
  fwrite(head.at, 1, head.count, file);
  fwrite(data->at, 1, data->count, file);
  fwrite(tail.at, 1, tail.count, file);
}

// ---- events ------------------------------------------------------------------------------------

static void put_time(struct bytes *b, double time)
{
  uint64_t bits;
  memcpy(&bits, &time, sizeof bits);
  put_field(b, 1, OF_8_BYTES);
  put_little(b, bits, 8);
}

void events_begin(double time, int step)
{
  event.count = summary.count = 0;
  put_time(&event, time);
  put_field(&event, 2, VARINT);
  put_varint(&event, (uint64_t)step);
}

// Summary.value {tag, simple_value}
void events_number(const char *name, double x)
{
  struct bytes value = {.count = 0};
  const float number = (float)x;
  uint32_t bits;
  memcpy(&bits, &number, sizeof bits);
  put_text(&value, 1, name, strlen(name));
  put_field(&value, 2, OF_4_BYTES);
  put_little(&value, bits, 4);
  if (summary.count + value.count + 100 < sizeof summary.at)
    put_text(&summary, 1, value.at, value.count);
}

void events_end(FILE *file)
{
  if (summary.count > 0) put_text(&event, 5, summary.at, summary.count);
  write_record(file, &event);
}

FILE *events_open(const char *folder, char name[EVENTS_NAME], struct failure *why)
{
  static const char version[] = "brain.Event:2";
  const time_t now = time(NULL);
  char host[64];
  if (gethostname(host, sizeof host) != 0) host[0] = 0;
  host[sizeof host - 1] = 0;
  if (!folder_make(folder, why)) return NULL;
  if (snprintf(name, EVENTS_NAME, "%s/events.out.tfevents.%010lld.%s.%ld", folder, (long long)now,
               host, (long)getpid()) >= EVENTS_NAME) {
    failed(why, "%s: the path is too long", folder);
    return NULL;
  }
  FILE *file = create_stream(name, why);
  if (!file) return NULL;
  event.count = summary.count = 0;
  put_time(&event, (double)now);
  put_text(&event, 3, version, strlen(version));
  events_end(file);
  return file;
}
