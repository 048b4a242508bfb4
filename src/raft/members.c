/* SPDX-License-Identifier: MIT */
/*
 * Who belongs to the cluster, and changes of that.
 *
 * The library's own callbacks are not used: not every raft_io fires them. A change has
 * come to its end when the committed configuration shows it; it has failed when nothing
 * is under way any more and the configuration does not show it.
 */
#include <stdio.h>
#include <string.h>

#include "core/door.h"
#include "raft/inside.h"

static enum pk_member_role role_of(int role)
{
    switch (role) {
    case RAFT_VOTER:
        return PK_MEMBER_VOTER;
    case RAFT_STANDBY:
        return PK_MEMBER_STANDBY;
    default:
        return PK_MEMBER_SPARE;
    }
}

static const struct raft_server *find(const struct raft_configuration *c, uint64_t id)
{
    for (unsigned i = 0; i < c->n; i++) {
        if (c->servers[i].id == id) {
            return &c->servers[i];
        }
    }
    return NULL;
}

size_t pk_replica_members(struct pk_replica *r, struct pk_member *out, uint64_t *progress)
{
    const struct raft_configuration *c = &r->raft.configuration;
    size_t n = c->n < PK_MEMBERS_MAX ? c->n : PK_MEMBERS_MAX;
    for (size_t i = 0; i < n; i++) {
        const struct raft_server *s = &c->servers[i];
        out[i].id = s->id;
        out[i].role = role_of(s->role);
        snprintf(out[i].address, sizeof out[i].address, "%s", s->address);
        if (progress != NULL) {
            raft_index match = 0;
            bool known = raft_match_index(&r->raft, s->id, &match) == 0; /* as leader */
            progress[i] = known ? match : 0;
        }
    }
    return n;
}

bool pk_member_name(const struct pk_member *m, char *out, size_t size)
{
    const char *sign = strchr(m->address, '@');
    size_t len = sign == NULL ? 0 : (size_t)(sign - m->address);
    bool fits = sign != NULL && len < size;
    (void)snprintf(out, size, "%.*s", fits ? (int)len : 0, m->address);
    return fits;
}

const char *pk_member_host(const struct pk_member *m)
{
    const char *sign = strchr(m->address, '@');
    return sign == NULL ? "" : sign + 1;
}

const struct pk_member *pk_member_named(const struct pk_member *members, size_t n,
                                        const char *name)
{
    char its[PK_ADDRESS_MAX];
    for (size_t i = 0; i < n; i++) {
        if (pk_member_name(&members[i], its, sizeof its) && strcmp(its, name) == 0) {
            return &members[i];
        }
    }
    return NULL;
}

/* ---- beginning ---- */

static const char *add_wrong(const struct raft_configuration *c, uint64_t id,
                             const char *address)
{
    if (c->n >= PK_MEMBERS_MAX) {
        return "a cluster has at most 16 members";
    }
    if (id == 0 || address == NULL || address[0] == '\0' ||
        strlen(address) >= PK_ADDRESS_MAX) {
        return "a member needs an id and an address of at most 127 bytes";
    }
    for (unsigned i = 0; i < c->n; i++) {
        if (c->servers[i].id == id || strcmp(c->servers[i].address, address) == 0) {
            return "there is a member with this id or address";
        }
    }
    return NULL;
}

static const char *member_wrong(struct pk_replica *r, enum pk_change what, uint64_t id)
{
    const struct raft_server *s = find(&r->raft.configuration, id);
    if (s == NULL) {
        return "there is no such member";
    }
    if (what == PK_CHANGE_STANDBY && s->role == RAFT_STANDBY) {
        return "this member is a standby already";
    }
    if (what == PK_CHANGE_VOTER && s->role == RAFT_VOTER) {
        return "this member is a voter already";
    }
    if (id == r->raft.id) {
        return "this node is the leader: hand over leadership first";
    }
    return NULL;
}

static const char *moment_wrong(struct pk_replica *r)
{
    if (r->broken || r->closing || raft_state(&r->raft) != RAFT_LEADER) {
        return "this node is not the leader";
    }
    if (raft_transferee(&r->raft) != 0) {
        return "leadership is being handed over";
    }
    if (r->changing.running || r->raft.configuration_uncommitted_index != 0) {
        return "another change of members is under way";
    }
    return NULL;
}

