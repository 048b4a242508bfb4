/* SPDX-License-Identifier: MIT */
#include "fence/sql.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/error.h"
#include "core/door.h"
#include "host/memory.h"

enum { TRIES = 20 }; /* deadlocks in a row before we give up */

/* ---- connections ---- */

enum pk_sql_end pk_sql_why(struct pk_resource *r, enum pk_sql_end end, const char *text)
{
    (void)snprintf(r->why, sizeof r->why, "%.*s", (int)strcspn(text, "\r\n"), text);
    return end;
}

static void leave(struct pk_resource *r)
{
    if (r->db != NULL) {
        r->base->disconnect(r);
        r->db = NULL;
    }
    r->checked = false;
}

static enum pk_sql_end reach(struct pk_resource *r)
{
    return r->db != NULL ? PK_SQL_DONE : r->base->connect(r);
}

static enum pk_sql_end ask(struct pk_resource *r, const char *statement,
                           const struct pk_sql_args *args, struct pk_sql_row *out)
{
    static const struct pk_sql_args none = {NULL, NULL, NULL};
    free(out->value);
    *out = (struct pk_sql_row){.found = false};
    return r->base->ask(r, statement, args != NULL ? args : &none, out);
}

/* Reads the version of the fence there; 0: none is installed. */
static enum pk_sql_end read_version(struct pk_resource *r, uint64_t *out)
{
    struct pk_sql_row row = {.found = false};
    enum pk_sql_end end = ask(r, "SELECT version FROM picket_fence_version", NULL, &row);
    *out = end == PK_SQL_DONE && row.found ? row.numbers[0] : 0;
    return end == PK_SQL_ABSENT ? PK_SQL_DONE : end;
}

/* The connection is there and the fence is one that we know. */
static enum pk_sql_end prepare(struct pk_resource *r)
{
    uint64_t version = 0;
    enum pk_sql_end end = reach(r);
    if (end != PK_SQL_DONE || r->checked) {
        return end;
    }
    end = read_version(r, &version);
    if (end != PK_SQL_DONE) {
        return end;
    }
    if (version != PK_SQL_VERSION) {
        (void)snprintf(r->why, sizeof r->why,
                       "the fence there is of version %" PRIu64 ", not %d", version,
                       PK_SQL_VERSION);
        return version == 0 ? PK_SQL_ABSENT : PK_SQL_FAILED;
    }
    r->checked = true;
    return PK_SQL_DONE;
}

/* ---- from an end to a status with its sentence ---- */

static enum picket_status tell(const struct pk_resource *r, enum pk_sql_end end)
{
    switch (end) {
    case PK_SQL_DONE:
        return PICKET_OK;
    case PK_SQL_STALE:
        return pk_fail_plain(PICKET_STALE);
    case PK_SQL_UNCLAIMED:
        return pk_fail_plain(PICKET_UNCLAIMED);
    case PK_SQL_ABSENT:
        return pk_fail(PICKET_STORE,
                       "no fence is installed in %s; run 'picket fence install %s'",
                       r->where, r->where);
    case PK_SQL_AGAIN:
        return pk_fail(PICKET_BUSY, "%s: other transactions got in the way %d times",
                       r->where, TRIES);
    case PK_SQL_BLOCKED:
        return pk_fail(PICKET_UNREACHABLE,
                       "another transaction has held this fence in %s for %d s; end it "
                       "or its session, then try again",
                       r->where, PK_SQL_LOCK_MS / 1000);
    case PK_SQL_DENIED:
        return pk_fail(PICKET_DENIED, "%s: %s", r->where, r->why);
    case PK_SQL_AWAY:
        return pk_fail(PICKET_UNREACHABLE, "%s can't be reached: %s", r->where, r->why);
    case PK_SQL_FAILED:
        return pk_fail(PICKET_STORE, "%s: %s", r->where, r->why);
    }
    PK_ASSERT(false);
    return PICKET_STORE;
}

/* ---- opening and closing ---- */

enum picket_status pk_sql_open(const struct pk_sql_base *base, const char *url,
                               const char *where, struct pk_resource **out)
{
    struct pk_resource *r = pk_door_resize(NULL, sizeof *r);
    *r = (struct pk_resource){.base = base, .url = pk_memory_copy(url)};
    (void)snprintf(r->where, sizeof r->where, "%s", where);
    for (char *c = r->where; *c != '\0'; c++) {
        if ((unsigned char)*c < ' ') {
            *c = '?'; /* a sentence is one line */
        }
    }
    enum picket_status s = tell(r, reach(r));
    if (s != PICKET_OK) {
        pk_sql_close(r);
        return s;
    }
    *out = r;
    return PICKET_OK;
}

