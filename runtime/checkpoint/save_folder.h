// SPDX-License-Identifier: MIT
// The folder of a job's saves: one job owns it, and replaces only files that such jobs wrote.
//
// Rank 0 holds a lock on the file .tpgen.lock of the folder, which names the holder. The system
// releases the lock when the process dies, and NFS when its machine does. The file also separates
// jobs on file systems without locks: a later job writes its name into it, and a job that is not
// named there any more ends before it renames a file.
#ifndef SAVE_FOLDER_H
#define SAVE_FOLDER_H

#include <stddef.h>
#include "base/failure.h"

static const char SINGLE[] = "model.safetensors";
static const char OUTPUTS[] = "outputs.safetensors";
static const char INDEX[] = "model.safetensors.index.json";

// Metadata keys of such programs' files: one of a checkpoint, the other of an export and an index.
static const char PLAN_HASH[] = "plan_hash";
static const char WRITTEN_BY[] = "written_by";

enum { TOKEN = 96 }; // room for a token

struct folder {
  char *path;
  int fd; // of the lock file; -1: not held
  char token[TOKEN];
};

// A unique name of the job: its machine, process and a random number. The names of all its
// unfinished files contain it.
void folder_token(char token[TOKEN]);

// Takes the folder, which must exist, and removes unfinished files of killed jobs. `note` says what
// is unusual about it, or is empty. False, and why, if another job holds it (and which), or on an
// error.
bool folder_take(struct folder *folder, const char *path, const char *token, struct failure *note,
                 struct failure *why);

// Whether it still belongs to this job. Takes it again if the lock file was removed. False, and
// why, if another job has taken it.
bool folder_keep(struct folder *folder, struct failure *why);

// Releases it. Does nothing if it is not held.
void folder_release(struct folder *folder);

// Whether a save into it would replace or remove only files of such programs' saves. `outputs`: a
// save of outputs. False, and why, if the folder has another file.
bool folder_is_ours(const char *path, bool outputs, struct failure *why);

// Whether the name is that of one of several files, such as model-00001-of-00002.safetensors.
bool folder_names_part(const char *name);

// Whether the folder's file, of tensors or an index, was written by such a program's save,
// according to its metadata. False, and why not.
bool folder_wrote(const char *folder, const char *name, struct failure *why);

// The message that the file is not replaced, with the reason. Returns false.
bool folder_refuses(const char *path, const char *name, const struct failure *reason,
                    struct failure *why);

#endif
