/* SPDX-License-Identifier: MIT */
/*
 * Any bytes as a backup. The first byte chooses: even, the rest is taken as it is; odd,
 * the right digest is put behind it, so that the readers' own checks are what is tried.
 * What the reader accepts must be a sound machine, and whole to the checker, too, however
 * the bytes are cut.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/door.h"
#include "core/machine.h"
#include "core/wire.h"
#include "raft/backup.h"

enum { DIGEST_BYTES = 8 };

static void demand(bool ok, const char *what)
{
    if (!ok) {
        (void)fprintf(stderr, "%s\n", what);
        abort();
    }
}

static void try_backup(const unsigned char *bytes, size_t len)
{
    struct pk_backup_reader *reader = pk_backup_reader_new();
    struct pk_backup_reader *checker = pk_backup_checker_new();
    pk_backup_feed(reader, bytes, len);
    for (size_t at = 0, step = 1; at < len; at += step, step = 1 + at % 7) {
        pk_backup_feed(checker, bytes + at, step < len - at ? step : len - at);
    }
    bool accepted = pk_backup_wrong(reader) == NULL;
    demand(!accepted || pk_backup_wrong(checker) == NULL, "the checker differs");
    struct pk_machine *m = pk_backup_reader_end(reader);
    demand(!accepted || pk_machine_check(m) == NULL, "an unsound machine");
    pk_machine_free(m);
    pk_machine_free(pk_backup_reader_end(checker));
}

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size);
int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size)
{
    if (size == 0) {
        return 0;
    }
    size_t len = size - 1;
    unsigned char *bytes = pk_door_resize(NULL, len + DIGEST_BYTES);
    memcpy(bytes, data + 1, len);
    if (data[0] % 2 == 1) {
        pk_put_u64(bytes + len, pk_digest(PK_DIGEST_START, bytes, len));
        len += DIGEST_BYTES;
    }
    try_backup(bytes, len);
    pk_door_resize(bytes, 0);
    return 0;
}
