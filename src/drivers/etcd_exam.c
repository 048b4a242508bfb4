/* SPDX-License-Identifier: MIT */
/* Whether this is an etcd that locks can be kept in, and what the doctor finds there. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "client/error.h"
#include "drivers/etcd.h"
#include "host/clock.h"

enum {
    MAJOR_LEAST = 3,
    MINOR_LEAST = 4,
    SPACE_MB = 2048, /* what etcd has, unless it was told otherwise */
    SPACE_FULL_MB = 1640,
    MEMBER_PATIENCE_MS = 2000,
};

static enum picket_status ask_state(struct pk_etcd_caller *c, uint32_t place,
                                    uint64_t until_ms, struct pk_etcd_state *out)
{
    struct pk_pb_out request = {0};
    struct pk_bytes reply;
    enum picket_status s =
        pk_etcd_call_at(c, place, "Maintenance/Status", &request, until_ms, &reply);
    *out = (struct pk_etcd_state){0};
    if (s == PICKET_OK && (!pk_etcd_read_state(reply, out) || out->version.len == 0)) {
        s = pk_etcd_fail_garbled(c);
    }
    return s;
}

/* Watches with numbers of ours, and asking whether a stream is there, came with 3.4. */
static bool too_old(struct pk_bytes version)
{
    char text[32];
    snprintf(text, sizeof text, "%.*s", (int)version.len,
             version.len > 0 ? version.data : "");
    char *minor = NULL;
    unsigned long major = strtoul(text, &minor, 10);
    return major < MAJOR_LEAST ||
           (major == MAJOR_LEAST &&
            (*minor != '.' || strtoul(minor + 1, NULL, 10) < MINOR_LEAST));
}

enum picket_status pk_etcd_check(struct pk_etcd *e, uint64_t until_ms)
{
    struct pk_etcd_state state;
    struct pk_pb_out request = {0};
    struct pk_bytes reply;
    if (e->checked) {
        return PICKET_OK;
    }
    enum picket_status s =
        pk_etcd_call(&e->caller, "Maintenance/Status", &request, until_ms, &reply);
    if (s == PICKET_UNKNOWN) {
        return PICKET_UNREACHABLE; /* nothing was to be done yet */
    }
    if (s == PICKET_OK && !pk_etcd_read_state(reply, &state)) {
        s = pk_etcd_fail_garbled(&e->caller);
    }
    if (s == PICKET_OK && too_old(state.version)) {
        s = pk_fail(PICKET_STORE, "%s is etcd %.*s: 3.4 or newer is needed",
                    e->site.shown, (int)state.version.len,
                    state.version.len > 0 ? state.version.data : "");
    }
    e->checked = s == PICKET_OK;
    return s;
}

/* ---- the doctor ---- */

/* Each place of the URL. False: none is of any help. */
static bool examine_places(struct pk_etcd *e, struct pk_findings *out, uint64_t until_ms)
{
    bool any = false;
    for (uint32_t i = 0; i < e->site.places.count; i++) {
        struct pk_etcd_state state;
        const char *where = e->site.places.list[i].text;
        uint64_t end = pk_clock_ms() + MEMBER_PATIENCE_MS;
        enum picket_status s =
            ask_state(&e->caller, i, end < until_ms ? end : until_ms, &state);
        if (s != PICKET_OK) {
            const struct pk_etcd_line *l = &e->caller.line;
            pk_findings_add(out, PK_NOTE, "member-away", "%s is no help: %s", where,
                            l->code > 0 ? l->said : l->trouble);
            continue;
        }
        any = true;
        pk_findings_add(out, too_old(state.version) ? PK_UNSAFE : PK_FINE, "version",
                        "%s is etcd %.*s%s", where, (int)state.version.len,
                        state.version.data,
                        too_old(state.version) ? ": 3.4 or newer is needed" : "");
        if (state.learner) {
            pk_findings_add(out, PK_NOTE, "learner",
                            "%s is a learner, which answers no questions about locks: "
                            "leave it out of the URL",
                            where);
        }
        if (state.db_bytes / 1048576 > SPACE_FULL_MB) {
            pk_findings_add(out, PK_NOTE, "space",
                            "the database at %s has %" PRIu64
                            " MB; etcd stops writing at "
                            "its quota, which is %d MB by default: compact and "
                            "defragment it",
                            where, state.db_bytes / 1048576, SPACE_MB);
        }
    }
    return any;
}

static void judge_members(unsigned voters, unsigned learners, struct pk_findings *out)
{
    if (voters == 1) {
        pk_findings_add(out, PK_NOTE, "single-node",
                        "a single member: locks survive its restart, but not the loss of "
                        "its disk, and nobody can lock while it is away; run three");
    } else if (voters % 2 == 0) {
        pk_findings_add(out, PK_NOTE, "even-members",
                        "%u members bear the loss of no more than %u do: run an odd "
                        "number",
                        voters, voters - 1);
    } else {
        pk_findings_add(out, PK_FINE, "members", "%u members: %u may fail", voters,
                        (voters - 1) / 2);
    }
    if (learners > 0) {
        pk_findings_add(out, PK_NOTE, "learners",
                        "%u members are learners, without a vote", learners);
    }
}

