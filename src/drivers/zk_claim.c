/* SPDX-License-Identifier: MIT */
/*
 * Claims.
 *
 * Promises kept here: P1, because a node is there before we look who is first, and who
 * comes later gets a higher number; an old view of the queue can only show too many in
 * front of us. P2 for each lock, because the token is the transaction that made the node:
 * the queue is in its order. P7, since who waits watches one node in front of it only.
 * P8, because the node's name says whose it is: after an answer that got lost, it is
 * found again.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/error.h"
#include "core/door.h"
#include "drivers/zk_inside.h"
#include "host/memory.h"

enum { FOLDER_TRIES = 5 }; /* an empty folder is removed by the server now and then */

static char *copy_of(const char *text)
{
    return pk_memory_copy(text);
}

char *pk_zk_join(const char *folder, const char *node)
{
    return pk_memory_print("%s/%s", folder, node);
}

char *pk_zk_folder(const struct pk_zk *z, const char *name)
{
    char key[PK_KEY_MAX];
    pk_key_escape(name, key);
    return pk_zk_join(z->root, key);
}

/* ---- claims ---- */

static struct pk_zk_claim *claim_of(struct pk_zk *z, struct pk_stake *k)
{
    struct pk_zk_session *s = pk_zk_session_of(z, k->lease);
    if (k->own != NULL || s == NULL) {
        return k->own;
    }
    struct pk_zk_claim *c = pk_door_resize(NULL, sizeof *c);
    *c = (struct pk_zk_claim){.session = s,
                              .lease = k->lease,
                              .request = k->request,
                              .folder = pk_zk_folder(z, k->name)};
    pthread_mutex_lock(&z->mutex);
    c->next = s->claims;
    s->claims = c;
    pthread_mutex_unlock(&z->mutex);
    k->own = c;
    return c;
}

void pk_zk_forget(void *own, struct pk_stake *k)
{
    struct pk_zk *z = own;
    struct pk_zk_claim *c = k->own;
    if (c == NULL) {
        return;
    }
    pthread_mutex_lock(&z->mutex);
    struct pk_zk_claim **at = c->session != NULL ? &c->session->claims : NULL;
    while (at != NULL && *at != c) {
        at = &(*at)->next;
    }
    if (at != NULL) {
        *at = c->next;
    }
    pthread_mutex_unlock(&z->mutex);
    free(c->folder);
    free(c->path);
    free(c->ahead);
    (void)pk_door_resize(c, 0);
    k->own = NULL;
}

/* Replaces one of the claim's texts, which the library's threads read. */
static void set_text(struct pk_zk *z, char **at, char *text)
{
    pthread_mutex_lock(&z->mutex);
    char *before = *at;
    *at = text;
    pthread_mutex_unlock(&z->mutex);
    free(before);
}

static void set_held(struct pk_zk *z, struct pk_zk_claim *claim, bool held)
{
    pthread_mutex_lock(&z->mutex);
    claim->held = held;
    pthread_mutex_unlock(&z->mutex);
}

/* How the name of its node begins; it ends with a number. */
static void node_of(const struct pk_zk_claim *claim, const char *mark, char *out,
                    size_t size)
{
    snprintf(out, size, "_c_%" PRIu64 "-%" PRIu64 "%s", claim->lease, claim->request,
             mark);
}

/* The folder of a lock, and those above it. The lock's own is of the kind that the server
 * removes when it is empty. */
static int make_folders(struct pk_zk_call *c, const char *folder)
{
    char *path = copy_of(folder);
    int rc = ZOK;
    for (char *at = strchr(path + 1, '/'); at != NULL && (rc == ZOK || rc == ZNODEEXISTS);
         at = strchr(at + 1, '/')) {
        *at = '\0';
        rc = pk_zk_create(c, path, pk_text(""), ZOO_PERSISTENT);
        *at = '/';
    }
    if (rc == ZOK || rc == ZNODEEXISTS) {
        rc = pk_zk_create(c, path, pk_text(""), ZOO_CONTAINER);
    }
    free(path);
    return rc == ZNODEEXISTS ? ZOK : rc;
}

