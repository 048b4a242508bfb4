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

static struct pk_fence *find(const struct pk_machine *m, struct pk_bytes name)
{
    struct pk_node *n = pk_tree_find(&m->fences, &name, order_name);
    return n == NULL ? NULL : PK_OWNER(n, struct pk_fence, node);
}

struct pk_fence *pk_fence_new(struct pk_machine *m, struct pk_bytes name)
{
    PK_ASSERT(name.len > 0 && name.len <= PK_NAME_MAX);
    struct pk_fence *f = pk_zeroed(offsetof(struct pk_fence, name) + name.len);
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
    pk_blob_free(m, f->value);
    pk_tree_erase(&m->fences, &f->node);
    m->stats.fences--;
    m->stats.stored_bytes -= f->name_len;
    pk_door_resize(f, 0);
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

/* F1, the rule of every fence: a lower token is refused, a higher one raises. Returns the
 * fence that now stands at the command's token, or NULL after having replied the refusal.
 */
static struct pk_fence *admit(struct pk_machine *m, const struct pk_command *c,
                              bool *raised)
{
    struct pk_fence *f = find(m, c->name);
    enum pk_fencing rule = pk_fencing(token_of(f), c->token);
    if (rule == PK_FENCING_STALE) {
        pk_reply(m, c, PK_STALE)->token = f->token;
        return NULL;
    }
    const char *limit = limit_reached(m, f, c->name, c->value.len);
    if (limit != NULL) {
        pk_reply_limit(m, c, limit);
        return NULL;
    }
    if (f == NULL) {
        f = pk_fence_new(m, c->name);
    }
    *raised = rule == PK_FENCING_RAISE;
    if (*raised) {
        f->token = c->token;
        f->request = 0;
    }
    return f;
}

static void event_raised(struct pk_machine *m, const struct pk_fence *f)
{
    pk_event(m, (struct pk_effect){.kind = PK_EV_FENCE_RAISED,
                                   .name = pk_fence_name(f),
                                   .token = f->token});
}

/* Answers OK with token and value, and tells when the fence went up. */
static void accept(struct pk_machine *m, const struct pk_command *c,
                   const struct pk_fence *f, bool raised)
{
    struct pk_effect e = {.kind = PK_REPLY,
                          .verb = c->verb,
                          .status = PK_OK,
                          .request = c->request,
                          .token = f->token};
    if (c->verb == PK_FENCE_GET) {
        e.value = pk_blob_bytes(f->value);
    }
    pk_effects_add(m->out, &e);
    if (raised) {
        event_raised(m, f);
    }
}

void pk_fence_claim(struct pk_machine *m, const struct pk_command *c)
{
    bool raised;
    struct pk_fence *f = admit(m, c, &raised);
    if (f != NULL) {
        accept(m, c, f, raised);
    }
}

void pk_fence_check(struct pk_machine *m, const struct pk_command *c)
{
    static const enum pk_status says[] = {
        [PK_FENCING_STALE] = PK_STALE,
        [PK_FENCING_HELD] = PK_OK,
        [PK_FENCING_RAISE] = PK_UNCLAIMED,
    };
    uint64_t token = token_of(find(m, c->name));
    pk_reply(m, c, says[pk_fencing(token, c->token)])->token = token;
}

void pk_fence_set(struct pk_machine *m, const struct pk_command *c)
{
    struct pk_fence *f = find(m, c->name);
    if (f != NULL && pk_fencing(f->token, c->token) == PK_FENCING_HELD &&
        c->request != 0 && c->request <= f->request) {
        /* F3: a late copy of an earlier write must not undo the one after it. */
        pk_reply(m, c, c->request == f->request ? PK_OK : PK_TOOOLD)->token = f->token;
        return;
    }
    bool raised;
    f = admit(m, c, &raised);
    if (f == NULL) {
        return;
    }
    if (c->request != 0) {
        f->request = c->request;
    }
    pk_blob_free(m, f->value);
    f->value = pk_blob_new(m, c->value);
    accept(m, c, f, raised);
    pk_event(m, (struct pk_effect){.kind = PK_EV_FENCE_SET,
                                   .name = pk_fence_name(f),
                                   .token = f->token,
                                   .value = c->value});
}

void pk_fence_get(struct pk_machine *m, const struct pk_command *c)
{
    bool raised = false;
    struct pk_fence *f = c->token == 0 ? find(m, c->name) : admit(m, c, &raised);
    if (f != NULL) {
        accept(m, c, f, raised);
    } else if (c->token == 0) {
        pk_reply(m, c, PK_NOTFOUND);
    }
}
