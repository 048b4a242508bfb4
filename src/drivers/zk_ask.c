/* SPDX-License-Identifier: MIT */
/*
 * Requests. The library's own waiting has no limit, so each goes out without waiting, and
 * we wait for its completion as long as we may. A completion that comes later finds
 * its memory still there: each answer that is to come has its share in it.
 */
#include <string.h>

#include "client/error.h"
#include "core/door.h"
#include "drivers/zk_inside.h"
#include "host/clock.h"

/* ---- asks ---- */

static void drop(struct pk_zk_ask *a)
{
    struct pk_zk *z = a->store;
    pthread_mutex_lock(&z->mutex);
    bool last = --a->users == 0;
    pthread_mutex_unlock(&z->mutex);
    if (!last) {
        return;
    }
    for (int i = 0; i < a->nodes.count; i++) {
        (void)pk_door_resize(a->nodes.data[i], 0);
    }
    (void)pk_door_resize(a->nodes.data, 0);
    (void)pk_door_resize(a->text, 0);
    (void)pk_door_resize(a, 0);
}

void pk_zk_done(struct pk_zk_call *c)
{
    if (c->a != NULL) {
        drop(c->a);
        c->a = NULL;
    }
}

/* A new ask for `answers` of them. */
static struct pk_zk_ask *begin(struct pk_zk_call *c, int answers)
{
    pk_zk_done(c);
    struct pk_zk_ask *a = pk_door_resize(NULL, sizeof *a);
    memset(a, 0, sizeof *a);
    a->store = c->session->store;
    a->users = 1 + answers;
    a->pending = answers;
    c->a = a;
    return a;
}

static void set_text(struct pk_zk_ask *a, const char *text, size_t len)
{
    a->text = pk_door_resize(NULL, len + 1);
    if (len > 0) {
        memcpy(a->text, text, len);
    }
    a->text[len] = '\0';
    a->len = len;
}

/* One answer is there; the worst of several counts. */
static void answered(struct pk_zk_ask *a, int rc)
{
    struct pk_zk *z = a->store;
    pthread_mutex_lock(&z->mutex);
    a->rc = rc != ZOK ? rc : a->rc;
    a->pending--;
    pthread_cond_broadcast(&z->changed);
    pthread_mutex_unlock(&z->mutex);
    drop(a);
}

/* Waits for the answers; `rc` is what the library said to the asking. */
static int wait_for(struct pk_zk_call *c, int rc)
{
    struct pk_zk_ask *a = c->a;
    struct pk_zk *z = a->store;
    if (rc != ZOK) {
        a->pending = 0; /* it has refused, and will not call us */
        drop(a);
        return rc;
    }
    struct timespec until = pk_clock_monotonic(c->until_ms);
    int late = 0;
    pthread_mutex_lock(&z->mutex);
    while (a->pending > 0 && late == 0) {
        late = pthread_cond_timedwait(&z->changed, &z->mutex, &until);
    }
    rc = a->pending > 0 ? ZOPERATIONTIMEOUT : a->rc;
    pthread_mutex_unlock(&z->mutex);
    return rc;
}

/* ---- completions, called by the library's threads ---- */

static void on_void(int rc, const void *data)
{
    answered((struct pk_zk_ask *)data, rc);
}

static void on_deleted(int rc, const void *data)
{
    answered((struct pk_zk_ask *)data, rc == ZNONODE ? ZOK : rc);
}

static void on_string(int rc, const char *value, const void *data)
{
    (void)value;
    answered((struct pk_zk_ask *)data, rc);
}

static void on_created(int rc, const char *value, const struct Stat *stat,
                       const void *data)
{
    struct pk_zk_ask *a = (struct pk_zk_ask *)data;
    if (rc == ZOK) {
        set_text(a, value, strlen(value));
        a->stat = *stat;
    }
    answered(a, rc);
}

static void on_stat(int rc, const struct Stat *stat, const void *data)
{
    (void)stat;
    answered((struct pk_zk_ask *)data, rc);
}

static void on_data(int rc, const char *value, int len, const struct Stat *stat,
                    const void *data)
{
    struct pk_zk_ask *a = (struct pk_zk_ask *)data;
    if (rc == ZOK) {
        set_text(a, value, len > 0 ? (size_t)len : 0); /* -1: there is none */
        a->stat = *stat;
    }
    answered(a, rc);
}

static void on_strings(int rc, const struct String_vector *strings, const void *data)
{
    struct pk_zk_ask *a = (struct pk_zk_ask *)data;
    if (rc == ZOK && strings->count > 0) {
        size_t n = (size_t)strings->count;
        a->nodes.data = pk_door_resize(NULL, n * sizeof a->nodes.data[0]);
        a->nodes.count = strings->count;
        for (size_t i = 0; i < n; i++) {
            size_t size = strlen(strings->data[i]) + 1;
            a->nodes.data[i] = pk_door_resize(NULL, size);
            memcpy(a->nodes.data[i], strings->data[i], size);
        }
    }
    answered(a, rc);
}

/* A node that is not there has no watch now, and is not in the list that is asked for
 * together with it. */
static void on_guarded(int rc, const struct String_vector *strings, const void *data)
{
    (void)strings;
    answered((struct pk_zk_ask *)data, rc == ZNONODE ? ZOK : rc);
}

static void on_end(zhandle_t *handle, int type, int state, const char *path,
                   void *context)
{
    (void)handle;
    (void)state;
    if (type == ZOO_DELETED_EVENT) {
        pk_zk_deleted(context, path);
    }
}

/* ---- requests ---- */

