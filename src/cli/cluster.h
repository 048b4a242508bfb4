/* SPDX-License-Identifier: MIT */
/*
 * Asking a cluster as its operator: for the words of `picket cluster`.
 *
 * All nodes are asked at once for CLUSTER STATUS: those of the URL, and the members that
 * they name. A command goes to the node that has answered and leads, so a node that hangs
 * is never waited for longer than PK_CLUSTER_LOOK_MS. While the answer to a command is
 * awaited, the nodes are asked again and again who leads; when it is another node by now,
 * the command is sent there. So a command may be done twice; each says why that does no
 * harm, or is sent once.
 */
#ifndef PICKET_CLI_CLUSTER_H
#define PICKET_CLI_CLUSTER_H

#include "cli/options.h"
#include "drivers/remote_url.h"
#include "server/ask.h"

enum {
    PK_CLUSTER_LOOK_MS = 1000,    /* for one node to say what it knows */
    PK_CLUSTER_ANSWER_MS = 5000,  /* for an answer that costs nothing */
    PK_CLUSTER_CHANGE_MS = 60000, /* for one that waits until a node has caught up */
    PK_CLUSTER_PAUSE_MS = 100,    /* before asking again */
    PK_CLUSTER_NODES_MAX = 16,
    PK_CLUSTER_TEXT_MAX = 192,
};

struct pk_cluster {
    struct pk_places places;
    const char *url; /* for people */
    struct pk_ask line;
    bool open;
    char leader[PK_CLUSTER_TEXT_MAX]; /* whom the line leads to, perhaps by a relay */
};

enum pk_cluster_got {
    PK_CLUSTER_OK,
    PK_CLUSTER_REFUSED, /* for good: asking again would not help */
    PK_CLUSTER_AWAY,    /* nobody could be asked: not done */
    PK_CLUSTER_UNKNOWN, /* asked, but not answered: it may have been done */
};

struct pk_cluster_answer {
    struct pk_bytes value; /* of OK: one whole RESP value, good until the next question */
    bool repeated;         /* an earlier try may have done it */
    char code[16], why[480]; /* of all others; the code of REFUSED alone */
};

/* Reads where the cluster is, from the options or the environment. 0, or an exit code
 * after having said why. */
int pk_cluster_find(const struct pk_common *common, struct pk_cluster *c);
void pk_cluster_close(struct pk_cluster *c);

/* Asks until there is an answer. Finding a leader may take ten seconds; `answer_ms` is
 * how long one answer may take. `once`: when it may have been done, don't ask again. */
enum pk_cluster_got pk_cluster_ask(struct pk_cluster *c,
                                   const struct pk_resp_out *request, uint32_t answer_ms,
                                   bool once, struct pk_cluster_answer *a);
/* The same for words, not once. */
enum pk_cluster_got pk_cluster_ask_words(struct pk_cluster *c, const char *const *words,
                                         size_t n, uint32_t answer_ms,
                                         struct pk_cluster_answer *a);
/* Says why it did not work; returns the exit code. */
int pk_cluster_fail(const struct pk_cluster *c, const char *word, enum pk_cluster_got got,
                    const struct pk_cluster_answer *a);
void pk_cluster_pause(void);

/* ---- cluster_report.c ---- */

/* One node: what others say of it, and what it says itself. */
struct pk_cluster_node {
    char name[PK_CLUSTER_TEXT_MAX], role[16]; /* role "": not a member */
    char client[PK_CLUSTER_TEXT_MAX], http[PK_CLUSTER_TEXT_MAX];
    char raft[PK_CLUSTER_TEXT_MAX];
    uint64_t match;    /* its log is known to be the leader's up to here; 0: not known */
    uint64_t heard_ms; /* since the leader heard from it; UINT64_MAX: no connection */
    char refused[256]; /* why the leader and it don't talk; "": no such reason */
    bool answered;
    char at[PK_CLUSTER_TEXT_MAX];      /* where it answered */
    char follows[PK_CLUSTER_TEXT_MAX]; /* the leader that it names; "": none */
    char standing[16], version[32];    /* leader, follower, candidate; its release */
    bool serving;
    uint64_t term, last_index;
    uint64_t oldest, newest; /* cluster versions that its release runs; 0: not known */
    uint64_t data_version;   /* that its directory needs; 0: not known */
};

