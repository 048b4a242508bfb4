/* SPDX-License-Identifier: MIT */
#include "cli/argv.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "client/url.h"
#include "core/door.h"
#include "host/memory.h"

enum { SHOWN_ENOUGH = 1024 }; /* bytes: more than anybody shows */

static struct {
    char *room; /* the kernel's: what stands here is what the list shows */
    size_t size;
    int count;
    char **words; /* copies, as they were given */
    char **shown; /* NULL: hidden */
} list;

/* Writes the shown words into the kernel's room. They never need more than there is:
 * words only get shorter. */
static void publish(void)
{
    size_t used = 0;
    for (int i = 0; i < list.count; i++) {
        size_t size = list.shown[i] == NULL ? 0 : strlen(list.shown[i]) + 1;
        if (used + size <= list.size && size > 0) {
            memcpy(list.room + used, list.shown[i], size);
            used += size;
        }
    }
    memset(list.room + used, 0, list.size - used);
}

char **pk_argv_take(int argc, char **argv)
{
    size_t bytes = ((size_t)argc + 1) * sizeof *list.words;
    list.words = pk_door_resize(NULL, bytes);
    list.shown = pk_door_resize(NULL, bytes);
    list.count = argc;
    list.room = argc > 0 ? argv[0] : NULL;
    for (int i = 0; i < argc; i++) {
        list.words[i] = pk_memory_copy(argv[i]);
        list.shown[i] = pk_url_redact(argv[i]);
        if (argv[i] == list.room + list.size) { /* one after the other, as exec does it */
            list.size += strlen(argv[i]) + 1;
        }
    }
    list.words[argc] = NULL;
    list.shown[argc] = NULL;
    publish();
    return list.words;
}

static void hide(int i)
{
    free(list.shown[i]);
    list.shown[i] = NULL;
}

void pk_argv_hide(const char *text)
{
    for (int i = 0; i < list.count; i++) {
        const char *word = list.words[i];
        if (text >= word && text <= word + strlen(word)) {
            hide(i);
        }
    }
    publish();
}

void pk_argv_hide_from(char *const *copy)
{
    for (int i = list.count - 1; i >= 0 && list.words + i >= copy; i--) {
        hide(i);
    }
    publish();
}

char *pk_argv_shown(void)
{
    char *text = pk_memory_copy("");
    for (int i = 0; i < list.count && strlen(text) < SHOWN_ENOUGH; i++) {
        if (list.shown[i] != NULL) {
            char *longer = pk_memory_print("%s%s%s", text, text[0] != '\0' ? " " : "",
                                           list.shown[i]);
            free(text);
            text = longer;
        }
    }
    return text;
}
