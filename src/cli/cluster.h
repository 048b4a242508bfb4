/* SPDX-License-Identifier: MIT */
/*
 * Asking a cluster as its operator: for the words of `picket cluster`.
 *
 * Any node will do: one that does not lead passes the question on. While nobody leads,
 * or a connection ends before its answer, the question is asked again, of the next node.
 * So a question may be done twice; each word says why that does no harm, or asks once.
 */
#ifndef PICKET_CLI_CLUSTER_H
#define PICKET_CLI_CLUSTER_H

#include "cli/options.h"
#include "drivers/remote_url.h"
#include "server/ask.h"

enum {
    PK_CLUSTER_OPEN_MS = 2000,    /* for a connection to come about */
    PK_CLUSTER_ANSWER_MS = 5000,  /* for an answer that costs nothing */
    PK_CLUSTER_CHANGE_MS = 60000, /* for one that waits until a node has caught up */
    PK_CLUSTER_PAUSE_MS = 100,    /* before asking again */
};

struct pk_cluster {
    struct pk_places places;
    const char *url; /* for people */
    uint32_t next;   /* of the places */
    struct pk_ask line;
    bool open;
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

/* Asks until there is an answer, for up to ten seconds; `answer_ms` is how long one
 * answer may take. `once`: when it may have been done, don't ask again. */
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

/* ---- cluster_status.c ---- */

enum { PK_CLUSTER_NODES_MAX = 16, PK_CLUSTER_TEXT_MAX = 192 };

/* One node: what others say of it, and what it says itself. */
struct pk_cluster_node {
    char name[PK_CLUSTER_TEXT_MAX], role[16];
    char client[PK_CLUSTER_TEXT_MAX], http[PK_CLUSTER_TEXT_MAX];
    char raft[PK_CLUSTER_TEXT_MAX];
    uint64_t match; /* its log is known to be the leader's up to here; 0: not known */
    bool answered;
    char standing[16], version[32]; /* leader, follower, candidate */
    bool serving;
    uint64_t term, last_index;
};

struct pk_cluster_view {
    char cluster[32], leader[PK_CLUSTER_TEXT_MAX]; /* leader "": nobody serves */
    uint64_t term, last_index;                     /* as the leader has them */
    bool answered;                                 /* by anybody */
    struct pk_cluster_node nodes[PK_CLUSTER_NODES_MAX];
    size_t count;
    char why[480]; /* what the last one who did not answer had */
};

/* Asks every node there is, once. */
void pk_cluster_look(struct pk_cluster *c, struct pk_cluster_view *v);
int pk_cluster_status(struct pk_cluster *c, bool json);

/* ---- cluster_backup.c ---- */

/* `file` "-" is standard output or input. All return the exit code. */
int pk_cluster_backup(struct pk_cluster *c, const char *file, bool force);
int pk_cluster_restore(struct pk_cluster *c, const char *file, bool yes);

#endif
