/* SPDX-License-Identifier: MIT */
#include "cli/rows.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

const char *pk_rows_mode(enum picket_mode mode)
{
    static const char *const names[] = {[PICKET_EXCLUSIVE] = "exclusive",
                                        [PICKET_SHARED] = "shared",
                                        [PICKET_SLOT] = "slot"};
    return names[mode];
}

const char *pk_rows_who(const struct picket_row *r, char buf[PK_OWNER_ROOM])
{
    if (r->host[0] == '\0' && r->user[0] == '\0') {
        /* Not written by this library: show what there is. */
        const char *label = r->label[0] != '\0' ? r->label : "somebody without a label";
        (void)snprintf(buf, PK_OWNER_ROOM, "%.300s", label);
        for (char *newline = buf; (newline = strchr(newline, '\n')) != NULL;) {
            *newline = ' ';
        }
    } else {
        (void)snprintf(buf, PK_OWNER_ROOM, "%.100s@%.200s pid %" PRIu64, r->user, r->host,
                       r->pid);
    }
    return buf;
}

const char *pk_rows_owner(const struct picket_row *r, char buf[PK_OWNER_ROOM])
{
    size_t used = strlen(pk_rows_who(r, buf));
    if (r->command[0] != '\0') {
        (void)snprintf(buf + used, PK_OWNER_ROOM - used, " (%.150s)", r->command);
    }
    return buf;
}

void pk_rows_json(struct pk_json *j, const struct picket_row *r)
{
    pk_json_text(j, "mode", pk_rows_mode(r->mode));
    if (r->place > 0) {
        pk_json_number(j, "place", r->place);
        pk_json_number(j, "waiting_ms", r->for_ms);
    } else {
        pk_json_number(j, "token", r->token);
        pk_json_number(j, "held_ms", r->for_ms);
    }
    pk_json_id(j, "lease", r->lease);
    pk_json_number(j, "left_ms", r->left_ms);
    pk_json_text(j, "user", r->user);
    pk_json_text(j, "host", r->host);
    pk_json_number(j, "pid", r->pid);
    pk_json_text(j, "command", r->command);
    pk_json_text(j, "note", r->note);
    pk_json_text(j, "label", r->label);
    if (r->value_len > 0) {
        pk_json_bytes(j, "value", r->value, r->value_len);
    }
}

const struct picket_row *pk_rows_holder(const struct picket_view *v)
{
    return v->n_rows > 0 && v->rows[0].place == 0 ? &v->rows[0] : NULL;
}
