/* json_text.h: what tpgen writes as JSON. Its memory is the arena's (util.c), so that none of this
   runs out of it in silence; all else that jansson could refuse is a mistake of tpgen's. */
#ifndef JSON_TEXT_H
#define JSON_TEXT_H

#include <jansson.h>

/* Takes a member into an object, and a value into a list. */
void put_member(json_t *object, const char *name, json_t *value);
void append(json_t *list, json_t *value);

/* The whole as a text, in the arena; read again, the text gives the same. flags: as json_dumps. */
char *json_text(const json_t *whole, size_t flags);

#endif