/* Finds the node of an earlier attempt. ZNONODE: it has not come through. */
static int find_node(struct pk_zk *z, struct pk_zk_claim *claim, struct pk_zk_call *c)
{
    char start[80];
    node_of(claim, "-", start, sizeof start);
    int rc = pk_zk_sync(c, z->root);
    rc = rc == ZOK ? pk_zk_children(c, claim->folder) : rc;
    const char *node = rc == ZOK ? pk_zk_starts(&c->a->nodes, start) : NULL;
    if (rc == ZOK && node == NULL) {
        rc = ZNONODE;
    }
    if (rc == ZOK) {
        char *path = pk_zk_join(claim->folder, node);
        rc = pk_zk_get(c, path);
        if (rc == ZOK) {
            claim->token = (uint64_t)c->a->stat.czxid;
            set_text(z, &claim->path, path);
        } else {
            free(path); /* without its token it is of no use yet */
        }
    }
    return rc;
}

static int make_node(struct pk_zk *z, const struct pk_stake *k, struct pk_zk_call *c)
{
    struct pk_zk_claim *claim = k->own;
    char node[80];
    node_of(claim, z->marks[k->mode == PK_SHARED], node, sizeof node);
    char *path = pk_zk_join(claim->folder, node);
    int rc = ZNONODE;
    for (int i = 0; i < FOLDER_TRIES && rc == ZNONODE; i++) {
        claim->tried = true;
        rc = pk_zk_create(c, path, k->card, ZOO_EPHEMERAL_SEQUENTIAL);
        if (rc == ZOK) {
            claim->token = (uint64_t)c->a->stat.czxid;
            set_text(z, &claim->path, copy_of(c->a->text));
        } else if (rc == ZNONODE) {
            claim->tried = false;
            int made = make_folders(c, claim->folder);
            rc = made == ZOK ? ZNONODE : made;
        }
    }
    free(path);
    return rc;
}

/* Numbers that have come to their end would put those who come next before us. */
static enum picket_status check_number(struct pk_zk *z, struct pk_zk_claim *claim)
{
    struct pk_zk_place p;
    PK_ASSERT(claim->path != NULL);
    const char *node = strrchr(claim->path, '/') + 1;
    if (pk_zk_place_read(node, &p) && p.number <= PK_ZK_NUMBER_LAST) {
        return PICKET_OK;
    }
    return pk_fail(PICKET_STORE,
                   "%s: the numbers of %s are used up; delete that node when nobody uses "
                   "the lock, and they begin anew",
                   z->shown, claim->folder);
}

/* Puts it into the queue, unless it is there. */
static enum picket_status enter(struct pk_zk *z, struct pk_stake *k, struct pk_zk_call *c)
{
    struct pk_zk_claim *claim = k->own;
    int rc = ZOK;
    if (claim->path == NULL) {
        rc = claim->tried ? find_node(z, claim, c) : ZNONODE;
        rc = rc == ZNONODE ? make_node(z, k, c) : rc;
    }
    return rc == ZOK ? check_number(z, claim) : pk_zk_verdict(z, rc);
}