/* With a name and a password nobody else can touch our nodes. */
static const struct ACL_vector *access_of(const struct pk_zk *z)
{
    return z->url.user[0] != '\0' ? &ZOO_CREATOR_ALL_ACL : &ZOO_OPEN_ACL_UNSAFE;
}

int pk_zk_create(struct pk_zk_call *c, const char *path, struct pk_bytes value, int kind)
{
    struct pk_zk_ask *a = begin(c, 1);
    return wait_for(c, zoo_acreate2(c->session->handle, path, value.data, (int)value.len,
                                    access_of(a->store), kind, on_created, a));
}

int pk_zk_delete(struct pk_zk_call *c, const char *path)
{
    struct pk_zk_ask *a = begin(c, 1);
    return wait_for(c, zoo_adelete(c->session->handle, path, -1, on_void, a));
}

int pk_zk_delete_all(struct pk_zk_call *c)
{
    struct pk_zk_ask *a = begin(c, 1);
    int rc = ZOK;
    for (struct pk_zk_claim *k = c->session->claims; k != NULL && rc == ZOK;
         k = k->next) {
        if (k->path == NULL) {
            continue;
        }
        pthread_mutex_lock(&a->store->mutex);
        a->users++;
        a->pending++;
        pthread_mutex_unlock(&a->store->mutex);
        rc = zoo_adelete(c->session->handle, k->path, -1, on_deleted, a);
        if (rc != ZOK) {
            answered(a, rc);
        }
    }
    answered(a, rc); /* the one that kept it open */
    return wait_for(c, ZOK);
}

int pk_zk_set(struct pk_zk_call *c, const char *path, struct pk_bytes value)
{
    struct pk_zk_ask *a = begin(c, 1);
    return wait_for(c, zoo_aset(c->session->handle, path, value.data, (int)value.len, -1,
                                on_stat, a));
}

int pk_zk_get(struct pk_zk_call *c, const char *path)
{
    struct pk_zk_ask *a = begin(c, 1);
    return wait_for(c, zoo_aget(c->session->handle, path, 0, on_data, a));
}

int pk_zk_children(struct pk_zk_call *c, const char *path)
{
    struct pk_zk_ask *a = begin(c, 1);
    return wait_for(c, zoo_aget_children(c->session->handle, path, 0, on_strings, a));
}

/* Ephemeral nodes have no children, so that a watch of them tells of the node's end, and
 * nothing else: a value that changes wakes nobody. */
int pk_zk_guard(struct pk_zk_call *c, const char *path)
{
    struct pk_zk_ask *a = begin(c, 1);
    return wait_for(c, zoo_awget_children(c->session->handle, path, on_end, c->session,
                                          on_strings, a));
}

int pk_zk_guard_and_list(struct pk_zk_call *c, const char *path, const char *folder)
{
    struct pk_zk_ask *a = begin(c, 2);
    zhandle_t *handle = c->session->handle;
    int rc = zoo_awget_children(handle, path, on_end, c->session, on_guarded, a);
    if (rc != ZOK) {
        answered(a, rc);
    }
    rc = zoo_aget_children(handle, folder, 0, on_strings, a);
    if (rc != ZOK) {
        answered(a, rc);
    }
    return wait_for(c, ZOK);
}

int pk_zk_sync(struct pk_zk_call *c, const char *path)
{
    struct pk_zk_ask *a = begin(c, 1);
    return wait_for(c, zoo_async(c->session->handle, path, on_string, a));
}

int pk_zk_nothing(struct pk_zk_call *c)
{
    struct pk_zk_ask *a = begin(c, 1);
    zoo_op_t op;
    zoo_check_op_init(&op, "/", -1);
    return wait_for(c, zoo_amulti(c->session->handle, 1, &op, a->results, on_void, a));
}

int pk_zk_set_and_delete(struct pk_zk_call *c, const char *folder, struct pk_bytes value,
                         const char *path)
{
    struct pk_zk_ask *a = begin(c, 1);
    zoo_op_t ops[2];
    zoo_set_op_init(&ops[0], folder, value.data, (int)value.len, -1, &a->stat);
    zoo_delete_op_init(&ops[1], path, -1);
    return wait_for(c, zoo_amulti(c->session->handle, 2, ops, a->results, on_void, a));
}

/* ---- codes ---- */

enum picket_status pk_zk_verdict(const struct pk_zk *z, int rc)
{
    switch (rc) {
    case ZOK:
        return PICKET_OK;
    case ZSESSIONEXPIRED:
    case ZINVALIDSTATE:
        return pk_fail(PICKET_LOST, "%s: the session has expired", z->shown);
    case ZCONNECTIONLOSS:
    case ZOPERATIONTIMEOUT:
    case ZCLOSING:
    case ZSESSIONMOVED:
        return pk_fail(PICKET_UNKNOWN, "%s has not answered in time", z->shown);
    case ZTHROTTLEDOP:
        return pk_fail(PICKET_UNREACHABLE, "%s is overloaded, and says so", z->shown);
    case ZNOTREADONLY:
        return pk_fail(PICKET_UNREACHABLE, "%s only answers questions: it has no quorum",
                       z->shown);
    case ZNOAUTH:
    case ZAUTHFAILED:
    case ZINVALIDACL:
        return pk_fail(PICKET_DENIED,
                       "%s: not allowed below %s; give the user and the password that "
                       "its nodes were made with, or another root",
                       z->shown, z->root);
    case ZUNIMPLEMENTED:
        return pk_fail(PICKET_STORE, "%s is too old: ZooKeeper 3.5.3 or newer is needed",
                       z->shown);
    default:
        return pk_fail(PICKET_STORE, "%s refuses: %s", z->shown, zerror(rc));
    }
}
