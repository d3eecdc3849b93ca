/* Fails one allocation of a program's own text or of jansson: preloaded, this replaces malloc and
   its kin.

   NO_MEMORY=N        the N-th fails; 0: none
   NO_MEMORY_SAYS=FD  writes the number of allocations there at the end */
#include <errno.h>
#include <link.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t n, size_t size);
extern void *__libc_realloc(void *old, size_t size);
extern void *__libc_memalign(size_t align, size_t size);

static struct {
  uintptr_t begin, end;
} texts[8];
static int ntexts;
static long calls, fails;
static int ready;

/* The entry of the program itself has an empty name. */
static int note_text(struct dl_phdr_info *about, size_t size, void *unused)
{
  (void)size;
  (void)unused;
  if (*about->dlpi_name && !strstr(about->dlpi_name, "libjansson")) return 0;
  for (int i = 0; i < about->dlpi_phnum && ntexts < 8; i++) {
    const ElfW(Phdr) *p = &about->dlpi_phdr[i];
    if (p->p_type != PT_LOAD || !(p->p_flags & PF_X)) continue;
    texts[ntexts].begin = about->dlpi_addr + p->p_vaddr;
    texts[ntexts].end = texts[ntexts].begin + p->p_memsz;
    ntexts++;
  }
  return 0;
}

__attribute__((constructor)) static void start(void)
{
  const char *n = getenv("NO_MEMORY");
  fails = n ? atol(n) : 0;
  dl_iterate_phdr(note_text, NULL);
  ready = 1;
}

__attribute__((destructor)) static void stop(void)
{
  const char *to = getenv("NO_MEMORY_SAYS");
  if (to) dprintf(atoi(to), "%ld\n", calls);
}

static int refused(const void *caller)
{
  uintptr_t at = (uintptr_t)caller;
  if (!ready) return 0;
  for (int i = 0; i < ntexts; i++)
    if (at >= texts[i].begin && at < texts[i].end) {
      if (__atomic_add_fetch(&calls, 1, __ATOMIC_RELAXED) != fails) return 0;
      errno = ENOMEM;
      return 1;
    }
  return 0;
}

#define CALLER __builtin_return_address(0)

void *malloc(size_t size)
{
  return refused(CALLER) ? NULL : __libc_malloc(size);
}

void *calloc(size_t n, size_t size)
{
  return refused(CALLER) ? NULL : __libc_calloc(n, size);
}

void *realloc(void *old, size_t size)
{
  return refused(CALLER) ? NULL : __libc_realloc(old, size);
}

int posix_memalign(void **to, size_t align, size_t size)
{
  if (refused(CALLER)) return ENOMEM;
  *to = __libc_memalign(align, size);
  return *to ? 0 : ENOMEM;
}

char *strdup(const char *text)
{
  size_t size = strlen(text) + 1;
  char *copy = refused(CALLER) ? NULL : __libc_malloc(size);
  return copy ? memcpy(copy, text, size) : NULL;
}
