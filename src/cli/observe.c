/* SPDX-License-Identifier: MIT */
#include "cli/observe.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/errors.h"
#include "cli/rows.h"
#include "core/door.h"

/* What was printed last. */
struct leader {
    bool printed;
    bool somebody;
    uint64_t token, lease; /* one of them changes with the leader */
    char *value;
    size_t value_len;
};

static void print(const char *name, const struct picket_row *r, bool json)
{
    if (json) {
        struct pk_json j = {0};
        pk_json_object(&j, NULL);
        pk_json_text(&j, "lock", name);
        if (r != NULL) {
            pk_json_object(&j, "holder");
            pk_rows_json(&j, r);
            pk_json_end_object(&j);
        } else {
            pk_json_null(&j, "holder");
        }
        pk_json_end_object(&j);
    } else if (r != NULL) {
        (void)printf("leader %s token=%" PRIu64 " value=", name, r->token);
        pk_output_bytes(r->value, r->value_len);
        (void)putchar('\n');
    } else {
        (void)printf("none %s\n", name);
    }
    (void)fflush(stdout);
}

static bool same(const struct leader *l, const struct picket_row *r)
{
    if (!l->printed || r == NULL) {
        return l->printed && !l->somebody;
    }
    return l->somebody && l->token == r->token && l->lease == r->lease &&
           l->value_len == r->value_len && memcmp(l->value, r->value, r->value_len) == 0;
}

static void remember(struct leader *l, const struct picket_row *r)
{
    l->printed = true;
    l->somebody = r != NULL;
    l->token = r != NULL ? r->token : 0;
    l->lease = r != NULL ? r->lease : 0;
    l->value_len = r != NULL ? r->value_len : 0;
    l->value = pk_door_resize(l->value, l->value_len + 1);
    if (r != NULL) {
        memcpy(l->value, r->value, r->value_len);
    }
}

/* Prints the leader if it isn't the one printed last. */
static enum picket_status look(struct picket *p, const char *name, bool json,
                               struct leader *l)
{
    struct picket_view *v;
    enum picket_status s = picket_show(p, name, &v);
    if (s == PICKET_OK) {
        const struct picket_row *r = pk_rows_holder(v);
        if (!same(l, r)) {
            print(name, r, json);
            remember(l, r);
        }
        picket_view_free(v);
    }
    return s;
}

/* Looks after every event that may have changed the leader. Returns when it can't any
 * more. */
static enum picket_status follow(struct picket *p, const char *name, bool json,
                                 struct leader *l)
{
    struct picket_watch *w;
    struct picket_event e;
    enum picket_status s = picket_watch_open(p, name, &w);
    if (s != PICKET_OK) {
        return s;
    }
    /* The watch first, then the look: nothing can change unseen between the two. */
    s = look(p, name, json, l);
    while (s == PICKET_OK && ferror(stdout) == 0) {
        s = picket_watch_next(w, -1, &e);
        if (s == PICKET_OK && (strcmp(e.name, name) == 0 || strcmp(e.what, "gap") == 0)) {
            s = look(p, name, json, l);
        }
    }
    picket_watch_close(w);
    return s;
}

int pk_observe(const struct pk_common *c, const char *name, bool once)
{
    struct picket *p;
    struct leader l = {0};
    int code = pk_cli_open(c, NULL, &p);
    if (code != 0) {
        return code;
    }
    enum picket_status s =
        once ? look(p, name, c->json, &l) : follow(p, name, c->json, &l);
    (void)pk_door_resize(l.value, 0);
    if (s != PICKET_OK) {
        return pk_cli_give_up(p, s);
    }
    picket_close(p);
    return once && !l.somebody ? PK_EXIT_NO : 0;
}