void pk_sql_close(struct pk_resource *r)
{
    leave(r);
    free(r->url);
    pk_door_resize(r, 0);
}

/* ---- one verb is one transaction ---- */

struct task {
    const char *fence;  /* claim or check; NULL: neither */
    const char *change; /* NULL: nothing is written beside the fence */
    const char *look;   /* what the row is read by; NULL: it isn't */
    const char *name;
    uint64_t number;              /* of `fence`; without one, of `change` */
    const struct pk_bytes *value; /* of `change` */
    bool once;                    /* must not be done twice */
};

static enum pk_sql_end take_steps(struct pk_resource *r, const struct task *t,
                                  struct pk_sql_row *row)
{
    const struct pk_sql_args by_number = {t->name, &t->number, NULL};
    const struct pk_sql_args by_value = {t->name, NULL, t->value};
    const struct pk_sql_args by_name = {t->name, NULL, NULL};
    enum pk_sql_end end = PK_SQL_DONE;
    if (t->fence != NULL) {
        end = ask(r, t->fence, &by_number, row);
    }
    if (end == PK_SQL_DONE && t->change != NULL) {
        end = ask(r, t->change, t->value != NULL ? &by_value : &by_number, row);
    }
    if (end == PK_SQL_DONE && t->look != NULL) {
        end = ask(r, t->look, &by_name, row);
    }
    return end;
}

/* The refused are told the fence as it is by now. */
static enum pk_sql_end look_after(struct pk_resource *r, const struct task *t,
                                  enum pk_sql_end end, struct pk_sql_row *row)
{
    const struct pk_sql_args by_name = {t->name, NULL, NULL};
    if (end != PK_SQL_STALE && end != PK_SQL_UNCLAIMED) {
        return end;
    }
    enum pk_sql_end looked = ask(r, r->base->words.look, &by_name, row);
    return looked == PK_SQL_DONE ? end : looked;
}

/* Undoes what has failed, so that nothing stays locked. r->why stays what it was. */
static void undo(struct pk_resource *r)
{
    struct pk_sql_row unused = {.found = false};
    char why[PK_SQL_TEXT_MAX];
    memcpy(why, r->why, sizeof why);
    (void)ask(r, "ROLLBACK", NULL, &unused); /* says no if there is nothing to undo */
    memcpy(r->why, why, sizeof why);
}

/* `*unsure` becomes true if the answer to COMMIT was lost. */
static enum pk_sql_end transact(struct pk_resource *r, const struct task *t,
                                struct pk_sql_row *row, bool *unsure)
{
    struct pk_sql_row unused = {.found = false};
    if (t->fence == NULL && t->change == NULL) {
        return take_steps(r, t, row);
    }
    enum pk_sql_end end = ask(r, r->base->words.begin, NULL, row);
    if (end == PK_SQL_DONE) {
        end = take_steps(r, t, row);
    }
    if (end == PK_SQL_DONE) {
        end = ask(r, "COMMIT", NULL, &unused);
        *unsure = *unsure || end == PK_SQL_AWAY;
    }
    if (end != PK_SQL_DONE && end != PK_SQL_AWAY) {
        undo(r);
        end = look_after(r, t, end, row);
    }
    return end;
}

/* Again while other transactions get in the way, and once more over a new connection if
 * the one that we had turns out to be broken. */
static enum picket_status perform(struct pk_resource *r, const struct task *t,
                                  struct pk_sql_row *row)
{
    enum pk_sql_end end = PK_SQL_AGAIN;
    bool unsure = false;
    for (int i = 0; end == PK_SQL_AGAIN && i < TRIES; i++) {
        bool fresh = r->db == NULL;
        end = prepare(r);
        if (end == PK_SQL_DONE) {
            end = transact(r, t, row, &unsure);
        }
        if (end == PK_SQL_AWAY) {
            leave(r);
            end = fresh || (unsure && t->once) ? PK_SQL_AWAY : PK_SQL_AGAIN;
        }
    }
    if (end == PK_SQL_AWAY && unsure) {
        return pk_fail(PICKET_UNKNOWN, "the connection to %s broke during COMMIT: %s",
                       r->where, r->why);
    }
    return tell(r, end);
}

