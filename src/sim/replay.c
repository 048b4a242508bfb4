/* SPDX-License-Identifier: MIT */
#include "sim/replay.h"

#include <string.h>

#include "core/door.h"
#include "sim/chance.h"

enum { LOOK_BACK = 256 };

/* A list of `count` that has room for one more. */
static void *room_for(void *list, size_t size, uint32_t count, uint32_t *capacity)
{
    if (count < *capacity) {
        return list;
    }
    *capacity = *capacity == 0 ? 8 : 2 * *capacity;
    return pk_door_resize(list, *capacity * size);
}

/* ---- leases ---- */

static int order_lease(const void *key, const struct pk_node *node)
{
    uint64_t id = *(const uint64_t *)key;
    uint64_t other = PK_OWNER(node, struct pk_replay_lease, node)->id;
    return (id > other) - (id < other);
}

static struct pk_replay_lease *lease_of(struct pk_replay *r, uint64_t id)
{
    struct pk_node *n = pk_tree_find(&r->leases, &id, order_lease);
    if (n != NULL) {
        return PK_OWNER(n, struct pk_replay_lease, node);
    }
    struct pk_replay_lease *l = pk_door_resize(NULL, sizeof *l);
    *l = (struct pk_replay_lease){.id = id, .who = r->n_leases + 1};
    (void)pk_tree_insert(&r->leases, &l->node, &id, order_lease);
    r->by_who = room_for(r->by_who, sizeof l, r->n_leases, &r->leases_capacity);
    r->by_who[r->n_leases++] = l;
    return l;
}

/* What stands behind `key` at the beginning of a line of the label. */
static struct pk_bytes label_field(const char *label, const char *key)
{
    size_t n = strlen(key);
    for (const char *at = label; *at != '\0';) {
        const char *newline = memchr(at, '\n', strlen(at));
        size_t len = newline != NULL ? (size_t)(newline - at) : strlen(at);
        if (len > n && memcmp(at, key, n) == 0) {
            return pk_bytes(at + n, len - n);
        }
        at += newline != NULL ? len + 1 : len;
    }
    return pk_bytes("", 0);
}

void pk_replay_name(const struct pk_replay *r, uint32_t who, struct pk_prose *out)
{
    const struct pk_replay_lease *l =
        who >= 1 && who <= r->n_leases ? r->by_who[who - 1] : NULL;
    if (l == NULL) {
        pk_prose_add(out, "somebody");
        return;
    }
    struct pk_bytes host = label_field(l->label, "host=");
    struct pk_bytes pid = label_field(l->label, "pid=");
    struct pk_bytes name = host.len > 0 ? host : label_field(l->label, "");
    if (name.len == 0) {
        pk_prose_add(out, "lease ");
        pk_prose_number(out, l->id);
        return;
    }
    pk_prose_bytes(out, name.data, name.len);
    if (host.len > 0 && pid.len > 0) {
        pk_prose_add(out, "/");
        pk_prose_bytes(out, pid.data, pid.len);
    }
}

static void set_label(struct pk_replay *r, const struct pk_trace_line *line)
{
    struct pk_replay_lease *l = lease_of(r, line->lease);
    memcpy(l->label, line->text.data, line->text.len);
    l->label[line->text.len] = '\0';
}

/* ---- locks ---- */

static int order_lock(const void *key, const struct pk_node *node)
{
    const struct pk_replay_lock *l = PK_OWNER(node, struct pk_replay_lock, node);
    return pk_bytes_compare(*(const struct pk_bytes *)key,
                            pk_bytes(l->name, l->name_len));
}

