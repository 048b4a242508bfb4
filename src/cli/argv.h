/* SPDX-License-Identifier: MIT */
/*
 * What the process list shows of our words. Everybody on the machine can read it, for
 * picket itself and for every process that it forks (guardian, helper, job before its
 * exec), so that it has no passwords of URLs and no arguments of the job: the job may
 * hide those of its own command line, and we must not show them in its place.
 */
#ifndef PICKET_CLI_ARGV_H
#define PICKET_CLI_ARGV_H

/* Copies the words, for the verb to read, and redacts URLs in what the list shows. Call
 * it once, first thing. The copies stay until the end. */
char **pk_argv_take(int argc, char **argv);

/* Takes the word that `text` is, or is a part of, from what the list shows. */
void pk_argv_hide(const char *text);
/* The same for this copy and all that come after it. */
void pk_argv_hide_from(char *const *copy);

/* What the list shows now, with blanks between the words; to be freed. */
char *pk_argv_shown(void);

#endif
