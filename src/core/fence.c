/* SPDX-License-Identifier: MIT */
/* Fence registers: the resource's side of the token. Rules F, promise P6. */
#include "core/door.h"
#include "core/fencing.h"
#include "core/state.h"

static int order_name(const void *key, const struct pk_node *node)
{
    return pk_bytes_compare(*(const struct pk_bytes *)key,
                            pk_fence_name(PK_OWNER(node, struct pk_fence, node)));
}

struct pk_bytes pk_fence_name(const struct pk_fence *f)
{
    return pk_bytes(f->name, f->name_len);
}

struct pk_fence *pk_fence_find(const struct pk_machine *m, struct pk_bytes name)
{
    struct pk_node *n = pk_tree_find(&m->fences, &name, order_name);
    return n == NULL ? NULL : PK_OWNER(n, struct pk_fence, node);
}

struct pk_node *pk_fence_after(const struct pk_machine *m, struct pk_bytes name)
{
    struct pk_node *n = pk_tree_seek(&m->fences, &name, order_name);
    return n != NULL && order_name(&name, n) == 0 ? pk_tree_next(n) : n;
}

static size_t size_of(size_t name_len)
{
    return offsetof(struct pk_fence, name) + name_len;
}

struct pk_fence *pk_fence_new(struct pk_machine *m, struct pk_bytes name)
{
    PK_ASSERT(name.len > 0 && name.len <= PK_NAME_MAX);
    struct pk_fence *f = pk_pool_zeroed(&m->pool, size_of(name.len));
    f->name_len = (uint8_t)name.len;
    memcpy(f->name, name.data, name.len);
    bool in = pk_tree_insert(&m->fences, &f->node, &name, order_name);
    PK_ASSERT(in);
    m->stats.fences++;
    m->stats.stored_bytes += name.len;
    return f;
}

void pk_fence_free(struct pk_machine *m, struct pk_fence *f)
{
    pk_timer_free(m, f->ends);
    pk_blob_free(m, f->value);
    pk_tree_erase(&m->fences, &f->node);
    m->stats.fences--;
    m->stats.stored_bytes -= f->name_len;
    pk_pool_give(&m->pool, f, size_of(f->name_len));
}

void pk_fence_keep(struct pk_machine *m, struct pk_fence *f, uint64_t id, uint64_t until)
{
    PK_ASSERT(f->ends == NULL);
    f->ends = pk_timer_new(m, PK_TIMER_FENCE, id, f, until);
}

void pk_fence_ended(struct pk_machine *m, struct pk_fence *f)
{
    pk_event(m, (struct pk_effect){.kind = PK_EV_FENCE_ENDED,
                                   .name = pk_fence_name(f),
                                   .token = f->token});
    pk_work_done(m, 1);
    pk_item_out(m, PK_ITEM_FENCE, f);
    pk_fence_free(m, f);
}

static uint64_t token_of(const struct pk_fence *f)
{
    return f == NULL ? 0 : f->token;
}

/* The limit that a write of `value_len` bytes to `f` (NULL: a new fence) would pass, or
 * NULL. */
static const char *limit_reached(const struct pk_machine *m, const struct pk_fence *f,
                                 struct pk_bytes name, uint32_t value_len)
{
    if (value_len > m->limits.value_bytes) {
        return "value_bytes";
    }
    if (f == NULL && m->stats.fences >= m->limits.fences) {
        return "fences";
    }
    uint64_t need = (f == NULL ? name.len : 0) + (uint64_t)value_len;
    uint64_t freed = f == NULL || value_len == 0 ? 0 : pk_blob_len(f->value);
    return need > freed && !pk_room_for(m, need - freed) ? "stored_bytes" : NULL;
}

/* `f` (NULL: a new fence) with room for the command's value, its item taken out, so
 * that the caller can change it and puts the item in; NULL after having replied the
 * limit that does not allow it. */
static struct pk_fence *make_room(struct pk_machine *m, const struct pk_command *c,
                                  struct pk_fence *f)
{
    const char *limit = limit_reached(m, f, c->name, c->value.len);
    if (limit != NULL) {
        pk_reply_limit(m, c, limit);
        return NULL;
    }
    if (f == NULL) {
        return pk_fence_new(m, c->name);
    }
    pk_item_out(m, PK_ITEM_FENCE, f);
    return f;
}

/* F1, the rule of every fence: a lower token is refused, a higher one raises; in shadow
 * mode a lower one is counted (F7). Returns the fence that the command may use, its item
 * taken out, and what the rule said, or NULL after having replied the refusal. */
static struct pk_fence *admit(struct pk_machine *m, const struct pk_command *c,
                              enum pk_fencing *rule)
{
    struct pk_fence *f = pk_fence_find(m, c->name);
    *rule = pk_fencing(token_of(f), c->token);
    if (*rule == PK_FENCING_STALE && !f->shadow) {
        pk_reply(m, c, PK_STALE)->token = f->token;
        return NULL;
    }
    f = make_room(m, c, f);
    if (f == NULL) {
        return NULL;
    }
    if (*rule == PK_FENCING_RAISE) {
        f->token = c->token;
        f->request = 0;
    } else if (*rule == PK_FENCING_STALE) {
        f->shadowed++;
    }
    return f;
}

/* Answers OK with the fence's token and value, and tells what the rule has made of the
 * command's token. */