/* NULL: not wanted. */
static struct pk_replay_lock *lock_of(struct pk_replay *r, struct pk_bytes name)
{
    if (r->only.len > 0 && !pk_bytes_equal(name, r->only)) {
        return NULL;
    }
    struct pk_node *n = pk_tree_find(&r->locks, &name, order_lock);
    if (n != NULL) {
        return PK_OWNER(n, struct pk_replay_lock, node);
    }
    struct pk_replay_lock *l = pk_door_resize(NULL, sizeof *l);
    *l = (struct pk_replay_lock){.name_len = name.len};
    memcpy(l->name, name.data, name.len);
    (void)pk_tree_insert(&r->locks, &l->node, &name, order_lock);
    r->n_locks++;
    return l;
}

const struct pk_replay_lock *pk_replay_first(const struct pk_replay *r)
{
    struct pk_node *n = pk_tree_first(&r->locks);
    return n == NULL ? NULL : PK_OWNER(n, struct pk_replay_lock, node);
}

const struct pk_replay_lock *pk_replay_next(const struct pk_replay_lock *l)
{
    struct pk_node *n = pk_tree_next(&l->node);
    return n == NULL ? NULL : PK_OWNER(n, struct pk_replay_lock, node);
}

/* Keeps the record, and shows it to the checker if it is to be judged. */
static void record(struct pk_replay_lock *l, struct pk_record x, uint32_t who,
                   const uint64_t *claim)
{
    uint32_t capacity = l->records_capacity;
    l->records = room_for(l->records, sizeof x, l->n_records, &l->records_capacity);
    l->whos = room_for(l->whos, sizeof who, l->n_records, &capacity);
    l->checker.records = l->n_records;
    l->records[l->n_records] = x;
    l->whos[l->n_records++] = who;
    if (claim != NULL) {
        pk_checker_feed_as(&l->checker, &x, who, *claim);
    }
}

/* ---- what the service says ---- */

static uint64_t claim_of(const struct pk_trace_line *line)
{
    uint64_t claim = pk_mix(pk_mix(line->lease) ^ line->request);
    return claim != 0 ? claim : 1;
}

/* Somebody who holds it in a way that leaves no room for another one of that mode. */
static const struct pk_replay_hold *in_the_way(const struct pk_replay_lock *l,
                                               const struct pk_trace_line *line)
{
    for (uint32_t i = 0; i < l->n_holds; i++) {
        bool together = line->mode != PK_EXCLUSIVE && l->holds[i].mode == line->mode;
        if (!together || (line->mode == PK_SLOT && l->n_holds >= line->slots)) {
            return &l->holds[i];
        }
    }
    return NULL;
}

/* Tokens grow over all locks; the locks of a set have one in common. */
static void remember_newest(struct pk_replay *r, struct pk_replay_lock *l,
                            const struct pk_replay_hold *h)
{
    struct pk_checker *c = &l->checker;
    bool set = h->lease == r->newest.lease && h->request == r->newest.request &&
               h->token == r->newest.token;
    if (!set && c->newest_token < r->newest.token) {
        c->newest_token = r->newest.token;
        c->newest_holder = r->newest.who;
    }
    if (h->token >= r->newest.token) {
        r->newest = *h;
    }
}

static void granted(struct pk_replay *r, struct pk_replay_lock *l,
                    const struct pk_trace_line *line)
{
    struct pk_replay_hold h = {.lease = line->lease,
                               .request = line->request,
                               .token = line->token,
                               .who = lease_of(r, line->lease)->who,
                               .mode = line->mode};
    const struct pk_replay_hold *other = in_the_way(l, line);
    struct pk_checker *c = &l->checker;
    c->held = other != NULL;
    c->holder = other != NULL ? other->who : 0;
    c->holder_token = other != NULL ? other->token : 0;
    remember_newest(r, l, &h);
    bool known = line->at_ms - r->since_ms >= line->number;
    uint64_t claim = known ? claim_of(line) : 0;
    record(l,
           (struct pk_record){
               .at_us = line->at_ms * 1000, .kind = PK_REC_GRANTED, .token = line->token},
           h.who, &claim);
    l->holds = room_for(l->holds, sizeof h, l->n_holds, &l->holds_capacity);
    l->holds[l->n_holds++] = h;
}

