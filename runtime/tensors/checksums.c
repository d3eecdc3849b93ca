// SPDX-License-Identifier: MIT
#include "tensors/checksums.h"

#include <stdlib.h>
#include <string.h>
#include "tensors/tensor_table.h"

// ---- tensors -----------------------------------------------------------------------------------

bool checks_make(struct checks *checks, size_t count, struct failure *why)
{
  *checks = (struct checks){count, calloc(count + 1, sizeof *checks->all),
                            calloc(count + 1, sizeof *checks->shares)};
  if (checks->all && checks->shares) return true;
  checks_free(checks);
  return failed(why, "out of memory for the checksums of %zu tensors", count);
}

void checks_free(struct checks *checks)
{
  for (size_t i = 0; checks->all && i < checks->count; i++) free(checks->all[i].where);
  free(checks->all);
  free(checks->shares);
  *checks = (struct checks){0};
}

bool checks_expect(struct checks *checks, size_t i, const struct kept *kept, struct failure *why)
{
  const struct entry *e = kept->entry;
  if (!e->has_crc) return true;
  size_t size = strlen(kept->file->path) + strlen(e->name) + 3;
  char *where = malloc(size);
  if (!where) return failed(why, "%s: out of memory for its checksums", kept->file->path);
  snprintf(where, size, "%s: %s", kept->file->path, e->name);
  checks->all[i] = (struct check){where, e->end - e->begin, e->crc};
  return true;
}

bool checks_hold(const struct checks *checks, size_t i, struct failure *why)
{
  const struct check *c = &checks->all[i];
  uint32_t crc = checksum_whole(checks->shares[i], c->bytes);
  if (!c->where || crc == c->crc) return true;
  return failed(why,
                "%s: its bytes have changed since they were saved: their CRC-32C is %08x, and was "
                "%08x",
                c->where, (unsigned)crc, (unsigned)c->crc);
}

bool verify_refuse(const struct failure *changed, struct failure *why)
{
  return failed(why, "%s: load an older checkpoint, or take this one as it is by --no-verify",
                changed->text);
}

static bool read_share(const struct kept *kept, uint64_t begin, uint64_t end, void *stage,
                       struct checksum *sum, struct failure *why)
{
  long of = (long)(kept->entry->end - kept->entry->begin), first = 0;
  const struct slice whole = {.ndim = 1, .of = &of, .here = &of, .first = &first};
  const struct entry bytes = {.dtype = "U8", .begin = kept->entry->begin};
  while (begin < end) {
    size_t count = end - begin < STAGED_BYTES ? (size_t)(end - begin) : STAGED_BYTES;
    if (!safetensors_read(kept->file, &bytes, &whole, begin, count, stage, why)) return false;
    checksum_add(sum, begin, stage, count);
    begin += count;
  }
  return true;
}

bool verify_read(const struct archive *archive, int index, int parts, struct checks *checks,
                 struct failure *why)
{
  void *stage = malloc(STAGED_BYTES);
  bool ok = stage || failed(why, "out of memory for reading");
  for (size_t i = 0; ok && i < archive->count; i++) {
    const struct kept *kept = &archive->all[i];
    const long size = (long)(kept->entry->end - kept->entry->begin);
    const long begin = part_first(size, parts, index), here = part_size(size, parts, index);
    struct checksum sum = {0};
    ok = checks_expect(checks, i, kept, why) &&
         (!kept->entry->has_crc ||
          read_share(kept, (uint64_t)begin, (uint64_t)(begin + here), stage, &sum, why));
    checks->shares[i] = checksum_share(&sum, (uint64_t)size);
  }
  free(stage);
  return ok;
}

// ---- headers -----------------------------------------------------------------------------------

static bool header_holds(const struct safetensors *file, struct failure *why)
{
  if (file->seal == BROKEN)
    return failed(why, "%s: its header has changed since it was saved, by its CRC-32C", file->path);
  for (size_t i = 0; i < file->count; i++)
    if (!file->entries[i].has_crc)
      return failed(why, "%s: it has no checksum of %s", file->path, file->entries[i].name);
  return true;
}

bool verify_headers(const struct archive *archive, bool *has, struct failure *why)
{
  size_t without = 0;
  uint32_t all = 0;
  char said[16];
  for (size_t i = 0; i < archive->nfiles; i++) without += archive->files[i].seal == UNSEALED;
  *has = without < archive->nfiles;
  if (!*has) return true;
  if (without > 0)
    return failed(why, "%s: %zu of its %zu files have no checksums, and the others have",
                  archive->path, without, archive->nfiles);
  for (size_t i = 0; i < archive->nfiles; i++) {
    if (!header_holds(&archive->files[i], why)) return false;
    all ^= entries_crc(archive->files[i].entries, archive->files[i].count);
  }
  snprintf(said, sizeof said, "%08x", (unsigned)all);
  const char *of_all = archive_metadata(archive, "crc32c_of_all");
  if (of_all && strcmp(of_all, said) == 0) return true;
  return failed(why, "%s: its files are not of one save", archive->path);
}
