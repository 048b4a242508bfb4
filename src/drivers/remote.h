/* SPDX-License-Identifier: MIT */
/*
 * The insides of a store that is a cluster, shared by remote.c (what the client calls)
 * and remote_io.c (the thread that talks to the nodes).
 *
 * Threads: `mutex` guards all fields below it and is never held while something blocks.
 * The link belongs to the I/O thread; while it is OPEN, any thread with the mutex may put
 * requests on it and send what can be sent at once, so that a call costs one change of
 * threads and not two. Only the I/O thread reads, connects and hangs up.
 */
#ifndef PICKET_DRIVERS_REMOTE_H
#define PICKET_DRIVERS_REMOTE_H

#include <pthread.h>

#include "client/driver.h"
#include "drivers/remote_link.h"

/* What a request is for; all but CALL are the driver's own and die with their
 * connection. */
enum pk_remote_ask_kind {
    PK_REMOTE_ASK_CALL,
    PK_REMOTE_ASK_HELLO,
    PK_REMOTE_ASK_REDIRECT,
    PK_REMOTE_ASK_WATCH,
    PK_REMOTE_ASK_PING, /* whether the node is still there */
};

enum { PK_TROUBLE_MAX = 560 }; /* a place and a sentence */

/* One request, from its call to its answer. */
struct pk_remote_ask {
    struct pk_remote_ask *next;
    enum pk_remote_ask_kind kind;
    enum pk_verb verb; /* of a CALL */
    bool only_reads;
    struct pk_resp_out bytes; /* the same ones each time it is sent (P8) */
    uint64_t sent_ms;         /* over the present connection */
    bool in_flight;
    bool maybe;     /* somebody may have done it without our having heard so */
    bool abandoned; /* its caller is gone: nobody waits for the answer */
    bool done;
    enum picket_status status; /* once done; on OK `answer`, else `said` */
    struct pk_effects answer;
    char said[PK_TROUBLE_MAX];
    pthread_cond_t answered;
};

struct pk_remote_asks {
    struct pk_remote_ask *first, *last;
};

enum pk_line { PK_LINE_NONE, PK_LINE_DIALLING, PK_LINE_GREETING, PK_LINE_OPEN };

/* Cluster time was `tau_ms` when our clock showed `local_ms` or more; tau 0: not known.
 */
struct pk_moment {
    uint64_t local_ms, tau_ms;
};

struct pk_store {
    struct pk_places places;
    char names[512]; /* of the places, for people */
    bool watching;   /* a stream of all events, and nothing else */
    pthread_t thread;
    /* Readable when there is news or wake was called; when the I/O thread should look
     * around; and two alarm clocks. */
    int news_fd, nudge_fd, wait_timer_fd, io_timer_fd;

    pthread_mutex_t mutex;
    bool stopping;

    /* -- the line -- */
    struct pk_link link;
    enum pk_line line;
    struct pk_place place;   /* that we talk to, or tried last */
    uint32_t turn;           /* which of the places is next */
    bool invited;            /* a node has named the leader: `place` is next */
    bool guest;              /* that is how we came to `place` */
    bool detour;             /* the leader can't be reached: ask others to relay */
    uint32_t failures, hops; /* in a row, without an answer from the machine */
    uint64_t again_ms;       /* not before that: connect, or send what is unsent */
    uint64_t dialled_ms, heard_ms;
    uint64_t silence_ms; /* what we put up with */
    uint64_t alarm_ms;   /* what io_timer_fd is set to; UINT64_MAX: nothing */
    char
        trouble[PK_TROUBLE_MAX]; /* what went wrong last, and where; "" since an answer */

    /* -- requests -- */
    struct pk_remote_asks unsent, in_flight;
    struct pk_remote_ask *spare; /* to be used again */
    uint32_t n_spare;

    /* -- news -- */
    uint64_t lease; /* attended */
    uint64_t owned; /* a lease whose events this connection gets; 0: none that we know */
    bool cut_off;   /* its events may have gone by unheard, */
    uint64_t cut_since_ms; /* after that time of our clock */
    bool streaming;        /* the watch has begun, over this connection */
    bool streamed;         /* over any */
    pthread_cond_t began;
    struct pk_effects inbox;
    size_t inbox_bytes;
    bool missed;
    bool told; /* news_fd has been set */
    uint64_t news_since_ms;
    /* What comes now happened after that time of our clock; and the value before. */
    uint64_t known_ms, known_before_ms;
    struct pk_moment moment;

    /* Used by the I/O thread alone. */
    struct pk_effects scratch;
};

/* ---- remote_ask.c; with the mutex held ---- */

struct pk_remote_ask *pk_remote_ask_new(struct pk_store *s, enum pk_remote_ask_kind kind);
void pk_remote_ask_drop(struct pk_store *s, struct pk_remote_ask *a);
void pk_remote_ask_free(struct pk_remote_ask *a);
void pk_remote_asks_add(struct pk_remote_asks *q, struct pk_remote_ask *a);
void pk_remote_asks_add_first(struct pk_remote_asks *q, struct pk_remote_ask *a);
void pk_remote_asks_remove(struct pk_remote_asks *q, struct pk_remote_ask *a);

/* ---- remote_io.c; with the mutex held ---- */

/* The thread, which takes the mutex itself. */
void *pk_remote_run(void *store);
/* Sends it now if the line is open, or else when it is. */
void pk_remote_send(struct pk_store *s, struct pk_remote_ask *a);
/* The events of s->lease may not come over this line, or over none: as soon as there is
 * one, whoever reads the news is told to renew, which brings what was missed and makes
 * the connection the lease's own. */
void pk_remote_mistrust(struct pk_store *s);
/* Makes the I/O thread look around. */
void pk_remote_nudge(struct pk_store *s);
/* Makes news_fd readable. */
void pk_remote_tell(struct pk_store *s);

#endif
