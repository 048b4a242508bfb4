/* SPDX-License-Identifier: MIT */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/cluster.h"
#include "cli/errors.h"
#include "cli/output.h"
#include "core/door.h"
#include "core/limits.h"
#include "host/clock.h"

enum { HANDOVER_MS = 10000, LEADER_MS = 10000, NOBODY_MS = 2000, PAIRS_MAX = 15 };

struct settings {
    struct pk_common common;
    bool force, yes;
    const char *from, *rate;
    uint64_t rate_bytes; /* a second; 0: no limit */
    const struct pk_words *words;
};

struct action {
    const char *name;
    int words_min, words_max;
    const char *wants; /* its words, for complaints */
    int (*act)(struct pk_cluster *c, const struct settings *s);
};

static const struct pk_option own[] = {
    {PK_OPTION_FLAG, 0, "force", NULL, "backup, recover: replace FILE if it is there",
     offsetof(struct settings, force), 0, 0},
    {PK_OPTION_FLAG, 0, "yes", NULL, "restore: yes, end all leases",
     offsetof(struct settings, yes), 0, 0},
    {PK_OPTION_TEXT, 0, "from", "NODE",
     "backup: of that node (default: a follower that keeps up)",
     offsetof(struct settings, from), 0, 0},
    {PK_OPTION_TEXT, 0, "rate", "RATE",
     "backup, restore: bytes a second at most, such as 512K or 10M",
     offsetof(struct settings, rate), 0, 0},
    {0},
};

static const struct pk_option_group groups[] = {
    {own, 0},
    {pk_options_output, offsetof(struct settings, common)},
    {pk_options_common, offsetof(struct settings, common)},
    {0},
};

static int show_status(struct pk_cluster *c, const struct settings *s)
{
    return pk_cluster_status(c, s->common.json);
}

static int back_up(struct pk_cluster *c, const struct settings *s)
{
    struct pk_backup_wish w = {.file = s->words->at[1],
                               .force = s->force,
                               .from = s->from,
                               .rate = s->rate_bytes};
    return pk_cluster_backup(c, &w);
}

static int restore(struct pk_cluster *c, const struct settings *s)
{
    return pk_cluster_restore(c, s->words->at[1], s->yes, s->rate_bytes);
}

/* ---- who belongs to it ---- */

static int change(struct pk_cluster *c, const char *name, const char *const *words,
                  size_t n)
{
    struct pk_cluster_answer a;
    enum pk_cluster_got got = pk_cluster_ask_words(c, words, n, PK_CLUSTER_CHANGE_MS, &a);
    return got == PK_CLUSTER_OK ? 0 : pk_cluster_fail(c, name, got, &a);
}

/* A second time is answered OK. */
static int add(struct pk_cluster *c, const struct settings *s)
{
    const char *word = s->words->at[1];
    const char *equals = strchr(word, '=');
    char name[PK_CLUSTER_TEXT_MAX];
    if (equals == NULL || equals == word || (size_t)(equals - word) >= sizeof name) {
        return pk_errors_fail("cluster: add: \"%s\" is not NAME=HOST:PORT, where PORT is "
                              "that of the node's --raft",
                              word);
    }
    (void)snprintf(name, sizeof name, "%.*s", (int)(equals - word), word);
    bool has_id = s->words->count > 2;
    const char *const words[] = {"CLUSTER", "ADD", name, equals + 1,
                                 has_id ? s->words->at[2] : ""};
    int code = change(c, "add", words, has_id ? 5 : 4);
    if (code == 0) {
        pk_errors_remark("%s gets the log, but has no vote; 'picket cluster promote %s' "
                         "gives it one",
                         name, name);
    }
    return code;
}

/* A second time is answered OK. */
static int promote(struct pk_cluster *c, const struct settings *s)
{
    const char *name = s->words->at[1];
    const char *const words[] = {"CLUSTER", "PROMOTE", name};
    int code = change(c, "promote", words, 3);
    if (code == 0) {
        pk_errors_remark("%s has a vote now", name);
    }
    return code;
}

