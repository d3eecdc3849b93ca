// A folder that a job saves in: its own alone, and only what such jobs wrote is replaced there.
//
// Rank 0 holds a lock on the file .tpgen.lock of the folder, which says who holds it. The system
// gives the lock back when the process dies, and NFS when its machine does. The file also tells
// apart jobs where the file system has no locks: whoever comes later writes itself into it, and a
// job that is not in it any more ends before it gives a file its name.
#ifndef SAVE_FOLDER_H
#define SAVE_FOLDER_H

#include <stddef.h>
#include "failure.h"

static const char SINGLE[] = "model.safetensors";
static const char OUTPUTS[] = "outputs.safetensors";
static const char INDEX[] = "model.safetensors.index.json";

// In the metadata of what such programs write: the one of a checkpoint, the other of an export and
// an index.
static const char PLAN_HASH[] = "plan_hash";
static const char WRITTEN_BY[] = "written_by";

enum { TOKEN = 96 }; // room for one

struct folder {
  char *path;
  int fd; // of the lock's file; -1: not held
  char token[TOKEN];
};

// What no other job is called by: its machine, process and a random number. All files that it has
// not finished have it in their names.
void folder_token(char token[TOKEN]);

// Makes the directory and what leads to it, where they are missing.
bool folder_make(const char *path, struct failure *why);

// Takes the folder, which is there, and removes what killed jobs have left unfinished. `note` says
// what is unusual about it; it is empty where nothing is. False, and why, where another job holds
// it, says who, or it cannot be had.
bool folder_take(struct folder *folder, const char *path, const char *token, struct failure *note,
                 struct failure *why);

// Is it still this job's? Takes it again where somebody has removed the lock's file. False, and
// why, where another job has taken it.
bool folder_keep(struct folder *folder, struct failure *why);

// Gives it back. Nothing happens where it is not held.
void folder_release(struct folder *folder);

// Is a save into it going to replace or remove only what such programs' saves wrote? `outputs`: of
// a save of outputs. False, and why, where another file is there.
bool folder_is_ours(const char *path, bool outputs, struct failure *why);

// Is the name that of one of several files, as model-00001-of-00002.safetensors?
bool folder_names_part(const char *name);

// Was the folder's file, of tensors or an index, written by such a program's save? It says so in
// its metadata. False, and why not.
bool folder_wrote(const char *folder, const char *name, struct failure *why);

// The message that the file stays, for that reason. Returns false.
bool folder_refuses(const char *path, const char *name, const struct failure *reason,
                    struct failure *why);

#endif