/* Looks who is in front, and keeps an eye on that one; and on our own node. */
static enum picket_status look(struct pk_zk *z, struct pk_stake *k, struct pk_zk_call *c)
{
    struct pk_zk_claim *claim = k->own;
    const char *own = strrchr(claim->path, '/') + 1;
    int rc = ZNONODE;
    while (rc == ZNONODE) {
        const char *ahead = NULL;
        set_held(z, claim, true); /* before we look: if it goes then, that is told */
        rc = claim->guarded ? pk_zk_children(c, claim->folder)
                            : pk_zk_guard_and_list(c, claim->path, claim->folder);
        claim->guarded = claim->guarded || rc == ZOK;
        k->state = rc == ZOK ? pk_zk_stands(&c->a->nodes, own, &ahead) : PK_CLAIM_NONE;
        set_held(z, claim, k->state == PK_CLAIM_HELD);
        if (rc == ZNONODE) {
            return PICKET_OK; /* with the whole folder */
        }
        set_text(z, &claim->ahead,
                 ahead != NULL ? pk_zk_join(claim->folder, ahead) : NULL);
        if (rc == ZOK && k->state == PK_CLAIM_WAITING) {
            rc = pk_zk_guard(c, claim->ahead);
        } /* gone since we looked: look again */
    }
    k->token = k->state == PK_CLAIM_HELD ? claim->token : 0;
    return pk_zk_verdict(z, rc);
}

/* For who does not want to wait: true if it would have to. */
static bool is_busy(const struct pk_zk *z, const struct pk_stake *k, struct pk_zk_call *c)
{
    const struct pk_zk_claim *claim = k->own;
    struct pk_zk_place p;
    if (pk_zk_sync(c, z->root) != ZOK || pk_zk_children(c, claim->folder) != ZOK) {
        return false; /* who knows */
    }
    for (int i = 0; i < c->a->nodes.count; i++) {
        if (pk_zk_place_read(c->a->nodes.data[i], &p) &&
            !(p.shared && k->mode == PK_SHARED)) {
            return true;
        }
    }
    return false;
}

enum picket_status pk_zk_stand(void *own, struct pk_stake *k, bool wait,
                               uint64_t until_ms)
{
    struct pk_zk *z = own;
    struct pk_zk_claim *claim = claim_of(z, k);
    if (claim == NULL || claim->session == NULL) {
        return pk_fail_plain(PICKET_LOST);
    }
    enum picket_status s = pk_zk_ready(claim->session, until_ms);
    struct pk_zk_call c = {claim->session, until_ms, NULL};
    k->state = PK_CLAIM_NONE;
    if (s == PICKET_OK && !wait && !claim->tried && is_busy(z, k, &c)) {
        pk_zk_done(&c);
        return PICKET_OK; /* without a number of the queue's: there are not that many */
    }
    s = s == PICKET_OK ? enter(z, k, &c) : s;
    s = s == PICKET_OK ? look(z, k, &c) : s;
    bool refused = s == PICKET_DENIED || s == PICKET_STORE;
    bool unwanted = s == PICKET_OK && k->state == PK_CLAIM_WAITING && !wait;
    if (claim->path != NULL && (refused || unwanted)) {
        int rc = pk_zk_delete(&c, claim->path);
        bool left = rc == ZOK || rc == ZNONODE;
        s = refused ? s : left ? PICKET_OK : pk_zk_verdict(z, rc);
        k->state = PK_CLAIM_NONE;
    }
    pk_zk_done(&c);
    return s == PICKET_UNREACHABLE && claim->tried ? PICKET_UNKNOWN : s;
}

enum picket_status pk_zk_leave(void *own, struct pk_stake *k, uint64_t until_ms)
{
    struct pk_zk *z = own;
    struct pk_zk_claim *claim = k->own;
    if (claim == NULL) {
        return pk_fail_plain(PICKET_NOTHELD);
    }
    if (claim->session == NULL) {
        return pk_fail_plain(PICKET_LOST);
    }
    pthread_mutex_lock(&z->mutex);
    claim->leaving = true;
    pthread_mutex_unlock(&z->mutex);
    enum picket_status s = pk_zk_ready(claim->session, until_ms);
    if (s != PICKET_OK) {
        return s;
    }
    struct pk_zk_call c = {claim->session, until_ms, NULL};
    int rc = ZOK;
    if (claim->path == NULL) {
        rc = claim->tried ? find_node(z, claim, &c) : ZNONODE;
    }
    rc = rc == ZOK ? pk_zk_delete(&c, claim->path) : rc;
    pk_zk_done(&c);
    return rc == ZNONODE ? pk_fail_plain(PICKET_NOTHELD) : pk_zk_verdict(z, rc);
}

