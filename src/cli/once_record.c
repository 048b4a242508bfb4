/* SPDX-License-Identifier: MIT */
#include "cli/once_record.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/door.h"

static const char *const states[] = {"none", "begun", "done"};

static int print_head(const struct pk_once_record *r, char head[PK_ONCE_HEAD_MAX])
{
    return snprintf(head, PK_ONCE_HEAD_MAX,
                    "picket-once 1 %s token %" PRIu64 " attempt %" PRIu64
                    " exit %d cut %d\n",
                    states[r->state], r->token, r->attempt, r->exit, r->cut ? 1 : 0);
}

bool pk_once_record_read(const char *value, size_t len, struct pk_once_record *out)
{
    char head[PK_ONCE_HEAD_MAX];
    char again[PK_ONCE_HEAD_MAX];
    char state[8];
    int cut;
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
    if (sscanf(head,
               "picket-once 1 %7s token %" SCNu64 " attempt %" SCNu64 " exit %d cut %d",
               state, &out->token, &out->attempt, &out->exit, &cut) != 5) {
        return false;
    }
    out->state = strcmp(state, states[PK_ONCE_DONE]) == 0 ? PK_ONCE_DONE : PK_ONCE_BEGUN;
    out->cut = cut != 0;
    out->output = value + used;
    out->len = len - used;
    bool same = print_head(out, again) == (int)used && strcmp(again, head) == 0;
    return same && out->exit >= 0 && out->exit <= 255;
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