static int begin(struct pk_replica *r, enum pk_change what, uint64_t id,
                 const char *address)
{
    struct raft_change *q = &r->changing.request;
    *q = (struct raft_change){0};
    pk_replica_own_leadership(r);
    switch (what) {
    case PK_CHANGE_ADD:
        return raft_add(&r->raft, q, id, address, NULL);
    case PK_CHANGE_STANDBY:
        return raft_assign(&r->raft, q, id, RAFT_STANDBY, NULL);
    case PK_CHANGE_VOTER:
        return raft_assign(&r->raft, q, id, RAFT_VOTER, NULL);
    case PK_CHANGE_REMOVE:
        return raft_remove(&r->raft, q, id, NULL);
    }
    return RAFT_INVALID;
}

const char *pk_replica_change(struct pk_replica *r, enum pk_change what, uint64_t id,
                              const char *address,
                              void (*done)(void *ctx, const char *wrong), void *ctx)
{
    const char *wrong = moment_wrong(r);
    if (wrong == NULL) {
        wrong = what == PK_CHANGE_ADD ? add_wrong(&r->raft.configuration, id, address)
                                      : member_wrong(r, what, id);
    }
    if (wrong != NULL) {
        return wrong;
    }
    int rv = begin(r, what, id, address);
    if (rv != 0) {
        return raft_strerror(rv);
    }
    struct pk_changing *c = &r->changing;
    c->running = true;
    c->what = what;
    c->id = id;
    c->term = raft_current_term(&r->raft);
    c->done = done;
    c->ctx = ctx;
    return NULL;
}

/* ---- ending ---- */

static bool is_in_force(const struct pk_replica *r)
{
    const struct pk_changing *c = &r->changing;
    const struct raft_server *s = find(&r->raft.configuration_committed, c->id);
    switch (c->what) {
    case PK_CHANGE_ADD:
        return s != NULL;
    case PK_CHANGE_STANDBY:
        return s != NULL && s->role == RAFT_STANDBY;
    case PK_CHANGE_VOTER:
        return s != NULL && s->role == RAFT_VOTER;
    case PK_CHANGE_REMOVE:
        return s == NULL;
    }
    return false;
}

/* Neither an entry that waits to be committed nor a node that catches up. */
static bool is_idle(const struct pk_replica *r)
{
    const struct raft_change *q = &r->changing.request;
    bool catching_up = r->raft.legacy.change == q && q->catch_up_id != 0;
    return r->raft.configuration_uncommitted_index == 0 && !catching_up;
}

static void end(struct pk_replica *r, const char *wrong)
{
    struct pk_changing *c = &r->changing;
    c->running = false;
    c->done(c->ctx, wrong);
}

void pk_members_poll(struct pk_replica *r)
{
    const struct pk_changing *c = &r->changing;
    if (!c->running) {
        return;
    }
    if (is_in_force(r)) {
        end(r, NULL);
    } else if (raft_state(&r->raft) != RAFT_LEADER ||
               raft_current_term(&r->raft) != c->term) {
        end(r, "leadership was lost; the change may still happen");
    } else if (is_idle(r)) {
        end(r, "the node did not catch up with the log in time");
    }
}

void pk_members_close(struct pk_replica *r)
{
    if (r->changing.running) {
        end(r, "this node is closing; the change may still happen");
    }
}

/* ---- handing over ---- */

const char *pk_replica_transfer(struct pk_replica *r, uint64_t id)
{
    if (r->broken || r->closing || raft_state(&r->raft) != RAFT_LEADER) {
        return "this node is not the leader";
    }
    if (r->raft.transfer != NULL) {
        return "leadership is being handed over already";
    }
    pk_replica_own_leadership(r);
    int rv = raft_transfer(&r->raft, &r->transfer, id, NULL);
    switch (rv) {
    case 0:
        return NULL;
    case RAFT_BADID:
        return "leadership can only go to another voter";
    case RAFT_NOTFOUND:
        return "there is no other voter";
    default:
        return raft_strerror(rv);
    }
}
