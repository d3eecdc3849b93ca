// SPDX-License-Identifier: MIT
// Checkpoints and exports: written under other names, synced, then renamed. Whenever the job dies,
// a folder holds either the old one or the new one, whole.
//
// A small one is one file, model.safetensors. A larger one is several files, and its commit point
// is the index that names them:
//
//   model-00001-of-00002.safetensors  model-00002-of-00002.safetensors model.safetensors.index.json
//
// If both model.safetensors and an index exist, the one file is valid. Files of the previous save
// that no index names any more are removed after the commit.
//
// A save is valid after it has been read back, and only if the folder still belongs to this job
// (save_folder.h). The metadata of a file has a checksum for each tensor of a checkpoint,
// "crc32c:NAME", one for the header, "crc32c", and one for all tensors together, "crc32c_of_all".
#ifndef CHECKPOINT_H
#define CHECKPOINT_H

#include <stdint.h>
#include "base/failure.h"
#include "checkpoint/save_folder.h"

// CHECKPOINT: parameters and state, or the outputs of an inference program (always one file,
// outputs.safetensors). EXPORT: only parameters, under their aliases if they have one, with
// adapters merged into the weights. ADAPTER: only the adapters, in PEFT's file (adapters.h).
enum save_kind { CHECKPOINT, EXPORT, ADAPTER };

struct saving {
  const char *directory;
  enum save_kind kind;
  int step;              // the last one done
  uint64_t shard_bytes;  // a larger save is split into several files; 0: never
  const char *token;     // of the job, the same on all ranks
  struct folder *folder; // held by rank 0; NULL on the others
  uint64_t samples;      // OUTPUTs have so many rows, of several batches; 0: of the one batch
};

// The parts of a save; all ranks agree on the outcome of each before the next:
//   plan    every rank computes the layout of the files
//   create  rank 0 creates them under other names, at full size
//   merge   each rank copies its parts of the adapters, if they are to be merged
//           (adapters.h)
//   write   each rank writes its shards
//   shares  rank 0 gets the exclusive or of these numbers over all ranks, and so the checksums
//   commit  rank 0 writes the headers and renames the files
// abandon: after a part has failed on any rank, rank 0 removes the files of create. end: always.
struct save;
struct save *save_plan(const struct saving *what, struct failure *why); // NULL, and why
bool save_create(struct save *save, struct failure *why);
bool save_merge(struct save *save, struct failure *why);
bool save_write(struct save *save, struct failure *why);
void save_batch(struct save *save, uint64_t first, uint64_t count); // with `samples`: the next
                                                                    // write is of these
uint32_t *save_shares(struct save *save, size_t *count);            // 0: there are no checksums
bool save_commit(struct save *save, struct failure *why);
void save_abandon(struct save *save);
void save_end(struct save *save);

// Between plan and write: copies what this rank saves, save_bytes_here bytes of it, and write then
// reads the copy, which the caller keeps until the end of the save and may use again. False, and
// why.
struct copy {
  char *bytes;
  size_t room;
};
size_t save_bytes_here(const struct save *save);
bool save_copy_room(struct copy *copy, size_t bytes, struct failure *why);
bool save_copy(struct save *save, struct copy *copy, struct failure *why);
void save_copy_free(struct copy *copy);

#endif