/* A second time the new node is alive and in its place, which is what was wanted. */
static int replace(struct pk_cluster *c, const struct settings *s)
{
    const char *name = s->words->at[1];
    const char *const words[] = {"CLUSTER", "REPLACE", name};
    struct pk_cluster_answer a;
    enum pk_cluster_got got = pk_cluster_ask_words(c, words, 3, PK_CLUSTER_CHANGE_MS, &a);
    bool there = got == PK_CLUSTER_REFUSED && a.repeated && strcmp(a.code, "ALIVE") == 0;
    if (got != PK_CLUSTER_OK && !there) {
        return pk_cluster_fail(c, "replace", got, &a);
    }
    pk_errors_remark("%s has its place and its vote again, with its new directory", name);
    return 0;
}

static int recover(struct pk_cluster *c, const struct settings *s)
{
    (void)c;
    return pk_cluster_recover(s->words->at[1], s->words->at[2], s->force);
}

/* A second time it is not there any more, which is what was wanted. */
static int remove_node(struct pk_cluster *c, const struct settings *s)
{
    const char *name = s->words->at[1];
    const char *const words[] = {"CLUSTER", "REMOVE", name};
    struct pk_cluster_answer a;
    enum pk_cluster_got got = pk_cluster_ask_words(c, words, 3, PK_CLUSTER_CHANGE_MS, &a);
    bool gone =
        got == PK_CLUSTER_REFUSED && a.repeated && strcmp(a.code, "NOTFOUND") == 0;
    if (got != PK_CLUSTER_OK && !gone) {
        return pk_cluster_fail(c, "remove", got, &a);
    }
    pk_errors_remark("%s is removed for good: stop it and delete its data", name);
    return 0;
}

/* ---- who leads ---- */

/* Waits until somebody serves who isn't `before`; `to` may be NULL: whoever it is. */
static int await_leader(struct pk_cluster *c, const char *before, const char *to,
                        struct pk_cluster_view *v)
{
    uint64_t began = pk_clock_ms();
    do {
        pk_cluster_pause();
        (void)pk_cluster_find_leader(c, v);
    } while ((v->leader[0] == '\0' || strcmp(v->leader, before) == 0) &&
             pk_clock_ms() - began < HANDOVER_MS);
    const char *leader = v->leader[0] != '\0' ? v->leader : "nobody";
    bool moved = v->leader[0] != '\0' && strcmp(leader, before) != 0;
    if (!moved || (to != NULL && strcmp(leader, to) != 0)) {
        return pk_errors_fail("cluster: transfer: %s leads; see 'picket cluster status' "
                              "for what %s is up to",
                              leader, to != NULL ? to : "each node");
    }
    pk_errors_remark("%s leads", leader);
    return 0;
}

/* Asked once, and then looked at: a second time could go one node further. */
static int hand_over(struct pk_cluster *c, const char *to, struct pk_cluster_view *v)
{
    struct pk_cluster_answer a;
    struct pk_resp_out request = {0};
    uint64_t began = pk_clock_ms();
    while (!pk_cluster_find_leader(c, v) &&
           pk_clock_ms() - began < (v->answered ? LEADER_MS : NOBODY_MS)) {
        pk_cluster_pause();
    }
    if (v->leader[0] == '\0') {
        return pk_errors_fail("cluster: transfer: nobody leads %s at the moment%s%s",
                              c->url, v->answered ? "" : ": ", v->answered ? "" : v->why);
    }
    if (to != NULL && strcmp(v->leader, to) == 0) {
        pk_errors_remark("%s leads already", to);
        return 0;
    }
    char before[sizeof v->leader];
    memcpy(before, v->leader, sizeof before);
    pk_resp_array(&request, to == NULL ? 2 : 3);
    pk_resp_text(&request, "CLUSTER");
    pk_resp_text(&request, "TRANSFER");
    if (to != NULL) {
        pk_resp_text(&request, to);
    }
    enum pk_cluster_got got = pk_cluster_ask(c, &request, PK_CLUSTER_ANSWER_MS, true, &a);
    pk_resp_free(&request);
    if (got != PK_CLUSTER_OK && got != PK_CLUSTER_UNKNOWN) {
        return pk_cluster_fail(c, "transfer", got, &a);
    }
    return await_leader(c, before, to, v);
}

