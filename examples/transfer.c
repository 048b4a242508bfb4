/* SPDX-License-Identifier: MIT */
/*
 * Money from one account to another: a lock set, and a ledger that is only ever added to.
 *
 *     transfer LEDGER ab 30 [THINK_MS]       from a to b; thinks for 1000 ms
 *     transfer LEDGER                        prints the balances
 *
 * Accounts are letters; z is the bank, which may go below zero. Both are locked in one
 * step, with one token: transfers in opposite directions can't deadlock. A transfer is
 * one line of the ledger, "TOKEN AMOUNT FROM TO", and one write: both accounts change or
 * neither does, also after kill -9.
 *
 * A file that is added to can't refuse anybody. So its readers do: a line does not count
 * when one with a higher token stands before it for either account. The order of the
 * lines decides, and all readers agree. A new holder first writes a line with amount 0:
 * that claims both accounts before their balances are read.
 *
 * In two terminals:
 *     $ transfer ledger za 100
 *     $ transfer ledger ab 30           waits for a, which then has 100
 *
 * SIGSTOP the first while it thinks, for more than 2 s: the second goes on. Woken up, the
 * first adds its line, sees that it does not count, and says so: 1. Stopped earlier, it
 * is told by its checkpoint: 123.
 *
 * All must see the same file, on a file system where appending is one step (not NFS).
 *
 * Exit codes: 0 done; 1 refused, by the fence or for want of money; 123 the lock was
 * lost; 125 an error.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <picket.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { TTL_MS = 5000 };

struct ledger {
    struct {
        long balance;
        uint64_t fence; /* the highest token seen; 0: no such account */
    } of[26];
    int refused; /* a line of our token does not count */
};

static int fail(int code, const char *what, const char *why)
{
    (void)fprintf(stderr, "transfer: %s: %s\n", what, why);
    return code;
}

static int is_account(char c)
{
    return c >= 'a' && c <= 'z';
}

/* The fence: refuse lower, on both sides or on none. Returns -1 if it is no line. */
static int count_line(struct ledger *l, const char *line, uint64_t ours)
{
    char *rest;
    uint64_t token = strtoull(line, &rest, 10);
    long amount = strtol(rest, &rest, 10);
    if (token == 0 || strlen(rest) != 5 || !is_account(rest[1]) || !is_account(rest[3])) {
        return -1;
    }
    int from = rest[1] - 'a';
    int to = rest[3] - 'a';
    if (token < l->of[from].fence || token < l->of[to].fence) {
        l->refused |= token == ours;
        return 0;
    }
    l->of[from].fence = l->of[to].fence = token;
    l->of[from].balance -= amount;
    l->of[to].balance += amount;
    return 0;
}

static int read_ledger(const char *path, uint64_t ours, struct ledger *out)
{
    char line[80];
    int bad = 0;
    memset(out, 0, sizeof *out);
    FILE *f = fopen(path, "r");
    if (f == NULL) {
        return fail(125, path, strerror(errno));
    }
    while (bad == 0 && fgets(line, sizeof line, f) != NULL) {
        bad = count_line(out, line, ours);
    }
    (void)fclose(f);
    return bad == 0 ? 0 : fail(125, path, "damaged: a line is not 'TOKEN AMOUNT A B'");
}

/* One line, one write, on disk; then the ledger as it is with it. */
static int add_line(const char *path, uint64_t token, long amount, const char *accounts,
                    struct ledger *out)
{
    char line[80];
    int len = snprintf(line, sizeof line, "%" PRIu64 " %ld %c %c\n", token, amount,
                       accounts[0], accounts[1]);
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    int ok = fd >= 0 && write(fd, line, (size_t)len) == len && fdatasync(fd) == 0;
    int code = ok ? read_ledger(path, token, out) : fail(125, path, strerror(errno));
    if (fd >= 0) {
        (void)close(fd);
    }
    return code == 0 && out->refused ? fail(1, path, "a later holder was here") : code;
}

static int pay(struct picket_lock *lock, const char *path, const char *accounts,
               long amount, long think_ms)
{
    struct ledger l;
    uint64_t token = picket_token(lock);
    if (picket_checkpoint(lock, (uint64_t)think_ms) != PICKET_OK) {
        return fail(123, "not paid", picket_last_error());
    }
    int code = add_line(path, token, 0, accounts, &l); /* claims before it reads */
    if (code == 0 && accounts[0] != 'z' && l.of[accounts[0] - 'a'].balance < amount) {
        code = fail(1, "not paid", "not enough money");
    }
    if (code != 0) {
        return code;
    }
    (void)printf("thinking, token %" PRIu64 "\n", token);
    (void)poll(NULL, 0, (int)think_ms); /* here nobody looks at the lock */
    return add_line(path, token, amount, accounts, &l);
}

static int transfer(const char *path, const char *accounts, long amount, long think_ms)
{
    struct picket *p;
    struct picket_lock *lock;
    char locks[2][24];
    const struct picket_want wants[] = {{.name = locks[0]}, {.name = locks[1]}};
    const struct picket_options options = {.ttl_ms = TTL_MS};
    for (int i = 0; i < 2; i++) {
        (void)snprintf(locks[i], sizeof locks[i], "examples/account/%c", accounts[i]);
    }
    if (picket_open(NULL, &options, &p) != PICKET_OK) {
        return fail(125, "not paid", picket_last_error());
    }
    int code = picket_acquire_set(p, wants, 2, NULL, &lock) == PICKET_OK
                   ? pay(lock, path, accounts, amount, think_ms)
                   : fail(125, "not paid", picket_last_error());
    picket_close(p);
    return code;
}

static int print_balances(const char *path)
{
    struct ledger l;
    int code = read_ledger(path, 0, &l);
    for (int i = 0; code == 0 && i < 26; i++) {
        if (l.of[i].fence != 0) {
            (void)printf("%c %ld\n", 'a' + i, l.of[i].balance);
        }
    }
    return code;
}

int main(int argc, char **argv)
{
    (void)setvbuf(stdout, NULL, _IOLBF, 0); /* each line at once, also into a pipe */
    if (argc == 2) {
        return print_balances(argv[1]);
    }
    const char *accounts = argc > 3 ? argv[2] : "";
    long amount = argc > 3 ? strtol(argv[3], NULL, 10) : 0;
    long think_ms = argc > 4 ? strtol(argv[4], NULL, 10) : TTL_MS / 2;
    if (strlen(accounts) != 2 || !is_account(accounts[0]) || !is_account(accounts[1]) ||
        accounts[0] == accounts[1] || amount < 1 || think_ms < 0 ||
        think_ms > TTL_MS / 2) {
        (void)fprintf(stderr, "usage: transfer LEDGER [FROMTO AMOUNT [THINK_MS]]\n");
        return 125;
    }
    return transfer(argv[1], accounts, amount, think_ms);
}