static enum picket_status examine_members(struct pk_etcd *e, struct pk_findings *out,
                                          uint64_t until_ms)
{
    struct pk_pb_out request = {0};
    struct pk_bytes reply;
    struct pk_etcd_many many;
    struct pk_etcd_member member;
    unsigned voters = 0, learners = 0;
    enum picket_status s =
        pk_etcd_call(&e->caller, "Cluster/MemberList", &request, until_ms, &reply);
    if (s == PICKET_OK && !pk_etcd_read_members(reply, &many)) {
        s = pk_etcd_fail_garbled(&e->caller);
    }
    if (s != PICKET_OK) {
        return s;
    }
    while (pk_etcd_next_member(&many, &member)) {
        learners += member.learner;
        voters += !member.learner;
    }
    judge_members(voters, learners, out);
    return PICKET_OK;
}

static enum picket_status examine_alarms(struct pk_etcd *e, struct pk_findings *out,
                                         uint64_t until_ms)
{
    struct pk_pb_out request = {0};
    struct pk_bytes reply;
    struct pk_etcd_many many;
    struct pk_etcd_alarm alarm;
    bool any = false;
    enum picket_status s =
        pk_etcd_call(&e->caller, "Maintenance/Alarm", &request, until_ms, &reply);
    if (s == PICKET_DENIED) {
        pk_findings_add(out, PK_NOTE, "alarms-hidden",
                        "this user may not see etcd's alarms");
        return PICKET_OK;
    }
    if (s == PICKET_OK && !pk_etcd_read_alarms(reply, &many)) {
        s = pk_etcd_fail_garbled(&e->caller);
    }
    while (s == PICKET_OK && pk_etcd_next_alarm(&many, &alarm)) {
        any = true;
        pk_findings_add(out, alarm.kind == 1 ? PK_NOTE : PK_UNSAFE,
                        alarm.kind == 1 ? "alarm-space" : "alarm-corrupt",
                        alarm.kind == 1
                            ? "member %" PRIx64 " is out of space: no lock can be taken "
                              "until it is compacted and etcdctl alarm disarm was run"
                            : "member %" PRIx64 " says that its data is corrupt: replace "
                              "it, and trust no lock until then",
                        alarm.member);
    }
    if (s == PICKET_OK && !any) {
        pk_findings_add(out, PK_FINE, "alarms", "no alarms");
    }
    return s;
}

/* What becomes of a lease of one second. */
static enum picket_status examine_ttl(struct pk_etcd *e, struct pk_findings *out,
                                      uint64_t until_ms)
{
    struct pk_pb_out request = {0};
    struct pk_bytes reply;
    struct pk_etcd_lease lease;
    pk_pb_uint(&request, 1, 1);
    enum picket_status s =
        pk_etcd_call(&e->caller, "Lease/LeaseGrant", &request, until_ms, &reply);
    pk_pb_free(&request);
    if (s == PICKET_OK && !pk_etcd_read_lease(reply, &lease)) {
        s = pk_etcd_fail_garbled(&e->caller);
    }
    if (s != PICKET_OK) {
        return s == PICKET_STORE ? PICKET_OK : s; /* an alarm has told why */
    }
    pk_findings_add(out, lease.ttl_s > 1 ? PK_NOTE : PK_FINE, "least-ttl",
                    "leases live for whole seconds, and for %" PRId64
                    " at least: the lock of a holder that died is free after that, even "
                    "if its TTL was shorter",
                    lease.ttl_s);
    pk_pb_uint(&request, 1, lease.id);
    enum picket_status unimportant =
        pk_etcd_call(&e->caller, "Lease/LeaseRevoke", &request, until_ms, &reply);
    (void)unimportant; /* it ends by itself, too */
    pk_pb_free(&request);
    return PICKET_OK;
}

/* Whether everybody may do everything. Nobody has that name, so nobody is let in. */
static void examine_rights(struct pk_etcd *e, struct pk_findings *out, uint64_t until_ms)
{
    struct pk_pb_out request = {0};
    struct pk_bytes reply;
    pk_pb_bytes(&request, 1, pk_text("picket-doctor"));
    pk_pb_bytes(&request, 2, pk_text("-"));
    enum picket_status s =
        pk_etcd_call(&e->caller, "Auth/Authenticate", &request, until_ms, &reply);
    pk_pb_free(&request);
    if (s != PICKET_OK && pk_etcd_refused(&e->caller, "authentication is not enabled")) {
        pk_findings_add(out, PK_NOTE, "no-auth",
                        "whoever reaches this etcd may break every lock: enable its "
                        "authentication, or keep strangers from its port");
    } else {
        pk_findings_add(out, PK_FINE, "auth", "etcd asks for a password");
    }
}

enum picket_status pk_etcd_examine(void *own, struct pk_findings *out, uint64_t until_ms)
{
    struct pk_etcd *e = own;
    bool any = examine_places(e, out, until_ms);
    e->checked = e->checked && any;
    enum picket_status s = any ? PICKET_OK : pk_etcd_check(e, until_ms);
    if (s == PICKET_OK) {
        s = examine_members(e, out, until_ms);
    }
    if (s == PICKET_OK) {
        s = examine_alarms(e, out, until_ms);
    }
    if (s == PICKET_OK) {
        s = examine_ttl(e, out, until_ms);
    }
    if (s == PICKET_OK) {
        examine_rights(e, out, until_ms);
    }
    return s;
}