static void ended(struct pk_replay *r, struct pk_replay_lock *l,
                  const struct pk_trace_line *line)
{
    uint32_t i = 0;
    while (i < l->n_holds &&
           (l->holds[i].lease != line->lease || l->holds[i].request != line->request)) {
        i++;
    }
    if (i < l->n_holds) {
        l->holds[i] = l->holds[--l->n_holds];
    }
    record(l,
           (struct pk_record){
               .at_us = line->at_ms * 1000, .kind = PK_REC_ENDED, .token = line->token},
           lease_of(r, line->lease)->who, NULL);
}

static void waits(struct pk_replay *r, struct pk_replay_lock *l,
                  const struct pk_trace_line *line)
{
    uint64_t claim = claim_of(line);
    bool left = line->kind == PK_TRACE_LEFT;
    record(l,
           (struct pk_record){.at_us = line->at_ms * 1000,
                              .kind = left ? PK_REC_LEFT : PK_REC_QUEUED},
           lease_of(r, line->lease)->who, &claim);
}

/* ---- what fences say ---- */

/* Who was granted that token; 0: nobody that we know of, or long ago. */
static uint32_t holder_of(const struct pk_replay_lock *l, uint64_t token)
{
    uint32_t first = l->n_records > LOOK_BACK ? l->n_records - LOOK_BACK : 0;
    for (uint32_t i = l->n_records; i-- > first;) {
        if (l->records[i].kind == PK_REC_GRANTED && l->records[i].token == token) {
            return l->whos[i];
        }
    }
    return 0;
}

static void fence(struct pk_replay *r, struct pk_replay_lock *l,
                  const struct pk_trace_line *line)
{
    static const uint64_t no_claim = 0;
    uint32_t who = holder_of(l, line->token);
    bool refused = line->kind == PK_TRACE_REFUSED;
    struct pk_record x = {.at_us = line->at_ms * 1000,
                          .kind = PK_REC_RAISED,
                          .token = line->token,
                          .arg = line->token};
    r->refused += refused;
    if (!refused) {
        record(l, x, who, &no_claim);
    }
    if (line->kind != PK_TRACE_RAISED) {
        x.kind = PK_REC_WROTE;
        x.code = refused;
        record(l, x, who, NULL);
    }
}

/* ---- lines ---- */

/* From here on nothing is known of what was before but the tokens. */
static void forget_all(struct pk_replay *r)
{
    for (struct pk_node *n = pk_tree_first(&r->locks); n != NULL; n = pk_tree_next(n)) {
        struct pk_replay_lock *l = PK_OWNER(n, struct pk_replay_lock, node);
        l->n_holds = 0;
        l->checker.n_queue = 0;
        l->checker.raised = 0;
    }
    r->begun = false;
    r->gaps++;
}

/* Another cluster counts from one again. */
static void forget_tokens(struct pk_replay *r)
{
    r->newest = (struct pk_replay_hold){0};
    for (struct pk_node *n = pk_tree_first(&r->locks); n != NULL; n = pk_tree_next(n)) {
        PK_OWNER(n, struct pk_replay_lock, node)->checker.newest_token = 0;
    }
}

static void begin(struct pk_replay *r, const struct pk_trace_line *line)
{
    if (r->lines > 1) {
        forget_all(r);
    }
    if (line->number != r->cluster) {
        forget_tokens(r);
    }
    r->cluster = line->number;
}