enum picket_status pk_zk_rewrite(void *own, struct pk_stake *k, uint64_t until_ms)
{
    struct pk_zk *z = own;
    struct pk_zk_claim *claim = k->own;
    if (claim == NULL || claim->session == NULL) {
        return pk_fail_plain(PICKET_LOST);
    }
    enum picket_status s = pk_zk_ready(claim->session, until_ms);
    if (s != PICKET_OK) {
        return s;
    }
    struct pk_zk_call c = {claim->session, until_ms, NULL};
    int rc = pk_zk_set(&c, claim->path, k->card);
    pk_zk_done(&c);
    return rc == ZNONODE ? pk_fail_plain(PICKET_NOTHELD) : pk_zk_verdict(z, rc);
}

/* ---- nodes that somebody else has deleted ---- */

/* Asks the lock's folder why a hold is gone. */
struct errand {
    struct pk_zk_session *session;
    uint64_t lease, request, token;
};

static void on_reason(int rc, const char *value, int len, const struct Stat *stat,
                      const void *data)
{
    const struct errand *e = data;
    struct pk_zk *z = e->session->store;
    struct pk_zk_break b = {0};
    (void)stat;
    bool found = rc == ZOK && len > 0 &&
                 pk_zk_break_read(pk_bytes(value, (size_t)len), &b) &&
                 b.token == e->token;
    if (!found) {
        b = (struct pk_zk_break){.by = "somebody", .why = "its node was deleted"};
    }
    pthread_mutex_lock(&z->mutex);
    for (struct pk_zk_claim *k = e->session->claims; k != NULL; k = k->next) {
        if (k->lease == e->lease && k->request == e->request) {
            k->gone = true;
            k->broken = b;
        }
    }
    pthread_mutex_unlock(&z->mutex);
    pk_bridge_ended(z->bridge, e->lease, e->request, PK_END_BROKEN, b.by, b.why);
    (void)pk_door_resize((void *)data, 0);
}

static void ask_why(struct pk_zk_session *s, const struct errand *from, char *folder)
{
    struct errand *e = pk_door_resize(NULL, sizeof *e);
    *e = *from;
    int rc = zoo_aget(s->handle, folder, 0, on_reason, e);
    if (rc != ZOK) {
        on_reason(rc, NULL, -1, NULL, e);
    }
    free(folder);
}

/* The next claim that has something to be told; false: there is none. */
static bool next_stirred(struct pk_zk_session *s, uint64_t *lease, uint64_t *request)
{
    bool found = false;
    pthread_mutex_lock(&s->store->mutex);
    for (struct pk_zk_claim *k = s->claims; k != NULL && !found; k = k->next) {
        found = k->stirred;
        if (found) {
            *lease = k->lease;
            *request = k->request;
            k->stirred = false;
        }
    }
    pthread_mutex_unlock(&s->store->mutex);
    return found;
}

void pk_zk_deleted(struct pk_zk_session *s, const char *path)
{
    struct errand e = {.session = s};
    char *folder = NULL;
    pthread_mutex_lock(&s->store->mutex);
    for (struct pk_zk_claim *k = s->claims; k != NULL; k = k->next) {
        bool its_own = k->path != NULL && strcmp(k->path, path) == 0 && !k->leaving;
        bool ahead = k->ahead != NULL && strcmp(k->ahead, path) == 0;
        if (its_own && k->held && folder == NULL) {
            e.lease = k->lease;
            e.request = k->request;
            e.token = k->token;
            folder = copy_of(k->folder);
        } else if (its_own || ahead) {
            k->stirred = true;
        }
    }
    pthread_mutex_unlock(&s->store->mutex);
    if (folder != NULL) {
        ask_why(s, &e, folder);
    }
    uint64_t lease, request;
    while (next_stirred(s, &lease, &request)) {
        pk_bridge_stir(s->store->bridge, lease, request);
    }
}
