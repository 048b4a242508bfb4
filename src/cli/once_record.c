/* SPDX-License-Identifier: MIT */
#include "cli/once_record.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/door.h"
#include "host/fields.h"

static const char *const states[] = {"none", "begun", "done"};

static int print_head(const struct pk_once_record *r, char head[PK_ONCE_HEAD_MAX])
{
    return snprintf(head, PK_ONCE_HEAD_MAX,
                    "picket-once 1 %s token %" PRIu64 " attempt %" PRIu64
                    " exit %d cut %d\n",
                    states[r->state], r->token, r->attempt, r->exit, r->cut ? 1 : 0);
}

/* The word behind the version; NONE: it is none that is ever written. */
static enum pk_once_state read_state(const char **at)
{
    static const char start[] = "picket-once 1 ";
    size_t len = strlen(start);
    for (enum pk_once_state s = PK_ONCE_BEGUN; s <= PK_ONCE_DONE; s++) {
        if (strncmp(*at, start, len) == 0 &&
            strncmp(*at + len, states[s], strlen(states[s])) == 0) {
            *at += len + strlen(states[s]);
            return s;
        }
    }
    return PK_ONCE_NONE;
}

bool pk_once_record_read(const char *value, size_t len, struct pk_once_record *out)
{
    char head[PK_ONCE_HEAD_MAX];
    char again[PK_ONCE_HEAD_MAX];
    const char *at = head;
    uint64_t code;
    uint64_t cut;
    *out = (struct pk_once_record){.state = PK_ONCE_NONE, .output = ""};
    if (len == 0) {
        return true;
    }
    const char *end = memchr(value, '\n', len < sizeof head - 1 ? len : sizeof head - 1);
    if (end == NULL) {
        return false;
    }
    size_t used = (size_t)(end - value) + 1;
    memcpy(head, value, used);
    head[used] = '\0';
    out->state = read_state(&at);
    if (out->state == PK_ONCE_NONE || !pk_field_read(&at, " token ", &out->token) ||
        !pk_field_read(&at, " attempt ", &out->attempt) ||
        !pk_field_read(&at, " exit ", &code) || !pk_field_read(&at, " cut ", &cut) ||
        code > 255) {
        return false;
    }
    out->exit = (int)code;
    out->cut = cut != 0;
    out->output = value + used;
    out->len = len - used;
    return print_head(out, again) == (int)used && strcmp(again, head) == 0;
}

char *pk_once_record_write(const struct pk_once_record *r, size_t *len)
{
    char head[PK_ONCE_HEAD_MAX];
    size_t used = (size_t)print_head(r, head);
    char *value = pk_door_resize(NULL, used + r->len + 1);
    memcpy(value, head, used);
    if (r->len > 0) {
        memcpy(value + used, r->output, r->len);
    }
    *len = used + r->len;
    value[*len] = '\0';
    return value;
}
