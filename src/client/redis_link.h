/* SPDX-License-Identifier: MIT */
/*
 * Connections to Redis: one question and its answer at a time, by a deadline that holds
 * whatever the server does; over several servers at once, too. Whoever holds a lock or a
 * fence there talks through this: the fence of that kind, and the drivers.
 *
 * hiredis writes and reads the protocol, the sockets are ours: its own can neither keep a
 * deadline over several reads, nor connect to several servers at a time, nor write
 * without a SIGPIPE. Only looking up a host's name takes as long as the resolver likes.
 */
#ifndef PICKET_CLIENT_REDIS_LINK_H
#define PICKET_CLIENT_REDIS_LINK_H

#include <hiredis/hiredis.h>
#include <stdbool.h>

#include "client/url.h"

enum {
    PK_REDIS_PORT = 6379,
    PK_REDIS_WORDS_MAX = 256,
    PK_REDIS_NUMBERS_MAX = 8,
    PK_REDIS_WHERE_MAX = 512,
    PK_REDIS_DIGEST = 40,
};

/* A command; words are borrowed, numbers are kept here. */
struct pk_redis_words {
    const char *data[PK_REDIS_WORDS_MAX];
    size_t len[PK_REDIS_WORDS_MAX];
    int count, n_numbers;
    char numbers[PK_REDIS_NUMBERS_MAX][24];
};

void pk_redis_add(struct pk_redis_words *w, struct pk_bytes word);
void pk_redis_add_text(struct pk_redis_words *w, const char *word);
void pk_redis_add_number(struct pk_redis_words *w, uint64_t number);

struct addrinfo;

struct pk_redis_link {
    const struct pk_url *url;       /* user, password, number, socket; borrowed */
    struct pk_place place;          /* "" and 0: the usual one */
    char where[PK_REDIS_WHERE_MAX]; /* for people: without its password */
    const char *script;             /* is loaded with each connection; NULL: none */
    bool locks;                     /* it must be one that locks can be kept in */

    int fd; /* -1: no connection */
    enum { PK_REDIS_DIALLING, PK_REDIS_GREETING, PK_REDIS_READY } stage;
    struct addrinfo *found, *next; /* a name's addresses, and the next one to try */
    char *out;                     /* from `sent` on still to be sent */
    size_t out_len, sent;
    redisReader *reader;
    int greeting;                     /* how much of it was answered */
    char digest[PK_REDIS_DIGEST + 1]; /* of the script there; "": it goes whole */

    /* The question. */
    char *question;
    size_t question_len;
    bool pending;  /* it has no answer yet */
    bool maybe;    /* it may have reached the server */
    bool repeated; /* and that over an earlier connection: done before, perhaps */
    /* Its answer, or why there is none: UNREACHABLE, DENIED, STORE with a sentence. */
    redisReply *reply;
    enum picket_status status;
    char why[400];
};

/* With url, place, where, script and locks set, and all else zero. */
void pk_redis_init(struct pk_redis_link *l);
/* Hangs up and frees what it has. */
void pk_redis_free(struct pk_redis_link *l);
void pk_redis_hang_up(struct pk_redis_link *l);

/* Puts the question; an earlier one is forgotten. */
void pk_redis_put(struct pk_redis_link *l, const struct pk_redis_words *w);
/* Waits until all questions put to the `n` links are answered, or have failed; one that
 * has no answer at `until_ms` fails, and its connection with it. */
void pk_redis_gather(struct pk_redis_link *const *links, size_t n, uint64_t until_ms);

/* Connects unless it is connected: OK, or says why not. */
enum picket_status pk_redis_reach(struct pk_redis_link *l, uint64_t until_ms);
/* Asks one question. OK: `*out` is the answer, to be freed, and may be an error. Else it
 * is NULL; UNKNOWN: it may have been done. A connection that turns out to be broken is
 * made anew and the question repeated, unless `once`. */
enum picket_status pk_redis_ask(struct pk_redis_link *l, const struct pk_redis_words *w,
                                bool once, uint64_t until_ms, redisReply **out);
/* The same with an error as a failure: see pk_redis_refused. */
enum picket_status pk_redis_command(struct pk_redis_link *l,
                                    const struct pk_redis_words *w, bool once,
                                    uint64_t until_ms, redisReply **out);

/* A call of the script: its number of keys, keys and arguments follow these two. */
void pk_redis_call(const struct pk_redis_link *l, struct pk_redis_words *w);
/* Connects unless it is connected, and asks it by its digest; a server that has forgotten
 * the script gets it whole. */
enum picket_status pk_redis_run(struct pk_redis_link *l, struct pk_redis_words *w,
                                bool once, uint64_t until_ms, redisReply **out);
/* Whether the answer says so; then makes the call one with the whole script. */
bool pk_redis_forgot(const struct pk_redis_link *l, struct pk_redis_words *w,
                     const redisReply *reply);

/* For a connection that is subscribed to something: takes in what has come. False: it
 * broke. */
bool pk_redis_listen(struct pk_redis_link *l);
/* And the next message, to be freed; NULL: there is none yet. */
redisReply *pk_redis_heard(struct pk_redis_link *l);

/* The text of an error reply, as a status with a sentence. */
enum picket_status pk_redis_refused(const char *where, const char *text);
/* NULL, or why no locks should be kept in the server whose INFO this is; for people. */
const char *pk_redis_unfit(const char *info);
/* The value behind "NAME:" in an INFO, up to its line's end; "" if it isn't there. */
struct pk_bytes pk_redis_info(const char *info, const char *name);

#endif
