/* SPDX-License-Identifier: MIT */
/*
 * The words of a command line, from tables.
 *
 * A verb declares its options in groups of rows; a row says where its value goes in the
 * verb's own struct, and carries its line of help. So --help, the parser and the checks
 * can't disagree. Groups that several verbs share (where the store is, how to acquire)
 * are tables of their own, with a struct that the verb's struct embeds.
 *
 * Everything is checked before the verb does anything: a wrong word costs one line on
 * standard error, exit code 125, and changes nothing.
 */
#ifndef PICKET_CLI_OPTIONS_H
#define PICKET_CLI_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum pk_option_kind {
    PK_OPTION_END = 0, /* ends a table */
    PK_OPTION_FLAG,    /* bool: given */
    PK_OPTION_FIXED,   /* int64_t: `min` when given */
    PK_OPTION_TEXT,    /* const char * */
    PK_OPTION_LIST,    /* struct pk_option_list: may be repeated */
    PK_OPTION_NUMBER,  /* uint64_t from `min` to `max` */
    PK_OPTION_SPAN,    /* uint64_t, ms, from `min` to `max`; the unit must be said */
    PK_OPTION_WAIT,    /* int64_t, ms; a bare number means seconds, as flock has it */
    PK_OPTION_FORMAT,  /* bool: json */
};

enum { PK_OPTION_LIST_MAX = 16 };

struct pk_option_list {
    const char *at[PK_OPTION_LIST_MAX];
    size_t count;
};

struct pk_option {
    enum pk_option_kind kind;
    char letter;      /* 0: none */
    const char *name; /* NULL: none */
    const char *arg;  /* what help calls the value */
    const char *help;
    size_t offset; /* of the value in the group's struct */
    uint64_t min, max;
};

struct pk_option_group {
    const struct pk_option *options; /* NULL ends the list of groups */
    size_t base;                     /* of the group's struct in the verb's */
};

/* Where the store is and how much to say: every verb's. */
struct pk_common {
    const char *url; /* NULL: not given */
    bool quiet, verbose, help;
    bool json; /* by pk_options_output, for verbs that print */
};
extern const struct pk_option pk_options_common[];
extern const struct pk_option
    pk_options_output[]; /* base: that of the struct pk_common */

struct pk_cli_verb {
    const char *name;
    const char *alias;        /* NULL: none */
    const char *brief;        /* for the list of verbs */
    const char *usage;        /* lines after "picket NAME " */
    const char *about;        /* paragraphs */
    const char *exits;        /* lines of "  CODE  meaning" */
    const char *examples;     /* lines */
    const char *words;        /* what its words are called, for complaints: "LOCK" */
    int words_min, words_max; /* at most PK_WORDS_MAX */
    bool command;             /* a command may follow */
    const struct pk_option_group *groups;
    size_t common; /* where the struct pk_common is in the verb's struct */
    int (*run)(int argc, char **argv);
};

enum { PK_WORDS_MAX = 16 };

struct pk_words {
    int count;
    const char *at[PK_WORDS_MAX];
    char **command; /* NULL-terminated; NULL: there is none */
    bool dashes;    /* the command came after "--" */
};

/* Reads the options and words in argv (argv[0] is the verb's name) into `settings`, which
 * holds the defaults. Options may stand between words, but never inside a command.
 * Returns -1 to go on, otherwise the code to exit with: help was printed, or an error
 * said. */
int pk_options_parse(const struct pk_cli_verb *v, int argc, char **argv, void *settings,
                     struct pk_words *w);
/* Prints a verb's help to standard output. */
void pk_options_help(const struct pk_cli_verb *v);

/* A number that may come from the environment: `*value` if it isn't 0, else $name. 0 with
 * *value set (to 0 if there is none), or an exit code after an error said. */
int pk_options_or_env(uint64_t *value, const char *name, uint64_t max);

#endif
