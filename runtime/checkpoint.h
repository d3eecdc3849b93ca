// Checkpoints and exports: written beside, synced, renamed, so that a folder holds the old one or
// the new one, whole, whenever the job dies.
//
// Small ones are one file, model.safetensors. Larger ones are several, and their commit point is
// the index that names them:
//
//   model-00001-of-00002.safetensors  model-00002-of-00002.safetensors model.safetensors.index.json
//
// Where both model.safetensors and an index are there, the one file counts. Files that the last
// save left without a reader go after its commit.
//
// What is written counts when it has been read back, and only where the folder is still this job's
// (save_folder.h). Each tensor of a checkpoint has a checksum in its file's metadata,
// "crc32c:NAME", and so have the header, "crc32c", and all tensors together, "crc32c_of_all".
#ifndef CHECKPOINT_H
#define CHECKPOINT_H

#include <stdint.h>
#include "failure.h"
#include "save_folder.h"

// CHECKPOINT: parameters and state, or the outputs of an inference program (always one file,
// outputs.safetensors). EXPORT: parameters alone, under their aliases where they have one.
enum save_kind { CHECKPOINT, EXPORT };

struct saving {
  const char *directory;
  enum save_kind kind;
  int step;              // the last one done
  uint64_t shard_bytes;  // more than this is spread over several files; 0: never
  const char *token;     // the job's, the same on all ranks
  struct folder *folder; // held by rank 0; NULL on the others
};

// A save in parts, each to be agreed on by all ranks before the next:
//   plan    every rank lays out the files
//   create  rank 0 makes them beside the old ones, of full size
//   write   each rank puts its shards into them
//   shares  rank 0 gets the exclusive or of these numbers of all ranks, which make the checksums
//   commit  rank 0 puts the headers before them and gives them their names
// abandon: rank 0 removes what create made, after a part has failed anywhere. end: always.
struct save;
struct save *save_plan(const struct saving *what, struct failure *why); // NULL, and why
bool save_create(struct save *save, struct failure *why);
bool save_write(struct save *save, struct failure *why);
uint32_t *save_shares(struct save *save, size_t *count); // 0: there are no checksums
bool save_commit(struct save *save, struct failure *why);
void save_abandon(struct save *save);
void save_end(struct save *save);

#endif