static int transfer(struct pk_cluster *c, const struct settings *s)
{
    struct pk_cluster_view *v = pk_door_resize(NULL, sizeof *v);
    int code = hand_over(c, s->words->at[1], v);
    pk_door_resize(v, 0);
    return code;
}

/* ---- the cluster version ---- */

static int hold(struct pk_cluster *c, const struct settings *s)
{
    (void)s;
    return pk_cluster_hold(c);
}

static int upgrade(struct pk_cluster *c, const struct settings *s)
{
    (void)s;
    return pk_cluster_upgrade(c);
}

static int downgrade(struct pk_cluster *c, const struct settings *s)
{
    (void)s;
    return pk_cluster_downgrade(c);
}

/* ---- limits ---- */

static const char *limit_text(struct pk_bytes name)
{
#define X(limit, initial, ceiling, text)                                                 \
    if (pk_resp_is(name, #limit)) {                                                      \
        return text;                                                                     \
    }
    PK_LIMITS(X)
#undef X
    return "";
}

static int show_limits(struct pk_cluster *c, const struct settings *s)
{
    static const char *const words[] = {"CLUSTER", "LIMITS"};
    struct pk_cluster_answer a;
    enum pk_cluster_got got = pk_cluster_ask_words(c, words, 2, PK_CLUSTER_ANSWER_MS, &a);
    if (got != PK_CLUSTER_OK) {
        return pk_cluster_fail(c, "limits", got, &a);
    }
    struct pk_resp_cursor cursor = {.rest = a.value};
    struct pk_table t = {.columns = 3};
    struct pk_json j = {0};
    uint32_t left = pk_resp_next(&cursor).n / 2; /* RESP2 has maps as arrays */
    if (s->common.json) {
        pk_json_object(&j, NULL);
    }
    for (; left > 0 && !cursor.bad; left--) {
        char name[32];
        struct pk_bytes key = pk_resp_next(&cursor).bytes;
        uint64_t value = (uint64_t)pk_resp_next(&cursor).number;
        (void)snprintf(name, sizeof name, "%.*s", (int)key.len, key.data);
        if (s->common.json) {
            pk_json_number(&j, name, value);
        } else {
            pk_table_add(&t, "%s", name);
            pk_table_add(&t, "%" PRIu64, value);
            pk_table_add(&t, "%s", limit_text(key));
        }
    }
    if (s->common.json) {
        pk_json_end_object(&j);
    }
    pk_table_print(&t);
    return 0;
}

/* A second time sets the same values. */
static int configure(struct pk_cluster *c, const struct settings *s)
{
    struct pk_cluster_answer a;
    struct pk_resp_out request = {0};
    int pairs = s->words->count - 1;
    pk_resp_array(&request, 2 + 2 * (size_t)pairs);
    pk_resp_text(&request, "CLUSTER");
    pk_resp_text(&request, "CONFIGURE");
    for (int i = 1; i <= pairs; i++) {
        const char *word = s->words->at[i];
        const char *equals = strchr(word, '=');
        if (equals == NULL) {
            pk_resp_free(&request);
            return pk_errors_fail("cluster: configure: \"%s\" is not NAME=VALUE; "
                                  "'picket cluster limits' shows what there is",
                                  word);
        }
        pk_resp_bulk(&request, pk_bytes(word, (size_t)(equals - word)));
        pk_resp_text(&request, equals + 1);
    }
    enum pk_cluster_got got =
        pk_cluster_ask(c, &request, PK_CLUSTER_CHANGE_MS, false, &a);
    pk_resp_free(&request);
    return got == PK_CLUSTER_OK ? 0 : pk_cluster_fail(c, "configure", got, &a);
}

/* ---- the verb ---- */

static const struct action actions[] = {
    {"status", 0, 0, "no words", show_status},
    {"add", 1, 2, "one word, NAME=HOST:PORT, and perhaps the node's ID", add},
    {"promote", 1, 1, "one word, the node's NAME", promote},
    {"replace", 1, 1, "one word, the node's NAME", replace},
    {"remove", 1, 1, "one word, the node's NAME", remove_node},
    {"transfer", 0, 1, "at most one word, the node's NAME", transfer},
    {"backup", 1, 1, "one word, the FILE to write (- for standard output)", back_up},
    {"restore", 1, 1, "one word, the FILE to read (- for standard input)", restore},
    {"recover", 2, 2, "two words, the DIR of a node and the FILE to write", recover},
    {"hold", 0, 0, "no words", hold},
    {"upgrade", 0, 0, "no words", upgrade},
    {"downgrade", 0, 0, "no words", downgrade},
    {"limits", 0, 0, "no words", show_limits},
    {"configure", 1, PAIRS_MAX, "words of NAME=VALUE; see 'picket cluster limits'",
     configure},
};

static const struct action *find_action(const char *name)
{
    for (size_t i = 0; i < sizeof actions / sizeof actions[0]; i++) {
        if (strcmp(actions[i].name, name) == 0) {
            return &actions[i];
        }
    }
    return NULL;
}

/* A number and K, M or G. False: it is none, or 0. */
static bool read_rate(const char *text, uint64_t *out)
{
    static const char units[] = "KMG";
    enum { UNIT_BITS = 10, RATE_BITS_MAX = 40 };
    char *end;
    *out = strtoull(text, &end, 10);
    const char *unit = *end == '\0' ? NULL : strchr(units, *end);
    if (text[0] < '0' || text[0] > '9' || *out == 0 || *out >> RATE_BITS_MAX != 0) {
        return false;
    }
    if (unit != NULL) {
        *out <<= UNIT_BITS * (unit - units + 1);
        end++;
    }
    return *end == '\0' && *out >> RATE_BITS_MAX == 0;
}

/* --from and --rate; 0: nothing is wrong. */
static int check_transfer(struct settings *s, const struct action *a)
{
    if (s->from != NULL && a->act != back_up) {
        return pk_errors_fail("cluster: --from is for backup, not for %s", a->name);
    }
    if (s->rate != NULL && a->act != back_up && a->act != restore) {
        return pk_errors_fail("cluster: --rate is for backup and restore, not for %s",
                              a->name);
    }
    if (s->rate != NULL && !read_rate(s->rate, &s->rate_bytes)) {
        return pk_errors_fail("cluster: --rate \"%s\" is not a number of bytes a second, "
                              "such as 512K or 10M",
                              s->rate);
    }
    return 0;
}

/* What the words and options are wrong about together; 0: nothing. */
static int check_words(const struct settings *s, const struct action *a)
{
    int n = s->words->count - 1;
    if (a == NULL) {
        return pk_errors_fail("cluster: \"%s\" is none of status, add, promote, replace, "
                              "remove, transfer, backup, restore, recover, hold, "
                              "upgrade, downgrade, limits and configure",
                              s->words->at[0]);
    }
    if (n < a->words_min || n > a->words_max) {
        return pk_errors_fail("cluster: %s takes %s", a->name, a->wants);
    }
    if (s->force && a->act != back_up && a->act != recover) {
        return pk_errors_fail("cluster: --force is for backup and recover, not for %s",
                              a->name);
    }
    if (s->yes && a->act != restore) {
        return pk_errors_fail("cluster: --yes is for restore, not for %s", a->name);
    }
    if (s->common.json && a->act != show_status && a->act != show_limits) {
        return pk_errors_fail("cluster: -o json is for status and limits, not for %s",
                              a->name);
    }
    return 0;
}

static int run(int argc, char **argv)
{
    struct pk_words words;
    struct pk_cluster c;
    struct settings s = {.words = &words};
    int code = pk_options_parse(&pk_cli_cluster, argc, argv, &s, &words);
    if (code >= 0) {
        return code;
    }
    const struct action *action = find_action(words.at[0]);
    code = check_words(&s, action);
    if (code == 0) {
        code = check_transfer(&s, action);
    }
    if (code == 0 && action->act == recover) {
        return recover(NULL, &s); /* asks no node */
    }
    if (code == 0) {
        code = pk_cluster_find(&s.common, &c);
    }
    if (code == 0) {
        code = action->act(&c, &s);
        pk_cluster_close(&c);
    }
    return code;
}

const struct pk_cli_verb pk_cli_cluster = {
    .name = "cluster",
    .brief = "look at a cluster's nodes, change them, back it up",
    .usage = "status [-o json]\n"
             "add NAME=HOST:PORT [ID]\n"
             "promote NAME\n"
             "replace NAME\n"
             "remove NAME\n"
             "transfer [NAME]\n"
             "backup FILE|- [--from NODE] [--rate RATE] [--force]\n"
             "restore FILE|- --yes [--rate RATE]\n"
             "recover DIR FILE|- [--force]\n"
             "hold\n"
             "upgrade\n"
             "downgrade\n"
             "limits [-o json]\n"
             "configure NAME=VALUE...",
    .about =
        "  status     each member: its role, its state, and how many entries of the log "
        "it is\n"
        "             behind; then how many more failures the cluster bears now\n"
        "  add        makes room for a new node that waits to be admitted, or whose ID "
        "is given;\n"
        "             it gets the log but has no vote. PORT is that of its --raft. "
        "'picket serve\n"
        "             --join' does this by itself\n"
        "  promote    gives a node its vote, once it has caught up\n"
        "  replace    admits the node NAME with a new, empty directory in the place of "
        "the one\n"
        "             that is lost: start it with its old --name and --cluster first\n"
        "  remove     takes a node out. A leader hands over first\n"
        "  transfer   makes NAME the leader, or whoever is best\n"
        "  backup     writes the whole state of one node, a follower if there is one, to "
        "FILE,\n"
        "             and verifies what it has written. FILE appears when it is whole\n"
        "  restore    replaces the whole state by that of FILE, which is verified first. "
        "All\n"
        "             leases end, and tokens go on above all that were ever given out\n"
        "  recover    when a majority of the nodes is lost for good: writes the state in "
        "DIR, the\n"
        "             data directory of a stopped survivor, to FILE, for a restore into "
        "a new\n"
        "             cluster. What only lost nodes knew is gone\n"
        "  hold       keeps the cluster version as it is, whatever releases the nodes "
        "have\n"
        "  upgrade    ends that: the leader raises the version when every node runs the "
        "next one\n"
        "  downgrade  lowers the cluster version by one and holds it, so that the nodes "
        "can be\n"
        "             replaced by the release before theirs, one by one\n"
        "  limits     what bounds the state, the same on every node\n"
        "  configure  changes limits\n"
        "\n"
        "States: leader; follower (the leader hears it, and its log keeps up); lagging; "
        "silent\n"
        "(the leader does not hear it); refused (as silent, and the leader says why); "
        "unreachable;\n"
        "candidate; deposed. Leader and follower are healthy.\n"
        "\n"
        "All nodes of --on are asked at once, and the members that they know; a command "
        "goes to\n"
        "the one that leads. A node that hangs costs a second. While nobody leads, it is "
        "tried\n"
        "again for ten seconds.",
    .exits = "  0    done\n"
             "  1    status: nobody leads\n"
             "  2    status: the cluster serves, but not all its members are healthy\n"
             "  125  our own error, not done or not known to be done: a wrong call, no "
             "node in\n"
             "       reach, a refusal",
    .examples = "  picket cluster status --on picket://10.0.0.1,10.0.0.2,10.0.0.3\n"
                "  picket cluster status -o json | jq .failures_tolerated\n"
                "  picket cluster backup locks-$(date +%F).backup --rate 10M\n"
                "  picket cluster restore locks-2026-03-01.backup --yes\n"
                "  picket cluster replace n2\n"
                "  picket cluster configure lock_waiters=50000",
    .words = "what to do (status, add, promote, replace, remove, transfer, backup ...)",
    .words_min = 1,
    .words_max = PK_WORDS_MAX,
    .groups = groups,
    .common = offsetof(struct settings, common),
    .run = run,
};