/* perform(), for verbs that want the fence and nothing else of the row. */
static enum picket_status perform_fence(struct pk_resource *r, const struct task *t,
                                        uint64_t *fence)
{
    struct pk_sql_row row = {.found = false};
    enum picket_status s = perform(r, t, &row);
    *fence = row.numbers[0];
    free(row.value);
    return s;
}

/* ---- the verbs ---- */

enum picket_status pk_sql_claim(struct pk_resource *r, const char *name, uint64_t token,
                                uint64_t *fence)
{
    const struct pk_sql_words *w = &r->base->words;
    struct task t = {.fence = w->claim, .look = w->look, .name = name, .number = token};
    return perform_fence(r, &t, fence);
}

enum picket_status pk_sql_check(struct pk_resource *r, const char *name, uint64_t token,
                                uint64_t *fence)
{
    const struct pk_sql_words *w = &r->base->words;
    struct task t = {.fence = w->check, .look = w->look, .name = name, .number = token};
    return perform_fence(r, &t, fence);
}

enum picket_status pk_sql_set(struct pk_resource *r, const char *name, uint64_t token,
                              struct pk_bytes value, uint64_t *fence)
{
    const struct pk_sql_words *w = &r->base->words;
    struct task t = {.fence = w->claim,
                     .change = w->write,
                     .look = w->look,
                     .name = name,
                     .number = token,
                     .value = &value,
                     .once = true};
    return perform_fence(r, &t, fence);
}

enum picket_status pk_sql_get(struct pk_resource *r, const char *name, uint64_t token,
                              char **value, size_t *len, uint64_t *fence)
{
    const struct pk_sql_words *w = &r->base->words;
    struct pk_sql_row row = {.found = false};
    struct task t = {.fence = token == 0 ? NULL : w->claim,
                     .look = w->read,
                     .name = name,
                     .number = token};
    enum picket_status s = perform(r, &t, &row);
    *fence = row.numbers[0];
    if (s == PICKET_OK && row.value == NULL && row.numbers[0] == 0) {
        return pk_fail_plain(PICKET_NOTFOUND);
    }
    if (s != PICKET_OK) {
        free(row.value);
        return s;
    }
    *value = pk_door_resize(row.value, row.len + 1);
    (*value)[row.len] = '\0';
    *len = row.len;
    return PICKET_OK;
}

enum picket_status pk_sql_mode(struct pk_resource *r, const char *name, bool shadow)
{
    uint64_t unused;
    struct task t = {
        .change = r->base->words.mode, .name = name, .number = shadow ? 1 : 0};
    return perform_fence(r, &t, &unused);
}

enum picket_status pk_sql_show(struct pk_resource *r, const char *name,
                               struct picket_fence_state *out)
{
    struct pk_sql_row row = {.found = false};
    struct task t = {.look = r->base->words.look, .name = name};
    enum picket_status s = perform(r, &t, &row);
    if (s == PICKET_OK && !row.found) {
        s = pk_fail_plain(PICKET_NOTFOUND);
    }
    if (s == PICKET_OK) {
        *out = (struct picket_fence_state){.token = row.numbers[0],
                                           .shadow = row.numbers[1] != 0,
                                           .shadowed = row.numbers[2]};
    }
    free(row.value);
    return s;
}

enum picket_status pk_sql_overwrite(struct pk_resource *r, const char *name,
                                    struct pk_bytes value)
{
    uint64_t unused;
    struct task t = {
        .change = r->base->words.overwrite, .name = name, .value = &value, .once = true};
    return perform_fence(r, &t, &unused);
}

/* ---- installing ---- */

enum picket_status pk_sql_run(struct pk_resource *r, const char *sql)
{
    uint64_t version = 0;
    enum pk_sql_end end = read_version(r, &version);
    if (end == PK_SQL_DONE && version != 0 && version != PK_SQL_VERSION) {
        return pk_fail(PICKET_STORE,
                       "%s has a fence of version %" PRIu64 ", this is version %d; use "
                       "the picket that installed it, or drop it there first",
                       r->where, version, PK_SQL_VERSION);
    }
    if (end == PK_SQL_DONE) {
        end = r->base->script(r, sql);
    }
    if (end == PK_SQL_ABSENT) {
        end = PK_SQL_FAILED; /* what is missing is the table to be guarded */
    }
    return tell(r, end);
}