static void accept(struct pk_machine *m, const struct pk_command *c,
                   const struct pk_fence *f, enum pk_fencing rule)
{
    static const enum pk_effect_kind events[] = {
        [PK_FENCING_STALE] = PK_EV_FENCE_SHADOWED,
        [PK_FENCING_RAISE] = PK_EV_FENCE_RAISED,
    };
    struct pk_effect e = {.kind = PK_REPLY,
                          .verb = c->verb,
                          .status = PK_OK,
                          .request = c->request,
                          .token = f->token,
                          .would = rule == PK_FENCING_STALE ? PK_STALE : PK_OK};
    if (c->verb == PK_FENCE_GET) {
        e.value = pk_blob_bytes(f->value);
    }
    pk_effects_add(m->out, &e);
    if (rule != PK_FENCING_HELD) {
        pk_event(m, (struct pk_effect){.kind = events[rule],
                                       .name = pk_fence_name(f),
                                       .token = c->token});
    }
}

void pk_fence_claim(struct pk_machine *m, const struct pk_command *c)
{
    enum pk_fencing rule;
    struct pk_fence *f = admit(m, c, &rule);
    if (f != NULL) {
        pk_item_in(m, PK_ITEM_FENCE, f);
        accept(m, c, f, rule);
    }
}

void pk_fence_check(struct pk_machine *m, const struct pk_command *c)
{
    static const enum pk_status says[] = {
        [PK_FENCING_STALE] = PK_STALE,
        [PK_FENCING_HELD] = PK_OK,
        [PK_FENCING_RAISE] = PK_UNCLAIMED,
    };
    const struct pk_fence *f = pk_fence_find(m, c->name);
    enum pk_status s = says[pk_fencing(token_of(f), c->token)];
    bool shadow = f != NULL && f->shadow;
    struct pk_effect *e = pk_reply(m, c, shadow ? PK_OK : s);
    e->token = token_of(f);
    e->would = shadow ? s : PK_OK; /* F8: told, but not counted: this is a read */
}

/* F10: the last write decides how long the fence is kept. */
static void keep(struct pk_machine *m, struct pk_fence *f, uint64_t keep_ms)
{
    pk_timer_free(m, f->ends);
    f->ends = NULL;
    if (keep_ms != 0) {
        pk_fence_keep(m, f, m->next_seq++, m->clock + keep_ms);
    }
}

void pk_fence_set(struct pk_machine *m, const struct pk_command *c)
{
    struct pk_fence *f = pk_fence_find(m, c->name);
    if (f != NULL && pk_fencing(f->token, c->token) == PK_FENCING_HELD &&
        c->request != 0 && c->request <= f->request) {
        /* F3: a late copy of an earlier write must not undo the one after it. */
        struct pk_effect *e =
            pk_reply(m, c, c->request == f->request ? PK_OK : PK_TOOOLD);
        e->token = f->token;
        e->request = f->request;
        return;
    }
    enum pk_fencing rule;
    f = admit(m, c, &rule);
    if (f == NULL) {
        return;
    }
    if (c->request != 0 && rule != PK_FENCING_STALE) {
        f->request = c->request; /* F7: a lower token's ids are not the fence's */
    }
    pk_blob_free(m, f->value);
    f->value = pk_blob_new(m, c->value);
    keep(m, f, c->ttl_ms);
    pk_item_in(m, PK_ITEM_FENCE, f);
    accept(m, c, f, rule);
    pk_event(m, (struct pk_effect){.kind = PK_EV_FENCE_SET,
                                   .name = pk_fence_name(f),
                                   .token = c->token,
                                   .value = c->value});
}

void pk_fence_get(struct pk_machine *m, const struct pk_command *c)
{
    bool anybody = c->token == 0;           /* F4 */
    enum pk_fencing rule = PK_FENCING_HELD; /* nothing to compare, for anybody */
    struct pk_fence *f = anybody ? pk_fence_find(m, c->name) : admit(m, c, &rule);
    if (!anybody && f != NULL) {
        pk_item_in(m, PK_ITEM_FENCE, f);
    }
    if (anybody && token_of(f) == 0) {
        pk_reply(m, c, PK_NOTFOUND);
    } else if (f != NULL) {
        accept(m, c, f, rule);
    }
}

static void reply_mode(struct pk_machine *m, const struct pk_command *c, enum pk_status s,
                       const struct pk_fence *f)
{
    struct pk_effect *e = pk_reply(m, c, s);
    e->token = token_of(f);
    e->epoch = f == NULL ? 0 : f->epoch;
}

void pk_fence_mode(struct pk_machine *m, const struct pk_command *c)
{
    bool shadow = c->flags & PK_FENCE_SHADOW;
    struct pk_fence *before = pk_fence_find(m, c->name);
    bool changes = before == NULL ? shadow : before->shadow != shadow;
    uint64_t epoch = before == NULL ? 0 : before->epoch;
    if (changes && c->epoch != epoch) {
        /* F6: a late copy, or somebody else was faster. */
        reply_mode(m, c, PK_TOOOLD, before);
        return;
    }
    struct pk_fence *f = make_room(m, c, before);
    if (f == NULL) {
        return;
    }
    f->shadow = shadow;
    f->epoch += changes;
    pk_item_in(m, PK_ITEM_FENCE, f);
    reply_mode(m, c, PK_OK, f);
    if (changes || before == NULL) {
        pk_event(m, (struct pk_effect){.kind = PK_EV_FENCE_MODE,
                                       .name = pk_fence_name(f),
                                       .token = f->token,
                                       .shadow = shadow});
    }
}

void pk_fence_show(struct pk_machine *m, const struct pk_command *c)
{
    const struct pk_fence *f = pk_fence_find(m, c->name);
    struct pk_effect *e = pk_reply(m, c, f == NULL ? PK_NOTFOUND : PK_OK);
    if (f != NULL) {
        e->token = f->token;
        e->shadow = f->shadow;
        e->epoch = f->epoch;
        e->shadowed = f->shadowed;
        e->value_bytes = pk_blob_len(f->value);
        e->left_ms = pk_timer_left(m, f->ends);
    }
}