static void about_a_lock(struct pk_replay *r, const struct pk_trace_line *line)
{
    struct pk_replay_lock *l = lock_of(r, line->name);
    if (l == NULL) {
        return;
    }
    r->grants += line->kind == PK_TRACE_GRANTED;
    switch (line->kind) {
    case PK_TRACE_GRANTED:
        granted(r, l, line);
        break;
    case PK_TRACE_ENDED:
        ended(r, l, line);
        break;
    case PK_TRACE_QUEUED:
    case PK_TRACE_LEFT:
        waits(r, l, line);
        break;
    case PK_TRACE_FORGOT:
        l->checker.raised = 0;
        break;
    case PK_TRACE_SHADOWED:
        break; /* it was meant to pass */
    default:
        fence(r, l, line);
        break;
    }
}

static const char *feed(struct pk_replay *r, const struct pk_trace_line *line)
{
    r->lines++;
    if (line->kind == PK_TRACE_BEGIN) {
        begin(r, line);
        return NULL;
    }
    if (r->begun && line->at_ms < r->last_ms) {
        return "time goes back";
    }
    r->since_ms = r->begun ? r->since_ms : line->at_ms;
    r->first_ms = r->lines == 2 ? line->at_ms : r->first_ms;
    r->begun = true;
    r->last_ms = line->at_ms;
    switch (line->kind) {
    case PK_TRACE_OPENED:
        set_label(r, line);
        break;
    case PK_TRACE_CLOSED:
        break;
    case PK_TRACE_RENEWED:
        r->renewals++;
        break;
    case PK_TRACE_LEADER:
        r->leaders += line->text.len > 0;
        break;
    case PK_TRACE_GAP:
        forget_all(r);
        break;
    default:
        about_a_lock(r, line);
        break;
    }
    return r->n_locks <= PK_REPLAY_LOCKS_MAX ? NULL
                                             : "more than 65536 locks; name one of them";
}

const char *pk_replay_read(struct pk_replay *r, const char *text, size_t len,
                           uint32_t *line)
{
    struct pk_trace_reader reader;
    struct pk_trace_line x;
    const char *wrong = NULL;
    pk_trace_open(&reader, text, len);
    while (wrong == NULL && pk_trace_read(&reader, &x)) {
        wrong = feed(r, &x);
    }
    r->cut = reader.cut;
    *line = reader.line;
    return wrong != NULL ? wrong : reader.why;
}

/* ---- life ---- */

struct pk_replay *pk_replay_new(struct pk_bytes only)
{
    struct pk_replay *r = pk_door_resize(NULL, sizeof *r);
    *r = (struct pk_replay){.only = only};
    return r;
}

void pk_replay_free(struct pk_replay *r)
{
    struct pk_node *n;
    while ((n = pk_tree_first(&r->locks)) != NULL) {
        struct pk_replay_lock *l = PK_OWNER(n, struct pk_replay_lock, node);
        pk_tree_erase(&r->locks, n);
        (void)pk_door_resize(l->holds, 0);
        (void)pk_door_resize(l->records, 0);
        (void)pk_door_resize(l->whos, 0);
        (void)pk_door_resize(l, 0);
    }
    while ((n = pk_tree_first(&r->leases)) != NULL) {
        pk_tree_erase(&r->leases, n);
        (void)pk_door_resize(PK_OWNER(n, struct pk_replay_lease, node), 0);
    }
    (void)pk_door_resize(r->by_who, 0);
    (void)pk_door_resize(r, 0);
}

/* ---- what was found ---- */

uint64_t pk_replay_hits(const struct pk_replay *r, enum pk_check c)
{
    uint64_t hits = 0;
    const struct pk_replay_lock *l = pk_replay_first(r);
    for (; l != NULL; l = pk_replay_next(l)) {
        hits += l->checker.counts[c];
    }
    return hits;
}

void pk_replay_explain(const struct pk_replay *r, const struct pk_hit *h,
                       struct pk_prose *out)
{
    struct pk_prose who = {0};
    struct pk_prose other = {0};
    pk_replay_name(r, h->who, &who);
    pk_replay_name(r, h->other, &other);
    pk_hit_explain_as(h, who.data, other.data, out);
    pk_prose_free(&who);
    pk_prose_free(&other);
}