/* What one node says: of itself, and of all members. */
struct pk_cluster_report {
    char cluster[32], node[PK_CLUSTER_TEXT_MAX], leader[PK_CLUSTER_TEXT_MAX];
    char standing[16], version[32];
    uint64_t serving, term, last_index, commit_index, silent_after_ms;
    uint64_t cluster_version, version_held, data_version;
    struct pk_cluster_node members[PK_CLUSTER_NODES_MAX];
    size_t count;
};

/* Asks the node at that address for CLUSTER STATUS. False: `why` says what came instead.
 */
bool pk_cluster_report(const char *address, struct pk_cluster_report *r, char *why,
                       size_t size);

/* ---- cluster_look.c ---- */

struct pk_cluster_view {
    char cluster[32], leader[PK_CLUSTER_TEXT_MAX]; /* leader "": nobody serves */
    /* As the leader has them. */
    uint64_t term, last_index, commit_index, silent_after_ms;
    uint64_t version; /* of the cluster; 0: the nodes are of a release without it */
    bool held;        /* only an operator raises it */
    bool answered;    /* by anybody */
    struct pk_cluster_node nodes[PK_CLUSTER_NODES_MAX];
    size_t count;
    char why[480]; /* what the last one who did not answer had */
};

/* Asks every node there is. Members that seem to lag, or to be heard by the leader
 * although they did not answer, get another second. */
void pk_cluster_look(struct pk_cluster *c, struct pk_cluster_view *v);
/* Asks as many of them as it takes to find the leader. True: v->leader is known. */
bool pk_cluster_find_leader(struct pk_cluster *c, struct pk_cluster_view *v);
/* NULL: there is no such node. */
struct pk_cluster_node *pk_cluster_node(struct pk_cluster_view *v, const char *name);

/* ---- cluster_health.c ---- */

/* In which state a member is, by what the leader knows of it. Only the first two are
 * healthy. */
enum pk_member_state {
    PK_STATE_LEADER,
    PK_STATE_FOLLOWER,    /* heard by the leader, and its log keeps up */
    PK_STATE_LAGGING,     /* heard by the leader, but its log is behind */
    PK_STATE_CANDIDATE,   /* answers, and follows nobody */
    PK_STATE_DEPOSED,     /* leads in its own eyes alone */
    PK_STATE_REFUSED,     /* the leader refuses it, or it refuses the leader */
    PK_STATE_SILENT,      /* answers us, but the leader does not hear from it */
    PK_STATE_UNREACHABLE, /* neither we nor the leader hear from it */
};

struct pk_cluster_health {
    size_t voters, healthy, answering; /* the last two: of the voters */
    size_t failures_tolerated;         /* voters that may fail now; 0 without a leader */
    bool all_healthy;                  /* standbys too, and somebody leads */
};

enum pk_member_state pk_cluster_state(const struct pk_cluster_view *v,
                                      const struct pk_cluster_node *n);
const char *pk_cluster_state_name(enum pk_member_state s);
struct pk_cluster_health pk_cluster_health(const struct pk_cluster_view *v);
/* One line about the whole. */
void pk_cluster_summary(const struct pk_cluster_view *v, char *out, size_t size);

/* ---- cluster_status.c ---- */

int pk_cluster_status(struct pk_cluster *c, bool json);

/* ---- cluster_version.c ---- */

/* All return the exit code. */
int pk_cluster_hold(struct pk_cluster *c);
int pk_cluster_upgrade(struct pk_cluster *c);
int pk_cluster_downgrade(struct pk_cluster *c);

/* ---- cluster_backup.c, cluster_restore.c ---- */

/* `file` "-" is standard output or input; `rate` is in bytes a second, 0: no limit. All
 * return the exit code. */
struct pk_backup_wish {
    const char *file;
    bool force;       /* replace the file */
    const char *from; /* the node's name; NULL: a follower, if there is one */
    uint64_t rate;
};
int pk_cluster_backup(struct pk_cluster *c, const struct pk_backup_wish *w);
/* Writes the state in the directory of a node that does not run to a backup. */
int pk_cluster_recover(const char *dir, const char *file, bool force);
int pk_cluster_restore(struct pk_cluster *c, const char *file, bool yes, uint64_t rate);

#endif
