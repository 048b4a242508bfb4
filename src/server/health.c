/* SPDX-License-Identifier: MIT */
#include "server/health.h"

#include <stdio.h>
#include <string.h>

#include "server/forming.h"
#include "server/inside.h"

enum {
    ELECTION_MS = 300,    /* where the options name none */
    SILENT_ELECTIONS = 3, /* heartbeats come ten times in one election timeout */
};

uint64_t pk_health_silent_after_ms(const struct pk_server *s)
{
    uint32_t election_ms = s->options.election_ms;
    return UINT64_C(1) * SILENT_ELECTIONS *
           (election_ms == 0 ? ELECTION_MS : election_ms);
}

uint64_t pk_health_heard_ms(const struct pk_server *s, uint64_t id)
{
    if (id == s->self.id) {
        return 0;
    }
    bool leads = s->leader_id == s->self.id;
    return leads || id == s->leader_id ? pk_uvio_silence_ms(s->uvio, id) : UINT64_MAX;
}

/* ---- refusals ---- */

static struct pk_refused *find_refused(struct pk_server *s, const char *name)
{
    for (size_t i = 0; i < PK_MEMBERS_MAX; i++) {
        if (strcmp(s->refused[i].name, name) == 0) {
            return &s->refused[i];
        }
    }
    return NULL;
}

static bool is_member_name(struct pk_server *s, const char *name)
{
    struct pk_member members[PK_MEMBERS_MAX];
    size_t n = s->replica == NULL ? 0 : pk_replica_members(s->replica, members, NULL);
    for (size_t i = 0; i < n; i++) {
        char other[PK_NODE_NAME_MAX];
        (void)pk_member_name(&members[i], other, sizeof other);
        if (strcmp(other, name) == 0) {
            return true;
        }
    }
    return false;
}

/* Of members only: strangers may not displace them. */
void pk_health_refused(struct pk_server *s, const char *peer, const char *why)
{
    char name[PK_NODE_NAME_MAX];
    int len = (int)strcspn(peer, "@");
    (void)snprintf(name, sizeof name, "%.*s", len, peer);
    struct pk_refused *r = find_refused(s, name);
    if (!is_member_name(s, name)) {
        return;
    }
    if (r == NULL) {
        r = &s->refused[s->next_refused++ % PK_MEMBERS_MAX];
    }
    memcpy(r->name, name, sizeof r->name);
    (void)snprintf(r->why, sizeof r->why, "%s", why);
}

const char *pk_health_refusal(const struct pk_server *s, const char *name)
{
    const struct pk_refused *r = find_refused((struct pk_server *)s, name);
    return r == NULL || name[0] == '\0' ? "" : r->why;
}

void pk_health_sweep(struct pk_server *s)
{
    struct pk_member members[PK_MEMBERS_MAX];
    size_t n = pk_replica_members(s->replica, members, NULL);
    for (size_t i = 0; i < n; i++) {
        char name[PK_NODE_NAME_MAX];
        (void)pk_member_name(&members[i], name, sizeof name);
        struct pk_refused *r = find_refused(s, name);
        if (r != NULL &&
            pk_uvio_silence_ms(s->uvio, members[i].id) <= pk_health_silent_after_ms(s)) {
            *r = (struct pk_refused){0};
        }
    }
}

/* ---- this node ---- */

static bool is_member(struct pk_server *s)
{
    struct pk_member members[PK_MEMBERS_MAX];
    size_t n = pk_replica_members(s->replica, members, NULL);
    for (size_t i = 0; i < n; i++) {
        if (members[i].id == s->self.id) {
            return members[i].role != PK_MEMBER_SPARE;
        }
    }
    return false;
}

/* A sentence of anybody who refuses this node; NULL: nobody does. */
static const struct pk_refused *any_refusal(const struct pk_server *s)
{
    for (size_t i = 0; i < PK_MEMBERS_MAX; i++) {
        if (s->refused[i].name[0] != '\0') {
            return &s->refused[i];
        }
    }
    return NULL;
}

bool pk_health_ready(struct pk_server *s, char *text, size_t size)
{
    if (pk_turn_serving(s->turn)) {
        (void)snprintf(text, size, "ready: leading\n");
        return true;
    }
    if (pk_forming_text(s)[0] != '\0') {
        (void)snprintf(text, size, "not ready: %s\n", pk_forming_text(s));
        return false;
    }
    const struct pk_refused *r = any_refusal(s);
    if (pk_admin_leader_address(s) == NULL) {
        (void)snprintf(text, size, "not ready: no leader%s%s%s%s\n",
                       r == NULL ? "" : "; node ", r == NULL ? "" : r->name,
                       r == NULL ? "" : ": ", r == NULL ? "" : r->why);
        return false;
    }
    if (!is_member(s)) {
        (void)snprintf(text, size, "not ready: not a member of the cluster\n");
        return false;
    }
    if (pk_health_heard_ms(s, s->leader_id) > pk_health_silent_after_ms(s)) {
        (void)snprintf(text, size, "not ready: the leader is silent\n");
        return false;
    }
    (void)snprintf(text, size, "ready: following\n");
    return true;
}
