/* SPDX-License-Identifier: MIT */
/* Looking at claims of everybody, and breaking holds. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/error.h"
#include "core/door.h"
#include "drivers/zk_inside.h"

static enum picket_status drop_unknown(enum picket_status s)
{
    return s == PICKET_UNKNOWN ? PICKET_UNREACHABLE : s; /* a question changes nothing */
}

/* ---- looking ---- */

/* The claims on one lock. */
static int scan_lock(struct pk_zk_call *c, const char *folder, const char *name,
                     struct pk_scan *scan)
{
    struct pk_zk_call nodes = *c;
    nodes.a = NULL;
    int held = 0;
    int rc = pk_zk_children(&nodes, folder);
    int n = rc == ZOK ? pk_zk_sort(&nodes.a->nodes, &held) : 0;
    for (int i = 0; i < n && rc == ZOK; i++) {
        char *path = pk_zk_join(folder, nodes.a->nodes.data[i]);
        rc = pk_zk_get(c, path);
        free(path);
        struct pk_sight seen = {.name = pk_text(name), .held = i < held};
        if (rc == ZOK) {
            seen.card = pk_bytes(c->a->text, c->a->len);
            seen.token = seen.held ? (uint64_t)c->a->stat.czxid : 0;
            seen.order = (uint64_t)c->a->stat.czxid;
            pk_bridge_see(scan, &seen);
        }
        rc = rc == ZNONODE ? ZOK : rc; /* it has left since */
    }
    pk_zk_done(&nodes);
    return rc == ZNONODE ? ZOK : rc;
}

static int scan_all(struct pk_zk *z, struct pk_zk_call *c, const char *prefix,
                    struct pk_scan *scan)
{
    struct pk_zk_call locks = *c;
    locks.a = NULL;
    int rc = pk_zk_children(&locks, z->root);
    for (int i = 0; rc == ZOK && i < locks.a->nodes.count; i++) {
        const char *key = locks.a->nodes.data[i];
        char name[PK_NAME_MAX + 1];
        if (pk_key_unescape(pk_text(key), name) &&
            strncmp(name, prefix, strlen(prefix)) == 0) {
            char *folder = pk_zk_join(z->root, key);
            rc = scan_lock(c, folder, name, scan);
            free(folder);
        }
    }
    pk_zk_done(&locks);
    return rc == ZNONODE ? ZOK : rc;
}

enum picket_status pk_zk_scan(void *own, const char *name, bool whole_name,
                              struct pk_scan *scan, uint64_t until_ms)
{
    struct pk_zk *z = own;
    struct pk_zk_call c = {NULL, until_ms, NULL};
    enum picket_status s = pk_zk_any(z, until_ms, &c.session);
    if (s != PICKET_OK) {
        return s;
    }
    int rc = pk_zk_sync(&c, z->root);
    if (rc == ZOK && whole_name) {
        char *folder = pk_zk_folder(z, name);
        rc = scan_lock(&c, folder, name, scan);
        free(folder);
    } else if (rc == ZOK) {
        rc = scan_all(z, &c, name, scan);
    }
    pk_zk_done(&c);
    return drop_unknown(pk_zk_verdict(z, rc));
}

/* ---- breaking ---- */

/* The holder's node with that token; NULL: there is none. Free with free(). */
static char *find_hold(struct pk_zk_call *c, const char *folder, uint64_t token, int *rc)
{
    struct pk_zk_call nodes = *c;
    nodes.a = NULL;
    int held = 0;
    char *found = NULL;
    *rc = pk_zk_children(&nodes, folder);
    if (*rc == ZOK) {
        (void)pk_zk_sort(&nodes.a->nodes, &held);
    }
    for (int i = 0; i < held && *rc == ZOK && found == NULL; i++) {
        char *path = pk_zk_join(folder, nodes.a->nodes.data[i]);
        *rc = pk_zk_get(c, path);
        if (*rc == ZOK && (uint64_t)c->a->stat.czxid == token) {
            found = path;
        } else {
            free(path);
        }
        *rc = *rc == ZNONODE ? ZOK : *rc;
    }
    pk_zk_done(&nodes);
    return found;
}

/* True if this very break was done before: its answer got lost. */
static bool is_done(struct pk_zk_call *c, const char *folder, const struct pk_zk_break *b)
{
    struct pk_zk_break before;
    return pk_zk_get(c, folder) == ZOK &&
           pk_zk_break_read(pk_bytes(c->a->text, c->a->len), &before) &&
           before.token == b->token && strcmp(before.by, b->by) == 0 &&
           strcmp(before.why, b->why) == 0;
}

static void copy_text(char *out, size_t size, struct pk_bytes from)
{
    snprintf(out, size, "%.*s", (int)from.len, from.len > 0 ? from.data : "");
}

enum picket_status pk_zk_break_hold(void *own, const struct pk_command *command,
                                    uint64_t until_ms)
{
    struct pk_zk *z = own;
    struct pk_zk_call c = {NULL, until_ms, NULL};
    enum picket_status s = pk_zk_any(z, until_ms, &c.session);
    if (s != PICKET_OK) {
        return s;
    }
    char name[PK_NAME_MAX + 1];
    struct pk_zk_break b = {.token = command->token};
    copy_text(name, sizeof name, command->name);
    copy_text(b.by, sizeof b.by, command->principal);
    copy_text(b.why, sizeof b.why, command->reason);
    char *folder = pk_zk_folder(z, name);
    int rc = pk_zk_sync(&c, z->root);
    char *path = rc == ZOK ? find_hold(&c, folder, b.token, &rc) : NULL;
    if (path != NULL) {
        size_t len;
        char *text = pk_zk_break_write(&b, &len);
        rc = pk_zk_set_and_delete(&c, folder, pk_bytes(text, len), path);
        free(text);
    } else if (rc == ZOK || rc == ZNONODE) {
        rc = is_done(&c, folder, &b) ? ZOK : ZNONODE;
    }
    pk_zk_done(&c);
    free(path);
    free(folder);
    return rc == ZNONODE ? pk_fail_plain(PICKET_NOTHELD) : pk_zk_verdict(z, rc);
}
